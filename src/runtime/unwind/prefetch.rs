//! Reads the tables of a running process in threads, while the script is compiled and loaded.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

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

/// The maximum number of threads that read. A process has few large files.
const MAX_THREADS: usize = 4;

/// A thread that reads the tables of the files that a process has mapped.
#[derive(Debug)]
pub struct Prefetch(JoinHandle<FileDataByInode>);

impl Prefetch {
    /// Starts the thread; none if it cannot be started. `dirs` are those of `--debuginfo`.
    pub fn start(pid: u32, dirs: &[String]) -> Option<Self> {
        let dirs = dirs.to_vec();
        let work = move || read_all(files_of(pid), &dirs);
        thread::Builder::new().name("rbt-prefetch".into()).spawn(work).ok().map(Self)
    }

    /// Waits for the thread.
    pub(super) fn finish(self) -> FileDataByInode {
        self.0.join().unwrap_or_default()
    }
}

/// A file to read.
struct MappedFile {
    name: PathBuf,
    at: PathBuf,
    identity: (u64, u64),
    size: u64,
}

/// The files that a process has mapped as code, each once; the largest come last.
fn files_of(pid: u32) -> Vec<MappedFile> {
    let mut files: HashMap<(u64, u64), MappedFile> = HashMap::new();
    let maps = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
    for line in maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).filter(|line| line.executable) {
        let at = procfs::mapped(pid, line.start, line.end);
        let (Some((name, _)), Ok((_, meta))) = (line.file(), input::open_regular(&at)) else { continue };
        let identity = (meta.dev(), meta.ino());
        files.entry(identity).or_insert_with(|| MappedFile { name, at, identity, size: meta.len() });
    }
    let mut files: Vec<MappedFile> = files.into_values().collect();
    files.sort_by_key(|file| (file.size, file.identity));
    files
}

/// Reads files in this thread, and in others if several take long.
fn read_all(files: Vec<MappedFile>, dirs: &[String]) -> FileDataByInode {
    /// Starting a thread takes less time than reading a file of this size, even from the cache.
    const LARGE: u64 = 8 << 20;
    let large = files.iter().filter(|file| file.size >= LARGE).count();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(large).min(MAX_THREADS);
    let left = Mutex::new(files);
    let read_some = || {
        let mut read = FileDataByInode::new();
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(MappedFile { name, at, identity, .. }) = next else { return read };
            read.insert(identity, FileData::read(&name, &at, dirs));
        }
    };
    thread::scope(|scope| {
        // errors: this thread reads them all
        let start = |_| thread::Builder::new().name("rbt-prefetch".into()).spawn_scoped(scope, read_some).ok();
        let others: Vec<_> = (1..threads).filter_map(start).collect();
        let mut read = read_some();
        others.into_iter().for_each(|other| read.extend(other.join().unwrap_or_default()));
        read
    })
}
