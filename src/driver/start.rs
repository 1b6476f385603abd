//! The last stages: load, attach and run. Errors of the kernel are explained in terms of the script.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::builtins::{self, MapAction};
use crate::cli::{Program, Run};
use crate::codegen::Compiled;
use crate::diag::{self, Span};
use crate::expect;
use crate::failure::Failure;
use crate::frontend::explain::{REFUSED, explain, refused_mechanisms};
use crate::frontend::{Checked, Frontend};
use crate::launch::expectations::Budget;
use crate::launch::{self, Described, Launch, LaunchInput, RunError, RunResult};
use crate::metrics::{MetricNames, ScriptMap};
use crate::probes::Attach;
use crate::runtime::child::Child;
use crate::sema::hir;
use crate::settings::Mechanism;
use crate::state;
use crate::streams::to_stderr;
use crate::system::TargetInfo;

/// Why nothing ran.
pub(super) enum StartError {
    /// A permanent failure.
    Failed(Failure),
    /// The kernel rejects these mechanisms: compile the script without them.
    AttachRefused(Vec<Mechanism>),
}

/// Loads a compiled script and runs it to its end. The result is the exit status; final maps go to `budget`.
pub(super) fn start(
    launch: &Launch,
    checked: &Checked,
    compiled: &Compiled,
    child: &mut Option<Child>,
    sys: &dyn TargetInfo,
    front: &mut Frontend,
    budget: Option<&Budget>,
) -> Result<u8, StartError> {
    let run = launch.run;
    let given = LaunchInput {
        artifact: &compiled.artifact,
        env: checked.env(sys),
        on_end: budget.map(Budget::on_end),
        on_loaded: &mut || front.clock.stage("load"),
    };
    let ended = launch::start(launch, given, child);
    let ended = ended.map_err(|stopped| match stopped {
        RunError::Failed(failure) => StartError::Failed(failure),
        RunError::Broke(e) => StartError::Failed(explain(&e, 1, compiled, &checked.script, front)),
        RunError::Refused(e) => match refused_mechanisms(&e, &compiled.artifact, &checked.script, &checked.settings, sys) {
            mechanisms if mechanisms.is_empty() => StartError::Failed(explain(&e, REFUSED, compiled, &checked.script, front)),
            mechanisms => {
                if run.verbose {
                    to_stderr(&format!("with the mechanisms in the script: {}\n", diag::plain(&format!("{e:#}"))));
                }
                StartError::AttachRefused(mechanisms)
            }
        },
    })?;
    let RunResult { status, child } = ended;
    front.clock.stage("run");
    if let Some(budget) = budget {
        budget.ran(child);
    }
    Ok(status)
}

/// The maps of a script, for expectations.
pub(super) fn script_maps(script: &hir::Script) -> Vec<expect::ScriptMap> {
    let map = |map: &hir::Map| expect::ScriptMap { name: map.name.clone(), key: map.key.clone(), value: map.value.clone() };
    script.maps.iter().map(map).collect()
}

/// The information about a script, besides its compiled form, that running it needs.
pub(super) fn described(run: &Run, checked: &Checked, front: &Frontend, budget: Option<&Budget>) -> Result<Described, Failure> {
    let first = front.sources.first();
    let metrics = if run.serve.is_some() || run.otlp.is_some() { metric_names(checked, front)? } else { MetricNames::default() };
    Ok(Described {
        name: first.map(|source| source.name.clone()).unwrap_or_default(),
        title: match &run.program {
            Program::Tool(script) => format!("rbt {}", script.name),
            Program::File(path) => format!("rbt {}", path.display()),
            Program::Composed(_) => first.map(|source| source.name.clone()).unwrap_or_default(),
            Program::Text(_) | Program::Stdin => "rbt".into(),
        },
        shown: first.map_or_else(String::new, |source| {
            if source.name == diag::PROGRAM_NAME { first_words(&source.text) } else { source.name.clone() }
        }),
        sha256: digest(front, budget),
        text: first.map(|source| source.text.clone()).unwrap_or_default(),
        hidden: working_maps(&checked.script),
        blocks: if let Program::Tool(_) = run.program { blocks(&checked.script) } else { Vec::new() },
        filters: filters(run, checked),
        metrics,
    })
}

/// The names of the script's metrics.
///
/// # Errors
/// A comment about a metric is wrong.
pub(super) fn metric_names(checked: &Checked, front: &Frontend) -> Result<MetricNames, Failure> {
    let working = working_maps(&checked.script);
    let map = |map: &hir::Map| ScriptMap {
        name: map.name.clone(),
        counts_events: map.value.aggregation().is_some_and(|agg| builtins::counts_events(&agg.function)),
        is_internal: working.contains(&map.name),
    };
    let maps: Vec<ScriptMap> = checked.script.maps.iter().map(map).collect();
    let texts = front.sources.iter().map(|source| source.text.as_str());
    MetricNames::of(texts, &maps).map_err(|wrong| front.wrong(wrong))
}

/// The digest of a script's texts, without those of its expectations.
pub(super) fn digest(front: &Frontend, budget: Option<&Budget>) -> String {
    let mut digest = Sha256::new();
    for (i, source) in front.sources.iter().enumerate() {
        if budget.is_none_or(|budget| !budget.is_from(i)) {
            digest.update(source.text.as_bytes());
        }
    }
    state::hex(&digest.finalize())
}

/// Names of maps that `end` clears without showing them: they are internal to the script.
fn working_maps(script: &hir::Script) -> Vec<String> {
    let (mut shown, mut emptied) = (BTreeSet::new(), BTreeSet::new());
    for probe in script.probes.iter().filter(|p| p.sites.iter().any(|site| matches!(site.attach, Attach::End))) {
        hir::visit(&probe.body, &mut |node| {
            if let hir::Node::Expr(hir::Expr { kind: hir::ExprKind::Call(call), .. }) = node
                && let (Some(action), Some(hir::CallArg::Map(map))) = (builtins::map_action(call.row), call.args.first())
            {
                match action {
                    MapAction::Shown => shown.insert(*map),
                    MapAction::Cleared | MapAction::Zeroed => emptied.insert(*map),
                };
            }
        });
    }
    emptied.difference(&shown).filter_map(|map| script.maps.get(*map)).map(|map| map.name.clone()).collect()
}

/// Maximum length of a script's text that documents show as its name.
const MAX_NAME_LEN: usize = 60;

/// The name of a script without a file.
fn first_words(script: &str) -> String {
    let text = script.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_NAME_LEN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The probes of a script, each as the names of its sites. A probe without a body here is left out: another does its work.
fn blocks(script: &hir::Script) -> Vec<Vec<String>> {
    let mut blocks: Vec<(Span, Vec<String>)> = Vec::new();
    for probe in script.probes.iter().filter(|p| !p.body.is_empty()) {
        let names = probe.sites.iter().map(|s| s.name.clone());
        match blocks.iter_mut().find(|(span, _)| *span == probe.span) {
            Some((_, known)) => known.extend(names),
            None => blocks.push((probe.span, names.collect())),
        }
    }
    blocks.into_iter().map(|(_, names)| names).collect()
}

/// The script's own filters, as the user gave them: those of a tool or a verb. None for other scripts, because only
/// their authors know what they show.
fn filters(run: &Run, checked: &Checked) -> Option<Vec<String>> {
    match &run.program {
        Program::Tool(_) => {
            let option = |(name, value): &(String, Option<String>)| match value {
                Some(value) => format!("--{name} {value}"),
                None => format!("--{name}"),
            };
            Some(checked.invocation.options.iter().map(option).collect())
        }
        Program::Composed(made) => Some(made.condition().map(|text| format!("--if '{text}'")).into_iter().collect()),
        Program::Text(_) | Program::File(_) | Program::Stdin => None,
    }
}
