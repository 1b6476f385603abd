//! `rbt merge`: reads the documents, and prints their sum in the form of a run's final output.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::cli::merge::Merge;
use crate::cli::{Action, Run};
use crate::diag::plural;
use crate::failure::{Failure, reason};
use crate::frontend::Frontend;
use crate::launch::expectations::{self, Budget};
use crate::merge::{Document, MergeError, NotSummable, Sum, read};
use crate::output::Output;
use crate::output_files::{Destinations, about};
use crate::progress::Progress;
use crate::render::{Base, RenderOptions, Rendered, Renderer};
use crate::streams::{not_written, report};
use crate::value::Value;

/// Number of messages about one input; further ones are only counted.
const MAX_MESSAGES: usize = 20;

impl Action for Merge {
    fn color(&self) -> bool {
        self.run.color
    }

    fn run(&self) -> Result<u8, Failure> {
        merge(self)
    }
}

fn merge(args: &Merge) -> Result<u8, Failure> {
    let began = SystemTime::now();
    if args.files.is_empty() && io::stdin().is_terminal() {
        return Err(
            Failure::new("there are no states to merge").help("name files that `rbt -f state` has written, or `-` for standard input")
        );
    }
    let run = &*args.run;
    let mut problems = Problems::new(run.color);
    let mut sum = Sum::new(args.by_host);
    let stdin = [Path::new("-").to_owned()];
    let files = if args.files.is_empty() { &stdin[..] } else { &args.files };
    for file in files {
        add(file, &mut sum, &mut problems)?;
    }
    let missing = sum.missing(&args.hosts);
    missing.iter().for_each(|hosts| problems.missing_data(&hosts.message()));
    if sum.hosts().is_empty() {
        problems.finish();
        let failure = Failure::new("there is no state to merge").code("no-states");
        return Err(failure.help("write states with `rbt -f state`, each on one line"));
    }

    let mut front = Frontend::new(run);
    let mut budget = Budget::default();
    if !run.expected.is_empty() {
        let read = budget.read(run, &mut front.sources);
        front.usable(read)?;
        front.usable(budget.check(&sum.maps(), run, &front.sources))?;
        budget.set_results(sum.last(&missing, problems.omitted));
    }
    let lost = run.strict && sum.counts().iter().any(|counts| !counts.complete());
    print(args, sum, &mut problems)?;
    let status = u8::from(lost || problems.messages > 0);
    problems.finish();
    match budget.verdict(run) {
        Some(outcomes) => {
            budget.report(run, began, outcomes).map(|verdict| if verdict == crate::verdict::SATISFIED { status } else { verdict })
        }
        None => Ok(status),
    }
}

fn add(file: &Path, sum: &mut Sum, problems: &mut Problems) -> Result<(), Failure> {
    let (mut refused, mut any) = (None, false);
    // files often have the names of hosts: `a.json`
    let names = [file.file_name(), file.file_stem()].into_iter().flatten().map(|name| name.to_string_lossy().into_owned());
    let mut each = |found: Document| {
        any = true;
        match found {
            _ if refused.is_some() => {}
            Document::Problem(what) => problems.omit(&what),
            Document::State(state, place, label) => match sum.add(*state, &place) {
                Ok(()) => label.into_iter().chain(names.clone()).for_each(|name| sum.add_label(name)),
                Err(MergeError::Document(what)) => problems.omit(&what),
                Err(MergeError::Duplicate(what)) => problems.report(Failure::new(what)),
                Err(MergeError::Script(what)) => refused = Some(what),
            },
        }
    };
    let done = if file == Path::new("-") {
        read("standard input", io::stdin().lock(), &mut each)
    } else {
        File::open(file).and_then(|from| read(&file.display().to_string(), from, &mut each))
    };
    if done.is_ok() && !any && file != Path::new("-") {
        problems.omit(&format!("{}: the file is empty", file.display()));
    }
    if let Err(e) = done {
        problems.omit(&format!("cannot read {}: {}", file.display(), reason(&e)));
    }
    match refused {
        Some(what) => Err(Failure::new(what).code("not-merged").help("only runs of the same script add up; merge others separately")),
        None => Ok(()),
    }
}

/// The base of `--diff`.
pub(super) fn base(run: &Run) -> Result<Option<Arc<Base>>, Failure> {
    let Some(text) = &run.diff else { return Ok(None) };
    if text.starts_with('@') {
        return Ok(Some(Arc::new(Base::Map(text.clone()))));
    }
    let mut problems = Problems::new(run.color);
    let mut sum = Sum::new(false);
    add(Path::new(text), &mut sum, &mut problems)?;
    problems.finish();
    if sum.hosts().is_empty() {
        let failure = Failure::new(format!("there is no state to compare with in {text}")).code("no-states");
        return Err(failure.help("write one with `rbt -f state`; `--diff @MAP` compares with another map of the run"));
    }
    let (views, refused): (Vec<_>, Vec<_>) = sum.shown(None).into_iter().partition(Result::is_ok);
    refused.into_iter().filter_map(Result::err).for_each(|why| problems.missing_data(&why));
    Ok(Some(Arc::new(Base::from_run(&views.into_iter().flatten().collect::<Vec<_>>(), text.clone()))))
}

fn print(args: &Merge, sum: Sum, problems: &mut Problems) -> Result<(), Failure> {
    let run = &*args.run;
    let to = Destinations::of(run)?;
    let with_maps = to.formats().any(|format| !format.state);
    let with_state = to.formats().any(|format| format.state);
    let mut outputs = Vec::new();
    let mut key_parts = 1;
    if with_maps {
        for shown in sum.shown(args.top) {
            match shown {
                Ok(view) => {
                    let parts = |key: &Value| if let Value::Tuple(parts) = key { parts.len() } else { 1 };
                    key_parts = view.entries.iter().map(|(key, _)| parts(key)).fold(key_parts, usize::max);
                    outputs.push(Output::Map(view));
                }
                Err(why) => problems.missing_data(&why),
            }
        }
        sum.warnings().iter().filter(|_| run.warnings).for_each(|(code, what)| problems.warn(code, what));
        outputs.push(Output::Counts(sum.counts().into_iter().filter(|counts| !counts.complete()).collect()));
    }
    let options = RenderOptions {
        warnings: run.warnings,
        commands: expectations::is_read_for_commands(run),
        key_parts,
        base: base(run)?,
        about: Arc::new(about("the sum".into(), String::new())),
        ..RenderOptions::default()
    };
    let mut renderer = to.open(&options)?;
    let mut out = renderer.take_file()?;
    if with_state {
        let (state, refused) = sum.state();
        refused.iter().for_each(|why| problems.missing_data(why));
        outputs.extend(state.map(Output::State));
    }
    let mut rendered = Rendered::default();
    let progress = Progress::on_stderr();
    progress.at("printing the sum");
    outputs
        .iter()
        .filter(|output| !matches!(output, Output::Counts(all) if all.is_empty()))
        .for_each(|o| renderer.render(o, &mut rendered));
    drop(progress);
    crate::streams::to_stderr(&String::from_utf8_lossy(&rendered.err));
    match out.write_all(&rendered.out) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(not_written("the output", &e)),
        _ => {}
    }
    renderer.finish().map(|_| ())
}

/// Data missing from the sum.
struct Problems {
    messages: usize,
    /// The number of inputs that the sum lacks.
    omitted: usize,
    color: bool,
}

impl Problems {
    fn new(color: bool) -> Self {
        Self { messages: 0, omitted: 0, color }
    }

    /// Reports an input that the sum lacks.
    fn omit(&mut self, what: &str) {
        self.omitted += 1;
        self.report(Failure::new(what));
    }

    fn missing_data(&mut self, NotSummable { what, help }: &NotSummable) {
        let failure = Failure::new(what);
        self.report(match help {
            Some(help) => failure.help(*help),
            None => failure,
        });
    }

    fn report(&mut self, failure: Failure) {
        self.messages += 1;
        if self.messages <= MAX_MESSAGES {
            report(&failure.code("not-merged"), self.color);
        }
    }

    fn warn(&self, code: &'static str, what: &str) {
        report(&Failure::new(what).code(code).status(0), self.color);
    }

    fn finish(&self) {
        if self.messages > MAX_MESSAGES {
            report(
                &Failure::new(plural(self.messages - MAX_MESSAGES, "more input is not merged", "more inputs are not merged"))
                    .code("not-merged"),
                self.color,
            );
        }
    }
}
