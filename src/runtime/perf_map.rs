//! Names of code that a just-in-time compiler made: `/tmp/perf-PID.map`, one `START SIZE NAME` a line, both in hex
//! (Linux `tools/perf/Documentation/jit-interface.txt`).

use std::fs;
use std::path::{Path, PathBuf};

/// The contents of one map file.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// As last read; a compiler appends.
    len: u64,
    /// Start, size, name, sorted by start; of the same start the last one written is last.
    symbols: Vec<(u64, u64, String)>,
}

impl PerfMap {
    /// Reads the process's file again if it has grown. A process in a name space of its own writes the pid it sees, into
    /// its own /tmp; one that has exited may have left its file in ours.
    pub(super) fn refresh(&mut self, pid: u32) {
        let Some((path, len)) = [of_namespace(pid), Some(PathBuf::from(format!("/tmp/perf-{pid}.map")))]
            .into_iter()
            .flatten()
            .find_map(|path| fs::metadata(&path).ok().map(|meta| (path, meta.len())))
        else {
            return;
        };
        if len != self.len {
            self.symbols = read(&path);
            self.len = len;
        }
    }

    /// Start and name of the function at an address.
    pub(super) fn find(&self, addr: u64) -> Option<(u64, &str)> {
        let after = self.symbols.partition_point(|(start, _, _)| *start <= addr);
        let (start, size, name) = self.symbols.get(after.checked_sub(1)?)?;
        (addr - start < *size).then_some((*start, name.as_str()))
    }
}

fn of_namespace(pid: u32) -> Option<PathBuf> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.to_owned();
    Some(PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{inner}.map")))
}

fn read(path: &Path) -> Vec<(u64, u64, String)> {
    let text = fs::read(path).unwrap_or_default();
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
    fn lines() {
        assert_eq!(line("7f00 1a LazyCompile:~f /x.js:1"), Some((0x7f00, 0x1a, "LazyCompile:~f /x.js:1".to_owned())));
        assert_eq!(line("0x10 0x2 g"), Some((16, 2, "g".to_owned())));
        assert_eq!(line("garbage"), None);
        let map = PerfMap { len: 0, symbols: vec![(16, 4, "a".into()), (32, 4, "b".into())] };
        assert_eq!((map.find(15), map.find(19), map.find(20), map.find(32)), (None, Some((16, "a")), None, Some((32, "b"))));
    }
}
