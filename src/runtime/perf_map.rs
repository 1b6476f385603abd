//! Symbols of just-in-time compiled code: `/tmp/perf-PID.map` has a line `START SIZE NAME` per function, with numbers in
//! hexadecimal (Linux `tools/perf/Documentation/jit-interface.txt`).

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::input;

/// The contents of one map file.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// As last read; a compiler appends.
    len: u64,
    /// The user whose process it is of.
    owner: Option<u32>,
    /// Start, size, name, sorted by start; of the same start the last one written is last.
    symbols: Vec<(u64, u64, String)>,
}

impl PerfMap {
    /// Reads the file of the process again if it has grown. A process in a PID namespace writes its own view of its PID, into
    /// its own /tmp; one that has ended may have left its file in rbt's /tmp.
    pub(super) fn refresh(&mut self, pid: u32) {
        // what belongs to a process's user is known while it is there, and what was believed once goes on to be
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // its effective one: /proc/PID itself is root's where a process has changed its user
        self.owner = of_status(&status, "Uid:").and_then(|ids| ids.split_whitespace().nth(1)?.parse().ok()).or(self.owner);
        let places = [of_namespace(pid, &status), Some(PathBuf::from(format!("/tmp/perf-{pid}.map")))];
        let Some((file, meta)) = places.into_iter().flatten().find_map(|path| open(&path, self.owner)) else { return };
        if meta.len() != self.len {
            self.symbols = read(file);
            self.len = meta.len();
        }
    }

    /// Start and name of the function at an address.
    pub(super) fn find(&self, addr: u64) -> Option<(u64, &str)> {
        let after = self.symbols.partition_point(|(start, _, _)| *start <= addr);
        let (start, size, name) = self.symbols.get(after.checked_sub(1)?)?;
        (addr - start < *size).then_some((*start, name.as_str()))
    }
}

/// A line of proc_pid_status(5).
fn of_status<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

fn of_namespace(pid: u32, status: &str) -> Option<PathBuf> {
    let inner = of_status(status, "NSpid:")?.split_whitespace().last()?;
    Some(PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{inner}.map")))
}

/// /tmp is everybody's: only what the process's own user wrote, root, or we, is believed (as perf has it), and no link is followed.
fn open(path: &Path, owner: Option<u32>) -> Option<(File, Metadata)> {
    let (file, meta) = input::open_itself(path).ok()?;
    let us = rustix::process::geteuid().as_raw();
    (meta.uid() == 0 || meta.uid() == us || Some(meta.uid()) == owner).then_some((file, meta))
}

fn read(file: File) -> Vec<(u64, u64, String)> {
    let text = input::read_from(file, input::LIST).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut symbols: Vec<_> = text.lines().filter_map(line).collect();
    symbols.sort_by_key(|(start, _, _)| *start);
    symbols
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
    fn maps_of_other_users_are_not_believed() {
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
        let map = PerfMap { len: 0, owner: None, symbols: vec![(16, 4, "a".into()), (32, 4, "b".into())] };
        assert_eq!((map.find(15), map.find(19), map.find(20), map.find(32)), (None, Some((16, "a")), None, Some((32, "b"))));
    }
}
