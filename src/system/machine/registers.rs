//! The registers at the start of a probe's context, on this machine: offsets in bytes.

use super::arch::HERE;

/// Names and offsets.
pub const REGISTERS: &[(&str, u32)] = HERE.registers;
/// Of the general registers, by DWARF's numbers of them.
pub const BY_NUMBER: &[u32] = HERE.by_number;
/// Of what a function's integers come in, in order.
pub const ARGS: &[u32] = HERE.args;
/// Of what a function of Go is given integers in.
pub const GO_ARGS: &[u32] = HERE.go_args;
/// Of what a system call's arguments come in.
pub const SYSCALL_ARGS: &[u32] = HERE.syscall_args;
/// Of what a function returns its result in.
pub const RESULT: u32 = HERE.result;
/// Of the number of the system call in progress.
pub const SYSCALL_NUMBER: u32 = HERE.syscall_number;
/// Offset of the instruction pointer.
pub const IP: u32 = HERE.ip;
/// Offset of the stack pointer.
pub const SP: u32 = HERE.sp;
