//! Conversions that the checker inserts: to the merged type of a variable, to a condition, to a value.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::rc::Rc;
use std::sync::Arc;

use super::body::{BodyChecker, error_expr};
use super::fold;
use super::hir::{CastOrigin, Expr, ExprKind, Node, Stmt, StmtKind};
use super::stmt::has_effect;
use super::types::{InferredType, WeakSign, has_pointer_elements, in_space, record_of, same_target};
use crate::diag::Span;
use crate::probes::{ArgRef, ContextField, FieldLocation};
use crate::syntax::ast;
use crate::types::{Field, Type};

/// A cast, or the constant that results from it.
pub fn cast(e: Expr, ty: &Type) -> Expr {
    if e.ty == *ty {
        return e;
    }
    let span = e.span;
    match (&e.kind, ty) {
        (ExprKind::Int(n), Type::Int(_) | Type::Enum(_) | Type::Ptr(..)) => fold::typed(*n as i64, ty.clone(), span),
        (ExprKind::Int(n), Type::Bool) => fold::boolean(*n != 0, span),
        (ExprKind::Str(s), Type::Str(cap)) if *cap as usize > s.len() => Expr { kind: e.kind, ty: ty.clone(), span },
        _ => Expr { kind: ExprKind::Cast(Box::new(e), CastOrigin::Implicit), ty: ty.clone(), span },
    }
}

/// Field `i` of a tuple's value.
pub fn tuple_element(base: Expr, elems: &[Type], i: usize) -> Expr {
    let span = base.span;
    let ty = elems.get(i).cloned().unwrap_or(Type::Void);
    let offset = Type::tuple_offsets(elems).get(i).copied().unwrap_or(0);
    let field = Field { name: i.to_string(), offset, bits: None, ty: ty.clone() };
    Expr { kind: ExprKind::Field(Box::new(base), Rc::new(field)), ty, span }
}

/// The parts of a tuple or of a record created in the script.
fn parts(ty: &Type) -> Option<Vec<Rc<Field>>> {
    match ty {
        Type::Tuple(elems) => {
            let offsets = Type::tuple_offsets(elems);
            let parts = elems.iter().zip(offsets).enumerate();
            Some(parts.map(|(i, (ty, offset))| Rc::new(Field { name: i.to_string(), offset, bits: None, ty: ty.clone() })).collect())
        }
        Type::Record(r) if r.name.is_empty() => Some(r.fields.iter().cloned().map(Rc::new).collect()),
        _ => None,
    }
}

/// Is an implicit conversion between these types allowed?
pub fn fits(from: &Type, to: &Type) -> bool {
    match (from, to) {
        (x, y) if x == y => true,
        (Type::Void, _) => true,
        (Type::Int(_) | Type::Bool | Type::Enum(_), Type::Int(_) | Type::Bool | Type::Enum(_)) => true,
        (Type::Str(x), Type::Str(y)) | (Type::Buf(x), Type::Buf(y)) => x <= y,
        (Type::Ptr(x, _), Type::Ptr(y, _)) => same_target(x, y),
        (Type::Array(x, n), Type::Array(y, m)) => n == m && has_pointer_elements(x) && fits(x, y),
        (Type::Tuple(x), Type::Tuple(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| fits(x, y)),
        (Type::Record(x), Type::Record(y)) => {
            let other = |name: &str| y.fields.iter().find(|f| f.name == name);
            let made_here = x.name.is_empty() && y.name.is_empty();
            made_here && x.fields.len() == y.fields.len() && x.fields.iter().all(|f| other(&f.name).is_some_and(|o| fits(&f.ty, &o.ty)))
        }
        _ => false,
    }
}

impl BodyChecker<'_> {
    /// The parts of a value whose sign is weak.
    pub fn weakness(&self, e: &Expr) -> WeakSign {
        let held = |m: &InferredType| if m.ty == e.ty { m.weak_sign.clone().read() } else { WeakSign::No };
        match &e.kind {
            ExprKind::Int(_) => fold::is_flexible(e).into(),
            ExprKind::Var(id) => held(&self.var_type(*id)),
            ExprKind::Map(id, _) => self.maps.by_id(*id).map_or(WeakSign::No, |f| held(&f.value)),
            ExprKind::Tuple(elems) => WeakSign::Parts(elems.iter().map(|e| self.weakness(e)).collect()),
            ExprKind::Field(base, field) => {
                let parts = parts(&base.ty).unwrap_or_default();
                parts.iter().position(|f| f.name == field.name).map_or(WeakSign::No, |i| self.weakness(base).part(i))
            }
            ExprKind::Cast(inner, CastOrigin::Implicit) if e.ty.as_int().is_some() && inner.ty.as_int().is_some() => self.weakness(inner),
            ExprKind::Cond(_, a, b) => self.weakness(a).and(self.weakness(b)),
            ExprKind::Block(_, value) => self.weakness(value),
            _ => WeakSign::No,
        }
    }

    /// The parts of an assigned value whose sign is weak, depending on whether a pass has seen the target. In the first
    /// pass, arithmetic with a name whose sign is not decided yet must not decide, such as the target itself:
    /// `$x = $x + 1` has the sign that other assignments determine.
    pub fn assigned_weakness(&self, value: &Expr, seen: bool) -> WeakSign {
        let arithmetic = matches!(&value.kind, ExprKind::Binary(op, ..) if *op != ast::BinOp::Sub) && matches!(value.ty, Type::Int(_));
        let mut depends = false;
        if !seen && arithmetic {
            value.visit(&mut |n| {
                if let Node::Expr(e) = n {
                    depends |= self.is_undecided(e);
                }
            });
        }
        if depends { WeakSign::Yes } else { self.weakness(value) }
    }

    /// Is this a variable or a map whose sign is not decided yet?
    fn is_undecided(&self, e: &Expr) -> bool {
        let undecided = |found: &InferredType| found.ty == Type::Void || found.weak_sign != WeakSign::No;
        match &e.kind {
            ExprKind::Var(id) => undecided(&self.var_type(*id)),
            ExprKind::Map(id, _) => self.maps.by_id(*id).is_none_or(|map| undecided(&map.value)),
            _ => false,
        }
    }

    /// Is an integer's sign weak?
    pub fn is_weak(&self, e: &Expr) -> bool {
        self.weakness(e) == WeakSign::Yes
    }

    /// Converts a value to a type that all uses agree on; none if that is impossible.
    pub fn coerce(&mut self, e: Expr, to: &Type) -> Option<Expr> {
        if e.ty == *to || e.ty == Type::Void || *to == Type::Void {
            return Some(e);
        }
        let null = fold::is_literal(&e) && matches!(to, Type::Ptr(..));
        if !null && !fits(&e.ty, to) {
            return None;
        }
        let (Some(from), Some(wanted)) = (parts(&e.ty), parts(to)) else { return Some(cast(e, to)) };
        let span = e.span;
        if let ExprKind::Tuple(elems) = e.kind {
            let named = from.into_iter().map(|f| f.name.clone()).zip(elems).collect();
            return self.parts_of(named, &wanted, to, span);
        }
        let weak = self.weakness(&e);
        let var = self.hide_weak(e.ty.clone(), weak);
        let read = Expr { kind: ExprKind::Var(var), ty: e.ty.clone(), span };
        let take = |f: Rc<Field>| (f.name.clone(), Expr { ty: f.ty.clone(), kind: ExprKind::Field(Box::new(read.clone()), f), span });
        let parts = self.parts_of(from.into_iter().map(take).collect(), &wanted, to, span)?;
        let set = Stmt { kind: StmtKind::SetVar(var, e), span };
        Some(Expr { kind: ExprKind::Block(vec![set], Box::new(parts)), ty: to.clone(), span })
    }

    /// Builds a tuple or record from its parts, with the fields of a record in the required order. The parts are evaluated in
    /// the order of the source.
    fn parts_of(&mut self, given: Vec<(String, Expr)>, wanted: &[Rc<Field>], to: &Type, span: crate::diag::Span) -> Option<Expr> {
        let moved = given.iter().zip(wanted).any(|((name, _), f)| *name != f.name);
        let mut given = if moved { self.in_written_order(given) } else { (Vec::new(), given) };
        let mut elems = Vec::with_capacity(wanted.len());
        for f in wanted {
            let at = given.1.iter().position(|(n, _)| *n == f.name)?;
            let (_, e) = given.1.remove(at);
            elems.push(self.coerce(e, &f.ty)?);
        }
        let tuple = Expr { kind: ExprKind::Tuple(elems), ty: to.clone(), span };
        Some(if given.0.is_empty() { tuple } else { Expr { kind: ExprKind::Block(given.0, Box::new(tuple)), ty: to.clone(), span } })
    }

    /// Stores values that may affect each other in variables, one after the other. Constants stay.
    fn in_written_order(&mut self, given: Vec<(String, Expr)>) -> (Vec<Stmt>, Vec<(String, Expr)>) {
        if !given.iter().any(|(_, e)| has_effect(e)) {
            return (Vec::new(), given);
        }
        let mut kept = Vec::new();
        let mut keep = |(name, e): (String, Expr)| {
            if fold::is_known(&e) || e.ty == Type::Void {
                return (name, e);
            }
            let weak = self.weakness(&e);
            let (var, ty, span) = (self.hide_weak(e.ty.clone(), weak), e.ty.clone(), e.span);
            kept.push(Stmt { kind: StmtKind::SetVar(var, e), span });
            (name, Expr { kind: ExprKind::Var(var), ty, span })
        };
        let given = given.into_iter().map(&mut keep).collect();
        (kept, given)
    }

    /// An expression that has a value.
    pub fn value(&mut self, e: &ast::Expr) -> Expr {
        let e = self.expr(e);
        match &e.kind {
            ExprKind::Call(call) if e.ty == Type::Void && call.ty == Type::Void => {
                let name = call.row.name;
                self.fail("no-value", e.span, format!("{name} returns no value"))
            }
            ExprKind::CallFn(..) | ExprKind::CallForeign(..) if e.ty == Type::Void => {
                self.fail("no-value", e.span, "this function returns no value")
            }
            ExprKind::Cond(..) | ExprKind::Block(..) if e.ty == Type::Void => error_expr(e.span),
            _ => e,
        }
    }

    /// A value that can be stored: structs and `args` are copied whole.
    pub fn stored(&mut self, e: &ast::Expr) -> Expr {
        let e = self.value(e);
        self.by_value(e)
    }

    /// A copy of a struct behind an address, or of `args`.
    pub fn by_value(&mut self, e: Expr) -> Expr {
        match &e.ty {
            Type::Struct(_) | Type::Array(..) => match self.expand_type(&e.ty) {
                Some(ty) if ty == e.ty => e,
                Some(ty) => Expr { span: e.span, kind: ExprKind::Cast(Box::new(e), CastOrigin::Implicit), ty },
                None => self.fail("unknown-type", e.span, format!("the members of {} are unknown", e.ty)),
            },
            Type::Args => {
                self.warn_omitted(e.span);
                let fields: Vec<_> = self.context.fields.iter().filter(|f| f.is_readable()).cloned().collect();
                Expr { ty: self.args_record(&fields), kind: ExprKind::Context(ArgRef::All(fields)), span: e.span }
            }
            _ => e,
        }
    }

    /// A type with its structs by value; none if their members are unknown.
    pub fn expand_type(&self, ty: &Type) -> Option<Type> {
        match ty {
            Type::Struct(s) => Some(Type::Record(Arc::new(self.env.sys.expand(s)?))),
            Type::Array(elem, n) => Some(Type::Array(Box::new(self.expand_type(elem)?), *n)),
            other => Some(other.clone()),
        }
    }

    /// Reports the fields that `args` as a whole omits.
    fn warn_omitted(&mut self, span: Span) {
        let reason = |f: &ContextField| {
            let FieldLocation::Unreadable(why) = f.location else { return None };
            Some(format!("`{}` ({why})", f.field.name))
        };
        let left: Vec<String> = self.context.fields.iter().filter_map(|f| reason(f)).collect();
        if !left.is_empty() {
            let message = format!("unreadable fields of {}'s `args` are omitted: {}", self.site.name, left.join(", "));
            self.warn("omitted-arguments", span, message);
        }
    }

    /// `args` as a whole: these fields in order, naturally aligned.
    fn args_record(&self, fields: &[std::rc::Rc<ContextField>]) -> Type {
        let field = |f: &ContextField| {
            let ty = self.context_type(&f.field.ty);
            (f.field.name.clone(), self.expand_type(&ty).unwrap_or(ty))
        };
        record_of(fields.iter().map(|f| field(f)).collect())
    }

    /// The type of a context field here: the probe determines the address space of pointers, and strings of unknown length
    /// get the default capacity.
    pub fn context_type(&self, ty: &Type) -> Type {
        match ty {
            Type::Str(0) => Type::Str(u32::try_from(self.env.settings.max_strlen).unwrap_or(u32::MAX)),
            ty => in_space(ty.clone(), self.context.space.unwrap_or(crate::types::Space::Unknown)),
        }
    }

    /// A condition: any scalar, as a bool.
    pub fn condition(&mut self, e: &ast::Expr) -> Expr {
        let e = self.value(e);
        self.as_condition(e)
    }

    /// A scalar as a bool.
    pub fn as_condition(&mut self, e: Expr) -> Expr {
        match &e.ty {
            Type::Bool => e,
            // a literal is known to be empty or not
            Type::Str(_) if fold::text(&e).is_some() => {
                let some = fold::text(&e).is_some_and(|text| !text.is_empty());
                fold::typed(some.into(), Type::Bool, e.span)
            }
            Type::Void => Expr { ty: Type::Bool, ..e },
            ty if ty.is_scalar() => cast(e, &Type::Bool),
            ty => {
                let message = format!("a condition must be a number, a bool or a pointer, but this is {ty}");
                let bad = self.fail("bad-condition", e.span, message);
                Expr { ty: Type::Bool, ..bad }
            }
        }
    }
}
