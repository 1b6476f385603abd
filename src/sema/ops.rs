//! Operators: types of operands and results, and constant evaluation.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use super::body::{BodyChecker, error_expr};
use super::convert::cast;
use super::fold;
use super::hir::{Expr, ExprKind};
use super::types::{enum_value, same_target};
use crate::diag::{Diagnostic, Span};
use crate::syntax::ast::{self, BinOp, UnOp};
use crate::types::Type;

/// Classes of operators by their types.
enum Class {
    Logic,
    Compare { order: bool },
    Arithmetic,
}

fn class(op: BinOp) -> Class {
    match op {
        BinOp::And | BinOp::Or => Class::Logic,
        BinOp::Eq | BinOp::Ne => Class::Compare { order: false },
        BinOp::Lt | BinOp::Gt | BinOp::Le | BinOp::Ge => Class::Compare { order: true },
        BinOp::Mul
        | BinOp::Div
        | BinOp::Mod
        | BinOp::Add
        | BinOp::Sub
        | BinOp::Shl
        | BinOp::Shr
        | BinOp::BitAnd
        | BinOp::BitXor
        | BinOp::BitOr => Class::Arithmetic,
    }
}

/// The variant of this name, if a value has an enum's type. Another enum may have a variant of this name with another value.
fn variant_of(value: &Expr, name: &str, span: Span) -> Option<Expr> {
    let Type::Enum(e) = &value.ty else { return None };
    let (_, number) = e.variants.iter().find(|(variant, _)| variant == name)?;
    Some(fold::typed(*number, enum_value(value.ty.clone()), span))
}

impl BodyChecker<'_> {
    /// `a op b`
    pub fn binary(&mut self, op: BinOp, a: &ast::Expr, b: &ast::Expr, span: Span) -> Expr {
        if let Class::Logic = class(op) {
            return self.logic(op, a, b, span);
        }
        let (a, b) = match (&a.kind, &b.kind) {
            (_, ast::ExprKind::Ident(name)) => {
                let a = self.value(a);
                let variant = variant_of(&a, name, b.span);
                (a, variant.unwrap_or_else(|| self.value(b)))
            }
            (ast::ExprKind::Ident(name), _) => {
                let b = self.value(b);
                let variant = variant_of(&b, name, a.span);
                (variant.unwrap_or_else(|| self.value(a)), b)
            }
            _ => (self.value(a), self.value(b)),
        };
        self.binary_of(op, a, b, span)
    }

    fn logic(&mut self, op: BinOp, a: &ast::Expr, b: &ast::Expr, span: Span) -> Expr {
        let (a, b) = (self.value(a), self.value(b));
        if let Some(folded) = self.constants(op, &a, &b, span) {
            return folded;
        }
        let (a, b) = (self.as_condition(a), self.as_condition(b));
        match (op, fold::constant(&a)) {
            (BinOp::And, Some(0)) => fold::boolean(false, span),
            (BinOp::Or, Some(1)) => fold::boolean(true, span),
            (_, Some(_)) => Expr { span, ..b },
            (_, None) => Expr { kind: ExprKind::Binary(op, Box::new(a), Box::new(b)), ty: Type::Bool, span },
        }
    }

    /// An operator other than `&&` and `||` on checked operands.
    pub fn binary_of(&mut self, op: BinOp, a: Expr, b: Expr, span: Span) -> Expr {
        // a literal fails at check time; another dividend is reported at run time
        if matches!(op, BinOp::Div | BinOp::Mod) && fold::number(&a).is_some() && fold::number(&b) == Some(0) {
            return self.fail("division-by-zero", b.span, format!("`{}` by zero", op.symbol()));
        }
        if let Some(folded) = self.constants(op, &a, &b, span) {
            return folded;
        }
        match class(op) {
            Class::Logic => {
                let (a, b) = (self.as_condition(a), self.as_condition(b));
                Expr { kind: ExprKind::Binary(op, Box::new(a), Box::new(b)), ty: Type::Bool, span }
            }
            Class::Compare { order } => self.compare(op, order, a, b, span),
            Class::Arithmetic => self.arithmetic(op, a, b, span),
        }
    }

    /// The result for two constants.
    fn constants(&mut self, op: BinOp, a: &Expr, b: &Expr, span: Span) -> Option<Expr> {
        match fold::binary(op, a, b, span) {
            Ok(folded) => folded,
            Err(fold::Overflow) => {
                let d = Diagnostic::error("out-of-range", span, "the result of these literals does not fit in 64 bits");
                Some(self.poisoned(d.help("cast them, `(uint64)…` or `(int64)…`, to let the result wrap around")))
            }
        }
    }

    fn compare(&mut self, op: BinOp, order: bool, a: Expr, b: Expr, span: Span) -> Expr {
        let bool_of = |a: Expr, b: Expr| Expr { kind: ExprKind::Binary(op, Box::new(a), Box::new(b)), ty: Type::Bool, span };
        let (a_ty, b_ty) = (a.ty.clone(), b.ty.clone());
        match (&a_ty, &b_ty) {
            (Type::Void, _) | (_, Type::Void) => Expr { ty: Type::Bool, ..error_expr(span) },
            (Type::Ptr(x, _), Type::Ptr(y, _)) => {
                if !same_target(x, y) && **x != Type::Void && **y != Type::Void {
                    self.warn("pointer-comparison", span, format!("{a_ty} and {b_ty} point to different types"));
                }
                bool_of(cast(a, &Type::U64), cast(b, &Type::U64))
            }
            (Type::Ptr(..), Type::Int(_)) | (Type::Int(_), Type::Ptr(..)) => bool_of(cast(a, &Type::U64), cast(b, &Type::U64)),
            (x, y) if x.is_scalar() && y.is_scalar() && !matches!((x, y), (Type::Ptr(..), _) | (_, Type::Ptr(..))) => {
                let ty = if x == y && *x == Type::Bool { Type::Bool } else { self.wide(&a, &b, false) };
                let negative = |e: &Expr| fold::constant(e).is_some_and(|n| n < 0);
                let large = |e: &Expr| e.ty == Type::U64 && fold::constant(e).is_none();
                if (large(&a) && negative(&b)) || (negative(&a) && large(&b)) {
                    let message = "a uint64 is compared with a negative number as int64: from 2^63 upward it is negative there";
                    self.report(Diagnostic::warning("sign-change", span, message).help("choose the sign with a cast: `(int64)x`"));
                }
                bool_of(cast(a, &ty), cast(b, &ty))
            }
            (Type::Str(_), Type::Str(_)) if !order => bool_of(a, b),
            (Type::Array(x, n), Type::Array(y, m)) if !order && n == m && x == y && x.as_int().is_some() => bool_of(a, b),
            (Type::Buf(_), Type::Buf(_)) if !order => bool_of(a, b),
            (Type::Tuple(_), Type::Tuple(_)) | (Type::Record(_), Type::Record(_)) if !order => match self.common(&a, &b) {
                Some(ty) => match (self.coerce(a, &ty), self.coerce(b, &ty)) {
                    (Some(a), Some(b)) => bool_of(a, b),
                    _ => self.mismatch(op, &a_ty, &b_ty, span),
                },
                None => self.mismatch(op, &a_ty, &b_ty, span),
            },
            _ => self.mismatch(op, &a_ty, &b_ty, span),
        }
    }

    fn arithmetic(&mut self, op: BinOp, a: Expr, b: Expr, span: Span) -> Expr {
        let (a_ty, b_ty) = (a.ty.clone(), b.ty.clone());
        let number = |ty: &Type| matches!(ty, Type::Int(_) | Type::Bool | Type::Enum(_));
        match (&a_ty, &b_ty) {
            // Unknown so far, or invalid and reported: the other operand decides.
            (Type::Void, Type::Void) => error_expr(span),
            (Type::Void, other) | (other, Type::Void) => {
                let signed = op == BinOp::Sub || other.as_int().is_some_and(|i| i.signed);
                let ty = if matches!(other, Type::Ptr(..)) {
                    other.clone()
                } else if !number(other) {
                    Type::Void
                } else if signed {
                    Type::I64
                } else {
                    Type::U64
                };
                Expr { ty, ..error_expr(span) }
            }
            (Type::Ptr(..), other) if number(other) && matches!(op, BinOp::Add | BinOp::Sub) => self.offset_pointer(op, a, b, span),
            (other, Type::Ptr(..)) if number(other) && op == BinOp::Add => self.offset_pointer(op, b, a, span),
            (x, y) if number(x) && number(y) => {
                let ty = self.wide(&a, &b, op == BinOp::Sub);
                let (left, right) = match op {
                    // the sign of the left side is shifted in, whatever the sign of the count
                    BinOp::Shr if self.signed(&a) => (Type::I64, ty.clone()),
                    BinOp::Shr => (Type::U64, ty.clone()),
                    // as in C, `uint64` stays unsigned with any other operand
                    BinOp::Div | BinOp::Mod if *x == Type::U64 || *y == Type::U64 => (Type::U64, Type::U64),
                    _ => (ty.clone(), ty.clone()),
                };
                let bools = *x == Type::Bool && *y == Type::Bool;
                let e = Expr { kind: ExprKind::Binary(op, Box::new(cast(a, &left)), Box::new(cast(b, &right))), ty, span };
                if bools { cast(e, &Type::Bool) } else { e }
            }
            _ => self.mismatch(op, &a_ty, &b_ty, span),
        }
    }

    fn mismatch(&mut self, op: BinOp, a: &Type, b: &Type, span: Span) -> Expr {
        let d = Diagnostic::error("type-mismatch", span, format!("`{}` is not defined for {a} and {b}", op.symbol()));
        let pointer = matches!(a, Type::Ptr(..)) || matches!(b, Type::Ptr(..));
        let texts = matches!((op, a, b), (BinOp::Add, Type::Str(_), Type::Str(_)));
        self.report(match (pointer, texts) {
            (true, _) => d.help("cast the pointer to uint64 first"),
            (_, true) => d.help("`+` joins literals only; for other strings, use `str_concat(a, b)`"),
            _ => d,
        });
        error_expr(span)
    }

    /// `!x`, `-x`, `~x`, `*x`, `&x`
    pub fn unary(&mut self, op: UnOp, inner: &ast::Expr, span: Span) -> Expr {
        match op {
            UnOp::Deref => return self.deref(inner, span),
            UnOp::AddrOf => {
                let e = self.value(inner);
                return self.address_of(e, span);
            }
            UnOp::Not => {
                let e = self.condition(inner);
                return match fold::constant(&e) {
                    Some(n) => fold::boolean(n == 0, span),
                    None => Expr { kind: ExprKind::Unary(op, Box::new(e)), ty: Type::Bool, span },
                };
            }
            UnOp::Neg | UnOp::BitNot => {}
        }
        let e = self.value(inner);
        if let Some(n) = fold::number(&e) {
            // The complement of a nonnegative literal is unsigned: its bits are meant.
            let complement = !(n as u64);
            let given = if op == UnOp::Neg { fold::of_number(-n, span) } else { Some(fold::literal(complement, span)) };
            return given.unwrap_or_else(|| self.fail("out-of-range", span, format!("-{n} does not fit in 64 bits")));
        }
        match &e.ty {
            Type::Void => error_expr(span),
            Type::Int(i) if i.signed => Expr { kind: ExprKind::Unary(op, Box::new(cast(e, &Type::I64))), ty: Type::I64, span },
            Type::Int(_) | Type::Bool | Type::Enum(_) => {
                // of the operand's width; the bits above are zero
                let ty = e.ty.as_int().map_or(Type::U64, Type::Int);
                let e = Expr { kind: ExprKind::Unary(op, Box::new(cast(e, &ty))), ty, span };
                cast(e, &Type::U64)
            }
            ty => {
                let sign = if op == UnOp::Neg { "-" } else { "~" };
                let message = format!("`{sign}` is not defined for {ty}");
                self.fail("type-mismatch", span, message)
            }
        }
    }
}

impl BodyChecker<'_> {
    /// Does it make arithmetic signed?
    fn signed(&self, e: &Expr) -> bool {
        e.ty.as_int().is_some_and(|i| i.signed) && !self.is_weak(e)
    }

    /// The common 64-bit type of two integers. A weak sign yields to the other; two weak ones are signed.
    fn wide(&self, a: &Expr, b: &Expr, minus: bool) -> Type {
        let weak = self.is_weak(a) && self.is_weak(b);
        if minus || weak || self.signed(a) || self.signed(b) { Type::I64 } else { Type::U64 }
    }
}
