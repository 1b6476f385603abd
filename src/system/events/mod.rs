//! The kernel's lists of events and system calls.

pub(in crate::system) mod headers;
pub mod syscalls;
pub mod tracefs;
