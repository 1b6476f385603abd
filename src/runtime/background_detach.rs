//! Detaches probes in the background.
//!
//! Detaching takes the kernel 40 to 85 ms for a tracepoint by perf, about 100 ms for a perf uprobe, and 24 ms for a
//! uprobe.multi link, one after the other. The process that closes the last descriptor waits, even at exit. Therefore a
//! forked child, the sweeper, inherits the descriptors and waits until the parent has closed its own. That is fast,
//! because the child's descriptors keep everything attached. Then the child exits, which closes the last ones. It closes
//! its other descriptors first, for which the parent waits, so readers of a pipe do not wait for it, and ports are free.
//! Programs that stay attached for that moment see `State::stopped` and return at once. A run that cannot fork waits for
//! its own close.
//!
//! In a container, a sweeper can block detaching on the whole machine until it reboots. When process 1 of a PID namespace exits,
//! the kernel waits for all other processes of the namespace (`zap_pid_ns_processes` of kernel/pid_namespace.c). Before Linux 6.9,
//! the grace period of RCU tasks that a sweeper waits for does not end before process 1 has exited (the commit "rcu-tasks:
//! Eliminate deadlocks involving do_exit() and RCU tasks"). Linux 6.1 blocked in one of 30 runs that were the last command of
//! process 1. There, rbt detaches before it exits.
#![allow(unsafe_code)] // fork, and what a child may call after it

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::system::machine::procfs;

/// Closes these descriptors in a separate process if that is safe.
pub(super) fn sweep(fds: Vec<OwnedFd>) {
    if fds.is_empty() || !may_outlive_process_1() {
        return;
    }
    // The sweeper learns from the end of this pipe that the parent is done, however it ended. Without a pipe there is
    // no sweeper: dropping `fds` then takes its time.
    let Ok((wait, done)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else { return };
    // The parent learns from the end of the other one that the sweeper has closed what it need not keep: until then, the port of a
    // server, for example, is in use, and the next run would not get it.
    let Ok((closed, open)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else { return };
    // Made before the fork: the child may allocate nothing (signal-safety(7)).
    let mut keep: Vec<RawFd> = fds.iter().chain([&wait]).map(AsRawFd::as_raw_fd).collect();
    keep.sort_unstable();
    // SAFETY: the child only makes system calls.
    unsafe {
        if libc::fork() == 0 {
            run_sweeper(&keep, wait.as_raw_fd());
        }
    }
    drop(open);
    let mut byte = [0u8];
    while rustix::io::read(&closed, &mut byte) == Err(rustix::io::Errno::INTR) {}
    drop(fds); // before `done`
    drop(done);
}

/// Does the kernel let process 1 of this PID namespace exit while another process detaches?
fn may_outlive_process_1() -> bool {
    matches!(procfs::pid_namespace(), Ok(None)) || has_independent_exit(&rustix::system::uname().release().to_string_lossy())
}

/// Does a process that exits delay no grace period of RCU tasks? `release`: such as `6.1.0-56-amd64`.
fn has_independent_exit(release: &str) -> bool {
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(9))
}

/// The sweeper process: keeps these descriptors open until the pipe ends.
unsafe fn run_sweeper(keep: &[RawFd], pipe: RawFd) -> ! {
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"rbt-sweep".as_ptr());
        // A signal meant for the run must not interrupt the sweep, and no signal concerns the sweeper.
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Do not hold a directory that may be unmounted or removed.
        libc::chdir(c"/".as_ptr());
        let mut from = 0;
        for fd in keep {
            if *fd > from {
                close_range(from, fd - 1);
            }
            from = fd + 1;
        }
        close_range(from, RawFd::MAX);
        let mut byte = 0u8;
        while libc::read(pipe, (&raw mut byte).cast(), 1) == -1 && *libc::__errno_location() == libc::EINTR {}
        // The exit closes them all, in order; none of our code runs after it.
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

#[cfg(test)]
mod tests {
    use super::has_independent_exit;

    #[test]
    fn releases() {
        let of = |releases: &[&str]| releases.iter().map(|release| has_independent_exit(release)).collect::<Vec<_>>();
        assert_eq!(of(&["6.9.0", "6.10-rc1", "6.12.117+deb12-cloud-amd64", "7.0", "10.1"]), [true; 5]);
        assert_eq!(of(&["6.8.12", "6.1.0-56-cloud-amd64", "5.10.0", "6", "", "unknown"]), [false; 6]);
    }
}
