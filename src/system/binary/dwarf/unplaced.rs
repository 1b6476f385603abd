//! Why an argument of a function cannot be read.

use std::fmt;

/// Why an argument cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unplaced {
    /// No location at all.
    OptimizedAway,
    /// No location, but it is long: of what they keep in several registers, compilers often write none.
    Untold,
    /// Of parts of it there is no location.
    Partly,
    /// It is a floating-point number.
    Float,
    /// It is in a register of floating point.
    Vector,
    /// The compiler made this copy of the function for one value.
    Constant(i64),
    /// Its value is a result of others.
    Computed,
    /// Its first location is behind the entry, or filled in a way that was not understood.
    Later,
    /// The debug information places it against the calling convention.
    Disagrees,
    /// Arguments are in one another's registers: these are not those of the entry.
    Order,
    /// Its type is not understood.
    Type,
    /// It has no bytes.
    Empty,
    /// The place cannot be described.
    Odd,
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unplaced::OptimizedAway => "the compiler optimized it away",
            Unplaced::Partly => "the compiler optimized part of it away",
            Unplaced::Float => "it is a floating-point number",
            Unplaced::Vector => "it is passed in a floating-point register",
            Unplaced::Constant(value) => return write!(f, "the compiler replaced it with the constant {value}"),
            Unplaced::Computed => "the compiler replaced it with a value computed from others",
            Unplaced::Later | Unplaced::Untold => "the debug information does not say where it is at the function's entry",
            Unplaced::Disagrees => "the debug information and the calling convention disagree about where it is",
            Unplaced::Order => "the debug information does not have the arguments in the order of their registers",
            Unplaced::Type => "its type is not supported",
            Unplaced::Empty => "it has no bytes",
            Unplaced::Odd => "its location is not supported",
        })
    }
}

impl Unplaced {
    /// What to do instead.
    pub fn help(self) -> &'static str {
        match self {
            Unplaced::Float | Unplaced::Vector => "no BPF program reads floating-point registers",
            Unplaced::Constant(_) | Unplaced::Empty => "remove it: it is the same in every call",
            Unplaced::OptimizedAway
            | Unplaced::Untold
            | Unplaced::Partly
            | Unplaced::Computed
            | Unplaced::Later
            | Unplaced::Disagrees
            | Unplaced::Order
            | Unplaced::Type
            | Unplaced::Odd => "use the argument registers arg0, arg1, …, or probe a build with less optimization",
        }
    }
}
