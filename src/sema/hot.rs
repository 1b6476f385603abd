//! Warns about probes that are known to be hot and report each event: rbt and the reader of its output may not keep up, and
//! the traced programs become slower.

use super::hir::{Call, Expr, ExprKind, Function, Node, Probe, Stmt, StmtKind};
use crate::builtins::{self, Codegen};
use crate::diag::Diagnostic;
use crate::probes::{Env, hot_site};
use crate::syntax::ast::BinOp;

/// Reports such a probe, unless the run limits it.
pub fn check(probe: &Probe, env: &Env) -> Option<Diagnostic> {
    let Env { settings, invocation, .. } = env;
    let of_some = settings.pid.is_some() || settings.follow || invocation.cgroup.is_some();
    let limited = settings.max_events > 0 || settings.max_overhead.is_some();
    if of_some || limited || invocation.is_measured || !reports_all(&probe.body, &probe.functions) {
        return None;
    }
    let (site, name) = hot_site(&probe.sites)?;
    let to_command = settings.limits_to_command(invocation) && site.attach.properties().attaches_to_process;
    let message = format!("{name} can fire hundreds of thousands of times per second, and this probe reports each event");
    let help = "count in the kernel (`@[comm] = count()`), add a filter, or limit it: --max-events 1000/s, `/ratelimit(1000, 1s)/`";
    (!to_command).then(|| Diagnostic::warning("hot-probe", site.span, message).help(help))
}

/// What statements do with each event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// They continue without a report.
    Continues,
    /// They report it.
    Reports,
    /// They end the probe, or do so for most events.
    Leaves,
}

/// Does a body send a record for each event, or for each except a few?
fn reports_all(body: &[Stmt], functions: &[Function]) -> bool {
    let mut reports = false;
    for stmt in body {
        match effect(stmt, functions) {
            Effect::Continues => {}
            Effect::Reports => reports = true,
            // what leaves after the report may end the run
            Effect::Leaves => return reports && !ends(stmt),
        }
    }
    reports
}

fn effect(stmt: &Stmt, functions: &[Function]) -> Effect {
    let reports = |body: &[Stmt]| if reports_all(body, functions) { Effect::Reports } else { Effect::Continues };
    match &stmt.kind {
        StmtKind::Expr(e) => match &e.kind {
            ExprKind::Call(Call { row, .. }) => match &row.codegen {
                Codegen::Event(event) if event.ends_probe => Effect::Leaves,
                Codegen::Event(_) => Effect::Reports,
                _ => Effect::Continues,
            },
            ExprKind::CallFn(id, _) => functions.get(*id).map_or(Effect::Continues, |f| reports(&f.body)),
            ExprKind::Block(body, _) => reports(body),
            _ => of_value(e, functions),
        },
        StmtKind::SetVar(_, e) | StmtKind::SetMap { value: e, .. } => of_value(e, functions),
        // `if (pid != 1) { return; }`, as opposed to `if (pid == 1)`
        StmtKind::If { cond, then, .. } if then.iter().any(leaves) => {
            if matches!(cond.kind, ExprKind::Binary(BinOp::Eq, ..)) {
                Effect::Continues
            } else {
                Effect::Leaves
            }
        }
        StmtKind::If { cond, then, .. } if !rejects_most(cond) => reports(then),
        StmtKind::Repeat { body, .. } => reports(body),
        StmtKind::Return(_) => Effect::Leaves,
        StmtKind::ZeroVar(_)
        | StmtKind::Aggregate { .. }
        | StmtKind::If { .. }
        | StmtKind::While { .. }
        | StmtKind::ForRange { .. }
        | StmtKind::ForMap { .. }
        | StmtKind::Break
        | StmtKind::Continue => Effect::Continues,
    }
}

/// What computing a value does: the functions that it calls may report.
fn of_value(e: &Expr, functions: &[Function]) -> Effect {
    let mut reports = false;
    e.visit(&mut |node| {
        if let Node::Expr(Expr { kind: ExprKind::CallFn(id, _), .. }) = node {
            reports |= functions.get(*id).is_some_and(|f| reports_all(&f.body, functions));
        }
    });
    if reports { Effect::Reports } else { Effect::Continues }
}

/// Does it end the probe?
fn leaves(stmt: &Stmt) -> bool {
    matches!(stmt.kind, StmtKind::Return(_)) || ends(stmt)
}

/// Does it end the run?
fn ends(stmt: &Stmt) -> bool {
    let StmtKind::Expr(Expr { kind: ExprKind::Call(call), .. }) = &stmt.kind else { return false };
    builtins::ends_probe(call.row)
}

/// Is a condition likely to be false for most events? Any condition is, except for one that something is different.
fn rejects_most(cond: &Expr) -> bool {
    match &cond.kind {
        ExprKind::Int(n) => *n == 0,
        ExprKind::Cast(of, _) => rejects_most(of),
        ExprKind::Binary(BinOp::Ne, ..) => false,
        ExprKind::Binary(BinOp::And, a, b) => rejects_most(a) || rejects_most(b),
        ExprKind::Binary(BinOp::Or, a, b) => rejects_most(a) && rejects_most(b),
        _ => true,
    }
}
