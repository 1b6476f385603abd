//! The prompt: you add, watch and drop probes one at a time while the others continue.
//!
//! Each entry is a separate program on a separate thread (`entries`), and passes its maps to later entries, by name and with
//! their types. Output of entries appears above the edited line (`printer`). Completion and hints (`line`) use the same tables
//! and checker as everything else.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{ColorMode, CompletionType, Config, Editor, ExternalPrinter};

use crate::cli::{Run, nothing_to_run};
use crate::codegen::Compiled;
use crate::diag::{Diagnostics, Source, plain_lines, plural};
use crate::emit::Dumps;
use crate::failure::{Failure, reason};
use crate::frontend::entry::{Entry, EntryContext, Text, warn};
use crate::input;
use crate::launch::require::require_privileges;
use crate::output_files::Destinations;
use crate::probes::Attach;
use crate::runtime::{Estimates, Parts};
use crate::sema::hir;
use crate::settings::Mode;
use crate::streams::{CLOSED_PIPE, not_written, report};
use crate::syntax::{self, ast};
use crate::system::machine::live::Live;
use crate::terminal::screen::{Keys, readable};
use crate::terminal::{self, paint};
use entries::{EntryStart, NamedMaps, Running, SharedMap};
use line::Line;
use printer::{Printer, write_stdout};

pub mod commands;
mod entries;
mod interrupts;
mod line;
mod printer;
mod scan;
mod shapes;
mod top;

/// How long to wait for an entry that must end.
const TIMEOUT: Duration = Duration::from_secs(2);
const PROMPT: &str = "rbt> ";
/// Maximum number of entries in the history file.
const MAX_HISTORY: usize = 10_000;
/// Maximum size in bytes of an entry on standard input.
const MAX_ENTRY: usize = 1 << 20;

/// The state that the line editor and the entries share.
struct Workspace {
    run: Run,
    sys: Live,
    maps: RefCell<Vec<SharedMap>>,
    /// The maps with the stacks to which those maps refer.
    stacks: RefCell<NamedMaps>,
    /// Entries that only define things, and their numbers.
    definitions: RefCell<Vec<(usize, Source)>>,
    /// What limits do to the entries.
    estimates: Arc<Estimates>,
}

impl Workspace {
    fn maps(&self) -> Vec<hir::Map> {
        self.maps.borrow().iter().map(|held| held.map.clone()).collect()
    }

    /// The maps, and those that belong to them.
    /// The maps by name, and what limits do to the entries that use them.
    fn shared(&self) -> (NamedMaps, Arc<Estimates>) {
        (self.named(), self.estimates.clone())
    }

    fn named(&self) -> NamedMaps {
        let maps = self.maps.borrow();
        maps.iter().map(|held| (held.map.name.clone(), held.fd.clone())).chain(self.stacks.borrow().iter().cloned()).collect()
    }

    fn defined(&self) -> Vec<Source> {
        self.definitions.borrow().iter().map(|(_, source)| source.clone()).collect()
    }

    fn with_entry_context<T>(&self, ask: impl FnOnce(&EntryContext) -> T) -> T {
        let (maps, definitions) = (self.maps(), self.defined());
        ask(&EntryContext { run: &self.run, sys: &self.sys, definitions: &definitions, maps: &maps })
    }
}

/// The next action after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineResult {
    Continue,
    Quit,
}

/// The prompt and its running entries.
struct Prompt {
    workspace: Rc<Workspace>,
    printer: Printer,
    running: Vec<Running>,
    number: usize,
    /// Is a person using it?
    is_interactive: bool,
    /// An entry failed while no person was using it.
    failed: bool,
    /// `-o`
    file: Option<Arc<File>>,
    /// While it is open, programs are timed.
    run_time_stats: Option<crate::runtime::cost::Statistics>,
}

/// Runs the prompt, or the entries on standard input, one per line. Returns the exit status: 1 if one of those failed.
///
/// Errors: standard input that is empty or cannot be read.
pub fn prompt(run: &Run) -> Result<u8, Failure> {
    if let Some((_, option)) = for_scripts(run).into_iter().find(|(given, _)| *given) {
        return Err(Failure::new(format!("{option} needs a script")).help("give a FILE, or -e 'PROGRAM'"));
    }
    let is_interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
    let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
    let workspace = Rc::new(Workspace {
        run: run.clone(),
        sys,
        maps: RefCell::default(),
        stacks: RefCell::default(),
        definitions: RefCell::default(),
        estimates: Arc::default(),
    });
    interrupts::catch();
    let to = Destinations::of(run)?;
    if let Some(format) = to.document.or_else(|| to.beside.first().map(|(_, format)| *format)) {
        let failure = Failure::new(format!("the prompt has no output in the format {} for a whole session", format.name));
        return Err(failure.help("`:write FILE` at the prompt writes maps in the format of the file's extension"));
    }
    let file = match &to.file {
        Some(path) => {
            let file = File::create(path).map_err(|e| not_written(&format!("-o {}", path.display()), &e))?;
            Some(Arc::new(file))
        }
        None => None,
    };
    if is_interactive { interactive(workspace, file) } else { by_lines(workspace, file, false) }
}

/// Options that need a single script: whether they are present, and their names.
fn for_scripts(run: &Run) -> [(bool, &'static str); 9] {
    [
        (run.child.is_some(), "-c"),
        (run.settings.mode != Mode::Trace, "--test or --bench"),
        (run.dry_run, "--dry-run"),
        (run.compile_only, "--mode codegen"),
        (!run.dumps.is_empty(), "-d"),
        (run.emit_elf.is_some(), "--emit-elf"),
        (run.emit_llvm.is_some(), "--emit-llvm"),
        (run.propagate_status, "--propagate-status"),
        (run.notify_fd.is_some(), "--notify-fd"),
    ]
}

fn interactive(workspace: Rc<Workspace>, file: Option<Arc<File>>) -> Result<u8, Failure> {
    let cannot = |e: ReadlineError| Failure::new(format!("cannot use this terminal: {e}")).code("no-terminal");
    let config = Config::builder()
        .completion_type(CompletionType::List)
        // `Line` decides about colors, because it must see each drawing
        .color_mode(ColorMode::Forced)
        .auto_add_history(true)
        .history_ignore_dups(true)
        .and_then(|c| c.max_history_size(MAX_HISTORY))
        .map_err(cannot)?
        .build();
    let mut editor: Editor<Line, FileHistory> = Editor::with_config(config).map_err(cannot)?;
    // there are terminals on which the editor cannot edit (TERM=dumb)
    let Ok(mut above) = editor.create_external_printer() else { return by_lines(workspace, file, true) };
    editor.set_helper(Some(Line::new(workspace.clone())));
    let history = history_file().filter(|path| input::is_own(path));
    if let Some(path) = &history {
        load_history(&mut editor, path);
    }
    let mut unkept = None;
    let printer = Printer::start(Some(Box::new(move |text| above.print(text).is_ok())));
    let mut prompt = Prompt::new(workspace, printer, file, true);
    prompt.print_banner();
    let _keys = Keys::take(true).map_err(|e| cannot(e.into()))?;
    let mut interrupted = false;
    while !interrupts::quit_requested() {
        prompt.printer.wait_until_idle(Duration::from_millis(20));
        prompt.printer.editing(true);
        // Ctrl-C while nothing was being typed, and nothing else handled it
        editor.helper().map(Line::was_typing);
        let line = if interrupts::interrupted() { Err(ReadlineError::Interrupted) } else { editor.readline(PROMPT) };
        interrupts::reset();
        prompt.printer.editing(false);
        prompt.sweep();
        match line {
            Ok(text) => {
                interrupted = false;
                // saved immediately, so that it survives any failure
                if let Some(path) = &history {
                    unkept = keep(&mut editor, path).err();
                }
                if prompt.execute(&text) == LineResult::Quit {
                    break;
                }
            }
            _ if interrupts::quit_requested() => break,
            // that only discards a line that was being typed
            Err(ReadlineError::Interrupted) if editor.helper().is_some_and(Line::was_typing) => interrupted = false,
            Err(ReadlineError::Interrupted) if interrupted => break,
            Err(ReadlineError::Interrupted) => {
                interrupted = true;
                prompt.tell_how_to_leave();
            }
            Err(ReadlineError::Eof) => break,
            Err(why) => {
                prompt.leave();
                return Err(cannot(why));
            }
        }
    }
    prompt.leave();
    if let (Some(path), Some(why)) = (&history, unkept) {
        warn(&format!("cannot save the history in {}: {why}\n", path.display()));
    }
    Ok(0)
}

/// Reads the history. Invalid UTF-8 in it is replaced, so that the rest is not lost.
fn load_history(editor: &mut Editor<Line, FileHistory>, path: &Path) {
    // it does not exist the first time
    let Ok(bytes) = input::read_regular(path, input::TEXT) else { return };
    if let Err(damaged) = String::from_utf8(bytes) {
        let _ = std::fs::write(path, String::from_utf8_lossy(damaged.as_bytes()).as_bytes());
    }
    let _ = editor.load_history(path);
}

/// Appends new entries to the history file. Other prompts may append to it as well.
fn keep(editor: &mut Editor<Line, FileHistory>, path: &Path) -> Result<(), ReadlineError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    editor.append_history(path)
}

/// `$XDG_STATE_HOME/rbt/history` (XDG Base Directory Specification).
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let state = state.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state")))?;
    Some(state.join("rbt/history"))
}

/// Reads entries from standard input, one per line. `asks`: it is a terminal without line editing.
fn by_lines(workspace: Rc<Workspace>, file: Option<Arc<File>>, asks: bool) -> Result<u8, Failure> {
    let cannot = |e: io::Error| Failure::new(format!("cannot read standard input: {}", reason(&e))).code("not-readable");
    let mut prompt = Prompt::new(workspace, Printer::start(None), file, false);
    let mut input = BufReader::new(File::from(io::stdin().as_fd().try_clone_to_owned().map_err(cannot)?));
    let (mut text, mut any, mut interrupted) = (String::new(), asks, false);
    if asks {
        prompt.print_banner();
    }
    while !interrupts::quit_requested() {
        if asks && text.is_empty() {
            write_stdout(PROMPT.as_bytes());
        }
        let line = match next_line(&mut input).map_err(cannot)? {
            Input::Line(line) => line,
            Input::End => break,
            Input::Interrupted if asks && !interrupts::quit_requested() => {
                interrupts::reset();
                write_stdout(b"\n");
                if text.is_empty() && std::mem::replace(&mut interrupted, true) {
                    break;
                }
                if text.is_empty() {
                    prompt.tell_how_to_leave();
                }
                text.clear();
                continue;
            }
            Input::Interrupted => {
                prompt.leave();
                return Ok(u8::from(prompt.failed));
            }
        };
        interrupted = false;
        let Ok(line) = String::from_utf8(line) else {
            prompt.fail(&Failure::new("this line is not UTF-8 text").code("not-readable"));
            text.clear();
            continue;
        };
        any |= !line.trim().is_empty();
        text.push_str(&line);
        if text.len() > MAX_ENTRY {
            return Err(cannot(too_long()));
        }
        if unfinished(text.strip_suffix('\n').unwrap_or(&text)) {
            continue;
        }
        if prompt.execute(std::mem::take(&mut text).trim()) == LineResult::Quit {
            prompt.leave();
            return Ok(u8::from(prompt.failed));
        }
        // output that arrived already is printed before that of the next line
        prompt.printer.wait_until_idle(TIMEOUT);
        if prompt.printer.unread() {
            break;
        }
    }
    if !any {
        return Err(nothing_to_run());
    }
    prompt.execute(text.trim());
    // running entries continue after the end of the input, until exit() or a signal
    while !asks && prompt.running.iter().any(|r| !r.is_over()) && !interrupts::interrupted() {
        std::thread::sleep(Duration::from_millis(10));
    }
    prompt.leave();
    Ok(if prompt.printer.unread() { CLOSED_PIPE } else { u8::from(prompt.failed && !asks) })
}

/// The next item from standard input.
enum Input {
    /// With its line break, if it has one.
    Line(Vec<u8>),
    End,
    /// A signal arrived first.
    Interrupted,
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("an entry has more than {MAX_ENTRY} bytes"))
}

fn next_line(input: &mut BufReader<File>) -> io::Result<Input> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        while input.buffer().is_empty() && !readable(Duration::from_millis(100)) {
            if interrupts::interrupted() {
                return Ok(Input::Interrupted);
            }
        }
        // endless input has no pauses for checking
        if interrupts::interrupted() {
            return Ok(Input::Interrupted);
        }
        let some = match input.fill_buf() {
            Ok([]) => break,
            Ok(some) => some,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let length = some.iter().position(|b| *b == b'\n').map_or(some.len(), |at| at + 1);
        line.extend_from_slice(some.get(..length).unwrap_or(some));
        input.consume(length);
        if line.len() > MAX_ENTRY {
            return Err(too_long());
        }
    }
    Ok(if line.is_empty() { Input::End } else { Input::Line(line) })
}

/// Does the entry continue on the next line? A command is one line. A probe without a block waits for it, until an empty line
/// shows that there is none.
fn unfinished(text: &str) -> bool {
    !text.trim_start().starts_with(':') && (syntax::unfinished(text) || headless(text))
}

/// Are these probes without a block so far, and is the last line nonempty?
fn headless(text: &str) -> bool {
    let typed = text.trim_start();
    let (name, rest) = typed.split_at(typed.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(typed.len()));
    let probe = crate::probes::find(name).is_some_and(|kind| rest.starts_with(':') || rest.trim().is_empty() && kind.by_name_only());
    // each line is another probe, or a predicate
    let lines: Vec<&str> = typed.split('\n').map(str::trim).collect();
    let continues = |pair: &[&str]| matches!(pair, [before, line] if before.ends_with(',') || line.starts_with('/'));
    probe && !typed.contains('{') && lines.windows(2).all(continues) && lines.last().is_some_and(|line| !line.is_empty())
}

impl Prompt {
    fn new(workspace: Rc<Workspace>, printer: Printer, file: Option<Arc<File>>, interactive: bool) -> Self {
        Self { workspace, printer, running: Vec::new(), number: 0, is_interactive: interactive, failed: false, file, run_time_stats: None }
    }

    /// Prints what can be typed, and which privileges are missing.
    fn print_banner(&self) {
        if let Err(failure) = require_privileges() {
            report(&failure, self.workspace.run.color);
        }
        if !self.workspace.run.quiet {
            self.print_reply(
                "Type a probe and its block to trace, or an expression to see its value. :help lists commands; Ctrl-D leaves.\n",
            );
        }
    }

    /// Prints a reply to the user, outside of the output if programs read that.
    fn print_reply(&self, text: &str) {
        let text = plain_lines(text);
        if self.workspace.run.is_text() {
            write_stdout(text.as_bytes());
        } else {
            warn(&text);
        }
    }

    fn fail(&mut self, failure: &Failure) {
        self.failed = true;
        report(failure, self.workspace.run.color);
    }

    /// Executes a line.
    fn execute(&mut self, text: &str) -> LineResult {
        let text = text.trim();
        self.sweep();
        if text.is_empty() || text.starts_with("//") {
            return LineResult::Continue;
        }
        let done = match text.strip_prefix(':') {
            Some(command) => self.command(command),
            None if LEAVES.contains(&text) => return LineResult::Quit,
            None => self.enter(text, None).map(|()| LineResult::Continue),
        };
        done.unwrap_or_else(|failure| {
            self.fail(&failure);
            if commands::TABLE.iter().any(|command| command.name == text) {
                warn(&format!("{} commands begin with a colon: `:{text}`\n", paint("help:", terminal::BOLD, self.workspace.run.color)));
            }
            LineResult::Continue
        })
    }

    /// Forgets entries that have ended.
    fn sweep(&mut self) {
        self.running.retain(|running| !running.is_over());
    }

    /// Compiles and runs an entry. `file`: the file from which it comes.
    fn enter(&mut self, typed: &str, file: Option<&str>) -> Result<(), Failure> {
        let number = self.number + 1;
        let (mut entry, what) = self.read(typed, file.map_or_else(|| format!("[{number}]"), str::to_owned))?;
        let workspace = self.workspace.clone();
        if workspace.run.warnings && !entry.checked.warnings.0.is_empty() {
            warn(&workspace.with_entry_context(|cx| cx.rendered(&entry.text, &entry.checked.warnings)));
        }
        if what == EntryKind::Definition {
            workspace.definitions.borrow_mut().push((number, entry.text.source()));
            self.number = number;
            return Ok(());
        }
        require_privileges()?;
        loop {
            let compiled = workspace.with_entry_context(|cx| cx.compile(&entry, Dumps::default()))?;
            match self.run(number, &entry, &compiled, what) {
                Ok(()) => {
                    // a signal that an entry received is not meant for the prompt
                    if self.is_interactive {
                        interrupts::reset();
                    }
                    return Ok(());
                }
                Err(why) => workspace.with_entry_context(|cx| cx.refused(&mut entry, &compiled, &why))?,
            }
        }
    }

    fn run(&mut self, number: usize, entry: &Entry, compiled: &Compiled, what: EntryKind) -> Result<(), entries::EntryError> {
        let workspace = self.workspace.clone();
        let (artifact, settings) = (&compiled.artifact, &entry.checked.settings);
        if what == EntryKind::Value {
            let (out, mut parts) = entries::evaluate(
                artifact,
                &entry.checked.env(&workspace.sys),
                workspace.shared(),
                &mut *entries::renderer(&workspace.run, settings, None)?,
            )?;
            self.keep(entry, &mut parts);
            self.printer.wait_until_idle(TIMEOUT);
            write_stdout(&self.value(entry, &out));
            return Ok(());
        }
        let label = paint(&format!("[{number}]"), terminal::NAME, workspace.run.color && io::stdout().is_terminal());
        let quiet = workspace.run.quiet || !workspace.run.is_text();
        let sites = || entry.checked.script.probes.iter().flat_map(|p| &p.sites);
        let once = sites().all(|s| matches!(s.attach, Attach::Begin));
        let announce = move |probes: u64| match (quiet || once, probes) {
            (true, _) | (_, 0) => String::new(),
            (false, n) => format!("{label} {}\n", plural(n, "probe", "probes")),
        };
        let gone = match settings.pid {
            _ if !self.is_interactive || once => String::new(),
            Some(pid) if !entry.text.typed.contains("exit") => format!("[{number}] has ended: process {pid} is gone\n"),
            Some(_) | None if quiet => String::new(),
            Some(_) | None => format!("[{number}] has ended\n"),
        };
        let start = EntryStart {
            number,
            text: entry.text.typed.clone(),
            artifact: artifact.clone(),
            settings: settings.clone(),
            invocation: entry.checked.invocation.clone(),
            maps: workspace.named(),
            run: &workspace.run,
            printer: &self.printer,
            file: self.file.clone(),
            end_message: gone,
            estimates: workspace.estimates.clone(),
        };
        let mut running = entries::start(start, announce)?;
        self.keep(entry, &mut running.parts);
        if once {
            running.wait(TIMEOUT);
        } else {
            self.number = number;
        }
        self.running.push(running);
        Ok(())
    }

    /// Keeps the maps that an entry created.
    fn keep(&self, entry: &Entry, parts: &mut Parts) {
        let mut maps = self.workspace.maps.borrow_mut();
        for (name, fd) in std::mem::take(&mut parts.maps) {
            let map = entry.checked.script.maps.iter().find(|m| m.name == name);
            if let (Some(map), false) = (map, maps.iter().any(|held| held.map.name == name)) {
                maps.push(SharedMap { map: map.clone(), fd: Arc::new(fd) });
            }
        }
        maps.sort_by(|a, b| a.map.name.cmp(&b.map.name));
        let mut stacks = self.workspace.stacks.borrow_mut();
        for (name, fd) in std::mem::take(&mut parts.stacks) {
            if !stacks.iter().any(|(known, _)| *known == name) {
                stacks.push((name, Arc::new(fd)));
            }
        }
    }

    /// A value as the prompt prints it, with its type.
    fn value(&self, entry: &Entry, out: &[u8]) -> Vec<u8> {
        let ty = shapes::printed(&entry.checked.script).unwrap_or_default();
        let mut shown = out.to_vec();
        while shown.last() == Some(&b'\n') {
            shown.pop();
        }
        // only for people
        if ty.is_empty() || !self.workspace.run.is_text() {
            shown.push(b'\n');
            return shown;
        }
        let ty = paint(&ty, terminal::DIM, self.workspace.run.color && io::stdout().is_terminal());
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

    /// Interprets a text as probes or definitions, as an expression, or as statements.
    fn read(&self, typed: &str, name: String) -> Result<(Entry, EntryKind), Failure> {
        let frame = |before, after| Text { before, typed: typed.to_owned(), after, name: name.clone() };
        let (script, value, statements) = (frame("", ""), frame(PRINT, PRINTED), frame("begin { ", "\n}"));
        let whole_map = typed.strip_prefix('@').is_some_and(|rest| rest.chars().all(|c| c.is_alphanumeric() || c == '_'));
        let value = if whole_map { frame("begin { print(", "\n); }") } else { value };
        self.workspace.with_entry_context(|cx| {
            let fault = |text: &Text, diags: &Diagnostics| {
                warn(&cx.rendered(text, diags));
                Failure::reported(1)
            };
            let not_script = match cx.parse(&script) {
                Ok(tree) => {
                    let runs = tree.items.iter().any(|item| matches!(item, ast::Item::Probe(_)));
                    if runs || !tree.imports.is_empty() {
                        let entry = cx.check(&script, tree).map_err(|d| fault(&script, &d))?;
                        return Ok((entry, EntryKind::Probes));
                    }
                    // its definitions are checked as if they were used
                    let with_probe = frame("", "\nbegin { }");
                    let tree = cx.parse(&with_probe).map_err(|d| fault(&script, &d))?;
                    let checked = cx.check(&with_probe, tree).map_err(|d| fault(&script, &d))?;
                    return Ok((Entry { text: script.clone(), ..checked }, EntryKind::Definition));
                }
                Err(diags) => diags,
            };
            let unpaired = not_script.0.iter().any(|d| d.code == "unbalanced" || d.code.starts_with("unterminated"));
            let framed = |text: &Text| match cx.parse(text) {
                // unbalanced brackets have closed those of the frame
                Ok(tree) if tree.items.len() > 1 => Err(not_script.clone()),
                parsed => parsed,
            };
            let as_value = framed(&value).map(|tree| cx.check(&value, tree));
            if let Ok(Ok(entry)) = as_value {
                return Ok((entry, EntryKind::Value));
            }
            let as_statements = framed(&statements).map(|tree| cx.check(&statements, tree));
            match (as_statements, as_value) {
                (Ok(Ok(entry)), _) => Ok((entry, EntryKind::Probes)),
                // reports the error as that of an expression, if it is one
                (Ok(Err(of_statements)), Ok(Err(of_value))) => {
                    let called = of_value.0.iter().any(|d| d.span.start == 0 && d.code == "type-mismatch");
                    Err(if called { fault(&statements, &of_statements) } else { fault(&value, &of_value) })
                }
                (Ok(Err(diags)), _) => Err(fault(&statements, &diags)),
                (Err(_), _) if unpaired || probe_like(typed) => Err(fault(&script, &not_script)),
                (Err(diags), _) => Err(fault(&statements, &diags)),
            }
        })
    }

    /// Tells a user who pressed Ctrl-C on an empty line how to leave.
    fn tell_how_to_leave(&self) {
        self.print_reply(&match self.running.len() {
            0 => "no entry is running; press Ctrl-C again to leave\n".to_owned(),
            1 => "1 entry is running. `:drop all` ends it; press Ctrl-C again to leave\n".to_owned(),
            n => format!("{n} entries are running. `:drop all` ends them; press Ctrl-C again to leave\n"),
        });
    }

    /// Ends entries: stops all of them, then waits.
    fn end(&mut self, which: impl Fn(&Running) -> bool) {
        let (ending, staying): (Vec<Running>, Vec<Running>) = std::mem::take(&mut self.running).into_iter().partition(which);
        self.running = staying;
        ending.iter().for_each(Running::end);
        ending.iter().for_each(|running| running.wait(TIMEOUT));
        self.printer.wait_until_idle(Duration::from_millis(50));
    }

    fn leave(&mut self) {
        self.printer.close();
        self.end(|_| true);
        self.printer.wait_until_idle(TIMEOUT);
    }
}

/// Words that leave other prompts.
const LEAVES: [&str; 4] = ["exit", "exit()", "exit();", "quit"];
const PRINT: &str = "begin { print((";
const PRINTED: &str = "\n)); }";

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Probes,
    Definition,
    Value,
}

/// Does a text that parses as nothing look like a probe?
fn probe_like(typed: &str) -> bool {
    let first: String = typed.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    typed.contains('{') || crate::probes::find(&first).is_some() && typed.contains(':')
}
