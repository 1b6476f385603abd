//! Unwind tables in the kernel: rbt compiles them for the files that processes run, and supplies them to the programs
//! that take stacks.
//!
//! The maps belong to this process, not to a script, so that all entries at the prompt share them. A thread compiles
//! the tables of the files that programs report as missing, and of those that processes map, which the kernel reports at
//! once. Another thread compiles those of the files that running processes have mapped. `emit/unwind` is the programs' side,
//! and describes the scheme.
//!
//! - `kernel.rs`: the maps; `table_allocator.rs`: the places of tables in them; `mapped_files_cache.rs`: files that a
//!   program mapped in earlier runs; `prefetch.rs`: tables that are read before programs are loaded
#![allow(unsafe_code)] // maps a file to identify it

mod kernel;
mod mapped_files_cache;
mod prefetch;
mod table_allocator;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::mmap_events::{Event, Recorder};
use super::poll::{clear, eventfd, readable, wait, wake};
use super::proc_maps::MapsLine;
use super::ring::Ring;
use super::test_run;
use crate::codegen::artifact::Process;
use crate::codegen::artifact::unwind::{FileKey, MISSES_BYTES, MissingTable, NO_ROOM, VDSO};
use crate::input;
use crate::part::Part;
use crate::system::binary::dynamic_loader::needed;
use crate::system::binary::unwind as tables;
use crate::system::machine::procfs;
use kernel::Maps;
use mapped_files_cache::MappedFilesCache;
pub use prefetch::Prefetch;
use prefetch::{FileData, FileDataByInode};
use table_allocator::TableAllocator;

/// The maximum sleep if there is nothing to do.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

/// How often rbt tries to identify a file. It also fails if the file's table exists already.
const IDENTIFY_TRIES: u32 = 3;
/// The number of mapped files that are remembered to avoid checking them each time.
const MAX_SEEN_FILES: usize = 1 << 16;
/// The longest wait for the tables of the files that a program mapped in earlier runs.
const EARLIER_FILES_TIMEOUT: Duration = Duration::from_secs(2);

/// The tables of this process.
struct Unwinder {
    state: Arc<Mutex<State>>,
    /// The same as `target` in the state.
    target: SharedTarget,
    recorder: SharedRecorder,
    /// Receives a message when the tables of [`Unwind::preload_earlier`] are made.
    preload_done: Mutex<Option<Receiver<()>>>,
    stop: OwnedFd,
    wake: OwnedFd,
}

/// It has a separate lock, because that of the state may be held for long.
type SharedTarget = Arc<Mutex<Option<Target>>>;

/// None without permission to record.
type SharedRecorder = Arc<Mutex<Option<Recorder>>>;

/// The program that rbt runs, or the process of `-p`.
struct Target {
    /// The process and its descendants.
    processes: HashSet<u32>,
    /// The files that they have mapped.
    files: HashSet<PathBuf>,
    /// What is kept of them for the next run of the program.
    previous_files: Option<MappedFilesCache>,
}

impl Target {
    fn new(pid: u32, earlier: Option<MappedFilesCache>) -> Self {
        Self { processes: HashSet::from([pid]), files: HashSet::new(), previous_files: earlier }
    }

    /// Notes a file that a process has mapped, if it is one of these.
    fn note(&mut self, pid: u32, path: &Path) {
        if self.processes.contains(&pid) {
            self.files.insert(path.to_owned());
            if let Some(earlier) = &mut self.previous_files {
                earlier.add(path);
            }
        }
    }

    /// Has one of the processes mapped the file? Such a process may have ended.
    fn has(&self, pid: u32, path: &Path) -> bool {
        self.processes.contains(&pid) || self.files.contains(path)
    }

    /// Follows forks and exits, and notes mapped files.
    fn follow(&mut self, event: &Event) {
        match event {
            Event::Forked { pid, parent } => {
                if self.processes.contains(parent) {
                    self.processes.insert(*pid);
                }
            }
            Event::Exited { pid } => {
                self.processes.remove(pid);
            }
            Event::Mapped { pid, inode, path, .. } if is_file(*inode, path) => {
                self.note(*pid, path);
            }
            Event::Mapped { .. } | Event::Lost { .. } => {}
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(earlier) = &mut self.previous_files {
            earlier.save();
        }
    }
}

/// What the thread does next.
enum Task {
    /// Makes the table of a file.
    Make(PathBuf),
    /// Says that it is done so far.
    Tell(Sender<()>),
}

/// The options for making tables.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The maximum size of tables in bytes.
    pub memory: u64,
    /// See [`tables::table`].
    pub debug_dirs: Vec<String>,
}

struct State {
    maps: Maps,
    ring: Ring,
    placed: TableAllocator,
    /// Numbers of files by the kernel's identity of the files.
    files: HashMap<FileKey, u32>,
    /// Files that were read before programs ran, by device and inode.
    preloaded: HashSet<(u64, u64)>,
    /// The data of files that were read already.
    prefetched: FileDataByInode,
    /// See [`IDENTIFY`](crate::codegen::artifact::unwind::IDENTIFY).
    identify: Option<OwnedFd>,
    target: SharedTarget,
    tasks: VecDeque<Task>,
    /// Reports of programs that are not handled yet.
    misses: Vec<MissingTable>,
    /// A thread of [`Unwind::preload_all`] is running.
    preloads_all: bool,
    debug_dirs: Vec<String>,
    /// The loaded tables, for `-v`.
    loaded: Vec<String>,
}

/// Supplies the tables by which programs unwind stacks.
pub(super) trait Unwind {
    /// The map of this name, if it is one of those that programs share.
    fn map(&self, name: &str) -> Option<BorrowedFd<'static>>;
    /// Sets the program that identifies files: see [`IDENTIFY`](crate::codegen::artifact::unwind::IDENTIFY).
    fn identify_by(&self, identify: RawFd);
    /// Makes the tables of the files that a process, the target, has mapped.
    fn preload_process(&self, pid: u32, prefetched: Option<Prefetch>);
    /// Makes the tables of a program that is about to run, and of its libraries.
    fn preload_program(&self, path: &Path);
    /// Makes the thread build the tables of the files that a program mapped in earlier runs; rbt is about to run it as
    /// this process.
    fn preload_earlier(&self, program: &Path, pid: u32);
    /// Waits for the tables of [`Unwind::preload_earlier`]. A program may end before the table of its largest file could be
    /// read, and in that case a later run needs it as much.
    fn wait_for_earlier(&self);
    /// Starts a thread that builds the tables of all files that processes run now, at low priority. Files that programs miss do
    /// not wait for it: it may have started on a large one.
    fn preload_all(&self);
    /// The tables loaded since the last call: a line each.
    fn take_messages(&self) -> Vec<String>;
}

/// The tables of this process; created if there are none yet.
pub(super) static TABLES: Part<SharedFn> = Part::new(shared);

type SharedFn = fn(&Options) -> io::Result<Arc<dyn Unwind>>;

/// Provides [`TABLES`].
pub(super) fn provide() {
    TABLES.provide(shared);
}

fn shared(options: &Options) -> io::Result<Arc<dyn Unwind>> {
    Ok(Unwinder::shared(options)?)
}

impl Unwinder {
    /// The tables of this process; created if there are none yet.
    ///
    /// Errors: those of the kernel when it creates the maps.
    fn shared(options: &Options) -> io::Result<Arc<Self>> {
        static SHARED: Mutex<Weak<Unwinder>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared.upgrade() {
            return Ok(known);
        }
        let unwinder = Arc::new(Self::new(options)?);
        *shared = Arc::downgrade(&unwinder);
        Ok(unwinder)
    }

    fn new(options: &Options) -> io::Result<Self> {
        let maps = Maps::create()?;
        let ring = Ring::open(maps.misses(), MISSES_BYTES.into())?;
        let target = SharedTarget::default();
        let state = State {
            placed: TableAllocator::new(options.memory),
            maps,
            ring,
            files: HashMap::new(),
            debug_dirs: options.debug_dirs.clone(),
            preloaded: HashSet::new(),
            prefetched: FileDataByInode::new(),
            identify: None,
            target: Arc::clone(&target),
            tasks: VecDeque::new(),
            misses: Vec::new(),
            preloads_all: false,
            loaded: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        of(&state).load_vdso();
        let (stop, wake) = (eventfd()?, eventfd()?);
        // without permission, tables are made when programs miss them
        let recorder = Arc::new(Mutex::new(Recorder::open().ok()));
        spawn(Arc::clone(&state), stop.try_clone()?, wake.try_clone()?, Arc::clone(&recorder))?;
        Ok(Self { state, target, recorder, preload_done: Mutex::default(), stop, wake })
    }
}

impl Unwind for Unwinder {
    fn map(&self, name: &str) -> Option<BorrowedFd<'static>> {
        of(&self.state).maps.named(name)
    }

    fn identify_by(&self, identify: RawFd) {
        // SAFETY: the caller holds it open
        let fd = unsafe { BorrowedFd::borrow_raw(identify) }.try_clone_to_owned();
        let mut state = of(&self.state);
        state.identify = fd.ok();
        // the programs are loaded, and may look up rows after this; on an error, they find none
        let _ = state.maps.wait_for_pools();
    }

    fn preload_process(&self, pid: u32, prefetched: Option<Prefetch>) {
        *of(&self.target) = Some(Target::new(pid, None));
        if let Some(prefetched) = prefetched {
            of(&self.state).prefetched = prefetched.finish();
        }
        let maps = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
        for line in maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).filter(|line| line.executable) {
            of(&self.state).preload(&procfs::mapped(pid, line.start, line.end));
        }
        of(&self.state).prefetched.clear();
    }

    fn preload_program(&self, path: &Path) {
        let mut state = of(&self.state);
        state.preload(path);
        needed(path).iter().for_each(|needed| state.preload(needed));
    }

    fn preload_earlier(&self, program: &Path, pid: u32) {
        let earlier = MappedFilesCache::of(program);
        let (sender, receiver) = channel();
        let files = earlier.iter().flat_map(|earlier| &earlier.files).cloned().map(Task::Make);
        of(&self.state).tasks.extend(files.chain([Task::Tell(sender)]));
        *of(&self.target) = Some(Target::new(pid, earlier));
        *of(&self.preload_done) = Some(receiver);
        wake(&self.wake);
    }

    fn wait_for_earlier(&self) {
        if let Some(receiver) = of(&self.preload_done).take() {
            // errors: the time is over, or there is no thread
            let _ = receiver.recv_timeout(EARLIER_FILES_TIMEOUT);
        }
    }

    fn preload_all(&self) {
        let (Ok(stop), Ok(wakes)) = (self.stop.try_clone(), self.wake.try_clone()) else { return };
        if std::mem::replace(&mut of(&self.state).preloads_all, true) {
            return;
        }
        let state = Arc::clone(&self.state);
        let work = move || {
            for file in mapped_files() {
                if readable(&stop) {
                    break;
                }
                preload_mapped(&state, &file, &wakes);
            }
            of(&state).preloads_all = false;
        };
        // without it, tables are made when programs miss them
        let _ = std::thread::Builder::new().name("rbt-preload".into()).spawn(work);
    }

    fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut of(&self.state).loaded)
    }
}

impl Drop for Unwinder {
    fn drop(&mut self) {
        // it may be reading a large file; do not wait for it
        wake(&self.stop);
        drain(&self.recorder, &self.target);
        *of(&self.target) = None;
    }
}

/// A thread that panicked while it held the lock has at worst omitted a table.
fn of<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The new records, by which the target is followed before another thread can read any.
fn drain(recorder: &SharedRecorder, target: &SharedTarget) -> Vec<Event> {
    let mut recorder = of(recorder);
    let events = recorder.as_mut().map(Recorder::drain).unwrap_or_default();
    if let Some(target) = &mut *of(target) {
        events.iter().for_each(|event| target.follow(event));
    }
    events
}

/// Is a file in an overlay file system?
fn is_overlay(file: &fs::File) -> bool {
    /// Of include/uapi/linux/magic.h.
    const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;
    rustix::fs::fstatfs(file).is_ok_and(|of| of.f_type as u64 == OVERLAYFS_SUPER_MAGIC)
}

/// Is a mapping of a file?
fn is_file(inode: u64, path: &Path) -> bool {
    inode != 0 && path.is_absolute() && !path.as_os_str().as_bytes().starts_with(b"//")
}

/// The events whose files may need tables.
type Pending = Arc<Mutex<Vec<Event>>>;

/// Starts the thread that follows mappings. It is another one than that of the tables, because a large table takes long, and
/// programs must not use the rows of a library that another one has replaced.
fn follow(state: &Mutex<State>, stop: OwnedFd, wakes: OwnedFd, recorder: SharedRecorder, pending: Pending) -> io::Result<()> {
    let target = Arc::clone(&of(state).target);
    let mut generations = of(state).maps.generations();
    let work = move || {
        // It has little to do, and the process continues meanwhile: 5 to 20 ms after a library took the place of another one, on
        // a machine with a load of 10, 8 of 2,100 stacks were wrong without this priority, and 1 with it. Linux takes "this
        // process" as this thread. If raising its priority is not permitted, it runs without.
        let _ = rustix::process::setpriority_process(None, -20);
        let mut fds = vec![stop.as_raw_fd()];
        fds.extend(of(&recorder).iter().flat_map(Recorder::fds));
        while !readable(&stop) {
            let events = drain(&recorder, &target);
            if events.is_empty() {
                wait(&fds, MAX_SLEEP);
                continue;
            }
            generations.renew(&events);
            let mut pending = of(&pending);
            // beyond this, tables are made when programs miss them
            let room = MAX_SEEN_FILES.saturating_sub(pending.len());
            pending.extend(events.into_iter().filter(|event| matches!(event, Event::Mapped { .. })).take(room));
            wake(&wakes);
        }
    };
    std::thread::Builder::new().name("rbt-mapped".into()).stack_size(256 << 10).spawn(work).map(drop)
}

fn spawn(state: Arc<Mutex<State>>, stop: OwnedFd, wake: OwnedFd, recorder: SharedRecorder) -> io::Result<()> {
    let pending = Pending::default();
    follow(&state, stop.try_clone()?, wake.try_clone()?, recorder, Arc::clone(&pending))?;
    let work = move || {
        let fds = [stop.as_raw_fd(), of(&state).ring.fd(), wake.as_raw_fd()];
        let mut seen = HashSet::new();
        while !readable(&stop) {
            let events = std::mem::take(&mut *of(&pending));
            of(&state).note_mapped(events, &mut seen);
            if of(&state).supply() > 0 {
                continue;
            }
            if readable(&wake) {
                clear(&wake);
                continue;
            }
            let next = of(&state).tasks.pop_front();
            match next {
                Some(Task::Make(file)) => {
                    of(&state).preload(&file);
                }
                Some(Task::Tell(to)) => {
                    // an error: nobody waits any more
                    let _ = to.send(());
                }
                None => wait(&fds, MAX_SLEEP),
            }
        }
    };
    std::thread::Builder::new().name("rbt-unwind".into()).spawn(work).map(drop)
}

/// Makes the table of a file without keeping the lock while it reads the file. `wakes` wakes the thread that supplies the tables
/// that programs miss meanwhile.
fn preload_mapped(state: &Mutex<State>, MappedFile { name, at }: &MappedFile, wakes: &OwnedFd) {
    let Ok((_, meta)) = input::open_regular(at) else { return };
    let identity = (meta.dev(), meta.ino());
    let dirs = of(state).debug_dirs.clone();
    if of(state).preloaded.contains(&identity) {
        return;
    }
    // traced processes have precedence, but not while this thread has the lock, for which others wait
    yield_to_others(10);
    let data = FileData::read(name, at, &dirs);
    yield_to_others(0);
    let mut state = of(state);
    state.prefetched.insert(identity, data);
    state.load_mapped(at);
    state.prefetched.remove(&identity);
    if !state.misses.is_empty() {
        wake(wakes);
    }
}

/// Changes the priority of this thread; it stays if that is not permitted.
fn yield_to_others(niceness: i32) {
    // Linux takes "this process" as this thread
    let _ = rustix::process::setpriority_process(None, niceness);
}

impl State {
    /// Supplies the tables that programs missed, and returns their number.
    fn supply(&mut self) -> usize {
        self.read_misses();
        let misses = std::mem::take(&mut self.misses);
        self.supply_each(&misses);
        misses.len()
    }

    fn read_misses(&mut self) {
        let misses = &mut self.misses;
        self.ring.drain(u64::MAX, &mut |record| {
            misses.extend(kernel::miss(record));
            true
        });
    }

    fn supply_each(&mut self, misses: &[MissingTable]) {
        for miss in misses {
            let pid = (miss.ids >> 32) as u32;
            let mapping = procfs::mapped(pid, miss.start, miss.end);
            let maps = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
            let line = maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).find(|line| (line.start..line.end).contains(&miss.addr));
            let name = line.and_then(|line| Some(line.file()?.0));
            let loaded = self.load(miss.file, pid, &mapping, name.as_deref());
            if let (Some(target), Some(name)) = (&mut *of(&self.target), name) {
                target.note(pid, &name);
            }
            // if it is forgotten there, or the file could not be read, it is reported again
            if !matches!(loaded, Err(NotLoaded::NoRoom)) {
                self.maps.forget_miss(miss.key);
            }
        }
    }

    /// Processes the records of mappings: tables of new files are made next, the latest first. If there is a target, the
    /// files of other processes wait until programs miss their tables, because a large one would delay those of the target.
    fn note_mapped(&mut self, events: Vec<Event>, seen: &mut HashSet<(PathBuf, u64)>) {
        for event in events {
            let Event::Mapped { pid, start, len, inode, path, .. } = event else { continue };
            let is_others = of(&self.target).as_ref().is_some_and(|target| !target.has(pid, &path));
            if !is_file(inode, &path) || is_others || !seen.insert((path.clone(), inode)) {
                continue;
            }
            if seen.len() > MAX_SEEN_FILES {
                seen.clear();
            }
            let by_mapping = procfs::mapped(pid, start, start.saturating_add(len));
            self.tasks.push_front(Task::Make(if by_mapping.exists() { by_mapping } else { procfs::path_in_root(pid, &path) }));
        }
    }

    /// Makes the table of a file that will be mapped, and those that programs miss meanwhile.
    fn preload(&mut self, at: &Path) {
        self.load_mapped(at);
        self.supply();
    }

    /// Makes the table of a file: maps it here, and runs a program that reports it. Other reports remain.
    fn load_mapped(&mut self, at: &Path) {
        let Some(identify) = self.identify.as_ref().map(AsRawFd::as_raw_fd) else { return };
        let Ok((file, meta)) = input::open_regular(at) else { return };
        if meta.len() == 0 || !self.preloaded.insert((meta.dev(), meta.ino())) {
            return;
        }
        // SAFETY: the memory is not read
        let Ok(mapped) = (unsafe { memmap2::MmapOptions::new().len(1).map(&file) }) else { return };
        // the program reads without the lock, so it may overlook a mapping while another thread changes the mappings
        for _ in 0..IDENTIFY_TRIES {
            // errors: the table is made when a program misses it
            let addr = mapped.as_ptr() as u64;
            let _ = test_run::run_once(identify, addr);
            self.read_misses();
            let own: Vec<MissingTable> = self.misses.extract_if(.., |miss| miss.addr == addr).collect();
            self.supply_each(&own);
            if !own.is_empty() {
                break;
            }
        }
    }

    /// The file of a mapping, from the mapping itself or by its name.
    fn load(&mut self, key: FileKey, pid: u32, mapping: &Path, name: Option<&Path>) -> Result<(), NotLoaded> {
        if self.files.contains_key(&key) {
            return Ok(());
        }
        let by_name = name.map(|name| procfs::path_in_root(pid, name));
        let is_it = |path: &Path| {
            let (file, meta) = input::open_regular(path).ok()?;
            // an overlay may have numbers of its own, as in a container, so that only the mapping leads to the file
            let is_same = meta.ino() == key.ino || path == mapping && is_overlay(&file);
            (is_same && meta.len() == key.size).then(|| (path.to_owned(), (meta.dev(), meta.ino())))
        };
        let (at, identity) = [Some(mapping), by_name.as_deref()].into_iter().flatten().find_map(is_it).ok_or(NotLoaded::Unreadable)?;
        let name = name.map_or_else(|| fs::read_link(&at).unwrap_or_else(|_| at.clone()), Path::to_owned);
        let data = self.prefetched.remove(&identity).unwrap_or_else(|| FileData::read(&name, &at, &self.debug_dirs));
        self.add_file(key, data, &name.display().to_string())
    }

    /// Adds a table. If there is no room for it, programs learn this, so that they do not report the file again.
    fn add_file(&mut self, key: FileKey, FileData { table, interpreter }: FileData, name: &str) -> Result<(), NotLoaded> {
        let size = format!("{} rows, {} rules", table.rows.len(), table.rules.len());
        let Ok(number) = self.placed.add(&mut self.maps, &table) else {
            self.loaded.push(format!("no room for the unwind table of {name}: {size}; the setting unwind_memory limits all tables"));
            self.maps.set_file(&key, NO_ROOM).map_err(|_| NotLoaded::NoRoom)?;
            self.files.insert(key, NO_ROOM);
            return Ok(());
        };
        // before programs find the file
        let interpreter = interpreter.map(|python| Process::of(&python, python.shift().wrapping_neg()));
        interpreter.and_then(|process| self.maps.set_interpreter(number, &process).ok());
        self.maps.set_file(&key, number).map_err(|_| NotLoaded::NoRoom)?;
        self.files.insert(key, number);
        self.loaded.push(format!("unwind table of {name}: {size}"));
        Ok(())
    }

    fn load_vdso(&mut self) {
        let table = vdso().map(|image| tables::compile_image(&image)).unwrap_or_default();
        let number = self.placed.add(&mut self.maps, &table);
        debug_assert_eq!(number.ok(), Some(VDSO));
        let number = self.placed.add(&mut self.maps, &tables::Table::default());
        debug_assert_eq!(number.ok(), Some(NO_ROOM));
    }
}

/// Why a table was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotLoaded {
    /// The file could not be read, or is another one by now.
    Unreadable,
    /// There is no room for another file.
    NoRoom,
}

/// A file that a process has mapped.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MappedFile {
    /// The path as the process named it.
    name: PathBuf,
    /// Where it can be read.
    at: PathBuf,
}

/// The files that processes have mapped as code, each once; those that most processes have mapped come first.
fn mapped_files() -> Vec<MappedFile> {
    let mut found: HashMap<(Vec<u8>, u64), (usize, MappedFile)> = HashMap::new();
    for pid in procfs::all() {
        let maps = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
        for line in maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).filter(|line| line.executable) {
            let Some((name, _)) = line.file() else { continue };
            let mapping = || MappedFile { name, at: procfs::mapped(pid, line.start, line.end) };
            found.entry((line.path.as_bytes().to_vec(), line.inode)).or_insert_with(|| (0, mapping())).0 += 1;
        }
    }
    let mut found: Vec<(usize, MappedFile)> = found.into_values().collect();
    found.sort();
    found.into_iter().rev().map(|(_, mapped)| mapped).collect()
}

/// The image of the vDSO, which is the same in all 64-bit processes.
fn vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read("/proc/self/maps").ok()?;
    let line = maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).find(|line| line.path == "[vdso]")?;
    let mut image = vec![0; usize::try_from(line.end - line.start).ok()?];
    fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut image, line.start).ok()?;
    Some(image)
}
