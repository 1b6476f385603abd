//! Statements.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::collections::BTreeMap;

use super::body::BodyChecker;
use super::convert::cast;
use super::fold;
use super::hir::{Expr, ExprKind, Node, Stmt, StmtKind, weight};
use super::types::{InferredType, WeakSign};
use crate::builtins::{self, Codegen};
use crate::diag::{Diagnostic, Span};
use crate::syntax::ast::{self, BinOp};
use crate::types::Type;

/// Maximum number of statements and expressions in all copies of a body. The verifier follows some thousands of
/// conditions in a row (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`), and a statement may have several.
const MAX_UNROLLED: u64 = 6000;
/// Maximum number of copies of a body in nested `unroll`s: more would take LLVM and the verifier minutes.
const MAX_COPIES: u64 = 10_000;

impl BodyChecker<'_> {
    /// A block in statement position: it has its own scope, and is evaluated for its effect.
    pub fn block(&mut self, block: &ast::Block) -> Vec<Stmt> {
        let mut out = Vec::new();
        self.frame.scopes.push(BTreeMap::new());
        self.block_into(block, &mut out);
        self.frame.scopes.pop();
        out
    }

    fn block_into(&mut self, block: &ast::Block, out: &mut Vec<Stmt>) {
        let dead = self.stmts(&block.stmts, out);
        if let Some(value) = &block.value {
            let mark = out.len();
            self.effect(value, out);
            if dead {
                self.unreachable(value.span);
                out.truncate(mark);
            }
        }
    }

    /// Statements in the current scope. Unreachable ones are checked and omitted; returns true if the end is
    /// unreachable.
    pub fn stmts(&mut self, stmts: &[ast::Stmt], out: &mut Vec<Stmt>) -> bool {
        let mut dead = false;
        let mut reported = false;
        for s in stmts {
            let mark = out.len();
            self.stmt(s, out);
            if dead {
                if !reported {
                    self.unreachable(s.span);
                    reported = true;
                }
                out.truncate(mark);
            }
            dead |= out.last().is_some_and(ends);
        }
        dead && reported || out.last().is_some_and(ends)
    }

    fn unreachable(&mut self, span: Span) {
        self.warn("unreachable", span, "this is never reached");
    }

    fn stmt(&mut self, s: &ast::Stmt, out: &mut Vec<Stmt>) {
        let span = self.use_site(s.span);
        let kind = match &s.kind {
            ast::StmtKind::Expr(e) => return self.effect(e, out),
            // in a separate block: the script has said that it does not need the value
            ast::StmtKind::Discard(e) => {
                let e = self.expr(e);
                StmtKind::Expr(Expr { ty: e.ty.clone(), span, kind: ExprKind::Block(Vec::new(), Box::new(e)) })
            }
            ast::StmtKind::Assign { target, op, value } => return self.assign(target, *op, value, span, out),
            ast::StmtKind::Let { var, ty, value } => return self.declare_var(var, ty.as_ref(), value.as_ref(), span, out),
            ast::StmtKind::While { cond, body } => {
                let d = Diagnostic::warning("deprecated", span, "`while` is deprecated: it stops after 8388607 iterations");
                self.report(d.help("use `for $i : 0..n { … }` or `unroll(n) { … }`"));
                let cond = self.condition(cond);
                self.loops += 1;
                let body = self.block(body);
                self.loops -= 1;
                StmtKind::While { cond, body }
            }
            ast::StmtKind::ForRange { var, from, to, body } => {
                let (from, to) = (self.value(from), self.value(to));
                let counted = self.range_of(&from, &to);
                let (from, to) = (self.as_bound(from), self.as_bound(to));
                self.frame.scopes.push(BTreeMap::new());
                let var = self.loop_var(var, counted);
                let body = self.for_body(body);
                self.frame.scopes.pop();
                StmtKind::ForRange { var, from, to, body }
            }
            ast::StmtKind::ForMap { var, map, body } => match self.for_map(var, map, body) {
                Some(kind) => kind,
                None => return,
            },
            ast::StmtKind::Unroll { times, body } => {
                let n = self.value(times);
                let times = match fold::constant(&n) {
                    Some(n @ 1..=100) => n as u32,
                    _ => {
                        if n.ty != Type::Void {
                            self.error("bad-unroll", times.span, "unroll takes a constant from 1 to 100");
                        }
                        1
                    }
                };
                let around = self.unroll_factor;
                self.unroll_factor = around.saturating_mul(u64::from(times));
                if self.unroll_factor > MAX_COPIES && around <= MAX_COPIES {
                    let message = format!("the body is unrolled {} times in all; the limit is {MAX_COPIES}", self.unroll_factor);
                    self.report(
                        Diagnostic::error("bad-unroll", s.span, message).help("use a loop for the outer one: `for $i : 0..n { … }`"),
                    );
                }
                self.loops += 1;
                let body = self.block(body);
                self.loops -= 1;
                self.unroll_factor = around;
                self.repeated(times, body, span)
            }
            ast::StmtKind::Break | ast::StmtKind::Continue => {
                let out_of = matches!(s.kind, ast::StmtKind::Break);
                if self.loops == 0 {
                    let word = if out_of { "break" } else { "continue" };
                    self.error("not-in-loop", span, format!("`{word}` is only allowed in a loop"));
                }
                if out_of { StmtKind::Break } else { StmtKind::Continue }
            }
            ast::StmtKind::Return(_) if self.frame.usage.is_some() => {
                self.error("in-macro", span, "a macro cannot `return`");
                return;
            }
            ast::StmtKind::Return(value) if self.function.is_some() => match self.returned_value(value.as_ref(), span) {
                Some(kind) => kind,
                None => return,
            },
            ast::StmtKind::Return(value) => StmtKind::Return(value.as_ref().map(|e| self.bound(e))),
            ast::StmtKind::Import(_) => {
                let d = Diagnostic::error("unsupported", span, "`import` is not allowed within a block");
                self.report(d.help("put it at the top of the script, after `config`"));
                return;
            }
        };
        out.push(Stmt { kind, span });
    }

    /// A repeated body: copies of it, or if that would be too long, an equivalent loop.
    fn repeated(&mut self, times: u32, body: Vec<Stmt>, span: Span) -> StmtKind {
        let small = u64::from(times).saturating_mul(weight(&body)) <= MAX_UNROLLED;
        let var = self.new_hidden_var(Type::I64);
        let copies = StmtKind::Repeat { times, var, body };
        if small { copies } else { copies.as_loop(span) }
    }

    /// An integer as `int64`.
    fn bound(&mut self, e: &ast::Expr) -> Expr {
        let e = self.value(e);
        self.as_bound(e)
    }

    /// The type that holds all numbers of a range.
    fn range_of(&self, from: &Expr, to: &Expr) -> InferredType {
        let mut counted = InferredType::default();
        for e in [from, to] {
            counted.add(&e.ty.as_int().map_or(Type::Void, Type::Int), &self.weakness(e), e.span);
        }
        if counted.ty == Type::Void { InferredType { ty: Type::I64, weak_sign: WeakSign::No, span: from.span } } else { counted }
    }

    fn as_bound(&mut self, e: Expr) -> Expr {
        match &e.ty {
            Type::Int(_) | Type::Bool | Type::Enum(_) => cast(e, &Type::I64),
            Type::Void => e,
            ty => {
                let message = format!("this must be an integer, but it is {ty}");
                self.fail("type-mismatch", e.span, message)
            }
        }
    }

    fn loop_var(&mut self, var: &ast::Ident, held: InferredType) -> usize {
        if self.find_var(&var.name).is_some() {
            self.redeclared(var);
        }
        let id = self.declare(&var.name, Some(held.ty.clone()));
        if let Some(done) = self.assigned.get_mut(id) {
            *done = true;
        }
        if let Some(v) = self.vars.get_mut(id) {
            v.inferred = InferredType { span: var.span, ..held };
            v.set = true;
        }
        id
    }

    fn redeclared(&mut self, var: &ast::Ident) {
        let d = Diagnostic::error("redeclared", var.span, format!("the variable `${}` exists already", var.name));
        self.report(d.help("rename one of them"));
    }

    fn for_body(&mut self, body: &ast::Block) -> Vec<Stmt> {
        self.loops += 1;
        self.fors += 1;
        let body = self.block(body);
        self.loops -= 1;
        self.fors -= 1;
        body
    }

    fn for_map(&mut self, var: &ast::Ident, map: &ast::Expr, body: &ast::Block) -> Option<StmtKind> {
        let ast::ExprKind::Map { name, key: None } = &map.kind else {
            self.error("type-mismatch", map.span, "`for` needs a range `a..b` or a whole map");
            return None;
        };
        let name = &self.map_name(name);
        let id = self.use_map(name, map.span);
        if let Some((None, Some(place))) = self.maps.get(name).map(|f| (f.keyed, f.scalar)) {
            let d = Diagnostic::error("map-key-conflict", map.span, format!("`for` needs a map with keys, but `@{name}` has none"));
            self.report(d.related(place, "used without a key here"));
        }
        let (key, value) = (self.maps.key(name), self.maps.value(name));
        let weak = WeakSign::Parts(vec![key.weak_sign, value.weak_sign]);
        let (key, value) = (key.ty, value.ty);
        let value = match &value {
            Type::Agg(agg) if !self.env.tables.can_read(&agg.function) => {
                let message = format!("`@{name}` holds {}(), which has no single number to read", agg.function);
                self.error("not-readable", map.span, message);
                Type::Void
            }
            Type::Agg(agg) => Type::Int(crate::types::Int { bytes: 8, signed: agg.signed }),
            _ => value,
        };
        let known = key != Type::Void && value != Type::Void;
        let ty = if known { Type::Tuple(vec![key, value]) } else { Type::Void };
        let pair = InferredType { ty, weak_sign: weak, span: map.span };
        self.frame.scopes.push(BTreeMap::new());
        let var = self.loop_var(var, pair);
        let body = self.for_body(body);
        self.frame.scopes.pop();
        Some(StmtKind::ForMap { var, map: id, body })
    }

    /// An expression for its effect: `if`, ternary and block become statements.
    fn effect(&mut self, e: &ast::Expr, out: &mut Vec<Stmt>) {
        let span = self.use_site(e.span);
        match &e.kind {
            ast::ExprKind::If { cond, then, otherwise } => {
                if let Some(chosen) = self.comptime_choice(cond) {
                    // The other branch is not checked at all.
                    let branch = match chosen {
                        Some(true) => Some(then),
                        Some(false) => otherwise.as_ref(),
                        None => None,
                    };
                    return out.append(&mut branch.map(|b| self.block(b)).unwrap_or_default());
                }
                let cond = self.condition(cond);
                let then = self.block(then);
                let otherwise = otherwise.as_ref().map(|b| self.block(b)).unwrap_or_default();
                out.push(Stmt { kind: StmtKind::If { cond, then, else_: otherwise }, span });
            }
            ast::ExprKind::Ternary { cond, then: Some(then), otherwise } => {
                let cond = self.condition(cond);
                let (mut a, mut b) = (Vec::new(), Vec::new());
                self.effect(then, &mut a);
                self.effect(otherwise, &mut b);
                out.push(Stmt { kind: StmtKind::If { cond, then: a, else_: b }, span });
            }
            ast::ExprKind::Call { name, args } if self.is_macro(&name.name, args) => self.macro_effect(&name.name, args, span, out),
            ast::ExprKind::Ident(name) if self.substitute(name).is_none() && self.is_macro(name, &[]) => {
                self.macro_effect(name, &[], span, out);
            }
            ast::ExprKind::Block(block) => {
                self.frame.scopes.push(BTreeMap::new());
                self.block_into(block, out);
                self.frame.scopes.pop();
            }
            _ => {
                let value = self.expr(e);
                if let ExprKind::Call(call) = &value.kind
                    && is_discarded(call)
                {
                    self.warn("no-effect", span, format!("the result of `{}` is not used", call.row.name));
                } else if value.ty != Type::Void && !has_effect(&value) {
                    self.warn("no-effect", span, "this has no effect");
                    // A bare `@x` only names the map.
                    if !divides(&value) {
                        return;
                    }
                }
                out.push(Stmt { kind: StmtKind::Expr(value), span });
            }
        }
    }

    fn declare_var(&mut self, var: &ast::Ident, ty: Option<&ast::TypeExpr>, value: Option<&ast::Expr>, span: Span, out: &mut Vec<Stmt>) {
        // The value is outside the variable's scope.
        let value = value.map(|e| self.stored(e));
        if self.find_var(&var.name).is_some() {
            self.redeclared(var);
        }
        let declared = ty.and_then(|t| self.type_expr(t));
        // a variable holds a struct by value
        let declared = declared.map(|ty| self.expand_type(&ty).unwrap_or(ty));
        if let (Some(Type::Void), Some(t)) = (&declared, ty) {
            self.error("bad-type", t.span, "a variable cannot be void");
        }
        let opaque = declared.clone().filter(|ty| matches!(ty, Type::Deferred(_)));
        let open = opaque.is_some() || matches!(declared, Some(Type::Str(0) | Type::Buf(0)));
        let id = self.declare(&var.name, declared.clone().filter(|_| !open));
        if let Some(v) = self.vars.get_mut(id) {
            v.opaque.clone_from(&opaque);
            v.empty = Some(span).filter(|_| value.is_none());
        }
        let declared = declared.filter(|_| opaque.is_none());
        if let (Some(ty), Some(v)) = (&declared, self.vars.get_mut(id)) {
            let min = match ty {
                Type::Str(0) => Type::Str(1),
                ty => ty.clone(),
            };
            v.inferred.add(&min, &WeakSign::No, span);
        }
        let kind = match value {
            Some(value) => self.set_var(id, value, span),
            None => StmtKind::ZeroVar(id),
        };
        out.push(Stmt { kind, span });
    }

    fn assign(&mut self, target: &ast::Expr, op: Option<BinOp>, value: &ast::Expr, span: Span, out: &mut Vec<Stmt>) {
        match &target.kind {
            ast::ExprKind::Var(name) => {
                let value = match op {
                    None => self.stored(value),
                    Some(op) => {
                        let old = self.var(name, target.span);
                        if self.find_var(name).is_none() {
                            self.value(value);
                            return;
                        }
                        let operand = self.value(value);
                        self.binary_of(op, old, operand, span)
                    }
                };
                let id = match self.find_var(name) {
                    Some(id) => id,
                    None => self.declare(name, None),
                };
                let kind = self.set_var(id, value, span);
                out.push(Stmt { kind, span });
            }
            ast::ExprKind::Map { name, key } => {
                let name = self.map_name(name);
                let key = key.as_deref().map(|k| self.key_value(k, target.span));
                let key = self.use_key(&name, key, target.span);
                match op {
                    None => self.set_map(&name, key, value, span, out),
                    Some(op) => self.update_map(&name, key, op, value, span, out),
                }
            }
            _ => {
                self.value(value);
                let d = Diagnostic::error("not-assignable", target.span, "only variables and maps can be assigned to");
                self.report(d);
            }
        }
    }

    fn set_map(&mut self, name: &str, key: Option<Expr>, value: &ast::Expr, span: Span, out: &mut Vec<Stmt>) {
        if let Some((row, args)) = self.aggregation(value) {
            self.maps.found(name, span).set = true;
            let Some((call, ty)) = self.aggregate_call(row, args, value.span) else { return };
            self.maps.found(name, span).value.add(&ty, &WeakSign::No, span);
            let target = self.maps.value(name);
            if !self.same_aggregate(name, &ty, &target, value.span) {
                return;
            }
            let map = self.maps.id(name);
            out.push(Stmt { kind: StmtKind::Aggregate { map, key, call }, span });
            return;
        }
        let value = self.stored(value);
        let kind = self.map_value(name, key, value, span);
        out.push(Stmt { kind, span });
    }

    fn map_value(&mut self, name: &str, key: Option<Expr>, value: Expr, span: Span) -> StmtKind {
        let weak = self.assigned_weakness(&value, self.maps.was_seen(name));
        let found = self.maps.found(name, span);
        found.set = true;
        found.value.add(&value.ty, &weak, span);
        let target = self.maps.value(name);
        let value = self.assigned_value(value, &target, &format!("@{name}"), false);
        StmtKind::SetMap { map: self.maps.id(name), key, value }
    }

    fn same_aggregate(&mut self, name: &str, ty: &Type, target: &super::types::InferredType, span: Span) -> bool {
        let fine = match (ty, &target.ty) {
            (_, Type::Void) => true,
            (Type::Agg(a), Type::Agg(b)) => a.function == b.function && a.params == b.params,
            _ => false,
        };
        if !fine {
            let message = match (ty, &target.ty) {
                (Type::Agg(a), Type::Agg(b)) if a.function == b.function => {
                    format!("`@{name}` holds {}() with other parameters elsewhere", a.function)
                }
                (Type::Agg(a), Type::Agg(b)) => format!("`@{name}` holds {}() and cannot hold {}()", b.function, a.function),
                (Type::Agg(a), other) => format!("`@{name}` is {other} and cannot hold {}()", a.function),
                (_, other) => format!("`@{name}` is {other}"),
            };
            self.report(Diagnostic::error("type-conflict", span, message).related(target.span, "its type comes from here"));
        }
        fine
    }

    /// `@m[k] += e`
    fn update_map(&mut self, name: &str, key: Option<Expr>, op: BinOp, value: &ast::Expr, span: Span, out: &mut Vec<Stmt>) {
        let operand = self.value(value);
        let value = self.maps.value(name);
        // A constant step of an integer is one operation.
        let step = match (op, fold::is_literal(&operand).then(|| fold::constant(&operand)).flatten()) {
            (BinOp::Add, Some(n)) => Some(n),
            (BinOp::Sub, Some(n)) => Some(n.wrapping_neg()),
            _ => None,
        };
        if let (Some(n), Type::Void | Type::Int(_)) = (step, &value.ty) {
            let e = self.step_map(name, key, n, false, span);
            out.push(Stmt { kind: StmtKind::Expr(e), span });
            return;
        }
        if let Type::Agg(agg) = &value.ty {
            let message = format!("`@{name}` holds {}() and cannot be assigned to", agg.function);
            self.report(Diagnostic::error("type-conflict", span, message).related(value.span, "its type comes from here"));
            return;
        }
        if value.ty == Type::Void {
            // Starts from zero: the added value determines the type.
            let wide = match operand.ty.as_int() {
                Some(i) if matches!(operand.ty, Type::Int(_)) => Type::Int(crate::types::Int { bytes: 8, signed: i.signed }),
                _ => operand.ty.clone(),
            };
            let weak = self.is_weak(&operand).into();
            let found = self.maps.found(name, span);
            found.set = true;
            found.value.add(&wide, &weak, span);
            return;
        }
        // The key is used twice, so compute it once.
        let key = key.map(|k| match &k.kind {
            ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Var(_) => k,
            _ => {
                let var = self.new_hidden_var(k.ty.clone());
                let (at, ty) = (k.span, k.ty.clone());
                out.push(Stmt { kind: StmtKind::SetVar(var, k), span: at });
                Expr { kind: ExprKind::Var(var), ty, span: at }
            }
        });
        let old = self.read_map(name, key.clone(), span);
        let value = self.binary_of(op, old, operand, span);
        let kind = self.map_value(name, key, value, span);
        out.push(Stmt { kind, span });
    }
}

/// Does control never pass a statement?
pub fn ends(s: &Stmt) -> bool {
    match &s.kind {
        StmtKind::Break | StmtKind::Continue | StmtKind::Return(_) => true,
        StmtKind::Expr(e) => match &e.kind {
            ExprKind::Call(call) => builtins::ends_probe(call.row),
            _ => false,
        },
        StmtKind::If { then, else_: otherwise, .. } => then.last().is_some_and(ends) && otherwise.last().is_some_and(ends),
        StmtKind::SetVar(..)
        | StmtKind::ZeroVar(_)
        | StmtKind::SetMap { .. }
        | StmtKind::Aggregate { .. }
        | StmtKind::Repeat { .. }
        | StmtKind::While { .. }
        | StmtKind::ForRange { .. }
        | StmtKind::ForMap { .. } => false,
    }
}

/// Would omitting its evaluation make a difference?
pub fn has_effect(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Call(call) => call.args.iter().any(|a| matches!(a, super::hir::CallArg::Value(e) if has_effect(e))) || !is_plain(call),
        ExprKind::StepVar { .. } | ExprKind::StepMap { .. } | ExprKind::Block(..) | ExprKind::CallFn(..) | ExprKind::CallForeign(..) => {
            true
        }
        ExprKind::Int(_) | ExprKind::Str(_) | ExprKind::Var(_) | ExprKind::Context(_) => false,
        ExprKind::Map(_, key) | ExprKind::ReadAgg(_, key) => key.as_deref().is_some_and(has_effect),
        ExprKind::Field(e, _) | ExprKind::Deref(e, _) | ExprKind::Unary(_, e) | ExprKind::AddrOf(e) | ExprKind::Cast(e, _) => has_effect(e),
        // what is impossible is reported
        ExprKind::Index(a, b) => !matches!(b.kind, ExprKind::Int(_)) || has_effect(a),
        ExprKind::Binary(BinOp::Div | BinOp::Mod, a, b) => !matches!(b.kind, ExprKind::Int(1..)) || has_effect(a),
        ExprKind::Binary(_, a, b) => has_effect(a) || has_effect(b),
        ExprKind::Cond(a, b, c) => has_effect(a) || has_effect(b) || has_effect(c),
        ExprKind::Tuple(elems) => elems.iter().any(has_effect),
    }
}

/// May it divide by zero, which is reported at run time?
fn divides(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |n| {
        if let Node::Expr(Expr { kind: ExprKind::Binary(BinOp::Div | BinOp::Mod, _, divisor), .. }) = n {
            found |= fold::constant(divisor).is_none_or(|n| n == 0);
        }
    });
    found
}

/// Does a call, as a statement, only compute a value?
fn is_discarded(call: &super::hir::Call) -> bool {
    let computes = matches!(call.row.codegen, Codegen::Code(_) | Codegen::Either(..) | Codegen::Known(..));
    computes && call.ty != Type::Void && !is_plain(call)
}

/// A builtin that works like a variable: it has no parameters and returns a value.
fn is_plain(call: &super::hir::Call) -> bool {
    call.args.is_empty() && call.row.params.iter().all(|p| p.optional) && call.ty != Type::Void
}
