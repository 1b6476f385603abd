//! Reads the records of mappings on a separate thread. A kernel ring holds a few thousand records, which a busy machine
//! produces within milliseconds.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::mmap_events::Recorder;
use super::poll::{eventfd, wait, wake};

/// The records, and the thread that reads them. Without a thread, they are read on demand.
#[derive(Debug)]
pub(super) struct MmapReader {
    recorder: Arc<Mutex<Recorder>>,
    thread: Option<(JoinHandle<()>, OwnedFd)>,
}

/// The kernel wakes the thread when a ring is a quarter full.
const POLL_TIMEOUT: Duration = Duration::from_secs(10);

impl MmapReader {
    /// Starts recording.
    ///
    /// Errors: see [`Recorder::open`].
    pub fn start() -> std::io::Result<Self> {
        let recorder = Arc::new(Mutex::new(Recorder::open()?));
        Ok(Self { thread: spawn(&recorder), recorder })
    }

    pub fn recorder(&self) -> MutexGuard<'_, Recorder> {
        of(&self.recorder)
    }
}

impl Drop for MmapReader {
    fn drop(&mut self) {
        if let Some((thread, stop)) = self.thread.take() {
            wake(&stop);
            // a thread that panicked has nothing to report
            let _ = thread.join();
        }
    }
}

/// A thread that panicked while it held the lock has left the recorder consistent.
fn of(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(recorder: &Arc<Mutex<Recorder>>) -> Option<(JoinHandle<()>, OwnedFd)> {
    let stop = eventfd().ok()?;
    let stop_reader = stop.try_clone().ok()?;
    let recorder = Arc::clone(recorder);
    let take = move || {
        // It must run before the rings are full, and needs little time. If raising its priority is not permitted, it
        // runs without. Linux takes "this process" as this thread.
        let _ = rustix::process::setpriority_process(None, -20);
        let mut fds = vec![stop_reader.as_raw_fd()];
        fds.extend(of(&recorder).fds());
        while !super::poll::readable(&stop_reader) {
            wait(&fds, POLL_TIMEOUT);
            of(&recorder).read_rings();
        }
    };
    let thread = std::thread::Builder::new().name("rbt-mmap".into()).stack_size(256 << 10).spawn(take).ok()?;
    Some((thread, stop))
}
