//! The values of expectations: numbers, elements of maps, and the uncertainty that lost events cause.

use super::range::Range;
use super::{Constant, Shape};
use crate::builtins::Monotonicity;
use crate::value::{Stats, Value};

/// The value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Val {
    Number(Range),
    /// None: unknown.
    Text(Option<Vec<u8>>),
    /// None: undecided.
    Truth(Option<bool>),
}

impl Val {
    pub fn truth(&self) -> Option<bool> {
        if let Val::Truth(truth) = self { *truth } else { None }
    }

    pub fn range(&self) -> Range {
        match self {
            Val::Number(range) => *range,
            Val::Truth(Some(truth)) => Range::exact((*truth).into()),
            Val::Truth(None) | Val::Text(_) => Range::ANY,
        }
    }
}

/// An element of a map.
pub(super) struct Element<'a> {
    pub key: &'a Value,
    pub value: &'a Value,
}

impl Element<'_> {
    pub fn stats(&self) -> Option<Stats> {
        if let Value::Stats(s) | Value::Avg(s) = self.value {
            Some(*s)
        } else if let Value::Percentiles(p) = self.value {
            Some(p.stats)
        } else {
            None
        }
    }

    /// The number that represents it in output.
    pub fn shown(&self) -> Option<i128> {
        if let Value::Avg(s) = self.value { s.average().number() } else { self.value.number() }
    }

    pub fn count(&self) -> i128 {
        if let Value::Hist(h) = self.value {
            return h.counts.iter().map(|n| i128::from(*n)).sum();
        }
        self.stats().map_or_else(|| self.shown().unwrap_or(0), |s| i128::from(s.count))
    }

    pub fn sum(&self) -> i128 {
        self.stats().map_or_else(|| self.shown(), |s| s.sum().number()).unwrap_or(0)
    }
}

/// The argument of a function.
pub(super) struct CallArgs<'a> {
    /// The map's name.
    pub name: &'a str,
    pub elements: &'a [Element<'a>],
    pub shape: Shape,
    pub rest: &'a [Constant],
    /// Events were lost, so counts may be too low.
    pub lossy: bool,
    /// Some runs counted for others, so counts may also be too high.
    pub estimated: bool,
    /// The elements may be wrong.
    pub unbounded: bool,
}

/// A measured number, and the range of its true value.
pub(super) fn measured_range(n: i128, shape: Shape, lossy: bool) -> Range {
    match (lossy, monotonicity(shape)) {
        (false, _) => Range::exact(n),
        (true, Monotonicity::Raises) => Range::at_least(n),
        (true, Monotonicity::Lowers) => Range::at_most(n),
        (true, Monotonicity::RaisesUnsigned | Monotonicity::Either) => Range::ANY,
    }
}

/// The effect of further events on a number of this shape.
pub(super) fn monotonicity(shape: Shape) -> Monotonicity {
    match shape {
        Shape::Count => Monotonicity::Raises,
        Shape::Number(Monotonicity::RaisesUnsigned, true) => Monotonicity::Raises,
        Shape::Number(Monotonicity::RaisesUnsigned, false) => Monotonicity::Either,
        Shape::Number(more, _) => more,
        Shape::Plain(_) | Shape::Stats | Shape::Average | Shape::Samples | Shape::Hist | Shape::Other => Monotonicity::Either,
    }
}
