//! From arguments to an exit status: the stages in their order, and what is said about them on the way.
//!
//! Three kinds of failure come together here: diagnostics (the script is wrong; status 1), [`Failure`] (the machine will
//! not, or the options are wrong; 1 or 255) and a panic (we are wrong; 2).

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use crate::check::{self, hir};
use crate::cli::{self, Command, Failure, Listed, Program, Run};
use crate::codegen::{self, Compiled};
use crate::diag::{self, Diagnostic, Diagnostics, PROGRAM_NAME, Source, Span};
use crate::emit::EmitError;
use crate::info;
use crate::input;
use crate::list;
use crate::probes::Env;
use crate::repl;
use crate::runtime;
use crate::scripts;
use crate::settings::{self, Assignment, Settings, Within};
use crate::syntax::{self, ast};
use crate::system::live::Live;
use crate::system::{Feature, System, cgroup};
use crate::verbs;
use crate::verify;
use budget::Budget;

mod budget;
pub(crate) mod entry;
pub(crate) mod import;
mod panic;
mod rewrite;
mod snapshot;
pub(crate) mod start;

/// Runs the command line; the first argument is the program's own name. Gives the exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    panic::install();
    let (result, color) = match cli::parse(args) {
        Ok(command) => {
            let color = command.color();
            (obey(command), color)
        }
        Err(failure) => (Err(failure), cli::color_by_default()),
    };
    result.unwrap_or_else(|failure| {
        tell(&failure, color);
        failure.status
    })
}

fn obey(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(run) => self::run(&run),
        Command::List { what, verbose, run } => list(what, verbose, &run),
        Command::Prompt(run) => repl::prompt(&run),
        Command::Info => {
            let (sys, settings) = (Live::new(), Settings::default());
            to_reader(|out| info::report(&Env { sys: &sys, settings: &settings }, out))
        }
        Command::Fmt(fmt) => rewrite::rewrite(&fmt),
        Command::Check(check) => verify::check(&check),
        Command::Snapshot(asked) => snapshot::snapshot(&asked),
        Command::Completions(shell) => to_reader(|out| {
            let mut text = Vec::new();
            cli::completions(shell, &mut text);
            out.write_all(&text)
        }),
        Command::Say(text) => to_reader(|out| out.write_all(text.as_bytes())),
    }
}

/// A checked script, and what it was checked with.
#[derive(Debug)]
pub struct Checked {
    /// Ready to be compiled.
    pub script: hir::Script,
    /// With the script's `config` block applied, and the environment where that was asked for.
    pub settings: Settings,
    /// Nothing that stops it.
    pub warnings: Diagnostics,
}

/// Parses and checks a text, without looking at the environment. For tests and whoever wants no more than that.
pub fn check_text(name: &str, text: &str, sys: &dyn System, settings: &Settings) -> Result<Checked, Diagnostics> {
    let source = Source { name: name.into(), text: text.into() };
    let tree = parse(&source)?;
    let mut settings = settings.clone();
    let warnings = configure(&tree, &mut settings)?;
    check(&tree, sys, settings, warnings)
}

fn parse(source: &Source) -> Result<ast::Script, Diagnostics> {
    traced(syntax::parse(source)?, source)
}

/// A script that has a probe.
pub(crate) fn traced(tree: ast::Script, source: &Source) -> Result<ast::Script, Diagnostics> {
    if tree.items.iter().any(|i| matches!(i, ast::Item::Probe(_))) {
        return Ok(tree);
    }
    let end = source.text.trim_end().len() as u32;
    let at = Span { source: 0, start: end.saturating_sub(1), end };
    Err(Diagnostic::error("no-probes", at, "the script has no probe").help("write one: begin { printf(\"hello\\n\"); }").into())
}

/// Applies the script's `config` block.
pub(crate) fn configure(tree: &ast::Script, settings: &mut Settings) -> Result<Diagnostics, Diagnostics> {
    let items = tree.config.iter().map(|item| Assignment {
        name: &item.name.name,
        name_span: item.name.span,
        value: &item.value,
        value_span: item.value_span,
    });
    let said = settings::apply_config(settings, items);
    if said.failed() { Err(said) } else { Ok(said) }
}

pub(crate) fn check(
    tree: &ast::Script,
    sys: &dyn System,
    mut settings: Settings,
    mut warnings: Diagnostics,
) -> Result<Checked, Diagnostics> {
    settings.fit(sys.has(Feature::ShortKeys));
    match check::check(tree, sys, &settings) {
        Ok((script, more)) => {
            warnings.0.extend(more.0);
            Ok(Checked { script, settings, warnings })
        }
        Err(mut all) => {
            all.0.extend(warnings.0);
            Err(all)
        }
    }
}

/// Stages as far as checking, with everything that is said about them.
struct Front<'a> {
    run: &'a Run,
    program: Program,
    sources: Vec<Source>,
    clock: Clock,
}

impl<'a> Front<'a> {
    fn new(run: &'a Run) -> Self {
        Self { run, program: run.program.clone(), sources: Vec::new(), clock: Clock::new(run.verbose) }
    }

    fn read(&mut self, program: &Program) -> Result<(), Failure> {
        self.sources = match program {
            Program::Made(made) => made.sources(),
            Program::Text(_) | Program::File(_) | Program::Saved(_) | Program::Stdin => vec![read(program)?],
        };
        self.program = program.clone();
        Ok(())
    }

    fn parse(&mut self) -> Result<ast::Script, Failure> {
        let Some(source) = self.sources.first().cloned() else { return Err(Failure::new("there is no script")) };
        let tree = syntax::parse(&source).map_err(|d| match &self.program {
            Program::Made(made) => self.wrong(made.wrong_expression().unwrap_or(d)),
            Program::Text(_) | Program::File(_) | Program::Saved(_) | Program::Stdin => self.wrong(d),
        })?;
        let path = if let Program::File(path) = &self.program { Some(path.clone()) } else { None };
        let tree = import::resolve(tree, &mut self.sources, path.as_deref()).map_err(|d| self.wrong(d))?;
        let tree = traced(tree, &source).map_err(|d| self.wrong(d))?;
        self.clock.stage("parse");
        if self.run.dumps.contains(&"ast") {
            dump("ast", &format!("{tree:#?}"))?;
        }
        Ok(tree)
    }

    /// Settings from the command line, the `config` block and the environment, each stronger than the one before.
    fn settings(&self, tree: &ast::Script) -> Result<(Settings, Diagnostics), Failure> {
        let mut settings = self.run.settings.clone();
        let options = check::options(tree);
        (settings.params, settings.options) = cli::script_args(&self.run.words, &cli::valued(&options));
        if let (Program::Saved(_), Some((_, Some(given)))) = (&self.program, settings.options.iter().rev().find(|(name, _)| name == "pid"))
            && let Ok(pid @ 1..) = given.parse()
        {
            alive("--pid", pid)?;
        }
        if let Program::File(path) = &self.run.program {
            settings.script_dir = Path::new(path).parent().map(Path::to_owned).unwrap_or_default();
        }
        let warnings = configure(tree, &mut settings).map_err(|d| self.wrong(d))?;
        settings.cgroup = within(self.run)?;
        for text in from_environment(&mut settings)? {
            self.warn(&text);
        }
        Ok((settings, warnings))
    }

    fn check(&mut self, tree: &ast::Script, sys: &dyn System) -> Result<Checked, Failure> {
        let (settings, warnings) = self.settings(tree)?;
        let mut checked = check(tree, sys, settings, warnings).map_err(|d| self.wrong_or_misused(d))?;
        // what its options leave out is nothing that whoever gives them wrote
        if let Program::Saved(_) = self.run.program {
            checked.warnings.0.retain(|d| !["unreachable", "unused-map"].contains(&d.code));
        }
        self.clock.stage("check");
        if self.run.warnings && !checked.warnings.0.is_empty() {
            say(&diag::render(&self.in_words(checked.warnings.clone()), &self.sources, self.run.color));
        }
        if self.run.dumps.contains(&"hir") {
            dump("hir", &check::dump::dump(&checked.script))?;
        }
        Ok(checked)
    }

    /// What is wrong with the script; of one that is part of rbt, it is what was asked of it, and no place in it.
    fn wrong_or_misused(&self, mut diagnostics: Diagnostics) -> Failure {
        let Program::Saved(script) = self.run.program else { return self.wrong(diagnostics) };
        diagnostics.0.retain(|d| d.severity == diag::Severity::Error);
        match diagnostics.0.iter().find(|d| check::DECISIVE.contains(&d.code)) {
            Some(d) => {
                let help = d.help.clone().unwrap_or_else(|| format!("`rbt {} --help` has its options", script.name));
                Failure::new(format!("{}: {}", script.name, d.message)).code(d.code).help(help)
            }
            None => {
                let mut said: Vec<String> = Vec::new();
                diagnostics.0.retain(|d| {
                    !said.contains(&d.message) && {
                        said.push(d.message.clone());
                        true
                    }
                });
                self.wrong(diagnostics)
            }
        }
    }

    /// What is wrong with the script, as a failure that has been told.
    fn wrong(&self, mut diagnostics: Diagnostics) -> Failure {
        if !self.run.warnings {
            diagnostics.0.retain(|d| d.severity == diag::Severity::Error);
        }
        say(&diag::render(&self.in_words(diagnostics), &self.sources, self.run.color));
        Failure::told(1)
    }

    /// As the user typed it, where a script was made of words.
    fn in_words(&self, diagnostics: Diagnostics) -> Diagnostics {
        match &self.program {
            Program::Made(made) => made.in_words(diagnostics),
            Program::Text(_) | Program::File(_) | Program::Saved(_) | Program::Stdin => diagnostics,
        }
    }

    fn warn(&self, text: &str) {
        if self.run.warnings {
            say(&format!("{} {text}\n", paint("warning:", "33", self.run.color)));
        }
    }
}

/// The whole way of a script, and of what is expected of it.
fn run(run: &Run) -> Result<u8, Failure> {
    if run.expected.is_empty() { script(run, None) } else { budget::run(run) }
}

fn script(run: &Run, mut budget: Option<&mut Budget>) -> Result<u8, Failure> {
    runtime::keep_user_signals();
    let mut front = Front::new(run);
    front.read(&run.program)?;
    if let Program::Saved(script) = &run.program
        && run.verbose
        && Path::new(script.name).is_file()
    {
        say(&format!("note: {0} is rbt's own; the file in this directory is ./{0}\n", script.name));
    }
    if let Some(budget) = &mut budget {
        budget.read(&mut front)?;
    }
    if let Some(pid) = run.settings.pid {
        alive("-p", pid)?;
    }
    let tree = front.parse()?;
    check_script_args(run, &front, &tree)?;
    if let Some(text) = help_of_script(&front, &tree) {
        to_reader(|out| out.write_all(text.as_bytes()))?;
        // As bpftrace does, whose callers tell by it that nothing ran; it has no scripts of its own.
        return Ok(if matches!(run.program, Program::Saved(_)) { 0 } else { 1 });
    }
    let without_own = !run.settings.options.is_empty() && check::options(&tree).is_empty();
    if let Some(slip) = run.settings.options.iter().filter(|_| without_own).find_map(|(name, _)| cli::misspelt_option(name)) {
        return Err(slip);
    }
    // Without the right to run it, a script can still be looked at.
    let only_look = run.compile_only || run.emit_elf.is_some() || !run.dumps.is_empty();
    if !only_look {
        permitted()?;
    }
    // Here, and not later: the fork copies little yet, and a missing command is told before any work is done.
    let child = match (&run.child, run.compile_only || run.emit_elf.is_some()) {
        (Some(command), false) => Some(start::child(command)?),
        _ => None,
    };
    let sys = Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs);
    let checked = front.check(&tree, &sys)?;
    if let Some(budget) = &mut budget {
        budget.check(&checked, &front)?;
    }
    let (mut checked, mut child) = (checked, child);
    let mut compiled = compile(&checked, &sys, &mut front)?;
    if let Some(path) = &run.emit_elf {
        write_file(path, &compiled.artifact.elf)?;
        return Ok(0);
    }
    if run.compile_only {
        return Ok(0);
    }
    if only_look {
        permitted()?;
    }
    loop {
        match start::start(run, &checked, &compiled, &mut child, &sys, &mut front, budget.as_deref()) {
            Ok(status) => return Ok(status),
            Err(start::Stopped::Failed(failure)) => return Err(failure),
            // never the same again, since none of them is used then
            Err(start::Stopped::Unserved(mechanisms)) => checked.settings.no_features.extend(mechanisms),
        }
        compiled = compile(&checked, &sys, &mut front)?;
    }
}

fn compile(checked: &Checked, sys: &dyn System, front: &mut Front) -> Result<Compiled, Failure> {
    let run = front.run;
    let wants = |stage: &str| run.dumps.contains(&stage);
    let dumps = crate::emit::Dumps {
        ir: wants("ir") || run.emit_llvm.is_some(),
        optimized: wants("opt") || run.emit_llvm.is_some(),
        assembly: wants("asm"),
        verify: run.verify_ir,
    };
    let script = codegen::lower(checked.script.clone(), &Env { sys, settings: &checked.settings });
    let compiled = codegen::compile(&script, &checked.settings, sys, &front.sources, dumps);
    let compiled = compiled.map_err(|e| tell_not_compiled(&e, front))?;
    if run.verbose && compiled.turns > 1 {
        say(&format!("compiled {} times, to keep within a program's stack\n", compiled.turns));
    }
    let (programs, most) = (compiled.artifact.manifest.programs.len() as u64, checked.settings.max_bpf_progs);
    if programs > most {
        return Err(Failure::new(format!("the script needs {programs} BPF programs; the limit is {most}"))
            .code("too-many-programs")
            .help("raise it with the setting max_bpf_progs"));
    }
    front.clock.stage("compile");
    for (stage, text) in [("ir", &compiled.ir), ("opt", &compiled.optimized), ("asm", &compiled.assembly)] {
        if let (true, Some(text)) = (wants(stage), text) {
            dump(stage, text)?;
        }
    }
    if let Some(base) = &run.emit_llvm {
        write_file(format!("{base}.original.ll").as_ref(), compiled.ir.as_deref().unwrap_or("").as_bytes())?;
        write_file(format!("{base}.optimized.ll").as_ref(), compiled.optimized.as_deref().unwrap_or("").as_bytes())?;
    }
    Ok(compiled)
}

/// What LLVM's back end says about the code we made: ours to mend, but the user may be able to write it otherwise.
pub(crate) fn not_compiled(error: &EmitError, sources: &[Source]) -> Diagnostics {
    let mut all = error.told.clone();
    all.dedup();
    for message in &error.messages {
        let (span, text) = located(message, sources);
        let (text, help) = match text.contains("stack limit") || text.contains("built-in function 'mem") {
            true => {
                ("it takes more than the 512 bytes of a BPF program's stack".into(), "keep fewer values at a time, or keep them in maps")
            }
            false => (text, "this is a bug in rbt: please report it with the script"),
        };
        let message = format!("this cannot be compiled: {text}");
        // LLVM says it again for each instruction
        if !all.iter().any(|d| d.message == message) {
            all.push(Diagnostic::error("backend", span, message).help(help));
        }
    }
    Diagnostics(all)
}

fn tell_not_compiled(error: &EmitError, front: &Front) -> Failure {
    say(&diag::render(&not_compiled(error, &front.sources), &front.sources, front.run.color));
    Failure::told(2)
}

/// Parts `script:LINE:COL: ` from what LLVM says. The place may be anywhere in the text.
fn located(message: &str, sources: &[Source]) -> (Span, String) {
    let names = diag::short_names(sources);
    let place = sources.iter().zip(&names).enumerate().find_map(|(i, (source, name))| {
        let (_, after) = message.split_once(&format!("{name}:"))?;
        let mut numbers = after.splitn(3, |c: char| !c.is_ascii_digit());
        let (line, col) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        Some(Span { source: i as u16, ..span_at(source, line, col) })
    });
    let text = message.lines().next().unwrap_or(message);
    // at its start it is not repeated, nor is the function that it is in
    let named = names.iter().find_map(|name| text.strip_prefix(&format!("{name}:")));
    let text = named.and_then(|t| t.split_once(": ")).map_or(text, |(_, t)| t).to_string();
    (place.unwrap_or_default(), text)
}

/// The span of one character at a line and column, both from 1.
fn span_at(source: &Source, line: u32, col: u32) -> Span {
    let start: usize = source.text.split_inclusive('\n').take(line.saturating_sub(1) as usize).map(str::len).sum();
    let within: usize = source.line(line).chars().take(col.saturating_sub(1) as usize).map(char::len_utf8).sum();
    let start = (start + within) as u32;
    Span { source: 0, start, end: start + 1 }
}

/// Settings that the environment has; warnings.
pub(crate) fn from_environment(settings: &mut Settings) -> Result<Vec<String>, Failure> {
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    settings::apply_env(settings, vars).map_err(|e| Failure::new(e).code("bad-setting").status(2))
}

fn list(what: Listed, verbose: bool, run: &Run) -> Result<u8, Failure> {
    match &run.against {
        Some(file) => list_of(&snapshot::open(file)?, what, verbose, run),
        None => {
            list_of(&Live::with_functions(run.traceable_functions.clone()).with_debug_dirs(&run.settings.debug_dirs), what, verbose, run)
        }
    }
}

fn list_of(sys: &dyn System, what: Listed, verbose: bool, run: &Run) -> Result<u8, Failure> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut settings = run.settings.clone();
    from_environment(&mut settings)?;
    match what {
        Listed::Script(program) => {
            let mut front = Front::new(run);
            front.read(&program)?;
            let tree = front.parse()?;
            let checked = front.check(&tree, sys)?;
            list::list_script(&checked.script, &Env { sys, settings: &checked.settings }, verbose, &mut out)?;
        }
        Listed::All => list::list(None, &Env { sys, settings: &settings }, verbose, &mut out)?,
        Listed::Pattern(pattern) => {
            if pattern.contains('.') && !pattern.contains([':', '*', '/', ' ']) && run.warnings {
                say(&format!("{} there is no file `{pattern}`; it is taken as a pattern\n", paint("warning:", "33", run.color)));
            }
            list::list(Some(&pattern), &Env { sys, settings: &settings }, verbose, &mut out)?;
        }
    }
    Ok(0)
}

pub(crate) fn read(program: &Program) -> Result<Source, Failure> {
    let (name, bytes) = match program {
        Program::Text(text) => return Ok(Source { name: PROGRAM_NAME.into(), text: text.clone() }),
        Program::Saved(script) => return Ok(Source { name: script.name.into(), text: script.text.into() }),
        Program::Made(made) => return Ok(Source { name: made.name.clone(), text: made.text.clone() }),
        Program::Stdin => (PROGRAM_NAME.to_string(), standard_input()?),
        Program::File(path) => (path.display().to_string(), read_file(path)?),
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source { name, text }),
        Err(e) => {
            let (bytes, at) = (e.as_bytes(), e.utf8_error().valid_up_to());
            let line = bytes.iter().take(at).filter(|b| **b == b'\n').count() + 1;
            let byte = bytes.get(at).copied().unwrap_or(0);
            Err(Failure::new(format!("{name}, line {line}: the script is not UTF-8 text (byte 0x{byte:02x})"))
                .code("not-text")
                .help(format!("in a string, write such a byte as \\x{byte:02x}")))
        }
    }
}

/// It comes once, and may be asked for once for each kernel.
fn standard_input() -> Result<Vec<u8>, Failure> {
    static CAME: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(known) = CAME.get() {
        return Ok(known.clone());
    }
    let read = input::read_from(io::stdin().lock(), input::TEXT);
    let cannot = |e| Failure::new(format!("cannot read the script from standard input: {}", reason(&e))).code("not-readable");
    read.map_err(cannot).map(|bytes| CAME.get_or_init(|| bytes).clone())
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |why: &str| Failure::new(format!("cannot read the script {}: {why}", path.display())).code("not-readable");
    if path.is_dir() {
        return Err(cannot("it is a directory"));
    }
    input::read(path, input::TEXT).map_err(|e| {
        if e.kind() != io::ErrorKind::NotFound {
            return cannot(&reason(&e));
        }
        let missing = cannot("there is no such file");
        // A program without -e looks like the name of a file that is not there.
        let word = path.to_string_lossy();
        if word.contains('{') {
            return missing.help("a program on the command line follows -e: rbt -e 'PROGRAM'");
        }
        if word.contains(['/', '.']) {
            return missing.help("check the path; `rbt one-liners` lists scripts that need none");
        }
        let missing = Failure::new(format!("there is no file `{word}` here, and no one-liner of that name")).code("not-readable");
        let verbs = verbs::VERBS.iter().map(|v| v.name);
        let known = cli::SUBCOMMANDS.iter().copied().chain(verbs).chain(scripts::SCRIPTS.iter().map(|s| s.name));
        if let Some(here) = scripts::elsewhere(&word) {
            return missing.help(format!("what other tools call so is `{here}` here"));
        }
        match diag::nearest(&word, known) {
            Some(near) => missing.help(format!("did you mean `rbt {near}`?")),
            None => missing.help("`rbt one-liners` lists what can be run by name; `rbt -l PATTERN` lists probes"),
        }
    })
}

/// Arguments that look like options, of a script that uses no arguments, are likely slips; to a tool all are.
fn check_script_args(run: &Run, front: &Front, tree: &ast::Script) -> Result<(), Failure> {
    if front.sources.iter().any(|s| scripts::takes_arguments(&s.text)) {
        return Ok(());
    }
    let options = check::options(tree);
    let (params, given) = cli::script_args(&run.words, &cli::valued(&options));
    // what follows an option that is not there may be its value
    if given.iter().any(|(name, _)| !options.iter().any(|o| o.name == *name)) {
        return Ok(());
    }
    if let (Program::Saved(script), Some(word)) = (&run.program, params.first()) {
        let name = script.name;
        let failure = Failure::new(format!("{name} takes options only, and `{word}` is none of them"));
        if let Some(own) = cli::own_letter(word) {
            return Err(failure.help(format!("rbt's own {own} stands before `--`; `rbt {name} --help` has the script's options")));
        }
        let near = diag::nearest(word.trim_start_matches('-'), options.iter().map(|o| o.name.as_str()));
        return Err(match near {
            Some(near) => failure.help(format!("did you mean `--{near}`? `rbt {name} --help` has them all")),
            None => failure.help(format!("a command to watch follows -c: rbt {name} -c 'COMMAND'; `rbt {name} --help` has the options")),
        });
    }
    let slip = params.iter().find(|p| p.len() == 2 && p.starts_with('-') && !p.ends_with(|c: char| c.is_ascii_digit()));
    if let Some(slip) = slip {
        front.warn(&format!("`{slip}` is an argument of the script, which uses none; rbt has no such option"));
    }
    Ok(())
}

/// `-- --help`: the script's own options, unless it has one of this name.
fn help_of_script(front: &Front, tree: &ast::Script) -> Option<String> {
    let run = front.run;
    run.settings.options.iter().find(|(name, _)| name == "help")?;
    let options = check::options(tree);
    let name = match &run.program {
        Program::File(path) => path.display().to_string(),
        Program::Saved(script) => script.name.into(),
        Program::Made(made) => made.name.clone(),
        Program::Text(_) | Program::Stdin => "-e PROGRAM".into(),
    };
    let text = front.sources.first().map_or("", |s| s.text.as_str());
    (!options.iter().any(|o| o.name == "help")).then(|| scripts::help(&name, text, &options))
}

/// The cgroup to stay within.
fn within(run: &Run) -> Result<Option<Within>, Failure> {
    let found = match (&run.cgroup, &run.container) {
        (Some(path), _) => cgroup::find(path),
        (None, Some(name)) => cgroup::container(name),
        (None, None) => return Ok(None),
    };
    match found {
        Ok(found) => Ok(Some(Within { id: found.id, level: found.level })),
        Err(missing) => Err(Failure { help: missing.help, ..Failure::new(missing.what).code("no-cgroup") }),
    }
}

fn alive(option: &str, pid: u32) -> Result<(), Failure> {
    // A thread that is not a process has a directory too, but is not listed: its Tgid differs.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    match status {
        Ok(text) if text.contains(&format!("\nTgid:\t{pid}\n")) => Ok(()),
        Ok(_) => Err(Failure::new(format!("{option} {pid}: this is a thread, not a process"))
            .code("no-process")
            .help("give the process it belongs to: Tgid in /proc/PID/status")),
        Err(_) => Err(Failure::new(format!("{option} {pid}: there is no such process"))
            .code("no-process")
            .help("`pgrep NAME` finds the id of a running program")),
    }
}

/// Asked before the kernel is, which would refuse in less clear words.
pub(crate) fn permitted() -> Result<(), Failure> {
    match runtime::missing_privileges() {
        Some(text) => Err(with_remedy(&text).code("no-permission")),
        None => Ok(()),
    }
}

/// A failure from a text that has its remedy after a semicolon.
fn with_remedy(text: &str) -> Failure {
    let text = without_number(text);
    match text.split_once("; ") {
        Some((message, remedy)) => Failure::new(message).help(remedy),
        None => Failure::new(text),
    }
}

/// Without the error number that Rust adds to the system's words.
pub(crate) fn without_number(text: &str) -> String {
    match text.split_once(" (os error ").and_then(|(before, after)| Some((before, after.split_once(')')?.1))) {
        Some((before, after)) => format!("{before}{after}"),
        None => text.to_string(),
    }
}

/// Says how long each stage took, when asked.
pub(crate) struct Clock {
    on: bool,
    last: Instant,
}

impl Clock {
    fn new(on: bool) -> Self {
        Self { on, last: Instant::now() }
    }

    /// The time since the stage before.
    pub(crate) fn stage(&mut self, name: &str) {
        let now = Instant::now();
        if self.on {
            say(&format!("{name:8} {:8.3} ms\n", now.duration_since(self.last).as_secs_f64() * 1e3));
        }
        self.last = now;
    }
}

/// Says what failed, to standard error.
pub(crate) fn tell(failure: &Failure, color: bool) {
    if failure.is_told() {
        return;
    }
    let help = failure.help.as_ref().map(|h| format!("{} {}\n", paint("help:", "1", color), diag::plain_lines(h))).unwrap_or_default();
    // what does not make the command fail is no error
    let (word, ink) = if failure.status == 0 { ("warning", "33") } else { ("error", "31") };
    let head = paint(&format!("{word}[{}]:", failure.code), ink, color);
    let excerpt = failure.excerpt.as_ref().map(|lines| format!("{}\n", diag::plain_lines(lines))).unwrap_or_default();
    say(&format!("{head} {}\n{excerpt}{help}", diag::plain(failure.message.trim_end())));
}

pub(crate) fn paint(word: &str, ink: &str, color: bool) -> String {
    if color { format!("\x1b[1;{ink}m{word}\x1b[0m") } else { word.to_string() }
}

/// To standard error; where that is closed, nobody listens.
fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn dump(stage: &str, text: &str) -> Result<(), Failure> {
    let written = writeln!(io::stdout().lock(), "; {stage}\n{}\n", text.trim_end());
    written.map_err(|e| not_written("standard output", &e))
}

/// To standard output, whose reader may have gone.
fn to_reader(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(not_written("standard output", &e)),
        _ => Ok(0),
    }
}

pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|e| not_written(&path.display().to_string(), &e))
}

/// What can be done about a write that failed depends on why.
fn not_written(place: &str, e: &io::Error) -> Failure {
    let failure = Failure::new(format!("cannot write to {place}: {}", reason(e))).code("not-written");
    let is = |kinds: &[io::ErrorKind]| kinds.contains(&e.kind());
    if is(&[io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded]) {
        failure.help("make room there, or write elsewhere with -o")
    } else if is(&[io::ErrorKind::NotFound]) {
        failure.help("make the directory first")
    } else if is(&[io::ErrorKind::IsADirectory]) {
        failure.help("name a file in it")
    } else if is(&[io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem]) {
        failure.help("write elsewhere, or get the right to")
    } else {
        failure
    }
}

/// The system's words, to follow a colon.
pub(crate) fn reason(e: &io::Error) -> String {
    without_number(&e.to_string()).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_messages_are_found() {
        let sources = [Source { name: "stdin".into(), text: "begin {\n  é = 5;\n}\n".into() }];
        let (span, _) = located("<unknown>:0:0: in function p0 i64 (ptr): stdin:2:5: too much stack", &sources);
        assert_eq!(sources[0].line_col(span.start), (2, 5));
        assert_eq!(located("no place", &sources).0, Span::default());
        assert_eq!(span_at(&sources[0], 99, 99).source, 0);
    }

    #[test]
    fn files_that_are_no_scripts() {
        let read = |p: &str| read(&Program::File(p.into())).map(|s| s.text).unwrap_err();
        assert!(read("/").message.contains("directory"));
        assert!(read("/nonexistent/x.bt").message.contains("no such file"));
        assert!(read("begin { }").help.unwrap().contains("-e"));
        let path = std::env::temp_dir().join(format!("rbt-driver-{}", std::process::id()));
        std::fs::write(&path, b"begin {\n\xff }").unwrap();
        let failure = read(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(failure.message.contains("line 2") && failure.message.contains("0xff"), "{failure:?}");
    }

    #[test]
    fn messages_have_remedies_and_no_numbers() {
        let failure = with_remedy("cannot write: No space left on device (os error 28); make room");
        assert_eq!((failure.message.as_str(), failure.help.as_deref()), ("cannot write: No space left on device", Some("make room")));
        assert_eq!(without_number("plain"), "plain");
    }

    #[test]
    fn processes_are_looked_up() {
        assert!(alive("-p", std::process::id()).is_ok());
        assert!(alive("-p", 4_194_000).unwrap_err().message.contains("no such process"));
    }

    #[test]
    fn a_script_without_probes_is_told_so() {
        for text in ["", "// nothing", "macro m() { 1 }"] {
            let source = Source { name: "stdin".into(), text: text.into() };
            assert_eq!(parse(&source).unwrap_err().0[0].code, "no-probes", "{text}");
        }
    }
}
