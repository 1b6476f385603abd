//! Finds Python interpreters: keeps the map by which programs find that of a process (`emit/python/`).
//!
//! At the start, rbt reads the mappings of all processes. After that, the kernel's records of mappings report new ones:
//! each executable mapping wakes a thread (Python maps its library some 10 ms before it runs the first line). The
//! programs themselves handle children, which have their parents' interpreter, and processes that end.
//!
//! A file counts if its name contains `python` and it exports `_PyRuntime`: an executable, or a shared library in any process.

mod codes;
mod lines;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::load::{Loaded, MapFd};
use super::mmap_events::{Event, Recorder};
use super::poll::{UNBOUNDED, eventfd, readable, wait, wake};
use super::proc_maps::MapsLine;
use crate::codegen::artifact::{IN_NAMESPACE, Process};
use crate::part::Part;
use crate::system::binary::python::{self, Python};
use crate::system::machine::procfs;
use crate::value::Frame;

pub(super) use codes::is_code;

type FollowFn = fn(&Loaded, Option<u32>, bool) -> Option<Box<dyn Interpreters>>;

/// The functions of this module.
#[derive(Clone, Copy)]
pub(super) struct Frames {
    /// Fills the map with the existing processes (those of a process, if it is given), and starts the thread. None if no
    /// program needs Python frames. The last argument: processes are identified by their numbers in rbt's PID namespace.
    pub follow: FollowFn,
    /// See [`codes::add_record`].
    pub add_record: fn(&[u8]),
    /// See [`codes::frame`].
    pub frame: fn(u64, u32) -> Option<Frame>,
}

const FRAMES: Frames = Frames {
    follow: |loaded, pid, in_namespace| Some(Box::new(Processes::follow(loaded, pid, in_namespace)?)),
    add_record: codes::add_record,
    frame: codes::frame,
};

/// Frames of Python.
pub(super) static PYTHON: Part<Frames> = Part::new(FRAMES);

/// Provides [`PYTHON`].
pub(super) fn provide() {
    PYTHON.provide(FRAMES);
}

/// Finds new interpreters until it is dropped.
pub(super) trait Interpreters {
    /// What was found at the start, for `-v`: a line for each file.
    fn found(&self) -> &[String];
    /// Reads the file of a program that rbt is about to start: it may run its first line before the thread has read it.
    fn prepare(&self, program: &Path);
}

/// See [`Interpreters`].
struct Processes {
    found: Vec<String>,
    files: Arc<Files>,
    thread: Option<(JoinHandle<()>, OwnedFd)>,
}

impl Processes {
    /// See [`Frames::follow`].
    fn follow(loaded: &Loaded, pid: Option<u32>, in_namespace: bool) -> Option<Self> {
        let map = loaded.python_processes?;
        // before the search, so that no mapping is missed in between
        let recorder = Recorder::open().ok();
        let of_namespace = if in_namespace { IN_NAMESPACE } else { 0 };
        let files = Arc::new(Files::default());
        let mut finder = Finder { map, of_namespace, files: Arc::clone(&files), found: BTreeMap::new() };
        match pid {
            Some(pid) => finder.search(pid),
            None => finder.search_all(),
        }
        let line = |((path, what), n): (&(PathBuf, String), &usize)| format!("{what}, processes: {n}: {}", path.display());
        let found = finder.found.iter().map(line).collect();
        Some(Self { found, files, thread: recorder.and_then(|recorder| watch(finder, recorder)) })
    }
}

impl Interpreters for Processes {
    fn found(&self) -> &[String] {
        &self.found
    }

    fn prepare(&self, program: &Path) {
        // the name of the file, not that of a link to it
        let name = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        if python::is_likely(&name) {
            self.files.interpreter(&name, &name);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if let Some((thread, stop)) = self.thread.take() {
            wake(&stop);
            // a thread that panicked has nothing more to say
            let _ = thread.join();
        }
    }
}

fn watch(mut finder: Finder, mut recorder: Recorder) -> Option<(JoinHandle<()>, OwnedFd)> {
    let stop = eventfd().ok()?;
    let stopped = stop.try_clone().ok()?;
    let take = move || {
        // Linux takes "this process" as this thread
        let _ = rustix::process::setpriority_process(None, -20);
        let mut fds = vec![stopped.as_raw_fd()];
        fds.extend(recorder.fds());
        while !readable(&stopped) {
            wait(&fds, UNBOUNDED);
            for event in recorder.drain() {
                match event {
                    Event::Mapped { pid, start, offset, path, .. } => finder.mapped(pid, start, offset, &path),
                    Event::Lost { .. } => finder.search_all(),
                    Event::Forked { .. } | Event::Exited { .. } => {}
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("rbt-python".into()).stack_size(256 << 10).spawn(take).ok()?;
    Some((thread, stop))
}

/// Finds the interpreter of a process.
struct Finder {
    map: MapFd,
    /// The number that is added to a process ID.
    of_namespace: u32,
    files: Arc<Files>,
    /// Processes by file and version.
    found: BTreeMap<(PathBuf, String), usize>,
}

impl Finder {
    fn search_all(&mut self) {
        procfs::all().for_each(|pid| self.search(pid));
    }

    fn search(&mut self, pid: u32) {
        let Ok(maps) = fs::read(procfs::file(pid, "maps")) else { return };
        for line in maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).filter(|line| line.executable) {
            if let Some((path, _)) = line.file().filter(|(path, _)| python::is_likely(path)) {
                let by_mapping = procfs::mapped(pid, line.start, line.end);
                self.found(pid, line.start, line.offset, &path, &[by_mapping, procfs::path_in_root(pid, &path)]);
            }
        }
    }

    /// A process has mapped part of a file.
    fn mapped(&mut self, pid: u32, start: u64, offset: u64, path: &Path) {
        if python::is_likely(path) {
            self.found(pid, start, offset, path, &[procfs::path_in_root(pid, path)]);
        }
    }

    /// `paths`: paths that may lead to the file.
    fn found(&mut self, pid: u32, start: u64, offset: u64, name: &Path, paths: &[PathBuf]) {
        let Some(python) = paths.iter().find_map(|way| self.files.interpreter(way, name)) else { return };
        let Some(bias) = python.bias(start, offset) else { return };
        let version = python.layout.map_or_else(|why| why.to_string(), |layout| format!("Python 3.{}", layout.minor));
        *self.found.entry((name.to_owned(), version)).or_default() += 1;
        // an entry of a process that has ended meanwhile stays until another process has its number
        set(self.map, pid | self.of_namespace, &Process::of(&python, bias));
    }
}

/// A file's device, inode and time of change.
type FileId = (u64, u64, i64);

/// The files that were read. None: no interpreter.
#[derive(Default)]
struct Files(Mutex<HashMap<FileId, Option<Arc<Python>>>>);

impl Files {
    /// The interpreter in a file. `name`: its path, which determines its separate debug file.
    fn interpreter(&self, way: &Path, name: &Path) -> Option<Arc<Python>> {
        let meta = fs::metadata(way).ok()?;
        let key = (meta.dev(), meta.ino(), meta.mtime());
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.entry(key).or_insert_with(|| python::read_file(way, name).map(Arc::new)).clone()
    }
}

#[allow(unsafe_code)] // bpf(2)
fn set(map: MapFd, key: u32, process: &Process) {
    if map.value_size == size_of::<Process>() {
        // SAFETY: the key and the value are of the map's sizes
        unsafe { libbpf_sys::bpf_map_update_elem(map.fd, (&raw const key).cast(), std::ptr::from_ref(process).cast(), 0) };
    }
}
