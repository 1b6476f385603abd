//! Expectations (`--expect`): conditions on a run's maps at its end.
//!
//! An expectation is an expression of the script language. rbt and `rbt-run` evaluate it in user space over the final maps
//! ([`FinalResults`](crate::output::FinalResults)). Before the run, [`check()`] compares it with the script's maps: names,
//! keys, types.
//!
//! - `parse`: from text to a [`Node`]
//! - `check`: from a [`Node`] to a typed `Expr`
//! - `functions`: the table of functions ([`FUNCTIONS`])
//! - `eval`: evaluation; `range`: numbers with known bounds
//! - `judge`: to an [`Outcome`](crate::verdict::Outcome), with its explanation
//!
//! A number is a range, because for some numbers only bounds are known: the percentile of a histogram is somewhere in a bucket,
//! and if events were lost, the true count may be greater. The result is then true, false or undecided.

mod check;
mod eval;
mod functions;
mod judge;
mod parse;
mod range;
#[cfg(test)]
mod tests;
mod tree;
mod value;

pub use check::{check, names};
pub use functions::{FUNCTIONS, Function};
pub use judge::{evaluate, run_failed};
pub use parse::parse;
pub use tree::Node;

use crate::diag::Span;
use crate::syntax::ast::BinOp;
use crate::types::Type;
use crate::value::Value;
use crate::verdict::SourceLocation;

/// A map of the script, as far as expectations depend on it.
#[derive(Clone, Debug)]
pub struct ScriptMap {
    /// With its `@`.
    pub name: String,
    /// None: without keys.
    pub key: Option<Type>,
    /// The type of its values.
    pub value: Type,
}

/// An expectation that can be evaluated.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// As the user wrote it.
    pub text: String,
    /// The place, if it is in a file.
    pub location: Option<SourceLocation>,
    root: Expr,
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ty {
    Number,
    Text,
    Truth,
}

impl Ty {
    /// As messages print it.
    fn phrase(self) -> &'static str {
        match self {
            Ty::Number => "a number",
            Ty::Text => "a string",
            Ty::Truth => "true or false",
        }
    }
}

/// A checked expression.
#[derive(Clone, Debug)]
struct Expr {
    kind: Kind,
    ty: Ty,
    span: Span,
    /// As written.
    text: String,
}

#[derive(Clone, Debug)]
enum Kind {
    Constant(Constant),
    /// A map without keys, or an element.
    Read(MapRef),
    Call {
        function: &'static Function,
        map: MapRef,
        /// The arguments after the map: a percentile's number, keys.
        rest: Vec<Constant>,
    },
    Negate(Box<Expr>),
    Not(Box<Expr>),
    /// Arithmetic on numbers.
    Math(BinOp, Box<Expr>, Box<Expr>),
    /// `==`, `<` …
    Compare(BinOp, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
}

/// A map, or an element of it.
#[derive(Clone, Debug)]
struct MapRef {
    /// Its name with `@`, by which it is found in [`FinalResults::maps`](crate::output::FinalResults).
    map: String,
    key: Option<Constant>,
    shape: Shape,
}

/// A key, or a part of one.
#[derive(Clone, Debug, PartialEq)]
enum Constant {
    Number(i128),
    Text(Vec<u8>),
    Truth(bool),
    Tuple(Vec<Constant>),
}

impl Constant {
    /// Is it this key?
    fn is(&self, key: &Value) -> bool {
        match (self, key) {
            (Constant::Text(text), Value::Str { bytes, .. }) => text == bytes,
            (Constant::Text(text), Value::Text(shown)) => text == shown.as_bytes(),
            (Constant::Tuple(parts), Value::Tuple(values)) => {
                parts.len() == values.len() && parts.iter().zip(values).all(|(part, value)| part.is(value))
            }
            (Constant::Truth(truth), _) => key.number() == Some(i128::from(*truth)),
            (Constant::Number(n), _) => key.number() == Some(*n),
            (Constant::Text(_) | Constant::Tuple(_), _) => false,
        }
    }
}

/// The functions that apply to the values of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// A value that the script assigned.
    Plain(Ty),
    /// A count: one for each call.
    Count,
    /// One number of many; true: unsigned.
    Number(crate::builtins::Monotonicity, bool),
    /// Count and total.
    Stats,
    /// The same, displayed as the average.
    Average,
    /// Count, total and samples.
    Samples,
    /// Buckets.
    Hist,
    /// Another type, with its description.
    Other,
}

impl Shape {
    fn of(ty: &Type) -> Shape {
        match ty {
            Type::Bool => Shape::Plain(Ty::Truth),
            Type::Int(_) | Type::Enum(_) | Type::Ptr(..) => Shape::Plain(Ty::Number),
            Type::Str(_) => Shape::Plain(Ty::Text),
            Type::Deferred(tag) if crate::builtins::is_text(tag) => Shape::Plain(Ty::Text),
            Type::Agg(agg) => {
                let Some((row, aggregate)) = crate::builtins::aggregate(&agg.function) else { return Shape::Other };
                // its result for no values shows its kind
                match (aggregate.merge)(agg, &[]) {
                    Value::Int(_) | Value::Uint(_) if row.params.is_empty() => Shape::Count,
                    Value::Int(_) | Value::Uint(_) => Shape::Number(aggregate.monotonicity, !agg.signed),
                    Value::Stats(_) => Shape::Stats,
                    Value::Avg(_) => Shape::Average,
                    Value::Percentiles(_) => Shape::Samples,
                    Value::Hist(_) => Shape::Hist,
                    Value::None
                    | Value::Bool(_)
                    | Value::Float { .. }
                    | Value::Ptr(_)
                    | Value::Enum { .. }
                    | Value::Str { .. }
                    | Value::Bytes(_)
                    | Value::List(_)
                    | Value::Tuple(_)
                    | Value::Record(_)
                    | Value::Text(_)
                    | Value::Stack(_)
                    | Value::Series(_)
                    | Value::HeatMap(_) => Shape::Other,
                }
            }
            Type::Void
            | Type::Buf(_)
            | Type::Array(..)
            | Type::Struct(_)
            | Type::Record(_)
            | Type::Tuple(_)
            | Type::Deferred(_)
            | Type::Args => Shape::Other,
        }
    }

    /// The type of a plain read; none if there are several numbers.
    fn alone(self) -> Option<Ty> {
        match self {
            Shape::Plain(ty) => Some(ty),
            Shape::Count | Shape::Number(..) | Shape::Average => Some(Ty::Number),
            Shape::Stats | Shape::Samples | Shape::Hist | Shape::Other => None,
        }
    }
}
