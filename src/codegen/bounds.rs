//! Which values of an incomplete run have bounds: what is known of them although events were lost. A number of events can only be
//! too low then, and so can a sum of what they add.

use std::collections::BTreeSet;

use super::gates::{changed, costs, is_aggregation, removed_from, visit_probe};
use super::{latency_pairs, passing, value_flow};
use crate::builtins::{self, MapId};
use crate::sema::hir::{self, Expr, ExprKind, Node};

/// By map: lost events can make its values too high as well as too low, and its elements wrong. They are removed by events, or
/// depend on other maps that events change, or on how often events have asked for something. If an event ends the run, or acts on what is
/// traced, so do all.
pub(super) fn unbounded(script: &hir::Script, adding: &BTreeSet<MapId>) -> BTreeSet<MapId> {
    let events = || script.probes.iter().filter(|probe| costs(probe));
    if events().any(|probe| ends_run(probe) || acts(probe)) {
        return (0..script.maps.len()).collect();
    }
    let removed: BTreeSet<MapId> = events().flat_map(removed_from).collect();
    let maps: BTreeSet<MapId> = events().flat_map(changed).collect();
    // A value that each event stores for another one, such as the time of a request, is there or not, if only that one removes it. All
    // reads ask, so the answers are computed once.
    let taken: Vec<BTreeSet<MapId>> = script
        .probes
        .iter()
        .map(|probe| if costs(probe) { latency_pairs::deleted_maps(probe).into_iter().collect() } else { BTreeSet::new() })
        .collect();
    let takes = |index: usize, map: MapId| taken.get(index).is_some_and(|maps| maps.contains(&map));
    let is_stored = |map: MapId| {
        let all = || script.probes.iter().enumerate().filter(|(_, probe)| costs(probe));
        let mut writers = all().filter(|(index, probe)| changed(probe).contains(&map) && !takes(*index, map));
        let removers = all().filter(|(_, probe)| removed_from(probe).contains(&map)).count();
        let is_plain = !is_aggregation(map, script) && !adding.contains(&map);
        is_plain && removers <= 1 && writers.all(|(_, probe)| passing::always_stores(map, probe))
    };
    let stored: BTreeSet<MapId> =
        taken.iter().flatten().copied().collect::<BTreeSet<_>>().into_iter().filter(|map| is_stored(*map)).collect();
    let uses = |index: usize, map: MapId| !(takes(index, map) && stored.contains(&map));
    let mut found = value_flow::dependents(
        script,
        &value_flow::Sources { maps: &maps, uses: &uses, limits_rate: true, foreign: events().any(calls_foreign) },
    );
    found.extend(removed);
    found
}

/// Does the probe call imported functions, which may keep what they get?
pub(super) fn calls_foreign(probe: &hir::Probe) -> bool {
    let mut found = false;
    visit_probe(probe, &mut |node| found |= matches!(node, Node::Expr(Expr { kind: ExprKind::CallForeign(..), .. })));
    found
}

/// Does a run of the probe end the run of the script?
pub(super) fn ends_run(probe: &hir::Probe) -> bool {
    let mut found = false;
    let mut visit = |node: hir::Node| {
        found |= matches!(node, Node::Expr(Expr { kind: ExprKind::Call(call), .. }) if builtins::ends_probe(call.row));
    };
    visit_probe(probe, &mut visit);
    found
}

/// Does the probe act on programs or on the machine, such as by a signal?
pub(super) fn acts(probe: &hir::Probe) -> bool {
    let mut found = false;
    visit_probe(probe, &mut |node| found |= matches!(node, Node::Expr(Expr { kind: ExprKind::Call(call), .. }) if call.row.risky));
    found
}
