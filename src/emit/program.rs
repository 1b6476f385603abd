//! Program types as rows: what the kernel and libbpf need to know about each, and the constraints on its code. A new type is a
//! variant and its row.

use serde::{Deserialize, Serialize};

use crate::system::kernel::prog_type;

/// A program's type, including how it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProgramType {
    /// `BPF_PROG_TYPE_RAW_TRACEPOINT`; `begin` and `end` run as this type, too.
    RawTracepoint,
    /// `BPF_PROG_TYPE_TRACING` on a raw tracepoint: the verifier knows the types of the arguments.
    TypedTracepoint,
    /// `BPF_PROG_TYPE_TRACEPOINT`.
    Tracepoint,
    /// `BPF_PROG_TYPE_KPROBE` for uprobes.
    Uprobe,
    /// The same for many offsets of a file by one link (`uprobe.multi`).
    UprobeMulti,
    /// `BPF_PROG_TYPE_PERF_EVENT`.
    PerfEvent,
    /// `BPF_PROG_TYPE_KPROBE` on an instruction of the kernel, or on a function's return.
    Kprobe,
    /// The same for the entries, or the returns, of many functions by one link (`kprobe.multi`).
    KprobeMulti,
    /// The same for the entries and the returns of functions (`kprobe.session`): the first half of the sites are entries.
    KprobeSession,
    /// `BPF_PROG_TYPE_TRACING` on one function of the kernel: its entry or its exit.
    Tracing,
    /// The same for objects that the kernel visits (`BPF_TRACE_ITER`).
    Iter,
    /// `BPF_PROG_TYPE_LSM` on a hook of security modules.
    Lsm,
}

/// How the kernel enters a program, which determines what an entry costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// By a call, not because of an event.
    Call,
    /// By a perf tracepoint.
    Tracepoint,
    /// By a raw tracepoint.
    RawTracepoint,
    /// By a breakpoint in user space.
    Trap,
    /// By a breakpoint in the kernel, or ftrace.
    Kprobe,
    /// By a trampoline.
    Trampoline,
    /// By an interrupt.
    Interrupt,
}

/// When the programs of a type are attached, relative to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachOrder {
    /// In the opposite order of the script, because the kernel runs the newest first.
    NewestFirst,
    /// In the order of the script.
    OldestFirst,
    /// Last, so that timers start when everything else is attached.
    Timer,
}

/// What one link attaches a program to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkScope {
    /// One site.
    Site,
    /// Offsets of a file.
    FileOffsets,
    /// Functions of the kernel: their entries, or their returns.
    Functions,
    /// The same, their entries and their returns.
    FunctionsAndReturns,
}

/// The properties of a type.
pub struct ProgramRow {
    /// The name of the section by which libbpf learns the type and how the program is attached (its `section_defs`): for an
    /// entry, and for a return. A target follows a slash.
    sections: [&'static str; 2],
    /// The name of the context's struct in the kernel (include/linux/bpf_types.h). None if that is not the name of a
    /// struct: a function that the verifier checks separately cannot take it.
    pub context: Option<&'static str>,
    /// Its number in `enum bpf_prog_type`.
    pub prog_type: u32,
    /// The struct to which `ctx` points in a script.
    pub ctx_struct: &'static str,
    /// The constants of `enum bpf_prog_type` and `enum bpf_attach_type` for the type.
    pub constants: &'static [&'static str],
    /// How the kernel enters it.
    pub entry: EntryKind,
    /// When it is attached. (Those on returns of kprobes run in the order of attaching.)
    pub order: AttachOrder,
    /// It runs at an instruction of a process, where it may be preempted.
    pub in_user_space: bool,
    /// A second run may begin on a CPU before the first has ended.
    pub may_overlap: bool,
    /// What one link attaches it to.
    pub link: LinkScope,
    /// A trampoline calls the program.
    pub by_trampoline: bool,
    /// `bpf_get_func_ip` returns the traced function.
    pub knows_function: bool,
    /// The number of BPF's own frames at the start of a kernel stack that it records: those of the program and of
    /// bpf_trace_runN or the trampoline. Stacks of the other types start where the event happened.
    pub own_frames: u64,
    /// The default return value.
    pub default_return: u64,
    /// Is the default always returned, whatever the script returns?
    pub returns_fixed: bool,
    /// Each program is loaded for one target in the kernel.
    pub has_target: bool,
    /// The prefix of the kernel function that represents the target, which libbpf adds to the target's name. Without
    /// it, the module and function name the target.
    pub target_prefix: Option<&'static str>,
    /// Its programs have a private stack on kernels that support it (`bpf_enable_priv_stack` of kernel/bpf/verifier.c).
    pub private_stack: bool,
    /// It traces kernel functions, which some machines do not permit.
    pub traces_kernel_functions: bool,
}

/// The context of a perf event in the kernel.
pub const PERF_CONTEXT: &str = "bpf_perf_event_data_kern";

const PLAIN: ProgramRow = ProgramRow {
    sections: ["", ""],
    context: None,
    ctx_struct: "pt_regs",
    prog_type: prog_type::RAW_TRACEPOINT,
    constants: &[],
    entry: EntryKind::Call,
    order: AttachOrder::OldestFirst,
    in_user_space: false,
    may_overlap: false,
    link: LinkScope::Site,
    by_trampoline: false,
    knows_function: false,
    own_frames: 0,
    default_return: 0,
    returns_fixed: false,
    has_target: false,
    target_prefix: None,
    private_stack: true,
    traces_kernel_functions: false,
};

const PROBE: ProgramRow = ProgramRow { context: Some("bpf_user_pt_regs_t"), ..PLAIN };

/// Returning 1 would make the kernel remove the breakpoint: `handler_chain` of kernel/events/uprobes.c.
const USER: ProgramRow = ProgramRow {
    entry: EntryKind::Trap,
    order: AttachOrder::NewestFirst,
    in_user_space: true,
    may_overlap: true,
    returns_fixed: true,
    ..PROBE
};

const KERNEL: ProgramRow = ProgramRow { entry: EntryKind::Kprobe, order: AttachOrder::NewestFirst, traces_kernel_functions: true, ..PROBE };

impl ProgramType {
    /// The row of the type.
    pub const fn row(self) -> &'static ProgramRow {
        match self {
            ProgramType::RawTracepoint => &ProgramRow {
                sections: ["raw_tp", "raw_tp"],
                prog_type: prog_type::RAW_TRACEPOINT,
                constants: &["BPF_PROG_TYPE_RAW_TRACEPOINT"],
                entry: EntryKind::RawTracepoint,
                context: Some("bpf_raw_tracepoint_args"),
                own_frames: 2,
                ..PLAIN
            },
            ProgramType::TypedTracepoint => &ProgramRow {
                sections: ["tp_btf", "tp_btf"],
                prog_type: prog_type::TRACING,
                constants: &["BPF_PROG_TYPE_TRACING", "BPF_TRACE_RAW_TP"],
                entry: EntryKind::RawTracepoint,
                own_frames: 2,
                has_target: true,
                ..PLAIN
            },
            // returning 0 would hide the event from all other users of this tracepoint: perf_trace_run_bpf_submit() of
            // kernel/events/core.c
            ProgramType::Tracepoint => &ProgramRow {
                sections: ["tracepoint", "tracepoint"],
                prog_type: prog_type::TRACEPOINT,
                constants: &["BPF_PROG_TYPE_TRACEPOINT"],
                entry: EntryKind::Tracepoint,
                default_return: 1,
                ..PLAIN
            },
            ProgramType::Uprobe => &ProgramRow {
                sections: ["uprobe", "uretprobe"],
                prog_type: prog_type::KPROBE,
                constants: &["BPF_PROG_TYPE_KPROBE"],
                ..USER
            },
            ProgramType::UprobeMulti => &ProgramRow {
                sections: ["uprobe.multi", "uretprobe.multi"],
                prog_type: prog_type::KPROBE,
                constants: &["BPF_PROG_TYPE_KPROBE", "BPF_TRACE_UPROBE_MULTI"],
                link: LinkScope::FileOffsets,
                ..USER
            },
            ProgramType::PerfEvent => &ProgramRow {
                sections: ["perf_event", "perf_event"],
                prog_type: prog_type::PERF_EVENT,
                constants: &["BPF_PROG_TYPE_PERF_EVENT"],
                entry: EntryKind::Interrupt,
                order: AttachOrder::Timer,
                context: Some("bpf_perf_event_data"),
                ctx_struct: PERF_CONTEXT,
                ..PLAIN
            },
            ProgramType::Kprobe => &ProgramRow {
                sections: ["kprobe", "kretprobe"],
                prog_type: prog_type::KPROBE,
                constants: &["BPF_PROG_TYPE_KPROBE"],
                ..KERNEL
            },
            ProgramType::KprobeMulti => &ProgramRow {
                sections: ["kprobe.multi", "kretprobe.multi"],
                prog_type: prog_type::KPROBE,
                constants: &["BPF_PROG_TYPE_KPROBE", "BPF_TRACE_KPROBE_MULTI"],
                link: LinkScope::Functions,
                ..KERNEL
            },
            ProgramType::KprobeSession => &ProgramRow {
                sections: ["kprobe.session", "kprobe.session"],
                prog_type: prog_type::KPROBE,
                constants: &["BPF_PROG_TYPE_KPROBE", "BPF_TRACE_KPROBE_SESSION"],
                link: LinkScope::FunctionsAndReturns,
                ..KERNEL
            },
            // the verifier accepts no other result
            ProgramType::Tracing => &ProgramRow {
                sections: ["fentry", "fexit"],
                prog_type: prog_type::TRACING,
                constants: &["BPF_PROG_TYPE_TRACING", "BPF_TRACE_FENTRY"],
                entry: EntryKind::Trampoline,
                order: AttachOrder::NewestFirst,
                by_trampoline: true,
                knows_function: true,
                own_frames: 2,
                returns_fixed: true,
                has_target: true,
                traces_kernel_functions: true,
                ..PLAIN
            },
            // 0 leaves the decision to the other modules
            ProgramType::Lsm => &ProgramRow {
                sections: ["lsm", "lsm"],
                private_stack: false,
                prog_type: prog_type::LSM,
                constants: &["BPF_PROG_TYPE_LSM", "BPF_LSM_MAC"],
                entry: EntryKind::Trampoline,
                order: AttachOrder::NewestFirst,
                target_prefix: Some("bpf_lsm_"),
                by_trampoline: true,
                own_frames: 2,
                returns_fixed: true,
                has_target: true,
                traces_kernel_functions: true,
                ..PLAIN
            },
            // after any other result, the kernel shows the same object again, endlessly
            ProgramType::Iter => &ProgramRow {
                sections: ["iter", "iter"],
                private_stack: false,
                prog_type: prog_type::TRACING,
                constants: &["BPF_PROG_TYPE_TRACING", "BPF_TRACE_ITER"],
                may_overlap: true,
                returns_fixed: true,
                has_target: true,
                traces_kernel_functions: true,
                ..PLAIN
            },
        }
    }
}

/// The kind of a program: its type, whether it is attached to a return, and its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionDef {
    /// Its type.
    pub ty: ProgramType,
    /// It is attached to a return, or an exit.
    pub ret: bool,
    /// Its target: `module:function`, `task`.
    pub target: Option<String>,
}

impl SectionDef {
    /// A program of a type that has neither returns nor targets.
    pub fn of(ty: ProgramType) -> Self {
        Self { ty, ret: false, target: None }
    }

    /// The section's name.
    pub fn name(&self, sleepable: bool) -> String {
        let [entry, ret] = self.ty.row().sections;
        let suffix = if sleepable { ".s" } else { "" };
        let target = self.target.as_ref().map_or(String::new(), |target| format!("/{target}"));
        format!("{}{suffix}{target}", if self.ret { ret } else { entry })
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // libbpf's names
mod tests {
    use super::ProgramType::*;
    use super::*;

    const ALL: [ProgramType; 12] = [
        RawTracepoint,
        TypedTracepoint,
        Tracepoint,
        Uprobe,
        UprobeMulti,
        PerfEvent,
        Kprobe,
        KprobeMulti,
        KprobeSession,
        Tracing,
        Iter,
        Lsm,
    ];

    /// Each number has the name that libbpf gives it.
    #[test]
    fn numbers_of_types() {
        for ty in ALL {
            let row = ty.row();
            // SAFETY: returns a static string, or null for an unknown number
            let name = unsafe { libbpf_sys::libbpf_bpf_prog_type_str(row.prog_type) };
            assert!(!name.is_null(), "{ty:?}");
            // SAFETY: as above
            let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap().to_uppercase();
            assert_eq!(row.constants.first(), Some(&format!("BPF_PROG_TYPE_{name}").as_str()), "{ty:?}");
            assert!(prog_type::ALL.contains(&row.prog_type), "{ty:?}");
        }
    }

    #[test]
    fn names_of_sections() {
        assert_eq!(SectionDef::of(ProgramType::RawTracepoint).name(false), "raw_tp");
        assert_eq!(SectionDef { ty: ProgramType::UprobeMulti, ret: true, target: None }.name(true), "uretprobe.multi.s");
        assert_eq!(SectionDef { ty: ProgramType::Tracing, ret: true, target: Some("vmlinux:f".into()) }.name(false), "fexit/vmlinux:f");
        assert_eq!(SectionDef { ty: ProgramType::Iter, ret: false, target: Some("task".into()) }.name(false), "iter/task");
    }
}
