//! The half of the table that running a compiled script needs.
//!
//! The rows are copied at compile time, without their halves for the checker and the compiler. A program that only looks up rows here
//! refers to no code generation, and the linker leaves that out of it: so `rbt-run` has neither LLVM nor the checker in it.

use super::{Aggregate, Builtin, Codegen, EventSpec, FAMILIES, Handler, Monotonicity, Param, Sharing, StateCodec};
use crate::types::Agg;
use crate::value::{MapViewKind, Value};

/// The user-space half of a row.
#[derive(Clone, Copy)]
pub struct UserSide {
    /// The name in scripts.
    pub name: &'static str,
    /// See [`Builtin::params`].
    pub params: &'static [Param],
    /// Requires `--unsafe`.
    pub risky: bool,
    /// The half of an asynchronous builtin.
    pub event: Option<EventSide>,
    /// The half of an aggregation.
    pub aggregate: Option<AggregateSide>,
}

/// See [`Event`](super::Event).
#[derive(Clone, Copy)]
pub struct EventSide {
    /// The probe ends immediately after it.
    pub ends_probe: bool,
    /// Called once per call site before the run; the returned handler is called for each record.
    pub prepare: fn(&EventSpec) -> anyhow::Result<Handler>,
}

/// See [`Aggregate`].
#[derive(Clone, Copy)]
pub struct AggregateSide {
    /// May several processors share one slot?
    pub sharing: Sharing,
    /// Merges the CPUs' slots, each `Agg::size` bytes.
    pub merge: fn(&Agg, &[&[u8]]) -> Value,
    /// How it is saved, for adding it to that of other machines.
    pub state_codec: &'static StateCodec,
    /// The `type` of such a map in JSON.
    pub kind: MapViewKind,
    /// Is its number made of the values of its argument?
    pub measures: bool,
    /// The effect of missed calls on the displayed number.
    pub monotonicity: Monotonicity,
}

static USER_SIDES: [UserSide; COUNT] = user_sides();

const COUNT: usize = {
    let (mut count, mut family) = (0, 0);
    while family < FAMILIES.len() {
        count += FAMILIES[family].len();
        family += 1;
    }
    count
};

const fn user_sides() -> [UserSide; COUNT] {
    let mut all = [user_side_of(&FAMILIES[0][0]); COUNT];
    let (mut at, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut row = 0;
        while row < FAMILIES[family].len() {
            all[at] = user_side_of(&FAMILIES[family][row]);
            at += 1;
            row += 1;
        }
        family += 1;
    }
    all
}

const fn user_side_of(row: &Builtin) -> UserSide {
    let (mut event, mut aggregate) = (None, None);
    match &row.codegen {
        Codegen::Event(both) => event = Some(EventSide { ends_probe: both.ends_probe, prepare: both.prepare }),
        Codegen::Aggregate(both) => {
            let Aggregate { sharing, merge, state_codec, kind, measures, monotonicity, .. } = both;
            aggregate = Some(AggregateSide {
                sharing: *sharing,
                merge: *merge,
                state_codec,
                kind: *kind,
                measures: *measures,
                monotonicity: *monotonicity,
            });
        }
        Codegen::Fold(_)
        | Codegen::Context(_)
        | Codegen::Code(_)
        | Codegen::Effect(_)
        | Codegen::Either(..)
        | Codegen::Known(..)
        | Codegen::Source(_) => {}
    }
    UserSide { name: row.name, params: row.params, risky: row.risky, event, aggregate }
}

/// The user-space half of the row of this name.
pub fn user_side(name: &str) -> Option<&'static UserSide> {
    USER_SIDES.iter().find(|row| row.name == name)
}

/// The aggregation of this name.
pub fn aggregate(name: &str) -> Option<(&'static UserSide, &'static AggregateSide)> {
    let row = user_side(name)?;
    Some((row, row.aggregate.as_ref()?))
}

/// Does the aggregation of this name count events, instead of combining values?
pub fn counts_events(name: &str) -> bool {
    aggregate(name).is_some_and(|(row, _)| row.params.is_empty())
}
