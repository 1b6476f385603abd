//! An ELF file in memory, and its segments.
//!
//! Unsafe: the file is mapped instead of read, so that a large binary costs only the pages that are used. If another process
//! truncates the file meanwhile, the kernel sends SIGBUS at an access to what is missing. A handler puts zeros there, and the readers
//! report damaged data as for any other file.
#![allow(unsafe_code)] // see above

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    static HANDLED: Once = Once::new();
    HANDLED.call_once(fill_what_is_missing);
    // SAFETY: see the module's note.
    unsafe { memmap2::Mmap::map(file) }
}

static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);

/// From now on, pages of mapped files that are missing have zeros.
fn fill_what_is_missing() {
    // SAFETY: the action is local and complete, and its handler only makes system calls
    unsafe {
        PAGE_SIZE.store(usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096), Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = fill_page as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// Puts zeros where a page of a file is missing. Any other cause ends rbt, as without the handler.
extern "C" fn fill_page(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let size = PAGE_SIZE.load(Ordering::Relaxed);
    // SAFETY: the kernel passes the information, and no page was there that could be lost
    unsafe {
        let page = (*info).si_addr() as usize / size * size;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let is_missing = (*info).si_code == libc::BUS_ADRERR;
        if !is_missing || libc::mmap(page as *mut libc::c_void, size, libc::PROT_READ, flags, -1, 0) == libc::MAP_FAILED {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
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

/// The bytes of a file at these addresses, as far as it has them.
pub(in crate::system) fn bytes_of<'d>(data: &'d [u8], segments: &[Segment], range: &Range<u64>) -> &'d [u8] {
    let start = offset(segments, range.start).and_then(|at| usize::try_from(at).ok());
    let end = start.and_then(|start| start.checked_add(usize::try_from(range.end.checked_sub(range.start)?).ok()?));
    start.zip(end).and_then(|(start, end)| data.get(start..end.min(data.len()))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_has_zeros() {
        let path = std::env::temp_dir().join(format!("rbt-cut-{}", std::process::id()));
        std::fs::write(&path, vec![7u8; 3 << 16]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let data = map_file(&file).unwrap();
        assert_eq!(data.last(), Some(&7));
        file.set_len(100).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((data[0], data[1 << 16], data.last()), (7, 0, Some(&0)));
    }
}
