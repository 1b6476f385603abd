//! The progress of long work, on the terminal: one line that names the current step, from the first second on.
//!
//! A separate thread writes the line, so that the time of a single long step is shown as well.
#![allow(unsafe_code)] // write(2) in a signal handler

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

/// The progress line; it is cleared on drop.
pub struct Progress {
    line: Arc<Line>,
    writer: Option<JoinHandle<()>>,
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
        Self::on(Box::new(io::stderr()), io::stderr().is_terminal(), DELAY)
    }

    fn on(to: Box<dyn Write + Send>, visible: bool, delay: Duration) -> Self {
        let state = State { step: String::new(), since: Instant::now(), shown: false, finished: false, out: to };
        let line = Arc::new(Line { state: Mutex::new(state), changed: Condvar::new() });
        let shared = line.clone();
        // without a thread, no progress is shown
        let writer = visible.then(|| std::thread::Builder::new().spawn(move || shared.keep_current(delay)).ok()).flatten();
        Self { line, writer }
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
    fn short_work_shows_nothing() {
        assert_eq!(written(true, Duration::from_secs(60), |progress| progress.at("reading")), "");
        assert_eq!(written(false, Duration::ZERO, |progress| progress.at("reading")), "");
    }
}
