//! Plain maps to whose values a script only adds. They are counts or sums, so those of several machines add up.

#![allow(clippy::wildcard_enum_match_arm)] // matches on few variants

use std::collections::BTreeSet;

use crate::builtins::MapId;
use crate::sema::hir::{self, Call, CallArg, Expr, ExprKind, FunctionId, Node, Stmt, StmtKind, VarId};
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
    stepped.difference(&assigned).copied().filter(|map| is_integer(map) && !adds_to_itself(script, *map)).collect()
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

/// What is added if the value is the element plus or minus something, and which of the two.
pub(super) fn added<'a>(map: MapId, key: Option<&Expr>, value: &'a Expr) -> Option<(BinOp, &'a Expr)> {
    let is_element = |e: &Expr| matches!(&without_casts(e).kind, ExprKind::Map(m, k) if *m == map && k.as_deref() == key);
    match &without_casts(value).kind {
        ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) if is_element(a) => Some((*op, b)),
        ExprKind::Binary(BinOp::Add, a, b) if is_element(b) => Some((BinOp::Add, a)),
        _ => None,
    }
}

/// Does what the script adds to the map, or whether it adds, depend on the map? `@max += $x - @max` only looks like a sum, and so do
/// `if ($x > @max) { $d = $x - @max; @max += $d; }` and the same by way of another map or a function.
fn adds_to_itself(script: &hir::Script, map: MapId) -> bool {
    let mut flow = Flow { of: map, maps: BTreeSet::from([map]), ..Flow::default() };
    // what a probe has stored, the others read
    loop {
        let before = flow.size();
        for (id, probe) in script.probes.iter().enumerate() {
            flow.body((id, None), &probe.body, false);
            for (function, f) in probe.functions.iter().enumerate() {
                let scope = (id, Some(function));
                flow.body(scope, &f.body, flow.guarded.contains(&scope));
            }
        }
        if flow.found || flow.size() == before {
            return flow.found;
        }
    }
}

/// A body: the probe, and one of its functions.
type Scope = (usize, Option<FunctionId>);

/// Where the values of a map go. It errs on the side of too many places.
#[derive(Default)]
struct Flow {
    /// The map.
    of: MapId,
    /// Maps whose values depend on it, itself among them.
    maps: BTreeSet<MapId>,
    vars: BTreeSet<(Scope, VarId)>,
    /// Functions whose results do.
    results: BTreeSet<Scope>,
    /// Functions that are called under a condition which depends on it.
    guarded: BTreeSet<Scope>,
    /// The rest of the body depends on it, because of a `return`, `break` or `continue` under such a condition.
    left: bool,
    /// What is added to the map depends on it.
    found: bool,
}

impl Flow {
    fn size(&self) -> usize {
        self.maps.len() + self.vars.len() + self.results.len() + self.guarded.len()
    }

    fn body(&mut self, scope: Scope, stmts: &[Stmt], guarded: bool) {
        self.left = false;
        self.stmts(scope, stmts, guarded);
    }

    /// Follows statements, which are `guarded` if they are under a condition that depends on the map.
    fn stmts(&mut self, scope: Scope, stmts: &[Stmt], guarded: bool) {
        for stmt in stmts {
            self.stmt(scope, stmt, guarded || self.left);
        }
    }

    /// A loop repeats its body, so that its end comes before its start.
    fn repeated(&mut self, scope: Scope, stmts: &[Stmt], guarded: bool) {
        self.stmts(scope, stmts, guarded);
        if self.left && !guarded {
            self.stmts(scope, stmts, true);
        }
    }

    fn stmt(&mut self, scope: Scope, stmt: &Stmt, guarded: bool) {
        match &stmt.kind {
            StmtKind::Expr(e) => {
                self.depends(scope, e, guarded);
            }
            StmtKind::SetVar(var, e) => {
                let depends = self.depends(scope, e, guarded);
                self.set_var(scope, *var, depends || guarded);
            }
            StmtKind::ZeroVar(var) => self.set_var(scope, *var, guarded),
            StmtKind::SetMap { map, key, value } => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded));
                if *map != self.of {
                    let depends = self.depends(scope, value, guarded);
                    self.set_map(*map, depends || by_key || guarded);
                } else if let Some((_, value)) = added(*map, key.as_ref(), value) {
                    self.found |= self.depends(scope, value, guarded) || guarded;
                }
            }
            StmtKind::Aggregate { map, key, call } => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded));
                let depends = self.call(scope, call, guarded);
                self.set_map(*map, depends || by_key || guarded);
            }
            StmtKind::If { cond, then, else_: otherwise } => {
                let guarded = self.depends(scope, cond, guarded) || guarded;
                self.stmts(scope, then, guarded);
                self.stmts(scope, otherwise, guarded);
            }
            StmtKind::Repeat { var, body, .. } => {
                self.set_var(scope, *var, guarded);
                self.repeated(scope, body, guarded);
            }
            StmtKind::While { cond, body } => {
                let guarded = self.depends(scope, cond, guarded) || guarded;
                self.repeated(scope, body, guarded);
                self.depends(scope, cond, guarded);
            }
            StmtKind::ForRange { var, from, to, body } => {
                let ends = [from, to].map(|end| self.depends(scope, end, guarded));
                let guarded = ends.contains(&true) || guarded;
                self.set_var(scope, *var, guarded);
                self.repeated(scope, body, guarded);
            }
            StmtKind::ForMap { var, map, body } => {
                let guarded = self.maps.contains(map) || guarded;
                self.set_var(scope, *var, guarded);
                self.repeated(scope, body, guarded);
            }
            StmtKind::Break | StmtKind::Continue => self.left |= guarded,
            StmtKind::Return(value) => {
                self.left |= guarded;
                if value.as_ref().is_some_and(|value| self.depends(scope, value, guarded)) || guarded {
                    self.results.insert(scope);
                }
            }
        }
    }

    fn set_var(&mut self, scope: Scope, var: VarId, depends: bool) {
        if depends {
            self.vars.insert((scope, var));
        }
    }

    fn set_map(&mut self, map: MapId, depends: bool) {
        if depends {
            self.maps.insert(map);
        }
    }

    /// Does the value depend on the map?
    fn depends(&mut self, scope: Scope, expr: &Expr, guarded: bool) -> bool {
        match &expr.kind {
            ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Context(_) => false,
            ExprKind::Var(var) => self.vars.contains(&(scope, *var)),
            ExprKind::StepVar { var, .. } => {
                self.set_var(scope, *var, guarded);
                self.vars.contains(&(scope, *var))
            }
            ExprKind::Map(map, key) | ExprKind::ReadAgg(map, key) => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded));
                by_key || self.maps.contains(map)
            }
            ExprKind::StepMap { map, key, .. } => {
                let by_key = key.as_ref().is_some_and(|key| self.depends(scope, key, guarded));
                self.found |= *map == self.of && guarded;
                self.set_map(*map, by_key || guarded);
                self.maps.contains(map)
            }
            ExprKind::Field(a, _) | ExprKind::Deref(a, _) | ExprKind::Unary(_, a) | ExprKind::AddrOf(a) | ExprKind::Cast(a, _) => {
                self.depends(scope, a, guarded)
            }
            ExprKind::Binary(BinOp::And | BinOp::Or, a, b) => {
                let first = self.depends(scope, a, guarded);
                self.depends(scope, b, guarded || first) || first
            }
            ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => {
                let first = self.depends(scope, a, guarded);
                self.depends(scope, b, guarded) || first
            }
            ExprKind::Cond(cond, a, b) => {
                let cond = self.depends(scope, cond, guarded);
                let either = [a, b].map(|e| self.depends(scope, e, guarded || cond));
                cond || either.contains(&true)
            }
            ExprKind::Block(stmts, value) => {
                self.stmts(scope, stmts, guarded);
                self.depends(scope, value, guarded || self.left)
            }
            ExprKind::Tuple(all) => {
                let mut any = false;
                for e in all {
                    any |= self.depends(scope, e, guarded);
                }
                any
            }
            ExprKind::Call(call) => self.call(scope, call, guarded),
            ExprKind::CallForeign(_, args) => {
                let mut any = false;
                for e in args {
                    any |= self.depends(scope, e, guarded);
                }
                any
            }
            ExprKind::CallFn(id, args) => {
                let callee = (scope.0, Some(*id));
                for (param, arg) in args.iter().enumerate() {
                    let depends = self.depends(scope, arg, guarded);
                    self.set_var(callee, param, depends || guarded);
                }
                if guarded {
                    self.guarded.insert(callee);
                }
                self.results.contains(&callee)
            }
        }
    }

    fn call(&mut self, scope: Scope, call: &Call, guarded: bool) -> bool {
        let mut any = false;
        for arg in &call.args {
            any |= match arg {
                CallArg::Value(e) => self.depends(scope, e, guarded),
                CallArg::Map(map) => {
                    // it may be emptied
                    self.set_map(*map, guarded);
                    self.maps.contains(map)
                }
                CallArg::Element(map, key) => {
                    let by_key = self.depends(scope, key, guarded);
                    self.set_map(*map, by_key || guarded);
                    self.maps.contains(map)
                }
                CallArg::Word(_) | CallArg::Type(_) => false,
            };
        }
        any
    }
}
