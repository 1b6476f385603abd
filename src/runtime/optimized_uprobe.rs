//! Optimized uprobes. Linux 6.18 on x86_64 replaces a uprobe's trap by a call if the probed instruction is a five-byte nop. New
//! versions of `sys/sdt.h` therefore put such a nop behind the one-byte nop that the note of a marker names: a tracer attaches to
//! the second on kernels that optimize it, and to the first on others, where emulating the longer one would gain nothing.
#![allow(unsafe_code)] // uprobe(2)

use std::sync::OnceLock;

use crate::probes::{Attach, FileLocation};
use crate::settings::{Mechanism, Settings};
use crate::system::machine::arch::HERE;

/// Where a probe in a file is attached: for a marker that supports it, at the instruction that the kernel turns into a
/// call.
pub(super) fn attach_location<'a>(attach: &'a Attach, settings: &Settings) -> Option<FileLocation<'a>> {
    let place = attach.file_location()?;
    Some(FileLocation { offset: place.offset + distance(attach, settings), ..place })
}

/// Is a marker attached where the kernel optimizes its uprobe?
pub(super) fn applies_to(attach: &Attach, settings: &Settings) -> bool {
    distance(attach, settings) != 0
}

/// Bytes from the probed instruction to the one that becomes a call; 0 if there is none.
fn distance(attach: &Attach, settings: &Settings) -> u64 {
    let Attach::Usdt { optimized, .. } = attach else { return 0 };
    let serves = *optimized != 0 && !settings.refuses(Mechanism::OptimizedUprobe) && kernel_optimizes();
    if serves { *optimized } else { 0 }
}

fn kernel_optimizes() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Some(row) = &HERE.optimized_uprobe else { return false };
        // SAFETY: takes no arguments, and does nothing outside of the kernel's own code
        let result = unsafe { libc::syscall(row.call) };
        result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO)
    })
}
