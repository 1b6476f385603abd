//! Tracks where the first instructions of a function copy the values that exist at its entry.
//!
//! The module follows the instructions in a straight line from the entry. A register or a byte of memory is known while it is a
//! copy of a register or of memory at the entry; the result of any other computation is unknown.

#![allow(clippy::wildcard_enum_match_arm)] // a few of many bytes

use std::collections::BTreeMap;

use crate::system::machine::arch::HERE;

/// The number of the stack pointer, as the processor counts registers.
pub const SP: u8 = HERE.instructions.stack_pointer;
/// The most instructions that are followed.
const LONGEST: u32 = 400;
/// Bytes above the stack pointer at the entry at which what the function may use ends.
const RETURN: i64 = HERE.stack_args as i64;
/// General registers, and vector registers, that any processor has at most.
const MOST: usize = 32;

/// Where an address counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// What the register holds at the entry.
    Register(u8),
    /// What memory holds at the entry, so many bytes from what the register holds.
    Pointer(u8, i64),
    /// The stack pointer after its n-th alignment: nobody knows by how much that moved it.
    Aligned(u8),
}

/// What one byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Byte {
    /// The n-th byte of a register at the entry.
    Register(u8, u8),
    /// The lowest bit of a register's lowest byte at the entry.
    RegisterBit(u8),
    /// The lowest bit of a byte of memory at the entry.
    MemoryBit(Base, i64),
    /// A byte of memory at the entry.
    Memory(Base, i64),
    /// Part of a vector register at the entry.
    Vector,
    /// In the function's own frame, and not written yet.
    Unset,
    /// Anything else.
    Unknown,
}

/// What a register holds.
#[allow(clippy::large_enum_variant)] // a few of them, for a moment
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// An address: so many bytes from the base.
    Sum(Base, i64),
    /// Each byte by itself.
    Bytes([Byte; 8]),
}

impl Value {
    pub(super) const UNKNOWN: Value = Value::Bytes([Byte::Unknown; 8]);

    /// Its bytes, lowest first.
    pub fn bytes(self) -> [Byte; 8] {
        let each = |f: &dyn Fn(u8) -> Byte| std::array::from_fn(|n| f(n as u8));
        match self {
            Value::Sum(Base::Register(r), 0) => each(&|n| Byte::Register(r, n)),
            Value::Sum(Base::Pointer(r, at), 0) => each(&|n| Byte::Memory(Base::Register(r), at + i64::from(n))),
            Value::Sum(..) => [Byte::Unknown; 8],
            Value::Bytes(bytes) => bytes,
        }
    }

    /// What has these bytes.
    pub fn of(bytes: [Byte; 8]) -> Value {
        let all = |f: &dyn Fn(usize) -> Byte| bytes.iter().enumerate().all(|(n, b)| *b == f(n));
        match bytes[0] {
            Byte::Register(r, 0) if all(&|n| Byte::Register(r, n as u8)) => Value::Sum(Base::Register(r), 0),
            Byte::Memory(Base::Register(r), at) if all(&|n| Byte::Memory(Base::Register(r), at.wrapping_add(n as i64))) => {
                Value::Sum(Base::Pointer(r, at), 0)
            }
            _ => Value::Bytes(bytes),
        }
    }

    /// Its bytes from the n-th on.
    pub fn from_byte(self, n: usize) -> Value {
        let bytes = self.bytes();
        Value::Bytes(std::array::from_fn(|at| bytes.get(at + n).copied().unwrap_or(Byte::Unknown)))
    }

    /// Its lowest n bytes.
    pub fn lowest(self, n: usize) -> Value {
        let bytes = self.bytes();
        Value::Bytes(std::array::from_fn(|at| if at < n { bytes[at] } else { Byte::Unknown }))
    }

    /// So many bytes further.
    pub fn plus(self, by: i64) -> Value {
        match self {
            Value::Sum(base, at) => Value::Sum(base, at.wrapping_add(by)),
            value if by == 0 => value,
            Value::Bytes(bytes) if bytes.contains(&Byte::Unset) => Value::Bytes([Byte::Unset; 8]),
            Value::Bytes(_) => Value::UNKNOWN,
        }
    }
}

/// Registers and memory at one instruction.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) registers: [Value; MOST],
    pub(super) vectors: [[Byte; 32]; MOST],
    memory: BTreeMap<(Base, i64), Byte>,
    /// Something was stored where nobody knows.
    pub(super) dirty: bool,
    pub(super) alignments: u8,
}

impl Machine {
    /// At the entry.
    pub fn entered() -> Machine {
        Machine {
            registers: std::array::from_fn(|n| Value::Sum(Base::Register(n as u8), 0)),
            vectors: [[Byte::Vector; 32]; MOST],
            memory: BTreeMap::new(),
            dirty: false,
            alignments: 0,
        }
    }

    /// What a register holds, by the processor's number of it.
    pub fn register(&self, n: u8) -> Value {
        self.registers.get(usize::from(n)).copied().unwrap_or(Value::UNKNOWN)
    }

    pub(super) fn set(&mut self, n: u8, value: Value) {
        if let Some(register) = self.registers.get_mut(usize::from(n)) {
            *register = value;
        }
    }

    /// The lower half of a vector register.
    pub fn vector(&self, n: u8) -> [Byte; 16] {
        let whole = self.vectors.get(usize::from(n)).copied().unwrap_or([Byte::Unknown; 32]);
        std::array::from_fn(|at| whole[at])
    }

    /// The byte of memory there.
    pub fn byte(&self, base: Base, at: i64) -> Byte {
        if let Some(known) = self.memory.get(&(base, at)) {
            return *known;
        }
        match base {
            Base::Register(SP) if at < RETURN => Byte::Unset,
            Base::Aligned(_) => Byte::Unset,
            _ if self.dirty => Byte::Unknown,
            Base::Register(_) | Base::Pointer(..) => Byte::Memory(base, at),
        }
    }

    /// Bytes of memory, each by itself.
    pub fn load(&self, at: Value, size: usize) -> Vec<Byte> {
        match at {
            Value::Sum(base, at) => (0..size as i64).map(|n| self.byte(base, at.wrapping_add(n))).collect(),
            Value::Bytes(bytes) if bytes.contains(&Byte::Unset) => vec![Byte::Unset; size],
            Value::Bytes(_) => vec![Byte::Unknown; size],
        }
    }

    /// Is memory there as it was at the entry, all bytes of it?
    pub fn is_as_entered(&self, base: Base, at: i64, size: u32) -> bool {
        let end = at.saturating_add(i64::from(size));
        let written = self.memory.range((base, at)..(base, end)).next().is_some();
        !written && matches!(self.byte(base, at), Byte::Memory(..))
    }

    /// Puts bytes into memory; none: nobody knows where.
    pub(super) fn store(&mut self, at: Option<Value>, bytes: &[Byte]) {
        match at {
            Some(Value::Sum(base, at)) => {
                // it may be any memory but the function's own
                self.dirty |= !matches!(base, Base::Register(SP) | Base::Aligned(_));
                for (n, byte) in bytes.iter().enumerate() {
                    self.memory.insert((base, at.wrapping_add(n as i64)), *byte);
                }
            }
            Some(Value::Bytes(_)) | None => self.dirty = true,
        }
    }
}

/// A function's instructions, followed from its entry.
pub struct Path<'a> {
    code: &'a [u8],
    machine: Machine,
    /// The function's address.
    entry: u64,
    at: u64,
    left: u32,
    branched: bool,
    /// What the stack pointer was compared with last.
    compared: Option<Value>,
}

/// What comes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The instruction so many bytes on.
    Along(u64),
    /// The same, or another at this address.
    Either(u64, u64),
    /// Something else.
    Elsewhere,
}

impl<'a> Path<'a> {
    /// At the entry of the function whose code is at this address.
    pub fn new(code: &'a [u8], entry: u64) -> Path<'a> {
        Path { code, machine: Machine::entered(), entry, at: entry, left: LONGEST, branched: false, compared: None }
    }

    /// The address of the instruction that is next.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Registers and memory before it.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Has there been a conditional branch?
    pub fn has_branched(&self) -> bool {
        self.branched
    }

    /// Goes on by one instruction; false where the way ends, as at a call.
    pub fn step(&mut self) -> bool {
        let rest = usize::try_from(self.at - self.entry).ok().and_then(|at| self.code.get(at..)).unwrap_or_default();
        if self.left == 0 || rest.is_empty() {
            return false;
        }
        self.left -= 1;
        let by = match (HERE.instructions.step)(rest, self.at, &mut self.machine, &mut self.compared) {
            Next::Along(by) => by,
            Next::Either(by, to) => {
                let back = (self.entry..=self.at).contains(&to);
                if let (true, Some(end @ Value::Sum(Base::Register(SP), _))) = (back, self.compared) {
                    // a loop that touches a large frame page by page, until the stack pointer is there
                    let touched = self.machine.register(SP);
                    if let Value::Sum(base, at) = touched {
                        self.machine.memory.retain(|(b, there), _| *b != base || !(at..at + 8).contains(there));
                    }
                    self.machine.set(SP, end);
                } else {
                    self.branched = true;
                }
                by
            }
            Next::Elsewhere => return false,
        };
        self.at += by;
        true
    }
}
