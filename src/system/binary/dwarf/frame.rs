//! The frame of a function, and where something is in it.

use gimli::{Expression, Unit};

use super::Slice;

/// A location.
pub(super) enum Location {
    /// The same in the whole function.
    Whole(Expression<Slice>),
    /// By ranges of addresses; one may be empty.
    Ranges(Vec<(u64, u64, Expression<Slice>)>),
}

impl Location {
    /// What holds at an address.
    pub(super) fn at(&self, address: u64) -> Option<&Expression<Slice>> {
        match self {
            Location::Whole(expression) => Some(expression),
            Location::Ranges(all) => {
                // an empty range is what held before something changed without an instruction
                let holds = |(from, to, _): &&(u64, u64, _)| *from <= address && (address < *to || (from == to && *from == address));
                all.iter().find(holds).map(|(_, _, e)| e)
            }
        }
    }
}

/// How a function's own frame is described.
pub(super) struct Frame<'a> {
    pub(super) base: Option<Location>,
    pub(super) unit: &'a Unit<Slice>,
    /// Offsets of the registers that arguments come in, in their order.
    pub(super) registers: &'static [u32],
    /// The caller leaves room for the function to keep them in: what is there is theirs only if nothing is put there.
    pub(super) kept_by_caller: bool,
    /// From here on the stack pointer is where locations think it is; none: everywhere, as gcc counts each instruction.
    pub(super) settled: Option<u64>,
}
