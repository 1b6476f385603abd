//! What a process does first: a limit raised, and a hook for panics.

pub(crate) mod panic;
pub(crate) mod stack;
