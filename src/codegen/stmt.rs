//! Statements.

use super::Gen;
use crate::builtins::{Lower, MapId};
use crate::check::hir::{self, Expr, Stmt, StmtKind};
use crate::emit::{Cmp, Helper, IntValue, Operand, PointerValue};
use crate::types::{Int, Type};

/// Where a variable lives.
#[derive(Clone, Copy)]
pub(super) enum Home<'c> {
    /// A scalar's: a register, once LLVM has looked at it.
    Scalar(PointerValue<'c>),
    /// Anything else's.
    Memory(PointerValue<'c>),
}

const I64: Int = Int { bytes: 8, signed: true };

impl<'a, 'c> Gen<'a, 'c> {
    /// Gives each variable a home that lasts as long as the program.
    pub(super) fn home_vars(&mut self, probe: &hir::Probe) {
        self.var_types = probe.vars.iter().map(|v| v.ty.clone()).collect();
        for v in &probe.vars {
            let home = if v.ty.is_scalar() {
                let at = self.e.scalar_home();
                let zero = self.e.int(0);
                self.e.store(at, 0, 8, zero);
                Home::Scalar(at)
            } else {
                let size = v.ty.size() + if matches!(v.ty, Type::Str(_)) { 1 } else { 0 };
                let at = self.e.alloc(size);
                if size <= self.e.on_stack_limit {
                    self.e.zero(at, size.next_multiple_of(8), 8);
                }
                Home::Memory(at)
            };
            self.vars.push(home);
        }
    }

    pub(super) fn block(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            let mark = self.e.mark();
            self.at(s.span);
            self.stmt(s);
            self.e.release(mark);
        }
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Expr(e) => {
                self.expr(e);
            }
            StmtKind::SetVar(var, value) => {
                let op = self.expr(value);
                match self.vars[*var] {
                    Home::Scalar(at) => {
                        let v = self.e.scalar(&op);
                        self.e.store(at, 0, 8, v);
                    }
                    Home::Memory(at) => self.e.put(at, 8, &op, &value.ty),
                }
            }
            StmtKind::ZeroVar(var) => match self.vars[*var] {
                Home::Scalar(at) => {
                    let zero = self.e.int(0);
                    self.e.store(at, 0, 8, zero);
                }
                Home::Memory(at) => {
                    let size = self.var_type(*var).size().next_multiple_of(8);
                    self.e.zero(at, size, 8);
                }
            },
            StmtKind::SetMap { map, key, value } => self.set_map(*map, key.as_ref(), value),
            StmtKind::Aggregate { map, key, call } => self.aggregate(*map, key.as_ref(), call),
            StmtKind::If { cond, then, otherwise } => {
                let c = self.condition(cond);
                self.if_else(c, |g| g.block(then), |g| g.block(otherwise));
            }
            StmtKind::Repeat { times, body } => {
                for _ in 0..*times {
                    self.block(body);
                }
            }
            StmtKind::While { cond, body } => self.loop_(|g| g.condition(cond), |g| g.block(body), |_| ()),
            StmtKind::ForRange { var, from, to, body } => {
                let (first, end) = (self.expr(from), self.expr(to));
                let (first, end) = (self.e.scalar(&first), self.e.scalar(&end));
                let counter = self.e.scalar_home();
                self.e.store(counter, 0, 8, first);
                let Home::Scalar(home) = self.vars[*var] else { crate::bug!("a range's variable is an integer") };
                self.loop_(
                    |g| {
                        let i = g.e.load(counter, 0, I64);
                        g.e.cmp(Cmp::Slt, i, end)
                    },
                    |g| {
                        let i = g.e.load(counter, 0, I64);
                        g.e.store(home, 0, 8, i);
                        g.block(body);
                    },
                    |g| {
                        let i = g.e.load(counter, 0, I64);
                        let up = g.e.add(i, g.e.int(1));
                        g.e.store(counter, 0, 8, up);
                    },
                );
            }
            StmtKind::ForMap { .. } => crate::bug!("loops over maps are refused by the checker"),
            StmtKind::Break => self.e.break_(),
            StmtKind::Continue => self.e.continue_(),
            StmtKind::Return(value) => {
                let v = value.as_ref().map(|e| {
                    let op = self.expr(e);
                    self.e.scalar(&op)
                });
                self.e.ret(v);
            }
        }
    }

    fn var_type(&self, var: hir::VarId) -> Type {
        self.var_types.get(var).cloned().unwrap_or(Type::Void)
    }

    /// A plain map's element. One word that is there already is overwritten in place; anything else is replaced whole, so
    /// that no reader sees half of it.
    fn set_map(&mut self, map: MapId, key: Option<&Expr>, value: &Expr) {
        let ty = self.script.maps[map].value.clone();
        let op = self.expr(value);
        let at = self.map_key(map, key);
        let handle = self.e.script_map(map);
        if ty.is_scalar() || key.is_none() {
            let slot = self.e.lookup(handle, at);
            let found = self.e.not_null(slot);
            let keyed = key.is_some();
            self.if_else(
                found,
                |g| g.e.put(slot, 8, &op, &ty),
                |g| {
                    if keyed {
                        g.insert(handle, at, &op, &ty);
                    }
                },
            );
        } else {
            self.insert(handle, at, &op, &ty);
        }
    }

    /// Stores a whole element; a refusal is reported.
    pub(super) fn insert(&mut self, map: PointerValue<'c>, key: PointerValue<'c>, op: &Operand<'c>, ty: &Type) {
        let size = ty.size();
        let value = if let crate::emit::Repr::Mem(ptr, _) = op.repr
            && op.ty == *ty
            && size.is_multiple_of(8)
        {
            ptr
        } else {
            let tmp = self.e.alloc(size);
            if !size.is_multiple_of(8) {
                self.e.zero(tmp, size.next_multiple_of(8), 8);
            }
            self.e.put(tmp, 8, op, ty);
            tmp
        };
        let r = self.e.update(map, key, value);
        self.e.refused(r);
        self.e.check(Helper::MapUpdateElem, r, 1);
    }

    fn aggregate(&mut self, map: MapId, key: Option<&Expr>, call: &hir::Call) {
        let Lower::Aggregate(row) = &call.row.lower else { crate::bug!("{} is an aggregation", call.row.name) };
        let Type::Agg(agg) = self.script.maps[map].value.clone() else { crate::bug!("an aggregation's map holds one") };
        let args = self.args(call);
        let at = self.map_key(map, key);
        let handle = self.e.script_map(map);
        let slot = self.e.slot(handle, at, agg.size);
        let there = self.e.not_null(slot);
        let facts = call.to_use(Some(agg.clone()));
        self.e.if_(there, |e| (row.update)(e, &facts, Operand::mem(Type::Agg(agg), slot), &args));
    }

    /// A map's key in memory.
    pub(super) fn map_key(&mut self, map: MapId, key: Option<&Expr>) -> PointerValue<'c> {
        let ty = self.script.maps[map].key.clone();
        let op = key.map(|k| self.expr(k));
        self.e.key(op.as_ref(), ty.as_ref())
    }

    /// [`Emit::if_else`](crate::emit::Emit::if_else) with the compiler at hand on both sides.
    pub(super) fn if_else(&mut self, cond: IntValue<'c>, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let branch = self.e.begin_if(cond);
        then(self);
        self.e.else_(&branch);
        otherwise(self);
        self.e.end_if(branch);
    }

    fn loop_(&mut self, cond: impl FnOnce(&mut Self) -> IntValue<'c>, body: impl FnOnce(&mut Self), step: impl FnOnce(&mut Self)) {
        let turn = self.e.begin_loop();
        let c = cond(self);
        self.e.loop_body(&turn, c);
        body(self);
        self.e.loop_step(&turn);
        step(self);
        self.e.end_loop(turn);
    }
}
