//! The script's maps while their types are gathered from all uses.
//!
//! A pass over all probes reads the types that the pass before found and gathers new ones; when a pass finds what it
//! read, the types are final. So a probe may read what a later one assigns.

use std::collections::BTreeMap;

use super::hir;
use super::types::Merged;
use crate::builtins::MapId;
use crate::diag::{Diagnostic, Span};
use crate::settings::Settings;
use crate::types::Type;

/// What one pass found of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Type of its values.
    pub value: Merged,
    /// Type of its keys.
    pub key: Merged,
    /// First use with a key.
    pub keyed: Option<Span>,
    /// First use as a scalar.
    pub scalar: Option<Span>,
    /// Something is assigned to it, be its type known or not.
    pub set: bool,
    /// First use of any kind.
    pub first: Span,
}

impl Found {
    fn new(first: Span) -> Self {
        Self { value: Merged::default(), key: Merged::default(), keyed: None, scalar: None, set: false, first }
    }
}

/// `let @m = hash(100);`
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its entries.
    pub entries: u32,
    /// `lruhash` and `percpulruhash`.
    pub lru: bool,
    /// Per-CPU kinds: for aggregations only.
    pub percpu: bool,
    /// The declaration.
    pub span: Span,
}

/// All maps, by name without `@`.
#[derive(Debug, Default)]
pub struct Maps {
    known: BTreeMap<String, Found>,
    next: BTreeMap<String, Found>,
    /// From `let @m = …`.
    pub declared: BTreeMap<String, Declared>,
}

impl Maps {
    /// No maps but what is declared.
    pub fn new(declared: BTreeMap<String, Declared>) -> Self {
        Self { declared, ..Self::default() }
    }

    /// Starts a pass. From then on types only grow when `settle` is set, so that passes come to an end.
    pub fn start_pass(&mut self, settle: bool) {
        self.next = if settle { self.known.clone() } else { BTreeMap::new() };
    }

    /// Ends a pass: did it find anything that the one before had not?
    pub fn end_pass(&mut self) -> bool {
        let changed = self.known != self.next;
        self.known = std::mem::take(&mut self.next);
        changed
    }

    /// What this pass has found so far; adds the map.
    pub fn found(&mut self, name: &str, span: Span) -> &mut Found {
        self.next.entry(name.to_string()).or_insert_with(|| Found::new(span))
    }

    /// What is known of a map: by the pass before, else by this one.
    pub fn get(&self, name: &str) -> Option<&Found> {
        self.known.get(name).filter(|f| f.value.ty != Type::Void).or_else(|| self.next.get(name)).or_else(|| self.known.get(name))
    }

    /// Is anything assigned to it?
    pub fn is_set(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(|f| f.set) || self.next.get(name).is_some_and(|f| f.set)
    }

    /// Its index: final once all maps have been seen.
    pub fn id(&self, name: &str) -> MapId {
        self.known.keys().position(|n| n == name).unwrap_or(0)
    }

    /// What the pass before found of the map of this index.
    pub fn by_id(&self, id: MapId) -> Option<&Found> {
        self.known.values().nth(id)
    }

    /// A map's value type; [`Type::Void`] while not known.
    pub fn value(&self, name: &str) -> Merged {
        self.get(name).map(|f| f.value.clone()).unwrap_or_default()
    }

    /// A map's key type.
    pub fn key(&self, name: &str) -> Merged {
        self.get(name).map(|f| f.key.clone()).unwrap_or_default()
    }

    /// Names of maps that are assigned somewhere, with `@`: for suggestions.
    pub fn assigned(&self) -> Vec<String> {
        self.known.iter().filter(|(_, f)| f.value.ty != Type::Void).map(|(n, _)| format!("@{n}")).collect()
    }

    /// The finished table, and what is wrong with declarations.
    pub fn finish(&self, settings: &Settings, diags: &mut Vec<Diagnostic>) -> Vec<hir::Map> {
        for (name, d) in &self.declared {
            if !self.known.contains_key(name) {
                diags.push(Diagnostic::warning("unused-map", d.span, format!("`@{name}` is declared and never used")));
            }
        }
        let undeclared = u32::try_from(settings.max_map_keys).unwrap_or(u32::MAX);
        let mut maps = Vec::new();
        for (name, f) in &self.known {
            if f.value.ty == Type::Void && f.set && !super::failed(diags) {
                let message = format!("`@{name}` is assigned from itself only: it has no type");
                diags.push(Diagnostic::error("undefined-map", f.first, message));
            }
            let declared = self.declared.get(name);
            let aggregate = matches!(f.value.ty, Type::Agg(_));
            if let Some(d) = declared.filter(|d| d.percpu && !aggregate) {
                diags.push(
                    Diagnostic::error("map-kind", d.span, format!("`@{name}` is declared per CPU and holds {}", f.value.ty))
                        .related(f.value.span, "assigned here")
                        .help("per-CPU maps are for aggregations such as count(); use `hash` or `lruhash`"),
                );
            }
            let keyed = f.keyed.is_some();
            let entries = if keyed { declared.map_or(undeclared, |d| d.entries) } else { 1 };
            maps.push(hir::Map {
                name: format!("@{name}"),
                key: keyed.then(|| f.key.ty.clone()),
                value: f.value.ty.clone(),
                max_entries: entries,
                lru: keyed && declared.is_some_and(|d| d.lru),
                span: declared.map_or(f.first, |d| d.span),
            });
        }
        maps
    }
}
