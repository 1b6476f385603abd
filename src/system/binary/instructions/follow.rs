//! Tracks where the first instructions of a function copy the values that exist at its entry.
//!
//! The module follows the instructions in a straight line from the entry. A register or a byte of memory is known while it is a
//! copy of a register or of memory at the entry; the result of any other computation is unknown.

use crate::system::machine::arch::Arch;
use crate::system::machine::arch::instructions::{Base, Machine, Successor, Value};

/// Limit for the number of instructions that are followed.
const MAX_INSTRUCTIONS: u32 = 400;

/// The state at the entry of a function.
pub fn entered(arch: &Arch) -> Machine {
    Machine::entered(arch.instructions().stack_pointer, arch.stack_args)
}

/// The instructions of a function, followed from its entry.
pub struct Path<'a> {
    arch: &'static Arch,
    code: &'a [u8],
    machine: Machine,
    /// The address of the function.
    entry: u64,
    at: u64,
    remaining: u32,
    branched: bool,
    /// The value that was last compared with the stack pointer.
    compared: Option<Value>,
}

impl<'a> Path<'a> {
    /// Starts at the entry of the function with this code and address.
    pub fn new(arch: &'static Arch, code: &'a [u8], entry: u64) -> Path<'a> {
        Path { arch, code, machine: entered(arch), entry, at: entry, remaining: MAX_INSTRUCTIONS, branched: false, compared: None }
    }

    /// The address of the next instruction.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The registers and the memory before it.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Was there a conditional branch?
    pub fn has_branched(&self) -> bool {
        self.branched
    }

    /// Follows one instruction. Returns false where the path ends, as at a call.
    pub fn step(&mut self) -> bool {
        let rest = usize::try_from(self.at - self.entry).ok().and_then(|at| self.code.get(at..)).unwrap_or_default();
        if self.remaining == 0 || rest.is_empty() {
            return false;
        }
        self.remaining -= 1;
        let sp = self.arch.instructions().stack_pointer;
        let length = match (self.arch.instructions().step)(rest, self.at, &mut self.machine, &mut self.compared) {
            Successor::Next(length) => length,
            Successor::Branch(length, to) => {
                let back = (self.entry..=self.at).contains(&to);
                if let (true, Some(end @ Value::Sum(Base::Register(base), _))) = (back, self.compared)
                    && base == sp
                {
                    // A loop that touches each page of a large frame ends when the stack pointer reaches the compared value.
                    let touched = self.machine.register(sp);
                    if let Value::Sum(base, at) = touched {
                        self.machine.forget(base, at..at + 8);
                    }
                    self.machine.set(sp, end);
                } else {
                    self.branched = true;
                }
                length
            }
            Successor::Unknown => return false,
        };
        self.at += length;
        true
    }
}
