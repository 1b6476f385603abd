//! Operators: what their operands must be, what they give, what is known before the program runs.

#![allow(clippy::wildcard_enum_match_arm)] // questions about one shape: what answers to none is refused

use super::body::{Body, poison};
use super::convert::cast;
use super::expr::common;
use super::fold;
use super::hir::{Expr, ExprKind};
use super::types::same_target;
use crate::diag::{Diagnostic, Span};
use crate::syntax::ast::{self, BinOp, UnOp};
use crate::types::Type;

/// Operators by what they do with types.
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

impl Body<'_> {
    /// `a op b`
    pub fn binary(&mut self, op: BinOp, a: &ast::Expr, b: &ast::Expr, span: Span) -> Expr {
        if let Class::Logic = class(op) {
            return self.logic(op, a, b, span);
        }
        let (a, b) = (self.value(a), self.value(b));
        self.binary_of(op, a, b, span)
    }

    fn logic(&mut self, op: BinOp, a: &ast::Expr, b: &ast::Expr, span: Span) -> Expr {
        let (a, b) = (self.value(a), self.value(b));
        if let Some(folded) = fold::binary(op, &a, &b, span) {
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
        if matches!(op, BinOp::Div | BinOp::Mod) && fold::constant(&b) == Some(0) && b.ty != Type::Void {
            return self.fail("zero-division", b.span, format!("`{}` by zero", op.symbol()));
        }
        if let Some(folded) = fold::binary(op, &a, &b, span) {
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

    fn compare(&mut self, op: BinOp, order: bool, a: Expr, b: Expr, span: Span) -> Expr {
        let bool_of = |a: Expr, b: Expr| Expr { kind: ExprKind::Binary(op, Box::new(a), Box::new(b)), ty: Type::Bool, span };
        let (a_ty, b_ty) = (a.ty.clone(), b.ty.clone());
        match (&a_ty, &b_ty) {
            (Type::Void, _) | (_, Type::Void) => Expr { ty: Type::Bool, ..poison(span) },
            (Type::Ptr(x, _), Type::Ptr(y, _)) => {
                if !same_target(x, y) && **x != Type::Void && **y != Type::Void {
                    self.warn("pointer-comparison", span, format!("{a_ty} and {b_ty} point to different types"));
                }
                bool_of(cast(a, &Type::U64), cast(b, &Type::U64))
            }
            (Type::Ptr(..), Type::Int(_)) | (Type::Int(_), Type::Ptr(..)) => bool_of(cast(a, &Type::U64), cast(b, &Type::U64)),
            (x, y) if x.is_scalar() && y.is_scalar() && !matches!((x, y), (Type::Ptr(..), _) | (_, Type::Ptr(..))) => {
                let ty = if x == y && *x == Type::Bool { Type::Bool } else { wide(&a, &b, false) };
                bool_of(cast(a, &ty), cast(b, &ty))
            }
            (Type::Str(_), Type::Str(_)) if !order => bool_of(a, b),
            (Type::Array(x, n), Type::Array(y, m)) if !order && n == m && x == y && x.as_int().is_some() => bool_of(a, b),
            (Type::Buf(_), Type::Buf(_)) if !order => bool_of(a, b),
            (Type::Tuple(_), Type::Tuple(_)) | (Type::Record(_), Type::Record(_)) if !order => match common(&a_ty, &b_ty) {
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
            // Not known yet, or wrong and said so: the other operand decides.
            (Type::Void, Type::Void) => poison(span),
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
                Expr { ty, ..poison(span) }
            }
            (Type::Ptr(..), other) if number(other) && matches!(op, BinOp::Add | BinOp::Sub) => self.offset_pointer(op, a, b, span),
            (other, Type::Ptr(..)) if number(other) && op == BinOp::Add => self.offset_pointer(op, b, a, span),
            (x, y) if number(x) && number(y) => {
                let ty = wide(&a, &b, op == BinOp::Sub);
                // what is shifted in is the left side's own sign, whatever the count's
                let left = match op {
                    BinOp::Shr if signed(&a) => Type::I64,
                    BinOp::Shr => Type::U64,
                    _ => ty.clone(),
                };
                let bools = *x == Type::Bool && *y == Type::Bool;
                let e = Expr { kind: ExprKind::Binary(op, Box::new(cast(a, &left)), Box::new(cast(b, &ty))), ty, span };
                if bools { cast(e, &Type::Bool) } else { e }
            }
            _ => self.mismatch(op, &a_ty, &b_ty, span),
        }
    }

    fn mismatch(&mut self, op: BinOp, a: &Type, b: &Type, span: Span) -> Expr {
        let d = Diagnostic::error("type-mismatch", span, format!("`{}` does not go between {a} and {b}", op.symbol()));
        let pointer = matches!(a, Type::Ptr(..)) || matches!(b, Type::Ptr(..));
        let texts = matches!((op, a, b), (BinOp::Add, Type::Str(_), Type::Str(_)));
        self.report(match (pointer, texts) {
            (true, _) => d.help("cast the pointer to uint64 first"),
            (_, true) => d.help("`+` joins literals; of others: `str_concat(a, b)`"),
            _ => d,
        });
        poison(span)
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
        // a negative number as it is written; what else has a sign before it wraps around as everything does
        let written = |n: u64| {
            let digits = n.to_string().len() as u32;
            matches!(inner.kind, ast::ExprKind::Int(_)) && inner.span.end - inner.span.start == digits
        };
        if let Some(n) = fold::constant(&e).filter(|_| fold::is_literal(&e)) {
            if written(n as u64) && op == UnOp::Neg && e.ty == Type::U64 && (n as u64) > 1 << 63 {
                return self.fail("out-of-range", span, format!("-{} does not fit in 64 bits", n as u64));
            }
            let n = if op == UnOp::Neg { n.wrapping_neg() } else { !n };
            return if e.ty == Type::U64 && op == UnOp::BitNot { fold::typed(n, Type::U64, span) } else { fold::signed(n, span) };
        }
        match &e.ty {
            Type::Void => poison(span),
            Type::Int(_) | Type::Bool | Type::Enum(_) => {
                let ty = if signed(&e) { Type::I64 } else { Type::U64 };
                Expr { kind: ExprKind::Unary(op, Box::new(cast(e, &ty))), ty, span }
            }
            ty => {
                let sign = if op == UnOp::Neg { "-" } else { "~" };
                let message = format!("`{sign}` does not go before {ty}");
                self.fail("type-mismatch", span, message)
            }
        }
    }
}

/// Does it bring a sign into arithmetic?
fn signed(e: &Expr) -> bool {
    !fold::is_flexible(e) && e.ty.as_int().is_some_and(|i| i.signed)
}

/// The 64-bit type in which two integers meet. A flexible literal takes the other's sign; two of them are signed.
fn wide(a: &Expr, b: &Expr, minus: bool) -> Type {
    let literals = fold::is_flexible(a) && fold::is_flexible(b);
    if minus || literals || signed(a) || signed(b) { Type::I64 } else { Type::U64 }
}
