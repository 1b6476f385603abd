//! The threads that send, one for each signal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Signal;
use super::client::{Client, Sent};
use super::mailbox::Mailbox;
use super::messages::{Heading, Key, Times, partial_success, sums};
use crate::diag;
use crate::metrics::{Family, Metrics, Point};
use crate::runtime::{Reader, Scrapes};
use crate::streams::to_stderr;

/// The first wait after a failure, and the longest.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The number of log records or spans by result.
#[derive(Default)]
pub struct RecordCounts {
    /// The collector has them.
    pub sent: AtomicU64,
    /// They found no room in the queue.
    pub overflowed: AtomicU64,
    /// The collector rejected them permanently.
    pub refused: AtomicU64,
}

impl RecordCounts {
    /// Adds to a counter.
    pub fn add(to: &AtomicU64, n: u64) {
        to.fetch_add(n, Ordering::Relaxed);
    }

    /// Reads a counter.
    pub fn get(of: &AtomicU64) -> u64 {
        of.load(Ordering::Relaxed)
    }
}

/// The counts of log records and spans of all runs of a script in this process.
#[derive(Clone, Default)]
pub struct RecordTotals(Arc<Mutex<Vec<SignalCounts>>>);

/// The counts of a run for a signal.
pub type SignalCounts = (&'static Signal, Arc<RecordCounts>);

impl RecordTotals {
    fn lock(&self) -> MutexGuard<'_, Vec<SignalCounts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the counts of a run.
    pub fn add(&self, counts: &[SignalCounts]) {
        self.lock().extend_from_slice(counts);
    }

    /// The sums as metrics.
    pub fn families(&self) -> Vec<Family> {
        let all = self.lock();
        let mut by_signal: BTreeMap<&str, (&Signal, Vec<&RecordCounts>)> = BTreeMap::new();
        for (signal, counts) in all.iter() {
            by_signal.entry(signal.name).or_insert((signal, Vec::new())).1.push(counts);
        }
        by_signal.into_values().map(|(signal, runs)| own_family(signal, runs)).collect()
    }
}

/// A connection that retries, and reports a failure once.
struct Line {
    client: Client,
    what: &'static str,
    /// What a collector may reject, in the singular.
    item: &'static str,
    warn: bool,
    wait: Duration,
    failed: bool,
    /// Requests that were refused, those that were accepted in part, and those that were accepted with a warning.
    refusals: Repeated,
    rejections: Repeated,
    warnings: Repeated,
}

/// A problem that may occur with each request. It is reported when it has occurred once, 10 times, 100 times, and so on.
#[derive(Default)]
struct Repeated {
    times: u64,
    reported: u64,
    /// The items that were lost.
    items: u64,
}

impl Repeated {
    /// Counts the problem, and returns what to add to a report if it is to be reported.
    fn occurred(&mut self, items: u64) -> Option<String> {
        self.times += 1;
        self.items = self.items.saturating_add(items);
        if self.times < self.reported.saturating_mul(10) {
            return None;
        }
        self.reported = self.times;
        Some(if self.times == 1 { String::new() } else { format!(" ({} requests so far)", self.times) })
    }

    /// The number of requests, if it is not reported yet.
    fn unreported(&self) -> Option<u64> {
        (self.times > self.reported).then_some(self.times)
    }
}

/// The result of a request.
enum Outcome {
    /// The collector has it, except for this many items.
    Done(u64),
    /// It may be sent again after this time.
    Again(Duration),
    /// It was refused permanently.
    Refused,
}

impl Line {
    fn new(client: Client, what: &'static str, item: &'static str, warn: bool) -> Self {
        let none = Repeated::default;
        let (refusals, rejections, warnings) = (none(), none(), none());
        Self { client, what, item, warn, wait: MIN_RETRY_DELAY, failed: false, refusals, rejections, warnings }
    }

    fn report(&self, word: &str, why: &str) {
        if self.warn {
            to_stderr(&format!("{word} --otlp {}: {}\n", diag::plain(&self.client.url()), diag::plain(why)));
        }
    }

    fn send(&mut self, body: &[u8], mailbox: &Mailbox) -> Outcome {
        match self.client.post(body, mailbox.remaining().unwrap_or(Duration::MAX)) {
            Sent::Accepted(answer) => {
                if std::mem::take(&mut self.failed) {
                    self.report("note:", &format!("the collector accepts {} again", self.what));
                }
                self.wait = MIN_RETRY_DELAY;
                let rejected = partial_success(&answer);
                match &rejected {
                    Some((0, why)) => {
                        if let Some(often) = self.warnings.occurred(0) {
                            self.report("warning:", &format!("the collector warns about {}: {why}{often}", self.what));
                        }
                    }
                    Some((n, why)) => {
                        if let Some(often) = self.rejections.occurred(*n) {
                            let all = items(self.rejections.items, self.item);
                            let why = if why.is_empty() { "it does not say why" } else { why };
                            self.report("warning:", &format!("the collector rejected {all}: {why}{often}"));
                        }
                    }
                    None => {}
                }
                Outcome::Done(rejected.map_or(0, |(n, _)| n))
            }
            Sent::Later(after, why) => {
                if !std::mem::replace(&mut self.failed, true) {
                    self.report("warning:", &format!("cannot send {}, and will try again: {why}", self.what));
                }
                let wait = retry_delay(after, jittered(self.wait));
                self.wait = (self.wait * 2).min(MAX_RETRY_DELAY);
                Outcome::Again(wait)
            }
            Sent::Refused(why) => {
                if let Some(often) = self.refusals.occurred(0) {
                    self.report("warning:", &format!("cannot send {}: {why}{often}", self.what));
                }
                Outcome::Refused
            }
        }
    }
}

impl Drop for Line {
    /// Reports the totals.
    fn drop(&mut self) {
        let Self { what, item, refusals, rejections, warnings, .. } = &*self;
        if let Some(n) = refusals.unreported() {
            self.report("warning:", &format!("the collector refused {n} requests with {what}"));
        }
        if let Some(n) = rejections.unreported() {
            self.report("warning:", &format!("the collector rejected {} in {n} requests", items(rejections.items, item)));
        }
        if let Some(n) = warnings.unreported() {
            self.report("warning:", &format!("the collector warned about {what} in {n} requests"));
        }
    }
}

fn items(n: u64, item: &str) -> String {
    diag::plural(n, item, &format!("{item}s"))
}

/// How long to wait if the collector asks for this time, which may be too short for it to recover: many answer `Retry-After: 0`.
fn retry_delay(demanded: Option<Duration>, own: Duration) -> Duration {
    demanded.map_or(own, |time| time.max(own))
}

/// A random wait of half to all of it, so that many machines do not retry at the same time.
fn jittered(wait: Duration) -> Duration {
    let random = u64::from(since_1970().subsec_nanos() ^ std::process::id()) % 512;
    wait / 2 + Duration::from_nanos(wait.as_nanos() as u64 / 1024 * random)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Nanoseconds since 1970.
pub fn now() -> u64 {
    u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX)
}

/// Sends log records or spans until the end of the run.
pub struct RecordSender {
    /// What it sends, in the plural, for messages.
    pub what: &'static str,
    /// One of them.
    pub item: &'static str,
    pub client: Client,
    pub heading: Arc<Heading>,
    pub mailbox: Arc<Mailbox>,
    pub counts: Arc<RecordCounts>,
    pub batch: usize,
    pub delay: Duration,
    pub warn: bool,
}

impl RecordSender {
    /// Returns when all is sent, or the time is over.
    pub fn run(self) {
        let Self { what, item, client, heading, mailbox, counts, batch, delay, warn } = self;
        let mut line = Line::new(client, what, item, warn);
        // the number of discarded records to report
        let mut reported_from = 1;
        loop {
            let records = mailbox.take(batch, delay);
            if records.is_empty() {
                if mailbox.remaining().is_some() {
                    return;
                }
                continue;
            }
            let body = heading.records(&records);
            let n = records.len() as u64;
            drop(records);
            loop {
                match line.send(&body, &mailbox) {
                    Outcome::Done(rejected) => {
                        RecordCounts::add(&counts.sent, n.saturating_sub(rejected));
                        RecordCounts::add(&counts.refused, rejected.min(n));
                        mailbox.done();
                        break;
                    }
                    Outcome::Refused => {
                        RecordCounts::add(&counts.refused, n);
                        mailbox.done();
                        break;
                    }
                    Outcome::Again(wait) => mailbox.pause(wait),
                }
                if mailbox.is_over() {
                    return;
                }
                let overflowed = RecordCounts::get(&counts.overflowed);
                if overflowed >= reported_from {
                    reported_from = overflowed.saturating_mul(10);
                    line.report("warning:", &format!("{} found no room in the queue so far", items(overflowed, item)));
                }
            }
        }
    }
}

/// Sends metrics until the end of the run.
pub struct MetricSender {
    pub client: Client,
    pub heading: Arc<Heading>,
    pub mailbox: Arc<Mailbox>,
    /// The numbers of records of other signals, which are metrics.
    pub counts: Vec<SignalCounts>,
    pub reader: Reader,
    /// When the series of sums began, also those of an earlier run that this one continues.
    pub starts: SeriesStarts,
    pub metrics: Metrics,
    pub interval: Duration,
    /// Sums are the differences since the last acknowledged request.
    pub delta: bool,
    pub warn: bool,
}

impl MetricSender {
    /// Returns true if the collector has the final state of the run.
    pub fn run(self) -> bool {
        let Self { client, heading, mailbox, counts, reader, starts, mut metrics, interval, delta, warn } = self;
        let mut line = Line::new(client, "metrics", "data point", warn);
        let scrapes = reader.scrapes();
        let mut known: Option<BTreeMap<Key, Point>> = None;
        let mut begun: Option<Starts> = None;
        let mut since = scrapes.blank().start_ns;
        let mut wait = interval;
        loop {
            mailbox.pause(wait);
            let ends = mailbox.remaining().is_some();
            // a run that failed has no state
            let state = if ends { scrapes.last() } else { reader.request_state() };
            let Some(state) = state else {
                if ends {
                    return true;
                }
                continue;
            };
            // the collector has the sums of an earlier run from that run
            let known =
                known.get_or_insert_with(|| scrapes.inherited().map(|earlier| sums(&metrics.families(earlier))).unwrap_or_default());
            let mut families = metrics.families(&state);
            families.extend(counts.iter().map(|(signal, counts)| own_family(signal, [&**counts])));
            let present = sums(&families);
            let now = now();
            if !delta {
                let begun = begun.get_or_insert_with(|| Starts::new(scrapes, known, &starts));
                begun.update(&present, now);
                starts.set(begun.series.clone());
            }
            let no_series = BTreeMap::new();
            let start = if delta { since } else { scrapes.start_ns() };
            let times = Times { start, series: begun.as_ref().map_or(&no_series, |begun| &begun.series), now };
            let (mut again, mut refused) = (None, false);
            for request in heading.metrics(&families, &times, delta.then_some(&*known)) {
                match line.send(&request.body, &mailbox) {
                    Outcome::Done(_) => known.extend(request.sent),
                    // The differences are a part of the next ones.
                    Outcome::Refused => refused = true,
                    Outcome::Again(wait) => {
                        again = Some(wait);
                        break;
                    }
                }
            }
            // a series that has ended starts at 0 if it returns
            known.retain(|key, _| present.contains_key(key));
            match again {
                Some(after) => wait = after,
                None if ends => return true,
                None if refused => wait = interval,
                None => {
                    reader.confirm();
                    // the clock may have been set back
                    (since, wait) = (since.max(now), interval);
                }
            }
            if mailbox.is_over() {
                return false;
            }
        }
    }
}

/// What the runs of a script hand over.
#[derive(Clone, Default)]
pub struct HandedOver {
    /// When its series began.
    pub starts: SeriesStarts,
    /// Its log records and spans.
    pub records: RecordTotals,
}

/// When the series of a script began.
#[derive(Clone, Debug, Default)]
pub struct SeriesStarts(Arc<Mutex<BTreeMap<Key, u64>>>);

impl SeriesStarts {
    fn get(&self) -> BTreeMap<Key, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, to: BTreeMap<Key, u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}

/// When each series of a sum began, in nanoseconds since 1970. A series that returns with less than before began anew, which the
/// receiver sees by its start.
struct Starts {
    series: BTreeMap<Key, u64>,
    /// The start of a new series: when the run began, or the last export.
    of_new: u64,
}

impl Starts {
    /// Those of the series that this run continues.
    fn new(scrapes: &Scrapes, continued: &BTreeMap<Key, Point>, earlier: &SeriesStarts) -> Self {
        let known = earlier.get();
        let start = |key: &Key| known.get(key).copied().unwrap_or(scrapes.start_ns());
        Self { series: continued.keys().map(|key| (key.clone(), start(key))).collect(), of_new: scrapes.blank().start_ns }
    }

    /// These series are present now.
    fn update(&mut self, present: &BTreeMap<Key, Point>, now: u64) {
        self.series.retain(|key, _| present.contains_key(key));
        for key in present.keys().filter(|key| !self.series.contains_key(*key)).collect::<Vec<_>>() {
            self.series.insert(key.clone(), self.of_new);
        }
        self.of_new = self.of_new.max(now);
    }
}

/// The number of log records or spans by result, as a metric.
fn own_family<'a>(signal: &Signal, runs: impl IntoIterator<Item = &'a RecordCounts>) -> Family {
    let mut outcomes = [("sent", 0i128), ("refused", 0), ("overflowed", 0)];
    for counts in runs {
        for ((_, sum), of) in outcomes.iter_mut().zip([&counts.sent, &counts.refused, &counts.overflowed]) {
            *sum += i128::from(RecordCounts::get(of));
        }
    }
    Family::own(&signal.metric, outcomes.map(|(outcome, sum)| (vec![outcome.into()], sum)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use std::time::Duration;

    use super::{Key, Point, Repeated, Starts, retry_delay};

    #[test]
    fn demanded_waits_are_not_shorter_than_own_ones() {
        let seconds = Duration::from_secs;
        assert_eq!(retry_delay(None, seconds(2)), seconds(2));
        assert_eq!([0, 1, 7].map(|n| retry_delay(Some(seconds(n)), seconds(2))), [2, 2, 7].map(seconds));
    }

    #[test]
    fn a_series_that_returns_has_a_new_start() {
        let present = |names: &[&str]| names.iter().map(|name| ((name.to_string(), Vec::new(), false), Point::default())).collect();
        let starts = |starts: &Starts| starts.series.iter().map(|((name, ..), start): (&Key, &u64)| (name.clone(), *start)).collect();
        let of = |all: &[(&str, u64)]| all.iter().map(|(name, start)| (name.to_string(), *start)).collect::<BTreeMap<String, u64>>();
        let mut series = Starts { series: BTreeMap::from([(("kept".into(), Vec::new(), false), 3)]), of_new: 10 };
        let mut at = |names: &[&str], now| -> BTreeMap<String, u64> {
            series.update(&present(names), now);
            starts(&series)
        };
        assert_eq!(at(&["a", "kept"], 20), of(&[("a", 10), ("kept", 3)]));
        assert_eq!(at(&["b", "kept"], 30), of(&[("b", 20), ("kept", 3)]));
        // the clock is set back
        assert_eq!(at(&["b", "a"], 25), of(&[("b", 20), ("a", 30)]));
        assert_eq!(at(&["c"], 40), of(&[("c", 30)]));
    }

    #[test]
    fn repeated_problems_are_reported_at_growing_intervals() {
        let mut problem = Repeated::default();
        let reported: Vec<u64> = (1..=250).filter(|_| problem.occurred(2).is_some()).collect();
        assert_eq!(reported, [1, 10, 100]);
        assert_eq!((problem.unreported(), problem.items), (Some(250), 500));
        let mut once = Repeated::default();
        assert_eq!(once.occurred(0), Some(String::new()));
        assert_eq!(once.unreported(), None);
    }
}
