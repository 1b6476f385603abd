//! Diagnostics as text: the message, the source line, and a caret under the relevant part.
//!
//! ```text
//! error[unknown-field] stdin:1:18: no field `filenam`
//!     begin { print(args.filenam) }
//!                        ^~~~~~~
//! help: did you mean `filename`?
//! ```

use std::borrow::Cow;

use super::{Diagnostic, Diagnostics, Severity, Source, Span};
use crate::terminal::escape::is_deceptive;
use crate::terminal::{self, paint};
use anstyle::Style;

/// Maximum number of displayed columns of a source line; a longer line is cut around the caret.
const WIDTH: usize = 120;
/// The number of bytes around the caret that are read to find these columns.
const NEAR: usize = 8192;
/// Precedes a source line.
const INDENT: &str = "    ";
/// Width of a tab in columns.
const TAB: usize = 4;

/// Renders diagnostics, errors first, each ending in a line break. `color` adds terminal colors.
pub fn render(diags: &Diagnostics, sources: &[Source], color: bool) -> String {
    let (mut out, diags) = (String::new(), diags.brief());
    for severity in [Severity::Error, Severity::Warning] {
        for diag in diags.0.iter().filter(|d| d.severity == severity) {
            one(&mut out, diag, sources, color);
        }
    }
    out
}

/// A text in one line without terminal control characters, because names of files and tokens are untrusted.
pub fn plain(text: &str) -> String {
    uncommanded(&text.chars().map(|c| if is_deceptive(c) { '\u{FFFD}' } else { c }).collect::<String>()).into_owned()
}

/// The same for texts of several lines, and with tabs. The first one is not at the start of the output.
pub fn plain_lines(text: &str) -> String {
    let line = |line: &str| line.split('\t').map(plain).collect::<Vec<_>>().join("\t");
    let mut lines = text.split('\n');
    let first = lines.next().map(line);
    first.into_iter().chain(lines.map(|l| uncommanded_line(&line(l)).into_owned())).collect::<Vec<_>>().join("\n")
}

/// A text in which GitHub's runner finds no command of its older form, which may be anywhere in a line (`##[error]`).
fn uncommanded(text: &str) -> Cow<'_, str> {
    if text.contains("##[") { text.replace("##[", "##\u{FFFD}").into() } else { text.into() }
}

/// Pattern of a whole line that contains neither form: the newer one begins a line (`::error::`) after optional blanks.
pub fn uncommanded_line(line: &str) -> Cow<'_, str> {
    let rest = line.trim_start();
    match rest.strip_prefix("::") {
        Some(more) => format!("{}\u{FFFD}:{}", line.strip_suffix(rest).unwrap_or_default(), uncommanded(more)).into(),
        None => uncommanded(line),
    }
}

fn one(out: &mut String, diag: &Diagnostic, sources: &[Source], color: bool) {
    let (word, style) = match diag.severity {
        Severity::Error => ("error", terminal::ERROR),
        Severity::Warning => ("warning", terminal::WARNING),
    };
    let head = paint(&format!("{word}[{}]", diag.code), style, color);
    let message = paint(&plain(diag.message.trim_end()), terminal::BOLD, color);
    let source = sources.get(usize::from(diag.span.source));
    out.push_str(&format!("{head} {}{message}\n", location_prefix(source, diag.span)));
    excerpt(out, source, diag.span, style, color);
    for (span, text) in &diag.related {
        let source = sources.get(usize::from(span.source));
        out.push_str(&format!("{} {}{}\n", paint("note:", terminal::NOTE, color), location_prefix(source, *span), plain_lines(text)));
        excerpt(out, source, *span, terminal::NOTE, color);
    }
    let general = (diag.severity == Severity::Error).then(|| super::codes::remedy(diag.code)).flatten();
    if let Some(help) = diag.help.as_deref().or(general) {
        out.push_str(&format!("{} {}\n", paint("help:", terminal::HELP, color), plain_lines(help)));
    }
}

/// `NAME:LINE:COL: `
fn location_prefix(source: Option<&Source>, span: Span) -> String {
    let Some(source) = source else { return String::new() };
    let (line, column) = source.line_col(span.start);
    format!("{}:{line}:{column}: ", plain(&source.name))
}

/// The line in which `span` starts, and its underline.
fn excerpt(out: &mut String, source: Option<&Source>, span: Span, style: Style, color: bool) {
    let Some(source) = source else { return };
    let start = floor(&source.text, span.start as usize);
    let end = floor(&source.text, span.end as usize).max(start);
    let from = source.text.get(..start).and_then(|t| t.rfind('\n')).map_or(0, |i| i + 1);
    let length = source.text.get(start..).and_then(|t| t.find('\n')).unwrap_or(source.text.len() - start);
    let line = source.text.get(from..start + length).unwrap_or("");
    underlined(out, line, (start - from, end - from), style, color);
}

/// A line, and an underline from one byte of it to another, in the terminal colors of `style`, if any.
pub fn underline(line: &str, from: usize, to: usize, style: Option<Style>) -> String {
    let mut out = String::new();
    let (from, to) = (floor(line, from), floor(line, to));
    underlined(&mut out, line, (from, to.max(from)), style.unwrap_or_default(), style.is_some());
    out
}

fn underlined(out: &mut String, line: &str, (first, last): (usize, usize), style: Style, color: bool) {
    let line = line.trim_end();
    if line.is_empty() {
        return;
    }
    // The cost of a message does not depend on the length of the line.
    let skipped = floor(line, first.saturating_sub(NEAR));
    let line = line.get(skipped..floor(line, first.saturating_add(NEAR))).unwrap_or("");
    let (first, last) = (first - skipped, last - skipped);
    let (mut shown, mut columns) = (String::new(), 0);
    // The columns of both ends of the underline.
    let (mut left, mut right) = (None, None);
    for (at, c) in line.char_indices() {
        if at >= first {
            left.get_or_insert(columns);
        }
        if at >= last {
            right.get_or_insert(columns);
        }
        match c {
            '\t' => shown.push_str(&" ".repeat(TAB)),
            // A script must not control the terminal.
            c if is_deceptive(c) => shown.push('\u{FFFD}'),
            c => shown.push(c),
        }
        columns += width(c);
    }
    let left = left.unwrap_or(columns);
    let right = right.unwrap_or(columns).max(left + 1);
    let (shown, skipped) = window(&uncommanded_line(&shown), columns, left);
    let left = left - skipped;
    let length = (right - skipped - left).min(WIDTH.saturating_sub(left).max(1));
    let mark = format!("^{}", "~".repeat(length - 1));
    out.push_str(&format!("{INDENT}{shown}\n{INDENT}{}{}\n", " ".repeat(left), paint(&mark, style, color)));
}

/// Some [`WIDTH`] columns of a line around `caret`, and the number of columns by which its text moved to the left.
fn window(line: &str, columns: usize, caret: usize) -> (String, usize) {
    if columns <= WIDTH {
        return (line.to_string(), 0);
    }
    let from = caret.saturating_sub(WIDTH / 3).min(columns - WIDTH);
    let (mut column, mut kept, mut first) = (0, String::new(), None);
    for c in line.chars() {
        if column >= from && column + width(c) <= from + WIDTH {
            first.get_or_insert(column);
            kept.push(c);
        }
        column += width(c);
    }
    let first = first.unwrap_or(from);
    let tail = if from + WIDTH < columns { "…" } else { "" };
    // The mark of the cut takes a column.
    if from > 0 { (format!("…{kept}{tail}"), first.saturating_sub(1)) } else { (format!("{kept}{tail}"), 0) }
}

/// The last character boundary at or before `at`.
fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// Width of a character in columns: 2 for East Asian wide characters and emoji, 0 for combining ones.
fn width(c: char) -> usize {
    match c as u32 {
        9 => TAB,
        0x300..=0x36F | 0x200B..=0x200D | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F | 0x2E80..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF | 0xFE30..=0xFE6F => 2,
        0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1F64F | 0x1F680..=0x1F6FF | 0x1F900..=0x1F9FF | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, start: u32, end: u32) -> String {
        let span = Span { source: 0, start, end, ..Span::default() };
        let diags = Diagnostic::error("recursion", span, "two arguments").into();
        render(&diags, &[Source { name: "stdin".into(), text: text.into() }], false)
    }

    #[test]
    fn carets_mark_the_span() {
        assert_eq!(shown("begin { f(1) }", 8, 12), "error[recursion] stdin:1:9: two arguments\n    begin { f(1) }\n            ^~~~\n");
        assert_eq!(shown("a\n\tf(1)\n", 3, 4), "error[recursion] stdin:2:2: two arguments\n        f(1)\n        ^\n");
        assert_eq!(shown("\"日本é\" f", 11, 12), "error[recursion] stdin:1:7: two arguments\n    \"日本é\" f\n            ^\n");
        assert_eq!(shown("f(1", 3, 3), "error[recursion] stdin:1:4: two arguments\n    f(1\n       ^\n");
        assert_eq!(shown("{ a\n b }", 0, 8), "error[recursion] stdin:1:1: two arguments\n    { a\n    ^~~\n");
        assert_eq!(shown("", 0, 0), "error[recursion] stdin:1:1: two arguments\n");
        assert_eq!(shown("a\x1b[2Jb", 5, 6), "error[recursion] stdin:1:6: two arguments\n    a\u{FFFD}[2Jb\n         ^\n");
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        for at in [0usize, 30, 119, 120, 121, 2_500, 4_990, 4_999] {
            let text: String = (0..5_000).map(|i| if i == at { 'X' } else { 'a' }).collect();
            let out = shown(&text, at as u32, at as u32 + 1);
            let lines: Vec<Vec<char>> = out.lines().map(|l| l.chars().collect()).collect();
            let caret = lines[2].iter().position(|c| *c == '^').expect("a caret");
            assert_eq!(lines[1][caret], 'X', "{at}: {out}");
            assert!(lines[1].len() <= WIDTH + 6, "{}", lines[1].len());
        }
        let whole = shown(&"a".repeat(5_000), 10, 4_990);
        assert!(whole.lines().all(|l| l.len() < 140), "{whole}");
    }

    #[test]
    fn errors_come_first_with_all_details() {
        let span = |start, end| Span { source: 0, start, end, ..Span::default() };
        let sources = [Source { name: "x.bt".into(), text: "ab cd".into() }];
        let diags = Diagnostics(vec![
            Diagnostic::warning("unused", span(3, 5), "never used"),
            Diagnostic::error("type", span(0, 2), "no").related(span(3, 5), "first used here").help("cast it"),
        ]);
        let text = "error[type] x.bt:1:1: no\n    ab cd\n    ^~\nnote: x.bt:1:4: first used here\n    ab cd\n       ^~\nhelp: cast it\n\
                    warning[unused] x.bt:1:4: never used\n    ab cd\n       ^~\n";
        assert_eq!(render(&diags, &sources, false), text);
        let colored = render(&diags, &sources, true);
        assert!(
            colored.starts_with("\x1b[1m\x1b[31merror[type]\x1b[0m x.bt:1:1: \x1b[1mno\x1b[0m\n")
                && colored.contains("\x1b[1m\x1b[33mwarning[unused]")
        );
    }
}
