//! Explains errors of LLVM and of the kernel in terms of the script.

use std::io::{self, Write};

use super::{Checked, Frontend};
use crate::codegen::Compiled;
use crate::diag::{self, Diagnostic, Diagnostics, Source, Span};
use crate::emit::EmitError;
use crate::failure::Failure;
use crate::runtime::{self, AttachFailed, AttachRefused, NotPermitted, NothingAttached, Refused};
use crate::sema::hir;
use crate::settings::Mechanism;
use crate::streams::{not_written, to_stderr};
use crate::system::{Feature, TargetInfo};
use crate::value::Pos;
/// The exit status where the kernel refused to load or to attach.
pub(crate) const REFUSED: u8 = 255;

/// What went wrong, at its place in the script where it has one. `other` is the status of what is not known here.
pub(crate) fn explain(error: &anyhow::Error, other: u8, compiled: &Compiled, script: &hir::Script, front: &Frontend) -> Failure {
    // where an attach point begins, it is what is meant
    let at = |pos: &Pos| {
        let rest = place(pos, &front.sources);
        let mut points = script.probes.iter().flat_map(|p| &p.sites).map(|s| s.span);
        points.find(|p| (p.source, p.start) == (rest.source, rest.start)).unwrap_or(rest)
    };
    if let Some(refused) = error.downcast_ref::<Refused>() {
        if front.run.verbose {
            to_stderr(&format!("{}\n", diag::plain_lines(refused.log.trim_end())));
        }
        // Where the log does not say, the probe's own place has to do.
        let mut sites = compiled.artifact.manifest.programs.iter().flat_map(|p| &p.sites);
        let probe = sites.find(|s| s.name == refused.program).map(|s| &s.pos);
        let span = refused.pos.as_ref().or(probe).map_or_else(Span::default, at);
        let bug = "if the script does not do this, it is a bug in rbt: please report it with the script";
        let mut help = refused.suggestion.clone().unwrap_or_else(|| bug.to_string());
        if !front.run.verbose {
            help.push_str("; -v shows the full log of the verifier");
        }
        return reported(Diagnostic::error(refused.code(), span, refused.message()).help(help), REFUSED, front);
    }
    if let Some(failed) = error.downcast_ref::<AttachFailed>() {
        let message = format!("cannot attach {}: {}", failed.probe, failed.reason);
        let help = "with `config = { missing_probes = warn; }` the other probes are attached";
        return reported(Diagnostic::error("attach", at(&failed.pos), message).help(help), REFUSED, front);
    }
    if let Some(denied) = error.downcast_ref::<NotPermitted>() {
        return Failure::from_text(&denied.to_string()).code("no-permission");
    }
    if error.downcast_ref::<NothingAttached>().is_some() {
        return Failure::new("No probes to attach").code("no-probes").status(REFUSED);
    }
    if let Some(runtime::NotWritten(why)) = error.downcast_ref::<runtime::NotWritten>() {
        let place = crate::outputs::place_of(front.run);
        return not_written(&place, why);
    }
    let code = if error.to_string().starts_with("-c:") { "no-command" } else { "kernel" };
    Failure::from_text(&format!("{error:#}")).code(code).status(other)
}

/// What was chosen in place of what the script names, when the kernel has something against it. It may not be that which it
/// has something against: then it will say so again.
pub(crate) fn unserved(error: &anyhow::Error, compiled: &Compiled, checked: &Checked, sys: &dyn TargetInfo) -> Vec<Mechanism> {
    if error.downcast_ref::<NotPermitted>().is_some() {
        return Vec::new();
    }
    // loops are smaller than copies, though not faster
    let too_large = error.downcast_ref::<Refused>().is_some_and(Refused::is_too_large);
    if too_large && !checked.settings.refuses(Mechanism::Unroll) && checked.script.unrolls() {
        return vec![Mechanism::Unroll];
    }
    let chosen = || {
        let all: Vec<Mechanism> = compiled.artifact.manifest.programs.iter().filter_map(|p| p.lowered).collect();
        // without cookies, numbers of system calls are all that tells the sites of a program apart
        let several = compiled.artifact.manifest.programs.iter().any(|p| p.sites.len() > 1);
        let needed = |m: Mechanism| m == Mechanism::RawSyscalls && several && !sys.has(Feature::PerfCookie);
        let all: Vec<Mechanism> = all.into_iter().filter(|m| !needed(*m)).collect();
        // it is refused most often, and what else was chosen may be what tells the sites of a program apart
        if all.contains(&Mechanism::Fentry) { vec![Mechanism::Fentry] } else { all }
    };
    error.downcast_ref::<AttachRefused>().map_or_else(chosen, |unserved| vec![unserved.mechanism])
}

fn reported(diagnostic: Diagnostic, status: u8, front: &Frontend) -> Failure {
    let message = diagnostic.message.clone();
    let text = diag::render(&Diagnostics::from(diagnostic), &front.sources, front.run.color);
    let _ = io::stderr().write_all(text.as_bytes());
    Failure { message, ..Failure::reported(status) }
}

/// An error of LLVM's back end in generated code. It is a bug in rbt, but the user may be able to write the script
/// differently.
pub(crate) fn not_compiled(error: &EmitError, sources: &[Source]) -> Diagnostics {
    let mut all = error.diagnostics.clone();
    all.dedup();
    for message in &error.messages {
        let (span, text) = located(message, sources);
        let (text, help) = match text.contains("stack limit") || text.contains("built-in function 'mem") {
            true => {
                ("it needs more than the 512 bytes of a BPF program's stack".into(), "use fewer values at a time, or store them in maps")
            }
            false => (text, "this is a bug in rbt: please report it with the script"),
        };
        let message = format!("cannot compile this: {text}");
        // LLVM says it again for each instruction
        if !all.iter().any(|d| d.message == message) {
            all.push(Diagnostic::error("backend", span, message).help(help));
        }
    }
    Diagnostics(all)
}

pub(crate) fn report_not_compiled(error: &EmitError, front: &Frontend) -> Failure {
    to_stderr(&diag::render(&not_compiled(error, &front.sources), &front.sources, front.run.color));
    Failure::reported(2)
}

/// The rest of the line, or the whole line where the column is not known to mean more.
pub(crate) fn place(pos: &Pos, sources: &[Source]) -> Span {
    let short = || diag::short_names(sources).iter().position(|name| *name == pos.file);
    let index = sources.iter().position(|s| s.name == pos.file).or_else(short);
    let found = index.and_then(|i| Some((i, sources.get(i)?)));
    let Some((index, source)) = found else { return Span::default() };
    let line = source.line(pos.line);
    let indent = (line.len() - line.trim_start().len()) as u32;
    let from = span_at(source, pos.line, pos.col.max(indent + 1));
    let end = span_at(source, pos.line, 1).start + line.trim_end().len() as u32;
    Span { source: index as u16, start: from.start, end: end.max(from.end) }
}

/// Splits `script:LINE:COL: ` off a message of LLVM. The location may be anywhere in the text.
fn located(message: &str, sources: &[Source]) -> (Span, String) {
    let names = diag::short_names(sources);
    let place = sources.iter().zip(&names).enumerate().find_map(|(i, (source, name))| {
        let (_, after) = message.split_once(&format!("{name}:"))?;
        let mut numbers = after.splitn(3, |c: char| !c.is_ascii_digit());
        let (line, col) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        Some(Span { source: i as u16, ..span_at(source, line, col) })
    });
    let text = message.lines().next().unwrap_or(message);
    // at its start it is not repeated, nor is the function that it is in
    let named = names.iter().find_map(|name| text.strip_prefix(&format!("{name}:")));
    let text = named.and_then(|t| t.split_once(": ")).map_or(text, |(_, t)| t).to_string();
    (place.unwrap_or_default(), text)
}

/// The span of one character at a line and column, both from 1.
fn span_at(source: &Source, line: u32, col: u32) -> Span {
    let start: usize = source.text.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(str::len).sum();
    let within: usize = source.line(line).chars().take(col.saturating_sub(1) as usize).map(char::len_utf8).sum();
    let start = (start + within) as u32;
    Span { source: 0, start, end: start + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_messages_are_found() {
        let sources = [Source { name: "stdin".into(), text: "begin {\n  é = 5;\n}\n".into() }];
        let (span, _) = located("<unknown>:0:0: in function p0 i64 (ptr): stdin:2:5: too much stack", &sources);
        assert_eq!(sources[0].line_col(span.start), (2, 5));
        assert_eq!(located("no place", &sources).0, Span::default());
        assert_eq!(span_at(&sources[0], 99, 99).source, 0);
    }

    #[test]
    fn a_line_is_marked_without_its_indent() {
        let sources = [Source { name: "dir/a.bt".into(), text: "begin {\n  @ = 1;\n}\n".into() }];
        let span = place(&Pos { file: "a.bt".into(), line: 2, col: 1, ..Pos::default() }, &sources);
        assert_eq!(&sources[0].text[span.start as usize..span.end as usize], "@ = 1;");
        assert_eq!(place(&Pos { file: "other".into(), line: 2, col: 1, ..Pos::default() }, &sources), Span::default());
        assert_eq!(place(&Pos { file: "a.bt".into(), line: 99, col: 1, ..Pos::default() }, &sources).source, 0);
    }
}
