//! Which runs of probes a limit may drop (`--max-overhead`, `--max-events`).
//!
//! A probe on the returns of calls follows a probe on their entries: both run for a call, or neither does. They may pass values to
//! each other by maps in which each call has its own element (`passing.rs`). Otherwise, probes
//! that share a map without aggregation depend on each other in unknown ways, such as the start of a request that another
//! thread completes. Dropping some of their runs would make the results of the others wrong, so these probes always run, or
//! are detached together, and a limit of events applies to the records that they send. An aggregation that a probe reads or
//! from which it removes elements is like a map without one. This includes a probe that reads what its earlier runs have written,
//! probes whose counts `ratelimit` bounds, probes that end the run, act on programs or call imported functions, probes that begin and end
//! spans of the timeline, and at the prompt, where other entries may use the same maps, all that use a map without aggregation. All other probes
//! are independent, even at the same place.
//!
//! A probe that only deletes elements always runs. If it is detached, so are those that store them.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant

use std::collections::{BTreeMap, BTreeSet};

use super::adding::added;
use super::artifact::Sampling;
use super::bounds::{acts, calls_foreign, ends_run};
use super::{Gen, ScriptCx, latency_pairs, nesting, passing, rate_limits, value_flow};
use crate::builtins::{self, Codegen, MapId};
use crate::emit::{Builder, Call, Cmp, IntValue};
use crate::probes::{Attach, Env, ProbeSite, syscall};
use crate::sema::hir::{self, Expr, ExprKind, StmtKind};
use crate::settings::{Mechanism, Settings};
use crate::system::Feature;
use crate::system::kernel::noreturn;
use crate::types::{Int, Type};

const U64: Int = Int { bytes: 8, signed: false };
/// From this bit on, the addresses of all stacks of a thread are the same.
const UNUSED_ADDRESS_BITS: u64 = 48;

/// By probe; empty unless something limits the run, or computes the effect of a limit.
pub(super) fn sampling(script: &hir::Script, env: &Env) -> Vec<Sampling> {
    let Env { settings, invocation, .. } = env;
    if settings.max_events == 0 && settings.max_overhead.is_none() && !invocation.is_measured {
        return Vec::new();
    }
    let probes = &script.probes;
    let calls: Vec<_> = probes.iter().map(Calls::of).collect();
    let calls = |i: usize| calls.get(i).and_then(Option::as_ref);
    let costs = |i: usize| probes.get(i).is_some_and(costs);
    let limited = |i: usize| probes.get(i).is_some_and(is_limited);
    // what a run does concerns later ones in unknown ways
    let outlasts = |i: usize| probes.get(i).is_some_and(|probe| ends_run(probe) || calls_foreign(probe) || acts(probe));
    let ordered = ordered_aggregations(script);
    let maps: Vec<PlainMaps> = probes.iter().map(|p| PlainMaps::of(p, script, &ordered)).collect();
    // what a probe that only deletes elements does depends on others only if it reads something else
    let is_used =
        |i: usize, map: &MapId| limited(i) || maps.get(i).is_some_and(|m| m.read.contains(map) && !m.only_deletes_from(*map, &ordered));
    let shared = |i: usize, j: usize| {
        let all = maps.get(i).zip(maps.get(j)).into_iter().flat_map(|(a, b)| a.shared(b));
        all.filter(|map| is_used(i, map) && is_used(j, map)).collect::<Vec<MapId>>().into_iter()
    };
    let mut group: Vec<usize> = (0..probes.len()).collect();
    for i in 0..probes.len() {
        for j in 0..i {
            if costs(i) && costs(j) && shared(i, j).next().is_some() {
                let (from, to) = (group.get(i).copied(), group.get(j).copied());
                group.iter_mut().filter(|g| Some(**g) == from).for_each(|g| *g = to.unwrap_or(*g));
            }
        }
    }
    let members = |i: usize| -> Vec<usize> { (0..probes.len()).filter(|k| group.get(*k) == group.get(i)).collect() };
    // the entries of a group that consists of entries and their returns
    let entries_of_group = |i: usize| -> Option<Vec<usize>> {
        let members = members(i);
        let (returns, entries): (Vec<usize>, Vec<usize>) = members.iter().partition(|k| calls(**k).is_some_and(|calls| calls.returns));
        let of_entries: Vec<&Calls> = entries.iter().map(|k| calls(*k)).collect::<Option<_>>()?;
        let resets = |k: usize| {
            let reset = probes.get(k).map(reset_maps).unwrap_or_default();
            members.iter().filter(|other| **other != k).all(|other| shared(k, *other).all(|map| reset.contains(&map)))
        };
        let is_apart = entries.len() == 1 || are_disjoint(&of_entries) && returns.iter().all(|k| resets(*k));
        let follow = returns.iter().all(|k| calls(*k).is_some_and(|ret| ret.follow(&of_entries)));
        let written =
            |of: &[usize]| -> BTreeSet<MapId> { of.iter().filter_map(|k| maps.get(*k)).flat_map(|m| m.written.clone()).collect() };
        let (by_all, by_entries, by_returns) = (written(&members), written(&entries), written(&returns));
        let of = |indices: &[usize]| indices.iter().filter_map(|k| probes.get(*k)).collect::<Vec<_>>();
        let is_table = |map| !is_aggregation(map, script) && by_entries.contains(&map) && !by_returns.contains(&map);
        let read: BTreeSet<MapId> = members.iter().filter_map(|k| maps.get(*k)).flat_map(|m| m.read.clone()).collect();
        let counts = |map: &MapId| nesting::counts_calls(*map, &of(&entries), &of(&returns), &is_table);
        let counters: BTreeSet<MapId> = read.into_iter().filter(counts).collect();
        let is_of_call = |map: &MapId| passing::is_of_call(*map, &of(&entries), &of(&returns), &counters);
        // a value of an earlier call, or of another thread's, which may have been dropped
        let is_old = |k: &usize, map: &MapId| match returns.contains(k) {
            true => by_returns.contains(map) && !by_entries.contains(map) || by_entries.contains(map) && !is_of_call(map),
            false => by_all.contains(map),
        };
        // the value of an aggregation is that of all earlier calls
        let depends = |k: &usize, map: &MapId| ordered.contains(map) || is_old(k, map) && !counters.contains(map);
        let remembers = members.iter().any(|k| maps.get(*k).is_some_and(|m| m.read.iter().any(|map| depends(k, map))));
        let outlast = members.iter().any(|k| outlasts(*k));
        (!remembers && !outlast && !entries.is_empty() && (members.len() == 1 || !returns.is_empty() && is_apart && follow))
            .then_some(entries)
    };
    let is_alone = |i: usize| members(i).len() == 1;
    // its runs depend on no other runs
    let is_independent = |i: usize| {
        let of_entry = invocation.shares_maps && maps.get(i).is_some_and(|m| !m.other.is_empty());
        is_alone(i) && !of_entry && !outlasts(i) && maps.get(i).is_some_and(|m| !m.depends_on_itself(&ordered))
    };
    // a return without common maps follows the first entry of the same calls
    let followed = |i: usize| -> Option<usize> {
        let calls_of_it = calls(i).filter(|calls| calls.returns && limited(i))?;
        if !is_alone(i) {
            return entries_of_group(i)?.first().copied();
        }
        if !is_independent(i) {
            return None;
        }
        let mut entries = (0..probes.len()).filter(|entry| limited(*entry) && calls(*entry).is_some_and(|of| calls_of_it.follow(&[of])));
        entries.find_map(|entry| entries_of_group(entry)?.first().copied())
    };
    let followed: Vec<Option<usize>> = (0..probes.len()).map(followed).collect();
    let of = |i: usize| {
        if !limited(i) {
            // what only deletes is no event, but it costs something
            return if costs(i) { Sampling::Coupled { group: group.get(i).copied().unwrap_or(i) } } else { Sampling::Exempt };
        }
        if let Some(group) = followed.get(i).copied().flatten() {
            return Sampling::Return { group };
        }
        match entries_of_group(i).and_then(|entries| entries.first().copied()) {
            Some(group) if followed.contains(&Some(group)) => Sampling::Entry { group },
            _ if is_independent(i) => Sampling::Alone,
            _ => Sampling::Coupled { group: group.get(i).copied().unwrap_or(i) },
        }
    };
    (0..probes.len()).map(of).collect()
}

/// Is the site on the returns of calls, which ones, and may these return twice?
fn call_of(site: &ProbeSite) -> Option<(bool, String, bool)> {
    match syscall::syscall_of_probe(site) {
        Some(call) => Some((!call.enter, format!("syscall {}", call.name), noreturn::returns_twice(call.name))),
        None => {
            let function = site.name.rsplit(':').next().unwrap_or_default();
            site.attach.traced_call().map(|(ret, name)| (ret, name, noreturn::returns_twice(function)))
        }
    }
}

fn gate_of(group: usize) -> u32 {
    group as u32
}

/// The calls whose entries or returns are the sites of a probe.
struct Calls {
    returns: bool,
    names: BTreeSet<String>,
    return_twice: bool,
}

impl Calls {
    fn of(probe: &hir::Probe) -> Option<Self> {
        let all: Option<Vec<(bool, String, bool)>> = probe.sites.iter().map(call_of).collect();
        let all = all?;
        let (returns, ..) = *all.first()?;
        all.iter().all(|(ret, ..)| *ret == returns).then(|| Self {
            returns,
            return_twice: all.iter().any(|(.., twice)| *twice),
            names: all.into_iter().map(|(_, name, _)| name).collect(),
        })
    }

    /// Are these returns, each of a call whose entry one of these probes has?
    fn follow(&self, entries: &[&Self]) -> bool {
        let is_entered = |name| entries.iter().any(|entry| !entry.returns && entry.names.contains(name));
        self.returns && !self.return_twice && self.names.iter().all(is_entered)
    }
}

fn are_disjoint(all: &[&Calls]) -> bool {
    let mut seen = BTreeSet::new();
    all.iter().flat_map(|calls| &calls.names).all(|name| seen.insert(name))
}

/// Does the body only delete elements, which is no event?
pub(super) fn only_deletes(probe: &hir::Probe) -> bool {
    let (_, body) = hir::predicate(&probe.body);
    !body.is_empty() && body.iter().all(|s| latency_pairs::delete_call(s).is_some())
}

/// Maps from which a body always deletes the thread's element, so that nothing remains for a later call.
fn reset_maps(probe: &hir::Probe) -> BTreeSet<MapId> {
    let (_, body) = hir::predicate(&probe.body);
    if hir::returns(body) { BTreeSet::new() } else { body.iter().filter_map(latency_pairs::deletes).collect() }
}

/// The maps that a piece of a body changes, without its parts.
pub(super) fn changed_by(node: hir::Node) -> impl Iterator<Item = MapId> {
    let (one, removed) = match node {
        hir::Node::Stmt(hir::Stmt { kind: StmtKind::Aggregate { map, .. } | StmtKind::SetMap { map, .. }, .. })
        | hir::Node::Expr(Expr { kind: ExprKind::StepMap { map, .. }, .. }) => (Some(*map), None),
        // a function may write to the address
        hir::Node::Expr(Expr { kind: ExprKind::AddrOf(of), .. }) => match &of.kind {
            ExprKind::Map(map, _) => (Some(*map), None),
            _ => (None, None),
        },
        hir::Node::Expr(Expr { kind: ExprKind::Call(call), .. }) => (None, Some(removed_by(call))),
        _ => (None, None),
    };
    one.into_iter().chain(removed.into_iter().flatten())
}

/// Visits the body of a probe and the functions that it calls.
pub(super) fn visit_probe(probe: &hir::Probe, visit: &mut dyn FnMut(hir::Node)) {
    hir::visit(&probe.body, visit);
    probe.functions.iter().for_each(|f| hir::visit(&f.body, visit));
}

/// Has it a cost that a limit applies to?
pub(super) fn costs(probe: &hir::Probe) -> bool {
    probe.sites.iter().any(|site| site.attach.properties().is_limited)
}

/// Are its runs events that a limit may drop?
fn is_limited(probe: &hir::Probe) -> bool {
    costs(probe) && !only_deletes(probe)
}

/// Does a map have an aggregation?
pub(super) fn is_aggregation(map: MapId, script: &hir::Script) -> bool {
    script.maps.get(map).is_some_and(|map| matches!(map.value, Type::Agg(_)))
}

/// The aggregations whose values the order of runs determines: probes that a limit applies to read them, or remove elements from
/// them in runs that it may drop.
pub(super) fn ordered_aggregations(script: &hir::Script) -> BTreeSet<MapId> {
    let of = |probe: &hir::Probe| {
        let mut found = if costs(probe) { read_as_value(probe) } else { BTreeSet::new() };
        if is_limited(probe) {
            found.extend(removed_from(probe));
        }
        found
    };
    script.probes.iter().flat_map(of).filter(|map| is_aggregation(*map, script)).collect()
}

/// The maps from which a probe may remove elements.
pub(super) fn removed_from(probe: &hir::Probe) -> BTreeSet<MapId> {
    let mut found = BTreeSet::new();
    let mut visit = |node: hir::Node| {
        if let hir::Node::Expr(Expr { kind: ExprKind::Call(call), .. }) = node {
            found.extend(removed_by(call));
        }
    };
    visit_probe(probe, &mut visit);
    found
}

/// The maps of which a call removes elements, or sets them to zero.
fn removed_by(call: &hir::Call) -> impl Iterator<Item = MapId> {
    let removes = builtins::removes(call.row);
    call.args.iter().filter(move |_| removes).filter_map(|arg| match arg {
        hir::CallArg::Map(map) | hir::CallArg::Element(map, _) => Some(*map),
        _ => None,
    })
}

/// The maps that a probe reads by aggregated values, by elements, or by whether there are some. (Printing a map is no event of
/// another probe.)
fn read_as_value(probe: &hir::Probe) -> BTreeSet<MapId> {
    let mut found = BTreeSet::new();
    let mut visit = |node: hir::Node| match node {
        hir::Node::Expr(Expr { kind: ExprKind::ReadAgg(map, _), .. })
        | hir::Node::Stmt(hir::Stmt { kind: StmtKind::ForMap { map, .. }, .. }) => {
            found.insert(*map);
        }
        hir::Node::Expr(Expr { kind: ExprKind::Call(call), .. }) if builtins::asks_about_map(call.row) => {
            found.extend(call.args.iter().filter_map(|arg| match arg {
                hir::CallArg::Map(map) | hir::CallArg::Element(map, _) => Some(*map),
                _ => None,
            }));
        }
        _ => {}
    };
    visit_probe(probe, &mut visit);
    found
}

/// The maps without aggregation that a probe uses: a value that another probe reads there must be the latest.
#[derive(Default)]
pub(super) struct PlainMaps {
    /// To the values of these, it only adds.
    pub added: BTreeSet<MapId>,
    pub other: BTreeSet<MapId>,
    /// Those whose values it uses, and those whose values it sets.
    pub read: BTreeSet<MapId>,
    written: BTreeSet<MapId>,
    /// Those from which it removes elements.
    removed: BTreeSet<MapId>,
}

/// The open spans of the timeline, which are like a map: beginnings write, and ends read.
pub(super) const SPANS: MapId = MapId::MAX;

/// How often a probe uses a map.
#[derive(Clone, Copy, Default)]
struct Uses {
    all: u32,
    by_additions: u32,
    /// Those that use a value, and the reads by additions, which do not.
    reads: u32,
    reads_to_add: u32,
    writes: u32,
    removes: u32,
}

impl PlainMaps {
    /// Aggregations whose values the order of runs determines are like plain maps.
    pub fn of(probe: &hir::Probe, script: &hir::Script, ordered: &BTreeSet<MapId>) -> Self {
        let bounds = rate_limits::bounding(probe);
        let mut uses: BTreeMap<MapId, Uses> = BTreeMap::new();
        let mut ignored: BTreeSet<*const hir::Call> = BTreeSet::new();
        visit_probe(probe, &mut |node| {
            if let hir::Node::Stmt(stmt) = node {
                ignored.extend(latency_pairs::whole_call(stmt).map(std::ptr::from_ref));
            }
        });
        let mut visit = |node: hir::Node| {
            let mut used = |map: MapId, more: Uses| {
                let of = uses.entry(map).or_default();
                of.all += more.all;
                of.by_additions += more.by_additions;
                of.reads += more.reads;
                of.reads_to_add += more.reads_to_add;
                of.writes += more.writes;
                of.removes += more.removes;
            };
            let one = Uses { all: 1, ..Uses::default() };
            match node {
                hir::Node::Stmt(s) => match &s.kind {
                    // the element is a part of the new value, too
                    StmtKind::SetMap { map, key, value } if added(*map, key.as_ref(), value).is_some() => {
                        used(*map, Uses { by_additions: 2, reads_to_add: 1, writes: 1, ..one });
                    }
                    StmtKind::SetMap { map, .. } | StmtKind::Aggregate { map, .. } => used(*map, Uses { writes: 1, ..one }),
                    StmtKind::ForMap { map, .. } => used(*map, Uses { reads: 1, ..one }),
                    StmtKind::Expr(Expr { kind: ExprKind::StepMap { map, .. }, .. }) => {
                        used(*map, Uses { all: 0, by_additions: 1, reads_to_add: 1, ..one });
                    }
                    _ => {}
                },
                hir::Node::Expr(e) => match &e.kind {
                    ExprKind::StepMap { map, .. } => used(*map, Uses { reads: 1, writes: 1, ..one }),
                    ExprKind::Map(map, _) | ExprKind::ReadAgg(map, _) => used(*map, Uses { reads: 1, ..one }),
                    ExprKind::Call(call) => {
                        match builtins::begins_span(call.row) {
                            Some(true) => used(SPANS, Uses { writes: 1, ..one }),
                            Some(false) => used(SPANS, Uses { reads: 1, ..one }),
                            None => {}
                        }
                        // its result says whether an element was there
                        let reads = u32::from(!ignored.contains(&std::ptr::from_ref(call)));
                        removed_by(call).for_each(|map| used(map, Uses { removes: 1, reads, ..one }));
                        if removed_by(call).next().is_none() {
                            call.args.iter().for_each(|arg| match arg {
                                hir::CallArg::Map(map) | hir::CallArg::Element(map, _) => used(*map, Uses { reads: 1, ..one }),
                                _ => {}
                            });
                        }
                        if bounds.contains(&rate_limits::state(call)) {
                            used(rate_limits::state(call), Uses { reads: 1, writes: 1, ..one });
                        }
                    }
                    _ => {}
                },
            }
        };
        visit_probe(probe, &mut visit);
        let mut found = Self::default();
        for (map, Uses { all, by_additions, reads, reads_to_add, writes, removes }) in uses {
            if ordered.contains(&map) || !is_aggregation(map, script) {
                if reads > reads_to_add {
                    found.read.insert(map);
                }
                if writes > 0 {
                    found.written.insert(map);
                }
                if removes > 0 {
                    found.removed.insert(map);
                }
                if all == by_additions {
                    found.added.insert(map)
                } else {
                    found.other.insert(map)
                };
            }
        }
        found
    }

    /// Does a run depend on earlier ones?
    fn depends_on_itself(&self, ordered: &BTreeSet<MapId>) -> bool {
        let removes_own = self.removed.intersection(&self.written).any(|map| ordered.contains(map));
        removes_own || !self.read.is_disjoint(&self.written)
    }

    /// Does it use a map only to delete its elements?
    fn only_deletes_from(&self, map: MapId, ordered: &BTreeSet<MapId>) -> bool {
        self.removed.contains(&map) && !ordered.contains(&map)
    }

    /// Maps by which two probes depend on each other.
    fn shared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = MapId> + 'a {
        let ours = self.other.iter().filter(|map| other.other.contains(map) || other.added.contains(map));
        ours.chain(self.added.intersection(&other.other)).copied()
    }
}

/// By map: the probes whose runs a limit can leave out, and that its values contain.
pub(super) fn weights(script: &hir::Script, settings: &Settings, sampling: &[Sampling]) -> Vec<Vec<usize>> {
    let mut by_map = vec![BTreeSet::new(); script.maps.len()];
    // those that are only detached have no weights, but a time for which they were detached
    let is_left_out = |index: usize| match sampling.get(index) {
        Some(Sampling::Alone | Sampling::Entry { .. } | Sampling::Return { .. }) => true,
        Some(Sampling::Coupled { .. }) => settings.max_overhead.is_some(),
        Some(Sampling::Exempt) | None => false,
    };
    for (index, probe) in script.probes.iter().enumerate().filter(|(index, _)| is_left_out(*index)) {
        // the decisions, and what they have left out, are those of the entries
        let decides = |(_, s): &(usize, &Sampling)| match sampling.get(index) {
            Some(Sampling::Return { group }) => **s == Sampling::Entry { group: *group },
            _ => false,
        };
        let entries: Vec<usize> = sampling.iter().enumerate().filter(decides).map(|(i, _)| i).collect();
        let deciding = if entries.is_empty() { vec![index] } else { entries };
        // if it ends the run or acts on what is traced, all values depend on it
        let mut changed = if ends_run(probe) || acts(probe) { (0..script.maps.len()).collect() } else { changed(probe) };
        if calls_foreign(probe) {
            changed.extend(value_flow::dependents_of(script, &BTreeSet::new(), true));
        }
        for map in changed {
            if let Some(by) = by_map.get_mut(map) {
                by.extend(&deciding);
            }
        }
    }
    // what is computed from an estimate is one
    let mut computed: Vec<(BTreeSet<usize>, BTreeSet<MapId>)> = Vec::new();
    for (map, by) in by_map.iter().enumerate().filter(|(_, by)| !by.is_empty()) {
        match computed.iter_mut().find(|(same, _)| same == by) {
            Some((_, maps)) => _ = maps.insert(map),
            None => computed.push((by.clone(), BTreeSet::from([map]))),
        }
    }
    for (by, maps) in computed {
        for map in value_flow::dependents_of(script, &maps, false) {
            if let Some(of) = by_map.get_mut(map) {
                of.extend(&by);
            }
        }
    }
    by_map.into_iter().map(|by| by.into_iter().collect()).collect()
}

/// The maps that a probe changes.
pub(super) fn changed(probe: &hir::Probe) -> BTreeSet<MapId> {
    let mut found = BTreeSet::new();
    visit_probe(probe, &mut |node| found.extend(changed_by(node)));
    found
}

/// By map, at the prompt: the maps on whose values its elements depend, which other entries may change.
pub(super) fn sources(script: &hir::Script, env: &Env) -> Vec<Vec<MapId>> {
    let mut by_map = vec![Vec::new(); script.maps.len()];
    for source in (0..script.maps.len()).filter(|_| env.invocation.shares_maps) {
        for map in value_flow::dependents_of(script, &BTreeSet::from([source]), false) {
            if let Some(of) = by_map.get_mut(map).filter(|_| map != source) {
                of.push(source);
            }
        }
    }
    by_map
}

/// By probe that only deletes elements: the probes that store elements in the same maps. If it is detached, so are they.
pub(super) fn storing(script: &hir::Script, sampling: &[Sampling]) -> Vec<Vec<usize>> {
    let of = |(index, probe): (usize, &hir::Probe)| {
        if sampling.get(index).is_none_or(|s| *s == Sampling::Exempt) || !only_deletes(probe) {
            return Vec::new();
        }
        let removed = removed_from(probe);
        let stores = |(_, other): &(usize, &hir::Probe)| is_limited(other) && !changed(other).is_disjoint(&removed);
        script.probes.iter().enumerate().filter(stores).map(|(i, _)| i).collect()
    };
    script.probes.iter().enumerate().map(of).collect()
}

/// By map: see [`artifact::Map::coupled`](super::artifact::Map::coupled).
pub(super) fn coupled(script: &hir::Script, env: &Env, sampling: &[Sampling]) -> Vec<Vec<usize>> {
    let mut by_map = vec![Vec::new(); script.maps.len()];
    let ordered = ordered_aggregations(script);
    let is_coupled = |index: &usize| env.invocation.shares_maps && matches!(sampling.get(*index), Some(Sampling::Coupled { .. }));
    for (index, probe) in script.probes.iter().enumerate().filter(|(index, _)| is_coupled(index)) {
        let maps = PlainMaps::of(probe, script, &ordered);
        maps.other.iter().chain(&maps.added).for_each(|map| {
            if let Some(by) = by_map.get_mut(*map) {
                by.push(index);
            }
        });
    }
    by_map
}

/// The probes whose events the limit of the events cannot drop: they depend on others, and send no records.
pub(super) fn unlimited(script: &hir::Script, settings: &Settings, sampling: &[Sampling]) -> Vec<usize> {
    let is_unlimited = |(index, probe): &(usize, &hir::Probe)| {
        let mut sends = false;
        let mut visit = |node: hir::Node| {
            if let hir::Node::Expr(Expr { kind: ExprKind::Call(call), .. }) = node {
                sends |= matches!(&call.row.codegen, Codegen::Event(event) if !event.ends_probe) && !builtins::changes_map(call.row);
            }
        };
        visit_probe(probe, &mut visit);
        matches!(sampling.get(*index), Some(Sampling::Coupled { .. })) && !sends && !only_deletes(probe)
    };
    let all = script.probes.iter().enumerate().filter(|_| settings.max_events > 0);
    all.filter(is_unlimited).map(|(index, _)| index).collect()
}

/// Do runs of a probe have weights?
fn is_weighted(settings: &Settings, sampling: Option<&Sampling>) -> bool {
    settings.max_overhead.is_some() && matches!(sampling, Some(Sampling::Alone | Sampling::Entry { .. } | Sampling::Return { .. }))
}

impl ScriptCx<'_, '_> {
    pub(super) fn is_weighted(&self, probe: usize) -> bool {
        is_weighted(self.env.settings, self.sampling.get(probe))
    }
}

impl<'c> Gen<'_, 'c> {
    fn sampling(&self) -> Sampling {
        let settings = self.cx.env.settings;
        if settings.max_events == 0 && settings.max_overhead.is_none() {
            return Sampling::Exempt;
        }
        self.cx.sampling.get(self.program).copied().unwrap_or(Sampling::Exempt)
    }

    /// Returns if the limit of the overhead drops the run.
    pub(super) fn pass_gate(&mut self) {
        let gate = self.program as u32;
        let limited = self.cx.env.settings.max_overhead.is_some();
        match self.sampling() {
            // the number of runs shows a storm before the next measurement
            Sampling::Coupled { .. } if limited => self.e.count_ran(),
            Sampling::Exempt | Sampling::Coupled { .. } => {}
            Sampling::Alone if !limited => {}
            Sampling::Alone => self.e.pass_gate(gate, &|_| ()),
            Sampling::Entry { group } => {
                let call = self.marked_call(group);
                if limited {
                    self.e.pass_gate(gate_of(group), &|e| e.refuse_call(call));
                }
                if self.cx.env.settings.max_events == 0 {
                    self.e.mark_call(call, false);
                } else {
                    // once it is known whether it is an event
                    self.unmarked_call = Some(call);
                }
            }
            Sampling::Return { group } => {
                let call = self.marked_call(group);
                self.event_of_entry = Some(self.e.pass_marked_call(call, self.returns_of(group) == 1));
            }
        }
    }

    fn returns_of(&self, group: usize) -> usize {
        self.cx.sampling.iter().filter(|s| **s == Sampling::Return { group }).count()
    }

    fn marked_call(&mut self, group: usize) -> Call<'c> {
        let frame = self.frame_of_call(group);
        // the last return removes the mark
        let is_removed = frame.is_none() || self.returns_of(group) == 1;
        let has_table = is_removed && !self.cx.env.settings.refuses(Mechanism::ThreadTable) && self.cx.env.sys.has(Feature::Fetch);
        Call { gate: gate_of(group), frame, is_removed, has_table }
    }

    /// A number that the entry and the return of a call have in common, but no other unfinished call of the same thread. None if
    /// there is no other: system calls are not nested.
    fn frame_of_call(&mut self, group: usize) -> Option<IntValue<'c>> {
        if syscall::syscall_of_probe(self.site).is_some() {
            return None;
        }
        let arch = self.cx.env.sys.arch();
        match &self.site.attach {
            // both ends get the arguments at the same place
            Attach::Trampoline { .. } => {
                let ctx = self.e.addr(self.e.ctx());
                Some(self.e.forget_pointer_type(ctx))
            }
            Attach::Kprobe { ret, .. } | Attach::Uprobe { ret, .. } => {
                let sp = self.e.load_ctx(arch.sp, U64);
                // a call instruction may have stored the return address, and the return has removed it
                let sp = if *ret { self.e.sub(sp, self.e.int(arch.stack_args.into())) } else { sp };
                // a function that ends with a jump to another one has the same stack pointer
                let number = self.number_of_call(group);
                let number = self.e.shl(number, self.e.int(UNUSED_ADDRESS_BITS));
                Some(self.e.xor(sp, number))
            }
            _ => None,
        }
    }

    /// The number of the function among those of the group's probes. If the functions are known only when a bundle runs, it is 0.
    fn number_of_call(&mut self, group: usize) -> IntValue<'c> {
        let in_group = |s: &Sampling| *s == Sampling::Entry { group } || *s == Sampling::Return { group };
        let probes = self.cx.script.probes.iter().zip(&self.cx.sampling).filter(|(_, s)| in_group(s)).map(|(probe, _)| probe);
        let names: BTreeSet<String> = probes.filter_map(Calls::of).flat_map(|calls| calls.names).collect();
        let numbers: BTreeMap<&String, u16> = names.iter().zip(0..).collect();
        let number_of = |site: &ProbeSite| Some(*numbers.get(&call_of(site)?.1)?);
        let sites = self.cx.script.probes.get(self.program).map(|probe| probe.sites.as_slice()).unwrap_or_default();
        let by_site: Vec<u16> = sites.iter().map(|site| number_of(site).unwrap_or(0)).collect();
        match by_site.as_slice() {
            _ if self.e.program.names_vary => self.e.int(0),
            [] => self.e.int(0),
            [first, others @ ..] if others.iter().all(|other| other == first) => self.e.int(u64::from(*first)),
            all if all.iter().copied().eq(0..all.len() as u16) => self.e.site(),
            all => {
                let table: Vec<u8> = all.iter().flat_map(|number| number.to_le_bytes()).collect();
                let site = self.e.site();
                let site = self.e.opaque(site);
                let is_known = self.e.cmp(Cmp::Ult, site, self.e.int(all.len() as u64));
                self.e.choose(
                    is_known,
                    |e| {
                        let table = e.text(&table);
                        let cell = e.offset_by(table, e.add(site, site));
                        e.load(cell, 0, Int { bytes: 2, signed: false })
                    },
                    |e| e.int(0),
                )
            }
        }
    }

    /// Returns if the limit of the events drops the run: after the predicate.
    pub(super) fn pass_event(&mut self) {
        if self.cx.env.settings.max_events == 0 {
            return;
        }
        match self.sampling() {
            Sampling::Exempt | Sampling::Coupled { .. } => {}
            Sampling::Alone => self.pass_event_of(self.program, &|_| ()),
            Sampling::Entry { group } => {
                if let Some(call) = self.unmarked_call {
                    self.pass_event_of(group, &|e| e.refuse_call(call));
                    self.e.mark_call(call, true);
                }
            }
            Sampling::Return { .. } => {
                if let Some(is_counted) = self.event_of_entry {
                    self.e.pass_event_unless(is_counted);
                }
            }
        }
    }

    fn pass_event_of(&mut self, group: usize, refused: &dyn Fn(&mut Builder<'_, 'c>)) {
        // an entry that depends on all runs may start later
        if self.cx.env.invocation.shares_maps {
            self.e.pass_event_unless_kept(gate_of(group), refused);
        } else {
            self.e.pass_event(refused);
        }
    }

    /// Does the limit of the events apply to the records of the probe, because its runs cannot be dropped?
    pub(super) fn limits_records(&self) -> bool {
        self.cx.env.settings.max_events > 0 && matches!(self.sampling(), Sampling::Coupled { .. })
    }
}
