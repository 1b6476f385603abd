//! Raises the stack limit, because scripts and debug information may nest deeply.

#![allow(unsafe_code)] // getrlimit(2), setrlimit(2)

use crate::failure::Failure;

/// What is usual.
const ENOUGH: libc::rlim_t = 8 << 20;
/// With less, the simplest script overflows it.
const LEAST: libc::rlim_t = 1 << 20;

/// Raises the limit of the stack to what is usual, as far as that is allowed: the kernel looks at it when the stack grows, so
/// that it counts from now on. Errors: it is far too low, and cannot be raised.
pub(super) fn raise() -> Result<(), Failure> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on a struct of ours
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0;
    if !known || limit.rlim_cur >= ENOUGH {
        return Ok(());
    }
    let set = |soft, hard| {
        let wanted = libc::rlimit { rlim_cur: soft, rlim_max: hard };
        // SAFETY: as above
        unsafe { libc::setrlimit(libc::RLIMIT_STACK, &wanted) == 0 }
    };
    if set(ENOUGH, limit.rlim_max.max(ENOUGH)) || set(limit.rlim_max, limit.rlim_max) && limit.rlim_max >= LEAST {
        return Ok(());
    }
    if limit.rlim_cur >= LEAST {
        return Ok(());
    }
    let message = format!("the stack limit is too low: {} KiB", limit.rlim_max / 1024);
    Err(Failure::new(message).code("no-stack").help("raise it: `ulimit -s 8192`"))
}
