//! Runs a script through all stages in this process.

use rbt::codegen::{self, artifact::Artifact};
use rbt::compat;
use rbt::diag::{self, Source};
use rbt::emit::Dumps;
use rbt::frontend::{self, Checked, explain::refused_mechanisms};
use rbt::probes::Env;
use rbt::render::{self, RenderOptions};
use rbt::runtime::{self, Options, VerifierError};
use rbt::sema::hir;
use rbt::settings::{Mechanism, Settings};
use rbt::system::TargetInfo;
use rbt::system::machine::live::Live;
use rbt::system::snapshot::Snapshot;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use std::time::{Duration, Instant};

/// The stage that a script reached, and the error.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The script passed all stages. The fields are its output and its messages if it ran.
    Fine(Vec<u8>, Vec<u8>),
    /// sema rejected it.
    Check(String),
    /// LLVM rejected it.
    Compile(String),
    /// It has more paths than the verifier follows. rbt reports this with its own message.
    Complex(String),
    /// The verifier rejected it. The fields are the reason and the end of the log.
    VerifierError(String, String),
    /// The machine caused an error.
    Machine(String),
    /// rbt panicked.
    Panic(String),
    /// It took too long, but ended.
    Slow(String),
    /// Its output is wrong.
    Wrong(String),
}

impl Outcome {
    /// A word for the outcome. A reduced script must fail with the same word.
    pub fn class(&self) -> &'static str {
        match self {
            Outcome::Fine(..) => "fine",
            Outcome::Check(_) => "check",
            Outcome::Compile(_) => "compile",
            Outcome::Complex(_) => "complex",
            Outcome::VerifierError(..) => "refused",
            Outcome::Machine(_) => "machine",
            Outcome::Panic(_) => "panic",
            Outcome::Slow(_) => "slow",
            Outcome::Wrong(_) => "wrong",
        }
    }

    /// The full report.
    pub fn story(&self) -> String {
        match self {
            Outcome::Fine(..) => String::new(),
            Outcome::Check(s)
            | Outcome::Complex(s)
            | Outcome::Compile(s)
            | Outcome::Machine(s)
            | Outcome::Panic(s)
            | Outcome::Slow(s)
            | Outcome::Wrong(s) => s.clone(),
            Outcome::VerifierError(why, log) => format!("{why}\n{log}"),
        }
    }
}

/// CPU time by stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// The time of parsing and checking.
    pub check: Duration,
    /// The time of LLVM.
    pub compile: Duration,
    /// The time of libbpf and the verifier.
    pub load: Duration,
    /// The time of the run and of unloading.
    pub run: Duration,
    /// The number of times the last script was compiled to fit into the stack.
    pub turns: u32,
}

impl Spent {
    /// Adds the times of another script.
    pub fn add(&mut self, other: Spent) {
        self.check += other.check;
        self.compile += other.compile;
        self.load += other.load;
        self.run += other.run;
    }

    /// The total.
    pub fn total(&self) -> Duration {
        self.check + self.compile + self.load + self.run
    }
}

/// A compiled script, and what it was compiled from.
struct Compiled {
    artifact: Artifact,
    script: hir::Script,
    settings: Settings,
}

/// A machine that scripts are tried on.
pub struct Machine {
    /// The kernel: the running one or one from a snapshot.
    pub sys: Box<dyn TargetInfo>,
    /// This is the running machine, so programs can be loaded.
    pub here: bool,
    /// The settings of every run.
    pub settings: Settings,
    /// The maximum CPU time of a stage. A stage that takes longer is a failure.
    pub patience: Duration,
}

impl Machine {
    /// This machine.
    pub fn new() -> Self {
        rbt::parts::provide_all();
        let unwind_tables = std::env::var_os("RBT_GENERATE_WITHOUT_TABLES").is_none();
        let settings = Settings { allow_unsafe: true, unwind_tables, ..Settings::default() };
        Self { sys: Box::new(Live::new()), here: true, settings, patience: Duration::from_secs(20) }
    }

    /// A machine with the kernel of a snapshot and the files of this machine. Programs are compiled here and loaded elsewhere.
    pub fn of(snapshot: &Path) -> Result<Self, String> {
        let kernel = Snapshot::open(snapshot).map_err(|m| m.what)?;
        Ok(Self { sys: Box::new(kernel.with_files(Live::new())), here: false, ..Self::new() })
    }

    /// The result of sema, or its errors.
    pub fn check(&self, text: &str) -> Result<hir::Script, String> {
        self.checked(text).map(|checked| checked.script)
    }

    fn checked(&self, text: &str) -> Result<Checked, String> {
        let source = Source { name: "generated".into(), text: text.into() };
        match frontend::check_text("generated", text, &Env::new(&*self.sys, &self.settings)) {
            Ok(checked) => Ok(checked),
            Err(mut said) => {
                said.0.retain(|d| d.severity == diag::Severity::Error);
                Err(diag::render(&said, &[source], false))
            }
        }
    }

    /// Tries a script: checks, compiles and loads it. With `run`, it also runs it.
    pub fn try_script(&self, text: &str, run: bool) -> (Outcome, Spent) {
        let mut spent = Spent::default();
        let since = used();
        let outcome = caught(|| self.stages(text, run, &mut spent)).unwrap_or_else(Outcome::Panic);
        if let (Outcome::Fine(..), true) = (&outcome, used().saturating_sub(since) > self.patience) {
            return (Outcome::Slow(format!("{spent:?}")), spent);
        }
        (outcome, spent)
    }

    /// Returns the compiled script, or the error. Findings that `rbt check` reports after compiling are errors, too.
    pub fn make(&self, text: &str, spent: &mut Spent) -> Result<Artifact, Outcome> {
        let artifact = caught(|| self.compile(text, &[], spent)).unwrap_or_else(|said| Err(Outcome::Panic(said)))?.artifact;
        match compat::unmet_need(&artifact, &self.settings, &*self.sys) {
            Some(need) => Err(Outcome::Check(need)),
            None => Ok(artifact),
        }
    }

    /// Compiles a script without the mechanisms that the kernel rejected, as a run of rbt does.
    fn compile(&self, text: &str, without: &[Mechanism], spent: &mut Spent) -> Result<Compiled, Outcome> {
        let since = used();
        let source = Source { name: "generated".into(), text: text.into() };
        let checked = self.checked(text);
        spent.check = used().saturating_sub(since);
        let Checked { script, mut settings, invocation, .. } = match checked {
            Ok(checked) => checked,
            Err(said) => return Err(Outcome::Check(said)),
        };
        let since = used();
        settings.no_features.extend(without);
        let env = Env { sys: &*self.sys, settings: &settings, invocation: &invocation };
        let script = codegen::lower(script, &env);
        let compiled = codegen::compile(&script, &env, std::slice::from_ref(&source), Dumps::default());
        spent.compile += used().saturating_sub(since);
        match compiled {
            Ok(compiled) => {
                spent.turns = compiled.compilations;
                Ok(Compiled { artifact: compiled.artifact, script, settings })
            }
            // codegen reports a limit of the kernel before the kernel rejects the program.
            Err(e) if e.messages.is_empty() => Err(Outcome::Check(diag::render(&diag::Diagnostics(e.diagnostics), &[source], false))),
            Err(e) => Err(Outcome::Compile(e.messages.join("\n"))),
        }
    }

    fn stages(&self, text: &str, run: bool, spent: &mut Spent) -> Outcome {
        let mut without = Vec::new();
        loop {
            let Compiled { artifact, script, settings } = match self.compile(text, &without, spent) {
                Ok(_) if !self.here => return Outcome::Fine(Vec::new(), Vec::new()),
                Ok(compiled) => compiled,
                Err(outcome) => return outcome,
            };
            let error = match self.load(&artifact, run, spent) {
                Ok(outcome) => return outcome,
                Err(error) => error,
            };
            match refused_mechanisms(&error, &artifact, &script, &settings, &*self.sys) {
                mechanisms if mechanisms.is_empty() => return refused(&error),
                mechanisms => without.extend(mechanisms),
            }
        }
    }

    /// Loads a compiled script, possibly from another machine.
    pub fn take(&self, artifact: &Artifact, spent: &mut Spent) -> Outcome {
        caught(|| self.load(artifact, false, spent).unwrap_or_else(|error| refused(&error))).unwrap_or_else(Outcome::Panic)
    }

    fn load(&self, artifact: &Artifact, run: bool, spent: &mut Spent) -> anyhow::Result<Outcome> {
        let since = used();
        let options = Options { quiet: true, dry_run: !run, ..Options::default() };
        let session = runtime::load(artifact, &Env::new(&*self.sys, &self.settings), options);
        spent.load += used().saturating_sub(since);
        let mut session = session?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        if run {
            let since = Instant::now();
            let render =
                RenderOptions { trunc_trailer: self.settings.str_trunc_trailer.clone(), warnings: true, ..RenderOptions::default() };
            let Some(format) = render::find("text") else { return Ok(Outcome::Machine("no text format".into())) };
            let mut renderer = (format.make)(&render);
            if let Err(e) = session.run(&mut *renderer, &mut out, &mut err) {
                return Ok(Outcome::Machine(format!("{e:#}")));
            }
            spent.run = since.elapsed();
        }
        let since = Instant::now();
        drop(session);
        spent.run += since.elapsed();
        Ok(Outcome::Fine(out, err))
    }
}

/// Returns the result of a function, or the message of its panic.
fn caught<T>(what: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).map_err(|p| {
        let word = p.downcast_ref::<String>().cloned().or_else(|| p.downcast_ref::<&str>().map(|s| (*s).to_string()));
        word.unwrap_or_default()
    })
}

/// The CPU time of this thread, so that a busy machine does not make a script slow.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

fn refused(e: &anyhow::Error) -> Outcome {
    match e.downcast_ref::<VerifierError>() {
        Some(refused) if refused.is_too_large() => Outcome::Complex(refused.message()),
        Some(refused) => {
            let place = refused.pos.as_ref().map_or_else(String::new, |p| format!(" at {}:{}", p.line, p.col));
            let lines: Vec<&str> = refused.log.lines().collect();
            let tail = lines[lines.len().saturating_sub(30)..].join("\n");
            Outcome::VerifierError(format!("{}{place}: {}", refused.program, refused.reason), tail)
        }
        None => Outcome::Machine(format!("{e:#}")),
    }
}
