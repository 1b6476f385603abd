//! Branches, loops, and values that are computed once.

use std::collections::HashMap;

use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

use super::{Builder, Cmp, ok};
use crate::bug;

/// The targets of `break` and `continue`.
#[derive(Clone, Copy)]
pub(super) struct Loop<'c> {
    next: BasicBlock<'c>,
    done: BasicBlock<'c>,
}

/// An unrolled loop.
pub struct UnrolledLoop<'c> {
    done: BasicBlock<'c>,
}

/// A branch under construction.
pub struct IfBlocks<'c> {
    else_block: BasicBlock<'c>,
    end: BasicBlock<'c>,
    yes_value: std::cell::Cell<Option<(IntValue<'c>, BasicBlock<'c>)>>,
}

/// A loop under construction.
pub struct LoopBlocks<'c> {
    head: BasicBlock<'c>,
    work: BasicBlock<'c>,
    next: BasicBlock<'c>,
    done: BasicBlock<'c>,
}

impl<'c> Builder<'_, 'c> {
    pub(super) fn current_block(&self) -> BasicBlock<'c> {
        match self.b.get_insert_block() {
            Some(b) => b,
            None => bug!("the builder stands nowhere"),
        }
    }

    pub(super) fn new_block(&self, name: &str) -> BasicBlock<'c> {
        let function = self.fun.function;
        self.llcx.append_basic_block(function, name)
    }

    fn go(&mut self, to: BasicBlock<'c>) {
        ok(self.b.build_unconditional_branch(to));
    }

    fn branch(&mut self, cond: IntValue<'c>, then: BasicBlock<'c>, otherwise: BasicBlock<'c>) {
        let bit = self.cmp_bit(Cmp::Ne, cond, self.int(0));
        ok(self.b.build_conditional_branch(bit, then, otherwise));
    }

    /// Starts `if (cond)`; the first branch follows.
    pub fn begin_if(&mut self, cond: IntValue<'c>) -> IfBlocks<'c> {
        let (yes, no, end) = (self.new_block("then"), self.new_block("else"), self.new_block("end"));
        self.branch(cond, yes, no);
        self.b.position_at_end(yes);
        self.fun.cached_values.push(HashMap::new());
        IfBlocks { else_block: no, end, yes_value: std::cell::Cell::new(None) }
    }

    /// Starts the other branch.
    pub fn else_(&mut self, branch: &IfBlocks<'c>) {
        self.fun.cached_values.pop();
        self.go(branch.end);
        self.b.position_at_end(branch.else_block);
        self.fun.cached_values.push(HashMap::new());
    }

    /// Ends both branches.
    pub fn end_if(&mut self, branch: IfBlocks<'c>) {
        self.fun.cached_values.pop();
        self.go(branch.end);
        self.b.position_at_end(branch.end);
    }

    /// Starts `cond ? a : b`; the code of `a` follows.
    pub fn begin_choose(&mut self, cond: IntValue<'c>) -> IfBlocks<'c> {
        self.begin_if(cond)
    }

    /// Ends the code of `a`; that of `b` follows.
    pub fn choose_else(&mut self, branch: &IfBlocks<'c>, value: IntValue<'c>) {
        branch.yes_value.set(Some((value, self.current_block())));
        self.else_(branch);
    }

    /// Ends the code of `b`.
    pub fn end_choose(&mut self, branch: IfBlocks<'c>, value: IntValue<'c>) -> IntValue<'c> {
        let from = self.current_block();
        let yes = branch.yes_value.get();
        self.end_if(branch);
        let phi = ok(self.b.build_phi(self.i64t(), ""));
        phi.add_incoming(&[(&value, from)]);
        if let Some((v, block)) = yes {
            phi.add_incoming(&[(&v, block)]);
        }
        phi.as_basic_value().into_int_value()
    }

    /// `if (cond) then else otherwise`
    pub fn if_else(&mut self, cond: IntValue<'c>, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let branch = self.begin_if(cond);
        then(self);
        self.else_(&branch);
        otherwise(self);
        self.end_if(branch);
    }

    /// `if (cond) then`
    pub fn if_(&mut self, cond: IntValue<'c>, then: impl FnOnce(&mut Self)) {
        self.if_else(cond, then, |_| ());
    }

    /// `cond ? then : otherwise`, of which only one is computed.
    pub fn choose(
        &mut self,
        cond: IntValue<'c>,
        then: impl FnOnce(&mut Self) -> IntValue<'c>,
        otherwise: impl FnOnce(&mut Self) -> IntValue<'c>,
    ) -> IntValue<'c> {
        if let Some(known) = cond.get_zero_extended_constant() {
            return if known != 0 { then(self) } else { otherwise(self) };
        }
        let branch = self.begin_choose(cond);
        let a = then(self);
        self.choose_else(&branch, a);
        let b = otherwise(self);
        self.end_choose(branch, b)
    }

    /// `ptr` if it is not null (an element of a map), else the other value.
    pub fn if_found(
        &mut self,
        ptr: PointerValue<'c>,
        found: impl FnOnce(&mut Self) -> IntValue<'c>,
        missing: impl FnOnce(&mut Self) -> IntValue<'c>,
    ) -> IntValue<'c> {
        let is = self.not_null(ptr);
        self.choose(is, found, missing)
    }

    /// 1 if the pointer is not null.
    pub fn not_null(&self, ptr: PointerValue<'c>) -> IntValue<'c> {
        let bit = ok(self.b.build_is_not_null(ptr, ""));
        ok(self.b.build_int_z_extend(bit, self.i64t(), ""))
    }

    /// Returns from the program.
    pub fn ret(&mut self, value: Option<IntValue<'c>>) {
        let f = &self.fun;
        let (result, exit) = (f.result, f.exit);
        if let Some(v) = value {
            ok(self.b.build_store(result, v));
        }
        self.go(exit);
        self.dead_end();
    }

    /// The code after a jump is unreachable, but needs a block.
    fn dead_end(&mut self) {
        let dead = self.new_block("dead");
        self.b.position_at_end(dead);
    }

    /// Starts a loop; the code of its condition follows. The verifier must be able to prove that the loop ends.
    pub fn begin_loop(&mut self) -> LoopBlocks<'c> {
        let turn = LoopBlocks {
            head: self.new_block("head"),
            work: self.new_block("loop"),
            next: self.new_block("next"),
            done: self.new_block("done"),
        };
        self.go(turn.head);
        self.b.position_at_end(turn.head);
        self.fun.cached_values.push(HashMap::new());
        turn
    }

    /// Ends the code of the condition (0 or not); the body follows.
    pub fn loop_body(&mut self, turn: &LoopBlocks<'c>, cond: IntValue<'c>) {
        self.branch(cond, turn.work, turn.done);
        self.b.position_at_end(turn.work);
        let f = &mut self.fun;
        f.loops.push(Loop { next: turn.next, done: turn.done });
        f.cached_values.push(HashMap::new());
    }

    /// Ends the body; the step to the next iteration follows.
    pub fn loop_step(&mut self, turn: &LoopBlocks<'c>) {
        let f = &mut self.fun;
        f.cached_values.pop();
        f.loops.pop();
        self.go(turn.next);
        self.b.position_at_end(turn.next);
    }

    /// Ends the loop.
    pub fn end_loop(&mut self, turn: LoopBlocks<'c>) {
        self.go(turn.head);
        self.fun.cached_values.pop();
        self.b.position_at_end(turn.done);
    }

    /// Starts an unrolled loop; the copies of its body follow.
    pub fn begin_copies(&mut self) -> UnrolledLoop<'c> {
        UnrolledLoop { done: self.new_block("done") }
    }

    /// Starts a copy of the body.
    pub fn begin_copy(&mut self, copies: &UnrolledLoop<'c>) {
        let next = self.new_block("next");
        let f = &mut self.fun;
        f.loops.push(Loop { next, done: copies.done });
        f.cached_values.push(HashMap::new());
    }

    /// Ends the copy.
    pub fn end_copy(&mut self) {
        let f = &mut self.fun;
        f.cached_values.pop();
        if let Some(l) = f.loops.pop() {
            self.go(l.next);
            self.b.position_at_end(l.next);
        }
    }

    /// Ends the unrolled loop.
    pub fn end_copies(&mut self, copies: UnrolledLoop<'c>) {
        self.go(copies.done);
        self.b.position_at_end(copies.done);
    }

    /// `while (cond) body`, with a step between iterations.
    pub fn while_(&mut self, cond: impl FnOnce(&mut Self) -> IntValue<'c>, body: impl FnOnce(&mut Self), step: impl FnOnce(&mut Self)) {
        let turn = self.begin_loop();
        let c = cond(self);
        self.loop_body(&turn, c);
        body(self);
        self.loop_step(&turn);
        step(self);
        self.end_loop(turn);
    }

    /// Runs `body` with each index in 0 .. `times`, as a loop that the verifier follows.
    pub fn count(&mut self, times: u64, body: impl FnOnce(&mut Self, IntValue<'c>)) {
        let times = self.int(times);
        self.count_to(times, body);
    }

    /// The same, up to a value with a known bound.
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

    /// Is this within a loop of this function?
    pub fn in_loop(&self) -> bool {
        !self.fun.loops.is_empty()
    }

    /// Leaves the innermost loop.
    pub fn break_(&mut self) {
        if let Some(l) = self.fun.loops.last().copied() {
            self.go(l.done);
            self.dead_end();
        }
    }

    /// Continues with the next iteration of the innermost loop.
    pub fn continue_(&mut self) {
        if let Some(l) = self.fun.loops.last().copied() {
            self.go(l.next);
            self.dead_end();
        }
    }

    /// A value that cannot change within one run of the program. It is computed at its first use, and later uses that the first
    /// one dominates share it.
    pub fn once(&mut self, name: &str, f: impl FnOnce(&mut Self) -> IntValue<'c>) -> IntValue<'c> {
        match self.cached_value(name) {
            Some(BasicValueEnum::IntValue(v)) => v,
            _ => {
                let v = f(self);
                self.cache_value(name, v.into());
                v
            }
        }
    }

    /// The same for memory.
    pub fn once_ptr(&mut self, name: &str, f: impl FnOnce(&mut Self) -> PointerValue<'c>) -> PointerValue<'c> {
        match self.cached_value(name) {
            Some(BasicValueEnum::PointerValue(v)) => v,
            _ => {
                let v = f(self);
                self.cache_value(name, v.into());
                v
            }
        }
    }

    /// Memory that [`Builder::release`] does not free, for a value that is the same wherever it is computed: it has one place,
    /// which different branches may fill. At most 32 bytes.
    pub fn alloc_known(&mut self, name: &str, size: u32) -> PointerValue<'c> {
        if let Some(at) = self.fun.temporaries.kept.get(name) {
            return *at;
        }
        let at = self.alloc_kept(size);
        self.fun.temporaries.kept.insert(name.to_string(), at);
        at
    }

    fn cached_value(&self, name: &str) -> Option<BasicValueEnum<'c>> {
        self.fun.cached_values.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    fn cache_value(&mut self, name: &str, value: BasicValueEnum<'c>) {
        if let Some(scope) = self.fun.cached_values.last_mut() {
            scope.insert(name.into(), value);
        }
    }
}
