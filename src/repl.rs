//! The prompt: probes are added, watched and dropped one at a time, while the others go on.
//!
//! Each entry is a program of its own, on a thread of its own (`entries`), and its maps are handed on to those that come
//! after it: by name, with the types that they have. What entries say appears above the line that is being typed
//! (`printer`). Completion and hints (`line`) ask the tables and the checker that everything else asks.

use std::cell::RefCell;
use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor, ExternalPrinter};

use crate::check::hir;
use crate::cli::{Failure, Run, nothing_to_run};
use crate::codegen::Compiled;
use crate::diag::{Diagnostics, Source};
use crate::driver::entry::{Among, Entry, Text, warn};
use crate::driver::{paint, permitted, tell};
use crate::emit::Dumps;
use crate::probes::Attach;
use crate::runtime::Parts;
use crate::syntax::ast;
use crate::system::live::Live;
use entries::{Held, Running};
use line::Line;
use printer::{Printer, plainly};

pub mod commands;
mod entries;
mod interrupts;
mod line;
mod printer;
mod scan;
mod top;

/// How long an entry is waited for that was told to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// 128 + SIGPIPE, as a shell has it.
const CLOSED_PIPE: u8 = 141;
/// Entries kept in the history file.
const REMEMBERED: usize = 10_000;

/// What the line editor and the entries both look at.
struct World {
    run: Run,
    sys: Live,
    maps: RefCell<Vec<Held>>,
    /// Entries that define and run nothing.
    definitions: RefCell<Vec<Source>>,
}

impl World {
    fn given(&self) -> Vec<hir::Map> {
        self.maps.borrow().iter().map(|held| held.map.clone()).collect()
    }

    fn among<T>(&self, ask: impl FnOnce(&Among) -> T) -> T {
        let (maps, definitions) = (self.given(), self.definitions.borrow());
        ask(&Among { run: &self.run, sys: &self.sys, definitions: &definitions, maps: &maps })
    }
}

/// What to do after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    Leave,
}

/// The prompt and what runs.
struct Prompt {
    world: Rc<World>,
    printer: Printer,
    running: Vec<Running>,
    number: usize,
    /// A person sits there.
    person: bool,
    /// Something went wrong, where no person saw it.
    failed: bool,
    /// While it is open, programs are timed.
    timed: Option<std::os::fd::OwnedFd>,
}

/// Runs the prompt, or the entries that standard input has, a line each. Gives the exit status: 1 where one of those was
/// wrong.
///
/// Errors: standard input that has nothing, or cannot be read.
pub fn prompt(run: &Run) -> Result<u8, Failure> {
    if run.child.is_some() {
        return Err(Failure::new("there is no script for -c").help("give a FILE, or -e 'PROGRAM'"));
    }
    let person = io::stdin().is_terminal() && io::stdout().is_terminal();
    let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
    let world = Rc::new(World { run: run.clone(), sys, maps: RefCell::default(), definitions: RefCell::default() });
    interrupts::catch();
    if person { in_person(world) } else { by_lines(world) }
}

fn in_person(world: Rc<World>) -> Result<u8, Failure> {
    let cannot = |e: ReadlineError| Failure::new(format!("cannot use this terminal: {e}")).code("no-terminal");
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .auto_add_history(true)
        .history_ignore_dups(true)
        .and_then(|c| c.max_history_size(REMEMBERED))
        .map_err(cannot)?
        .build();
    let mut editor: Editor<Line, FileHistory> = Editor::with_config(config).map_err(cannot)?;
    editor.set_helper(Some(Line::new(world.clone())));
    let history = history_file();
    if let Some(path) = &history {
        // there is none the first time
        let _ = editor.load_history(path);
    }
    let mut above = editor.create_external_printer().map_err(cannot)?;
    let printer = Printer::start(Some(Box::new(move |text| above.print(text).is_ok())));
    let mut prompt = Prompt::new(world, printer, true);
    if let Err(failure) = permitted() {
        tell(&failure, prompt.world.run.color);
    }
    if !prompt.world.run.quiet {
        plainly(b"A probe and its block to trace, an expression for its value; :help for more, Ctrl-D to leave.\n");
    }
    let _keys = top::Keys::take(true).map_err(|e| cannot(e.into()))?;
    let mut interrupted = false;
    loop {
        prompt.printer.settle(Duration::from_millis(20));
        prompt.printer.editing(true);
        // Ctrl-C while nothing was being typed, that nothing else took note of
        editor.helper().map(Line::was_typing);
        let line = if interrupts::taken() { Err(ReadlineError::Interrupted) } else { editor.readline("rbt> ") };
        interrupts::forget();
        prompt.printer.editing(false);
        prompt.sweep();
        match line {
            Ok(text) => {
                interrupted = false;
                if prompt.take(&text) == Next::Leave {
                    break;
                }
            }
            // a line that was being typed is thrown away by that, and no more
            Err(ReadlineError::Interrupted) if editor.helper().is_some_and(Line::was_typing) => interrupted = false,
            Err(ReadlineError::Interrupted) if interrupted => break,
            Err(ReadlineError::Interrupted) => {
                interrupted = true;
                prompt.stop_all();
            }
            Err(ReadlineError::Eof) => break,
            Err(why) => return Err(cannot(why)),
        }
    }
    prompt.leave();
    if let Some(path) = &history {
        let kept =
            path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(ReadlineError::Io).and_then(|()| editor.save_history(path));
        if let Err(why) = kept {
            warn(&format!("the history was not kept in {}: {why}\n", path.display()));
        }
    }
    Ok(0)
}

/// `$XDG_STATE_HOME/rbt/history` (XDG Base Directory Specification).
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("rbt/history"))
}

fn by_lines(world: Rc<World>) -> Result<u8, Failure> {
    let mut prompt = Prompt::new(world, Printer::start(None), false);
    let (mut text, mut any) = (String::new(), false);
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|e| Failure::new(format!("cannot read standard input: {e}")).code("not-readable"))?;
        any |= !line.trim().is_empty();
        text.push_str(&line);
        text.push('\n');
        if scan::unfinished(&text) {
            continue;
        }
        if prompt.take(std::mem::take(&mut text).trim()) == Next::Leave {
            prompt.leave();
            return Ok(u8::from(prompt.failed));
        }
        // what came at once is told before what the next line says
        prompt.printer.settle(PATIENCE);
        if prompt.printer.unread() {
            break;
        }
    }
    if !any {
        return Err(nothing_to_run());
    }
    prompt.take(text.trim());
    // the end of the input is no end of what runs: that is exit(), or a signal
    while prompt.running.iter().any(|r| !r.is_over()) && !interrupts::taken() {
        std::thread::sleep(Duration::from_millis(10));
    }
    prompt.leave();
    Ok(if prompt.printer.unread() { CLOSED_PIPE } else { u8::from(prompt.failed) })
}

impl Prompt {
    fn new(world: Rc<World>, printer: Printer, person: bool) -> Self {
        Self { world, printer, running: Vec::new(), number: 0, person, failed: false, timed: None }
    }

    /// Does what a line says.
    fn take(&mut self, text: &str) -> Next {
        let text = text.trim();
        self.sweep();
        if text.is_empty() || text.starts_with("//") {
            return Next::Go;
        }
        let done = match text.strip_prefix(':') {
            Some(command) => self.command(command),
            None => self.enter(text).map(|()| Next::Go),
        };
        done.unwrap_or_else(|failure| {
            self.failed = true;
            tell(&failure, self.world.run.color);
            Next::Go
        })
    }

    /// Forgets entries that have ended.
    fn sweep(&mut self) {
        self.running.retain(|running| !running.is_over());
    }

    /// Compiles and runs an entry.
    fn enter(&mut self, typed: &str) -> Result<(), Failure> {
        let number = self.number + 1;
        let (mut entry, what) = self.read(typed, format!("[{number}]"))?;
        let world = self.world.clone();
        if world.run.warnings && !entry.checked.warnings.0.is_empty() {
            warn(&world.among(|among| among.told(&entry.text, &entry.checked.warnings)));
        }
        if what == What::Definition {
            world.definitions.borrow_mut().push(entry.text.source());
            self.number = number;
            return Ok(());
        }
        permitted()?;
        loop {
            let compiled = world.among(|among| among.compile(&entry, Dumps::default()))?;
            match self.run(number, &entry, &compiled, what) {
                Ok(()) => return Ok(()),
                Err(why) => world.among(|among| among.refused(&mut entry, &compiled, &why))?,
            }
        }
    }

    fn run(&mut self, number: usize, entry: &Entry, compiled: &Compiled, what: What) -> Result<(), entries::Why> {
        let world = self.world.clone();
        let (artifact, settings) = (&compiled.artifact, &entry.checked.settings);
        let held = world.maps.borrow().clone();
        if what == What::Value {
            let (out, mut parts) = entries::evaluate(artifact, settings, &held, &world.run, &world.sys)?;
            self.keep(entry, &mut parts);
            self.printer.settle(PATIENCE);
            plainly(&self.value(entry, &out));
            return Ok(());
        }
        let label = paint(&format!("[{number}]"), "36", world.run.color);
        let quiet = world.run.quiet;
        let sites = || entry.checked.script.probes.iter().flat_map(|p| &p.sites);
        let once = sites().all(|s| matches!(s.attach, Attach::Begin));
        let announce = move |probes: u64| match (quiet || once, probes) {
            (true, _) | (_, 0) => String::new(),
            (false, 1) => format!("{label} 1 probe\n"),
            (false, n) => format!("{label} {n} probes\n"),
        };
        let text = (number, entry.text.typed.clone());
        let mut running = entries::start(text, (artifact.clone(), settings.clone()), &held, &world.run, &self.printer, announce)?;
        self.keep(entry, &mut running.parts);
        if once {
            running.wait(PATIENCE);
        } else {
            self.number = number;
        }
        self.running.push(running);
        Ok(())
    }

    /// Keeps the maps that an entry has made.
    fn keep(&self, entry: &Entry, parts: &mut Parts) {
        let mut maps = self.world.maps.borrow_mut();
        for (name, fd) in std::mem::take(&mut parts.maps) {
            let map = entry.checked.script.maps.iter().find(|m| m.name == name);
            if let (Some(map), false) = (map, maps.iter().any(|held| held.map.name == name)) {
                maps.push(Held { map: map.clone(), fd: Arc::new(fd) });
            }
        }
        maps.sort_by(|a, b| a.map.name.cmp(&b.map.name));
    }

    /// A value as it is shown, with its type.
    fn value(&self, entry: &Entry, out: &[u8]) -> Vec<u8> {
        let ty = line::printed(&entry.checked.script).unwrap_or_default();
        let mut shown = out.to_vec();
        while shown.last() == Some(&b'\n') {
            shown.pop();
        }
        // for people alone
        if ty.is_empty() || self.world.run.format != "text" {
            shown.push(b'\n');
            return shown;
        }
        let ty = if self.world.run.color { format!("\x1b[2m{ty}\x1b[0m") } else { ty };
        let before = if shown.contains(&b'\n') {
            "\n"
        } else if shown.is_empty() {
            ""
        } else {
            "  "
        };
        shown.extend_from_slice(format!("{before}{ty}\n").as_bytes());
        shown
    }

    /// Takes a text for what it can be: probes or definitions, an expression, or statements.
    fn read(&self, typed: &str, name: String) -> Result<(Entry, What), Failure> {
        let frame = |before, after| Text { before, typed: typed.to_owned(), after, name: name.clone() };
        let (script, value, statements) = (frame("", ""), frame(PRINT, PRINTED), frame("begin { ", "\n}"));
        let whole_map = typed.strip_prefix('@').is_some_and(|rest| rest.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let value = if whole_map { frame("begin { print(", "\n); }") } else { value };
        self.world.among(|among| {
            let fault = |text: &Text, diags: &Diagnostics| {
                warn(&among.told(text, diags));
                Failure::told(1)
            };
            let as_script = among.parse(&script);
            if let Ok(tree) = as_script {
                let runs = tree.items.iter().any(|item| matches!(item, ast::Item::Probe(_)));
                if runs || !tree.imports.is_empty() {
                    let entry = among.check(&script, tree).map_err(|d| fault(&script, &d))?;
                    return Ok((entry, What::Probes));
                }
                // what it defines is looked at as if it were used
                let with_probe = frame("", "\nbegin { }");
                let tree = among.parse(&with_probe).map_err(|d| fault(&script, &d))?;
                let checked = among.check(&with_probe, tree).map_err(|d| fault(&script, &d))?;
                return Ok((Entry { text: script.clone(), ..checked }, What::Definition));
            }
            let as_value = among.parse(&value).map(|tree| among.check(&value, tree));
            if let Ok(Ok(entry)) = as_value {
                return Ok((entry, What::Value));
            }
            let as_statements = among.parse(&statements).map(|tree| among.check(&statements, tree));
            match (as_statements, as_value, as_script) {
                (Ok(Ok(entry)), ..) => Ok((entry, What::Probes)),
                // its own words for what is wrong: an expression's unless it is none
                (Ok(Err(of_statements)), Ok(Err(of_value)), _) => {
                    let called = of_value.0.iter().any(|d| d.span.start == 0 && d.code == "type-mismatch");
                    Err(if called { fault(&statements, &of_statements) } else { fault(&value, &of_value) })
                }
                (Ok(Err(diags)), ..) => Err(fault(&statements, &diags)),
                (_, _, Err(diags)) if probe_like(typed) => Err(fault(&script, &diags)),
                (Err(diags), ..) => Err(fault(&statements, &diags)),
            }
        })
    }

    /// Ends all that runs.
    fn stop_all(&mut self) {
        if self.running.is_empty() {
            plainly(b"nothing runs; Ctrl-C again leaves\n");
            return;
        }
        let n = self.running.len();
        self.end(|_| true);
        plainly(format!("stopped {n}; Ctrl-C again leaves\n").as_bytes());
    }

    /// Ends entries: all are told first, then waited for.
    fn end(&mut self, which: impl Fn(&Running) -> bool) {
        let (ending, staying): (Vec<Running>, Vec<Running>) = std::mem::take(&mut self.running).into_iter().partition(which);
        self.running = staying;
        ending.iter().for_each(Running::end);
        ending.iter().for_each(|running| running.wait(PATIENCE));
        self.printer.settle(Duration::from_millis(50));
    }

    fn leave(&mut self) {
        self.printer.close();
        self.end(|_| true);
        self.printer.settle(PATIENCE);
    }
}

const PRINT: &str = "begin { print((";
const PRINTED: &str = "\n)); }";

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Probes,
    Definition,
    Value,
}

/// Does a text that parses as nothing look like a probe?
fn probe_like(typed: &str) -> bool {
    let first: String = typed.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    typed.contains('{') || crate::probes::find(&first).is_some() && typed.contains(':')
}
