//! The source of records: the ring buffer, or the thread that empties it.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::collect::{Batch, Collector};
use super::context::{RunContext, SLOW_RECORD};
use super::events::Events;
use super::poll::wait;
use super::problems;
use super::python::{self, PYTHON};
use super::ring::{Drained, Ring};
use super::shared::Shared;
use crate::settings::Settings;

/// Bytes of records between two checks of signals and of the output.
const BATCH: u64 = 256 * 1024;
/// If the end takes this long, rbt reports why.
const REPORT_AFTER: Duration = Duration::from_secs(1);
/// A ring of fewer bytes may be full of the records of programs that run at the same time. (rbt makes such rings only if the
/// user asks for it, or for a few short records.)
const SMALL_RING: u64 = 1 << 20;
/// How long the end waits for programs that are writing a record.
pub(super) const MAX_WRITER_WAIT: Duration = Duration::from_millis(20);

/// The source of records, and their reader.
pub(super) struct Source {
    pub events: Events,
    /// Owned here before and after the loop, and by the collector during the loop.
    ring: Option<Ring>,
    collector: Option<Collector>,
    /// Records of the collector: the current ones, and after the loop the remaining ones.
    batch: Batch,
    pending: VecDeque<Batch>,
}

/// The result of [`Source::done`].
pub(super) struct DrainResult {
    /// All records were read.
    pub is_complete: bool,
    /// A program has ended the run with this status, and all earlier records are processed.
    pub exit_status: Option<u8>,
}

impl Source {
    pub fn new(ring: Option<Ring>, events: Events) -> Self {
        Self { events, ring, collector: None, batch: Batch::default(), pending: VecDeque::new() }
    }

    /// Starts the thread that empties the ring. If it cannot be created, this thread does so.
    pub fn collect(&mut self, state: &Shared, settings: &Settings) {
        let is_small = |ring: &Ring| settings.perf_rb_pages > 0 && ring.size() < SMALL_RING;
        match self.ring.take().map(|ring| (is_small(&ring), ring)).map(|(is_small, ring)| Collector::start(ring, state, is_small)) {
            Some(Ok(collector)) => self.collector = Some(collector),
            Some(Err(ring)) => self.ring = Some(ring),
            None => {}
        }
    }

    /// Processes some records: at most a batch.
    pub fn done(&mut self, context: &mut RunContext, state: &Shared) -> DrainResult {
        let Some(collector) = &self.collector else {
            // read before the drain, which then sees every record that was written before it
            let requested = state.ended();
            let found = self.drain(context, BATCH);
            let all = !found.has_more && !found.busy;
            return DrainResult { is_complete: all, exit_status: requested.filter(|_| all) };
        };
        if self.batch.is_over() {
            // read before the next batch, which then contains all earlier records
            let requested = collector.ended();
            match collector.next(std::mem::take(&mut self.batch)) {
                Some(batch) => self.batch = batch,
                None => return DrainResult { is_complete: true, exit_status: requested },
            }
        }
        do_batch(&mut self.batch, &mut self.events, context);
        DrainResult { is_complete: false, exit_status: None }
    }

    /// Waits for records, for one of these descriptors to be readable, or for the timeout.
    pub fn sleep(&self, nap: Duration, others: &[RawFd; 6]) {
        match &self.collector {
            Some(collector) => {
                if collector.sleep() {
                    let [signal, child, target, request, keys, changes] = *others;
                    wait(&[collector.fd(), signal, child, target, request, keys, changes], nap);
                    collector.wake();
                }
            }
            // nothing wakes us then
            None if self.ring.is_some() => wait(others, SLOW_RECORD),
            None => wait(others, nap),
        }
    }

    /// Takes the ring back from the collector.
    fn collected(&mut self) {
        if let Some(collector) = self.collector.take() {
            (self.ring, self.pending) = collector.stop();
        }
    }

    /// Processes some `limit` bytes of records at most, until one calls `exit()` or the output fails.
    fn drain(&mut self, context: &mut RunContext, limit: u64) -> Drained {
        let Some(ring) = &mut self.ring else { return Drained::default() };
        let events = &mut self.events;
        context.since = Instant::now();
        ring.drain(limit, &mut |record| do_record(record, events, context))
    }

    /// Processes the records that are present now; more than that may arrive in the meantime.
    pub fn drain_once(&mut self, context: &mut RunContext) {
        let capacity = self.ring.as_ref().map_or(0, Ring::size);
        let mut done = 0;
        while context.is_running() && done <= capacity {
            let found = self.drain(context, BATCH);
            done += found.bytes;
            if !found.has_more {
                break;
            }
        }
    }

    /// Processes all pending records, including those that other programs sent during a call of `exit()`. The programs
    /// have been stopped.
    pub fn finish(&mut self, context: &mut RunContext) {
        context.ending = true;
        self.collected();
        let since = Instant::now();
        let mut reported = false;
        let left = |batch: &Batch, pending: &VecDeque<Batch>| pending.iter().chain([batch]).map(Batch::unprocessed_bytes).sum::<u64>();
        let at_first = left(&self.batch, &self.pending);
        while context.is_running() {
            do_batch(&mut self.batch, &mut self.events, context);
            context.flush_between();
            if !reported && since.elapsed() >= REPORT_AFTER {
                reported = true;
                let left = left(&self.batch, &self.pending);
                // otherwise it is over before a user could read the note
                if left > 0 && left >= at_first.saturating_sub(left) {
                    context.still(left);
                }
            }
            if self.batch.is_over() {
                match self.pending.pop_front() {
                    Some(batch) => self.batch = batch,
                    None => break,
                }
            }
        }
        (self.batch, self.pending) = Default::default();
        let capacity = self.ring.as_ref().map_or(0, Ring::size);
        let since = Instant::now();
        let mut done = 0;
        while context.is_running() {
            let found = self.drain(context, BATCH);
            done += found.bytes;
            context.flush(false);
            // After the programs stopped, the ring can have held at most its size; a program that does not stop may
            // send more.
            if done > capacity {
                break;
            }
            if found.busy && since.elapsed() < MAX_WRITER_WAIT {
                std::thread::sleep(Duration::from_millis(1));
            } else if found.busy || !found.has_more {
                break;
            }
        }
        if let Some(ring) = &mut self.ring {
            ring.skip();
        }
    }
}

/// Processes records, until one calls `exit()`, the output fails, or one was slow.
fn do_batch(batch: &mut Batch, events: &mut Events, context: &mut RunContext) {
    context.since = Instant::now();
    batch.each(|record, following| {
        if let Some(map) = events.taken_map(record) {
            context.switch_ahead(map, || events.taken_maps(following));
        }
        do_record(record, events, context)
    });
}

/// Processes a record. Returns true if the next one follows immediately.
fn do_record(record: &[u8], events: &mut Events, context: &mut RunContext) -> bool {
    if python::is_code(record) {
        if let Some(python) = PYTHON.get() {
            (python.add_record)(record);
        }
        return true;
    }
    context.date(record);
    if problems::is_failure(record) {
        context.take_problem(record);
        context.after_record();
        return context.is_running() && !std::mem::take(&mut context.slow_record);
    }
    context.empty_result.record();
    if context.listener.is_some() {
        context.source = events.source(record, context.boot_to_unix_ns);
    }
    events.handle(record, context);
    context.source = None;
    context.after_record();
    context.is_running() && !std::mem::take(&mut context.slow_record)
}
