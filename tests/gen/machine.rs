//! A script through the stages, within this process.

use rbt::check::hir;
use rbt::diag::{self, Source};
use rbt::driver;
use rbt::emit::Dumps;
use rbt::render::{self, RenderOptions};
use rbt::runtime::{self, Options, Refused};
use rbt::settings::Settings;
use rbt::system::live::Live;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// How far a script came, and what stopped it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// All the way; what it printed, where it was run.
    Fine(Vec<u8>, Vec<u8>),
    /// `check` has something against it.
    Check(String),
    /// LLVM does.
    Compile(String),
    /// The verifier does: its reason, and the end of its log.
    Refused(String, String),
    /// The machine does.
    Machine(String),
    /// We are wrong.
    Panic(String),
    /// It took too long, though it came through.
    Slow(String),
    /// It printed something else than it should.
    Wrong(String),
}

impl Outcome {
    /// In one word; a smaller script must fail the same way.
    pub fn class(&self) -> &'static str {
        match self {
            Outcome::Fine(..) => "fine",
            Outcome::Check(_) => "check",
            Outcome::Compile(_) => "compile",
            Outcome::Refused(..) => "refused",
            Outcome::Machine(_) => "machine",
            Outcome::Panic(_) => "panic",
            Outcome::Slow(_) => "slow",
            Outcome::Wrong(_) => "wrong",
        }
    }

    /// The whole story.
    pub fn story(&self) -> String {
        match self {
            Outcome::Fine(..) => String::new(),
            Outcome::Check(s) | Outcome::Compile(s) | Outcome::Machine(s) | Outcome::Panic(s) | Outcome::Slow(s) | Outcome::Wrong(s) => {
                s.clone()
            }
            Outcome::Refused(why, log) => format!("{why}\n{log}"),
        }
    }
}

/// Time spent, by stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Parse and check.
    pub check: Duration,
    /// LLVM.
    pub compile: Duration,
    /// libbpf and the verifier.
    pub load: Duration,
    /// The run, with the unload.
    pub run: Duration,
}

impl Spent {
    /// And another's.
    pub fn add(&mut self, other: Spent) {
        self.check += other.check;
        self.compile += other.compile;
        self.load += other.load;
        self.run += other.run;
    }

    /// In all.
    pub fn total(&self) -> Duration {
        self.check + self.compile + self.load + self.run
    }
}

/// A machine that scripts are tried on.
pub struct Machine {
    /// This kernel.
    pub sys: Live,
    /// Of every run.
    pub settings: Settings,
    /// Stages that take more of a processor's time are a fault.
    pub patience: Duration,
}

impl Machine {
    /// This one.
    pub fn new() -> Self {
        let settings = Settings { allow_unsafe: true, ..Settings::default() };
        Self { sys: Live::new(), settings, patience: Duration::from_secs(20) }
    }

    /// The checked script, or what is said against it.
    pub fn check(&self, text: &str) -> Result<hir::Script, String> {
        let source = Source { name: "generated".into(), text: text.into() };
        match driver::check_text("generated", text, &self.sys, &self.settings) {
            Ok(checked) => Ok(checked.script),
            Err(mut said) => {
                said.0.retain(|d| d.severity == diag::Severity::Error);
                Err(diag::render(&said, &[source], false))
            }
        }
    }

    /// Tries a script: check, compile, load, and where `run` says so, run.
    pub fn try_script(&self, text: &str, run: bool) -> (Outcome, Spent) {
        let mut spent = Spent::default();
        let since = used();
        let tried = catch_unwind(AssertUnwindSafe(|| self.stages(text, run, &mut spent)));
        let outcome = tried.unwrap_or_else(|p| {
            let word = p.downcast_ref::<String>().cloned().or_else(|| p.downcast_ref::<&str>().map(|s| (*s).to_string()));
            Outcome::Panic(word.unwrap_or_default())
        });
        if let (Outcome::Fine(..), true) = (&outcome, used().saturating_sub(since) > self.patience) {
            return (Outcome::Slow(format!("{spent:?}")), spent);
        }
        (outcome, spent)
    }

    fn stages(&self, text: &str, run: bool, spent: &mut Spent) -> Outcome {
        let since = Instant::now();
        let source = Source { name: "generated".into(), text: text.into() };
        let script = self.check(text);
        spent.check = since.elapsed();
        let script = match script {
            Ok(script) => script,
            Err(said) => return Outcome::Check(said),
        };
        let since = Instant::now();
        let compiled = rbt::codegen::compile(&script, &self.settings, &self.sys, std::slice::from_ref(&source), Dumps::default());
        spent.compile = since.elapsed();
        let compiled = match compiled {
            Ok(compiled) => compiled,
            // a limit of the kernel's that is told before it is asked
            Err(e) if e.messages.is_empty() => return Outcome::Check(diag::render(&diag::Diagnostics(e.told), &[source], false)),
            Err(e) => return Outcome::Compile(e.messages.join("\n")),
        };
        let since = Instant::now();
        let options = Options { quiet: true, dry_run: !run, ..Options::default() };
        let session = runtime::load(&compiled.artifact, &self.settings, &self.sys, options);
        spent.load = since.elapsed();
        let mut session = match session {
            Ok(session) => session,
            Err(e) => return refused(&e),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        if run {
            let since = Instant::now();
            let render =
                RenderOptions { trunc_trailer: self.settings.str_trunc_trailer.clone(), warnings: true, ..RenderOptions::default() };
            let Some(format) = render::find("text") else { return Outcome::Machine("no text format".into()) };
            let mut renderer = (format.make)(&render);
            if let Err(e) = session.run(&mut *renderer, &mut out, &mut err) {
                return Outcome::Machine(format!("{e:#}"));
            }
            spent.run = since.elapsed();
        }
        let since = Instant::now();
        drop(session);
        spent.run += since.elapsed();
        Outcome::Fine(out, err)
    }
}

/// The processor's time that this thread has used: a busy machine is no reason to call a script slow.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

fn refused(e: &anyhow::Error) -> Outcome {
    match e.downcast_ref::<Refused>() {
        Some(refused) => {
            let place = refused.pos.as_ref().map_or_else(String::new, |p| format!(" at {}:{}", p.line, p.col));
            let lines: Vec<&str> = refused.log.lines().collect();
            let tail = lines[lines.len().saturating_sub(30)..].join("\n");
            Outcome::Refused(format!("{}{place}: {}", refused.program, refused.reason), tail)
        }
        None => Outcome::Machine(format!("{e:#}")),
    }
}
