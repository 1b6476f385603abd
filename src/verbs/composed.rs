//! A script composed from words, which knows their positions.

use crate::diag::{Diagnostic, Diagnostics, Source, Span};
use crate::syntax;

/// A script and the words in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComposedScript {
    /// Its name in messages.
    pub name: String,
    /// The script.
    pub text: String,
    /// Is it about all threads, even with `-c`? A switch to a thread of the command is an event of another one.
    pub all_threads: bool,
    pub(super) words: Vec<Word>,
    /// The parts, in order of position.
    pub(super) parts: Vec<Part>,
}

/// A word that the user typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Its name in messages: `PROBE`, `--if`.
    pub name: String,
    pub text: String,
}

/// The position of a part of a word in the script, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Offset in the script.
    pub at: u32,
    pub len: u32,
    pub word: usize,
    /// Offset in the word.
    pub from: u32,
    /// It consists of one or more expressions.
    pub expression: bool,
}

impl ComposedScript {
    /// The script, and the words after it.
    pub fn sources(&self) -> Vec<Source> {
        let script = Source { name: self.name.clone(), text: self.text.clone() };
        let words = self.words.iter().map(|w| Source { name: w.name.clone(), text: w.text.clone() });
        [script].into_iter().chain(words).collect()
    }

    /// Errors in the script, at their places in the words if they are in one. Duplicates, caused by a word that occurs twice,
    /// are removed.
    pub fn in_words(&self, mut diags: Diagnostics) -> Diagnostics {
        for d in &mut diags.0 {
            d.span = self.in_word(d.span);
            d.related.iter_mut().for_each(|(span, _)| *span = self.in_word(*span));
            let (span, length) = (d.span, d.related.len());
            d.related.retain(|(other, _)| *other != span || length == 0);
        }
        let mut reported: Vec<Diagnostic> = Vec::new();
        for d in diags.0 {
            if !reported.iter().any(|s| s.span == d.span && s.code == d.code && s.message == d.message) {
                reported.push(d);
            }
        }
        Diagnostics(reported)
    }

    /// The condition of `--if`.
    pub fn condition(&self) -> Option<&str> {
        self.words.iter().find(|w| w.name == "--if").map(|w| w.text.as_str())
    }

    fn in_word(&self, span: Span) -> Span {
        if span.source != 0 {
            return span;
        }
        let touches = |p: &&Part| span.start < p.at + p.len && (span.end > p.at || span.start >= p.at);
        let Some(first) = self.parts.iter().find(touches) else { return span };
        let Some(last) = self.parts.iter().rev().filter(touches).find(|p| p.word == first.word) else { return span };
        let within = |p: &Part, at: u32| p.from + at.clamp(p.at, p.at + p.len) - p.at;
        let Ok(source) = u16::try_from(first.word + 1) else { return span };
        let (start, end) = (within(first, span.start), within(last, span.end));
        Span { source, start, end: end.max(start), ..Span::default() }
    }

    /// Parses an expression separately, because an unclosed parenthesis would be reported elsewhere in the script.
    pub fn wrong_expression(&self) -> Option<Diagnostics> {
        let alone = self.parts.iter().filter(|p| p.expression).find_map(|p| {
            const PREFIX: &str = "begin { @[";
            let text = self.text.get(p.at as usize..(p.at + p.len) as usize)?;
            let source = Source { name: String::new(), text: format!("{PREFIX}{text}\n] = 1; }}") };
            let diags = syntax::parse(&source).err()?;
            let part = Part { at: PREFIX.len() as u32, ..*p };
            Some((ComposedScript { parts: vec![part], ..ComposedScript::default() }, diags))
        });
        let (composed, mut diags) = alone?;
        // an error after the expression concerns its end
        let end = composed.parts.first().map_or(0, |p| p.at + p.len);
        for d in &mut diags.0 {
            // the text after it is not the user's
            d.message = d.message.replace(", found `]`", ", found its end");
            d.span = Span { start: d.span.start.min(end.saturating_sub(1)), end: d.span.end.min(end), ..d.span };
        }
        Some(composed.in_words(diags))
    }
}
