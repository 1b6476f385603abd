//! A diagnostic is data with a stable code; its text is made in one renderer, here.

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Span {
    /// Index of the source within [`Sources`]: 0 is the script itself.
    pub source: u16,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// From the start of this to the end of `other`.
    pub fn to(self, other: Span) -> Span {
        Span { source: self.source, start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A script's text under the name that messages use.
#[derive(Clone, Debug)]
pub struct Source {
    /// A path, or `stdin`.
    pub name: String,
    /// All of it.
    pub text: String,
}

impl Source {
    /// Line and column (in characters), from 1, of a byte offset.
    pub fn line_col(&self, at: u32) -> (u32, u32) {
        let at = (at as usize).min(self.text.len());
        let before = self.text.get(..at).unwrap_or("");
        let line = before.bytes().filter(|b| *b == b'\n').count() as u32 + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        (line, before[start..].chars().count() as u32 + 1)
    }

    /// The text of line `line` (from 1), without its end.
    pub fn line(&self, line: u32) -> &str {
        self.text.lines().nth(line.saturating_sub(1) as usize).unwrap_or("")
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The script does not run.
    Error,
    /// It runs, perhaps not as meant.
    Warning,
}

/// One thing wrong with a script.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Stable, kebab-case: `arity`, `unknown-field`. Tests and editors match on it.
    pub code: &'static str,
    /// What it is about.
    pub span: Span,
    /// Names the thing, in the user's terms; no final stop.
    pub message: String,
    /// Other places that explain it (`first used with a key here`).
    pub related: Vec<(Span, String)>,
    /// The remedy, where there is one.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, span, message: message.into(), related: Vec::new(), help: None }
    }

    /// A warning at a place.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// With the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// With `did you mean` when one of the candidates is near.
    pub fn suggest<'a>(self, word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(word, candidates) {
            Some(near) => self.help(format!("did you mean `{near}`?")),
            None => self,
        }
    }

    /// With another place.
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }
}

/// All that is wrong with a script, in order of finding.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Is there an error among them?
    pub fn failed(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(d: Diagnostic) -> Self {
        Self(vec![d])
    }
}

/// Text for a terminal, errors before warnings:
///
/// ```text
/// error[arity] 1:9: strftime takes 2 arguments, 1 given
///   --> script.bt:1:9                      (where the source has a file)
///   begin { strftime("%H"); }
///           ^^^^^^^^^^^^^^
///   help: …
/// ```
pub fn render(diagnostics: &Diagnostics, sources: &[Source], color: bool) -> String {
    let mut text = String::new();
    let of = |s: Severity| diagnostics.0.iter().filter(move |d| d.severity == s);
    for d in of(Severity::Error).chain(of(Severity::Warning)) {
        render_one(d, sources, color, &mut text);
    }
    text
}

fn render_one(d: &Diagnostic, sources: &[Source], color: bool, to: &mut String) {
    use std::fmt::Write;
    let (word, ink) = match d.severity {
        Severity::Error => ("error", "31"),
        Severity::Warning => ("warning", "33"),
    };
    let (on, bold, off) = if color { (format!("\x1b[1;{ink}m"), "\x1b[1m", "\x1b[0m") } else { (String::new(), "", "") };
    let place = sources.get(usize::from(d.span.source)).map_or_else(|| "1:1".into(), |s| place(s, d.span));
    // Writing to a String does not fail.
    let _ = writeln!(to, "{on}{word}[{}]{off}{bold} {place}: {}{off}", d.code, d.message);
    excerpt(d.span, sources, &on, off, to);
    for (span, note) in &d.related {
        let place = sources.get(usize::from(span.source)).map_or_else(|| "1:1".into(), |s| self::place(s, *span));
        let _ = writeln!(to, "  {bold}note{off}: {place}: {note}");
        excerpt(*span, sources, bold, off, to);
    }
    if let Some(help) = &d.help {
        let _ = writeln!(to, "  {bold}help{off}: {}", help.replace('\n', "\n        "));
    }
}

fn place(source: &Source, span: Span) -> String {
    let (line, col) = source.line_col(span.start);
    format!("{line}:{col}")
}

/// The source's line, and carets under the span as far as it is on that line. Tabs become four blanks in both.
fn excerpt(span: Span, sources: &[Source], on: &str, off: &str, to: &mut String) {
    use std::fmt::Write;
    let Some(source) = sources.get(usize::from(span.source)) else { return };
    let (line, col) = source.line_col(span.start);
    if source.name != PROGRAM_NAME {
        let _ = writeln!(to, "  --> {}:{line}:{col}", source.name);
    }
    let text = source.line(line);
    if text.trim().is_empty() {
        return;
    }
    let width = |c: char| if c == '\t' { 4 } else { 1 };
    let marked = source.text.get(span.start as usize..span.end as usize).unwrap_or("");
    let marked: usize = marked.lines().next().unwrap_or("").chars().map(width).sum();
    let before: usize = text.chars().take(col as usize - 1).map(width).sum();
    let whole: usize = text.chars().map(width).sum();
    let room = whole.saturating_sub(before).max(1);
    // A very long line is shown from shortly before the place on.
    let skip = if whole > LINE_ROOM { before.saturating_sub(LINE_ROOM / 3) } else { 0 };
    let shown: String = text.replace('\t', "    ").chars().skip(skip).take(LINE_ROOM).collect();
    let carets = "^".repeat(marked.clamp(1, room.min(LINE_ROOM)));
    let _ = writeln!(to, "  {}\n  {}{on}{carets}{off}", shown.trim_end(), " ".repeat(before - skip));
}

/// The name of a program that came with `-e` or on standard input: its place is clear without a path.
pub const PROGRAM_NAME: &str = "stdin";

/// Characters of a source line that are shown.
const LINE_ROOM: usize = 200;

/// The candidate that `word` was most likely meant to be: within a third of its length in edits.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let score = |c: &str| strsim::damerau_levenshtein(word, c);
    candidates
        .into_iter()
        .filter(|c| c.len().abs_diff(word.len()) <= limit)
        .map(|c| (score(c), c))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}

/// Something only we can have got wrong: a stage was handed what the stage before promises not to make.
#[macro_export]
macro_rules! bug {
    ($($arg:tt)*) => {
        panic!("{}", format_args!($($arg)*))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, text: &str) -> Vec<Source> {
        vec![Source { name: name.into(), text: text.into() }]
    }

    fn at(start: u32, end: u32) -> Span {
        Span { source: 0, start, end }
    }

    #[test]
    fn errors_come_first_with_line_caret_and_remedy() {
        let all = Diagnostics(vec![
            Diagnostic::warning("late", at(0, 5), "old"),
            Diagnostic::error("unknown-name", at(10, 14), "there is no `comn`").suggest("comn", ["comm", "pid"]),
        ]);
        let text = render(&all, &source(PROGRAM_NAME, "begin {\n\t\tcomn; }"), false);
        let want = "error[unknown-name] 2:3: there is no `comn`\n          comn; }\n          ^^^^\n  help: did you mean `comm`?\n\
                    warning[late] 1:1: old\n  begin {\n  ^^^^^\n";
        assert_eq!(text, want);
    }

    #[test]
    fn files_are_named_and_places_may_be_anywhere() {
        let d = Diagnostic::error("syntax", at(900, 950), "more expected").related(at(0, 3), "opened here");
        let text = render(&d.into(), &source("a.bt", "é{\n\n"), true);
        assert!(text.contains("  --> a.bt:3:1\n") && text.contains("note") && text.contains("\x1b[1;31m"), "{text}");
        let foreign = Span { source: 9, ..at(0, 1) };
        assert!(render(&Diagnostic::error("x", foreign, "y").into(), &[], false).starts_with("error[x] 1:1: y"));
    }
}
