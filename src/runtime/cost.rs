//! The cost of programs, as the kernel measures it (`BPF_ENABLE_STATS`, Linux 5.8).
#![allow(unsafe_code)] // bpf(2)

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// While this is open the kernel times every BPF program (some 20 ns per run).
pub fn measure() -> io::Result<OwnedFd> {
    // SAFETY: a plain call; a descriptor that is returned is new
    match unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) } {
        fd if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// What a program has cost while it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds in all.
    pub ns: u64,
    /// Runs in all.
    pub runs: u64,
}

/// Reads a program's counters (`struct bpf_prog_info` of include/uapi/linux/bpf.h).
pub fn of(program: BorrowedFd) -> io::Result<Cost> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: writes to a struct of ours, of the size that it is told
    match unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) } {
        0 => Ok(Cost { ns: info.run_time_ns, runs: info.run_cnt }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
