//! Waits for file descriptors.
#![allow(unsafe_code)] // poll(2)

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The longest wait: what nobody announces is looked at so often.
pub(super) const NAP: Duration = Duration::from_millis(100);

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

/// A descriptor that [`tell`] makes readable: eventfd(2).
/// A descriptor by which a thread is told something.
pub(super) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor, nobody else's
    unsafe {
        let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Makes it readable.
pub(super) fn tell(fd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight bytes of ours; it fails only where it has been told 2^64 - 2 times
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}

pub(super) fn clear(fd: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes of ours, as an eventfd gives
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}
