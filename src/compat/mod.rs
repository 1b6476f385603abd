//! `rbt check`: checks scripts against kernels without running or (except for `--load`) loading them.
//!
//! - `subjects`: the scripts; `kernels`: the kernels; `exceptions`, `config`: exceptions
//! - `examine`: one script on one kernel: the stages up to compiling, and the features that the object needs (`needs`)
//! - `uses`: the kernel types that a script uses; `compare`: how they differ from the baseline kernel
//!
//! Findings that are not diagnostics are rows of [`verdict::RULES`].

mod compare;
mod config;
mod examine;
mod exceptions;
mod kernels;
mod location;
mod needs;
mod script_check;
mod subjects;
mod uses;

pub use compare::is_absence;
pub use needs::large_maps_of;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cli::Action;
use crate::cli::check::Check;
use crate::codegen::artifact::Artifact;
use crate::failure::{Failure, without_os_error};
use crate::launch::require::require_privileges;
use crate::probes::ProbeSite;
use crate::progress::Progress;
use crate::sema::hir;
use crate::settings::Settings;
use crate::streams::{to_stdout, write_file};
use crate::system::TargetInfo;
use crate::system::snapshot::Snapshot;
use crate::verdict::{self, ENVIRONMENT, Outcome, Report, State, Style, USAGE};

use config::Config;
use examine::KernelContext;
use kernels::Kernel;
use script_check::ScriptCheck;
use subjects::Subject;

impl Action for Check {
    fn color(&self) -> bool {
        self.color
    }

    fn run(&self) -> Result<u8, Failure> {
        check(self)
    }
}

/// Runs a check and prints its report. The result is the exit status.
fn check(args: &Check) -> Result<u8, Failure> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i128);
    let config = Config::find(args.config.as_deref()).map_err(|f| f.status(USAGE))?;
    let absent = |what: &str, path: &std::path::Path, help: &str| {
        Err(Failure::new(format!("{what} {}: no such file or directory", path.display())).code("not-readable").help(help).status(USAGE))
    };
    if let Some(root) = args.root.as_deref().filter(|root| !root.is_dir()) {
        return absent("--root", root, "name the directory that contains bin, usr and lib");
    }
    if let Some(binary) = args.binaries.iter().find(|b| !b.is_file()) {
        return absent("--binary", binary, "name a program or a library");
    }
    let progress = Progress::on_stderr();
    let subjects = subjects::subjects(&args.scripts, &progress).map_err(|f| f.status(USAGE))?;
    let kernels = kernels::kernels(args, &config).map_err(|f| f.status(USAGE))?;
    if args.load {
        if !kernels.all.iter().any(|k| k.source == kernels::KernelSource::Here) {
            let failure = Failure::new("--load needs the running kernel, which --against does not include");
            return Err(failure.help("add `--against here`").status(USAGE));
        }
        require_privileges().map_err(|f| f.status(ENVIRONMENT))?;
    }
    let run = Examination { options: args, config: &config, progress: &progress };
    let outcomes = outcomes(&run, &subjects, &kernels);
    drop(progress);
    let report = Report { name: "check", outcomes, deny_warnings: args.deny_warnings || config.deny_warnings };
    write_report(&report, args, began)?;
    Ok(report.status())
}

/// The kernels in snapshots, or in directories of them: names, and targets.
pub fn snapshots(paths: &[PathBuf]) -> Result<Vec<(String, Snapshot)>, Failure> {
    let args = Check { against: paths.to_vec(), ..Check::default() };
    let open = |kernel: Kernel| {
        let kernels::KernelSource::File(path) = &kernel.source else {
            return Err(Failure::new("--against takes snapshots: a bundle is built for this kernel in any case"));
        };
        let opened = Snapshot::open(path).map_err(|m| Failure { help: m.help, ..Failure::new(m.what).code("not-readable") })?;
        Ok((kernel.name, opened))
    };
    kernels::kernels(&args, &Config::default())?.all.into_iter().map(open).collect()
}

/// What the description of a kernel does not settle about the probes of a script.
pub fn unknown_conditions(script: &hir::Script, sys: &dyn TargetInfo) -> Vec<String> {
    let of = |site: &ProbeSite| {
        let counter = || site.attach.is_hardware_counter().then(|| format!("cannot determine whether a machine counts {}", site.name));
        examine::unknown_condition(&site.attach, sys).map(|(_, message, _)| message).or_else(counter)
    };
    let mut all: Vec<String> = script.probes.iter().flat_map(|p| &p.sites).filter_map(of).collect();
    all.dedup();
    // rbt's own code keeps the rules of the verifier
    let objects =
        script.objects.iter().map(|(object, _)| format!("cannot determine whether its verifier accepts the code of {}", object.name));
    all.extend(objects);
    all
}

/// A requirement of a compiled script that a kernel does not meet.
pub fn unmet_need(artifact: &Artifact, settings: &Settings, sys: &dyn TargetInfo) -> Option<String> {
    needs::unmet_needs(artifact, settings, sys)
        .lacks
        .into_iter()
        .find(|need| verdict::rule(need.rule).is_none_or(|rule| rule.level == verdict::Level::Error))
        .map(|need| need.message)
}

/// The common data of all scripts and kernels.
#[derive(Clone, Copy)]
struct Examination<'a> {
    options: &'a Check,
    config: &'a Config,
    progress: &'a Progress,
}

/// A line of the table: each kernel's result for one script.
fn outcomes(run: &Examination, subjects: &[Subject], kernels: &kernels::Kernels) -> Vec<Outcome> {
    let baseline = kernels.baseline.as_ref().map(|k| (k, examined(run, subjects, std::slice::from_ref(k), None)));
    let compared = baseline.as_ref().map(|(k, seen)| (k.name.as_str(), seen.as_slice()));
    let (mut all, mut first) = (Vec::new(), None);
    for (i, kernel) in kernels.all.iter().enumerate() {
        // the baseline was examined already if it is one of them
        if kernels.baseline.as_ref() == Some(kernel) {
            first = Some(i);
        } else {
            all.push(kernel.clone());
        }
    }
    let mut seen = examined(run, subjects, &all, compared);
    if let (Some(at), Some((_, of_baseline))) = (first, baseline) {
        let at = at.min(seen.len() / subjects.len().max(1));
        seen.splice(at * subjects.len()..at * subjects.len(), of_baseline);
    }
    if run.options.baseline.is_none() {
        passing_alternative(run, subjects, kernels, &mut seen);
    }
    let mut seen: Vec<Option<ScriptCheck>> = seen.into_iter().map(Some).collect();
    let mut outcomes = Vec::with_capacity(seen.len());
    for (i, subject) in subjects.iter().enumerate() {
        for (k, kernel) in kernels.all.iter().enumerate() {
            let Some(seen) = seen.get_mut(k * subjects.len() + i).and_then(Option::take) else { continue };
            let ScriptCheck { state, findings, facts, seconds, .. } = seen;
            let against = if kernels.named { kernel.name.clone() } else { String::new() };
            outcomes.push(Outcome { subject: subject.name.clone(), against, state, findings, facts, seconds });
        }
    }
    outcomes
}

/// If a script fails on the default baseline kernel, the baseline and the other kernels on which it fails are compared
/// with the first kernel on which it passes, or which at least has something that is missing elsewhere.
fn passing_alternative(run: &Examination, subjects: &[Subject], kernels: &kernels::Kernels, seen: &mut [ScriptCheck]) {
    let Some(baseline) = kernels.baseline.as_ref() else { return };
    let Some(first) = kernels.all.iter().position(|k| k == baseline) else { return };
    for (i, subject) in subjects.iter().enumerate() {
        let of = |kernel: usize| kernel * subjects.len() + i;
        let Some(of_first) = seen.get(of(first)).filter(|s| s.state == State::Checked && !s.passed()) else { continue };
        let with =
            |passes: &dyn Fn(&ScriptCheck) -> bool| kernels.all.iter().enumerate().find(|(n, _)| seen.get(of(*n)).is_some_and(passes));
        let Some((n, other)) = with(&ScriptCheck::passed).or_else(|| with(&|s| s.state == State::Checked && of_first.has_errors_beyond(s)))
        else {
            continue;
        };
        let Some(earlier) = seen.get_mut(of(n)).map(|s| std::mem::replace(s, ScriptCheck::unknown(""))) else { continue };
        let failing = |k: &usize| *k != n && seen.get(of(*k)).is_some_and(|s| s.state == State::Checked && !s.passed());
        let failing: Vec<(usize, Kernel)> = kernels.all.iter().cloned().enumerate().filter(|(k, _)| failing(k)).collect();
        let earlier = [earlier];
        let compared: Vec<Kernel> = failing.iter().map(|(_, kernel)| kernel.clone()).collect();
        let again = examined(run, std::slice::from_ref(subject), &compared, Some((&other.name, &earlier)));
        let [earlier] = earlier;
        // the difference is reported for the other kernel already
        let again: Vec<ScriptCheck> = again.into_iter().map(|seen| seen.without_changes_of(&earlier)).collect();
        for (at, one) in failing.into_iter().map(|(k, _)| k).zip(again).chain([(n, earlier)]) {
            if let Some(slot) = seen.get_mut(of(at)) {
                *slot = one;
            }
        }
    }
}

/// The stack of a thread: the usual size of the first thread's, which deeply nested scripts need.
const STACK: usize = 8 << 20;

/// Work that is done by one thread.
struct Job<'a> {
    kernel: &'a Kernel,
    /// The range of the subjects' indices.
    from: usize,
    index: usize,
}

/// Number of started examinations, for the progress.
struct Count {
    started: AtomicUsize,
    total: usize,
}

impl Count {
    fn next(&self) -> usize {
        self.started.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Examines every subject on every kernel, kernel by kernel. Threads share the work. Each opens its own kernels,
/// because a target caches its answers and cannot be shared.
fn examined(run: &Examination, subjects: &[Subject], kernels: &[Kernel], baseline: Option<(&str, &[ScriptCheck])>) -> Vec<ScriptCheck> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(8);
    // indexing a kernel's types takes a while: a few scripts do not justify doing it twice
    let pieces = if kernels.len() >= threads || subjects.len() < 8 { 1 } else { threads.div_ceil(kernels.len().max(1)) };
    let size = subjects.len().div_ceil(pieces).max(1);
    let parts: Vec<Job> = kernels
        .iter()
        .flat_map(|kernel| {
            (0..subjects.len()).step_by(size).map(move |from| Job { kernel, from, index: (from + size).min(subjects.len()) })
        })
        .collect();
    let results: Vec<Mutex<Vec<ScriptCheck>>> = parts.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let count = Count { started: AtomicUsize::new(0), total: subjects.len() * kernels.len() };
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let (Some(part), Some(result)) = (parts.get(i), results.get(i)) else { break };
            let seen = one_part(run, subjects, part, baseline, &count);
            if let Ok(mut result) = result.lock() {
                *result = seen;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(parts.len()) {
            // deeply nested scripts need as much stack as the first thread has
            let _ = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        }
        work();
    });
    results.into_iter().flat_map(|r| r.into_inner().unwrap_or_default()).collect()
}

fn one_part(
    run: &Examination,
    subjects: &[Subject],
    part: &Job,
    baseline: Option<(&str, &[ScriptCheck])>,
    count: &Count,
) -> Vec<ScriptCheck> {
    let Examination { options: args, config, progress } = *run;
    let numbers = part.from..part.index;
    let sys = match part.kernel.open(args) {
        Ok(sys) => sys,
        Err(missing) => {
            let why = missing.help.map_or(missing.what.clone(), |help| format!("{}; {help}", missing.what));
            return numbers.map(|_| ScriptCheck::unknown(&without_os_error(&why))).collect();
        }
    };
    let load = args.load && part.kernel.source == kernels::KernelSource::Here;
    let Kernel { release, scripts, knows_callable: tells_callable, .. } = part.kernel;
    let kernel_context =
        KernelContext { sys: &*sys, release, scripts: scripts.as_ref(), knows_callable: *tells_callable, is_running: load };
    let with_earlier = |i: usize| {
        let subject = subjects.get(i)?;
        progress.at(&format!("checking {} of {}: {}", count.next(), count.total, subject.name));
        let mut seen = examine::examine(subject, &kernel_context, config);
        if let Some((name, earlier)) = baseline.and_then(|(name, all)| Some((name, all.get(i)?))) {
            compare::compare(&mut seen, earlier, name, &*sys);
        }
        seen.apply_exceptions();
        Some(seen)
    };
    numbers.filter_map(with_earlier).collect()
}

/// Writes the report to its destination; the text goes to standard output unless it is the report's format.
fn write_report(report: &Report, args: &Check, began: i128) -> Result<(), Failure> {
    let style = Style {
        color: args.color,
        quiet: args.quiet,
        verbose: args.verbose,
        started_ns: began,
        host: verdict::host(),
        root: verdict::repository(),
    };
    let Some(format) = verdict::find(&args.format) else {
        return Err(Failure::new(format!("there is no format `{}`", args.format)).status(USAGE));
    };
    let mut out = (format.render)(report, &style);
    if let Some(path) = &args.output {
        let plain = Style { color: false, ..style.clone() };
        let written = write_file(path, (format.render)(report, &plain).as_bytes());
        written.map_err(|f| f.status(ENVIRONMENT))?;
        if let Some(text) = verdict::FORMATS.first() {
            out = (text.render)(report, &style);
        }
    }
    to_stdout(|to| to.write_all(out.as_bytes())).map(|_| ()).map_err(|f| f.status(ENVIRONMENT))
}
