//! What limits do to the runs that share maps, as in the prompt: how far the values are estimates, and the steps taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::Remote;
use crate::output::{Limited, Step};
use crate::value::{Weights, add_weights};

/// The same for all runs, by their numbers.
#[derive(Debug, Default)]
pub struct Estimates {
    runs: Mutex<BTreeMap<usize, Run>>,
}

#[derive(Debug, Default)]
struct Run {
    weights: BTreeMap<String, Published>,
    /// The last step for each probe that is limited now.
    steps: BTreeMap<String, Step>,
    /// The maps of probes that are detached for good, and that depend on all others that use them.
    detached_maps: BTreeSet<String>,
    /// The maps of which its probes need all values that other runs store.
    used_maps: BTreeSet<String>,
    /// The maps on whose values the elements of its maps depend.
    sources: BTreeMap<String, BTreeSet<String>>,
    /// How to reach it.
    remote: Option<Arc<Remote>>,
}

/// How far the values of a map are estimates.
#[derive(Clone, Copy, Debug)]
struct Published {
    weights: Weights,
    /// The time of this, if a probe is detached from then on.
    detached_since: Option<Instant>,
}

impl Published {
    fn now(&self) -> Weights {
        let more = self.detached_since.map_or(0, |since| since.elapsed().as_millis() as u64);
        Weights { detached_ms: self.weights.detached_ms.saturating_add(more), ..self.weights }
    }
}

impl Estimates {
    /// Tells how to reach a run.
    pub fn register(&self, run: usize, remote: Arc<Remote>) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).entry(run).or_default().remote = Some(remote);
    }

    /// The steps that are in effect for a run, by probe.
    pub fn steps(&self, run: usize) -> Vec<(String, Step)> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.get(&run).map(|run| run.steps.clone().into_iter().collect()).unwrap_or_default()
    }
}

/// Where a run reports this, and reads it.
#[derive(Clone, Debug)]
pub struct EstimatesOfRun {
    /// Those of all runs.
    pub all: Arc<Estimates>,
    /// The number of this one; none if it reports nothing.
    pub run: Option<usize>,
}

impl EstimatesOfRun {
    /// Reports how far the values that this run adds to a map are estimates, and whether one of the probes is detached now.
    pub(super) fn publish(&self, map: &str, weights: Weights, is_detached: bool) {
        let published = Published { weights, detached_since: is_detached.then(Instant::now) };
        self.with_run(|run| _ = run.weights.insert(map.into(), published));
    }

    /// Reports that the elements of a map depend on the values of others.
    pub(super) fn publish_sources(&self, map: &str, sources: BTreeSet<String>) {
        self.with_run(|run| _ = run.sources.insert(map.into(), sources));
    }

    /// Reports a step.
    pub(super) fn publish_step(&self, limited: &Limited) {
        self.with_run(|run| match limited.step {
            Step::Sample { one_in: 1 } | Step::Attach | Step::Pass { .. } => _ = run.steps.remove(&limited.probe),
            step @ (Step::Sample { .. } | Step::Detach { .. } | Step::DetachToo | Step::StayDetached { .. } | Step::Drop { .. }) => {
                _ = run.steps.insert(limited.probe.clone(), step);
            }
        });
    }

    /// Reports that probes are detached for good that depend on all others that use these maps.
    pub(super) fn publish_detached(&self, maps: &[String]) {
        // until those of other runs are detached, they find what these no longer change
        self.publish_maps(maps, |run| &mut run.detached_maps);
    }

    /// Reports that probes depend on all others that use these maps.
    pub(super) fn publish_used(&self, maps: &[String]) {
        self.publish_maps(maps, |run| &mut run.used_maps);
    }

    /// Adds maps to a set, and lets the other runs look at it.
    fn publish_maps(&self, maps: &[String], to: fn(&mut Run) -> &mut BTreeSet<String>) {
        let mut is_new = false;
        self.with_run(|run| maps.iter().for_each(|map| is_new |= to(run).insert(map.clone())));
        if is_new {
            let runs = self.all.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let others = runs.iter().filter(|(number, _)| Some(**number) != self.run);
            others.filter_map(|(_, run)| run.remote.as_ref()).for_each(|remote| remote.look());
        }
    }

    /// Which of these maps have other runs such probes for?
    pub(super) fn used_by_others(&self, maps: &[String]) -> Vec<String> {
        let runs = self.all.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let others = || runs.iter().filter(|(number, _)| Some(**number) != self.run);
        maps.iter().filter(|map| others().any(|(_, run)| run.used_maps.contains(*map))).cloned().collect()
    }

    /// Do other runs have such probes, of one of these maps?
    pub(super) fn has_detached(&self, maps: &[String]) -> bool {
        let runs = self.all.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut others = runs.iter().filter(|(number, _)| Some(**number) != self.run);
        others.any(|(_, run)| maps.iter().any(|map| run.detached_maps.contains(map)))
    }

    /// The run has ended: no other depends on its probes.
    pub(super) fn end(&self) {
        self.with_run(|run| {
            run.detached_maps.clear();
            run.used_maps.clear();
            run.remote = None;
            run.weights.values_mut().for_each(|of| *of = Published { weights: of.now(), detached_since: None });
        });
    }

    /// Those of a map by all other runs: of what they have added to it, and to the maps on which its values depend.
    pub(super) fn of_others(&self, map: &str) -> Option<Weights> {
        let runs = self.all.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = |number: usize| Some(number) == self.run;
        let own = reached(&runs, map, &is_own);
        let all = reached(&runs, map, &|_| true);
        let of_run = |number: usize, run: &Run| {
            // what this run knows itself is not among them
            let names = all.iter().filter(|name| !is_own(number) || !own.contains(*name));
            let each = names.filter_map(|name| run.weights.get(name).map(Published::now));
            each.reduce(|a, b| a.or_worse(&b))
        };
        runs.iter().map(|(number, run)| of_run(*number, run)).fold(None, add_weights)
    }

    fn with_run(&self, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.run {
            change(self.all.runs.lock().unwrap_or_else(PoisonError::into_inner).entry(run).or_default());
        }
    }
}

/// The map, and those on which its values depend according to these runs.
fn reached(runs: &BTreeMap<usize, Run>, map: &str, of: &dyn Fn(usize) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::from([map.to_string()]);
    let mut next = vec![map.to_string()];
    while let Some(map) = next.pop() {
        let sources = runs.iter().filter(|(number, _)| of(**number)).filter_map(|(_, run)| run.sources.get(&map)).flatten();
        let new: Vec<String> = sources.filter(|source| !found.contains(*source)).cloned().collect();
        found.extend(new.iter().cloned());
        next.extend(new);
    }
    found
}
