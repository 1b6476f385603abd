//! Whole scripts against a few rows and kinds of the tests' own, on a made-up machine.

use std::rc::Rc;

use super::dump::dump;
use super::{Tables, check_with};
use crate::builtins::{Accepts, Aggregate, Builtin, Event, Facts, Lit, Lower, Param, Read, Returns, Use};
use crate::diag::{Diagnostic, Diagnostics, Source};
use crate::emit::{Emit, Operand};
use crate::probes::{ArgRef, Attach, Caps, Context, ContextField, Env, Place, ProbeKind, ProbeSite, ProgramType};
use crate::settings::Settings;
use crate::syntax::ast::AttachPoint;
use crate::system::fake::Fake;
use crate::types::{Agg, Space, Struct, Type};
use crate::value::Value;

fn code<'c>(_: &mut Emit<'c>, _: &Use, _: &[Operand<'c>]) -> Operand<'c> {
    unreachable!("nothing is emitted in these tests")
}
fn update<'c>(_: &mut Emit<'c>, _: &Use, _: Operand<'c>, _: &[Operand<'c>]) {}
fn step<'c>(_: &mut Emit<'c>, acc: [Operand<'c>; 2], _: Operand<'c>) -> [Operand<'c>; 2] {
    acc
}
fn finish<'c>(_: &mut Emit<'c>, [a, _]: [Operand<'c>; 2]) -> Operand<'c> {
    a
}

static EVENT: Event = Event { stops: false, capture: None, prepare: |_| anyhow::bail!("no") };
static STOP: Event = Event { stops: true, capture: None, prepare: |_| anyhow::bail!("no") };
static READ: Read = Read { init: [0, 0], step, finish };

fn agg(f: &Facts, signed: bool, params: Vec<i64>) -> Result<Agg, Diagnostic> {
    Ok(Agg { function: f.name.into(), signed, params, size: 8 })
}
static COUNT: Aggregate =
    Aggregate { layout: |f| agg(f, false, vec![]), update, merge: |_, _| Value::None, kind: "map", read: Some(&READ) };
static SUM: Aggregate = Aggregate {
    layout: |f| agg(f, f.args[0].ty.as_int().is_some_and(|i| i.signed), vec![]),
    update,
    merge: |_, _| Value::None,
    kind: "map",
    read: Some(&READ),
};
static HIST: Aggregate = Aggregate {
    layout: |f| agg(f, true, vec![f.int(1).unwrap_or(0)]),
    update,
    merge: |_, _| Value::None,
    kind: "hist",
    read: None,
};

const fn row(name: &'static str, params: &'static [Param], returns: Returns, lower: Lower) -> Builtin {
    Builtin { name, params, returns, needs: Caps::NONE, risky: false, lower, doc: "", example: "" }
}
const fn needs(caps: Caps, row: Builtin) -> Builtin {
    match row {
        Builtin { name, params, returns: Returns::Always(Type::Args), lower: Lower::Context(w), .. } => {
            Builtin { name, params, returns: Returns::Always(Type::Args), needs: caps, risky: false, lower: Lower::Context(w), doc: "", example: "" }
        }
        Builtin { name, params, lower: Lower::Context(w), .. } => {
            Builtin { name, params, returns: Returns::Always(Type::U64), needs: caps, risky: false, lower: Lower::Context(w), doc: "", example: "" }
        }
        other => other,
    }
}
