//! Failures of programs: the kernel counts them by place in the script, and rbt reports them.
//!
//! rbt reports a failure once for each error number, as soon as it sees it, and the total at the end.

use std::collections::BTreeSet;

use super::shared::Shared;
use crate::codegen::artifact::{Manifest, Problem};
use crate::failure::strerror;
use crate::host::Host;
use crate::output::Output;

/// The places where programs may fail.
#[derive(Default)]
pub(super) struct Problems {
    rows: Vec<Row>,
}

#[derive(Default)]
struct Row {
    problem: Problem,
    /// Earlier failures by CPU, which are not reported.
    before: Vec<u64>,
    /// Failures seen so far, without the earlier ones.
    seen: u64,
    /// Error numbers that were reported.
    reported: BTreeSet<i64>,
}

impl Problems {
    /// No failure has occurred yet.
    pub fn of(manifest: &Manifest) -> Self {
        Self { rows: manifest.problems.iter().map(|p| Row { problem: p.clone(), ..Row::default() }).collect() }
    }

    /// From now on, only new failures are reported.
    pub fn reset(&mut self, state: &Shared) {
        let all = self.rows.len();
        for (index, row) in self.rows.iter_mut().enumerate() {
            let before = state.failures(index, all).iter().map(|f| f.count).collect();
            *row = Row { problem: std::mem::take(&mut row.problem), before, seen: 0, reported: BTreeSet::new() };
        }
    }

    /// Reports failures that occur for the first time.
    pub fn report(&mut self, state: &Shared, host: &mut dyn Host) {
        let all = self.rows.len();
        for (index, row) in self.rows.iter_mut().enumerate() {
            let mut failures = state.failures(index, all);
            for (cpu, before) in failures.iter_mut().zip(&row.before) {
                cpu.count = cpu.count.saturating_sub(*before);
            }
            let count = failures.iter().map(|f| f.count).sum();
            if count == row.seen {
                continue;
            }
            row.seen = count;
            for failed in failures.iter().filter(|f| f.count > 0) {
                if row.reported.insert(failed.returned) {
                    host.say(row.output(failed.returned));
                }
            }
        }
    }

    /// Reports how often failures recurred.
    pub fn finish(&self, host: &mut dyn Host) {
        for row in &self.rows {
            let (count, p) = (row.seen, &row.problem);
            if count > row.reported.len() as u64 {
                let what = match &p.helper {
                    Some(helper) => format!("{helper} failed"),
                    None => p.text.clone(),
                };
                let msg = format!("{what}: {count} times in total");
                host.say(Output::Problem { kind: "runtime_error", msg, helper: None, pos: p.pos.clone(), line: p.line.clone() });
            }
        }
    }
}

impl Row {
    fn output(&self, returned: i64) -> Output {
        let Problem { helper, text, pos, line } = &self.problem;
        let (kind, msg, helper) = match helper {
            Some(helper) => ("helper_error", helper_failure(helper, returned), Some((helper.clone(), returned))),
            None => ("runtime_error", text.clone(), None),
        };
        Output::Problem { kind, msg, helper, pos: pos.clone(), line: line.clone() }
    }
}

/// The meaning of a helper's error number, which is specific to map helpers.
fn helper_failure(helper: &str, returned: i64) -> String {
    let errno = i32::try_from(returned.unsigned_abs()).unwrap_or(0);
    match (helper, errno) {
        ("map_update_elem", libc::E2BIG) => {
            "Map full; can't update element. Try increasing max_map_keys config or manually setting the max entries in a map \
             declaration e.g. `let @a = hash(5000)`"
                .into()
        }
        ("map_update_elem", libc::ENOMEM) => "no memory for a new element of the map; it was not stored".into(),
        ("map_lookup_elem", _) => "Can't lookup map element because it does not exist.".into(),
        _ => strerror(errno),
    }
}
