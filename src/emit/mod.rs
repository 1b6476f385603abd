//! BPF code in our words: the only user of inkwell and LLVM.

use crate::types::{Space, Type};
use inkwell::values::{IntValue, PointerValue};

/// A value while code is emitted.
#[derive(Clone, Debug)]
pub struct Operand<'c> {
    /// Its type.
    pub ty: Type,
    /// Where it is.
    pub repr: Repr<'c>,
}

/// Where a value is.
#[derive(Clone, Copy, Debug)]
pub enum Repr<'c> {
    /// Nowhere: no value.
    None,
    /// In a register of 64 bits, extended by the type's sign.
    Reg(IntValue<'c>),
    /// In memory the program may read directly, `Type::size()` bytes; for strings, their length with NUL where it is known.
    Mem(PointerValue<'c>, Option<IntValue<'c>>),
    /// At an address of this space, not read yet (structs, arrays and strings inside them).
    At(IntValue<'c>, Space),
}

/// A function under construction.
pub struct Emit<'c> {
    _todo: std::marker::PhantomData<&'c ()>,
}
