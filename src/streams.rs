//! Output of the command other than that of a script: reports on standard error, texts on standard output, files.

use std::io::{self, Write};
use std::path::Path;

use crate::diag;
use crate::failure::{Failure, reason};
use crate::terminal::{self, paint};

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
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(not_written("standard output", &e)),
        _ => Ok(0),
    }
}

/// Writes what `-d` shows of a stage to standard output.
pub fn dump(stage: &str, text: &str) -> Result<(), Failure> {
    let written = writeln!(io::stdout().lock(), "; {stage}\n{}\n", diag::plain_lines(text.trim_end()));
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
    } else {
        failure
    }
}
