//! Loops on kernels without `bpf_loop`, whose verifier follows each iteration: of nested loops, each iteration of the inner
//! ones in each of the outer ones. So loops of unknown bounds have a limit, which is lower for nested loops.

use crate::emit::MAX_WALKED_ITERATIONS;
use crate::sema::hir::{self, Expr, ExprKind, Node, Stmt, StmtKind};

/// Limit for the iterations of the innermost of nested loops, in all. The verifier follows a million instructions, of which a
/// statement takes 20 to 700.
const MAX_NESTED_ITERATIONS: u64 = 1024;

/// The number of iterations after which a loop, and each loop within it, stops. A loop stays whole if the script says that it has
/// no more than [`MAX_WALKED_ITERATIONS`].
pub fn iteration_limit(outermost: &Stmt) -> u64 {
    let mut limits = 1..MAX_WALKED_ITERATIONS + 1;
    while limits.end - limits.start > 1 {
        let limit = limits.start.midpoint(limits.end);
        if followed_iterations(outermost, limit) <= MAX_NESTED_ITERATIONS {
            limits.start = limit;
        } else {
            limits.end = limit;
        }
    }
    limits.start
}

/// Does the script say that the loop has few iterations?
pub fn is_short(stmt: &Stmt) -> bool {
    as_loop(stmt).is_some_and(|(iterations, _)| iterations <= MAX_WALKED_ITERATIONS)
}

/// The limit of a loop, and of each loop within it, if the verifier may follow more iterations than a single loop may have.
/// Then the loop may stop early, or, with a long body, be too complex.
pub fn limited(outermost: &Stmt) -> Option<u64> {
    (followed_iterations(outermost, u64::MAX) > MAX_WALKED_ITERATIONS).then(|| iteration_limit(outermost))
}

/// The number of iterations that the verifier follows in a loop and in those within it.
fn followed_iterations(stmt: &Stmt, limit: u64) -> u64 {
    let Some((iterations, body)) = as_loop(stmt) else { return 0 };
    let mut within = 0u64;
    hir::visit_within(body, &mut |node, context| {
        if let Node::Stmt(inner) = node
            && context.loops == 0
        {
            within = within.saturating_add(followed_iterations(inner, limit).saturating_mul(context.times));
        }
    });
    let followed = if is_short(stmt) { iterations } else { iterations.min(limit) };
    followed.saturating_mul(within.max(1))
}

/// How often the verifier would follow the body of a loop, and the body: as often as the script says, or without end; the body
/// of a loop over a map once, because a helper calls it. `None` for other statements.
fn as_loop(stmt: &Stmt) -> Option<(u64, &[Stmt])> {
    let number = |e: &Expr| if let ExprKind::Int(n) = e.kind { Some(n as i64) } else { None };
    match &stmt.kind {
        StmtKind::While { body, .. } => Some((u64::MAX, body)),
        StmtKind::ForMap { body, .. } => Some((1, body)),
        StmtKind::ForRange { from, to, body, .. } => {
            let times = number(to).zip(number(from)).map(|(to, from)| to.saturating_sub(from));
            Some((times.map_or(u64::MAX, |times| u64::try_from(times).unwrap_or(0)), body))
        }
        StmtKind::Expr(_)
        | StmtKind::SetVar(..)
        | StmtKind::ZeroVar(_)
        | StmtKind::SetMap { .. }
        | StmtKind::Aggregate { .. }
        | StmtKind::If { .. }
        | StmtKind::Repeat { .. }
        | StmtKind::Break
        | StmtKind::Continue
        | StmtKind::Return(_) => None,
    }
}
