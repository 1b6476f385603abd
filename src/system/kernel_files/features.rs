//! The BPF features of a kernel, inferred from its files: types, configuration, and the messages of its verifier.
//!
//! A row has evidence for a feature and evidence against it; without either, the feature is unknown. If a feature leaves no
//! trace, the row uses a later feature that depends on it.

use std::collections::BTreeMap;

use super::image::Image;
use crate::system::kernel_types::KernelTypes;
use crate::system::machine::arch;
use crate::system::{Feature, TypeName};
use crate::types::Type;

/// The sources of evidence.
pub(super) struct Evidence<'a, 'd> {
    pub(super) image: &'a Image<'d>,
    pub(super) types: &'a KernelTypes,
    pub(super) config: Option<&'a str>,
}

impl Evidence<'_, '_> {
    /// Is this option set (`=y`)? `None` if the configuration is unknown.
    fn option(&self, name: &str) -> Option<bool> {
        let is = |line: &str| line.strip_prefix("CONFIG_").and_then(|l| l.strip_prefix(name)) == Some("=y");
        self.config.map(|text| text.lines().any(is))
    }

    fn enumerator(&self, name: &str) -> bool {
        self.types.enumerator(name).is_some()
    }

    fn member(&self, structure: &str, name: &str) -> bool {
        matches!(self.types.named(TypeName::Struct, structure), Some(Type::Struct(s)) if self.types.member(&s, name).is_some())
    }

    /// Finds a string that contains these words in the data of the image.
    fn text(&self, words: &str) -> Option<&str> {
        self.image.sections().iter().filter(|s| !s.code).find_map(|section| {
            let at = memchr::memmem::find(&section.bytes, words.as_bytes())?;
            let start = section.bytes.get(..at)?.iter().rposition(|b| *b == 0).map_or(0, |n| n + 1);
            let rest = section.bytes.get(start..)?;
            std::str::from_utf8(rest.get(..memchr::memchr(0, rest)?)?).ok()
        })
    }
}

/// Returns the known features; unknown ones are absent.
pub(super) fn of(evidence: &Evidence<'_, '_>) -> BTreeMap<Feature, bool> {
    ROWS.iter().filter_map(|(feature, shows)| Some((*feature, shows(evidence)?))).collect()
}

/// Are both true? `None` if the second is unknown.
fn and(first: bool, second: Option<bool>) -> Option<bool> {
    if first { second } else { Some(false) }
}

type Shows = fn(&Evidence<'_, '_>) -> Option<bool>;

const ROWS: &[(Feature, Shows)] = &[
    (Feature::Btf, |_| Some(true)),
    (Feature::Kprobe, |s| s.option("KPROBE_EVENTS")),
    (Feature::KprobeMulti, |s| and(s.enumerator("BPF_TRACE_KPROBE_MULTI"), s.option("FPROBE"))),
    (Feature::KprobeSession, |s| and(s.enumerator("BPF_TRACE_KPROBE_SESSION"), s.option("FPROBE"))),
    (Feature::UprobeMulti, |s| and(s.enumerator("BPF_TRACE_UPROBE_MULTI"), s.option("UPROBE_EVENTS"))),
    (Feature::Trampoline, |s| and(s.option("BPF_JIT")?, s.option("DYNAMIC_FTRACE_WITH_DIRECT_CALLS"))),
    (Feature::PreemptedPrograms, |s| Some(!(s.option("PREEMPT_NONE")? || s.option("PREEMPT_VOLUNTARY")?))),
    (Feature::RecursionCheck, |s| Some(s.member("bpf_prog_info", "recursion_misses"))),
    (Feature::StructArguments, |s| Some(s.member("btf_func_model", "arg_flags"))),
    // Something that was added in the same version.
    (Feature::ManyArguments, |s| Some(s.enumerator(arch::named(&s.image.machine)?.stack_arguments.0))),
    (Feature::Override, |s| s.option("BPF_KPROBE_OVERRIDE")),
    (Feature::Loop, |s| Some(s.enumerator("BPF_FUNC_loop"))),
    (Feature::ForEach, |s| Some(s.enumerator("BPF_FUNC_for_each_map_elem"))),
    (Feature::PerfCookie, |s| Some(s.enumerator("BPF_FUNC_get_attach_cookie"))),
    (Feature::RawTracepointCookie, |s| Some(s.member("bpf_raw_tp_link", "cookie"))),
    (Feature::AllocatesAnywhere, |s| Some(s.member("bpf_htab", "ma"))),
    (Feature::SharedStacks, |s| Some(s.types.named(TypeName::Enum, "priv_stack_mode").is_some())),
    // A message of the verifier that came with sign extension.
    (Feature::CpuV4, |s| Some(s.text("sign-extension part of pointer").is_some())),
    (Feature::Fetch, |s| match (s.text("BPF_ATOMIC uses"), s.text("BPF_XADD uses")) {
        (Some(_), _) => Some(true),
        (None, Some(_)) => Some(false),
        (None, None) => None,
    }),
    (Feature::SleepingUprobes, |s| match s.text(" programs can be sleepable") {
        Some(types) => Some(types.contains("uprobe")),
        // Multi links have run sleepable programs from the beginning.
        None => s.enumerator("BPF_TRACE_UPROBE_MULTI").then_some(true),
    }),
    // Linux 5.11 at the latest; atomic instructions came in 5.12.
    (Feature::ShortKeys, |s| s.text("BPF_ATOMIC uses").map(|_| false)),
    // Linux 5.14; `bpf_loop` came in 5.17
    (Feature::AncestorCgroup, |s| s.enumerator("BPF_FUNC_loop").then_some(true)),
    // Both came in Linux 5.12.
    (Feature::SocketCookie, |s| Some(s.enumerator("BPF_FUNC_check_mtu"))),
    // Linux 5.18; this allocator came in 6.1
    (Feature::NumberPointers, |s| s.member("bpf_htab", "ma").then_some(true)),
];
