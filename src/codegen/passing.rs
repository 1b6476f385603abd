//! Maps by which the entries of calls pass values to the returns: each call finds what its own entry has stored.
//!
//! The elements belong to threads, or to the calls of a thread (`nesting.rs`). Otherwise, a value could be that of another call, whose
//! entry a limit may have dropped.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::BTreeSet;
use std::rc::Rc;

use super::adding::{added, is_zero};
use super::artifact::Sampling;
use super::gates::{PlainMaps, costs, ordered_aggregations};
use super::latency_pairs::{delete_call, is_thread};
use crate::builtins::{self, MapId};
use crate::probes::{ALL_SYSTEM_CALLS, ArgRef, SYSTEM_CALL_NUMBER};
use crate::sema::hir::{self, CallArg, Expr, ExprKind, Node, Stmt, StmtKind};
use crate::syntax::ast::{BinOp, UnOp};

/// Is it such a map? `counters` are the maps that count the calls of each thread.
pub(super) fn is_of_call(map: MapId, entries: &[&hir::Probe], returns: &[&hir::Probe], counters: &BTreeSet<MapId>) -> bool {
    let mut forms = BTreeSet::new();
    let mut is_by_thread = |probe: &&hir::Probe| uses_by_thread(map, probe, counters, &mut forms);
    let by_thread = entries.iter().chain(returns).all(&mut is_by_thread);
    let ends: Vec<&hir::Probe> = entries.iter().chain(returns).copied().filter(|probe| mentions(map, probe)).collect();
    let selections: BTreeSet<BTreeSet<String>> = ends.iter().map(|probe| selections(probe)).collect();
    let same = if let (Some(same), 1) = (selections.first(), selections.len()) { same.clone() } else { BTreeSet::new() };
    let stored = || entries.iter().all(|probe| stores_if(map, probe, &same));
    let deleted = || returns.iter().all(|probe| !mentions(map, probe) || always_deletes(map, probe, &same));
    // one element for each call
    by_thread && forms.len() <= 1 && (stored() || deleted())
}

/// By map: the group of calls whose ends pass values to each other by it, and nobody else does.
pub(super) fn passed_by(script: &hir::Script, sampling: &[Sampling]) -> Vec<Option<usize>> {
    if !sampling.iter().any(|of| matches!(of, Sampling::Entry { .. })) {
        return vec![None; script.maps.len()];
    }
    let ordered = ordered_aggregations(script);
    let group_of = |index: usize| match sampling.get(index) {
        Some(Sampling::Entry { group } | Sampling::Return { group }) => Some(*group),
        _ => None,
    };
    let limited: Vec<(usize, PlainMaps)> =
        script.probes.iter().enumerate().filter(|(_, p)| costs(p)).map(|(i, p)| (i, PlainMaps::of(p, script, &ordered))).collect();
    let of = |map: MapId| {
        let users = || limited.iter().filter(|(_, maps)| maps.other.contains(&map) || maps.added.contains(&map));
        let group = group_of(users().find(|(_, maps)| maps.read.contains(&map))?.0)?;
        users().all(|(index, _)| group_of(*index) == Some(group)).then_some(group)
    };
    (0..script.maps.len()).map(of).collect()
}

/// The conditions of a predicate by which a probe on all system calls selects some by their numbers, which a call has at both ends.
fn selections(probe: &hir::Probe) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_on_all = probe.sites.iter().all(|site| matches!(site.attach.traced_call(), Some((_, name)) if name == ALL_SYSTEM_CALLS));
    if let (Some(predicate), true) = (hir::predicate(&probe.body).0, is_on_all) {
        each_condition(predicate, &mut |cond| found.extend(selection(cond)));
    }
    found
}

/// The text of a condition that only asks for the number of a system call.
fn selection(e: &Expr) -> Option<String> {
    match &e.kind {
        ExprKind::Cast(of, _) => Some(format!("({}) {}", e.ty, selection(of)?)),
        ExprKind::Unary(op, of) => Some(format!("{op:?} {}", selection(of)?)),
        ExprKind::Binary(op, a, b) => Some(format!("({} {op:?} {})", selection(a)?, selection(b)?)),
        ExprKind::Int(number) => Some(number.to_string()),
        ExprKind::Context(ArgRef::Named(field)) => (field.field.name == SYSTEM_CALL_NUMBER).then(|| SYSTEM_CALL_NUMBER.into()),
        _ => None,
    }
}

/// Visits the conditions that must all be true.
fn each_condition<'a>(cond: &'a Expr, see: &mut dyn FnMut(&'a Expr)) {
    match &cond.kind {
        ExprKind::Binary(BinOp::And, a, b) => [a, b].into_iter().for_each(|cond| each_condition(cond, see)),
        _ => see(cond),
    }
}

/// Does each run delete the element, or set it to zero, if it is there? `same`: see [`is_steady`].
fn always_deletes(map: MapId, probe: &hir::Probe, same: &BTreeSet<String>) -> bool {
    let mut set = Vec::new();
    hir::visit(&probe.body, &mut |node| match node {
        Node::Stmt(Stmt { kind: StmtKind::SetVar(var, value), .. }) => set.push((*var, is_element(value, map, &BTreeSet::new()))),
        Node::Stmt(Stmt { kind: StmtKind::ZeroVar(var), .. }) | Node::Expr(Expr { kind: ExprKind::StepVar { var, .. }, .. }) => {
            set.push((*var, false));
        }
        _ => {}
    });
    let is_only = |var: &hir::VarId| set.iter().filter(|(other, _)| other == var).count() == 1;
    let variables = set.iter().filter(|(var, is_element)| *is_element && is_only(var)).map(|(var, _)| *var).collect();
    let (predicate, body) = hir::predicate(&probe.body);
    predicate.is_none_or(|cond| is_about_call(cond, map, &variables, same)) && deletes_existing(map, body, &variables)
}

/// Is each condition about whether the element is there, or the same for all calls of a thread?
fn is_about_call(cond: &Expr, map: MapId, variables: &BTreeSet<hir::VarId>, same: &BTreeSet<String>) -> bool {
    let mut all = true;
    each_condition(cond, &mut |cond| all &= is_there(cond, map, variables) || is_steady(cond, same));
    all
}

/// Is the condition the same for all calls of a thread, or, if it is among `same`, at both ends of each call?
fn is_steady(e: &Expr, same: &BTreeSet<String>) -> bool {
    match &e.kind {
        _ if selection(e).is_some_and(|text| same.contains(&text)) => true,
        ExprKind::Cast(of, _) | ExprKind::Unary(_, of) => is_steady(of, same),
        ExprKind::Binary(_, a, b) => is_steady(a, same) && is_steady(b, same),
        ExprKind::Int(_) | ExprKind::Str(_) => true,
        ExprKind::Call(call) => builtins::is_same_at_both_ends(call.row) && call.args.is_empty(),
        _ => false,
    }
}

/// Do the statements delete the element if it is there? `variables` have its value.
fn deletes_existing(map: MapId, stmts: &[Stmt], variables: &BTreeSet<hir::VarId>) -> bool {
    for stmt in stmts {
        let args = delete_call(stmt).map(|call| call.args.as_slice());
        if matches!(args, Some([CallArg::Map(of), CallArg::Value(_)] | [CallArg::Element(of, _)]) if *of == map) {
            return true;
        }
        match &stmt.kind {
            StmtKind::SetMap { map: of, value, .. } if *of == map && is_zero(value) => return true,
            StmtKind::If { cond, then, .. } if is_there(cond, map, variables) && deletes_existing(map, then, variables) => return true,
            // there is nothing to delete
            StmtKind::If { cond, else_: otherwise, .. } if is_absent(cond, map, variables) && !hir::returns(otherwise) => {}
            _ if hir::returns(std::slice::from_ref(stmt)) => return false,
            _ => {}
        }
    }
    false
}

fn is_element(e: &Expr, map: MapId, variables: &BTreeSet<hir::VarId>) -> bool {
    match &e.kind {
        ExprKind::Cast(of, _) => is_element(of, map, variables),
        ExprKind::Map(of, _) => *of == map,
        ExprKind::Var(var) => variables.contains(var),
        _ => false,
    }
}

/// Is the condition true exactly if the element is there?
fn is_there(cond: &Expr, map: MapId, variables: &BTreeSet<hir::VarId>) -> bool {
    match &cond.kind {
        ExprKind::Cast(of, _) => is_there(of, map, variables),
        ExprKind::Binary(BinOp::Ne | BinOp::Gt, a, b) => is_element(a, map, variables) && is_zero(b),
        ExprKind::Unary(UnOp::Not, of) => is_absent(of, map, variables),
        ExprKind::Call(call) if builtins::asks_about_map(call.row) => {
            matches!(call.args.as_slice(), [CallArg::Map(of), CallArg::Value(_)] | [CallArg::Element(of, _)] if *of == map)
        }
        _ => is_element(cond, map, variables),
    }
}

fn is_absent(cond: &Expr, map: MapId, variables: &BTreeSet<hir::VarId>) -> bool {
    match &cond.kind {
        ExprKind::Cast(of, _) => is_absent(of, map, variables),
        ExprKind::Binary(BinOp::Eq, a, b) => is_element(a, map, variables) && is_zero(b),
        ExprKind::Unary(UnOp::Not, of) => is_there(of, map, variables),
        _ => false,
    }
}

/// Does each run of the probe, or each for some threads, store an element? (What it adds to one depends on earlier runs.)
pub(super) fn always_stores(map: MapId, probe: &hir::Probe) -> bool {
    stores_if(map, probe, &BTreeSet::new())
}

/// The same, or each for some calls.
fn stores_if(map: MapId, probe: &hir::Probe, same: &BTreeSet<String>) -> bool {
    let stores = |stmt: &Stmt| match &stmt.kind {
        StmtKind::SetMap { map: of, key, value } => *of == map && added(*of, key.as_ref(), value).is_none() && !is_zero(value),
        _ => false,
    };
    let body = match hir::predicate(&probe.body) {
        (Some(cond), body) if is_steady(cond, same) => body,
        _ => &probe.body,
    };
    !hir::returns(body) && body.iter().any(stores)
}

fn visit(probe: &hir::Probe, see: &mut dyn FnMut(Node)) {
    hir::visit(&probe.body, see);
    probe.functions.iter().for_each(|f| hir::visit(&f.body, see));
}

fn mentions(map: MapId, probe: &hir::Probe) -> bool {
    let mut found = false;
    visit(probe, &mut |node| found |= keys(node, map).is_none_or(|keys| !keys.is_empty()));
    found
}

/// Are all elements that the probe uses those of its thread? Adds the forms of their keys.
fn uses_by_thread(map: MapId, probe: &hir::Probe, counters: &BTreeSet<MapId>, forms: &mut BTreeSet<Vec<KeyPart>>) -> bool {
    let numbers = numbers_of_calls(&probe.body, counters);
    let mut all = true;
    visit(probe, &mut |node| {
        let of_keys =
            keys(node, map).and_then(|keys| keys.into_iter().map(|key| form(key, counters, &numbers)).collect::<Option<Vec<_>>>());
        match of_keys {
            Some(found) => forms.extend(found),
            None => all = false,
        }
    });
    all
}

/// A part of a key that is the same at both ends of a call.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart {
    Thread,
    /// The number of the call.
    Number,
    Int(u64),
    Text(Rc<[u8]>),
    Builtin(&'static str),
    /// The traced function.
    Function,
}

/// The keys of the map's elements in a piece of a body. None if it uses the map in another way.
fn keys<'a>(node: Node<'a>, map: MapId) -> Option<Vec<&'a Expr>> {
    let one = |of: MapId, key: Option<&'a Expr>| if of == map { key.map(|key| vec![key]) } else { Some(Vec::new()) };
    match node {
        Node::Stmt(stmt) => match &stmt.kind {
            StmtKind::SetMap { map, key, .. } | StmtKind::Aggregate { map, key, .. } => one(*map, key.as_ref()),
            StmtKind::ForMap { map, .. } => one(*map, None),
            _ => Some(Vec::new()),
        },
        Node::Expr(e) => match &e.kind {
            ExprKind::Map(map, key) | ExprKind::ReadAgg(map, key) | ExprKind::StepMap { map, key, .. } => one(*map, key.as_deref()),
            ExprKind::Call(call) => match call.args.as_slice() {
                [CallArg::Map(of), CallArg::Value(key)] | [CallArg::Element(of, key)] => one(*of, Some(key)),
                args => {
                    let names_it = args.iter().any(|arg| matches!(arg, CallArg::Map(of) | CallArg::Element(of, _) if *of == map));
                    (!names_it).then(Vec::new)
                }
            },
            _ => Some(Vec::new()),
        },
    }
}

/// Variables that have the number of the current call.
fn numbers_of_calls(body: &[Stmt], counters: &BTreeSet<MapId>) -> BTreeSet<hir::VarId> {
    let (mut found, mut others) = (BTreeSet::new(), BTreeSet::new());
    hir::visit(body, &mut |node| {
        if let Node::Stmt(Stmt { kind: StmtKind::SetVar(var, value), .. }) = node {
            if is_number(value, counters) {
                found.insert(*var)
            } else {
                others.insert(*var)
            };
        }
    });
    &found - &others
}

fn is_number(e: &Expr, counters: &BTreeSet<MapId>) -> bool {
    match &e.kind {
        ExprKind::Cast(of, _) => is_number(of, counters),
        ExprKind::Map(map, Some(key)) => counters.contains(map) && is_thread(key),
        _ => false,
    }
}

/// The parts of a key, one of which is the thread's ID.
fn form(key: &Expr, counters: &BTreeSet<MapId>, numbers: &BTreeSet<hir::VarId>) -> Option<Vec<KeyPart>> {
    let parts = match &key.kind {
        ExprKind::Tuple(parts) => parts.iter().map(|part| key_part(part, counters, numbers)).collect::<Option<Vec<_>>>()?,
        _ => vec![key_part(key, counters, numbers)?],
    };
    parts.contains(&KeyPart::Thread).then_some(parts)
}

fn key_part(e: &Expr, counters: &BTreeSet<MapId>, numbers: &BTreeSet<hir::VarId>) -> Option<KeyPart> {
    if is_thread(e) {
        return Some(KeyPart::Thread);
    }
    match &e.kind {
        ExprKind::Cast(of, _) => key_part(of, counters, numbers),
        ExprKind::Int(number) => Some(KeyPart::Int(*number)),
        ExprKind::Str(text) => Some(KeyPart::Text(text.clone())),
        ExprKind::Context(ArgRef::Func) => Some(KeyPart::Function),
        ExprKind::Call(call) => {
            (builtins::is_same_at_both_ends(call.row) && call.args.is_empty()).then_some(KeyPart::Builtin(call.row.name))
        }
        ExprKind::Map(map, Some(key)) => (counters.contains(map) && is_thread(key)).then_some(KeyPart::Number),
        ExprKind::Var(var) => numbers.contains(var).then_some(KeyPart::Number),
        _ => None,
    }
}
