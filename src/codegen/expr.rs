//! Expressions.

use super::Gen;
use super::alike::MAX_STORED_TEXT;
use super::function::MAX_FRAMES;
use super::stmt::insert;
use crate::builtins::{Codegen, MapId};
use crate::diag::Span;
use crate::emit::{Builder, Cmp, Helper, IntValue, Operand, PointerValue, Repr};
use crate::probes::ContextFeatures;
use crate::sema::hir::{self, CallArg, Expr, ExprKind};
use crate::syntax::ast::{BinOp, UnOp};
use crate::types::{Field, Int, Space, Type};

const U64: Int = Int { bytes: 8, signed: false };

impl<'a, 'c> Gen<'a, 'c> {
    /// A condition: 0 or not.
    pub(super) fn condition(&mut self, e: &Expr) -> IntValue<'c> {
        let op = self.expr(e);
        self.e.scalar(&op)
    }

    /// Evaluates an expression.
    pub(super) fn expr(&mut self, e: &Expr) -> Operand<'c> {
        // a problem is reported at this expression, not at the whole statement
        let span = if e.span.start < e.span.end { e.span } else { self.e.scope.span };
        // only the call uses its arguments; other users also read the bytes after the NUL
        let pads = !matches!(e.kind, ExprKind::Call(_));
        self.scoped(|s| (s.span, s.pads_strings) = (span, s.pads_strings || pads), |g| g.expr_here(e))
    }

    fn expr_here(&mut self, e: &Expr) -> Operand<'c> {
        match &e.kind {
            ExprKind::Int(n) => Operand::reg(e.ty.clone(), self.e.int(*n)),
            ExprKind::Str(s) => self.text(s, &e.ty),
            ExprKind::Var(v) => {
                let at = self.var_ptr(*v);
                if e.ty.is_scalar() { Operand::reg(e.ty.clone(), self.e.load(at, 0, U64)) } else { Operand::mem(e.ty.clone(), at) }
            }
            ExprKind::Map(map, key) => self.read_map(*map, key.as_deref(), e.span),
            ExprKind::ReadAgg(map, key) => self.read_aggregate(*map, key.as_deref(), &e.ty),
            ExprKind::Context(which) => self.context(which, &e.ty),
            ExprKind::Field(base, field) => {
                let base = self.expr(base);
                // the checker knows the type of its target, unlike the kernel's types
                self.field(&base, &Field { ty: e.ty.clone(), ..(**field).clone() })
            }
            ExprKind::Deref(ptr, space) => {
                let op = self.expr(ptr);
                let addr = self.e.scalar(&op);
                self.lvalue(addr, *space, &e.ty)
            }
            ExprKind::Index(base, index) => self.index(base, index, e),
            ExprKind::Unary(op, x) => {
                let v = self.expr(x);
                let v = self.e.scalar(&v);
                let r = match op {
                    UnOp::Not => self.e.cmp(Cmp::Eq, v, self.e.int(0)),
                    UnOp::BitNot => self.e.xor(v, self.e.int(u64::MAX)),
                    UnOp::Neg => self.e.sub(self.e.int(0), v),
                    UnOp::Deref | UnOp::AddrOf => crate::bug!("the checker turns `{op:?}` into its own expression"),
                };
                self.fitted(r, &e.ty)
            }
            ExprKind::AddrOf(x) => {
                let addr = self.storage_of(x);
                let addr = self.e.forget_pointer_type(addr);
                Operand::reg(e.ty.clone(), addr)
            }
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, e),
            ExprKind::Cond(cond, a, b) => self.cond(cond, a, b, &e.ty),
            ExprKind::Block(stmts, value) => {
                self.block(stmts);
                self.at(value.span);
                self.expr(value)
            }
            ExprKind::Cast(x, _) => self.cast(x, &e.ty),
            ExprKind::Tuple(elems) => self.tuple(elems, &e.ty),
            ExprKind::StepVar { var, by, post } => {
                let at = self.var_ptr(*var);
                let old = self.e.load(at, 0, U64);
                let new = self.e.add(old, self.e.int(*by as u64));
                let new = narrowed(&self.e, new, &e.ty);
                self.e.store(at, 0, 8, new);
                Operand::reg(e.ty.clone(), if *post { old } else { new })
            }
            ExprKind::StepMap { map, key, by, post } => self.step_map(*map, key.as_deref(), *by, *post, &e.ty),
            ExprKind::Call(call) => self.call(call),
            ExprKind::CallFn(f, args) => self.call_function(*f, args),
            ExprKind::CallForeign(f, args) => self.call_foreign(f, args, &e.ty),
        }
    }

    /// The address of a variable's or map element's storage, or of an lvalue in memory.
    pub(super) fn storage_of(&mut self, e: &Expr) -> IntValue<'c> {
        if let ExprKind::Var(v) = e.kind {
            let at = self.var_ptr(v);
            self.e.addr(at)
        } else if let ExprKind::Map(map, key) = &e.kind {
            let at = self.map_key(*map, key.as_deref());
            let handle = self.e.script_map(*map);
            let slot = self.e.lookup(handle, at);
            self.e.addr(slot)
        } else {
            self.address_of(e)
        }
    }

    /// The address of a memory location, without reading a scalar in it.
    fn address_of(&mut self, e: &Expr) -> IntValue<'c> {
        if let ExprKind::Deref(ptr, _) = &e.kind {
            let op = self.expr(ptr);
            return self.e.scalar(&op);
        }
        if let ExprKind::Field(base, field) = &e.kind {
            let at = self.address_of(base);
            return self.e.add(at, self.e.int(field.offset.into()));
        }
        if let ExprKind::Index(base, index) = &e.kind {
            let at = self.address_of(base);
            let i = self.expr(index);
            let i = self.e.scalar(&i);
            let offset = self.e.mul(i, self.e.int(e.ty.size().into()));
            return self.e.add(at, offset);
        }
        let op = self.expr(e);
        match op.repr {
            Repr::At(addr, _) => addr,
            Repr::Mem(ptr, _) => self.e.addr(ptr),
            Repr::Reg(_) | Repr::None => self.e.int(0),
        }
    }

    fn fitted(&mut self, v: IntValue<'c>, ty: &Type) -> Operand<'c> {
        Operand::reg(ty.clone(), narrowed(&self.e, v, ty))
    }

    /// A constant string in memory of its type's size.
    fn text(&mut self, s: &[u8], ty: &Type) -> Operand<'c> {
        let cap = (ty.size() as usize).max(s.len());
        let mut bytes = s.to_vec();
        bytes.resize(cap + 1, 0);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        if s.len() <= MAX_STORED_TEXT && bytes.len() <= MAX_STORED_TEXT + 16 && self.e.is_alike() {
            // as numbers, which may differ between statements
            let at = self.e.alloc(bytes.len() as u32);
            self.e.store_bytes(at, &bytes);
            return Operand { ty: ty.clone(), repr: Repr::Mem(at, Some(self.e.int(s.len() as u64 + 1))) };
        }
        Operand { ty: ty.clone(), repr: Repr::Mem(self.e.text(&bytes), Some(self.e.int(s.len() as u64 + 1))) }
    }

    /// The value at an address: scalars are loaded, and everything else stays in place.
    fn lvalue(&mut self, addr: IntValue<'c>, space: Space, ty: &Type) -> Operand<'c> {
        match ty.as_int() {
            Some(int) => Operand::reg(ty.clone(), self.e.read_int(space, addr, int)),
            None => Operand::at(ty.clone(), addr, space),
        }
    }

    fn field(&mut self, base: &Operand<'c>, field: &Field) -> Operand<'c> {
        let holder = match field.ty.as_int() {
            // a bit-field may start in one unit and end in the next: read eight bytes and extract it
            Some(int) if field.bits.is_some() => Some(Int { bytes: if int.bytes < 4 { 4 } else { 8 }, signed: false }),
            Some(int) => Some(int),
            None => None,
        };
        let base_value = match base.repr {
            Repr::At(addr, space) => {
                let at = self.e.add(addr, self.e.int(field.offset.into()));
                match holder {
                    Some(int) => self.e.read_int(space, at, int),
                    None => return Operand::at(field.ty.clone(), at, space),
                }
            }
            Repr::Mem(ptr, _) => match holder {
                Some(int) => self.e.load(ptr, field.offset, int),
                None => {
                    let ptr = self.e.rematerialize(ptr);
                    return self.e.element(ptr, field.offset, &field.ty);
                }
            },
            Repr::Reg(addr) => {
                let at = self.e.add(addr, self.e.int(field.offset.into()));
                let space = self.e.program.space;
                return self.lvalue(at, space, &field.ty);
            }
            Repr::None => self.e.int(0),
        };
        let v = match field.bits {
            Some((from, width)) => {
                let up = self.e.int(64 - u64::from(from) - u64::from(width));
                let down = self.e.int(64 - u64::from(width));
                let signed = field.ty.as_int().is_some_and(|i| i.signed);
                let top = self.e.shl(base_value, up);
                self.e.shr(top, down, signed)
            }
            None => base_value,
        };
        Operand::reg(field.ty.clone(), v)
    }

    fn index(&mut self, base: &Expr, index: &Expr, element: &Expr) -> Operand<'c> {
        let ty = &element.ty;
        let array = self.expr(base);
        let i = self.expr(index);
        let i = self.e.scalar(&i);
        let (len, step) = if let Type::Array(elem, n) = &array.ty {
            (*n, elem.size())
        } else if let Type::Str(cap) | Type::Buf(cap) = &array.ty {
            (*cap, 1)
        } else {
            crate::bug!("{} cannot be indexed", array.ty)
        };
        if matches!(index.kind, ExprKind::Int(_)) || len == 0 {
            return self.element_at(&array, i, step, ty);
        }
        let i = self.e.opaque(i);
        let outside = self.e.cmp(Cmp::Uge, i, self.e.int(len.into()));
        // An index out of bounds yields 0, or the first element for an object in memory. Strings have no fixed end, so
        // only arrays are reported.
        let has_length = matches!(array.ty, Type::Array(..));
        let found = self.located(element.span, |g| {
            let branch = g.e.begin_choose(outside);
            if has_length {
                g.e.problem("Array access out of bounds. This can lead to unexpected results.");
            }
            let zero = g.e.int(0);
            g.e.choose_else(&branch, zero);
            if ty.is_scalar() {
                let found = g.element_at(&array, i, step, ty);
                let found = g.e.scalar(&found);
                return g.e.end_choose(branch, found);
            }
            g.e.end_choose(branch, i)
        });
        if ty.is_scalar() { Operand::reg(ty.clone(), found) } else { self.element_at(&array, found, step, ty) }
    }

    /// The element of this number.
    fn element_at(&mut self, array: &Operand<'c>, i: IntValue<'c>, step: u32, ty: &Type) -> Operand<'c> {
        let offset = self.e.mul(i, self.e.int(step.into()));
        match array.repr {
            Repr::At(addr, space) => {
                let at = self.e.add(addr, offset);
                self.lvalue(at, space, ty)
            }
            Repr::Mem(ptr, _) => {
                let ptr = self.e.rematerialize(ptr);
                let ptr = self.e.offset_by(ptr, offset);
                self.e.element(ptr, 0, ty)
            }
            Repr::Reg(_) | Repr::None => Operand::reg(ty.clone(), self.e.int(0)),
        }
    }

    fn binary(&mut self, op: BinOp, a: &Expr, b: &Expr, expr: &Expr) -> Operand<'c> {
        let ty = &expr.ty;
        if matches!(op, BinOp::And | BinOp::Or) {
            let left = self.condition(a);
            let branch = self.e.begin_choose(left);
            let right = |g: &mut Self| {
                if conditions(expr) > MERGED_CONDITIONS {
                    g.e.keep_apart();
                }
                g.truth(b)
            };
            let yes = if op == BinOp::And { right(self) } else { self.e.int(1) };
            self.e.choose_else(&branch, yes);
            let no = if op == BinOp::And { self.e.int(0) } else { right(self) };
            let v = self.e.end_choose(branch, no);
            return Operand::reg(ty.clone(), v);
        }
        if matches!(op, BinOp::Eq | BinOp::Ne) && !(a.ty.is_scalar() && b.ty.is_scalar()) {
            let same = self.equal_in_memory(a, b);
            let v = if op == BinOp::Eq { same } else { self.e.xor(same, self.e.int(1)) };
            return Operand::reg(ty.clone(), v);
        }
        let signed_of = |e: &Expr| e.ty.as_int().is_some_and(|i| i.signed);
        // a literal takes the sign of the other side
        let literal = |e: &Expr| matches!(&e.kind, ExprKind::Int(n) if *n as i64 >= 0);
        let signed = match (literal(a), literal(b)) {
            (true, false) => signed_of(b),
            (false, true) => signed_of(a),
            _ => signed_of(a) || signed_of(b),
        };
        let divisor_known = matches!(&b.kind, ExprKind::Int(n) if *n != 0);
        let (x, y) = (self.expr(a), self.expr(b));
        let (x, y) = (self.e.scalar(&x), self.e.scalar(&y));
        let v = match op {
            BinOp::Add => self.e.add(x, y),
            BinOp::Sub => self.e.sub(x, y),
            BinOp::Mul => self.e.mul(x, y),
            BinOp::Div | BinOp::Mod if divisor_known => self.e.div(x, y, signed, op == BinOp::Mod),
            BinOp::Div | BinOp::Mod => {
                let is_zero = self.e.cmp(Cmp::Eq, y, self.e.int(0));
                self.located(expr.span, |g| {
                    g.e.choose(
                        is_zero,
                        |e| {
                            e.problem(
                                "Divide or modulo by 0 detected. This can lead to unexpected results. 1 is being used as the result.",
                            );
                            e.int(1)
                        },
                        |e| e.divide(x, y, signed, op == BinOp::Mod),
                    )
                })
            }
            BinOp::Shl => self.e.shl(x, y),
            BinOp::Shr => self.e.shr(x, y, signed_of(a)),
            BinOp::BitAnd => self.e.and(x, y),
            BinOp::BitXor => self.e.xor(x, y),
            BinOp::BitOr => self.e.or(x, y),
            BinOp::Lt => self.e.cmp(if signed { Cmp::Slt } else { Cmp::Ult }, x, y),
            BinOp::Le => self.e.cmp(if signed { Cmp::Sle } else { Cmp::Ule }, x, y),
            BinOp::Gt => self.e.cmp(if signed { Cmp::Sgt } else { Cmp::Ugt }, x, y),
            BinOp::Ge => self.e.cmp(if signed { Cmp::Sge } else { Cmp::Uge }, x, y),
            BinOp::Eq => self.e.cmp(Cmp::Eq, x, y),
            BinOp::Ne => self.e.cmp(Cmp::Ne, x, y),
            BinOp::And | BinOp::Or => crate::bug!("handled above"),
        };
        self.fitted(v, ty)
    }

    /// 0 or 1.
    fn truth(&mut self, e: &Expr) -> IntValue<'c> {
        let v = self.condition(e);
        self.e.cmp(Cmp::Ne, v, self.e.int(0))
    }

    /// Are two values in memory equal? 0 or 1.
    fn equal_in_memory(&mut self, a: &Expr, b: &Expr) -> IntValue<'c> {
        // a literal is compared word by word with the memory
        for (literal, other) in [(a, b), (b, a)] {
            if let (ExprKind::Str(s), Type::Str(cap)) = (&literal.kind, &other.ty)
                && s.len() <= 64
            {
                let op = self.expr(other);
                let ptr = self.e.in_memory(&op);
                let mut bytes = s.to_vec();
                if bytes.len() < *cap as usize {
                    bytes.push(0);
                } else {
                    bytes.truncate(*cap as usize);
                    if s.len() > *cap as usize {
                        return self.e.int(0);
                    }
                }
                return self.e.starts_with(ptr, &bytes);
            }
        }
        let (x, y) = (self.expr(a), self.expr(b));
        match (&x.ty, &y.ty) {
            (Type::Str(m), Type::Str(n)) => {
                let n = (*m).min(*n);
                let (p, q) = (self.e.in_memory(&x), self.e.in_memory(&y));
                self.e.same_text(p, q, n)
            }
            (Type::Buf(m), Type::Buf(n)) => {
                let n = (*m).min(*n);
                let (p, q) = (self.e.in_memory(&x), self.e.in_memory(&y));
                self.e.same_bytes(p, q, n + 4)
            }
            (tx, ty) => {
                let n = tx.size().min(ty.size());
                let (p, q) = (self.e.in_memory(&x), self.e.in_memory(&y));
                self.e.same_bytes(p, q, n)
            }
        }
    }

    fn cond(&mut self, cond: &Expr, a: &Expr, b: &Expr, ty: &Type) -> Operand<'c> {
        let c = self.condition(cond);
        if *ty == Type::Void {
            self.if_else(
                c,
                |g| {
                    g.expr(a);
                },
                |g| {
                    g.expr(b);
                },
            );
            return Operand::void();
        }
        if ty.is_scalar() {
            let branch = self.e.begin_choose(c);
            let x = self.expr(a);
            let x = self.e.scalar(&x);
            self.e.choose_else(&branch, x);
            let y = self.expr(b);
            let y = self.e.scalar(&y);
            return Operand::reg(ty.clone(), self.e.end_choose(branch, y));
        }
        let ptr = self.e.alloc(ty.size() + 1);
        self.if_else(
            c,
            |g| {
                let x = g.expr(a);
                g.e.store_value(ptr, 8, &x, ty);
            },
            |g| {
                let y = g.expr(b);
                g.e.store_value(ptr, 8, &y, ty);
            },
        );
        Operand::mem(ty.clone(), ptr)
    }

    fn cast(&mut self, x: &Expr, ty: &Type) -> Operand<'c> {
        let op = self.expr(x);
        if op.ty == *ty {
            return op;
        }
        match (ty, op.repr) {
            (Type::Void, _) => Operand::void(),
            // is there any text?
            (Type::Bool, _) if matches!(op.ty, Type::Str(_)) => {
                let ptr = self.e.in_memory(&op);
                let first = self.e.load(ptr, 0, Int { bytes: 1, signed: false });
                Operand::reg(ty.clone(), self.e.cmp(Cmp::Ne, first, self.e.int(0)))
            }
            (Type::Bool, _) => {
                let v = self.e.scalar(&op);
                Operand::reg(ty.clone(), self.e.cmp(Cmp::Ne, v, self.e.int(0)))
            }
            // an array as the integer of its bytes
            (t, Repr::At(..) | Repr::Mem(..)) if t.is_scalar() && matches!(op.ty, Type::Array(..)) => {
                let ptr = self.e.in_memory(&op);
                let int = t.as_int().unwrap_or(U64);
                Operand::reg(ty.clone(), self.e.load(ptr, 0, int))
            }
            (t, _) if t.is_scalar() && matches!(&op.ty, Type::Deferred(from) if from.is_float()) => {
                let (ptr, bytes) = (self.e.in_memory(&op), op.ty.size());
                let bits = self.e.load(ptr, 0, Int { bytes: bytes as u8, signed: false });
                let truncated = self.e.truncated_float(bits, bytes);
                self.fitted(truncated, t)
            }
            (t, _) if t.is_scalar() => {
                let v = self.e.scalar(&op);
                self.fitted(v, t)
            }
            (Type::Str(_) | Type::Tuple(_) | Type::Array(..) | Type::Deferred(_) | Type::Record(_) | Type::Buf(_), _) => {
                let at = self.e.alloc(ty.size() + 1);
                self.e.store_value(at, 8, &op, ty);
                Operand::mem(ty.clone(), at)
            }
            (_, repr) => Operand { ty: ty.clone(), repr },
        }
    }

    fn tuple(&mut self, elems: &[Expr], ty: &Type) -> Operand<'c> {
        let (types, offsets): (Vec<Type>, Vec<u32>) = if let Type::Tuple(types) = ty {
            (types.clone(), Type::tuple_offsets(types))
        } else if let Type::Record(r) = ty {
            r.fields.iter().map(|f| (f.ty.clone(), f.offset)).unzip()
        } else {
            crate::bug!("a tuple's type is a tuple or a record")
        };
        let ops: Vec<Operand<'c>> = elems.iter().map(|e| self.expr(e)).collect();
        let ptr = self.e.alloc(ty.size());
        let used: u64 = types.iter().map(|t| u64::from(t.size())).sum();
        if used != u64::from(ty.size()) || !ty.size().is_multiple_of(8) {
            self.e.zero(ptr, ty.size().next_multiple_of(8), 8);
        }
        for ((op, t), offset) in ops.iter().zip(&types).zip(offsets) {
            let to = self.e.rematerialize(ptr);
            let to = self.e.offset(to, offset);
            self.e.store_value(to, crate::emit::align_at(offset), op, t);
        }
        Operand::mem(ty.clone(), ptr)
    }

    // --- maps ---------------------------------------------------------------------------------------------------

    fn read_map(&mut self, map: MapId, key: Option<&Expr>, place: Span) -> Operand<'c> {
        let ty = self.cx.script.maps[map].value.clone();
        let ptr = self.map_key(map, key);
        let handle = self.e.script_map(map);
        let slot = self.e.script_element(map, handle, ptr);
        if let Some(int) = ty.as_int() {
            let missing = self.e.warning_level() >= 2;
            let v = self.located(place, |g| {
                g.e.if_found(
                    slot,
                    |e| e.load(slot, 0, int),
                    |e| {
                        if missing {
                            e.failed(Helper::MapLookupElem);
                        }
                        e.int(0)
                    },
                )
            });
            return Operand::reg(ty, v);
        }
        let size = ty.size();
        let copy = self.e.alloc(size + 1);
        let found = self.e.not_null(slot);
        self.e.if_else(found, |e| e.copy(copy, slot, size, 8), |e| e.zero(copy, size.next_multiple_of(8), 8));
        Operand::mem(ty, copy)
    }

    fn read_aggregate(&mut self, map: MapId, key: Option<&Expr>, ty: &Type) -> Operand<'c> {
        let ptr = self.map_key(map, key);
        self.read_aggregate_at(map, ptr, ty)
    }

    /// The same with the key in memory.
    pub(super) fn read_aggregate_at(&mut self, map: MapId, ptr: PointerValue<'c>, ty: &Type) -> Operand<'c> {
        let Type::Agg(agg) = self.cx.script.maps[map].value.clone() else { crate::bug!("only an aggregation is read so") };
        let row = crate::builtins::find(&agg.function).map(|b| &b.codegen);
        let Some(Codegen::Aggregate(row)) = row else { crate::bug!("{} is an aggregation", agg.function) };
        let Some(read) = row.kernel_read else { crate::bug!("{} cannot be read", agg.function) };
        let handle = self.e.script_map(map);
        let stack_slots: [PointerValue<'c>; 2] = [self.e.scalar_slot(), self.e.scalar_slot()];
        for (stack_slot, first) in stack_slots.iter().zip(read.init) {
            let first = self.e.int(first);
            self.e.store(*stack_slot, 0, 8, first);
        }
        let value = Type::Agg(agg);
        let step = |e: &mut Builder<'_, 'c>, slot: PointerValue<'c>| {
            let now = stack_slots.map(|h| Operand::u64(e.load(h, 0, U64)));
            let next = (read.step)(e, now, Operand::mem(value.clone(), slot));
            for (stack_slot, v) in stack_slots.iter().zip(&next) {
                let v = e.scalar(v);
                e.store(*stack_slot, 0, 8, v);
            }
        };
        match self.e.slots(map) {
            Some(slots) => {
                let element = self.e.lookup(handle, ptr);
                let found = self.e.not_null(element);
                self.e.if_(found, |e| {
                    let first = e.offset(element, slots.first);
                    e.count(slots.count.into(), |e, i| {
                        let slot = e.offset_by(first, e.mul(i, e.int(slots.stride.into())));
                        step(e, slot);
                    });
                });
            }
            None => {
                let cpus = self.cx.env.sys.possible_cpus();
                self.e.count(cpus.into(), |e, cpu| {
                    let slot = e.call_ptr(Helper::MapLookupPercpuElem, &[handle.into(), ptr.into(), cpu.into()]);
                    let found = e.not_null(slot);
                    e.if_(found, |e| step(e, slot));
                });
            }
        }
        let all = stack_slots.map(|h| Operand::u64(self.e.load(h, 0, U64)));
        if let (Type::Tuple(parts), Some(quotient)) = (ty, read.quotient) {
            let pair = (quotient)(&mut self.e, all);
            let ptr = self.e.alloc(ty.size());
            for ((part, of), offset) in pair.iter().zip(parts).zip([0, 8]) {
                self.e.store_value(self.e.offset(ptr, offset), 8, part, of);
            }
            return Operand::mem(ty.clone(), ptr);
        }
        let v = (read.finish)(&mut self.e, all);
        Operand { ty: ty.clone(), repr: v.repr }
    }

    fn step_map(&mut self, map: MapId, key: Option<&Expr>, by: i64, post: bool, ty: &Type) -> Operand<'c> {
        let stored = self.cx.script.maps[map].value.clone();
        let int = stored.as_int().unwrap_or(U64);
        let ptr = self.map_key(map, key);
        let adds = self.cx.adding.contains(&map);
        let v = self.e.change(map, |e, handle| {
            let slot = e.script_element(map, handle, ptr);
            let found = e.not_null(slot);
            let step = e.int(by as u64);
            let step = if adds { e.weighted(step) } else { step };
            e.choose(
                found,
                |e| {
                    let old = e.load(slot, 0, int);
                    let new = e.add(old, step);
                    e.store(slot, 0, int.bytes, new);
                    e.mark_set(map, slot);
                    if post { old } else { narrowed(e, new, &stored) }
                },
                |e| {
                    if key.is_some() {
                        let first = Operand::reg(stored.clone(), step);
                        e.add_script_element(map, (handle, ptr), (&first, &stored), |e| insert(e, handle, ptr, &first, &stored));
                    }
                    if post { e.int(0) } else { step }
                },
            )
        });
        Operand::reg(ty.clone(), v)
    }

    // --- calls --------------------------------------------------------------------------------------------------

    pub(super) fn call(&mut self, call: &hir::Call) -> Operand<'c> {
        self.at(call.span);
        if let Some(kept) = self.kept_value(call) {
            return kept;
        }
        match &call.row.codegen {
            Codegen::Code(emit) | Codegen::Effect(emit) | Codegen::Either(_, emit) | Codegen::Known(_, emit) => {
                let args = self.scoped(
                    |s| s.keeps_pointer_types = call.row.needs.intersects(ContextFeatures::TRUSTED.union(ContextFeatures::SOCKETS)),
                    |g| g.args(call),
                );
                let deep = self.frames() + 2 > MAX_FRAMES;
                self.e.scoped(|s| s.at_max_call_depth = deep, |e| emit(e, &call.call_site(None), &args))
            }
            Codegen::Event(event) => {
                self.event(call, event);
                // a call that has a result yields 0; the lost record is reported elsewhere
                if call.ty.is_scalar() { Operand::reg(call.ty.clone(), self.e.int(0)) } else { Operand::void() }
            }
            Codegen::Context(which) => self.context(which, &call.ty),
            Codegen::Fold(_) | Codegen::Aggregate(_) | Codegen::Source(_) => crate::bug!("`{}` is not called at run time", call.row.name),
        }
    }

    /// A call's arguments as operands, by position.
    pub(super) fn args(&mut self, call: &hir::Call) -> Vec<Operand<'c>> {
        call.args
            .iter()
            .map(|a| match a {
                CallArg::Value(e) => self.expr(e),
                CallArg::Element(map, key) => {
                    let ty = self.cx.script.maps[*map].key.clone();
                    let op = self.scoped(|s| s.pads_strings = true, |g| g.expr(key));
                    let ptr = self.e.key(Some(&op), ty.as_ref());
                    Operand::mem(ty.unwrap_or(Type::Void), ptr)
                }
                CallArg::Map(_) | CallArg::Word(_) | CallArg::Type(_) => Operand::void(),
            })
            .collect()
    }
}

/// A number as a variable or element of this type holds it.
pub(super) fn narrowed<'c>(e: &Builder<'_, 'c>, v: IntValue<'c>, ty: &Type) -> IntValue<'c> {
    match ty.as_int() {
        Some(int) => e.fit(v, int),
        None => v,
    }
}

/// Number of conditions of a chain of `&&` and `||` that LLVM may merge. From some twenty on, it merges so many that the verifier
/// sees their results in all combinations.
const MERGED_CONDITIONS: usize = 8;

/// Counts the conditions of a chain, if there are not far more than [`MERGED_CONDITIONS`].
fn conditions(e: &Expr) -> usize {
    let (mut n, mut rest) = (0, vec![e]);
    while let Some(e) = rest.pop().filter(|_| n <= MERGED_CONDITIONS) {
        if let ExprKind::Binary(BinOp::And | BinOp::Or, a, b) = &e.kind {
            rest.extend([&**a, &**b]);
        } else {
            n += 1;
        }
    }
    n
}
