//! Instruction sets: a row for each processor.

pub mod aarch64;
mod state;
pub mod x86_64;

pub use state::{Base, Byte, Machine, Next, Value};

/// The instruction set of a processor.
#[derive(Debug)]
pub struct Instructions {
    /// The number of the stack pointer.
    pub stack_pointer: u8,
    /// Is the end of the code, which starts with an instruction, also a boundary between instructions?
    pub starts: fn(&[u8]) -> bool,
    /// Offsets of the return instructions in the code. `None` if it cannot be decoded entirely.
    pub returns: fn(&[u8]) -> Option<Vec<u64>>,
    /// Executes the first instruction of the code, which is at this address, and records the value that it compares with the
    /// stack pointer.
    pub step: fn(&[u8], u64, &mut Machine, &mut Option<Value>) -> Next,
}
