//! The number of processors for which the kernel has values in per-CPU maps.
#![allow(unsafe_code)] // bpf(2)

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::system::machine::rights;
use crate::system::syscalls;

/// Twice the number that kernels support (`NR_CPUS`).
const MAX: usize = 16384;

/// `union bpf_attr` for BPF_MAP_CREATE, up to `max_entries`.
#[repr(C)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// The same for BPF_MAP_LOOKUP_ELEM.
#[repr(C)]
struct Lookup {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Counts the values that the kernel returns for an element of a new map, which are zeros. `/sys` has the number, too, but it may not
/// be mounted.
///
/// # Errors
/// Those of the kernel; there are more than it supports today.
pub fn possible() -> io::Result<usize> {
    const MAP_CREATE: u32 = 0;
    const MAP_LOOKUP_ELEM: u32 = 1;
    const PERCPU_ARRAY: u32 = 6;
    rights::lock_memory_without_limit();
    let mut create = Create { map_type: PERCPU_ARRAY, key_size: 4, value_size: 8, max_entries: 1 };
    // SAFETY: the struct begins as the kernel's union for this command does; a returned descriptor is new
    let map = unsafe { OwnedFd::from_raw_fd(syscalls::bpf(MAP_CREATE, &mut create)?) };
    let (key, mut values) = (0u32, vec![u64::MAX; MAX]);
    let (key_address, value) = (&raw const key as u64, values.as_mut_ptr() as u64);
    let mut lookup = Lookup { map: map.as_raw_fd() as u32, pad: 0, key: key_address, value, flags: 0 };
    // SAFETY: the same; the kernel writes eight bytes for each processor, and supports fewer than there is room for
    unsafe { syscalls::bpf(MAP_LOOKUP_ELEM, &mut lookup)? };
    match values.iter().take_while(|value| **value == 0).count() {
        0 | MAX => Err(io::ErrorKind::Unsupported.into()),
        n => Ok(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_sys() {
        let (Ok(text), Ok(count)) = (std::fs::read_to_string("/sys/devices/system/cpu/possible"), possible()) else { return };
        let last: usize = text.trim().rsplit(['-', ',']).next().unwrap().parse().unwrap();
        assert!(count >= 1 && count <= last + 1, "{count} {text}");
        assert!(text.contains(',') || count == last + 1, "{count} {text}");
    }
}
