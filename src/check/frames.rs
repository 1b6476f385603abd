//! How deep a probe's loops are nested, those of the functions that it calls included: the kernel calls no more than eight
//! functions deep (`MAX_CALL_FRAMES` of include/linux/bpf_verifier.h), and a loop's body is one.

use std::collections::BTreeSet;

use super::hir::{Expr, ExprKind, Function, Node, Probe, Stmt, StmtKind, visit};
use crate::diag::{Diagnostic, Span};

/// The probe's own frame is one, and a builtin may need one.
const DEEPEST: u32 = 6;

/// Says so where a probe goes too deep.
pub fn check(probe: &Probe) -> Option<Diagnostic> {
    let mut walk = Walk { functions: &probe.functions, seen: BTreeSet::new(), found: None };
    walk.stmts(&probe.body, 0);
    let message = format!("loops are nested over {DEEPEST} deep, which the kernel refuses");
    walk.found.map(|at| {
        Diagnostic::error("too-deep", at, message)
            .help("let one loop do the work of two: `for $i : 0..n * m { … $i / m … $i % m … }`; make a macro of a function")
    })
}

struct Walk<'a> {
    functions: &'a [Function],
    /// Functions, and how deep they were called.
    seen: BTreeSet<(usize, u32)>,
    found: Option<Span>,
}

impl Walk<'_> {
    /// Each loop and call that is not within another one, so deep.
    fn stmts(&mut self, stmts: &[Stmt], depth: u32) {
        if self.found.is_some() {
            return;
        }
        for s in stmts {
            match &s.kind {
                StmtKind::ForRange { from, to, body, .. } => {
                    self.expr(from, depth);
                    self.expr(to, depth);
                    self.step(s.span, depth, |w, depth| w.stmts(body, depth));
                }
                StmtKind::ForMap { body, .. } => self.step(s.span, depth, |w, depth| w.stmts(body, depth)),
                StmtKind::While { cond, body } => self.step(s.span, depth, |w, depth| {
                    w.expr(cond, depth);
                    w.stmts(body, depth);
                }),
                StmtKind::If { cond, then, otherwise } => {
                    self.expr(cond, depth);
                    self.stmts(then, depth);
                    self.stmts(otherwise, depth);
                }
                StmtKind::Repeat { body, .. } => self.stmts(body, depth),
                StmtKind::Expr(_)
                | StmtKind::SetVar(..)
                | StmtKind::ZeroVar(_)
                | StmtKind::SetMap { .. }
                | StmtKind::Aggregate { .. }
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Return(_) => self.within(&[s], depth),
            }
        }
    }

    fn step(&mut self, at: Span, depth: u32, body: impl FnOnce(&mut Self, u32)) {
        if depth >= DEEPEST {
            self.found.get_or_insert(at);
        } else {
            body(self, depth + 1);
        }
    }

    fn expr(&mut self, e: &Expr, depth: u32) {
        let mut inner = Inner::default();
        e.visit(&mut |n| inner.see(n));
        self.inner(inner, depth);
    }

    /// Expressions of statements that hold no others themselves.
    fn within(&mut self, stmts: &[&Stmt], depth: u32) {
        for s in stmts {
            let mut inner = Inner::default();
            visit(std::slice::from_ref(*s), &mut |n| inner.see(n));
            self.inner(inner, depth);
        }
    }

    fn inner(&mut self, inner: Inner, depth: u32) {
        for id in inner.calls {
            let Some(f) = self.functions.get(id) else { continue };
            if self.seen.insert((id, depth)) {
                self.stmts(&f.body, depth);
            }
        }
        for stmts in inner.blocks {
            self.stmts(stmts, depth);
        }
    }
}

/// What an expression holds.
#[derive(Default)]
struct Inner<'a> {
    calls: Vec<usize>,
    blocks: Vec<&'a [Stmt]>,
}

impl<'a> Inner<'a> {
    fn see(&mut self, n: Node<'a>) {
        if let Node::Expr(e) = n {
            if let ExprKind::CallFn(id, _) = &e.kind {
                self.calls.push(*id);
            }
            if let ExprKind::Block(stmts, _) = &e.kind {
                self.blocks.push(stmts);
            }
        }
    }
}
