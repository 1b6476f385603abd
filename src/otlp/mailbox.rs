//! The queue of records to send, and the signal that the run has ended.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum size of the pending items in bytes.
const MAX_BYTES: usize = 64 << 20;
/// The size of a batch in bytes that ends it. Collectors limit the size of a request.
const BATCH_BYTES: usize = 4 << 20;

/// The queue between the run and a thread that sends.
#[derive(Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    state_changed: Condvar,
}

#[derive(Default)]
struct Inner {
    items: VecDeque<Vec<u8>>,
    /// The size of the items.
    bytes: usize,
    /// Number of items that were taken and are not finished.
    in_flight: usize,
    /// Set when the run is over: the time at which sending ends.
    until: Option<Instant>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item unless there are `max_items` already or they are too large; wakes the thread if there are enough for a batch.
    pub fn push(&self, item: Vec<u8>, max_items: usize, batch: usize) -> bool {
        let mut inner = self.lock();
        let (before, bytes) = (inner.bytes, inner.bytes.saturating_add(item.len()));
        if inner.items.len() >= max_items || bytes > MAX_BYTES {
            return false;
        }
        inner.items.push_back(item);
        inner.bytes = bytes;
        if inner.items.len() == batch || before < BATCH_BYTES && bytes >= BATCH_BYTES {
            self.state_changed.notify_all();
        }
        true
    }

    /// Takes up to this many items, but not too many bytes, and waits this long for them unless the run is over.
    pub fn take(&self, batch: usize, delay: Duration) -> Vec<Vec<u8>> {
        let until = Instant::now() + delay;
        let mut inner = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if inner.items.len() >= batch || inner.bytes >= BATCH_BYTES || inner.until.is_some() || left.is_zero() {
                let mut taken = Vec::new();
                let mut bytes = 0;
                while taken.len() < batch && bytes < BATCH_BYTES {
                    let Some(item) = inner.items.pop_front() else { break };
                    bytes += item.len();
                    taken.push(item);
                }
                inner.bytes -= bytes;
                inner.in_flight = taken.len();
                return taken;
            }
            inner = self.state_changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits, but not beyond the end of the run; after that, not beyond the end of sending.
    pub fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut inner = self.lock();
        let ran = inner.until.is_none();
        loop {
            let until = inner.until.map_or(until, |end| end.min(until));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || ran && inner.until.is_some() {
                return;
            }
            inner = self.state_changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes that the run is over.
    pub fn end(&self, until: Instant) {
        self.lock().until = Some(until);
        self.state_changed.notify_all();
    }

    /// How much time is left for sending; none if the run continues.
    pub fn remaining(&self) -> Option<Duration> {
        self.lock().until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Is the time for sending over?
    pub fn is_over(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// Marks the taken items as finished.
    pub fn done(&self) {
        self.lock().in_flight = 0;
    }

    /// Number of pending and unfinished items.
    pub fn unsent(&self) -> u64 {
        let inner = self.lock();
        (inner.items.len() + inner.in_flight) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailbox_is_bounded_and_ends() {
        let mailbox = Mailbox::default();
        let pushed: Vec<bool> = (0..4).map(|i| mailbox.push(vec![i], 3, 2)).collect();
        assert_eq!(pushed, [true, true, true, false]);
        assert_eq!(mailbox.take(2, Duration::MAX / 1000).len(), 2);
        mailbox.end(Instant::now());
        assert_eq!((mailbox.take(2, Duration::from_secs(9)).len(), mailbox.unsent(), mailbox.is_over()), (1, 1, true));
        mailbox.done();
        assert_eq!(mailbox.unsent(), 0);
        mailbox.pause(Duration::from_secs(9));
    }

    #[test]
    fn large_items_fill_the_mailbox_and_batches() {
        let mailbox = Mailbox::default();
        let size = BATCH_BYTES / 2;
        let fit = (0..).take_while(|_| mailbox.push(vec![0; size], 1 << 20, 1 << 20)).count();
        assert_eq!(fit, MAX_BYTES / size);
        // without waiting
        assert_eq!(mailbox.take(1 << 20, Duration::MAX / 1000).len(), 2);
        assert!(mailbox.push(vec![0; 2 * size], 1 << 20, 1 << 20) && !mailbox.push(vec![0], 1 << 20, 1 << 20));
    }
}
