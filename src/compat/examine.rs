//! Checks one script against one kernel: runs the stages up to an object, and collects the findings.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::cli::{self, Command, Program};
use crate::codegen::{self, Compiled, walked};
use crate::diag::codes::{DependsOn, depends_on};
use crate::diag::{Diagnostic, Diagnostics, Severity, Source, Span, remedy};
use crate::emit::Dumps;
use crate::failure::without_os_error;
use crate::frontend::c_headers::Headers;
use crate::frontend::explain::{self, not_compiled, refused_mechanisms};
use crate::frontend::{self, Checked, configure, from_environment, import, read, require_probe};
use crate::probes::{self, Attach, ContextFeatures, SamplePeriod};
use crate::runtime::{self, AttachFailed, VerifierError};
use crate::sema::{self, hir};
use crate::settings::{Invocation, Mechanism, MissingProbes, Mode, Settings};
use crate::syntax::{self, ast};
use crate::system::binary::instructions::InstructionBoundary;
use crate::system::kernel::functions::KERNEL;
use crate::system::snapshot::script_digest;
use crate::system::{Feature, TargetInfo};
use crate::verdict::{self, Finding, Level, SourceLocation, State};

use super::config::Config;
use super::exceptions::Exceptions;
use super::location::source_location;
use super::script_check::ScriptCheck;
use super::subjects::Subject;
use super::uses;
use super::{compare, needs};

/// A kernel for checking scripts.
pub struct KernelContext<'a> {
    /// Answers queries about it.
    pub sys: &'a dyn TargetInfo,
    /// `uname -r`.
    pub release: &'a str,
    /// The scripts for which the kernel was described; none if the description is complete.
    pub scripts: Option<&'a BTreeSet<u64>>,
    /// Is it known which functions BPF programs can call?
    pub knows_callable: bool,
    /// It is the running kernel, whose verifier is used.
    pub is_running: bool,
}

/// Maximum rate of samples where the machine's is unknown: `DEFAULT_MAX_SAMPLE_RATE` of kernel/events/core.c.
const DEFAULT_MAX_SAMPLES: u64 = 100_000;

/// Takes a script through all stages.
pub fn examine(subject: &Subject, kernel: &KernelContext, config: &Config) -> ScriptCheck {
    let began = Instant::now();
    let mut seen = ScriptCheck { exceptions: config.exceptions(subject), ..ScriptCheck::new() };
    let cannot = |why: &str| State::Unknown(why.into());
    match subject.program.clone() {
        Err(why) => seen.state = cannot(&why),
        Ok(program) => match read::read(&program) {
            Ok(source) => {
                let exceptions = seen.exceptions.clone();
                let mut work = Examiner { kernel, program, sources: vec![source.clone()], result: seen, reports_missing: false };
                work.run();
                // what seems wrong may follow from an ignored probe that the description lacks
                if !work.is_described() && work.has_findings() {
                    work.result = ScriptCheck { exceptions, ..ScriptCheck::new() };
                    work.sources = vec![source];
                    work.reports_missing = true;
                    work.run();
                }
                work.demote_undescribed();
                seen = work.result;
            }
            // the file is readable, but not a script
            Err(failure) if failure.code == "not-text" => seen.findings.push(Finding {
                rule: failure.code,
                level: Level::Error,
                message: failure.message.strip_prefix(&format!("{}, ", subject.name)).unwrap_or(&failure.message).to_owned(),
                location: None,
                related: Vec::new(),
                help: failure.help,
            }),
            Err(f) => seen.state = cannot(&f.help.map_or(f.message.clone(), |help| format!("{}; {help}", f.message))),
        },
    }
    seen.seconds = began.elapsed().as_secs_f64();
    seen
}

struct Examiner<'a> {
    kernel: &'a KernelContext<'a>,
    program: Program,
    sources: Vec<Source>,
    result: ScriptCheck,
    /// Missing probes are reported, even if the script ignores them.
    reports_missing: bool,
}

impl Examiner<'_> {
    fn run(&mut self) {
        let Some(source) = self.sources.first().cloned() else { return };
        let (exceptions, wrong) = Exceptions::parse_comments(&source);
        self.result.exceptions.add(exceptions);
        for (span, (message, help)) in wrong {
            self.add_diagnostic(Diagnostic::error("bad-comment", span, message).help(help));
        }
        if let Some(why) = self.result.exceptions.skips(self.kernel.release) {
            self.result.state = State::Skipped(why);
            return;
        }
        let (mut tree, settings, invocation) = match self.parse(&source) {
            Ok(both) => both,
            Err(diags) => return self.add_diagnostics(diags),
        };
        if let Some(checked) = self.check(&mut tree, settings.clone(), &invocation) {
            self.check_conditions(&checked.script, settings.missing_probes);
            self.check_loops(&checked.script);
            self.result.uses = uses::uses(&checked.script, self.kernel.sys, &self.sources);
            return self.compile(checked, self.kernel.is_running);
        }
        // an error in one probe does not hide changes that affect the others
        let Some(rest) = self.rest(tree, &Settings { allow_unsafe: true, ..settings }, &invocation) else { return };
        self.result.uses = uses::uses(&rest.script, self.kernel.sys, &self.sources);
        self.compile(rest, false);
        self.result.facts.clear();
    }

    /// The script with its imports, and its settings.
    fn parse(&mut self, source: &Source) -> Result<(ast::Script, Settings, Invocation), Diagnostics> {
        let path = if let Program::File(path) = &self.program { Some(path.clone()) } else { None };
        let tree = syntax::parse(source)?;
        let kernel = self.kernel;
        let headers =
            if kernel.is_running { Headers::of_this_machine(&[]) } else { Headers::of_snapshot(&[], kernel.sys, kernel.scripts.is_none()) };
        let tree = import::resolve(tree, &mut self.sources, path.as_deref(), headers)?;
        let tree = require_probe(tree, source)?;
        let (mut settings, mut invocation) = own_options(source)?;
        if let Some(dir) = path.as_deref().and_then(std::path::Path::parent) {
            invocation.script_dir = dir.to_owned();
        }
        let result = configure(&tree, &mut settings)?;
        self.add_diagnostics(result);
        if settings.missing_probes == MissingProbes::Ignore && self.reports_missing {
            settings.missing_probes = MissingProbes::Warn;
        }
        // --test runs a file of tests only, and --bench one of benchmarks
        let probes = tree.items.iter().filter_map(|item| if let ast::Item::Probe(probe) = item { Some(probe) } else { None });
        let points = probes.flat_map(|p| &p.points).filter_map(|p| p.segments.first());
        let mut modes = points.map(|s| crate::probes::find(&s.text).map_or(Mode::Trace, |kind| kind.mode()));
        if let Some(first) = modes.next()
            && modes.all(|mode| mode == first)
        {
            settings.mode = first;
            self.only_run_by_flag(first);
        }
        Ok((tree, settings, invocation))
    }

    /// Records that a run without a flag attaches nothing.
    fn only_run_by_flag(&mut self, mode: Mode) {
        let (what, flag) = match mode {
            Mode::Trace | Mode::List => return,
            Mode::Test => ("tests", "--test"),
            Mode::Bench => ("benchmarks", "--bench"),
        };
        let message = format!("the script has only {what}");
        let help = Some(format!("`{flag}` runs them"));
        self.result.findings.push(Finding { rule: "only-tests", level: Level::Note, message, location: None, related: Vec::new(), help });
    }

    /// Does the description of the kernel contain everything that this script needs?
    fn is_described(&self) -> bool {
        self.kernel.scripts.is_none_or(|those| those.contains(&script_digest(&self.sources)))
    }

    /// Are there findings other than notes?
    fn has_findings(&self) -> bool {
        self.result.findings.iter().any(|f| f.level > Level::Note)
    }

    /// If the kernel was described for other scripts, a missing fact is unknown.
    fn demote_undescribed(&mut self) {
        if self.is_described() {
            return;
        }
        // a function of the script has the same code as a missing function of the kernel
        let of_script = |f: &Finding| match f.rule {
            "unknown-function" => !f.location.as_ref().is_some_and(is_at_attach_point),
            // a script without any probe is reported at its end
            "no-probes" => f.location.is_some(),
            _ => false,
        };
        // a note reports a probe that may be missing; without it, the rest of the script may seem wrong
        let level = if self.has_findings() { Level::Note } else { Level::Warning };
        let absent = |f: &Finding| f.level >= level && compare::is_absence(f.rule) && !of_script(f);
        let (open, reported) = std::mem::take(&mut self.result.findings).into_iter().partition(absent);
        self.result.findings = reported;
        let open: Vec<Finding> = open;
        if let (Some(first), State::Checked) = (open.first(), &self.result.state) {
            let at = first.location.as_ref().map_or(String::new(), |p| format!("{}:{}:{}: ", p.file, p.line, p.column));
            self.result.state = State::Unknown(format!(
                "the snapshot was made for other scripts or an older version of this one, and lacks something: {at}{}; \
                 create it again for this script: `rbt snapshot --for SCRIPTS`",
                first.message
            ));
        }
    }

    /// The checked script, without those missing attach points that may be missing.
    fn check(&mut self, tree: &mut ast::Script, mut settings: Settings, invocation: &Invocation) -> Option<Checked> {
        match from_environment(&mut settings) {
            Ok(said) => self.result.facts.extend(said.into_iter().map(|s| ("environment".to_string(), s))),
            Err(failure) => {
                self.result.state = State::Unknown(failure.message);
                return None;
            }
        }
        let has_options = matches!(self.program, Program::Tool(_)) || !sema::options(tree).is_empty();
        loop {
            let (checked, mut diags) =
                match frontend::check(tree, self.kernel.sys, settings.clone(), invocation.clone(), Diagnostics::default()) {
                    Ok(checked) => {
                        let warnings = checked.warnings.clone();
                        (Some(checked), warnings)
                    }
                    Err(diags) => (None, diags),
                };
            diags.0.retain(|d| match depends_on(d.code) {
                DependsOn::Arguments => false,
                DependsOn::Options => !has_options,
                DependsOn::Nothing | DependsOn::Permission | DependsOn::Machine | DependsOn::CallableFunctions => true,
            });
            let forbidden = |d: &Diagnostic| depends_on(d.code) == DependsOn::Permission;
            if !settings.allow_unsafe && diags.0.iter().any(forbidden) {
                diags.0.retain(forbidden);
                for d in diags.0 {
                    let help = Some("run it with --unsafe; its first line may say so: #!/usr/bin/env -S rbt --unsafe".into());
                    let note = Finding { level: Level::Note, help, ..self.finding(d) };
                    self.result.findings.push(note);
                }
                settings.allow_unsafe = true;
                continue;
            }
            let lacked = self.remove_lacking(tree, &mut diags);
            if checked.is_some() || lacked.is_empty() {
                self.add_diagnostics(diags);
                return checked;
            }
            retain_points(tree, |p| !lacked.contains(&p.span));
            if !tree.items.iter().any(|i| matches!(i, ast::Item::Probe(_))) {
                return None;
            }
        }
    }

    /// Records a loop that may have more iterations than a kernel without `bpf_loop` follows.
    fn check_loops(&mut self, script: &hir::Script) {
        if self.kernel.sys.has(Feature::Loop) {
            return;
        }
        let mut first = None;
        for body in script.probes.iter().flat_map(|p| std::iter::once(&p.body).chain(p.functions.iter().map(|f| &f.body))) {
            hir::visit_within(body, &mut |node, context| {
                if let hir::Node::Stmt(stmt) = node
                    && context.loops == 0
                    && let Some(limit) = walked::limited(stmt)
                {
                    first = first.or(Some((stmt.span, limit)));
                }
            });
        }
        if let Some((span, limit)) = first {
            let message =
                format!("on this kernel, this loop and those in it stop after {limit} iterations each, or are too complex to load");
            let (place, help) = (source_location(span, &self.sources), remedy("loop-limit").map(str::to_owned));
            self.result.findings.push(Finding {
                rule: "loop-limit",
                level: Level::Note,
                message,
                location: place,
                related: Vec::new(),
                help,
            });
        }
    }

    /// Records the conditions, besides the script, for attaching the probes.
    fn check_conditions(&mut self, script: &hir::Script, missing: MissingProbes) {
        let level = match missing {
            MissingProbes::Error => Level::Error,
            MissingProbes::Warn => Level::Warning,
            MissingProbes::Ignore => Level::Note,
        };
        for site in script.probes.iter().flat_map(|p| &p.sites) {
            let finding = |rule, level, message, help| Finding {
                rule,
                level,
                message,
                location: source_location(site.span, &self.sources),
                related: Vec::new(),
                help,
            };
            let (sys, name) = (self.kernel.sys, &site.name);
            let foreign = site.attach.binary().filter(|path| sys.arch_of_binary(path).name != sys.arch().name);
            let finding = if let Some(path) = foreign {
                let (of_file, of_kernel) = (sys.arch_of_binary(path).name, sys.arch().name);
                let message = format!("{} is a program for {of_file}; the kernel runs those for {of_kernel}", path.display());
                finding("other-machine", Level::Note, message, remedy("other-machine").map(str::to_owned))
            } else if let Some((rule, message, help)) = unknown_condition(&site.attach, sys) {
                finding(rule, Level::Note, message, Some(help.into()))
            } else if let Attach::Perf { ty, config, period, .. } = &site.attach {
                let counted = sys.counts(*ty, *config);
                let (max, setting) = match sys.most_samples() {
                    Some(max) => (max, "this machine's limit"),
                    None => (DEFAULT_MAX_SAMPLES, "the kernel's default limit"),
                };
                match (*period, counted) {
                    (_, Some(false)) => finding("not-counted", level, format!("this machine does not count {name}"), None),
                    (SamplePeriod::Frequency(rate), _) if rate > max => {
                        let message = format!("{name} exceeds {setting}, kernel.perf_event_max_sample_rate = {max}");
                        finding("rate-too-high", level, message, remedy("rate-too-high").map(str::to_owned))
                    }
                    (_, None) if site.attach.is_hardware_counter() => {
                        let message = format!("not every machine counts {name}; virtual machines often do not");
                        finding("not-counted", Level::Note, message, None)
                    }
                    _ => continue,
                }
            } else {
                continue;
            };
            if !self.result.findings.iter().any(|f| (f.rule, &f.location) == (finding.rule, &finding.location)) {
                self.result.findings.push(finding);
            }
        }
    }

    /// The script without invalid probes; none if no probe remains, or if the error is not in a probe.
    fn rest(&self, mut tree: ast::Script, settings: &Settings, invocation: &Invocation) -> Option<Checked> {
        loop {
            let diags = match frontend::check(&tree, self.kernel.sys, settings.clone(), invocation.clone(), Diagnostics::default()) {
                Ok(checked) => return Some(checked),
                Err(diags) => diags,
            };
            let wrong: Vec<Span> = diags.0.iter().filter(|d| d.severity == Severity::Error).map(|d| d.span).collect();
            let left = |p: &ast::Probe| {
                let elsewhere = |span: &&Span| is_inside(**span, p.span) && !p.points.iter().any(|point| is_inside(**span, point.span));
                !p.points.is_empty() && !wrong.iter().any(|span| elsewhere(&span))
            };
            let points = |tree: &ast::Script| -> usize {
                tree.items.iter().map(|i| if let ast::Item::Probe(p) = i { p.points.len() } else { 0 }).sum()
            };
            let before = points(&tree);
            tree.items.retain(|i| if let ast::Item::Probe(p) = i { left(p) } else { true });
            retain_points(&mut tree, |point| !wrong.iter().any(|span| is_inside(*span, point.span)));
            let after = points(&tree);
            if after == 0 || after == before {
                return None;
            }
        }
    }

    /// Moves diagnostics about optional probes out of `diags`, and records them. Returns the missing attach points.
    fn remove_lacking(&mut self, tree: &ast::Script, diags: &mut Diagnostics) -> Vec<Span> {
        let probes = tree.items.iter().filter_map(|i| if let ast::Item::Probe(p) = i { Some(p) } else { None });
        let points: Vec<(Span, String)> = probes.flat_map(|p| &p.points).map(|p| (p.span, point_text(p))).collect();
        let mut lacked = Vec::new();
        let mut kept = Vec::new();
        for d in std::mem::take(&mut diags.0) {
            let point = points.iter().find(|(span, _)| is_inside(d.span, *span));
            let optional = |text: &str| self.result.exceptions.may_lack(text);
            match point.filter(|(_, text)| optional(text) || has_parameter(text)) {
                // an attach point that depends on the arguments of a run
                Some((span, text)) if !optional(text) => {
                    if d.severity == Severity::Error {
                        lacked.push(*span);
                    }
                    let note = Finding {
                        level: Level::Note,
                        message: format!("`{text}` depends on parameters of the run, so it is not checked"),
                        help: Some("use `getopt` with a default, which is checked".into()),
                        ..self.finding(d)
                    };
                    self.result.findings.push(note);
                }
                Some((span, _)) => {
                    if d.severity == Severity::Error {
                        lacked.push(*span);
                    }
                    let mut finding = self.finding(d);
                    finding.level = Level::Note;
                    finding.message += "; the probe is optional";
                    self.result.findings.push(finding);
                }
                None => kept.push(d),
            }
        }
        diags.0 = kept;
        lacked
    }

    /// Compiles the script, and examines the object.
    fn compile(&mut self, checked: Checked, load: bool) {
        let mut checked = checked;
        let sys = self.kernel.sys;
        if !sys.has(Feature::Trampoline) {
            checked.settings.no_features.push(Mechanism::Fentry);
        }
        loop {
            let Checked { script, settings, .. } = &checked;
            let env = checked.env(sys);
            let lowered = codegen::lower(script.clone(), &env);
            let compiled = match codegen::compile(&lowered, &env, &self.sources, Dumps::default()) {
                Ok(compiled) => compiled,
                Err(e) => {
                    let diags = not_compiled(&e, &self.sources);
                    return self.add_diagnostics(diags);
                }
            };
            if load && let Err(e) = runtime::try_load(&compiled.artifact, &env) {
                // the kernel rejects a mechanism that rbt chose: compile without it, as a run does
                let without = refused_mechanisms(&e, &compiled.artifact, script, settings, sys);
                if !without.is_empty() {
                    checked.settings.no_features.extend(without);
                    continue;
                }
                self.compare_needs(&compiled, script, settings);
                return self.report_refusal(&e);
            } else if load {
                self.result.facts.push(("verifier".into(), "loads".into()));
            }
            return self.compare_needs(&compiled, script, settings);
        }
    }

    /// Records why the running kernel rejects the script.
    fn report_refusal(&mut self, error: &anyhow::Error) {
        let (rule, message, pos, help) = if let Some(refused) = error.downcast_ref::<VerifierError>() {
            let bug = "if the script does not do this, it is a bug in rbt: please report it with the script".to_string();
            (refused.code(), refused.message(), refused.pos.clone(), refused.suggestion.clone().unwrap_or(bug))
        } else if let Some(failed) = error.downcast_ref::<AttachFailed>() {
            let help = "with `config = { missing_probes = warn; }` the other probes are attached".to_string();
            ("attach", format!("{} cannot be loaded: {}", failed.probe, failed.reason), Some(failed.pos.clone()), help)
        } else {
            // a known missing feature is a sufficient reason
            if self.result.findings.iter().all(|f| f.level < Level::Error) {
                self.result.state = State::Unknown(format!("{error:#}"));
            }
            return;
        };
        let span = pos.map(|pos| explain::line_span(&pos, &self.sources));
        let place = span.and_then(|span| source_location(span, &self.sources));
        self.result.findings.push(Finding { rule, level: Level::Error, message, location: place, related: Vec::new(), help: Some(help) });
    }

    /// Compares the needs of the object with the kernel.
    fn compare_needs(&mut self, compiled: &Compiled, script: &hir::Script, settings: &Settings) {
        let needs::Unmet { lacks, facts } = needs::unmet_needs(&compiled.artifact, settings, self.kernel.sys);
        for lack in lacks {
            let level = verdict::rule(lack.rule).map_or(Level::Error, |r| r.level);
            let sites = || script.probes.iter().flat_map(|p| &p.sites);
            let site = lack.site.and_then(|name| sites().find(|s| s.name == name));
            let place = site.and_then(|s| source_location(s.span, &self.sources));
            let help = lack.help.or_else(|| remedy(lack.rule).map(str::to_owned));
            let message = lack.message;
            self.result.findings.push(Finding { rule: lack.rule, level, message, location: place, related: Vec::new(), help });
        }
        self.result.facts.extend(facts);
    }

    fn add_diagnostics(&mut self, diags: Diagnostics) {
        for d in diags.brief().0 {
            // what the kernel's description does not contain is not the script's fault; a missing binary is
            if d.code == "unavailable" && !self.in_binary(d.span) {
                let why = d.help.as_ref().map_or(d.message.clone(), |help| format!("{}; {help}", d.message));
                self.result.state = State::Unknown(without_os_error(&why));
            } else if depends_on(d.code) == DependsOn::CallableFunctions && !self.kernel.knows_callable {
                let mut note = Finding { level: Level::Note, ..self.finding(d) };
                note.message += "; only a running kernel can tell";
                self.result.findings.push(note);
            } else if depends_on(d.code) == DependsOn::Machine {
                let note = Finding { level: Level::Note, ..self.finding(d) };
                self.result.findings.push(note);
            } else {
                self.add_diagnostic(d);
            }
        }
    }

    fn add_diagnostic(&mut self, d: Diagnostic) {
        let finding = self.finding(d);
        if !self.result.findings.contains(&finding) {
            self.result.findings.push(finding);
        }
    }

    fn finding(&self, d: Diagnostic) -> Finding {
        let level = if d.severity == Severity::Error { Level::Error } else { Level::Warning };
        let general = (level == Level::Error).then(|| remedy(d.code)).flatten().map(str::to_owned);
        Finding {
            rule: d.code,
            level,
            message: d.message,
            location: source_location(d.span, &self.sources),
            related: d.related.into_iter().filter_map(|(span, text)| Some((source_location(span, &self.sources)?, text))).collect(),
            help: d.help.or(general),
        }
    }

    /// Is this an attach point in a binary?
    fn in_binary(&self, span: Span) -> bool {
        let text = self.sources.get(usize::from(span.source)).and_then(|s| s.text.get(span.start as usize..span.end as usize));
        let kind = text.and_then(|t| probes::find(t.split(':').next()?));
        kind.is_some_and(|k| k.offers().contains(ContextFeatures::BINARY))
    }
}

/// Settings and facts by the options of the script's first line: `#!/usr/bin/env -S rbt --unsafe`.
fn own_options(source: &Source) -> Result<(Settings, Invocation), Diagnostics> {
    let Some(line) = source.text.strip_prefix("#!").and_then(|t| t.lines().next()) else { return Ok(Default::default()) };
    let words = shlex::split(line).unwrap_or_default();
    let ours = |w: &String| matches!(w.rsplit('/').next(), Some("rbt" | "bpftrace"));
    let Some(at) = words.iter().position(ours) else { return Ok(Default::default()) };
    let options = words.get(at + 1..).unwrap_or_default().iter().cloned().chain(["--".to_string(), source.name.clone()]);
    match cli::parse(["rbt".to_string()].into_iter().chain(options).map(Into::into)) {
        Ok(Command::Run(run)) => {
            let invocation = Invocation { params: Vec::new(), options: Vec::new(), ..run.invocation };
            Ok((run.settings, invocation))
        }
        Ok(_) => Ok(Default::default()),
        Err(failure) => {
            let message = failure.message.lines().next().unwrap_or_default();
            let d =
                Diagnostic::error("bad-first-line", Span { source: 0, start: 0, end: line.len() as u32 + 2, ..Span::default() }, message);
            Err(failure.help.map_or(d.clone(), |help| d.help(help)).into())
        }
    }
}

/// Is this an attach point?
fn is_at_attach_point(place: &SourceLocation) -> bool {
    let text: String = place.text.chars().skip(place.column.saturating_sub(1) as usize).collect();
    text.split_once(':').is_some_and(|(kind, _)| probes::find(kind).is_some())
}

/// Removes attach points from a script, and probes that have none left.
fn retain_points(tree: &mut ast::Script, keep: impl Fn(&ast::AttachPoint) -> bool) {
    tree.items.retain_mut(|item| {
        let ast::Item::Probe(probe) = item else { return true };
        probe.points.retain(&keep);
        !probe.points.is_empty()
    });
}

fn is_inside(inner: Span, outer: Span) -> bool {
    inner.source == outer.source && inner.start >= outer.start && inner.end <= outer.end
}

/// A condition for the existence of a probe that the kernel's description does not settle: the finding's code, its
/// text, and the remedy.
pub(super) fn unknown_condition(attach: &Attach, sys: &dyn TargetInfo) -> Option<(&'static str, String, &'static str)> {
    let module = match attach {
        Attach::Kprobe { module: Some(module), .. } | Attach::Trampoline { module, .. } => module,
        // the events of a module usually have its name
        Attach::Tracepoint { category, .. } => category,
        Attach::Kprobe { module: None, function, offset, .. } => {
            let unknown =
                *offset != 0 && !function.is_empty() && sys.kernel_place(KERNEL, function, *offset) == Ok(InstructionBoundary::Unknown);
            let message = format!("cannot determine whether an instruction of `{function}` starts at offset {offset}");
            return unknown.then_some(("bad-offset", message, "the kernel rejects a probe within an instruction"));
        }
        Attach::Begin
        | Attach::End
        | Attach::Signal
        | Attach::Test { .. }
        | Attach::RawTracepoint { .. }
        | Attach::Syscall { .. }
        | Attach::Uprobe { .. }
        | Attach::Iter { .. }
        | Attach::Usdt { .. }
        | Attach::Perf { .. }
        | Attach::Breakpoint { .. } => return None,
    };
    let message = format!("`{module}` is a module: the probe exists only while it is loaded");
    sys.loads_on_demand(module).then_some(("unknown-module", message, "`modprobe` loads it"))
}

/// Is there a positional parameter in an attach point?
fn has_parameter(point: &str) -> bool {
    let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    point.split('$').skip(1).any(digit)
}

/// An attach point as written.
fn point_text(point: &ast::AttachPoint) -> String {
    point.segments.iter().map(|s| s.text.as_str()).collect::<Vec<_>>().join(":")
}
