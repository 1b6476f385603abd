//! Expectations as written, before their names are known to exist.

use crate::diag::Span;
use crate::syntax::ast::{BinOp, Ident};

/// A part of an expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(super) kind: NodeKind,
    pub(super) span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeKind {
    /// An integer; durations are in nanoseconds.
    Number(u64),
    Text(Vec<u8>),
    Truth(bool),
    /// An enumerator, or a mistake.
    Word(String),
    /// `@m` or `@m[k, …]`, without the `@`.
    Map {
        name: String,
        key: Option<Vec<Node>>,
    },
    Call {
        name: Ident,
        args: Vec<Node>,
    },
    Negate(Box<Node>),
    Not(Box<Node>),
    Binary(BinOp, Box<Node>, Box<Node>),
    /// `(a, b)`, as a key.
    Tuple(Vec<Node>),
}
