//! The commands of the prompt, which begin with a colon.

use std::borrow::Cow;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entries::{self, Running};
use super::printer::write_stdout;
use super::scan::tag;
use super::shapes::{is_type, printed, shape};
use super::{LineResult, Prompt, TIMEOUT, interrupts, top};
use crate::builtins;
use crate::diag::{Source, Span, nearest, plural};
use crate::emit::Dumps;
use crate::failure::{Failure, reason};
use crate::frontend::entry::{EntryContext, Text};
use crate::input;
use crate::list;
use crate::output::Step;
use crate::output_files::{self, Outputs};
use crate::probes;
use crate::render::{RenderOptions, Renderer};
use crate::runtime::cost::{self, Cost};
use crate::sema::{dump, hir};
use crate::syntax::{self, ast};
use crate::system::TargetInfo;
use crate::terminal;
use crate::types::Type;

/// The kind of a command's argument, for completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandArg {
    /// Nothing.
    Nothing,
    /// Seconds, or numbers of entries.
    Number,
    /// A path.
    File,
    /// The name of a map.
    Map,
    /// A probe, or a pattern.
    Probe,
    /// A builtin, a probe kind or a command.
    Word,
    /// One of [`STAGES`].
    Stage,
    /// An expression.
    Expression,
}

/// A command of the prompt.
pub struct Command {
    /// The name without the colon.
    pub name: &'static str,
    /// The arguments as users read them.
    pub usage: &'static str,
    /// The kind of the argument, for completion.
    pub arg: CommandArg,
    /// A line of documentation.
    pub doc: &'static str,
    run: fn(&mut Prompt, &str) -> Result<LineResult, Failure>,
}

/// All commands, in the order of `:help`.
pub const TABLE: &[Command] = &[
    Command { name: "help", usage: "[WORD]", arg: CommandArg::Word, doc: "list the commands, or explain a word", run: help },
    Command {
        name: "list",
        usage: "[PATTERN]",
        arg: CommandArg::Probe,
        doc: "list definitions and running entries, or the probes that match a pattern",
        run: list_probes,
    },
    Command { name: "args", usage: "PROBE", arg: CommandArg::Probe, doc: "show the arguments of a probe and their types", run: args },
    Command {
        name: "type",
        usage: "EXPRESSION | struct NAME",
        arg: CommandArg::Expression,
        doc: "show the type of an expression, or the members of a struct",
        run: type_of,
    },
    Command {
        name: "doc",
        usage: "WORD",
        arg: CommandArg::Word,
        doc: "explain a function, a variable or a kind of probe, with an example",
        run: help,
    },
    Command { name: "maps", usage: "", arg: CommandArg::Nothing, doc: "list the maps and their types", run: maps },
    Command { name: "print", usage: "[@MAP [TOP]]", arg: CommandArg::Map, doc: "print a map, or all maps", run: print },
    Command { name: "clear", usage: "[@MAP]", arg: CommandArg::Map, doc: "empty a map, or all maps", run: clear },
    Command { name: "top", usage: "@MAP [TOP]", arg: CommandArg::Map, doc: "print a map every second until you press a key", run: top },
    Command {
        name: "drop",
        usage: "N… | all",
        arg: CommandArg::Number,
        doc: "end entries and remove their definitions, but keep maps",
        run: drop_entries,
    },
    Command { name: "pause", usage: "[N…]", arg: CommandArg::Number, doc: "pause entries, or all entries", run: pause },
    Command { name: "resume", usage: "[N…]", arg: CommandArg::Number, doc: "resume entries, or all entries", run: resume },
    Command {
        name: "cost",
        usage: "[SECONDS]",
        arg: CommandArg::Number,
        doc: "show the cost of each program: nanoseconds per run, share of a CPU",
        run: cost,
    },
    Command {
        name: "show",
        usage: "STAGE [N]",
        arg: CommandArg::Stage,
        doc: "show a compiled form of an entry: hir, ir, opt or asm",
        run: show,
    },
    Command { name: "save", usage: "FILE", arg: CommandArg::File, doc: "save definitions and running entries as a script", run: save },
    Command {
        name: "write",
        usage: "FILE [@MAP]",
        arg: CommandArg::File,
        doc: "write a map, or all maps, to a file in the format that its extension selects",
        run: write,
    },
    Command { name: "load", usage: "FILE", arg: CommandArg::File, doc: "run a script as one entry", run: load },
    Command { name: "reset", usage: "", arg: CommandArg::Nothing, doc: "end all entries, and remove maps and definitions", run: reset },
    Command { name: "quit", usage: "", arg: CommandArg::Nothing, doc: "leave the prompt, like Ctrl-D", run: |_, _| Ok(LineResult::Quit) },
];

/// The stages that `:show` accepts, and their descriptions.
pub const STAGES: &[(&str, &str)] = &[
    ("hir", "the script as checked, with types"),
    ("ir", "LLVM IR as generated"),
    ("opt", "LLVM IR as optimized"),
    ("asm", "BPF instructions"),
];

/// The command with this name, or the only one that begins with it.
pub fn find(name: &str) -> Option<&'static Command> {
    TABLE.iter().find(|c| c.name == name).or_else(|| {
        let mut begin = TABLE.iter().filter(|c| !name.is_empty() && c.name.starts_with(name));
        begin.next().filter(|_| begin.next().is_none())
    })
}

impl Prompt {
    pub(super) fn command(&mut self, text: &str) -> Result<LineResult, Failure> {
        let text = text.trim();
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let Some(command) = find(name) else {
            let failure = Failure::new(format!("there is no command `:{name}`")).code("no-command");
            return Err(match nearest(name, TABLE.iter().map(|c| c.name)) {
                Some(near) => failure.help(format!("did you mean `:{near}`?")),
                None => failure.help("`:help` lists them"),
            });
        };
        (command.run)(self, rest.trim())
    }

    fn entry(&self, word: &str) -> Result<&Running, Failure> {
        let found = numbered(word).and_then(|n| self.running.iter().find(|r| r.number == n));
        found.ok_or_else(|| {
            Failure::new(format!("there is no running entry `{word}`")).code("no-entry").help("`:list` shows the running entries")
        })
    }

    /// Parses numbers of entries; all if the text is empty.
    fn numbers(&self, text: &str) -> Result<Vec<usize>, Failure> {
        if text.is_empty() || text == "all" {
            return Ok(self.running.iter().map(|r| r.number).collect());
        }
        words(text).map(|w| self.entry(w).map(|r| r.number)).collect()
    }

    fn map(&self, name: &str) -> Result<hir::Map, Failure> {
        let maps = self.workspace.maps();
        let full_name = if name.starts_with('@') { name.to_owned() } else { format!("@{name}") };
        if let Some(map) = maps.iter().find(|m| m.name == full_name) {
            return Ok(map.clone());
        }
        let failure = Failure::new(format!("there is no map `{full_name}`")).code("undefined-map");
        Err(match nearest(&full_name, maps.iter().map(|m| m.name.as_str())) {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help("`:maps` lists the maps"),
        })
    }

    /// Runs statements immediately, and returns their output.
    fn evaluate(&self, statements: &str) -> Result<Vec<u8>, Failure> {
        let workspace = &self.workspace;
        let renderer = entries::renderer(&workspace.run, &workspace.run.settings, None);
        self.render(statements, &mut *renderer.map_err(|why| Failure::new(format!("{why:#}")))?)
    }

    /// The same with another renderer.
    fn render(&self, statements: &str, renderer: &mut dyn Renderer) -> Result<Vec<u8>, Failure> {
        let text = Text { before: "begin { ", typed: statements.to_owned(), after: " }", name: "command".into() };
        let workspace = &self.workspace;
        let fault = |diags| Failure::new(workspace.with_entry_context(|cx| cx.rendered(&text, &diags)));
        let mut entry = workspace.with_entry_context(|cx| cx.parse(&text).and_then(|tree| cx.check(&text, tree))).map_err(fault)?;
        loop {
            let compiled = workspace.with_entry_context(|cx| cx.compile(&entry, Dumps::default()))?;
            match entries::evaluate(&compiled.artifact, &entry.checked.env(&workspace.sys), workspace.shared(), renderer) {
                Ok((out, _)) => return Ok(out),
                Err(why) => workspace.with_entry_context(|cx| cx.refused(&mut entry, &compiled, &why))?,
            }
        }
    }
}

/// Parses an entry's number: `1` or `[1]`.
fn numbered(word: &str) -> Option<usize> {
    word.trim_matches(['[', ']']).parse().ok()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',']).filter(|word| !word.is_empty())
}

/// The failure for a missing argument.
fn missing_argument(what: &str, example: &str) -> Failure {
    Failure::new(format!("{what} is missing")).code("usage").help(format!("for example {example}"))
}

fn help(prompt: &mut Prompt, word: &str) -> Result<LineResult, Failure> {
    let mut text = String::new();
    let command = word.strip_prefix(':').and_then(find);
    if let Some(c) = command {
        text = format!(":{} {}\n  {}\n", c.name, c.usage, c.doc);
    } else if word.is_empty() {
        text.push_str("Type a probe and its block to trace; it runs until you drop it. Type an expression to see its value.\n\n");
        let width = TABLE.iter().map(|c| c.name.len() + c.usage.chars().count() + 1).max().unwrap_or_default();
        for c in TABLE {
            text.push_str(&format!("  :{:<width$}  {}\n", format!("{} {}", c.name, c.usage), c.doc));
        }
        text.push_str("\nTab completes, Ctrl-R searches the history, and Ctrl-D or two Ctrl-C leave the prompt.\n");
    } else {
        let commands: Vec<&str> = TABLE.iter().map(|c| c.name).collect();
        text = crate::help::about_at_prompt(word, &commands)?;
    }
    prompt.print_reply(&text);
    Ok(LineResult::Continue)
}

fn list_probes(prompt: &mut Prompt, pattern: &str) -> Result<LineResult, Failure> {
    if !pattern.is_empty() {
        return list_matching(prompt, pattern, false);
    }
    let definitions = prompt.workspace.definitions.borrow();
    let defined = definitions.iter().map(|(n, source)| (format!("[{n}] {:<20}", "defined"), source.text.as_str()));
    let running = prompt.running.iter().map(|r| {
        let limited = || !prompt.workspace.estimates.steps(r.number).is_empty();
        let state = if r.paused {
            "paused"
        } else if limited() {
            "limited"
        } else {
            "runs"
        };
        (format!("[{}] {state:<7} {:>12}", r.number, plural(r.probes, "probe ", "probes")), r.text.as_str())
    });
    let columns = if prompt.is_interactive { terminal::size(std::io::stdout()).1 } else { usize::MAX };
    for (head, text) in defined.chain(running) {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let width = columns.saturating_sub(head.chars().count() + 2).max(20);
        let cut: String = line.chars().take(width).collect();
        prompt.print_reply(&format!("{head}  {cut}\n"));
    }
    if prompt.running.is_empty() {
        prompt.print_reply("no entry is running\n");
    }
    Ok(LineResult::Continue)
}

fn args(prompt: &mut Prompt, pattern: &str) -> Result<LineResult, Failure> {
    if pattern.is_empty() {
        return Err(missing_argument("a probe", ":args tracepoint:sched:sched_switch"));
    }
    list_matching(prompt, pattern, true)
}

/// Queries types of the machine, and those that definitions and running entries declare.
fn with_types<T>(prompt: &Prompt, ask: impl FnOnce(&dyn TargetInfo) -> T) -> T {
    let workspace = &prompt.workspace;
    let mut definitions = workspace.defined();
    definitions.extend(prompt.running.iter().map(|r| Source { name: String::new(), text: r.text.clone() }));
    EntryContext { run: &workspace.run, sys: &workspace.sys, definitions: &definitions, maps: &[] }.with_types(ask)
}

fn list_matching(prompt: &Prompt, pattern: &str, verbose: bool) -> Result<LineResult, Failure> {
    let workspace = &prompt.workspace;
    let mut out = Vec::new();
    let found = with_types(prompt, |sys| list::list(Some(pattern), &workspace.run.env(sys), verbose, &mut out));
    prompt.print_reply(&String::from_utf8_lossy(&out));
    found.map(|()| LineResult::Continue)
}

fn type_of(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    if text.is_empty() {
        return Err(missing_argument("an expression", ":type curtask.real_parent"));
    }
    let workspace = prompt.workspace.clone();
    let named = text.split_once(char::is_whitespace).is_some_and(|(word, _)| tag(word).is_some());
    if named && !text.contains(['*', '(']) {
        return list_matching(prompt, text, true);
    }
    if with_types(prompt, |sys| is_type(sys, text)) && probes::find(text).is_none() && builtins::find(text).is_none() {
        return list_matching(prompt, &format!("struct {text}"), true);
    }
    let frame = Text { before: "begin { print((", typed: text.to_owned(), after: "\n)); }", name: "type".into() };
    let frame = if text.starts_with('@') { Text { before: "begin { print(", after: "\n); }", ..frame } } else { frame };
    let fault = |diags| {
        crate::frontend::entry::warn(&workspace.with_entry_context(|cx| cx.rendered(&frame, &diags)));
        Failure::reported(1)
    };
    let entry = workspace.with_entry_context(|cx| cx.parse(&frame).and_then(|tree| cx.check(&frame, tree))).map_err(fault)?;
    let ty = printed(&entry.checked.script).unwrap_or_default();
    prompt.print_reply(&format!("{ty}\n"));
    Ok(LineResult::Continue)
}

fn maps(prompt: &mut Prompt, _: &str) -> Result<LineResult, Failure> {
    let maps = prompt.workspace.maps();
    if maps.is_empty() {
        prompt.print_reply("there are no maps\n");
    }
    for map in maps {
        let entries = if map.key.is_some() { format!("  at most {}", plural(map.max_entries, "entry", "entries")) } else { String::new() };
        prompt.print_reply(&format!("{}{}{entries}\n", map.name, if map.key.is_some() { shape(&map) } else { format!(": {}", map.value) }));
    }
    Ok(LineResult::Continue)
}

/// Parses a map and a number, for `:print` and `:top`.
fn map_and_top(prompt: &Prompt, text: &str) -> Result<(hir::Map, Option<u64>), Failure> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let map = prompt.map(name)?;
    let number = match rest.trim() {
        "" => None,
        rest => Some(rest.parse().map_err(|_| Failure::new(format!("`{rest}` is not a number of entries")).code("usage"))?),
    };
    Ok((map, number))
}

fn printing(map: &hir::Map, top: Option<u64>) -> String {
    match top.filter(|_| map.key.is_some()) {
        Some(top) => format!("print({}, {top});", map.name),
        None => format!("print({});", map.name),
    }
}

fn print(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    let statements = match text {
        "" => prompt.workspace.maps().iter().map(|map| printing(map, None)).collect(),
        text => {
            let (map, top) = map_and_top(prompt, text)?;
            printing(&map, top)
        }
    };
    if statements.is_empty() {
        prompt.print_reply("there are no maps\n");
        return Ok(LineResult::Continue);
    }
    write_stdout(&prompt.evaluate(&statements)?);
    Ok(LineResult::Continue)
}

fn clear(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    let emptied = |map: &hir::Map| format!("clear({});", map.name);
    let statements: String = match text {
        "" => prompt.workspace.maps().iter().map(emptied).collect(),
        name => emptied(&prompt.map(name)?),
    };
    if !statements.is_empty() {
        write_stdout(&prompt.evaluate(&statements)?);
    }
    Ok(LineResult::Continue)
}

fn top(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    if text.is_empty() {
        return Err(missing_argument("a map", ":top @ 10"));
    }
    let (map, limit) = map_and_top(prompt, text)?;
    if !prompt.is_interactive {
        write_stdout(&prompt.evaluate(&printing(&map, limit))?);
        return Ok(LineResult::Continue);
    }
    let since = Instant::now();
    // output of entries in the meantime belongs to the screen that returns
    prompt.printer.wait_until_idle(Duration::from_millis(20));
    prompt.printer.set_held(true);
    let shown = top::refresh(Duration::from_secs(1), 2, |rows, _| {
        // without the head, a table's head, and the last line
        let max_entries = rows.saturating_sub(6).max(1) as u64;
        // a multi-line value is printed whole, and cut to the screen
        let plain =
            !map.value.aggregation().and_then(|agg| builtins::aggregate(&agg.function)).is_some_and(|(_, row)| row.kind.is_picture());
        let limit = if plain { Some(limit.unwrap_or(max_entries).min(max_entries)) } else { limit };
        let mut page =
            format!("{} {}   {:.0} s   press any key to stop\n\n", map.name, shape(&map), since.elapsed().as_secs_f64()).into_bytes();
        page.extend(prompt.evaluate(&printing(&map, limit))?);
        Ok::<_, TopError>(page)
    });
    prompt.printer.set_held(false);
    shown.map_err(|failed| failed.0)?;
    Ok(LineResult::Continue)
}

/// A failure while a map was shown repeatedly.
struct TopError(Failure);

impl From<Failure> for TopError {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl From<std::io::Error> for TopError {
    fn from(e: std::io::Error) -> Self {
        Self(Failure::new(format!("cannot use this terminal: {}", reason(&e))).code("no-terminal"))
    }
}

fn drop_entries(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    if text.is_empty() {
        return Err(missing_argument("the number of an entry", ":drop 1, or :drop all"));
    }
    if text == "all" {
        prompt.workspace.definitions.borrow_mut().clear();
        prompt.end(|_| true);
        return Ok(LineResult::Continue);
    }
    let defined = |word: &str| {
        let number = numbered(word)?;
        prompt.workspace.definitions.borrow().iter().any(|(n, _)| *n == number).then_some(number)
    };
    let (known, rest): (Vec<&str>, Vec<&str>) = words(text).partition(|word| defined(word).is_some());
    let forgotten: Vec<usize> = known.into_iter().filter_map(defined).collect();
    let numbers = if rest.is_empty() { Vec::new() } else { prompt.numbers(&rest.join(" "))? };
    prompt.workspace.definitions.borrow_mut().retain(|(n, _)| !forgotten.contains(n));
    prompt.end(|r| numbers.contains(&r.number));
    Ok(LineResult::Continue)
}

fn pause(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    set_paused(prompt, text, true)
}

fn resume(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    set_paused(prompt, text, false)
}

fn set_paused(prompt: &mut Prompt, text: &str, paused: bool) -> Result<LineResult, Failure> {
    let numbers = prompt.numbers(text)?;
    prompt.running.iter_mut().filter(|r| numbers.contains(&r.number)).for_each(|r| r.pause(paused));
    Ok(LineResult::Continue)
}

fn cost(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    let seconds: f64 = match text {
        "" => 1.0,
        text => {
            let given: Option<f64> = text.parse().ok().filter(|s: &f64| (0.01..=3600.0).contains(s));
            given.ok_or_else(|| Failure::new(format!("`{text}` is not a number of seconds")).code("usage"))?
        }
    };
    if prompt.running.is_empty() {
        prompt.print_reply("no entry is running\n");
        return Ok(LineResult::Continue);
    }
    let denied = |e: std::io::Error| {
        Failure::new(format!("the kernel cannot measure the run time of programs: {}", reason(&e))).code("no-permission")
    };
    if prompt.run_time_stats.is_none() {
        prompt.run_time_stats = Some(cost::measure().map_err(denied)?);
    }
    let read = |prompt: &Prompt| -> Vec<(usize, String, Cost)> {
        let programs = prompt.running.iter().flat_map(|r| r.parts.programs.iter().map(|(name, fd)| (r.number, name.clone(), fd)));
        programs.map(|(n, name, fd)| (n, name, cost::of(fd.as_fd()).unwrap_or_default())).collect()
    };
    let (before, since) = (read(prompt), Instant::now());
    let end = since + Duration::from_secs_f64(seconds);
    while Instant::now() < end && !interrupts::interrupted() {
        std::thread::sleep(end.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)));
    }
    interrupts::reset();
    let (after, took) = (read(prompt), since.elapsed().as_nanos() as f64);
    // measuring costs the kernel something
    prompt.run_time_stats = None;
    prompt.print_reply(&format!("{:<6} {:>12} {:>8} {:>8}  PROBE\n", "ENTRY", "RUNS/S", "NS/RUN", "CPU %"));
    for ((number, name, then), (_, _, now)) in before.iter().zip(&after) {
        let (ns, runs) = (now.ns.saturating_sub(then.ns) as f64, now.runs.saturating_sub(then.runs) as f64);
        let each = if runs > 0.0 { ns / runs } else { 0.0 };
        let line = format!("{:<6} {:>12.0} {each:>8.0} {:>8.3}  {name}\n", format!("[{number}]"), runs * 1e9 / took, ns * 100.0 / took);
        prompt.print_reply(&line);
    }
    for number in prompt.running.iter().map(|running| running.number) {
        for (probe, step) in prompt.workspace.estimates.steps(number) {
            let state = match step {
                Step::Sample { one_in } => format!("one in {one_in} of its runs is sampled to keep the limit"),
                Step::Detach { permanent: false } => "detached for some time to keep the limit".into(),
                Step::Detach { permanent: true } | Step::DetachToo => {
                    "detached to keep the limit, until you drop all entries that use its maps, and type them again".into()
                }
                Step::StayDetached { .. } => "detached, and cannot be attached again".into(),
                Step::Drop { max_events } => format!("events are dropped to keep the limit of {max_events}/s"),
                Step::Attach | Step::Pass { .. } => continue,
            };
            prompt.print_reply(&format!("{:<6} {probe}: {state}\n", format!("[{number}]")));
        }
    }
    Ok(LineResult::Continue)
}

fn show(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    let (stage, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if !STAGES.iter().any(|(name, _)| *name == stage) {
        let all: Vec<String> = STAGES.iter().map(|(name, doc)| format!("{name} ({doc})")).collect();
        return Err(Failure::new(format!("there is no stage `{stage}`")).code("usage").help(format!("one of {}", all.join(", "))));
    }
    let running = match rest.trim() {
        "" => prompt.running.last().ok_or_else(|| Failure::new("no entry is running").code("no-entry"))?,
        number => prompt.entry(number)?,
    };
    let typed = running.text.clone();
    let (entry, _) = prompt.read(&typed, format!("[{}]", running.number))?;
    if stage == "hir" {
        prompt.print_reply(&dump::dump(&entry.checked.script));
        return Ok(LineResult::Continue);
    }
    let dumps = Dumps { ir: stage == "ir", optimized: stage == "opt", assembly: stage == "asm", verify: false };
    let compiled = prompt.workspace.with_entry_context(|cx| cx.compile(&entry, dumps))?;
    let found = [compiled.ir, compiled.optimized, compiled.assembly].into_iter().flatten().next().unwrap_or_default();
    prompt.print_reply(&format!("{}\n", found.trim_end()));
    Ok(LineResult::Continue)
}

fn save(prompt: &mut Prompt, file: &str) -> Result<LineResult, Failure> {
    if file.is_empty() {
        return Err(missing_argument("a file", ":save mine.bt"));
    }
    let mut sources = prompt.workspace.defined();
    sources.extend(prompt.running.iter().map(|r| Source { name: String::new(), text: r.text.clone() }));
    let text = script_of(&sources);
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(file).and_then(|mut f| f.write_all(text.as_bytes()));
    written.map_err(|e| {
        let failure = Failure::new(format!("cannot write {file}: {}", reason(&e))).code("not-written");
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            failure.help("`:save` does not overwrite files; use another name")
        } else {
            failure
        }
    })?;
    let n = prompt.running.len() + prompt.workspace.definitions.borrow().len();
    prompt.print_reply(&format!("{} written to {file}\n", plural(n, "entry", "entries")));
    Ok(LineResult::Continue)
}

fn write(prompt: &mut Prompt, text: &str) -> Result<LineResult, Failure> {
    let usage = |message: String| Failure::new(message).code("usage");
    let words = shlex::split(text).ok_or_else(|| usage(format!("unbalanced quotes in `{text}`")))?;
    let (file, map) = match words.as_slice() {
        [] => return Err(missing_argument("a file", ":write run.html, or :write stacks.speedscope.json @")),
        [file] => (file.as_str(), None),
        [file, map] if map.starts_with('@') => (file.as_str(), Some(prompt.map(map)?)),
        [file, map] if prompt.map(&format!("@{map}")).is_ok() => {
            return Err(usage(format!("`{map}` is not a map")).help(format!("the map is @{map}: `:write {} @{map}`", quoted(file))));
        }
        [words @ .., last] => {
            let (names, map) =
                if last.starts_with('@') { (words.join(" "), format!(" {last}")) } else { (words.join(" ") + " " + last, String::new()) };
            return Err(usage("`:write` takes a file and optionally a map".into())
                .help(format!("put a name with spaces in quotes: `:write {}{map}`", quoted(&names))));
        }
    };
    if file == "-" {
        return Err(usage("`:write` cannot write to standard output (-)".into()).help("print(@map) prints a map"));
    }
    let maps = map.map_or_else(|| prompt.workspace.maps(), |map| vec![map]);
    if maps.is_empty() {
        prompt.print_reply("there are no maps\n");
        return Ok(LineResult::Continue);
    }
    let script = script_of(&prompt.running.iter().map(|r| Source { name: String::new(), text: r.text.clone() }).collect::<Vec<_>>());
    let options = RenderOptions {
        trunc_trailer: prompt.workspace.run.settings.str_trunc_trailer.clone(),
        key_parts: maps.iter().filter_map(|map| map.key.as_ref()).map(Type::parts).max().unwrap_or(1),
        about: Arc::new(output_files::about("prompt".into(), script)),
        ..RenderOptions::default()
    };
    let mut outputs = Outputs::only(Path::new(file), &options)?;
    let statements: String = maps.iter().map(|map| printing(map, None)).collect();
    write_stdout(&prompt.render(&statements, &mut outputs)?);
    let (omitted, why) = outputs.omitted();
    let written = maps.len().saturating_sub(omitted);
    if written == 0 {
        // the file remains as it was
        let failure = Failure::new(why.unwrap_or_else(|| "there is nothing to write".into())).code("not-written");
        return Err(failure.help("other formats show every map: name the file .html, .csv or .json"));
    }
    outputs.finish()?;
    prompt.print_reply(&format!("{} written to {file}\n", plural(written, "map", "maps")));
    Ok(LineResult::Continue)
}

/// A name as a word of a command.
fn quoted(name: &str) -> String {
    shlex::try_quote(name).map_or_else(|_| name.into(), Cow::into_owned)
}

/// Combines several scripts into one: for each the C part first, then settings, which a script has in one block, and
/// imports.
fn script_of(sources: &[Source]) -> String {
    let (mut c_part, mut settings, mut imports, mut rest) = (String::new(), Vec::new(), String::new(), String::new());
    for source in sources {
        // running entries were parsed before; statements, however, belong into a block
        let Ok(tree) = syntax::parse(source) else {
            rest.push_str(&format!("begin {{\n{}\n}}\n\n", source.text.trim()));
            continue;
        };
        let piece = |span: Span| source.text.get(span.start as usize..span.end as usize).unwrap_or_default().trim();
        tree.c_part.iter().for_each(|item| c_part.push_str(&format!("{}\n\n", item.text.trim_end())));
        tree.config.iter().for_each(|item| {
            // the last value applies
            settings.retain(|(name, _)| *name != item.name.name);
            settings.push((item.name.name.clone(), piece(Span { start: item.name.span.start, ..item.value_span })));
        });
        tree.imports.iter().for_each(|(name, _)| imports.push_str(&format!("import \"{name}\";\n\n")));
        let first = tree.items.first().map(|item| match item {
            ast::Item::Probe(it) => it.span,
            ast::Item::Macro(it) => it.span,
            ast::Item::Function(it) => it.span,
            ast::Item::MapDecl(it) => it.span,
        });
        if let Some(first) = first {
            rest.push_str(&format!("{}\n\n", piece(Span { end: source.text.len() as u32, ..first })));
        }
    }
    let settings = match settings.iter().map(|(_, piece)| *piece).collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => none,
        some => format!("config = {{ {some} }}\n\n"),
    };
    format!("{c_part}{settings}{imports}{rest}")
}

fn load(prompt: &mut Prompt, file: &str) -> Result<LineResult, Failure> {
    if file.is_empty() {
        return Err(missing_argument("a file", ":load mine.bt"));
    }
    let cannot = |why: String| Failure::new(format!("cannot read {file}: {why}")).code("not-readable");
    interrupts::reset();
    let part = input::read_while(Path::new(file), input::TEXT + 1, &|| !interrupts::interrupted()).map_err(|e| cannot(reason(&e)))?;
    if part.stopped_early {
        return Err(cannot("interrupted by Ctrl-C".into()));
    }
    let bytes = input::check_size(part.bytes, input::TEXT).map_err(|e| cannot(reason(&e)))?;
    let text = String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8 text".into()))?;
    prompt.enter(&text, Some(file))?;
    Ok(LineResult::Continue)
}

fn reset(prompt: &mut Prompt, _: &str) -> Result<LineResult, Failure> {
    prompt.end(|_| true);
    prompt.printer.wait_until_idle(TIMEOUT);
    prompt.workspace.maps.borrow_mut().clear();
    prompt.workspace.stacks.borrow_mut().clear();
    prompt.workspace.definitions.borrow_mut().clear();
    Ok(LineResult::Continue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_terminals_have_a_code() {
        let TopError(failure) = std::io::Error::from_raw_os_error(libc::ENOTTY).into();
        assert_eq!((failure.code, failure.message.as_str()), ("no-terminal", "cannot use this terminal: inappropriate ioctl for device"));
    }
}
