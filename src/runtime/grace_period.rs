//! Waits for programs that are running on other CPUs.
#![allow(unsafe_code)] // bpf(2)

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use super::shared::Shared;

/// How long to wait for sleepable programs.
const TIMEOUT: Duration = Duration::from_millis(100);
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Stops the programs. When this returns, none is running except for those that sleep for long.
pub(super) fn stop(state: &Shared) -> io::Result<()> {
    state.stop();
    let waited = wait_for_programs();
    let since = Instant::now();
    while state.sleepers() != 0 && since.elapsed() < TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
    waited
}

/// Returns when every running program has ended, except for sleepable ones. The kernel guarantees this when a map within a
/// map is replaced (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c). It takes an RCU grace period, some 7 ms.
pub(super) fn wait_for_programs() -> io::Result<()> {
    let inner = map(libbpf_sys::BPF_MAP_TYPE_ARRAY, 0)?;
    let outer = map(libbpf_sys::BPF_MAP_TYPE_ARRAY_OF_MAPS, inner.as_raw_fd() as u32)?;
    let (key, value) = (0u32, inner.as_raw_fd());
    // SAFETY: the key and the value are four bytes each, as in the map's definition
    match unsafe { libbpf_sys::bpf_map_update_elem(outer.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0) } {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}

/// A map of one element of four bytes; for a map of maps, like `inner`.
fn map(ty: u32, inner: u32) -> io::Result<OwnedFd> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        inner_map_fd: inner,
        ..Default::default()
    };
    // SAFETY: only creates a map
    let fd = unsafe { libbpf_sys::bpf_map_create(ty, ptr::null(), 4, 4, 1, &opts) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: just created, and not owned elsewhere
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
