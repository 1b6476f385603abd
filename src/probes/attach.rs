//! The mechanisms of attaching, with their properties.

use serde::{Deserialize, Serialize};

use crate::emit::{ProgramType, SectionDef};
use crate::system::Abi;
use crate::system::kernel::functions::KERNEL;

/// When a perf event fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SamplePeriod {
    /// After this count; a clock counts nanoseconds.
    Period(u64),
    /// This many times per second.
    Frequency(u64),
}

/// The mechanisms. The set is closed, because each is code in the loader. Kinds share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Attach {
    /// Runs once before everything else is attached.
    Begin,
    /// Runs once after everything else is detached.
    End,
    /// This process runs it on a signal.
    Signal,
    /// Run only by this process: a test, or a benchmark.
    Test {
        /// A benchmark.
        bench: bool,
    },
    /// A perf-based tracepoint.
    Tracepoint {
        /// Its category (`sched`).
        category: String,
        /// Its name.
        event: String,
    },
    /// A raw tracepoint.
    RawTracepoint {
        /// Its name.
        name: String,
        /// The verifier knows the types of its arguments, which helpers then accept.
        typed: bool,
    },
    /// A system call's entry or exit, through the raw tracepoint that all of them share: the program runs for the
    /// calls whose numbers its sites name.
    Syscall {
        /// Entry if true, otherwise exit.
        enter: bool,
        /// The call's number.
        number: u32,
    },
    /// A place in a file.
    Uprobe {
        /// The file.
        path: std::path::PathBuf,
        /// Byte offset in it.
        offset: u64,
        /// Offset from the function's start in bytes.
        function_offset: u64,
        /// Bytes from there to the probed instruction, by which `func` and stacks do not differ. They only check that the stack of a
        /// goroutine is large enough; if it is not, Go enlarges it and starts the function again.
        #[serde(default)]
        stack_check: u64,
        /// The function's name, for `func` and messages.
        function: String,
        /// At the function's return, which the kernel traces.
        ret: bool,
        /// The function's calling convention.
        abi: Abi,
    },
    /// A function of the kernel, or an instruction in it.
    Kprobe {
        /// The module of the function; none for the kernel itself.
        module: Option<String>,
        /// Its name; empty for an address.
        function: String,
        /// Offset from the function's start in bytes, or the address if there is no name.
        offset: u64,
        /// At the function's return.
        ret: bool,
        /// Found by a wildcard, so there may be others.
        wildcard: bool,
    },
    /// A function of the kernel that BTF describes, or of a BPF program, traced by a trampoline.
    Trampoline {
        /// Its module, or `vmlinux`.
        module: String,
        /// The ID of the program that contains it, if any.
        program: Option<u32>,
        /// Its name.
        function: String,
        /// At its exit.
        exit: bool,
    },
    /// All kernel objects of one kind, visited once.
    Iter {
        /// The kind (`task`).
        name: String,
        /// The file whose readers run it; none for the run itself.
        pin: Option<std::path::PathBuf>,
        /// They are tasks, or belong to them.
        of_tasks: bool,
    },
    /// A marker in a file: a place, and a counter that tells the program that it is traced.
    Usdt {
        /// The file.
        path: std::path::PathBuf,
        /// Byte offset in it.
        offset: u64,
        /// Virtual address of the same place, as linked.
        addr: u64,
        /// Offset of the counter in the file; 0 if there is none.
        semaphore: u64,
        /// Bytes from the place to the instruction whose uprobe some kernels optimize; 0 if there is none.
        optimized: u64,
        /// The locations of the arguments, from the marker's note.
        args: String,
    },
    /// A perf event that fires after a count or at a frequency, on all CPUs or one. Numbers: perf_event_open(2).
    Perf {
        /// `PERF_TYPE_…`
        ty: u32,
        /// `PERF_COUNT_…`
        config: u64,
        /// When it fires.
        period: SamplePeriod,
        /// Every online CPU, or only the first.
        all_cpus: bool,
    },
    /// A place in memory that the processor watches. Numbers: perf_event_open(2).
    Breakpoint {
        /// The address.
        address: u64,
        /// The length in bytes.
        length: u64,
        /// `HW_BREAKPOINT_…`: a set of bits.
        mode: u32,
    },
}

/// Properties of all probes of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachProperties {
    /// The kernel cannot limit it to a process, so the program compares the process with that of `-p`.
    pub pid: bool,
    /// It can be attached to a process: with `-c` to that of the command, unless its descendants are followed.
    pub attaches_to_process: bool,
    /// The event belongs to the current task, so `--cgroup`, `--container` and `--follow` apply to it. They do not if the
    /// program belongs to the run, visits objects, or counts a task to which it was attached.
    pub is_of_current_task: bool,
    /// Events of rbt itself are excluded, because each of its own calls of malloc, for example, would cause more. This
    /// applies only if the event belongs to the current process: a switch to another task, or a packet for one, may occur
    /// while rbt runs.
    pub excludes_rbt: bool,
    /// It may run after the end of the run.
    pub may_run_after_end: bool,
    /// It fires once, or at the ticks of one clock. (`begin` may loop, and its records are not read meanwhile.)
    pub is_rare: bool,
    /// May a limit of the run (`--max-events`, `--max-overhead`) drop its events? Not those that belong to the run itself, or
    /// whose rate the user chooses.
    pub is_limited: bool,
    /// One link serves all sites of a program, which tells them apart.
    pub shares_link: bool,
    /// It takes an event and a link for each CPU.
    pub is_per_cpu: bool,
    /// Is it reported at the end if it was never hit?
    pub no_hit_note: NoHitNote,
}

/// The conditions for a note about a probe without hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHitNote {
    /// Always.
    Always,
    /// With `-v`.
    Verbose,
    /// Never.
    Never,
}

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub struct FileLocation<'a> {
    /// The file.
    pub path: &'a std::path::Path,
    /// Byte offset in it.
    pub offset: u64,
    /// Offset of a marker's counter in bytes; 0 for none.
    pub semaphore: u64,
    /// At the return of the function that starts there.
    pub ret: bool,
}

/// Tracepoints whose events always belong to the current process: the categories, and their raw tracepoints, except for
/// those that have none.
const CURRENT_PROCESS_EVENTS: &[(&str, &[&str])] =
    &[("syscalls", &[]), ("raw_syscalls", &["sys_enter", "sys_exit"]), ("exceptions", &["page_fault_user", "page_fault_kernel"])];

/// The raw tracepoint of the entries or exits of all system calls.
pub fn raw_syscall_event(enter: bool) -> &'static str {
    if enter { "sys_enter" } else { "sys_exit" }
}

/// The name of the call of probes on the tracepoints of all system calls, for [`Attach::traced_call`].
pub const ALL_SYSTEM_CALLS: &str = "syscall";
/// The field of these tracepoints with the number of the call, which it has at both ends.
pub const SYSTEM_CALL_NUMBER: &str = "id";

impl Attach {
    /// Does this process run it, rather than an event elsewhere? Such probes belong to the run: no filter drops them.
    pub fn runs_in_rbt(&self) -> bool {
        matches!(self, Attach::Begin | Attach::End | Attach::Signal)
    }

    /// The objects of an iterator, and whether it serves readers other than this run.
    pub fn objects(&self) -> Option<(&str, bool)> {
        if let Attach::Iter { name, pin, .. } = self { Some((name, pin.is_some())) } else { None }
    }

    /// The properties of all probes of this mechanism: one row each.
    pub fn properties(&self) -> AttachProperties {
        // run by this process: nothing is excluded, and its time is known
        let properties = AttachProperties {
            pid: false,
            attaches_to_process: false,
            is_of_current_task: false,
            excludes_rbt: false,
            may_run_after_end: true,
            is_rare: true,
            is_limited: false,
            shares_link: false,
            is_per_cpu: false,
            no_hit_note: NoHitNote::Never,
        };
        let event = AttachProperties {
            pid: true,
            is_of_current_task: true,
            may_run_after_end: false,
            is_rare: false,
            is_limited: true,
            no_hit_note: NoHitNote::Verbose,
            ..properties
        };
        let of_process = AttachProperties { attaches_to_process: true, ..event };
        match self {
            Attach::Begin | Attach::End | Attach::Signal | Attach::Test { .. } => properties,
            Attach::Tracepoint { category, .. } => {
                AttachProperties { excludes_rbt: CURRENT_PROCESS_EVENTS.iter().any(|(of, _)| of == category), ..event }
            }
            Attach::RawTracepoint { name, .. } => {
                AttachProperties { excludes_rbt: CURRENT_PROCESS_EVENTS.iter().any(|(_, events)| events.contains(&&**name)), ..event }
            }
            Attach::Syscall { .. } => AttachProperties { excludes_rbt: true, shares_link: true, ..event },
            // the kernel attaches them to a process
            Attach::Uprobe { .. } => AttachProperties { pid: false, excludes_rbt: true, ..of_process },
            Attach::Usdt { .. } => AttachProperties { pid: false, excludes_rbt: true, no_hit_note: NoHitNote::Always, ..of_process },
            // also in child processes of that process
            Attach::Breakpoint { .. } => AttachProperties { pid: false, is_per_cpu: true, ..of_process },
            Attach::Kprobe { .. } | Attach::Trampoline { .. } => event,
            Attach::Iter { pin, .. } => AttachProperties { may_run_after_end: pin.is_some(), is_rare: false, ..properties },
            // the same, if the kernel cannot exclude the children
            Attach::Perf { all_cpus: true, .. } => {
                AttachProperties { is_per_cpu: true, excludes_rbt: true, no_hit_note: NoHitNote::Never, ..of_process }
            }
            Attach::Perf { all_cpus: false, .. } => AttachProperties { may_run_after_end: false, ..properties },
        }
    }

    /// The mechanism's name, for a program of this type.
    pub fn mechanism(&self, ty: ProgramType) -> &'static str {
        match (self, ty) {
            (Attach::Begin | Attach::End | Attach::Signal | Attach::Test { .. }, _) => "test run",
            (Attach::RawTracepoint { .. }, _) => "raw tracepoint",
            (Attach::Syscall { .. }, _) => "raw tracepoint of all system calls",
            (Attach::Tracepoint { .. }, _) => "perf tracepoint",
            (Attach::Uprobe { .. } | Attach::Usdt { .. }, ProgramType::UprobeMulti) => "uprobe.multi",
            (Attach::Uprobe { .. } | Attach::Usdt { .. }, _) => "perf uprobe",
            (Attach::Kprobe { .. }, ProgramType::KprobeSession) => "kprobe.session",
            (Attach::Kprobe { .. }, ProgramType::KprobeMulti) => "kprobe.multi",
            (Attach::Kprobe { .. }, _) => "perf kprobe",
            (Attach::Trampoline { .. }, _) => "trampoline",
            (Attach::Iter { .. }, _) => "iterator",
            (Attach::Perf { .. }, _) => "perf event",
            (Attach::Breakpoint { .. }, _) => "hardware breakpoint",
        }
    }

    /// The section of a program of this type for this attachment.
    pub fn section(&self, ty: ProgramType) -> SectionDef {
        let ret =
            matches!(self, Attach::Uprobe { ret: true, .. } | Attach::Kprobe { ret: true, .. } | Attach::Trampoline { exit: true, .. });
        SectionDef { ty, ret, target: self.target(ty) }
    }

    /// The target of the program, as libbpf expects it in the section's name.
    fn target(&self, ty: ProgramType) -> Option<String> {
        if let Attach::Iter { name, .. } | Attach::RawTracepoint { name, typed: true } = self {
            return Some(name.clone());
        }
        if let Attach::Syscall { enter, .. } = self {
            return ty.row().has_target.then(|| raw_syscall_event(*enter).to_owned());
        }
        let Attach::Trampoline { module, program, function, .. } = self else { return None };
        if let Some(prefix) = ty.row().target_prefix {
            return function.strip_prefix(prefix).map(str::to_owned);
        }
        // the loader determines the program that contains the function
        Some(if program.is_some() { function.clone() } else { format!("{module}:{function}") })
    }

    /// The kernel function at whose start or end it is, and its module; its types are known.
    pub fn kernel_function(&self) -> Option<(&str, &str)> {
        if let Attach::Kprobe { module, function, offset: 0, .. } = self {
            return Some((module.as_deref().unwrap_or(KERNEL), function));
        }
        if let Attach::Trampoline { module, program: None, function, .. } = self { Some((module, function)) } else { None }
    }

    /// The call of a function at whose entry (false) or return (true) it is, by a name that both have; calls of system calls
    /// are [`super::syscall::syscall_of_site`].
    pub fn traced_call(&self) -> Option<(bool, String)> {
        // the tracepoints of all system calls
        let of_any = |event: &str| matches!(event, "sys_enter" | "sys_exit").then(|| (event == "sys_exit", ALL_SYSTEM_CALLS.to_owned()));
        match self {
            Attach::Kprobe { module, function, offset: 0, ret, .. } => {
                Some((*ret, format!("{}:{function}", module.as_deref().unwrap_or(KERNEL))))
            }
            Attach::Trampoline { module, program, function, exit } => {
                let within = program.map_or_else(|| module.clone(), |program| format!("program {program}"));
                Some((*exit, format!("{within}:{function}")))
            }
            Attach::Uprobe { path, function, ret, function_offset: 0, .. } => Some((*ret, format!("{}:{function}", path.display()))),
            Attach::Tracepoint { event, .. } => of_any(event),
            Attach::RawTracepoint { name, .. } => of_any(name),
            Attach::Begin
            | Attach::End
            | Attach::Signal
            | Attach::Test { .. }
            | Attach::Syscall { .. }
            | Attach::Uprobe { .. }
            | Attach::Usdt { .. }
            | Attach::Kprobe { .. }
            | Attach::Iter { .. }
            | Attach::Breakpoint { .. }
            | Attach::Perf { .. } => None,
        }
    }

    /// Will the program outlive the run?
    pub fn pinned(&self) -> bool {
        matches!(self, Attach::Iter { pin: Some(_), .. })
    }

    /// Is it an event of the processor's counters, which some machines lack?
    pub fn is_hardware_counter(&self) -> bool {
        /// Of `enum perf_type_id`.
        const PERF_TYPE_HARDWARE: u32 = 0;
        matches!(self, Attach::Perf { ty: PERF_TYPE_HARDWARE, .. })
    }

    /// The file of a probe in user space.
    pub fn binary(&self) -> Option<&std::path::Path> {
        self.file_location().map(|place| place.path)
    }

    /// Replaces the file of a probe in user space by one with the same contents.
    pub fn set_binary(&mut self, file: std::path::PathBuf) {
        if let Attach::Uprobe { path, .. } | Attach::Usdt { path, .. } = self {
            *path = file;
        }
    }

    /// The place in a file of a probe in user space.
    pub fn file_location(&self) -> Option<FileLocation<'_>> {
        match self {
            Attach::Uprobe { path, offset, stack_check, ret, .. } => {
                Some(FileLocation { path, offset: *offset + stack_check, semaphore: 0, ret: *ret })
            }
            Attach::Usdt { path, offset, semaphore, .. } => Some(FileLocation { path, offset: *offset, semaphore: *semaphore, ret: false }),
            Attach::Begin
            | Attach::End
            | Attach::Signal
            | Attach::Test { .. }
            | Attach::Tracepoint { .. }
            | Attach::RawTracepoint { .. }
            | Attach::Syscall { .. }
            | Attach::Kprobe { .. }
            | Attach::Trampoline { .. }
            | Attach::Iter { .. }
            | Attach::Breakpoint { .. }
            | Attach::Perf { .. } => None,
        }
    }
}
