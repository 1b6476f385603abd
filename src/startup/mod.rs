//! The first steps of a process: it raises the stack limit, and installs a panic hook.

pub(crate) mod panic;
pub(crate) mod stack;
