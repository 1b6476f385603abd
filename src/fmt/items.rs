//! Layout items: the words of a script in order, with the places where lines may or must break.

#![allow(clippy::wildcard_enum_match_arm)] // the grammar determines which shapes can be nested

use std::borrow::Cow;

use super::layout::{BreakMode, Item};
use super::tokens::{Comment, ShapePart, Tree, Word};
use crate::syntax::shape::Rule;

/// The indent of a block's lines.
const INDENT: usize = 2;
/// The indent of the second and later lines of a statement.
pub(super) const CONTINUATION_INDENT: usize = 4;

/// The items of a whole script.
pub fn items<'s>(script: &Tree, words: &[Word<'s>]) -> Vec<Item<'s>> {
    let mut items = Items { words, leading_written: vec![false; words.len()], out: Vec::new() };
    items.script(script);
    items.out
}

/// The words, and the items built from them so far.
pub(super) struct Items<'a, 's> {
    pub(super) words: &'a [Word<'s>],
    /// Words whose leading comments have been written.
    leading_written: Vec<bool>,
    out: Vec<Item<'s>>,
}

/// The form of a block.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// One statement per line.
    Lines,
    /// On one line if it consists of a value only.
    Value,
}

impl<'s> Items<'_, 's> {
    pub(super) fn push(&mut self, item: Item<'s>) {
        self.out.push(item);
    }

    pub(super) fn open(&mut self, how: BreakMode, indent: usize) {
        self.push(Item::Open { indent, mode: how, broken: false });
    }

    fn add(&mut self, text: &'static str) {
        self.push(Item::Text(Cow::Borrowed(text)));
    }

    pub(super) fn is(&self, part: &ShapePart, text: &str) -> bool {
        matches!(part, ShapePart::Word(i) if self.words.get(*i).is_some_and(|w| w.text == text))
    }

    /// The comments before a word that begins a statement or an item, with the empty lines between them.
    fn leading_comments(&mut self, word: Option<usize>, is_first: bool, blank: bool) {
        let Some((i, word)) = word.and_then(|i| self.words.get(i).map(|w| (i, w))) else { return };
        let mut blank = blank;
        let mut is_first = is_first;
        for comment in &word.before {
            if (blank || comment.blank) && !is_first {
                self.push(Item::Blank);
            }
            self.comment(comment);
            (blank, is_first) = (false, false);
        }
        if (blank || word.blank) && !is_first && !word.text.is_empty() {
            self.push(Item::Blank);
        }
        self.leading_written[i] = true;
    }

    pub(super) fn comments_before(&mut self, i: usize) {
        let Some(word) = self.words.get(i) else { return };
        if std::mem::replace(&mut self.leading_written[i], true) {
            return;
        }
        word.before.iter().for_each(|c| self.comment(c));
    }

    fn comment(&mut self, comment: &Comment<'s>) {
        self.push(if comment.on_own_line { Item::Own(comment.text) } else { Item::Inline(comment.text) });
    }

    pub(super) fn word(&mut self, i: usize) {
        self.comments_before(i);
        let Some(word) = self.words.get(i) else { return };
        let text = match word.rule {
            Some(Rule::c_item | Rule::shebang) => clean(word.text),
            _ => Cow::Borrowed(word.text),
        };
        self.push(Item::Text(text));
        for comment in &word.after {
            self.push(Item::Tail(comment));
        }
    }

    pub(super) fn part(&mut self, part: &ShapePart) {
        match part {
            ShapePart::Word(i) => self.word(*i),
            ShapePart::Tree(t) => self.tree(t),
        }
    }

    fn tree(&mut self, t: &Tree) {
        match t.rule {
            Rule::script => self.script(t),
            Rule::settings => self.settings(t),
            Rule::macro_item | Rule::function_item | Rule::map_item => self.definition(t),
            Rule::traced_item => self.probe(t),
            Rule::block => self.block(&t.parts, Style::Value),
            Rule::if_expr => self.if_expr(t, Style::Value),
            Rule::while_stmt | Rule::for_stmt | Rule::unroll_stmt => self.loop_stmt(t),
            Rule::expr => self.expr(t),
            Rule::chain => self.chain(&t.parts),
            Rule::arguments | Rule::keys | Rule::parens | Rule::type_tuple | Rule::index => self.list(&t.parts),
            Rule::type_name | Rule::certain_type | Rule::typeof_atom => self.type_name(t),
            Rule::setting | Rule::import | Rule::let_stmt | Rule::return_stmt | Rule::import_stmt => self.spaced(t),
            Rule::expr_stmt | Rule::condition | Rule::tagged | Rule::function_param => self.spaced(t),
            _ => self.without_spaces(t),
        }
    }

    /// Words, separated by spaces.
    fn spaced(&mut self, t: &Tree) {
        for (n, part) in t.parts.iter().enumerate() {
            if n > 0 && !self.is(part, ";") && !self.is(part, ":") {
                self.push(Item::Space);
            }
            self.part(part);
        }
    }

    /// Words without spaces, except after commas.
    pub(super) fn without_spaces(&mut self, t: &Tree) {
        for part in &t.parts {
            self.part(part);
            if self.is(part, ",") {
                self.push(Item::Space);
            }
        }
    }

    // ── the top level ──

    fn script(&mut self, t: &Tree) {
        let mut before: Option<Rule> = None;
        for part in &t.parts {
            let rule = part.rule(self.words);
            let is_block = |r: Option<Rule>| {
                r.is_some_and(|r| [Rule::settings, Rule::macro_item, Rule::function_item, Rule::traced_item].contains(&r))
            };
            let is_end = rule == Some(Rule::EOI);
            let section = |r: Option<Rule>| r.map(|r| [Rule::c_item, Rule::import].iter().position(|s| *s == r));
            let apart = is_block(before) || is_block(rule) || section(before) != section(rule);
            let blank = before.is_some() && before != Some(Rule::shebang) && !is_end && apart;
            self.push(Item::Hard);
            self.leading_comments(part.first(), before.is_none(), blank);
            self.part(part);
            before = rule;
        }
    }

    /// `config = { … }`
    fn settings(&mut self, t: &Tree) {
        let brace = t.parts.iter().position(|p| self.is(p, "{")).unwrap_or(0);
        let (head, block) = t.parts.split_at(brace);
        for part in head {
            self.part(part);
            self.push(Item::Space);
        }
        self.block(block, Style::Lines);
    }

    /// A macro, a function, or the declaration of a map.
    fn definition(&mut self, t: &Tree) {
        let open = t.parts.iter().position(|p| self.is(p, "(")).unwrap_or(0);
        let close = t.parts.iter().position(|p| self.is(p, ")")).map_or(t.parts.len(), |i| i + 1).max(open);
        for (n, part) in t.parts[..open].iter().enumerate() {
            if n > 0 {
                self.push(Item::Space);
            }
            self.part(part);
        }
        self.list(&t.parts[open..close]);
        for part in &t.parts[close..] {
            if !self.is(part, ":") && !self.is(part, ";") {
                self.push(Item::Space);
            }
            match part {
                ShapePart::Tree(b) if b.rule == Rule::block && t.rule == Rule::function_item => self.block(&b.parts, Style::Lines),
                _ => self.part(part),
            }
        }
    }

    /// Attach points, one per line, then the predicate and the block. A single attach point is on the same line as the block.
    fn probe(&mut self, t: &Tree) {
        let several = t.parts.iter().any(|p| self.is(p, ","));
        self.push(Item::Open { indent: 0, mode: BreakMode::All, broken: several });
        for (n, part) in t.parts.iter().enumerate() {
            match part {
                ShapePart::Tree(b) if b.rule == Rule::block => {
                    // the last two of three slashes would hide the brace's line from the scan, for which the first then
                    // begins a predicate
                    let slashes = t.parts.get(n.saturating_sub(1)).and_then(ShapePart::first).and_then(|i| self.words.get(i));
                    self.push(if slashes.is_some_and(|w| w.text.contains("///")) { Item::Space } else { Item::Break });
                    self.push(Item::Close);
                    self.block(&b.parts, Style::Lines);
                }
                ShapePart::Tree(p) if p.rule == Rule::predicate => {
                    self.push(Item::Break);
                    self.part(part);
                }
                _ => {
                    self.part(part);
                    if self.is(part, ",") {
                        self.push(Item::Break);
                    }
                }
            }
        }
    }

    // ── statements ──

    fn block(&mut self, parts: &[ShapePart], style: Style) {
        let inside = parts.get(1..parts.len().saturating_sub(1)).unwrap_or(&[]);
        let (Some(ShapePart::Word(first)), Some(ShapePart::Word(last))) = (parts.first(), parts.last()) else { return };
        let bare = self.words.get(*last).is_some_and(|w| w.before.is_empty());
        if inside.is_empty() && self.words.get(*last).is_some_and(|w| w.before.iter().all(|c| !c.on_own_line)) {
            self.word(*first);
            return self.word(*last);
        }
        if style == Style::Value && bare && is_value(inside) {
            self.open(BreakMode::All, 0);
            self.word(*first);
            self.open(BreakMode::Outer, INDENT);
            self.push(Item::Break);
            inside.iter().for_each(|p| self.part(p));
            self.push(Item::Close);
            self.push(Item::Break);
            self.word(*last);
            return self.push(Item::Close);
        }
        self.word(*first);
        self.open(BreakMode::All, INDENT);
        let mut is_first = true;
        for (n, part) in inside.iter().enumerate() {
            if self.is(part, ";") {
                self.part(part);
                continue;
            }
            self.push(Item::Hard);
            self.leading_comments(part.first(), is_first, false);
            is_first = false;
            self.stmt(part);
            if !inside.get(n + 1).is_some_and(|p| self.is(p, ";")) && wants_semicolon(part, self.words) {
                self.add(";");
            }
        }
        self.push(Item::Hard);
        self.end_comments(*last, is_first);
        self.push(Item::Close);
        self.push(Item::Hard);
        self.word(*last);
    }

    /// Comments at the end of a block, each on its own line.
    fn end_comments(&mut self, i: usize, is_first: bool) {
        let Some(word) = self.words.get(i) else { return };
        let mut is_first = is_first;
        for comment in &word.before {
            if comment.blank && !is_first {
                self.push(Item::Blank);
            }
            is_first = false;
            self.push(Item::Own(comment.text));
        }
        self.leading_written[i] = true;
    }

    fn stmt(&mut self, part: &ShapePart) {
        match part {
            ShapePart::Tree(t) if t.rule == Rule::block => self.block(&t.parts, Style::Lines),
            ShapePart::Tree(t) if t.rule == Rule::if_expr => self.if_expr(t, Style::Lines),
            _ => self.part(part),
        }
    }

    fn if_expr(&mut self, t: &Tree, style: Style) {
        let all_values = t.parts.iter().all(|p| match p {
            ShapePart::Tree(b) if b.rule == Rule::block => is_value(b.parts.get(1..b.parts.len().saturating_sub(1)).unwrap_or(&[])),
            _ => true,
        });
        let style = if all_values { style } else { Style::Lines };
        // either all or none of its blocks are broken
        self.open(BreakMode::All, 0);
        for (n, part) in t.parts.iter().enumerate() {
            if n > 0 {
                self.push(Item::Space);
            }
            match part {
                ShapePart::Tree(b) if b.rule == Rule::block => self.branch(&b.parts, style),
                _ => self.part(part),
            }
        }
        self.push(Item::Close);
    }

    fn branch(&mut self, parts: &[ShapePart], style: Style) {
        let from = self.out.len();
        self.block(parts, style);
        if let (Style::Value, Some(Item::Open { mode: how, .. })) = (style, self.out.get_mut(from)) {
            *how = BreakMode::Outer;
        }
    }

    /// `while`, `for`, `unroll`.
    fn loop_stmt(&mut self, t: &Tree) {
        let mut space = false;
        for (n, part) in t.parts.iter().enumerate() {
            let after = self.is(part, "..") || self.is(part, "(");
            let before = n > 0 && !self.is(part, "..") && !self.is(part, ")");
            let call = t.rule == Rule::unroll_stmt && n == 1 && part.first().is_some_and(|i| self.is(&ShapePart::Word(i), "("));
            if space && before && !call {
                self.push(Item::Space);
            }
            space = !after;
            self.stmt(part);
        }
    }
}

/// Does the block consist of a value only?
fn is_value(inside: &[ShapePart]) -> bool {
    matches!(inside, [ShapePart::Tree(t)] if t.rule == Rule::expr_stmt && t.parts.len() == 1)
}

/// Can this statement end with a semicolon without a change of meaning? An expression at the end of a block is the
/// block's value only without one, and a block has none.
fn wants_semicolon(part: &ShapePart, words: &[Word]) -> bool {
    match part {
        ShapePart::Tree(t) => match t.rule {
            Rule::expr_stmt => t.parts.iter().any(|p| p.rule(words) == Some(Rule::assign_op)),
            Rule::if_expr | Rule::block | Rule::while_stmt | Rule::for_stmt | Rule::unroll_stmt => false,
            _ => true,
        },
        ShapePart::Word(_) => false,
    }
}

/// Lines of C, without trailing blanks and carriage returns.
fn clean(text: &str) -> Cow<'_, str> {
    let text = text.trim_end();
    if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}
