//! Failures of programs: the kernel counts them by place in the script, and sends a record of each.
//!
//! rbt reports failures in the order of the records. A place that fails often is reported once a second, so that its reports
//! do not hide other output. If failures were not reported, or found no room in the ring buffer, the total follows at the end.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::codegen::artifact::{FAILURE_RECORD, Failure, Manifest, Problem};
use crate::failure::strerror;
use crate::host::Host;
use crate::output::{Output, ProblemKind};

/// The number of failures of a place that are reported at once.
const BURST: u32 = 20;
/// The time after which another failure of that place may be reported.
const INTERVAL: Duration = Duration::from_secs(1);

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
    /// Failures that were reported.
    reported: u64,
    limit: RateLimit,
}

/// A token bucket.
#[derive(Default)]
struct RateLimit {
    used: u32,
    /// When a token was last returned.
    returned: Option<Instant>,
}

impl RateLimit {
    /// Takes a token. False if there is none at this time.
    fn take(&mut self, now: Instant) -> bool {
        let since = *self.returned.get_or_insert(now);
        let tokens = u32::try_from(now.saturating_duration_since(since).as_nanos() / INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        if tokens > 0 {
            self.used = self.used.saturating_sub(tokens);
            self.returned = Some(now);
        }
        let any = self.used < BURST;
        self.used += u32::from(any);
        any
    }
}

/// Does the record describe a failure?
pub(super) fn is_failure(record: &[u8]) -> bool {
    record.starts_with(&FAILURE_RECORD.to_ne_bytes())
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
            *row = Row { problem: std::mem::take(&mut row.problem), before, ..Row::default() };
        }
    }

    /// Reports the failure that a record describes, unless its place was reported often a moment ago.
    pub fn report(&mut self, record: &[u8], host: &mut dyn Host) {
        let word = |offset: usize| record.get(offset..offset + 8).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
        let problem = word(offset_of!(Failure, problem)).and_then(|offset| self.rows.get_mut(usize::try_from(offset).ok()?));
        if let (Some(row), Some(returned)) = (problem, word(offset_of!(Failure, returned)))
            && row.limit.take(Instant::now())
        {
            row.reported += 1;
            host.say(row.output(returned.cast_signed()));
        }
    }

    /// Reports failures of which no record came, and how often those occurred that were not all reported.
    pub fn finish(&mut self, state: &Shared, host: &mut dyn Host) {
        let all = self.rows.len();
        for (index, row) in self.rows.iter_mut().enumerate() {
            let mut failures = state.failures(index, all);
            for (cpu, before) in failures.iter_mut().zip(&row.before) {
                cpu.count = cpu.count.saturating_sub(*before);
            }
            let count = failures.iter().map(|f| f.count).sum();
            if count <= row.reported {
                continue;
            }
            if row.reported == 0 {
                let returned: BTreeSet<i64> = failures.iter().filter(|f| f.count > 0).map(|f| f.returned).collect();
                row.reported = returned.len() as u64;
                returned.into_iter().for_each(|returned| host.say(row.output(returned)));
            }
            let p = &row.problem;
            if count > row.reported {
                let what = match &p.helper {
                    Some(helper) => format!("{helper} failed"),
                    None => p.text.clone(),
                };
                let msg = format!("{what}: {count} times in total");
                host.say(Output::problem(ProblemKind::Runtime, msg, &p.pos, &p.line));
            }
            row.reported = count;
        }
    }
}

impl Row {
    fn output(&self, returned: i64) -> Output {
        let Problem { helper, text, pos, line } = &self.problem;
        let (kind, msg, helper) = match helper {
            Some(helper) => (ProblemKind::Helper, helper_failure(helper, returned), Some((helper.clone(), returned))),
            None => (ProblemKind::Runtime, text.clone(), None),
        };
        Output::Problem { kind, msg, helper, pos: pos.clone(), line: line.clone(), counts: Vec::new() }
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
        ("map_update_elem", libc::ENOMEM) => {
            "no memory for a new element of the map; it was not stored. The kernel supplies memory for large elements slowly: use fewer \
             keys, or declare the map's size, e.g. `let @a = hash(5000)`, so that its elements exist from the start"
                .into()
        }
        ("map_lookup_elem", _) => "Can't lookup map element because it does not exist.".into(),
        _ => strerror(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_fails_often_is_reported_once_a_second() {
        let mut limit = RateLimit::default();
        let begin = Instant::now();
        let reported = |limit: &mut RateLimit, after: u64| {
            (0..1000).filter(|i| limit.take(begin + Duration::from_millis(after) + Duration::from_micros(*i))).count()
        };
        assert_eq!(reported(&mut limit, 0), 20);
        assert_eq!(reported(&mut limit, 500), 0);
        assert_eq!((1..=10).map(|second| reported(&mut limit, second * 1000)).collect::<Vec<_>>(), [1; 10]);
        assert_eq!(reported(&mut limit, 100_000), 20);
    }
}
