//! Loads an object: from its bytes to programs and maps.
//!
//! rbt captures the messages of libbpf for `-v` and for errors. libbpf loads a program without a verifier log first, and
//! repeats the load with a log buffer if the kernel rejects it.
#![allow(unsafe_code)] // libbpf's C API, and memory shared with programs

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, bail};
use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, Object, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel};
use rustix::time::{ClockId, DynamicClockId, clock_gettime_dynamic};

use super::attach::AttachFailed;
use super::call_marks::CallMarks;
use super::privileges::{self, NotPermitted};
use super::shared::Shared;
use super::signals::Signals;
use super::thread_table::Cells;
use super::unwind::{self as unwind_tables, Unwind};
use super::verifier_log::VerifierError;
use super::{NoRoomForName, attach_target, unloadable, verifier_log};
use crate::codegen::artifact::{
    ARGUMENTS_SECTION, Artifact, AttachSite, CALLS, FAILURES_SECTION, FOLLOWED, Failures, GATES_SECTION, HITS_SECTION, LoadConstants,
    MARKS_SECTION, Manifest, Map, NAMES, PYTHON_CODES, PYTHON_PROCESSES, PYTHON_STATE, ProbeCounters, Program, RING, SCRATCH,
    SCRATCH_SLOTS, START_SECTION, STATE_SECTION, TALLIES_SECTION, THREADS_SECTION, ThreadTable, second, stacks_name, unwind,
};
use crate::emit::libbpf_log;
use crate::failure::reason;
use crate::probes::{self, Attach};
use crate::settings::{Invocation, MissingProbes, Settings};
use crate::system::{Feature, TargetInfo, kernel::known_features, kernel::processors, machine::programs};

/// A loaded object.
pub(super) struct Loaded {
    /// Owns the descriptors below, and the mapping of the state.
    _object: Object,
    /// By index in the manifest; none for programs in `left_out`.
    pub programs: Vec<Option<RawFd>>,
    /// Programs that the kernel rejects, and why.
    pub left_out: BTreeMap<usize, String>,
    /// By index in the manifest.
    pub maps: Vec<MapFd>,
    /// The second copies of double-buffered maps.
    pub second_copies: Vec<Option<MapFd>>,
    /// Unfinished calls whose entry passed its filter: see [`CallMarks`].
    pub call_marks: CallMarks,
    /// Stack maps by their limit.
    pub stacks: BTreeMap<u32, MapFd>,
    /// The ring and its bytes.
    pub ring: Option<(RawFd, u64)>,
    /// Bytes that record which probes were hit.
    pub hits: Option<MapFd>,
    /// Followed processes, and the programs that follow them, with their raw tracepoints.
    pub followed: Option<MapFd>,
    pub followers: Vec<(RawFd, String)>,
    /// Processes with a Python interpreter.
    pub python_processes: Option<MapFd>,
    /// The memory that programs share with rbt.
    pub state: Shared,
    /// The tables by which programs unwind stacks, and the program that identifies the files of the tables.
    pub unwinder: Option<Arc<dyn Unwind>>,
    pub identify_program: Option<RawFd>,
}

/// A map and its properties in the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapFd {
    pub fd: RawFd,
    /// Bytes.
    pub key_size: usize,
    /// Bytes, of one CPU.
    pub value_size: usize,
    /// Number of per-CPU values of an element, each padded to eight bytes.
    pub cpus: Option<usize>,
    pub max_entries: u32,
    /// Keys are indices, and elements cannot be removed.
    pub array: bool,
    /// The elements of threads that are not in the map itself.
    pub threads: Option<Cells>,
}

impl MapFd {
    /// Size in bytes of a lookup's result.
    pub fn room(&self) -> usize {
        self.cpus.map_or(self.value_size, |cpus| self.value_size.next_multiple_of(8) * cpus)
    }
}

/// Existing maps, and the arguments of the run.
#[derive(Clone, Copy)]
pub(super) struct LoadContext<'a> {
    /// The `-c` program's process, or 0.
    pub child: u32,
    /// The arguments of the run.
    pub invocation: &'a Invocation,
    /// Maps by name.
    pub maps: &'a [(String, Arc<OwnedFd>)],
}

/// The tables by which the object's programs unwind stacks, if any program needs them.
fn unwinder(object: &OpenObject, settings: &Settings) -> anyhow::Result<Option<Arc<dyn Unwind>>> {
    if !object.maps().any(|map| map.name().to_str() == Some(unwind::POOLS)) {
        return Ok(None);
    }
    let options = unwind_tables::Options { memory: settings.unwind_memory, debug_dirs: settings.debug_dirs.clone() };
    let make = unwind_tables::TABLES.get().context("this program has no tables for unwinding")?;
    make(&options).map(Some).context("cannot create the maps of unwind tables")
}

/// The messages of loading to report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogSelection {
    /// libbpf's messages.
    pub libbpf: bool,
    /// The verifier's log of each program, including accepted ones.
    pub verifier: bool,
}

/// Loads the object. `log` receives what `selected` selects.
///
/// Errors: [`verifier_log::VerifierError`] and [`NotPermitted`], or otherwise the messages of libbpf.
pub(super) fn load(
    artifact: &Artifact,
    settings: &Settings,
    sys: &dyn TargetInfo,
    context: LoadContext,
    selected: LogSelection,
    log: &mut dyn FnMut(&str),
) -> anyhow::Result<Loaded> {
    let manifest = &artifact.manifest;
    // An event and a link per site, or per site and CPU.
    let sites = manifest
        .programs
        .iter()
        .flat_map(|p| &p.sites)
        .map(|site| if site.attach.properties().is_per_cpu { sys.online_cpus().len() } else { 1 });
    privileges::raise_limits(sites.sum(), manifest.maps.len() + manifest.stacks.len());
    if settings.max_overhead.is_some() {
        privileges::require_statistics("keep a limit of the overhead")?;
    }
    let level = if selected.libbpf { PrintLevel::Debug } else { PrintLevel::Warn };
    let mut left_out: BTreeMap<usize, String> = BTreeMap::new();
    loop {
        let mut verified = Vec::new();
        let load = || {
            let wanted = if selected.verifier { Logs::OfAll(&mut verified) } else { Logs::OfRefused };
            let loaded = open_and_load(artifact, settings, sys, context, wanted, &left_out);
            loaded.or_else(|why| match why.downcast::<VerifierError>() {
                // before Linux 6.4 the end of the log is cut off, which contains the reason
                Ok(cut) if cut.log.len() as u64 + 2 >= settings.log_size => {
                    match open_and_load(artifact, settings, sys, context, Logs::Brief, &left_out).map_err(anyhow::Error::downcast) {
                        Ok(loaded) => Ok(loaded),
                        Err(Ok(VerifierError { reason, suggestion, .. })) => Err(VerifierError { reason, suggestion, ..cut }.into()),
                        Err(Err(_)) => Err(cut.into()),
                    }
                }
                Ok(refused) => Err(refused.into()),
                Err(why) => Err(why),
            })
        };
        let (loaded, messages) = libbpf_log::capture(level, load);
        if selected.libbpf {
            messages.iter().for_each(|line| log(line.trim_end()));
        }
        verified.iter().for_each(|text| log(text));
        let why = match loaded {
            Ok(loaded) => {
                known_features::keep();
                return Ok(Loaded { left_out, ..loaded });
            }
            Err(why) => why,
        };
        let known = left_out.len();
        let mut targets = unloadable::targets(&why, &messages, manifest);
        // the program can use another mechanism, so the script is compiled again. If policy forbids a program on a
        // kernel function, it forbids the other mechanisms too.
        if !unloadable::denied(&why) && targets.iter().any(|(i, _)| manifest.programs.get(*i).is_some_and(|p| p.lowered.is_some())) {
            targets.clear();
        }
        if settings.missing_probes == MissingProbes::Error
            && let (Some((index, reason)), false) = (targets.first(), unloadable::denied(&why))
            && let Some(site) = manifest.programs.get(*index).and_then(|p| p.sites.first())
        {
            return Err(AttachFailed { probe: site.name.clone(), pos: site.pos.clone(), reason: reason.clone() }.into());
        }
        if settings.missing_probes != MissingProbes::Error {
            left_out.extend(targets);
        }
        if left_out.len() == known {
            return Err(match why.downcast_ref::<libbpf_rs::Error>() {
                Some(_) => explain(why, &messages, manifest, sys),
                None => why,
            });
        }
    }
}

/// Programs whose verifier log is needed.
enum Logs<'a> {
    /// Of the rejected program.
    OfRefused,
    /// The same without the instructions.
    Brief,
    /// Of each program, with its name first.
    OfAll(&'a mut Vec<String>),
}

fn open_and_load(
    artifact: &Artifact,
    settings: &Settings,
    sys: &dyn TargetInfo,
    context: LoadContext,
    wanted: Logs<'_>,
    left_out: &BTreeMap<usize, String>,
) -> anyhow::Result<Loaded> {
    let manifest = &artifact.manifest;
    attach_target::register();
    attach_target::forget();
    let mut object = ObjectBuilder::default().name("rbt")?.open_memory(&artifact.elf).context("the object")?;
    // a reused map gets its name in the kernel (bpf_map__reuse_fd); the order of maps stays the same
    let names: Vec<String> = object.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
    let unwinder = unwinder(&object, settings)?;
    let ring_bytes = prepare_maps(&mut object, manifest, settings, sys, context, unwinder.as_deref())?;

    // One buffer serves all programs if only a rejection is of interest: libbpf stops at the first rejected program,
    // and the kernel keeps the end of the log (since Linux 6.4). BPF_LOG_LEVEL1, BPF_LOG_STATS of
    // include/linux/bpf_verifier.h
    let level = match wanted {
        Logs::OfRefused => 0,
        Logs::Brief => 4,
        Logs::OfAll(_) => 1,
    };
    let verified = if let Logs::OfAll(verified) = wanted { Some(verified) } else { None };
    let size = settings.log_size.clamp(4096, u64::from(u32::MAX >> 2)) as usize;
    let mut logs: Vec<(String, Vec<u8>)> = Vec::new();
    let mut without: Vec<&str> = left_out.keys().filter_map(|i| Some(manifest.programs.get(*i)?.function.as_str())).collect();
    // an argument of the run disables them
    without.extend(manifest.programs.iter().filter(|program| program.sites.is_empty()).map(|program| program.function.as_str()));
    let follows = settings.follows(context.invocation);
    without.extend(manifest.followers.iter().filter(|follower| follower.follows && !follows).map(|follower| follower.function.as_str()));
    let on_programs: Vec<&str> = programs_on_programs(manifest).map(|(program, ..)| program.function.as_str()).collect();
    for mut program in object.progs_mut() {
        let name = program.name().to_str().unwrap_or_default();
        if without.contains(&name) {
            program.set_autoload(false);
            continue;
        }
        attach_target::set(&mut program, on_programs.contains(&name), sys)?;
        if logs.is_empty() || verified.is_some() {
            logs.push((program.name().to_string_lossy().into_owned(), vec![0u8; size]));
        }
        let Some((_, log)) = logs.last_mut() else { continue };
        let raw = program.as_libbpf_object().as_ptr();
        // SAFETY: the buffers outlive the load below (moving the vectors does not move their contents); nothing reads
        // the buffers after it
        unsafe {
            libbpf_sys::bpf_program__set_log_buf(raw, log.as_mut_ptr().cast(), size as u64);
            libbpf_sys::bpf_program__set_log_level(raw, level);
        }
    }
    let targets = set_targets(&mut object, manifest, &without)?;
    let loaded = object.load();
    drop(targets);
    let refusing = logs.iter().rfind(|(_, log)| log.first().is_some_and(|b| *b != 0)).or(logs.last());
    let object = match loaded {
        Ok(object) => object,
        Err(why) => return Err(refusal(why, refusing.map_or(&[], |(_, log)| log), manifest)),
    };
    fill_site_maps(&object, manifest)?;
    if let Some(verified) = verified {
        let text = |log: &[u8]| String::from_utf8_lossy(log.split(|b| *b == 0).next().unwrap_or(&[])).trim_end().to_string();
        verified.extend(logs.iter().map(|(name, log)| format!("; verifier: {name}\n{}\n", text(log))));
    }
    let loaded = collect(object, (manifest, &names), ring_bytes, &without)?;
    Ok(Loaded { unwinder, followed: loaded.followed.filter(|_| follows), ..loaded })
}

/// The programs on functions of other BPF programs, with their sites and the IDs and functions of those.
fn programs_on_programs(manifest: &Manifest) -> impl Iterator<Item = (&Program, &AttachSite, u32, &str)> {
    manifest.programs.iter().filter_map(|program| {
        let site = program.sites.first()?;
        let Attach::Trampoline { program: Some(id), function, .. } = &site.attach else { return None };
        Some((program, site, *id, function.as_str()))
    })
}

/// Tells libbpf the targets of these programs. The descriptors must stay open while it loads.
fn set_targets(object: &mut OpenObject, manifest: &Manifest, without: &[&str]) -> anyhow::Result<Vec<OwnedFd>> {
    let mut kept = Vec::new();
    for (program, site, id, function) in programs_on_programs(manifest) {
        if without.contains(&program.function.as_str()) {
            continue;
        }
        let failed = |reason: String| AttachFailed { probe: site.name.clone(), pos: site.pos.clone(), reason };
        let fd = programs::open(id).map_err(|e| failed(format!("the BPF program {id} cannot be opened: {}", reason(&e))))?;
        if let Some(mut ours) = object.progs_mut().find(|p| p.name().to_str() == Some(program.function.as_str())) {
            let set = ours.set_attach_target(fd.as_raw_fd(), Some(function.to_owned()));
            set.map_err(|e| failed(format!("libbpf does not find its function `{function}`: {e}")))?;
        }
        kept.push(fd);
    }
    Ok(kept)
}

/// Sets the values that depend on this machine: constants, and sizes of maps. Returns the size of the ring buffer in
/// bytes, if there is one.
fn prepare_maps(
    object: &mut OpenObject,
    manifest: &Manifest,
    settings: &Settings,
    sys: &dyn TargetInfo,
    context: LoadContext,
    unwinder: Option<&dyn Unwind>,
) -> anyhow::Result<Option<u64>> {
    let cpus = sys.possible_cpus().max(1);
    let python = object.maps().any(|map| map.name().to_str() == Some(PYTHON_CODES));
    let mut ring_bytes = None;
    for mut map in object.maps_mut() {
        match map.name().to_str() {
            Some(START_SECTION) => fill(&mut map, &start_words(manifest, settings, context, (cpus, sys.pid_namespace()))),
            Some(ARGUMENTS_SECTION) => fill(&mut map, &context.invocation.argument_memory),
            // libbpf sets this flag only if BTF describes a variable of the section
            Some(STATE_SECTION) => {
                let flags = map.map_flags() | libbpf_sys::BPF_F_MMAPABLE;
                map.set_map_flags(flags)?;
            }
            Some(GATES_SECTION | THREADS_SECTION | MARKS_SECTION) => {
                let flags = map.map_flags() | libbpf_sys::BPF_F_MMAPABLE;
                map.set_map_flags(flags)?;
            }
            Some(TALLIES_SECTION) => {
                let flags = map.map_flags() | libbpf_sys::BPF_F_MMAPABLE;
                map.set_map_flags(flags)?;
                map.set_value_size(manifest.probes.max(1) as u32 * cpus * size_of::<ProbeCounters>() as u32)?;
            }
            Some(FAILURES_SECTION) => {
                let flags = map.map_flags() | libbpf_sys::BPF_F_MMAPABLE;
                map.set_map_flags(flags)?;
                map.set_value_size((manifest.problems.len().max(1) as u32 * size_of::<Failures>() as u32) << LoadConstants::shift(cpus))?;
            }
            Some(FOLLOWED) if !settings.follows(context.invocation) => map.set_max_entries(1)?,
            Some(SCRATCH | PYTHON_STATE) => map.set_max_entries(cpus * SCRATCH_SLOTS)?,
            Some(RING) => {
                let bytes = ring_size(manifest, settings, cpus, python);
                map.set_max_entries(bytes as u32)?;
                ring_bytes = Some(bytes);
            }
            Some(name) if name.starts_with(NAMES) => {
                let sites = sites_of_map(manifest, name).len().max(1);
                map.set_max_entries(sites as u32)?;
            }
            Some(name) if name.starts_with(unwind::UNWIND_STATES) => map.set_max_entries(cpus * SCRATCH_SLOTS)?,
            Some(name) => {
                if let Some(fd) = unwinder.and_then(|u| u.map(name)) {
                    map.reuse_fd(fd)?;
                    continue;
                }
                let index = name.strip_prefix("map_").and_then(|n| n.parse::<usize>().ok());
                let row = index.and_then(|i| manifest.maps.get(i));
                let known = row.map_or(name, |row| &row.name);
                if let Some((_, fd)) = context.maps.iter().find(|(name, _)| name == known) {
                    map.reuse_fd(fd.as_fd())?;
                } else if name.starts_with("map_")
                    && map.map_type() == libbpf_rs::MapType::Hash
                    && sys.has(Feature::AllocatesAnywhere)
                    && is_too_much(&map)
                {
                    let flags = map.map_flags() | libbpf_sys::BPF_F_NO_PREALLOC;
                    map.set_map_flags(flags)?;
                }
            }
            None => {}
        }
    }
    Ok(ring_bytes)
}

/// The sites that a map of names or system calls is about.
fn sites_of_map<'m>(manifest: &'m Manifest, name: &str) -> &'m [AttachSite] {
    let numbers = name.strip_prefix(NAMES).or_else(|| name.strip_prefix(CALLS)).unwrap_or_default();
    let probe = numbers.split('_').next().and_then(|n| n.parse::<u32>().ok());
    let program = manifest.programs.iter().find(|program| program.probes.iter().any(|n| Some(*n as u32) == probe));
    program.map_or(&[], |program| program.sites_of(probe.unwrap_or_default()))
}

/// Fills the maps of the sites that were found when the script was run.
fn fill_site_maps(object: &Object, manifest: &Manifest) -> anyhow::Result<()> {
    for map in object.maps() {
        let Some(name) = map.name().to_str() else { continue };
        for (index, site) in (0u64..).zip(sites_of_map(manifest, name)) {
            if name.starts_with(NAMES) {
                let mut value = site.name.clone().into_bytes();
                if value.len() >= map.value_size() as usize {
                    return Err(NoRoomForName { name: site.name.clone(), pos: site.pos.clone() }.into());
                }
                value.resize(map.value_size() as usize, 0);
                map.update(&(index as u32).to_ne_bytes(), &value, MapFlags::ANY)?;
            }
            if let (true, Attach::Syscall { number, .. }) = (name.starts_with(CALLS), &site.attach) {
                map.update(&number.to_ne_bytes(), &(index + 1).to_ne_bytes(), MapFlags::ANY)?;
            }
        }
    }
    Ok(())
}

/// Sets the contents of a section.
fn fill(map: &mut OpenMapMut<'_>, bytes: &[u8]) {
    if let Some(to) = map.initial_value_mut() {
        to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    }
}

/// The contents of [`LoadConstants`], as the programs read them.
fn start_words(manifest: &Manifest, settings: &Settings, context: LoadContext, (cpus, namespace): (u32, Option<(u64, u64)>)) -> Vec<u8> {
    let invocation = context.invocation;
    let (namespace_dev, namespace_ino) = namespace.unwrap_or_default();
    let only_pid = settings.only_pid().unwrap_or_default();
    let command = settings.limits_to_command(invocation).then_some(context.child);
    let cgroup = invocation.cgroup.as_ref();
    let start = LoadConstants {
        child: context.child.into(),
        boot_ns: clock(DynamicClockId::Boottime),
        cpus: cpus.into(),
        tai_offset: clock(DynamicClockId::Tai).wrapping_sub(clock(DynamicClockId::Known(ClockId::Monotonic))),
        unix_offset: clock(DynamicClockId::Known(ClockId::Realtime)).wrapping_sub(clock(DynamicClockId::Boottime)),
        opaque_zero: 0,
        rbt_pid: super::test_run::own_id(),
        problems: manifest.problems.len() as u64,
        failures_shift: LoadConstants::shift(cpus).into(),
        seed: seed(),
        only_pid: only_pid.into(),
        only_command: command.unwrap_or(only_pid).into(),
        follows: settings.follows(invocation).into(),
        only_followed: settings.follow.into(),
        cgroup: cgroup.map_or(0, |cgroup| cgroup.id),
        cgroup_level: cgroup.and_then(|cgroup| cgroup.level).unwrap_or_default().into(),
        namespace_dev,
        namespace_ino,
    };
    let first = [start.child, start.boot_ns, start.cpus, start.tai_offset, start.unix_offset, start.opaque_zero];
    let of_run = [start.only_pid, start.only_command, start.follows, start.only_followed, start.cgroup, start.cgroup_level];
    let of_namespace = [start.namespace_dev, start.namespace_ino];
    let words =
        first.into_iter().chain([start.rbt_pid, start.problems, start.failures_shift, start.seed]).chain(of_run).chain(of_namespace);
    words.flat_map(u64::to_ne_bytes).collect()
}

/// A random number, the same for all objects that this process loads, because scripts at the prompt share maps.
fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().build_hasher().finish())
}

/// Nanoseconds on one of the kernel's clocks.
pub(super) fn clock(which: DynamicClockId) -> u64 {
    clock_gettime_dynamic(which).map_or(0, |now| now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The number of values of an element of a per-CPU map. libbpf reads it from /sys, which may not be mounted.
fn possible_cpus() -> anyhow::Result<usize> {
    static COUNT: OnceLock<usize> = OnceLock::new();
    if let Some(known) = COUNT.get() {
        return Ok(*known);
    }
    let count = match Path::new("/sys/devices/system/cpu/possible").exists() {
        true => libbpf_rs::num_possible_cpus()?,
        false => processors::possible().context("the number of processors is unknown")?,
    };
    Ok(*COUNT.get_or_init(|| count))
}

/// Size of the ring buffer in bytes, a power of two. The default is 1 MiB per CPU that may write, from 4 to 16 MiB in total,
/// but at most 1/64 of the free memory, and less if few records are possible: the kernel allocates and frees its pages
/// one by one. (With two CPUs, of which one writes 2 million records per second and the other
/// reads them, 2 MiB suffice.)
fn ring_size(manifest: &Manifest, settings: &Settings, cpus: u32, python: bool) -> u64 {
    const LEAST: u64 = 256 << 10;
    const SOME: u64 = 1 << 20;
    let max = (u64::from(cpus) << 20).clamp(4 << 20, 16 << 20);
    let page = super::ring::page_size();
    if settings.perf_rb_pages > 0 {
        let pages = settings.perf_rb_pages.max(cpus.into());
        return pages.saturating_mul(page).min(1 << 30).next_power_of_two();
    }
    if manifest.events.iter().all(|e| only_ends(&e.builtin)) {
        return if python { SOME } else { LEAST };
    }
    if manifest.programs.iter().flat_map(|p| &p.sites).all(|site| site.attach.properties().is_rare) {
        return SOME;
    }
    let bytes = available_memory().map_or(max, |bytes| bytes / 64).clamp(LEAST, max);
    1 << bytes.ilog2()
}

/// Bytes of memory available without swapping, if known.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// Is a preallocated map too large for this machine?
fn is_too_much(map: &OpenMapMut<'_>) -> bool {
    const SMALL: u64 = 16 << 20;
    let bytes = u64::from(map.max_entries()).saturating_mul(u64::from(map.key_size()) + u64::from(map.value_size()));
    bytes > SMALL && available_memory().is_some_and(|available| bytes > available / 8)
}

/// Is it the last record?
fn only_ends(builtin: &str) -> bool {
    crate::builtins::user_side(builtin).and_then(|row| row.event).is_some_and(|event| event.ends_probe)
}

fn collect(
    mut object: Object,
    (manifest, names): (&Manifest, &[String]),
    ring_bytes: Option<u64>,
    without: &[&str],
) -> anyhow::Result<Loaded> {
    let mut programs = BTreeMap::new();
    for program in object.progs().filter(|p| !p.name().to_str().is_some_and(|name| without.contains(&name))) {
        programs.insert(program.name().to_string_lossy().into_owned(), program.as_fd().as_raw_fd());
    }
    let identify = programs.get(unwind::IDENTIFY).copied();
    let followers = manifest.followers.iter().filter_map(|of| Some((*programs.get(&of.function)?, of.tracepoint.clone()))).collect();
    let programs = manifest
        .programs
        .iter()
        .map(|p| match programs.get(&p.function) {
            None if without.contains(&p.function.as_str()) => Ok(None),
            found => found.copied().map(Some).with_context(|| format!("the object has no program {}", p.function)),
        })
        .collect::<anyhow::Result<_>>()?;

    let (mut maps, mut ring) = (BTreeMap::new(), None);
    let mut threads = (std::ptr::null_mut(), 0);
    let mut marks = (std::ptr::null_mut(), 0);
    let mut state = Shared::none(manifest.probes);
    for (map, name) in object.maps_mut().zip(names.iter().cloned()) {
        let fd = map.as_fd().as_raw_fd();
        if [STATE_SECTION, TALLIES_SECTION, GATES_SECTION, FAILURES_SECTION].contains(&name.as_str()) {
            let mut size = 0;
            // SAFETY: libbpf's mapping of the section; it lives until the object is dropped
            let mapped = unsafe { libbpf_sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut size) };
            // SAFETY: see above
            if !unsafe { state.set(&name, mapped, size as usize) } {
                bail!("the object's {name} cannot be mapped");
            }
        } else if name == THREADS_SECTION {
            // SAFETY: the same
            threads.0 = unsafe { libbpf_sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut threads.1) };
        } else if name == MARKS_SECTION {
            // SAFETY: the same
            marks.0 = unsafe { libbpf_sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), &mut marks.1) };
        } else if name == RING {
            ring = Some((fd, ring_bytes.unwrap_or_else(|| map.max_entries().into())));
        } else {
            let ty = map.map_type();
            let array = matches!(ty, libbpf_rs::MapType::Array | libbpf_rs::MapType::PercpuArray);
            let entry = MapFd {
                fd,
                key_size: map.key_size() as usize,
                value_size: map.value_size() as usize,
                cpus: if ty.is_percpu() { Some(possible_cpus()?) } else { None },
                max_entries: map.max_entries(),
                array,
                threads: None,
            };
            maps.insert(name, entry);
        }
    }
    let cells = |table: ThreadTable| {
        // SAFETY: libbpf's mapping, as above
        unsafe { Cells::new(table, threads.0, threads.1 as usize) }
    };
    let find = |name: String| maps.get(&name).copied().with_context(|| format!("the object has no map {name}"));
    Ok(Loaded {
        programs,
        maps: (0..)
            .zip(&manifest.maps)
            .map(|(i, m)| Ok(MapFd { threads: m.threads.map(cells).transpose()?, ..find(format!("map_{i}"))? }))
            .collect::<anyhow::Result<_>>()?,
        second_copies: (0..)
            .zip(&manifest.maps)
            .map(|(i, m)| m.double.map(|_| find(second(i))).transpose())
            .collect::<anyhow::Result<_>>()?,
        // SAFETY: libbpf's mapping, as above
        call_marks: unsafe { CallMarks::new(&|name| maps.get(name).copied(), marks.0, marks.1 as usize) },
        stacks: manifest.stacks.iter().map(|n| Ok((*n, find(stacks_name(*n))?))).collect::<anyhow::Result<_>>()?,
        ring,
        hits: maps.get(HITS_SECTION).copied(),
        followed: maps.get(FOLLOWED).copied(),
        python_processes: maps.get(PYTHON_PROCESSES).copied(),
        followers,
        state,
        left_out: BTreeMap::new(),
        unwinder: None,
        identify_program: identify,
        _object: object,
    })
}

/// The error of a failed load: the verifier's reason if it gave one.
fn refusal(why: libbpf_rs::Error, log: &[u8], manifest: &Manifest) -> anyhow::Error {
    let text = String::from_utf8_lossy(log.split(|b| *b == 0).next().unwrap_or_default());
    let failure = libbpf_log::find(|line| unloadable::failure(line).map(str::to_owned));
    let too_large = failure.as_deref().is_some_and(|failure| verifier_log::read("", "", Some(failure)).is_too_large());
    if text.trim().is_empty() && !too_large {
        return why.into();
    }
    // libbpf stops at the first program that fails, and names it
    let function = libbpf_log::find(|line| unloadable::failed_program(line));
    let program = manifest.programs.iter().find(|p| Some(&p.function) == function.as_ref());
    let name = match program.map(|p| p.sites.as_slice()) {
        Some([site]) => site.name.clone(),
        Some([site, others @ ..]) => format!("{} and {} more", site.name, others.len()),
        Some([]) | None => function.unwrap_or_else(|| "a program".into()),
    };
    verifier_log::read(&name, &text, failure.as_deref()).into()
}

/// Other failures: a missing permission, or the messages of libbpf.
fn explain(why: anyhow::Error, messages: &[String], manifest: &Manifest, sys: &dyn TargetInfo) -> anyhow::Error {
    let denied = why.downcast_ref::<libbpf_rs::Error>().is_some_and(|e| e.kind() == libbpf_rs::ErrorKind::PermissionDenied);
    if denied {
        let failed = messages.iter().find_map(|line| unloadable::failed_program(line));
        let site = manifest.programs.iter().find(|p| Some(&p.function) == failed.as_ref()).and_then(|p| p.sites.first());
        let lacking = privileges::missing().or_else(|| privileges::memory_denied(sys));
        // the mechanism that it was lowered to may be forbidden, but nothing else is known
        let unavailable = |site: &AttachSite| Some(probes::unavailable(site.name.split(':').next()?, sys)?.what);
        if let (None, Some((site, reason))) = (&lacking, site.and_then(|site| Some((site, unavailable(site)?)))) {
            return AttachFailed { probe: site.name.clone(), pos: site.pos.clone(), reason }.into();
        }
        let missing = lacking.unwrap_or_else(|| match failed {
            Some(program) => format!("the kernel's policy forbids loading {program}, a program of this type"),
            None => "the kernel's policy forbids it".into(),
        });
        return NotPermitted { what: "load the programs".into(), missing }.into();
    }
    // A log of many lines (of types, for example) is the verifier's, and too long for a message.
    let words: Vec<&str> =
        messages.iter().map(|l| l.trim().trim_start_matches("libbpf: ")).filter(|l| !l.is_empty() && !l.contains('\n')).collect();
    if let Some(failure) = messages.iter().find_map(|line| map_failure(line, &manifest.maps, &manifest.stacks)) {
        return anyhow::anyhow!(failure);
    }
    match words.is_empty() {
        true => why.context("cannot load the programs"),
        false => why.context(format!("cannot load the programs: {}", words.join("; "))),
    }
}

/// The script's name for a map that was not created. libbpf's line: `map 'map_0': failed to create: -ENOMEM`.
pub(super) fn map_failure(line: &str, maps: &[Map], stacks: &[u32]) -> Option<String> {
    let (name, rest) = line.split_once("map '")?.1.split_once('\'')?;
    let reason = rest.split_once("failed to create: ")?.1.trim().trim_start_matches('-');
    let reason = match reason {
        "E2BIG" => "it is too large",
        "ENOMEM" => "there is not enough memory",
        other => other,
    };
    let is = |i: usize| name == format!("map_{i}") || name == second(i);
    let of_script = (0..).zip(maps).find(|(i, _)| is(*i)).map(|(_, map)| map.name.as_str());
    let (map, remedy) = match of_script {
        Some(map) => (format!("the map {map}"), "; lower max_map_keys, or the size in the map's declaration"),
        None if stacks.iter().any(|n| name == stacks_name(*n)) => ("the map of stacks".into(), "; lower max_stacks"),
        None => (format!("rbt's own map {name}"), ""),
    };
    Some(format!("the kernel cannot create {map}: {reason}{remedy}"))
}

/// Runs that the kernel skipped because the program, or another on the same hook, was running on that CPU
/// (`recursion_misses` of `struct bpf_prog_info`, include/uapi/linux/bpf.h; Linux 5.12).
pub(super) fn left_out(program: RawFd) -> u64 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the structure is zero, so no arrays are requested, and it has the given size
    let failed = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program, &mut info, &mut size) };
    if failed == 0 { info.recursion_misses } else { 0 }
}

/// Runs the programs of `begin`, of `end` or of a signal, in order of declaration.
pub(super) fn run_all(manifest: &Manifest, loaded: &Loaded, which: &Attach, signals: &Signals) -> anyhow::Result<()> {
    // `end` runs after the end was requested, and `begin` is then no longer needed
    let known = if *which == Attach::Begin { 0 } else { signals.end_requests() };
    for (program, fd) in manifest.programs.iter().zip(&loaded.programs) {
        let Some(fd) = *fd else { continue };
        for site in program.sites.iter().filter(|site| site.attach == *which) {
            signals
                .interruptible(loaded.state.flags(), known, || super::test_run::run_once(fd, 0))
                .with_context(|| format!("cannot run {}", site.name))?;
        }
    }
    Ok(())
}
