//! The declared size of a map, which must be constant before the script is checked.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use super::CheckContext;
use super::fold;
use super::hir::Expr;
use crate::diag::Span;
use crate::syntax::ast::{self, UnOp};
use crate::system::{CMacro, machine::constants};
use crate::types::Type;

/// Limit on names that refer to names. A circular definition is reported where it is used.
const MAX_DEPTH: u32 = 32;

/// The value of `e`, if it consists of numbers, parameters, constants of C, macros without parameters and operators.
pub fn number(e: &ast::Expr, check_cx: &CheckContext) -> Option<u64> {
    let found = value(e, check_cx, 0)?;
    fold::constant(&found).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
}

fn value(e: &ast::Expr, check_cx: &CheckContext, depth: u32) -> Option<Expr> {
    if depth > MAX_DEPTH {
        return None;
    }
    let inner = |e| value(e, check_cx, depth + 1);
    match &e.kind {
        ast::ExprKind::Int(n) => Some(fold::literal(*n, e.span)),
        ast::ExprKind::Param(n) => {
            let text = (*n as usize).checked_sub(1).and_then(|i| check_cx.invocation.params.get(i))?;
            fold::parse_int(text)
        }
        ast::ExprKind::ParamCount => Some(fold::literal(check_cx.invocation.params.len() as u64, e.span)),
        ast::ExprKind::Ident(name) => find_definition(name, check_cx, depth),
        ast::ExprKind::Call { name, args } if args.is_empty() => find_definition(&name.name, check_cx, depth),
        ast::ExprKind::Comptime(e) => inner(e),
        ast::ExprKind::Unary(op, e) => {
            let n = fold::constant(&inner(e)?)?;
            Some(match op {
                UnOp::Neg => fold::signed(n.checked_neg()?, Span::default()),
                UnOp::BitNot => fold::signed(!n, Span::default()),
                UnOp::Not => fold::boolean(n == 0, Span::default()),
                UnOp::Deref | UnOp::AddrOf => return None,
            })
        }
        ast::ExprKind::Binary(op, a, b) => fold::binary(*op, &inner(a)?, &inner(b)?, e.span).ok().flatten(),
        ast::ExprKind::Ternary { cond, then, otherwise } => {
            let cond = inner(cond)?;
            match (fold::constant(&cond)?, then) {
                (0, _) => inner(otherwise),
                (_, Some(then)) => inner(then),
                (_, None) => Some(cond),
            }
        }
        ast::ExprKind::Block(block) => fold_block(block, check_cx, depth),
        _ => None,
    }
}

fn fold_block(block: &ast::Block, check_cx: &CheckContext, depth: u32) -> Option<Expr> {
    match (&block.stmts[..], &block.value) {
        ([], Some(e)) => value(e, check_cx, depth + 1),
        _ => None,
    }
}

/// The script's own definition takes precedence over those of headers and the kernel.
fn find_definition(name: &str, check_cx: &CheckContext, depth: u32) -> Option<Expr> {
    let own = check_cx.macros.iter().chain(&check_cx.defines).find(|m| m.name.name == name && m.params.is_empty());
    if let Some(own) = own {
        return fold_block(&own.body, check_cx, depth);
    }
    if let Some((_, n)) = check_cx.sys.enumerator(name) {
        return Some(fold::signed(n, Span::default()));
    }
    let Some(of_header) = check_cx.sys.c_macro(name) else {
        return constants::find_on(check_cx.sys.arch(), name).map(|c| fold::signed(c.value, Span::default()));
    };
    match of_header {
        CMacro::Int(n, int) => Some(fold::typed(n, Type::Int(int), Span::default())),
        CMacro::Name(other) => find_definition(&other, check_cx, (depth < MAX_DEPTH).then_some(depth + 1)?),
        CMacro::Text(_) | CMacro::Function | CMacro::Other(_) => None,
    }
}
