//! Writes the output and the messages of a run.
//!
//! A reader that pauses, such as a pager, stops the run: its records wait in memory. It must neither stop exporters nor keep probes
//! attached for longer than a limit or `--duration` allows. In such runs, no write waits: while the reader pauses, this thread answers
//! requests, keeps the limits, and stops the programs in time. A second description of the pipe or the terminal has the flag
//! `O_NONBLOCK`, which would concern other processes if the first one had it. Where there can be none, such as for a socket, another
//! thread writes.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags};

use super::context::RunContext;
use super::poll::{self, MAX_WAIT};
use crate::output::Output;

/// A destination of text.
pub type Stream = dyn Write + Send;

/// A pipe with any space takes this many bytes without waiting (`PIPE_BUF`), if nobody else writes to it.
const MAX_DIRECT: usize = 4096;

/// A destination of text by its descriptor.
pub(super) struct Destination {
    fd: OwnedFd,
    /// The same without waiting, if that is possible.
    without_waiting: OnceCell<Option<File>>,
}

impl Destination {
    pub fn of(fd: OwnedFd) -> Self {
        Self { fd, without_waiting: OnceCell::new() }
    }

    /// Another description of it whose writes do not wait. One of a file would begin at its start.
    fn without_waiting(&self) -> Option<&File> {
        let open = || {
            if !matches!(file_type(self.fd.as_fd()), Some(FileType::Fifo | FileType::CharacterDevice)) {
                return None;
            }
            // in place of a closed standard output: see `guard_stdout`
            if !rustix::fs::fcntl_getfl(&self.fd).is_ok_and(|flags| flags.intersects(OFlags::WRONLY | OFlags::RDWR)) {
                return None;
            }
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            File::options().write(true).custom_flags(flags).open(format!("/proc/self/fd/{}", self.fd.as_raw_fd())).ok()
        };
        self.without_waiting.get_or_init(open).as_ref()
    }
}

/// The destinations of a run.
pub(super) struct Streams<'a> {
    pub out: &'a mut Stream,
    pub err: &'a mut Stream,
}

impl Streams<'_> {
    /// Writes messages after the output.
    fn write(&mut self, out: &[u8], err: &[u8]) -> io::Result<()> {
        let written = if out.is_empty() { Ok(()) } else { self.out.write_all(out).and_then(|()| self.out.flush()) };
        if !err.is_empty() {
            // A closed standard error cannot be reported.
            let _ = self.err.write_all(err).and_then(|()| self.err.flush());
        }
        written
    }
}

impl RunContext<'_> {
    /// Writes the rendered messages, and before them the rendered output if `time`.
    pub(super) fn write(&mut self, time: bool) {
        // while another thread writes, later text waits
        let Some(mut streams) = self.streams.take() else { return };
        let mut out = if time { std::mem::take(&mut self.rendered.out) } else { Vec::new() };
        let mut err = std::mem::take(&mut self.rendered.err);
        if self.broken.is_some() {
            out.clear();
        }
        let written = match self.must_not_wait() && !self.is_written_at_once(out.len(), err.len()) {
            true => self.write_meanwhile(&mut streams, &out, &err),
            false => streams.write(&out, &err),
        };
        self.streams = Some(streams);
        self.written_at = Instant::now();
        if let Err(why) = written {
            self.broken = Some(why);
        }
        // their memory is used again
        out.clear();
        err.clear();
        if time && self.rendered.out.is_empty() {
            self.rendered.out = out;
        }
        if self.rendered.err.is_empty() {
            self.rendered.err = err;
        }
    }

    /// Renders a long output, and writes its text in parts, unless something else uses the whole text.
    pub(super) fn render_in_parts(&mut self, output: &Output) {
        let in_parts = self.watch.is_none() && self.scrapes.is_none() && (self.throttle.is_none() || self.ending);
        let Self { renderer, rendered, streams, broken, progress, .. } = self;
        let Some(streams) = streams.as_mut().filter(|_| in_parts) else { return renderer.render(output, rendered) };
        let mut write = |out: &mut Vec<u8>| {
            let mut write = || streams.write(out, &[]);
            let written = match progress {
                Some(progress) => progress.aside(write),
                None => write(),
            };
            out.clear();
            *broken = broken.take().or(written.err());
            broken.is_none()
        };
        renderer.render_in_parts(output, rendered, &mut write);
    }

    /// Is there something to do while a write waits?
    fn must_not_wait(&self) -> bool {
        let is_limited = self.throttle.is_some() || !self.settings.duration.is_zero();
        self.scrapes.is_some() || is_limited && !self.ending
    }

    /// Writes, and meanwhile does what must not wait.
    fn write_meanwhile(&mut self, streams: &mut Streams, out: &[u8], err: &[u8]) -> io::Result<()> {
        // other runs use the output by locks
        let [to_out, to_err] = [&self.out, &self.err].map(|to| to.clone().filter(|_| !self.shares_output));
        let is_file = |to: &Destination| is_regular(to.fd.as_fd());
        let never_waits = |to: &Destination| is_file(to) || to.without_waiting().is_some();
        if [(&to_out, out), (&to_err, err)].into_iter().any(|(to, text)| !text.is_empty() && !to.as_deref().is_some_and(never_waits)) {
            return self.write_by_thread(streams, out, err);
        }
        let written = match to_out.filter(|to| !is_file(to)) {
            Some(to) => self.write_in_turns(&to, out),
            None => streams.write(out, &[]),
        };
        match to_err.filter(|to| !is_file(to)) {
            // A closed standard error cannot be reported.
            Some(to) => _ = self.write_in_turns(&to, err),
            None => _ = streams.write(&[], err),
        }
        written
    }

    /// Writes without waiting, and does what is due when the reader pauses.
    fn write_in_turns(&mut self, to: &Destination, mut text: &[u8]) -> io::Result<()> {
        let Some(mut file) = to.without_waiting() else { return Ok(()) };
        let mut wait = Duration::ZERO;
        while !text.is_empty() {
            match file.write(text) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => text = text.get(written..).unwrap_or_default(),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    poll::wait_writable(file, self.scrapes.as_ref().map_or(-1, |scrapes| scrapes.fd()), wait);
                    wait = self.do_what_is_due();
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Answers requests, keeps the limits, and stops the programs in time. Returns the longest wait for the next time.
    fn do_what_is_due(&mut self) -> Duration {
        if let Some(scrapes) = self.scrapes.clone() {
            // the next turn of the loop reports a failure
            let _ = scrapes.answer(self);
        }
        match self.ending || self.stop_if_over() {
            true => MAX_WAIT,
            false => self.keep_limits().min(self.signals.max_wait(MAX_WAIT)),
        }
    }

    /// Does what is due while a thread writes.
    fn write_by_thread(&mut self, streams: &mut Streams, out: &[u8], err: &[u8]) -> io::Result<()> {
        let done = poll::eventfd()?;
        let written = thread::scope(|scope| {
            let write = || {
                let written = streams.write(out, err);
                poll::wake(&done);
                written
            };
            let writing = thread::Builder::new().name("rbt-write".into()).spawn_scoped(scope, write).ok()?;
            let mut wait = Duration::ZERO;
            while !writing.is_finished() {
                poll::wait(&[done.as_raw_fd(), self.scrapes.as_ref().map_or(-1, |scrapes| scrapes.fd())], wait);
                wait = self.do_what_is_due();
            }
            Some(writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        // without a thread, all wait
        written.unwrap_or_else(|| streams.write(out, err))
    }

    /// Is a write of this many bytes of output and of messages certain not to wait?
    fn is_written_at_once(&self, out: usize, err: usize) -> bool {
        let Some(Destination { fd, .. }) = self.out.as_deref() else { return false };
        let is_direct = |fd: BorrowedFd, bytes: usize| match file_type(fd) {
            _ if bytes == 0 => true,
            Some(FileType::RegularFile) => true,
            Some(FileType::Fifo) => !self.shares_output && bytes <= MAX_DIRECT && poll::writable(fd),
            // a terminal is ready if it has space for one byte
            _ => false,
        };
        is_direct(fd.as_fd(), out) && is_direct(io::stderr().as_fd(), err)
    }
}

fn is_regular(fd: BorrowedFd) -> bool {
    file_type(fd) == Some(FileType::RegularFile)
}

fn file_type(fd: BorrowedFd) -> Option<FileType> {
    rustix::fs::fstat(fd).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
}
