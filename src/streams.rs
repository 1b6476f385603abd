//! Output of the command other than that of a script: reports on standard error, texts on standard output, files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::diag;
use crate::failure::{Failure, reason};
use crate::terminal::{self, paint};

/// Distinguishes a closed standard output from an open one. Rust's startup code opens /dev/null in place of a closed
/// descriptor, so that output is lost without an error. Called before that, this opens it for reading only: then each
/// write fails as it does in other programs, with `EBADF`.
pub extern "C" fn guard_stdout() {
    while matches!(rustix::io::fcntl_getfd(rustix::stdio::stdout()), Err(rustix::io::Errno::BADF)) {
        // the lowest free number, which is that of standard input if it is closed as well
        match rustix::fs::open(c"/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()) {
            Ok(null) => drop(null.into_raw_fd()),
            Err(_) => break,
        }
    }
}

/// Unbuffered standard output. That of Rust's library hides `EBADF`.
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stdout(), bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints to standard error; if that is closed, the text is dropped.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints a failure to standard error.
pub fn report(failure: &Failure, color: bool) {
    to_stderr(&message(failure, color));
}

/// The text of [`report`]; empty if it was reported already.
pub fn message(failure: &Failure, color: bool) -> String {
    if failure.is_reported() {
        return String::new();
    }
    let help =
        failure.help.as_ref().map(|h| format!("{} {}\n", paint("help:", terminal::BOLD, color), diag::plain_lines(h))).unwrap_or_default();
    // a failure that does not change the status is a warning
    let (word, style) = if failure.status == 0 { ("warning", terminal::WARNING) } else { ("error", terminal::ERROR) };
    let head = paint(&format!("{word}[{}]:", failure.code), style, color);
    let excerpt = failure.excerpt.as_ref().map(|lines| format!("{}\n", diag::plain_lines(lines))).unwrap_or_default();
    format!("{head} {}\n{excerpt}{help}", diag::plain(failure.message.trim_end()))
}

/// Prints to standard output, whose reader may have gone.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    let mut out = io::BufWriter::new(Stdout);
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(not_written("standard output", &e)),
        _ => Ok(0),
    }
}

/// Prints a stage for `-d` to standard output.
pub fn dump(stage: &str, text: &str) -> Result<(), Failure> {
    let written = writeln!(Stdout, "; {stage}\n{}\n", diag::plain_lines(text.trim_end()));
    written.map_err(|e| not_written("standard output", &e))
}

/// A file that is replaced atomically: a reader sees either the old contents or the new ones. Symbolic links are
/// followed; the mode of the old file is kept, and so is its owner, if that is permitted. A file that is not regular (a
/// pipe, /dev/stdout) is written directly.
pub struct AtomicFile {
    file: File,
    path: PathBuf,
    beside: Option<TempFile>,
}

/// The location of the new contents until they are complete.
enum TempFile {
    /// In a file without a name, which disappears if rbt is killed.
    Unnamed,
    /// In a file with this name, if the file system does not support unnamed files.
    Named(PathBuf),
}

impl AtomicFile {
    /// Starts a file, which appears with [`Self::commit`].
    ///
    /// # Errors
    /// The directory is missing, or not writable.
    pub fn create(path: &Path) -> io::Result<Self> {
        let there = fs::metadata(path).ok();
        if there.as_ref().is_some_and(|m| !m.is_file()) {
            return Ok(Self { file: File::create(path)?, path: path.to_path_buf(), beside: None });
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = Mode::from_raw_mode(0o666);
        let (file, beside) = match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
            Ok(file) => (File::from(file), TempFile::Unnamed),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                let name = Self::beside(&path);
                (fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(&name)?, TempFile::Named(name))
            }
            Err(e) => return Err(e.into()),
        };
        let whole = Self { file, path, beside: Some(beside) };
        if let Some(there) = &there {
            let _ = std::os::unix::fs::fchown(&whole.file, Some(there.uid()), Some(there.gid()));
            whole.file.set_permissions(fs::Permissions::from_mode(there.mode()))?;
        }
        Ok(whole)
    }

    /// The name of the temporary file.
    fn beside(path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.{}", std::process::id()))
    }

    /// Makes the new file executable for everyone. A file that is not regular, such as a device, keeps its permissions.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make_executable(&self) -> io::Result<()> {
        let Some(_) = self.beside else { return Ok(()) };
        self.file.set_permissions(fs::Permissions::from_mode(0o755))
    }

    /// Replaces the old contents by the new ones.
    ///
    /// # Errors
    /// Those of the file system; the old contents then remain.
    pub fn commit(mut self) -> io::Result<()> {
        let name = match &self.beside {
            None => return Ok(()),
            Some(TempFile::Named(name)) => name.clone(),
            Some(TempFile::Unnamed) => {
                self.file.sync_all()?;
                let (name, file) = (Self::beside(&self.path), format!("/proc/self/fd/{}", self.file.as_raw_fd()));
                rustix::fs::linkat(CWD, file, CWD, &name, AtFlags::SYMLINK_FOLLOW)?;
                self.beside = Some(TempFile::Named(name.clone()));
                return self.rename(&name);
            }
        };
        self.file.sync_all()?;
        self.rename(&name)
    }

    fn rename(&mut self, name: &Path) -> io::Result<()> {
        fs::rename(name, &self.path)?;
        self.beside = None;
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(TempFile::Named(name)) = &self.beside {
            let _ = fs::remove_file(name);
        }
    }
}

/// Writes a file directly.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|e| not_written(&path.display().to_string(), &e))
}

/// Exit status if the reader of the output has gone: 128 plus the number of SIGPIPE, as a shell reports it.
pub const CLOSED_PIPE: u8 = 141;

/// The failure for a failed write, with a remedy that depends on the reason.
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
