//! Finds the file behind an address of a process, even after the process has ended.
//!
//! The sources are `/proc/PID/maps` while the process lives, and the kernel's records of mappings ([`super::mmap_events`]).

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use super::initial_mappings::{ProcessMappings, Scan};
use super::jit_dump::JitDump;
use super::mmap_events::Event;
use super::mmap_reader::MmapReader;
use super::poll::{MAX_WAIT, UNBOUNDED, clear};
use super::proc_maps::{MapsLine, is_at, open_mapped_file};
use crate::diag::{plain, plural};
use crate::input;
use crate::system::machine::procfs;

/// A mapped file, stored once for all processes.
#[derive(Debug)]
pub(super) struct Object {
    /// A small number that identifies it.
    pub(super) id: usize,
    /// The path as the process named it.
    pub(super) path: PathBuf,
    inode: u64,
    /// When it was mapped, or first seen as mapped.
    mapped_at: SystemTime,
    /// Keeps a file open whose path may not lead to it: deleted, replaced, or in a container.
    open_file: Option<File>,
    in_memory: bool,
}

impl Object {
    fn new(id: usize, (path, inode): (PathBuf, u64), mapped_at: SystemTime, open_file: Option<File>) -> Self {
        let in_memory = path.starts_with("/dev") || path.as_os_str().as_bytes().starts_with(b"/memfd:");
        Self { id, path, inode, mapped_at, open_file, in_memory }
    }

    /// Is it created in memory rather than on a disk? Some just-in-time compilers do that to map code twice.
    pub(super) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// A path to the mapped file itself, not to a later one with the same name; none if the file is lost.
    pub(super) fn path_to_file(&self) -> Option<PathBuf> {
        if is_at(&self.path, self.inode, self.mapped_at) {
            return Some(self.path.clone());
        }
        self.descriptor_path()
    }

    /// The same as [`Object::path_to_file`], for a file that grows.
    fn path_to_growing_file(&self) -> Option<PathBuf> {
        self.descriptor_path().or_else(|| Some(self.path.clone()).filter(|path| fs::metadata(path).is_ok_and(|m| m.ino() == self.inode)))
    }

    fn descriptor_path(&self) -> Option<PathBuf> {
        self.open_file.as_ref().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }
}

/// The kinds of mapped memory.
#[derive(Clone, Debug)]
pub(super) enum Backing {
    /// A file's contents.
    File(Rc<Object>),
    /// The kernel's own library.
    Vdso,
    /// No file: just-in-time compiled code.
    Anonymous,
    /// `[vsyscall]`, `[uprobes]` and similar areas.
    Other(Rc<str>),
}

/// An executable mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    start: u64,
    end: u64,
    /// File offset of `start`.
    offset: u64,
    pub(super) backing: Backing,
}

impl Mapping {
    /// The file offset (vdso: offset from its start) of an address within.
    pub(super) fn offset_of(&self, addr: u64) -> u64 {
        (addr - self.start).wrapping_add(self.offset)
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        let same = match (&self.backing, &other.backing) {
            (Backing::File(a), Backing::File(b)) => a.id == b.id,
            (Backing::Vdso, Backing::Vdso) | (Backing::Anonymous, Backing::Anonymous) => true,
            (Backing::Other(a), Backing::Other(b)) => a == b,
            _ => false,
        };
        same && self.start <= other.start && self.end >= other.end && self.offset_of(other.start) == other.offset
    }
}

#[derive(Clone, Debug, Default)]
struct Process {
    /// In order of time: the latest mapping that holds an address applies. Those from before an exec stay, because
    /// stacks from that time may not have been printed yet. Shared with children until either maps something.
    mappings: Rc<Vec<Mapping>>,
    /// When /proc/PID/maps was last read.
    maps_read_at: Option<Instant>,
    /// The mappings are complete: either those from before the recording are included, or the process began after its
    /// start.
    is_complete: bool,
    /// Lost records may have been of this process.
    maybe_incomplete: bool,
}

impl Process {
    fn find(&self, addr: u64) -> Option<&Mapping> {
        self.mappings.iter().rev().find(|m| (m.start..m.end).contains(&addr))
    }

    fn add(&mut self, mapping: Mapping) {
        let latest = self.mappings.iter().rev().find(|known| known.start < mapping.end && known.end > mapping.start);
        if latest.is_some_and(|known| known.is_equivalent(&mapping)) {
            return;
        }
        let mappings = Rc::make_mut(&mut self.mappings);
        if mappings.len() >= MAPPINGS {
            mappings.drain(..MAPPINGS / 2);
        }
        mappings.push(mapping);
    }
}

/// The process ID of all processes outside of rbt's PID namespace, which cannot be distinguished and are not in its /proc.
const FOREIGN_PID: u32 = 0;
/// Maximum per process; a just-in-time compiler that keeps mapping its output would otherwise use unlimited memory.
const MAPPINGS: usize = 8192;
/// Maximum number of exited processes that are remembered, and of their mappings. Watched processes and their
/// descendants have separate limits of the same size.
const EXITED: usize = 16 << 10;
const EXITED_MAPPINGS: usize = 1 << 20;
/// Maximum number of known files. Beyond that, files that no process has mapped are forgotten.
const OBJECTS: usize = 16 << 10;
/// Maximum number of files held open.
const MAX_OPEN_FILES: usize = 256;
/// Maximum number of processes whose just-in-time compilers' files are held open.
const COMPILERS: usize = 256;
/// The minimum interval between reads of /proc for addresses without a mapping; stacks without frame pointers have many
/// of those.
const REFRESH_INTERVAL: Duration = Duration::from_millis(20);
/// How long the known mappings of a living process are valid if there are no records.
const STALE: Duration = Duration::from_secs(1);

/// Processes in the order in which they ended, each with the number of its mappings.
#[derive(Debug, Default)]
struct ExitedProcesses {
    order: VecDeque<(u32, usize)>,
    mappings: usize,
}

impl ExitedProcesses {
    fn push(&mut self, pid: u32, mappings: usize) {
        self.order.push_back((pid, mappings));
        self.mappings += mappings;
    }

    /// Discards the process that ended first, if there are too many.
    fn pop(&mut self) -> Option<u32> {
        if self.order.len() <= EXITED && self.mappings <= EXITED_MAPPINGS {
            return None;
        }
        let (pid, mappings) = self.order.pop_front()?;
        self.mappings -= mappings;
        Some(pid)
    }
}

/// Mappings of all processes that were needed or recorded.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    processes: HashMap<u32, Process>,
    objects: HashMap<(PathBuf, u64), Rc<Object>>,
    /// The number of objects at which unused ones are discarded.
    prune_above: usize,
    /// Exited processes: those of the watched families, and the others.
    exited: [ExitedProcesses; 2],
    watched: BTreeSet<u32>,
    /// Descendants of watched processes.
    descendants: HashSet<u32>,
    /// Running processes with code that has no file.
    compilers: BTreeSet<u32>,
    reader: Option<MmapReader>,
    /// Whether the kernel's records were requested.
    records_requested: bool,
    /// A scan of the mappings that existed before.
    scan: Option<Scan>,
    /// Mappings of processes that were not needed yet.
    existing_mappings: HashMap<u32, ProcessMappings>,
    open_files: usize,
    last_id: usize,
    /// Lost records, forgotten processes, and addresses without a name for either reason.
    lost: u64,
    forgotten_processes: u64,
    unnamed: u64,
    /// Files whose symbols were needed, but which were deleted or replaced before they were held.
    deleted_files: BTreeSet<PathBuf>,
}

impl Mappings {
    /// Starts recording, if the kernel allows it.
    pub(super) fn record(&mut self) {
        if !self.records_requested {
            self.records_requested = true;
            self.reader = MmapReader::start().ok();
        }
    }

    /// The same, and scans the existing mappings of all processes.
    pub(super) fn record_all(&mut self) {
        self.record();
        self.scan = Scan::begin();
    }

    /// The same as [`Mappings::record`], and reads the existing mappings of this process.
    pub(super) fn watch(&mut self, pid: u32) {
        self.record();
        if let Some(reader) = &self.reader {
            reader.recorder().watch(pid);
        }
        self.watched.insert(pid);
        self.read(pid);
    }

    /// Holds a file that processes will map: it remains readable even if it is replaced.
    pub(super) fn hold_file(&mut self, path: &Path) {
        let Ok((file, meta)) = input::open_regular(path) else { return };
        // as the process names it, which may have another root
        let named = procfs::through_root(path).map_or_else(|| path.to_owned(), |(_, named)| named);
        self.hold_file_as((named, meta.ino()), file, SystemTime::now());
    }

    fn hold_file_as(&mut self, key: (PathBuf, u64), file: File, seen: SystemTime) {
        if self.open_files >= MAX_OPEN_FILES || self.objects.get(&key).is_some_and(|known| known.open_file.is_some()) {
            return;
        }
        self.open_files += 1;
        self.last_id += 1;
        let object = Object::new(self.last_id, key.clone(), seen, Some(file));
        self.objects.insert(key, Rc::new(object));
    }

    /// Readable if there is something to refresh, and the longest time until the next refresh.
    pub(super) fn changes(&self) -> (RawFd, Duration) {
        let changed = self.reader.as_ref().and_then(MmapReader::changed);
        let scans = self.scan.as_ref().is_some_and(|scan| !scan.has_ended());
        match changed {
            Some(changed) => (changed.as_raw_fd(), if scans { MAX_WAIT } else { UNBOUNDED }),
            None => (-1, MAX_WAIT),
        }
    }

    /// Processes the recorded events; without records, reads the mappings of the watched processes again.
    pub(super) fn refresh(&mut self) {
        if let Some(reader) = &self.reader {
            // events since then are applied after the results of the scan
            match &self.scan {
                Some(look) if !look.has_ended() => _ = reader.recorder().read_rings(),
                _ => {
                    reader.changed().into_iter().for_each(clear);
                    self.end_look();
                    self.drain();
                }
            }
            return;
        }
        for pid in self.watched.clone() {
            self.read(pid);
        }
    }

    /// The executable mapping that holds, or held, an address.
    pub(super) fn find(&mut self, pid: u32, addr: u64) -> Option<Mapping> {
        if pid == FOREIGN_PID {
            return None;
        }
        let found = self.look_for(pid, addr);
        if found.is_none() {
            let is_complete = self.processes.get(&pid).is_some_and(|p| p.is_complete && !p.maybe_incomplete && !p.mappings.is_empty());
            self.unnamed += u64::from(!is_complete && !procfs::of(pid).exists());
        }
        found
    }

    fn look_for(&mut self, pid: u32, addr: u64) -> Option<Mapping> {
        let recorded = self.reader.is_some();
        let known = self.processes.get(&pid);
        let is_older = |than: Duration| known.and_then(|p| p.maps_read_at).is_none_or(|read| read.elapsed() > than);
        let found = known.and_then(|p| p.find(addr)).cloned();
        let due = match &found {
            Some(_) => !recorded && is_older(STALE),
            None => is_older(REFRESH_INTERVAL),
        };
        let looking = self.scan.is_some();
        if !due && (found.is_some() || !looking) {
            return found;
        }
        self.complete(pid);
        if looking {
            self.drain();
        }
        self.read(pid);
        self.processes.get(&pid).and_then(|p| p.find(addr)).cloned()
    }

    /// Running processes that have executable memory without a file, as with just-in-time compilers.
    pub(super) fn compilers(&self) -> impl Iterator<Item = u32> {
        self.compilers.iter().copied()
    }

    /// A path to the file in which the process's compiler describes its code, if it has mapped one.
    pub(super) fn jit_dump(&self, pid: u32) -> Option<PathBuf> {
        let files = self.processes.get(&pid)?.mappings.iter().rev().filter_map(|m| match &m.backing {
            Backing::File(object) => JitDump::is_one(&object.path).then_some(object),
            Backing::Vdso | Backing::Anonymous | Backing::Other(_) => None,
        });
        files.filter_map(|object| object.path_to_growing_file()).next()
    }

    /// Notes that the file of an address is no longer available.
    pub(super) fn note_gone(&mut self, object: &Object) {
        self.deleted_files.insert(object.path.clone());
    }

    /// The messages about addresses that cannot be resolved, a line each.
    pub(super) fn lost(&self) -> Option<String> {
        let both: Vec<String> = self.lost_mappings().into_iter().chain(self.lost_files()).collect();
        (!both.is_empty()).then(|| both.join("\n"))
    }

    fn lost_files(&self) -> Option<String> {
        const MAX_NAMED: usize = 3;
        let named: Vec<String> = self.deleted_files.iter().take(MAX_NAMED).map(|path| plain(&path.to_string_lossy())).collect();
        let more = match self.deleted_files.len().saturating_sub(named.len()) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let (files, it) = if self.deleted_files.len() == 1 { ("the file was", "it") } else { ("the files were", "them") };
        (!named.is_empty()).then(|| {
            format!(
                "warning: addresses in {}{more} cannot be resolved: {files} deleted or replaced before rbt could open {it}; \
                 frames show the offset in the file",
                named.join(", ")
            )
        })
    }

    fn lost_mappings(&self) -> Option<String> {
        let why = match (self.lost, self.forgotten_processes) {
            _ if self.reader.is_none() => "the kernel does not allow rbt to record the mappings of processes".to_owned(),
            (0, 0) => "they ended before rbt could read their mappings".to_owned(),
            (0, _) => "rbt discarded their mappings, because many processes have ended since".to_owned(),
            (lost, _) => format!("processes mapped code faster than rbt could record it ({} lost)", plural(lost, "mapping", "mappings")),
        };
        let count = self.unnamed;
        let addresses = match count {
            1 => "an address of a process that has ended".to_owned(),
            _ => format!("{count} addresses of processes that have ended"),
        };
        (count > 0).then(|| format!("warning: {addresses} cannot be resolved: {why}"))
    }

    /// Adds the mappings that existed before recording began.
    fn end_look(&mut self) {
        if let Some(look) = self.scan.take() {
            let found = look.end();
            self.existing_mappings = found.processes;
            let remaining = COMPILERS.saturating_sub(self.compilers.len());
            self.compilers.extend(found.compilers.into_iter().take(remaining));
            found.open_files.into_iter().for_each(|(key, file)| self.hold_file_as(key, file, SystemTime::UNIX_EPOCH));
        }
    }

    /// Inserts a process's mappings from before the recording in front of those that it created since.
    fn complete(&mut self, pid: u32) {
        self.end_look();
        let process = self.processes.entry(pid).or_default();
        if std::mem::replace(&mut process.is_complete, true) {
            return;
        }
        let Some(early) = self.existing_mappings.remove(&pid) else { return };
        let since = std::mem::take(&mut process.mappings);
        for line in early.maps.split(|b| *b == b'\n').filter_map(MapsLine::parse) {
            self.map(pid, &line, early.read_at);
        }
        let process = self.processes.entry(pid).or_default();
        since.iter().for_each(|mapping| process.add(mapping.clone()));
    }

    /// The address of the vdso in this process.
    pub(super) fn vdso_of_ourselves(&mut self) -> Option<u64> {
        let pid = std::process::id();
        self.read(pid);
        let mappings = &self.processes.get(&pid)?.mappings;
        mappings.iter().find(|m| matches!(m.backing, Backing::Vdso)).map(|m| m.start)
    }

    fn drain(&mut self) {
        let Some(reader) = &self.reader else { return };
        let events = reader.recorder().drain();
        for event in events {
            match event {
                Event::Mapped { pid: FOREIGN_PID, .. } | Event::Forked { pid: FOREIGN_PID, .. } | Event::Exited { pid: FOREIGN_PID } => {}
                Event::Mapped { pid, start, len, offset, inode, path, time } => {
                    let (end, path) = (start.saturating_add(len), path.as_os_str());
                    let line = MapsLine { start, end, executable: true, offset, inode, path };
                    self.map(pid, &line, time);
                }
                Event::Forked { pid, parent } => {
                    // A parent that is older than the recording.
                    if !self.processes.get(&parent).is_some_and(|p| p.is_complete) {
                        self.complete(parent);
                        self.read(parent);
                    }
                    let inherited = self.processes.get(&parent).cloned().unwrap_or_default();
                    // the process that had this id before has ended
                    self.existing_mappings.remove(&pid);
                    match self.watched.contains(&parent) || self.descendants.contains(&parent) {
                        true => self.descendants.insert(pid),
                        false => self.descendants.remove(&pid),
                    };
                    self.processes.insert(pid, Process { is_complete: true, ..inherited });
                }
                Event::Exited { pid } => {
                    self.compilers.remove(&pid);
                    let mappings = self.processes.get(&pid).map_or(0, |p| p.mappings.len());
                    self.exited[usize::from(!self.descendants.contains(&pid))].push(pid, mappings);
                    self.evict_processes();
                }
                // Running processes are read from /proc as soon as an address is not found.
                Event::Lost { count } => {
                    self.lost += count;
                    self.processes.values_mut().for_each(|p| (p.maps_read_at, p.maybe_incomplete) = (None, true));
                }
            }
        }
    }

    /// Limits the number of processes; watched ones always stay.
    fn evict_processes(&mut self) {
        for exited in &mut self.exited {
            while let Some(pid) = exited.pop() {
                // A process that has the pid again keeps its entry.
                if !self.watched.contains(&pid) && !procfs::of(pid).exists() {
                    self.processes.remove(&pid);
                    self.descendants.remove(&pid);
                    self.forgotten_processes += 1;
                }
            }
        }
    }

    fn read(&mut self, pid: u32) {
        let maps = fs::read(procfs::file(pid, "maps")).unwrap_or_default();
        for line in maps.split(|b| *b == b'\n').filter_map(MapsLine::parse).filter(|line| line.executable) {
            self.map(pid, &line, SystemTime::now());
        }
        let process = self.processes.entry(pid).or_default();
        process.maps_read_at = Some(Instant::now());
        process.maybe_incomplete &= maps.is_empty();
    }

    fn map(&mut self, pid: u32, line: &MapsLine<'_>, seen: SystemTime) {
        let backing = match line.path.as_bytes() {
            [] | [b'/', b'/', ..] | [b'[', b'a', b'n', b'o', b'n', ..] => Backing::Anonymous,
            [b'/', ..] => Backing::File(self.object(pid, line, seen)),
            b"[vdso]" => Backing::Vdso,
            _ => Backing::Other(line.path.to_string_lossy().into()),
        };
        if matches!(backing, Backing::Anonymous) && self.compilers.len() < COMPILERS {
            self.compilers.insert(pid);
        }
        // The offset of device or kernel memory has no meaning.
        let offset = if matches!(backing, Backing::File(_)) { line.offset } else { 0 };
        let doubtful = self.lost > 0;
        self.processes.entry(pid).or_insert_with(|| Process { maybe_incomplete: doubtful, ..Process::default() }).add(Mapping {
            start: line.start,
            end: line.end,
            offset,
            backing,
        });
    }

    fn object(&mut self, pid: u32, line: &MapsLine<'_>, seen: SystemTime) -> Rc<Object> {
        let (path, deleted) = line.file().unwrap_or_default();
        let key = (path, line.inode);
        // The file that is now at a deleted file's path is another one.
        let seen = if deleted { SystemTime::UNIX_EPOCH } else { seen };
        let watched = self.watched.contains(&pid);
        // The inode of an open file is not reused.
        let known = self.objects.get(&key).filter(|known| known.open_file.is_some() || is_at(&key.0, key.1, known.mapped_at));
        if let Some(known) = known
            && (known.open_file.is_some() || !watched)
        {
            return Rc::clone(known);
        }
        let here = is_at(&key.0, key.1, seen);
        let held =
            if here && !watched || self.open_files >= MAX_OPEN_FILES { None } else { open_mapped_file(pid, line, here.then_some(&key.0)) };
        self.open_files += usize::from(held.is_some());
        let id = known.map(|known| known.id).unwrap_or_else(|| {
            self.last_id += 1;
            self.last_id
        });
        if self.objects.len() >= self.prune_above {
            self.objects.retain(|_, object| object.open_file.is_some() || Rc::strong_count(object) > 1);
            self.prune_above = 2 * self.objects.len();
        }
        self.prune_above = self.prune_above.max(OBJECTS);
        let object = Rc::new(Object::new(id, key.clone(), seen, held));
        self.objects.insert(key, Rc::clone(&object));
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn lines() {
        let line = MapsLine::parse(b"55d583d35000-55d583d3b000 r-xp 00002000 fe:00 1234    /usr/bin/a b").unwrap();
        assert_eq!((line.start, line.end, line.offset, line.inode), (0x55d5_83d3_5000, 0x55d5_83d3_b000, 0x2000, 1234));
        assert_eq!(line.path, "/usr/bin/a b");
        assert!(line.executable);
        assert_eq!(MapsLine::parse(b"7f00-7f10 rw-p 00000000 00:00 0 ").unwrap().path, "");
        assert_eq!(MapsLine::parse(b"7f00-7f10 rw-p 00000000 00:00 0").unwrap().path, "");
        assert!(MapsLine::parse(b"").is_none() && MapsLine::parse(b"x-y rw-p 0 0 0").is_none());
    }

    #[test]
    fn the_latest_mapping_wins() {
        let mut mappings = Mappings::default();
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let pid = u32::MAX;
        let now = SystemTime::now();
        let line = MapsLine { start: 0x1000, end: 0x3000, executable: true, offset: 0, inode: 1, path: OsStr::new("/no/such/old") };
        mappings.map(pid, &line, now);
        let inode = fs::metadata(&exe).unwrap().ino();
        mappings.map(pid, &MapsLine { start: 0x2000, end: 0x4000, offset: 0x500, inode, path: exe.as_os_str(), ..line }, now);
        let found = mappings.find(pid, 0x2010).unwrap();
        assert_eq!(found.offset_of(0x2010), 0x510);
        let Backing::File(object) = &found.backing else { panic!() };
        assert_eq!(object.path_to_file(), Some(exe));
        let old = mappings.find(pid, 0x1010).unwrap();
        let Backing::File(object) = &old.backing else { panic!() };
        assert_eq!(object.path_to_file(), None);
        assert!(mappings.find(pid, 0x5000).is_none());
    }

    #[test]
    fn known_mappings_are_not_added_again() {
        let mut mappings = Mappings::default();
        let pid = std::process::id();
        mappings.read(pid);
        let before = mappings.processes[&pid].mappings.len();
        mappings.read(pid);
        assert_eq!(mappings.processes[&pid].mappings.len(), before);
    }

    /// The fallback if the kernel does not allow recording.
    #[test]
    fn rereads_mappings_at_intervals() {
        let mut mappings = Mappings { records_requested: true, ..Mappings::default() };
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        mappings.watch(pid);
        let file_of = |mappings: &Mappings| {
            let process = mappings.processes.get(&pid)?;
            let all: Vec<_> = process
                .mappings
                .iter()
                .filter_map(|m| if let Backing::File(f) = &m.backing { Some((m.start, f.path.clone())) } else { None })
                .collect();
            all.into_iter().find(|(_, path)| path.to_string_lossy().contains("libc.so"))
        };
        let (start, path) = loop {
            mappings.refresh();
            if let Some(found) = file_of(&mappings) {
                break found;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let found = mappings.find(pid, start).unwrap();
        assert!(matches!(&found.backing, Backing::File(f) if f.path == path && f.path_to_file().is_some()));
    }
}
