//! Checks a script against a kernel: [`ast`] to [`hir`].
//!
//! A body is checked once for each distinct context among its sites. Types of variables and maps come from all of their uses:
//! passes over all bodies repeat until one finds nothing new, and the result of that pass counts. The codes of its errors and
//! warnings are rows of [`crate::diag::codes`].

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

mod access;
mod args;
mod body;
mod call_depth;
mod calls;
mod convert;
pub mod dump;
mod expr;
mod fold;
mod foreign;
mod format;
mod functions;
pub mod hir;
mod hot;
mod macros;
mod map_size;
mod maps;
mod ops;
mod options;
mod probes;
mod stmt;
mod types;
mod uses;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use crate::builtins::{self, Builtin};
use crate::cdecl;
use crate::diag::{Diagnostic, Diagnostics, Severity, Span};
use crate::linked;
use crate::probes::{Attach, Env, KINDS, ProbeKind, Shared, shared};
use crate::settings::{Invocation, Settings};
use crate::syntax::ast;
use crate::system::{Feature, SHORT_KEY, TargetInfo};
use crate::types::Type;
pub use maps::EARLIER;
pub use options::options;

use body::{BodyChecker, Checked, State};
use maps::{Declared, Maps};
use probes::Job;

/// Checks a script, and returns it with warnings.
///
/// # Errors
/// All errors and warnings, in order of place.
pub fn check(script: &ast::Script, env: &Env) -> Result<(hir::Script, Diagnostics), Diagnostics> {
    check_with(script, env, &Tables::REAL, &[])
}

/// Like [`check`], for a script that finds these maps when it starts. It may use them without assigning them, and
/// cannot change their types. The maps that the script uses are part of the result.
///
/// # Errors
/// As for [`check`]. The span of such a map's first use is in the source [`EARLIER`].
pub fn check_with_maps(script: &ast::Script, env: &Env, given: &[hir::Map]) -> Result<(hir::Script, Diagnostics), Diagnostics> {
    check_with(script, env, &Tables::REAL, given)
}

/// The tables that the checker uses: the real ones, or those of a test.
pub struct Tables {
    row: fn(&str) -> Option<&'static Builtin>,
    rows: fn() -> Vec<&'static Builtin>,
    kind: fn(&str) -> Option<&'static dyn ProbeKind>,
    kinds: fn() -> Vec<&'static dyn ProbeKind>,
}

impl Tables {
    const REAL: Tables =
        Tables { row: builtins::find, rows: || builtins::all().collect(), kind: crate::probes::find, kinds: || KINDS.to_vec() };
}

/// The context that the check of a whole script shares.
pub(crate) struct CheckContext<'a> {
    sys: &'a dyn TargetInfo,
    settings: &'a Settings,
    invocation: &'a Invocation,
    tables: &'a Tables,
    /// The script's macros.
    macros: Vec<&'a ast::Macro>,
    /// The script's functions.
    functions: Vec<&'a ast::Function>,
    /// The functions of imported objects.
    foreign: Vec<&'a linked::Function>,
    /// The macros of builtins.
    library: &'a [ast::Macro],
    /// The C part's `#define`s that are expressions.
    defines: Vec<&'a ast::Macro>,
    /// A body is too large to check, which was reported.
    exhausted: Cell<bool>,
    /// The numbers of the uses of the script's macros: see [`hir::Script::macro_uses`].
    macro_uses: RefCell<BTreeMap<Span, u16>>,
}

impl CheckContext<'_> {
    /// The script's function of this name: its index.
    fn function(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|f| f.name.name == name)
    }

    /// The number of a use of a macro; 0 if there are too many.
    fn macro_use(&self, at: Span) -> u16 {
        let mut uses = self.macro_uses.borrow_mut();
        let next = u16::try_from(uses.len() + 1).unwrap_or(0);
        if next == 0 { uses.get(&at).copied().unwrap_or(0) } else { *uses.entry(at).or_insert(next) }
    }

    /// All uses, by number.
    fn macro_uses(&self) -> Vec<Span> {
        let mut uses: Vec<(u16, Span)> = self.macro_uses.borrow().iter().map(|(at, number)| (*number, *at)).collect();
        uses.sort_unstable();
        uses.into_iter().map(|(_, at)| at).collect()
    }
}

/// Number of passes, in addition to one for each name, after which types may only grow.
const UNRESTRICTED_PASSES: usize = 10;
/// Maximum number of passes in addition to one for each name: a pass may find the type of only one more.
const MAX_PASSES: usize = 50;
/// The nesting from which on a type may contain itself, so that it grows in each pass.
const DEEP: usize = 10;

fn check_with(script: &ast::Script, env: &Env, tables: &Tables, given: &[hir::Map]) -> Result<(hir::Script, Diagnostics), Diagnostics> {
    let Env { sys, settings, invocation } = *env;
    let mut diags = Vec::new();
    let (macros, functions) = collect_own(script, &mut diags);
    let declared = cdecl::has_c_part(script, settings).then(|| cdecl::read(script, env)).map(|(declared, found)| {
        diags.extend(found);
        if settings.verbose {
            diags.extend(declared.notes().into_iter().map(|(span, note)| Diagnostic::warning("c-include", span, note)));
        }
        declared
    });
    let sys = declared.as_ref().map_or(sys, |d| d as &dyn TargetInfo);
    let env = Env { sys, ..*env };
    let counts = |m: &&ast::Macro| declared.as_ref().is_some_and(|d| d.is_active(&m.name.name, m.span));
    let defines = script.c_part.iter().filter_map(|c| c.define.as_ref()).filter(counts).collect();
    let check_cx = CheckContext {
        sys,
        settings,
        invocation,
        tables,
        macros,
        foreign: script.objects.iter().flat_map(|(object, _)| &object.functions).collect(),
        library: &script.library,
        functions,
        defines,
        exhausted: Cell::new(false),
        macro_uses: RefCell::default(),
    };
    let mut maps = Maps::new(declarations(script, &check_cx, &mut diags), given, invocation);
    let jobs = probes::expand(script, &check_cx, &env, tables, &mut diags);
    let incomplete = failed(&diags);

    let Inferred { states, unused, mut results, diags: mut unused_diags } = infer(&check_cx, &mut maps, &jobs, &mut diags)?;
    let mut probes = Vec::new();
    diags.append(&mut unused_diags);
    let all: Vec<&State> = states.iter().flatten().chain(&unused).collect();
    functions::recursion(&check_cx, &all, &mut diags);
    for (job, bodies) in jobs.iter().zip(&mut results) {
        for body in bodies.iter_mut() {
            diags.append(&mut body.diags);
        }
        circular(job, bodies, &mut diags);
        if !job.is_excluded {
            merge_sites(job, bodies, &env, &mut probes);
        }
    }
    if !failed(&diags) {
        diags.extend(probes.iter().filter_map(call_depth::check));
        diags.extend(probes.iter().filter_map(|probe| hot::check(probe, &env)));
    }
    last_imported_last(&mut probes);
    let mut uses: Vec<_> = results.iter_mut().flatten().flat_map(|b| std::mem::take(&mut b.options)).collect();
    options::check_declarations(&mut uses, script, invocation, &mut diags);
    let map_table = maps.finish(settings, |name| uses::mentions_map(&check_cx, script, name), &mut diags);
    if sys.has(Feature::ShortKeys) {
        diags.extend(map_table.iter().filter_map(key_too_long));
    }
    // a missing probe may be the one that assigns them
    diags.retain(|d| !incomplete || d.code != "undefined-map");
    let diags = tidy(root_causes(diags));
    if diags.failed() {
        Err(diags)
    } else {
        Ok((hir::Script { maps: map_table, probes, macro_uses: check_cx.macro_uses(), objects: script.objects.clone() }, diags))
    }
}

/// The result of [`infer`].
struct Inferred {
    /// What each context of each job knows of its variables.
    states: Vec<Vec<State>>,
    /// The same of functions that nothing calls.
    unused: Vec<State>,
    /// The bodies of each job.
    results: Vec<Vec<Checked>>,
    /// Of functions that nothing calls.
    diags: Vec<Diagnostic>,
}

/// Checks all bodies until the types of variables and maps no longer change.
fn infer(check_cx: &CheckContext, maps: &mut Maps, jobs: &[Job], diags: &mut Vec<Diagnostic>) -> Result<Inferred, Diagnostics> {
    let mut states: Vec<Vec<State>> = jobs.iter().map(|j| vec![State::default(); j.contexts.len()]).collect();
    let mut unused = vec![State::default(); check_cx.functions.len()];
    let (mut passes, mut names, mut is_deep) = (0, 0, false);
    loop {
        maps.start_pass(passes > UNRESTRICTED_PASSES + if is_deep { 0 } else { names });
        passes += 1;
        let mut changed = false;
        let mut results = Vec::new();
        for (job, states) in jobs.iter().zip(&mut states) {
            let mut bodies = Vec::new();
            for ((first, context), state) in job.contexts.iter().zip(states) {
                let Some(site) = job.sites.get(*first) else { continue };
                let checked = BodyChecker::check(check_cx, maps, site, context, state, job.probe);
                if *state != checked.state {
                    changed = true;
                    state.clone_from(&checked.state);
                }
                bodies.push(checked);
            }
            results.push(bodies);
        }
        let (mut found, more) = functions::check_unused(check_cx, maps, jobs, &mut unused, &results);
        changed |= more;
        changed |= maps.end_pass();
        if check_cx.exhausted.get() {
            diags.extend(results.iter_mut().flatten().flat_map(|b| std::mem::take(&mut b.diags)));
            diags.append(&mut found);
            diags.retain(|d| d.code == "too-large");
            return Err(tidy(std::mem::take(diags)));
        }
        names = states.iter().flatten().map(|state| state.vars.len()).sum::<usize>() + maps.count();
        is_deep = maps.inferred().any(|found| found.ty.nesting() > DEEP);
        let is_last = passes >= MAX_PASSES + if is_deep { 0 } else { names };
        if changed && is_last {
            let message = "the type of a variable or map grows with each use";
            diags.push(Diagnostic::error("type-conflict", Span::default(), message).help("a tuple may not contain itself"));
        }
        if !changed || is_last {
            return Ok(Inferred { states, unused, results, diags: found });
        }
    }
}

/// An error for kernels that do not support keys of this length.
fn key_too_long(map: &hir::Map) -> Option<Diagnostic> {
    let size = map.key.as_ref().map_or(0, Type::size);
    let message = format!("the key of `{}` has {size} bytes; this kernel accepts at most {SHORT_KEY}", map.name);
    let help = "use str() with a length, or lower the setting max_strlen (Linux 5.11 accepts longer keys)";
    (size > SHORT_KEY).then(|| Diagnostic::error("key-too-long", map.span, message).help(help))
}

/// Imported probes precede those of the importing script, except for `end` probes, so that a script can use what it imports
/// to the end.
fn last_imported_last(probes: &mut Vec<hir::Probe>) {
    let is_end = |p: &hir::Probe| p.sites.iter().any(|s| matches!(s.attach, Attach::End));
    let (ends, mut rest): (Vec<hir::Probe>, Vec<hir::Probe>) = std::mem::take(probes).into_iter().partition(is_end);
    let mut by_source: Vec<Vec<hir::Probe>> = Vec::new();
    for p in ends {
        match by_source.last_mut().filter(|group| group.last().is_some_and(|l| l.span.source == p.span.source)) {
            Some(group) => group.push(p),
            None => by_source.push(vec![p]),
        }
    }
    rest.extend(by_source.into_iter().rev().flatten());
    *probes = rest;
}

/// Reports variables that are assigned only from themselves (`let $x; $x = $x;`), if there are no other errors.
fn circular(job: &Job, bodies: &[Checked], diags: &mut Vec<Diagnostic>) {
    let unknown = bodies.iter().flat_map(|b| &b.state.vars).find(|v| v.set && v.declared.is_none() && v.inferred.ty == Type::Void);
    if let (Some(v), false) = (unknown, failed(diags)) {
        let message = format!("`{}` is assigned from itself only: it has no type", v.name);
        diags.push(Diagnostic::error("undefined-variable", job.probe.span, message));
    }
}

fn failed(diags: &[Diagnostic]) -> bool {
    diags.iter().any(|d| d.severity == Severity::Error)
}

/// Codes of errors that may cause others: mismatches of requests and the script, and the script's own assertions.
pub const ROOT_CAUSE_CODES: &[&str] = &["unknown-option", "bad-option", "assertion"];

/// Keeps only decisive errors, if there are any, and each once: code that they exclude defines maps and variables that the
/// rest then lacks.
fn root_causes(mut diags: Vec<Diagnostic>) -> Vec<Diagnostic> {
    if diags.iter().any(|d| ROOT_CAUSE_CODES.contains(&d.code)) {
        let mut seen: Vec<(&str, String)> = Vec::new();
        diags.retain(|d| {
            let new = ROOT_CAUSE_CODES.contains(&d.code) && !seen.iter().any(|(code, text)| *code == d.code && *text == d.message);
            seen.extend(new.then(|| (d.code, d.message.clone())));
            new
        });
    }
    diags
}

/// Sorts diagnostics by severity and place, and removes duplicates that several sites cause.
fn tidy(mut diags: Vec<Diagnostic>) -> Diagnostics {
    diags.sort_by_key(|d| (d.severity == Severity::Warning, d.span.source, d.span.start));
    let mut kept: Vec<Diagnostic> = Vec::new();
    let mut others: Vec<usize> = Vec::new();
    for d in diags {
        let duplicate = kept.iter().position(|k| d.span != Span::default() && k.code == d.code && k.span == d.span);
        match duplicate {
            // The message names another site.
            Some(i) => others[i] += usize::from(kept[i].message != d.message),
            None => {
                kept.push(d);
                others.push(0);
            }
        }
    }
    for (d, n) in kept.iter_mut().zip(others).filter(|(d, n)| *n > 0 && d.help.is_none()) {
        d.help = Some(format!("the same applies to {n} more of these probes"));
    }
    Diagnostics(kept)
}

/// Merges the programs of sites with equal bodies, if the mechanism can distinguish the sites.
fn merge_sites(job: &Job, bodies: &[Checked], env: &Env, probes: &mut Vec<hir::Probe>) {
    // The new probes by their body and other common properties of their sites.
    let mut homes: HashMap<(usize, Shared), usize> = HashMap::new();
    // The first body that equals each body.
    let mut canonical: Vec<usize> = Vec::with_capacity(bodies.len());
    // Code generation reads numbers that serve as addresses in the context's address space, which must be the same.
    let space = |i: usize| job.contexts.get(i).map(|(_, c)| c.space);
    for (i, b) in bodies.iter().enumerate() {
        let same = |j: usize| {
            space(i) == space(j) && bodies.get(j).is_some_and(|a| a.body == b.body && a.vars == b.vars && a.functions == b.functions)
        };
        let equal = canonical.iter().copied().find(|&j| same(j));
        canonical.push(equal.unwrap_or(i));
    }
    for (site, context) in job.sites.iter().zip(&job.context_of) {
        let Some(&which) = canonical.get(*context) else { continue };
        let Some(checked) = bodies.get(which) else { continue };
        let shared = shared(site, env).map(|with| (which, with));
        let home = shared.as_ref().and_then(|s| homes.get(s));
        match home.and_then(|at| probes.get_mut(*at)) {
            Some(p) => p.sites.push(site.clone()),
            None => {
                let vars = checked.vars.iter().cloned().map(with_some_type).collect();
                let functions = checked
                    .functions
                    .iter()
                    .cloned()
                    .map(|f| hir::Function { vars: f.vars.into_iter().map(with_some_type).collect(), ..f });
                probes.push(hir::Probe {
                    sites: vec![site.clone()],
                    vars,
                    body: checked.body.clone(),
                    functions: functions.collect(),
                    span: job.probe.span,
                    points: job.points.clone(),
                    lowered: None,
                    why: "".into(),
                });
                homes.extend(shared.map(|s| (s, probes.len() - 1)));
            }
        }
    }
}

/// A variable that is declared and never assigned is an integer.
fn with_some_type(v: hir::Var) -> hir::Var {
    if v.ty == Type::Void { hir::Var { ty: Type::I64, ..v } } else { v }
}

/// The script's own macros and functions; reports those that cannot be used yet.
fn collect_own<'a>(script: &'a ast::Script, diags: &mut Vec<Diagnostic>) -> (Vec<&'a ast::Macro>, Vec<&'a ast::Function>) {
    let mut not_yet = |span, what: &str| diags.push(Diagnostic::error("unsupported", span, format!("{what} is not supported yet")));
    for (_, span) in &script.imports {
        not_yet(*span, "`import`");
    }
    let (mut macros, mut functions) = (Vec::new(), Vec::new());
    for item in &script.items {
        match item {
            ast::Item::Macro(m) => macros.push(m),
            ast::Item::Function(f) => functions.push(f),
            ast::Item::Probe(_) | ast::Item::MapDecl(_) => {}
        }
    }
    macros::duplicates(&macros, diags);
    functions::duplicates(&functions, diags);
    foreign::duplicates(script, &macros, &functions, diags);
    (macros, functions)
}

/// `let @m = kind(entries);`
fn declarations(script: &ast::Script, check_cx: &CheckContext, diags: &mut Vec<Diagnostic>) -> BTreeMap<String, Declared> {
    const KINDS: &[(&str, bool, bool)] =
        &[("hash", false, false), ("lruhash", true, false), ("percpuhash", false, true), ("percpulruhash", true, true)];
    let mut declared: BTreeMap<String, Declared> = BTreeMap::new();
    for item in &script.items {
        let ast::Item::MapDecl(d) = item else { continue };
        let Some((_, lru, percpu)) = KINDS.iter().find(|(n, ..)| *n == d.kind.name) else {
            let message = format!("there is no map kind `{}`", d.kind.name);
            let diag = Diagnostic::error("map-kind", d.kind.span, message).suggest(&d.kind.name, KINDS.iter().map(|(n, ..)| *n));
            diags.push(if diag.help.is_some() { diag } else { diag.help("the kinds are hash, lruhash, percpuhash, percpulruhash") });
            continue;
        };
        let entries = map_size::number(&d.entries, check_cx);
        if entries.is_none() {
            diags.push(Diagnostic::error("not-constant", d.entries.span, "the number of entries must be a positive constant integer"));
        }
        if let Some(first) = declared.get(&d.map.name) {
            let message = format!("`@{}` is already declared", d.map.name);
            diags.push(Diagnostic::error("redeclared", d.map.span, message).related(first.span, "declared here"));
        }
        let entries = entries.unwrap_or(1);
        declared.insert(d.map.name.clone(), Declared { entries, lru: *lru, percpu: *percpu, span: d.span });
    }
    declared
}

#[cfg(test)]
mod tests;
