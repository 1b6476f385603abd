//! The end of a process, without destructors of global objects.
//!
//! exit(3) would run those of LLVM: they free 350 options one by one, in memory that the kernel releases anyway, and another thread
//! might still use such an object. It would do nothing else for rbt: values with destructors are gone when `main` ends, each writer
//! flushes what it has written, and the output of C libraries goes through rbt.

#![allow(unsafe_code)] // _exit(2)

/// Ends the process with this status.
pub fn end(status: u8) -> ! {
    // SAFETY: the call takes a number, and does not return
    unsafe { libc::_exit(status.into()) }
}
