//! Prints the output of entries above the edited line, or directly if no line is being edited.
//!
//! One thread passes texts to the line editor, because the editor accepts one at a time and may be absent. Entries wait while
//! more than [`MAX_PENDING_BYTES`] is pending. Meanwhile their records fill the ring buffers, and rbt reports what is lost there.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::streams::Stdout;

/// Maximum number of bytes that wait to be shown.
const MAX_PENDING_BYTES: usize = 1 << 20;

/// Prints a text above the line that is being typed.
pub type PrintAbove = Box<dyn FnMut(String) -> bool + Send>;

/// The connection to the terminal, or to a pipe.
#[derive(Clone)]
pub struct Printer(Arc<(Mutex<Queue>, Condvar)>);

#[derive(Default)]
struct Queue {
    texts: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A line is being typed.
    editing: bool,
    /// Something else uses the terminal.
    suspended: bool,
    /// A text is being printed.
    busy: bool,
    /// No thread waits any longer.
    closing: bool,
    /// The reader has gone.
    unread: bool,
}

impl Printer {
    /// Starts the thread. Without an editor, everything goes to standard output.
    pub fn start(mut above: Option<PrintAbove>) -> Self {
        let printer = Self(Arc::default());
        let other = printer.clone();
        std::thread::spawn(move || {
            loop {
                let (text, editing) = other.next();
                let text = String::from_utf8_lossy(&text).into_owned();
                let shown = match &mut above {
                    Some(above) if editing => {
                        above(text);
                        true
                    }
                    _ => write_stdout(text.as_bytes()),
                };
                let mut queue = other.queue();
                queue.busy = false;
                queue.unread |= !shown;
                drop(queue);
                other.0.1.notify_all();
            }
        });
        printer
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> (Vec<u8>, bool) {
        let mut queue = self.queue();
        loop {
            if (!queue.suspended || queue.closing)
                && let Some(mut text) = queue.texts.pop_front()
            {
                // queued texts are printed together: the editor redraws its line each time
                while let Some(more) = queue.texts.pop_front() {
                    text.extend_from_slice(&more);
                }
                queue.bytes = 0;
                queue.busy = true;
                return (text, queue.editing);
            }
            queue = self.0.1.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Prints whole lines. Waits while too many bytes are pending.
    pub fn show(&self, text: Vec<u8>) {
        if text.is_empty() {
            return;
        }
        let mut queue = self.queue();
        while queue.bytes > MAX_PENDING_BYTES && !queue.closing {
            queue = self.0.1.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.bytes += text.len();
        queue.texts.push_back(text);
        self.0.1.notify_all();
    }

    /// A line is being typed from now on, or no longer.
    pub fn editing(&self, editing: bool) {
        self.queue().editing = editing;
    }

    /// Holds further output, or prints it.
    pub fn set_held(&self, held: bool) {
        self.queue().suspended = held;
        self.0.1.notify_all();
    }

    /// Waits until everything is printed, at most for `longest`.
    pub fn wait_until_idle(&self, longest: Duration) {
        let end = Instant::now() + longest;
        let mut queue = self.queue();
        while queue.busy || !queue.texts.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (queue, _) = self.0.1.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has the reader of the output gone?
    pub fn unread(&self) -> bool {
        self.queue().unread
    }

    /// Makes all waiting threads return.
    pub fn close(&self) {
        self.queue().closing = true;
        self.0.1.notify_all();
    }
}

/// Prints to standard output. Returns false if its reader has gone.
pub fn write_stdout(text: &[u8]) -> bool {
    Stdout.write_all(text).is_ok()
}

/// An entry's output: an incomplete line is held until it is complete, or the entry ends.
pub struct Lines {
    printer: Printer,
    /// `-o`: replaces the printer.
    file: Option<Arc<File>>,
    deferred: Vec<u8>,
}

impl Lines {
    /// Without any lines.
    pub fn new(printer: Printer, file: Option<Arc<File>>) -> Self {
        Self { printer, file, deferred: Vec::new() }
    }

    fn show(&self, lines: Vec<u8>) -> io::Result<()> {
        match &self.file {
            Some(file) => file.as_ref().write_all(&lines),
            None => {
                self.printer.show(lines);
                Ok(())
            }
        }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.printer.unread() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.deferred.extend_from_slice(bytes);
        if let Some(end) = self.deferred.iter().rposition(|b| *b == b'\n') {
            let rest = self.deferred.split_off(end + 1);
            let lines = std::mem::replace(&mut self.deferred, rest);
            self.show(lines)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if !self.deferred.is_empty() {
            self.deferred.push(b'\n');
            let lines = std::mem::take(&mut self.deferred);
            // there is no reader to report this to
            let _ = self.show(lines);
        }
    }
}
