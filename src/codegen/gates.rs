//! Which runs of probes a limit may drop (`--max-overhead`, `--max-events`).
//!
//! A probe on the return of a function follows the probe on its entry: both run for a call, or neither does. Other
//! probes that share a map without aggregation depend on each other in unknown ways, such as the start of a request
//! that another thread completes. Dropping some of their runs would make the results of the others wrong, so these
//! probes always run, or are detached together.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant

use std::collections::BTreeSet;

use super::artifact::Sampling;
use super::{Gen, ScriptCx};
use crate::builtins::MapId;
use crate::probes::{Env, ProbeSite, syscall};
use crate::sema::hir::{self, ExprKind, StmtKind};
use crate::settings::Settings;
use crate::types::Type;

/// By probe; empty unless something limits the run, or computes the effect of a limit.
pub(super) fn sampling(script: &hir::Script, env: &Env) -> Vec<Sampling> {
    let Env { settings, invocation, .. } = env;
    if settings.max_events == 0 && settings.max_overhead.is_none() && !invocation.is_measured {
        return Vec::new();
    }
    let probes = &script.probes;
    let calls: Vec<_> = probes.iter().map(calls).collect();
    let meets = |a: usize, b: usize| match (calls.get(a), calls.get(b)) {
        (Some(Some((_, a))), Some(Some((_, b)))) => !a.is_disjoint(b),
        _ => false,
    };
    let returns = |i: usize| matches!(calls.get(i), Some(Some((true, _))));
    // the only probe on the other side, if there is no other on this side
    let partner = |i: usize| {
        let others: Vec<usize> = (0..probes.len()).filter(|j| *j != i && meets(i, *j)).collect();
        match others.as_slice() {
            [one] if returns(*one) != returns(i) => Some(*one),
            _ => None,
        }
    };
    let pair = |i: usize| partner(i).filter(|j| partner(*j) == Some(i));
    let shared: Vec<BTreeSet<MapId>> = probes.iter().map(|p| plain_maps(p, script)).collect();
    let runs_freely = |p: &hir::Probe| p.sites.iter().all(|s| !s.attach.properties().is_limited);
    let mut group: Vec<usize> = (0..probes.len()).collect();
    for i in 0..probes.len() {
        for j in 0..i {
            let free = [i, j].iter().any(|k| probes.get(*k).is_none_or(runs_freely));
            let share = || shared.get(i).zip(shared.get(j)).is_some_and(|(a, b)| !a.is_disjoint(b));
            if !free && (share() || meets(i, j)) {
                let (from, to) = (group.get(i).copied(), group.get(j).copied());
                group.iter_mut().filter(|g| Some(**g) == from).for_each(|g| *g = to.unwrap_or(*g));
            }
        }
    }
    let of = |(i, probe): (usize, &hir::Probe)| {
        if runs_freely(probe) {
            return Sampling::Exempt;
        }
        let own = group.get(i).copied().unwrap_or(i);
        let members = group.iter().filter(|g| **g == own).count();
        match (members, pair(i)) {
            (1, _) => Sampling::Alone,
            (2, Some(entry)) if returns(i) => Sampling::Return { entry },
            (2, Some(_)) => Sampling::Entry,
            _ => Sampling::Coupled { group: own },
        }
    };
    probes.iter().enumerate().map(of).collect()
}

/// The calls whose returns (or entries) are the sites of a probe.
fn calls(probe: &hir::Probe) -> Option<(bool, BTreeSet<String>)> {
    let of = |site: &ProbeSite| match syscall::syscall_of_site(site) {
        Some(call) => Some((!call.enter, format!("syscall {}", call.name))),
        None => site.attach.traced_call(),
    };
    let all: Option<Vec<(bool, String)>> = probe.sites.iter().map(of).collect();
    let all = all?;
    let (returns, _) = all.first()?;
    let same = all.iter().all(|(ret, _)| ret == returns);
    same.then(|| (*returns, all.iter().map(|(_, name)| name.clone()).collect()))
}

/// Maps used by a probe whose values are not aggregated: a value that another probe reads there must be the latest.
fn plain_maps(probe: &hir::Probe, script: &hir::Script) -> BTreeSet<MapId> {
    let mut found = BTreeSet::new();
    let mut visit = |node: hir::Node| match node {
        hir::Node::Stmt(s) => {
            if let StmtKind::SetMap { map, .. } = &s.kind {
                found.insert(*map);
            }
        }
        hir::Node::Expr(e) => match &e.kind {
            ExprKind::StepMap { map, .. } | ExprKind::Map(map, _) => {
                found.insert(*map);
            }
            ExprKind::Call(call) => found.extend(call.args.iter().filter_map(|arg| match arg {
                hir::CallArg::Map(map) | hir::CallArg::Element(map, _) => Some(*map),
                _ => None,
            })),
            _ => {}
        },
    };
    hir::visit(&probe.body, &mut visit);
    probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut visit));
    found.retain(|map| script.maps.get(*map).is_some_and(|m| !matches!(m.value, Type::Agg(_))));
    found
}

/// By map: the probes whose runs have weights that its values contain.
pub(super) fn weights(script: &hir::Script, settings: &Settings, sampling: &[Sampling], adding: &BTreeSet<MapId>) -> Vec<Vec<usize>> {
    let mut by_map = vec![BTreeSet::new(); script.maps.len()];
    for (index, probe) in script.probes.iter().enumerate().filter(|(index, _)| is_weighted(settings, sampling.get(*index))) {
        let mut adds = |map: &MapId| {
            if let Some(by) = by_map.get_mut(*map) {
                by.insert(index);
            }
        };
        let mut visit = |node: hir::Node| match node {
            hir::Node::Stmt(s) => match &s.kind {
                StmtKind::Aggregate { map, .. } => adds(map),
                StmtKind::SetMap { map, .. } if adding.contains(map) => adds(map),
                _ => {}
            },
            hir::Node::Expr(e) => match &e.kind {
                ExprKind::StepMap { map, .. } if adding.contains(map) => adds(map),
                _ => {}
            },
        };
        hir::visit(&probe.body, &mut visit);
        probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut visit));
    }
    by_map.into_iter().map(|by| by.into_iter().collect()).collect()
}

/// Do runs of a probe have weights?
fn is_weighted(settings: &Settings, sampling: Option<&Sampling>) -> bool {
    settings.max_overhead.is_some() && matches!(sampling, Some(Sampling::Alone | Sampling::Entry | Sampling::Return { .. }))
}

impl ScriptCx<'_, '_> {
    pub(super) fn is_weighted(&self, probe: usize) -> bool {
        is_weighted(self.env.settings, self.sampling.get(probe))
    }
}

impl Gen<'_, '_> {
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
            Sampling::Exempt | Sampling::Coupled { .. } => {}
            Sampling::Alone if !limited => {}
            Sampling::Alone => self.e.pass_gate(gate, &|_| ()),
            Sampling::Entry => {
                if limited {
                    self.e.pass_gate(gate, &|e| e.unmark_call(gate));
                }
                self.e.mark_call(gate);
            }
            Sampling::Return { entry } => self.e.pass_marked_call(entry as u32),
        }
    }

    /// Returns if the limit of the events drops the run: after the predicate.
    pub(super) fn pass_event(&mut self) {
        if self.cx.env.settings.max_events == 0 {
            return;
        }
        let gate = self.program as u32;
        match self.sampling() {
            Sampling::Exempt | Sampling::Coupled { .. } | Sampling::Return { .. } => {}
            Sampling::Alone => self.e.pass_event(&|_| ()),
            Sampling::Entry => self.e.pass_event(&|e| e.unmark_call(gate)),
        }
    }
}
