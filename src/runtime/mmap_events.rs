//! The kernel's records of file mappings of processes: perf's side-band events.
//!
//! A process that has ended has no `/proc/PID/maps`, and a descriptor of that file opened earlier reads as empty. Polling
//! misses mappings, and stopping the process at its exit needs ptrace, which the process could detect and which excludes other
//! tracers. The records are complete, and they do not delay the process: rbt opens a dummy software event per CPU, and the
//! kernel writes a record to its ring for each executable mapping, whether exec, ld.so or `dlopen` creates it. Formats:
//! `linux/perf_event.h`, perf_event_open(2).
//!
//! Unsafe: the system call, and the rings, which the kernel writes.
#![allow(unsafe_code)] // see above

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::system::syscalls;

/// What happened, in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Memory became executable.
    Mapped {
        pid: u32,
        start: u64,
        len: u64,
        /// The file offset of the first byte.
        offset: u64,
        inode: u64,
        /// A path, or a name such as `//anon` or `[vdso]`.
        path: PathBuf,
        time: SystemTime,
    },
    /// A new process, with its parent's mappings.
    Forked { pid: u32, parent: u32 },
    /// A process ended (not just a thread of it).
    Exited { pid: u32 },
    /// A ring, or the memory for pending records, was full.
    Lost {
        /// The number of events.
        count: u64,
    },
}

impl Event {
    fn path_len(&self) -> usize {
        match self {
            Self::Mapped { path, .. } => path.as_os_str().len(),
            Self::Forked { .. } | Self::Exited { .. } | Self::Lost { .. } => 0,
        }
    }

    /// Equality apart from the time.
    fn eq_without_time(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Mapped { pid, start, len, offset, inode, path, time: _ },
                Self::Mapped { pid: p, start: s, len: l, offset: o, inode: i, path: name, time: _ },
            ) => (pid, start, len, offset, inode) == (p, s, l, o, i) && path == name,
            (one, other) => one == other,
        }
    }
}

/// Records of the whole machine since [`Recorder::open`].
#[derive(Debug)]
pub(super) struct Recorder {
    rings: Vec<Ring>,
    /// Events that were read from the rings.
    events: Vec<(u64, Event)>,
    /// Their size in bytes.
    size: usize,
    /// The index in `events` of each process's latest mapping.
    latest_mapping: HashMap<u32, usize>,
    /// Processes whose events have precedence, and their descendants.
    watched: HashSet<u32>,
}

/// Maximum bytes of pending events, each of 130 bytes and a path. Watched processes have a separate limit of the same
/// size.
const MAX_PENDING_BYTES: usize = 32 << 20;

impl Recorder {
    /// Starts recording; 0.1 ms. (For one process and its children it would take 12 ms, because task events make the
    /// kernel patch its context switch.) Each record makes a descriptor readable immediately. Errors: EACCES without CAP_PERFMON.
    pub(super) fn open() -> io::Result<Self> {
        // SAFETY: only queries a number.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let (cpus, page) = (cpus.max(1) as usize, rustix::param::page_size());
        // 64 pages hold some 2500 mappings. Together at most about 4 MiB, whatever the machine.
        let pages = (1024 / cpus).clamp(8, 64);
        let pages = 1 << pages.ilog2();
        let mut rings = Vec::new();
        for cpu in 0..cpus {
            match Ring::open(cpu, page, pages) {
                Ok(ring) => rings.push(ring),
                // An offline CPU; one that comes online later is not recorded, so /proc must suffice.
                Err(why) if why.raw_os_error() == Some(libc::ENODEV) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(Self { rings, events: Vec::new(), size: 0, latest_mapping: HashMap::new(), watched: HashSet::new() })
    }

    /// Gives the events of a process and its descendants precedence over those of other processes.
    pub(super) fn watch(&mut self, pid: u32) {
        self.watched.insert(pid);
    }

    /// Each is readable when its ring has records.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.rings.iter().map(|ring| ring.fd.as_raw_fd())
    }

    /// Empties the kernel's buffers, so that they do not fill up before the next [`Recorder::drain`]. Were there any records?
    pub(super) fn read_rings(&mut self) -> bool {
        let mut fresh = Vec::new();
        for ring in &mut self.rings {
            ring.drain(&mut fresh);
        }
        fresh.sort_by_key(|(time, _)| *time);
        let any = !fresh.is_empty();
        self.queue_events(fresh);
        any
    }

    fn queue_events(&mut self, fresh: Vec<(u64, Event)>) {
        for (time, event) in fresh {
            let watched = self.is_watched(&event);
            let max_bytes = if watched { 2 * MAX_PENDING_BYTES } else { MAX_PENDING_BYTES };
            if self.is_repeated(&event) {
                continue;
            }
            let event = if self.size < max_bytes { event } else { Event::Lost { count: 1 } };
            match (&event, self.events.last_mut()) {
                (Event::Lost { count }, Some((_, Event::Lost { count: before }))) => *before += count,
                _ => {
                    self.size += size_of::<(u64, Event)>() + event.path_len();
                    self.events.push((time, event));
                }
            }
        }
    }

    /// Does it repeat the latest record of the process? Some programs map the same memory repeatedly.
    fn is_repeated(&mut self, event: &Event) -> bool {
        let (Event::Mapped { pid, .. } | Event::Forked { pid, .. } | Event::Exited { pid }) = event else { return false };
        if !matches!(event, Event::Mapped { .. }) {
            self.latest_mapping.remove(pid);
            return false;
        }
        let before = self.latest_mapping.insert(*pid, self.events.len());
        match before.and_then(|at| Some((at, self.events.get(at)?))) {
            Some((at, (_, known))) if known.eq_without_time(event) => {
                self.latest_mapping.insert(*pid, at);
                true
            }
            _ => false,
        }
    }

    /// Is it of a watched process? Follows forks and exits.
    fn is_watched(&mut self, event: &Event) -> bool {
        match event {
            Event::Mapped { pid, .. } => self.watched.contains(pid),
            Event::Forked { pid, parent } => {
                self.watched.contains(parent) && {
                    self.watched.insert(*pid);
                    true
                }
            }
            Event::Exited { pid } => self.watched.remove(pid),
            Event::Lost { .. } => true,
        }
    }

    /// All events since the last call; 1 µs if there are none.
    pub(super) fn drain(&mut self) -> Vec<Event> {
        self.read_rings();
        let mut events = std::mem::take(&mut self.events);
        self.size = 0;
        self.latest_mapping.clear();
        // A process may move between CPUs, so its history is spread over all rings.
        events.sort_by_key(|(time, _)| *time);
        events.into_iter().map(|(_, event)| event).collect()
    }
}

const PERF_TYPE_SOFTWARE: u64 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
/// Bits of `perf_event_attr`: mmap, task, watermark, sample_id_all, mmap2, use_clockid. The clock is number 0,
/// CLOCK_REALTIME, so that times compare with those of files.
const FLAGS: u64 = 1 << 8 | 1 << 13 | 1 << 14 | 1 << 18 | 1 << 23 | 1 << 25;

/// `struct perf_event_mmap_page`: `data_head` and `data_tail`, fixed at 1 KiB.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

#[derive(Debug)]
struct Ring {
    fd: OwnedFd,
    base: *mut u8,
    page: usize,
    /// Size of the data in bytes, a power of two.
    size: usize,
}

impl Ring {
    fn open(cpu: usize, page: usize, pages: usize) -> io::Result<Self> {
        let mut attr = syscalls::event(PERF_TYPE_SOFTWARE as u32, PERF_COUNT_SW_DUMMY);
        attr.sample_type = PERF_SAMPLE_TIME;
        attr._bitfield_1 = libbpf_sys::__BindgenBitfieldUnit::new(FLAGS.to_ne_bytes());
        attr.__bindgen_anon_2.wakeup_watermark = 1;
        let fd = syscalls::perf_event_open(&attr, -1, cpu as i32)?;
        // SAFETY: only this object uses the mapping until `drop`.
        unsafe {
            let (len, access) = (page * (pages + 1), libc::PROT_READ | libc::PROT_WRITE);
            let base = libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(Self { fd, base: base.cast(), page, size: page * pages })
        }
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: within the first page, aligned, and shared with the kernel as an atomic.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
    }

    /// Bytes that are not read yet.
    fn used(&self) -> usize {
        let head = self.position(HEAD).load(Ordering::Acquire);
        (head.wrapping_sub(self.position(TAIL).load(Ordering::Relaxed)) as usize).min(self.size)
    }

    fn drain(&mut self, events: &mut Vec<(u64, Event)>) {
        let len = self.used();
        let tail = self.position(TAIL).load(Ordering::Relaxed);
        let head = tail.wrapping_add(len as u64);
        if len == 0 {
            return;
        }
        let mut bytes = vec![0u8; len];
        let from = tail as usize & (self.size - 1);
        let first = len.min(self.size - from);
        // SAFETY: the kernel does not write between tail and head; both parts are within the data pages.
        unsafe {
            let data = self.base.add(self.page);
            std::ptr::copy_nonoverlapping(data.add(from), bytes.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr().add(first), len - first);
        }
        self.position(TAIL).store(head, Ordering::Release);
        parse(&bytes, events);
    }
}

// SAFETY: the memory belongs to the process, not to a thread, and only the owner of the ring uses it
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: what `open` mapped.
        unsafe { libc::munmap(self.base.cast(), self.page + self.size) };
    }
}

/// A record is `perf_event_header` (type u32, misc u16, size u16), the members of its type and, because of `sample_id_all`,
/// the time.
fn parse(mut bytes: &[u8], events: &mut Vec<(u64, Event)>) {
    while let (Some(kind), Some(size)) = (u32_at(bytes, 0), u16_at(bytes, 6)) {
        let Some((record, rest)) = bytes.split_at_checked(usize::from(size).max(8)) else { return };
        if let Some(time) = u64_at(record, record.len().saturating_sub(8))
            && let Some(event) = event(kind, record, SystemTime::UNIX_EPOCH + Duration::from_nanos(time))
        {
            events.push((time, event));
        }
        bytes = rest;
    }
}

fn event(kind: u32, record: &[u8], time: SystemTime) -> Option<Event> {
    const LOST: u32 = 2;
    const EXIT: u32 = 4;
    const FORK: u32 = 7;
    const MMAP2: u32 = 10;
    match kind {
        // an id comes before the number
        LOST => Some(Event::Lost { count: u64_at(record, 16).unwrap_or(1) }),
        // pid, ppid, tid, ptid. Threads are reported too; a process is its first thread.
        EXIT if u32_at(record, 8) == u32_at(record, 16) => Some(Event::Exited { pid: u32_at(record, 8)? }),
        FORK if u32_at(record, 8) != u32_at(record, 12) => Some(Event::Forked { pid: u32_at(record, 8)?, parent: u32_at(record, 12)? }),
        MMAP2 => {
            let name = record.get(72..)?;
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            Some(Event::Mapped {
                pid: u32_at(record, 8)?,
                start: u64_at(record, 16)?,
                len: u64_at(record, 24)?,
                offset: u64_at(record, 32)?,
                inode: u64_at(record, 48)?,
                path: PathBuf::from(OsStr::from_bytes(&name[..end])),
                time,
            })
        }
        _ => None,
    }
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..offset + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..offset + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_recorded() {
        let Ok(mut recorder) = Recorder::open() else { return eprintln!("skipped: needs CAP_PERFMON") };
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        child.wait().unwrap();
        let events = recorder.drain();
        let mapped = |part: &str| {
            events.iter().any(|e| matches!(e, Event::Mapped { pid, path, .. } if *pid == id && path.to_string_lossy().contains(part)))
        };
        assert!(mapped("true") && mapped("libc.so") && mapped("[vdso]"), "{events:?}");
        assert!(events.contains(&Event::Forked { pid: id, parent: std::process::id() }));
        assert!(events.contains(&Event::Exited { pid: id }));
        assert!(recorder.drain().iter().all(|e| !matches!(e, Event::Mapped { pid, .. } if *pid == id)));
    }

    #[test]
    fn queued_events_are_bounded() {
        let Ok(mut recorder) = Recorder::open() else { return eprintln!("skipped: needs CAP_PERFMON") };
        recorder.watch(7);
        recorder.rings.clear();
        let mapped = |pid, start| Event::Mapped {
            pid,
            start,
            len: 4096,
            offset: 0,
            inode: 1,
            path: PathBuf::from("x".repeat(4096)),
            time: SystemTime::UNIX_EPOCH,
        };
        recorder.queue_events((0..10).map(|time| (time, mapped(1, 4096))).collect());
        assert_eq!(recorder.events.len(), 1);
        recorder.queue_events((0..50_000).map(|time| (time, mapped(2, 4096 * time))).collect());
        assert!(recorder.size <= MAX_PENDING_BYTES + 8192);
        recorder.queue_events(vec![(50_000, mapped(7, 4096))]);
        let events = recorder.drain();
        let lost: u64 = events.iter().map(|e| if let Event::Lost { count } = e { *count } else { 0 }).sum();
        let of_two = events.iter().filter(|e| matches!(e, Event::Mapped { pid: 2, .. })).count() as u64;
        assert_eq!(of_two + lost, 50_000);
        assert!(events.contains(&mapped(7, 4096)) && lost > 0);
    }

    #[test]
    fn cut_records() {
        let mut record = [10u32.to_ne_bytes(), [2, 0, 88, 0]].concat();
        record.resize(88, 1);
        for len in 0..record.len() {
            parse(&record[..len], &mut Vec::new());
            let mut short = record[..len.max(8)].to_vec();
            short[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
            parse(&short, &mut Vec::new());
        }
    }
}
