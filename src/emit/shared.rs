//! Memory that running programs share with the loader and the reader of their records.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::system::binary::python::{Layout, Python, Unsupported};

/// The object's ring buffer; absent if no record is ever written.
pub const RING: &str = "ring";

/// The name of the map of stacks with this many frames.
pub fn stacks_name(limit: u32) -> String {
    format!("stacks_{limit}")
}
/// The section (and so the map) of [`LoadConstants`].
pub const START_SECTION: &str = ".rodata.start";
/// The section (and so the map) of the [arguments](crate::settings::LateBound) that the loader fills in; absent if unused.
pub const ARGUMENTS_SECTION: &str = ".rodata.arguments";
/// The section (and so the map) of [`State`].
pub const STATE_SECTION: &str = ".data.state";
/// The section (and so the map) of [`ProbeCounters`]s: for each CPU, one for each probe. Absent if no probe has
/// anything to count. The object has those of one CPU; the loader resizes it for the machine.
pub const TALLIES_SECTION: &str = ".data.tallies";
/// The section (and so the map) of [`Failures`]: for each problem, one for each CPU. Absent if no probe has any to
/// report. The object has room for one; the loader resizes it.
pub const FAILURES_SECTION: &str = ".data.failures";
/// The section (and so the map) of [`Gate`]s, one for each probe; absent if nothing limits the run.
pub const GATES_SECTION: &str = ".data.gates";
/// The section (and so the map) of the [`Cell`]s of all maps that have a table of threads; absent if none has. It has no
/// initial contents.
pub const THREADS_SECTION: &str = ".bss.threads";
/// The section (and so the map) of [`MarkCell`]s: unfinished calls whose entry has passed its gate. Absent if nothing limits calls.
/// It has no initial contents.
pub const MARKS_SECTION: &str = ".bss.marks";
/// Their number: a power of two.
pub const MARK_CELLS: u32 = 8192;
/// The map of the calls whose cell is taken: keys are the thread's ID and, from bit 32 on, the gate; and the frame.
pub const CALL_MARKS: &str = "marks";
/// The maximum number of its marks.
pub const MAX_CALL_MARKS: u32 = 65536;
/// The map, with the same keys, of the calls whose returns do not remove the mark. It forgets the oldest ones.
pub const RECENT_CALL_MARKS: &str = "recent_marks";
/// The section (and so the map) of bytes that record which probes were hit; absent if unused.
pub const HITS_SECTION: &str = ".data.hits";
/// The section (and so the map) of words that record on which CPUs a trampoline's program is running; absent if the
/// kernel keeps track of that.
pub const BUSY_SECTION: &str = ".data.busy";
/// The maximum number of CPUs of x86 kernels (CONFIG_NR_CPUS): a power of two.
pub const MAX_CPUS: u32 = 8192;
/// The map of followed processes: keys are their ids (`u32`); absent if unused.
pub const FOLLOWED: &str = "followed";
/// The maximum number of processes followed at a time.
pub const MAX_FOLLOWED: u32 = 65536;
/// For a process that is known only by its number in rbt's PID namespace, the key is that number with this bit, which
/// no PID has.
pub const IN_NAMESPACE: u32 = 1 << 31;
/// The scratch arena: an array of `LoadConstants::cpus * SCRATCH_SLOTS` entries; resized by the loader to the machine's CPUs.
pub const SCRATCH: &str = "scratch";
/// Programs that may be running on one CPU at a time: a probe can fire inside a probe, and a task can be preempted.
pub const SCRATCH_SLOTS: u32 = 4;

/// The states of the limits without keys (`ratelimit`): an array of words.
pub const LIMITS: &str = "ratelimits";
/// The size of its elements: limits of different probes do not share a cache line.
pub const LIMIT_SIZE: u32 = 64;

/// The map of processes that run a Python interpreter: keys are their ids, as of [`FOLLOWED`]; values are
/// [`Process`]es. Absent if no Python frames are needed.
pub const PYTHON_PROCESSES: &str = "python_processes";
/// The map of code objects that were sent.
pub const PYTHON_CODES: &str = "python_codes";
/// An array with an element for each slot of [`SCRATCH`]; resized by the loader.
pub const PYTHON_STATE: &str = "python_state";
/// The origin of a record. It follows the index of the event if the artifact has origins.
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
    /// The cgroup (version 2) of the process.
    pub cgroup: u64,
}

/// In place of the index of an event: the record is a [`Code`].
pub const CODE_RECORD: u32 = u32::MAX;

/// In place of the index of an event: the record is a [`Failure`].
pub const FAILURE_RECORD: u32 = u32::MAX - 1;

/// A failure at a place of the script, which programs send in addition to counting it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// [`FAILURE_RECORD`], and the stamp of a record.
    pub head: u64,
    /// The number of the place.
    pub problem: u64,
    /// See [`Failures::returned`].
    pub returned: i64,
}

/// A process's Python interpreter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Address of `_PyRuntime`; 0 if the version is not supported.
    pub runtime: u64,
    /// Address of `PyCode_Type`.
    pub code_type: u64,
    /// Offsets of the members of its structures.
    pub layout: Layout,
}

impl Process {
    /// For an interpreter that is in memory at its virtual addresses plus `bias`.
    pub fn of(python: &Python, bias: u64) -> Self {
        let layout = python
            .layout
            .unwrap_or_else(|why| Layout { minor: if let Unsupported::Version(minor) = why { minor } else { 0 }, ..Default::default() });
        let at = |addr: u64| if python.layout.is_ok() { addr.wrapping_add(bias) } else { 0 };
        Self { runtime: at(python.runtime), code_type: at(python.code_type), layout }
    }
}

/// The data of a Python code object, which programs send when they first see it: once for each piece of the line table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Code {
    /// [`CODE_RECORD`].
    pub head: u64,
    /// Its ID in stacks: a hash of the following members up to the table.
    pub id: u64,
    /// Minor version of the interpreter.
    pub minor: u32,
    /// `co_firstlineno`
    pub line: u32,
    /// Bytes of `name`.
    pub name_bytes: u32,
    /// Bytes per character of `name`, and [`Code::CUT`] if it is cut.
    pub name_shape: u32,
    /// The same for `file`.
    pub file_bytes: u32,
    /// See above.
    pub file_shape: u32,
    /// Bytes of the line table.
    pub table_bytes: u32,
    /// The start of this piece in the table.
    pub piece_at: u32,
    /// `co_qualname`
    pub name: [u8; 256],
    /// `co_filename`
    pub file: [u8; 512],
    /// A piece of the line table, at the end of the record.
    pub table: [u8; 4096],
}

impl Code {
    /// In [`Code::name_shape`]: the text is cut.
    pub const CUT: u32 = 1 << 8;
    /// All members are zero.
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

/// The bits that mark the ID of a code object. No address in user space has the highest bit.
pub const CODE_ID: u64 = 0b101 << 61;
/// The bits of an ID that are a hash of the contents. Those below are for the offset of an instruction: see [`OFFSETS`].
pub const CODE_HASH: u64 = (1 << 61) - (1 << OFFSET_BITS);
/// In stacks of Python and native frames, a Python frame is one word: the ID, and half the offset of the instruction,
/// which is even.
pub const OFFSETS: u64 = (1 << OFFSET_BITS) - 1;
/// 512 KiB of instructions.
const OFFSET_BITS: u32 = 18;
/// In place of half the offset: the frame is before the first instruction.
pub const BEFORE_FIRST: u64 = OFFSETS;
/// In place of half the offset: the offset is too large.
pub const TOO_LARGE: u64 = OFFSETS - 1;
/// In place of a frame in such a stack: a [`Reason`], and from bit 8 on the minor version.
pub const PYTHON_REASON: u64 = 0b10 << 62;
/// The bits that distinguish these words from addresses, and from the reason why a stack was cut.
pub const MARKER_BITS: u64 = 0b11 << 62;

/// In place of the ID of a code object: why there is none, or why a stack of Python frames ends. The values are even,
/// because the lowest bit of an ID marks the frame in which C code entered the interpreter's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The stack has more frames.
    Cut = 2,
    /// The code object could not be read or sent.
    UnknownCode = 4,
    /// The process has more threads than the search limit.
    TooMany = 6,
    /// The interpreter's memory could not be read, or is inconsistent.
    Unreadable = 8,
    /// The version is not supported; the frame's offset is its minor version, or 0.
    Unsupported = 10,
    /// The probe has no room for walking Python frames. Only counted.
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

/// Constants that the loader writes before loading; the verifier knows their values.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadConstants {
    /// Process id of the `-c` child, or 0.
    pub child: u64,
    /// `CLOCK_BOOTTIME` at start, nanoseconds: `elapsed` counts from here.
    pub boot_ns: u64,
    /// The number of possible CPUs.
    pub cpus: u64,
    /// The number of nanoseconds by which International Atomic Time is ahead of `CLOCK_MONOTONIC`.
    pub tai_offset: u64,
    /// The number of nanoseconds by which `CLOCK_REALTIME` is ahead of `CLOCK_BOOTTIME`.
    pub unix_offset: u64,
    /// Always 0, which the verifier knows and the compiler does not.
    pub opaque_zero: u64,
    /// The ID of this process in the initial PID namespace.
    pub rbt_pid: u64,
    /// Number of places where programs report failures.
    pub problems: u64,
    /// log2 of the number of [`Failures`] per place, the first of which belong to the CPUs.
    pub failures_shift: u64,
    /// Random seed of stack ids, so that an attacker cannot construct stacks with equal ids.
    pub seed: u64,
    /// The only traced process, or 0 ([`Settings::only_pid`](crate::settings::Settings::only_pid)). This member and the
    /// following ones are for code whose target is [late-bound](crate::settings::LateBound::target).
    pub only_pid: u64,
    /// The only traced process for probes that can be attached to one, or 0.
    pub only_command: u64,
    /// 1 if `followed` refers to a process and its descendants.
    pub follows: u64,
    /// 1 for `--follow`.
    pub only_followed: u64,
    /// The ID of the cgroup of `--cgroup`, or 0.
    pub cgroup: u64,
    /// Its depth.
    pub cgroup_level: u64,
    /// The device of this process's PID namespace, unless that is the initial one.
    pub namespace_dev: u64,
    /// Its inode, or 0.
    pub namespace_ino: u64,
}

impl LoadConstants {
    /// [`LoadConstants::failures_shift`] for a machine with this many CPUs.
    pub fn shift(cpus: u32) -> u32 {
        cpus.max(1).next_power_of_two().ilog2()
    }
}

/// The failures at one place of the script on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Failures {
    /// Their number.
    pub count: u64,
    /// The helper's return value in the last one; 0 if it is not a failure of a helper.
    pub returned: i64,
    /// The period in which the last record was sent: the kernel's clock in units of 2^[`FAILURE_PERIOD_SHIFT`] ns.
    pub period: u64,
    /// How many records were sent in this period.
    pub sent: u64,
}

/// log2 of the nanoseconds in which a place sends at most [`MAX_FAILURE_RECORDS`] on one CPU: 1.07 s.
pub const FAILURE_PERIOD_SHIFT: u32 = 30;

/// See [`FAILURE_PERIOD_SHIFT`].
pub const MAX_FAILURE_RECORDS: u64 = 1000;

/// log2 of the part of the ring buffer beyond which a failure is not sent.
pub const FAILURE_ROOM_SHIFT: u32 = 4;

/// Shared with the running programs; mapped into this process.
#[repr(C)]
#[derive(Debug, Default)]
pub struct State {
    /// Set by the reader when it sleeps without a timeout: the next record wakes it (`BPF_RB_FORCE_WAKEUP`) and clears
    /// it. Records that find it clear wake nothing (`BPF_RB_NO_WAKEUP`): the reader is awake, or will be soon.
    pub reader_sleeps: AtomicU32,
    /// Set when the run is over: programs return at once.
    pub stopped: AtomicU32,
    /// 0 until a program requests the end of the run; then [`State::ENDED`] and the status. The record of the request
    /// may have found no room.
    pub ended: AtomicU64,
    /// Set while user space waits without a timeout: the next run that a limit concerns and the next lost record wake it, set
    /// [`State::noticed`], and clear this.
    pub awaited: AtomicU32,
    /// A program has something to tell user space that no record says.
    pub noticed: AtomicU32,
    /// The number of [`State::stacks`] from which on the next one wakes user space in the same way. It is then set to the maximum.
    pub awaited_stacks: AtomicU64,
    /// The number of running programs that may sleep, for which the kernel does not wait.
    pub sleepers: AtomicU64,
    /// A bit for each double-buffered map: the copy that is written to. See `emit/double_buffer.rs`.
    pub generations: AtomicU64,
    /// Set if the run does not wait for programs: their loops end, and so do they. Programs check [`State::stopped`]
    /// only once.
    pub interrupted: AtomicU64,
    /// The number of events that may still pass, in two's complement: see `--max-events`.
    pub event_tokens: AtomicU64,
    /// Stacks that programs have put into their tables.
    pub stacks: AtomicU64,
    /// User stacks that were not unwound to their end, by reason: see [`unwind::CUT`](super::unwind::CUT) and [`Reason::number`].
    pub cut_stacks: [AtomicU64; CUT_REASONS],
    /// The number of unfinished changes by sleepable programs, for both copies of each double-buffered map.
    pub changing: [AtomicU64; 2 * MOMENTS],
}

/// What one probe did on one CPU, and what it failed to do. It has its own cache line, because it is written during
/// traced operations.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeCounters {
    /// Records to be sent, including those that found no room.
    pub sent: u64,
    /// Records that found no room in the ring.
    pub dropped: u64,
    /// Runs that found all scratch slots of their CPU taken.
    pub missed: u64,
    /// Updates that a full map refused.
    pub refused: u64,
    /// Updates that failed for lack of memory or for other reasons.
    pub unstored: u64,
    /// Strings and buffers that `max_strlen` cut.
    pub cut: u64,
    /// Failed reads of memory, if they are counted.
    pub unread: u64,
    /// Stacks that found no room in their table.
    pub unkept: u64,
    /// Runs that passed the probe's [`Gate`], if it has one.
    pub ran: u64,
    /// Runs that a limit dropped.
    pub thinned: u64,
    /// Runs that did not pass the gate, and that the weights of those that passed stand for.
    pub sampled_out: u64,
}

/// Limits the runs of a probe: written by the reader.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Gate {
    /// One in two to the power of this passes, at random; from [`Gate::CLOSED`] on, none.
    pub shift: AtomicU64,
    /// The number of runs that have passed since the reader last set it to zero.
    pub passed: AtomicU64,
    /// When this many have passed, one more is added to the shift,
    pub free: AtomicU64,
    /// and again after each two to the power of this.
    pub step: AtomicU64,
    /// Not zero: an entry of a call was refused, or not traced for some time.
    pub has_refused: AtomicU64,
    /// Not zero: a call that passed has no mark, because there were too many.
    pub has_unmarked: AtomicU64,
    /// Not zero: the limit of events drops none of its runs.
    pub keeps_events: AtomicU64,
}

impl Gate {
    /// In [`Gate::shift`]: no run passes.
    pub const CLOSED: u64 = 32;
    /// The largest shift: the random number has 32 bits.
    pub const MAX_SHIFT: u64 = Self::CLOSED - 1;
}

/// A place for the mark of a call: see `emit/call_marks.rs`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct MarkCell {
    /// The thread whose call it is, and from bit 32 on the gate, with [`MarkCell::OWNED`]; 0 if there is none.
    pub owner: AtomicU64,
    /// Identifies the call among those of the thread.
    pub frame: AtomicU64,
    /// The mark.
    pub mark: AtomicU64,
    /// The number of marks in the hash map that belong into this cell, or more.
    pub overflow: AtomicU64,
}

impl MarkCell {
    /// In [`MarkCell::owner`]: set for a mark.
    pub const OWNED: u64 = 1 << 62;
    /// In [`MarkCell::owner`]: the mark is not yet written.
    pub const TAKEN: u64 = 1 << 63;
    /// 2^64 divided by the golden ratio: see [`Cell::MULTIPLIER`].
    pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    /// Another odd number, so that the frames of a thread are spread differently from threads.
    pub const FRAME_MULTIPLIER: u64 = 0xc2b2_ae3d_27d4_eb4f;
    /// The number of bits of the product that are not part of the index.
    pub const SHIFT: u32 = u64::BITS - MARK_CELLS.ilog2();

    /// The index of a call's cell, by the key of its mark.
    pub const fn index(thread_and_gate: u64, frame: u64) -> usize {
        let mixed = thread_and_gate.wrapping_add(frame.wrapping_mul(Self::FRAME_MULTIPLIER));
        (mixed.wrapping_mul(Self::MULTIPLIER) >> Self::SHIFT) as usize
    }
}

/// A thread's place in the table of a map: see `emit/thread_table.rs`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Cell {
    /// The ID of the thread whose element this is, with [`Cell::OWNED`]; 0 if there is none.
    pub owner: AtomicU32,
    /// The number of elements in the hash map whose threads have this cell, or more.
    pub overflow: AtomicU32,
    /// The value of the element.
    pub value: AtomicU64,
}

impl Cell {
    /// In [`Cell::owner`]: set for an element, so that a thread with the ID 0 has none. IDs are below 2^22.
    pub const OWNED: u32 = 1 << 30;
    /// In [`Cell::owner`]: the value is not yet written.
    pub const TAKEN: u32 = 1 << 31;
    /// 2^32 divided by the golden ratio, which distributes consecutive IDs evenly and far from each other (D. Knuth, The Art of
    /// Computer Programming, 6.4): threads of one process, which run on different CPUs, rarely share a cache line.
    pub const MULTIPLIER: u32 = 0x9e37_79b9;

    /// The shift that reduces a hash to the index of one of this many cells.
    pub const fn shift(cells: u32) -> u32 {
        32 - cells.ilog2()
    }

    /// The index of a thread's cell among this many, which are a power of two and at least two.
    pub const fn index(thread: u32, cells: u32) -> usize {
        (thread.wrapping_mul(Self::MULTIPLIER) >> Self::shift(cells)) as usize
    }
}

/// One more than the last reason: a power of two. Python's follow those of `emit/unwind`: see [`Reason::number`].
pub const CUT_REASONS: usize = 32;

/// The maximum number of double-buffered maps.
pub const MOMENTS: usize = 16;

impl State {
    /// In [`State::ended`]: the end was requested.
    pub const ENDED: u64 = 0x100;
}
