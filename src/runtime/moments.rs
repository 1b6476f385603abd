//! One moment of a map that is there twice: see `emit/moments.rs` for the programs' side.
#![allow(unsafe_code)] // bpf(2)

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::load::{MapFd, Shared};

/// How long a program that sleeps in the midst of a change is waited for. (Nothing in a change sleeps, but it may have
/// lost its CPU.)
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// Has programs write to the other map from now on; when this returns, none writes to `old` any more.
pub(super) fn switch(state: &Shared, bit: u32, old: MapFd) -> anyhow::Result<()> {
    let generation = state.generation(bit);
    state.switch(bit);
    wait_for_programs(old).context("waiting until the programs have left a map")?;
    let since = Instant::now();
    while state.changing(bit, generation) != 0 && since.elapsed() < PATIENCE {
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Returns when every program that was running has ended, those that may sleep excepted: what the kernel promises to whom
/// replaces a map within a map (`maybe_wait_bpf_programs` in kernel/bpf/syscall.c). It takes some 10 ms.
fn wait_for_programs(any: MapFd) -> io::Result<()> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        inner_map_fd: any.fd as u32,
        ..Default::default()
    };
    // SAFETY: a new map of one element, whose elements are like `any`; the key and the value are four bytes each
    let outer = unsafe { libbpf_sys::bpf_map_create(libbpf_sys::BPF_MAP_TYPE_ARRAY_OF_MAPS, ptr::null(), 4, 4, 1, &opts) };
    if outer < 0 {
        return Err(io::Error::from_raw_os_error(-outer));
    }
    // SAFETY: just made, and nobody else's
    let outer = unsafe { OwnedFd::from_raw_fd(outer) };
    let (key, value) = (0u32, any.fd);
    // SAFETY: see above
    match unsafe { libbpf_sys::bpf_map_update_elem(outer.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0) } {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}
