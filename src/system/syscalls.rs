//! System calls that `rustix` does not have.
#![allow(unsafe_code)] // system calls

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_sys::perf_event_attr;

/// `PERF_FLAG_FD_CLOEXEC` of include/uapi/linux/perf_event.h.
const FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// Attributes of an event: `type` and `config`, see perf_event_open(2). The kernel accepts fewer bytes than this version of the
/// structure has, and more if the rest is zero.
pub fn event(ty: u32, config: u64) -> perf_event_attr {
    perf_event_attr { type_: ty, size: size_of::<perf_event_attr>() as u32, config, ..Default::default() }
}

/// perf_event_open(2) for a thread (-1: all) on a CPU (-1: all), without a group.
///
/// # Errors
/// Those of the kernel.
pub fn perf_event_open(attr: &perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    assert!(attr.size as usize <= size_of::<perf_event_attr>(), "attributes of an event declare more than they have");
    // SAFETY: the kernel reads the declared size, and a string that the attributes of a uprobe or kprobe point to. A
    // new descriptor is not owned elsewhere.
    unsafe {
        let fd = libc::syscall(libc::SYS_perf_event_open, attr, pid, cpu, -1, FD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd as i32)) }
    }
}

/// bpf(2). The result is that of the kernel: a descriptor for some commands.
///
/// # Safety
/// `attr` begins like `union bpf_attr` for this command, and the memory that it points to has the size that it
/// declares.
///
/// # Errors
/// Those of the kernel.
pub unsafe fn bpf<T>(command: u32, attr: &mut T) -> io::Result<i32> {
    // SAFETY: guaranteed by the caller
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
