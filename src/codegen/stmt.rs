//! Statements.

use std::collections::BTreeSet;

use super::expr::narrowed;
use super::{Gen, adding, double_buffer, walked};
use crate::builtins::{Codegen, MapId};
use crate::diag::Span;
use crate::emit::{
    BasicValue, Builder, CALLBACK_ARGUMENTS, Cmp, Helper, IntValue, LoopLimit, MAX_WALKED_ITERATIONS, Operand, PointerValue,
};
use crate::sema::hir::{self, Expr, ExprKind, Stmt, StmtKind};
use crate::syntax::ast::BinOp;
use crate::types::{Int, Type};

/// The location of a variable.
#[derive(Clone, Copy)]
pub(super) enum VarLocation<'c> {
    /// In a register (a scalar, after LLVM's optimizations) or in memory.
    At(PointerValue<'c>),
    /// At an offset in scratch memory: used in a loop, whose body is a separate function.
    Scratch(u32),
}

/// The data that the body of a loop needs from the enclosing program, on that program's stack: what
/// [`crate::emit::Builder::save_program_state`] writes, then these.
pub(super) struct Loops<'c> {
    ptr: PointerValue<'c>,
    /// Number of loops so far: their functions need names.
    count: u32,
    /// The offset of the place of the numbers of a statement that shares its code with others.
    row: Option<u32>,
}

/// The script executed `return` in a loop.
const RETURNED: u32 = CALLBACK_ARGUMENTS;
const RETURN_VALUE: u32 = CALLBACK_ARGUMENTS + 8;
/// The first numbers of the active loops, by depth.
const FIRST_NUMBERS: u32 = CALLBACK_ARGUMENTS + 16;
/// `MAX_CALL_FRAMES` of include/linux/bpf_verifier.h: loops cannot be nested deeper.
const MAX_LOOP_NESTING: u32 = 8;

/// The number of values that are kept in registers, or on the stack when those run out; more values are in scratch
/// memory.
const IN_REGISTERS: u32 = 10;
/// `BPF_MAX_LOOPS` of include/linux/bpf.h, minus one.
const MAX_ITERATIONS: u64 = (8 << 20) - 1;
const I64: Int = Int { bytes: 8, signed: true };

impl<'a, 'c> Gen<'a, 'c> {
    /// Assigns each variable a location for the whole program; the first ones may have a `given` one in scratch memory.
    pub(super) fn alloc_vars(&mut self, vars: &[hir::Var], body: &[Stmt], given: &[Option<u32>]) {
        self.body.var_types = vars.iter().map(|v| v.ty.clone()).collect();
        let (loops, inside) = loops_in(body);
        self.expect_loops(loops);
        if self.nesting(body) > 0 {
            let loop_state = self.e.alloc_loop_state();
            if self.body.function.is_none() {
                self.e.copy_loop_state(None, Some(loop_state));
            }
            self.body.loop_state = Some(loop_state);
        }
        if has_while(body) {
            let (offset, zero) = (self.e.alloc_scratch(8), self.e.int(0));
            let iterations = self.e.scratch_at(offset);
            self.e.store(iterations, 0, 8, zero);
            self.body.iterations = Some(offset);
        }
        let mut scalars = 0;
        for (i, v) in vars.iter().enumerate() {
            if let Some(Some(offset)) = given.get(i) {
                self.body.vars.push(VarLocation::Scratch(*offset));
                continue;
            }
            scalars += u32::from(v.ty.is_scalar());
            let size = v.ty.size().max(8) + if matches!(v.ty, Type::Str(_)) { 1 } else { 0 };
            let stack_slot = match (self.body.chunks.is_some() || inside.contains(&i), v.ty.is_scalar()) {
                (true, _) => VarLocation::Scratch(self.e.alloc_scratch(size)),
                (false, true) if scalars > IN_REGISTERS => VarLocation::Scratch(self.e.alloc_scratch(size)),
                (false, true) => VarLocation::At(self.e.scalar_slot()),
                (false, false) => VarLocation::At(self.e.alloc(size)),
            };
            self.body.vars.push(stack_slot);
            if v.ty.is_scalar() || size <= self.e.options.on_stack_limit {
                let ptr = self.var_ptr(i);
                self.e.zero(ptr, size.next_multiple_of(8), 8);
            }
        }
    }

    /// Reserves the memory for this number of loops.
    fn expect_loops(&mut self, loops: u32) {
        if loops > 0 {
            let size = FIRST_NUMBERS + 8 * loops.min(MAX_LOOP_NESTING);
            let place = self.e.row_place();
            let ptr = self.e.alloc_kept(size + if place.is_some() { 8 } else { 0 });
            let zero = self.e.int(0);
            self.e.store(ptr, RETURNED, 8, zero);
            if let Some(place) = place {
                self.e.store(ptr, size, 8, place);
            }
            self.body.loops = Some(Loops { ptr, count: 0, row: place.map(|_| size) });
        }
    }

    /// The same for those of some statements.
    pub(super) fn own_loops(&mut self, stmts: &[Stmt]) {
        self.expect_loops(loops_in(stmts).0);
    }

    /// The address of a variable's location, computed here.
    pub(super) fn var_ptr(&mut self, var: hir::VarId) -> PointerValue<'c> {
        match self.body.vars[var] {
            VarLocation::At(at) => self.e.rematerialize(at),
            VarLocation::Scratch(offset) => self.e.scratch_address(offset),
        }
    }

    pub(super) fn block(&mut self, stmts: &[Stmt]) {
        if self.body.chunks.is_none() {
            return self.statements(stmts);
        }
        // statements that are performed as one stay together
        let pairs = double_buffer::pairs(stmts);
        let (mut from, mut at) = (0, 0);
        while at < stmts.len() {
            let rest = stmts.get(at..).unwrap_or_default();
            let mut n = self.piece(rest).clamp(1, rest.len());
            if let Some(pair) = pairs.iter().find(|p| p.print_stmt < at + n && at + n <= p.clear_stmt) {
                n = (pair.clear_stmt + 1).saturating_sub(at);
            }
            if n > 1 {
                self.statements(stmts.get(from..at).unwrap_or_default());
                self.chunk(rest.get(..n).unwrap_or_default());
                from = at + n;
            }
            at += n;
        }
        self.statements(stmts.get(from..).unwrap_or_default());
    }

    pub(super) fn statements(&mut self, stmts: &[Stmt]) {
        let taken = double_buffer::pairs(stmts);
        for (i, s) in stmts.iter().enumerate() {
            let part = taken.iter().find(|t| (t.print_stmt == i || t.clear_stmt == i) && self.e.double(t.map).is_some());
            if part.is_some_and(|t| t.clear_stmt == i) {
                continue;
            }
            self.print_and_empty = part.copied();
            self.temporarily(|g| {
                g.at(s.span);
                match g.shared_shape(s).filter(|_| part.is_none()) {
                    Some(shape) => g.alike(s, shape),
                    None => g.stmt(s),
                }
            });
        }
    }

    fn stmt(&mut self, s: &Stmt) {
        match &s.kind {
            StmtKind::Expr(e) => {
                self.expr(e);
            }
            StmtKind::SetVar(var, value) => {
                let op = self.expr(value);
                let ptr = self.var_ptr(*var);
                if value.ty.is_scalar() {
                    let v = self.e.scalar(&op);
                    self.e.store(ptr, 0, 8, v);
                } else {
                    self.e.store_value(ptr, 8, &op, &value.ty);
                }
            }
            StmtKind::ZeroVar(var) => {
                let ptr = self.var_ptr(*var);
                let size = self.var_type(*var).size().next_multiple_of(8);
                self.e.zero(ptr, size, 8);
            }
            StmtKind::SetMap { map, key, value } => self.set_map(*map, key.as_ref(), value),
            StmtKind::Aggregate { map, key, call } => self.aggregate(*map, key.as_ref(), call),
            StmtKind::If { cond, then, else_: otherwise } => {
                let c = self.condition(cond);
                self.if_else(c, |g| g.block(then), |g| g.block(otherwise));
            }
            StmtKind::Repeat { times, body, .. } => {
                let copies = self.e.begin_copies();
                for _ in 0..*times {
                    self.e.begin_copy(&copies);
                    self.block(body);
                    self.e.end_copy();
                }
                self.e.end_copies(copies);
            }
            StmtKind::While { cond, body } => {
                self.limit_iterations(s);
                self.while_(cond, body);
            }
            StmtKind::ForRange { var, from, to, body } => {
                self.limit_iterations(s);
                let (first, end) = (self.expr(from), self.expr(to));
                let (first, end) = (self.e.scalar(&first), self.e.scalar(&end));
                let limit = if walked::is_short(s) { MAX_WALKED_ITERATIONS } else { self.body.iteration_limit };
                self.range(*var, (first, end), body, limit, s.span);
            }
            StmtKind::ForMap { var, map, body } => {
                self.limit_iterations(s);
                self.each(*var, *map, body);
            }
            StmtKind::Break => self.jump(true),
            StmtKind::Continue => self.jump(false),
            StmtKind::Return(value) => {
                let v = value.as_ref().and_then(|e| {
                    let op = self.expr(e);
                    self.result(&op)
                });
                self.leave(v);
            }
        }
    }

    /// `break`, or `continue`.
    pub(super) fn jump(&mut self, out_of: bool) {
        match out_of {
            true if self.e.in_loop() => self.e.break_(),
            false if self.e.in_loop() => self.e.continue_(),
            _ if self.jumps_out_of_chunk() => self.jump_out_of_chunk(out_of),
            // in the function that is a loop's body: 1 ends the loop, 0 continues (bpf_loop and bpf_for_each_map_elem
            // in bpf-helpers(7))
            _ => {
                let stop = self.e.int(u64::from(out_of));
                self.e.ret(Some(stop));
            }
        }
    }

    /// Leaves the probe or function, including from within loops.
    pub(super) fn leave(&mut self, value: Option<IntValue<'c>>) {
        let ignored = self.body.function.is_none() && self.site.kind.program(self.site, &self.cx.env).row().returns_fixed;
        let value = value.filter(|_| !ignored);
        match (&self.body.loops, self.body.depth) {
            (Some(l), 1..) => {
                let at = l.ptr;
                let one = self.e.int(1);
                self.e.store(at, RETURNED, 8, one);
                let default = if self.body.function.is_none() { self.default_return } else { 0 };
                let value = value.unwrap_or(self.e.int(default));
                self.e.store(at, RETURN_VALUE, 8, value);
                self.e.ret(Some(one));
            }
            _ if self.jumps_out_of_chunk() => self.return_from_chunk(value),
            _ => self.e.ret(value),
        }
    }

    /// Sets the limit for a loop and those within it, for kernels without `bpf_loop`.
    fn limit_iterations(&mut self, stmt: &Stmt) {
        if self.body.depth == 0 && !self.e.target.loop_helper.holds() {
            self.body.iteration_limit = walked::iteration_limit(stmt);
        }
    }

    /// `for $v : first..end`. The kernel rejects more than [`MAX_ITERATIONS`] iterations; the loop then stops after these, which
    /// is reported. Without `bpf_loop`, it stops at `limit`.
    fn range(&mut self, var: hir::VarId, (first, end): (IntValue<'c>, IntValue<'c>), body: &[Stmt], limit: u64, span: Span) {
        let number = FIRST_NUMBERS + 8 * self.body.depth.min(MAX_LOOP_NESTING - 1);
        let name = self.loop_name();
        let ptr = self.loop_context();
        self.e.store(ptr, number, 8, first);
        let some = self.e.cmp(Cmp::Slt, first, end);
        let times = self.e.sub(end, first);
        let times = self.e.select(some, times, self.e.int(0));
        let max = self.e.int(MAX_ITERATIONS + 1);
        let beyond = self.e.cmp(Cmp::Ugt, times, max);
        let times = self.e.select(beyond, max, times);
        let callback = self.loop_function(&name, &[true, false], self.e.target.loop_helper.holds(), |g, params| {
            if let Some(BasicValue::IntValue(i)) = params.first() {
                let ptr = g.loop_context();
                let first = g.e.load(ptr, number, I64);
                let i = g.e.add(first, *i);
                let stack_slot = g.var_ptr(var);
                g.e.store(stack_slot, 0, 8, i);
            }
            g.block(body);
        });
        // for a number of iterations that is visibly zero, the kernel drops the callback and then misses it, so the
        // number is hidden from it (unless the verifier follows the iterations, which requires the number)
        let times = match self.e.target.loop_helper.holds() {
            true => {
                let offset = self.e.alloc_scratch(8);
                let kept = self.e.scratch_at(offset);
                self.e.store(kept, 0, 8, times);
                let kept = self.e.scratch_at(offset);
                self.e.load(kept, 0, I64)
            }
            false => times,
        };
        let r = self.e.bpf_loop(times, callback, ptr, limit);
        self.at(span);
        if self.e.target.loop_helper.holds() {
            self.e.check(Helper::Loop, r, 1);
            self.e.if_(beyond, |e| {
                let all = e.cmp(Cmp::Eq, r, e.int(MAX_ITERATIONS + 1));
                e.if_(all, |e| e.problem("`for` stopped after 8388608 iterations"));
            });
        } else {
            self.left_early(r, times, limit, "for");
        }
        self.after_loop();
    }

    /// `while`: the kernel counts the iterations, so the verifier need not find the end. An endless loop stops after
    /// [`MAX_ITERATIONS`], at any nesting depth, which is reported.
    fn while_(&mut self, cond: &Expr, body: &[Stmt]) {
        let name = self.loop_name();
        let ptr = self.loop_context();
        let callback = self.loop_function(&name, &[true, false], self.e.target.loop_helper.holds(), |g, _| {
            let Some(iterations) = g.body.iterations else { crate::bug!("loops were counted") };
            let counter = g.e.scratch_at(iterations);
            let turn = g.e.load(counter, 0, I64);
            let turn = g.e.add(turn, g.e.int(1));
            g.e.store(counter, 0, 8, turn);
            let endless = g.e.cmp(Cmp::Sgt, turn, g.e.int(MAX_ITERATIONS));
            g.e.if_(endless, |e| {
                let first = e.cmp(Cmp::Eq, turn, e.int(MAX_ITERATIONS + 1));
                e.if_(first, |e| e.problem("`while` stopped after 8388607 iterations"));
                let stop = e.int(1);
                e.ret(Some(stop));
            });
            let go_on = g.condition(cond);
            let done = g.e.cmp(Cmp::Eq, go_on, g.e.int(0));
            g.e.if_(done, |e| {
                let stop = e.int(1);
                e.ret(Some(stop));
            });
            g.block(body);
        });
        // one more than allowed, so that exceeding the limit is noticed
        let max = self.e.int(MAX_ITERATIONS + 1);
        let r = self.e.bpf_loop(max, callback, ptr, self.body.iteration_limit);
        if self.e.target.loop_helper.holds() {
            self.e.check(Helper::Loop, r, 1);
        } else {
            self.left_early(r, max, self.body.iteration_limit, "while");
        }
        self.after_loop();
    }

    /// Reports a loop that stopped at the iteration limit of this kernel before it was finished.
    fn left_early(&mut self, iterations: IntValue<'c>, requested: IntValue<'c>, limit: u64, word: &str) {
        let all = self.e.cmp(Cmp::Eq, iterations, self.e.int(limit));
        self.e.if_(all, |e| {
            let more = e.cmp(Cmp::Ugt, requested, e.int(limit));
            e.if_(more, |e| {
                e.problem(&format!("`{word}` stopped after {limit} iterations, the limit of this kernel; Linux 5.17 allows more"))
            });
        });
    }

    /// `for $kv : @map`
    fn each(&mut self, var: hir::VarId, map: MapId, body: &[Stmt]) {
        let name = self.loop_name();
        let ptr = self.loop_context();
        let callback = self.loop_function(&name, &[false; 4], true, |g, params| {
            g.store_element(var, map, params);
            g.block(body);
        });
        let r = self.e.over_script_map(map, |e, handle| {
            let zero = e.int(0);
            e.call(Helper::ForEachMapElem, &[handle.into(), callback.into(), ptr.into(), zero.into()])
        });
        self.e.check(Helper::ForEachMapElem, r, 1);
        self.after_loop();
    }

    /// Sets a loop's variable to the key and the value that the helper passes.
    fn store_element(&mut self, var: hir::VarId, map: MapId, params: &[BasicValue<'c>]) {
        let (Type::Tuple(types), Some(key)) = (self.var_type(var), self.cx.script.maps[map].key.clone()) else {
            crate::bug!("a loop over a map has a tuple for its variable")
        };
        if let (Some(BasicValue::PointerValue(k)), Some(BasicValue::PointerValue(v)), [key_ty, value_ty]) =
            (params.get(1), params.get(2), types.as_slice())
        {
            let offsets = Type::tuple_offsets(&types);
            let stack_slot = self.var_ptr(var);
            let from = self.e.element(*k, 0, &key);
            self.e.store_value(stack_slot, 8, &from, key_ty);
            let ty = self.cx.script.maps[map].value.clone();
            // the helper passes only this CPU's part
            let aggregate = matches!(ty, Type::Agg(_));
            let value = if aggregate { self.read_aggregate_at(map, *k, value_ty) } else { self.e.element(*v, 0, &ty) };
            let stack_slot = self.var_ptr(var);
            let offset = offsets.get(1).copied().unwrap_or(0);
            let to = self.e.offset(stack_slot, offset);
            self.e.store_value(to, crate::emit::align_at(offset), &value, value_ty);
        }
    }

    fn loop_name(&mut self) -> String {
        match &mut self.body.loops {
            Some(l) => {
                l.count += 1;
                let within = self.body.function.as_ref().map_or("", |w| &w.name);
                let chunk = self.body.chunks.as_ref().map_or(0, |c| c.count);
                format!("loop_{}_{within}_{chunk}_{}", self.program, l.count)
            }
            None => crate::bug!("loops were counted"),
        }
    }

    /// The data lent to the loops, as addressed from here.
    fn loop_context(&self) -> PointerValue<'c> {
        match &self.body.loops {
            Some(l) => l.ptr,
            None => crate::bug!("loops were counted"),
        }
    }

    /// Builds the function of a loop's body for a helper to call; its last parameter is the lent data. `checks` is
    /// false if the verifier follows each iteration: such loops are short, and a check would double its paths in each
    /// iteration.
    fn loop_function(
        &mut self,
        name: &str,
        numbers: &[bool],
        checks: bool,
        body: impl FnOnce(&mut Self, &[BasicValue<'c>]),
    ) -> PointerValue<'c> {
        let outside = self.loop_context();
        // the verifier checks a piece with its callers if it uses a context that it cannot take
        let is_in_piece = self.body.chunks.as_ref().is_some_and(|c| c.within > 0) && !self.e.passes_context();
        if is_in_piece {
            self.e.save_state_without_context(outside);
        } else {
            self.e.save_program_state(outside);
        }
        let (mut builder, params) = self.e.begin_callback(name, numbers);
        if let Some(row) = self.body.loops.as_ref().and_then(|l| l.row) {
            builder.share_within(row);
        }
        let builder = self.emit_into(builder, |g, around| {
            if let (Some(BasicValue::PointerValue(ptr)), Some(l)) = (params.last(), &mut g.body.loops) {
                l.ptr = *ptr;
            }
            let ptr = g.loop_context();
            g.e.restore_program_state(around, ptr);
            g.body.depth += 1;
            if checks {
                g.break_if_over();
            }
            body(g, &params);
            g.body.depth -= 1;
        });
        if let Some(l) = &mut self.body.loops {
            l.ptr = outside;
        }
        if is_in_piece && builder.uses_context() {
            self.e.save_context(outside);
        }
        let go_on = self.e.int(0);
        self.e.end_callback(builder, go_on)
    }

    /// Leaves the loop, and those around it, if the run is over or they take too long.
    fn break_if_over(&mut self) {
        let interrupted = self.e.interrupted();
        self.if_else(interrupted, |g| g.stop(), |_| ());
        let Some(offset) = self.body.loop_state else { crate::bug!("loops were counted") };
        let attach = &self.site.attach;
        let ours = attach.properties().may_run_after_end || attach.objects().is_some();
        let limit = if ours { LoopLimit::Signals(super::follow::signal_offsets(self.cx.env.sys)) } else { LoopLimit::Clock };
        let done = self.e.loop_limit_reached(offset, limit);
        self.if_else(
            done,
            |g| {
                if matches!(limit, LoopLimit::Clock) {
                    g.e.problem("loops stopped, because a probe may take no more than a second");
                }
                g.stop();
            },
            |_| (),
        );
    }

    /// A `return` in the loop's body also leaves the enclosing code.
    fn after_loop(&mut self) {
        let ptr = self.loop_context();
        let returned = self.e.load(ptr, RETURNED, I64);
        let value = self.e.load(ptr, RETURN_VALUE, I64);
        let branch = self.e.begin_if(returned);
        if self.body.depth > 0 {
            let one = self.e.int(1);
            self.e.ret(Some(one));
        } else {
            self.leave(Some(value));
        }
        self.e.else_(&branch);
        self.e.end_if(branch);
    }

    fn var_type(&self, var: hir::VarId) -> Type {
        self.body.var_types.get(var).cloned().unwrap_or(Type::Void)
    }

    /// Assigns an element of a plain map. An existing single word is overwritten in place; everything else is replaced as a
    /// whole, so that no reader sees a part of it.
    fn set_map(&mut self, map: MapId, key: Option<&Expr>, value: &Expr) {
        let ty = self.cx.script.maps[map].value.clone();
        let op = self.weighted_sum(map, key, value).unwrap_or_else(|| self.expr(value));
        let ptr = self.map_key(map, key);
        self.e.change(map, |e, handle| {
            if !ty.is_scalar() && key.is_some() {
                insert(e, handle, ptr, &op, &ty);
                return;
            }
            let slot = e.script_element(map, handle, ptr);
            let found = e.not_null(slot);
            e.if_else(
                found,
                |e| {
                    e.store_value(slot, 8, &op, &ty);
                    e.mark_set(map, slot);
                },
                |e| {
                    if key.is_some() {
                        e.add_script_element(map, (handle, ptr), (&op, &ty), |e| insert(e, handle, ptr, &op, &ty));
                    }
                },
            );
        });
    }

    /// The new value of an element if runs have weights, and the script adds to the element.
    fn weighted_sum(&mut self, map: MapId, key: Option<&Expr>, value: &Expr) -> Option<Operand<'c>> {
        if !self.e.program.weighted || !self.cx.adding.contains(&map) {
            return None;
        }
        let (op, added) = adding::added(map, key, value)?;
        let element = ExprKind::Map(map, key.cloned().map(Box::new));
        let ty = self.cx.script.maps[map].value.clone();
        let element = Expr { kind: element, ty: ty.clone(), span: value.span };
        let (before, added) = (self.expr(&element), self.expr(added));
        let (before, added) = (self.e.scalar(&before), self.e.weighted(self.e.scalar(&added)));
        let sum = if op == BinOp::Sub { self.e.sub(before, added) } else { self.e.add(before, added) };
        Some(Operand::reg(ty.clone(), narrowed(&self.e, sum, &ty)))
    }

    fn aggregate(&mut self, map: MapId, key: Option<&Expr>, call: &hir::Call) {
        let Codegen::Aggregate(row) = &call.row.codegen else { crate::bug!("{} is an aggregation", call.row.name) };
        let Type::Agg(agg) = self.cx.script.maps[map].value.clone() else { crate::bug!("an aggregation's map holds one") };
        let args = self.args(call);
        let ptr = self.map_key(map, key);
        // a full map is reported at the call
        self.e.scope.span = call.span;
        let facts = call.call_site(Some(agg.clone()));
        self.e.change(map, |e, handle| {
            // a map without keys always has its element
            let size = e.script_map_def(map).value_size;
            let element = if key.is_some() { e.element_of(handle, ptr, size) } else { e.lookup(handle, ptr) };
            let found = e.not_null(element);
            e.if_(found, |e| {
                let slot = e.own_slot(map, element);
                (row.update)(e, &facts, Operand::mem(Type::Agg(agg), slot), &args);
                e.mark_set(map, element);
            });
        });
    }

    /// A map's key in memory.
    pub(super) fn map_key(&mut self, map: MapId, key: Option<&Expr>) -> PointerValue<'c> {
        let ty = self.cx.script.maps[map].key.clone();
        let op = key.map(|k| self.expr(k));
        self.e.key(op.as_ref(), ty.as_ref())
    }

    /// [`Builder::temporarily`](crate::emit::Builder::temporarily) for a body that needs the compiler.
    pub(super) fn temporarily<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let mark = self.e.mark();
        let result = body(self);
        self.e.release(&mark);
        result
    }

    /// [`Builder::if_else`](crate::emit::Builder::if_else) for branches that need the compiler.
    pub(super) fn if_else(&mut self, cond: IntValue<'c>, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        let branch = self.e.begin_if(cond);
        then(self);
        self.e.else_(&branch);
        otherwise(self);
        self.e.end_if(branch);
    }
}

/// Stores a whole element in the kernel's map; a refusal is reported. Returns 0 or a negative error.
pub(super) fn insert<'c>(
    e: &mut Builder<'_, 'c>,
    map: PointerValue<'c>,
    key: PointerValue<'c>,
    op: &Operand<'c>,
    ty: &Type,
) -> IntValue<'c> {
    let size = ty.size();
    let value = if let crate::emit::Repr::Mem(ptr, _) = op.repr
        && op.ty == *ty
        && size.is_multiple_of(8)
    {
        ptr
    } else {
        let tmp = e.alloc(size);
        if !size.is_multiple_of(8) {
            e.zero(tmp, size.next_multiple_of(8), 8);
        }
        e.store_value(tmp, 8, op, ty);
        tmp
    };
    let r = e.update(map, key, value);
    e.refused(r);
    e.check(Helper::MapUpdateElem, r, 1);
    r
}

/// Number of loops whose bodies become functions, and the variables that are used in these.
pub(super) fn loops_in(stmts: &[Stmt]) -> (u32, BTreeSet<hir::VarId>) {
    let (mut loops, mut inside) = (0, BTreeSet::new());
    hir::visit_within(stmts, &mut |n, around| {
        if around.loops > 0 {
            inside.extend(variable(n));
        }
        if let hir::Node::Stmt(Stmt {
            kind: kind @ (StmtKind::ForRange { .. } | StmtKind::ForMap { .. } | StmtKind::While { .. }), ..
        }) = n
        {
            // an unrolled body is emitted once per iteration
            loops += u32::try_from(around.times).unwrap_or(u32::MAX);
            if let StmtKind::ForRange { var, .. } | StmtKind::ForMap { var, .. } = kind {
                inside.insert(*var);
            }
        }
    });
    (loops, inside)
}

fn has_while(stmts: &[Stmt]) -> bool {
    let mut found = false;
    hir::visit(stmts, &mut |n| found |= matches!(n, hir::Node::Stmt(Stmt { kind: StmtKind::While { .. }, .. })));
    found
}

pub(super) fn variable(n: hir::Node) -> Option<hir::VarId> {
    match n {
        hir::Node::Stmt(Stmt { kind: StmtKind::SetVar(v, _) | StmtKind::ZeroVar(v), .. }) => Some(*v),
        hir::Node::Expr(Expr { kind: hir::ExprKind::Var(v) | hir::ExprKind::StepVar { var: v, .. }, .. }) => Some(*v),
        hir::Node::Stmt(_) | hir::Node::Expr(_) => None,
    }
}
