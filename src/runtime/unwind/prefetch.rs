//! Reads the tables of a running process in a thread, while the script is compiled and loaded.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::JoinHandle;

use crate::input;
use crate::runtime::proc_maps::MapsLine;
use crate::system::binary::interpreters;
use crate::system::binary::python::Python;
use crate::system::binary::unwind::{self as tables, Table};
use crate::system::machine::procfs;

/// What programs need to know about a file.
#[derive(Debug, Default)]
pub(super) struct FileData {
    pub table: Table,
    pub interpreter: Option<Python>,
}

impl FileData {
    /// `name` is the file's path, `at` is where it can be read, `dirs` are those of `--debuginfo`.
    pub fn read(name: &Path, at: &Path, dirs: &[String]) -> Self {
        // a file that is not a 64-bit program is unwound by frame pointers
        let table = tables::table(name, at, dirs).unwrap_or_default();
        let interpreter = table.rules.iter().any(|rule| rule.interpreter).then(|| interpreters::interpreter_in(at, name)).flatten();
        Self { table, interpreter }
    }
}

/// The data of files by device and inode.
pub(super) type FileDataByInode = HashMap<(u64, u64), FileData>;

/// A thread that reads the tables of the files that a process has mapped.
#[derive(Debug)]
pub struct Prefetch(JoinHandle<FileDataByInode>);

impl Prefetch {
    /// Starts the thread; none if it cannot be started. `dirs` are those of `--debuginfo`.
    pub fn start(pid: u32, dirs: &[String]) -> Option<Self> {
        let dirs = dirs.to_vec();
        let work = move || {
            let mut read = FileDataByInode::new();
            let maps = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
            for line in maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).filter(|line| line.executable) {
                let at = procfs::mapped(pid, line.start, line.end);
                let (Some((name, _)), Ok((_, meta))) = (line.file(), input::open_regular(&at)) else { continue };
                read.entry((meta.dev(), meta.ino())).or_insert_with(|| FileData::read(&name, &at, &dirs));
            }
            read
        };
        std::thread::Builder::new().name("rbt-prefetch".into()).spawn(work).ok().map(Self)
    }

    /// Waits for the thread.
    pub(super) fn finish(self) -> FileDataByInode {
        self.0.join().unwrap_or_default()
    }
}
