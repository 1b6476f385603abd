//! Reads the records of mappings on a separate thread. A kernel ring holds a few thousand records, which a busy machine
//! produces within milliseconds.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::mmap_events::Recorder;
use super::poll::{UNBOUNDED, eventfd, wait, wake};

/// The records, and the thread that reads them. Without a thread, they are read on demand.
#[derive(Debug)]
pub(super) struct MmapReader {
    recorder: Arc<Mutex<Recorder>>,
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    stop: OwnedFd,
    /// Readable if it has read records since this was last cleared.
    changed: OwnedFd,
}

/// The pause after the thread has read records: others often follow, and a ring does not fill up meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

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

    /// Readable if there are records; none if nobody watches for them.
    pub fn changed(&self) -> Option<&OwnedFd> {
        self.thread.as_ref().map(|thread| &thread.changed)
    }
}

impl Drop for MmapReader {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            wake(&thread.stop);
            // a thread that panicked has nothing to report
            let _ = thread.handle.join();
        }
    }
}

/// A thread that panicked while it held the lock has left the recorder consistent.
fn of(recorder: &Mutex<Recorder>) -> MutexGuard<'_, Recorder> {
    recorder.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(recorder: &Arc<Mutex<Recorder>>) -> Option<Thread> {
    let (stop, changed) = (eventfd().ok()?, eventfd().ok()?);
    let tell = changed.try_clone().ok()?;
    let stop_reader = stop.try_clone().ok()?;
    let recorder = Arc::clone(recorder);
    let take = move || {
        // It must run before the rings are full, and needs little time. If raising its priority is not permitted, it
        // runs without. Linux takes "this process" as this thread.
        let _ = rustix::process::setpriority_process(None, -20);
        let mut fds = vec![stop_reader.as_raw_fd()];
        fds.extend(of(&recorder).fds());
        while !super::poll::readable(&stop_reader) {
            wait(&fds, UNBOUNDED);
            if of(&recorder).read_rings() {
                wake(&tell);
                wait(&[stop_reader.as_raw_fd()], PAUSE);
            }
        }
    };
    let handle = std::thread::Builder::new().name("rbt-mmap".into()).stack_size(256 << 10).spawn(take).ok()?;
    Some(Thread { handle, stop, changed })
}
