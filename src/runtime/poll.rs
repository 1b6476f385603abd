//! Waits for file descriptors.
#![allow(unsafe_code)] // descriptors by their numbers, which may be none

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};

/// The longest wait for what sends no notification, which is checked at this interval.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(100);
/// The wait for what sends a notification: without end. A machine that is idle should stay so.
pub(super) const UNBOUNDED: Duration = Duration::MAX;

/// The highest priority of a thread: a niceness, see setpriority(2).
pub(super) const FIRST: i32 = -20;

/// Waits until one of these descriptors is readable (negative ones never are), or until the timeout.
pub(super) fn wait(fds: &[RawFd], longest: Duration) {
    let mut polled: Vec<libc::pollfd> = fds.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    // what exceeds the argument is more than three weeks
    let milliseconds = libc::c_int::try_from(longest.as_millis()).unwrap_or(-1);
    // SAFETY: the array outlives the call. An error (EINTR) is treated as an event: the caller checks for itself.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
}

/// Waits until the first one is ready to write, or the second one to read, if it is not negative.
pub(super) fn wait_writable(to: impl AsFd, from: RawFd, longest: Duration) {
    let polled = |fd, events| libc::pollfd { fd, events, revents: 0 };
    let mut polled = [polled(to.as_fd().as_raw_fd(), libc::POLLOUT), polled(from, libc::POLLIN)];
    // SAFETY: as above
    unsafe { libc::poll(polled.as_mut_ptr(), 2, libc::c_int::try_from(longest.as_millis()).unwrap_or(-1)) };
}

/// Has this pidfd's process ended?
pub(super) fn ended(pidfd: &OwnedFd) -> bool {
    readable(pidfd)
}

/// Is there something to read now?
pub(super) fn readable(fd: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// The same for a descriptor by its number; false for a negative one.
pub(super) fn fd_is_readable(fd: RawFd) -> bool {
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: the struct outlives the call
    unsafe { libc::poll(&mut polled, 1, 0) > 0 }
}

/// Can it be written now without waiting?
pub(super) fn writable(fd: impl AsFd) -> bool {
    poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// A descriptor that [`wake`] makes readable: eventfd(2).
pub(super) fn eventfd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Makes it readable.
pub(super) fn wake(fd: &OwnedFd) {
    // fails only after 2^64 - 2 calls
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Makes it wait again.
pub(super) fn clear(fd: &OwnedFd) {
    let _ = rustix::io::read(fd, &mut [0; 8]);
}
