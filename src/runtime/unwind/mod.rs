//! Unwind tables in the kernel: made for the files that processes run, and given to the programs that take stacks.
//!
//! The maps belong to this process, not to a script, so that all entries at the prompt share them. A thread compiles the
//! tables of the files that programs report as missing, and of those that running processes have mapped. What it does
//! stands in `emit/unwind`, which has the programs' side.
//!
//! - `kernel.rs`: the maps; `place.rs`: where tables lie in them
#![allow(unsafe_code)] // a mapping of a file, to have it identified

mod kernel;
mod place;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::poll::{clear, eventfd, readable, tell, wait};
use super::proc_maps::Line;
use super::ring::Ring;
use super::test_run;
use crate::codegen::artifact::Process;
use crate::codegen::artifact::unwind::{FileKey, MISSES_BYTES, VDSO};
use crate::input;
use crate::system::binary::interpreters;
use crate::system::binary::needed::needed;
use crate::system::binary::python::Python;
use crate::system::binary::unwind::{self as tables, Table};
use kernel::Maps;
use place::Placed;

/// Nothing to do: the longest sleep.
const LONGEST: Duration = Duration::from_secs(3600);

/// How often a file's identity is asked for. It is not given either where the file's table is there already.
const IDENTIFY_TRIES: u32 = 3;

/// The tables of this process.
pub(super) struct Unwinder {
    state: Arc<Mutex<State>>,
    stop: OwnedFd,
    wake: OwnedFd,
}

/// What tables are made with.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Bytes that they may take.
    pub memory: u64,
    /// See [`tables::table`].
    pub debug_dirs: Vec<String>,
}

struct State {
    maps: Maps,
    ring: Ring,
    placed: Placed,
    /// By the kernel's identity of files: their numbers.
    files: HashMap<FileKey, u32>,
    /// Files that were looked at before programs ran, by device and inode.
    preloaded: HashSet<(u64, u64)>,
    /// Of the thread, while it makes tables that nobody has missed yet.
    identify: Option<OwnedFd>,
    debug_dirs: Vec<String>,
    /// What was loaded, for `-v`.
    loaded: Vec<String>,
}

impl Unwinder {
    /// The tables of this process, which are made where there are none yet.
    ///
    /// Errors: the kernel's, for the maps.
    pub fn shared(options: &Options) -> io::Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Unwinder>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared.upgrade() {
            return Ok(known);
        }
        let made = Arc::new(Self::new(options)?);
        *shared = Arc::downgrade(&made);
        Ok(made)
    }

    fn new(options: &Options) -> io::Result<Self> {
        let maps = Maps::create()?;
        let ring = Ring::open(maps.misses(), MISSES_BYTES.into())?;
        let state = State {
            placed: Placed::new(options.memory),
            maps,
            ring,
            files: HashMap::new(),
            debug_dirs: options.debug_dirs.clone(),
            preloaded: HashSet::new(),
            identify: None,
            loaded: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        of(&state).load_vdso();
        let (stop, wake) = (eventfd()?, eventfd()?);
        spawn(Arc::clone(&state), stop.try_clone()?, wake.try_clone()?)?;
        Ok(Self { state, stop, wake })
    }

    /// The map of this name, if it is one of those that programs share.
    pub fn map(&self, name: &str) -> Option<BorrowedFd<'static>> {
        of(&self.state).maps.named(name)
    }

    /// Makes the tables of what a process has mapped. `identify`: see [`IDENTIFY`](crate::codegen::artifact::unwind::IDENTIFY).
    pub fn preload_process(&self, identify: RawFd, pid: u32) {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        for line in maps.split(|b| *b == b'\n').filter_map(Line::parse).filter(|line| line.executable) {
            let mapping = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", line.start, line.end));
            of(&self.state).preload(identify, &mapping);
        }
    }

    /// Makes the tables of a program that is about to run, and of what it is linked with.
    pub fn preload_program(&self, identify: RawFd, path: &Path) {
        let mut state = of(&self.state);
        state.preload(identify, path);
        needed(path).iter().for_each(|needed| state.preload(identify, needed));
    }

    /// Has the thread make the tables of all that processes run now, in its own time: what programs miss comes first.
    pub fn preload_all(&self, identify: RawFd) {
        // SAFETY: open, since the caller has it
        let own = unsafe { BorrowedFd::borrow_raw(identify) }.try_clone_to_owned();
        of(&self.state).identify = own.ok();
        tell(&self.wake);
    }

    /// What was loaded since the last call: a line each.
    pub fn news(&self) -> Vec<String> {
        std::mem::take(&mut of(&self.state).loaded)
    }
}

impl Drop for Unwinder {
    fn drop(&mut self) {
        // it may be at work on a large file, for which nobody waits
        tell(&self.stop);
    }
}

/// A thread that panicked in the midst has at worst left a table out.
fn of(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(state: Arc<Mutex<State>>, stop: OwnedFd, wake: OwnedFd) -> io::Result<()> {
    let work = move || {
        // what is traced goes first; without the right to it, so be it. Linux takes "this process" as this thread.
        let _ = rustix::process::setpriority_process(None, 10);
        let fds = [stop.as_raw_fd(), of(&state).ring.fd(), wake.as_raw_fd()];
        let mut left: Vec<PathBuf> = Vec::new();
        while !readable(&stop) {
            if of(&state).supply() > 0 {
                continue;
            }
            if readable(&wake) {
                clear(&wake);
                left = mapped_files();
            }
            match left.pop() {
                Some(mapping) => {
                    let mut state = of(&state);
                    if let Some(identify) = state.identify.as_ref().map(AsRawFd::as_raw_fd) {
                        state.preload(identify, &mapping);
                    }
                }
                None => {
                    of(&state).identify = None;
                    wait(&fds, LONGEST);
                }
            }
        }
    };
    std::thread::Builder::new().name("rbt-unwind".into()).spawn(work).map(drop)
}

impl State {
    /// Has programs find what they missed, and gives how much that was.
    fn supply(&mut self) -> usize {
        let mut misses = Vec::new();
        self.ring.drain(u64::MAX, &mut |record| {
            misses.extend(kernel::miss(record));
            true
        });
        for miss in &misses {
            let pid = (miss.ids >> 32) as u32;
            let mapping = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", miss.start, miss.end));
            let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
            let line = maps.split(|b| *b == b'\n').filter_map(Line::parse).find(|line| (line.start..line.end).contains(&miss.addr));
            let name = line.and_then(|line| Some(line.file()?.0));
            self.load(miss.file, pid, &mapping, name.as_deref());
            // should it be forgotten there, or not have worked, it is reported again
            self.maps.forget_miss(miss.key);
        }
        misses.len()
    }

    /// Makes the table of a file that will be mapped: maps it here, and has a program report it.
    fn preload(&mut self, identify: RawFd, at: &Path) {
        let Ok((file, meta)) = input::open_regular(at) else { return };
        if meta.len() == 0 || !self.preloaded.insert((meta.dev(), meta.ino())) {
            return;
        }
        // SAFETY: the memory is not looked at
        let Ok(mapped) = (unsafe { memmap2::MmapOptions::new().len(1).map(&file) }) else { return };
        // the program looks without the lock, so it may overlook a mapping while another thread changes them
        for _ in 0..IDENTIFY_TRIES {
            // errors: the table is made when a program misses it
            let _ = test_run::run_once(identify, mapped.as_ptr() as u64);
            if self.supply() > 0 {
                break;
            }
        }
    }

    /// The file of a mapping, from the mapping itself or by its name.
    fn load(&mut self, key: FileKey, pid: u32, mapping: &Path, name: Option<&Path>) -> Option<u32> {
        if let Some(known) = self.files.get(&key) {
            return Some(*known);
        }
        let by_name = name.map(|name| Path::new(&format!("/proc/{pid}/root")).join(name.strip_prefix("/").unwrap_or(name)));
        let is_it = |path: &&Path| input::open_regular(path).is_ok_and(|(_, meta)| meta.ino() == key.ino && meta.len() == key.size);
        let at = [Some(mapping), by_name.as_deref()].into_iter().flatten().find(is_it)?.to_owned();
        let name = name.map_or_else(|| fs::read_link(&at).unwrap_or_else(|_| at.clone()), Path::to_owned);
        // what is no program of 64 bits is gone through by frame pointers
        let table = tables::table(&name, &at, &self.debug_dirs).unwrap_or_default();
        let interpreter = table.rules.iter().any(|rule| rule.interpreter).then(|| interpreters::of_file(&at, &name)).flatten();
        self.put(key, &table, interpreter, &name.display().to_string())
    }

    fn put(&mut self, key: FileKey, table: &Table, interpreter: Option<Python>, name: &str) -> Option<u32> {
        let number = self.placed.add(&mut self.maps, table).ok()?;
        // before programs find the file
        let interpreter = interpreter.map(|python| Process::of(&python, python.shift().wrapping_neg()));
        interpreter.and_then(|process| self.maps.set_interpreter(number, &process).ok());
        self.maps.set_file(&key, number).ok()?;
        self.files.insert(key, number);
        self.loaded.push(format!("unwind table of {name}: {} rows, {} rules", table.rows.len(), table.rules.len()));
        Some(number)
    }

    fn load_vdso(&mut self) {
        let table = vdso().map(|image| tables::compile_image(&image)).unwrap_or_default();
        let number = self.placed.add(&mut self.maps, &table);
        debug_assert_eq!(number.ok(), Some(VDSO));
    }
}

/// The executable mappings of files of all processes, each file once; those that most processes have are last.
fn mapped_files() -> Vec<PathBuf> {
    let mut found: HashMap<(Vec<u8>, u64), (usize, PathBuf)> = HashMap::new();
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in names {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        for line in maps.split(|b| *b == b'\n').filter_map(Line::parse).filter(|line| line.executable && line.file().is_some()) {
            let mapping = || PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", line.start, line.end));
            found.entry((line.path.as_bytes().to_vec(), line.inode)).or_insert_with(|| (0, mapping())).0 += 1;
        }
    }
    let mut found: Vec<(usize, PathBuf)> = found.into_values().collect();
    found.sort();
    found.into_iter().map(|(_, mapping)| mapping).collect()
}

/// The vDSO's image, which is the same in all processes of 64 bits.
fn vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read("/proc/self/maps").ok()?;
    let line = maps.split(|b| *b == b'\n').filter_map(Line::parse).find(|line| line.path == "[vdso]")?;
    let mut image = vec![0; usize::try_from(line.end - line.start).ok()?];
    fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, line.start).ok()?;
    Some(image)
}
