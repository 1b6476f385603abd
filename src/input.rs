//! Bounded reads of files from untrusted sources: none of them can block rbt forever or exhaust memory.
//!
//! Files of the kernel (/proc, /sys, tracefs) are read without these bounds.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Maximum size in bytes of a text that people write: a script, a C header, expectations, a configuration, a history.
pub const TEXT: u64 = 16 << 20;
/// Maximum size of a list with a line for each function or symbol: that of a kernel has 2 to 12 MB, and a JIT
/// compiler's may be larger.
pub const LIST: u64 = 128 << 20;
/// Maximum size of a kernel's types: they have 5 to 20 MB.
pub const TYPES: u64 = 128 << 20;
/// Maximum size of the image of a kernel or a module, which may contain debug information.
pub const IMAGE: u64 = 2 << 30;

/// The interval at which the wait checks whether to continue, in milliseconds.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Reads a file of up to `max_bytes` bytes. A FIFO is read to its end, for the shell's `<(...)`.
///
/// # Errors
/// Those of the system, and [`ErrorKind::FileTooLarge`].
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(path)?, max_bytes)
}

/// The same for an open file.
///
/// # Errors
/// As for [`read`].
pub fn read_from(from: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    check_size(bytes, max_bytes)
}

/// Fails if there are more than `max_bytes` bytes.
///
/// # Errors
/// [`ErrorKind::FileTooLarge`].
pub fn check_size(bytes: Vec<u8>, max_bytes: u64) -> io::Result<Vec<u8>> {
    if bytes.len() as u64 > max_bytes { Err(too_large(max_bytes)) } else { Ok(bytes) }
}

/// Reads a regular file of up to `max_bytes` bytes.
///
/// # Errors
/// As for [`read`]; [`ErrorKind::InvalidInput`]: it is not a regular file, such as a FIFO.
pub fn read_regular(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_from(open_regular(path)?.0, max_bytes)
}

/// The same as [`read_regular`], for a text.
///
/// # Errors
/// As there; [`ErrorKind::InvalidData`]: it is not UTF-8.
pub fn text(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read_regular(path, max_bytes)?).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Opens a regular file. Does not wait for other files, such as a FIFO without a writer.
///
/// # Errors
/// Those of the system; [`ErrorKind::InvalidInput`]: it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    open_with(path, 0)
}

/// [`open_regular`] of a file that is not reached by a symbolic link, which anyone who may write to the directory could
/// have set.
///
/// # Errors
/// As for [`open_regular`].
pub fn open_itself(path: &Path) -> io::Result<(File, Metadata)> {
    open_with(path, libc::O_NOFOLLOW)
}

fn open_with(path: &Path, flags: libc::c_int) -> io::Result<(File, Metadata)> {
    // opening a device may have consequences
    let irregular = || io::Error::new(ErrorKind::InvalidInput, "it is not a regular file");
    let meta = std::fs::symlink_metadata(path)?.file_type();
    if !meta.is_symlink() && !meta.is_file() || meta.is_symlink() && !std::fs::metadata(path)?.is_file() {
        return Err(irregular());
    }
    // it may have been replaced in the meantime
    let file = OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta)) } else { Err(irregular()) }
}

/// Does a file, or one that will be created here, belong to this user only? Its directory, or the nearest existing one
/// above it, belongs to the user or to root, and the file is a regular one. In a directory of another user, who may
/// replace its files by links, a privileged run would read and write what that user chooses: root may have inherited
/// another user's environment.
pub fn is_own(path: &Path) -> bool {
    let file = path.symlink_metadata().map_or_else(|e| e.kind() == ErrorKind::NotFound, |m| m.is_file() && owned(&m));
    let folder = path.ancestors().skip(1).find_map(|dir| dir.metadata().ok());
    file && folder.is_some_and(|m| owned(&m) && m.mode() & libc::S_IWOTH == 0)
}

/// Does it belong to this user or to root?
fn owned(meta: &Metadata) -> bool {
    let me = rustix::process::geteuid().as_raw();
    meta.uid() == me || meta.uid() == 0
}

/// Does it belong to this user or to root, with no other user able to write to it?
pub fn is_trusted(meta: &Metadata) -> bool {
    owned(meta) && meta.mode() & (libc::S_IWGRP | libc::S_IWOTH) == 0
}

/// The text of a one-line kernel file, such as those of /proc/sys.
pub fn line(path: impl AsRef<Path>) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_string())
}

/// The result of [`read_while`].
#[derive(Debug, PartialEq, Eq)]
pub struct PartialRead {
    /// The bytes that were read.
    pub bytes: Vec<u8>,
    /// The read ended before the end of the file and before the limit.
    pub stopped_early: bool,
}

/// The first `max_bytes` bytes of a file, read for as long as `go_on` returns true. It is called repeatedly while the read
/// waits, as for a FIFO, a terminal, or a file of the kernel that waits for events.
///
/// # Errors
/// Those of the system.
pub fn read_while(path: &Path, max_bytes: u64, go_on: &dyn Fn() -> bool) -> io::Result<PartialRead> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    // a FIFO without a writer looks like one at its end
    let fifo = file.metadata()?.file_type().is_fifo();
    read_open_while(&mut file, max_bytes, fifo, go_on)
}

/// The same for an open descriptor, which no longer blocks after this. `poll`: reads only when the kernel reports data.
///
/// # Errors
/// Those of the system.
pub fn read_open_while(file: &mut (impl Read + AsFd), max_bytes: u64, poll: bool, go_on: &dyn Fn() -> bool) -> io::Result<PartialRead> {
    let mut bytes = Vec::new();
    let mut ready = !poll;
    fcntl_setfl(&*file, fcntl_getfl(&*file)? | OFlags::NONBLOCK)?;
    let mut buffer = [0; 64 << 10];
    while (bytes.len() as u64) < max_bytes {
        if !go_on() {
            return Ok(PartialRead { bytes, stopped_early: true });
        }
        if !ready {
            ready = readable(file);
            continue;
        }
        let remaining = usize::try_from(max_bytes - bytes.len() as u64).unwrap_or(usize::MAX).min(buffer.len());
        match file.read(buffer.get_mut(..remaining).unwrap_or_default()) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => ready = false,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(PartialRead { bytes, stopped_early: false })
}

/// Waits a moment for data.
fn readable(file: &impl AsFd) -> bool {
    poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&POLL_INTERVAL)).is_ok_and(|ready| ready > 0)
}

fn too_large(max_bytes: u64) -> io::Error {
    let max_bytes = if max_bytes < 1 << 30 { format!("{} megabytes", max_bytes >> 20) } else { format!("{} gigabytes", max_bytes >> 30) };
    io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {max_bytes}, which is the limit"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::PathBuf;

    fn fifo(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rbt-input-{name}-{}", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        path
    }

    #[test]
    fn stops_reading_at_the_limit() {
        let zero = Path::new("/dev/zero");
        assert_eq!(read(zero, 100).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_regular(zero, 100).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(read_from([1u8; 10].as_slice(), 10).unwrap().len(), 10);
        assert_eq!(read_from([1u8; 11].as_slice(), 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(read_while(zero, 100_000, &|| true).unwrap().bytes.len(), 100_000);
        assert!(read_while(zero, u64::MAX, &|| false).unwrap().stopped_early);
        assert!(too_large(TEXT).to_string().contains("16 megabytes") && too_large(IMAGE).to_string().contains("2 gigabytes"));
    }

    #[test]
    fn stops_waiting_for_fifos() {
        let path = fifo("wait");
        assert_eq!(open_regular(&path).unwrap_err().kind(), ErrorKind::InvalidInput);
        let asked = std::cell::Cell::new(0);
        let part = read_while(&path, 10, &|| asked.replace(asked.get() + 1) < 3).unwrap();
        assert_eq!((part, asked.get()), (PartialRead { bytes: Vec::new(), stopped_early: true }, 4));
        let to = path.clone();
        let writer = std::thread::spawn(move || OpenOptions::new().write(true).open(to).unwrap().write_all(b"some").unwrap());
        assert_eq!(read_while(&path, 10, &|| true).unwrap(), PartialRead { bytes: b"some".to_vec(), stopped_early: false });
        writer.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn files_that_others_may_replace_are_not_own() {
        let dir = std::env::temp_dir().join(format!("rbt-input-own-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let file = dir.join("new/history");
        assert!(is_own(&file) && !is_own(&std::env::temp_dir().join("history")));
        std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).unwrap();
        assert!(!is_own(&dir.join("link")));
        // only root can give a directory away
        if std::os::unix::fs::chown(&dir, Some(12345), None).is_ok() {
            assert!(!is_own(&file));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn follows_safe_links() {
        let link = std::env::temp_dir().join(format!("rbt-input-link-{}", std::process::id()));
        std::os::unix::fs::symlink("/proc/self/exe", &link).unwrap();
        assert!(open_regular(&link).is_ok() && open_itself(&link).is_err());
        std::fs::remove_file(&link).unwrap();
        assert_eq!(text(Path::new("/proc/self/exe"), IMAGE).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
