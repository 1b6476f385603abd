//! Numbers with known bounds.

use crate::syntax::ast::BinOp;

/// All numbers from `min` to `max`; none means unbounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub min: Option<i128>,
    pub max: Option<i128>,
}

/// The reason for a missing result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undefined {
    DividedByZero,
    TooLarge,
}

impl Range {
    pub const ANY: Range = Range { min: None, max: None };

    pub fn exact(n: i128) -> Range {
        Range { min: Some(n), max: Some(n) }
    }

    pub fn at_least(n: i128) -> Range {
        Range { min: Some(n), max: None }
    }

    pub fn at_most(n: i128) -> Range {
        Range { min: None, max: Some(n) }
    }

    /// Its only number, if there is only one.
    pub fn only(self) -> Option<i128> {
        self.min.filter(|_| self.min == self.max)
    }

    /// A comparison; none if both results are possible.
    pub fn compare(self, op: BinOp, other: Range) -> Option<bool> {
        let below = |a: Range, b: Range| a.max.zip(b.min).is_some_and(|(a, b)| a < b);
        let not_above = |a: Range, b: Range| a.max.zip(b.min).is_some_and(|(a, b)| a <= b);
        let (yes, no) = match op {
            BinOp::Lt => (below(self, other), not_above(other, self)),
            BinOp::Le => (not_above(self, other), below(other, self)),
            BinOp::Gt => (below(other, self), not_above(self, other)),
            BinOp::Ge => (not_above(other, self), below(self, other)),
            BinOp::Eq | BinOp::Ne => {
                let same = self.only().is_some() && self.only() == other.only();
                let apart = below(self, other) || below(other, self);
                if op == BinOp::Eq { (same, apart) } else { (apart, same) }
            }
            BinOp::Mul
            | BinOp::Div
            | BinOp::Mod
            | BinOp::Add
            | BinOp::Sub
            | BinOp::Shl
            | BinOp::Shr
            | BinOp::BitAnd
            | BinOp::BitXor
            | BinOp::BitOr
            | BinOp::And
            | BinOp::Or => (false, false),
        };
        match (yes, no) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }

    pub fn negated(self) -> Result<Range, Undefined> {
        Ok(Range { min: of(self.max, i128::checked_neg)?, max: of(self.min, i128::checked_neg)? })
    }

    /// The range of a binary operator's result. Division truncates toward zero, as everywhere in the language.
    pub fn math(self, op: BinOp, other: Range) -> Result<Range, Undefined> {
        let both = |a: Option<i128>, b: Option<i128>, f: fn(i128, i128) -> Option<i128>| match a.zip(b) {
            Some((a, b)) => f(a, b).map(Some).ok_or(Undefined::TooLarge),
            None => Ok(None),
        };
        match op {
            BinOp::Add => {
                let (min, max) = (both(self.min, other.min, i128::checked_add)?, both(self.max, other.max, i128::checked_add)?);
                Ok(Range { min, max })
            }
            BinOp::Sub => self.math(BinOp::Add, other.negated()?),
            BinOp::Mul => match (self.only(), other.only()) {
                (_, Some(n)) => self.scaled(n, i128::checked_mul),
                (Some(n), None) => other.scaled(n, i128::checked_mul),
                (None, None) => Ok(Range::ANY),
            },
            BinOp::Div | BinOp::Mod if other.only() == Some(0) => Err(Undefined::DividedByZero),
            BinOp::Div => match other.only() {
                Some(n) => self.scaled(n, i128::checked_div),
                None => Ok(Range::ANY),
            },
            BinOp::Mod => self.exactly(other, i128::checked_rem),
            BinOp::BitAnd => self.exactly(other, |a, b| Some(a & b)),
            BinOp::BitOr => self.exactly(other, |a, b| Some(a | b)),
            BinOp::BitXor => self.exactly(other, |a, b| Some(a ^ b)),
            BinOp::Shl => self.exactly(other, |a, b| u32::try_from(b).ok().filter(|b| *b < 64).and_then(|b| a.checked_mul(1 << b))),
            BinOp::Shr => self.exactly(other, |a, b| u32::try_from(b).ok().filter(|b| *b < 64).map(|b| a >> b)),
            BinOp::Lt | BinOp::Gt | BinOp::Le | BinOp::Ge | BinOp::Eq | BinOp::Ne | BinOp::And | BinOp::Or => Ok(Range::ANY),
        }
    }

    /// Both bounds multiplied or divided by a number; a negative number swaps them.
    fn scaled(self, by: i128, f: fn(i128, i128) -> Option<i128>) -> Result<Range, Undefined> {
        let (min, max) = (of(self.min, |n| f(n, by))?, of(self.max, |n| f(n, by))?);
        Ok(if by < 0 { Range { min: max, max: min } } else { Range { min, max } })
    }

    fn exactly(self, other: Range, f: fn(i128, i128) -> Option<i128>) -> Result<Range, Undefined> {
        match self.only().zip(other.only()) {
            Some((a, b)) => f(a, b).map(Range::exact).ok_or(Undefined::TooLarge),
            None => Ok(Range::ANY),
        }
    }
}

fn of(bound: Option<i128>, f: impl Fn(i128) -> Option<i128>) -> Result<Option<i128>, Undefined> {
    bound.map(|n| f(n).ok_or(Undefined::TooLarge)).transpose()
}

/// In the form for messages.
impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.min, self.max) {
            (Some(a), Some(b)) if a == b => write!(f, "{a}"),
            (Some(a), Some(b)) => write!(f, "{a} to {b}"),
            (Some(a), None) => write!(f, "{a} or more"),
            (None, Some(b)) => write!(f, "{b} or less"),
            (None, None) => f.write_str("unknown"),
        }
    }
}
