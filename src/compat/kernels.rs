//! The kernels to check against: snapshots, and the running kernel.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cli::check::{Check, HERE, SNAPSHOT};
use crate::failure::Failure;
use crate::input::line;
use crate::system::machine::live::Live;
use crate::system::snapshot::Snapshot;
use crate::system::{Missing, TargetInfo};

use super::config::Config;

/// The source of a kernel's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// This machine.
    Here,
    /// A snapshot.
    File(PathBuf),
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in reports.
    pub name: String,
    /// The source of its description.
    pub source: KernelSource,
    /// `uname -r`; empty if unknown.
    pub release: String,
    /// The scripts for which it was described, by their digests; none if the description is complete.
    pub scripts: Option<BTreeSet<u64>>,
    /// Is it known which functions BPF programs can call?
    pub knows_callable: bool,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Kernels {
    /// The kernels to check against: at least one.
    pub all: Vec<Kernel>,
    /// The kernel with which the others are compared.
    pub baseline: Option<Kernel>,
    /// The user named the kernels, so reports do, too.
    pub named: bool,
}

/// Errors: a directory without snapshots. An unreadable snapshot is an unknown kernel.
pub fn kernels(args: &Check, config: &Config) -> Result<Kernels, Failure> {
    let given = if args.against.is_empty() { &config.against } else { &args.against };
    let mut places = Vec::new();
    for path in given {
        let place = kernel_source(path);
        if let KernelSource::File(dir) = &place
            && dir.is_dir()
            && let Ok(listed) = std::fs::read_dir(dir)
        {
            places.extend(snapshots(dir, listed)?.into_iter().map(KernelSource::File));
        } else {
            places.push(place);
        }
    }
    let mut all: Vec<Kernel> = Vec::new();
    for place in places {
        if !all.iter().any(|k| k.source == place) {
            all.push(kernel(place));
        }
    }
    let named = !all.is_empty();
    if !named {
        all.push(kernel(KernelSource::Here));
    }
    // files in different directories may have the same name
    let names: Vec<String> = all.iter().map(|k| k.name.clone()).collect();
    for (i, k) in all.iter_mut().enumerate() {
        if let (true, KernelSource::File(path)) = (names.iter().enumerate().any(|(j, n)| j != i && *n == k.name), &k.source) {
            k.name = path.display().to_string();
        }
    }
    let baseline = match &args.baseline {
        Some(path) => {
            let place = kernel_source(path);
            Some(all.iter().find(|k| k.source == place).cloned().unwrap_or_else(|| kernel(place)))
        }
        None => all.first().filter(|_| all.len() > 1).cloned(),
    };
    Ok(Kernels { all, baseline, named })
}

fn kernel_source(path: &Path) -> KernelSource {
    if path == Path::new(HERE) && !path.exists() { KernelSource::Here } else { KernelSource::File(path.to_owned()) }
}

fn kernel(place: KernelSource) -> Kernel {
    match place {
        KernelSource::Here => {
            let release = line("/proc/sys/kernel/osrelease").unwrap_or_default();
            Kernel { name: HERE.into(), source: KernelSource::Here, release, scripts: None, knows_callable: true }
        }
        KernelSource::File(path) => {
            let name = path.file_stem().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
            // its faults are reported when it is queried
            let describe = |s: Snapshot| (s.about().release.clone(), s.scripts(), s.lists_callable_functions());
            let (release, scripts, tells_callable) = Snapshot::open(&path).map_or(Default::default(), describe);
            Kernel { name, release, scripts, knows_callable: tells_callable, source: KernelSource::File(path) }
        }
    }
}

/// The snapshots in a directory, by name.
fn snapshots(dir: &Path, listed: std::fs::ReadDir) -> Result<Vec<PathBuf>, Failure> {
    let mut found: Vec<PathBuf> = listed.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == SNAPSHOT)).collect();
    found.sort();
    if found.is_empty() {
        let failure = Failure::new(format!("there is no snapshot in {}", dir.display())).code("no-snapshots");
        return Err(failure.help("`rbt snapshot -o FILE.rbts` makes one of a machine"));
    }
    Ok(found)
}

impl Kernel {
    /// The target that answers queries about it.
    pub fn open(&self, args: &Check) -> Result<Box<dyn TargetInfo>, Missing> {
        let live = Live::new().with_files(args.root.clone(), args.binaries.clone());
        Ok(match &self.source {
            KernelSource::Here => Box::new(live.attaching_nothing()),
            KernelSource::File(path) => Box::new(Snapshot::open(path)?.with_files(live)),
        })
    }
}
