//! Signals that end a run, which must print its results first.
//!
//! rbt uses handlers instead of a signalfd, because programs that `system()` starts would inherit blocked signals, and because
//! a blocked signal could not end a run that is stuck in a write to a full pipe. A second SIGINT or SIGTERM, a moment after the
//! first, ends the process immediately. So does the first, if the run has ended before and its results are being printed.
#![allow(unsafe_code)] // sigaction(2)

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::poll;
use super::remote::Remote;
use super::shared::Flags;
use crate::terminal::screen;
use crate::{progress, streams};

/// The number of SIGINT and SIGTERM signals, and the last of them.
static END_SIGNALS: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);
static FIRST: AtomicU64 = AtomicU64::new(0);
/// When the run ended and its results began to be printed; 0 before that.
static RESULTS: AtomicU64 = AtomicU64::new(0);
static USER: AtomicU32 = AtomicU32::new(0);
static RELOADS: AtomicU32 = AtomicU32::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// The flag by which programs that rbt runs itself end their loops; null while none runs.
static LOOPS: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());

/// Signals within this many milliseconds of the first are the same request: timeout(1) sends each twice, to the process and
/// to its group.
const DUPLICATE_MS: u64 = 250;

/// The message if a signal ends the process while it prints results. The last line of these may be incomplete.
const CUT: &[u8] = b"\nwarning: interrupted, not all results were printed\n";

const CAUGHT: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1];

/// Handles SIGINT, SIGTERM and SIGUSR1 while it lives, unless another thread controls the run.
pub(super) struct Signals {
    from: SignalSource,
    /// When the run ends automatically.
    deadline: Cell<Option<Instant>>,
}

enum SignalSource {
    SignalHandlers(SignalHandlers),
    Managed(Arc<Remote>),
}

pub(super) struct SignalHandlers {
    wake: OwnedFd,
    before: Vec<(libc::c_int, libc::sigaction)>,
}

/// `CLOCK_MONOTONIC` in milliseconds; clock_gettime(2) may be called in a handler.
fn milliseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

extern "C" fn caught(signal: libc::c_int) {
    // Only what signal-safety(7) allows: atomics, write, _exit.
    unsafe {
        let errno = *libc::__errno_location();
        if signal == libc::SIGUSR1 {
            USER.fetch_add(1, Ordering::Relaxed);
        } else if signal == libc::SIGHUP {
            RELOADS.fetch_add(1, Ordering::Relaxed);
        } else {
            LAST.store(signal, Ordering::Relaxed);
            let now = milliseconds();
            // counted first: a reader of the address reads the count after it
            let before = END_SIGNALS.fetch_add(1, Ordering::SeqCst);
            let loops = LOOPS.load(Ordering::SeqCst);
            if !loops.is_null() {
                AtomicU64::from_ptr(loops).store(1, Ordering::SeqCst);
            }
            let results = RESULTS.load(Ordering::Relaxed);
            let ended = match before {
                // it only ends the loops of the program of `end`
                0 if !loops.is_null() => 0,
                0 => results,
                _ => FIRST.load(Ordering::Relaxed),
            };
            if before == 0 {
                FIRST.store(now, Ordering::Relaxed);
            }
            if ended != 0 && now.wrapping_sub(ended) >= DUPLICATE_MS {
                screen::abandon();
                progress::abandon();
                streams::abandon();
                if results != 0 {
                    libc::write(libc::STDERR_FILENO, CUT.as_ptr().cast(), CUT.len());
                }
                libc::_exit(128 + signal);
            }
        }
        let one = 1u64;
        libc::write(WAKE.load(Ordering::Relaxed), (&raw const one).cast(), 8);
        *libc::__errno_location() = errno;
    }
}

/// Counts SIGUSR1 until the run handles it, because it would end the process by default.
pub extern "C" fn keep_user_signals() {
    // SAFETY: see [`Signals::catch`]
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = caught as extern "C" fn(libc::c_int) as usize;
        new.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&mut new.sa_mask);
        libc::sigaction(libc::SIGUSR1, &new, std::ptr::null_mut());
    }
}

impl Signals {
    /// Installs the handlers.
    pub fn catch() -> io::Result<Self> {
        Ok(Self::from(SignalSource::SignalHandlers(SignalHandlers::catch(&CAUGHT)?)))
    }

    /// The run has ended, and its results are printed next.
    pub fn results_begin(&self) {
        if let SignalSource::SignalHandlers(_) = &self.from {
            RESULTS.store(milliseconds(), Ordering::Relaxed);
        }
    }

    /// Does not change the process's signal handlers.
    pub fn managed_by(remote: Arc<Remote>) -> Self {
        Self::from(SignalSource::Managed(remote))
    }

    fn from(from: SignalSource) -> Self {
        Self { from, deadline: Cell::new(None) }
    }

    /// Ends the run this long from now.
    pub fn end_after(&self, time: Duration) {
        self.deadline.set(Instant::now().checked_add(time));
    }

    /// The maximum wait for an event.
    pub fn max_wait(&self, longest: Duration) -> Duration {
        let left = self.deadline.get().map(|at| at.saturating_duration_since(Instant::now()));
        // poll(2) counts milliseconds
        left.map_or(longest, |left| longest.min(left + Duration::from_millis(1)))
    }

    /// Readable when a signal has arrived.
    pub fn fd(&self) -> RawFd {
        self.wake().as_raw_fd()
    }

    fn wake(&self) -> &OwnedFd {
        match &self.from {
            SignalSource::SignalHandlers(caught) => &caught.wake,
            SignalSource::Managed(remote) => remote.fd(),
        }
    }

    /// Runs `f`, which runs a program whose loops must end when the run ends. Its thread stays in the kernel and receives no
    /// signals, so another thread handles them meanwhile. `known` is the number of earlier requests, which do not count.
    pub fn interruptible<T>(&self, flags: Flags, known: u32, run: impl FnOnce() -> T) -> T {
        let result = match &self.from {
            SignalSource::SignalHandlers(_) => {
                LOOPS.store(flags.interrupted(), Ordering::SeqCst);
                flags.interrupt(self.end_requests() > known);
                let over = AtomicBool::new(false);
                let result = std::thread::scope(|scope| {
                    let wait = || {
                        while !over.load(Ordering::SeqCst) {
                            std::thread::park();
                        }
                    };
                    // without a thread, the run cannot be interrupted
                    let other = std::thread::Builder::new().stack_size(1 << 16).spawn_scoped(scope, wait);
                    let before = other.is_ok().then(|| block(&CAUGHT));
                    let result = run();
                    if let Some(before) = before {
                        // SAFETY: restores the previous mask
                        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
                    }
                    over.store(true, Ordering::SeqCst);
                    if let Ok(other) = &other {
                        other.thread().unpark();
                    }
                    result
                });
                LOOPS.store(std::ptr::null_mut(), Ordering::SeqCst);
                result
            }
            SignalSource::Managed(remote) => {
                remote.interruptible(Some(flags));
                flags.interrupt(self.end_requests() > known);
                let result = run();
                remote.interruptible(None);
                result
            }
        };
        flags.interrupt(false);
        result
    }

    fn is_overdue(&self) -> bool {
        self.deadline.get().is_some_and(|at| Instant::now() >= at)
    }

    /// The signal that ended the run, if one did; 0 if it was something else.
    pub fn end(&self) -> Option<i32> {
        if self.is_overdue() {
            return Some(0);
        }
        match &self.from {
            SignalSource::SignalHandlers(_) => (END_SIGNALS.load(Ordering::Relaxed) > 0).then(|| LAST.load(Ordering::Relaxed)),
            SignalSource::Managed(remote) => remote.ended().then_some(0),
        }
    }

    /// The number of requests to end the run.
    pub fn end_requests(&self) -> u32 {
        let overdue = u32::from(self.is_overdue());
        match &self.from {
            SignalSource::SignalHandlers(_) => overdue + END_SIGNALS.load(Ordering::SeqCst),
            SignalSource::Managed(remote) => overdue + u32::from(remote.ended()),
        }
    }

    /// Should the run pause or resume? `None` if that has not changed since the last call.
    pub fn paused(&self) -> Option<bool> {
        match &self.from {
            SignalSource::SignalHandlers(_) => None,
            SignalSource::Managed(remote) => remote.paused(),
        }
    }

    /// Resets [`Signals::fd`], and returns the number of SIGUSR1 signals since the last call.
    pub fn acknowledge(&self) -> u32 {
        poll::clear(self.wake());
        match &self.from {
            SignalSource::SignalHandlers(_) => USER.swap(0, Ordering::Relaxed),
            SignalSource::Managed(remote) => remote.signals(),
        }
    }
}

/// Leaves signals to other threads, and returns those that arrived on this one before.
fn block(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: writes to our own signal sets
    unsafe {
        let (mut new_mask, mut old_mask): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut new_mask);
        for signal in signals {
            libc::sigaddset(&mut new_mask, *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &new_mask, &mut old_mask);
        old_mask
    }
}

/// Runs `f`, which may wait for programs. Their loops end if it takes longer than `patience`.
pub(super) fn with_loop_deadline<T>(flags: Flags, timeout: Duration, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        let watch = || {
            let since = Instant::now();
            while !over.load(Ordering::SeqCst) && since.elapsed() < timeout {
                std::thread::park_timeout(timeout.saturating_sub(since.elapsed()));
            }
            if !over.load(Ordering::SeqCst) {
                flags.interrupt(true);
            }
        };
        let other = std::thread::Builder::new().stack_size(1 << 16).spawn_scoped(scope, watch);
        let result = work();
        over.store(true, Ordering::SeqCst);
        if let Ok(other) = &other {
            other.thread().unpark();
        }
        result
    });
    flags.interrupt(false);
    result
}

/// SIGINT, SIGTERM and SIGHUP of a process in which a [`Remote`] controls each run.
pub struct ProcessSignals(SignalHandlers);

impl ProcessSignals {
    /// Handles them while it lives. A second SIGINT or SIGTERM ends the process immediately.
    ///
    /// # Errors
    /// Those of the system.
    pub fn catch() -> io::Result<Self> {
        SignalHandlers::catch(&[libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGHUP]).map(Self)
    }

    /// Waits for a signal, at most this long.
    pub fn wait(&self, longest: Duration) {
        poll::wait(&[self.0.wake.as_raw_fd()], longest);
        poll::clear(&self.0.wake);
    }

    /// Has SIGINT or SIGTERM arrived?
    pub fn ended(&self) -> bool {
        END_SIGNALS.load(Ordering::Relaxed) > 0
    }

    /// The number of SIGUSR1 signals since the last call.
    pub fn user(&self) -> u32 {
        USER.swap(0, Ordering::Relaxed)
    }

    /// Has SIGHUP arrived since the last call?
    pub fn reloads(&self) -> bool {
        RELOADS.swap(0, Ordering::Relaxed) > 0
    }
}

impl SignalHandlers {
    fn catch(signals: &[libc::c_int]) -> io::Result<Self> {
        let wake = poll::eventfd()?;
        END_SIGNALS.store(0, Ordering::Relaxed);
        RESULTS.store(0, Ordering::Relaxed);
        WAKE.store(wake.as_raw_fd(), Ordering::Relaxed);
        let mut before = Vec::new();
        for signal in signals {
            // SAFETY: `caught` only makes calls that a handler may make. SA_RESTART, since the wake-up comes through
            // the descriptor.
            unsafe {
                let mut new: libc::sigaction = std::mem::zeroed();
                new.sa_sigaction = caught as extern "C" fn(libc::c_int) as usize;
                new.sa_flags = libc::SA_RESTART;
                libc::sigemptyset(&mut new.sa_mask);
                let mut old: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(*signal, &new, &mut old) == 0 {
                    before.push((*signal, old));
                }
            }
        }
        Ok(Self { wake, before })
    }
}

impl Drop for SignalHandlers {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            // SAFETY: restores the previous handler
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
        WAKE.store(-1, Ordering::Relaxed);
    }
}
