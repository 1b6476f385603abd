//! Runs programs once, without an event. One such program reports the ID of this process as BPF programs see it.
#![allow(unsafe_code)] // bpf_prog_load()

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// The ID of this process in the initial PID namespace, or 0 if it is unknown.
pub(super) fn own_id() -> u64 {
    // bpf_get_current_pid_tgid(); r0 >>= 32; exit
    const GET: [u64; 3] = [0x0000_000e_0000_0085, 0x0000_0020_0000_0077, 0x0000_0000_0000_0095];
    // SAFETY: the instructions and the license outlive the call, and have the given size
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
            c"rbt_own_id".as_ptr(),
            c"GPL".as_ptr(),
            GET.as_ptr().cast(),
            GET.len() as u64,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return 0;
    }
    // SAFETY: just created, and not owned elsewhere
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    run_once(fd.as_raw_fd(), 0).map_or(0, u64::from)
}

/// Runs a raw tracepoint program once (BPF_PROG_TEST_RUN; Linux 5.10), and returns its result. `first` is its first argument.
pub(super) fn run_once(program: RawFd, first: u64) -> std::io::Result<u32> {
    // The context: as many arguments as a raw tracepoint can have, the others zero.
    let mut args = [0u64; 12];
    args[0] = first;
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        ctx_in: ptr::from_ref(&args).cast(),
        ctx_size_in: size_of_val(&args) as u32,
        ..Default::default()
    };
    // SAFETY: the options and the context outlive the call
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &mut opts) } {
        0 => Ok(opts.retval),
        error => Err(std::io::Error::from_raw_os_error(-error)),
    }
}
