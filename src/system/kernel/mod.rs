//! The kernel's functions, and what it allows BPF programs to do.

pub mod features;
pub mod function_cache;
pub mod functions;
pub mod known_features;
pub mod noreturn;
pub mod object_limits;
pub mod object_needs;
mod preemption;
pub mod processors;
pub mod prog_type;
pub mod trampolines;
