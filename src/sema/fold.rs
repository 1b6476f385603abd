//! Constant folding.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::rc::Rc;

use super::hir::{Expr, ExprKind};
use crate::diag::Span;
use crate::syntax::ast::BinOp;
use crate::types::Type;

/// A literal integer in a script: its type is the smallest signed one that holds it, or else `uint64`.
pub fn literal(n: u64, span: Span) -> Expr {
    match i64::try_from(n) {
        Ok(n) => signed(n, span),
        Err(_) => Expr { kind: ExprKind::Int(n), ty: Type::U64, span },
    }
}

/// A constant of the smallest signed type that fits.
pub fn signed(n: i64, span: Span) -> Expr {
    let bytes = if i8::try_from(n).is_ok() {
        1
    } else if i16::try_from(n).is_ok() {
        2
    } else if i32::try_from(n).is_ok() {
        4
    } else {
        8
    };
    Expr { kind: ExprKind::Int(n as u64), ty: Type::int(bytes), span }
}

/// A constant with the smallest unsigned type that holds it, as for `sizeof`.
pub fn unsigned(n: u32, span: Span) -> Expr {
    let bytes = if n <= u8::MAX.into() {
        1
    } else if n <= u16::MAX.into() {
        2
    } else {
        4
    };
    Expr { kind: ExprKind::Int(n.into()), ty: Type::uint(bytes), span }
}

/// `true` or `false`.
pub fn boolean(b: bool, span: Span) -> Expr {
    Expr { kind: ExprKind::Int(b.into()), ty: Type::Bool, span }
}

/// A constant string with room for its NUL.
pub fn string(s: &[u8], span: Span) -> Expr {
    Expr { kind: ExprKind::Str(Rc::from(s)), ty: Type::Str(s.len() as u32 + 1), span }
}

/// A constant record of numbers, bools and strings, from its bytes.
pub fn from_bytes(bytes: &[u8], ty: &Type, span: Span) -> Expr {
    let Type::Record(record) = ty else { return Expr { kind: ExprKind::Tuple(Vec::new()), ty: Type::Void, span } };
    let values = record.fields.iter().map(|f| {
        let field_bytes: Vec<u8> = bytes.iter().copied().skip(f.offset as usize).take(f.ty.size() as usize).collect();
        match &f.ty {
            Type::Str(_) => {
                let text: Vec<u8> = field_bytes.into_iter().take_while(|b| *b != 0).collect();
                Expr { ty: f.ty.clone(), ..string(&text, span) }
            }
            Type::Record(_) => from_bytes(&field_bytes, &f.ty, span),
            ty => typed(field_bytes.iter().rev().fold(0, |n, b| n << 8 | i64::from(*b)), ty.clone(), span),
        }
    });
    Expr { kind: ExprKind::Tuple(values.collect()), ty: ty.clone(), span }
}

/// Part `i` of a tuple or record all of whose parts are constants.
pub fn part(e: &Expr, i: usize) -> Option<Expr> {
    let ExprKind::Tuple(parts) = &e.kind else { return None };
    parts.iter().all(is_known).then(|| parts.get(i).cloned()).flatten()
}

/// Is it constant?
pub fn is_known(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Tuple(parts) => e.ty != Type::Void && parts.iter().all(is_known),
        _ => constant(e).is_some() || text(e).is_some(),
    }
}

/// A constant of a known type, truncated to the type's width.
pub fn typed(n: i64, ty: Type, span: Span) -> Expr {
    let bits = ty.as_int().map_or(n as u64, |i| i.wrap(n as u64));
    Expr { kind: ExprKind::Int(bits), ty, span }
}

/// A literal that adopts the sign of the other operand: written without a cast, and not negative.
pub fn is_flexible(e: &Expr) -> bool {
    match (&e.kind, &e.ty) {
        (ExprKind::Int(n), Type::Int(i)) => i.signed && *n as i64 >= 0,
        _ => false,
    }
}

/// A literal integer of either sign.
pub fn is_literal(e: &Expr) -> bool {
    matches!((&e.kind, &e.ty), (ExprKind::Int(_), Type::Int(_)))
}

/// The number of a literal, regardless of its type.
pub fn number(e: &Expr) -> Option<i128> {
    match (&e.kind, &e.ty) {
        (ExprKind::Int(n), Type::Int(i)) if i.signed => Some((*n as i64).into()),
        (ExprKind::Int(n), ty) if *ty == Type::U64 && *n > i64::MAX as u64 => Some((*n).into()),
        _ => None,
    }
}

/// The literal for this number; none if it does not fit in 64 bits.
pub fn of_number(n: i128, span: Span) -> Option<Expr> {
    match (i64::try_from(n), u64::try_from(n)) {
        (Ok(n), _) => Some(signed(n, span)),
        (_, Ok(n)) => Some(literal(n, span)),
        _ => None,
    }
}

/// A literal as it is sent: of 64 bits.
pub fn word(e: &Expr) -> Type {
    match (&e.kind, &e.ty) {
        (ExprKind::Int(_), Type::Int(i)) if i.signed => Type::I64,
        (_, ty) => ty.clone(),
    }
}

/// The value of a constant expression; casts of constants count.
pub fn constant(e: &Expr) -> Option<i64> {
    match &e.kind {
        ExprKind::Int(n) => Some(*n as i64),
        ExprKind::Cast(inner, _) => {
            let n = constant(inner)?;
            match &e.ty {
                Type::Bool => Some((n != 0).into()),
                ty => ty.as_int().map(|i| i.wrap(n as u64) as i64),
            }
        }
        _ => None,
    }
}

/// The bytes of a constant string.
pub fn text(e: &Expr) -> Option<&[u8]> {
    match &e.kind {
        ExprKind::Str(s) => Some(s),
        _ => None,
    }
}

/// No type can hold the result of an operator on two literals.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

/// An operator on two constants, or none if it must be evaluated at run time (or is an error).
pub fn binary(op: BinOp, a: &Expr, b: &Expr, span: Span) -> Result<Option<Expr>, Overflow> {
    match (number(a), number(b)) {
        (Some(x), Some(y)) => literals(op, x, y, span),
        _ => Ok(typed_binary(op, a, b, span)),
    }
}

/// An operator on two literals, which are numbers without a type until they are used. A number beyond `int64` cannot be
/// combined with a negative one.
fn literals(op: BinOp, x: i128, y: i128, span: Span) -> Result<Option<Expr>, Overflow> {
    let negative = x < 0 || y < 0;
    let beyond = |n: i128| n > i64::MAX.into();
    if negative && (beyond(x) || beyond(y)) {
        return Err(Overflow);
    }
    let count = || u32::try_from(y).ok().filter(|n| *n < 64).ok_or(Overflow);
    let n = match op {
        BinOp::Add => x + y,
        BinOp::Sub => x - y,
        BinOp::Mul => x.checked_mul(y).ok_or(Overflow)?,
        BinOp::Div | BinOp::Mod if y == 0 => return Ok(None),
        // the minimum divided by -1 is itself, as at run time
        BinOp::Div if negative => (x as i64).wrapping_div(y as i64).into(),
        BinOp::Div => x / y,
        BinOp::Mod => x % y,
        // bits shifted out at the top are lost
        BinOp::Shl if x < 0 => ((x as i64) << count()?).into(),
        BinOp::Shl => ((x as u64) << count()?).into(),
        BinOp::Shr => x >> count()?,
        BinOp::BitAnd => x & y,
        BinOp::BitOr => x | y,
        BinOp::BitXor => x ^ y,
        BinOp::Lt => return Ok(Some(boolean(x < y, span))),
        BinOp::Gt => return Ok(Some(boolean(x > y, span))),
        BinOp::Le => return Ok(Some(boolean(x <= y, span))),
        BinOp::Ge => return Ok(Some(boolean(x >= y, span))),
        BinOp::Eq => return Ok(Some(boolean(x == y, span))),
        BinOp::Ne => return Ok(Some(boolean(x != y, span))),
        BinOp::And => return Ok(Some(boolean(x != 0 && y != 0, span))),
        BinOp::Or => return Ok(Some(boolean(x != 0 || y != 0, span))),
    };
    if negative && beyond(n) {
        return Err(Overflow);
    }
    of_number(n, span).map(Some).ok_or(Overflow)
}

/// An operator on typed constants: as at run time.
fn typed_binary(op: BinOp, a: &Expr, b: &Expr, span: Span) -> Option<Expr> {
    match (&a.kind, &b.kind) {
        (ExprKind::Str(x), ExprKind::Str(y)) => strings(op, x, y, span),
        (ExprKind::Int(x), ExprKind::Int(y)) if a.ty.is_scalar() && b.ty.is_scalar() => {
            let bools = a.ty == Type::Bool && b.ty == Type::Bool;
            let unsigned = is_unsigned(a) && (is_unsigned(b) || is_flexible(b)) || is_unsigned(b) && is_flexible(a);
            // the sign of the left side is shifted in, whatever the sign of the count
            let unsigned = if op == BinOp::Shr { is_unsigned(a) } else { unsigned };
            let folded = integers(op, *x, *y, unsigned, span)?;
            Some(if bools && folded.ty != Type::Bool { boolean(constant(&folded) != Some(0), span) } else { folded })
        }
        _ => None,
    }
}

fn is_unsigned(e: &Expr) -> bool {
    e.ty.as_int().is_some_and(|i| !i.signed)
}

fn integers(op: BinOp, x: u64, y: u64, unsigned: bool, span: Span) -> Option<Expr> {
    let (i, j) = (x as i64, y as i64);
    let compare = |s: std::cmp::Ordering, u: std::cmp::Ordering| if unsigned { u } else { s };
    let order = compare(i.cmp(&j), x.cmp(&y));
    let number = |signed_result: Option<i64>, unsigned_result: Option<u64>| {
        if unsigned {
            unsigned_result.map(|n| Expr { kind: ExprKind::Int(n), ty: Type::U64, span })
        } else {
            signed_result.map(|n| typed(n, Type::I64, span))
        }
    };
    // Left operand and count of a shift: the count is taken modulo the width, as the CPU does.
    let count = (y & 63) as u32;
    match op {
        BinOp::Add => number(i.checked_add(j), x.checked_add(y)),
        BinOp::Sub => Some(typed(i.wrapping_sub(j), Type::I64, span)),
        BinOp::Mul => number(i.checked_mul(j), x.checked_mul(y)),
        BinOp::Div => number((j != 0).then(|| i.wrapping_div(j)), x.checked_div(y)),
        BinOp::Mod => number((j != 0).then(|| i.wrapping_rem(j)), x.checked_rem(y)),
        BinOp::Shl => number(Some(i.wrapping_shl(count)), Some(x.wrapping_shl(count))),
        BinOp::Shr => number(Some(i.wrapping_shr(count)), Some(x.wrapping_shr(count))),
        BinOp::BitAnd => number(Some(i & j), Some(x & y)),
        BinOp::BitOr => number(Some(i | j), Some(x | y)),
        BinOp::BitXor => number(Some(i ^ j), Some(x ^ y)),
        BinOp::Lt => Some(boolean(order.is_lt(), span)),
        BinOp::Gt => Some(boolean(order.is_gt(), span)),
        BinOp::Le => Some(boolean(order.is_le(), span)),
        BinOp::Ge => Some(boolean(order.is_ge(), span)),
        BinOp::Eq => Some(boolean(order.is_eq(), span)),
        BinOp::Ne => Some(boolean(order.is_ne(), span)),
        BinOp::And => Some(boolean(x != 0 && y != 0, span)),
        BinOp::Or => Some(boolean(x != 0 || y != 0, span)),
    }
}

fn strings(op: BinOp, x: &[u8], y: &[u8], span: Span) -> Option<Expr> {
    let answer = |b| Some(boolean(b, span));
    match op {
        BinOp::Add => Some(string(&[x, y].concat(), span)),
        BinOp::Eq => answer(x == y),
        BinOp::Ne => answer(x != y),
        BinOp::Lt => answer(x < y),
        BinOp::Gt => answer(x > y),
        BinOp::Le => answer(x <= y),
        BinOp::Ge => answer(x >= y),
        BinOp::And => answer(!x.is_empty() && !y.is_empty()),
        BinOp::Or => answer(!x.is_empty() || !y.is_empty()),
        BinOp::Mul | BinOp::Div | BinOp::Mod | BinOp::Sub | BinOp::Shl | BinOp::Shr | BinOp::BitAnd | BinOp::BitXor | BinOp::BitOr => None,
    }
}

/// A positional parameter's text as an integer: decimal, `0x`, `0o`/leading 0, `0b`, sign, `_`, exponent, duration and C suffixes.
pub fn parse_int(text: &str) -> Option<Expr> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let n = parse_unsigned(digits)?;
    if !negative {
        return Some(literal(n, Span::default()));
    }
    let n = i128::from(n);
    i64::try_from(-n).ok().map(|n| signed(n, Span::default()))
}

fn parse_unsigned(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) || text.ends_with('_') {
        return None;
    }
    let clean = text.replace('_', "");
    let lower = clean.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(bin) = lower.strip_prefix("0b") {
        return u64::from_str_radix(bin, 2).ok();
    }
    let end = clean.find(|c: char| !c.is_ascii_digit()).unwrap_or(clean.len());
    let (digits, suffix) = clean.split_at(end);
    if let Some(exponent) = suffix.strip_prefix('e') {
        let mantissa: u64 = digits.parse().ok()?;
        return 10u64.checked_pow(exponent.parse().ok()?)?.checked_mul(mantissa);
    }
    let n = match digits.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok()?,
        Some(_) | None => digits.parse().ok()?,
    };
    n.checked_mul(crate::units::factor(suffix)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(op: BinOp, a: i64, b: i64) -> Option<(i64, Type)> {
        let s = Span::default();
        let e = binary(op, &signed(a, s), &signed(b, s), s).ok()??;
        Some((constant(&e)?, e.ty))
    }

    #[test]
    fn suffixes_mean_the_same_everywhere() {
        use crate::units::{DURATIONS, TYPES_OF_C};
        let suffixes = DURATIONS.iter().map(|(name, _)| *name).chain(TYPES_OF_C).chain([""]);
        for text in suffixes.flat_map(|suffix| [format!("7{suffix}"), format!("1_000{suffix}")]) {
            let of_parameter = parse_int(&text).and_then(|e| constant(&e)).map(|n| n as u64);
            assert_eq!(of_parameter, crate::settings::parse_int(&text).ok(), "{text}");
            assert_eq!(of_parameter, crate::literal::parse_int(&text).ok(), "{text}");
        }
    }

    #[test]
    fn integers_fold() {
        assert_eq!(fold(BinOp::Add, 100, 100), Some((200, Type::int(2))));
        assert_eq!(fold(BinOp::Sub, 1, 2), Some((-1, Type::int(1))));
        assert_eq!(fold(BinOp::Div, 7, 0), None);
        assert_eq!(fold(BinOp::Div, i64::MIN, -1), Some((i64::MIN, Type::I64)));
        assert_eq!(fold(BinOp::Mod, i64::MIN, -1), Some((0, Type::int(1))));
        assert_eq!(fold(BinOp::Lt, -1, 2), Some((1, Type::Bool)));
        assert_eq!(fold(BinOp::Shl, 1, 40), Some((1 << 40, Type::I64)));
        assert_eq!(fold(BinOp::Shl, 1, 63), Some((i64::MIN, Type::U64)));
        assert_eq!(fold(BinOp::Shr, -8, 1), Some((-4, Type::int(1))));
        assert_eq!(fold(BinOp::Mul, i64::MAX, 2), Some((-2, Type::U64)));
        assert_eq!(fold(BinOp::Sub, 5, 133), Some((-128, Type::int(1))));
    }

    #[test]
    fn literals_that_no_type_holds() {
        let (s, max) = (Span::default(), literal(u64::MAX, Span::default()));
        let gives = |op, a: &Expr, b: &Expr| binary(op, a, b, s).map(|e| e.as_ref().and_then(number));
        assert_eq!(gives(BinOp::Shr, &max, &signed(-1, s)), Err(Overflow));
        assert_eq!(gives(BinOp::Shl, &signed(1, s), &signed(64, s)), Err(Overflow));
        assert_eq!(gives(BinOp::Add, &max, &signed(1, s)), Err(Overflow));
        assert_eq!(gives(BinOp::Lt, &max, &signed(-1, s)), Err(Overflow));
        assert_eq!(gives(BinOp::Mul, &signed(5, s), &signed(i64::MIN, s)), Err(Overflow));
        assert_eq!(gives(BinOp::Shr, &max, &signed(1, s)), Ok(Some(i64::MAX.into())));
        assert_eq!(gives(BinOp::Sub, &signed(0, s), &max), Err(Overflow));
    }

    #[test]
    fn parameters_parse() {
        let n = |t| parse_int(t).and_then(|e| constant(&e));
        assert_eq!(n("0x10"), Some(16));
        assert_eq!(n("-5"), Some(-5));
        assert_eq!(n("010"), Some(8));
        assert_eq!(n("1_000"), Some(1000));
        assert_eq!(n("5ms"), Some(5_000_000));
        assert_eq!(n("1e6"), Some(1_000_000));
        assert_eq!(n("0"), Some(0));
        assert_eq!(n("abc"), None);
        assert_eq!(n(""), None);
        assert_eq!(n("12x"), None);
    }
}
