//! The reading end of a BPF ring buffer. It passes records in place, without copying.
//!
//! The layout is the kernel's (`kernel/bpf/ringbuf.c`, `Documentation/bpf/ringbuf.rst`): a page with the consumer position,
//! which user space writes; a page with the producer position; and the data, twice in a row so that a record that wraps
//! around is contiguous. rbt maps only the part that it reads: the kernel enters each page of a mapping, so that a ring of
//! 4 MiB would add 8 MiB to the process and 2 ms to its start and end. Each record has a header of eight bytes: its length in
//! a `u32`, whose upper two bits mark records that are unfinished or discarded.
//!
//! rbt does not use libbpf's reader, because a batch must end between two records when a signal arrives, and because records
//! after an `exit()` are skipped.
#![allow(unsafe_code)] // the ring is memory that the kernel writes

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// `BPF_RINGBUF_BUSY_BIT`
const BUSY: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT`
const DISCARDED: u32 = 1 << 30;
/// `BPF_RINGBUF_HDR_SZ`
const HEADER: u64 = 8;
/// Bytes after which space is returned to the producers, because each time costs them a cache line.
const RELEASE_THRESHOLD: u64 = 64 * 1024;

/// Bytes of the part of the data that is mapped, unless a record is longer.
const WINDOW: u64 = 256 << 10;

/// The result of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drained {
    /// Number of records without discarded ones.
    pub records: u64,
    /// Bytes freed.
    pub bytes: u64,
    /// It ended at a record that is still being written, or that cannot be mapped now.
    pub busy: bool,
    /// It stopped on request or at its limit.
    pub has_more: bool,
}

/// A mapped ring buffer.
pub(super) struct Ring {
    consumer: Mapping,
    producer: Mapping,
    window: Option<Window>,
    page: u64,
    mask: u64,
    fd: RawFd,
}

/// The mapped part of the data.
struct Window {
    mapping: Mapping,
    /// The position in the stream of records of its first byte.
    from: u64,
}

impl Window {
    /// The bytes from this position on, if it has all of them.
    fn get(&self, at: u64, len: u64) -> Option<*const u8> {
        let offset = at.checked_sub(self.from)?;
        // SAFETY: the offset is within the mapping
        (offset + len <= self.mapping.len as u64).then(|| unsafe { self.mapping.start.add(offset as usize) }.cast_const())
    }
}

impl Ring {
    /// Maps the ring of `size` bytes (a power of two) of a map's descriptor, which must stay open.
    pub fn open(fd: RawFd, size: u64) -> io::Result<Self> {
        let page = page_size();
        let consumer = Mapping::new(fd, 0, page, libc::PROT_READ | libc::PROT_WRITE)?;
        let producer = Mapping::new(fd, page, page, libc::PROT_READ)?;
        Ok(Self { consumer, producer, window: None, page, mask: size - 1, fd })
    }

    /// The bytes of the stream of records from this position on, at most one record with its header.
    fn at(&mut self, at: u64, len: u64) -> io::Result<*const u8> {
        if let Some(known) = self.window.as_ref().and_then(|window| window.get(at, len)) {
            return Ok(known);
        }
        let from = at & !(self.page - 1);
        let needed = (at - from + len).next_multiple_of(self.page);
        // it ends within the second copy of the data, because a record is no longer than the ring
        let bytes = needed.max(WINDOW.min(self.size()));
        // before the next one, so that the process never has both
        self.window = None;
        let mapping = Mapping::new(self.fd, 2 * self.page + (from & self.mask), bytes, libc::PROT_READ)?;
        let window = self.window.insert(Window { mapping, from });
        window.get(at, len).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// For poll(2): readable while a record, finished or not, is in the ring.
    pub fn fd(&self) -> RawFd {
        self.fd
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.mask + 1
    }

    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page, starts with this number, and lives as long as self
        unsafe { AtomicU64::from_ptr(self.consumer.start.cast()) }
    }

    fn produced(&self) -> &AtomicU64 {
        // SAFETY: as above; only loaded from, since the page is read-only
        unsafe { AtomicU64::from_ptr(self.producer.start.cast()) }
    }

    /// Bytes of records that no one has read.
    #[cfg(test)]
    pub fn unread(&self) -> u64 {
        self.produced().load(Ordering::Acquire).saturating_sub(self.consumed().load(Ordering::Relaxed))
    }

    /// Discards all records.
    pub fn skip(&mut self) {
        self.drain(u64::MAX, &mut |_| true);
    }

    /// Passes finished records to `each`, in order, until there are none, `limit` bytes were read, or `each` returns false.
    pub fn drain(&mut self, limit: u64, each: &mut dyn FnMut(&[u8]) -> bool) -> Drained {
        let mut found = Drained::default();
        let start = self.consumed().load(Ordering::Relaxed);
        let (mut at, mut given_back) = (start, start);
        'ring: loop {
            let end = self.produced().load(Ordering::Acquire);
            if at >= end {
                break;
            }
            while at < end {
                let Ok(place) = self.at(at, HEADER) else {
                    found.busy = true;
                    break 'ring;
                };
                // SAFETY: the bytes are mapped, and records start at multiples of 8
                let header = unsafe { ptr::read_volatile(place.cast::<u32>()) };
                std::sync::atomic::fence(Ordering::Acquire);
                if header & BUSY != 0 {
                    found.busy = true;
                    break 'ring;
                }
                let len = u64::from(header & !(BUSY | DISCARDED));
                let mut go_on = true;
                if header & DISCARDED == 0 {
                    let Ok(place) = self.at(at, HEADER + len) else {
                        found.busy = true;
                        break 'ring;
                    };
                    found.records += 1;
                    // SAFETY: the bytes are mapped; the producers do not touch a finished record until its room is given back.
                    let record = unsafe { std::slice::from_raw_parts(place.add(HEADER as usize), len as usize) };
                    go_on = each(record);
                }
                at += (len + HEADER).next_multiple_of(8);
                if at - given_back >= RELEASE_THRESHOLD {
                    self.consumed().store(at, Ordering::Release);
                    given_back = at;
                }
                if !go_on || at - start >= limit {
                    found.has_more = true;
                    break 'ring;
                }
            }
        }
        found.bytes = at - start;
        self.consumed().store(at, Ordering::Release);
        found
    }
}

/// Bytes of a page.
pub(super) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to the process, not to a thread, and only the owner of the mapping uses it
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: RawFd, offset: u64, len: u64, protection: i32) -> io::Result<Self> {
        let len = len as usize;
        // SAFETY: a new mapping at an address that the kernel chooses
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd, offset as libc::off_t) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: ours, and nothing that points into it outlives it
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::os::unix::fs::FileExt;

    /// A file with the layout of a ring, in which the test is the kernel.
    struct Producer {
        file: File,
        size: u64,
        at: u64,
    }

    impl Producer {
        fn new(size: u64) -> Self {
            // SAFETY: a new descriptor
            let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
            assert!(fd >= 0);
            // SAFETY: as above
            let file = unsafe { File::from_raw_fd(fd) };
            file.set_len(2 * page_size() + 2 * size).unwrap();
            Self { file, size, at: 0 }
        }

        /// Writes bytes to both copies of the data.
        fn put(&self, at: u64, bytes: &[u8]) {
            for (at, byte) in (at..).zip(bytes.chunks(1)) {
                let place = 2 * page_size() + at % self.size;
                self.file.write_all_at(byte, place).unwrap();
                self.file.write_all_at(byte, place + self.size).unwrap();
            }
        }

        fn push(&mut self, len: u64, byte: u8, flags: u32) {
            self.put(self.at, &(len as u32 | flags).to_ne_bytes());
            for end in [0, len - 1] {
                self.put(self.at + HEADER + end, &[byte]);
            }
            self.at += (len + HEADER).next_multiple_of(8);
            self.file.write_all_at(&self.at.to_ne_bytes(), page_size()).unwrap();
        }
    }

    #[test]
    fn records_are_whole_wherever_they_are() {
        const SIZE: u64 = 1 << 20;
        let mut producer = Producer::new(SIZE);
        let mut ring = Ring::open(producer.file.as_raw_fd(), SIZE).unwrap();
        // longer than a window, as long as the ring, and short ones that end at every place of a page
        let lengths = [17, 300_000, SIZE - HEADER, 4096, 260_000, 1];
        for (round, len) in (0u64..).zip(lengths.into_iter().cycle().take(60)) {
            let byte = round as u8;
            if round % 7 == 6 {
                producer.push(len, byte, DISCARDED);
            } else {
                producer.push(len, byte, 0);
            }
            let mut seen = Vec::new();
            let found = ring.drain(u64::MAX, &mut |record| {
                seen.push((record.len() as u64, record[0], record[record.len() - 1]));
                true
            });
            let expected = if round % 7 == 6 { vec![] } else { vec![(len, byte, byte)] };
            assert_eq!(seen, expected, "round {round}");
            assert_eq!((found.records, found.busy, ring.unread()), (expected.len() as u64, false, 0));
        }
        for n in 0..2000 {
            producer.push(200 + n % 40, n as u8, 0);
        }
        let mut n = 0u64;
        ring.drain(u64::MAX, &mut |record| {
            assert_eq!((record.len() as u64, record[0]), (200 + n % 40, n as u8));
            n += 1;
            true
        });
        assert_eq!(n, 2000);
        producer.push(8, 1, BUSY);
        assert!(ring.drain(u64::MAX, &mut |_| true).busy);
    }
}
