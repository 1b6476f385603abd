//! The BPF features of a kernel that is not running, inferred from its types, symbols and configuration.
//!
//! A row names something that only kernels with the feature have.

use crate::system::machine::arch::Arch;
use crate::system::{Feature, TargetInfo, TypeName};
use crate::types::Type;

/// Evidence for a feature of a kernel.
enum Evidence {
    /// A constant of an enum.
    Constant(&'static str),
    /// A struct.
    Struct(&'static str),
    /// An enum.
    Enum(&'static str),
    /// A member of a struct.
    Member(&'static str, &'static str),
    /// Code of this name, whether or not it can be traced.
    Code(&'static str),
    /// An option of its configuration that is set to `y`.
    Config(&'static str),
    /// One of these.
    Any(&'static [Evidence]),
    /// All of these.
    All(&'static [Evidence]),
    /// The opposite.
    No(&'static Evidence),
    /// Evidence that differs between architectures.
    OfArch(fn(&Arch) -> Evidence),
}

use Evidence::{All, Any, Code, Config, Constant, Enum, Member, No, OfArch, Struct};

/// Each feature that can be inferred in this way; others are unknown. Files are those of the kernel.
const SIGNS: &[(Feature, Evidence)] = &[
    // kernel/trace/bpf_trace.c has these structs if CONFIG_UPROBES and CONFIG_FPROBE are set
    (Feature::UprobeMulti, Struct("bpf_uprobe_multi_link")),
    (Feature::KprobeMulti, Struct("bpf_kprobe_multi_link")),
    (Feature::KprobeSession, All(&[Struct("bpf_kprobe_multi_link"), Constant("BPF_TRACE_KPROBE_SESSION")])),
    // kernel/trace/trace_kprobe.c is built with CONFIG_KPROBE_EVENTS
    (Feature::Kprobe, Struct("trace_kprobe")),
    // a stub in include/linux/ftrace.h if CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS is not set
    (
        Feature::Trampoline,
        All(&[
            Constant("BPF_TRACE_FENTRY"),
            Any(&[Config("CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"), Code("register_ftrace_direct"), Code("register_ftrace_direct_multi")]),
        ]),
    ),
    // helpers: enum bpf_func_id of include/uapi/linux/bpf.h
    (Feature::Loop, Constant("BPF_FUNC_loop")),
    (Feature::ForEach, Constant("BPF_FUNC_for_each_map_elem")),
    (Feature::PercpuLookup, Constant("BPF_FUNC_map_lookup_percpu_elem")),
    (Feature::Tai, Constant("BPF_FUNC_ktime_get_tai_ns")),
    // added together with the cookie of perf links
    (Feature::PerfCookie, Constant("BPF_FUNC_get_attach_cookie")),
    // include/linux/bpf.h, resp. trace_events.h
    (Feature::RawTracepointCookie, Member("bpf_raw_tp_link", "cookie")),
    // kernel/bpf/verifier.c: the check of sign-extending loads; it is not inlined if the kernel is compiled for size
    (Feature::CpuV4, Any(&[Code("coerce_reg_to_size_sx"), Code("set_sext64_default_val"), Code("emit_ldsx")])),
    // kernel/bpf/verifier.c: check_xadd existed before other atomic instructions; the helper was added to that file
    // later
    (Feature::Fetch, FETCH),
    // kernel/bpf/hashtab.c: the check of MAX_BPF_STACK was removed one version before those instructions were added
    (Feature::ShortKeys, No(&FETCH)),
    // kernel/bpf/core.c: for lists of programs that include a sleepable one
    (Feature::SleepingUprobes, Code("bpf_prog_array_free_sleepable")),
    // kernel/bpf/btf.c; the links were added with it
    (Feature::NumberPointers, Any(&[Code("is_int_ptr"), Constant("BPF_LINK_TYPE_KPROBE_MULTI")])),
    // kernel/bpf/hashtab.c: the allocator that may be called anywhere
    (Feature::AllocatesAnywhere, Member("bpf_htab", "ma")),
    // allowed in tracing shortly before this helper was added
    (Feature::AncestorCgroup, All(&[Constant("BPF_FUNC_timer_init"), Struct("cgroup")])),
    // allowed in tracing in the version that added this helper
    (Feature::SocketCookie, Constant("BPF_FUNC_check_mtu")),
    // compiled if CONFIG_BPF_KPROBE_OVERRIDE is set
    (Feature::Override, Any(&[Config("CONFIG_BPF_KPROBE_OVERRIDE"), Code("bpf_override_return")])),
    // include/uapi/linux/bpf.h: the number of skipped runs
    (Feature::RecursionCheck, Member("bpf_prog_info", "recursion_misses")),
    // include/linux/bpf.h: marks the arguments that are structs
    (Feature::StructArguments, Member("btf_func_model", "arg_flags")),
    // include/uapi/linux/bpf.h: something that was added in the same version
    (Feature::ManyArguments, OfArch(|arch| Constant(arch.stack_arguments.0))),
    // include/linux/bpf.h
    (Feature::SharedStacks, Enum("priv_stack_mode")),
];

const FETCH: Evidence = Any(&[Code("check_atomic"), Constant("BPF_FUNC_for_each_map_elem")]);

/// What is known about a kernel without testing it.
pub struct KernelFacts<'a> {
    /// Its types and its symbols.
    pub sys: &'a dyn TargetInfo,
    /// The value of a configuration option; none if the configuration is unknown.
    pub config: &'a dyn Fn(&str) -> Option<String>,
    /// Are all names of its code known, so that an absent one does not exist?
    pub symbols: &'a dyn Fn() -> bool,
}

/// Does the kernel have the feature? If unknown, the answer that is safe everywhere.
pub fn has(kernel: &KernelFacts, feature: Feature) -> bool {
    if feature == Feature::Btf {
        return kernel.sys.types_missing().is_none();
    }
    let known = SIGNS.iter().find(|(f, _)| *f == feature).and_then(|(_, sign)| evaluate(kernel, sign));
    known.unwrap_or(feature.is_limit())
}

/// None if the snapshot lacks the evidence.
fn evaluate(kernel: &KernelFacts, sign: &Evidence) -> Option<bool> {
    let types = || kernel.sys.types_missing().is_none().then_some(());
    Some(match sign {
        Constant(name) => {
            types()?;
            kernel.sys.enumerator(name).is_some()
        }
        Struct(name) => {
            types()?;
            kernel.sys.type_named(TypeName::Struct, name).is_some()
        }
        Enum(name) => {
            types()?;
            kernel.sys.type_named(TypeName::Enum, name).is_some()
        }
        Member(of_struct, name) => {
            types()?;
            let Some(Type::Struct(found)) = kernel.sys.type_named(TypeName::Struct, of_struct) else { return Some(false) };
            kernel.sys.member(&found, name).is_some()
        }
        Code(name) => {
            let symbols = kernel.sys.text_symbols(name);
            let found = symbols.is_exact || !symbols.parts.is_empty() || kernel.sys.describes_function(name);
            if !found && !(kernel.symbols)() {
                return None;
            }
            found
        }
        Config(name) => (kernel.config)(name)? == "y",
        Any(signs) => return some(signs.iter().map(|s| evaluate(kernel, s)), true),
        All(signs) => return some(signs.iter().map(|s| evaluate(kernel, s)), false),
        No(sign) => !evaluate(kernel, sign)?,
        OfArch(sign) => return evaluate(kernel, &sign(kernel.sys.arch())),
    })
}

/// `decides` if one has that value; else unknown if one is unknown; else the opposite.
fn some(all: impl Iterator<Item = Option<bool>>, decides: bool) -> Option<bool> {
    let mut known = Some(!decides);
    for one in all {
        match one {
            Some(is) if is == decides => return Some(decides),
            Some(_) => {}
            None => known = None,
        }
    }
    known
}
