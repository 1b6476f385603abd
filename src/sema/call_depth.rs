//! Limits the nesting of loops, including those of called functions. The kernel limits calls to a depth of eight
//! (`MAX_CALL_FRAMES` of include/linux/bpf_verifier.h), and the body of a loop is a function.

use std::collections::BTreeSet;

use super::hir::{Expr, ExprKind, Function, Node, Probe, Stmt, StmtKind, visit_within};
use crate::diag::{Diagnostic, Span};

/// The probe's own frame is one, and a builtin may need one.
const MAX_CALL_DEPTH: u32 = 6;

/// Reports probes whose loops are nested too deeply.
pub fn check(probe: &Probe) -> Option<Diagnostic> {
    let mut walk = Walk { functions: &probe.functions, visited: BTreeSet::new(), too_deep: None };
    walk.stmts(&probe.body, 0);
    let message = format!("loops are nested more than {MAX_CALL_DEPTH} deep, which the kernel rejects");
    walk.too_deep.map(|at| {
        Diagnostic::error("too-deep", at, message)
            .help("merge two loops into one: `for $i : 0..n * m { … $i / m … $i % m … }`; or turn a function into a macro")
    })
}

struct Walk<'a> {
    functions: &'a [Function],
    /// Functions, and the depths of their calls.
    visited: BTreeSet<(usize, u32)>,
    too_deep: Option<Span>,
}

impl Walk<'_> {
    /// Statements within this many loops and calls.
    fn stmts(&mut self, stmts: &[Stmt], depth: u32) {
        visit_within(stmts, &mut |n, around| {
            let depth = depth + around.loops;
            match n {
                Node::Stmt(Stmt { kind: StmtKind::ForRange { .. } | StmtKind::ForMap { .. } | StmtKind::While { .. }, span })
                    if depth >= MAX_CALL_DEPTH =>
                {
                    self.too_deep.get_or_insert(*span);
                }
                Node::Expr(Expr { kind: ExprKind::CallFn(id, _), .. }) => self.call(*id, depth),
                Node::Stmt(_) | Node::Expr(_) => {}
            }
        });
    }

    fn call(&mut self, id: usize, depth: u32) {
        if let (Some(f), None) = (self.functions.get(id), self.too_deep)
            && self.visited.insert((id, depth))
        {
            self.stmts(&f.body, depth);
        }
    }
}
