//! Output of the command other than that of a script: reports on standard error, texts on standard output, files.
#![allow(unsafe_code)] // unlink(2) in a signal handler

use std::ffi::{CString, c_char};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

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

/// A file in which a failed write, as on a full disk, leaves whole records: what follows the last one is removed. Each write
/// consists of whole records.
pub struct RecordFile {
    file: File,
    /// The length of the file; none if it is not a regular file of rbt's own.
    length: Option<u64>,
    /// Records are lines.
    lines: bool,
    failed: bool,
}

impl RecordFile {
    /// `own`: rbt created the file, and nobody else writes to it.
    pub fn new(file: File, own: bool, lines: bool) -> Self {
        let is_regular = own && file.metadata().is_ok_and(|m| m.is_file());
        Self { file, length: is_regular.then_some(0), lines, failed: false }
    }

    /// Removes the part of a record after a write of which only this many bytes succeeded.
    fn truncate_record(&mut self, bytes: &[u8], written: usize) {
        self.failed = true;
        let Some(length) = self.length else { return };
        let part = bytes.get(..written).unwrap_or_default();
        let complete = if self.lines { part.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1) } else { 0 };
        let _ = self.file.set_len(length + complete as u64);
    }
}

impl Write for RecordFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::Error::other("an earlier write failed"));
        }
        if self.length.is_none() {
            return self.file.write(bytes);
        }
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => {
                    self.truncate_record(bytes, written);
                    return Err(io::ErrorKind::WriteZero.into());
                }
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.truncate_record(bytes, written);
                    return Err(e);
                }
            }
        }
        self.length = self.length.map(|length| length + written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl AsFd for RecordFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A file that is replaced atomically: a reader sees either the old contents or the new ones. Symbolic links are
/// followed; the mode of the old file is kept, and so is its owner, if that is permitted. A file that is not regular (a
/// pipe, /dev/stdout) is written directly.
pub struct AtomicFile {
    file: File,
    path: PathBuf,
    temporary: Option<TempFile>,
}

/// The location of the new contents until they are complete.
enum TempFile {
    /// In a file without a name, which disappears if rbt is killed.
    Unnamed,
    /// In a file with a name, if the file system does not support unnamed files.
    Named(NamedFile),
}

/// A file that [`abandon`] removes; it is removed on drop.
struct NamedFile {
    path: PathBuf,
    entry: &'static Entry,
}

/// An entry in the list of named files. Entries are never freed, since a signal handler reads the list at any time.
struct Entry {
    /// Null if no file uses the entry.
    path: AtomicPtr<c_char>,
    next: *const Entry,
}

/// The head of the list of named files.
static NAMED: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());

impl NamedFile {
    /// Called before the file is created.
    fn new(path: PathBuf) -> io::Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?.into_raw();
        let entry = Box::leak(Box::new(Entry { path: AtomicPtr::new(name), next: ptr::null() }));
        let mut head = NAMED.load(Ordering::SeqCst);
        loop {
            entry.next = head;
            match NAMED.compare_exchange(head, entry, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(Self { path, entry }),
                Err(other) => head = other,
            }
        }
    }

    /// Keeps the file, which has another name now.
    fn persist(&self) {
        self.entry.path.store(ptr::null_mut(), Ordering::SeqCst);
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        if !self.entry.path.load(Ordering::SeqCst).is_null() {
            let _ = fs::remove_file(&self.path);
            self.persist();
        }
    }
}

/// Removes the files that are not complete, in a signal handler that ends the process. Makes only calls of
/// signal-safety(7).
pub fn abandon() {
    let mut at = NAMED.load(Ordering::SeqCst).cast_const();
    // SAFETY: neither entries nor their paths are ever freed
    while let Some(entry) = unsafe { at.as_ref() } {
        let path = entry.path.load(Ordering::SeqCst);
        if !path.is_null() {
            // SAFETY: the path ends with a null byte
            unsafe { libc::unlink(path) };
        }
        at = entry.next;
    }
}

impl AtomicFile {
    /// Starts a file, which appears with [`Self::commit`].
    ///
    /// # Errors
    /// The directory is missing, or not writable.
    pub fn create(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path).ok();
        if metadata.as_ref().is_some_and(|m| !m.is_file()) {
            return Ok(Self { file: File::create(path)?, path: path.to_path_buf(), temporary: None });
        }
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mode = Mode::from_raw_mode(0o666);
        let (file, temporary) = match rustix::fs::open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
            Ok(file) => (File::from(file), TempFile::Unnamed),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                let named = NamedFile::new(Self::temporary_path(&path))?;
                let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(&named.path);
                (file.inspect_err(|_| named.persist())?, TempFile::Named(named))
            }
            Err(e) => return Err(e.into()),
        };
        let file_at_end = Self { file, path, temporary: Some(temporary) };
        if let Some(metadata) = &metadata {
            let _ = std::os::unix::fs::fchown(&file_at_end.file, Some(metadata.uid()), Some(metadata.gid()));
            file_at_end.file.set_permissions(fs::Permissions::from_mode(metadata.mode()))?;
        }
        Ok(file_at_end)
    }

    /// The name of the temporary file.
    fn temporary_path(path: &Path) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.{}", std::process::id()))
    }

    /// The new contents, for another writer.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn contents(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Makes the new file executable for everyone. A file that is not regular, such as a device, keeps its permissions.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn make_executable(&self) -> io::Result<()> {
        let Some(_) = self.temporary else { return Ok(()) };
        self.file.set_permissions(fs::Permissions::from_mode(0o755))
    }

    /// Replaces the old contents by the new ones.
    ///
    /// # Errors
    /// Those of the file system; the old contents then remain.
    pub fn commit(mut self) -> io::Result<()> {
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        self.file.sync_all()?;
        let named = match temporary {
            TempFile::Named(named) => named,
            TempFile::Unnamed => {
                let named = NamedFile::new(Self::temporary_path(&self.path))?;
                let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                rustix::fs::linkat(CWD, file, CWD, &named.path, AtFlags::SYMLINK_FOLLOW).inspect_err(|_| named.persist())?;
                named
            }
        };
        fs::rename(&named.path, &self.path)?;
        named.persist();
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
        failure.help("free some space there, or choose another file")
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
