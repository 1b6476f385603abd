//! Running a program on this machine.

pub mod child;
