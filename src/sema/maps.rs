//! The script's maps while their types are inferred from all uses.
//!
//! A pass over all probes uses the types that the previous pass found, and infers new ones. When a pass finds the types that it
//! used, they are final. So a probe may read a map that a later probe assigns.

use std::collections::BTreeMap;

use super::hir;
use super::types::{InferredType, WeakSign, record_of};
use crate::builtins::MapId;
use crate::diag::{Diagnostic, Span};
use crate::settings::{Invocation, Settings};
use crate::types::{Int, Type};

/// Maximum number of keys of a hash map: `htab_map_alloc` of kernel/bpf/hashtab.c rounds it up to a power of two, and the buckets,
/// of 16 bytes each, must be less than 4 GiB.
const MAX_KEYS: u64 = 1 << 27;

/// The types of a map as inferred by one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct InferredMap {
    /// Type of its values.
    pub value: InferredType,
    /// Type of its keys.
    pub key: InferredType,
    /// First use with a key.
    pub keyed: Option<Span>,
    /// First use as a scalar.
    pub scalar: Option<Span>,
    /// Something is assigned to it, whether or not its type is known.
    pub set: bool,
    /// First use of any kind.
    pub first: Span,
}

impl InferredMap {
    fn new(first: Span) -> Self {
        Self { value: InferredType::default(), key: InferredType::default(), keyed: None, scalar: None, set: false, first }
    }
}

/// `let @m = hash(100);`
#[derive(Clone, Debug)]
pub struct Declared {
    /// Number of entries.
    pub entries: u64,
    /// `lruhash` and `percpulruhash`.
    pub lru: bool,
    /// Per-CPU kinds: for aggregations only.
    pub percpu: bool,
    /// The declaration.
    pub span: Span,
}

/// The origin of the types of a predefined map, which is not in this script.
pub const EARLIER: Span = Span { source: u16::MAX, expansion: 0, start: 0, end: 0 };

/// The type with strings of at least this many bytes, and with 8-byte integers.
fn widened_type(ty: &Type, capacity: u32) -> Type {
    match ty {
        Type::Str(n) => Type::Str(*n.max(&capacity)),
        Type::Int(i) => Type::Int(Int { bytes: 8, ..*i }),
        Type::Tuple(parts) => Type::Tuple(parts.iter().map(|part| widened_type(part, capacity)).collect()),
        Type::Record(r) if r.name.is_empty() => {
            record_of(r.fields.iter().map(|f| (f.name.clone(), widened_type(&f.ty, capacity))).collect())
        }
        Type::Void
        | Type::Bool
        | Type::Enum(_)
        | Type::Buf(_)
        | Type::Ptr(..)
        | Type::Array(..)
        | Type::Struct(_)
        | Type::Record(_)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => ty.clone(),
    }
}

/// A predefined map keeps its types.
fn disagrees(given: &hir::Map, found: &InferredMap) -> Option<Diagnostic> {
    let (key, value) = (given.key.clone().unwrap_or(Type::Void), &given.value);
    let (what, was, has) = match (*value == found.value.ty, key == found.key.ty) {
        (true, true) => return None,
        (false, _) => ("values of", value, &found.value.ty),
        (true, false) if given.key.is_none() => {
            let message = format!("`{}` is used without a key, but here it has one", given.name);
            return Some(Diagnostic::error("type-conflict", found.first, message).help("use another name"));
        }
        (true, false) => ("keys of", &key, &found.key.ty),
    };
    let message = format!("`{}` has {what} type {was}, but needs {has} here", given.name);
    Some(Diagnostic::error("type-conflict", found.first, message).help("use another name, or remove the map first"))
}

/// All maps, by name without `@`.
#[derive(Debug, Default)]
pub struct Maps {
    known: BTreeMap<String, InferredMap>,
    next: BTreeMap<String, InferredMap>,
    /// From `let @m = …`.
    pub declared: BTreeMap<String, Declared>,
    /// Existing maps with their types, which become part of the script when it uses them.
    existing: BTreeMap<String, hir::Map>,
    /// Minimum size of strings in maps, for values that later scripts store there; integers then have eight bytes.
    min_string_size: u32,
}

/// The capacity of strings in a map that outlives its script.
const STRING_CAPACITY: u32 = 64;

impl Maps {
    /// No maps except for declared and predefined ones.
    pub fn new(declared: BTreeMap<String, Declared>, given: &[hir::Map], invocation: &Invocation) -> Self {
        let given = given.iter().map(|map| (map.name.trim_start_matches('@').to_string(), map.clone())).collect();
        Self { declared, existing: given, min_string_size: if invocation.shares_maps { STRING_CAPACITY } else { 0 }, ..Self::default() }
    }

    /// The initial types of a predefined map.
    fn beforehand(&self, name: &str) -> Option<InferredMap> {
        let map = self.existing.get(name)?;
        let settled = |ty: &Type| InferredType { ty: ty.clone(), weak_sign: WeakSign::No, span: EARLIER };
        Some(InferredMap {
            value: settled(&map.value),
            key: map.key.as_ref().map(settled).unwrap_or_default(),
            keyed: map.key.as_ref().map(|_| EARLIER),
            scalar: map.key.is_none().then_some(EARLIER),
            set: true,
            first: EARLIER,
        })
    }

    /// Starts a pass. If `settle` is set, types only grow from now on, so that the passes terminate.
    pub fn start_pass(&mut self, resolve: bool) {
        self.next = if resolve { self.known.clone() } else { BTreeMap::new() };
    }

    /// Ends a pass. Returns true if it found anything new.
    pub fn end_pass(&mut self) -> bool {
        if self.min_string_size > 0 {
            for (_, found) in self.next.iter_mut().filter(|(name, _)| !self.existing.contains_key(*name)) {
                found.value.ty = widened_type(&found.value.ty, self.min_string_size);
                found.key.ty = widened_type(&found.key.ty, self.min_string_size);
            }
        }
        let changed = self.known != self.next;
        self.known = std::mem::take(&mut self.next);
        changed
    }

    /// The number of maps that the previous pass found.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// The types of values and keys that the previous pass found.
    pub fn inferred(&self) -> impl Iterator<Item = &InferredType> {
        self.known.values().flat_map(|found| [&found.value, &found.key])
    }

    /// The results of this pass so far; adds the map.
    pub fn found(&mut self, name: &str, span: Span) -> &mut InferredMap {
        if !self.next.contains_key(name) {
            let new = self.beforehand(name).map_or_else(|| InferredMap::new(span), |found| InferredMap { first: span, ..found });
            self.next.insert(name.to_string(), new);
        }
        self.next.entry(name.to_string()).or_insert_with(|| InferredMap::new(span))
    }

    /// The type of a map: from the previous pass, or else from this one.
    pub fn get(&self, name: &str) -> Option<&InferredMap> {
        self.known.get(name).filter(|f| f.value.ty != Type::Void).or_else(|| self.next.get(name)).or_else(|| self.known.get(name))
    }

    /// Has a complete pass seen it?
    pub fn was_seen(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    /// Is anything assigned to it?
    pub fn is_set(&self, name: &str) -> bool {
        self.existing.contains_key(name) || self.known.get(name).is_some_and(|f| f.set) || self.next.get(name).is_some_and(|f| f.set)
    }

    /// Has a complete pass seen it without an assignment?
    pub fn is_only_read(&self, name: &str) -> bool {
        self.was_seen(name) && !self.is_set(name)
    }

    /// Its index: final once all maps have been seen.
    pub fn id(&self, name: &str) -> MapId {
        let new = || self.next.keys().position(|n| n == name).map(|i| self.known.len() + i);
        self.known.keys().position(|n| n == name).or_else(new).unwrap_or(0)
    }

    /// The previous pass's results for the map of this index; for a new map, the results of this pass so far.
    pub fn by_id(&self, id: MapId) -> Option<&InferredMap> {
        self.known.values().chain(self.next.values()).nth(id)
    }

    /// A map's value type; [`Type::Void`] while it is unknown.
    pub fn value(&self, name: &str) -> InferredType {
        self.get(name).cloned().or_else(|| self.beforehand(name)).map(|f| f.value).unwrap_or_default()
    }

    /// A map's key type.
    pub fn key(&self, name: &str) -> InferredType {
        self.get(name).cloned().or_else(|| self.beforehand(name)).map(|f| f.key).unwrap_or_default()
    }

    /// Names of maps that are assigned somewhere, with `@`: for suggestions.
    pub fn assigned(&self) -> Vec<String> {
        let here = self.known.iter().filter(|(_, f)| f.value.ty != Type::Void).map(|(n, _)| n);
        here.chain(self.existing.keys()).map(|n| format!("@{n}")).collect()
    }

    /// Returns the finished table, and reports errors of declarations. `mentions`: does the script use this map anywhere, even in
    /// code that `comptime` leaves out?
    pub fn finish(&self, settings: &Settings, mentions: impl Fn(&str) -> bool, diags: &mut Vec<Diagnostic>) -> Vec<hir::Map> {
        for (name, d) in &self.declared {
            if !self.known.contains_key(name) && !mentions(name) {
                diags.push(Diagnostic::warning("unused-map", d.span, format!("`@{name}` is declared but never used")));
            }
        }
        let mut maps = Vec::new();
        for (name, f) in &self.known {
            if f.value.ty == Type::Void && f.set && !super::failed(diags) {
                let message = format!("`@{name}` is assigned from itself only: it has no type");
                diags.push(Diagnostic::error("undefined-map", f.first, message));
            }
            if let Some(given) = self.existing.get(name) {
                diags.extend(disagrees(given, f));
                maps.push(hir::Map { span: f.first, ..given.clone() });
                continue;
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
            let entries = if keyed { declared.map_or(settings.max_map_keys, |d| d.entries) } else { 1 };
            let span = declared.map_or(f.first, |d| d.span);
            if entries > MAX_KEYS {
                diags.push(too_large(name, entries, declared.is_some(), span));
            }
            maps.push(hir::Map {
                name: format!("@{name}"),
                key: keyed.then(|| f.key.ty.clone()),
                value: f.value.ty.clone(),
                max_entries: entries.min(MAX_KEYS) as u32,
                sized: keyed && declared.is_some(),
                lru: keyed && declared.is_some_and(|d| d.lru),
                span,
            });
        }
        maps
    }
}

fn too_large(name: &str, entries: u64, declared: bool, span: Span) -> Diagnostic {
    let message = format!("`@{name}` has room for {entries} keys, but the kernel's limit is {MAX_KEYS}");
    let remedy = if declared { "declare fewer keys" } else { "lower max_map_keys, or declare the size of the map: `let @map = hash(N)`" };
    Diagnostic::error("too-large", span, message).help(remedy)
}
