//! What file is behind a process's address, also when the process is gone.
//!
//! From `/proc/PID/maps` while it is alive, and from the kernel's records of what was mapped ([`mmap_events`]).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use super::mmap_events::{Event, Recorder};

/// A mapped file, each once however many processes have it.
#[derive(Debug)]
pub(super) struct Object {
    /// A small number of its own.
    pub(super) id: usize,
    /// As the process named it.
    pub(super) path: PathBuf,
    inode: u64,
    /// When it was first seen mapped.
    seen: SystemTime,
    /// Keeps a file at hand that its path may not lead to: deleted, replaced, or in a container.
    held: Option<File>,
}

impl Object {
    /// A path that leads to the file that was mapped, rather than to one that came after it; none if it is lost.
    pub(super) fn reach(&self) -> Option<PathBuf> {
        let meta = fs::metadata(&self.path).ok();
        if meta.as_ref().is_some_and(|m| m.ino() == self.inode) {
            return Some(self.path.clone());
        }
        if let Some(file) = &self.held {
            return Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        }
        // Overlay file systems may show one inode in maps and another in stat. A file that has not changed since it was
        // mapped is the one.
        let changed = |m: &fs::Metadata| Duration::new(m.ctime().max(0) as u64, m.ctime_nsec().max(0) as u32);
        let seen = self.seen.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        meta.filter(|m| changed(m) < seen).map(|_| self.path.clone())
    }
}

/// What memory is made of.
#[derive(Clone, Debug)]
pub(super) enum Backing {
    /// A file's contents.
    File(Rc<Object>),
    /// The kernel's own library.
    Vdso,
    /// No file: just-in-time compiled code.
    Anonymous,
    /// `[vsyscall]`, `[uprobes]` and the like.
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

    fn says_as_much_as(&self, other: &Self) -> bool {
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
    /// In order of time: the latest that holds an address is the one. Those of before an exec stay, since stacks of then
    /// may not have been printed yet. Shared with children until either maps something.
    mappings: Rc<Vec<Mapping>>,
    /// When /proc/PID/maps was last looked at.
    read: Option<Instant>,
}

impl Process {
    fn find(&self, addr: u64) -> Option<&Mapping> {
        self.mappings.iter().rev().find(|m| (m.start..m.end).contains(&addr))
    }

    fn add(&mut self, mapping: Mapping) {
        if self.find(mapping.start).is_some_and(|known| known.says_as_much_as(&mapping)) {
            return;
        }
        let mappings = Rc::make_mut(&mut self.mappings);
        if mappings.len() >= MAPPINGS {
            mappings.drain(..MAPPINGS / 2);
        }
        mappings.push(mapping);
    }
}

/// Of one process; a compiler that maps its output anew each time would otherwise grow without end.
const MAPPINGS: usize = 8192;
/// Processes that have exited and are still remembered.
const EXITED: usize = 4096;
/// Files held open.
const HELD: usize = 256;
/// An address that no mapping holds makes us look into /proc again, but stacks without frame pointers have many of those.
const AGAIN: Duration = Duration::from_millis(20);
/// Without records, what we know of a living process is good for so long.
const STALE: Duration = Duration::from_secs(1);

/// Mappings of all processes that have been asked about or recorded.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    processes: HashMap<u32, Process>,
    objects: HashMap<(PathBuf, u64), Rc<Object>>,
    exited: VecDeque<u32>,
    watched: BTreeSet<u32>,
    recorder: Option<Recorder>,
    held: usize,
    ids: usize,
}

impl Mappings {
    /// Records from now on, if the kernel lets us, and reads what this process has mapped already.
    pub(super) fn watch(&mut self, pid: u32) {
        if self.recorder.is_none() && self.watched.is_empty() {
            self.recorder = Recorder::open().ok();
        }
        self.watched.insert(pid);
        self.read(pid);
    }

    /// Takes in what was recorded; without records, looks at the watched processes again.
    pub(super) fn refresh(&mut self) {
        if self.recorder.is_some() {
            self.drain();
            return;
        }
        for pid in self.watched.clone() {
            self.read(pid);
        }
    }

    /// The executable mapping that holds, or held, an address.
    pub(super) fn find(&mut self, pid: u32, addr: u64) -> Option<Mapping> {
        let recorded = self.recorder.is_some();
        let known = self.processes.get(&pid);
        let age = known.and_then(|p| p.read).map(|read| read.elapsed());
        let found = known.and_then(|p| p.find(addr)).cloned();
        let due = match (&found, age) {
            (Some(_), age) => !recorded && age.is_none_or(|age| age > STALE),
            (None, age) => age.is_none_or(|age| age > AGAIN),
        };
        if !due {
            return found;
        }
        self.read(pid);
        self.processes.get(&pid).and_then(|p| p.find(addr)).cloned()
    }

    /// Where the vdso is in our own memory.
    pub(super) fn vdso_of_ourselves(&mut self) -> Option<u64> {
        let pid = std::process::id();
        self.read(pid);
        let own = &self.processes.get(&pid)?.mappings;
        own.iter().find(|m| matches!(m.backing, Backing::Vdso)).map(|m| m.start)
    }

    fn drain(&mut self) {
        let Some(recorder) = &mut self.recorder else { return };
        for event in recorder.drain() {
            match event {
                Event::Mapped { pid, start, len, offset, inode, path } => {
                    self.map(pid, start, start.saturating_add(len), offset, inode, path.as_os_str());
                }
                Event::Forked { pid, parent } => {
                    // One that is older than the recording.
                    if !self.processes.contains_key(&parent) {
                        self.read(parent);
                    }
                    let inherited = self.processes.get(&parent).cloned().unwrap_or_default();
                    self.processes.insert(pid, inherited);
                }
                Event::Exited { pid } => {
                    self.exited.push_back(pid);
                    self.forget();
                }
                // What is alive is read from /proc as soon as an address is not found.
                Event::Lost => self.processes.values_mut().for_each(|p| p.read = None),
            }
        }
    }

    /// Keeps the number of processes in bounds, but the watched ones always.
    fn forget(&mut self) {
        while self.exited.len() > EXITED {
            if let Some(pid) = self.exited.pop_front()
                && !self.watched.contains(&pid)
                // The pid may have been given out again.
                && !Path::new(&format!("/proc/{pid}")).exists()
            {
                self.processes.remove(&pid);
            }
        }
    }

    fn read(&mut self, pid: u32) {
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        for line in maps.split(|b| *b == b'\n').filter_map(Line::parse).filter(|line| line.executable) {
            self.map(pid, line.start, line.end, line.offset, line.inode, line.path);
        }
        self.processes.entry(pid).or_default().read = Some(Instant::now());
    }

    fn map(&mut self, pid: u32, start: u64, end: u64, offset: u64, inode: u64, path: &OsStr) {
        let backing = match path.as_bytes() {
            [] | [b'/', b'/', ..] | [b'[', b'a', b'n', b'o', b'n', ..] => Backing::Anonymous,
            [b'/', ..] => Backing::File(self.object(pid, start, end, inode, path)),
            b"[vdso]" => Backing::Vdso,
            _ => Backing::Other(path.to_string_lossy().into()),
        };
        // Memory of a device or of the kernel has no offset that means anything.
        let offset = if matches!(backing, Backing::File(_)) { offset } else { 0 };
        self.processes.entry(pid).or_default().add(Mapping { start, end, offset, backing });
    }

    fn object(&mut self, pid: u32, start: u64, end: u64, inode: u64, path: &OsStr) -> Rc<Object> {
        let deleted = path.as_bytes().strip_suffix(b" (deleted)");
        let path = PathBuf::from(OsStr::from_bytes(deleted.unwrap_or(path.as_bytes())));
        // What is at the path of a file that was deleted before we looked is certainly another.
        let seen = if deleted.is_some() { SystemTime::UNIX_EPOCH } else { SystemTime::now() };
        let watched = self.watched.contains(&pid);
        let key = (path, inode);
        if let Some(known) = self.objects.get(&key)
            && (known.held.is_some() || !watched)
        {
            return Rc::clone(known);
        }
        let here = fs::metadata(&key.0).is_ok_and(|m| m.ino() == inode);
        let held = if here && !watched || self.held >= HELD { None } else { hold(pid, start, end, here.then_some(&key.0)) };
        self.held += usize::from(held.is_some());
        let id = self.objects.get(&key).map(|known| known.id).unwrap_or_else(|| {
            self.ids += 1;
            self.ids
        });
        let object = Rc::new(Object { id, path: key.0.clone(), inode, seen, held });
        self.objects.insert(key, Rc::clone(&object));
        object
    }
}

/// Opens a mapped file: by its path if that still leads there, else by the mapping itself, which leads there whatever
/// became of the name (needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, and a living process).
fn hold(pid: u32, start: u64, end: u64, path: Option<&PathBuf>) -> Option<File> {
    match path {
        Some(path) => File::open(path).ok(),
        None => {
            let path = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
            // Opening a device may have consequences.
            fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            File::open(path).ok()
        }
    }
}

/// A line of `/proc/PID/maps`: `start-end perms offset dev inode   path` (proc_pid_maps(5)).
#[derive(Debug)]
struct Line<'a> {
    start: u64,
    end: u64,
    executable: bool,
    offset: u64,
    inode: u64,
    path: &'a OsStr,
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(6, |b| *b == b' ');
        let mut next = || parts.next();
        let (range, perms, offset, _dev, inode) = (text(next()?)?, next()?, text(next()?)?, next()?, text(next()?)?);
        let (start, end) = range.split_once('-')?;
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            executable: perms.get(2) == Some(&b'x'),
            offset: u64::from_str_radix(offset, 16).ok()?,
            inode: inode.parse().ok()?,
            path: OsStr::from_bytes(next().unwrap_or_default().trim_ascii_start()),
        })
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let line = Line::parse(b"55d583d35000-55d583d3b000 r-xp 00002000 fe:00 1234    /usr/bin/a b").unwrap();
        assert_eq!((line.start, line.end, line.offset, line.inode), (0x55d5_83d3_5000, 0x55d5_83d3_b000, 0x2000, 1234));
        assert_eq!(line.path, "/usr/bin/a b");
        assert!(line.executable);
        assert_eq!(Line::parse(b"7f00-7f10 rw-p 00000000 00:00 0 ").unwrap().path, "");
        assert_eq!(Line::parse(b"7f00-7f10 rw-p 00000000 00:00 0").unwrap().path, "");
        assert!(Line::parse(b"").is_none() && Line::parse(b"x-y rw-p 0 0 0").is_none());
    }

    #[test]
    fn the_latest_mapping_counts() {
        let mut mappings = Mappings::default();
        let exe = fs::read_link("/proc/self/exe").unwrap();
        let pid = u32::MAX;
        mappings.map(pid, 0x1000, 0x3000, 0, 1, OsStr::new("/no/such/old"));
        mappings.map(pid, 0x2000, 0x4000, 0x500, fs::metadata(&exe).unwrap().ino(), exe.as_os_str());
        let found = mappings.find(pid, 0x2010).unwrap();
        assert_eq!(found.offset_of(0x2010), 0x510);
        let Backing::File(object) = &found.backing else { panic!() };
        assert_eq!(object.reach(), Some(exe));
        let old = mappings.find(pid, 0x1010).unwrap();
        let Backing::File(object) = &old.backing else { panic!() };
        assert_eq!(object.reach(), None);
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
}
