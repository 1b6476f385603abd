//! Explains pest's errors in terms of the script.

#![allow(clippy::wildcard_enum_match_arm)] // the rules in grammar.pest determine which others they contain

use std::ops::Range;

use pest::error::{Error, ErrorVariant, InputLocation};

use super::Rule;
use super::keywords::starts_no_value;
use super::read::Pair;
use crate::diag::{Diagnostic, Source, Span};

/// The error of a piece that starts at `piece.start` of the source.
pub fn explain(error: &Error<Rule>, source: &Source, index: u16, piece: Range<usize>) -> Diagnostic {
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at + piece.start,
    };
    let span = |start: usize, end: usize| Span { source: index, start: start as u32, end: end as u32, ..Span::default() };
    let ErrorVariant::ParsingError { positives, .. } = &error.variant else {
        return Diagnostic::error("too-deep", span(at, at), "nested too deeply");
    };
    let before = source.text.get(piece.start..at).unwrap_or("");
    let rest = source.text.get(at..piece.end.max(at)).unwrap_or("");
    let site = ErrorSite { before, rest, positives, last: last_word(before), next: first_word(rest) };
    let here = span(at, at + site.next.len());
    let after = piece.start + before_blanks(before);
    let explanation = site.explanation();
    let start = piece.start + before.len() - before.trim_start().len();
    let place = match explanation.position {
        PestPosition::Next => here,
        PestPosition::Last => span(after.saturating_sub(site.last.len()), after),
        PestPosition::First => span(start, start + first_word(before.trim_start()).len()),
    };
    let found = Diagnostic::error("syntax", place, explanation.message);
    match explanation.help {
        Some(help) => found.help(help),
        None => found,
    }
}

/// The context of an error.
struct ErrorSite<'a> {
    before: &'a str,
    rest: &'a str,
    positives: &'a [Rule],
    /// The word or operator before the error.
    last: &'a str,
    /// The one that does not fit; empty at the end.
    next: &'a str,
}

#[derive(Default)]
struct Explanation {
    message: String,
    help: Option<String>,
    position: PestPosition,
}

/// The word that a message is about.
#[derive(Default)]
enum PestPosition {
    /// The word that does not fit.
    #[default]
    Next,
    /// The word before it.
    Last,
    /// The piece's first word.
    First,
}

fn explanation(message: impl Into<String>) -> Explanation {
    Explanation { message: message.into(), ..Explanation::default() }
}

impl Explanation {
    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn at(mut self, place: PestPosition) -> Self {
        self.position = place;
        self
    }
}

impl ErrorSite<'_> {
    fn expects_any(&self, rules: &[Rule]) -> bool {
        self.positives.iter().any(|r| rules.contains(r))
    }

    fn expects_operand(&self) -> bool {
        self.expects_any(&[Rule::expr, Rule::chain, Rule::prefix, Rule::number, Rule::parens])
    }

    fn expects_more(&self) -> bool {
        self.expects_any(&[Rule::binary_op, Rule::semicolon, Rule::question])
    }

    fn explanation(&self) -> Explanation {
        let next = match self.next {
            "" => "the end".to_string(),
            "\"" => "a string".to_string(),
            word => match word.chars().next().filter(|c| !c.is_ascii()) {
                Some(c) => format!("`{c}` (U+{:04X})", u32::from(c)),
                None => format!("`{word}`"),
            },
        };
        match self.next {
            "“" | "”" | "„" | "‘" | "’" => {
                return explanation(format!("write a string in plain double quotes, not {next}")).help("write \"…\"");
            }
            word if word.starts_with(|c: char| c.is_whitespace() && !c.is_ascii()) => {
                return explanation(format!("found {next}, an unusual blank")).help("replace it with a plain space");
            }
            "'" => return explanation("write a string in double quotes").help("write \"…\""),
            "else" => return explanation("this `else` has no `if`").help("`else` must follow the `}` of its `if`, without a `;`"),
            "$" => return explanation("`$` without a name").help("write a variable as `$name`, and a parameter as `$1`"),
            _ => {}
        }
        if self.expects_operand() && !self.expects_more() {
            return self.operand(&next);
        }
        if self.next == "=" && self.expects_more() {
            return explanation("an assignment is a statement, not a value").help("to compare, write `==`");
        }
        if self.expects_any(&[Rule::predicate]) {
            return self.attach(&next);
        }
        if self.expects_any(&[Rule::predicate_end]) {
            return explanation(format!("expected `/` to end the predicate, found {next}"));
        }
        if self.expects_any(&[Rule::semicolon]) && !self.next.is_empty() {
            return self.statement(&next);
        }
        if self.expects_any(&[Rule::open_brace, Rule::block]) {
            return explanation(format!("expected a block `{{ … }}` before {next}"))
                .help("write the block in braces, even for a single statement");
        }
        if self.last == "let" && self.next.starts_with('@') {
            return explanation("maps are declared outside probes").help("move it to the top level; a map needs no declaration");
        }
        if self.expects_any(&[Rule::attach_point, Rule::provider]) {
            return explanation(format!("expected a probe, found {next}")).help("a probe is `provider:target { … }`");
        }
        self.with_list(&next)
    }

    fn operand(&self, next: &str) -> Explanation {
        let word = self.next.starts_with(|c: char| c.is_ascii_alphabetic());
        if word && starts_no_value(self.next) {
            return explanation(format!("{next} is a keyword and cannot be a value here"));
        }
        if self.last.is_empty() {
            return explanation(format!("expected an expression, found {next}"));
        }
        if self.last == "/" && self.next == "/" && self.before.matches('/').count() == 1 {
            return explanation("an empty predicate").help("remove the slashes, or write `/condition/`");
        }
        if self.last == "=" && self.next == "=" {
            return explanation("`= =` is not an operator").help("to compare, write `==`");
        }
        explanation(format!("expected an expression after `{}`, found {next}", self.last))
    }

    fn attach(&self, next: &str) -> Explanation {
        let head = self.before.trim_start();
        if head.contains('(') && !head.contains(':') {
            return explanation("a statement outside a probe")
                .help("write statements within the braces of a probe: `provider:target { … }`")
                .at(PestPosition::First);
        }
        if self.next.is_empty() || self.rest.starts_with(['}', ';']) {
            return explanation("a probe needs a block `{ … }`")
                .help("write its statements in braces after the attach point")
                .at(PestPosition::Last);
        }
        explanation(format!("expected `{{`, `,` or a `/predicate/` after the attach point, found {next}"))
            .help("write an attach point with blanks in double quotes")
    }

    fn statement(&self, next: &str) -> Explanation {
        if self.next == "{" {
            return explanation("expected `;` before `{`")
                .help("if a probe starts here, the previous one lacks its `}`")
                .at(PestPosition::Last);
        }
        if self.next == "#" {
            return explanation("a `#` line within a block").help("put `#` lines before everything else");
        }
        if matches!(self.last, "{" | "}" | ";") {
            let found = explanation(format!("expected a statement, found {next}"));
            return match self.next {
                "struct" | "union" | "enum" => found.help("put C definitions before everything else"),
                "macro" | "fn" => found.help("put macros and functions outside probes"),
                _ => found,
            };
        }
        let starts = self.next.starts_with(|c: char| c.is_alphanumeric() || "$@_\"".contains(c));
        match starts {
            true if starts_no_value(self.next) || !self.expects_any(&[Rule::binary_op]) => {
                explanation(format!("expected `;` before {next}")).at(PestPosition::Last)
            }
            true => explanation(format!("expected `;` or an operator before {next}")).at(PestPosition::Last),
            false => explanation(format!("expected `;` or `}}`, found {next}")),
        }
    }

    fn with_list(&self, next: &str) -> Explanation {
        let mut names: Vec<&str> = self.positives.iter().filter_map(|r| phrase(*r)).collect();
        if self.expects_any(&[Rule::binary_op]) {
            names.extend(enclosing(self.before));
        }
        names.sort_unstable();
        names.dedup();
        names.truncate(5);
        let wanted = match names.split_last() {
            None if self.last.is_empty() => return explanation(format!("unexpected {next}")),
            None => return explanation(format!("unexpected {next} after {}", self.after())),
            Some((only, [])) => (*only).to_string(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
        };
        if self.last.is_empty() {
            return explanation(format!("expected {wanted}, found {next}"));
        }
        explanation(format!("expected {wanted} after {}, found {next}", self.after()))
    }

    /// The preceding text, as messages show it.
    fn after(&self) -> String {
        if self.last == "\"" { "the string".into() } else { format!("`{}`", self.last) }
    }
}

/// The tokens that may follow an operand within the innermost open bracket; none within a block.
fn enclosing(text: &str) -> &'static [&'static str] {
    let (mut depth, mut quoted) = (0usize, false);
    for c in text.chars().rev() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            ')' | ']' | '}' => depth += 1,
            '(' | '[' | '{' if depth > 0 => depth -= 1,
            '(' => return &["`)`", "`,`"],
            '[' => return &["`]`"],
            '{' => return &[],
            _ => {}
        }
    }
    &[]
}

fn phrase(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::expr | Rule::chain | Rule::number | Rule::parens => "an expression",
        Rule::variable => "a variable `$name`",
        Rule::map_name | Rule::map => "a map `@name`",
        Rule::ident | Rule::word => "a name",
        Rule::string => "a string",
        Rule::type_name | Rule::certain_type => "a type",
        Rule::block | Rule::open_brace => "`{`",
        Rule::close_brace => "`}`",
        Rule::semicolon => "`;`",
        Rule::comma => "`,`",
        Rule::colon => "`:`",
        Rule::binary_op => "an operator",
        Rule::arguments => "`(`",
        Rule::setting => "a setting `name = value`",
        Rule::setting_value | Rule::bare_value => "a value",
        Rule::macro_param | Rule::function_param => "a parameter",
        Rule::open_paren => "`(`",
        Rule::equals => "`=`",
        Rule::member | Rule::digits => "a member's name",
        Rule::attach_point | Rule::provider | Rule::traced_item => "a probe",
        _ => return None,
    })
}

/// The length of a text without the blanks at its end.
fn before_blanks(text: &str) -> usize {
    text.trim_end().len()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '@')
}

const PAIRS: &[&str] = &["==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "++", "--", "->", "+=", "-=", "*=", "/=", "..", "//"];

fn first_word(text: &str) -> &str {
    let Some(first) = text.chars().next() else { return "" };
    if is_word(first) {
        let end = text.char_indices().skip(1).find(|(_, c)| !is_word(*c)).map_or(text.len(), |(i, _)| i);
        return text.get(..end).unwrap_or(text);
    }
    let two = PAIRS.iter().any(|p| text.starts_with(p));
    text.get(..if two { 2 } else { first.len_utf8() }).unwrap_or(text)
}

fn last_word(text: &str) -> &str {
    let text = text.get(..before_blanks(text)).unwrap_or(text);
    let Some(last) = text.chars().next_back() else { return "" };
    let start = if is_word(last) {
        text.char_indices().rev().take_while(|(_, c)| is_word(*c)).last().map_or(0, |(i, _)| i)
    } else if PAIRS.iter().any(|p| text.ends_with(p)) {
        text.len() - 2
    } else {
        text.len() - last.len_utf8()
    };
    text.get(start..).unwrap_or(text)
}

/// The position in the required order of a script's parts.
#[derive(Default)]
pub struct Order {
    stage: u8,
}

impl Order {
    /// Processes the next piece, and reports it if its order is wrong.
    pub fn check_order(&mut self, piece: Pair, index: u16, base: usize) -> Option<Diagnostic> {
        let part = piece.into_inner().find(|p| p.as_rule() != Rule::shebang)?;
        let (stage, what) = match part.as_rule() {
            Rule::c_item => (0, "put C definitions and `#` lines before everything else"),
            Rule::settings | Rule::import => (1, "put settings and imports before probes, macros and functions"),
            Rule::EOI => return None,
            _ => (2, ""),
        };
        let span = part.as_span();
        let first_line = part.as_str().lines().next().map_or(0, str::len);
        let start = base + span.start();
        let place = Span { source: index, start: start as u32, end: (start + first_line) as u32, ..Span::default() };
        if stage < self.stage {
            return Some(Diagnostic::error("misplaced-directive", place, what).help("move it up"));
        }
        self.stage = stage;
        None
    }
}
