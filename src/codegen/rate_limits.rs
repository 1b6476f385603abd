//! The states of `ratelimit` as something by which runs depend on earlier ones: see `gates.rs`.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::{BTreeMap, BTreeSet};

use super::gates::{SPANS, changed_by};
use crate::builtins::{self, MapId};
use crate::sema::hir::{self, Expr, ExprKind, StmtKind};

/// Below it are the numbers of the states of `ratelimit`, which are like maps, too: a run reads what earlier runs have left.
const STATES: MapId = SPANS - 1;

/// The number of the state of a `ratelimit`. Each place has one.
pub(super) fn state(call: &hir::Call) -> MapId {
    STATES - (call.span.start as usize).wrapping_mul(1 << 16).wrapping_add(call.span.expansion.into())
}

/// Does it limit the rate of each key? Its place has a map.
pub(super) fn has_keys(call: &hir::Call) -> bool {
    builtins::limits_rate(call.row) && call.args.len() > 2
}

/// The states of each `ratelimit` that decides on more than what the probe sends: on values that outlive the run. Of the runs that a
/// limit lets pass, it lets as many pass as of all runs, so they must not count for others.
pub(super) fn bounding(probe: &hir::Probe) -> BTreeSet<MapId> {
    let mut found = BTreeSet::new();
    for body in std::iter::once(&probe.body).chain(probe.functions.iter().map(|f| &f.body)) {
        let mut all = BTreeSet::new();
        hir::visit(body, &mut |node| all.extend(rate_limit_of(node)));
        let mut harmless = BTreeSet::new();
        let mut visit = |node: hir::Node| {
            if let hir::Node::Stmt(hir::Stmt { kind: StmtKind::If { cond, then, else_: otherwise }, span, .. }) = node
                && ![then, otherwise].iter().any(|block| has_lasting_effect(block, body, probe))
                && !has_lasting_effect(&[hir::Stmt { kind: StmtKind::Expr(cond.clone()), span: *span }], body, probe)
            {
                cond.visit(&mut |node| harmless.extend(rate_limit_of(node)));
            }
        };
        hir::visit(body, &mut visit);
        found.extend(all.difference(&harmless));
    }
    found
}

fn rate_limit_of(node: hir::Node) -> Option<MapId> {
    match node {
        hir::Node::Expr(Expr { kind: ExprKind::Call(call), .. }) if builtins::limits_rate(call.row) => Some(state(call)),
        _ => None,
    }
}

/// Do statements of a body change more than variables of their own?
fn has_lasting_effect(block: &[hir::Stmt], body: &[hir::Stmt], probe: &hir::Probe) -> bool {
    let uses = |stmts: &[hir::Stmt]| {
        let mut uses: BTreeMap<hir::VarId, (usize, bool)> = BTreeMap::new();
        let mut used = |var: hir::VarId, is_set: bool| {
            let (times, set) = uses.entry(var).or_default();
            (*times, *set) = (*times + 1, *set || is_set);
        };
        hir::visit(stmts, &mut |node| match node {
            hir::Node::Stmt(hir::Stmt { kind: StmtKind::SetVar(var, _) | StmtKind::ZeroVar(var), .. })
            | hir::Node::Expr(Expr { kind: ExprKind::StepVar { var, .. }, .. }) => used(*var, true),
            hir::Node::Expr(Expr { kind: ExprKind::AddrOf(of), .. }) => {
                if let ExprKind::Var(var) = &of.kind {
                    used(*var, true);
                }
            }
            hir::Node::Expr(Expr { kind: ExprKind::Var(var), .. }) => used(*var, false),
            _ => {}
        });
        uses
    };
    let (inside, everywhere) = (uses(block), uses(body));
    let sets_others = inside.iter().any(|(var, (times, set))| *set && everywhere.get(var).is_some_and(|(all, _)| all > times));
    let mut lasts = sets_others || changes_maps(block);
    let mut visit = |node: hir::Node| match node {
        hir::Node::Stmt(s) => lasts |= matches!(s.kind, StmtKind::Return(_) | StmtKind::Break | StmtKind::Continue),
        hir::Node::Expr(e) => match &e.kind {
            // any function of the probe may be meant
            ExprKind::CallFn(..) => lasts |= probe.functions.iter().any(|f| changes_maps(&f.body)),
            ExprKind::CallForeign(..) => lasts = true,
            ExprKind::Call(call) => lasts |= builtins::begins_span(call.row).is_some(),
            _ => {}
        },
    };
    hir::visit(block, &mut visit);
    lasts
}

fn changes_maps(stmts: &[hir::Stmt]) -> bool {
    let mut found = false;
    hir::visit(stmts, &mut |node| found |= changed_by(node).next().is_some());
    found
}
