//! The named options of a script, and their values on the command line.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use super::uses;
use crate::builtins::options::{ScriptOption, declared};
use crate::builtins::{ArgInfo, Lit};
use crate::diag::{Diagnostic, Span};
use crate::settings::Invocation;
use crate::syntax::ast::{self, Expr, ExprKind, UnOp};
use crate::types::Type;

/// The options of a script in order of their first declaration, as far as its text shows them. The script may have
/// errors.
pub fn options(script: &ast::Script) -> Vec<ScriptOption> {
    let mut found: Vec<ScriptOption> = Vec::new();
    let mut each = |e: &Expr| {
        let ExprKind::Call { name, args } = &e.kind else { return };
        let facts: Vec<ArgInfo> = args.iter().map(literal).collect();
        let Some(new) = declared(&name.name, &facts, e.span) else { return };
        match found.iter_mut().find(|o| o.name == new.name) {
            Some(old) => old.description = old.description.take().or(new.description),
            None => found.push(new),
        }
    };
    for item in &script.items {
        match item {
            ast::Item::Probe(p) => uses::expressions(p, &mut each),
            ast::Item::Macro(m) => uses::in_block(&m.body, &mut each),
            ast::Item::Function(f) => uses::in_block(&f.body, &mut each),
            ast::Item::MapDecl(_) => {}
        }
    }
    found
}

fn literal(arg: &ast::Arg) -> ArgInfo {
    let known =
        |ty: Type, lit: Lit| ArgInfo { ty, span: Span::default(), lit: Some(lit), map: None, origin: None, has_verifier_type: false };
    let ast::Arg::Expr(e) = arg else {
        return ArgInfo { ty: Type::Void, span: Span::default(), lit: None, map: None, origin: None, has_verifier_type: false };
    };
    match &e.kind {
        ExprKind::Str(s) => known(Type::Str(0), Lit::Str(s.clone())),
        ExprKind::Bool(b) => known(Type::Bool, Lit::Int((*b).into())),
        ExprKind::Int(n) => known(Type::I64, Lit::Int(*n as i64)),
        ExprKind::Unary(UnOp::Neg, inner) => match inner.kind {
            ExprKind::Int(n) => known(Type::I64, Lit::Int((n as i64).wrapping_neg())),
            _ => ArgInfo { ty: Type::Void, span: e.span, lit: None, map: None, origin: None, has_verifier_type: false },
        },
        _ => ArgInfo { ty: Type::Void, span: e.span, lit: None, map: None, origin: None, has_verifier_type: false },
    }
}

/// Checks all declarations together: declarations of the same option must agree, and each given option must be declared.
pub fn check_declarations(uses: &mut Vec<ScriptOption>, script: &ast::Script, invocation: &Invocation, diags: &mut Vec<Diagnostic>) {
    uses.sort_by_key(|o| (o.span.source, o.span.start));
    let mut known: Vec<ScriptOption> = Vec::new();
    for o in uses.drain(..) {
        let Some(first) = known.iter_mut().find(|k| k.name == o.name) else {
            known.push(o);
            continue;
        };
        let what = match (&first.description, &o.description) {
            _ if first.default != o.default => "default",
            (Some(a), Some(b)) if a != b => "description",
            (None, Some(new)) => {
                first.description = Some(new.clone());
                continue;
            }
            _ => continue,
        };
        let message = format!("the option --{} has a different {what} elsewhere", o.name);
        diags.push(Diagnostic::error("option-conflict", o.span, message).related(first.span, "there"));
    }
    for o in options(script) {
        if !known.iter().any(|k| k.name == o.name) {
            known.push(o);
        }
    }
    for (name, _) in &invocation.options {
        if known.iter().any(|k| k.name == *name) {
            continue;
        }
        let d = Diagnostic::error("unknown-option", Span::default(), format!("the script has no option `--{name}`"));
        let names: Vec<String> = known.iter().map(|k| format!("--{}", k.name)).collect();
        let d = d.suggest(&format!("--{name}"), names.iter().map(String::as_str));
        let all = if names.is_empty() { "it has none".to_string() } else { format!("it has {}", names.join(", ")) };
        let help = d.help.map_or(all.clone(), |h| format!("{h} ({all})"));
        diags.push(Diagnostic { help: Some(help), ..d });
    }
}
