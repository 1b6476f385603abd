//! The words of a script in the shapes of the grammar, with their comments.
//!
//! A comment that ends a line belongs to the word before it, and any other comment to the next word. The layout keeps these
//! places, so formatting the result again attaches each comment to the same word. This makes formatting idempotent.

#![allow(clippy::wildcard_enum_match_arm)] // only a few of the grammar's shapes have a special layout

use crate::syntax::shape::{Node, Rule};

/// A shape of the grammar with all its contents, except for blanks, comments and tokens that no canonical script has.
pub struct Tree {
    /// Its rule.
    pub rule: Rule,
    /// Are they the parentheses of a cast?
    pub cast: bool,
    /// The parts, in order.
    pub parts: Vec<ShapePart>,
}

/// A part of a shape.
pub enum ShapePart {
    /// An index into the list of words.
    Word(usize),
    /// A nested shape.
    Tree(Tree),
}

impl ShapePart {
    /// Its first word.
    pub fn first(&self) -> Option<usize> {
        match self {
            ShapePart::Word(i) => Some(*i),
            ShapePart::Tree(t) => t.parts.iter().find_map(ShapePart::first),
        }
    }

    /// The rule of its shape; none for a bracket or a comma.
    pub fn rule(&self, words: &[Word]) -> Option<Rule> {
        match self {
            ShapePart::Word(i) => words.get(*i).and_then(|w| w.rule),
            ShapePart::Tree(t) => Some(t.rule),
        }
    }
}

/// A word, a bracket, an operator, or a text that stays unchanged.
#[derive(Default)]
pub struct Word<'s> {
    /// As written; empty for the script's end.
    pub text: &'s str,
    /// None for tokens without a name in the grammar.
    pub rule: Option<Rule>,
    /// Comments before it.
    pub before: Vec<Comment<'s>>,
    /// Comments after it that end its line.
    pub after: Vec<&'s str>,
    /// Does an empty line precede it?
    pub blank: bool,
    start: usize,
    /// It is omitted in the result.
    omitted: bool,
}

/// A comment before a word.
pub struct Comment<'s> {
    /// With its delimiters.
    pub text: &'s str,
    /// It is on its own lines.
    pub on_own_line: bool,
    /// Does an empty line precede it?
    pub blank: bool,
}

/// Splits a script into words and shapes. The shape must be of this text.
pub fn read<'s>(text: &'s str, shape: &Node) -> (Tree, Vec<Word<'s>>) {
    let mut reader = Reader { text, words: Vec::new(), at: 0 };
    let tree = reader.tree(shape);
    let mut words = reader.words;
    comments(text, &mut words);
    (tree, words)
}

struct Reader<'s> {
    text: &'s str,
    words: Vec<Word<'s>>,
    /// Everything before this byte has been read.
    at: usize,
}

impl<'s> Reader<'s> {
    fn tree(&mut self, node: &Node) -> Tree {
        let mut parts = Vec::new();
        for inner in &node.parts {
            self.between(inner.start, &mut parts);
            if super::is_word(inner.rule) {
                parts.push(self.word(inner.start, inner.end, Some(inner.rule)));
            } else {
                parts.push(ShapePart::Tree(self.tree(inner)));
            }
        }
        self.between(node.end, &mut parts);
        let tree = Tree { rule: node.rule, cast: node.cast, parts };
        self.drop_needless(tree)
    }

    fn word(&mut self, start: usize, end: usize, rule: Option<Rule>) -> ShapePart {
        self.at = end;
        let text = self.text.get(start..end).unwrap_or("");
        self.words.push(Word { text, rule, start, ..Word::default() });
        ShapePart::Word(self.words.len() - 1)
    }

    /// Brackets and other tokens up to `end`.
    fn between(&mut self, end: usize, parts: &mut Vec<ShapePart>) {
        while let Some(rest) = self.text.get(self.at..end).filter(|r| !r.is_empty()) {
            let blanks = rest.len() - trim_start(rest).len();
            let length = match comment(&rest[blanks..]) {
                Some(comment) => {
                    self.at += blanks + comment.len();
                    continue;
                }
                None => mark(&rest[blanks..]),
            };
            if length == 0 {
                return;
            }
            parts.push(self.word(self.at + blanks, self.at + blanks + length, None));
        }
    }

    /// Drops repeated semicolons, and commas before a bracket.
    fn drop_needless(&mut self, mut tree: Tree) -> Tree {
        let last = tree.parts.len().saturating_sub(1);
        let mut needless = vec![false; tree.parts.len()];
        let text = |part: &ShapePart| match part {
            // an attach point may look like a bracket
            ShapePart::Word(i) => self.words.get(*i).filter(|w| w.rule != Some(Rule::attach_point)).map_or("", |w| w.text),
            ShapePart::Tree(_) => "",
        };
        let is_semicolon = |i: usize| tree.parts.get(i).is_some_and(|p| text(p) == ";");
        match tree.rule {
            Rule::script => (0..=last).filter(|i| is_semicolon(*i)).for_each(|i| needless[i] = true),
            Rule::block | Rule::settings => {
                for i in (1..=last).filter(|i| is_semicolon(*i)) {
                    // a block has no value if a semicolon follows
                    let is_end = tree.parts.iter().skip(i + 1).all(|p| matches!(text(p), ";" | "}"));
                    needless[i] = match &tree.parts[i - 1] {
                        ShapePart::Word(_) => true,
                        ShapePart::Tree(t) => match t.rule {
                            Rule::while_stmt | Rule::for_stmt | Rule::unroll_stmt => true,
                            Rule::if_expr | Rule::block => !is_end,
                            _ => false,
                        },
                    };
                }
            }
            _ => {
                for i in (0..last).filter(|i| text(&tree.parts[*i]) == ",") {
                    let one_value = tree.rule == Rule::parens && i == 2;
                    let next = &tree.parts[i + 1];
                    let closes = matches!(text(next), ")" | "]");
                    let begins = matches!(next, ShapePart::Tree(t) if matches!(t.rule, Rule::predicate | Rule::block));
                    needless[i] = (closes || begins) && !one_value;
                }
            }
        }
        let mut pos = 0;
        tree.parts.retain(|part| {
            let drop = needless[pos];
            pos += 1;
            if let (true, ShapePart::Word(i)) = (drop, part)
                && let Some(word) = self.words.get_mut(*i)
            {
                word.omitted = true;
            }
            !drop
        });
        tree
    }
}

/// Attaches comments to words.
fn comments<'s>(text: &'s str, words: &mut [Word<'s>]) {
    let kept: Vec<usize> = words.iter().enumerate().filter(|(_, w)| !w.omitted).map(|(i, _)| i).collect();
    let (mut from, mut before): (usize, Option<usize>) = (0, None);
    // The previous word is a separator that moves before a comment that ends the line.
    let mut passed = false;
    for i in kept {
        let Word { start, text: comment_text, rule, .. } = words[i];
        let is_end = rule == Some(Rule::EOI);
        let mut rest = text.get(from..start).unwrap_or("");
        from = start + comment_text.len();
        // the number of newlines before each comment, and finally before the word
        let mut found: Vec<(&str, usize)> = Vec::new();
        let mut lines = 0;
        loop {
            let blanks = rest.len() - trim_start(rest).len();
            lines += newlines(&rest[..blanks]);
            rest = &rest[blanks..];
            if let Some(comment) = comment(rest) {
                found.push((comment, lines));
                lines = 0;
                rest = &rest[comment.len()..];
            } else if let Some(c) = rest.chars().next() {
                rest = &rest[c.len_utf8()..];
            } else {
                break;
            }
        }
        words[i].blank = lines > 1;
        if is_end {
            lines = lines.max(1);
        }
        let ended = found.iter().skip(1).map(|(_, n)| *n).chain([lines]).collect::<Vec<_>>();
        let first_own = found.iter().position(|(_, n)| *n > 0).unwrap_or(found.len());
        // Comments before the first line break belong to the previous word, and those after the last one to the next
        // word.
        let first_inline = ended.iter().rposition(|n| *n > 0).map_or(0, |n| n + 1);
        for (n, (comment, lines)) in found.into_iter().enumerate() {
            match before {
                Some(b) if n < first_own && n < first_inline && !passed => words[b].after.push(comment),
                _ => words[i].before.push(Comment { text: comment, on_own_line: n < first_inline, blank: lines > 1 }),
            }
        }
        let ended = before.is_some_and(|b| words[b].after.last().is_some_and(|c| c.starts_with("//")));
        passed = ended && matches!(words[i].text, ";" | ",");
        before = Some(i);
    }
}

/// The comment at the start of a text.
fn comment(text: &str) -> Option<&str> {
    if text.starts_with("//") {
        return text.get(..text.find('\n').unwrap_or(text.len()));
    }
    let end = text.strip_prefix("/*")?.find("*/").map_or(text.len(), |i| i + 4);
    text.get(..end)
}

/// The length of the operator, bracket or word at the start of a text; 0 for white space.
fn mark(text: &str) -> usize {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word = text.len() - text.trim_start_matches(is_word).len();
    match text.get(..2) {
        _ if word > 0 => word,
        Some("->" | "..") => 2,
        _ => text.chars().next().map_or(0, char::len_utf8),
    }
}

/// As `WHITESPACE` of the grammar.
fn trim_start(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}', '\u{feff}'])
}

fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}
