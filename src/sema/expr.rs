//! Checks expressions and gives each a type.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::collections::BTreeMap;

use super::body::{BodyChecker, error_expr};
use super::convert::cast;
use super::fold;
use super::hir::{Call, CastOrigin, Expr, ExprKind, Node};
use super::types::{InferredType, WeakSign, merge_weak, record_of};
use crate::builtins::{self, MapId, options};
use crate::diag::{Diagnostic, Span};
use crate::settings::Argument;
use crate::syntax::ast;
use crate::types::{Space, Type};

impl BodyChecker<'_> {
    /// Any expression; one without a value has type [`Type::Void`].
    pub fn expr(&mut self, e: &ast::Expr) -> Expr {
        let span = self.use_site(e.span);
        if !self.enter(1, span) {
            return error_expr(span);
        }
        // in this function, because a frame more for each level would need more of the stack
        let checked = match &e.kind {
            ast::ExprKind::Int(n) => fold::literal(*n, span),
            ast::ExprKind::Str(s) => self.string(s, span),
            ast::ExprKind::Bool(b) => fold::boolean(*b, span),
            ast::ExprKind::Param(n) => self.param(*n, span),
            ast::ExprKind::ParamCount => self.param_count(span),
            ast::ExprKind::Ident(name) => self.name(name, span),
            ast::ExprKind::Var(name) => self.var(name, span),
            ast::ExprKind::Map { name, key } => self.map(name, key.as_deref(), span),
            ast::ExprKind::Call { name, args } => self.call(&name.name, name.span, args, span),
            ast::ExprKind::Field { base, name } => self.field(base, name, span),
            ast::ExprKind::TupleIndex { base, index } => self.tuple_index(base, *index, span),
            ast::ExprKind::Index { base, index } => self.index(base, index, span),
            ast::ExprKind::Unary(op, inner) => self.unary(*op, inner, span),
            ast::ExprKind::Step { target, increment: up, post } => self.step(target, *up, *post, span),
            ast::ExprKind::Binary(op, a, b) => self.binary(*op, a, b, span),
            ast::ExprKind::Ternary { cond, then, otherwise } => self.ternary(cond, then.as_deref(), otherwise, span),
            ast::ExprKind::If { cond, then, otherwise } => self.if_value(cond, then, otherwise.as_ref(), span),
            ast::ExprKind::Block(block) => self.block_value(block, span),
            ast::ExprKind::Cast(ty, inner) => self.cast(ty, inner, span),
            ast::ExprKind::Tuple(elems) => self.tuple(elems, span),
            ast::ExprKind::Record(fields) => self.record(fields, span),
            ast::ExprKind::Sizeof(arg) => self.size_value(arg, span),
            ast::ExprKind::Offsetof(arg, path) => self.offsetof(arg, path, span),
            ast::ExprKind::Typeof(_) => self.no_value_of_type(span),
            ast::ExprKind::Typeinfo(arg) => self.typeinfo(arg, span),
            ast::ExprKind::Comptime(inner) => self.constant(inner, span),
        };
        self.leave(1);
        checked
    }

    fn size_value(&mut self, arg: &ast::Arg, span: Span) -> Expr {
        self.size_of_arg(arg).map_or_else(|| error_expr(span), |size| fold::unsigned(size.bytes, span))
    }

    fn no_value_of_type(&mut self, span: Span) -> Expr {
        let d = Diagnostic::error("no-value", span, "`typeof` is a type, but a value is expected here");
        self.report(d.help("use it in place of a type: `let $x: typeof(…)`, `(typeof(…))x`, `sizeof(typeof(…))`"));
        error_expr(span)
    }

    fn constant(&mut self, inner: &ast::Expr, span: Span) -> Expr {
        self.comptime += 1;
        let e = self.value(inner);
        self.comptime -= 1;
        if e.ty != Type::Void && !fold::is_known(&e) && !self.is_late_bound(&e) {
            return self.fail("not-constant", span, "this is not a constant");
        }
        e
    }

    /// A literal string, which must fit the usual capacity.
    pub fn string(&mut self, s: &[u8], span: Span) -> Expr {
        let max = self.env.settings.max_strlen;
        if s.len() as u64 >= max {
            let d =
                Diagnostic::error("too-long", span, format!("this string has {} bytes; the limit is {}", s.len(), max.saturating_sub(1)));
            self.report(d.help("raise it with the setting max_strlen"));
            return error_expr(span);
        }
        fold::string(s, span)
    }

    /// `$1`: an integer if the text is one, otherwise a string; zero if it is missing.
    fn param(&mut self, n: u32, span: Span) -> Expr {
        if let Some(number) = self.late_bound(&Argument::Number(n), Type::I64, span) {
            return number;
        }
        let text = self.param_text(n).unwrap_or_default();
        if text.is_empty() {
            self.warn("missing-parameter", span, format!("parameter ${n} is missing: it is zero"));
            return fold::literal(0, span);
        }
        match fold::parse_int(&text) {
            Some(e) => Expr { span, ..e },
            None => self.string(text.as_bytes(), span),
        }
    }

    /// `$#`
    fn param_count(&mut self, span: Span) -> Expr {
        let count = self.env.invocation.params.len() as u64;
        self.late_bound(&Argument::Count, Type::U64, span).unwrap_or_else(|| fold::literal(count, span))
    }

    /// The text of `$n`.
    pub fn param_text(&self, n: u32) -> Option<String> {
        (n as usize).checked_sub(1).and_then(|i| self.env.invocation.params.get(i)).cloned()
    }

    /// An argument of the run that the code does not contain; none if it does.
    pub fn late_bound(&mut self, argument: &Argument, ty: Type, span: Span) -> Option<Expr> {
        let late_bound = &self.env.invocation.late_bound;
        let place = late_bound.use_place(argument)?;
        let consts = vec![place.into(), late_bound.size().into()];
        let call = Call { row: options::argument_row(), args: Vec::new(), ty: ty.clone(), consts, span };
        Some(Expr { kind: ExprKind::Call(call), ty, span })
    }

    /// Does the value depend on arguments of the run that the code does not contain? If so, an `if comptime` chooses when the
    /// program runs.
    pub fn is_late_bound(&self, e: &Expr) -> bool {
        let mut found = false;
        e.visit(&mut |node| {
            if let Node::Expr(Expr { kind: ExprKind::Call(call), .. }) = node {
                found |= builtins::is_argument(call.row, self.env.invocation);
            }
        });
        found
    }

    /// A tuple's value.
    fn tuple(&mut self, elems: &[ast::Expr], span: Span) -> Expr {
        let elems: Vec<Expr> = elems.iter().map(|e| self.stored(e)).collect();
        let elements = tuple_from(elems, span);
        if self.check_nesting(&elements.ty, span) { elements } else { error_expr(span) }
    }

    /// `(x = 1, y = 2)`
    fn record(&mut self, fields: &[(ast::Ident, ast::Expr)], span: Span) -> Expr {
        let mut values: Vec<(String, Expr)> = Vec::new();
        for (name, e) in fields {
            let value = self.stored(e);
            if values.iter().any(|(n, _)| *n == name.name) {
                self.error("redeclared", name.span, format!("the record has a field `{}` already", name.name));
                continue;
            }
            values.push((name.name.clone(), value));
        }
        if values.iter().any(|(_, e)| e.ty == Type::Void) {
            return error_expr(span);
        }
        let ty = record_of(values.iter().map(|(n, e)| (n.clone(), e.ty.clone())).collect());
        if !self.check_nesting(&ty, span) {
            return error_expr(span);
        }
        Expr { kind: ExprKind::Tuple(values.into_iter().map(|(_, e)| e).collect()), ty, span }
    }

    /// The key of a map, from the expressions between the brackets.
    pub fn key_value(&mut self, key: &[ast::Expr], span: Span) -> Expr {
        let key = match key {
            [one] => self.stored(one),
            many => self.tuple(many, span),
        };
        if matches!(key.ty, Type::Agg(_)) {
            return self.fail("misplaced-aggregation", key.span, "an aggregation cannot be a key");
        }
        key
    }

    /// Records the use of a map with or without a key. The result is the key, converted to the map's key type.
    pub fn use_key(&mut self, name: &str, key: Option<Expr>, span: Span) -> Option<Expr> {
        let weak = key.as_ref().map_or(WeakSign::No, |key| self.weakness(key));
        let found = self.maps.found(name, span);
        let Some(key) = key else {
            found.scalar.get_or_insert(span);
            let known = self.maps.get(name).and_then(|f| f.keyed);
            if let Some(place) = known {
                self.key_conflict(name, span, "is used without a key here", place, "with a key here");
            }
            return None;
        };
        found.keyed.get_or_insert(span);
        found.key.add(&key.ty, &weak, key.span);
        let scalar = self.maps.get(name).and_then(|f| f.scalar);
        if let Some(place) = scalar.filter(|place| *place < span) {
            self.key_conflict(name, span, "is used with a key here", place, "without one here");
        }
        Some(self.map_key(name, key))
    }

    fn key_conflict(&mut self, name: &str, span: Span, here: &str, place: Span, there: &str) {
        // Reported once, at the later of the two places.
        if place < span {
            let d =
                Diagnostic::error("map-key-conflict", span, format!("`@{name}` {here}, and {} elsewhere", there.trim_end_matches(" here")));
            let d = d.related(place, there.to_string());
            self.report(d.help("a map must have a key everywhere or nowhere"));
        }
    }

    /// Converts a key to the map's key type.
    fn map_key(&mut self, name: &str, key: Expr) -> Expr {
        let merged = self.maps.key(name);
        let (span, ty) = (key.span, key.ty.clone());
        match self.coerce(key, &merged.ty) {
            Some(key) => key,
            None => {
                let d = Diagnostic::error("type-conflict", span, format!("`@{name}` has keys of {:#} and this key is {ty:#}", merged.ty));
                self.report(d.related(merged.span, format!("the type of the keys comes from here: {:#}", merged.ty)));
                error_expr(span)
            }
        }
    }

    /// Records a reference to a map, and reports a map that is never assigned.
    pub fn use_map(&mut self, name: &str, span: Span) -> MapId {
        self.maps.found(name, span);
        if self.maps.value(name).ty == Type::Void && !self.maps.is_set(name) {
            let written = format!("@{name}");
            let names = self.maps.assigned();
            let d = Diagnostic::error("undefined-map", span, format!("`{written}` is never assigned"));
            self.report(d.suggest(&written, names.iter().map(String::as_str)));
        }
        self.maps.id(name)
    }

    /// A read of a map's value.
    fn map(&mut self, name: &str, key: Option<&[ast::Expr]>, span: Span) -> Expr {
        let name = self.map_name(name);
        let key = key.map(|k| self.key_value(k, span));
        let key = self.use_key(&name, key, span);
        self.read_map(&name, key, span)
    }

    /// A read of a map's value under a key that has been checked.
    pub fn read_map(&mut self, name: &str, key: Option<Expr>, span: Span) -> Expr {
        if self.maps.is_only_read(name) {
            let written = format!("@{name}");
            let names: Vec<String> = self.maps.assigned().into_iter().filter(|n| *n != written).collect();
            let d = Diagnostic::warning("undefined-map", span, format!("`{written}` is never assigned: it reads as 0"));
            self.report(d.suggest(&written, names.iter().map(String::as_str)));
            self.maps.found(name, span).value.add(&Type::int(1), &WeakSign::No, span);
        }
        let id = self.use_map(name, span);
        let value = self.maps.value(name).ty;
        let key = key.map(Box::new);
        match &value {
            Type::Agg(agg) => {
                if !self.env.tables.can_read(&agg.function) {
                    let message = format!("`@{name}` holds {}(), which has no single number to read", agg.function);
                    self.report(Diagnostic::error("not-readable", span, message).help(format!("print it: `print(@{name})`")));
                    return error_expr(span);
                }
                let ty = if agg.signed { Type::I64 } else { Type::U64 };
                Expr { kind: ExprKind::ReadAgg(id, key), ty, span }
            }
            Type::Void => error_expr(span),
            _ => Expr { kind: ExprKind::Map(id, key), ty: value, span },
        }
    }

    fn ternary(&mut self, cond: &ast::Expr, then: Option<&ast::Expr>, otherwise: &ast::Expr, span: Span) -> Expr {
        let Some(then) = then else {
            // `c ?: b`: the condition's value, computed once.
            let value = self.stored(cond);
            let other = self.stored(otherwise);
            return self.elvis(value, other, span);
        };
        let cond = self.condition(cond);
        let (then, otherwise) = (self.stored(then), self.stored(otherwise));
        self.choose(cond, then, otherwise, span)
    }

    fn elvis(&mut self, value: Expr, other: Expr, span: Span) -> Expr {
        if fold::constant(&value).is_some() {
            let cond = self.as_condition(value.clone());
            return self.choose(cond, value, other, span);
        }
        if value.ty == Type::Void {
            return error_expr(span);
        }
        if let ExprKind::Var(_) = value.kind {
            let cond = self.as_condition(value.clone());
            return self.choose(cond, value, other, span);
        }
        let weak = self.weakness(&value);
        let var = self.hide_weak(value.ty.clone(), weak);
        let read = Expr { kind: ExprKind::Var(var), ty: value.ty.clone(), span: value.span };
        let cond = self.as_condition(read.clone());
        let chosen = self.choose(cond, read, other, span);
        let set = super::hir::Stmt { span: value.span, kind: super::hir::StmtKind::SetVar(var, value) };
        Expr { ty: chosen.ty.clone(), kind: ExprKind::Block(vec![set], Box::new(chosen)), span }
    }

    /// One of two values, in the type that holds both.
    fn choose(&mut self, cond: Expr, a: Expr, b: Expr, span: Span) -> Expr {
        let (mut m, places) = (InferredType::default(), (a.span, b.span));
        for e in [&a, &b] {
            m.add(&e.ty, &self.weakness(e), e.span);
        }
        let (at, bt) = (a.ty.clone(), b.ty.clone());
        if at == Type::Void || bt == Type::Void {
            return Expr { ty: m.ty, ..error_expr(span) };
        }
        if let Some(yes) = fold::constant(&cond) {
            let literal = |e: &Expr| fold::is_literal(e) || matches!(e.kind, ExprKind::Str(_));
            let as_written = literal(&a) && literal(&b);
            let chosen = Expr { span, ..if yes == 0 { b } else { a } };
            // the other one may have any type
            let common = if as_written { None } else { self.coerce(chosen.clone(), &m.ty) };
            return common.unwrap_or(chosen);
        }
        match (self.coerce(a, &m.ty), self.coerce(b, &m.ty)) {
            (Some(a), Some(b)) => Expr { kind: ExprKind::Cond(Box::new(cond), Box::new(a), Box::new(b)), ty: m.ty, span },
            _ => {
                let d = Diagnostic::error("type-conflict", places.1, format!("one side is {at:#}, and the other is {bt:#}"));
                self.report(d.related(places.0, format!("this is {at:#}")));
                error_expr(span)
            }
        }
    }

    fn if_value(&mut self, cond: &ast::Expr, then: &ast::Block, otherwise: Option<&ast::Block>, span: Span) -> Expr {
        let Some(otherwise) = otherwise else {
            return self.fail("no-value", span, "an `if` used as a value needs an `else`");
        };
        if let Some(chosen) = self.comptime_choice(cond) {
            return match chosen {
                Some(true) => self.block_value(then, span),
                Some(false) => self.block_value(otherwise, span),
                None => error_expr(span),
            };
        }
        let cond = self.condition(cond);
        let then = self.block_value(then, then.span);
        let otherwise = self.block_value(otherwise, otherwise.span);
        self.choose(cond, then, otherwise, span)
    }

    /// The decision of `if comptime e`; unknown while a type in it is unknown. None if the condition is an ordinary
    /// one.
    pub fn comptime_choice(&mut self, cond: &ast::Expr) -> Option<Option<bool>> {
        let ast::ExprKind::Comptime(_) = cond.kind else { return None };
        let e = self.condition(cond);
        match fold::constant(&e) {
            None if self.is_late_bound(&e) => None,
            known => Some(known.map(|n| n != 0)),
        }
    }

    /// `{ …; e }` as a value.
    pub fn block_value(&mut self, block: &ast::Block, span: Span) -> Expr {
        self.frame.scopes.push(BTreeMap::new());
        let mut stmts = Vec::new();
        self.stmts(&block.stmts, &mut stmts);
        let value = match &block.value {
            Some(e) => self.stored(e),
            None => self.fail("no-value", block.span, "this block's last expression must be its value, without `;`"),
        };
        self.frame.scopes.pop();
        if stmts.is_empty() {
            return value;
        }
        Expr { ty: value.ty.clone(), kind: ExprKind::Block(stmts, Box::new(value)), span }
    }

    fn step(&mut self, target: &ast::Expr, up: bool, post: bool, span: Span) -> Expr {
        let sign = if up { 1 } else { -1 };
        match &target.kind {
            ast::ExprKind::Var(name) => {
                let e = self.var(name, target.span);
                let ExprKind::Var(var) = e.kind else { return error_expr(span) };
                if let Some(v) = self.vars.get_mut(var).filter(|_| matches!(e.ty, Type::Int(_) | Type::Enum(_))) {
                    v.inferred.add(&Type::I64, &WeakSign::from_step(up), span);
                }
                match self.step_type(&e.ty, span) {
                    Some((ty, size)) => Expr { kind: ExprKind::StepVar { var, by: sign * size, post }, ty, span },
                    None => error_expr(span),
                }
            }
            ast::ExprKind::Map { name, key } => {
                let name = self.map_name(name);
                let key = key.as_deref().map(|k| self.key_value(k, target.span));
                let key = self.use_key(&name, key, target.span);
                self.step_map(&name, key, sign, post, span)
            }
            _ => self.fail("not-assignable", target.span, "only variables and maps can be incremented or decremented"),
        }
    }

    /// Adds a constant to a map's integer in place.
    pub fn step_map(&mut self, name: &str, key: Option<Expr>, by: i64, post: bool, span: Span) -> Expr {
        let found = self.maps.found(name, span);
        found.set = true;
        found.value.add(&Type::I64, &WeakSign::from_step(by >= 0), span);
        let value = self.maps.value(name);
        let map = self.maps.id(name);
        if let Type::Agg(agg) = &value.ty {
            let message = format!("`@{name}` holds {}() and cannot be incremented or decremented", agg.function);
            self.report(Diagnostic::error("type-conflict", span, message).related(value.span, "assigned here"));
            return error_expr(span);
        }
        match self.step_type(&value.ty, span) {
            Some((ty, size)) => Expr { kind: ExprKind::StepMap { map, key: key.map(Box::new), by: by.wrapping_mul(size), post }, ty, span },
            None => error_expr(span),
        }
    }

    /// The type of an increment's result, and the size of a step.
    fn step_type(&mut self, ty: &Type, span: Span) -> Option<(Type, i64)> {
        match ty {
            Type::Void => None,
            // A target without a declared type is 64 bits wide, because stepping implies it.
            Type::Int(_) => Some((ty.clone(), 1)),
            // the first pass: stepping makes a number of it
            Type::Enum(_) => Some((Type::I64, 1)),
            Type::Ptr(to, _) => Some((ty.clone(), i64::from(to.size().max(1)))),
            ty => {
                self.error("type-mismatch", span, format!("{ty} cannot be incremented or decremented"));
                None
            }
        }
    }

    /// `(T)e`
    fn cast(&mut self, to: &ast::TypeExpr, inner: &ast::Expr, span: Span) -> Expr {
        let Some(to) = self.type_expr(to) else {
            self.value(inner);
            return error_expr(span);
        };
        let e = self.value(inner);
        self.cast_to(e, to, span)
    }

    fn cast_to(&mut self, e: Expr, to: Type, span: Span) -> Expr {
        let script_cast = |e: Expr, ty: Type| Expr { kind: ExprKind::Cast(Box::new(e), CastOrigin::Script), ty, span };
        let ok = match (&e.ty, &to) {
            (Type::Void, _) => return Expr { ty: to, ..error_expr(span) },
            (from, to) if from == to && !fold::is_literal(&e) && !self.is_weak(&e) => {
                if !matches!(to, Type::Ptr(..)) {
                    self.warn("useless-cast", span, format!("this is already {to}"));
                }
                return e;
            }
            (from, Type::Ptr(target, Space::Unknown)) if from.is_scalar() => {
                let space = match from {
                    Type::Ptr(_, space) => *space,
                    _ => self.context.space.unwrap_or(Space::Unknown),
                };
                // an address has no sign to extend
                let unsigned = from.as_int().map_or(Type::U64, |i| Type::uint(i.bytes));
                let e = if matches!(from, Type::Int(_)) { cast(e, &unsigned) } else { e };
                return script_cast(e, Type::Ptr(target.clone(), space));
            }
            (Type::Array(..) | Type::Str(_), Type::Ptr(target, Space::Unknown)) if self.is_place(&e) => {
                let space = self.space_of(&e);
                let address = self.address_of(e, span);
                return script_cast(address, Type::Ptr(target.clone(), space));
            }
            // as in bpftrace, a number with an explicit type may have any value
            (Type::Int(_), Type::Enum(wanted)) if fold::number(&e).is_some_and(|n| n >= 0) => {
                let n = fold::number(&e).unwrap_or_default();
                if !wanted.variants.iter().any(|(_, v)| *v == n as i64) {
                    return self.fail("bad-cast", span, format!("{to} has no variant with the value {n}"));
                }
                true
            }
            (Type::Int(i), Type::Array(elem, 0)) if elem.as_int().is_some() => {
                let n = u32::from(i.bytes) / elem.size().max(1);
                return script_cast(e, Type::Array(elem.clone(), n));
            }
            (Type::Int(_), Type::Array(elem, _)) if elem.as_int().is_some() => {
                let literal = fold::is_literal(&e) && to.size() <= 8;
                literal || e.ty.size() == to.size()
            }
            (Type::Int(_) | Type::Bool | Type::Enum(_), Type::Deferred(t)) => crate::builtins::find_tag(&t.tag).is_some_and(|t| t.from_int),
            (Type::Array(a, _), Type::Array(elem, 0))
                if a.is_scalar() && elem.is_scalar() && e.ty.size().is_multiple_of(elem.size().max(1)) =>
            {
                let n = e.ty.size() / elem.size().max(1);
                return script_cast(e, Type::Array(elem.clone(), n));
            }
            (Type::Deferred(number), Type::Int(_)) => number.is_float(),
            (Type::Array(a, _), Type::Int(_) | Type::Array(..)) => a.is_scalar() && e.ty.size() == to.size(),
            (Type::Str(n), Type::Array(elem, 0)) if elem.size() == 1 => {
                let n = *n;
                return script_cast(e, Type::Array(elem.clone(), n));
            }
            (Type::Str(n), Type::Array(elem, m)) => elem.size() == 1 && n <= m,
            (Type::Str(_), Type::Str(0)) => return e,
            (Type::Str(_), Type::Bool) if fold::text(&e).is_some() => {
                let some = fold::text(&e).is_some_and(|text| !text.is_empty());
                return fold::typed(some.into(), Type::Bool, span);
            }
            (Type::Str(_), Type::Bool) => true,
            (Type::Str(a), Type::Str(b)) => a <= b,
            (from, to) => from.is_scalar() && to.is_scalar(),
        };
        if ok {
            return script_cast(e, to);
        }
        let d = Diagnostic::error("bad-cast", span, format!("{} cannot be cast to {to}", e.ty));
        let pointer = matches!(to, Type::Struct(_)) && e.ty.is_scalar();
        self.report(if pointer { d.help(format!("cast to a pointer: `({to} *)`")) } else { d });
        error_expr(span)
    }
}

/// A literal as it is sent: of 64 bits.
pub fn widen(e: Expr) -> Expr {
    let ty = fold::word(&e);
    cast(e, &ty)
}

/// A tuple of values that can be stored; unknown while one of them is.
fn tuple_from(elems: Vec<Expr>, span: Span) -> Expr {
    if elems.iter().any(|e| e.ty == Type::Void) {
        return error_expr(span);
    }
    let ty = Type::Tuple(elems.iter().map(|e| e.ty.clone()).collect());
    Expr { kind: ExprKind::Tuple(elems), ty, span }
}

impl BodyChecker<'_> {
    /// The type to which both operands of `==` are converted.
    pub fn common(&self, a: &Expr, b: &Expr) -> Option<Type> {
        merge_weak(&a.ty, &self.weakness(a), &b.ty, &self.weakness(b)).map(|(ty, _)| ty)
    }
}
