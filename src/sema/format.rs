//! Checks format strings against their arguments.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use super::args::CheckedArgs;
use super::body::BodyChecker;
use super::expr::widen;
use super::fold;
use super::hir::{CallArg, Expr, ExprKind};
use crate::builtins::Builtin;
use crate::diag::{Diagnostic, Span, plural};
use crate::render::format;
use crate::syntax::ast::{self, BinOp};
use crate::types::Type;

impl BodyChecker<'_> {
    /// Checks the arguments after the format at position `at` against it.
    pub fn check_format(&mut self, row: &'static Builtin, index: usize, given: &CheckedArgs, span: Span) {
        let (Some(fact), Some(CallArg::Value(literal))) = (given.facts.get(index), given.args.get(index)) else { return };
        let Some(text) = fold::text(literal) else { return };
        let pieces = match format::parse(text) {
            Ok(pieces) => pieces,
            Err(e) => return self.error("format", fact.span, e.message),
        };
        if let Some(lone) = format::invalid_conversion(text) {
            let message = format!("`{lone}` is not a conversion: the percent sign is printed as is");
            self.report(Diagnostic::warning("format", fact.span, message).help("write `%%` for a percent sign"));
        }
        let wanted = format::specs(&pieces).count();
        let have = given.facts.len() - index - 1;
        if wanted != have {
            let (conversions, arguments) = (plural(wanted, "conversion", "conversions"), plural(have, "argument", "arguments"));
            let message = format!("the format of {} has {conversions}, {arguments} given", row.name);
            let place = if have > wanted { given.facts.get(index + 1 + wanted).map_or(span, |f| f.span) } else { fact.span };
            return self.error("format", place, message);
        }
        for (spec, arg) in format::specs(&pieces).zip(given.facts.iter().skip(index + 1)) {
            if arg.ty != Type::Void && !spec.accepts(&arg.ty) {
                let message = format!("`{}` prints {}, but this is {}", spec.source, spec.expects(), arg.ty);
                let d = Diagnostic::error("format", arg.span, message);
                self.report(d.help("`%s` prints any value"));
            }
        }
    }

    /// If a conversion prints decimals, the two numbers of a quotient are sent, because the kernel computes with integers
    /// only.
    pub fn fractions(&mut self, index: usize, given: &mut CheckedArgs, args: &[ast::Arg]) {
        let Some(CallArg::Value(literal)) = given.args.get(index) else { return };
        let Some(Ok(pieces)) = fold::text(literal).map(format::parse) else { return };
        for ((spec, arg), written) in format::specs(&pieces).zip(given.args.iter_mut().skip(index + 1)).zip(args.iter().skip(index + 1)) {
            if let (true, CallArg::Value(e)) = (spec.takes_fractions(), &mut *arg)
                && let Some(pair) = self.fraction(e, written)
            {
                *e = pair;
            }
        }
    }

    fn fraction(&mut self, e: &Expr, written: &ast::Arg) -> Option<Expr> {
        let of = |parts: Vec<Expr>| {
            let ty = Type::Tuple(parts.iter().map(|p| p.ty.clone()).collect());
            Expr { kind: ExprKind::Tuple(parts), ty, span: e.span }
        };
        match (&e.kind, written) {
            (ExprKind::Binary(BinOp::Div, a, b), _) => Some(of(vec![widen(a.as_ref().clone()), widen(b.as_ref().clone())])),
            // The quotient of constants is already computed, but not its decimals.
            (ExprKind::Int(_), ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Binary(BinOp::Div, a, b), .. })) => {
                let (a, b) = (self.value(a), self.value(b));
                let number = |e: &Expr| fold::constant(e).map(|n| fold::signed(n, e.span));
                Some(of(vec![number(&a)?, number(&b)?]))
            }
            (ExprKind::ReadAgg(map, key), _) => {
                let Type::Agg(agg) = self.maps.by_id(*map)?.value.ty.clone() else { return None };
                let quotient = self.env.tables.is_quotient(&agg.function);
                let ty = Type::Tuple(vec![e.ty.clone(), Type::U64]);
                quotient.then(|| Expr { kind: ExprKind::ReadAgg(*map, key.clone()), ty, span: e.span })
            }
            _ => None,
        }
    }
}
