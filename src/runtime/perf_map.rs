//! Symbols of just-in-time compiled code: `/tmp/perf-PID.map` has a line `START SIZE NAME` per function, with numbers in
//! hexadecimal (Linux `tools/perf/Documentation/jit-interface.txt`).

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::jit_dump::JitDump;
use crate::input;
use crate::system::machine::procfs;

/// How long the contents are valid: a compiler that frees code may later put other functions at the same addresses.
const MAX_AGE: Duration = Duration::from_millis(100);
/// The same for an address that has no function yet.
const MAX_AGE_ON_MISS: Duration = Duration::from_millis(2);
/// Number of bytes before the end of the contents that identify the file.
const TAIL: usize = 256;

/// The contents of one map file.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// What was read of it.
    read_state: Option<FileState>,
    /// When it was last checked.
    checked_at: Option<Instant>,
    /// The user of the process.
    owner: Option<u32>,
    /// Keeps the file open in case it or its directory can no longer be reached, as after a container has ended.
    kept_open: Option<File>,
    /// The contents of the process's jitdump file.
    dump: JitDump,
    /// Sizes and names by start. They do not overlap: the last one written applies.
    symbols: BTreeMap<u64, (u64, String)>,
}

/// A file, as far as it was read.
#[derive(Debug)]
struct FileState {
    inode: (u64, u64),
    modified: Option<SystemTime>,
    /// Its length at that time, and the end of its last complete line.
    len: u64,
    lines: u64,
    /// The last of those bytes.
    tail: Vec<u8>,
}

impl PerfMap {
    /// Start and name of the function at an address of the process. `dump`: see [`JitDump`].
    pub(super) fn look_up(&mut self, pid: u32, addr: u64, dump: Option<&Path>) -> Option<(u64, &str)> {
        let good = if self.find(addr).is_some() { MAX_AGE } else { MAX_AGE_ON_MISS };
        if self.checked_at.is_none_or(|at| at.elapsed() >= good) {
            self.refresh(pid);
            if let Some(path) = dump {
                self.read_dump(path);
            }
            self.checked_at = Some(Instant::now());
        }
        self.find(addr)
    }

    /// Reads what was added to the file of the process, or all of it if it is another one. A process in a PID namespace writes
    /// its own view of its PID, into its own /tmp; one that has ended may have left its file in rbt's /tmp.
    fn refresh(&mut self, pid: u32) {
        self.open_map(pid);
        let held = self.kept_open.as_ref().and_then(|file| Some((file.try_clone().ok()?, file.metadata().ok()?)));
        if let Some((file, meta)) = held {
            self.take(file, &meta);
        }
    }

    fn read_dump(&mut self, path: &Path) {
        let mut dump = std::mem::take(&mut self.dump);
        // after an error, the functions before it are valid
        let _ = dump.read(path, &mut |start, size, name, from| {
            let name = from.map_or(Some(name), |from| self.symbols.get(&from).map(|(_, name)| name.clone()));
            name.into_iter().for_each(|name| self.add(start, size, name));
        });
        self.dump = dump;
    }

    /// Opens the file of a running process, because its addresses may be resolved after the process has ended. The file may
    /// be another one than before.
    pub(super) fn open_map(&mut self, pid: u32) {
        self.kept_open = self.open(pid).or_else(|| self.kept_open.take());
    }

    /// Has the process a file that is held open?
    pub(super) fn is_kept_open(&self) -> bool {
        self.kept_open.is_some()
    }

    fn open(&mut self, pid: u32) -> Option<File> {
        // the user of a process is known while the process exists; a file that was trusted once remains trusted
        let status = fs::read_to_string(procfs::file(pid, "status")).unwrap_or_default();
        // its effective user: /proc/PID belongs to root if a process has changed its user
        self.owner = status_field(&status, "Uid:").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok()).or(self.owner);
        let places = [path_in_namespace(pid, &status), Some(PathBuf::from(format!("/tmp/perf-{pid}.map")))];
        places.into_iter().flatten().find_map(|path| open(&path, self.owner)).map(|(file, _)| file)
    }

    /// Reads an open file.
    fn take(&mut self, mut file: File, meta: &Metadata) {
        let (inode, modified) = ((meta.dev(), meta.ino()), meta.modified().ok());
        if let Some(seen) = &self.read_state
            && (seen.inode, seen.len, seen.modified) == (inode, meta.len(), modified)
        {
            return;
        }
        let more = self.read_state.take().filter(|seen| seen.inode == inode && seen.len < meta.len() && seen.is_same_file(&mut file));
        let mut seen = more.unwrap_or_else(|| {
            self.symbols.clear();
            FileState { inode, modified, len: 0, lines: 0, tail: Vec::new() }
        });
        let mut bytes = Vec::new();
        if file.seek(SeekFrom::Start(seen.lines)).is_err() || file.take(input::LIST).read_to_end(&mut bytes).is_err() {
            return;
        }
        // the last line may be incomplete
        let complete = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(complete);
        for (start, size, name) in String::from_utf8_lossy(&bytes).lines().filter_map(line) {
            self.add(start, size, name);
        }
        (seen.modified, seen.len) = (modified, meta.len());
        seen.lines += complete as u64;
        seen.tail.extend_from_slice(&bytes);
        seen.tail.drain(..seen.tail.len().saturating_sub(TAIL));
        self.read_state = Some(seen);
    }

    /// Adds a function, which replaces any at the same addresses.
    fn add(&mut self, start: u64, size: u64, name: String) {
        let end = start.saturating_add(size);
        if let Some((before, (len, _))) = self.symbols.range_mut(..start).next_back() {
            *len = (*len).min(start - before);
        }
        while let Some((&other, _)) = self.symbols.range(start..end).next() {
            self.symbols.remove(&other);
        }
        self.symbols.insert(start, (size, name));
    }

    fn find(&self, addr: u64) -> Option<(u64, &str)> {
        let (start, (size, name)) = self.symbols.range(..=addr).next_back()?;
        (addr - start < *size).then_some((*start, name.as_str()))
    }
}

impl FileState {
    /// Does the file still have the same bytes where reading ended?
    fn is_same_file(&self, file: &mut File) -> bool {
        let mut now = vec![0; self.tail.len()];
        let at = self.lines.saturating_sub(self.tail.len() as u64);
        file.seek(SeekFrom::Start(at)).is_ok() && file.read_exact(&mut now).is_ok() && now == self.tail
    }
}

/// A line of proc_pid_status(5).
pub(super) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn path_in_namespace(pid: u32, status: &str) -> Option<PathBuf> {
    let inner = status_field(status, "NSpid:")?.split_whitespace().last()?;
    Some(procfs::path_in_root(pid, Path::new(&format!("/tmp/perf-{inner}.map"))))
}

/// /tmp is writable by everyone: only a file of the process's user, root or our user is trusted (as in perf), and no
/// link is followed.
fn open(path: &Path, owner: Option<u32>) -> Option<(File, Metadata)> {
    let (file, meta) = input::open_itself(path).ok()?;
    let us = rustix::process::geteuid().as_raw();
    (meta.uid() == 0 || meta.uid() == us || Some(meta.uid()) == owner).then_some((file, meta))
}

fn line(line: &str) -> Option<(u64, u64, String)> {
    let mut parts = line.splitn(3, ' ');
    let mut hex = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
    let (start, size) = (hex()?, hex()?);
    parts.next().map(|name| (start, size, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_maps_of_other_users() {
        let path = std::env::temp_dir().join(format!("rbt-perf-{}.map", std::process::id()));
        std::fs::write(&path, "10 4 forged\n").unwrap();
        assert!(open(&path, None).is_some());
        // only root can give a file away
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            assert!(open(&path, Some(54321)).is_none() && open(&path, None).is_none());
            assert!(open(&path, Some(12345)).is_some());
        }
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(open(&path, None).is_none());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn lines() {
        assert_eq!(line("7f00 1a LazyCompile:~f /x.js:1"), Some((0x7f00, 0x1a, "LazyCompile:~f /x.js:1".to_owned())));
        assert_eq!(line("0x10 0x2 g"), Some((16, 2, "g".to_owned())));
        assert_eq!(line("garbage"), None);
    }

    fn take(map: &mut PerfMap, path: &Path) {
        let file = File::open(path).unwrap();
        let meta = file.metadata().unwrap();
        map.take(file, &meta);
    }

    #[test]
    fn functions_at_the_same_addresses() {
        let mut map = PerfMap::default();
        map.add(16, 4, "a".into());
        map.add(32, 64, "b".into());
        assert_eq!((map.find(15), map.find(19), map.find(20), map.find(32)), (None, Some((16, "a")), None, Some((32, "b"))));
        // what is written later replaces earlier functions
        map.add(40, 8, "c".into());
        assert_eq!((map.find(39), map.find(40), map.find(48)), (Some((32, "b")), Some((40, "c")), None));
        map.add(16, 4096, "d".into());
        assert_eq!((map.find(40), map.symbols.len()), (Some((16, "d")), 1));
        map.add(u64::MAX, u64::MAX, "e".into());
        assert_eq!(map.find(u64::MAX), Some((u64::MAX, "e")));
    }

    #[test]
    fn reads_growing_and_rewritten_files() {
        use std::io::Write;
        let path = std::env::temp_dir().join(format!("rbt-perf-grows-{}.map", std::process::id()));
        let mut map = PerfMap::default();
        std::fs::write(&path, "10 10 one\n20 10 tw").unwrap();
        take(&mut map, &path);
        // an incomplete line is not read yet
        assert_eq!((map.find(0x10), map.find(0x20)), (Some((0x10, "one")), None));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        write!(file, "o\n30 10 three\n").unwrap();
        take(&mut map, &path);
        assert_eq!((map.find(0x2f), map.find(0x30)), (Some((0x20, "two")), Some((0x30, "three"))));
        let lines = map.read_state.as_ref().unwrap().lines;
        assert_eq!(lines, std::fs::metadata(&path).unwrap().len());
        // longer than before, and with other functions
        std::fs::write(&path, "10 10 four\n20 10 five\n30 10 six\n40 10 seven\n").unwrap();
        take(&mut map, &path);
        assert_eq!((map.find(0x10), map.find(0x40)), (Some((0x10, "four")), Some((0x40, "seven"))));
        // shorter
        std::fs::write(&path, "50 10 eight\n").unwrap();
        take(&mut map, &path);
        assert_eq!((map.find(0x10), map.find(0x50)), (None, Some((0x50, "eight"))));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_hundred_thousand_functions() {
        let path = std::env::temp_dir().join(format!("rbt-perf-many-{}.map", std::process::id()));
        let text: String = (0..100_000).map(|n| format!("{:x} 40 LazyCompile:~f{n} /srv/app.js:{n}\n", 0x10000 + n * 0x40)).collect();
        std::fs::write(&path, text).unwrap();
        let mut map = PerfMap::default();
        let before = Instant::now();
        take(&mut map, &path);
        eprintln!("read in {:?}", before.elapsed());
        assert_eq!(map.symbols.len(), 100_000);
        assert!(map.find(0x10000 + 99_999 * 0x40).is_some_and(|(_, name)| name.starts_with("LazyCompile:~f99999 ")));
        std::fs::remove_file(&path).unwrap();
    }
}
