//! Maps by which the entries of calls pass values to the returns: each call finds what its own entry has stored.
//!
//! The elements belong to threads, or to the calls of a thread (`nesting.rs`). Otherwise, a value could be that of another call, whose
//! entry a limit may have dropped.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::BTreeSet;

use super::adding::added;
use super::gates::guarded;
use super::latency_pairs::{delete_call, is_thread};
use crate::builtins::{self, MapId};
use crate::sema::hir::{self, CallArg, Expr, ExprKind, Node, Stmt, StmtKind};

/// Is it such a map? `counters` are the maps that count the calls of each thread.
pub(super) fn is_of_call(map: MapId, entries: &[&hir::Probe], returns: &[&hir::Probe], counters: &BTreeSet<MapId>) -> bool {
    let is_by_thread = |probe: &&hir::Probe| uses_by_thread(map, probe, counters);
    let stored = || entries.iter().all(|probe| always_stores(map, probe));
    let deleted = || returns.iter().all(|probe| !mentions(map, probe) || always_deletes(map, probe));
    entries.iter().chain(returns).all(is_by_thread) && (stored() || deleted())
}

/// Does each run that its predicate lets through delete an element?
fn always_deletes(map: MapId, probe: &hir::Probe) -> bool {
    let deletes = |stmt: &Stmt| {
        let args = delete_call(stmt).map(|call| call.args.as_slice());
        matches!(args, Some([CallArg::Map(of), CallArg::Value(_)] | [CallArg::Element(of, _)]) if *of == map)
    };
    !returns(&probe.body) && guarded(&probe.body).iter().any(deletes)
}

fn returns(body: &[Stmt]) -> bool {
    let mut found = false;
    hir::visit(body, &mut |node| found |= matches!(node, Node::Stmt(Stmt { kind: StmtKind::Return(_), .. })));
    found
}

/// Does each run of the probe store an element? (What it adds to one depends on earlier runs.)
fn always_stores(map: MapId, probe: &hir::Probe) -> bool {
    let stores = |stmt: &Stmt| match &stmt.kind {
        StmtKind::SetMap { map: of, key, value } => *of == map && added(*of, key.as_ref(), value).is_none(),
        _ => false,
    };
    !returns(&probe.body) && probe.body.iter().any(stores)
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

/// Are all elements that the probe uses those of its thread?
fn uses_by_thread(map: MapId, probe: &hir::Probe, counters: &BTreeSet<MapId>) -> bool {
    let numbers = numbers_of_calls(&probe.body, counters);
    let mut all = true;
    visit(probe, &mut |node| all &= keys(node, map).is_some_and(|keys| keys.into_iter().all(|key| is_by_thread(key, counters, &numbers))));
    all
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

/// Is it the ID of the thread, perhaps with what all of its calls or both ends of one have in common?
fn is_by_thread(key: &Expr, counters: &BTreeSet<MapId>, numbers: &BTreeSet<hir::VarId>) -> bool {
    let ExprKind::Tuple(parts) = &key.kind else { return is_thread(key) };
    let is_common = |e: &Expr| is_thread(e) || is_constant(e) || is_number(e, counters) || is_variable(e, numbers);
    parts.iter().any(is_thread) && parts.iter().all(is_common)
}

fn is_constant(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Cast(of, _) => is_constant(of),
        ExprKind::Int(_) | ExprKind::Str(_) => true,
        ExprKind::Call(call) => builtins::is_same_at_both_ends(call.row) && call.args.is_empty(),
        _ => false,
    }
}

fn is_variable(e: &Expr, numbers: &BTreeSet<hir::VarId>) -> bool {
    match &e.kind {
        ExprKind::Cast(of, _) => is_variable(of, numbers),
        ExprKind::Var(var) => numbers.contains(var),
        _ => false,
    }
}
