//! A kernel described by a file, so that scripts can be checked against it elsewhere.
//!
//! [`Contents`] is the description, [`write()`] writes it to a file, and a [`Snapshot`] answers from the file. Opening
//! is cheap: only the digest of the file is checked, and a section is unpacked when the first query needs it.

mod answers;
pub mod capture;
mod file;
pub(in crate::system) mod inferred_features;
mod parts;
mod queries;
pub mod section;
#[cfg(test)]
mod tests;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::diag::Source;
use crate::system::cache::digest;
use crate::system::kernel::functions::Functions;
use crate::system::kernel_types::KernelTypes;
use crate::system::machine::arch::{self, Arch};
use crate::system::machine::live::Live;
use crate::system::{Feature, Missing};
use file::Sections;

/// General information about the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// `uname -r`.
    pub release: String,
    /// `uname -m`.
    pub machine: String,
    /// The build ID of its image, in hexadecimal; empty if unknown.
    pub build_id: String,
    /// The source of the description, for people: `this machine`, `a package's files in DIR`.
    pub source: String,
    /// The number of possible CPUs; 0 if unknown.
    pub possible_cpus: u32,
}

/// A tracepoint's `format` file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// `sched`.
    pub category: String,
    /// `sched_switch`.
    pub name: String,
    /// The text of the file, as `tracefs::parse_format` reads it.
    pub format: String,
}

/// The contents of a snapshot. An option that is `None` is unknown, and reported as such.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// General information.
    pub about: SnapshotInfo,
    /// Raw BTF by module: `vmlinux` first.
    pub btf: Vec<(String, Vec<u8>)>,
    /// Events, sorted.
    pub events: Option<Vec<Event>>,
    /// Functions that can be traced.
    pub functions: Option<Functions>,
    /// Names of other functions in the symbol table, sorted: they exist, but cannot be traced.
    pub untraceable: Option<Vec<String>>,
    /// Names of data in the symbol table, sorted: for `kaddr`.
    pub variables: Option<Vec<String>>,
    /// Existing modules, sorted, whether or not anything else is known about them.
    pub modules: Option<Vec<String>>,
    /// Functions that can be made to return immediately, sorted.
    pub error_injectable: Option<Vec<String>>,
    /// Its BPF features; an absent one is unknown.
    pub features: BTreeMap<Feature, bool>,
    /// Functions that BPF programs can call (kfuncs), and the types of programs (`BPF_PROG_TYPE_…`) that can.
    pub callable: Option<BTreeMap<String, Vec<u32>>>,
    /// Its configuration: the text of `/boot/config-…`.
    pub config: Option<String>,
    /// Digests of the scripts for which it was made (see [`script_digest`]): it contains what these need, and
    /// everything else is unknown. None: it contains the entire kernel.
    pub scripts: Option<BTreeSet<u64>>,
    /// Contents that were unavailable, and why: by the name of their section (see `parts`).
    pub missing: BTreeMap<String, String>,
}

/// The digest of a script with all its imports.
pub fn script_digest(sources: &[Source]) -> u64 {
    let all: String = sources.iter().map(|s| format!("{} {}", s.text.len(), s.text)).collect();
    digest(all.as_bytes())
}

/// Writes a snapshot.
pub fn write(contents: &Contents, to: &mut dyn Write) -> io::Result<()> {
    write_with_progress(contents, to, &mut |_| {})
}

/// The same; `packed` is called for each section that is done.
pub fn write_with_progress(contents: &Contents, to: &mut dyn Write, packed: &mut dyn FnMut(&str)) -> io::Result<()> {
    file::write(&parts::sections(contents), to, packed)
}

/// A kernel described by a file. Binaries are those of this machine, or for the processor of that kernel.
pub struct Snapshot {
    path: PathBuf,
    about: SnapshotInfo,
    /// Its architecture; for older files, which do not record it, that of this machine.
    arch: &'static Arch,
    sections: Rc<Sections>,
    /// Answers queries about binaries.
    files: Live,
    types: OnceCell<Result<KernelTypes, Missing>>,
    events: OnceCell<Result<parts::EventIndex, Missing>>,
    formats: OnceCell<Result<String, String>>,
    raw_tracepoints: OnceCell<Result<Vec<(String, String)>, Missing>>,
    functions: OnceCell<Result<Functions, Missing>>,
    untraceable: OnceCell<Option<Functions>>,
    variables: OnceCell<Option<Functions>>,
    injectable: OnceCell<Option<Functions>>,
    callable: OnceCell<Option<BTreeMap<String, Vec<u32>>>>,
    features: OnceCell<BTreeMap<Feature, bool>>,
    /// Inferred answers for features that are not among those.
    answered: RefCell<BTreeMap<Feature, bool>>,
    config: OnceCell<Option<String>>,
    modules: OnceCell<Option<Functions>>,
    /// The queries so far, if they are recorded.
    queries: Option<RefCell<queries::Queries>>,
}

impl Snapshot {
    /// Reads a file. Errors: it is unreadable, not a snapshot, truncated, damaged, too large, or of a newer format.
    pub fn open(path: &Path) -> Result<Self, Missing> {
        Self::from_sections(path, Sections::open(path)?)
    }

    /// From contents in memory.
    pub fn of(contents: &Contents) -> Result<Self, Missing> {
        let path = Path::new("of this kernel");
        Self::from_sections(path, Sections::unpacked(parts::sections(contents)))
    }

    fn from_sections(path: &Path, sections: Sections) -> Result<Self, Missing> {
        let about = parts::read_about(&sections).map_err(|why| Missing {
            what: format!("the snapshot {} is damaged: {why}", path.display()),
            help: Some("create it again: `rbt snapshot -o FILE`".into()),
        })?;
        let arch = match about.machine.as_str() {
            "" => arch::HERE,
            machine => arch::named(machine).ok_or_else(|| Missing {
                what: format!("the snapshot {} is of a kernel for {machine}; rbt supports {}", path.display(), arch::names()),
                help: Some("name a snapshot of such a kernel".into()),
            })?,
        };
        Ok(Self {
            path: path.to_owned(),
            about,
            arch,
            sections: Rc::new(sections),
            files: Live::new().for_kernel(arch),
            types: OnceCell::new(),
            events: OnceCell::new(),
            formats: OnceCell::new(),
            raw_tracepoints: OnceCell::new(),
            functions: OnceCell::new(),
            untraceable: OnceCell::new(),
            variables: OnceCell::new(),
            injectable: OnceCell::new(),
            callable: OnceCell::new(),
            features: OnceCell::new(),
            answered: RefCell::default(),
            config: OnceCell::new(),
            modules: OnceCell::new(),
            queries: None,
        })
    }

    /// Uses `files` for binaries, such as those of another file tree.
    pub fn with_files(self, files: Live) -> Self {
        Self { files: files.for_kernel(self.arch), ..self }
    }

    /// General information about the kernel.
    pub fn about(&self) -> &SnapshotInfo {
        &self.about
    }

    /// See [`Contents::scripts`].
    pub fn scripts(&self) -> Option<BTreeSet<u64>> {
        parts::scripts(&self.sections).ok().flatten()
    }

    /// Does it list the functions that BPF programs can call? Only a description of a running kernel does.
    pub fn lists_callable_functions(&self) -> bool {
        self.sections.sizes("callable").is_some()
    }

    /// The version of rbt that wrote the file.
    pub fn writer(&self) -> &str {
        &self.sections.writer
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> usize {
        self.sections.size()
    }

    /// Its sections: names, packed sizes, and unpacked sizes.
    pub fn parts(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.sections.names().map(|name| {
            let (stored, raw) = self.sections.sizes(name).unwrap_or_default();
            (name, stored, raw)
        })
    }

    /// All contents, unpacked.
    pub fn contents(&self) -> Result<Contents, Missing> {
        parts::contents(&self.sections).map_err(|why| Missing {
            what: format!("the snapshot {} is damaged: {why}", self.path.display()),
            help: Some("create it again: `rbt snapshot -o FILE`".into()),
        })
    }
}
