//! Output of the command other than that of a script: reports on standard error, texts on standard output, files.

use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::path::Path;

use crate::diag;
use crate::failure::{Failure, reason};
use crate::terminal::{self, paint};

/// Keeps a closed standard output apart from an open one. Rust's own start opens /dev/null in place of a closed descriptor, so
/// that nothing of what is written there arrives and nobody says so. Called before that, this opens it for reading only: then
/// each write fails as it does in other programs, with `EBADF`.
pub extern "C" fn guard_stdout() {
    while matches!(rustix::io::fcntl_getfd(rustix::stdio::stdout()), Err(rustix::io::Errno::BADF)) {
        // the lowest free number, which is that of standard input if that is closed as well
        match rustix::fs::open(c"/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()) {
            Ok(null) => drop(null.into_raw_fd()),
            Err(_) => break,
        }
    }
}

/// Standard output without a buffer. That of Rust's library hides `EBADF`.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stdout(), bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// To standard error; where that is closed, nobody listens.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Says what failed, to standard error.
pub fn report(failure: &Failure, color: bool) {
    if failure.is_reported() {
        return;
    }
    let help =
        failure.help.as_ref().map(|h| format!("{} {}\n", paint("help:", terminal::BOLD, color), diag::plain_lines(h))).unwrap_or_default();
    // what does not make the command fail is no error
    let (word, style) = if failure.status == 0 { ("warning", terminal::WARNING) } else { ("error", terminal::ERROR) };
    let head = paint(&format!("{word}[{}]:", failure.code), style, color);
    let excerpt = failure.excerpt.as_ref().map(|lines| format!("{}\n", diag::plain_lines(lines))).unwrap_or_default();
    to_stderr(&format!("{head} {}\n{excerpt}{help}", diag::plain(failure.message.trim_end())));
}

/// To standard output, whose reader may have gone.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    let mut out = io::BufWriter::new(Stdout);
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(not_written("standard output", &e)),
        _ => Ok(0),
    }
}

/// Writes what `-d` shows of a stage to standard output.
pub fn dump(stage: &str, text: &str) -> Result<(), Failure> {
    let written = writeln!(Stdout, "; {stage}\n{}\n", diag::plain_lines(text.trim_end()));
    written.map_err(|e| not_written("standard output", &e))
}

/// Writes a file whole.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|e| not_written(&path.display().to_string(), &e))
}

/// What can be done about a write that failed depends on why.
pub fn not_written(place: &str, e: &io::Error) -> Failure {
    let failure = Failure::new(format!("cannot write to {place}: {}", reason(e))).code("not-written");
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&e.kind());
    if is(&[io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) {
        failure.help("free some space there, or choose another file with -o")
    } else if is(&[io::ErrorKind::NotFound]) {
        failure.help("create the directory first")
    } else if is(&[io::ErrorKind::IsADirectory]) {
        failure.help("name a file in it")
    } else if is(&[io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem]) {
        failure.help("choose another file, or check the permissions")
    } else if e.raw_os_error() == Some(libc::EBADF) {
        failure.help("it is closed: redirect it to a file, or to /dev/null to discard the output")
    } else {
        failure
    }
}
