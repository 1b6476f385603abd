//! A file of BTF that the kernel does not map (before 6.16, and those of modules), read in pieces.
//!
//! It has 4 to 6 MB. Searches read all of it through a small buffer, and the pages with the few entries that answers consist of stay
//! in memory.

#![allow(unsafe_code)] // memory that is filled on demand

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use memmap2::{Advice, MmapMut, MmapRaw};

use crate::input;

/// The kernel returns at most this many bytes for each read(2) of such a file.
const PAGE: usize = 4096;
/// Size of the buffer of a search.
const PIECE: usize = 32 << 10;
/// A position is stored for every so many strings.
const STRIDE: usize = 16;

/// The start of the next page.
pub(super) fn page_after(offset: usize) -> usize {
    (offset / PAGE + 1) * PAGE
}

/// See the module. The file must not change.
pub(super) struct PagedFile {
    file: File,
    len: usize,
    /// As large as the file. The kernel provides memory for the pages that are written.
    memory: MmapRaw,
    /// A bit for each page that was read.
    present: RefCell<Vec<u64>>,
}

impl PagedFile {
    /// # Errors
    /// Those of the system; the file is too large or empty.
    pub fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        if len > input::TYPES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let len = len as usize;
        let memory = MmapRaw::from(MmapMut::map_anon(len)?);
        // a huge page would take 2 MB for the first answer
        let _ = memory.advise(Advice::NoHugePage);
        let present = RefCell::new(vec![0; len.div_ceil(PAGE).div_ceil(64)]);
        Ok(Self { file, len, memory, present })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// A part of the file, which stays in memory; none if it cannot be read.
    pub fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let mut present = self.present.borrow_mut();
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            let word = present.get_mut(page / 64)?;
            let bit = 1 << (page % 64);
            if *word & bit != 0 {
                continue;
            }
            let start = page * PAGE;
            let size = PAGE.min(self.len - start);
            // SAFETY: the page is within the memory. No reference to it exists: they are made below, for pages that were read.
            let bytes = unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().add(start), size) };
            self.file.read_exact_at(bytes, start as u64).ok()?;
            *word |= bit;
        }
        // SAFETY: the range is within the memory, which lives as long as `self`; its pages were read and are never written again
        Some(unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(range.start), range.len()) })
    }

    /// Visits a range in pieces: see `Bytes::visit`. None of it stays in memory.
    pub fn visit(&self, range: Range<usize>, each: &mut dyn FnMut(&[u8]) -> Option<usize>) -> usize {
        let mut piece: Vec<u8> = Vec::with_capacity(PIECE);
        // the offset of the piece, and of the bytes after it
        let (mut start, end) = (range.start, range.end.min(self.len));
        while start < end {
            let next = start + piece.len();
            if piece.len() == piece.capacity() {
                piece.reserve(PIECE);
            }
            let (kept, more) = (piece.len(), (piece.capacity() - piece.len()).min(end.saturating_sub(next)));
            piece.resize(kept + more, 0);
            let read = more > 0 && piece.get_mut(kept..).is_some_and(|to| self.file.read_exact_at(to, next as u64).is_ok());
            if !read {
                break;
            }
            let mut used = 0;
            while let Some(rest) = piece.get(used..).filter(|rest| !rest.is_empty()) {
                match each(rest) {
                    Some(0) => break,
                    Some(n) => used += n,
                    None => return start + used - range.start,
                }
            }
            start += used;
            piece.drain(..used.min(piece.len()));
        }
        start.min(end) - range.start
    }
}

/// The strings of a file by hashes.
pub(super) struct StringIndex {
    /// In the order of the file.
    hashes: Vec<u32>,
    /// The position of every [`STRIDE`]-th string after the start of the strings.
    starts: Vec<u32>,
}

fn hash(text: &[u8]) -> u32 {
    let mut state = text.len() as u64;
    let mut words = text.chunks_exact(8);
    for word in &mut words {
        state =
            (state ^ word.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    for byte in words.remainder() {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    (state ^ state >> 32) as u32
}

impl StringIndex {
    /// Reads the strings in a range of a file.
    pub fn new(file: &PagedFile, range: Range<usize>) -> Self {
        // in kernels, a string has about 21 bytes
        let count = range.len() / 20;
        let (mut hashes, mut starts) = (Vec::with_capacity(count), Vec::with_capacity(count / STRIDE));
        let mut at = 0;
        file.visit(range, &mut |bytes| {
            let mut used = 0;
            for end in memchr::memchr_iter(0, bytes) {
                if hashes.len() % STRIDE == 0 {
                    starts.push(at + used as u32);
                }
                hashes.push(hash(bytes.get(used..end).unwrap_or_default()));
                used = end + 1;
            }
            at += used as u32;
            Some(used)
        });
        Self { hashes, starts }
    }

    /// The positions of a string. `read` returns the string at a position.
    pub fn find<'a>(&self, text: &str, read: &dyn Fn(u32) -> Option<&'a str>) -> Vec<u32> {
        let wanted = hash(text.as_bytes());
        let candidates = self.hashes.iter().enumerate().filter(|(_, hash)| **hash == wanted).map(|(number, _)| number);
        let position = |number: usize| {
            let mut at = *self.starts.get(number / STRIDE)?;
            for _ in 0..number % STRIDE {
                at += read(at)?.len() as u32 + 1;
            }
            (read(at)? == text).then_some(at)
        };
        candidates.filter_map(position).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::btf::{Blob, Entry, Kind, Writer};
    use super::*;

    /// A file with these contents.
    fn file(name: &str, bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("rbt-paged-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    /// The number of pages in memory.
    fn kept(file: &PagedFile) -> u32 {
        file.present.borrow().iter().map(|word| word.count_ones()).sum()
    }

    #[test]
    fn keeps_only_the_pages_of_answers() {
        let bytes: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        let paged = PagedFile::new(file("pages", &bytes)).unwrap();
        assert_eq!(paged.get(4090..4100), bytes.get(4090..4100));
        assert_eq!(paged.get(99_999..100_000), bytes.get(99_999..));
        assert_eq!((paged.get(5..5), kept(&paged)), (Some(&[][..]), 3));
        assert_eq!((paged.get(0..100_001), paged.get(Range { start: 3, end: 2 })), (None, None));
        let mut seen = Vec::new();
        let mut steps = [1, 7, 4095, 31_000, 32_767].iter().cycle();
        let used = paged.visit(10..99_000, &mut |rest| {
            let n = *steps.next()?;
            let part = rest.get(..n)?;
            seen.extend_from_slice(part);
            Some(n)
        });
        assert_eq!((&seen[..], used), (&bytes[10..10 + used], seen.len()));
        assert_eq!(kept(&paged), 3);
    }

    #[test]
    fn gets_more_until_it_uses_some() {
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let paged = PagedFile::new(file("more", &bytes)).unwrap();
        let mut largest = 0;
        let used = paged.visit(0..bytes.len(), &mut |rest| {
            largest = largest.max(rest.len());
            Some(if rest.len() < 150_000 { 0 } else { rest.len() })
        });
        assert_eq!((used, largest >= 150_000), (largest, true));
        // beyond the end of a piece, and beyond the end of the range
        let mut starts = Vec::new();
        let used = paged.visit(0..180_000, &mut |rest| {
            starts.push(rest[0]);
            Some(100_000)
        });
        assert_eq!((used, starts), (180_000, vec![0, (100_000 % 251) as u8]));
        // a file that got shorter
        let short = PagedFile { len: 300_000, ..PagedFile::new(file("short", &bytes)).unwrap() };
        assert!(short.visit(0..300_000, &mut |rest| Some(rest.len())) <= 200_000);
    }

    fn all(blob: &Blob) -> Vec<(u32, String)> {
        let of = |id: u32, e: &Entry| (id, format!("{:?} {:?}", blob.string(e.name), e));
        blob.entries().map(|(id, e)| of(id, &e)).collect()
    }

    #[test]
    fn has_the_types_of_a_file_in_memory() {
        let mut w = Writer::new(None);
        let int = w.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
        for n in 0..3000 {
            let members: Vec<u32> = (0..n % 7).flat_map(|m| [w.string(&format!("member_{n}_{m}")), int, m * 32]).collect();
            w.add(Kind::Struct, false, &format!("structure_{n}"), n % 7, n % 7 * 4, &members);
        }
        // its entry is larger than a piece
        let variants: Vec<u32> = (0..20_000).flat_map(|n| [w.string(&format!("variant_{n}")), n]).collect();
        w.add(Kind::Enum, false, "large", 20_000, 4, &variants);
        w.add(Kind::Typedef, false, "last", 0, int, &[]);
        let bytes = w.finish();
        let paged = Blob::open_in_pieces(file("types", &bytes)).unwrap();
        let whole = Blob::from_vec(bytes, None).unwrap();
        let kinds = [Kind::Struct, Kind::Enum, Kind::Typedef];
        for (name, kind) in [("structure_0", 0), ("structure_2999", 0), ("large", 1), ("last", 2), ("last", 0), ("none", 0), ("", 0)] {
            let find = |blob: &Blob| {
                let strings = blob.find_string(name);
                let id = strings.first().and_then(|string| blob.find_named(*string, kinds[kind].bit()));
                (strings, id.map(|id| (id, format!("{:?}", blob.entry(id)))))
            };
            assert_eq!(find(&paged), find(&whole), "{name}");
        }
        assert_eq!(paged.next_id(), whole.next_id());
        for blob in [&paged, &whole] {
            let last = blob.find_string("last");
            blob.forget_searches();
            assert_eq!((blob.find_string("last"), blob.next_id()), (last, whole.next_id()));
        }
        let first = |blob: &Blob| blob.find_entry(Kind::Typedef.bit() | Kind::Enum.bit(), |id, e| Some((id, e.kind, e.vlen)));
        assert_eq!(first(&paged), first(&whole));
        assert!(first(&whole).is_some() && !paged.has_entry(Kind::Func.bit(), |_| true));
        assert_eq!(all(&paged), all(&whole));
        assert_eq!(paged.bytes(), whole.bytes());
    }

    #[test]
    fn rejects_invalid_types() {
        let of = |bytes: &[u8]| Blob::open_in_pieces(file("invalid", bytes)).and_then(|blob| blob.walk_all().map(|()| blob));
        let mut w = Writer::new(None);
        w.add(Kind::Int, false, "int", 0, 4, &[1 << 24 | 32]);
        let bytes = w.finish();
        assert!(of(&bytes).is_ok() && of(&[]).is_err());
        for end in 0..bytes.len() {
            assert!(of(&bytes[..end]).is_err(), "{end}");
        }
        let mut unknown = bytes.clone();
        unknown[24 + 7] = 0x1f;
        assert!(of(&unknown).is_err());
        let mut long = bytes;
        long[24 + 4..24 + 8].copy_from_slice(&((Kind::Struct as u32) << 24 | 9).to_le_bytes());
        assert!(of(&long).is_err_and(|why| why.contains("truncated")));
    }

    #[test]
    fn agrees_with_the_kernel() {
        let path = std::path::Path::new("/sys/kernel/btf/vmlinux");
        let (Ok(file), Ok(whole)) = (File::open(path), Blob::open(path, None)) else { return };
        let paged = Blob::open_in_pieces(file).unwrap();
        for name in ["task_struct", "int", "vfs_read", "btf_trace_sched_switch", "nothing_of_this_name"] {
            assert_eq!(paged.find_string(name), whole.find_string(name), "{name}");
        }
        assert_eq!(paged.next_id(), whole.next_id());
        let digest = |blob: &Blob| {
            let mut sum = 0u64;
            blob.each_entry(u32::MAX, |id, e| sum = sum.rotate_left(7) ^ u64::from(id) << 32 ^ u64::from(e.name) ^ u64::from(e.vlen) << 20);
            sum
        };
        assert_eq!(digest(&paged), digest(&whole));
    }
}
