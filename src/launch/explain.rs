//! Explains errors of the kernel in terms of the script.

use std::io::{self, Write};

use crate::cli::Run;
use crate::codegen::artifact::Manifest;
use crate::diag::{self, Diagnostic, Diagnostics, Source, Span};
use crate::failure::Failure;
use crate::runtime::{self, AttachFailed, NoRoomForName, NotPermitted, NothingAttached, VerifierError};
use crate::streams::{not_written, to_stderr};
use crate::value::Pos;

/// The exit status if the kernel refused to load or to attach.
pub(crate) const REFUSED: u8 = 255;

/// The context of an explanation.
pub(crate) struct Explainer<'a> {
    pub manifest: &'a Manifest,
    /// The attach points of the script.
    pub points: &'a [Span],
    /// None for a bundle, which has no source text.
    pub sources: &'a [Source],
    pub run: &'a Run,
}

impl Explainer<'_> {
    /// The failure for an error, at its place in the script if it has one. `other` is the status of unknown errors.
    pub fn explain(&self, error: &anyhow::Error, other: u8) -> Failure {
        if let Some(refused) = error.downcast_ref::<VerifierError>() {
            if self.run.verbose {
                to_stderr(&format!("{}\n", diag::plain_lines(refused.log.trim_end())));
            }
            // If the log has no place, use that of the probe.
            let mut sites = self.manifest.programs.iter().flat_map(|p| &p.sites);
            let probe = sites.find(|s| s.name == refused.program).map(|s| &s.pos);
            let pos = refused.pos.as_ref().or(probe);
            let bug = "if the script does not do this, it is a bug in rbt: please report it with the script";
            let mut help = refused.suggestion.clone().unwrap_or_else(|| bug.to_string());
            if !self.run.verbose {
                help.push_str("; -v shows the full log of the verifier");
            }
            return self.reported(Diagnostic::error(refused.code(), self.at(pos), refused.message()).help(help), REFUSED, pos);
        }
        if let Some(failed) = error.downcast_ref::<AttachFailed>() {
            let pos = Some(&failed.pos);
            let message = format!("cannot attach {}: {}", failed.probe, failed.reason);
            let help = "with `config = { missing_probes = warn; }` the other probes are attached";
            return self.reported(Diagnostic::error("attach", self.at(pos), message).help(help), REFUSED, pos);
        }
        if let Some(denied) = error.downcast_ref::<NotPermitted>() {
            return Failure::from_text(&denied.to_string()).code("no-permission");
        }
        if error.downcast_ref::<NothingAttached>().is_some() {
            return Failure::new("No probes to attach").code("no-probes").status(REFUSED);
        }
        if let Some(no_room @ NoRoomForName { pos, .. }) = error.downcast_ref::<NoRoomForName>() {
            let help = "build it for a machine with this name, or run the script with rbt";
            return self.reported(Diagnostic::error("bundle", self.at(Some(pos)), no_room.to_string()).help(help), 1, Some(pos));
        }
        if let Some(runtime::NotWritten(why)) = error.downcast_ref::<runtime::NotWritten>() {
            let place = crate::output_files::place_of(self.run);
            return not_written(&place, why);
        }
        let code = if error.to_string().starts_with("-c:") { "no-command" } else { "kernel" };
        Failure::from_text(&format!("{error:#}")).code(code).status(other)
    }

    /// The attach point that begins here, or else this place.
    fn at(&self, pos: Option<&Pos>) -> Span {
        let Some(pos) = pos else { return Span::default() };
        let rest = line_span(pos, self.sources);
        self.points.iter().copied().find(|p| (p.source, p.start) == (rest.source, rest.start)).unwrap_or(rest)
    }

    fn reported(&self, diagnostic: Diagnostic, status: u8, pos: Option<&Pos>) -> Failure {
        if self.sources.is_empty() {
            let place = pos.map(|pos| format!("{}:{}: ", pos.file, pos.line)).unwrap_or_default();
            let failure = Failure::new(format!("{place}{}", diagnostic.message)).code(diagnostic.code).status(status);
            return Failure { help: diagnostic.help, ..failure };
        }
        let message = diagnostic.message.clone();
        let text = diag::render(&Diagnostics::from(diagnostic), self.sources, self.run.color);
        let _ = io::stderr().write_all(text.as_bytes());
        Failure { message, ..Failure::reported(status) }
    }
}

/// The rest of the line, or the whole line if the column is meaningless.
pub(crate) fn line_span(pos: &Pos, sources: &[Source]) -> Span {
    let short = || diag::short_names(sources).iter().position(|name| *name == pos.file);
    let index = sources.iter().position(|s| s.name == pos.file).or_else(short);
    let found = index.and_then(|i| Some((i, sources.get(i)?)));
    let Some((index, source)) = found else { return Span::default() };
    let line = source.line(pos.line);
    let indent = (line.len() - line.trim_start().len()) as u32;
    let from = span_at(source, pos.line, pos.col.max(indent + 1));
    let end = span_at(source, pos.line, 1).start + line.trim_end().len() as u32;
    Span { source: index as u16, start: from.start, end: end.max(from.end), ..Span::default() }
}

/// The span of one character at a line and column, both from 1.
pub(crate) fn span_at(source: &Source, line: u32, col: u32) -> Span {
    let start: usize = source.text.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(str::len).sum();
    let within: usize = source.line(line).chars().take(col.saturating_sub(1) as usize).map(char::len_utf8).sum();
    let start = (start + within) as u32;
    Span { source: 0, start, end: start + 1, ..Span::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_marked_without_its_indent() {
        let sources = [Source { name: "dir/a.bt".into(), text: "begin {\n  @ = 1;\n}\n".into() }];
        let span = line_span(&Pos { file: "a.bt".into(), line: 2, col: 1, ..Pos::default() }, &sources);
        assert_eq!(&sources[0].text[span.start as usize..span.end as usize], "@ = 1;");
        assert_eq!(line_span(&Pos { file: "other".into(), line: 2, col: 1, ..Pos::default() }, &sources), Span::default());
        assert_eq!(line_span(&Pos { file: "a.bt".into(), line: 99, col: 1, ..Pos::default() }, &sources).source, 0);
    }
}
