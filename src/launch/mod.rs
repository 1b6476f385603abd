//! From a compiled script to an exit status: what `rbt` and `rbt-run` share. Nothing here needs the script's text or the compiler.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::builtins;
use crate::cli::Run;
use crate::codegen::artifact::Artifact;
use crate::diag;
use crate::failure::{Failure, reason};
use crate::metrics::MetricNames;
use crate::otlp::HandedOver;
use crate::output_files::{self, Destinations};
use crate::probes::Env;
use crate::render::{self, Base, RenderOptions, RunLabel};
use crate::runtime::child::{self, Child};
use crate::runtime::{self, Costs, Measure, OnEnd, Options, Prefetch, Remote, Scrapes, Stream, WatchView};
use crate::settings::{MapLayout, Mode, Overhead, Settings};
use crate::state::{self, State};
use crate::streams::to_stderr;
use crate::system::machine::{container, host_name};
use crate::types::Type;
use export::Export;
use prefix_writer::PrefixWriter;

pub(crate) mod expectations;
pub(crate) mod explain;
pub(crate) mod export;
mod prefix_writer;
pub(crate) mod require;
pub mod resolve;

/// The information about a script besides its compiled form.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Described {
    /// The name of its text: a path, or the name of a tool.
    pub name: String,
    /// Its name in documents.
    pub shown: String,
    /// The title of the screen of `--watch`.
    pub title: String,
    /// The digest of its texts.
    pub sha256: String,
    /// Its text, for documents that show it; may be empty.
    pub text: String,
    /// Names of internal maps, which are not shown during the run.
    pub hidden: Vec<String>,
    /// See [`Options::blocks`].
    pub blocks: Vec<Vec<String>>,
    /// Its filters in the user's words; none if the meaning of its filters is unknown.
    pub filters: Option<Vec<String>>,
    /// Names of metrics from its text.
    pub metrics: MetricNames,
}

/// A run that is about to begin.
pub(crate) struct Launch<'a> {
    pub run: &'a Run,
    pub script: &'a Described,
    /// Programs read the output for commands (reports of a verdict).
    pub commands: bool,
    /// See [`RenderOptions::base`].
    pub base: Option<Arc<Base>>,
    scrapes: Option<Arc<Scrapes>>,
    export: Option<Box<dyn Export>>,
    managed: Option<ManagedRun>,
    /// If present, the cost of the run is measured, and the effect of this limit is computed.
    pub measure: Option<(Overhead, CostSink)>,
    /// See [`Options::prefetched`].
    pub prefetched: Cell<Option<Prefetch>>,
}

/// Receives the cost of a run.
pub(crate) type CostSink = Rc<RefCell<Option<Costs>>>;

/// The control of a run that is one of several in the process.
pub(crate) struct ManagedRun {
    /// The name of the script, which precedes its messages.
    pub name: String,
    /// Ends the run.
    pub remote: Arc<Remote>,
    /// Requests the state of the run.
    pub scrapes: Arc<Scrapes>,
    /// What it continues.
    pub handed_over: HandedOver,
    /// See [`Options::predecessor`].
    pub predecessor: Rc<dyn Fn() -> Option<Box<State>>>,
}

/// The program to run.
pub(crate) struct LaunchInput<'a> {
    pub artifact: &'a Artifact,
    pub env: Env<'a>,
    /// Receives the final maps.
    pub on_end: Option<OnEnd>,
    /// Called once the programs are loaded.
    pub on_loaded: &'a mut dyn FnMut(),
}

/// How a run ended.
pub(crate) struct RunResult {
    pub status: u8,
    pub child: Option<child::Exit>,
}

/// Why a run failed.
pub(crate) enum RunError {
    /// The output failed, or a request of the user.
    Failed(Failure),
    /// The kernel refused to load or to attach; nothing ran.
    Refused(anyhow::Error),
    /// It failed during the run.
    Broke(anyhow::Error),
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        RunError::Failed(failure)
    }
}

impl<'a> Launch<'a> {
    /// Starts to serve and to export the counts and the output of the run, if requested.
    pub fn prepare(run: &'a Run, script: &'a Described, settings: &Settings, commands: bool) -> Result<Self, Failure> {
        if run.serve.is_none() && run.otlp.is_none() {
            return Ok(Self {
                run,
                script,
                commands,
                base: None,
                scrapes: None,
                export: None,
                managed: None,
                measure: None,
                prefetched: Cell::default(),
            });
        }
        let scrapes = script.scrapes()?;
        let handed_over = HandedOver::default();
        let export = script.export(run, settings, &scrapes, &handed_over)?;
        if let Some(exporters) = export::PROVIDED.get() {
            (exporters.serve)(script, run, settings, &scrapes, &handed_over)?;
        }
        Ok(Self {
            run,
            script,
            commands,
            base: None,
            scrapes: Some(scrapes),
            export,
            managed: None,
            measure: None,
            prefetched: Cell::default(),
        })
    }

    /// For a run that is one of several in the process. It is served together with the others.
    pub fn managed(run: &'a Run, script: &'a Described, settings: &Settings, managed: ManagedRun) -> Result<Self, Failure> {
        let scrapes = managed.scrapes.clone();
        let export = script.export(run, settings, &scrapes, &managed.handed_over)?;
        Ok(Self {
            run,
            script,
            commands: false,
            base: None,
            scrapes: Some(scrapes),
            export,
            managed: Some(managed),
            measure: None,
            prefetched: Cell::default(),
        })
    }

    /// Exports the rest.
    pub fn finish(self) {
        if let Some(export) = self.export {
            export.finish();
        }
    }

    /// The screen of `--watch`, if there is a suitable terminal.
    fn watched(&self, to_file: bool, options: &RenderOptions) -> Option<WatchView> {
        let every = self.run.watch.filter(|_| !to_file && io::stdout().is_terminal() && self.run.is_text())?;
        Some(WatchView { interval: every, title: self.script.title.clone(), options: options.clone(), hidden: self.script.hidden.clone() })
    }

    /// The user's filters, for a note if nothing matched.
    fn filters(&self, settings: &Settings) -> Option<String> {
        let mut words = self.script.filters.clone()?;
        words.extend(settings.pid.map(|pid| format!("-p {pid}")));
        words.extend(self.run.cgroup.as_ref().map(|path| format!("--cgroup {path}")));
        words.extend(self.run.container.as_ref().map(|name| format!("--container {name}")));
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// Forks the `-c` command, which waits until it is started.
pub(crate) fn child(command: &str) -> Result<Child, Failure> {
    Child::prepare(command).map_err(|e| Failure::from_text(&format!("{e:#}")).code("no-command"))
}

/// Loads a compiled script and runs it to its end.
pub(crate) fn start(launch: &Launch, given: LaunchInput, child: &mut Option<Child>) -> Result<RunResult, RunError> {
    let (run, LaunchInput { artifact, env, on_end, on_loaded: loaded }) = (launch.run, given);
    let settings = env.settings;
    let to = Destinations::of(run)?;
    let shared = to.format.shared;
    let with_state = to.formats().any(|format| format.state);
    let render = RenderOptions {
        trunc_trailer: settings.str_trunc_trailer.clone(),
        warnings: run.warnings,
        tables: settings.map_layout == MapLayout::Table,
        commands: launch.commands,
        key_parts: artifact.manifest.maps.iter().filter_map(|map| map.key.as_ref()).map(Type::parts).max().unwrap_or(1),
        base: launch.base.clone(),
        about: Arc::new(output_files::about(launch.script.shown.clone(), launch.script.text.clone())),
        script: launch.managed.as_ref().map(|managed| managed.name.clone()),
        ..RenderOptions::default()
    };
    let shows_names = artifact.manifest.types().any(|ty| ty.contains_deferred(&builtins::names_container));
    if let Some(exporters) = export::PROVIDED.get().filter(|_| launch.export.is_some() || shows_names) {
        (exporters.name_containers)(run.warnings);
    }
    if let Some(why) = container::hidden_names().filter(|_| shows_names && run.warnings) {
        to_stderr(&format!("warning: {why}\n"));
    }
    let to_file = to.file.is_some();
    let mut renderer = to.open(&render)?;
    let file = renderer.take_file()?;
    let out_fd = file.as_fd().try_clone_to_owned().ok();
    let mut out: Box<Stream> = match &launch.managed {
        Some(managed) => Box::new(PrefixWriter::new(if shared == RunLabel::Prefix { &managed.name } else { "" }, file)),
        None => Box::new(file),
    };
    let shows = |stage: &str| run.dumps.contains(&stage);
    let (libbpf, verifier) = (shows("libbpf"), shows("verifier"));
    // The messages of libbpf are too many for `-v`.
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
        waits: launch.managed.is_some(),
        managed_by: launch.managed.as_ref().map(|managed| managed.remote.clone()),
        predecessor: launch.managed.as_ref().map(|managed| {
            let replaces = managed.predecessor.clone();
            Box::new(move || replaces()) as Box<dyn FnOnce() -> _>
        }),
        maps: Vec::new(),
        estimates: None,
        on_end,
        out: out_fd,
        listener: launch.export.as_ref().and_then(|export| export.listener()),
        scrapes: launch.scrapes.clone(),
        costs: launch.measure.clone().map(|(limit, to)| Measure { limit, report: Box::new(move |costs| *to.borrow_mut() = Some(costs)) }),
        watched: launch.watched(to_file, renderer.options()),
        state: with_state.then(|| Box::new(launch.script.blank_state())),
        on_attached: None,
        blocks: launch.script.blocks.clone(),
        prefetched: launch.prefetched.take(),
        filters: (!run.quiet && run.warnings).then(|| launch.filters(settings)).flatten(),
        log: (run.verbose || libbpf || verifier).then(|| Box::new(log) as Box<dyn FnMut(&str)>),
    };
    let mut session = runtime::load(artifact, &env, options).map_err(RunError::Refused)?;
    session.set_child(child.take());
    loaded();

    let mut err: Box<Stream> = match &launch.managed {
        Some(managed) => Box::new(PrefixWriter::new(&managed.name, io::stderr())),
        None => Box::new(io::stderr()),
    };
    let exit = match settings.mode {
        Mode::Trace | Mode::List => session.run(&mut renderer, &mut *out, &mut *err),
        Mode::Test | Mode::Bench => {
            let mut listener = render::text(&RenderOptions { warnings: true, ..renderer.options().clone() });
            session.try_out(&mut *listener, &mut renderer, &mut *out, &mut *err)
        }
    };
    let exit = exit.map_err(RunError::Broke)?;
    let written = if renderer.is_complete() { renderer.finish()? } else { 0 };
    let status = match exit.child {
        Some(child) if run.propagate_status && exit.status == 0 => child.status() as u8,
        _ if exit.status == 0 => written,
        _ => exit.status,
    };
    Ok(RunResult { status, child: exit.child })
}

impl Described {
    /// Creates the connection for requests of the run's state.
    pub fn scrapes(&self) -> Result<Arc<Scrapes>, Failure> {
        let scrapes = Scrapes::new(self.blank_state()).map_err(|e| Failure::new(format!("cannot serve a run: {}", reason(&e))))?;
        Ok(Arc::new(scrapes))
    }

    fn export(
        &self,
        run: &Run,
        settings: &Settings,
        scrapes: &Arc<Scrapes>,
        handed_over: &HandedOver,
    ) -> Result<Option<Box<dyn Export>>, Failure> {
        let Some(exporters) = export::PROVIDED.get() else { return Ok(None) };
        (exporters.export)(self, run, settings, scrapes, handed_over)
    }

    /// The state of a run before it begins.
    fn blank_state(&self) -> State {
        let system = rustix::system::uname();
        let text = |part: &CStr| part.to_string_lossy().into_owned();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        State {
            rbt_state: state::VERSION,
            rbt: crate::VERSION.into(),
            script: state::Script { name: self.name.clone(), sha256: self.sha256.clone() },
            host: host_name(),
            kernel: text(system.release()),
            machine: text(system.machine()),
            start_ns: u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX),
            ..State::default()
        }
    }
}
