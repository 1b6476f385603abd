//! Plain maps to whose values a script only adds. They are counts or sums, so those of several machines add up.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::BTreeSet;

use super::value_flow;
use crate::builtins::MapId;
use crate::sema::hir::{self, Expr, ExprKind, Node, StmtKind};
use crate::syntax::ast::BinOp;
use crate::types::Type;

/// The maps of integers that the script changes only by `++`, `--`, `+=`, `-=`, and by setting elements to zero or
/// deleting them, if what it adds does not depend on the map.
pub(super) fn maps(script: &hir::Script) -> BTreeSet<MapId> {
    let (mut stepped, mut assigned) = (BTreeSet::new(), BTreeSet::new());
    let mut see = |node: Node| match node {
        Node::Stmt(stmt) => {
            if let StmtKind::SetMap { map, key, value } = &stmt.kind {
                if added(*map, key.as_ref(), value).is_some() {
                    stepped.insert(*map);
                } else if !is_zero(value) {
                    assigned.insert(*map);
                }
            }
        }
        Node::Expr(expr) => match &expr.kind {
            ExprKind::StepMap { map, .. } => {
                stepped.insert(*map);
            }
            // a function may write to the address
            ExprKind::AddrOf(of) => {
                if let ExprKind::Map(map, _) = &of.kind {
                    assigned.insert(*map);
                }
            }
            _ => {}
        },
    };
    for probe in &script.probes {
        hir::visit(&probe.body, &mut see);
        probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut see));
    }
    let is_integer = |map: &MapId| script.maps.get(*map).is_some_and(|map| matches!(map.value, Type::Int(_)));
    stepped.difference(&assigned).copied().filter(|map| is_integer(map) && !value_flow::adds_to_itself(script, *map)).collect()
}

fn without_casts(mut expr: &Expr) -> &Expr {
    while let ExprKind::Cast(inner, _) = &expr.kind {
        expr = inner;
    }
    expr
}

pub(super) fn is_zero(value: &Expr) -> bool {
    without_casts(value).kind == ExprKind::Int(0)
}

/// What is added if the value is the element plus or minus something, and which of the two.
pub(super) fn added<'a>(map: MapId, key: Option<&Expr>, value: &'a Expr) -> Option<(BinOp, &'a Expr)> {
    let is_element = |e: &Expr| matches!(&without_casts(e).kind, ExprKind::Map(m, k) if *m == map && k.as_deref() == key);
    match &without_casts(value).kind {
        ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) if is_element(a) => Some((*op, b)),
        ExprKind::Binary(BinOp::Add, a, b) if is_element(b) => Some((BinOp::Add, a)),
        _ => None,
    }
}
