//! Parses `/proc/PID/maps` (proc_pid_maps(5)), and finds the files behind mappings.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::input;
use crate::system::machine::procfs;

/// Device and inode of a file; none if there is no file at the path.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// The identities of the files whose code this process has mapped.
pub(super) fn own_files() -> BTreeSet<(u64, u64)> {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    let code = maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).filter(|line| line.executable);
    code.filter_map(|line| line.file()).filter_map(|(path, _)| identity(&path)).collect()
}

/// Is the file at a path the one that was mapped under that name at that time? Compares the inode, because the same
/// path may be another file in a container, and the time of the last change, because inode numbers are reused (by ext4
/// at once).
pub(super) fn is_at(path: &Path, inode: u64, seen: SystemTime) -> bool {
    fs::metadata(path).is_ok_and(|m| m.ino() == inode && m.modified().is_ok_and(|modified| modified <= seen))
}

/// Opens a mapped file by its path if that still leads to the file, or else by the mapping itself, which needs CAP_SYS_ADMIN
/// or CAP_CHECKPOINT_RESTORE and a living process.
pub(super) fn open_mapped_file(pid: u32, line: &MapsLine<'_>, path: Option<&PathBuf>) -> Option<File> {
    let by_mapping = || procfs::mapped(pid, line.start, line.end);
    input::open_regular(&path.cloned().unwrap_or_else(by_mapping)).ok().map(|(file, _)| file)
}

/// A line of `/proc/PID/maps`: `start-end perms offset dev inode   path` (proc_pid_maps(5)).
#[derive(Debug)]
pub(super) struct MapsLine<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) executable: bool,
    pub(super) offset: u64,
    pub(super) inode: u64,
    pub(super) path: &'a OsStr,
}

impl<'a> MapsLine<'a> {
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(6, |b| *b == b' ');
        let mut next = || parts.next();
        let (range, perms, offset, _dev, inode) = (text(next()?)?, next()?, text(next()?)?, next()?, text(next()?)?);
        let (start, end) = range.split_once('-')?;
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            executable: perms.get(2) == Some(&b'x'),
            offset: u64::from_str_radix(offset, 16).ok()?,
            inode: inode.parse().ok()?,
            path: OsStr::from_bytes(next().unwrap_or_default().trim_ascii_start()),
        })
    }

    /// The path of the mapped file, and whether it was deleted; none for other memory.
    pub(super) fn file(&self) -> Option<(PathBuf, bool)> {
        let name = self.path.as_bytes();
        let deleted = name.strip_suffix(b" (deleted)");
        let path = || PathBuf::from(OsStr::from_bytes(deleted.unwrap_or(name)));
        (name.starts_with(b"/") && !name.starts_with(b"//")).then(|| (path(), deleted.is_some()))
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_own_files() {
        let own = own_files();
        let is_own = |path: &Path| identity(path).is_some_and(|file| own.contains(&file));
        assert!(is_own(&std::env::current_exe().unwrap_or_default()));
        // mapped, but not as code
        assert!(!is_own(Path::new("/etc/passwd")));
    }
}
