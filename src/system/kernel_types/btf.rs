//! BTF's binary format: a header, a sequence of type entries, a table of strings. `kernel_types` turns entries into
//! [`Type`](crate::types::Type)s.
//!
//! Source of all numbers: the kernel's `include/uapi/linux/btf.h` and `Documentation/bpf/btf.rst`. Only little-endian
//! data are supported. Every read is checked against the bounds of the data: invalid data make an answer absent, and
//! never cause a panic.
//!
//! Speed: the parser scans type headers once (126,000 in a kernel of 2025: 1.6 ms), and for a file of the kernel only as far as
//! needed, because frequent types such as `task_struct` are among the first thousand. It stores the name of each entry and the
//! offset of every sixteenth: less memory means fewer page faults. A lookup by name searches the string table, which has each
//! name once, and then compares numbers.

#![allow(unsafe_code)] // a mapped file

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use super::paged_file::{PagedFile, StringIndex, page_after};
use crate::failure::reason;
use crate::input;

/// The kinds of entries; the numbers are `BTF_KIND_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Void = 0,
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Union = 5,
    Enum = 6,
    Fwd = 7,
    Typedef = 8,
    Volatile = 9,
    Const = 10,
    Restrict = 11,
    Func = 12,
    FuncProto = 13,
    Var = 14,
    Datasec = 15,
    Float = 16,
    DeclTag = 17,
    TypeTag = 18,
    Enum64 = 19,
}

impl Kind {
    /// Its bit in a set of kinds.
    pub const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// By kind: its name in rbt, bytes after the common 12, and bytes for each of `vlen` parts.
const KINDS: [(Kind, u32, u32); 20] = [
    (Kind::Void, 0, 0),
    (Kind::Int, 4, 0),
    (Kind::Ptr, 0, 0),
    (Kind::Array, 12, 0),
    (Kind::Struct, 0, 12),
    (Kind::Union, 0, 12),
    (Kind::Enum, 0, 8),
    (Kind::Fwd, 0, 0),
    (Kind::Typedef, 0, 0),
    (Kind::Volatile, 0, 0),
    (Kind::Const, 0, 0),
    (Kind::Restrict, 0, 0),
    (Kind::Func, 0, 0),
    (Kind::FuncProto, 0, 8),
    (Kind::Var, 4, 0),
    (Kind::Datasec, 0, 12),
    (Kind::Float, 0, 0),
    (Kind::DeclTag, 4, 0),
    (Kind::TypeTag, 0, 0),
    (Kind::Enum64, 0, 12),
];

/// `struct btf_type` with its data.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The kind.
    pub kind: Kind,
    /// Offset of its name in the string table; 0 if it has none.
    pub name: u32,
    /// Number of members, variants or parameters.
    pub vlen: u32,
    /// `kind_flag`: the struct has bit-fields, the enum is signed, or the forward declaration is of a union.
    pub flag: bool,
    /// `size` (bytes) or `type` (ID), depending on the kind.
    pub size_or_type: u32,
    tail: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The n-th `u32` after the common part.
    pub fn word(&self, n: usize) -> Option<u32> {
        word(self.tail, n.checked_mul(4)?)
    }

    /// The parts (members, variants, parameters), each as the `u32`s of its struct.
    pub fn parts<const N: usize>(&self) -> impl Iterator<Item = [u32; N]> + use<'a, N> {
        self.tail.chunks_exact(N * 4).map(|part| std::array::from_fn(|i| word(part, i * 4).unwrap_or(0)))
    }
}

/// The owner of the bytes.
enum Bytes {
    Mapped(memmap2::Mmap),
    Read(Vec<u8>),
    Paged(PagedFile),
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Bytes::Mapped(map) => map.len(),
            Bytes::Read(bytes) => bytes.len(),
            Bytes::Paged(file) => file.len(),
        }
    }

    fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        match self {
            Bytes::Mapped(map) => map.get(range),
            Bytes::Read(bytes) => bytes.get(range),
            Bytes::Paged(file) => file.get(range),
        }
    }

    /// Visits a range in pieces. `each` gets the bytes after those that it has used so far, and returns how many of them it uses. It
    /// gets more if it uses none, and nothing more after `None`. Returns the number of bytes that were used.
    fn visit(&self, range: Range<usize>, each: &mut dyn FnMut(&[u8]) -> Option<usize>) -> usize {
        match self {
            Bytes::Paged(file) => file.visit(range, each),
            Bytes::Mapped(_) | Bytes::Read(_) => {
                let mut used = 0;
                let all = self.get(range).unwrap_or_default();
                while let Some(rest) = all.get(used..).filter(|rest| !rest.is_empty()) {
                    match each(rest) {
                        Some(n) if n > 0 => used += n,
                        Some(_) | None => break,
                    }
                }
                used
            }
        }
    }
}

/// A BTF file. The IDs and strings of a module ("split BTF") continue those of the kernel.
pub struct Blob {
    bytes: Bytes,
    strings: Range<usize>,
    /// The first ID, and the offset of the first string, in this file.
    first_id: u32,
    first_string: u32,
    /// The range of the types in `bytes`.
    types: Range<usize>,
    walked: RefCell<ScannedTypes>,
    /// The index of the strings, for a file that is read in pieces.
    string_index: RefCell<Option<StringIndex>>,
}

/// The types that were scanned so far.
#[derive(Default)]
struct ScannedTypes {
    /// Offset of every [`STRIDE`]-th entry in the file.
    starts: Vec<u32>,
    /// Name of each entry.
    names: Vec<u32>,
    /// Offset of the next entry in the file.
    at: usize,
}

/// Size of the header, `struct btf_header`, in bytes.
const HEADER: usize = 24;
const STRIDE: usize = 16;
/// Number of entries to scan at a time.
const STEP: usize = 4096;

impl Blob {
    /// Opens a file below `/sys/kernel/btf`. It is mapped if the kernel supports this (6.16 and later; 26 µs instead of 3–6
    /// ms). Otherwise it is read in pieces, because it has 4 to 6 MB, of which a program needs little.
    pub fn open(path: &Path, base: Option<&Blob>) -> Result<Blob, String> {
        let shown = path.display();
        let file = File::open(path).map_err(|e| format!("{shown}: {}", reason(&e)))?;
        // Only files in sysfs cannot be truncated while they are mapped.
        let mapped = if path.starts_with("/sys") {
            // The kernel rejects a shared mapping (`btf_sysfs_vmlinux_mmap`). SAFETY: the file is the kernel's own and
            // read-only: its bytes do not change.
            unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) }.ok()
        } else {
            None
        };
        let bytes = match mapped {
            Some(map) => Bytes::Mapped(map),
            None if path.starts_with("/sys") => Bytes::Paged(PagedFile::new(file).map_err(|e| format!("{shown}: {}", reason(&e)))?),
            None => Bytes::Read(input::read_from(file, input::TYPES).map_err(|e| format!("{shown}: {}", reason(&e)))?),
        };
        let blob = Self::parse(bytes, base).map_err(|e| format!("{shown}: {e}"))?;
        // The kernel has validated its own file.
        if !path.starts_with("/sys") {
            blob.walk(usize::MAX).map_err(|e| format!("{shown}: {e}"))?;
        }
        Ok(blob)
    }

    /// Opens a file that is read in pieces, although it could be mapped.
    #[cfg(test)]
    pub fn open_in_pieces(file: File) -> Result<Blob, String> {
        Self::parse(Bytes::Paged(PagedFile::new(file).map_err(|e| reason(&e))?), None)
    }

    /// Scans all entries.
    #[cfg(test)]
    pub fn walk_all(&self) -> Result<(), String> {
        self.walk(usize::MAX)
    }

    /// Creates a blob from bytes, which are validated.
    pub fn from_vec(bytes: Vec<u8>, base: Option<&Blob>) -> Result<Blob, String> {
        let blob = Self::parse(Bytes::Read(bytes), base)?;
        blob.walk(usize::MAX)?;
        Ok(blob)
    }

    /// Creates a blob from bytes that are known to be valid; types are scanned on demand.
    pub fn kept(bytes: Vec<u8>) -> Result<Blob, String> {
        Self::parse(Bytes::Read(bytes), None)
    }

    fn parse(bytes: Bytes, base: Option<&Blob>) -> Result<Blob, String> {
        const CUT: &str = "BTF is truncated";
        let header = bytes.get(0..HEADER.min(bytes.len())).ok_or(CUT)?;
        let magic = header.get(..4).ok_or(CUT)?;
        if magic.starts_with(&[0xeb, 0x9f]) {
            return Err("BTF is for a big-endian machine".into());
        }
        if !magic.starts_with(&[0x9f, 0xeb]) {
            return Err("not BTF (no magic number 0xeb9f)".into());
        }
        // struct btf_header: hdr_len, type_off, type_len, str_off, str_len.
        let head = |n: usize| word(header, 4 + n * 4).ok_or(CUT);
        let section = |off: u32, len: u32| {
            let from = head(0)?.checked_add(off).ok_or(CUT)? as usize;
            let to = from.checked_add(len as usize).ok_or(CUT)?;
            if to <= bytes.len() { Ok(from..to) } else { Err(CUT) }
        };
        let types = section(head(1)?, head(2)?)?;
        let strings = section(head(3)?, head(4)?)?;
        let end =
            if strings.is_empty() { Some(0).filter(|_| base.is_some()) } else { bytes.get(strings.end - 1..strings.end).map(|s| s[0]) };
        if end != Some(0) {
            return Err("BTF's strings do not end".into());
        }
        let (first_id, first_string) = base.map_or((1, 0), |b| (b.next_id(), b.next_string()));

        if u32::try_from(bytes.len()).is_err() {
            return Err("BTF is over 4 GB".into());
        }
        let walked = RefCell::new(ScannedTypes { at: types.start, ..ScannedTypes::default() });
        Ok(Blob { bytes, strings, first_id, first_string, types, walked, string_index: RefCell::default() })
    }

    /// Scans until at least this many entries are known, or all. If the data are invalid, entries after the error are unknown.
    fn walk(&self, wanted: usize) -> Result<(), String> {
        const CUT: &str = "BTF is truncated";
        let mut walked = self.walked.borrow_mut();
        let ScannedTypes { starts, names, at } = &mut *walked;
        let end = self.types.end;
        if names.len() >= wanted || *at >= end {
            return Ok(());
        }
        // An entry has at least 12 bytes; in kernels about 25.
        let max = ((end - *at) / 24).min(wanted - names.len());
        names.reserve(max);
        starts.reserve(max / STRIDE);
        let mut unknown = None;
        // Local variables, and one check for both words: this loop takes most of the time of a scan.
        let mut here = std::mem::replace(at, end);
        self.bytes.visit(here..end, &mut |bytes| {
            let start = here;
            while names.len() < wanted {
                let Some(head) = bytes.get(here - start..).and_then(|rest| rest.first_chunk::<8>()) else { break };
                let head = u64::from_le_bytes(*head);
                let (name, info) = (head as u32, (head >> 32) as u32);
                let Some((_, fixed, each)) = KINDS.get((info >> 24 & 0x1f) as usize) else {
                    unknown = Some(info >> 24 & 0x1f);
                    return None;
                };
                if names.len() % STRIDE == 0 {
                    starts.push(here as u32);
                }
                names.push(name);
                here += (12 + fixed + each * (info & 0xffff)) as usize;
            }
            // what is left of an entry that goes on in the next piece is skipped there
            if names.len() < wanted { Some(here - start) } else { None }
        });
        if let Some(kind) = unknown {
            return Err(format!("BTF has an unknown kind of type: {kind}"));
        }
        if here > end || here < end && names.len() < wanted {
            return Err(CUT.into());
        }
        *at = here;
        Ok(())
    }

    /// The file.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(0..self.bytes.len()).unwrap_or_default()
    }

    /// The ID after the last one of this file.
    pub fn next_id(&self) -> u32 {
        // If the data are invalid, the entries before the error count.
        let _ = self.walk(usize::MAX);
        self.first_id.saturating_add(self.walked.borrow().names.len() as u32)
    }

    fn next_string(&self) -> u32 {
        self.first_string.saturating_add(self.strings.len() as u32)
    }

    /// An entry of this file.
    pub fn entry(&self, id: u32) -> Option<Entry<'_>> {
        let index = id.checked_sub(self.first_id)? as usize;
        if index >= self.walked.borrow().names.len() {
            self.walk(index.next_multiple_of(STEP) + STEP).ok()?;
        }
        let mut at = *self.walked.borrow().starts.get(index / STRIDE)? as usize;
        for _ in 0..index % STRIDE {
            at = self.read(at)?.1;
        }
        Some(self.read(at)?.0)
    }

    /// All entries of this file with their IDs; faster than one by one. Of a file that is read in pieces, this keeps all of them:
    /// see [`Blob::find_entry`].
    pub fn entries(&self) -> impl Iterator<Item = (u32, Entry<'_>)> {
        let mut at = self.types.start;
        let each = std::iter::from_fn(move || {
            let (entry, next) = self.read(at)?;
            at = next;
            Some(entry)
        });
        (self.first_id..u32::MAX).zip(each)
    }

    /// The first entry of these kinds (a set of [`Kind::bit`]), with its ID, for which `find` returns something.
    pub fn find_entry<T>(&self, kinds: u32, mut find: impl FnMut(u32, &Entry<'_>) -> Option<T>) -> Option<T> {
        let (mut id, mut found) = (self.first_id, None);
        self.bytes.visit(self.types.clone(), &mut |bytes| {
            let mut used = 0;
            while let Some((entry, size)) = bytes.get(used..).and_then(parse_entry) {
                if entry.kind.bit() & kinds != 0 {
                    found = find(id, &entry);
                    if found.is_some() {
                        return None;
                    }
                }
                used += size;
                id = id.saturating_add(1);
            }
            Some(used)
        });
        found
    }

    /// Frees the indexes of searches. The next search creates them again.
    pub fn forget_searches(&self) {
        *self.walked.borrow_mut() = ScannedTypes { at: self.types.start, ..ScannedTypes::default() };
        *self.string_index.borrow_mut() = None;
    }

    /// Are lookups of names fast, because it has an index of the strings?
    pub fn has_index(&self) -> bool {
        matches!(self.bytes, Bytes::Paged(_))
    }

    /// Visits all entries of these kinds with their IDs.
    pub fn each_entry(&self, kinds: u32, mut each: impl FnMut(u32, &Entry<'_>)) {
        let _ = self.find_entry(kinds, |id, entry| -> Option<()> {
            each(id, entry);
            None
        });
    }

    /// Is there such an entry of these kinds?
    pub fn has_entry(&self, kinds: u32, mut is: impl FnMut(&Entry<'_>) -> bool) -> bool {
        self.find_entry(kinds, |_, entry| is(entry).then_some(())).is_some()
    }

    /// The entry at this offset, and the offset of the next one.
    #[inline]
    fn read(&self, offset: usize) -> Option<(Entry<'_>, usize)> {
        let end = match &self.bytes {
            Bytes::Mapped(_) | Bytes::Read(_) => self.types.end,
            Bytes::Paged(_) => {
                let head = self.bytes.get(offset..offset.checked_add(12)?)?;
                offset + entry_size(head)?
            }
        };
        if end > self.types.end {
            return None;
        }
        let (entry, size) = parse_entry(self.bytes.get(offset..end)?)?;
        Some((entry, offset + size))
    }

    /// A string of this file, if it is valid UTF-8.
    pub fn string(&self, offset: u32) -> Option<&str> {
        let start = self.strings.start.checked_add(offset.checked_sub(self.first_string)? as usize)?;
        let mut end = match &self.bytes {
            Bytes::Mapped(_) | Bytes::Read(_) => self.strings.end,
            Bytes::Paged(_) => page_after(start).min(self.strings.end),
        };
        loop {
            let rest = self.bytes.get(start..end)?;
            match memchr::memchr(0, rest) {
                Some(length) => return std::str::from_utf8(rest.get(..length)?).ok(),
                None if end < self.strings.end => end = page_after(end).min(self.strings.end),
                None => return None,
            }
        }
    }

    /// Are all of its strings valid UTF-8?
    pub fn has_only_text(&self) -> bool {
        self.bytes.get(self.strings.clone()).is_some_and(|strings| std::str::from_utf8(strings).is_ok())
    }

    /// Offsets of a string in this file: at most one, because producers write each string once (libbpf's and LLVM's string
    /// tables do not merge suffixes either), but possibly more in unusual data.
    pub fn find_string(&self, text: &str) -> Vec<u32> {
        if text.is_empty() || text.contains('\0') {
            return Vec::new();
        }
        if let Bytes::Paged(file) = &self.bytes {
            let mut index = self.string_index.borrow_mut();
            let index = index.get_or_insert_with(|| StringIndex::new(file, self.strings.clone()));
            let found = index.find(text, &|start| self.string(self.first_string.checked_add(start)?));
            return found.into_iter().map(|at| self.first_string.saturating_add(at)).collect();
        }
        let Some(table) = self.bytes.get(self.strings.clone()) else { return Vec::new() };
        let needle = [&[0], text.as_bytes(), &[0]].concat();
        let mut found: Vec<u32> =
            memchr::memmem::find_iter(table, &needle).map(|at| self.first_string.saturating_add(at as u32 + 1)).collect();
        // The table of a module need not start with the empty string.
        if table.starts_with(needle.get(1..).unwrap_or_default()) {
            found.push(self.first_string);
        }
        found
    }

    /// The first entry of this file with one of these kinds (a set of [`Kind::bit`]) and this name (an offset).
    pub fn find_named(&self, name: u32, kinds: u32) -> Option<u32> {
        let mut from = 0;
        loop {
            let at = self.walked.borrow().names.get(from..)?.iter().position(|n| *n == name);
            if let Some(at) = at {
                let id = self.first_id.checked_add((from + at) as u32)?;
                if self.entry(id).is_some_and(|e| e.kind.bit() & kinds != 0) {
                    return Some(id);
                }
                from += at + 1;
                continue;
            }
            from = self.walked.borrow().names.len();
            // The steps grow, because a name that is not among the first entries may be anywhere.
            self.walk(from * 2 + STEP).ok()?;
            if self.walked.borrow().names.len() == from {
                return None;
            }
        }
    }
}

/// The size of an entry that begins with these bytes.
fn entry_size(bytes: &[u8]) -> Option<usize> {
    let info = word(bytes, 4)?;
    let (_, fixed, each) = *KINDS.get((info >> 24 & 0x1f) as usize)?;
    Some((12 + fixed + each * (info & 0xffff)) as usize)
}

/// The entry at the beginning of these bytes, and its size.
#[inline]
fn parse_entry(bytes: &[u8]) -> Option<(Entry<'_>, usize)> {
    let (head, rest) = bytes.split_first_chunk::<12>()?;
    let (name, info, size_or_type) = (word(head, 0)?, word(head, 4)?, word(head, 8)?);
    let (kind, fixed, each) = *KINDS.get((info >> 24 & 0x1f) as usize)?;
    let vlen = info & 0xffff;
    let tail = rest.get(..(fixed + each * vlen) as usize)?;
    Some((Entry { kind, name, vlen, flag: info >> 31 == 1, size_or_type, tail }, 12 + tail.len()))
}

/// Writes BTF for [`Blob`]: for machines that a test describes, and for subsets of a kernel's types.
pub struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    known: BTreeMap<String, u32>,
    next_id: u32,
    first_string: u32,
}

impl Writer {
    /// Starts a file, or split BTF on top of `base`.
    pub fn new(base: Option<&Blob>) -> Self {
        let (next_id, first_string) = base.map_or((1, 0), |b| (b.next_id(), b.next_string()));
        let strings = if base.is_none() { vec![0] } else { Vec::new() };
        Self { types: Vec::new(), strings, known: BTreeMap::new(), next_id, first_string }
    }

    /// The offset of a string, which is stored once.
    pub fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(known) = self.known.get(text) {
            return *known;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend(text.bytes().filter(|b| *b != 0).chain([0]));
        self.known.insert(text.to_owned(), at);
        at
    }

    /// Adds an entry and returns its ID. `flag` is `kind_flag`, `tail` has the words after the common part.
    pub fn add(&mut self, kind: Kind, flag: bool, name: &str, vlen: u32, size_or_type: u32, tail: &[u32]) -> u32 {
        let name = self.string(name);
        let info = u32::from(flag) << 31 | (kind as u32) << 24 | (vlen & 0xffff);
        for word in [name, info, size_or_type].iter().chain(tail) {
            self.types.extend(word.to_le_bytes());
        }
        self.next_id += 1;
        self.next_id - 1
    }

    /// The bytes of the file.
    pub fn finish(self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}

fn word(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..)?.first_chunk().copied()?))
}
