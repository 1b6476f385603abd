//! Running a program on this machine.

pub mod child;
mod mappings;
mod mmap_events;
mod perf_map;
pub mod symbolize;
