//! The state of a run in progress, for a thread that requests it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::context::RunContext;
use super::load::MapFd;
use super::{cost, meter, poll};
use crate::builtins;
use crate::state::{Entry, Map, RunTime, State};
use crate::types::Type;

/// How long a run may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long run times are measured after a request.
const INTEREST: Duration = Duration::from_secs(300);

/// Requests to a run, one at a time.
#[derive(Debug)]
pub struct Scrapes {
    wake: OwnedFd,
    asked: AtomicBool,
    /// The run is over, with or without a last state.
    over: AtomicBool,
    /// The state before the run begins.
    blank: State,
    answer: Mutex<Option<Box<State>>>,
    answered: Condvar,
    /// Held by a requester until the answer is there.
    turn: Mutex<()>,
    /// The state of the run at its end.
    last: Mutex<Option<Box<State>>>,
}

impl Scrapes {
    /// No request yet.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(blank: State) -> io::Result<Self> {
        let (wake, asked) = (poll::eventfd()?, AtomicBool::new(false));
        let over = AtomicBool::new(false);
        Ok(Self {
            wake,
            asked,
            over,
            blank,
            answer: Mutex::default(),
            answered: Condvar::new(),
            turn: Mutex::default(),
            last: Mutex::default(),
        })
    }

    /// Requests the state, and waits for it; none if the run does not answer in time.
    pub fn ask(&self) -> Option<Box<State>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.last();
        if last.is_some() || self.over.load(Ordering::SeqCst) {
            return last;
        }
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        *answer = None;
        self.asked.store(true, Ordering::SeqCst);
        poll::wake(&self.wake);
        let waited = self.answered.wait_timeout_while(answer, PATIENCE, |answer| answer.is_none() && !self.over.load(Ordering::SeqCst));
        let (mut answer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        answer.take()
    }

    /// Closes it: no answers follow.
    pub fn close(&self) {
        let _answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        self.over.store(true, Ordering::SeqCst);
        self.answered.notify_all();
    }

    /// The state of the run at its end, before `end` cleared its maps.
    pub fn last(&self) -> Option<Box<State>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state before the run begins.
    pub fn blank(&self) -> &State {
        &self.blank
    }

    /// Answers all later requests with the final state.
    pub(super) fn finish(&self, context: &mut RunContext) -> anyhow::Result<()> {
        let state = Box::new(context.state_now(&self.blank)?);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(state.clone());
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(state);
        self.answered.notify_all();
        Ok(())
    }

    /// Readable when there is a request.
    pub(super) fn fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    /// Answers the request, if there is one.
    pub(super) fn answer(&self, context: &mut RunContext) -> anyhow::Result<()> {
        if !self.asked.swap(false, Ordering::SeqCst) {
            // measuring costs each run of a program some nanoseconds
            context.timed.take_if(|(_, asked)| asked.elapsed() > INTEREST);
            return Ok(());
        }
        if let Some(statistics) = context.timed.take().map(|(statistics, _)| statistics).or_else(|| cost::measure().ok()) {
            context.timed = Some((statistics, Instant::now()));
        }
        poll::clear(&self.wake);
        let state = context.state_now(&self.blank)?;
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(state));
        self.answered.notify_all();
        Ok(())
    }
}

impl RunContext<'_> {
    /// The state of an unfinished run, including what was cleared.
    fn state_now(&mut self, blank: &State) -> anyhow::Result<State> {
        let mut maps = Vec::new();
        for map in 0..self.manifest.maps.len() {
            let (_, at) = self.map_at(map)?;
            let mut now = self.saved_at(map, at)?;
            if let Some(past) = self.past.as_ref().and_then(|past| past.get(&map)) {
                let mut all = past.clone();
                now.entries.into_iter().for_each(|entry| add(&now.value, entry, &mut all));
                now.entries = all.into_values().collect();
            }
            maps.push(now);
        }
        Ok(State { maps, probes: self.counts(), run_times: self.run_times(), ..blank.clone() })
    }

    /// How long the programs have run while run times were measured.
    fn run_times(&self) -> Vec<RunTime> {
        // without CAP_SYS_ADMIN run times are not measured
        if self.timed.is_none() {
            return Vec::new();
        }
        let programs = self.manifest.programs.iter().zip(meter::read(self.loaded));
        programs.map(|(program, cost)| RunTime { probe: program.name(), ns: cost.ns, runs: cost.runs }).collect()
    }

    /// Continues the series of an earlier run. A map whose types have changed starts again, and so do values that are
    /// not sums.
    pub(super) fn inherit(&mut self, earlier: Option<Box<State>>) -> anyhow::Result<()> {
        let Some(earlier) = earlier else { return Ok(()) };
        for before in earlier.maps {
            let Some(map) = self.manifest.maps.iter().position(|map| map.name == before.name) else { continue };
            let (_, at) = self.map_at(map)?;
            let (old, new) = (before.types(), self.saved_at(map, at)?.types());
            if old != new {
                self.warn(&format!("the series of {} begin anew: its type was {old}, and is {new}", before.name));
                continue;
            }
            self.keep_past(map, &before.value, before.entries);
        }
        self.flush(true);
        Ok(())
    }

    fn keep_past(&mut self, map: usize, value: &Type, entries: Vec<Entry>) {
        let adds = value.aggregation().and_then(|agg| builtins::aggregate(&agg.function)).is_some_and(|(_, row)| row.saved.adds);
        if let (true, Some(past)) = (adds, &mut self.past) {
            let all = past.entry(map).or_default();
            entries.into_iter().for_each(|entry| add(value, entry, all));
        }
    }

    /// Called before a map is cleared.
    pub(super) fn remember(&mut self, map: usize, at: MapFd) -> anyhow::Result<()> {
        if self.past.is_none() || self.in_end {
            return Ok(());
        }
        let Map { value, entries, .. } = self.saved_at(map, at)?;
        self.keep_past(map, &value, entries);
        Ok(())
    }
}

/// A sum that does not fit is reset, as Prometheus expects of a counter.
fn add(value: &Type, entry: Entry, to: &mut BTreeMap<String, Entry>) {
    let id = serde_json::to_string(&entry.key).unwrap_or_default();
    let sum = to.get(&id).and_then(|known| builtins::add(value.aggregation()?, known.counted.as_ref()?, entry.counted.as_ref()?).ok());
    let counted = sum.or(entry.counted);
    to.insert(id, Entry { counted, ..entry });
}
