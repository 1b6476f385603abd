//! The state of a run in progress, for a thread that requests it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::context::RunContext;
use super::load::MapFd;
use super::totals::{Reading, Totals};
use super::{cost, meter, poll};
use crate::state::{RunTime, State};

/// How long a run may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long run times are measured after a request.
const MEASURE_AFTER_REQUEST: Duration = Duration::from_secs(300);

/// A reader that may stop to read is forgotten after this time.
const MAX_SILENCE: Duration = Duration::from_secs(300);

/// Requests to a run, one at a time.
#[derive(Debug)]
pub struct Scrapes {
    readers: Mutex<Vec<ReaderState>>,
    wake: OwnedFd,
    requested: AtomicBool,
    /// The run is over, with or without a last state.
    finished: AtomicBool,
    /// The state before the run begins.
    initial_state: State,
    /// The contents of an earlier run that this one continues.
    inherited: OnceLock<State>,
    /// With the number of the reading, unless it is the last state.
    answer: Mutex<Option<(Box<State>, Option<Reading>)>>,
    answered: Condvar,
    /// Held by a requester until the answer is there.
    request_lock: Mutex<()>,
    /// The state of the run at its end.
    last: Mutex<Option<Box<State>>>,
}

/// An exporter, which reads the state of a run again and again.
#[derive(Debug)]
pub struct Reader {
    scrapes: Arc<Scrapes>,
    /// Its place in [`Scrapes::readers`].
    index: usize,
}

#[derive(Debug)]
struct ReaderState {
    /// It may stop to read without notice.
    may_leave: bool,
    /// When it last requested a state; none before the first request.
    requested_at: Option<Instant>,
    /// The last reading that it got.
    read: Reading,
    /// The last reading that its receiver has.
    confirmed: Reading,
}

impl ReaderState {
    fn is_active(&self) -> bool {
        !self.may_leave || self.requested_at.is_some_and(|at| at.elapsed() < MAX_SILENCE)
    }
}

impl Reader {
    /// Requests the state, and waits for it; none if the run does not answer in time.
    pub fn request_state(&self) -> Option<Box<State>> {
        self.update(|reader| reader.requested_at = Some(Instant::now()));
        let (state, reading) = self.scrapes.request_state()?;
        if let Some(reading) = reading {
            self.update(|reader| reader.read = reading);
        }
        Some(state)
    }

    /// Tells the run that the receiver has the state that was requested last. Until all readers have done so, a series
    /// in it does not end.
    pub fn confirm(&self) {
        self.update(|reader| reader.confirmed = reader.read);
    }

    /// The run.
    pub fn scrapes(&self) -> &Scrapes {
        &self.scrapes
    }

    fn update(&self, change: impl FnOnce(&mut ReaderState)) {
        let mut readers = self.scrapes.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = readers.get_mut(self.index) {
            change(reader);
        }
    }
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
            readers: Mutex::default(),
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

    /// Adds a reader. One that may leave counts from its first request, and until it has requested nothing for some minutes.
    pub fn reader(self: &Arc<Self>, may_leave: bool) -> Reader {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.push(ReaderState { may_leave, requested_at: None, read: 0, confirmed: 0 });
        Reader { scrapes: self.clone(), index: readers.len() - 1 }
    }

    /// The last reading whose data, or later data, all receivers have.
    fn confirmed(&self) -> Reading {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.iter().filter(|reader| reader.is_active()).map(|reader| reader.confirmed).min().unwrap_or(0)
    }

    fn request_state(&self) -> Option<(Box<State>, Option<Reading>)> {
        let _turn = self.request_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.last();
        if last.is_some() || self.finished.load(Ordering::SeqCst) {
            return last.map(|state| (state, None));
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
        // the run that continues this one does not know which series have just ended, so none ends now
        let (state, _) = context.state_now(&self.initial_state, 0)?;
        let state = Box::new(state);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(state.clone());
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((state, None));
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
        let (state, reading) = context.state_now(&self.initial_state, self.confirmed())?;
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((Box::new(state), Some(reading)));
        self.answered.notify_all();
        Ok(())
    }
}

impl RunContext<'_> {
    /// The state of an unfinished run, with everything that was counted since the series began, and the number of this
    /// reading. All receivers have the data of the reading `confirmed`.
    fn state_now(&mut self, blank: &State, confirmed: Reading) -> anyhow::Result<(State, Reading)> {
        let mut maps = Vec::new();
        if let Some(totals) = &mut self.totals {
            totals.begin_reading(confirmed);
        }
        for map in 0..self.manifest.maps.len() {
            let (_, fd) = self.map_at(map)?;
            let mut now = self.saved_at(map, fd)?;
            if let Some(totals) = &mut self.totals {
                totals.replace(map, &mut now);
            }
            maps.push(now);
        }
        let reading = self.totals.as_mut().map(Totals::end_reading).unwrap_or_default();
        Ok((State { maps, probes: self.counts(), run_times: self.run_times(), ..blank.clone() }, reading))
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
            let now = self.saved_at(map, fd)?;
            if before.widened(&now).is_none() {
                let (old, new) = (before.types(), now.types());
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
