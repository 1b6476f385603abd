//! The BPF features that an object needs, compared with those of a kernel.

use std::collections::{BTreeMap, BTreeSet};

use crate::codegen::artifact::{Artifact, AttachSite, Program};
use crate::emit::{MapKind, helper_name};
use crate::probes::{Attach, NO_TRAMPOLINES};
use crate::settings::Settings;
use crate::system::kernel::object_needs::{NeededMap, Needs, needs};
use crate::system::{Feature, TargetInfo, TypeName};
use crate::types::Type;
use crate::value::Pos;

/// A feature that the kernel lacks, or a limit that the script exceeds.
pub struct UnmetNeed {
    /// The diagnostic code.
    pub rule: &'static str,
    /// The message.
    pub message: String,
    /// The remedy.
    pub help: Option<String>,
    /// The name of the probe.
    pub site: Option<String>,
}

/// What a script needs from a kernel.
pub struct Unmet {
    /// Features that are missing, and limits.
    pub lacks: Vec<UnmetNeed>,
    /// Other facts.
    pub facts: Vec<(String, String)>,
}

/// Maximum number of instructions of a program: `BPF_COMPLEXITY_LIMIT_INSNS` of include/linux/bpf.h.
const MAX_INSTRUCTIONS: usize = 1_000_000;
/// Maps larger than this many bytes are reported.
const MIN_REPORTED_MAP_SIZE: u64 = 1 << 30;
const LARGE_MAPS_REMEDY: &str = "lower max_map_keys, or declare the size of a map: `let @map = hash(N)`";
/// Helpers that some supported kernels lack: the version that introduced each (history of include/uapi/linux/bpf.h), and the
/// feature of a script that needs it.
const INTRODUCED_IN: &[(&str, &str, &str)] = &[
    ("copy_from_user", "5.10", "reading user memory that may not be resident"),
    ("d_path", "5.10", "path()"),
    ("for_each_map_elem", "5.13", "a loop over a map"),
    ("get_attach_cookie", "5.15", "distinguishing several functions of one program"),
    ("get_current_task_btf", "5.11", "the current task as a typed pointer"),
    ("get_func_ip", "5.15", "`func` in a probe on several functions"),
    ("ktime_get_tai_ns", "6.1", "nsecs(tai)"),
    ("loop", "5.17", "a loop of unknown length"),
    ("map_lookup_percpu_elem", "5.19", "reading the values of other CPUs"),
];
/// A helper that a kernel may have but reject in all programs.
const OVERRIDE: &str = "override_return";
/// Maximum number of sites that a message names.
const MAX_NAMED: usize = 3;

/// Compares a compiled script with a kernel.
pub fn unmet_needs(artifact: &Artifact, settings: &Settings, sys: &dyn TargetInfo) -> Unmet {
    let mut unmet = Unmet { lacks: Vec::new(), facts: Vec::new() };
    let programs = &artifact.manifest.programs;
    for program in programs {
        unmet.facts.extend(mechanism(program));
    }
    let max = settings.max_bpf_progs;
    if programs.len() as u64 > max {
        let message = format!("the script needs {} BPF programs; the limit is {max}", programs.len());
        let help = Some("raise it with the setting max_bpf_progs".into());
        unmet.lacks.push(UnmetNeed { rule: "too-many-programs", message, help, site: None });
    }
    let Ok(needs) = needs(&artifact.elf) else { return unmet };
    sizes(&mut unmet, &needs, artifact, sys);
    if sys.types_missing().is_some() {
        unmet.facts.push(("helpers".into(), "unknown: the kernel has no types (BTF)".into()));
        return unmet;
    }
    program_types(&mut unmet, programs, sys);
    helpers(&mut unmet, &needs, programs, sys);
    unmet
}

/// The probe of a function in the object.
fn site_of(function: &str, programs: &[Program]) -> Option<String> {
    let program = programs.iter().find(|p| p.function == function).or(programs.first())?;
    program.sites.first().map(|s| s.name.clone())
}

fn helpers(unmet: &mut Unmet, needs: &Needs, programs: &[Program], sys: &dyn TargetInfo) {
    for (number, function) in &needs.helpers {
        let Some(name) = helper_name(*number) else {
            // only imported objects call such helpers
            if !has_helper(*number, sys) {
                let message = format!("the kernel has no helper with the number {number}, which the script needs");
                unmet.lacks.push(UnmetNeed { rule: "no-helper", message, help: None, site: site_of(function, programs) });
            }
            continue;
        };
        if name == OVERRIDE && !sys.has(Feature::Override) {
            let message = "the kernel does not allow probes to override functions".to_owned();
            let help = Some("use a kernel built with CONFIG_BPF_KPROBE_OVERRIDE".into());
            unmet.lacks.push(UnmetNeed { rule: "no-helper", message, help, site: site_of(function, programs) });
        } else if sys.enumerator(&format!("BPF_FUNC_{name}")).is_none() {
            let message = format!("the kernel has no helper `bpf_{name}`, which the script needs");
            let help = Some(match INTRODUCED_IN.iter().find(|(helper, ..)| *helper == name) {
                Some((_, since, what)) => format!("{what} needs Linux {since}; exclude older kernels: `// check: kernels >= {since}`"),
                None => "exclude such kernels: `// check: kernels >= …`".into(),
            });
            unmet.lacks.push(UnmetNeed { rule: "no-helper", message, help, site: site_of(function, programs) });
        }
    }
    kernel_functions(unmet, &needs.kernel_functions, programs, sys);
    for map in &needs.maps {
        let Some((name, _)) = MapKind::numbered(map.kind) else { continue };
        if sys.enumerator(name).is_none() {
            let message = format!("the kernel has no maps of type {}, which the script needs", usual_name(name, "BPF_MAP_TYPE_"));
            unmet.lacks.push(UnmetNeed { rule: "no-map-type", message, help: None, site: site_of("", programs) });
        }
    }
}

/// Does the kernel have a helper of this number?
fn has_helper(number: u32, sys: &dyn TargetInfo) -> bool {
    let Some(Type::Enum(helpers)) = sys.type_named(TypeName::Enum, "bpf_func_id") else { return true };
    helpers.variants.iter().any(|(name, value)| *value == i64::from(number) && !name.starts_with("__"))
}

pub(super) fn kernel_functions(unmet: &mut Unmet, names: &BTreeSet<String>, programs: &[Program], sys: &dyn TargetInfo) {
    for name in names {
        if sys.kernel_function(name).is_none() && sys.kernel_variable(name).is_none() {
            let message = format!("the kernel has no function `{name}` that BPF programs may call");
            let help = Some("exclude such kernels: `// check: kernels >= …`".into());
            unmet.lacks.push(UnmetNeed { rule: "no-kernel-function", message, help, site: site_of("", programs) });
        }
    }
}

fn program_types(unmet: &mut Unmet, programs: &[Program], sys: &dyn TargetInfo) {
    // a finding that holds for every match of a wildcard is reported once, at the wildcard, with the names
    let mut found: Vec<(&Pos, &'static str, String, Vec<&str>)> = Vec::new();
    let nowhere = Pos::default();
    for program in programs {
        let first = program.sites.first();
        let attach = first.map(|s| &s.attach);
        let absent = program.ty.row().constants.iter().find(|c| sys.enumerator(c).is_none());
        let (rule, why) = if let Some(absent) = absent {
            ("no-program-type", format!("the kernel does not support such programs ({absent})"))
        } else if matches!(attach, Some(Attach::Kprobe { .. })) && !sys.has(Feature::Kprobe) {
            ("no-kprobes", "the kernel was built without kprobes (CONFIG_KPROBE_EVENTS)".to_owned())
        } else if matches!(attach, Some(Attach::Trampoline { .. })) && program.lowered.is_none() && !sys.has(Feature::Trampoline) {
            ("no-fentry", NO_TRAMPOLINES.to_owned())
        } else {
            continue;
        };
        let name = first.map_or("a program", |s| s.name.as_str());
        let at = first.map_or(&nowhere, |s| &s.pos);
        match found.iter_mut().find(|(p, r, w, _)| *p == at && *r == rule && *w == why) {
            Some((.., names)) => names.push(name),
            None => found.push((at, rule, why, vec![name])),
        }
    }
    for (_, rule, why, names) in found {
        let Some(first) = names.first() else { continue };
        let message = match names.len() {
            1 => format!("{first}: {why}"),
            n => format!("{first} and {} more: {why}", n - 1),
        };
        let help = (rule == "no-fentry").then(|| "use a kprobe or a tracepoint instead".to_string());
        unmet.lacks.push(UnmetNeed { rule, message, help, site: Some((*first).to_owned()) });
    }
}

fn sizes(unmet: &mut Unmet, needs: &Needs, artifact: &Artifact, sys: &dyn TargetInfo) {
    let programs = &artifact.manifest.programs;
    instructions(unmet, &needs.instructions, programs);
    if let Some(message) = large_maps(needs, sys) {
        unmet.lacks.push(UnmetNeed { rule: "large-maps", message, help: Some(LARGE_MAPS_REMEDY.into()), site: None });
    }
    let total: usize = needs.instructions.values().sum();
    unmet.facts.push(("instructions".into(), total.to_string()));
    if !artifact.manifest.maps.is_empty() {
        unmet
            .facts
            .push(("maps".into(), format!("{}, at most {} KiB", artifact.manifest.maps.len(), size_of_maps(needs, sys).div_ceil(1024))));
    }
}

pub(super) fn instructions(unmet: &mut Unmet, by_function: &BTreeMap<String, usize>, programs: &[Program]) {
    for (function, n) in by_function.iter().filter(|(_, n)| **n > MAX_INSTRUCTIONS) {
        let message = format!("a program has {n} instructions; kernels accept {MAX_INSTRUCTIONS}");
        let help = Some("do less in one probe".into());
        unmet.lacks.push(UnmetNeed { rule: "too-many-instructions", message, help, site: site_of(function, programs) });
    }
}

/// Size of the script's maps in bytes when they are full.
fn size_of_maps(needs: &Needs, sys: &dyn TargetInfo) -> u64 {
    let cpus = u64::from(sys.possible_cpus().max(1));
    needs.maps.iter().filter(|m| m.name.starts_with("map_")).map(|m| memory(m, cpus)).sum()
}

/// The warning for maps that may take too much memory.
fn large_maps(needs: &Needs, sys: &dyn TargetInfo) -> Option<String> {
    let (bytes, cpus) = (size_of_maps(needs, sys), sys.possible_cpus().max(1));
    (bytes > MIN_REPORTED_MAP_SIZE).then(|| format!("the script's maps may take {} MiB with {cpus} CPUs", bytes >> 20))
}

/// The same for a run, with the remedy.
pub fn large_maps_of(elf: &[u8], sys: &dyn TargetInfo) -> Option<String> {
    let message = large_maps(&needs(elf).ok()?, sys)?;
    Some(format!("{message}: {LARGE_MAPS_REMEDY}"))
}

/// Size of a full map in bytes, without the kernel's overhead for each element.
fn memory(map: &NeededMap, cpus: u64) -> u64 {
    let per_cpu = MapKind::numbered(map.kind).is_some_and(|(_, per_cpu)| per_cpu);
    let value = u64::from(map.value.next_multiple_of(8)) * if per_cpu { cpus } else { 1 };
    u64::from(map.entries).saturating_mul(u64::from(map.key.next_multiple_of(8)) + value)
}

/// The mechanism of a program's probes.
fn mechanism(program: &Program) -> Option<(String, String)> {
    let first: &AttachSite = program.sites.first()?;
    if matches!(first.attach, Attach::Begin | Attach::End | Attach::Signal | Attach::Test { .. }) {
        return None;
    }
    let mechanism = first.attach.mechanism(program.ty);
    let named: Vec<&str> = program.sites.iter().take(MAX_NAMED).map(|s| s.name.as_str()).collect();
    let more = program.sites.len() - named.len();
    let name = if more > 0 { format!("{} and {more} more", named.join(", ")) } else { named.join(", ") };
    let why = if program.why.is_empty() { String::new() } else { format!(": {}", program.why) };
    Some((name, format!("{mechanism}{why}")))
}

/// The usual name: `ringbuf` for `RINGBUF`.
fn usual_name(name: &str, prefix: &str) -> String {
    name.strip_prefix(prefix).unwrap_or(name).to_ascii_lowercase()
}
