//! The first steps of a process: it blocks a signal, raises the stack limit, and installs a panic hook.

pub mod entry;
#[cfg(panic = "abort")]
mod no_unwinding;
pub(crate) mod panic;
pub(crate) mod stack;
