//! Layout items of expressions and types.

use super::items::{CONTINUATION_INDENT, Items};
use super::layout::{BreakMode, Item};
use super::tokens::{ShapePart, Tree};
use crate::syntax::ast::BinOp;
use crate::syntax::shape::Rule;

impl Items<'_, '_> {
    /// Brackets and their contents.
    pub(super) fn list(&mut self, parts: &[ShapePart]) {
        self.open(BreakMode::Fill, CONTINUATION_INDENT);
        for (n, part) in parts.iter().enumerate() {
            if let (ShapePart::Word(i), true) = (part, n + 1 == parts.len()) {
                // a bracket alone on its line is aligned with the start of the statement
                self.comments_before(*i);
                self.push(Item::Close);
                return self.word(*i);
            }
            self.part(part);
            if self.is(part, ",") {
                let more = parts.get(n + 1).is_some_and(|p| !self.is(p, ")"));
                self.push(if more { Item::Break } else { Item::Space });
            }
        }
        self.push(Item::Close);
    }

    /// A chain of operands, or of conditions and their values.
    pub(super) fn expr(&mut self, t: &Tree) {
        if t.parts.len() < 2 {
            return self.without_spaces(t);
        }
        // Several conditions are on separate lines.
        let several = t.parts.iter().filter(|p| self.is(p, "?")).count() > 1;
        self.open(BreakMode::All, CONTINUATION_INDENT);
        let mut after_question = false;
        for (n, part) in t.parts.iter().enumerate() {
            let (question, colon) = (self.is(part, "?"), self.is(part, ":"));
            if several && t.parts.get(n + 1).is_some_and(|p| self.is(p, "?")) {
                self.open(BreakMode::Fill, CONTINUATION_INDENT);
            }
            if several && colon && !after_question {
                self.push(Item::Close);
            }
            if question || (colon && !after_question) {
                self.push(Item::Break);
            }
            self.part(part);
            if several && colon && after_question {
                self.push(Item::Close);
            }
            if colon || (question && !t.parts.get(n + 1).is_some_and(|p| self.is(p, ":"))) {
                self.push(Item::Space);
            }
            after_question = question;
        }
        self.push(Item::Close);
    }

    /// Operands and operators. If they need several lines, the lines break at the operators with the lowest precedence.
    pub(super) fn chain(&mut self, parts: &[ShapePart]) {
        let mut operators = Vec::new();
        let mut operand = true;
        for (n, part) in parts.iter().enumerate() {
            match part {
                ShapePart::Word(i) => match self.words.get(*i).and_then(|w| w.rule) {
                    Some(Rule::binary_op) if !operand => {
                        let level = self.words.get(*i).and_then(|w| BinOp::of(w.text)).map_or(0, BinOp::level);
                        operators.push((n, level));
                        operand = true;
                    }
                    Some(Rule::prefix | Rule::bang | Rule::binary_op | Rule::step) => {}
                    _ => operand = false,
                },
                ShapePart::Tree(t) => operand = operand && t.rule == Rule::parens && t.cast,
            }
        }
        self.run(parts, 0, &operators);
    }

    /// The parts of a chain from `from` on, with the operators between them.
    fn run(&mut self, parts: &[ShapePart], from: usize, operators: &[(usize, u8)]) {
        let Some(lowest) = operators.iter().map(|(_, l)| *l).min() else { return self.operand(parts) };
        let logical = lowest <= BinOp::And.level();
        self.open(if logical { BreakMode::All } else { BreakMode::Fill }, CONTINUATION_INDENT);
        let (mut start, mut first) = (from, 0);
        for (n, (at, _)) in operators.iter().enumerate().filter(|(_, (_, l))| *l == lowest) {
            self.run(slice(parts, start - from, at - from), start, operators.get(first..n).unwrap_or(&[]));
            self.push(Item::Space);
            if let Some(operator) = parts.get(at - from) {
                self.part(operator);
            }
            self.push(Item::Break);
            (start, first) = (at + 1, n + 1);
        }
        self.run(slice(parts, start - from, parts.len()), start, operators.get(first..).unwrap_or(&[]));
        self.push(Item::Close);
    }

    fn operand(&mut self, parts: &[ShapePart]) {
        for part in parts {
            self.part(part);
            if self.is(part, "comptime") {
                self.push(Item::Space);
            }
        }
    }

    /// `struct x *`, `uint8 *[4]`
    pub(super) fn type_name(&mut self, t: &Tree) {
        for (n, part) in t.parts.iter().enumerate() {
            if n == 1 && part.rule(self.words) == Some(Rule::star) {
                self.push(Item::Space);
            }
            self.part(part);
        }
    }
}

fn slice(parts: &[ShapePart], from: usize, to: usize) -> &[ShapePart] {
    parts.get(from..to).unwrap_or(&[])
}
