//! Reduces a snapshot to the parts that some scripts need, with the same answers.
//!
//! Names that are similar to a missing one are not kept, so suggestions may differ.

use std::collections::{BTreeMap, BTreeSet};

use super::{Contents, Event, Snapshot};
use crate::system::kernel::functions::Functions;
use crate::system::kernel_types::btf::Kind;
use crate::system::{Feature, Missing, TargetInfo};

/// The queries so far, except for types and lists of functions, which record their own.
#[derive(Default)]
pub(super) struct Queries {
    /// Events by category and name, and whether their records were read.
    pub events: BTreeMap<(String, String), bool>,
    pub all_events: bool,
    pub all_raw_tracepoints: bool,
    /// The names of types were listed.
    pub type_names: bool,
    /// The names of described functions were listed.
    pub described: bool,
    pub modules: BTreeSet<String>,
    /// Configuration options.
    pub options: BTreeSet<String>,
    /// Digests of the scripts.
    pub scripts: BTreeSet<u64>,
}

/// The enums of BPF: types of programs, maps and links, and helpers.
const BPF: &[&str] = &["bpf_attach_type", "bpf_func_id", "bpf_link_type", "bpf_map_type", "bpf_prog_type"];

impl Snapshot {
    /// Records queries from now on.
    pub fn noting(self) -> Self {
        Self { queries: Some(Default::default()), ..self }
    }

    /// Records a script by its digest.
    pub fn note_script(&self, digest: u64) {
        self.record_query(|a| {
            a.scripts.insert(digest);
        });
    }

    /// Returns what the recorded queries need. `script` becomes part of the description: `2 scripts need`.
    pub fn used(&self, script: &str) -> Result<Contents, Missing> {
        let Some(asked) = &self.queries else { return self.contents() };
        let asked = asked.take();
        let contents = self.contents()?;
        let functions = contents.functions.as_ref().and_then(|_| self.functions().ok()).map(Functions::used);
        let names = |list: Option<&Functions>| -> Vec<String> {
            list.map(|l| l.used().all().map(|f| f.name.to_owned()).collect()).unwrap_or_default()
        };
        if let Ok(types) = self.types() {
            // These show what the kernel can load.
            types.note_all(Kind::Enum.bit(), &|name| BPF.contains(&name));
            if asked.all_raw_tracepoints {
                types.note_all(Kind::Typedef.bit(), &|name| name.starts_with("btf_trace_"));
            }
            if asked.described {
                let all = functions.clone().unwrap_or_default();
                types.note_all(Kind::Func.bit(), &|name| all.named(name).next().is_some());
            }
            // The names of types are only listed for iterators.
            if asked.type_names {
                types.note_all(Kind::Struct.bit(), &|name| name.starts_with("bpf_iter__"));
            }
        }
        let untraceable = contents.untraceable.is_some().then(|| names(self.untraceable()));
        let events = contents.events.map(|all| all.into_iter().filter_map(|e| event(e, &asked)).collect());
        let is_asked = |line: &&str| {
            let option = line.trim_start_matches("# ").split(['=', ' ']).next().unwrap_or_default();
            asked.options.contains(option)
        };
        let config = contents.config.map(|text| text.lines().filter(is_asked).flat_map(|l| [l, "\n"]).collect());
        let modules = asked.modules.iter().filter(|m| self.knows_module(m)).cloned().collect();
        let btf = self.types().map_or(Ok(Vec::new()), |types| types.used()).map_err(|e| self.damaged(&e))?;
        // Last, because these queries use other data, whose answers are kept instead of that data.
        let features = Feature::ALL.into_iter().map(|f| (f, self.has(f))).collect();
        let mut about = contents.about;
        about.source = format!("{}; only what {script}", about.source);
        Ok(Contents {
            about,
            btf,
            events,
            functions,
            untraceable,
            variables: contents.variables.is_some().then(|| names(self.variables.get().and_then(Option::as_ref))),
            modules: Some(modules),
            error_injectable: contents.error_injectable.is_some().then(|| names(self.injectable.get().and_then(Option::as_ref))),
            features,
            callable: contents.callable,
            config,
            // If the snapshot was already reduced, keep only the scripts for which it was made.
            scripts: Some(match contents.scripts {
                Some(before) => before.intersection(&asked.scripts).copied().collect(),
                None => asked.scripts,
            }),
            missing: contents.missing,
        })
    }
}

/// Drops the record of an event if only its name was used.
fn event(event: Event, queries: &Queries) -> Option<Event> {
    let key = (event.category.clone(), event.name.clone());
    match queries.events.get(&key) {
        Some(true) => Some(event),
        Some(false) => Some(Event { format: String::new(), ..event }),
        None => queries.all_events.then(|| Event { format: String::new(), ..event }),
    }
}
