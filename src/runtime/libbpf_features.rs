//! What libbpf knows about the kernel's features.
//!
//! libbpf tests about 20 features before it loads an object, each with one or two system calls. The linker passes its queries on
//! to this module (`build.rs`), which answers them from what earlier runs have found, where it can.
#![allow(unsafe_code)] // functions that libbpf calls

use std::ffi::{c_int, c_void};

use crate::system::kernel::known_features;

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
    if number.is_some_and(known_features::libbpf_knows) {
        return true;
    }
    // SAFETY: these are the arguments of libbpf's call
    let supported = unsafe { __real_feat_supported(cache, feature) };
    if let Some(number) = number.filter(|_| supported) {
        known_features::learn_of_libbpf(number);
    }
    supported
}
