//! Reads the running kernel into [`Contents`]. Each part is separate, so an unreadable part is reported and does not affect the
//! others.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Contents, Event, SnapshotInfo, section};
use crate::failure::reason;
use crate::system::events::tracefs::{self, Tracefs};
use crate::system::kernel::functions::{self, KERNEL};
use crate::system::kernel::{features, prog_type};
use crate::system::machine::live::Live;
use crate::system::{Feature, TargetInfo, events::headers, kernel::function_cache, kernel_types};

/// The value of [`SnapshotInfo::source`] for a running kernel.
pub(super) const THIS_MACHINE: &str = "this machine";

/// Limit for the size of a configuration.
const MAX_CONFIG: u64 = 16 << 20;

/// Reads all parts that this user can read. `report` receives the name of each part.
pub fn capture(report: &mut dyn FnMut(&str)) -> Contents {
    let live = Live::new();
    let (release, machine) = headers::uname().unwrap_or_default();
    let mut all = Contents {
        about: SnapshotInfo {
            machine,
            build_id: function_cache::kernel_build_id().unwrap_or_default(),
            source: THIS_MACHINE.into(),
            possible_cpus: live.possible_cpus(),
            release,
        },
        ..Contents::default()
    };
    report("types");
    types(&mut all);
    let modules = std::fs::read_to_string("/proc/modules").map_err(|e| format!("/proc/modules: {}", reason(&e)));
    match modules {
        Ok(text) => {
            let mut names: Vec<String> = text.lines().filter_map(|l| l.split(' ').next()).map(str::to_owned).collect();
            names.sort_unstable();
            all.modules = Some(names);
        }
        // A kernel without modules.
        Err(_) if !Path::new("/proc/modules").exists() => all.modules = Some(Vec::new()),
        Err(why) => lacks(&mut all, section::MODULES, why),
    }
    report("events");
    match live.tracefs() {
        Ok(tracefs) => match events(tracefs, &live) {
            Ok(events) => all.events = Some(events),
            Err(why) => lacks(&mut all, section::EVENTS, why),
        },
        Err(missing) => lacks(&mut all, section::EVENTS, missing.what),
    }
    report("functions");
    functions(&mut all, &live);
    report("features");
    match features::may_ask() {
        Ok(()) => {
            all.features = Feature::ALL.into_iter().map(|f| (f, live.has(f))).collect();
            report("functions that programs may call");
            let called = live.types().map(|types| types.callable()).unwrap_or_default().into_iter().filter_map(|(name, id)| {
                let by: Vec<u32> = prog_type::ALL.into_iter().filter(|ty| live.allows_call(id, *ty)).collect();
                (!by.is_empty()).then_some((name, by))
            });
            all.callable = Some(called.collect());
        }
        Err(e) => {
            let why = format!("this user cannot load BPF programs, so features cannot be probed: {}", reason(&e));
            lacks(&mut all, section::FEATURES, why.clone());
            lacks(&mut all, section::CALLABLE, why);
        }
    }
    report("configuration");
    match config(&all.about.release) {
        Ok(text) => all.config = Some(text),
        Err(why) => lacks(&mut all, section::CONFIG, why),
    }
    all
}

fn lacks(all: &mut Contents, what: &str, why: String) {
    all.missing.insert(what.to_owned(), why);
}

fn types(all: &mut Contents) {
    let folder = Path::new("/sys/kernel/btf");
    let names = [KERNEL.to_owned()].into_iter().chain(kernel_types::module_names(folder));
    for name in names {
        match std::fs::read(folder.join(&name)) {
            Ok(bytes) => all.btf.push((name, bytes)),
            // It was just unloaded.
            Err(e) if e.kind() == io::ErrorKind::NotFound && name != KERNEL => {}
            Err(e) => lacks(all, &format!("{}{name}", section::BTF), format!("{}: {}", folder.join(&name).display(), reason(&e))),
        }
    }
}

/// Reads events, without those created at run time, which are not part of the kernel.
fn events(tracefs: &Tracefs, live: &Live) -> Result<Vec<Event>, String> {
    let names = tracefs.events().map_err(|missing| missing.what)?;
    let mut all = Vec::with_capacity(names.len());
    for (category, name) in names.into_iter().filter(|(c, n)| !live.is_dynamic_tracepoint(c, n)) {
        match tracefs.read(&format!("events/{category}/{name}/format")) {
            Ok(format) => all.push(Event { category, name, format }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("tracefs's events/{category}/{name}/format: {}", reason(&e))),
        }
    }
    Ok(all)
}

fn functions(all: &mut Contents, live: &Live) {
    // If the list is absent or unreadable, use the symbol table, as for tracing.
    let listed = live.tracefs().map_err(|missing| missing.what).and_then(|t| {
        let opened = t.open_file("available_filter_functions", rustix::fs::OFlags::RDONLY);
        opened.map(|_| ()).map_err(|e| format!("tracefs's available_filter_functions: {}", reason(&e)))
    });
    let list = live.functions().map_err(|missing| missing.what);
    match (listed, &list) {
        (Err(why), Ok(_)) => lacks(all, section::FUNCTIONS, format!("{why}; using all functions of the symbol table instead")),
        (_, Err(why)) => lacks(all, section::FUNCTIONS, why.clone()),
        (Ok(()), Ok(_)) => {}
    }
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").map_err(|e| reason(&e));
    match kallsyms.and_then(|text| if text.is_empty() { Err("it is empty for this user".into()) } else { Ok(text) }) {
        Ok(text) => {
            let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
            all.variables = Some(owned(functions::names(&text, false)));
            if let Ok(list) = &list {
                let mut code = functions::names(&text, true);
                list.all().for_each(|f| {
                    code.remove(f.name);
                });
                all.untraceable = Some(owned(code));
            }
        }
        Err(why) => {
            lacks(all, section::UNTRACEABLE, format!("/proc/kallsyms: {why}"));
            lacks(all, section::VARIABLES, format!("/proc/kallsyms: {why}"));
        }
    }
    all.functions = list.ok().cloned();
    // A line: name+offset/size, perhaps [module], and a tab before the kind of result (lib/error-inject.c).
    match tracefs::read_debugfs("error_injection/list") {
        Ok(text) => {
            let names = text.lines().filter_map(|l| l.split(['+', '\t', ' ']).next());
            let names: BTreeSet<String> = names.map(str::to_owned).collect();
            all.error_injectable = Some(names.into_iter().collect());
        }
        // CONFIG_FUNCTION_ERROR_INJECTION is not set.
        Err(e) if e.kind() == io::ErrorKind::NotFound => all.error_injectable = Some(Vec::new()),
        Err(e) => lacks(all, section::INJECTABLE, format!("debugfs's error_injection/list: {}", reason(&e))),
    }
}

/// Reads the kernel's configuration from the places where kernels and distributions keep it.
fn config(release: &str) -> Result<String, String> {
    let packed = Path::new("/proc/config.gz");
    if let Ok(file) = File::open(packed) {
        let mut text = String::new();
        let read = flate2::read::GzDecoder::new(file).take(MAX_CONFIG).read_to_string(&mut text);
        return read.map(|_| text).map_err(|e| format!("{}: {}", packed.display(), reason(&e)));
    }
    let places = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
    let found = places.iter().find_map(|place| std::fs::read_to_string(place).ok());
    found.ok_or_else(|| format!("neither /proc/config.gz nor {} can be read", places.join(" nor ")))
}
