//! The last stages: load, attach, run; and what the machine has against it, in terms of the script.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use super::budget::Budget;
use super::{Checked, Front, not_written, say, span_at, with_remedy};
use crate::check::hir;
use crate::cli::{Failure, Program, Run};
use crate::codegen::Compiled;
use crate::diag::{self, Diagnostic, Diagnostics, Source, Span};
use crate::render::{self, RenderOptions};
use crate::runtime::child::Child;
use crate::runtime::{self, AttachFailed, NotPermitted, NothingAttached, Options, Refused, Unserved};
use crate::settings::{MapLayout, Mechanism, Mode, Settings};
use crate::system::System;
use crate::value::Pos;

/// The kernel refused to load or to attach.
const REFUSED: u8 = 255;

/// Forks the `-c` command, which waits until it is let go.
pub(super) fn child(command: &str) -> Result<Child, Failure> {
    Child::prepare(command).map_err(|e| with_remedy(&format!("{e:#}")).code("no-command"))
}

/// Why nothing ran.
pub(super) enum Stopped {
    /// For good.
    Failed(Failure),
    /// The kernel will not have these in place of what the script names: to be compiled without.
    Unserved(Vec<Mechanism>),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Stopped::Failed(failure)
    }
}

/// Loads a compiled script and runs it to its end. Gives the exit status; what the maps came to goes to `budget`.
pub(super) fn start(
    run: &Run,
    checked: &Checked,
    compiled: &Compiled,
    child: &mut Option<Child>,
    sys: &dyn System,
    front: &mut Front,
    budget: Option<&Budget>,
) -> Result<u8, Stopped> {
    let mut out = output(run)?;
    let shows = |stage: &str| run.dumps.contains(&stage);
    let (libbpf, verifier) = (shows("libbpf"), shows("verifier"));
    // What libbpf says is too much for `-v`.
    let log = move |line: &str| {
        if libbpf || !line.starts_with("libbpf:") {
            say(&format!("{line}\n"));
        }
    };
    let options = Options {
        child_pid: child.as_ref().map_or(0, Child::pid),
        notify_fd: run.notify_fd,
        quiet: run.quiet,
        dry_run: run.dry_run,
        strict: run.strict,
        verbose: run.verbose || libbpf,
        verifier,
        buffering: run.buffering,
        waits: false,
        led_by: None,
        maps: Vec::new(),
        on_end: budget.map(Budget::on_end),
        on_attached: None,
        blocks: if let Program::Saved(_) = run.program { blocks(&checked.script) } else { Vec::new() },
        asked: (!run.quiet && run.warnings).then(|| asked(run, &checked.settings)).flatten(),
        log: (run.verbose || libbpf || verifier).then(|| Box::new(log) as Box<dyn FnMut(&str)>),
    };
    let settings = &checked.settings;
    let mut session = runtime::load(&compiled.artifact, settings, sys, options).map_err(|e| match unserved(&e, compiled) {
        mechanisms if mechanisms.is_empty() => explain(&e, REFUSED, compiled, &checked.script, front).into(),
        mechanisms => {
            if run.verbose {
                say(&format!("by the mechanisms that the script names: {e:#}\n"));
            }
            Stopped::Unserved(mechanisms)
        }
    })?;
    session.adopt(child.take());
    front.clock.stage("load");

    let render = RenderOptions {
        trunc_trailer: settings.str_trunc_trailer.clone(),
        warnings: run.warnings,
        tables: settings.map_layout == MapLayout::Table,
        terminal: out.is_terminal(),
        messages_terminal: io::stderr().is_terminal(),
    };
    let format = render::find(&run.format).ok_or_else(|| Failure::new(format!("there is no format `{}`", run.format)))?;
    let mut renderer = (format.make)(&render);
    let exit = match settings.mode {
        Mode::Trace => session.run(&mut *renderer, &mut out, &mut io::stderr()),
        Mode::Test | Mode::Bench => {
            let text = RenderOptions { warnings: true, ..render };
            let mut listener = render::FORMATS.first().map_or_else(|| (format.make)(&text), |first| (first.make)(&text));
            session.try_out(&mut *listener, &mut *renderer, &mut out, &mut io::stderr())
        }
    };
    let exit = exit.map_err(|e| explain(&e, 1, compiled, &checked.script, front))?;
    front.clock.stage("run");
    if let Some(budget) = budget {
        budget.ran(exit.child);
    }
    Ok(match exit.child {
        Some(child) if run.propagate_status && exit.status == 0 => child.status() as u8,
        _ => exit.status,
    })
}

/// The probes of a script, each by the names of its sites. One that does nothing here has left its work to another.
fn blocks(script: &hir::Script) -> Vec<Vec<String>> {
    let mut blocks: Vec<(Span, Vec<String>)> = Vec::new();
    for probe in script.probes.iter().filter(|p| !p.body.is_empty()) {
        let names = probe.sites.iter().map(|s| s.name.clone());
        match blocks.iter_mut().find(|(span, _)| *span == probe.span) {
            Some((_, known)) => known.extend(names),
            None => blocks.push((probe.span, names.collect())),
        }
    }
    blocks.into_iter().map(|(_, names)| names).collect()
}

/// What narrows a tool's or a verb's view, as it was given. Of other scripts nobody but their author knows what they show.
fn asked(run: &Run, settings: &Settings) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    match &run.program {
        Program::Saved(_) => {
            let option = |(name, value): &(String, Option<String>)| match value {
                Some(value) => format!("--{name} {value}"),
                None => format!("--{name}"),
            };
            words.extend(settings.options.iter().map(option));
        }
        Program::Made(made) => words.extend(made.condition().map(|text| format!("--if '{text}'"))),
        Program::Text(_) | Program::File(_) | Program::Stdin => return None,
    }
    words.extend(settings.pid.map(|pid| format!("-p {pid}")));
    words.extend(run.cgroup.as_ref().map(|path| format!("--cgroup {path}")));
    words.extend(run.container.as_ref().map(|name| format!("--container {name}")));
    (!words.is_empty()).then(|| words.join(" "))
}

/// What was chosen in place of what the script names, when the kernel has something against it. It may not be that which it
/// has something against: then it will say so again.
pub(crate) fn unserved(error: &anyhow::Error, compiled: &Compiled) -> Vec<Mechanism> {
    if error.downcast_ref::<NotPermitted>().is_some() {
        return Vec::new();
    }
    let chosen = || {
        let all: Vec<Mechanism> = compiled.artifact.manifest.programs.iter().filter_map(|p| p.lowered).collect();
        // it is refused most often, and what else was chosen may be what tells the sites of a program apart
        if all.contains(&Mechanism::Fentry) { vec![Mechanism::Fentry] } else { all }
    };
    error.downcast_ref::<Unserved>().map_or_else(chosen, |unserved| vec![unserved.mechanism])
}

/// Where the script's output goes. Not buffered: the session writes as `-B` says.
fn output(run: &Run) -> Result<File, Failure> {
    match &run.output {
        Some(path) => File::create(path).map_err(|e| not_written(&format!("-o {}", path.display()), &e)),
        None => {
            let copy = io::stdout().as_fd().try_clone_to_owned();
            copy.map(File::from).map_err(|e| not_written("standard output", &e))
        }
    }
}

/// What went wrong, at its place in the script where it has one. `other` is the status of what is not known here.
pub(super) fn explain(error: &anyhow::Error, other: u8, compiled: &Compiled, script: &hir::Script, front: &Front) -> Failure {
    // where an attach point begins, it is what is meant
    let at = |pos: &Pos| {
        let rest = place(pos, &front.sources);
        let mut points = script.probes.iter().flat_map(|p| &p.sites).map(|s| s.span);
        points.find(|p| (p.source, p.start) == (rest.source, rest.start)).unwrap_or(rest)
    };
    if let Some(refused) = error.downcast_ref::<Refused>() {
        if front.run.verbose {
            say(&format!("{}\n", refused.log.trim_end()));
        }
        // Where the log does not say, the probe's own place has to do.
        let mut sites = compiled.artifact.manifest.programs.iter().flat_map(|p| &p.sites);
        let probe = sites.find(|s| s.name == refused.program).map(|s| &s.pos);
        let span = refused.pos.as_ref().or(probe).map_or_else(Span::default, at);
        let bug = "if there is no such thing in the script, this is a bug in rbt: please report it with the script";
        let mut help = refused.suggestion.clone().unwrap_or_else(|| bug.to_string());
        if !front.run.verbose {
            help.push_str("; -v shows the verifier's whole log");
        }
        let message = format!("the kernel's verifier refuses {}: {}", refused.program, refused.reason);
        return told(Diagnostic::error("verifier", span, message).help(help), REFUSED, front);
    }
    if let Some(failed) = error.downcast_ref::<AttachFailed>() {
        let message = format!("cannot attach {}: {}", failed.probe, failed.reason);
        let help = "with `config = { missing_probes = warn; }` the other probes are attached";
        return told(Diagnostic::error("attach", at(&failed.pos), message).help(help), REFUSED, front);
    }
    if let Some(denied) = error.downcast_ref::<NotPermitted>() {
        return with_remedy(&denied.to_string()).code("no-permission");
    }
    if error.downcast_ref::<NothingAttached>().is_some() {
        return Failure::new("No probes to attach").code("no-probes").status(REFUSED);
    }
    if let Some(runtime::NotWritten(why)) = error.downcast_ref::<runtime::NotWritten>() {
        let place = front.run.output.as_ref().map_or_else(|| "standard output".to_string(), |path| format!("-o {}", path.display()));
        return not_written(&place, why);
    }
    let code = if error.to_string().starts_with("-c:") { "no-command" } else { "kernel" };
    with_remedy(&format!("{error:#}")).code(code).status(other)
}

fn told(diagnostic: Diagnostic, status: u8, front: &Front) -> Failure {
    let message = diagnostic.message.clone();
    let text = diag::render(&Diagnostics::from(diagnostic), &front.sources, front.run.color);
    let _ = io::stderr().write_all(text.as_bytes());
    Failure { message, ..Failure::told(status) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_marked_without_its_indent() {
        let sources = [Source { name: "dir/a.bt".into(), text: "begin {\n  @ = 1;\n}\n".into() }];
        let span = place(&Pos { file: "a.bt".into(), line: 2, col: 1 }, &sources);
        assert_eq!(&sources[0].text[span.start as usize..span.end as usize], "@ = 1;");
        assert_eq!(place(&Pos { file: "other".into(), line: 2, col: 1 }, &sources), Span::default());
        assert_eq!(place(&Pos { file: "a.bt".into(), line: 99, col: 1 }, &sources).source, 0);
    }
}
