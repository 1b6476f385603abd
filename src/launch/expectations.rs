//! Runs with expectations (`--expect`), and their verdicts.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use crate::cli::Run;
use crate::diag::{Diagnostic, Diagnostics, Source};
use crate::expect::{self, Expectation, ScriptMap};
use crate::failure::{Failure, reason};
use crate::input;
use crate::output::FinalResults;
use crate::runtime::{OnEnd, child};
use crate::settings::{MissingProbes, Settings};
use crate::streams::{Stdout, not_written, report, to_stderr};
use crate::verdict::{self, ENVIRONMENT, Outcome, Report, SourceLocation, Style, USAGE};

/// Failures caused by the machine, at any stage.
const OF_THE_MACHINE: &[&str] = &["no-permission", "no-command", "no-process", "no-cgroup", "not-readable", "not-written", "kernel"];

/// The expectations of a run.
#[derive(Default)]
pub(crate) struct Budget {
    written: Vec<ParsedExpectation>,
    /// Expectations after their check against the script.
    checked: Vec<Expectation>,
    reports: Vec<ReportDestination>,
    /// The script's output shares the destination of a report, and is separated from it by a fence.
    fence: Option<Fence>,
    /// The results of the run, after it has ended.
    last: Rc<RefCell<Option<FinalResults>>>,
    child: Cell<Option<child::Exit>>,
    /// The script allows some of its probes to be missing.
    may_lack: bool,
}

/// An expectation that parses.
struct ParsedExpectation {
    source: usize,
    text: String,
    location: Option<SourceLocation>,
    tree: expect::Node,
}

/// The end of the script's part of the output, which is written on drop.
struct Fence {
    end: String,
    out: Box<dyn Write>,
}

impl Fence {
    fn begin(make: fn(&str) -> [String; 2], mut to: Box<dyn Write>) -> io::Result<Self> {
        // keyed by the system's random numbers
        let word = || RandomState::new().hash_one(std::process::id());
        let [begin, end] = make(&format!("{:016x}{:016x}", word(), word()));
        to.write_all(begin.as_bytes()).and_then(|()| to.flush())?;
        Ok(Self { end, out: to })
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // if the output is closed, the report has no reader
        let _ = self.out.write_all(self.end.as_bytes()).and_then(|()| self.out.flush());
    }
}

/// The destination of a report.
struct ReportDestination {
    format: &'static verdict::Format,
    /// None: standard output.
    file: Option<(PathBuf, File)>,
}

/// Why expectations cannot be evaluated.
pub(crate) enum Unusable {
    /// They are wrong.
    Wrong(Diagnostics),
    /// They cannot be read, or the reports cannot be written.
    Failed(Failure),
}

impl From<Failure> for Unusable {
    fn from(failure: Failure) -> Self {
        Unusable::Failed(failure)
    }
}

/// Runs a script with expectations. `script` is the rest of the run. The result is the verdict's status, or that of the run
/// if all expectations are met.
pub(crate) fn run(run: &Run, script: impl FnOnce(&mut Budget) -> Result<u8, Failure>) -> Result<u8, Failure> {
    let began = SystemTime::now();
    let mut budget = Budget::default();
    match script(&mut budget) {
        Ok(status) => match budget.verdict(run) {
            Some(outcomes) => {
                budget.report(run, began, outcomes).map(|verdict| if verdict == verdict::SATISFIED { status } else { verdict })
            }
            None => Ok(status),
        },
        Err(failure) => {
            report(&failure, run.color);
            let status = not_run(&failure, !budget.checked.is_empty());
            if !budget.checked.is_empty() {
                let why = if failure.message.is_empty() { "the script could not be run" } else { failure.message.as_str() };
                let outcomes = budget.checked.iter().map(|e| expect::run_failed(e, why)).collect();
                budget.report(run, began, outcomes)?;
            }
            Err(Failure::reported(status))
        }
    }
}

/// The status of a script with expectations that did not run; `checked`: the script has no errors.
pub(crate) fn not_run(failure: &Failure, checked: bool) -> u8 {
    if checked || OF_THE_MACHINE.contains(&failure.code) { ENVIRONMENT } else { USAGE }
}

impl Budget {
    /// Reads and parses the expectations; their texts are added to the sources.
    pub fn read(&mut self, run: &Run, sources: &mut Vec<Source>) -> Result<(), Unusable> {
        let mut wrong = Vec::new();
        for text in &run.expected.texts {
            self.parse(Source { name: "--expect".into(), text: text.clone() }, 0..text.len(), None, sources, &mut wrong);
        }
        for path in &run.expected.files {
            let name = path.display().to_string();
            let bytes = input::read(path, input::TEXT)
                .map_err(|e| Failure::new(format!("cannot read the expectations {name}: {}", reason(&e))).code("not-readable"))?;
            let text = String::from_utf8(bytes).map_err(|e| {
                let at = e.utf8_error().valid_up_to();
                let line = e.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1;
                let failure = Failure::new(format!("{name}, line {line}: the expectations are not UTF-8 text")).code("not-text");
                failure.help("write one per line: count(@calls) <= 200")
            })?;
            let source = Source { name, text };
            for (line, range) in lines(&source.text) {
                let column = source.line_col(range.start as u32).1;
                let width = source.text.get(range.clone()).map_or(0, |t| t.chars().count()) as u32;
                let place = SourceLocation {
                    file: source.name.clone(),
                    line,
                    column,
                    end_line: line,
                    end_column: column + width,
                    text: source.line(line).to_string(),
                };
                self.parse(source.clone(), range, Some(place), sources, &mut wrong);
            }
        }
        if !wrong.is_empty() {
            return Err(Unusable::Wrong(Diagnostics(wrong)));
        }
        if self.written.is_empty() {
            let failure = Failure::new("the files of --expect-file contain no expectation");
            return Err(failure.help("write one per line: count(@calls) <= 200").into());
        }
        Ok(())
    }

    fn parse(
        &mut self,
        source: Source,
        range: Range<usize>,
        place: Option<SourceLocation>,
        sources: &mut Vec<Source>,
        wrong: &mut Vec<Diagnostic>,
    ) {
        let known = place.as_ref().and_then(|_| sources.iter().position(|s| s.name == source.name && s.text == source.text));
        let index = known.unwrap_or_else(|| {
            sources.push(source.clone());
            sources.len() - 1
        });
        let text = source.text.get(range.clone()).unwrap_or("").trim().to_string();
        match expect::parse(&source, u16::try_from(index).unwrap_or(u16::MAX), range) {
            Ok(tree) => self.written.push(ParsedExpectation { source: index, text, location: place, tree }),
            Err(diags) => wrong.extend(diags.0),
        }
    }

    /// Checks the expectations against the script's maps, and makes sure that the reports can be written.
    pub fn check(&mut self, maps: &[ScriptMap], run: &Run, sources: &[Source]) -> Result<(), Unusable> {
        let (mut checked, mut wrong) = (Vec::new(), Vec::new());
        for w in &self.written {
            let Some(source) = sources.get(w.source) else { continue };
            match expect::check(&w.tree, &w.text, source, w.location.clone(), maps) {
                Ok(expectation) => checked.push(expectation),
                Err(d) => wrong.push(d),
            }
        }
        if !wrong.is_empty() {
            return Err(Unusable::Wrong(Diagnostics(wrong)));
        }
        if !run.compile_only {
            self.open(run)?;
        }
        self.checked = checked;
        Ok(())
    }

    /// The settings of the run may allow probes to be missing.
    pub fn allow(&mut self, settings: &Settings) {
        self.may_lack = settings.missing_probes == MissingProbes::Ignore;
    }

    /// Stores the results.
    pub fn set_results(&self, last: FinalResults) {
        *self.last.borrow_mut() = Some(last);
    }

    /// Opens the report before the run: a run whose report cannot be written would be useless.
    pub fn open(&mut self, run: &Run) -> Result<(), Failure> {
        for (name, path) in &run.expected.reports {
            let Some(format) = verdict::find(name) else { continue };
            let file = match path {
                Some(path) => {
                    let file = File::create(path).map_err(|e| not_written(&format!("--report {name}={}", path.display()), &e))?;
                    Some((path.clone(), file))
                }
                None => None,
            };
            self.reports.push(ReportDestination { format, file });
        }
        if !run.outputs.is_empty() {
            return Ok(());
        }
        let fenced = self.reports.iter().filter_map(|to| Some((to.file.is_some(), to.format.fence?))).min_by_key(|(apart, _)| *apart);
        self.fence = match fenced {
            Some((false, make)) => Some(Fence::begin(make, Box::new(Stdout)).map_err(|e| not_written("standard output", &e))?),
            // another program may read the output; the runner reads both
            Some((true, make)) if !io::stderr().is_terminal() => Fence::begin(make, Box::new(io::stderr())).ok(),
            Some((true, _)) | None => None,
        };
        Ok(())
    }

    /// Is this source an expectation?
    pub fn is_from(&self, source: usize) -> bool {
        self.written.iter().any(|w| w.source == source)
    }

    /// Requests the maps that the expectations use.
    pub fn on_end(&self) -> OnEnd {
        let last = self.last.clone();
        OnEnd { maps: expect::names(&self.checked), report: Box::new(move |found| *last.borrow_mut() = Some(found)) }
    }

    /// Called when the run is over, and so is the command.
    pub fn ran(&self, child: Option<child::Exit>) {
        self.child.set(child);
    }

    /// The outcome of the run; none if the script could not run.
    pub fn verdict(&self, run: &Run) -> Option<Vec<Outcome>> {
        if run.dry_run || run.compile_only || self.checked.is_empty() {
            return None;
        }
        let mut last = self.last.borrow_mut().take();
        if let Some(last) = last.as_mut().filter(|_| self.may_lack) {
            last.not_attached.clear();
        }
        let judge = |e: &Expectation| match &last {
            Some(last) => expect::evaluate(e, last),
            None => expect::run_failed(e, "the reader of the output has closed it"),
        };
        let mut outcomes: Vec<Outcome> = self.checked.iter().map(judge).collect();
        if let Some(child) = self.child.get().filter(|c| c.status() != 0) {
            for outcome in &mut outcomes {
                outcome.facts.push(("the -c command".into(), format!("ended with status {}", child.status())));
            }
        }
        Some(outcomes)
    }

    /// Writes the reports, and returns the status.
    pub fn report(&mut self, run: &Run, began: SystemTime, outcomes: Vec<Outcome>) -> Result<u8, Failure> {
        self.fence = None;
        let report = Report { name: "expect", outcomes, deny_warnings: run.strict };
        let began = began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos() as i128;
        let style =
            Style { color: false, quiet: false, verbose: true, started_ns: began, host: verdict::host(), root: verdict::repository() };
        let at_hand = self.reports.iter().any(|to| to.file.is_none());
        if !at_hand && let Some(text) = verdict::FORMATS.first() {
            to_stderr(&(text.render)(&report, &Style { color: run.color, ..style.clone() }));
        }
        for to in &mut self.reports {
            let written = match &mut to.file {
                Some((_, file)) => file.write_all((to.format.render)(&report, &style).as_bytes()),
                None => {
                    let color = run.color && io::stdout().is_terminal();
                    let text = (to.format.render)(&report, &Style { color, ..style.clone() });
                    Stdout.write_all(text.as_bytes())
                }
            };
            if let Err(e) = written {
                let place = to.file.as_ref().map_or_else(|| "standard output".into(), |(path, _)| path.display().to_string());
                return Err(not_written(&place, &e).status(ENVIRONMENT));
            }
        }
        Ok(report.status())
    }
}

/// Does a program read commands from the output, as GitHub does from its annotations?
pub(crate) fn is_read_for_commands(run: &Run) -> bool {
    run.expected.reports.iter().any(|(name, _)| verdict::find(name).is_some_and(|format| format.fence.is_some()))
}

/// The part of a line before a `#` that is not in a string.
fn uncommented(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    let comment = line.char_indices().find(|(_, c)| {
        quoted ^= *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        *c == '#' && !quoted
    });
    comment.map_or(line, |(at, _)| line.get(..at).unwrap_or(line))
}

/// Nonempty lines, with their numbers and ranges, without the blanks around them.
fn lines(text: &str) -> impl Iterator<Item = (u32, Range<usize>)> {
    let mut pos = 0;
    text.split_inclusive('\n').zip(1..).filter_map(move |(line, number)| {
        let start = pos + (line.len() - line.trim_start().len());
        pos += line.len();
        let expression = uncommented(line).trim();
        (!expression.is_empty()).then_some((number, start..start + expression.len()))
    })
}
