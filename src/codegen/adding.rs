//! Plain maps to whose values a script only adds. They are counts or sums, so those of several machines add up.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::BTreeSet;

use crate::builtins::MapId;
use crate::sema::hir::{self, Expr, ExprKind, Node, StmtKind};
use crate::syntax::ast::BinOp;
use crate::types::Type;

/// The maps of integers that the script changes only by `++`, `--`, `+=`, `-=`, and by setting elements to zero or
/// deleting them.
pub(super) fn maps(script: &hir::Script) -> BTreeSet<MapId> {
    let (mut stepped, mut assigned) = (BTreeSet::new(), BTreeSet::new());
    let mut see = |node: Node| match node {
        Node::Stmt(stmt) => {
            if let StmtKind::SetMap { map, key, value } = &stmt.kind {
                if adds(*map, key.as_ref(), value) {
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
    stepped.difference(&assigned).copied().filter(is_integer).collect()
}

fn without_casts(mut expr: &Expr) -> &Expr {
    while let ExprKind::Cast(inner, _) = &expr.kind {
        expr = inner;
    }
    expr
}

fn is_zero(value: &Expr) -> bool {
    without_casts(value).kind == ExprKind::Int(0)
}

/// Is it the element plus or minus a value that does not depend on the map? `@max += $x - @max` only looks like a sum.
fn adds(map: MapId, key: Option<&Expr>, value: &Expr) -> bool {
    let is_element = |e: &Expr| matches!(&without_casts(e).kind, ExprKind::Map(m, k) if *m == map && k.as_deref() == key);
    let is_free = |e: &Expr| {
        let mut free = true;
        e.visit(&mut |node| {
            free &=
                !matches!(node, Node::Expr(e) if matches!(&e.kind, ExprKind::Map(m, _) | ExprKind::StepMap { map: m, .. } if *m == map));
        });
        free
    };
    match &without_casts(value).kind {
        ExprKind::Binary(BinOp::Add, a, b) => is_element(a) && is_free(b) || is_element(b) && is_free(a),
        ExprKind::Binary(BinOp::Sub, a, b) => is_element(a) && is_free(b),
        _ => false,
    }
}
