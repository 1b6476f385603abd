//! Parses expectations: text to a [`Node`].
//!
//! Expectations are a small part of the script language, with the same literals, operators and precedences. They have a
//! parser of their own because `rbt-run` evaluates them, too, and does not contain the grammar of scripts.

use std::ops::Range;

use super::tree::{Node, NodeKind};
use crate::diag::{Diagnostic, Diagnostics, Source, Span};
use crate::literal;
use crate::syntax::ast::{BinOp, Ident, MAX_HEIGHT};

/// Maximum nesting of brackets.
const MAX_NESTING: usize = 100;

/// Quotes that are not those of strings.
const QUOTES: &[char] = &['“', '”', '„', '‘', '’'];

/// Operators that change a variable. None of them can be in an expectation.
const ASSIGNMENTS: &[&str] = &["<<=", ">>=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="];

/// Parses the expectation at `range`, in bytes, of the source at `index`. Codes: `syntax`, `bad-number`, `bad-escape`,
/// `unbalanced`, `unterminated-string`, `unterminated-comment`, `too-deep`, `no-value`, `not-assignable`,
/// `unsupported-expectation`.
///
/// # Errors
/// It is not an expectation.
pub fn parse(source: &Source, index: u16, range: Range<usize>) -> Result<Node, Diagnostics> {
    let text = source.text.get(..range.end).unwrap_or(&source.text);
    let mut parser = Parser { source, text, index, at: range.start, last: range.start..range.start, open: Vec::new(), operations: 0 };
    let tree = parser.skip_blanks().and_then(|()| parser.expression(0)).and_then(|tree| match parser.rest() {
        "" => Ok(tree),
        _ => Err(parser.unexpected()),
    });
    tree.map_err(|errors| *errors)
}

type Parsed<T> = Result<T, Box<Diagnostics>>;

/// A bracket that is not closed yet.
#[derive(Clone, Copy)]
struct Open {
    bracket: char,
    at: usize,
}

impl Open {
    fn partner(self) -> char {
        if self.bracket == '(' { ')' } else { ']' }
    }
}

struct Parser<'a> {
    source: &'a Source,
    /// Up to the end of the expectation.
    text: &'a str,
    index: u16,
    /// The next token.
    at: usize,
    /// The one before it.
    last: Range<usize>,
    open: Vec<Open>,
    operations: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn span(&self, range: Range<usize>) -> Span {
        Span { source: self.index, start: range.start as u32, end: range.end as u32, ..Span::default() }
    }

    /// Moves behind a token, and the blanks and comments after it.
    fn advance(&mut self, length: usize) -> Parsed<Span> {
        self.last = self.at..self.at + length;
        self.at += length;
        self.skip_blanks()?;
        Ok(self.span(self.last.clone()))
    }

    fn skip_blanks(&mut self) -> Parsed<()> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}', '\u{feff}']).len();
            let comment = rest.get(blank..).unwrap_or("");
            let length = if comment.starts_with("//") {
                comment.find('\n').unwrap_or(comment.len())
            } else if comment.starts_with("/*") {
                let Some(end) = comment.find("*/") else {
                    let start = self.at + blank;
                    let fault = Diagnostic::error("unterminated-comment", self.span(start..start + 2), "this comment does not end");
                    return Err(fail(fault.help("close it with `*/`")));
                };
                end + 2
            } else {
                0
            };
            if blank + length == 0 {
                return Ok(());
            }
            self.at += blank + length;
        }
    }

    /// Counts an operation: the height of the tree is limited.
    fn count(&mut self, span: Span) -> Parsed<()> {
        self.operations += 1;
        if self.operations <= MAX_HEIGHT {
            return Ok(());
        }
        Err(fail(Diagnostic::error("too-deep", span, format!("an expectation of more than {MAX_HEIGHT} operations"))))
    }

    /// Operands, joined by operators of at least this precedence.
    fn expression(&mut self, min_level: u8) -> Parsed<Node> {
        let mut left = self.operand()?;
        while let Some(op) = self.operator().filter(|op| op.level() >= min_level) {
            let place = self.advance(op.symbol().len())?;
            self.count(place)?;
            let right = self.expression(op.level() + 1)?;
            let span = left.span.to(right.span);
            left = Node { kind: NodeKind::Binary(op, Box::new(left), Box::new(right)), span };
        }
        Ok(left)
    }

    /// The longest operator here.
    fn operator(&self) -> Option<BinOp> {
        let rest = self.rest();
        if ASSIGNMENTS.iter().any(|symbol| rest.starts_with(symbol)) {
            return None;
        }
        BinOp::ALL.into_iter().filter(|op| rest.starts_with(op.symbol())).max_by_key(|op| op.symbol().len())
    }

    fn operand(&mut self) -> Parsed<Node> {
        let mut prefixes = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with("++") || rest.starts_with("--") {
                return Err(self.changes(self.span(self.at..self.at + 2)));
            }
            let Some(prefix) = rest.chars().next().filter(|c| "-!".contains(*c)) else { break };
            let place = self.advance(1)?;
            self.count(place)?;
            prefixes.push((prefix, place));
        }
        let mut node = self.value()?;
        self.check_suffix(&node)?;
        for (prefix, place) in prefixes.into_iter().rev() {
            let span = place.to(node.span);
            let of = Box::new(node);
            node = Node { kind: if prefix == '-' { NodeKind::Negate(of) } else { NodeKind::Not(of) }, span };
        }
        Ok(node)
    }

    /// Rejects what may follow a value in a script, but not in an expectation.
    fn check_suffix(&self, value: &Node) -> Parsed<()> {
        let rest = self.rest();
        if rest.starts_with("++") || rest.starts_with("--") {
            return Err(self.changes(value.span.to(self.span(self.at..self.at + 2))));
        }
        let whole = value.span.to(self.span(self.at..self.at + rest.chars().next().map_or(0, char::len_utf8)));
        let is_cast = matches!(value.kind, NodeKind::Word(_)) && self.text.get(..self.last.end).is_some_and(|t| t.ends_with(')'));
        if rest.starts_with(['?', '.', '[']) || rest.starts_with("->") || is_cast && starts_value(rest) {
            return Err(self.unsupported(whole));
        }
        Ok(())
    }

    fn value(&mut self) -> Parsed<Node> {
        let rest = self.rest();
        match rest.chars().next() {
            Some('0'..='9') => {
                let text = word(rest);
                let span = self.advance(text.len())?;
                match literal::parse_int(text) {
                    Ok(n) => Ok(Node { kind: NodeKind::Number(n), span }),
                    Err(message) => Err(fail(Diagnostic::error("bad-number", span, message))),
                }
            }
            Some('"') => self.string(),
            Some('@') => self.map(),
            Some('(') => {
                let start = self.at;
                let (mut parts, commas) = self.list('(')?;
                let span = self.span(start..self.last.end);
                match parts.pop() {
                    Some(only) if parts.is_empty() && commas == 0 => Ok(Node { span, ..only }),
                    last => {
                        parts.extend(last);
                        Ok(Node { kind: NodeKind::Tuple(parts), span })
                    }
                }
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.named(),
            Some('$') => {
                let name = rest.get(1..).unwrap_or("");
                let length = 1 + if name.starts_with('#') { 1 } else { word(name).len() };
                let shown = rest.get(..length).unwrap_or(rest);
                let error = Diagnostic::error(
                    "no-value",
                    self.span(self.at..self.at + length),
                    format!("`{shown}` exists only while the script runs"),
                );
                Err(fail(error.help("store it in a map, `@name = …`, for the expectation")))
            }
            Some('~' | '*' | '&' | '{') => Err(self.unsupported(self.span(self.at..self.at + 1))),
            Some(_) | None => Err(self.unexpected()),
        }
    }

    fn string(&mut self) -> Parsed<Node> {
        let rest = self.rest();
        let line = rest.lines().next().unwrap_or("");
        let mut escaped = false;
        let end = line.char_indices().skip(1).find(|(_, c)| {
            let is_end = *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            is_end
        });
        let Some((end, _)) = end else {
            let span = self.span(self.at..self.at + line.trim_end().len());
            let fault = Diagnostic::error("unterminated-string", span, "this string does not end on its line");
            return Err(fail(fault.help(r#"close it with `"`; a line break within a string is written \n"#)));
        };
        let span = self.advance(end + 1)?;
        let mut errors = Vec::new();
        let bytes = literal::unescape(rest.get(..=end).unwrap_or(""), span, &mut errors);
        if errors.is_empty() { Ok(Node { kind: NodeKind::Text(bytes), span }) } else { Err(Box::new(Diagnostics(errors))) }
    }

    /// A map, with its key.
    fn map(&mut self) -> Parsed<Node> {
        let name = word(self.rest().get(1..).unwrap_or("")).to_string();
        let name = if name.starts_with(|c: char| c.is_ascii_digit()) { String::new() } else { name };
        let span = self.advance(1 + name.len())?;
        if !self.rest().starts_with('[') {
            return Ok(Node { kind: NodeKind::Map { name, key: None }, span });
        }
        let (key, _) = self.list('[')?;
        if key.is_empty() {
            return Err(fail(Diagnostic::error("syntax", self.span(self.last.clone()), "expected a key within the brackets")));
        }
        let span = span.to(self.span(self.last.clone()));
        Ok(Node { kind: NodeKind::Map { name, key: Some(key) }, span })
    }

    /// A word, with its arguments.
    fn named(&mut self) -> Parsed<Node> {
        let name = word(self.rest()).to_string();
        let span = self.advance(name.len())?;
        if let "true" | "false" = name.as_str() {
            return Ok(Node { kind: NodeKind::Truth(name == "true"), span });
        }
        if !self.rest().starts_with('(') {
            return Ok(Node { kind: NodeKind::Word(name), span });
        }
        let (args, _) = self.list('(')?;
        let whole = span.to(self.span(self.last.clone()));
        Ok(Node { kind: NodeKind::Call { name: Ident { name, span }, args }, span: whole })
    }

    /// Expressions in brackets, and the number of commas.
    fn list(&mut self, bracket: char) -> Parsed<(Vec<Node>, usize)> {
        let open = Open { bracket, at: self.at };
        let place = self.advance(1)?;
        self.open.push(open);
        if self.open.len() > MAX_NESTING {
            return Err(fail(Diagnostic::error("too-deep", place, format!("nested too deeply: more than {MAX_NESTING} levels"))));
        }
        let (mut parts, mut commas) = (Vec::new(), 0);
        while !self.rest().starts_with(open.partner()) {
            parts.push(self.expression(0)?);
            if !self.rest().starts_with(',') {
                break;
            }
            self.advance(1)?;
            commas += 1;
        }
        if !self.rest().starts_with(open.partner()) {
            return Err(self.unexpected());
        }
        self.open.pop();
        self.advance(1)?;
        Ok((parts, commas))
    }

    fn changes(&self, span: Span) -> Box<Diagnostics> {
        fail(Diagnostic::error("not-assignable", span, "an expectation cannot change anything").help("write the value alone"))
    }

    fn unsupported(&self, span: Span) -> Box<Diagnostics> {
        let help = "use maps, numbers, strings, arithmetic, comparisons, `&&`, `||`, `!` and functions; compute the rest in the script";
        fail(Diagnostic::error("unsupported-expectation", span, "this is not allowed in an expectation").help(help))
    }

    /// The error about the next token, which does not fit.
    fn unexpected(&self) -> Box<Diagnostics> {
        let rest = self.rest();
        let token = if let Some(op) = self.operator() {
            op.symbol()
        } else {
            let length = word(rest).len().max(rest.chars().next().map_or(0, char::len_utf8));
            rest.get(..length).unwrap_or(rest)
        };
        let here = self.span(self.at..self.at + token.len());
        let syntax = |message: String| Diagnostic::error("syntax", here, message);
        let next = match token {
            "" => "the end".to_string(),
            "\"" => "a string".to_string(),
            token => match token.chars().next().filter(|c| !c.is_ascii()) {
                Some(c) => format!("`{c}` (U+{:04X})", u32::from(c)),
                None => format!("`{token}`"),
            },
        };
        if token.starts_with(QUOTES) {
            return fail(syntax(format!("write a string in plain double quotes, not {next}")).help("write \"…\""));
        }
        if token == "'" {
            return fail(syntax("write a string in double quotes".into()).help("write \"…\""));
        }
        if token.starts_with(|c: char| c.is_whitespace()) {
            return fail(syntax(format!("found {next}, an unusual blank")).help("replace it with a plain space"));
        }
        let after_value = self.is_after_value();
        if after_value && (token == "=" || ASSIGNMENTS.iter().any(|symbol| rest.starts_with(symbol))) {
            return fail(syntax("an assignment is a statement, not a value".into()).help("to compare, write `==`"));
        }
        if let Some(open) = self.open.last().filter(|_| matches!(token, "" | ")" | "]") && after_value) {
            let (line, column) = self.source.line_col(open.at as u32);
            let message = format!("expected `{}` to close the `{}` opened at {line}:{column}, found {next}", open.partner(), open.bracket);
            let place = if token.is_empty() { self.span(self.last.end..self.last.end) } else { here };
            return fail(Diagnostic::error("unbalanced", place, message).related(self.span(open.at..open.at + 1), "opened here"));
        }
        if after_value && matches!(token, ")" | "]") {
            return fail(
                Diagnostic::error("unbalanced", here, format!("this {next} closes nothing")).help("remove it, or add its partner"),
            );
        }
        if after_value && starts_value(rest) {
            return fail(syntax(format!("expected an operator before {next}")));
        }
        if after_value {
            return fail(syntax(format!("expected an operator, found {next}")));
        }
        match self.text.get(self.last.clone()).unwrap_or("") {
            "" => fail(syntax(format!("expected an expression, found {next}"))),
            last => fail(syntax(format!("expected an expression after `{last}`, found {next}"))),
        }
    }

    /// Is the token before this one the end of a value?
    fn is_after_value(&self) -> bool {
        let last = self.text.get(self.last.clone()).unwrap_or("");
        last.ends_with(|c: char| c.is_ascii_alphanumeric() || "_)]\"@".contains(c))
    }
}

fn fail(error: Diagnostic) -> Box<Diagnostics> {
    Box::new(error.into())
}

/// Does a value begin here, other than one with a sign?
fn starts_value(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || "_@$\"(".contains(c))
}

/// The letters, digits and underscores at the start of a text.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.get(..end).unwrap_or("")
}
