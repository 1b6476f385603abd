//! Maps that count the unfinished calls of each thread, so that each call has elements of its own in other maps:
//!
//! ```text
//! uprobe:./program:f    { @depth[tid]++; @start[tid, @depth[tid]] = nsecs; }
//! uretprobe:./program:f { $depth = @depth[tid]; …; if ($depth > 1) { @depth[tid] = $depth - 1; } else { delete(@depth, tid); } }
//! ```
//!
//! If both ends of a call run, or neither does, such a map has the same value after the call as before it. So the runs do not depend
//! on earlier calls, although they read what these have written.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::BTreeSet;
use std::ptr;

use super::latency_pairs::{deletes, is_thread};
use crate::builtins::MapId;
use crate::sema::hir::{self, CallArg, Expr, ExprKind, Node, Stmt, StmtKind};
use crate::syntax::ast::BinOp;

/// Do the entries count the calls of each thread in this map, and the returns count back? `is_table`: is it a map whose elements the
/// number of a call may distinguish?
pub(super) fn counts_calls(map: MapId, entries: &[&hir::Probe], returns: &[&hir::Probe], is_table: &dyn Fn(MapId) -> bool) -> bool {
    let all = |probes: &[&hir::Probe], step: &dyn Fn(&Uses, &Stmt) -> Option<usize>| {
        probes.iter().all(|probe| !is_mentioned_by_functions(map, probe) && Uses::of(map, &probe.body, is_table).step_once(step))
    };
    all(entries, &|uses, stmt| uses.counts(stmt)) && all(returns, &|uses, stmt| uses.counts_back(stmt))
}

fn is_mentioned_by_functions(map: MapId, probe: &hir::Probe) -> bool {
    let mut found = false;
    probe.functions.iter().for_each(|f| hir::visit(&f.body, &mut |node| found |= changes(node, map) || reads(node, map)));
    found
}

fn reads(node: Node, map: MapId) -> bool {
    matches!(node, Node::Expr(Expr { kind: ExprKind::Map(of, _) | ExprKind::ReadAgg(of, _), .. }) if *of == map)
}

/// Does it change the map, or use it other than by reading an element?
fn changes(node: Node, map: MapId) -> bool {
    let is_arg = |arg: &CallArg| matches!(arg, CallArg::Map(of) | CallArg::Element(of, _) if *of == map);
    match node {
        Node::Stmt(stmt) => match &stmt.kind {
            StmtKind::SetMap { map: of, .. } | StmtKind::ForMap { map: of, .. } => *of == map,
            StmtKind::Aggregate { map: of, call, .. } => *of == map || call.args.iter().any(is_arg),
            _ => false,
        },
        Node::Expr(e) => match &e.kind {
            ExprKind::StepMap { map: of, .. } => *of == map,
            ExprKind::AddrOf(of) => matches!(&of.kind, ExprKind::Map(of, _) if *of == map),
            ExprKind::Call(call) => call.args.iter().any(is_arg),
            _ => false,
        },
    }
}

/// The uses of a map by a body.
struct Uses<'a> {
    map: MapId,
    /// The statements that each run executes.
    body: &'a [Stmt],
    /// The predicate, if there is one.
    predicate: Option<&'a Expr>,
    /// The variables that have the thread's element.
    variables: BTreeSet<hir::VarId>,
    /// The expressions that read it, and those among them that can only tell calls apart.
    reads: BTreeSet<*const Expr>,
    harmless: BTreeSet<*const Expr>,
    changes: usize,
    returns: bool,
}

impl<'a> Uses<'a> {
    fn of(map: MapId, body: &'a [Stmt], is_table: &dyn Fn(MapId) -> bool) -> Self {
        let (predicate, inner) = hir::predicate(body);
        let mut uses = Self {
            map,
            body: inner,
            predicate,
            variables: BTreeSet::new(),
            reads: BTreeSet::new(),
            harmless: BTreeSet::new(),
            changes: 0,
            returns: hir::returns(body),
        };
        let mut set = Vec::new();
        hir::visit(body, &mut |node| match node {
            Node::Stmt(Stmt { kind: StmtKind::SetVar(var, value), .. }) => {
                set.push(*var);
                if let Some(read) = uses.element(value) {
                    uses.variables.insert(*var);
                    uses.harmless.insert(read);
                }
            }
            Node::Stmt(Stmt { kind: StmtKind::ZeroVar(var), .. }) | Node::Expr(Expr { kind: ExprKind::StepVar { var, .. }, .. }) => {
                set.push(*var);
            }
            Node::Expr(Expr { kind: ExprKind::AddrOf(of), .. }) => {
                if let ExprKind::Var(var) = &of.kind {
                    set.push(*var);
                }
            }
            _ => {}
        });
        uses.variables.retain(|var| set.iter().filter(|other| *other == var).count() == 1);
        hir::visit(body, &mut |node| {
            uses.changes += usize::from(changes(node, map));
            match node {
                Node::Expr(e) if uses.element(e).is_some_and(|read| ptr::eq(read, e)) || reads(node, map) => {
                    uses.reads.insert(e);
                }
                _ => {}
            }
            for key in keys(node, is_table) {
                uses.allow(key);
            }
        });
        uses
    }

    /// The expression that reads the thread's element, below casts.
    fn element<'e>(&self, e: &'e Expr) -> Option<&'e Expr> {
        match &e.kind {
            ExprKind::Cast(of, _) => self.element(of),
            ExprKind::Map(map, Some(key)) => (*map == self.map && is_thread(key)).then_some(e),
            ExprKind::Var(var) => self.variables.contains(var).then_some(e),
            _ => None,
        }
    }

    /// All reads in an expression only tell calls apart.
    fn allow(&mut self, e: &Expr) {
        let mut found = Vec::new();
        e.visit(&mut |node| {
            if let Node::Expr(e) = node {
                found.extend(self.element(e).map(ptr::from_ref));
            }
        });
        self.harmless.extend(found);
    }

    /// Does each run change the map once, by such a step, and use its value for nothing else but to tell calls apart? `step` gives the
    /// number of changes in a statement that is one.
    fn step_once(mut self, step: &dyn Fn(&Self, &Stmt) -> Option<usize>) -> bool {
        if let Some(predicate) = self.predicate {
            if !self.is_about_element(predicate) {
                return false;
            }
            self.allow(predicate);
        }
        let steps: Vec<(&Stmt, usize)> = self.body.iter().filter_map(|stmt| Some((stmt, step(&self, stmt)?))).collect();
        let [(stmt, changes)] = steps.as_slice() else { return false };
        if let StmtKind::If { cond, then, .. } = &stmt.kind {
            self.allow(cond);
            if let [Stmt { kind: StmtKind::SetMap { value, .. }, .. }] = then.as_slice() {
                self.allow(value);
            }
        }
        !self.returns && self.changes == *changes && self.reads.is_subset(&self.harmless)
    }

    /// `@m[tid]++`, without a predicate
    fn counts(&self, stmt: &Stmt) -> Option<usize> {
        (self.predicate.is_none() && self.steps_by(stmt, 1)).then_some(1)
    }

    /// `@m[tid]--`, or `if ($m > 1) { @m[tid] = $m - 1; } else { delete(@m, tid); }`
    fn counts_back(&self, stmt: &Stmt) -> Option<usize> {
        if self.steps_by(stmt, -1) {
            return Some(1);
        }
        let StmtKind::If { cond, then, else_: otherwise } = &stmt.kind else { return None };
        let ([set], [delete]) = (then.as_slice(), otherwise.as_slice()) else { return None };
        let StmtKind::SetMap { map, key: Some(key), value } = &set.kind else { return None };
        let sets = *map == self.map && is_thread(key) && self.is_one_less(value);
        (sets && deletes(delete) == Some(self.map) && self.is_more_than_one(cond)).then_some(2)
    }

    fn steps_by(&self, stmt: &Stmt, wanted: i64) -> bool {
        matches!(&stmt.kind, StmtKind::Expr(Expr { kind: ExprKind::StepMap { map, key: Some(key), by, .. }, .. })
            if *map == self.map && *by == wanted && is_thread(key))
    }

    fn is_one_less(&self, value: &Expr) -> bool {
        match &value.kind {
            ExprKind::Cast(of, _) => self.is_one_less(of),
            ExprKind::Binary(BinOp::Sub, a, b) => self.element(a).is_some() && is_number(b, 1),
            _ => false,
        }
    }

    fn is_more_than_one(&self, cond: &Expr) -> bool {
        match &cond.kind {
            ExprKind::Cast(of, _) => self.is_more_than_one(of),
            ExprKind::Binary(BinOp::Gt, a, b) => self.element(a).is_some() && is_number(b, 1),
            _ => false,
        }
    }

    /// Is the condition `@m[tid]` or `@m[tid] > 0`?
    fn is_about_element(&self, cond: &Expr) -> bool {
        match &cond.kind {
            ExprKind::Cast(of, _) => self.is_about_element(of),
            ExprKind::Binary(BinOp::Gt | BinOp::Ne, a, b) => self.element(a).is_some() && is_number(b, 0),
            _ => self.element(cond).is_some(),
        }
    }
}

fn is_number(e: &Expr, number: u64) -> bool {
    match &e.kind {
        ExprKind::Cast(of, _) => is_number(of, number),
        ExprKind::Int(is) => *is == number,
        _ => false,
    }
}

/// The keys of such maps in a piece of a body.
fn keys<'a>(node: Node<'a>, is_table: &dyn Fn(MapId) -> bool) -> Vec<&'a Expr> {
    match node {
        Node::Stmt(Stmt { kind: StmtKind::SetMap { map, key: Some(key), .. }, .. }) if is_table(*map) => vec![key],
        Node::Expr(Expr { kind: ExprKind::Map(map, Some(key)), .. }) if is_table(*map) => vec![key],
        Node::Expr(Expr { kind: ExprKind::Call(call), .. }) => {
            let names_table = call.args.iter().any(|arg| matches!(arg, CallArg::Map(map) | CallArg::Element(map, _) if is_table(*map)));
            let key = |arg: &'a CallArg| match arg {
                CallArg::Value(key) | CallArg::Element(_, key) => Some(key),
                _ => None,
            };
            if names_table { call.args.iter().filter_map(key).collect() } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}
