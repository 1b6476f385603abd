//! The state of a run in progress, for a thread that requests it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::context::RunContext;
use super::load::MapFd;
use super::{cost, meter, poll};
use crate::state::{RunTime, State};

/// How long a run may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long run times are measured after a request.
const MEASURE_AFTER_REQUEST: Duration = Duration::from_secs(300);

/// Requests to a run, one at a time.
#[derive(Debug)]
pub struct Scrapes {
    wake: OwnedFd,
    requested: AtomicBool,
    /// The run is over, with or without a last state.
    finished: AtomicBool,
    /// The state before the run begins.
    initial_state: State,
    /// The contents of an earlier run that this one continues.
    inherited: OnceLock<State>,
    answer: Mutex<Option<Box<State>>>,
    answered: Condvar,
    /// Held by a requester until the answer is there.
    request_lock: Mutex<()>,
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
            requested: asked,
            finished: over,
            initial_state: blank,
            inherited: OnceLock::new(),
            answer: Mutex::default(),
            answered: Condvar::new(),
            request_lock: Mutex::default(),
            last: Mutex::default(),
        })
    }

    /// Requests the state, and waits for it; none if the run does not answer in time.
    pub fn request_state(&self) -> Option<Box<State>> {
        let _turn = self.request_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.last();
        if last.is_some() || self.finished.load(Ordering::SeqCst) {
            return last;
        }
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        *answer = None;
        self.requested.store(true, Ordering::SeqCst);
        poll::wake(&self.wake);
        let waited = self.answered.wait_timeout_while(answer, TIMEOUT, |answer| answer.is_none() && !self.finished.load(Ordering::SeqCst));
        let (mut answer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        answer.take()
    }

    /// Closes it: no answers follow.
    pub fn close(&self) {
        let _answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        self.finished.store(true, Ordering::SeqCst);
        self.answered.notify_all();
    }

    /// The state of the run at its end, before `end` cleared its maps.
    pub fn last(&self) -> Option<Box<State>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state before the run begins.
    pub fn blank(&self) -> &State {
        &self.initial_state
    }

    /// The contents of an earlier run that this one continues. Its start is that of the series.
    pub fn inherited(&self) -> Option<&State> {
        self.inherited.get()
    }

    /// When the series started, in nanoseconds since 1970: with the run, or with an earlier one that it continues.
    pub fn start_ns(&self) -> u64 {
        self.inherited().unwrap_or(&self.initial_state).start_ns
    }

    /// Answers all later requests with the final state.
    pub(super) fn finish(&self, context: &mut RunContext) -> anyhow::Result<()> {
        let state = Box::new(context.state_now(&self.initial_state)?);
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
        if !self.requested.swap(false, Ordering::SeqCst) {
            // measuring costs each run of a program some nanoseconds
            context.run_time_stats.take_if(|(_, asked)| asked.elapsed() > MEASURE_AFTER_REQUEST);
            return Ok(());
        }
        if let Some(statistics) = context.run_time_stats.take().map(|(statistics, _)| statistics).or_else(|| cost::measure().ok()) {
            context.run_time_stats = Some((statistics, Instant::now()));
        }
        poll::clear(&self.wake);
        let state = context.state_now(&self.initial_state)?;
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(state));
        self.answered.notify_all();
        Ok(())
    }
}

impl RunContext<'_> {
    /// The state of an unfinished run, with everything that was counted since the series began.
    fn state_now(&mut self, blank: &State) -> anyhow::Result<State> {
        let mut maps = Vec::new();
        for map in 0..self.manifest.maps.len() {
            let (_, fd) = self.map_at(map)?;
            let mut now = self.saved_at(map, fd)?;
            if let Some(totals) = &mut self.totals {
                totals.replace(map, &mut now);
            }
            maps.push(now);
        }
        Ok(State { maps, probes: self.counts(), run_times: self.run_times(), ..blank.clone() })
    }

    /// How long the programs have run while run times were measured.
    fn run_times(&self) -> Vec<RunTime> {
        // without CAP_SYS_ADMIN run times are not measured
        if self.run_time_stats.is_none() {
            return Vec::new();
        }
        let programs = self.manifest.programs.iter().zip(meter::read(self.loaded));
        programs.map(|(program, cost)| RunTime { probe: program.name(), ns: cost.ns, runs: cost.runs }).collect()
    }

    /// Continues the series of an earlier run. A map whose types have changed starts again, and so do values that are
    /// not sums.
    pub(super) fn inherit(&mut self, earlier: Option<Box<State>>, scrapes: Option<&Scrapes>) -> anyhow::Result<()> {
        let Some(earlier) = earlier else { return Ok(()) };
        let mut inherited = Vec::new();
        for before in earlier.maps {
            let Some(map) = self.manifest.maps.iter().position(|map| map.name == before.name) else { continue };
            let (_, fd) = self.map_at(map)?;
            let (old, new) = (before.types(), self.saved_at(map, fd)?.types());
            if old != new {
                self.warn(&format!("the series of {} start again: its type was {old}, and is {new}", before.name));
                continue;
            }
            inherited.push(before.clone());
            if let Some(totals) = &mut self.totals {
                totals.add_earlier(map, before);
            }
        }
        if let Some(scrapes) = scrapes {
            let state = State { maps: inherited, start_ns: earlier.start_ns, ..scrapes.blank().clone() };
            scrapes.inherited.get_or_init(|| state);
        }
        self.flush(true);
        Ok(())
    }

    /// Called before a map is cleared.
    pub(super) fn read_map(&mut self, map: usize, fd: MapFd) -> anyhow::Result<()> {
        if self.totals.is_none() || self.in_end {
            return Ok(());
        }
        let contents = self.saved_at(map, fd)?;
        if let Some(totals) = &mut self.totals {
            totals.add_contents(map, contents);
        }
        Ok(())
    }
}
