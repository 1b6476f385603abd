//! The reading end of a BPF ring buffer. It passes records in place, without copying.
//!
//! The layout is the kernel's (`kernel/bpf/ringbuf.c`, `Documentation/bpf/ringbuf.rst`): a page with the consumer position,
//! which user space writes; a page with the producer position; and the data, mapped twice in a row so that a record that wraps
//! around is contiguous. Each record has a header of eight bytes: its length in a `u32`, whose upper two bits mark records that
//! are unfinished or discarded.
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

/// The result of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drained {
    /// Number of records without discarded ones.
    pub records: u64,
    /// Bytes freed.
    pub bytes: u64,
    /// It ended at a record that is still being written.
    pub busy: bool,
    /// It stopped on request or at its limit.
    pub has_more: bool,
}

/// A mapped ring buffer.
pub(super) struct Ring {
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    mask: u64,
    fd: RawFd,
}

impl Ring {
    /// Maps the ring of `size` bytes (a power of two) of a map's descriptor, which must stay open.
    pub fn open(fd: RawFd, size: u64) -> io::Result<Self> {
        let page = page_size() as usize;
        let consumer = Mapping::new(fd, 0, page, libc::PROT_READ | libc::PROT_WRITE)?;
        let producer = Mapping::new(fd, page, page + 2 * size as usize, libc::PROT_READ)?;
        Ok(Self { consumer, producer, page, mask: size - 1, fd })
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
                let place = self.page + (at & self.mask) as usize;
                // SAFETY: records start at multiples of 8, and the data are mapped twice, so that a header and the
                // record behind it never leave the mapping.
                let header = unsafe { ptr::read_volatile(self.producer.start.add(place).cast::<u32>()) };
                std::sync::atomic::fence(Ordering::Acquire);
                if header & BUSY != 0 {
                    found.busy = true;
                    break 'ring;
                }
                let len = u64::from(header & !(BUSY | DISCARDED));
                let mut go_on = true;
                if header & DISCARDED == 0 {
                    found.records += 1;
                    // SAFETY: as above; the producers do not touch a finished record until its room is given back.
                    let record = unsafe { std::slice::from_raw_parts(self.producer.start.add(place + HEADER as usize), len as usize) };
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
    fn new(fd: RawFd, offset: usize, len: usize, protection: i32) -> io::Result<Self> {
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
