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
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(m) => m,
            Bytes::Read(v) => v,
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

const STRIDE: usize = 16;
/// Number of entries to scan at a time.
const STEP: usize = 4096;

impl Blob {
    /// Opens a file below `/sys/kernel/btf`. It is mapped if the kernel supports this (6.16 and later; 26 µs instead of 3–6
    /// ms).
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
            None => Bytes::Read(input::read_from(file, input::TYPES).map_err(|e| format!("{shown}: {}", reason(&e)))?),
        };
        let blob = Self::parse(bytes, base).map_err(|e| format!("{shown}: {e}"))?;
        // The kernel has validated its own file.
        if !path.starts_with("/sys") {
            blob.walk(usize::MAX).map_err(|e| format!("{shown}: {e}"))?;
        }
        Ok(blob)
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
        let magic = bytes.get(..4).ok_or(CUT)?;
        if magic.starts_with(&[0xeb, 0x9f]) {
            return Err("BTF is for a big-endian machine".into());
        }
        if !magic.starts_with(&[0x9f, 0xeb]) {
            return Err("not BTF (no magic number 0xeb9f)".into());
        }
        // struct btf_header: hdr_len, type_off, type_len, str_off, str_len.
        let head = |n: usize| word(&bytes, 4 + n * 4).ok_or(CUT);
        let section = |off: u32, len: u32| {
            let from = head(0)?.checked_add(off).ok_or(CUT)? as usize;
            let to = from.checked_add(len as usize).ok_or(CUT)?;
            if to <= bytes.len() { Ok(from..to) } else { Err(CUT) }
        };
        let types = section(head(1)?, head(2)?)?;
        let strings = section(head(3)?, head(4)?)?;
        if !bytes.get(strings.clone()).is_some_and(|s| s.last() == Some(&0) || (s.is_empty() && base.is_some())) {
            return Err("BTF's strings do not end".into());
        }
        let (first_id, first_string) = base.map_or((1, 0), |b| (b.next_id(), b.next_string()));

        if u32::try_from(bytes.len()).is_err() {
            return Err("BTF is over 4 GB".into());
        }
        let walked = RefCell::new(ScannedTypes { at: types.start, ..ScannedTypes::default() });
        Ok(Blob { bytes, strings, first_id, first_string, types, walked })
    }

    /// Scans until at least this many entries are known, or all. If the data are invalid, entries after the error are unknown.
    fn walk(&self, wanted: usize) -> Result<(), String> {
        const CUT: &str = "BTF is truncated";
        let mut walked = self.walked.borrow_mut();
        let ScannedTypes { starts, names, at } = &mut *walked;
        let entries = self.bytes.get(..self.types.end).ok_or(CUT)?;
        if names.len() >= wanted || *at >= self.types.end {
            return Ok(());
        }
        // An entry has at least 12 bytes; in kernels about 25.
        let max = ((self.types.end - *at) / 24).min(wanted - names.len());
        names.reserve(max);
        starts.reserve(max / STRIDE);
        // Local variables, and one check for both words: this loop takes most of the time of a scan.
        let mut here = std::mem::replace(at, self.types.end);
        while here < self.types.end && names.len() < wanted {
            let Some(head) = entries.get(here..).and_then(|rest| rest.first_chunk::<8>()) else { return Err(CUT.into()) };
            let head = u64::from_le_bytes(*head);
            let (name, info) = (head as u32, (head >> 32) as u32);
            let Some((_, fixed, each)) = KINDS.get((info >> 24 & 0x1f) as usize) else {
                return Err(format!("BTF has an unknown kind of type: {}", info >> 24 & 0x1f));
            };
            if names.len() % STRIDE == 0 {
                starts.push(here as u32);
            }
            names.push(name);
            here += (12 + fixed + each * (info & 0xffff)) as usize;
        }
        if here > self.types.end {
            return Err(CUT.into());
        }
        *at = here;
        Ok(())
    }

    /// The file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
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

    /// All entries of this file with their IDs; faster than one by one.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Entry<'_>)> {
        let mut at = self.types.start;
        let each = std::iter::from_fn(move || {
            let (entry, next) = self.read(at)?;
            at = next;
            Some(entry)
        });
        (self.first_id..u32::MAX).zip(each)
    }

    /// The entry at this offset, and the offset of the next one.
    #[inline]
    fn read(&self, offset: usize) -> Option<(Entry<'_>, usize)> {
        let rest = self.bytes.get(offset..self.types.end)?;
        let (head, rest) = rest.split_first_chunk::<12>()?;
        let (name, info, size_or_type) = (word(head, 0)?, word(head, 4)?, word(head, 8)?);
        let (kind, fixed, each) = *KINDS.get((info >> 24 & 0x1f) as usize)?;
        let vlen = info & 0xffff;
        let tail = rest.get(..(fixed + each * vlen) as usize)?;
        Some((Entry { kind, name, vlen, flag: info >> 31 == 1, size_or_type, tail }, offset + 12 + tail.len()))
    }

    /// A string of this file, if it is valid UTF-8.
    pub fn string(&self, offset: u32) -> Option<&str> {
        let table = self.bytes.get(self.strings.clone())?;
        let rest = table.get(offset.checked_sub(self.first_string)? as usize..)?;
        let end = memchr::memchr(0, rest)?;
        std::str::from_utf8(rest.get(..end)?).ok()
    }

    /// Are all of its strings valid UTF-8?
    pub fn has_only_text(&self) -> bool {
        self.bytes.get(self.strings.clone()).is_some_and(|strings| std::str::from_utf8(strings).is_ok())
    }

    /// Offsets of a string in this file: at most one, because producers write each string once (libbpf's and LLVM's string
    /// tables do not merge suffixes either), but possibly more in unusual data.
    pub fn find_string(&self, text: &str) -> Vec<u32> {
        let Some(table) = self.bytes.get(self.strings.clone()) else { return Vec::new() };
        if text.is_empty() || text.contains('\0') {
            return Vec::new();
        }
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
