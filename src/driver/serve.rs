//! `rbt serve`: runs the scripts of a directory in one process, and serves their maps.
//!
//! Each run has a thread, which takes its script through all stages. The main thread waits for signals, and starts one
//! script at a time: it waits until the script is attached. A script that replaces another one ends it when its own
//! probes are attached but do not count yet. So each event counts once, and the old script continues if the new one
//! cannot be attached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{compile, launch_script, start};
use crate::cli::serve::Serve;
use crate::cli::{Program, Run};
use crate::diag::plain;
use crate::failure::{Failure, reason};
use crate::frontend::Frontend;
use crate::frontend::args::check_script_args;
use crate::frontend::require::require_privileges;
use crate::launch::{Launch, ManagedRun};
use crate::metrics::Metrics;
use crate::runtime::{ProcessSignals, Remote, Scrapes};
use crate::serve::registry::{ScriptRegistry, Status};
use crate::serve::{self, FlagNames, Listen};
use crate::state::State;
use crate::streams::{report, to_stderr};
use crate::system::machine::live::Live;

/// The names of the options of `rbt serve`.
const SAID: FlagNames = FlagNames { address: "rbt serve", token: "--token" };
/// The ending of a script's name.
const ENDING: &str = "bt";
/// How long a run may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two checks for a signal while a script starts.
const NAP: Duration = Duration::from_millis(100);
/// The interval between two checks for the last state of a run.
const LOOK: Duration = Duration::from_millis(5);
/// The stack of a thread, which parses and compiles: that of a main thread.
const STACK: usize = 8 << 20;

/// Runs the scripts until a signal ends the process.
pub(super) fn serve(asked: &Serve) -> Result<u8, Failure> {
    require_privileges()?;
    let signals = ProcessSignals::catch().map_err(|e| Failure::new(format!("cannot catch signals: {}", reason(&e))))?;
    if scripts(&asked.folder)?.is_empty() {
        let message = format!("there is no script in {}", asked.folder.display());
        return Err(Failure::new(message).code("not-readable").help("rbt serve runs the files whose names end in .bt"));
    }
    let board = Arc::new(ScriptRegistry::default());
    let listen = Listen { address: asked.address, token: asked.token.as_deref(), said: &SAID, quiet: asked.run.quiet };
    serve::start(&listen, board.clone())?;
    let mut folder = Folder { asked, board, running: BTreeMap::new() };
    folder.load(&signals);
    while !signals.ended() {
        signals.wait(Duration::from_secs(3600));
        if signals.reloads() && !signals.ended() {
            folder.load(&signals);
        }
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
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Kubernetes mounts the files of a ConfigMap as symbolic links
        if path.extension().is_some_and(|ending| ending == ENDING) && !name.starts_with('.') && path.is_file() {
            found.insert(name, path);
        }
    }
    Ok(found)
}

struct Folder<'a> {
    asked: &'a Serve,
    board: Arc<ScriptRegistry>,
    running: BTreeMap<String, Arc<Running>>,
}

/// A run that was attached.
struct Running {
    /// The digest of its texts.
    digest: String,
    remote: Arc<Remote>,
    scrapes: Arc<Scrapes>,
    over: EndFlag,
}

/// Is it over?
#[derive(Default)]
struct EndFlag {
    is: Mutex<bool>,
    changed: Condvar,
}

impl EndFlag {
    fn set(&self) {
        *self.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits this long at most, and returns true if it is over.
    fn wait(&self, longest: Duration) -> bool {
        let is = self.is.lock().unwrap_or_else(PoisonError::into_inner);
        let (is, _) = self.changed.wait_timeout_while(is, longest, |is| !*is).unwrap_or_else(PoisonError::into_inner);
        *is
    }
}

impl Running {
    /// Ends the run, and returns its counts.
    fn end(&self) -> Option<Box<State>> {
        self.remote.end();
        let until = Instant::now() + PATIENCE;
        // after its last state it counts nothing; what follows, such as the last export, may take longer
        while self.scrapes.last().is_none() && !self.over.wait(LOOK) && Instant::now() < until {}
        self.scrapes.last()
    }
}

/// The result of starting a script.
enum Outcome {
    Attached(Arc<Running>),
    /// Its texts are those of the current run.
    Unchanged,
    Failed(String),
}

impl Folder<'_> {
    /// Starts new and changed scripts, and ends removed ones.
    fn load(&mut self, signals: &ProcessSignals) {
        let found = match scripts(&self.asked.folder) {
            Ok(found) => found,
            // running scripts continue
            Err(failure) => return report(&failure, self.asked.run.color),
        };
        let gone: BTreeSet<String> = self.running.keys().filter(|name| !found.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(running) = self.running.remove(&name) {
                running.end();
                self.say(&name, "ended: its file is gone");
            }
        }
        self.board.retain(|name| found.contains_key(name));
        for (name, path) in found {
            if signals.ended() {
                return;
            }
            self.start(signals, name, path);
        }
    }

    fn start(&mut self, signals: &ProcessSignals, name: String, path: PathBuf) {
        let remote = match Remote::new() {
            Ok(remote) => Arc::new(remote),
            Err(e) => return self.failed(&name, reason(&e)),
        };
        let (say, said) = mpsc::channel();
        let before = self.running.get(&name).cloned();
        let mut run = (*self.asked.run).clone();
        run.program = Program::File(path);
        run.quiet = true;
        run.serve = Some(self.asked.address);
        run.settings.print_maps_on_exit = false;
        let script = Script { name: name.clone(), run, before: before.clone(), remote: remote.clone(), board: self.board.clone(), say };
        let thread = std::thread::Builder::new().name("rbt".into()).stack_size(STACK);
        if let Err(e) = thread.spawn(move || script.run()) {
            return self.failed(&name, reason(&e));
        }
        let outcome = loop {
            match said.recv_timeout(NAP) {
                Ok(outcome) => break outcome,
                Err(RecvTimeoutError::Disconnected) => break Outcome::Failed("it ended before it was attached".into()),
                Err(RecvTimeoutError::Timeout) if signals.ended() => {
                    remote.end();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        match outcome {
            Outcome::Attached(running) => {
                self.say(&name, if before.is_some() { "replaced" } else { "started" });
                self.running.insert(name, running);
            }
            Outcome::Unchanged => self.board.unchanged(&name),
            Outcome::Failed(why) => self.failed(&name, why),
        }
    }

    fn failed(&self, name: &str, why: String) {
        self.say(name, if self.board.refused(name, why) { "not replaced: the run from before goes on" } else { "not started" });
    }

    fn say(&self, name: &str, text: &str) {
        if !self.asked.run.quiet {
            to_stderr(&format!("{}: {text}\n", plain(name)));
        }
    }

    /// Ends all runs.
    fn end(self) {
        self.running.values().for_each(|running| running.remote.end());
        self.running.values().for_each(|running| {
            running.over.wait(PATIENCE);
        });
    }
}

/// A script to be started, on its own thread.
struct Script {
    name: String,
    run: Run,
    /// The run that it replaces.
    before: Option<Arc<Running>>,
    remote: Arc<Remote>,
    board: Arc<ScriptRegistry>,
    say: Sender<Outcome>,
}

impl Script {
    fn run(self) {
        let attached = Arc::new(Mutex::new(None));
        let result = self.run_to_end(&attached);
        let running: Option<Arc<Running>> = attached.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Err(failure) = &result {
            report(failure, self.run.color);
        }
        let why = |failure: &Failure| {
            let said = failure.message.trim_end();
            if said.is_empty() { format!("status {}", failure.status) } else { said.to_string() }
        };
        match (running, result) {
            (Some(running), result) => {
                // if it was ended from outside, its status is that of another run
                if !self.remote.ended() {
                    self.board.set(&self.name, result.map_or_else(|failure| Status::Failed(why(&failure)), Status::Ended));
                }
                running.scrapes.close();
                running.over.set();
            }
            (None, Ok(_)) => {
                let _ = self.say.send(Outcome::Unchanged);
            }
            (None, Err(failure)) => {
                let _ = self.say.send(Outcome::Failed(why(&failure)));
            }
        }
    }

    /// Takes the script through all stages, and stores the attached run in `attached`.
    fn run_to_end(&self, attached: &Arc<Mutex<Option<Arc<Running>>>>) -> Result<u8, Failure> {
        let run = &self.run;
        let mut front = Frontend::new(run);
        front.read(&run.program)?;
        let tree = front.parse()?;
        check_script_args(run, &front, &tree)?;
        let digest = start::digest(&front, None);
        // a failed script is tried again
        if self.before.as_ref().is_some_and(|before| before.digest == digest) && !self.board.has_failed(&self.name) {
            return Ok(0);
        }
        let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
        let checked = front.check(&tree, &sys)?;
        let compiled = compile(&checked, &sys, &mut front, true)?;
        let mut described = start::described(run, &checked, &front, None);
        described.name.clone_from(&self.name);
        let scrapes = described.scrapes()?;
        let replaces = {
            let (before, board, say, attached) = (self.before.clone(), self.board.clone(), self.say.clone(), attached.clone());
            let (name, remote, scrapes) = (self.name.clone(), self.remote.clone(), scrapes.clone());
            let (names, most) = (described.metrics.clone(), checked.settings.max_series);
            move || {
                let earlier = before.as_ref().and_then(|before| before.end());
                let (digest, over) = (digest.clone(), EndFlag::default());
                let running = Arc::new(Running { digest, remote: remote.clone(), scrapes: scrapes.clone(), over });
                *attached.lock().unwrap_or_else(PoisonError::into_inner) = Some(running.clone());
                board.started(&name, serve::Run { metrics: Metrics::new(names.clone(), most), scrapes: scrapes.clone() });
                let _ = say.send(Outcome::Attached(running));
                earlier
            }
        };
        let managed = ManagedRun { name: self.name.clone(), remote: self.remote.clone(), scrapes, replaces: Rc::new(replaces) };
        let launch = Launch::managed(run, &described, &checked.settings, managed)?;
        launch_script(launch, checked, compiled, None, &sys, &mut front, None)
    }
}
