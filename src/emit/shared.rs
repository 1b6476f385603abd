//! Memory that running programs share with the loader and the reader of their records.

use crate::system::binary::python::{Layout, Python, Unsupported};

/// The object's ring buffer; absent when no record is ever written.
pub const RING: &str = "ring";

/// The name of the map of stacks with this many frames.
pub fn stacks_name(limit: u32) -> String {
    format!("stacks_{limit}")
}
/// The section (and so the map) of [`Start`].
pub const START_SECTION: &str = ".rodata.start";
/// The section (and so the map) of [`State`].
pub const STATE_SECTION: &str = ".data.state";
/// The section (and so the map) of [`ProbeCounters`]s: for each CPU, one for each probe. Absent when no probe has anything to count.
/// In the object it has those of one CPU; the loader makes it as large as the machine wants it.
pub const TALLIES_SECTION: &str = ".data.tallies";
/// The section (and so the map) of [`Failures`]: for each problem, one for each CPU. Absent when no probe has any to report. In
/// the object it has room for one; the loader makes it as large as it is to be.
pub const FAILURES_SECTION: &str = ".data.failures";
/// The section (and so the map) of [`Gate`]s, one for each probe; absent where nothing limits the run.
pub const GATES_SECTION: &str = ".data.gates";
/// The map of calls under way whose entry has passed its gate: keys are the thread's ID and, from bit 32 on, the gate.
pub const CALL_MARKS: &str = "marks";
/// The section (and so the map) of bytes that record which probes were hit; absent if unused.
pub const HITS_SECTION: &str = ".data.hits";
/// The section (and so the map) of words that record on which CPUs a trampoline's program is running; absent if the
/// kernel keeps track of that.
pub const BUSY_SECTION: &str = ".data.busy";
/// As many CPUs as x86's kernels can have (CONFIG_NR_CPUS): a power of two.
pub const MOST_CPUS: u32 = 8192;
/// The map of followed processes: keys are their ids (`u32`); absent if unused.
pub const FOLLOWED: &str = "followed";
/// The maximum number of processes followed at a time.
pub const MOST_FOLLOWED: u32 = 65536;
/// Of a process that is known by its number in rbt's pid namespace alone, the key is that number with this bit, which no number
/// has.
pub const OF_NAMESPACE: u32 = 1 << 31;
/// The scratch arena: an array of `Start::cpus * SCRATCH_SLOTS` entries; resized by the loader to the machine's CPUs.
pub const SCRATCH: &str = "scratch";
/// Programs that may be running on one CPU at a time: a probe can fire inside a probe, and a task can be preempted.
pub const SCRATCH_SLOTS: u32 = 4;

/// The map of processes that run a Python interpreter: keys are their ids, as of [`FOLLOWED`]; values are
/// [`Process`]es. Absent if no Python frames are needed.
pub const PYTHON_PROCESSES: &str = "python_processes";
/// The map of code objects that were sent.
pub const PYTHON_CODES: &str = "python_codes";
/// An array with an element for each slot of [`SCRATCH`]; resized by the loader.
pub const PYTHON_STATE: &str = "python_state";
/// Where a record comes from. It follows the index of the event if the artifact has origins.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// When the record was made, in nanoseconds since the machine was booted.
    pub boot_ns: u64,
    /// The process in the upper half, and the thread.
    pub pid_tgid: u64,
    /// The name of the thread, up to a NUL.
    pub comm: [u8; 16],
    /// Index of the site that fired.
    pub site: u64,
}

/// In place of the index of an event: the record is a [`Code`].
pub const CODE_RECORD: u32 = u32::MAX;

/// A process's Python interpreter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Address of `_PyRuntime`; 0 where the version is not supported.
    pub runtime: u64,
    /// Address of `PyCode_Type`.
    pub code_type: u64,
    /// Where the members of its structures are.
    pub layout: Layout,
}

impl Process {
    /// Of an interpreter, which is in memory at its virtual addresses plus `bias`.
    pub fn of(python: &Python, bias: u64) -> Self {
        let layout = python
            .layout
            .unwrap_or_else(|why| Layout { minor: if let Unsupported::Version(minor) = why { minor } else { 0 }, ..Default::default() });
        let at = |addr: u64| if python.layout.is_ok() { addr.wrapping_add(bias) } else { 0 };
        Self { runtime: at(python.runtime), code_type: at(python.code_type), layout }
    }
}

/// What a program knows of a Python code object: sent once for each piece of the line table, and at first sight only.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Code {
    /// [`CODE_RECORD`].
    pub head: u64,
    /// Its ID in stacks: a hash of what follows, up to the table.
    pub id: u64,
    /// Minor version of the interpreter.
    pub minor: u32,
    /// `co_firstlineno`
    pub line: u32,
    /// Bytes of `name`.
    pub name_bytes: u32,
    /// Bytes of a character of `name`, and [`Code::CUT`] if there was no room for all of it.
    pub name_shape: u32,
    /// The same of `file`.
    pub file_bytes: u32,
    /// See above.
    pub file_shape: u32,
    /// Bytes of the line table.
    pub table_bytes: u32,
    /// Where in it this piece starts.
    pub piece_at: u32,
    /// `co_qualname`
    pub name: [u8; 256],
    /// `co_filename`
    pub file: [u8; 512],
    /// A piece of the line table: the record ends with it.
    pub table: [u8; 4096],
}

impl Code {
    /// In [`Code::name_shape`]: there was no room for all of it.
    pub const CUT: u32 = 1 << 8;
    /// Nothing.
    pub const EMPTY: Code = Code {
        head: 0,
        id: 0,
        minor: 0,
        line: 0,
        name_bytes: 0,
        name_shape: 0,
        file_bytes: 0,
        file_shape: 0,
        table_bytes: 0,
        piece_at: 0,
        name: [0; 256],
        file: [0; 512],
        table: [0; 4096],
    };
}

/// What every ID of a code object has. No address in user space has the highest bit.
pub const CODE_ID: u64 = 0b101 << 61;
/// The bits of an ID that are a hash of the contents. Those below are for the offset of an instruction: see [`OFFSETS`].
pub const CODE_HASH: u64 = (1 << 61) - (1 << OFFSET_BITS);
/// In stacks of frames of both kinds, a Python frame is one word: the ID, and half the offset of the instruction, which is even.
pub const OFFSETS: u64 = (1 << OFFSET_BITS) - 1;
/// 512 KiB of instructions.
const OFFSET_BITS: u32 = 18;
/// In place of half the offset: it is before the first instruction.
pub const BEFORE_FIRST: u64 = OFFSETS;
/// In place of half the offset: it is too large.
pub const TOO_LARGE: u64 = OFFSETS - 1;
/// In such a stack in place of a frame: a [`Reason`], and from bit 8 on the minor version.
pub const PYTHON_REASON: u64 = 0b10 << 62;
/// The bits that tell these words from addresses, and from what says why a stack was cut.
pub const MARKS: u64 = 0b11 << 62;

/// In place of the ID of a code object: why there is none, or why a stack of Python frames ends. Even, since the lowest bit of
/// an ID marks the frame in which C code entered the interpreter's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The stack has more frames.
    Cut = 2,
    /// The code object could not be read or sent.
    UnknownCode = 4,
    /// The process has more threads than the search limit.
    TooMany = 6,
    /// The interpreter's memory could not be read, or makes no sense.
    Unreadable = 8,
    /// The version is not supported; the frame's offset is its minor version, or 0.
    Unsupported = 10,
    /// The probe has no room for the walk along Python frames. Only counted.
    LeftOut = 14,
    /// Before the Python frames that follow, native frames are missing. Not counted: the stack was cut.
    Gap = 16,
}

impl Reason {
    /// Its counter in [`State::cut_stacks`].
    pub const fn number(self) -> u64 {
        CUT_REASONS as u64 / 2 + self as u64 / 2
    }
}

/// Constants that the loader writes before the object is loaded; the verifier sees them as known.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Process id of the `-c` child, or 0.
    pub child: u64,
    /// `CLOCK_BOOTTIME` at start, nanoseconds: `elapsed` counts from here.
    pub boot_ns: u64,
    /// CPUs that may ever be there.
    pub cpus: u64,
    /// The number of nanoseconds by which International Atomic Time is ahead of `CLOCK_MONOTONIC`.
    pub tai_offset: u64,
    /// The number of nanoseconds by which `CLOCK_REALTIME` is ahead of `CLOCK_BOOTTIME`.
    pub unix_offset: u64,
    /// Always 0, which the verifier knows and the compiler does not.
    pub never: u64,
    /// This process, as the kernel numbers it whatever namespace it is in.
    pub own: u64,
    /// Places where programs report failures.
    pub problems: u64,
    /// Each of those has 2 to the power of this of [`Failures`], of which the first are the CPUs'.
    pub failures_shift: u64,
    /// Random seed of stack ids, so that an attacker cannot construct stacks with equal ids.
    pub seed: u64,
}

impl Start {
    /// [`Start::failures_shift`] for a machine with this many CPUs.
    pub fn shift(cpus: u32) -> u32 {
        cpus.max(1).next_power_of_two().ilog2()
    }
}

/// How often a program reported a failure at one place of the script on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    /// How often.
    pub count: u64,
    /// What the helper returned the last time; 0 where it was none.
    pub returned: i64,
}

/// Shared with the running programs; mapped into this process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Set by the reader when it sleeps without a time-out: the next record wakes it (`BPF_RB_FORCE_WAKEUP`) and clears
    /// it. Records that find it clear wake nothing (`BPF_RB_NO_WAKEUP`): the reader is awake, or will be soon.
    pub reader_sleeps: u32,
    /// Set when the run is over: programs return at once.
    pub stopped: u32,
    /// 0 until a program asks for the end of the run; then [`State::ENDED`] and the status. The record that says so may
    /// have found no room.
    pub ended: u64,
    /// The number of running programs that may sleep, for which the kernel does not wait.
    pub sleepers: u64,
    /// A bit for each map that is there twice: which of the two is written to. See `emit/double_buffer.rs`.
    pub generations: u64,
    /// Set when a run is not to wait for programs: their loops end, and so do they. See [`State::stopped`], which they ask once.
    pub interrupted: u64,
    /// The number of events that may still pass, in two's complement: see `--max-events`.
    pub event_tokens: u64,
    /// Stacks that programs have put into their tables.
    pub stacks: u64,
    /// User stacks that were not unwound to their end, by reason: see [`unwind::CUT`](super::unwind::CUT) and [`Reason::number`].
    pub cut_stacks: [u64; CUT_REASONS],
    /// For each of those maps, and each of its two: changes under way by programs that may sleep.
    pub changing: [u64; 2 * MOMENTS],
}

/// What one probe did on one CPU, and what it could not do. Its own line of the processor's cache, since it is written to in the
/// midst of what is traced.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeCounters {
    /// Records that were to be sent, those that found no room included.
    pub sent: u64,
    /// Records that found no room in the ring.
    pub dropped: u64,
    /// Runs that found all scratch slots of their CPU taken.
    pub missed: u64,
    /// Updates that a full map refused.
    pub refused: u64,
    /// Updates that found no memory, or failed for other reasons.
    pub unstored: u64,
    /// Strings and buffers that `max_strlen` cut.
    pub cut: u64,
    /// Reads of memory that failed, where they are counted.
    pub unread: u64,
    /// Stacks that found no room in their table.
    pub unkept: u64,
    /// Runs that passed the probe's [`Gate`], where it has one.
    pub ran: u64,
    /// Runs that a limit dropped.
    pub thinned: u64,
}

/// What lets runs of a probe pass: written by the reader.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// One in this many runs passes, at random; 1 for all, 0 for none.
    pub one_in: u64,
    /// The number of runs that may still pass, in two's complement.
    pub tokens: u64,
}

/// One more than the last reason: a power of two. Python's follow those of `emit/unwind`: see [`Reason::number`].
pub const CUT_REASONS: usize = 16;

/// The maximum number of double-buffered maps.
pub const MOMENTS: usize = 16;

impl State {
    /// In [`State::ended`]: the end was asked for.
    pub const ENDED: u64 = 0x100;
}
