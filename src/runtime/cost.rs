//! The cost of programs, as the kernel measures it (`BPF_ENABLE_STATS`, Linux 5.8).
#![allow(unsafe_code)] // bpf(2)

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::input;

/// The setting by which the administrator turns the statistics on.
const ALWAYS_ENABLED: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// While this exists, the kernel times every BPF program (some 20 ns per run).
#[derive(Debug)]
pub struct Statistics {
    /// None if the administrator has turned them on.
    _enabled: Option<OwnedFd>,
}

/// Turns the statistics on. That requires CAP_SYS_ADMIN.
pub fn measure() -> io::Result<Statistics> {
    // SAFETY: a plain call; a descriptor that is returned is new
    match unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) } {
        fd if fd >= 0 => Ok(Statistics { _enabled: Some(unsafe { OwnedFd::from_raw_fd(fd) }) }),
        _ if input::line(ALWAYS_ENABLED).is_some_and(|line| line.trim() != "0") => Ok(Statistics { _enabled: None }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The bytes that the kernel has allocated for a map (`memlock` in `/proc/PID/fdinfo`; before Linux 6.4 an estimate).
pub fn memory(map: RawFd) -> Option<u64> {
    map_of(&map.to_string()).map(|(_, bytes)| bytes)
}

/// The sum over all maps of this process.
pub fn memory_of_all_maps() -> u64 {
    let fds = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().filter_map(Result::ok);
    let maps: BTreeMap<u64, u64> = fds.filter_map(|fd| map_of(fd.file_name().to_str()?)).collect();
    maps.values().sum()
}

/// The ID of a map and its bytes; none if the descriptor does not belong to a map.
fn map_of(fd: &str) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((value("map_id:")?, value("memlock:")?))
}

/// The measured cost of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Total nanoseconds.
    pub ns: u64,
    /// Total runs.
    pub runs: u64,
}

/// Reads a program's counters (`struct bpf_prog_info` of include/uapi/linux/bpf.h).
pub fn of(program: BorrowedFd) -> io::Result<Cost> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: writes to our own struct, of the given size
    match unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut size) } {
        0 => Ok(Cost { ns: info.run_time_ns, runs: info.run_cnt }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}
