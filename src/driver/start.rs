//! The last stages: load, attach and run. Errors of the kernel are explained in terms of the script.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::budget::Budget;
use crate::cli::{Program, Run};
use crate::codegen::Compiled;
use crate::diag::{self, Span};
use crate::failure::{Failure, reason};
use crate::frontend::explain::{REFUSED, explain, unserved};
use crate::frontend::{Checked, Frontend};
use crate::render::{self, RenderOptions};
use crate::runtime::child::Child;
use crate::runtime::{self, Options, Scrapes};
use crate::sema::hir;
use crate::serve::{self, Names};
use crate::settings::{MapLayout, Mechanism, Mode, Settings};
use crate::state::{self, State};
use crate::streams::{not_written, to_stderr};
use crate::system::TargetInfo;

/// Forks the `-c` command, which waits until it is let go.
pub(super) fn child(command: &str) -> Result<Child, Failure> {
    Child::prepare(command).map_err(|e| Failure::from_text(&format!("{e:#}")).code("no-command"))
}

/// Those that learn of the maps of a run, apart from the readers of its output.
pub(super) struct Watchers<'a> {
    pub budget: Option<&'a Budget>,
    pub scrapes: Option<Arc<Scrapes>>,
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

/// Loads a compiled script and runs it to its end. The result is the exit status; final maps go to `budget`.
pub(super) fn start(
    run: &Run,
    checked: &Checked,
    compiled: &Compiled,
    child: &mut Option<Child>,
    sys: &dyn TargetInfo,
    front: &mut Frontend,
    watchers: &Watchers,
) -> Result<u8, Stopped> {
    let budget = watchers.budget;
    let mut out = output(run)?;
    let format = render::find(&run.format).ok_or_else(|| Failure::new(format!("there is no format `{}`", run.format)))?;
    let shows = |stage: &str| run.dumps.contains(&stage);
    let (libbpf, verifier) = (shows("libbpf"), shows("verifier"));
    // What libbpf says is too much for `-v`.
    let log = move |line: &str| {
        if libbpf || !line.starts_with("libbpf:") {
            to_stderr(&format!("{}\n", diag::plain_lines(line)));
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
        scrapes: watchers.scrapes.clone(),
        state: format.state.then(|| Box::new(blank_state(front, budget))),
        on_attached: None,
        blocks: if let Program::Saved(_) = run.program { blocks(&checked.script) } else { Vec::new() },
        asked: (!run.quiet && run.warnings).then(|| asked(run, &checked.settings)).flatten(),
        log: (run.verbose || libbpf || verifier).then(|| Box::new(log) as Box<dyn FnMut(&str)>),
    };
    let settings = &checked.settings;
    let mut session =
        runtime::load(&compiled.artifact, settings, sys, options).map_err(|e| match unserved(&e, compiled, checked, sys) {
            mechanisms if mechanisms.is_empty() => explain(&e, REFUSED, compiled, &checked.script, front).into(),
            mechanisms => {
                if run.verbose {
                    to_stderr(&format!("with the mechanisms in the script: {}\n", diag::plain(&format!("{e:#}"))));
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
        commands: super::budget::is_read_for_commands(run),
    };
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

/// Starts to serve the maps of the run, if that is asked for.
pub(super) fn serve(run: &Run, checked: &Checked, front: &Frontend, budget: Option<&Budget>) -> Result<Option<Arc<Scrapes>>, Failure> {
    let Some(address) = run.serve else { return Ok(None) };
    let blank = blank_state(front, budget);
    let scrapes = Scrapes::new(blank).map_err(|e| Failure::new(format!("--serve: {}", reason(&e))))?;
    let scrapes = Arc::new(scrapes);
    let names = Names::of(front.sources.iter().map(|source| source.text.as_str()));
    let address = serve::start(address, run.serve_token.as_deref(), names, checked.settings.max_series, scrapes.clone())?;
    if !run.quiet {
        to_stderr(&format!("Serving http://{address}/metrics\n"));
    }
    Ok(Some(scrapes))
}

/// What is known of a run before it begins.
fn blank_state(front: &Frontend, budget: Option<&Budget>) -> State {
    let name = front.sources.first().map(|source| source.name.clone()).unwrap_or_default();
    let mut digest = Sha256::new();
    for (i, source) in front.sources.iter().enumerate() {
        if budget.is_none_or(|budget| !budget.is_from(i)) {
            digest.update(source.text.as_bytes());
        }
    }
    let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let system = rustix::system::uname();
    let text = |part: &CStr| part.to_string_lossy().into_owned();
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    State {
        rbt_state: state::VERSION,
        rbt: crate::VERSION.into(),
        script: state::Script { name, sha256 },
        host: text(system.nodename()),
        kernel: text(system.release()),
        machine: text(system.machine()),
        start_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
        ..State::default()
    }
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

/// The filters of a tool or a verb, as the user gave them. For other scripts, only the author knows what they show.
fn asked(run: &Run, settings: &Settings) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    match &run.program {
        Program::Saved(_) => {
            let option = |(name, value): &(String, Option<String>)| match value {
                Some(value) => format!("--{name} {value}"),
                None => format!("--{name}"),
            };
            words.extend(settings.invocation.options.iter().map(option));
        }
        Program::Made(made) => words.extend(made.condition().map(|text| format!("--if '{text}'"))),
        Program::Text(_) | Program::File(_) | Program::Stdin => return None,
    }
    words.extend(settings.pid.map(|pid| format!("-p {pid}")));
    words.extend(run.cgroup.as_ref().map(|path| format!("--cgroup {path}")));
    words.extend(run.container.as_ref().map(|name| format!("--container {name}")));
    (!words.is_empty()).then(|| words.join(" "))
}

/// The destination of the script's output. It is not buffered, because the session buffers as `-B` requires.
pub(super) fn output(run: &Run) -> Result<File, Failure> {
    match &run.output {
        Some(path) => File::create(path).map_err(|e| not_written(&format!("-o {}", path.display()), &e)),
        None => {
            let copy = io::stdout().as_fd().try_clone_to_owned();
            copy.map(File::from).map_err(|e| not_written("standard output", &e))
        }
    }
}
