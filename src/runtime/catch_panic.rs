//! Calls of code that may panic on a malformed file.
//!
//! `rbt` unwinds such a call. `rbt-run` cannot: without tables for unwinding it is a fifth smaller (the profile `runner`).
//! There, another thread makes these calls while the caller waits, and the thread stops for ever where it panics.

use std::cell::Cell;
use std::panic;
use std::sync::Once;

#[cfg(not(panic = "abort"))]
pub(super) use unwinding::catch_panic;

#[cfg(panic = "abort")]
pub(super) use stopping::catch_panic;

/// The call panicked. What it had changed is in an unknown state.
pub(super) struct Panicked;

thread_local! {
    /// What a panic on this thread does instead of its report.
    static INSTEAD: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Makes panics obey [`INSTEAD`].
fn install() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| match INSTEAD.get() {
            Some(instead) => instead(),
            None => before(info),
        }));
    });
}

#[cfg(any(test, not(panic = "abort")))]
mod unwinding {
    use super::{INSTEAD, Panicked, install};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Makes a call that may panic on a malformed file, without a message on standard error.
    pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
        install();
        INSTEAD.set(Some(|| ()));
        let result = catch_unwind(AssertUnwindSafe(call));
        INSTEAD.set(None);
        result.map_err(|_| Panicked)
    }
}

#[cfg(any(test, panic = "abort"))]
mod stopping {
    #![allow(unsafe_code)] // a thread borrows what the waiting caller has

    use std::cell::RefCell;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::thread;

    use super::{INSTEAD, Panicked, install};

    /// That of the main thread, because symbols of any depth are read on it.
    const STACK: usize = 8 << 20;

    type Job = Box<dyn FnOnce() + Send>;

    /// A thread that makes calls.
    struct Worker {
        jobs: SyncSender<Job>,
        /// Did the call return?
        ended: Receiver<bool>,
    }

    thread_local! {
        /// The worker of this thread, unless a call stopped it.
        static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
        /// On a worker: to report the end of a call.
        static ENDED: RefCell<Option<SyncSender<bool>>> = const { RefCell::new(None) };
    }

    impl Worker {
        fn start() -> Option<Self> {
            let (jobs, received) = sync_channel::<Job>(1);
            let (end, ended) = sync_channel(1);
            let work = move || {
                ENDED.set(Some(end.clone()));
                INSTEAD.set(Some(stop));
                for job in received {
                    job();
                    if end.send(true).is_err() {
                        break;
                    }
                }
            };
            thread::Builder::new().name("rbt-symbols".into()).stack_size(STACK).spawn(work).ok()?;
            Some(Self { jobs, ended })
        }
    }

    /// Stops the thread for ever. What it borrows stays borrowed, and is not used any more.
    fn stop() {
        ENDED.with_borrow(|end| end.as_ref().map(|end| end.send(false)));
        loop {
            thread::park();
        }
    }

    /// Makes a call that may panic on a malformed file, without a message on standard error.
    pub fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, Panicked> {
        install();
        let Some(worker) = WORKER.take().or_else(Worker::start) else { return Ok(call()) };
        let mut result = None;
        let to = &mut result;
        let job: Box<dyn FnOnce() + '_> = Box::new(move || *to = Some(call()));
        // SAFETY: This function waits until the job has ended, or until its thread has stopped and uses nothing of it any more.
        // So the job does not outlive its borrows, and two threads never use them at a time.
        let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Job>(job) };
        if worker.jobs.send(job).is_ok() && worker.ended.recv() == Ok(true) {
            WORKER.set(Some(worker));
        }
        result.ok_or(Panicked)
    }
}

#[cfg(test)]
mod tests {
    use super::{Panicked, stopping, unwinding};
    use std::hint::black_box;
    use std::process::Command;

    fn panics() -> i32 {
        if black_box(true) { panic!("not seen") } else { 0 }
    }

    #[test]
    fn panics_are_answers() {
        assert!(unwinding::catch_panic(panics).is_err());
        assert_eq!(unwinding::catch_panic(|| 1).ok(), Some(1));
    }

    #[test]
    #[ignore = "no other hook can be set afterwards: run by the test below"]
    fn stops() {
        let thread = || std::thread::current().id();
        let here = thread();
        let mut count = 0;
        for _ in 0..3 {
            let counted = stopping::catch_panic(|| {
                count += 1;
                thread()
            });
            assert!(counted.as_ref().is_ok_and(|first| *first != here) && counted.ok() == stopping::catch_panic(thread).ok());
            assert!(matches!(stopping::catch_panic(panics), Err(Panicked)));
        }
        std::process::exit(40 + count);
    }

    #[test]
    fn panics_are_answers_without_unwinding() {
        let exe = std::env::current_exe().unwrap();
        let run = Command::new(exe).args(["--ignored", "--exact", "runtime::catch_panic::tests::stops"]).output().unwrap();
        let text = String::from_utf8_lossy(&run.stderr);
        assert_eq!((run.status.code(), text.contains("not seen")), (Some(43), false), "{text}");
    }
}
