//! The last stages: load, attach and run. Errors of the kernel are explained in terms of the script.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::budget::Budget;
use crate::builtins::{self, MapAction};
use crate::cli::{Program, Run};
use crate::codegen::Compiled;
use crate::diag::{self, Span};
use crate::failure::{Failure, reason};
use crate::frontend::explain::{REFUSED, explain, unserved};
use crate::frontend::{Checked, Frontend};
use crate::metrics::{Metrics, Names};
use crate::otlp::Export;
use crate::outputs::{self, Destinations};
use crate::probes::Attach;
use crate::render::{self, About, RenderOptions};
use crate::runtime::child::Child;
use crate::runtime::{self, Options, Scrapes, Watched};
use crate::sema::hir;
use crate::serve;
use crate::settings::{MapLayout, Mechanism, Mode, Settings};
use crate::state::{self, State};
use crate::streams::to_stderr;
use crate::system::TargetInfo;
use crate::types::Type;

/// Forks the `-c` command, which waits until it is let go.
pub(super) fn child(command: &str) -> Result<Child, Failure> {
    Child::prepare(command).map_err(|e| Failure::from_text(&format!("{e:#}")).code("no-command"))
}

/// Those that learn of the maps of a run, apart from the readers of its output.
pub(super) struct Watchers<'a> {
    pub budget: Option<&'a Budget>,
    pub scrapes: Option<Arc<Scrapes>>,
    pub export: Option<Export>,
}

/// Why nothing ran.
pub(super) enum Stopped {
    /// For good.
    Failed(Failure),
    /// The kernel will not have these in place of what the script names: to be compiled without.
    AttachRefused(Vec<Mechanism>),
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
    let to = Destinations::of(run)?;
    let with_state = to.formats().any(|format| format.state);
    let settings = &checked.settings;
    let render = RenderOptions {
        trunc_trailer: settings.str_trunc_trailer.clone(),
        warnings: run.warnings,
        tables: settings.map_layout == MapLayout::Table,
        commands: super::budget::is_read_for_commands(run),
        key_parts: compiled.artifact.manifest.maps.iter().filter_map(|map| map.key.as_ref()).map(Type::parts).max().unwrap_or(1),
        base: super::merge::base(run)?,
        about: Arc::new(about(front)),
        ..RenderOptions::default()
    };
    let to_file = to.file.is_some();
    let mut renderer = to.open(&render)?;
    let mut out = renderer.take_file()?;
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
        hear: watchers.export.as_ref().and_then(Export::hear),
        scrapes: watchers.scrapes.clone(),
        watched: watched(run, checked, front, to_file, renderer.options()),
        state: with_state.then(|| Box::new(blank_state(front, budget))),
        on_attached: None,
        blocks: if let Program::Saved(_) = run.program { blocks(&checked.script) } else { Vec::new() },
        asked: (!run.quiet && run.warnings).then(|| asked(run, &checked.settings)).flatten(),
        log: (run.verbose || libbpf || verifier).then(|| Box::new(log) as Box<dyn FnMut(&str)>),
    };
    let mut session =
        runtime::load(&compiled.artifact, settings, sys, options).map_err(|e| match unserved(&e, compiled, checked, sys) {
            mechanisms if mechanisms.is_empty() => explain(&e, REFUSED, compiled, &checked.script, front).into(),
            mechanisms => {
                if run.verbose {
                    to_stderr(&format!("with the mechanisms in the script: {}\n", diag::plain(&format!("{e:#}"))));
                }
                Stopped::AttachRefused(mechanisms)
            }
        })?;
    session.adopt(child.take());
    front.clock.stage("load");

    let exit = match settings.mode {
        Mode::Trace => session.run(&mut renderer, &mut out, &mut io::stderr()),
        Mode::Test | Mode::Bench => {
            let mut listener = render::text(&RenderOptions { warnings: true, ..renderer.options().clone() });
            session.try_out(&mut *listener, &mut renderer, &mut out, &mut io::stderr())
        }
    };
    let exit = exit.map_err(|e| explain(&e, 1, compiled, &checked.script, front))?;
    front.clock.stage("run");
    if let Some(budget) = budget {
        budget.ran(exit.child);
    }
    let written = if renderer.ended() { renderer.finish()? } else { 0 };
    Ok(match exit.child {
        Some(child) if run.propagate_status && exit.status == 0 => child.status() as u8,
        _ if exit.status == 0 => written,
        _ => exit.status,
    })
}

/// The screen of `--watch`, where there is a terminal for it.
fn watched(run: &Run, checked: &Checked, front: &Frontend, to_file: bool, options: &RenderOptions) -> Option<Watched> {
    let every = run.watch.filter(|_| !to_file && options.terminal && run.is_text())?;
    let title = match &run.program {
        Program::Saved(script) => format!("rbt {}", script.name),
        Program::File(path) => format!("rbt {}", path.display()),
        Program::Made(_) => front.sources.first().map(|source| source.name.clone()).unwrap_or_default(),
        Program::Text(_) | Program::Stdin => "rbt".into(),
    };
    Some(Watched { every, title, options: options.clone(), hidden: working_maps(&checked.script) })
}

/// Names of maps that `end` empties without showing them: the script only works with them.
fn working_maps(script: &hir::Script) -> Vec<String> {
    let (mut shown, mut emptied) = (BTreeSet::new(), BTreeSet::new());
    for probe in script.probes.iter().filter(|p| p.sites.iter().any(|site| matches!(site.attach, Attach::End))) {
        hir::visit(&probe.body, &mut |node| {
            if let hir::Node::Expr(hir::Expr { kind: hir::ExprKind::Call(call), .. }) = node
                && let (Some(action), Some(hir::CallArg::Map(map))) = (builtins::whole(call.row), call.args.first())
            {
                match action {
                    MapAction::Shown => shown.insert(*map),
                    MapAction::Cleared | MapAction::Zeroed => emptied.insert(*map),
                };
            }
        });
    }
    emptied.difference(&shown).filter_map(|map| script.maps.get(*map)).map(|map| map.name.clone()).collect()
}

/// Starts to serve and to export what the run counts and says, if that is asked for.
pub(super) fn watchers<'a>(run: &Run, checked: &Checked, front: &Frontend, budget: Option<&'a Budget>) -> Result<Watchers<'a>, Failure> {
    if run.serve.is_none() && run.otlp.is_none() {
        return Ok(Watchers { budget, scrapes: None, export: None });
    }
    let names = Names::of(front.sources.iter().map(|source| source.text.as_str()));
    let metrics = || Metrics::new(names.clone(), checked.settings.max_series);
    let scrapes = Scrapes::new(blank_state(front, budget)).map_err(|e| Failure::new(format!("--serve: {}", reason(&e))))?;
    let scrapes = Arc::new(scrapes);
    if let Some(address) = run.serve {
        let address = serve::start(address, run.serve_token.as_deref(), metrics(), scrapes.clone())?;
        if !run.quiet {
            to_stderr(&format!("Serving http://{address}/metrics\n"));
        }
    }
    let export = run.otlp.clone().map(|config| Export::start(config, metrics(), scrapes.clone(), run.warnings)).transpose()?;
    Ok(Watchers { budget, scrapes: Some(scrapes), export })
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

/// Characters of a script that documents show as its name.
const MOST_OF_NAME: usize = 60;

/// The same for documents.
fn about(front: &Frontend) -> About {
    let Some(source) = front.sources.first() else { return About::default() };
    let name = if source.name == diag::PROGRAM_NAME { first_words(&source.text) } else { source.name.clone() };
    outputs::about(name, source.text.clone())
}

/// What a script without a file is called.
fn first_words(script: &str) -> String {
    let text = script.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MOST_OF_NAME) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
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
