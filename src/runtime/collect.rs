//! Empties the ring buffer on a separate thread, so that slow processing of one event does not cause the loss of others:
//! symbols from debug information, a map with a million elements, a pipe with a slow reader.
//!
//! Records wait in memory, in order, up to a limit. Beyond it the ring buffer fills up, and programs count the records that
//! they lose. While many wait, the thread that prints them runs with priority.
//!
//! Wakeups: A program wakes the thread only if `State::reader_sleeps` is set, and clears it (`artifact::State`), so a burst of
//! records causes one wakeup. After a drain that found records, the thread pauses for [`DRAIN_INTERVAL`] and drains again. Only if it
//! finds nothing does it set the flag, check once more (a record may have arrived before the flag was set), and block. No
//! wakeup is lost: a program commits its record before it reads the flag, the thread sets the flag before it reads the ring,
//! and poll(2) itself checks the ring before it sleeps. So an idle reader waits without a timeout. Only a ring so small that the
//! records of the programs that run at the same time may fill it can lack space for the record that wakes the reader. In this case
//! the wait is bounded: by [`MAX_WAIT`] at first, and by [`MAX_QUIET_WAIT`] after some time without records.
//!
//! Programs also wake the thread for what no record tells (`artifact::State::noticed`), such as the first run that a limit
//! concerns. The thread passes that on.
#![allow(unsafe_code)] // the scheduler's settings of a thread

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::poll::{FIRST, MAX_WAIT, UNBOUNDED, clear, eventfd, wait, wake};
use super::ring::Ring;
use super::shared::{Flags, Shared};

/// The pause between two drains of the ring while records keep coming.
const DRAIN_INTERVAL: Duration = Duration::from_millis(2);
/// The longest wait for a record of a small ring.
const MAX_QUIET_WAIT: Duration = Duration::from_secs(1);
/// Bytes to read at a time.
const TAKE: u64 = 256 << 10;
/// The limit of records in memory, as a multiple of the ring's size. The end of a run waits until they are printed.
const TIMES: u64 = 4;
/// Of this limit, the part of waiting records from which on their reader runs with priority, and the part below which it no longer
/// does. Otherwise, the programs that make the records leave it too little time to read them.
const HURRY_ABOVE: u64 = 4;
const HURRY_BELOW: u64 = 32;
/// A record follows its length.
const HEAD: usize = size_of::<u32>();
/// Number of buffers that are kept for reuse.
const MAX_SPARE_BUFFERS: usize = 2;

/// Consecutive records.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Where the next one starts.
    at: usize,
}

impl Batch {
    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(&(record.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// Passes the remaining records to `each`, in order and with those that follow, until it returns false.
    pub fn each(&mut self, mut each: impl FnMut(&[u8], Records) -> bool) {
        let mut records = Records(self.bytes.get(self.at..).unwrap_or_default());
        while let Some(record) = records.next() {
            self.at += HEAD + record.len();
            if !each(record, records) {
                return;
            }
        }
    }

    /// Bytes of unprocessed records.
    pub fn unprocessed_bytes(&self) -> u64 {
        self.bytes.len().saturating_sub(self.at) as u64
    }

    /// Are all records read?
    pub fn is_over(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

/// The records in the bytes of a batch.
#[derive(Clone, Copy)]
pub(super) struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_first_chunk::<HEAD>()?;
        let (record, rest) = rest.split_at_checked(u32::from_ne_bytes(*head) as usize)?;
        self.0 = rest;
        Some(record)
    }
}

/// The state that the two threads share.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Batch>,
    /// Bytes that were read and not yet processed.
    bytes: u64,
    /// A program has ended the run with this status, and all earlier records have been read.
    ended: Option<u8>,
    /// The thread must stop reading.
    stop: bool,
    /// The reader sleeps until it is woken.
    sleeps: bool,
    /// A program has told something that no record says, and the reader has not been woken for it.
    noticed: bool,
    spare: Vec<Vec<u8>>,
}

struct Channel {
    queue: Mutex<Queue>,
    /// There is room again, or it is to stop.
    not_full: Condvar,
    /// Wakes the reader.
    reader: OwnedFd,
    /// Tells the thread to stop.
    thread: OwnedFd,
}

impl Channel {
    /// A thread that panicked while it held the lock has left the queue consistent.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading thread, and the records that it has read.
pub(super) struct Collector {
    channel: Arc<Channel>,
    thread: Option<JoinHandle<Ring>>,
    /// The limit of records in memory, in bytes.
    limit: u64,
    /// The niceness of the reader before it was given priority, if it has that now.
    niceness: Cell<Option<i32>>,
}

impl Collector {
    /// Starts to empty the ring buffer. `state` must outlive the thread. `is_small`: the records of the
    /// programs that run at the same time may fill the ring.
    ///
    /// Errors: returns the ring if no thread can be created.
    pub fn start(ring: Ring, state: &Shared, is_small: bool) -> Result<Self, Ring> {
        let (Ok(reader), Ok(thread)) = (eventfd(), eventfd()) else { return Err(ring) };
        let channel = Arc::new(Channel { queue: Mutex::default(), not_full: Condvar::new(), reader, thread });
        let of_thread = Arc::clone(&channel);
        let limit = ring.size().saturating_mul(TIMES);
        // handed over through a slot, so that it is not lost if no thread can be created
        let place = Arc::new(Mutex::new(Some(ring)));
        let of_place = Arc::clone(&place);
        let flags = state.flags();
        let take = move || {
            // It must run before the ring is full. If raising its priority is not permitted, it runs without. Linux takes "this
            // process" as this thread.
            let _ = rustix::process::setpriority_process(None, FIRST);
            let ring = of_place.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(mut ring) = ring else { crate::bug!("the ring is handed over once") };
            collect(&mut ring, &of_thread, &flags, is_small);
            ring
        };
        match std::thread::Builder::new().name("rbt-ring".into()).stack_size(256 << 10).spawn(take) {
            Ok(thread) => Ok(Self { channel, thread: Some(thread), limit, niceness: Cell::new(None) }),
            Err(_) => match place.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(ring) => Err(ring),
                None => crate::bug!("a thread that was not started took the ring"),
            },
        }
    }

    /// The next records, if there are any. `done` are the previous ones, which are finished.
    pub fn next(&self, done: Batch) -> Option<Batch> {
        let mut queue = self.channel.lock();
        let size = done.bytes.len() as u64;
        if size > 0 {
            queue.bytes -= size.min(queue.bytes);
            if queue.spare.len() < MAX_SPARE_BUFFERS {
                let mut bytes = done.bytes;
                bytes.clear();
                queue.spare.push(bytes);
            }
            self.channel.not_full.notify_one();
        }
        let next = queue.waiting.pop_front();
        let waiting = queue.bytes;
        drop(queue);
        self.hurry(waiting);
        next
    }

    /// Gives this thread priority while many bytes of records wait for it.
    fn hurry(&self, waiting: u64) {
        match self.niceness.get() {
            None if waiting > self.limit / HURRY_ABOVE => {
                if let Ok(niceness) = rustix::process::getpriority_process(None)
                    && keep_from_children()
                    && rustix::process::setpriority_process(None, FIRST).is_ok()
                {
                    self.niceness.set(Some(niceness));
                }
            }
            Some(niceness) if waiting < self.limit / HURRY_BELOW => {
                let _ = rustix::process::setpriority_process(None, niceness);
                self.niceness.set(None);
            }
            None | Some(_) => {}
        }
    }

    /// The status with which a program ended the run, after all earlier records have been processed.
    pub fn ended(&self) -> Option<u8> {
        let queue = self.channel.lock();
        if queue.waiting.is_empty() { queue.ended } else { None }
    }

    /// Makes the descriptor readable when there are records or a notice. Returns false if there are some now.
    pub fn sleep(&self) -> bool {
        let mut queue = self.channel.lock();
        queue.sleeps = queue.waiting.is_empty() && !std::mem::take(&mut queue.noticed);
        queue.sleeps
    }

    /// See [`Collector::sleep`].
    pub fn fd(&self) -> RawFd {
        self.channel.reader.as_raw_fd()
    }

    /// Ends [`Collector::sleep`].
    pub fn wake(&self) {
        self.channel.lock().sleeps = false;
        clear(&self.channel.reader);
    }

    /// Stops the thread; returns the ring, unless the thread has panicked, and the pending records.
    pub fn stop(mut self) -> (Option<Ring>, VecDeque<Batch>) {
        let ring = self.end();
        let waiting = std::mem::take(&mut self.channel.lock().waiting);
        (ring, waiting)
    }

    fn end(&mut self) -> Option<Ring> {
        self.hurry(0);
        self.channel.lock().stop = true;
        self.channel.not_full.notify_one();
        wake(&self.channel.thread);
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end();
    }
}

/// Keeps a negative niceness of this thread from the programs that it starts: see `SCHED_RESET_ON_FORK` in sched(7). Returns false if
/// somebody has chosen how the thread is scheduled, or if it is not permitted.
fn keep_from_children() -> bool {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is this thread, and the parameter outlives the call.
    unsafe {
        libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER
            && libc::sched_setscheduler(0, libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, &raw const none) == 0
    }
}

/// The thread's main loop.
fn collect(ring: &mut Ring, channel: &Channel, state: &Flags, is_small: bool) {
    let limit = ring.size().saturating_mul(TIMES);
    let watermark = ring.size() / 16;
    let mut quiet_wait = MAX_WAIT;
    loop {
        let mut bytes = {
            let queue = channel.lock();
            let queue = channel.not_full.wait_timeout_while(queue, MAX_WAIT, |d| !d.stop && d.bytes >= limit);
            let (mut queue, late) = queue.unwrap_or_else(PoisonError::into_inner);
            if queue.stop {
                return;
            }
            if late.timed_out() {
                continue;
            }
            queue.spare.pop().unwrap_or_default()
        };
        bytes.clear();
        let mut batch = Batch { bytes, at: 0 };
        // read before the drain, which then sees every record that was written before it
        let requested = state.ended();
        let found = ring.drain(TAKE, &mut |record| {
            batch.push(record);
            true
        });
        // a program sets it before it writes a record that it then discards
        let noticed = state.take_notice();
        {
            let mut queue = channel.lock();
            if !found.has_more && !found.busy {
                queue.ended = queue.ended.or(requested);
            }
            let changed = !batch.bytes.is_empty() || queue.ended.is_some() || noticed;
            if batch.bytes.is_empty() {
                if queue.spare.len() < MAX_SPARE_BUFFERS {
                    queue.spare.push(batch.bytes);
                }
            } else {
                queue.bytes += batch.bytes.len() as u64;
                queue.waiting.push_back(batch);
            }
            if changed && std::mem::take(&mut queue.sleeps) {
                wake(&channel.reader);
            } else {
                queue.noticed |= noticed;
            }
        }
        if found.has_more || found.bytes > watermark {
            continue; // they come faster than a pause allows
        }
        let stop = channel.thread.as_raw_fd();
        if found.bytes > 0 || found.busy {
            quiet_wait = MAX_WAIT;
            wait(&[stop], DRAIN_INTERVAL);
        } else {
            state.set_sleeps(true);
            wait(&[ring.fd(), stop], if is_small { quiet_wait } else { UNBOUNDED });
            state.set_sleeps(false);
            quiet_wait = (quiet_wait * 2).min(MAX_QUIET_WAIT);
        }
    }
}
