//! The state of a processor while instructions are followed from the entry of a function: what is a copy of a register or of
//! memory at the entry, and what is unknown.

#![allow(clippy::wildcard_enum_match_arm)] // a few of many bytes

use std::collections::BTreeMap;
use std::ops::Range;

/// The maximum number of general registers, and of vector registers, of any processor.
const MAX_REGISTERS: usize = 32;

/// A base address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// The value of the register at the entry.
    Register(u8),
    /// The value that is in memory at the entry, at this offset from the register.
    Pointer(u8, i64),
    /// The stack pointer after its n-th alignment, which moved it by an unknown amount.
    Aligned(u8),
}

/// The contents of one byte.
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
    /// A byte of the function's own frame that was not written yet.
    Unset,
    /// Any other value.
    Unknown,
}

/// The contents of a register.
#[allow(clippy::large_enum_variant)] // a few of them, for a moment
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// An address: a base plus an offset in bytes.
    Sum(Base, i64),
    /// Separate bytes.
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

    /// The value that has these bytes.
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

    /// Shifts it right by n bytes.
    pub fn from_byte(self, n: usize) -> Value {
        let bytes = self.bytes();
        Value::Bytes(std::array::from_fn(|at| bytes.get(at + n).copied().unwrap_or(Byte::Unknown)))
    }

    /// Keeps its lowest n bytes.
    pub fn lowest(self, n: usize) -> Value {
        let bytes = self.bytes();
        Value::Bytes(std::array::from_fn(|at| if at < n { bytes[at] } else { Byte::Unknown }))
    }

    /// Adds to it.
    pub fn plus(self, offset: i64) -> Value {
        match self {
            Value::Sum(base, at) => Value::Sum(base, at.wrapping_add(offset)),
            value if offset == 0 => value,
            Value::Bytes(bytes) if bytes.contains(&Byte::Unset) => Value::Bytes([Byte::Unset; 8]),
            Value::Bytes(_) => Value::UNKNOWN,
        }
    }
}

/// The registers and the memory at one instruction.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) registers: [Value; MAX_REGISTERS],
    pub(super) vectors: [[Byte; 32]; MAX_REGISTERS],
    memory: BTreeMap<(Base, i64), Byte>,
    /// There was a store to an unknown address.
    pub(super) unknown_store: bool,
    pub(super) alignments: u8,
    stack_pointer: u8,
    stack_args: i64,
}

impl Machine {
    /// The state at the entry. `stack_pointer` is the register's number; the function may use memory up to `stack_args` above it.
    pub fn entered(stack_pointer: u8, stack_args: u32) -> Machine {
        Machine {
            registers: std::array::from_fn(|n| Value::Sum(Base::Register(n as u8), 0)),
            vectors: [[Byte::Vector; 32]; MAX_REGISTERS],
            memory: BTreeMap::new(),
            unknown_store: false,
            alignments: 0,
            stack_pointer,
            stack_args: i64::from(stack_args),
        }
    }

    /// The contents of a register, by the processor's number.
    pub fn register(&self, n: u8) -> Value {
        self.registers.get(usize::from(n)).copied().unwrap_or(Value::UNKNOWN)
    }

    /// Sets the contents of a register.
    pub fn set(&mut self, n: u8, value: Value) {
        if let Some(register) = self.registers.get_mut(usize::from(n)) {
            *register = value;
        }
    }

    /// The lower half of a vector register.
    pub fn vector(&self, n: u8) -> [Byte; 16] {
        let bytes = self.vectors.get(usize::from(n)).copied().unwrap_or([Byte::Unknown; 32]);
        std::array::from_fn(|at| bytes[at])
    }

    /// The contents of a byte of memory.
    pub fn byte(&self, base: Base, at: i64) -> Byte {
        if let Some(known) = self.memory.get(&(base, at)) {
            return *known;
        }
        match base {
            Base::Register(r) if r == self.stack_pointer && at < self.stack_args => Byte::Unset,
            Base::Aligned(_) => Byte::Unset,
            _ if self.unknown_store => Byte::Unknown,
            Base::Register(_) | Base::Pointer(..) => Byte::Memory(base, at),
        }
    }

    /// Reads bytes of memory.
    pub fn load(&self, at: Value, size: usize) -> Vec<Byte> {
        match at {
            Value::Sum(base, at) => (0..size as i64).map(|n| self.byte(base, at.wrapping_add(n))).collect(),
            Value::Bytes(bytes) if bytes.contains(&Byte::Unset) => vec![Byte::Unset; size],
            Value::Bytes(_) => vec![Byte::Unknown; size],
        }
    }

    /// Are all these bytes of memory unchanged since the entry?
    pub fn is_as_entered(&self, base: Base, at: i64, size: u32) -> bool {
        let end = at.saturating_add(i64::from(size));
        let written = self.memory.range((base, at)..(base, end)).next().is_some();
        !written && matches!(self.byte(base, at), Byte::Memory(..))
    }

    /// Forgets what was stored in these bytes of memory.
    pub fn forget(&mut self, base: Base, range: Range<i64>) {
        self.memory.retain(|(b, at), _| *b != base || !range.contains(at));
    }

    /// Stores bytes. `at` is `None` if the address is unknown.
    pub(super) fn store(&mut self, at: Option<Value>, bytes: &[Byte]) {
        match at {
            Some(Value::Sum(base, at)) => {
                // An unknown pointer may lead to any memory outside of the function's frame.
                self.unknown_store |= !matches!(base, Base::Aligned(_)) && base != Base::Register(self.stack_pointer);
                for (n, byte) in bytes.iter().enumerate() {
                    self.memory.insert((base, at.wrapping_add(n as i64)), *byte);
                }
            }
            Some(Value::Bytes(_)) | None => self.unknown_store = true,
        }
    }
}

/// The successor of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// The instruction after this many bytes.
    Next(u64),
    /// The same, or the one at this address.
    Branch(u64, u64),
    /// Unknown.
    Unknown,
}
