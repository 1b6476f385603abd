//! The machine: its answers, its processor, its cgroups and rights.

pub mod cgroup;
pub mod constants;
pub mod live;
pub mod programs;
pub mod registers;
pub mod rights;
