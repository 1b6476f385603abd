//! Branches, loops, and what is computed once.

use std::collections::HashMap;

use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::{Cmp, Emit, ok};
use crate::bug;

/// Where `break` and `continue` lead.
#[derive(Clone, Copy)]
pub(super) struct Loop<'c> {
    next: BasicBlock<'c>,
    done: BasicBlock<'c>,
}

impl<'c> Emit<'c> {
    pub(super) fn here(&self) -> BasicBlock<'c> {
        match self.b.get_insert_block() {
            Some(b) => b,
            None => bug!("the builder stands nowhere"),
        }
    }

    pub(super) fn new_block(&mut self, name: &str) -> BasicBlock<'c> {
        let function = self.fun_ref().function;
        self.cx.append_basic_block(function, name)
    }

    fn go(&mut self, to: BasicBlock<'c>) {
        ok(self.b.build_unconditional_branch(to));
    }

    fn branch(&mut self, cond: IntValue<'c>, then: BasicBlock<'c>, otherwise: BasicBlock<'c>) {
        let bit = self.cmp_bit(Cmp::Ne, cond, self.int(0));
        ok(self.b.build_conditional_branch(bit, then, otherwise));
    }

    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        self.fun().once.push(HashMap::new());
        let value = f(self);
        self.fun().once.pop();
        value
    }

    /// `if (cond) then else otherwise`
    pub fn if_else(&mut self, cond: IntValue<'c>, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let (yes, no, end) = (self.new_block("then"), self.new_block("else"), self.new_block("end"));
        self.branch(cond, yes, no);
        self.b.position_at_end(yes);
        self.scoped(then);
        self.go(end);
        self.b.position_at_end(no);
        self.scoped(otherwise);
        self.go(end);
        self.b.position_at_end(end);
    }

    /// `if (cond) then`
    pub fn if_(&mut self, cond: IntValue<'c>, then: impl FnOnce(&mut Self)) {
        self.if_else(cond, then, |_| ());
    }

    /// `cond ? then : otherwise`, of which one is computed.
    pub fn choose(
        &mut self,
        cond: IntValue<'c>,
        then: impl FnOnce(&mut Self) -> IntValue<'c>,
        otherwise: impl FnOnce(&mut Self) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let (yes, no, end) = (self.new_block("then"), self.new_block("else"), self.new_block("end"));
        self.branch(cond, yes, no);
        self.b.position_at_end(yes);
        let a = self.scoped(then);
        let from_a = self.here();
        self.go(end);
        self.b.position_at_end(no);
        let b = self.scoped(otherwise);
        let from_b = self.here();
        self.go(end);
        self.b.position_at_end(end);
        let phi = ok(self.b.build_phi(self.i64t(), ""));
        phi.add_incoming(&[(&a, from_a), (&b, from_b)]);
        phi.as_basic_value().into_int_value()
    }

    /// `ptr` as it is when it is not null (a map's element), with its value; else the other.
    pub fn if_found(
        &mut self,
        ptr: PointerValue<'c>,
        found: impl FnOnce(&mut Self) -> IntValue<'c>,
        missing: impl FnOnce(&mut Self) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let is = self.not_null(ptr);
        self.choose(is, found, missing)
    }

    /// 1 when the pointer is not null.
    pub fn not_null(&self, ptr: PointerValue<'c>) -> IntValue<'c> {
        let bit = ok(self.b.build_is_not_null(ptr, ""));
        ok(self.b.build_int_z_extend(bit, self.i64t(), ""))
    }

    /// Leaves the program.
    pub fn ret(&mut self, value: Option<IntValue<'c>>) {
        let f = self.fun_ref();
        let (result, exit) = (f.result, f.exit);
        if let Some(v) = value {
            ok(self.b.build_store(result, v));
        }
        self.go(exit);
        self.dead_end();
    }

    /// What follows a jump is never reached; it still needs a block to stand in.
    fn dead_end(&mut self) {
        let dead = self.new_block("dead");
        self.b.position_at_end(dead);
    }

    /// `while (cond) body`; `cond` is a bool in a register. The verifier must be able to see the end of it.
    pub fn while_(&mut self, cond: impl FnOnce(&mut Self) -> IntValue<'c>, body: impl FnOnce(&mut Self), step: impl FnOnce(&mut Self)) {
        let (head, work, next, done) = (self.new_block("head"), self.new_block("loop"), self.new_block("next"), self.new_block("done"));
        self.go(head);
        self.b.position_at_end(head);
        self.fun().once.push(HashMap::new());
        let c = cond(self);
        self.branch(c, work, done);
        self.b.position_at_end(work);
        self.fun().loops.push(Loop { next, done });
        self.scoped(body);
        self.fun().loops.pop();
        self.go(next);
        self.b.position_at_end(next);
        self.scoped(step);
        self.go(head);
        self.fun().once.pop();
        self.b.position_at_end(done);
    }

    /// `body` for each of 0 .. `times`, as a loop the verifier walks; `body` gets the index.
    pub fn count(&mut self, times: u64, body: impl FnOnce(&mut Self, IntValue<'c>)) {
        let times = self.int(times);
        self.count_to(times, body);
    }

    /// The same up to a value that is known to be bounded.
    pub fn count_to(&mut self, times: IntValue<'c>, body: impl FnOnce(&mut Self, IntValue<'c>)) {
        let i = self.entry_alloca();
        ok(self.b.build_store(i, self.int(0)));
        let int = crate::types::Int { bytes: 8, signed: false };
        self.while_(
            |e| {
                let at = e.load(i, 0, int);
                e.cmp(Cmp::Ult, at, times)
            },
            |e| {
                let at = e.load(i, 0, int);
                body(e, at);
            },
            |e| {
                let at = e.load(i, 0, int);
                let up = e.add(at, e.int(1));
                e.store(i, 0, 8, up);
            },
        );
    }

    /// Leaves the innermost loop.
    pub fn break_(&mut self) {
        if let Some(l) = self.fun_ref().loops.last().copied() {
            self.go(l.done);
            self.dead_end();
        }
    }

    /// Goes on with the innermost loop's next turn.
    pub fn continue_(&mut self) {
        if let Some(l) = self.fun_ref().loops.last().copied() {
            self.go(l.next);
            self.dead_end();
        }
    }

    /// A value that cannot change within one run of the program, computed at its first use and kept for all that this
    /// use comes before.
    pub fn once(&mut self, name: &str, f: impl FnOnce(&mut Self) -> IntValue<'c>) -> IntValue<'c> {
        match self.known(name) {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => {
                let v = f(self);
                self.keep(name, v.into());
                v
            }
        }
    }

    /// The same for memory.
    pub fn once_ptr(&mut self, name: &str, f: impl FnOnce(&mut Self) -> PointerValue<'c>) -> PointerValue<'c> {
        match self.known(name) {
            Some(BasicValueEnum::PointerValue(v)) => v,
            _ => {
                let v = f(self);
                self.keep(name, v.into());
                v
            }
        }
    }

    fn known(&self, name: &str) -> Option<BasicValueEnum<'c>> {
        self.fun_ref().once.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    fn keep(&mut self, name: &str, value: BasicValueEnum<'c>) {
        if let Some(scope) = self.fun().once.last_mut() {
            scope.insert(name.into(), value);
        }
    }
}
