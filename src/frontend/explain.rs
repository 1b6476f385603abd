//! Explains errors of LLVM and of the kernel in terms of the script.

use super::Frontend;
use crate::codegen::artifact::Artifact;
use crate::codegen::{self, Compiled};
use crate::diag::{self, Diagnostic, Diagnostics, Source, Span};
use crate::emit::EmitError;
use crate::failure::Failure;
use crate::launch::explain::{Explainer, span_at};
use crate::runtime::{AttachRefused, NotPermitted, VerifierError};
use crate::sema::hir;
use crate::settings::{Mechanism, Settings};
use crate::system::{Feature, TargetInfo};

pub(crate) use crate::launch::explain::{REFUSED, line_span};

/// The failure for an error, at its place in the script if it has one. `other` is the status of unknown errors.
pub(crate) fn explain(error: &anyhow::Error, other: u8, compiled: &Compiled, script: &hir::Script, front: &Frontend) -> Failure {
    let points: Vec<Span> = script.probes.iter().flat_map(|p| &p.sites).map(|s| s.span).collect();
    let manifest = &compiled.artifact.manifest;
    Explainer { manifest, points: &points, sources: &front.sources, run: front.run }.explain(error, other)
}

/// As [`explain`], but prints nothing.
pub(crate) fn explain_silently(error: &anyhow::Error, other: u8, compiled: &Compiled, front: &Frontend) -> Failure {
    Explainer { manifest: &compiled.artifact.manifest, points: &[], sources: &[], run: front.run }.explain(error, other)
}

/// The mechanisms to avoid after the kernel rejected one that rbt chose. It may have rejected another one, and then
/// rejects it again.
pub fn refused_mechanisms(
    error: &anyhow::Error,
    artifact: &Artifact,
    script: &hir::Script,
    settings: &Settings,
    sys: &dyn TargetInfo,
) -> Vec<Mechanism> {
    if error.downcast_ref::<NotPermitted>().is_some() {
        return Vec::new();
    }
    let verifier_error = error.downcast_ref::<VerifierError>();
    let too_large = verifier_error.is_some_and(VerifierError::is_too_large);
    if too_large && !settings.refuses(Mechanism::InlineStatements) && codegen::has_split_body(script) {
        return vec![Mechanism::InlineStatements];
    }
    // loops are smaller than copies, though not faster
    if too_large && !settings.refuses(Mechanism::Unroll) && script.unrolls() {
        return vec![Mechanism::Unroll];
    }
    let chosen = || chosen_mechanisms(artifact, sys);
    let mut refused = error.downcast_ref::<AttachRefused>().map_or_else(chosen, |refused| vec![refused.mechanism]);
    if refused.is_empty() && verifier_error.is_some_and(VerifierError::misses_bound) && !settings.refuses(Mechanism::InlineBounds) {
        refused.push(Mechanism::InlineBounds);
    }
    refused
}

/// The mechanisms that rbt chose, and that it would do without first.
pub fn chosen_mechanisms(artifact: &Artifact, sys: &dyn TargetInfo) -> Vec<Mechanism> {
    let all: Vec<Mechanism> = artifact.manifest.programs.iter().filter_map(|p| p.lowered).collect();
    // without cookies, only the numbers of system calls distinguish the sites of a program
    let several = artifact.manifest.programs.iter().any(|p| p.sites.len() > 1);
    let needed = |m: Mechanism| m == Mechanism::RawSyscalls && several && !sys.has(Feature::PerfCookie);
    let all: Vec<Mechanism> = all.into_iter().filter(|m| !needed(*m)).collect();
    // it is rejected most often, and the other mechanisms may distinguish the sites of a program
    if all.contains(&Mechanism::Fentry) { vec![Mechanism::Fentry] } else { all }
}

/// An error of LLVM's back end in generated code. It is a bug in rbt, but the user may be able to write the script
/// differently.
pub(crate) fn not_compiled(error: &EmitError, sources: &[Source]) -> Diagnostics {
    let mut all = error.diagnostics.clone();
    all.dedup();
    for message in &error.messages {
        let (span, text) = located(message, sources);
        let (text, help) = if text.contains("stack limit") || text.contains("built-in function 'mem") {
            ("it needs more than the 512 bytes of a BPF program's stack".into(), "use fewer values at a time, or store them in maps")
        } else if error.is_for_length() {
            ("it needs branches over more than 32,767 instructions, which kernels before 6.6 lack".into(), "split it among several probes")
        } else {
            (text, "this is a bug in rbt: please report it with the script")
        };
        let message = format!("cannot compile this: {text}");
        // LLVM repeats it for each instruction
        if !all.iter().any(|d| d.message == message) {
            all.push(Diagnostic::error("backend", span, message).help(help));
        }
    }
    Diagnostics(all)
}

pub(crate) fn report_not_compiled(error: &EmitError, front: &Frontend) -> Failure {
    front.print_message(&diag::render(&not_compiled(error, &front.sources), &front.sources, front.run.color));
    Failure::reported(2)
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
    // the place and the function are not repeated at the start of the text
    let named = names.iter().find_map(|name| text.strip_prefix(&format!("{name}:")));
    let text = named.and_then(|t| t.split_once(": ")).map_or(text, |(_, t)| t).to_string();
    (place.unwrap_or_default(), text)
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
}
