//! A first scan of a script for brackets, strings and comments.
//!
//! Its limit on nesting is final. Its other errors are reported only if the grammar rejects the script, because attach points
//! may contain any character and mislead it.

use std::ops::Range;

use super::MAX_NESTING;
use crate::diag::{Diagnostic, Span};

/// The result of the scan.
#[derive(Default)]
pub struct Scan {
    /// Nested beyond [`MAX_NESTING`].
    pub too_deep: Option<Diagnostic>,
    /// Unterminated strings and comments, and brackets without partners.
    pub faults: Vec<Diagnostic>,
    /// The pieces at the top level.
    pub pieces: Vec<Range<usize>>,
    /// Is only the end missing?
    pub unfinished: bool,
}

/// Scans a whole script.
pub fn scan(text: &str, source: u16) -> Scan {
    let (bytes, found) = (text.as_bytes(), Scan::default());
    let mut scanner = Scanner { text, bytes, at: 0, source, open: Vec::new(), start: None, kind: Kind::Other, quiet: 0, found };
    if text.starts_with("#!") {
        scanner.skip_line();
    }
    while scanner.at < scanner.bytes.len() {
        scanner.step();
    }
    scanner.finish();
    scanner.found
}

/// The kind of a piece, as far as its end depends on it.
#[derive(PartialEq)]
enum Kind {
    /// A definition in C.
    C,
    /// `let`, `import`.
    Line,
    Other,
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    source: u16,
    /// Open brackets, `?` and (as `i`) `if`.
    open: Vec<(u8, usize)>,
    /// The start of the piece.
    start: Option<usize>,
    kind: Kind,
    /// Nothing is reported before this byte, which may be in an unterminated string.
    quiet: usize,
    found: Scan,
}

/// The maximum number of faults reported at once.
pub const MAX_FAULTS: usize = 20;

impl Scanner<'_> {
    fn span(&self, start: usize, end: usize) -> Span {
        Span { source: self.source, start: start as u32, end: end as u32, ..Span::default() }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn step(&mut self) {
        let byte = self.peek(0);
        if byte.is_ascii_whitespace() {
            self.at += 1;
            return;
        }
        if byte == b'/' && matches!(self.peek(1), b'/' | b'*') {
            return self.comment();
        }
        if self.start.is_none() {
            self.begin();
            if byte == b'#' {
                self.define();
                return self.end_piece();
            }
            if self.attach_text() {
                return;
            }
        }
        match byte {
            b'"' => self.string(),
            b'(' | b'[' | b'{' => self.opener(byte),
            b')' | b']' | b'}' => self.closer(byte),
            b'?' if self.kind != Kind::C => self.push(b'?'),
            b':' => {
                if self.open.last().is_some_and(|(o, _)| *o == b'?') {
                    self.open.pop();
                }
                self.at += 1;
            }
            b',' if self.open.is_empty() => {
                self.at += 1;
                self.skip_blanks();
                self.attach_text();
            }
            b';' => self.semicolon(),
            _ if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte == b'@' => self.word(),
            _ => self.at += 1,
        }
    }

    fn begin(&mut self) {
        self.start = Some(self.at);
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let word = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        self.kind = match rest.get(..word).unwrap_or(&[]) {
            b"struct" | b"union" | b"enum" | b"typedef" => Kind::C,
            b"let" | b"import" => Kind::Line,
            _ => Kind::Other,
        };
    }

    /// Skips an attach point with its colons, in which slashes and brackets have no meaning.
    fn attach_text(&mut self) -> bool {
        let mut at = self.at;
        let mut colons = 0;
        while let Some(byte) = self.bytes.get(at) {
            match byte {
                b'"' => {
                    let Some(end) = self.string_end(at) else { break };
                    at = end;
                    continue;
                }
                b',' | b'{' | b'}' | b';' => break,
                // A predicate, or a comment.
                b'/' if colons == 0 => break,
                b':' => colons += 1,
                b if b.is_ascii_whitespace() => break,
                _ => {}
            }
            at += 1;
        }
        if colons > 0 {
            self.at = at;
        }
        colons > 0
    }

    fn skip_blanks(&mut self) {
        while self.peek(0).is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            self.at += 1;
        }
    }

    /// Skips a `#` line, with its continuations and comments.
    fn define(&mut self) {
        while self.at < self.bytes.len() && self.peek(0) != b'\n' {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'/' | b'*') => self.comment(),
                (b'\\', b'\n') => self.at += 2,
                (b'\\', b'\r') if self.peek(2) == b'\n' => self.at += 3,
                _ => self.at += 1,
            }
        }
    }

    fn comment(&mut self) {
        if self.peek(1) == b'/' {
            return self.skip_line();
        }
        let start = self.at;
        let rest = self.bytes.get(start + 2..).unwrap_or(&[]);
        match rest.windows(2).position(|w| w == b"*/") {
            Some(length) => self.at = start + 2 + length + 2,
            None => {
                self.found.unfinished = self.found.faults.is_empty();
                let message = "this comment does not end";
                let fault = Diagnostic::error("unterminated-comment", self.span(start, start + 2), message);
                self.report(fault.help("close it with `*/`"));
                self.at = self.bytes.len();
                // Brackets that are open here may be closed in it.
                self.open.clear();
                self.end_piece();
            }
        }
    }

    /// The position after the closing quote.
    fn string_end(&self, start: usize) -> Option<usize> {
        let mut at = start + 1;
        loop {
            match self.bytes.get(at)? {
                b'"' => return Some(at + 1),
                b'\n' => return None,
                b'\\' if self.bytes.get(at + 1) != Some(&b'\n') => at += 2,
                _ => at += 1,
            }
        }
    }

    fn string(&mut self) {
        if let Some(end) = self.string_end(self.at) {
            self.at = end;
            return;
        }
        let start = self.at;
        self.skip_line();
        let length = self.text.get(start..self.at).map_or(1, |s| s.trim_end().len());
        let fault = Diagnostic::error("unterminated-string", self.span(start, start + length), "this string does not end on its line");
        self.report(fault.help(r#"close it with `"`; a line break within a string is written \n"#));
        // The brackets after the quote are most likely not part of a string.
        self.quiet = self.at;
        self.at = start + 1;
    }

    fn report(&mut self, fault: Diagnostic) {
        if self.at >= self.quiet && self.found.faults.len() < MAX_FAULTS {
            self.found.faults.push(fault);
        }
    }

    fn word(&mut self) {
        let start = self.at;
        self.at += 1;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
            self.at += 1;
        }
        if self.text.get(start..self.at) == Some("if") && self.kind != Kind::C {
            self.at = start;
            self.push(b'i');
            self.at = start + 2;
        }
    }

    fn push(&mut self, byte: u8) {
        self.open.push((byte, self.at));
        if self.open.len() > MAX_NESTING && self.found.too_deep.is_none() {
            let message = format!("nested too deeply: more than {MAX_NESTING} levels");
            let help = "put parts of it in variables or macros";
            self.found.too_deep = Some(Diagnostic::error("too-deep", self.span(self.at, self.at + 1), message).help(help));
            // The result is final.
            self.at = self.bytes.len();
            return;
        }
        self.at += 1;
    }

    fn pop_loose(&mut self) {
        while self.open.last().is_some_and(|(o, _)| matches!(o, b'?' | b'i')) {
            self.open.pop();
        }
    }

    fn opener(&mut self, byte: u8) {
        if byte == b'{' && self.open.last().is_some_and(|(o, _)| *o == b'i') {
            self.open.pop();
        }
        self.push(byte);
    }

    fn semicolon(&mut self) {
        self.pop_loose();
        while let Some((byte @ (b'(' | b'['), place)) = self.open.last().copied() {
            self.missing(byte, place, self.at, "`;`");
            self.open.pop();
            self.pop_loose();
        }
        self.at += 1;
        if self.open.is_empty() {
            self.end_piece();
        }
    }

    fn closer(&mut self, byte: u8) {
        self.pop_loose();
        let opener = match byte {
            b')' => b'(',
            b']' => b'[',
            _ => b'{',
        };
        let here = self.span(self.at, self.at + 1);
        let shown = char::from(byte);
        match self.open.iter().rposition(|(o, _)| *o == opener) {
            None => {
                let help = format!("remove it, or add `{}` before it", char::from(opener));
                let fault = Diagnostic::error("unbalanced", here, format!("this `{shown}` closes nothing")).help(help);
                self.report(fault);
                self.at += 1;
                if self.open.is_empty() {
                    self.end_piece();
                }
                return;
            }
            Some(index) => {
                let inner = self.open.split_off(index + 1);
                if let Some((open, place)) = inner.iter().rev().find(|(o, _)| !matches!(o, b'?' | b'i')) {
                    self.missing(*open, *place, self.at, &format!("`{shown}`"));
                }
                self.open.pop();
            }
        }
        self.at += 1;
        if self.open.is_empty() {
            self.closed(byte);
        }
    }

    /// Called after a bracket at the top level: is this the end of the piece?
    fn closed(&mut self, byte: u8) {
        let rest = self.text.get(self.at..).unwrap_or("");
        let next = rest.trim_start();
        if next.starts_with(';') {
            return;
        }
        let attribute = self.kind == Kind::C && next.starts_with("__attribute__");
        let c_end = self.kind == Kind::C && byte == b')' && !next.starts_with('{') && self.text_has_brace();
        if self.kind != Kind::Line && (byte == b'}' || c_end) && !attribute {
            self.end_piece();
        }
    }

    /// Does this piece contain its braces?
    fn text_has_brace(&self) -> bool {
        self.start.and_then(|s| self.bytes.get(s..self.at)).is_some_and(|b| b.contains(&b'}'))
    }

    /// Reports a bracket opened at `place` that has no partner at `at`.
    fn missing(&mut self, open: u8, place: usize, offset: usize, found: &str) {
        if offset < self.quiet || self.found.faults.len() >= MAX_FAULTS {
            return;
        }
        let close = match open {
            b'(' => ')',
            b'[' => ']',
            _ => '}',
        };
        let expected = if open == b'{' { "block".to_string() } else { format!("`{}`", char::from(open)) };
        let (line, column) = position(self.text, place);
        let message = format!("expected `{close}` to close the {expected} opened at {line}:{column}, found {found}");
        let fault = Diagnostic::error("unbalanced", self.span(offset, (offset + 1).min(self.bytes.len())), message);
        self.report(fault.related(self.span(place, place + 1), "opened here"));
    }

    fn end_piece(&mut self) {
        if let Some(start) = self.start.take() {
            self.found.pieces.push(start..self.at.min(self.bytes.len()));
        }
    }

    fn finish(&mut self) {
        self.at = self.bytes.len();
        let is_valid = self.found.faults.is_empty() && self.found.too_deep.is_none();
        // an `if` requires its block, but `?` may be at the end of an expression
        self.found.unfinished |= is_valid && self.open.iter().any(|(open, _)| *open != b'?');
        self.pop_loose();
        if let Some((open, place)) = self.open.last().copied() {
            let end = self.text.trim_end().len();
            self.missing(open, place, end, "the end");
        }
        self.end_piece();
    }
}

fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or("");
    let line = before.rfind('\n').map_or(0, |i| i + 1);
    (before.matches('\n').count() + 1, before.get(line..).map_or(0, |s| s.chars().count()) + 1)
}
