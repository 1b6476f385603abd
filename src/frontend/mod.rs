//! The stages up to a checked script, shared by the command line, the prompt and `rbt check`: read, parse, import, apply the
//! settings, check. It also explains errors of later stages at their places in the script.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use crate::cli::{self, Program, Run};
use crate::diag::{self, Diagnostic, Diagnostics, Source, Span};
use crate::emit::KnownCode;
use crate::failure::Failure;
use crate::launch::expectations::Unusable;
use crate::launch::require::{require_cgroup, require_process};
use crate::probes::Env;
use crate::sema::{self, hir};
use crate::settings::{self, Assignment, Invocation, LateBound, Settings};
use crate::streams::{dump, to_stderr};
use crate::syntax::{self, ast};
use crate::system::{Feature, TargetInfo};
use crate::terminal::{self, paint};
use c_headers::Headers;
use read::read;
pub mod args;
pub(crate) mod c_headers;
mod c_objects;
mod clang;
pub(crate) mod compiled;
pub mod entry;
pub mod explain;
pub mod import;
pub mod read;
/// A checked script, with its settings.
#[derive(Debug)]
pub struct Checked {
    /// Ready to be compiled.
    pub script: hir::Script,
    /// The settings, with the script's `config` block and, if requested, the environment.
    pub settings: Settings,
    /// The other facts of the run.
    pub invocation: Invocation,
    /// Warnings, which do not prevent a run.
    pub warnings: Diagnostics,
}

impl Checked {
    /// The facts that the next stages may use.
    pub fn env<'a>(&'a self, sys: &'a dyn TargetInfo) -> Env<'a> {
        Env { sys, settings: &self.settings, invocation: &self.invocation }
    }
}

/// Parses and checks a text without the environment, for tests and similar callers.
pub fn check_text(name: &str, text: &str, env: &Env) -> Result<Checked, Diagnostics> {
    let source = Source { name: name.into(), text: text.into() };
    let tree = parse(&source)?;
    let mut settings = env.settings.clone();
    let warnings = configure(&tree, &mut settings)?;
    check(&tree, env.sys, settings, env.invocation.clone(), warnings)
}

fn parse(source: &Source) -> Result<ast::Script, Diagnostics> {
    require_probe(syntax::parse(source)?, source)
}

/// Checks that a script has a probe.
pub(crate) fn require_probe(tree: ast::Script, source: &Source) -> Result<ast::Script, Diagnostics> {
    if tree.items.iter().any(|i| matches!(i, ast::Item::Probe(_))) {
        return Ok(tree);
    }
    let end = source.text.trim_end().len() as u32;
    let at = Span { source: 0, start: end.saturating_sub(1), end, ..Span::default() };
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
    let result = settings::apply_config(settings, items);
    if result.failed() { Err(result) } else { Ok(result) }
}

/// Applies settings from the environment, and returns warnings.
pub(crate) fn from_environment(settings: &mut Settings) -> Result<Vec<String>, Failure> {
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    settings::apply_env(settings, vars).map_err(|e| Failure::new(e).code("bad-setting").status(2))
}

pub(crate) fn check(
    tree: &ast::Script,
    sys: &dyn TargetInfo,
    mut settings: Settings,
    invocation: Invocation,
    mut warnings: Diagnostics,
) -> Result<Checked, Diagnostics> {
    settings.fit(sys.has(Feature::ShortKeys));
    if invocation.is_measured {
        // what it costs without them
        (settings.max_overhead, settings.max_events) = (None, 0);
    }
    match sema::check(tree, &Env { sys, settings: &settings, invocation: &invocation }) {
        Ok((script, more)) => {
            warnings.0.extend(more.0);
            Ok(Checked { script, settings, invocation, warnings })
        }
        Err(mut all) => {
            all.0.extend(warnings.0);
            Err(all)
        }
    }
}

/// Runs the stages up to checking, and reports their messages.
pub(crate) struct Frontend<'a> {
    /// The command line.
    pub(crate) run: &'a Run,
    /// The location of the script.
    pub(crate) program: Program,
    /// Its text, and those of its imports.
    pub(crate) sources: Vec<Source>,
    /// The arguments of the run that the code will not contain.
    pub(crate) late_bound: LateBound,
    /// The headers for imported C sources.
    pub(crate) headers: Headers<'a>,
    /// Code of the script for other targets, of which parts are the same.
    pub(crate) known_code: RefCell<KnownCode>,
    /// Durations of the stages.
    pub(crate) clock: Clock,
    /// Receives its messages; if none, they go to standard error.
    pub(crate) messages: Option<Rc<RefCell<String>>>,
}

impl<'a> Frontend<'a> {
    pub(crate) fn new(run: &'a Run) -> Self {
        Self {
            run,
            program: run.program.clone(),
            sources: Vec::new(),
            late_bound: LateBound::default(),
            headers: Headers::of_this_machine(&run.settings.include_dirs),
            known_code: RefCell::new(KnownCode::with_modules()),
            clock: Clock::new(run.verbose),
            messages: None,
        }
    }

    pub(crate) fn read(&mut self, program: &Program) -> Result<(), Failure> {
        self.sources = match program {
            Program::Composed(made) => made.sources(),
            Program::Text(_) | Program::File(_) | Program::Tool(_) | Program::Stdin => vec![read(program)?],
        };
        self.program = program.clone();
        Ok(())
    }

    pub(crate) fn parse(&mut self) -> Result<ast::Script, Failure> {
        let Some(source) = self.sources.first().cloned() else { return Err(Failure::new("there is no script")) };
        let tree = syntax::parse(&source).map_err(|d| match &self.program {
            Program::Composed(made) => self.wrong(made.wrong_expression().unwrap_or(d)),
            Program::Text(_) | Program::File(_) | Program::Tool(_) | Program::Stdin => self.wrong(d),
        })?;
        let path = if let Program::File(path) = &self.program { Some(path.clone()) } else { None };
        let tree = import::resolve(tree, &mut self.sources, path.as_deref(), self.headers).map_err(|d| self.wrong(d))?;
        let tree = require_probe(tree, &source).map_err(|d| self.wrong(d))?;
        self.clock.stage("parse");
        if self.run.dumps.contains(&"ast") {
            dump("ast", &format!("{tree:#?}"))?;
        }
        Ok(tree)
    }

    /// Settings from the command line, the `config` block and the environment, in ascending precedence.
    pub(crate) fn settings(&self, tree: &ast::Script) -> Result<(Settings, Invocation, Diagnostics), Failure> {
        let mut settings = self.run.settings.clone();
        let mut invocation = self.run.invocation.clone();
        let options = sema::options(tree);
        (invocation.params, invocation.options) = cli::script_args(&self.run.words, &cli::valued(&options));
        if let (Program::Tool(_), Some((_, Some(given)))) = (&self.program, invocation.options.iter().rev().find(|(name, _)| name == "pid"))
            && let Ok(pid @ 1..) = given.parse()
        {
            require_process("--pid", pid)?;
        }
        if let Program::File(path) = &self.run.program {
            invocation.script_dir = Path::new(path).parent().map(Path::to_owned).unwrap_or_default();
        }
        let warnings = configure(tree, &mut settings).map_err(|d| self.wrong(d))?;
        invocation.cgroup = require_cgroup(self.run)?;
        invocation.late_bound = self.late_bound.clone();
        for text in from_environment(&mut settings)? {
            self.warn(&text);
        }
        Ok((settings, invocation, warnings))
    }

    pub(crate) fn check(&mut self, tree: &ast::Script, sys: &dyn TargetInfo) -> Result<Checked, Failure> {
        let (settings, invocation, warnings) = self.settings(tree)?;
        let mut checked = check(tree, sys, settings, invocation, warnings).map_err(|d| self.wrong_or_misused(d))?;
        // Code that a tool's options disable is not a fault in its script, and who asks for each event by a tool or a verb gets it.
        let accepted: &[&str] = match self.run.program {
            Program::Tool(_) => &["unreachable", "unused-map", "hot-probe"],
            Program::Composed(_) => &["hot-probe"],
            Program::Text(_) | Program::File(_) | Program::Stdin => &[],
        };
        checked.warnings.0.retain(|d| !accepted.contains(&d.code));
        self.clock.stage("check");
        if self.run.warnings && !checked.warnings.0.is_empty() {
            self.print_message(&diag::render(&self.in_words(checked.warnings.clone()), &self.sources, self.run.color));
        }
        if self.run.dumps.contains(&"hir") {
            dump("hir", &sema::dump::dump(&checked.script))?;
        }
        Ok(checked)
    }

    /// Explains errors in the script. For a tool, they are caused by its options, so no place in the script is shown.
    pub(crate) fn wrong_or_misused(&self, mut diagnostics: Diagnostics) -> Failure {
        let Program::Tool(script) = self.run.program else { return self.wrong(diagnostics) };
        diagnostics.0.retain(|d| d.severity == diag::Severity::Error);
        match diagnostics.0.iter().find(|d| sema::ROOT_CAUSE_CODES.contains(&d.code)) {
            Some(d) => {
                let help = d.help.clone().unwrap_or_else(|| format!("`rbt {} --help` has its options", script.name));
                Failure::new(format!("{}: {}", script.name, d.message)).code(d.code).help(help)
            }
            None => {
                let mut reported: Vec<String> = Vec::new();
                diagnostics.0.retain(|d| {
                    !reported.contains(&d.message) && {
                        reported.push(d.message.clone());
                        true
                    }
                });
                self.wrong(diagnostics)
            }
        }
    }

    /// Errors in the script, as a failure that has already been reported.
    pub(crate) fn wrong(&self, mut diagnostics: Diagnostics) -> Failure {
        if !self.run.warnings {
            diagnostics.0.retain(|d| d.severity == diag::Severity::Error);
        }
        let errors = diagnostics.0.iter().filter(|d| d.severity == diag::Severity::Error);
        let status = errors.map(|d| diag::codes::status(d.code)).max().unwrap_or(1);
        let diagnostics = self.in_words(diagnostics);
        let first = diagnostics.0.iter().find(|d| d.severity == diag::Severity::Error);
        let message = first.map(|d| d.in_one_line(&self.sources)).unwrap_or_default();
        self.print_message(&diag::render(&diagnostics, &self.sources, self.run.color));
        Failure { message, ..Failure::reported(status) }
    }

    /// Explains errors in expectations.
    pub(crate) fn usable(&self, result: Result<(), Unusable>) -> Result<(), Failure> {
        result.map_err(|unusable| match unusable {
            Unusable::Wrong(diagnostics) => self.wrong(diagnostics),
            Unusable::Failed(failure) => failure,
        })
    }

    /// The text as the user typed it, if the script was composed from words.
    pub(crate) fn in_words(&self, diagnostics: Diagnostics) -> Diagnostics {
        match &self.program {
            Program::Composed(made) => made.in_words(diagnostics),
            Program::Text(_) | Program::File(_) | Program::Tool(_) | Program::Stdin => diagnostics,
        }
    }

    /// Prints a message.
    pub(crate) fn print_message(&self, text: &str) {
        match &self.messages {
            Some(messages) => messages.borrow_mut().push_str(text),
            None => to_stderr(text),
        }
    }

    pub(crate) fn warn(&self, text: &str) {
        if self.run.warnings {
            self.print_message(&format!("{} {}\n", paint("warning:", terminal::WARNING, self.run.color), diag::plain(text)));
        }
    }
}

/// Reports the duration of each stage, if requested.
pub(crate) struct Clock {
    on: bool,
    last: Instant,
}

impl Clock {
    fn new(on: bool) -> Self {
        Self { on, last: Instant::now() }
    }

    /// Records the time since the previous stage.
    pub(crate) fn stage(&mut self, name: &str) {
        let now = Instant::now();
        if self.on {
            to_stderr(&format!("{name:8} {:8.3} ms\n", now.duration_since(self.last).as_secs_f64() * 1e3));
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_scripts_without_probes() {
        for text in ["", "// nothing", "macro m() { 1 }"] {
            let source = Source { name: "stdin".into(), text: text.into() };
            assert_eq!(parse(&source).unwrap_err().0[0].code, "no-probes", "{text}");
        }
    }
}
