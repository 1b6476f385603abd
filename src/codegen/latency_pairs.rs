//! Exits of system calls whose probe runs only for calls whose entry the script has seen. This is the usual form of latency
//! scripts:
//!
//! ```text
//! tracepoint:syscalls:sys_enter_read          { @start[tid] = nsecs; }
//! tracepoint:syscalls:sys_exit_read /@start[tid]/ { …; delete(@start, tid); }
//! ```
//!
//! The exit also fires for a call that a filter rejected and for the child of a `fork`, but then the map has no
//! element. So a trampoline on the function of the call, which does not see these exits, can serve the probe as well.
//! This requires that no element remains:
//!
//! - every probe that writes the map is on entries of calls whose exits are probed;
//! - the exit's predicate tests only the element, and its body always deletes it.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant

use std::collections::{BTreeMap, BTreeSet};

use crate::builtins::{self, MapId};
use crate::probes::syscall;
use crate::sema::hir::{self, CallArg, ExprKind, StmtKind};
use crate::settings::Invocation;
use crate::syntax::ast::BinOp;

/// The indices of those probes.
pub(super) fn exits(script: &hir::Script, invocation: &Invocation) -> BTreeSet<usize> {
    // other scripts may write the maps too
    if invocation.shares_maps {
        return BTreeSet::new();
    }
    let exits = script.probes.iter().enumerate().filter_map(|(i, p)| Some((i, calls(p, false)?, deleted_maps(p))));
    let exits: Vec<(usize, BTreeSet<&str>, Vec<MapId>)> = exits.filter(|(.., maps)| !maps.is_empty()).collect();
    let mut probed: BTreeMap<MapId, BTreeSet<&str>> = BTreeMap::new();
    for (_, names, maps) in &exits {
        maps.iter().for_each(|map| probed.entry(*map).or_default().extend(names));
    }
    probed.retain(|map, names| {
        let writers = script.probes.iter().filter(|p| writes(p, *map));
        writers.map(|p| calls(p, true)).all(|entered| entered.is_some_and(|entered| entered.is_subset(names)))
    });
    exits.into_iter().filter(|(.., maps)| maps.iter().all(|map| probed.contains_key(map))).map(|(i, ..)| i).collect()
}

/// The system calls of a probe, if all its sites are entries, or exits, of some.
fn calls(probe: &hir::Probe, enter: bool) -> Option<BTreeSet<&str>> {
    probe.sites.iter().map(|s| syscall::syscall_of_site(s).filter(|call| call.enter == enter).map(|call| call.name)).collect()
}

fn writes(probe: &hir::Probe, map: MapId) -> bool {
    let mut found = false;
    let mut visit = |node: hir::Node| {
        found |= match node {
            hir::Node::Stmt(s) => {
                matches!(&s.kind, StmtKind::SetMap { map: m, .. } | StmtKind::Aggregate { map: m, .. } if *m == map)
            }
            hir::Node::Expr(e) => matches!(&e.kind, ExprKind::StepMap { map: m, .. } if *m == map),
        }
    };
    hir::visit(&probe.body, &mut visit);
    probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut visit));
    found
}

/// Maps whose elements for this thread are all that the predicate tests, and that the body always deletes.
pub(super) fn deleted_maps(probe: &hir::Probe) -> Vec<MapId> {
    let (Some(predicate), body) = hir::predicate(&probe.body) else { return Vec::new() };
    let mut guards = Vec::new();
    if hir::returns(body) || !only_elements(predicate, &mut guards) {
        return Vec::new();
    }
    let deleted: BTreeSet<MapId> = body.iter().filter_map(deletes).collect();
    // a remaining element would let the next call through
    if guards.iter().all(|map| deleted.contains(map)) { guards } else { Vec::new() }
}

/// Is the condition `@m[tid]`, or several of them joined by `&&`?
fn only_elements(cond: &hir::Expr, maps: &mut Vec<MapId>) -> bool {
    match &cond.kind {
        ExprKind::Cast(inner, _) => only_elements(inner, maps),
        ExprKind::Map(map, Some(key)) if is_thread(key) => {
            maps.push(*map);
            true
        }
        ExprKind::Binary(BinOp::And, a, b) => only_elements(a, maps) && only_elements(b, maps),
        _ => false,
    }
}

/// Is it the ID of the thread, or the task?
pub(super) fn is_thread(key: &hir::Expr) -> bool {
    match &key.kind {
        ExprKind::Cast(inner, _) => is_thread(inner),
        ExprKind::Call(call) => (builtins::is_thread_id(call.row) || builtins::is_current_task(call.row)) && call.args.is_empty(),
        _ => false,
    }
}

/// The map from which a statement deletes the thread's element.
pub(super) fn deletes(stmt: &hir::Stmt) -> Option<MapId> {
    match delete_call(stmt)?.args.as_slice() {
        [CallArg::Map(map), CallArg::Value(key)] | [CallArg::Element(map, key)] if is_thread(key) => Some(*map),
        _ => None,
    }
}

/// The call, if the statement only deletes an element.
pub(super) fn delete_call(stmt: &hir::Stmt) -> Option<&hir::Call> {
    whole_call(stmt).filter(|call| builtins::is_delete(call.row))
}

/// The call, if the statement is nothing else: it ignores the result.
pub(super) fn whole_call(stmt: &hir::Stmt) -> Option<&hir::Call> {
    let StmtKind::Expr(e) = &stmt.kind else { return None };
    call_of(e)
}

fn call_of(e: &hir::Expr) -> Option<&hir::Call> {
    match &e.kind {
        ExprKind::Call(call) => Some(call),
        ExprKind::Cast(of, _) => call_of(of),
        // the value of `_ = delete(…)`
        ExprKind::Block(stmts, value) => {
            if stmts.is_empty() {
                call_of(value)
            } else {
                None
            }
        }
        _ => None,
    }
}
