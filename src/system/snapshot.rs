//! A kernel described by a file, so that scripts are checked against it where it does not run.

use std::collections::BTreeMap;

use super::Feature;
use super::functions::Functions;

/// What is known of the kernel as such.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// `uname -r`.
    pub release: String,
    /// `uname -m`.
    pub machine: String,
    /// The build id of its image, in hexadecimal; empty where it is not known.
    pub build_id: String,
    /// What it was made from, for people: `this machine`, `a package's files in DIR`.
    pub source: String,
    /// CPUs that may ever be there; 0 where that is not known.
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
    pub about: About,
    /// Raw BTF by module: `vmlinux` first.
    pub btf: Vec<(String, Vec<u8>)>,
    /// Events, sorted.
    pub events: Option<Vec<Event>>,
    /// Functions that can be traced.
    pub functions: Option<Functions>,
    /// Names of functions in the symbol table that are not among those, sorted: what cannot be traced, but is there.
    pub untraceable: Option<Vec<String>>,
    /// Functions that may be made to return at once, sorted.
    pub error_injectable: Option<Vec<String>>,
    /// What its BPF can do; one that is absent is not known.
    pub features: BTreeMap<Feature, bool>,
    /// Functions that BPF programs may call (kfuncs), and the types of program (`BPF_PROG_TYPE_…`) that may.
    pub callable: Option<BTreeMap<String, Vec<u32>>>,
    /// Its configuration: the text of `/boot/config-…`.
    pub config: Option<String>,
}
