//! Determines from the shape of a body which parts of its context it may use, and thus whether each site needs a separate
//! check.

use crate::syntax::ast::{Arg, Block, Expr, ExprKind, Item, Probe, Script, Stmt, StmtKind};

/// Calls `each` for every expression of a probe, outermost first, except those in types.
pub fn expressions<'a>(probe: &'a Probe, each: &mut dyn FnMut(&'a Expr)) {
    if let Some(p) = &probe.predicate {
        expr(p, each);
    }
    block(&probe.body, each);
}

/// Does a probe, a macro or a function use the map with this name?
pub fn mentions_map(check_cx: &super::CheckContext, script: &Script, name: &str) -> bool {
    let mut found = false;
    let mut each = |e: &Expr| found |= matches!(&e.kind, ExprKind::Map { name: used, .. } if used == name);
    for item in &script.items {
        if let Item::Probe(probe) = item {
            expressions(probe, &mut each);
        }
    }
    each_definition_expr(check_cx, &mut each);
    found
}

/// Calls `each` for every expression of the script's macros and functions.
pub fn each_definition_expr(check_cx: &super::CheckContext, each: &mut dyn FnMut(&Expr)) {
    for body in check_cx.macros.iter().chain(&check_cx.defines).map(|m| &m.body).chain(check_cx.functions.iter().map(|f| &f.body)) {
        in_block(body, each);
    }
}

/// The same for a block.
pub fn in_block<'a>(b: &'a Block, each: &mut dyn FnMut(&'a Expr)) {
    block(b, each);
}

fn block<'a>(b: &'a Block, each: &mut dyn FnMut(&'a Expr)) {
    for s in &b.stmts {
        stmt(s, each);
    }
    if let Some(e) = &b.value {
        expr(e, each);
    }
}

fn stmt<'a>(s: &'a Stmt, each: &mut dyn FnMut(&'a Expr)) {
    match &s.kind {
        StmtKind::Expr(e) | StmtKind::Discard(e) => expr(e, each),
        StmtKind::Assign { target, value, .. } => {
            expr(target, each);
            expr(value, each);
        }
        StmtKind::Let { value, .. } | StmtKind::Return(value) => {
            if let Some(e) = value {
                expr(e, each);
            }
        }
        StmtKind::While { cond, body } => {
            expr(cond, each);
            block(body, each);
        }
        StmtKind::ForRange { from, to, body, .. } => {
            expr(from, each);
            expr(to, each);
            block(body, each);
        }
        StmtKind::ForMap { map, body, .. } => {
            expr(map, each);
            block(body, each);
        }
        StmtKind::Unroll { times, body } => {
            expr(times, each);
            block(body, each);
        }
        StmtKind::Break | StmtKind::Continue | StmtKind::Import(_) => {}
    }
}

fn arg<'a>(a: &'a Arg, each: &mut dyn FnMut(&'a Expr)) {
    match a {
        Arg::Expr(e) => expr(e, each),
        Arg::Type(_) => {}
    }
}

fn expr<'a>(e: &'a Expr, each: &mut dyn FnMut(&'a Expr)) {
    each(e);
    match &e.kind {
        ExprKind::Int(_)
        | ExprKind::Str(_)
        | ExprKind::Bool(_)
        | ExprKind::Param(_)
        | ExprKind::ParamCount
        | ExprKind::Ident(_)
        | ExprKind::Var(_) => {}
        ExprKind::Map { key, .. } => key.iter().flatten().for_each(|e| expr(e, each)),
        ExprKind::Call { args, .. } => args.iter().for_each(|a| arg(a, each)),
        ExprKind::Field { base, .. } | ExprKind::TupleIndex { base, .. } => expr(base, each),
        ExprKind::Index { base, index } => {
            expr(base, each);
            expr(index, each);
        }
        ExprKind::Unary(_, inner) | ExprKind::Cast(_, inner) | ExprKind::Comptime(inner) => expr(inner, each),
        ExprKind::Step { target, .. } => expr(target, each),
        ExprKind::Binary(_, a, b) => {
            expr(a, each);
            expr(b, each);
        }
        ExprKind::Ternary { cond, then, otherwise } => {
            expr(cond, each);
            if let Some(e) = then {
                expr(e, each);
            }
            expr(otherwise, each);
        }
        ExprKind::If { cond, then, otherwise } => {
            expr(cond, each);
            block(then, each);
            if let Some(b) = otherwise {
                block(b, each);
            }
        }
        ExprKind::Block(b) => block(b, each),
        ExprKind::Tuple(elems) => elems.iter().for_each(|e| expr(e, each)),
        ExprKind::Record(fields) => fields.iter().for_each(|(_, e)| expr(e, each)),
        ExprKind::Sizeof(a) | ExprKind::Offsetof(a, _) | ExprKind::Typeof(a) | ExprKind::Typeinfo(a) => arg(a, each),
    }
}
