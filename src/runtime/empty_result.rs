//! Detects a run of a tool with filters whose result is empty.

use super::shared::Shared;
use crate::codegen::artifact::Manifest;
use crate::diag::plain;
use crate::output::Output;
use crate::probes::Attach;

/// Whether records of a run printed anything.
#[derive(Default)]
pub(super) struct EmptyResult {
    /// Number of records, and the number of the last one that printed something, from 1.
    records: u64,
    last: u64,
    /// All records have been processed.
    finished: bool,
    after: bool,
}

impl EmptyResult {
    /// Called before a record is processed.
    pub fn record(&mut self) {
        self.records += 1;
    }

    /// Called when all records are processed.
    pub fn set_finished(&mut self) {
        self.finished = true;
    }

    /// Called when something is printed.
    pub fn printed(&mut self, output: &Output) {
        if output.is_result() {
            self.last = self.records;
            self.after |= self.finished;
        }
    }

    /// The note if `purpose` had no result except for the output of `begin`, whose records come first.
    pub fn nothing_of(&self, purpose: &str, manifest: &Manifest, state: &Shared) -> Option<String> {
        let begins = manifest.programs.iter().filter(|p| p.sites.iter().all(|s| matches!(s.attach, Attach::Begin)));
        let first: u64 = begins.map(|p| state.probe_counters(&p.probes).sent).sum();
        (!self.after && self.last <= first).then(|| format!("note: nothing to show with {}: no event matched\n", plain(purpose)))
    }
}
