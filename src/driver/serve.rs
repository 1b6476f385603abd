//! `rbt serve`: runs the scripts of a directory in one process, and serves their maps.
//!
//! Each run has a thread, which takes its script through all stages. The main thread waits for signals, and starts one
//! script at a time: it waits until the script is attached. A script that replaces another one ends it when its own
//! probes are attached but do not count yet. So each event counts once, and the old script continues if the new one
//! cannot be attached. Nothing else waits for the end of that one, nor for scripts whose files are gone.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{compile, launch_script, start};
use crate::cli::serve::Serve;
use crate::cli::{Action, Program, Run};
use crate::diag::plain;
use crate::failure::{Failure, reason};
use crate::frontend::Frontend;
use crate::frontend::args::check_script_args;
use crate::frontend::read::unreadable;
use crate::input;
use crate::launch::export::served_counts;
use crate::launch::require::require_privileges;
use crate::launch::{Launch, ManagedRun};
use crate::metrics::Metrics;
use crate::otlp::HandedOver;
use crate::runtime::{ProcessSignals, Remote, Scrapes};
use crate::serve::registry::{ScriptRegistry, Status};
use crate::serve::{self, FlagNames, Listen};
use crate::state::State;
use crate::streams::{message, report, to_stderr};
use crate::system::machine::live::{Headers, Live};

/// The names of the options of `rbt serve`.
const FLAG_NAMES: FlagNames = FlagNames { address: "rbt serve", token: "--token", certificate: "--tls-cert" };
/// The ending of a script's name.
const ENDING: &str = "bt";
/// How long a run may take to end.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between two checks for a signal while a script starts.
const NAP: Duration = Duration::from_millis(100);
/// The interval between two checks for the last state of a run.
const LOOK: Duration = Duration::from_millis(5);
/// The stack of a thread, which parses and compiles: that of a main thread.
const STACK: usize = 8 << 20;

impl Action for Serve {
    fn color(&self) -> bool {
        self.run.color
    }

    fn run(&self) -> Result<u8, Failure> {
        serve(self)
    }
}

/// Runs the scripts until a signal ends the process.
fn serve(args: &Serve) -> Result<u8, Failure> {
    require_privileges()?;
    let signals = ProcessSignals::catch().map_err(|e| Failure::new(format!("cannot catch signals: {}", reason(&e))))?;
    let found = scripts(&args.folder)?;
    if found.is_empty() {
        let message = format!("there is no script in {}", args.folder.display());
        return Err(Failure::new(message).code("not-readable").help("rbt serve runs the files whose names end in .bt"));
    }
    let registry = Arc::new(ScriptRegistry::default());
    // not ready before they run
    found.keys().for_each(|name| registry.expect(name));
    let (token, identity) = (args.token.as_deref(), args.identity.as_ref());
    let listen = Listen { address: args.address, token, identity, names: &FLAG_NAMES, quiet: args.run.quiet };
    let access = serve::start(&listen, registry.clone())?;
    let mut folder = Folder {
        options: args,
        registry,
        running: BTreeMap::new(),
        replacing: Vec::new(),
        ending: Vec::new(),
        load_again: false,
        reported: BTreeMap::new(),
    };
    folder.load(&signals);
    while !signals.ended() {
        signals.wait(if folder.is_settled() { Duration::from_secs(3600) } else { NAP });
        folder.signal(signals.user());
        if signals.reloads() && !signals.ended() {
            if let Err(failure) = access.reload(&listen) {
                report(&failure, args.run.color);
            }
            folder.load(&signals);
        }
        folder.settle(&signals);
    }
    folder.end();
    Ok(0)
}

/// Names and paths of the scripts, in order.
fn scripts(folder: &Path) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let cannot = |e: std::io::Error| Failure::new(format!("cannot read {}: {}", folder.display(), reason(&e))).code("not-readable");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = name_of(path.file_name().unwrap_or_default());
        // what is not a file is reported as a script that cannot be read
        if path.extension().is_some_and(|ending| ending == ENDING) && !name.starts_with('.') {
            found.insert(name, path);
        }
    }
    Ok(found)
}

/// A pipe or a device may have no end, for which the other scripts would wait.
fn require_file(path: &Path) -> Result<(), Failure> {
    match input::open_regular(path) {
        Err(e) if e.kind() == ErrorKind::InvalidInput && !path.is_dir() => Err(unreadable(path, &reason(&e))),
        // reading it reports everything else
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The name of a file; bytes that are not UTF-8 are escaped, so that two files have two names.
fn name_of(file: &OsStr) -> String {
    let mut name = String::new();
    for chunk in file.as_bytes().utf8_chunks() {
        name.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| {
            let _ = write!(name, "\\x{byte:02x}");
        });
    }
    name
}

struct Folder<'a> {
    options: &'a Serve,
    registry: Arc<ScriptRegistry>,
    running: BTreeMap<String, Arc<Running>>,
    /// Scripts that are attached, and wait for the end of the runs that they replace.
    replacing: Vec<Starting>,
    /// Runs whose files are gone, and until when their ends are awaited.
    ending: Vec<(String, Arc<Running>, Instant)>,
    /// A signal to reload arrived while a script replaced another one.
    load_again: bool,
    /// The last report about each script that could not be started.
    reported: BTreeMap<String, String>,
}

/// A run that was attached.
struct Running {
    /// The digest of its texts.
    digest: String,
    /// The headers that it includes.
    headers: Headers,
    remote: Arc<Remote>,
    scrapes: Arc<Scrapes>,
    handed_over: HandedOver,
    ended: EndFlag,
}

/// Is it over?
#[derive(Default)]
struct EndFlag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl EndFlag {
    fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits this long at most, and returns true if it is over.
    fn wait(&self, longest: Duration) -> bool {
        let is = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let (is, _) = self.changed.wait_timeout_while(is, longest, |is| !*is).unwrap_or_else(PoisonError::into_inner);
        *is
    }
}

impl Running {
    /// Ends the run, and returns its counts if it ends in time.
    fn end(&self) -> Option<Box<State>> {
        self.remote.end();
        let until = Instant::now() + TIMEOUT;
        while !self.counts_nothing(LOOK) && Instant::now() < until {}
        self.scrapes.last()
    }

    /// Waits this long at most, and returns true if the run counts nothing any longer. What follows its last state, such as the last
    /// export, may take longer.
    fn counts_nothing(&self, longest: Duration) -> bool {
        self.scrapes.last().is_some() || self.ended.wait(longest)
    }
}

/// The result of starting a script.
enum Outcome {
    /// It is attached, and the end of the previous run was requested.
    Replaces,
    Attached(Arc<Running>),
    /// Its texts are those of the current run.
    Unchanged,
    /// The reason, and the text to report.
    Failed(String, String),
}

impl Outcome {
    /// The thread of the script has ended without another outcome.
    fn disconnected() -> Self {
        Outcome::Failed("it ended before it was attached".into(), String::new())
    }
}

/// A script that is not attached yet, or does not count yet.
struct Starting {
    name: String,
    remote: Arc<Remote>,
    /// Does it replace another run?
    replaces: bool,
    outcome_receiver: Receiver<Outcome>,
}

impl Folder<'_> {
    /// Starts new and changed scripts, and ends removed ones. Scripts that are just being replaced follow later.
    fn load(&mut self, signals: &ProcessSignals) {
        self.load_again = !self.replacing.is_empty();
        let found = match scripts(&self.options.folder) {
            Ok(found) => found,
            // running scripts continue
            Err(failure) => return report(&failure, self.options.run.color),
        };
        let replaced: BTreeSet<String> = self.replacing.iter().map(|starting| starting.name.clone()).collect();
        let stays = |name: &str| found.contains_key(name) || replaced.contains(name);
        let gone: Vec<String> = self.running.keys().filter(|name| !stays(name)).cloned().collect();
        for name in gone {
            if let Some(running) = self.running.remove(&name) {
                running.remote.end();
                self.ending.push((name, running, Instant::now() + TIMEOUT));
            }
        }
        self.registry.retain(stays);
        self.reported.retain(|name, _| stays(name));
        found.keys().for_each(|name| self.registry.expect(name));
        for (name, path) in found.iter().filter(|(name, _)| !replaced.contains(*name)) {
            if signals.ended() {
                return;
            }
            if let Some(starting) = self.start(name.clone(), path.clone()) {
                self.wait(signals, starting);
            }
        }
    }

    /// Does nothing wait for the end of a run?
    fn is_settled(&self) -> bool {
        self.replacing.is_empty() && self.ending.is_empty()
    }

    /// Reports the runs that have ended.
    fn settle(&mut self, signals: &ProcessSignals) {
        for starting in std::mem::take(&mut self.replacing) {
            match starting.outcome_receiver.try_recv() {
                Ok(outcome) => self.take_outcome(starting, outcome),
                Err(TryRecvError::Disconnected) => self.take_outcome(starting, Outcome::disconnected()),
                Err(TryRecvError::Empty) => self.replacing.push(starting),
            }
        }
        for (name, running, until) in std::mem::take(&mut self.ending) {
            if running.counts_nothing(Duration::ZERO) {
                self.print_message(&name, "ended: its file is gone");
            } else if Instant::now() >= until {
                self.print_message(&name, "its file is gone, and it has not ended yet");
            } else {
                self.ending.push((name, running, until));
            }
        }
        if self.load_again && self.replacing.is_empty() && !signals.ended() {
            self.load(signals);
        }
    }

    fn start(&mut self, name: String, path: PathBuf) -> Option<Starting> {
        let remote = match Remote::new() {
            Ok(remote) => Arc::new(remote),
            Err(e) => {
                self.failed(&name, reason(&e), String::new());
                return None;
            }
        };
        let (sender, messages) = mpsc::channel();
        let before = self.running.get(&name).cloned();
        let mut run = (*self.options.run).clone();
        run.program = Program::File(path);
        run.quiet = true;
        run.serve = Some(self.options.address);
        run.settings.print_maps_on_exit = false;
        let starting = Starting { name: name.clone(), remote: remote.clone(), replaces: before.is_some(), outcome_receiver: messages };
        let script =
            Script { name: name.clone(), run, predecessor: before, remote, registry: self.registry.clone(), outcome_sender: sender };
        let thread = std::thread::Builder::new().name("rbt".into()).stack_size(STACK);
        if let Err(e) = thread.spawn(move || script.run()) {
            self.failed(&name, reason(&e), String::new());
            return None;
        }
        Some(starting)
    }

    /// Waits until a script is attached, or only waits for the run that it replaces.
    fn wait(&mut self, signals: &ProcessSignals, starting: Starting) {
        let outcome = loop {
            match starting.outcome_receiver.recv_timeout(NAP) {
                Ok(outcome) => break outcome,
                Err(RecvTimeoutError::Disconnected) => break Outcome::disconnected(),
                Err(RecvTimeoutError::Timeout) if signals.ended() => return starting.remote.end(),
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        self.take_outcome(starting, outcome);
    }

    fn take_outcome(&mut self, starting: Starting, outcome: Outcome) {
        let name = &starting.name;
        match outcome {
            Outcome::Replaces => self.replacing.push(starting),
            Outcome::Attached(running) => {
                self.print_message(name, if starting.replaces { "replaced" } else { "started" });
                self.reported.remove(name);
                self.running.insert(name.clone(), running);
            }
            Outcome::Unchanged => self.registry.unchanged(name),
            Outcome::Failed(why, report) => self.failed(name, why, report),
        }
    }

    /// Reports why a script was not started, unless that was reported before.
    fn failed(&mut self, name: &str, why: String, report: String) {
        let report = if report.is_empty() { why.clone() } else { report };
        let already_reported = self.reported.insert(name.into(), report.clone()).is_some_and(|before| before == report);
        let continues = self.registry.refused(name, why.clone());
        if !already_reported {
            to_stderr(&if report == why { format!("{}: {}\n", plain(name), plain(&why)) } else { report });
            self.print_message(name, if continues { "not replaced: the previous run continues" } else { "not started" });
        }
    }

    /// Runs the SIGUSR1 probes of all scripts, this many times.
    fn signal(&self, times: u32) {
        if times > 0 {
            self.running.values().for_each(|running| running.remote.signal(times));
        }
    }

    fn print_message(&self, name: &str, text: &str) {
        if !self.options.run.quiet {
            to_stderr(&format!("{}: {text}\n", plain(name)));
        }
    }

    /// Ends all runs.
    fn end(self) {
        self.replacing.iter().for_each(|starting| starting.remote.end());
        self.running.values().for_each(|running| running.remote.end());
        let until = Instant::now() + TIMEOUT;
        self.running.values().for_each(|running| {
            running.ended.wait(until.saturating_duration_since(Instant::now()));
        });
    }
}

/// A script to be started, on its own thread.
struct Script {
    name: String,
    run: Run,
    /// The run that it replaces.
    predecessor: Option<Arc<Running>>,
    remote: Arc<Remote>,
    registry: Arc<ScriptRegistry>,
    outcome_sender: Sender<Outcome>,
}

impl Script {
    fn run(self) {
        let attached = Arc::new(Mutex::new(None));
        let messages = Rc::new(RefCell::new(String::new()));
        let result = self.run_to_end(&attached, &messages);
        let running: Option<Arc<Running>> = attached.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut text = messages.take();
        if let Err(failure) = &result {
            text += &message(failure, self.run.color);
        }
        let why = |failure: &Failure| {
            let text = failure.message.trim_end();
            if text.is_empty() { format!("status {}", failure.status) } else { text.to_string() }
        };
        match (running, result) {
            (Some(running), result) => {
                to_stderr(&text);
                // if it was ended from outside, its status is that of another run
                if !self.remote.ended() {
                    self.registry.set(&self.name, result.map_or_else(|failure| Status::Failed(why(&failure)), Status::Ended));
                }
                running.scrapes.close();
                running.ended.set();
            }
            (None, Ok(_)) => {
                let _ = self.outcome_sender.send(Outcome::Unchanged);
            }
            (None, Err(failure)) => {
                let _ = self.outcome_sender.send(Outcome::Failed(why(&failure), text));
            }
        }
    }

    /// Takes the script through all stages, and stores the attached run in `attached`.
    fn run_to_end(&self, attached: &Arc<Mutex<Option<Arc<Running>>>>, messages: &Rc<RefCell<String>>) -> Result<u8, Failure> {
        let run = &self.run;
        let mut front = Frontend { messages: Some(messages.clone()), ..Frontend::new(run) };
        if let Program::File(path) = &run.program {
            require_file(path)?;
        }
        front.read(&run.program)?;
        let tree = front.parse()?;
        check_script_args(run, &front, &tree)?;
        let digest = start::digest(&front, None);
        // a failed script is tried again
        let same = |before: &Arc<Running>| before.digest == digest && before.headers.are_unchanged();
        if self.predecessor.as_ref().is_some_and(same) && !self.registry.has_failed(&self.name) {
            return Ok(0);
        }
        let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
        let checked = front.check(&tree, &sys)?;
        let compiled = compile(&checked, &sys, &mut front, true)?;
        let mut described = start::described(run, &checked, &front, None)?;
        described.name.clone_from(&self.name);
        let scrapes = described.scrapes()?;
        let handed_over = self.predecessor.as_ref().map(|before| before.handed_over.clone()).unwrap_or_default();
        let replaces = {
            let handed_over = handed_over.clone();
            let (before, registry, sender, attached) =
                (self.predecessor.clone(), self.registry.clone(), self.outcome_sender.clone(), attached.clone());
            let (name, remote, scrapes) = (self.name.clone(), self.remote.clone(), scrapes.clone());
            let (names, max_series) = (described.metrics.clone(), checked.settings.max_series);
            let (headers, messages, warns) = (sys.headers(), messages.clone(), run.warnings);
            move || {
                // warnings about the script, from before the run
                to_stderr(&messages.take());
                let earlier = before.as_ref().and_then(|before| {
                    let _ = sender.send(Outcome::Replaces);
                    let earlier = before.end().map(|state| Box::new(State { start_ns: before.scrapes.start_ns(), ..*state }));
                    if earlier.is_none() {
                        registry.reset(&name);
                        if warns {
                            let why = if before.ended.wait(Duration::ZERO) { "ended without its counts" } else { "does not end" };
                            to_stderr(&format!("{}: the previous run {why}: all series start again\n", plain(&name)));
                        }
                    }
                    earlier
                });
                let (digest, headers, over) = (digest.clone(), headers.clone(), EndFlag::default());
                let (remote, scrapes, handed_over) = (remote.clone(), scrapes.clone(), handed_over.clone());
                let own = served_counts(&handed_over);
                let running = Arc::new(Running { digest, headers, remote, scrapes: scrapes.clone(), handed_over, ended: over });
                *attached.lock().unwrap_or_else(PoisonError::into_inner) = Some(running.clone());
                registry.started(&name, serve::Run::new(Metrics::new(names.clone(), max_series), &scrapes, own));
                let _ = sender.send(Outcome::Attached(running));
                earlier
            }
        };
        let managed =
            ManagedRun { name: self.name.clone(), remote: self.remote.clone(), scrapes, handed_over, predecessor: Rc::new(replaces) };
        let launch = Launch::managed(run, &described, &checked.settings, managed)?;
        launch_script(launch, checked, compiled, None, &sys, &mut front, None)
    }
}
