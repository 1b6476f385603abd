//! The script as the grammar sees it: every word and bracket with its place, nothing resolved or omitted. It serves code that
//! needs the form of the text, which the tree of [`super::ast`] lacks.

pub use super::grammar::Rule;

/// A shape of the grammar.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its rule.
    pub rule: Rule,
    /// Its first byte.
    pub start: usize,
    /// One past its last byte; blanks and comments may precede it.
    pub end: usize,
    /// Parentheses of a cast of the following operand, which the grammar alone cannot distinguish.
    pub cast: bool,
    /// The named shapes within it, in order. Between them are brackets, commas, blanks and comments.
    pub parts: Vec<Node>,
}

/// Converts a pair; `casts` has the starts of the parentheses of casts.
pub(super) fn shape(pair: super::read::Pair, casts: &std::collections::BTreeSet<u32>) -> Node {
    let (rule, span) = (pair.as_rule(), pair.as_span());
    let cast = rule == Rule::parens && casts.contains(&(span.start() as u32));
    Node { rule, start: span.start(), end: span.end(), cast, parts: pair.into_inner().map(|p| shape(p, casts)).collect() }
}
