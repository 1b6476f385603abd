//! Waiting for descriptors.
#![allow(unsafe_code)] // poll(2)

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Waits until one of these can be read (negative ones never can), at most so long.
pub(super) fn wait(fds: &[RawFd], longest: Duration) {
    let mut polled: Vec<libc::pollfd> = fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the array outlives the call. Errors (EINTR) are as good as an event: the caller looks for itself.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, longest.as_millis() as libc::c_int) };
}

/// Has this pidfd's process ended?
pub(super) fn ended(pidfd: &OwnedFd) -> bool {
    readable(pidfd)
}

/// Is there something to read now?
pub(super) fn readable(fd: &OwnedFd) -> bool {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: as above
    unsafe { libc::poll(&mut polled, 1, 0) > 0 }
}
