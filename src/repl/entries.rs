//! Running entries: each is a separate program on a separate thread.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::interrupts;
use super::printer::{Lines, Printer};
use anyhow::Context;

use crate::cli::Run;
use crate::codegen::artifact::Artifact;
use crate::probes::Env;
use crate::render::{self, RenderOptions, Renderer};
use crate::runtime::{self, Estimates, EstimatesOfRun, Options, Parts, Remote};
use crate::sema::hir;
use crate::settings::{Invocation, MapLayout, Settings};
use crate::system::machine::live::Live;
use crate::terminal::Canvas;

/// A map that entries share: it lives as long as the prompt, or until it is reset.
#[derive(Clone)]
pub struct SharedMap {
    /// Its types.
    pub map: hir::Map,
    /// The map.
    pub fd: Arc<OwnedFd>,
}

/// Maps of the kernel by their names.
pub type NamedMaps = Vec<(String, Arc<OwnedFd>)>;

/// An entry that was attached.
pub struct Running {
    /// Its number in commands.
    pub number: usize,
    /// As it was typed.
    pub text: String,
    /// Number of attached probes.
    pub probes: u64,
    /// Its programs are paused.
    pub paused: bool,
    /// Its descriptors.
    pub parts: Parts,
    remote: Arc<Remote>,
    ended: Arc<AtomicBool>,
}

impl Running {
    /// Has it ended?
    pub fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Runs its `end` probes, and detaches it.
    pub fn end(&self) {
        self.remote.end();
    }

    /// Pauses its programs, or resumes them.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.remote.pause(paused);
    }

    /// Waits until it has ended, at most for `longest`.
    pub fn wait(&self, longest: Duration) {
        let end = Instant::now() + longest;
        while !self.is_over() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Why an entry does not exist.
pub type EntryError = anyhow::Error;

enum Progress {
    Loaded(Parts),
    Attached(u64),
    Failed(EntryError),
}

/// The renderer of an entry's output.
pub fn renderer(run: &Run, settings: &Settings, file: Option<&File>) -> anyhow::Result<Box<dyn Renderer>> {
    let options = RenderOptions {
        trunc_trailer: settings.str_trunc_trailer.clone(),
        warnings: run.warnings,
        tables: settings.map_layout == MapLayout::Table,
        escape_output: file.map_or_else(|| io::stdout().is_terminal(), File::is_terminal),
        // the prompt shows them on its own terminal
        escape_messages: io::stdout().is_terminal(),
        canvas: match file {
            Some(file) => Canvas::of(file, false),
            None => Canvas::of(io::stdout(), run.color_output),
        },
        ..RenderOptions::default()
    };
    let name = run.format.as_deref().unwrap_or(render::TEXT);
    let format = render::find(name).with_context(|| format!("there is no format `{name}`"))?;
    Ok((format.make)(&options))
}

/// The parameters of starting an entry.
pub struct EntryStart<'a> {
    /// Its number at the prompt.
    pub number: usize,
    /// As typed.
    pub text: String,
    /// The compiled entry.
    pub artifact: Artifact,
    /// The settings with which it was compiled.
    pub settings: Settings,
    /// The other facts of the run.
    pub invocation: Invocation,
    /// Maps of earlier entries.
    pub maps: NamedMaps,
    /// Options of the command line.
    pub run: &'a Run,
    /// The printer of its output.
    pub printer: &'a Printer,
    /// The destination that replaces its output.
    pub file: Option<Arc<File>>,
    /// The text to print when it has ended.
    pub end_message: String,
    /// What limits do to the entries.
    pub estimates: Arc<Estimates>,
}

/// Loads, attaches and runs an entry. The text of `announce` is shown once it is attached, before its own output.
///
/// Errors: those of [`runtime::load`] and of attaching.
pub fn start(start: EntryStart<'_>, announce: impl FnOnce(u64) -> String + Send + 'static) -> Result<Running, EntryError> {
    let EntryStart { number, text, artifact, settings, invocation, maps, run, printer, file, end_message, estimates } = start;
    let remote = Arc::new(Remote::new()?);
    let over = Arc::new(AtomicBool::new(false));
    let (sender, messages) = mpsc::channel();
    estimates.register(number, remote.clone());
    let (remote_of_thread, ended, run, printer) = (remote.clone(), over.clone(), run.clone(), printer.clone());
    let shown = printer.clone();
    let (last, remote_end) = (printer.clone(), remote.clone());
    let thread = move || {
        let attached = sender.clone();
        let on_attached = move |probes: u64| {
            shown.show(announce(probes).into_bytes());
            let _ = attached.send(Progress::Attached(probes));
        };
        let renderer = renderer(&run, &settings, file.as_deref());
        let (mut out, mut err) = (Lines::new(printer.clone(), file), Lines::new(printer, None));
        let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&settings.debug_dirs);
        let options = Options {
            // for people, `announce` prints it
            quiet: run.quiet || run.is_text(),
            managed_by: Some(remote_of_thread),
            waits: true,
            on_attached: Some(Box::new(on_attached)),
            buffering: run.buffering,
            maps,
            estimates: Some(EstimatesOfRun { all: estimates, run: Some(number) }),
            ..Options::default()
        };
        let ran =
            runtime::load(&artifact, &Env { sys: &sys, settings: &settings, invocation: &invocation }, options).and_then(|mut session| {
                let _ = sender.send(Progress::Loaded(session.parts()?));
                session.run(&mut *renderer?, &mut out, &mut err)
            });
        drop((out, err));
        // set before the other side learns of a failure, so that a failed entry never appears to run
        ended.store(true, Ordering::SeqCst);
        match ran {
            Ok(_) if !remote_end.ended() => last.show(end_message.into_bytes()),
            Ok(_) => {}
            Err(why) => {
                let _ = sender.send(Progress::Failed(why));
            }
        }
    };
    std::thread::Builder::new().name("rbt".into()).spawn(thread)?;
    let mut parts = Parts::default();
    interruptibly(&remote.clone(), move || {
        loop {
            match messages.recv() {
                Ok(Progress::Loaded(loaded)) => parts = loaded,
                Ok(Progress::Attached(probes)) => return Ok(Running { number, text, probes, paused: false, parts, remote, ended: over }),
                Ok(Progress::Failed(why)) => return Err(why),
                Err(_) => anyhow::bail!("the entry ended before it was attached"),
            }
        }
    })
}

/// Waits for the work of a run that Ctrl-C ends. The prompt's own thread cannot check for it.
fn interruptibly<T>(remote: &Remote, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = || {
            while !over.load(Ordering::SeqCst) {
                if interrupts::interrupted() {
                    remote.end();
                    return;
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
        };
        // without a thread, the work cannot be interrupted
        let other = std::thread::Builder::new().stack_size(1 << 16).spawn_scoped(scope, watch);
        let result = work();
        over.store(true, Ordering::SeqCst);
        if let Ok(other) = &other {
            other.thread().unpark();
        }
        result
    })
}

/// Runs something that terminates on this thread: its output, and its descriptors.
///
/// Errors: as for [`start`].
pub fn evaluate(
    artifact: &Artifact,
    env: &Env,
    (maps, estimates): (NamedMaps, Arc<Estimates>),
    renderer: &mut dyn Renderer,
) -> Result<(Vec<u8>, Parts), EntryError> {
    let remote = Arc::new(Remote::new()?);
    let estimates = Some(EstimatesOfRun { all: estimates, run: None });
    let options = Options { quiet: true, managed_by: Some(remote.clone()), maps, estimates, ..Options::default() };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut session = runtime::load(artifact, env, options)?;
    let parts = session.parts()?;
    interruptibly(&remote, || session.run(renderer, &mut out, &mut err))?;
    out.extend_from_slice(&err);
    Ok((out, parts))
}
