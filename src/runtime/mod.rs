//! Runs a program on this machine: load, attach, read records, end.
//!
//! The order of a run is: load, `begin`, attach, [`Output::Attached`](crate::output::Output), start the `-c` command, read
//! records until the run ends, stop, `end`, read the remaining records, totals, maps. A run ends by `exit()`, a signal, the end
//! of the command or of the process of `-p`, at the time of `--duration`, a closed pipe, or when there is nothing to wait for.
//!
//! Stopping is not detaching: all programs return at once when `State::stopped` is set, and a separate process does the
//! slow detaching (`background_detach`) after all output is written. Therefore `end` programs must not check that flag.
//!
//! - `load`: object to maps and programs; `verifier_log`: the verifier's log; `unloadable`: targets that cannot be
//!   traced; `unhit_probes`: probes without hits; `replaced_files`: files that were replaced during the run;
//!   `removed_cgroup`: removal of the cgroup of `--cgroup` during the run; `privileges`: missing privileges
//! - `attach`, `perf`, `background_detach`: attaching and detaching
//! - `ring`, `collect`, `source`, `events`: records, from the ring buffer through memory to their handlers; `maps`: the
//!   script's maps; `final_maps`: contents for expectations and states; `state`: the state of a run; `scrape`: the
//!   state during the run; `totals`: what its keys have counted; `write`: output; `watch`: maps on the screen; `stacks`:
//!   frames by stack ID
//! - `shared`, `problems`: counters and failures of programs; `grace_period`: waiting for running programs
//! - `throttle`, `keep_limits`, `estimates`, `cost`, `entry_cost`, `meter`: limits of a run, and what programs cost
//! - `run`: the loop; `signals`: signals from the user; `remote`: requests from another thread
//! - `iter`: iterators over kernel objects; `tests_and_benches`: a script's tests and benchmarks
//! - `child`: the command of `-c`; `follow`: its descendants; `symbolize` and its files: symbols;
//!   `catch_panic`: calls of code that may panic

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, DynamicClockId};

use crate::builtins;
use crate::codegen::artifact::{Artifact, Manifest};
use crate::diag::plain;
use crate::output::{FinalResults, Output, ProblemKind};
use crate::probes::{Attach, Env};
use crate::settings::{CacheUserSymbols, Invocation, Mechanism, MissingProbes, Overhead, Settings};
use crate::state::State;
use crate::system::TargetInfo;
use crate::value::Pos;

mod attach;
mod attach_target;
mod background_detach;
mod call_marks;
mod catch_panic;
pub mod child;
mod collect;
mod context;
pub mod cost;
mod double_buffer;
mod empty_result;
mod entry_cost;
mod estimates;
mod events;
mod final_maps;
mod follow;
mod grace_period;
mod initial_mappings;
mod iter;
mod jit_dump;
mod keep_limits;
mod known_names;
mod libbpf_features;
mod load;
mod mappings;
mod maps;
mod meter;
mod mmap_events;
mod mmap_reader;
mod optimized_uprobe;
mod perf;
mod perf_map;
mod poll;
mod privileges;
mod problems;
mod proc_maps;
mod python;
mod redraw;
mod remote;
mod removed_cgroup;
mod replaced_files;
mod ring;
mod run;
mod scrape;
mod shared;
mod signals;
mod source;
mod stack_frames;
mod stacks;
mod state;
mod symbolize;
mod test_run;
mod tests_and_benches;
mod thread_table;
mod throttle;
mod totals;
mod unhit_probes;
mod unloadable;
mod unwind;
mod verifier_log;
mod watch;
mod word_hash;
mod write;

#[cfg(test)]
mod tests;

pub use attach::AttachFailed;
pub use estimates::{Estimates, EstimatesOfRun};
pub use meter::{Costs, ProbeCost};
pub use privileges::{NotPermitted, missing as missing_privileges};
pub use remote::{Parts, Remote};
pub use scrape::{Reader, Scrapes};
pub use signals::{ProcessSignals, keep_user_signals};
pub use throttle::{Remedy, budget};
pub use unwind::Prefetch;
pub use verifier_log::VerifierError;
pub use watch::WatchView;
pub use write::Stream;

use child::Child;
use python::PYTHON;
use symbolize::{NoSymbols, SYMBOLS, Symbolize};

/// When output is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffering {
    /// When all available records are rendered.
    #[default]
    Line,
    /// When enough output is pending, and at the end.
    Full,
    /// After each record.
    None,
}

/// Receives lines.
pub type Log = Box<dyn FnMut(&str)>;

/// Names of maps, and the receiver of their contents.
pub struct OnEnd {
    /// With their `@`.
    pub maps: Vec<String>,
    /// Called once when the run is over, unless its output could not be written.
    pub report: Box<dyn FnOnce(FinalResults)>,
}

/// How to run.
#[derive(Default)]
pub struct Options {
    /// The process of the `-c` command before it starts; 0 for none. It is passed to [`Session::set_child`].
    pub child_pid: u32,
    /// Receives `attached\n` when all probes are attached, and is then closed.
    pub notify_fd: Option<RawFd>,
    /// Do not report the number of attached probes.
    pub quiet: bool,
    /// End when everything is attached.
    pub dry_run: bool,
    /// The status is 1 if anything was lost.
    pub strict: bool,
    /// Send sizes and times to `log`.
    pub verbose: bool,
    /// Send the verifier's log of each program to `log` (`-d verifier`).
    pub verifier: bool,
    /// See [`Buffering`].
    pub buffering: Buffering,
    /// If only `end` is left to run, wait until the run is ended.
    pub waits: bool,
    /// The controller that ends the run instead of signals; none if signals do.
    pub managed_by: Option<Arc<Remote>>,
    /// Called when all probes are attached but do not count yet.
    pub predecessor: Option<PredecessorFn>,
    /// Receives the number of probes once all are attached.
    pub on_attached: Option<Box<dyn FnOnce(u64)>>,
    /// Receives the final contents of these maps, by name.
    pub on_end: Option<OnEnd>,
    /// The state to complete and print at the end, if the format needs it.
    pub state: Option<Box<State>>,
    /// The descriptor of the output; none if it is unknown. With it, a write that does not wait needs no thread.
    pub out: Option<OwnedFd>,
    /// Receives the script's output with its source.
    pub listener: Option<Listener>,
    /// Measures the cost of the run.
    pub costs: Option<Measure>,
    /// Another thread requests the state during the run.
    pub scrapes: Option<Arc<Scrapes>>,
    /// Shows the maps full-screen during the run.
    pub watched: Option<WatchView>,
    /// Existing maps by name, which replace the script's maps of the same name.
    pub maps: Vec<(String, Arc<OwnedFd>)>,
    /// What limits do to the runs that share them.
    pub estimates: Option<EstimatesOfRun>,
    /// Names of sites that can replace each other. If none can be attached, rbt reports it even if `missing_probes` is
    /// `ignore`.
    pub blocks: Vec<Vec<String>>,
    /// The user's filters as typed, for a note at the end if nothing matched.
    pub filters: Option<String>,
    /// The unwind tables of the process of `-p`, if they are being read already.
    pub prefetched: Option<Prefetch>,
    /// The destination of `-v`, one line at a time without its newline; none for no output.
    pub log: Option<Log>,
}

/// Ends the run that this one replaces, and returns its counts: the series of [`Options::scrapes`] continue from there.
pub type PredecessorFn = Box<dyn FnOnce() -> Option<Box<State>>>;

/// How the cost of a run is judged, and the receiver of the result.
pub struct Measure {
    /// The limit whose effect is to be computed.
    pub limit: Overhead,
    /// Called at the end, before `end` runs.
    pub report: Box<dyn FnOnce(Costs)>,
}

/// Receives the output of a script.
pub type Listener = Box<dyn FnMut(&Output, Option<&crate::output::Source>)>;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The status of `exit()`, or 0; 141 if the reader of the output has closed it (128 + SIGPIPE, as a shell reports it).
    pub status: u8,
    /// How the `-c` child ended, if it has.
    pub child: Option<child::Exit>,
}

/// Every probe failed to attach, although `missing_probes` does not make the first failure an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no probe could be attached")]
pub struct NothingAttached;

/// The code of a bundle has no room for the name of a site.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bundle has no room for the name {name}")]
pub struct NoRoomForName {
    /// The name.
    pub name: String,
    /// The attach point in the script.
    pub pos: Pos,
}

/// The kernel refuses to attach a lowered probe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct AttachRefused {
    /// The mechanism to avoid when the script is compiled again.
    pub mechanism: Mechanism,
    /// The kernel's message.
    pub why: String,
}

/// The script's output could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the output: {0}")]
pub struct NotWritten(pub std::io::Error);

/// A loaded program, ready to run. When dropped, it detaches, and kills a child that was not started.
pub struct Session<'a> {
    /// Declared before the object that the links belong to: fields are dropped in order.
    links: attach::Links,
    source: source::Source,
    cx: SessionCx<'a>,
    /// Symbols are needed, so mappings are recorded.
    watched: bool,
    /// `-p`'s process: readable when it has ended.
    target: Option<OwnedFd>,
    sys: &'a dyn TargetInfo,
    options: Options,
    child: Option<Child>,
    /// Names of sites that could not be attached.
    not_attached: BTreeSet<String>,
    files: replaced_files::Files,
    /// Keeps the map of Python interpreters up to date.
    python: Option<Box<dyn python::Interpreters>>,
}

/// The part of a session that does not change.
struct SessionCx<'a> {
    loaded: load::Loaded,
    symbols: Box<dyn Symbolize>,
    signals: signals::Signals,
    manifest: &'a Manifest,
    settings: &'a Settings,
    invocation: &'a Invocation,
    boot_to_unix_ns: u64,
    /// The process of `-c`.
    command: Option<u32>,
}

impl SessionCx<'_> {
    fn attach_cx<'a>(&'a self, sys: &'a dyn TargetInfo) -> attach::AttachCx<'a> {
        attach::AttachCx { settings: self.settings, sys, command: self.command }
    }
}

/// Provides the parts of a run that read files of user space.
pub fn provide_user_space() {
    symbolize::provide();
    unwind::provide();
    python::provide();
}

/// Loads a compiled script. Until the session is dropped, SIGINT and SIGTERM end the run instead of the process.
///
/// Errors: [`VerifierError`] by the verifier, [`NotPermitted`], or other errors of libbpf or the machine, in a chain.
pub fn load<'a>(artifact: &'a Artifact, env: &Env<'a>, mut options: Options) -> anyhow::Result<Session<'a>> {
    let Env { sys, settings, invocation } = *env;
    let signals = match &options.managed_by {
        Some(remote) => signals::Signals::managed_by(remote.clone()),
        None => signals::Signals::catch().context("cannot catch signals")?,
    };
    let manifest = &artifact.manifest;
    let target = match settings.pid {
        Some(pid) => Some(pidfd(pid).with_context(|| format!("-p {pid}"))?),
        None => None,
    };
    let child = options.child_pid;
    let mut silent = |_: &str| {};
    let log: &mut dyn FnMut(&str) = match &mut options.log {
        Some(log) => log,
        None => &mut silent,
    };
    let selected = load::LogSelection { libbpf: options.verbose, verifier: options.verifier };
    let loaded = load::load(artifact, settings, sys, load::LoadContext { child, invocation, maps: &options.maps }, selected, log)?;
    let ring = match loaded.ring {
        Some((fd, size)) => {
            if options.verbose {
                log(&format!("ring buffer: {} KiB", size / 1024));
            }
            Some(ring::Ring::open(fd, size).context("cannot map the ring buffer")?)
        }
        None => None,
    };
    let keep = settings.cache_user_symbols != Some(CacheUserSymbols::None);
    let wanted = symbolize::Options { demangle: settings.cpp_demangle, lines: settings.show_debug_info, cache_results: keep };
    let symbols = SYMBOLS.get().map_or_else(|| Box::new(NoSymbols) as Box<dyn Symbolize>, |make| make(wanted));
    symbols.set_debug_dirs(&settings.debug_dirs);
    let watched = manifest.types().any(|ty| ty.contains_deferred(&builtins::is_user_code));
    if let Some(pid) = settings.pid.or((child > 0).then_some(child)).filter(|_| watched) {
        symbols.watch(pid);
    }
    if settings.pid.is_none() && watched {
        symbols.record_all();
    }
    if watched {
        let traced: BTreeSet<&Path> = manifest.programs.iter().flat_map(|p| &p.sites).filter_map(|s| s.attach.binary()).collect();
        traced.into_iter().for_each(|path| symbols.hold_file(path));
    }
    if let (Some(unwinder), Some(identify)) = (&loaded.unwinder, loaded.identify_program) {
        let traced: BTreeSet<&Path> = manifest.programs.iter().flat_map(|p| &p.sites).filter_map(|s| s.attach.binary()).collect();
        unwinder.identify_by(identify);
        traced.into_iter().for_each(|path| unwinder.preload_program(path));
        settings.pid.into_iter().for_each(|pid| unwinder.preload_process(pid, options.prefetched.take()));
        if settings.pid.is_none() && child == 0 {
            unwinder.preload_all();
        }
    }
    let events = events::Events::prepare(manifest)?;
    let boot_to_unix_ns = load::clock(DynamicClockId::Known(ClockId::Realtime)).wrapping_sub(load::clock(DynamicClockId::Boottime));
    let mut session = Session {
        links: attach::Links::default(),
        source: source::Source::new(ring, events),
        cx: SessionCx {
            loaded,
            symbols,
            signals,
            manifest,
            settings,
            invocation,
            boot_to_unix_ns,
            command: (child > 0 && settings.limits_to_command(invocation)).then_some(child),
        },
        watched,
        target,
        sys,
        options,
        child: None,
        not_attached: BTreeSet::new(),
        files: replaced_files::Files::of(manifest),
        python: None,
    };
    // Before anything runs, since the script is compiled again if this fails. The programs do nothing yet.
    session.cx.loaded.state.stop();
    session.attach(true, &mut |_| {})?;
    session.follow()?;
    session.python = PYTHON.get().and_then(|python| (python.follow)(&session.cx.loaded, settings.pid, sys.pid_namespace().is_some()));
    if let (Some(python), Some(log), true) = (&session.python, &mut session.options.log, session.options.verbose) {
        python.found().iter().for_each(|line| log(&plain(line)));
    }
    Ok(session)
}

/// Loads a compiled script into the kernel, including verification, and unloads it. Nothing is attached.
///
/// Errors: as for [`load()`].
pub fn try_load(artifact: &Artifact, env: &Env) -> anyhow::Result<()> {
    let context = load::LoadContext { child: 0, invocation: env.invocation, maps: &[] };
    load::load(artifact, env.settings, env.sys, context, load::LogSelection::default(), &mut |_| {}).map(drop)
}

impl Session<'_> {
    /// Sets the `-c` program, which starts when everything is attached.
    pub fn set_child(&mut self, child: Option<Child>) {
        if let (Some(unwinder), Some(child)) = (&self.cx.loaded.unwinder, &child) {
            unwinder.preload_program(child.program());
            unwinder.preload_earlier(child.program(), child.pid());
        }
        if let (Some(python), Some(child)) = (&self.python, &child) {
            python.prepare(child.program());
        }
        self.child = child;
    }

    /// Attaches the lowered probes or all others. Failures are reported as `missing_probes` requires; those of lowered probes
    /// are [`AttachRefused`].
    fn attach(&mut self, lowered: bool, report: &mut dyn FnMut(Output)) -> anyhow::Result<()> {
        if let Some(child) = self.child.as_ref().filter(|_| !lowered) {
            child.wait_until_ready();
        }
        let (settings, sys) = (self.cx.settings, self.sys);
        let mut ignored: Vec<AttachFailed> = Vec::new();
        for index in attach::order(self.cx.manifest) {
            if self.cx.signals.end().is_some() {
                break;
            }
            let (Some(program), Some(fd)) = (self.cx.manifest.programs.get(index), self.cx.loaded.programs.get(index)) else { continue };
            if program.lowered.is_some() != lowered {
                continue;
            }
            let not_attached = &mut self.not_attached;
            let mut failed = |failed: AttachFailed| {
                if let Some(mechanism) = program.lowered {
                    return Err(AttachRefused { mechanism, why: failed.to_string() }.into());
                }
                not_attached.insert(failed.probe.clone());
                match settings.missing_probes {
                    MissingProbes::Error => Err(failed.into()),
                    MissingProbes::Ignore => {
                        ignored.push(failed);
                        Ok(())
                    }
                    MissingProbes::Warn => {
                        let (msg, pos) = (failed.to_string(), failed.pos);
                        report(Output::problem(ProblemKind::Runtime, msg, &pos, ""));
                        Ok(())
                    }
                }
            };
            let Some(fd) = fd else {
                let reason = self.cx.loaded.left_out.get(&index).cloned().unwrap_or_default();
                for site in &program.sites {
                    failed(AttachFailed { probe: site.name.clone(), pos: site.pos.clone(), reason: reason.clone() })?;
                }
                continue;
            };
            if self.options.verbose
                && let Some(log) = &mut self.options.log
            {
                let name = program.sites.first().map_or("", |s| s.name.as_str());
                let why = if program.why.is_empty() { String::new() } else { format!(": {}", program.why) };
                log(&plain(&format!("{name}, {} in all: {}{why}", program.sites.len(), attach::mechanism(program, settings, sys))));
            }
            self.links.of(index);
            attach::attach(&mut self.links, program, *fd, self.cx.attach_cx(sys), &mut failed)?;
        }
        if lowered {
            return Ok(());
        }
        self.unattached_blocks(&ignored).into_iter().for_each(report);
        let sites = || self.cx.manifest.programs.iter().flat_map(|p| &p.sites);
        let test_run = sites().filter(|s| run_by_hand(&s.attach)).count() as u64;
        if self.links.sites == test_run && sites().any(|s| !run_by_hand(&s.attach)) && self.cx.signals.end().is_none() {
            return Err(NothingAttached.into());
        }
        Ok(())
    }

    /// The messages about blocks without an attached probe, one for each reason.
    fn unattached_blocks(&self, ignored: &[AttachFailed]) -> Vec<Output> {
        let of = |name: &String| ignored.iter().find(|f| f.probe == *name);
        let lost = self.options.blocks.iter().filter(|names| names.iter().all(|name| of(name).is_some()));
        let mut reported: Vec<(&AttachFailed, Vec<&str>)> = Vec::new();
        for failed in lost.filter_map(|names| of(names.first()?)) {
            match reported.iter_mut().find(|(first, _)| first.reason == failed.reason) {
                Some((_, names)) => names.push(&failed.probe),
                None => reported.push((failed, vec![&failed.probe])),
            }
        }
        let message = |(first, names): (&AttachFailed, Vec<&str>)| {
            let (shown, rest) = names.split_at(names.len().min(3));
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let msg = format!("cannot attach {}{more}, which has no replacement: {}", shown.join(", "), first.reason);
            Output::problem(ProblemKind::Runtime, msg, &first.pos, "")
        };
        reported.into_iter().map(message).collect()
    }
}

/// Does rbt itself run it at a certain time, rather than an event?
fn run_by_hand(attach: &Attach) -> bool {
    matches!(attach, Attach::Begin | Attach::End | Attach::Test { .. })
}

/// Reports once that everything is attached, to `--notify-fd`.
fn notify(fd: &mut Option<RawFd>) -> anyhow::Result<()> {
    if let Some(fd) = fd.take() {
        // SAFETY: passed to us for writing and closing
        #[allow(unsafe_code)]
        let mut to = unsafe { File::from_raw_fd(fd) };
        to.write_all(b"attached\n").context("--notify-fd")?;
    }
    Ok(())
}

/// A descriptor that becomes readable when the process has ended.
fn pidfd(pid: u32) -> anyhow::Result<OwnedFd> {
    let found = Pid::from_raw(pid as i32).ok_or(Errno::SRCH).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    found.map_err(|why| match why {
        Errno::SRCH => anyhow::anyhow!("there is no such process"),
        Errno::INVAL => anyhow::anyhow!("that is a thread, not a process"),
        why => why.into(),
    })
}

/// The number of the descriptor, or -1 for none, which poll(2) skips.
fn raw(fd: Option<&impl AsRawFd>) -> RawFd {
    fd.map_or(-1, AsRawFd::as_raw_fd)
}
