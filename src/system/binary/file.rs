//! An ELF file in memory, and its segments.
//!
//! Unsafe: the file is mapped instead of read, so that a large binary costs only the pages that are used. If another process
//! truncates the file meanwhile, SIGBUS ends rbt; package managers replace binaries by renaming, not in place.
#![allow(unsafe_code)] // see above

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::failure::reason;
use crate::input;
use crate::system::Missing;

/// The error for a file that is not ELF, which names the format if its first bytes show it.
pub(in crate::system) fn not_elf(path: &Path) -> Missing {
    let mut start = Vec::new();
    let _ = input::open_regular(path).and_then(|(file, _)| file.take(256).read_to_end(&mut start));
    let text = String::from_utf8_lossy(&start);
    let help = match text.strip_prefix("#!").map(|rest| rest.lines().next().unwrap_or_default().trim()) {
        Some(interpreter) if !interpreter.is_empty() => format!("it is a script: probe its interpreter, {interpreter}"),
        _ if text.contains("GNU ld script") => "it is a linker's script: name the library itself, such as libc.so.6".into(),
        _ => "name a program or a shared library".into(),
    };
    Missing { what: format!("{} is not an ELF file", path.display()), help: Some(help) }
}

/// Maps a file.
pub(in crate::system) fn map(path: &Path) -> Result<memmap2::Mmap, Missing> {
    map_with_metadata(path).map(|(data, _)| data)
}

/// Maps a file, and reads its metadata.
pub(in crate::system) fn map_with_metadata(path: &Path) -> Result<(memmap2::Mmap, Metadata), Missing> {
    let cannot = |why: io::Error| {
        let denied = why.kind() == io::ErrorKind::PermissionDenied;
        let help = if denied { "run as root, or check its permissions" } else { "check the path" };
        Missing { what: format!("cannot open {}: {}", path.display(), reason(&why)), help: Some(help.into()) }
    };
    let (file, meta) = match input::open_regular(path) {
        // A device may fail in any way when it is mapped.
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => return Err(not_elf(path)),
        opened => opened.map_err(cannot)?,
    };
    // An empty file cannot be mapped (EINVAL).
    if meta.len() == 0 {
        return Err(not_elf(path));
    }
    map_file(&file).map(|data| (data, meta)).map_err(cannot)
}

/// Maps an open file.
pub(in crate::system) fn map_file(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: see the module's note.
    unsafe { memmap2::Mmap::map(file) }
}

/// A loadable segment (`PT_LOAD` in elf(5)), in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Virtual address.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Size in the file.
    pub size: u64,
    /// `PF_X`
    pub executable: bool,
}

impl Segment {
    fn holds_offset(&self, offset: u64) -> bool {
        offset.checked_sub(self.offset).is_some_and(|by| by < self.size)
    }

    /// Is this virtual address in the part that the file has?
    pub fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|by| by < self.size)
    }
}

/// File offset to virtual address, within executable segments.
pub fn address(segments: &[Segment], offset: u64) -> Option<u64> {
    segments.iter().find(|s| s.executable && s.holds_offset(offset)).map(|s| s.address + (offset - s.offset))
}

/// Virtual address to file offset.
pub fn offset(segments: &[Segment], address: u64) -> Option<u64> {
    segments.iter().find(|s| s.holds(address)).map(|s| s.offset + (address - s.address))
}
