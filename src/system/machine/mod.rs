//! The machine: its answers, its CPU, its cgroups, users and privileges.

pub mod arch;
pub mod cgroup;
pub mod constants;
pub mod container;
pub mod glob;
pub mod kubernetes;
pub mod live;
pub mod operands;
pub mod perf;
pub mod procfs;
pub mod programs;
pub mod rights;
pub mod users;
