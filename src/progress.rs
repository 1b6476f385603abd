//! The progress of long work, on the terminal: one line that names the current step, from the first second on.
//!
//! A separate thread writes the line, so that the time of a single long step is shown as well.
#![allow(unsafe_code)] // sigaction(2), and write(2) in a signal handler

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::diag;

/// Shorter work shows no progress.
const DELAY: Duration = Duration::from_secs(1);
/// The interval between two lines.
const PERIOD: Duration = Duration::from_millis(250);
/// Maximum number of characters of a step: a line that the terminal wraps could not be cleared.
const WIDTH: usize = 64;
/// Returns to the start of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// Is a line on standard error?
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Clears the line in a signal handler that ends the process. Makes only calls of signal-safety(7).
pub fn abandon() {
    if SHOWN.load(Ordering::Relaxed) {
        // SAFETY: the bytes are constant
        unsafe { libc::write(libc::STDERR_FILENO, CLEAR.as_ptr().cast(), CLEAR.len()) };
    }
}

/// Clears the line when a signal ends the process by default, which it does after this.
extern "C" fn ends(signal: libc::c_int) {
    abandon();
    // SAFETY: raise(3) may be called in a handler; `SA_RESETHAND` has restored the default
    unsafe { libc::raise(signal) };
}

/// The signals of a user that end the process. Those that something else handles or ignores are left alone.
struct EndSignals(Vec<libc::c_int>);

impl EndSignals {
    fn handle() -> Self {
        let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
        let handled = signals.into_iter().filter(|signal| {
            // SAFETY: both structs live as long as the calls; zero is a valid value of each field
            unsafe {
                let (mut before, mut new): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
                new.sa_sigaction = ends as *const () as usize;
                new.sa_flags = libc::SA_RESETHAND;
                libc::sigaction(*signal, std::ptr::null(), &raw mut before) == 0
                    && before.sa_sigaction == libc::SIG_DFL
                    && libc::sigaction(*signal, &raw const new, std::ptr::null_mut()) == 0
            }
        });
        Self(handled.collect())
    }
}

impl Drop for EndSignals {
    fn drop(&mut self) {
        for signal in &self.0 {
            // SAFETY: the same
            unsafe {
                let (mut now, default): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
                if libc::sigaction(*signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == ends as *const () as usize {
                    libc::sigaction(*signal, &raw const default, std::ptr::null_mut());
                }
            }
        }
    }
}

/// The progress line; it is cleared on drop, and when a signal ends the process.
pub struct Progress {
    line: Arc<Line>,
    writer: Option<JoinHandle<()>>,
    /// Dropped after the line is cleared.
    signals: Option<EndSignals>,
}

struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    step: String,
    since: Instant,
    shown: bool,
    finished: bool,
    out: Box<dyn Write + Send>,
}

impl Progress {
    /// On standard error, if it is a terminal.
    pub fn on_stderr() -> Self {
        let visible = io::stderr().is_terminal();
        let mut progress = Self::on(Box::new(io::stderr()), visible, DELAY);
        progress.signals = visible.then(EndSignals::handle);
        progress
    }

    fn on(to: Box<dyn Write + Send>, visible: bool, delay: Duration) -> Self {
        let state = State { step: String::new(), since: Instant::now(), shown: false, finished: false, out: to };
        let line = Arc::new(Line { state: Mutex::new(state), changed: Condvar::new() });
        let shared = line.clone();
        // without a thread, no progress is shown
        let writer = visible.then(|| std::thread::Builder::new().spawn(move || shared.keep_current(delay)).ok()).flatten();
        Self { line, writer, signals: None }
    }

    /// Sets the name of the current step.
    pub fn at(&self, step: &str) {
        let plain = diag::plain(step);
        let short: String = plain.chars().take(WIDTH).collect();
        self.line.lock().step = if short.len() < plain.len() { format!("{short}…") } else { short };
    }

    /// Clears the line for a message; the line returns after a while.
    pub fn make_room(&self) {
        self.aside(|| ());
    }

    /// Clears the line, and does not show it while `write` uses the terminal; it returns a while after that.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut state = self.line.lock();
        state.clear();
        let result = write();
        state.since = Instant::now();
        result
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        {
            let mut state = self.line.lock();
            state.finished = true;
            state.clear();
        }
        self.line.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_current(&self, delay: Duration) {
        let mut state = self.lock();
        while !state.finished {
            let elapsed = state.since.elapsed();
            if elapsed >= delay {
                state.show(elapsed);
            }
            let wait = delay.checked_sub(elapsed).filter(|left| !left.is_zero()).unwrap_or(PERIOD);
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    fn show(&mut self, elapsed: Duration) {
        self.shown = true;
        SHOWN.store(true, Ordering::Relaxed);
        let _ = write!(self.out, "{CLEAR}{} … {} s", self.step, elapsed.as_secs());
        let _ = self.out.flush();
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = self.out.write_all(CLEAR.as_bytes());
            let _ = self.out.flush();
            SHOWN.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(visible: bool, delay: Duration, work: impl FnOnce(&Progress)) -> String {
        let screen = Screen::default();
        let progress = Progress::on(Box::new(screen.clone()), visible, delay);
        work(&progress);
        drop(progress);
        let bytes = screen.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_long_step_is_shown_while_it_lasts() {
        let text = written(true, Duration::ZERO, |progress| {
            progress.at("reading");
            std::thread::sleep(PERIOD * 3);
        });
        assert!(text.matches("reading … ").count() > 1, "{text:?}");
        assert!(text.ends_with(CLEAR), "{text:?}");
    }

    #[test]
    fn other_output_is_not_disturbed() {
        let screen = Screen::default();
        let progress = Progress::on(Box::new(screen.clone()), true, Duration::ZERO);
        progress.at("reading");
        let text = || String::from_utf8(screen.0.lock().unwrap().clone()).unwrap();
        while text().is_empty() {
            std::thread::sleep(PERIOD / 10);
        }
        let (before, after) = progress.aside(|| {
            let before = text();
            std::thread::sleep(PERIOD * 3);
            (before, text())
        });
        assert!(before.ends_with(CLEAR), "{before:?}");
        assert_eq!(before, after);
    }

    #[test]
    fn signals_are_handled_while_it_lives() {
        let handler = |signal| {
            // SAFETY: the struct lives as long as the call
            unsafe {
                let mut now: libc::sigaction = std::mem::zeroed();
                assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut now), 0);
                now.sa_sigaction
            }
        };
        let before = handler(libc::SIGHUP);
        let signals = EndSignals::handle();
        assert_eq!(signals.0.contains(&libc::SIGHUP), before == libc::SIG_DFL);
        assert_eq!(handler(libc::SIGHUP) == ends as *const () as usize, before == libc::SIG_DFL);
        drop(signals);
        assert_eq!(handler(libc::SIGHUP), before);
    }

    #[test]
    fn short_work_shows_nothing() {
        assert_eq!(written(true, Duration::from_secs(60), |progress| progress.at("reading")), "");
        assert_eq!(written(false, Duration::ZERO, |progress| progress.at("reading")), "");
    }
}
