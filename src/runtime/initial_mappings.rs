//! Mappings of processes from before the recording began. They are needed for processes that end before rbt prints their
//! stacks.
//!
//! A thread reads `/proc/PID/maps` of all processes, the youngest first, while the script is loaded and attached. Each takes
//! 0.1 ms. If a process ends before its turn, its mappings are lost.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::SystemTime;

use super::proc_maps::{MapsLine, is_at, open_mapped_file};
use crate::system::machine::procfs;

/// Maximum number of files that are kept open because their paths do not lead to them (deleted, replaced, in a container).
const MAX_OPEN_FILES: usize = 256;

/// The executable mappings of one process.
#[derive(Debug)]
pub(super) struct ProcessMappings {
    /// These lines of its `/proc/PID/maps`.
    pub(super) maps: Vec<u8>,
    pub(super) read_at: SystemTime,
}

/// The result of the scan.
#[derive(Debug, Default)]
pub(super) struct InitialMappings {
    pub(super) processes: HashMap<u32, ProcessMappings>,
    /// By path and inode.
    pub(super) open_files: Vec<((PathBuf, u64), File)>,
    /// Processes that have executable memory without a file.
    pub(super) compilers: Vec<u32>,
}

/// A running scan of all processes.
#[derive(Debug)]
pub(super) struct Scan(JoinHandle<InitialMappings>);

impl Scan {
    /// Starts the thread; none if it cannot be created.
    pub(super) fn begin() -> Option<Self> {
        std::thread::Builder::new().name("rbt-maps".into()).spawn(read_all).ok().map(Self)
    }

    /// Is there nothing to wait for?
    pub(super) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for its end.
    pub(super) fn end(self) -> InitialMappings {
        self.0.join().unwrap_or_default()
    }
}

fn read_all() -> InitialMappings {
    let mut found = InitialMappings::default();
    let mut files = HashSet::new();
    let rbt_pid = std::process::id();
    let mut pids: Vec<u32> = procfs::all().filter(|pid| *pid != rbt_pid).collect();
    pids.sort_unstable_by(|a, b| b.cmp(a));
    for pid in pids {
        let text = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
        let seen = SystemTime::now();
        let mut maps = Vec::new();
        for text in text.split(|b| *b == b'\n') {
            let Some(line) = MapsLine::parse(text).filter(|line| line.executable) else { continue };
            maps.extend_from_slice(text);
            maps.push(b'\n');
            if line.path.is_empty() && found.compilers.last() != Some(&pid) {
                found.compilers.push(pid);
            }
            let Some((path, deleted)) = line.file() else { continue };
            let key = (path, line.inode);
            if found.open_files.len() < MAX_OPEN_FILES && !files.contains(&key) {
                if (deleted || !is_at(&key.0, key.1, seen))
                    && let Some(file) = open_mapped_file(pid, &line, None)
                {
                    found.open_files.push((key.clone(), file));
                }
                files.insert(key);
            }
        }
        // kernel threads have no mappings
        if !maps.is_empty() {
            found.processes.insert(pid, ProcessMappings { maps, read_at: seen });
        }
    }
    found
}
