//! Diagnostics: data with a stable code, which one renderer turns into text.

pub mod codes;
mod render;

use std::collections::BTreeMap;

pub use codes::remedy;
pub use render::{plain, plain_lines, render, uncommanded_line, underline};

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Span {
    /// Index of the source in the list that [`render()`] gets: 0 is the script itself.
    pub source: u16,
    /// The macro's expansion that it belongs to, once the script is checked; 0 outside of macros.
    pub expansion: u16,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The range from the start of this to the end of `other`.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start.min(other.start), end: self.end.max(other.end), ..self }
    }
}

/// A number of things, such as `1 probe` and `2 probes`.
pub fn plural(n: impl TryInto<u64>, one: &str, many: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The name of a program from `-e` or standard input.
pub const PROGRAM_NAME: &str = "stdin";

/// A script's text, with its name in messages.
#[derive(Clone, Debug)]
pub struct Source {
    /// A path, or `stdin`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// Line and column (in characters), from 1, of a byte offset.
    pub fn line_col(&self, offset: u32) -> (u32, u32) {
        let offset = (offset as usize).min(self.text.len());
        let before = self.text.get(..offset).unwrap_or("");
        let line = before.bytes().filter(|b| *b == b'\n').count() as u32 + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        (line, before[start..].chars().count() as u32 + 1)
    }

    /// The text of line `line` (from 1), without its line break.
    pub fn line(&self, line: u32) -> &str {
        self.text.lines().nth(line.saturating_sub(1) as usize).unwrap_or("")
    }
}

/// The starts of a source's lines, for callers that look up many places.
#[derive(Clone, Debug)]
pub struct Lines(Vec<u32>);

impl Lines {
    /// Indexes a source.
    pub fn new(source: &Source) -> Self {
        let ends = source.text.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        Self(std::iter::once(0).chain(ends.map(|(i, _)| i as u32 + 1)).collect())
    }

    /// The result of [`Source::line_col`].
    pub fn line_col(&self, source: &Source, offset: u32) -> (u32, u32) {
        let offset = offset.min(source.text.len() as u32);
        let line = self.0.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|i| self.0.get(i)).copied().unwrap_or(0);
        let before = source.text.get(start as usize..offset as usize).unwrap_or("");
        (line as u32, before.chars().count() as u32 + 1)
    }

    /// The result of [`Source::line`].
    pub fn line<'s>(&self, source: &'s Source, line: u32) -> &'s str {
        let start = (line as usize).checked_sub(1).and_then(|i| self.0.get(i));
        let rest = start.and_then(|s| source.text.get(*s as usize..)).unwrap_or("");
        rest.lines().next().unwrap_or("")
    }
}

/// Short names of sources for places without space for a path. The kernel and LLVM keep only the last component of a path, so
/// sources that share one get a number.
pub fn short_names(sources: &[Source]) -> Vec<String> {
    let last = |s: &Source| s.name.rsplit('/').next().unwrap_or("").to_string();
    let mut names: Vec<String> = Vec::with_capacity(sources.len());
    for s in sources {
        let short = last(s);
        let twins = sources.iter().take(names.len()).filter(|o| last(o) == short).count();
        names.push(if twins > 0 { format!("{short}~{twins}") } else { short });
    }
    names
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The script does not run.
    Error,
    /// It runs, but perhaps not as intended.
    Warning,
}

/// An error or a warning about a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Stable, kebab-case: `arity`, `unknown-field`. Tests and editors match on it.
    pub code: &'static str,
    /// The place of the fault.
    pub span: Span,
    /// The message, in the user's terms, without a final period.
    pub message: String,
    /// Other places that explain it (`first used with a key here`).
    pub related: Vec<(Span, String)>,
    /// The remedy, if there is one.
    pub help: Option<String>,
}

impl Diagnostic {
    /// The message and its place, in one line.
    pub fn in_one_line(&self, sources: &[Source]) -> String {
        match sources.get(usize::from(self.span.source)).filter(|_| self.span != Span::default()) {
            Some(source) => {
                let (line, column) = source.line_col(self.span.start);
                format!("{}:{line}:{column}: {}", source.name, self.message.trim_end())
            }
            None => self.message.trim_end().to_string(),
        }
    }

    /// Creates an error at a place.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, code, span, message: message.into(), related: Vec::new(), help: None }
    }

    /// Creates a warning at a place.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// Adds the remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds `did you mean` if one of the candidates is similar.
    pub fn suggest<'a>(self, word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(word, candidates) {
            Some(near) => self.help(format!("did you mean `{near}`?")),
            None => self,
        }
    }

    /// Adds another place.
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }
}

/// All errors and warnings of a script, in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(pub Vec<Diagnostic>);

/// Maximum number of diagnostics with one code that are shown. One cause may produce hundreds of similar ones.
const MAX_ALIKE: usize = 20;

impl Diagnostics {
    /// The first ones of each code. The last one has the number of omitted ones.
    pub fn brief(&self) -> Self {
        let mut alike = BTreeMap::new();
        let number = |counts: &mut BTreeMap<(bool, &'static str), usize>, d: &Diagnostic| {
            let n = counts.entry((d.severity == Severity::Error, d.code)).or_default();
            *n += 1;
            *n
        };
        self.0.iter().for_each(|d| {
            number(&mut alike, d);
        });
        let mut reported = BTreeMap::new();
        let mut brief = Vec::new();
        for d in &self.0 {
            let n = number(&mut reported, d);
            let all = alike.get(&(d.severity == Severity::Error, d.code)).copied().unwrap_or(n);
            if n > MAX_ALIKE {
                continue;
            }
            let mut d = d.clone();
            if n == MAX_ALIKE && all > n {
                d.message = format!("{} (and {} more like it)", d.message.trim_end(), all - n);
            }
            brief.push(d);
        }
        Self(brief)
    }

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

/// The candidate that `word` was most likely meant to be: within a third of its length in edits. Of several at the same
/// distance, one of the same length is preferred, because letters are more often swapped (`prinft`) than omitted.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    let score = |c: &str| strsim::damerau_levenshtein(word, c);
    candidates
        .into_iter()
        .filter(|c| c.len().abs_diff(word.len()) <= limit)
        .map(|c| (score(c), c.len().abs_diff(word.len()), c))
        .filter(|(d, ..)| *d <= limit)
        .min()
        .map(|(.., c)| c)
}

/// Panics because of a bug in rbt: a stage received input that the previous stage guarantees not to produce.
#[macro_export]
macro_rules! bug {
    ($($arg:tt)*) => {
        panic!("{}", format_args!($($arg)*))
    };
}

#[cfg(test)]
mod tests {
    use super::{Diagnostic, Diagnostics, Lines, MAX_ALIKE, Source, Span, nearest, short_names};

    #[test]
    fn lines_are_found_again() {
        let source = Source { name: "x".into(), text: "one\n\n  zwéi\r\nlast".into() };
        let lines = Lines::new(&source);
        for at in (0..=source.text.len() as u32 + 1).filter(|at| source.text.is_char_boundary(*at as usize)) {
            assert_eq!(lines.line_col(&source, at), source.line_col(at), "{at}");
        }
        for line in 1..6 {
            assert_eq!(lines.line(&source, line), source.line(line), "{line}");
        }
    }

    #[test]
    fn similar_diagnostics_are_summarized() {
        let error = |code, i: u32| Diagnostic::error(code, Span { source: 0, start: i, end: i, ..Span::default() }, "x");
        let mut all: Vec<Diagnostic> = (0..MAX_ALIKE as u32 + 3).map(|i| error("a", i)).collect();
        all.extend((0..MAX_ALIKE as u32).map(|i| error("b", i)));
        let brief = Diagnostics(all.clone()).brief().0;
        assert_eq!(brief.len(), 2 * MAX_ALIKE);
        assert_eq!(brief[MAX_ALIKE - 1].message, "x (and 3 more like it)");
        assert_eq!(brief[MAX_ALIKE..], all[MAX_ALIKE + 3..]);
    }

    #[test]
    fn short_names_distinguish_sources() {
        let all = ["a.bt", "lib/b.bt", "old/b.bt", "x/a.bt"].map(|name| Source { name: name.into(), text: String::new() });
        assert_eq!(short_names(&all), ["a.bt", "b.bt", "b.bt~1", "a.bt~1"]);
    }

    #[test]
    fn the_nearest_of_the_same_length_wins() {
        assert_eq!(nearest("prinft", ["print", "printf", "pid"]), Some("printf"));
        assert_eq!(nearest("prin", ["print", "printf"]), Some("print"));
        assert_eq!(nearest("xyz", ["print"]), None);
    }
}
