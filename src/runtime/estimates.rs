//! What limits do to the runs that share maps, as in the prompt: how far the values are estimates, and the steps taken.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::output::{Limited, Step};
use crate::value::{Weights, add_weights};

/// The same for all runs, by their numbers.
#[derive(Debug, Default)]
pub struct Estimates {
    runs: Mutex<BTreeMap<usize, Run>>,
}

#[derive(Debug, Default)]
struct Run {
    weights: BTreeMap<String, Weights>,
    /// The last step for each probe that is limited now.
    steps: BTreeMap<String, Step>,
}

impl Estimates {
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
    /// Reports how far the values that this run adds to a map are estimates.
    pub(super) fn publish(&self, map: &str, weights: Weights) {
        self.with_run(|run| _ = run.weights.insert(map.into(), weights));
    }

    /// Reports a step.
    pub(super) fn publish_step(&self, limited: &Limited) {
        self.with_run(|run| match limited.step {
            Step::Sample { one_in: 1 } | Step::Attach | Step::Pass { .. } => _ = run.steps.remove(&limited.probe),
            step @ (Step::Sample { .. } | Step::Detach { .. } | Step::StayDetached { .. } | Step::Drop { .. }) => {
                _ = run.steps.insert(limited.probe.clone(), step);
            }
        });
    }

    /// Those of a map by all other runs.
    pub(super) fn of_others(&self, map: &str) -> Option<Weights> {
        let runs = self.all.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let others = runs.iter().filter(|(number, _)| Some(**number) != self.run);
        others.filter_map(|(_, run)| run.weights.get(map).copied()).fold(None, |sum, of| add_weights(sum, Some(of)))
    }

    fn with_run(&self, change: impl FnOnce(&mut Run)) {
        if let Some(run) = self.run {
            change(self.all.runs.lock().unwrap_or_else(PoisonError::into_inner).entry(run).or_default());
        }
    }
}
