//! What perf_event_open(2) allows on this machine.
#![allow(unsafe_code)] // perf_event_open(2)

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::input::line;

/// `PERF_FLAG_FD_CLOEXEC` of include/uapi/linux/perf_event.h.
const FD_CLOEXEC: libc::c_ulong = 1 << 3;
/// `PERF_ATTR_SIZE_VER0`: the size of the attributes that every kernel knows, in 64-bit words.
const WORDS: usize = 8;

/// Does the machine support this event (`type` and `config` of the system call)? `None` if the kernel does not say.
pub fn counts(ty: u32, config: u64) -> Option<bool> {
    let mut attr = [0u64; WORDS];
    attr[0] = u64::from(ty) | (size_of_val(&attr) as u64) << 32;
    attr[1] = config;
    // SAFETY: `attr` has the size that it declares.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, FD_CLOEXEC) };
    if fd >= 0 {
        // SAFETY: a new descriptor, which nothing else owns.
        drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        return Some(true);
    }
    // Without such a counter, the kernel reports that the event does not exist.
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => Some(false),
        _ => None,
    }
}

/// Maximum rate of samples per second, which the kernel lowers if they take too long.
pub fn most_samples() -> Option<u64> {
    line("/proc/sys/kernel/perf_event_max_sample_rate")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_counts_page_faults_and_no_unknown_event() {
        const SOFTWARE: u32 = 1;
        const PAGE_FAULTS: u64 = 2;
        match counts(SOFTWARE, PAGE_FAULTS) {
            Some(counted) => assert!(counted),
            None => return eprintln!("skipped: needs perf_event_open"),
        }
        assert_eq!(counts(SOFTWARE, 1 << 20), Some(false));
        assert!(most_samples().is_some_and(|n| n > 0));
    }
}
