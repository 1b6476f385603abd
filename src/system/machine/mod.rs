//! The machine: its answers, its CPU, its cgroups, users and privileges.

pub mod arch;
pub mod cgroup;
pub mod constants;
pub mod glob;
pub mod live;
pub mod perf;
pub mod programs;
pub mod registers;
pub mod rights;
pub mod users;
