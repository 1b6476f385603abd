//! Turns items into lines of bounded width: a pretty printer after Oppen ("Prettyprinting", 1980), with comments.
//!
//! It does not know the language, except that a comment after a word may follow a semicolon or comma.

use std::borrow::Cow;

/// An element of the layout.
pub enum Item<'s> {
    /// Text that does not change.
    Text(Cow<'s, str>),
    /// A space, which is omitted at the start and the end of a line.
    Space,
    /// A possible line break; otherwise a space.
    Break,
    /// A line break.
    Hard,
    /// An empty line before the next line.
    Blank,
    /// A comment that ends its line.
    Tail(&'s str),
    /// A comment on its own lines.
    Own(&'s str),
    /// A comment within a line.
    Inline(&'s str),
    /// The start of a group, which is one line if it fits.
    Open {
        /// The indent of the lines that begin in the group.
        indent: usize,
        /// The places where it breaks.
        mode: BreakMode,
        /// It breaks even if it fits.
        broken: bool,
    },
    /// The end of a group.
    Close,
}

/// The places where a group that does not fit its line breaks.
#[derive(Clone, Copy, PartialEq)]
pub enum BreakMode {
    /// At every break.
    All,
    /// At a break whose following text does not fit the line.
    Fill,
    /// At the same places as the surrounding group.
    Outer,
}

/// Lays out all items.
pub fn lay_out(items: &[Item], width: usize) -> String {
    let plan = plan(items);
    let mut p = Printer::new();
    let mut open: Vec<(BreakMode, usize, bool)> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let (how, indent, flat) = open.last().copied().unwrap_or((BreakMode::All, 0, false));
        p.indent = indent;
        // the text up to the next possible line break
        let length = |from: usize| plan.at(plan.next.get(i).copied().unwrap_or(0)).saturating_sub(plan.at(from));
        match item {
            Item::Text(text) => p.text(text),
            Item::Space => p.space = true,
            Item::Break if flat => p.space = true,
            Item::Break if how == BreakMode::Fill && p.column() + 1 + length(i + 1) <= width => p.space = true,
            Item::Break | Item::Hard => p.newline(),
            Item::Blank => p.blank = true,
            Item::Tail(comment) => p.tails.push(comment),
            Item::Own(comment) => p.own_line(comment),
            Item::Inline(comment) => p.inline(comment),
            Item::Open { indent: more, mode: wanted, broken } => {
                let forced = *broken || plan.forced.get(i).copied().unwrap_or(false);
                let fits = !forced && p.column() + usize::from(p.space) + length(i) <= width;
                open.push(match wanted {
                    BreakMode::Outer => (how, indent + more, flat),
                    BreakMode::All | BreakMode::Fill => (*wanted, indent + more, flat || fits),
                });
            }
            Item::Close => {
                open.pop();
                p.next_indent = p.next_indent.min(open.last().map_or(0, |o| o.1));
            }
        }
    }
    p.newline();
    p.out
}

struct Plan {
    /// The total width of the items before each item, if they were on one line.
    before: Vec<usize>,
    /// For a group or a break: the item at which the next line may begin.
    next: Vec<usize>,
    /// For a group: it contains a line break regardless of its width.
    forced: Vec<bool>,
}

impl Plan {
    fn at(&self, item: usize) -> usize {
        self.before.get(item).copied().unwrap_or(0)
    }
}

fn plan(items: &[Item]) -> Plan {
    let mut before = Vec::with_capacity(items.len() + 1);
    let mut sum = 0;
    for item in items {
        before.push(sum);
        sum += match item {
            Item::Text(text) => first_line(text).chars().count(),
            Item::Inline(text) => first_line(text).chars().count() + 1,
            Item::Space | Item::Break => 1,
            Item::Hard | Item::Blank | Item::Tail(_) | Item::Own(_) | Item::Open { .. } | Item::Close => 0,
        };
    }
    before.push(sum);
    Plan { before, next: next_breaks(items), forced: forced(items) }
}

fn next_breaks(items: &[Item]) -> Vec<usize> {
    let mut next = vec![items.len(); items.len()];
    // For each open group, the next break in it or around it; and the next line break anywhere.
    let mut nearest = vec![items.len()];
    let mut hard = items.len();
    for (i, item) in items.iter().enumerate().rev() {
        let here = nearest.last().copied().unwrap_or(hard).min(hard);
        match item {
            Item::Close => nearest.push(here),
            Item::Open { mode: how, .. } => {
                nearest.pop();
                next[i] = nearest.last().copied().unwrap_or(hard).min(hard);
                if let (BreakMode::Outer, Some(outer)) = (how, nearest.last_mut()) {
                    *outer = here;
                }
            }
            Item::Break => {
                next[i] = here;
                if let Some(last) = nearest.last_mut() {
                    *last = i;
                }
            }
            Item::Hard | Item::Own(_) => hard = i,
            Item::Text(text) if text.contains('\n') => hard = i + 1,
            Item::Inline(text) if text.contains('\n') => hard = i + 1,
            Item::Text(_) | Item::Inline(_) | Item::Tail(_) | Item::Space | Item::Blank => {}
        }
    }
    next
}

fn forced(items: &[Item]) -> Vec<bool> {
    let mut forced = vec![false; items.len()];
    let mut open: Vec<usize> = Vec::new();
    // The number of open groups that were open at a comment behind a word: if they continue, they continue on another
    // line.
    let mut tail = 0;
    for (i, item) in items.iter().enumerate() {
        let mut groups = match item {
            Item::Open { .. } => {
                open.push(i);
                0
            }
            Item::Close => {
                open.pop();
                tail = tail.min(open.len());
                0
            }
            Item::Tail(_) => {
                tail = open.len();
                0
            }
            Item::Hard | Item::Own(_) => open.len(),
            Item::Text(text) if passes(text) => 0,
            Item::Text(text) if text.contains('\n') => open.len(),
            Item::Inline(text) if text.contains('\n') => open.len(),
            Item::Text(_) | Item::Inline(_) => std::mem::take(&mut tail),
            Item::Break | Item::Space | Item::Blank => 0,
        };
        // a group that contains a broken one is broken as well
        while let Some(group) = groups.checked_sub(1).and_then(|g| open.get(g)).filter(|g| !forced[**g]) {
            forced[*group] = true;
            groups -= 1;
        }
    }
    forced
}

/// Is this text written before a comment that ends the line, although it follows the comment?
fn passes(text: &str) -> bool {
    matches!(text, ";" | ",")
}

fn first_line(text: &str) -> &str {
    text.split('\n').next().unwrap_or(text)
}

struct Printer<'s> {
    out: String,
    indent: usize,
    /// The indent of the next line: that at the end of the previous line, or less.
    next_indent: usize,
    /// Characters in the current line.
    column: usize,
    /// The current line is empty and has no indent yet.
    at_line_start: bool,
    space: bool,
    blank: bool,
    /// Comments that must be written before the end of the line.
    tails: Vec<&'s str>,
}

impl<'s> Printer<'s> {
    fn new() -> Self {
        Self {
            out: String::new(),
            indent: 0,
            next_indent: 0,
            column: 0,
            at_line_start: true,
            space: false,
            blank: false,
            tails: Vec::new(),
        }
    }

    fn column(&self) -> usize {
        if self.at_line_start { self.next_indent } else { self.column }
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.tails.is_empty() && !passes(text) {
            self.newline();
        }
        if !self.at_line_start && ((self.space && !matches!(text, ";" | "," | ")" | "]")) || self.would_join_previous(text)) {
            self.push(" ");
        }
        self.space = false;
        self.push(text);
    }

    /// Would the text and the text before it read as one word?
    fn would_join_previous(&self, text: &str) -> bool {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '@' | '#');
        match (self.out.chars().next_back(), text.chars().next()) {
            (Some(a), Some(b)) if word(a) && word(b) => true,
            (Some(a), Some(b)) => (a == b && "-+&|/=<>.".contains(a)) || matches!((a, b), ('/', '*') | ('-', '>')),
            _ => false,
        }
    }

    fn push(&mut self, text: &str) {
        if std::mem::take(&mut self.at_line_start) {
            if std::mem::take(&mut self.blank) && !self.out.is_empty() {
                self.out.push('\n');
            }
            self.out.extend(std::iter::repeat_n(' ', self.next_indent));
            self.column = self.next_indent;
        }
        self.out.push_str(text);
        match text.rfind('\n') {
            Some(end) => self.column = text[end + 1..].chars().count(),
            None => self.column += text.chars().count(),
        }
    }

    fn newline(&mut self) {
        self.space = false;
        let mut after_line_comment = false;
        for tail in std::mem::take(&mut self.tails) {
            if after_line_comment {
                self.end_line();
            } else {
                self.push(" ");
            }
            self.comment(tail);
            after_line_comment = tail.starts_with("//");
        }
        self.end_line();
    }

    fn end_line(&mut self) {
        if !std::mem::replace(&mut self.at_line_start, true) {
            self.out.push('\n');
        }
        self.next_indent = self.indent;
    }

    fn own_line(&mut self, comment: &str) {
        self.newline();
        self.comment(comment);
        self.end_line();
    }

    fn inline(&mut self, comment: &str) {
        if !self.tails.is_empty() {
            self.newline();
        }
        if !self.at_line_start && !self.out.ends_with(['(', '[']) {
            self.push(" ");
        }
        self.comment(comment);
        self.space = true;
    }

    /// Removes trailing blanks from the lines of a comment, and aligns the stars with the first one.
    fn comment(&mut self, comment: &str) {
        let mut lines = comment.split('\n').map(str::trim_end);
        self.push(lines.next().unwrap_or(""));
        let first = comment.split('\n').next().map_or(0, |l| l.trim_end().chars().count());
        let stars = comment.split('\n').skip(1).all(|l| l.trim_start().starts_with('*'));
        let below = " ".repeat((self.column + 1).saturating_sub(first));
        for line in lines {
            let line = if stars { format!("\n{below}{}", line.trim_start()) } else { format!("\n{line}") };
            self.push(&line);
        }
    }
}
