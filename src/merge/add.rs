//! Adds states up.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::hosts::{Machines, MissingHosts};
use crate::builtins;
use crate::expect::ScriptMap;
use crate::output::FinalResults;
use crate::render::TextFormatter;
use crate::state::{Entry, Map, Printed, RunId, State};
use crate::types::{Int, Type};
use crate::value::{Counts, MapView, MapViewKind, ShowOptions, Value, add_weights};

/// Maximum size in bytes of the displayed values of a map.
const MAX_MAP_BYTES: u64 = 4 << 30;
/// Room for the name of a host in a key.
const HOST: u32 = 65;

/// Why a document is rejected.
#[derive(Debug)]
pub enum MergeError {
    /// It is omitted, but the others are added up.
    Document(String),
    /// It is omitted, because the sum contains it already.
    Duplicate(String),
    /// It belongs to another script, so there is no sum.
    Script(String),
}

/// Why a map has no sum, and the remedy if there is one.
#[derive(Clone, Debug)]
pub struct NotSummable {
    /// The message.
    pub what: String,
    /// The remedy.
    pub help: Option<&'static str>,
}

impl From<String> for NotSummable {
    fn from(what: String) -> Self {
        Self { what, help: None }
    }
}

/// A sum.
#[derive(Default)]
pub struct Sum {
    /// The host and other facts, of the first document and later of all.
    header: Option<State>,
    /// The place of the first document.
    first: String,
    maps: Vec<Total>,
    /// The runs in the sum, and their places.
    runs: BTreeMap<RunId, String>,
    hosts: BTreeSet<String>,
    machines: Machines,
    /// Maps that sums in it lack, and the place of such a sum.
    not_merged: BTreeMap<String, String>,
    /// Keys start with the name of the host.
    by_host: bool,
}

struct Total {
    /// The map without entries.
    map: Map,
    /// The entries, by the text of the key, and its number among equal ones of a run.
    entries: BTreeMap<String, Entry>,
    /// The host of each plain value.
    origins: BTreeMap<String, String>,
    /// Why it has no sum.
    refused: Option<NotSummable>,
    /// Hosts on which it was cleared before the end.
    emptied: BTreeSet<String>,
    /// Runs have the same number, which the script assigns.
    is_common: bool,
}

impl Sum {
    /// Creates an empty sum.
    pub fn new(by_host: bool) -> Self {
        Self { by_host, ..Self::default() }
    }

    /// Adds a document from this place.
    ///
    /// # Errors
    /// See [`MergeError`]; nothing of the document is added.
    pub fn add(&mut self, mut state: State, place: &str) -> Result<(), MergeError> {
        for map in &mut state.maps {
            validate(map).map_err(|why| MergeError::Document(format!("{place}: the state is damaged: {}: {why}", map.name)))?;
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = state.maps.iter().find(|map| !names.insert(&map.name)) {
            return Err(MergeError::Document(format!("{place}: the state is damaged: it has {} twice", twice.name)));
        }
        if self.by_host && !state.by_host {
            if state.host.contains(',') {
                let what = format!("{place}: it is the sum of the hosts {}, which cannot be kept apart", state.host.replace(',', ", "));
                return Err(MergeError::Document(what));
            }
            state.maps.iter_mut().for_each(|map| keep_host(map, &state.host));
            state.by_host = true;
        }
        self.fits(&state, place)?;
        let runs = state.runs();
        if let Some((run, other)) = runs.iter().find_map(|run| Some((run, self.runs.get(run)?))) {
            return Err(match runs.len() {
                1 => MergeError::Duplicate(format!("{place}: this run on {} is in {other} already, and counts once", run.host)),
                _ => MergeError::Document(format!(
                    "{place}: it is a sum with the run on {} that is in {other} already, and cannot be added",
                    run.host
                )),
            });
        }
        self.machines.add(&runs);
        self.runs.extend(runs.into_iter().map(|run| (run, place.to_string())));
        self.hosts.extend(state.host.split(',').map(String::from));
        let lacks = std::mem::take(&mut state.not_merged);
        self.not_merged.extend(lacks.into_iter().map(|map| (map, place.to_string())));
        for map in std::mem::take(&mut state.maps) {
            match self.maps.iter_mut().find(|total| total.map.name == map.name) {
                Some(total) => {
                    if let Some((key, value)) = total.map.widened(&map) {
                        (total.map.key, total.map.value) = (key, value);
                    }
                    total.add(map, &state.host);
                }
                None => {
                    let blank = Map {
                        entries: Vec::new(),
                        emptied: 0,
                        cleared: false,
                        shown_in_part: false,
                        set: false,
                        weights: None,
                        ..map.clone()
                    };
                    let mut total = Total {
                        map: blank,
                        entries: BTreeMap::new(),
                        origins: BTreeMap::new(),
                        refused: None,
                        emptied: BTreeSet::new(),
                        is_common: false,
                    };
                    total.add(map, &state.host);
                    self.maps.push(total);
                }
            }
        }
        for total in self.maps.iter_mut().filter(|total| total.refused.is_none()) {
            let Some(place) = self.not_merged.get(&total.map.name) else { continue };
            total.refused = Some(format!("cannot merge {}: {place} is a sum that lacks it", total.map.name).into());
        }
        for counts in &mut state.probes {
            counts.probe = name_with_host(&counts.probe, &state.host);
        }
        state.not_attached = state.not_attached.iter().map(|probe| name_with_host(probe, &state.host)).collect();
        match &mut self.header {
            None => {
                self.first = place.to_string();
                self.header = Some(state);
            }
            Some(head) => extend(head, state),
        }
        Ok(())
    }

    /// Does it belong to the same script, and do its maps have the same types?
    fn fits(&self, state: &State, place: &str) -> Result<(), MergeError> {
        let Some(head) = &self.header else { return Ok(()) };
        if head.script.sha256 != state.script.sha256 {
            let digest = |state: &State| state.script.sha256.chars().take(12).collect::<String>();
            return Err(MergeError::Script(format!(
                "{place} is of another script than {}: {} ({}) and {} ({})",
                self.first,
                state.script.name,
                digest(state),
                head.script.name,
                digest(head)
            )));
        }
        if head.by_host != state.by_host {
            let by_host = |is: bool| if is { "has the hosts in its keys" } else { "does not" };
            let what = format!("{place} {}, but {} {}", by_host(state.by_host), self.first, by_host(head.by_host));
            return Err(MergeError::Script(what));
        }
        for map in &state.maps {
            let total = self.maps.iter().find(|total| total.map.name == map.name);
            if let Some(total) = total.filter(|total| total.map.widened(map).is_none()) {
                return Err(MergeError::Script(format!(
                    "{} has another type in {place} than in {}: {} and {}",
                    map.name,
                    self.first,
                    map.types(),
                    total.map.types()
                )));
            }
        }
        Ok(())
    }

    /// Adds a name by which the user knows the host of the last document.
    pub fn add_label(&mut self, label: String) {
        self.machines.add_name(label);
    }

    /// Those of these hosts that are not in the sum, neither by their own name nor by another one.
    pub fn missing(&self, hosts: &[String]) -> Vec<MissingHosts> {
        self.machines.missing(hosts)
    }

    /// The hosts in the sum.
    pub fn hosts(&self) -> &BTreeSet<String> {
        &self.hosts
    }

    /// The maps, for expectations.
    pub fn maps(&self) -> Vec<ScriptMap> {
        let map = |total: &Total| ScriptMap { name: total.map.name.clone(), key: total.map.key.clone(), value: total.map.value.clone() };
        self.maps.iter().map(map).collect()
    }

    /// The counters of each probe, on each machine.
    pub fn counts(&self) -> Vec<Counts> {
        self.header.as_ref().map(|head| head.probes.clone()).unwrap_or_default()
    }

    /// The results in the form of one run, with the missing data: the hosts, and the number of inputs that were omitted.
    pub fn last(&self, missing: &[MissingHosts], omitted: usize) -> FinalResults {
        let complete = self.maps.iter().filter(|total| total.refused.is_none());
        let unbounded = complete.clone().filter(|total| total.map.unbounded).map(|total| total.map.name.clone()).collect();
        let (maps, emptied) = complete.filter_map(|total| Some((total.view(ShowOptions::default()).ok()?, total.map.emptied))).unzip();
        let mut not_attached = self.header.as_ref().map(|head| head.not_attached.clone()).unwrap_or_default();
        not_attached.extend(missing.iter().map(|hosts| format!("any probe on {}", hosts.names.join(" or "))));
        FinalResults { maps, emptied, unbounded, counts: self.counts(), not_attached, omitted }
    }

    /// The maps that a run prints at its end, in its order; with `top`, only the greatest entries of each.
    pub fn shown(&self, top: Option<u64>) -> Vec<Result<MapView, NotSummable>> {
        let Some(head) = &self.header else { return Vec::new() };
        let total = |name: &str| self.maps.iter().find(|total| total.map.name == name);
        let printed = head.printed.iter().filter_map(|printed| Some((total(&printed.map)?, printed.show.clone())));
        let rest = self.maps.iter().filter(|total| head.prints_maps && !total.map.cleared).map(|total| (total, ShowOptions::default()));
        let view = |(total, show): (&Total, ShowOptions)| {
            let view = total.view(ShowOptions { top: top.or(show.top), ..show })?;
            Ok((total.map.set && !view.entries.is_empty()).then_some(view))
        };
        printed.chain(rest).map(view).filter_map(Result::transpose).collect()
    }

    /// Warnings about the maps that are shown, with their codes.
    pub fn warnings(&self) -> Vec<(&'static str, String)> {
        let mut warnings = Vec::new();
        for Total { map, emptied, is_common, refused, .. } in &self.maps {
            if !emptied.is_empty() {
                let on = emptied.iter().cloned().collect::<Vec<_>>().join(", ");
                let what = format!("the script emptied {} before the end on {on}: the sum covers only later values", map.name);
                warnings.push(("map-emptied", what));
            }
            if map.shown_in_part {
                let name = &map.name;
                let what = format!("end empties {name}, of which the run shows only a part: only -f state and --expect have its sum");
                warnings.push(("map-not-shown", what));
            }
            if *is_common && refused.is_none() {
                let what = format!("{} is not a sum: the script assigns it, and runs have the same values", map.name);
                warnings.push(("not-added", what));
            }
        }
        warnings
    }

    /// The sum as a state, and why some maps are not in it.
    pub fn state(mut self) -> (Option<Box<State>>, Vec<NotSummable>) {
        let Some(mut state) = self.header else { return (None, Vec::new()) };
        state.host = self.hosts.into_iter().collect::<Vec<_>>().join(",");
        state.runs = if self.runs.len() > 1 { self.runs.into_keys().collect() } else { Vec::new() };
        let mut refused = Vec::new();
        for total in self.maps {
            match total.refused {
                Some(why) => {
                    self.not_merged.entry(total.map.name).or_default();
                    refused.push(why);
                }
                None => state.maps.push(Map { entries: total.entries.into_values().collect(), ..total.map }),
            }
        }
        state.maps.sort_by(|a, b| a.name.cmp(&b.name));
        state.not_merged = self.not_merged.into_keys().collect();
        (Some(Box::new(state)), refused)
    }
}

/// The name of a probe with its host. In a sum of several hosts, or of earlier sums, each probe has one already.
fn name_with_host(probe: &str, host: &str) -> String {
    let known = host.split(',').any(|host| probe.strip_suffix(host).is_some_and(|rest| rest.ends_with(" on ")));
    if known { probe.to_owned() } else { format!("{probe} on {host}") }
}

/// Adds everything except for maps.
fn extend(head: &mut State, other: State) {
    head.start_ns = head.start_ns.min(other.start_ns);
    head.end_ns = head.end_ns.max(other.end_ns);
    let same = |a: &mut String, b: String| {
        if !a.split(',').any(|part| part == b) {
            *a = format!("{a},{b}");
        }
    };
    same(&mut head.kernel, other.kernel);
    same(&mut head.machine, other.machine);
    head.probes.extend(other.probes);
    head.not_attached.extend(other.not_attached);
    // a run that ended early may have printed less
    let known = |printed: &Printed, all: &[Printed]| all.contains(printed);
    for printed in other.printed {
        if !known(&printed, &head.printed) {
            head.printed.push(printed);
        }
    }
    head.prints_maps |= other.prints_maps;
}

impl Total {
    fn add(&mut self, map: Map, host: &str) {
        if map.adds != self.map.adds {
            let what = format!("cannot merge {}: not all versions of rbt tell that the script only adds to it", map.name);
            self.refused = Some(what.into());
        }
        self.map.cleared |= map.cleared;
        self.map.shown_in_part |= map.shown_in_part;
        self.map.set |= map.set;
        self.map.unbounded |= map.unbounded;
        self.map.weights = add_weights(self.map.weights, map.weights);
        self.map.emptied = self.map.emptied.saturating_add(map.emptied);
        if map.emptied > 0 {
            self.emptied.insert(host.to_string());
        }
        let unset = !map.set && self.map.value.aggregation().is_none();
        let adds_up = self.map.adds || self.map.value.aggregation().is_some();
        let mut alike: BTreeMap<String, u32> = BTreeMap::new();
        for entry in map.entries {
            if self.refused.is_some() || unset {
                return;
            }
            let mut id = serde_json::to_string(&entry.key).unwrap_or_default();
            // keys of one run with the same text, such as two times within a minute, are different elements
            if !adds_up {
                let n = alike.entry(id.clone()).and_modify(|n| *n += 1).or_default();
                if *n > 0 {
                    id.push_str(&format!(" {n}"));
                }
            }
            self.refused = self.add_entry(id, entry, host).err();
        }
    }

    fn add_entry(&mut self, id: String, entry: Entry, host: &str) -> Result<(), NotSummable> {
        let Some(known) = self.entries.get_mut(&id) else {
            self.origins.insert(id.clone(), host.to_string());
            self.entries.insert(id, entry);
            return Ok(());
        };
        let element = element(&self.map, &known.key);
        if let (Some(agg), Some(a), Some(b)) = (self.map.value.aggregation(), &known.counted, &entry.counted) {
            let sum = builtins::add(agg, a, b).map_err(|why| format!("cannot merge {element}: {why}"))?;
            known.counted = Some(sum);
        } else if let (true, Some(a), Some(b)) = (self.map.adds, &known.value, &entry.value) {
            let sum = add_numbers(&self.map.value, a, b).map_err(|why| format!("cannot merge {element}: {why}"))?;
            known.value = Some(sum);
        } else if known.value != entry.value {
            let shown = |value: &Option<Value>| value.as_ref().map(text).unwrap_or_default();
            let (a, b) = (shown(&known.value), shown(&entry.value));
            let other = self.origins.get(&id).map(String::as_str).unwrap_or_default();
            let what = format!("cannot merge {element}, which the script assigns: it is {a} on {other} and {b} on {host}");
            let help = "count in the script, with count() or sum(), or keep the hosts apart with --by host";
            return Err(NotSummable { what, help: Some(help) });
        } else if known.value.as_ref().is_some_and(|value| value.number().is_some()) {
            self.is_common = true;
        }
        Ok(())
    }

    fn view(&self, show: ShowOptions) -> Result<MapView, NotSummable> {
        if let Some(why) = &self.refused {
            return Err(why.clone());
        }
        let Map { name, key, value, set, weights, .. } = &self.map;
        let size = value.aggregation().map_or(0, |agg| u64::from(agg.size)).saturating_mul(self.entries.len() as u64);
        if size > MAX_MAP_BYTES {
            return Err(format!("{name} needs {} GiB, which is more than the limit of {}", size >> 30, MAX_MAP_BYTES >> 30).into());
        }
        let row = value.aggregation().and_then(|agg| Some((agg, builtins::aggregate(&agg.function)?.1)));
        let shown = |entry: &Entry| {
            let value = match (row, &entry.counted) {
                (Some((agg, row)), Some(counted)) => builtins::slot(agg, row, counted).map(|slot| (row.merge)(agg, &[&slot]))?,
                (_, _) => entry.value.clone().unwrap_or(Value::None),
            };
            Ok::<_, String>((entry.key.clone(), value))
        };
        let entries = self.entries.values().map(shown).collect::<Result<Vec<_>, _>>()?;
        let (kind, measures) = row.map_or((MapViewKind::Map, false), |(_, row)| (row.kind, row.measures));
        Ok(MapView { name: name.clone(), kind, measures, keyed: key.is_some(), set: *set, entries, show, weights: *weights })
    }
}

/// Checks that a map agrees with its types.
fn validate(map: &mut Map) -> Result<(), String> {
    if map.key.is_none() && map.entries.len() > 1 {
        return Err("it has no keys, but several elements".into());
    }
    if map.adds && !matches!(map.value, Type::Int(_)) {
        return Err("only integers add up".into());
    }
    let mut keys = HashSet::new();
    let exact = map.entries.iter().map(|entry| &entry.key).filter(|key| is_exact(key));
    if let Some(twice) = exact.into_iter().find(|key| !keys.insert(serde_json::to_string(key).unwrap_or_default())) {
        return Err(format!("it has the key {} twice", text(twice)));
    }
    let Type::Agg(agg) = &map.value else {
        let plain = |entry: &Entry| entry.counted.is_none() && entry.value.is_some();
        return if map.entries.iter().all(plain) { Ok(()) } else { Err("an element has no value".into()) };
    };
    let (_, row) = builtins::aggregate(&agg.function).ok_or_else(|| format!("there is no aggregation `{}`", agg.function))?;
    if (row.state_codec.size)(agg.signed, &agg.params) != Some(agg.size) {
        return Err(format!("{}() has no such parameters", agg.function));
    }
    for entry in &mut map.entries {
        let Some(counted) = entry.counted.as_ref().filter(|_| entry.value.is_none()) else {
            return Err("an element has no value".into());
        };
        let slot = builtins::slot(agg, row, counted)?;
        // drops fields that the function does not use
        let counted = (row.state_codec.save)(agg, &[&slot]);
        if counted.count == Some(0) && counted.sum.is_some_and(|sum| sum != 0) {
            return Err("an element has a sum of no values".into());
        }
        entry.counted = Some(counted);
    }
    Ok(())
}

/// Does the key stand for one key of the kernel's map? The names of several addresses, for example in stacks, can be the same.
fn is_exact(key: &Value) -> bool {
    match key {
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Ptr(_) | Value::Enum { .. } | Value::Str { .. } | Value::Bytes(_) => true,
        Value::Tuple(parts) => parts.iter().all(is_exact),
        Value::None
        | Value::Float { .. }
        | Value::List(_)
        | Value::Record(_)
        | Value::Text(_)
        | Value::Stack(_)
        | Value::Hist(_)
        | Value::Stats(_)
        | Value::Avg(_)
        | Value::Percentiles(_)
        | Value::Series(_)
        | Value::HeatMap(_) => false,
    }
}

/// The sum of two values that a script counts with `++`.
fn add_numbers(ty: &Type, a: &Value, b: &Value) -> Result<Value, String> {
    let Type::Int(Int { bytes, signed }) = ty else { return Err("only integers add up".into()) };
    let (Some(a), Some(b)) = (a.number(), b.number()) else { return Err("a value is not an integer".into()) };
    let bits = 8 * u32::from(*bytes);
    let too_large = || format!("the sum does not fit into {bits} bits");
    let sum = a.checked_add(b).ok_or_else(too_large)?;
    let (min, max) = if *signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    if !(min..=max).contains(&sum) {
        return Err(too_large());
    }
    Ok(if *signed { Value::Int(sum as i64) } else { Value::Uint(sum as u64) })
}

/// Inserts the host as the first part of the keys.
fn keep_host(map: &mut Map, host: &str) {
    let first = Value::Str { bytes: host.as_bytes().to_vec(), cut: false };
    for entry in &mut map.entries {
        let key = std::mem::replace(&mut entry.key, Value::None);
        entry.key = if map.key.is_none() {
            first.clone()
        } else if let Value::Tuple(parts) = key {
            Value::Tuple([first.clone()].into_iter().chain(parts).collect())
        } else {
            Value::Tuple(vec![first.clone(), key])
        };
    }
    if map.key.is_none() && !map.set && map.value.aggregation().is_none() {
        map.entries.clear();
    }
    map.key = Some(match map.key.take() {
        None => Type::Str(HOST),
        Some(Type::Tuple(parts)) => Type::Tuple([Type::Str(HOST)].into_iter().chain(parts).collect()),
        Some(other) => Type::Tuple(vec![Type::Str(HOST), other]),
    });
}

fn element(map: &Map, key: &Value) -> String {
    if map.key.is_some() { format!("{}[{}]", map.name, text(key)) } else { map.name.clone() }
}

fn text(value: &Value) -> String {
    TextFormatter::default().format(value)
}

#[cfg(test)]
mod tests {
    use super::name_with_host;

    #[test]
    fn adds_the_host_once() {
        assert_eq!(name_with_host("p", "a"), "p on a");
        assert_eq!(name_with_host("p on a", "a,b"), "p on a");
        assert_eq!(name_with_host("uprobe:/x on y:f", "a"), "uprobe:/x on y:f on a");
    }
}
