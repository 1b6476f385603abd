//! Evaluates location expressions with the contents of registers at an instruction.

#![allow(clippy::wildcard_enum_match_arm)] // a few of many operations

use gimli::{DW_AT_byte_size, Expression, Operation, UnitOffset};

use super::frame::Frame;
use super::no_location::NoLocation;
use super::types::is_float;
use super::{BinaryTypes, Slice};
use crate::system::binary::instructions::follow;
use crate::system::machine::arch::Arch;
use crate::system::machine::arch::instructions::{Base, Byte, Machine, Value};

/// Limit for the operations of one expression.
const OPERATIONS: usize = 64;

/// The contents of a piece of an argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Memory(Value),
    Value(Value),
    Vector(u8),
    Constant(i64),
    Nothing,
}

/// A value on the stack of an expression.
#[allow(clippy::large_enum_variant)] // a few, for a moment
#[derive(Clone, Copy)]
enum Number {
    Known(i64),
    Of(Value),
}

/// An expression under evaluation.
pub(super) struct Evaluation<'a> {
    pub(super) machine: &'a Machine,
    /// Address of the instruction before which the expression is evaluated.
    pub(super) addr: u64,
    pub(super) frame: &'a Frame<'a>,
    stack: Vec<Number>,
    /// The expression used the value of the stack pointer at this instruction.
    pub(super) by_sp: bool,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(machine: &'a Machine, addr: u64, frame: &'a Frame<'a>) -> Evaluation<'a> {
        Evaluation { machine, addr, frame, stack: Vec::new(), by_sp: false }
    }

    /// Returns each piece with its size. The last piece may have no size; then it extends to the end.
    pub(super) fn parts(&mut self, expression: Expression<Slice>) -> Result<Vec<(Option<usize>, Part)>, NoLocation> {
        let mut parts = Vec::new();
        // The result of the operations since the last piece.
        let mut part = None;
        let mut operations = expression.operations(self.frame.unit.encoding());
        for _ in 0..OPERATIONS {
            let Some(operation) = operations.next().map_err(|_| NoLocation::Odd)? else {
                let last = match part {
                    Some(part) => Some(part),
                    None => self.stack.pop().map(|top| self.memory(top)).transpose()?,
                };
                parts.extend(last.map(|p| (None, p)));
                return Ok(parts);
            };
            match operation {
                Operation::Piece { size_in_bits, bit_offset: None } if size_in_bits % 8 == 0 => {
                    let location = match (part.take(), self.stack.pop()) {
                        (Some(part), _) => part,
                        (None, Some(top)) => self.memory(top)?,
                        (None, None) => Part::Nothing,
                    };
                    parts.push((Some((size_in_bits / 8) as usize), location));
                }
                Operation::Register { register } => part = Some(self.register(register.0)?),
                Operation::StackValue => part = Some(self.value()?),
                Operation::ImplicitValue { data } => {
                    let mut bytes = [0; 8];
                    let slice = data.slice();
                    let size = slice.len().min(8);
                    bytes[..size].copy_from_slice(&slice[..size]);
                    part = Some(Part::Constant(i64::from_le_bytes(bytes)));
                }
                other => self.operation(other)?,
            }
        }
        Err(NoLocation::Odd)
    }

    fn operation(&mut self, operation: Operation<Slice>) -> Result<(), NoLocation> {
        let number = match operation {
            Operation::Nop => return Ok(()),
            Operation::RegisterOffset { register, offset, .. } => {
                let n = general(self.frame.arch, register.0).ok_or(NoLocation::Odd)?;
                self.by_sp |= n == self.frame.arch.instructions().stack_pointer;
                Number::Of(self.machine.register(n).plus(offset))
            }
            Operation::FrameOffset { offset } => Number::Of(self.frame_base()?.plus(offset)),
            Operation::CallFrameCFA => {
                let arch = self.frame.arch;
                Number::Of(Value::Sum(Base::Register(arch.instructions().stack_pointer), arch.stack_args.into()))
            }
            Operation::UnsignedConstant { value } => Number::Known(value as i64),
            Operation::SignedConstant { value } => Number::Known(value),
            Operation::PlusConstant { value } => plus(self.pop()?, value as i64),
            Operation::Plus => match (self.pop()?, self.pop()?) {
                (Number::Known(by), top) | (top, Number::Known(by)) => plus(top, by),
                (Number::Of(_), Number::Of(_)) => return Err(NoLocation::Computed),
            },
            Operation::Minus => match (self.pop()?, self.pop()?) {
                (Number::Known(by), top) => plus(top, by.wrapping_neg()),
                (Number::Of(_), _) => return Err(NoLocation::Computed),
            },
            Operation::Shr => match (self.pop()?, self.pop()?) {
                (Number::Known(by @ 0..=56), Number::Of(value)) if by % 8 == 0 => Number::Of(value.from_byte(by as usize / 8)),
                _ => return Err(NoLocation::Computed),
            },
            Operation::And => match (self.pop()?, self.pop()?) {
                (Number::Known(mask), Number::Of(value)) | (Number::Of(value), Number::Known(mask)) => match mask {
                    0xff => Number::Of(value.lowest(1)),
                    0xffff => Number::Of(value.lowest(2)),
                    0xffff_ffff => Number::Of(value.lowest(4)),
                    _ => return Err(NoLocation::Computed),
                },
                _ => return Err(NoLocation::Computed),
            },
            // A conversion to another size or sign, of which only the lowest bytes are used.
            Operation::Convert { base_type } => match (self.pop()?, self.integer_size(base_type)) {
                (number, Some(0)) => number,
                (Number::Of(value), Some(size)) => Number::Of(value.lowest(size)),
                (Number::Known(_), Some(_)) | (_, None) => return Err(NoLocation::Computed),
            },
            Operation::Deref { size: 8, space: false, .. } => match self.pop()? {
                Number::Of(at) => {
                    let bytes = self.machine.load(at, 8);
                    Number::Of(Value::of(std::array::from_fn(|n| bytes.get(n).copied().unwrap_or(Byte::Unknown))))
                }
                Number::Known(_) => return Err(NoLocation::Odd),
            },
            Operation::EntryValue { expression } => {
                let entered = follow::entered(self.frame.arch);
                let mut inner = Evaluation::new(&entered, self.addr, self.frame);
                match inner.parts(Expression(expression))?.as_slice() {
                    // Here, a register's value and an address relative to it are both numbers.
                    [(None, Part::Value(value) | Part::Memory(value))] => Number::Of(*value),
                    [(None, Part::Vector(_))] => return Err(NoLocation::Vector),
                    _ => return Err(NoLocation::Odd),
                }
            }
            Operation::ImplicitPointer { .. } | Operation::ParameterRef { .. } => return Err(NoLocation::OptimizedAway),
            _ => return Err(NoLocation::Computed),
        };
        self.stack.push(number);
        Ok(())
    }

    /// Size of an integer base type in bytes; 0 for the generic type.
    fn integer_size(&self, ty: UnitOffset) -> Option<usize> {
        if ty.0 == 0 {
            return Some(0);
        }
        let entry = self.frame.unit.entry(ty).ok().filter(|e| !is_float(e))?;
        usize::try_from(BinaryTypes::number(&entry, DW_AT_byte_size)?).ok().map(|n| if n == 8 { 0 } else { n })
    }

    fn frame_base(&mut self) -> Result<Value, NoLocation> {
        let expression = self.frame.base.as_ref().and_then(|l| l.at(self.addr)).ok_or(NoLocation::Odd)?;
        let mut inner = Evaluation::new(self.machine, self.addr, self.frame);
        // A frame base that refers to itself would recurse endlessly.
        let mut operations = expression.operations(self.frame.unit.encoding());
        while let Ok(Some(operation)) = operations.next() {
            if let Operation::FrameOffset { .. } = operation {
                return Err(NoLocation::Odd);
            }
            let sp = self.frame.arch.instructions().stack_pointer;
            self.by_sp |= matches!(operation, Operation::Register { register } if general(self.frame.arch, register.0) == Some(sp));
        }
        let base = inner.parts(*expression)?;
        self.by_sp |= inner.by_sp;
        match base.as_slice() {
            [(None, Part::Value(value) | Part::Memory(value))] => Ok(*value),
            _ => Err(NoLocation::Odd),
        }
    }

    fn register(&self, number: u16) -> Result<Part, NoLocation> {
        let (first, count) = self.frame.arch.vectors_by_dwarf;
        match (general(self.frame.arch, number), number.checked_sub(first)) {
            (Some(n), _) => Ok(Part::Value(self.machine.register(n))),
            (None, Some(n)) if n < count => Ok(Part::Vector(n as u8)),
            _ => Err(NoLocation::Odd),
        }
    }

    fn pop(&mut self) -> Result<Number, NoLocation> {
        self.stack.pop().ok_or(NoLocation::Odd)
    }

    fn value(&mut self) -> Result<Part, NoLocation> {
        Ok(match self.pop()? {
            Number::Known(n) => Part::Constant(n),
            Number::Of(value) => Part::Value(value),
        })
    }

    fn memory(&self, top: Number) -> Result<Part, NoLocation> {
        match top {
            Number::Of(value) => Ok(Part::Memory(value)),
            // A global variable of the program.
            Number::Known(_) => Err(NoLocation::Odd),
        }
    }
}

fn plus(number: Number, addend: i64) -> Number {
    match number {
        Number::Known(n) => Number::Known(n.wrapping_add(addend)),
        Number::Of(value) => Number::Of(value.plus(addend)),
    }
}

/// Converts a DWARF register number to the processor's number of the general register.
fn general(arch: &Arch, number: u16) -> Option<u8> {
    arch.by_dwarf.get(usize::from(number)).copied()
}
