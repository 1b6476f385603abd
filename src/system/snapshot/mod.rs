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

/// What is known of the kernel as such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// `uname -r`.
    pub release: String,
    /// `uname -m`.
    pub machine: String,
    /// The build id of its image, in hexadecimal; empty where it is not known.
    pub build_id: String,
    /// What it was made from, for people: `this machine`, `a package's files in DIR`.
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
    /// All of the file's text, as `tracefs::parse_format` reads it.
    pub format: String,
}

/// All that a snapshot holds. An option that is none: not known, and answered so.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// The kernel as such.
    pub about: SnapshotInfo,
    /// Raw BTF by module: `vmlinux` first.
    pub btf: Vec<(String, Vec<u8>)>,
    /// Events, sorted.
    pub events: Option<Vec<Event>>,
    /// Functions that can be traced.
    pub functions: Option<Functions>,
    /// Names of functions in the symbol table that are not among those, sorted: what cannot be traced, but is there.
    pub untraceable: Option<Vec<String>>,
    /// Names of data in the symbol table, sorted: for `kaddr`.
    pub variables: Option<Vec<String>>,
    /// Modules that are there, sorted, whether or not anything else is known of them.
    pub modules: Option<Vec<String>>,
    /// Functions that may be made to return at once, sorted.
    pub error_injectable: Option<Vec<String>>,
    /// What its BPF can do; one that is absent is not known.
    pub features: BTreeMap<Feature, bool>,
    /// Functions that BPF programs may call (kfuncs), and the types of program (`BPF_PROG_TYPE_…`) that may.
    pub callable: Option<BTreeMap<String, Vec<u32>>>,
    /// Its configuration: the text of `/boot/config-…`.
    pub config: Option<String>,
    /// Digests of the scripts that it was made for (see [`script_digest`]): it holds what these ask about, and of other things it
    /// does not tell whether they are there. None: it holds all of the kernel.
    pub scripts: Option<BTreeSet<u64>>,
    /// Contents that were unavailable, and why: by the name of their section (see `parts`).
    pub missing: BTreeMap<String, String>,
}

/// What stands for a script, as it is with all that it imports.
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

/// A kernel, as a file has it. What files of binaries hold is this machine's.
pub struct Snapshot {
    path: PathBuf,
    about: SnapshotInfo,
    /// What it is for; of older files, which do not tell, what this machine is.
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
    /// What was asked, if that is to be known.
    asked: Option<RefCell<queries::Queries>>,
}

impl Snapshot {
    /// Reads a file. Errors: it cannot be read, is none, is cut short, damaged, too large, or of a later format.
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
                what: format!("the snapshot {} is of a kernel for {machine}; rbt serves {}", path.display(), arch::names()),
                help: Some("name a snapshot of such a kernel".into()),
            })?,
        };
        Ok(Self {
            path: path.to_owned(),
            about,
            arch,
            sections: Rc::new(sections),
            files: Live::new(),
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
            asked: None,
        })
    }

    /// With what knows binaries: another file tree's, say.
    pub fn with_files(self, files: Live) -> Self {
        Self { files, ..self }
    }

    /// The kernel as such.
    pub fn about(&self) -> &SnapshotInfo {
        &self.about
    }

    /// See [`Contents::scripts`].
    pub fn scripts(&self) -> Option<BTreeSet<u64>> {
        parts::scripts(&self.sections).ok().flatten()
    }

    /// Does it tell which functions BPF programs may call? Only a kernel that runs does.
    pub fn tells_callable(&self) -> bool {
        self.sections.sizes("callable").is_some()
    }

    /// The version of rbt that wrote the file.
    pub fn writer(&self) -> &str {
        &self.sections.writer
    }

    /// Bytes of the file.
    pub fn size(&self) -> usize {
        self.sections.size()
    }

    /// Its sections: names, bytes in the file, and bytes unpacked.
    pub fn parts(&self) -> impl Iterator<Item = (&str, usize, usize)> {
        self.sections.names().map(|name| {
            let (stored, raw) = self.sections.sizes(name).unwrap_or_default();
            (name, stored, raw)
        })
    }

    /// All of it, unpacked.
    pub fn contents(&self) -> Result<Contents, Missing> {
        parts::contents(&self.sections).map_err(|why| Missing {
            what: format!("the snapshot {} is damaged: {why}", self.path.display()),
            help: Some("create it again: `rbt snapshot -o FILE`".into()),
        })
    }
}
