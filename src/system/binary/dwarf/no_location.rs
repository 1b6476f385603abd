//! Why an argument of a function cannot be read.

use std::fmt;

/// Why an argument cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoLocation {
    /// No location.
    OptimizedAway,
    /// No location, and it is large. Compilers often omit the location of values in several registers.
    NotRecorded,
    /// Some parts have no location.
    Partly,
    /// It is a floating-point number.
    Float,
    /// It is in a vector register.
    Vector,
    /// Some parts are in a vector register.
    VectorPart,
    /// The compiler made this copy of the function for one value.
    Constant(i64),
    /// It is computed from other values.
    Computed,
    /// Its first location is after the entry, and the code before it was not understood.
    Later,
    /// The debug information contradicts the calling convention.
    Disagrees,
    /// The registers of the arguments are out of order, so these are not the registers at the entry.
    Order,
    /// It is in memory, at an address that no register has.
    Memory,
    /// It is in memory if its class is not trivially copyable, which the debug information does not say, else in a vector register.
    Unstated,
    /// It is in memory or in registers, which Rust decides by rules that the debug information does not say.
    MemoryOrRegisters,
    /// It is a text, whose address and length are in different registers.
    Text,
    /// Its type is unknown.
    Type,
    /// The function returns nothing.
    Void,
    /// Its size is zero.
    Empty,
    /// Its location is of an unsupported kind.
    Odd,
}

impl fmt::Display for NoLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoLocation::OptimizedAway => "the compiler optimized it away",
            NoLocation::Partly => "the compiler optimized part of it away",
            NoLocation::Float => "it is a floating-point number",
            NoLocation::Vector => "it is in a floating-point register",
            NoLocation::VectorPart => "part of it is in a floating-point register",
            NoLocation::Constant(value) => return write!(f, "the compiler replaced it with the constant {value}"),
            NoLocation::Computed => "the compiler replaced it with a value computed from others",
            NoLocation::Later | NoLocation::NotRecorded => "the debug information does not say where it is at the function's entry",
            NoLocation::Disagrees => "the debug information and the calling convention disagree about where it is",
            NoLocation::Order => "the debug information does not have the arguments in the order of their registers",
            NoLocation::Memory => "it is in memory, and no register has its address",
            NoLocation::Unstated => "the debug information does not say whether it is in memory or in a floating-point register",
            NoLocation::MemoryOrRegisters => "the debug information does not say whether it is in memory or in registers",
            NoLocation::Text => "its address and its length are in different registers, and retval is one of them",
            NoLocation::Type => "its type is not supported",
            NoLocation::Void => "the function returns nothing (void)",
            NoLocation::Empty => "it has no bytes",
            NoLocation::Odd => "its location is not supported",
        })
    }
}

impl NoLocation {
    /// The remedy.
    pub fn help(self) -> &'static str {
        match self {
            NoLocation::Float | NoLocation::Vector => "no BPF program reads floating-point registers",
            NoLocation::VectorPart => "no BPF program reads floating-point registers; reg() reads the register of the other part",
            NoLocation::Constant(_) | NoLocation::Empty => "remove it: it is the same in every call",
            NoLocation::Void => "remove `retval`; reg() reads a register, whatever is in it",
            NoLocation::Text => "pass the length to str(): reg() reads its register",
            NoLocation::Memory | NoLocation::Unstated | NoLocation::MemoryOrRegisters => {
                "read the value at the entry of the function that receives it"
            }
            NoLocation::OptimizedAway
            | NoLocation::NotRecorded
            | NoLocation::Partly
            | NoLocation::Computed
            | NoLocation::Later
            | NoLocation::Disagrees
            | NoLocation::Order
            | NoLocation::Type
            | NoLocation::Odd => "use the argument registers arg0, arg1, …, or probe a build with less optimization",
        }
    }
}
