//! Lowers probes: chooses the cheapest equivalent mechanism, which the probe's kind selects ([`ProbeKind::lower`]).
//!
//! The script sees no difference, and probes on the same target keep their order: all of them are lowered, or none. Whether the
//! kernel accepts the mechanism is known only when the probes are attached; if it does not,
//! [`Program::lowered`](super::artifact::Program::lowered) has the alternative.
//!
//! [`ProbeKind::lower`]: crate::probes::ProbeKind::lower

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant

use std::collections::BTreeSet;

use super::{foreign, latency_pairs};
use crate::builtins;
use crate::probes::{ArgRef, Attach, BodyNeeds, ContextFeatures, Env, Lowering, ProbeSite};
use crate::sema::hir;
use crate::settings::Mechanism;
use crate::system::kernel::trampolines::{self, Refusal};

/// The script with its probes on the cheapest mechanisms.
pub fn lower(mut script: hir::Script, env: &Env) -> hir::Script {
    if env.settings.refuses(Mechanism::Unroll) {
        script.turn_unrolls_into_loops();
    }
    if !script.objects.is_empty() {
        script.probes.iter_mut().for_each(|probe| foreign::pass_context(&mut probe.body));
    }
    let after_entry = latency_pairs::exits(&script, env.invocation);
    let all: Vec<BodyNeeds> =
        script.probes.iter().enumerate().map(|(i, p)| BodyNeeds { only_after_entry: after_entry.contains(&i), ..needs(p) }).collect();
    let mut choices: Vec<Lowering> = script.probes.iter().zip(&all).map(|(p, needs)| choice(p, needs, env)).collect();
    share_raw_tracepoints(&script, &all, &mut choices, env);
    keep_kprobes_near_locks(&script, &mut choices);
    if choices.iter().all(|c| c.lowered.is_none() && c.attaches.is_empty()) {
        script.probes.iter_mut().zip(choices).for_each(|(p, c)| p.why = c.why);
        return script;
    }
    let literal = script.probes.iter().zip(&choices).filter(|(_, c)| c.lowered.is_none());
    let mut kept: BTreeSet<String> = literal.flat_map(|(p, _)| p.sites.iter().filter_map(|s| attach_location(&s.attach))).collect();
    // a trampoline at either end still calls the function
    for probe in script.probes.iter().filter(|p| needs(p).features.contains(ContextFeatures::OVERRIDE)) {
        let functions = probe.sites.iter().filter_map(|s| match &s.attach {
            Attach::Kprobe { function, .. } => Some(function),
            _ => None,
        });
        kept.extend(functions.flat_map(|f| [true, false].map(|ret| at_end(f, ret))));
    }
    let mut lowered = Vec::with_capacity(script.probes.len());
    for (mut probe, choice) in script.probes.drain(..).zip(choices) {
        let in_company = probe.sites.iter().any(|s| attach_location(&s.attach).is_some_and(|place| kept.contains(&place)));
        if in_company && choice.lowered.is_some() {
            probe.why = "another probe on the same target needs it".into();
            lowered.push(probe);
            continue;
        }
        (probe.lowered, probe.why) = (choice.lowered, choice.why);
        probe.sites.iter_mut().zip(choice.attaches).for_each(|(site, attach)| site.attach = attach);
        lowered.extend(one_program_each(probe));
    }
    script.probes = lowered;
    script
}

fn choice(probe: &hir::Probe, needs: &BodyNeeds, env: &Env) -> Lowering {
    let Some(first) = probe.sites.first() else { return Lowering::literal("") };
    let choice = first.kind.lower(&probe.sites, needs, env);
    // the checker asked for the script's own mechanism
    let allowed = |attach: &Attach| {
        let ty = first.kind.program(&ProbeSite { attach: attach.clone(), ..first.clone() }, env);
        needs.kernel_functions.iter().all(|function| env.sys.may_call(function, ty.row().prog_type))
    };
    if choice.lowered.is_some() && !choice.attaches.iter().take(1).all(allowed) {
        return Lowering::literal("it calls a function of the kernel, which only some types of programs may do");
    }
    choice
}

/// If a kprobe of the script runs where a map may hold a lock, the others stay kprobes: the kernel runs no kprobe within
/// another, but does within a trampoline.
fn keep_kprobes_near_locks(script: &hir::Script, choices: &mut [Lowering]) {
    let is_locked = |attach: &Attach| match attach {
        Attach::Kprobe { function, ret, .. } => trampolines::refused(function, *ret) == Some(Refusal::Locked),
        _ => false,
    };
    if script.probes.iter().flat_map(|p| &p.sites).any(|site| is_locked(&site.attach)) {
        for choice in choices.iter_mut().filter(|choice| choice.lowered == Some(Mechanism::Fentry)) {
            *choice = Lowering::literal("a map may hold a lock where another probe of the script runs");
        }
    }
}

/// Reconsiders probes that share an event with one served by a raw program, because that one may have no alternative.
fn share_raw_tracepoints(script: &hir::Script, all: &[BodyNeeds], choices: &mut [Lowering], env: &Env) {
    let is_raw = |choice: &Lowering| choice.lowered == Some(Mechanism::RawSyscalls);
    let places = |probe: &hir::Probe| probe.sites.iter().filter_map(|s| attach_location(&s.attach)).collect::<Vec<_>>();
    if choices.iter().all(|c| is_raw(c) == choices.first().is_some_and(is_raw)) {
        return;
    }
    let mut raw: BTreeSet<String> = BTreeSet::new();
    loop {
        raw.extend(script.probes.iter().zip(choices.iter()).filter(|(_, c)| is_raw(c)).flat_map(|(p, _)| places(p)));
        let mut changed = false;
        for ((probe, needs), choice) in script.probes.iter().zip(all).zip(choices.iter_mut()) {
            if !is_raw(choice) && places(probe).iter().any(|place| raw.contains(place)) {
                *choice = self::choice(probe, &BodyNeeds { shares_raw_tracepoint: true, ..needs.clone() }, env);
                changed |= is_raw(choice);
            }
        }
        if !changed {
            return;
        }
    }
}

/// A program with a target serves only that target, so the sites of a probe are separated.
fn one_program_each(probe: hir::Probe) -> Vec<hir::Probe> {
    if probe.sites.len() < 2
        || !probe.sites.iter().all(|s| matches!(s.attach, Attach::Trampoline { .. } | Attach::RawTracepoint { typed: true, .. }))
    {
        return vec![probe];
    }
    probe.sites.iter().map(|site| hir::Probe { sites: vec![site.clone()], ..probe.clone() }).collect()
}

/// Does a probe's body read arguments of what it traces?
pub(super) fn reads_args(probe: &hir::Probe) -> bool {
    needs(probe).args.iter().any(|arg| matches!(arg, ArgRef::Index(_) | ArgRef::Named(_) | ArgRef::All(_)))
}

/// The parts of the context that a probe's body and its functions use.
fn needs(probe: &hir::Probe) -> BodyNeeds {
    let mut needs = BodyNeeds::default();
    let mut visit = |node: hir::Node| {
        if let hir::Node::Expr(e) = node {
            match &e.kind {
                hir::ExprKind::Call(call) => {
                    needs.features = needs.features.union(call.row.needs);
                    needs.kernel_functions.extend(builtins::kernel_functions(call.row, &call.consts).iter().map(|name| name.to_string()));
                }
                hir::ExprKind::Context(which) => needs.args.push(which.clone()),
                _ => {}
            }
        }
        if let hir::Node::Stmt(hir::Stmt { kind: hir::StmtKind::Aggregate { call, .. }, .. }) = node {
            needs.features = needs.features.union(call.row.needs);
        }
    };
    hir::visit(&probe.body, &mut visit);
    probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut visit));
    needs.passes_context = foreign::passes_context(&probe.body);
    needs
}

fn at_end(function: &str, ret: bool) -> String {
    format!("{function} {ret}")
}

/// The place where probes of different mechanisms may meet.
fn attach_location(attach: &Attach) -> Option<String> {
    match attach {
        Attach::Kprobe { function, offset: 0, ret, .. } => Some(at_end(function, *ret)),
        Attach::Tracepoint { event, .. } => Some(event.clone()),
        _ => None,
    }
}
