//! What libbpf knows about the kernel's features.
//!
//! libbpf tests about 20 features before it loads an object, each with one or two system calls. The linker passes its queries on
//! to this module (`build.rs`), which answers them from what earlier runs have found, where it can.
#![allow(unsafe_code)] // functions that libbpf calls

use std::ffi::{c_int, c_void};

use crate::system::Feature;
use crate::system::kernel::known_features;

/// Features of libbpf's list that every kernel with the instructions of BPF CPU version 4 (Linux 6.6) has, whatever its
/// configuration: names of programs, global data, BTF and its kinds up to `ENUM64` (6.0), arrays that can be mapped,
/// `expected_attach_type`, `bpf_probe_read_kernel`, `BPF_PROG_BIND_MAP`, and memory accounted to cgroups.
const WITH_CPU_V4: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14, 15, 17];

// libbpf's own function. A program that is linked without the linker's option does not have it, and does not call the one below.
#[cfg(target_os = "linux")]
std::arch::global_asm!(".weak __real_feat_supported");

unsafe extern "C" {
    fn __real_feat_supported(cache: *mut c_void, feature: c_int) -> bool;
}

/// Replaces libbpf's function that tests a feature, with its number in libbpf's list. A cache other than libbpf's global one
/// belongs to an object with a token, which has its own privileges.
#[unsafe(no_mangle)]
extern "C" fn __wrap_feat_supported(cache: *mut c_void, feature: c_int) -> bool {
    let number = u32::try_from(feature).ok().filter(|_| cache.is_null());
    if number.is_some_and(|number| known_features::libbpf_knows(number) || is_implied(number)) {
        return true;
    }
    // SAFETY: these are the arguments of libbpf's call
    let supported = unsafe { __real_feat_supported(cache, feature) };
    if let Some(number) = number.filter(|_| supported) {
        known_features::learn_of_libbpf(number);
    }
    supported
}

/// Does it follow from what rbt itself has found? Compiling a script begins with the question for these instructions.
fn is_implied(number: u32) -> bool {
    WITH_CPU_V4.contains(&number) && known_features::get(Feature::CpuV4) == Some(true)
}
