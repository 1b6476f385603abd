//! Detaching that nobody waits for.
//!
//! The kernel takes 40-85 ms to detach from a tracepoint by way of perf, about 100 ms for a perf uprobe and 24 ms for a
//! uprobe.multi link, one after the other, and makes whoever closes the last descriptor wait, at exit too. So a forked
//! child, the sweeper, inherits the descriptors: our own close is then not the last one and takes no time, and the
//! sweeper closes its copies and exits. It has nothing else open, so that nobody who waits for the end of a pipe waits
//! for it. The programs that are attached for that moment longer have been told that the run is over (`State::stopped`)
//! and return at once; a run that cannot fork waits for its own close, as it would have.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Closes these, in a process of its own.
pub(super) fn sweep(fds: Vec<OwnedFd>) {
    if fds.is_empty() {
        return;
    }
    // Made before the fork: the child may allocate nothing (signal-safety(7)).
    let mut keep: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    keep.sort_unstable();
    // SAFETY: the child makes nothing but system calls.
    let child = unsafe { libc::fork() };
    if child != 0 {
        return; // the parent drops its descriptors here; so it does when there is no child (-1)
    }
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"rbt-sweep".as_ptr());
        // A signal meant for the run must not cut the sweep short, nor is there anything that it could tell us.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // A directory that is to be unmounted or removed shall not be held.
        libc::chdir(c"/".as_ptr());
        let mut from = 0;
        for fd in &keep {
            if *fd > from {
                close_range(from, fd - 1);
            }
            from = fd + 1;
        }
        close_range(from, RawFd::MAX);
        // All are closed by the exit, in order; nothing of ours is run any more.
        libc::_exit(0)
    }
}

/// close_range(2) of Linux 5.9, or one by one.
unsafe fn close_range(from: RawFd, to: RawFd) {
    unsafe {
        if libc::syscall(libc::SYS_close_range, from, to, 0) == 0 {
            return;
        }
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for fd in from..=to.min(limit.rlim_cur.min(1 << 20) as RawFd) {
            libc::close(fd);
        }
    }
}
