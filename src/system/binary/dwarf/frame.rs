//! The frame of a function, and locations in it.

use gimli::{Expression, Unit};

use super::Slice;
use crate::system::machine::arch::Arch;

/// A location description.
pub(super) enum Location {
    /// One expression for the whole function.
    Whole(Expression<Slice>),
    /// Expressions by address range; a range may be empty.
    Ranges(Vec<(u64, u64, Expression<Slice>)>),
}

impl Location {
    /// The expression that is valid at an address.
    pub(super) fn at(&self, address: u64) -> Option<&Expression<Slice>> {
        match self {
            Location::Whole(expression) => Some(expression),
            Location::Ranges(all) => {
                // An empty range is valid before a change that has no instruction.
                let holds = |(from, to, _): &&(u64, u64, _)| *from <= address && (address < *to || (from == to && *from == address));
                all.iter().find(holds).map(|(_, _, e)| e)
            }
        }
    }
}

/// A function's own frame.
pub(super) struct Frame<'a> {
    pub(super) arch: &'static Arch,
    pub(super) base: Option<Location>,
    pub(super) unit: &'a Unit<Slice>,
    /// Offsets of the registers that pass arguments, in order.
    pub(super) registers: &'static [u32],
    /// The caller reserves a slot for each of these registers. Its content is an argument only if the function did not store
    /// there.
    pub(super) kept_by_caller: bool,
    /// From this address on, locations relative to the stack pointer are valid. `None`: everywhere, as in gcc's code.
    pub(super) prologue_end: Option<u64>,
}
