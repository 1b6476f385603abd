//! The file format: named sections, each with its own compression and digest.
//!
//! All numbers are little-endian.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | magic: `\x89rbts\r\n\x1a`, which a transfer as text changes |
//! | 2, 2 | version: files of other major versions are rejected; a minor version adds sections |
//! | 4 | size of the table in bytes |
//! | 16 | the version of rbt that wrote it, padded with zeros |
//! | 8 | size of the whole file in bytes |
//! | 8 | digest of all of the above and of the table |
//! | | the table; for each section: 1 byte with the length of its name, the name, 1 byte for the compression (0: none, 1: zstd), then 8 bytes each: offset in the file, stored size, unpacked size, digest of the stored bytes |
//! | | the sections |
//!
//! The reader does not trust the file: it checks sizes before it allocates memory, and limits the unpacked size of a section by
//! its packed size.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use crate::failure::reason;
use crate::input;
use crate::system::Missing;
use crate::system::cache::digest;

const MAGIC: &[u8; 8] = b"\x89rbts\r\n\x1a";
/// Major and minor.
pub const VERSION: (u16, u16) = (1, 1);
const HEAD: usize = 48;
const WRITER: usize = 16;
/// Limit for the size of a file; a distribution's kernel with all modules needs a twentieth of it.
pub const MAX_FILE: u64 = 256 << 20;
/// Limit for the unpacked size of a section.
pub const MAX_SECTION: u64 = 256 << 20;
/// Limit for the unpacked size of all sections.
const MAX_ALL: u64 = 1 << 30;
/// Limit for the size of the table: 100,000 sections with short names.
const MAX_TABLE: usize = 6 << 20;
/// Limit for the compression ratio, and the unpacked size that is always accepted.
const MAX_RATIO: u64 = 100;
const SLACK: u64 = 1 << 20;
/// Measured for a kernel's types (5.5 MB): level 9 takes 0.7 s for 1.6 MB, level 19 takes 8 s for 1.4 MB. Small sections use
/// the highest level.
const LEVEL: i32 = 9;
const LEVEL_OF_SMALL: i32 = 19;
const MIN_SIZE_FOR_LEVEL: usize = 256 << 10;

const STORED: u8 = 0;
const ZSTD: u8 = 1;

struct Section {
    name: String,
    encoding: u8,
    from: usize,
    to: usize,
    raw_size: usize,
}

/// A valid file.
pub struct Sections {
    bytes: Vec<u8>,
    table: Vec<Section>,
    /// Indices in the table by name.
    index: BTreeMap<String, usize>,
    /// The version of rbt that wrote it.
    pub writer: String,
}

impl Sections {
    /// Reads a file and checks its digests. Sections are unpacked later.
    pub fn open(path: &Path) -> Result<Self, Missing> {
        let shown = path.display();
        let read = input::read(path, MAX_FILE);
        let bytes = read.map_err(|e| Missing {
            what: format!("cannot read the snapshot {shown}: {}", reason(&e)),
            help: Some("`rbt snapshot -o FILE` makes one, on the machine with that kernel".into()),
        })?;
        Self::of(bytes).map_err(|wrong| wrong.of(path))
    }

    /// Creates sections that are not from a file.
    pub fn unpacked(sections: Vec<(String, Vec<u8>)>) -> Self {
        let (mut bytes, mut table) = (Vec::new(), Vec::new());
        for (name, raw) in sections {
            let from = bytes.len();
            bytes.extend(&raw);
            table.push(Section { name, encoding: STORED, from, to: bytes.len(), raw_size: raw.len() });
        }
        let index = table.iter().enumerate().map(|(i, s)| (s.name.clone(), i)).collect();
        Self { bytes, table, index, writer: env!("CARGO_PKG_VERSION").into() }
    }

    fn of(bytes: Vec<u8>) -> Result<Self, SnapshotError> {
        let length = bytes.len() as u64;
        if !bytes.starts_with(MAGIC) {
            // The file is truncated within the magic number.
            let begun = !bytes.is_empty() && MAGIC.starts_with(&bytes);
            return Err(if begun { SnapshotError::Cut { is: length, was: None } } else { SnapshotError::Other });
        }
        let short = |offset: usize| bytes.get(offset..).and_then(|b| b.first_chunk::<2>()).map(|b| u16::from_le_bytes(*b));
        let (Some(major), Some(minor)) = (short(8), short(10)) else { return Err(SnapshotError::Cut { is: length, was: None }) };
        let Some(head) = bytes.get(..HEAD) else { return Err(SnapshotError::Cut { is: length, was: None }) };
        let mut head = Fields(head.get(12..).unwrap_or_default());
        let (Some(table), Some(writer), Some(was), Some(sum)) = (head.u32(), head.bytes(WRITER), head.u64(), head.u64()) else {
            return Err(SnapshotError::Cut { is: length, was: None });
        };
        let writer = String::from_utf8_lossy(writer).trim_end_matches('\0').to_owned();
        if major > VERSION.0 {
            return Err(SnapshotError::Newer { has: (major, minor), writer });
        }
        if length < was {
            return Err(SnapshotError::Cut { is: length, was: Some(was) });
        }
        let end = HEAD.checked_add(table as usize).filter(|_| table as usize <= MAX_TABLE);
        let table = end.and_then(|end| bytes.get(HEAD..end)).ok_or(SnapshotError::Damaged(String::new()))?;
        let of_head = digest(bytes.get(..HEAD - 8).unwrap_or_default());
        if length > was || major == 0 || of_head ^ digest(table).rotate_left(1) != sum {
            return Err(SnapshotError::Damaged(String::new()));
        }
        let table = read_table(table, &bytes)?;
        let index: BTreeMap<String, usize> = table.iter().enumerate().map(|(i, s)| (s.name.clone(), i)).collect();
        if index.len() != table.len() {
            return Err(SnapshotError::Damaged(String::new()));
        }
        Ok(Self { bytes, table, index, writer })
    }

    /// Names in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|s| s.name.as_str())
    }

    /// Packed and unpacked size of a section.
    pub fn sizes(&self, name: &str) -> Option<(usize, usize)> {
        let section = self.find(name)?;
        Some((section.to - section.from, section.raw_size))
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    fn find(&self, name: &str) -> Option<&Section> {
        self.table.get(*self.index.get(name)?)
    }

    /// Unpacks a section; `None` if it does not exist. Errors name the section.
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let Some(section) = self.find(name) else { return Ok(None) };
        let stored = self.bytes.get(section.from..section.to).unwrap_or_default();
        let raw = match section.encoding {
            STORED => stored.to_vec(),
            _ => zstd::bulk::decompress(stored, section.raw_size).map_err(|e| format!("its section `{name}` cannot be unpacked: {e}"))?,
        };
        if raw.len() != section.raw_size {
            return Err(format!("its section `{name}` has {} bytes and should have {}", raw.len(), section.raw_size));
        }
        Ok(Some(raw))
    }

    /// Unpacks a section of text.
    pub fn text(&self, name: &str) -> Result<Option<String>, String> {
        let Some(raw) = self.get(name)? else { return Ok(None) };
        String::from_utf8(raw).map(Some).map_err(|_| format!("its section `{name}` is not text"))
    }
}

fn read_table(table: &[u8], bytes: &[u8]) -> Result<Vec<Section>, SnapshotError> {
    let damaged = |name: &str| SnapshotError::Damaged(name.to_owned());
    let mut fields = Fields(table);
    let mut all: Vec<Section> = Vec::new();
    let (mut stored_sum, mut raw_sum) = (0u64, 0u64);
    while !fields.0.is_empty() {
        let name = fields.u8().and_then(|n| fields.bytes(n.into())).and_then(|n| std::str::from_utf8(n).ok());
        let (Some(name), Some(how)) = (name, fields.u8()) else { return Err(damaged("")) };
        let (Some(from), Some(stored), Some(raw), Some(sum)) = (fields.u64(), fields.u64(), fields.u64(), fields.u64()) else {
            return Err(damaged(""));
        };
        // The sum of overlapping sections exceeds the size of the file.
        stored_sum = stored_sum.saturating_add(stored);
        raw_sum = raw_sum.saturating_add(raw);
        let max = stored.saturating_mul(MAX_RATIO).saturating_add(SLACK);
        if raw > MAX_SECTION || raw_sum > MAX_ALL || (how != STORED && raw > max) {
            return Err(SnapshotError::Large { name: name.to_owned(), raw });
        }
        let to = from.checked_add(stored).filter(|_| stored_sum <= bytes.len() as u64).ok_or_else(|| damaged(name))?;
        let (from, to) = (from as usize, to as usize);
        let data = bytes.get(from..to).ok_or_else(|| damaged(name))?;
        if digest(data) != sum || how > ZSTD {
            return Err(damaged(name));
        }
        all.push(Section { name: name.to_owned(), encoding: how, from, to, raw_size: raw as usize });
    }
    Ok(all)
}

const COPY_AGAIN: &str = "copy it again, or create it again: `rbt snapshot -o FILE` on the machine with that kernel";

/// Why a file is not a valid snapshot.
#[derive(Debug, PartialEq, Eq)]
enum SnapshotError {
    /// It is not a snapshot.
    Other,
    /// It is truncated: its size, and the original size.
    Cut { is: u64, was: Option<u64> },
    /// This section is damaged; the empty name stands for the table.
    Damaged(String),
    /// Its format is newer than this version of rbt.
    Newer { has: (u16, u16), writer: String },
    /// A section would be too large.
    Large { name: String, raw: u64 },
}

impl SnapshotError {
    fn of(self, path: &Path) -> Missing {
        let shown = path.display();
        let (what, help) = match self {
            SnapshotError::Other => {
                (format!("{shown} is not a snapshot"), "`rbt snapshot -o FILE` makes one, on the machine with that kernel".into())
            }
            SnapshotError::Cut { is, was: Some(was) } => {
                (format!("the snapshot {shown} is truncated: it has {is} of {was} bytes"), COPY_AGAIN.into())
            }
            SnapshotError::Cut { is, was: None } => (format!("the snapshot {shown} is truncated: it has {is} bytes"), COPY_AGAIN.into()),
            SnapshotError::Damaged(name) if name.is_empty() => {
                (format!("the snapshot {shown} is damaged: the checksum of its table is wrong"), COPY_AGAIN.into())
            }
            SnapshotError::Damaged(name) => {
                (format!("the snapshot {shown} is damaged: the checksum of its section `{name}` is wrong"), COPY_AGAIN.into())
            }
            SnapshotError::Newer { has: (major, minor), writer } => (
                format!(
                    "the snapshot {shown} has the format {major}.{minor}, and this rbt ({}) reads formats up to {}",
                    env!("CARGO_PKG_VERSION"),
                    VERSION.0
                ),
                format!("use rbt {writer}, which wrote it, or a later one; or create it again with this rbt: `rbt snapshot -o FILE`"),
            ),
            SnapshotError::Large { name, raw } => (
                format!("the snapshot {shown} is too large: its section `{name}` would have {} MB", raw >> 20),
                "no kernel needs so much: the file is damaged, or `rbt snapshot` did not write it".into(),
            ),
        };
        Missing { what, help: Some(help) }
    }
}

/// Reads numbers from the start of a slice.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes(4)?.first_chunk()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }
}

/// Writes sections in this order. `packed` receives the name of each one when it is done.
pub fn write(sections: &[(String, Vec<u8>)], to: &mut dyn Write, packed: &mut dyn FnMut(&str)) -> io::Result<()> {
    let stored: Vec<(u8, Vec<u8>)> = sections
        .iter()
        .map(|(name, raw)| {
            let done = pack(raw);
            packed(name);
            done
        })
        .collect::<io::Result<_>>()?;
    let error = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let table_bytes: usize = sections.iter().map(|(name, _)| 1 + name.len() + 1 + 4 * 8).sum();
    let mut at = (HEAD + table_bytes) as u64;
    let mut table = Vec::with_capacity(table_bytes);
    let mut all = 0u64;
    for ((name, raw), (how, bytes)) in sections.iter().zip(&stored) {
        let length = u8::try_from(name.len()).map_err(|_| error(format!("the name `{name}` is too long for a snapshot's section")))?;
        all += raw.len() as u64;
        if raw.len() as u64 > MAX_SECTION || all > MAX_ALL {
            return Err(error(format!("`{name}` makes the snapshot larger than {} MB", MAX_ALL >> 20)));
        }
        table.push(length);
        table.extend(name.as_bytes());
        table.push(*how);
        for number in [at, bytes.len() as u64, raw.len() as u64, digest(bytes)] {
            table.extend(number.to_le_bytes());
        }
        at += bytes.len() as u64;
    }
    if table.len() > MAX_TABLE || at > MAX_FILE {
        return Err(error(format!("the snapshot would have {} MB and {} sections: more than rbt could read", at >> 20, sections.len())));
    }
    let mut head = Vec::with_capacity(HEAD);
    head.extend(MAGIC);
    head.extend(VERSION.0.to_le_bytes());
    head.extend(VERSION.1.to_le_bytes());
    head.extend((table.len() as u32).to_le_bytes());
    let mut writer = env!("CARGO_PKG_VERSION").as_bytes().to_vec();
    writer.resize(WRITER, 0);
    head.extend(writer);
    head.extend(at.to_le_bytes());
    let sum = digest(&head) ^ digest(&table).rotate_left(1);
    head.extend(sum.to_le_bytes());
    to.write_all(&head)?;
    to.write_all(&table)?;
    for (_, bytes) in &stored {
        to.write_all(bytes)?;
    }
    to.flush()
}

fn pack(raw: &[u8]) -> io::Result<(u8, Vec<u8>)> {
    let packed = zstd::bulk::compress(raw, if raw.len() > MIN_SIZE_FOR_LEVEL { LEVEL } else { LEVEL_OF_SMALL })?;
    let compresses = packed.len() < raw.len() && raw.len() as u64 <= packed.len() as u64 * MAX_RATIO + SLACK;
    Ok(if compresses { (ZSTD, packed) } else { (STORED, raw.to_vec()) })
}

/// Corrects the digests of a modified file, as far as its table can be read.
#[cfg(test)]
pub fn sign(bytes: &mut [u8]) {
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let mut at = HEAD;
    while at < HEAD + length {
        let fields = at + 2 + usize::from(bytes[at]);
        let Some(number) = bytes.get(fields..fields + 24).map(Fields) else { break };
        let mut number = number;
        let (from, stored) = (number.u64().unwrap() as usize, number.u64().unwrap() as usize);
        let Some(data) = bytes.get(from..from.saturating_add(stored)) else { break };
        let sum = digest(data).to_le_bytes();
        let Some(to) = bytes.get_mut(fields + 24..fields + 32) else { break };
        to.copy_from_slice(&sum);
        at = fields + 32;
    }
    let Some(table) = bytes.get(HEAD..HEAD + length) else { return };
    let sum = digest(&bytes[..HEAD - 8]) ^ digest(table).rotate_left(1);
    bytes[HEAD - 8..HEAD].copy_from_slice(&sum.to_le_bytes());
}
