//! Macros: a use is checked as if the body stood there, in a frame of names of its own.
//!
//! Variables and maps are given by reference, expressions by name: they are checked in the frame of the use, each time
//! the body names them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::body::{Body, poison};
use super::hir::{Expr, Stmt, VarId};
use crate::diag::{Diagnostic, Span};
use crate::syntax::ast::{self, MacroParam};

/// Names that are visible: those of the probe, or those of a macro in use.
#[derive(Default)]
pub struct Frame {
    /// Variables, innermost scope last.
    pub scopes: Vec<Vec<(String, VarId)>>,
    /// The script's maps by the names that parameters give them.
    maps: BTreeMap<String, String>,
    /// What expression parameters stand for.
    args: BTreeMap<String, Rc<ast::Arg>>,
    /// The macro in use, and where it is used; none for the probe itself.
    pub usage: Option<(String, Span)>,
    /// Where that macro is defined.
    defined: Option<Span>,
    /// Where it is used from.
    caller: Option<Box<Frame>>,
}

impl Frame {
    /// A probe's.
    pub fn of_probe() -> Self {
        Self { scopes: vec![Vec::new()], ..Self::default() }
    }

    /// Is the macro defined there in use here?
    fn uses(&self, defined: Span) -> bool {
        self.defined == Some(defined) || self.caller.as_ref().is_some_and(|c| c.uses(defined))
    }
}

impl Body<'_> {
    /// Is this a macro?
    pub fn is_macro(&self, name: &str) -> bool {
        self.env.macros.iter().any(|m| m.name.name == name)
    }

    /// The script's name of a map.
    pub fn map_name(&self, name: &str) -> String {
        self.frame.maps.get(name).cloned().unwrap_or_else(|| name.to_string())
    }

    /// What a bare word stands for, when it is a parameter of the macro in use.
    pub fn substitute(&self, name: &str) -> Option<Rc<ast::Arg>> {
        self.frame.args.get(name).cloned()
    }

    /// Does something where the macro in use was used.
    pub fn in_caller<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let Some(caller) = self.frame.caller.take() else { return f(self) };
        let callee = std::mem::replace(&mut self.frame, *caller);
        let result = f(self);
        let caller = std::mem::replace(&mut self.frame, callee);
        self.frame.caller = Some(Box::new(caller));
        result
    }

    /// A macro's value.
    pub fn macro_value(&mut self, name: &str, args: &[ast::Arg], span: Span) -> Expr {
        self.in_macro(name, args, span, |b, body| b.block_value(body, span)).unwrap_or_else(|| poison(span))
    }

    /// A macro used as a statement.
    pub fn macro_effect(&mut self, name: &str, args: &[ast::Arg], span: Span, out: &mut Vec<Stmt>) {
        if let Some(mut stmts) = self.in_macro(name, args, span, |b, body| b.block(body)) {
            out.append(&mut stmts);
        }
    }

    fn in_macro<T>(&mut self, name: &str, args: &[ast::Arg], span: Span, f: impl FnOnce(&mut Self, &ast::Block) -> T) -> Option<T> {
        let env = self.env;
        let fitting = env.macros.iter().filter(|m| m.name.name == name && fits(&m.params, args));
        let Some(found) = fitting.max_by_key(|m| m.params.iter().filter(|p| !matches!(p, MacroParam::Expr(_))).count()) else {
            let forms: Vec<String> = env.macros.iter().filter(|m| m.name.name == name).map(|m| form(m)).collect();
            let d = Diagnostic::error("arity", span, format!("no macro `{name}` takes these arguments"));
            self.report(d.help(format!("there is {}", forms.join(" and "))));
            return None;
        };
        let defined = found.name.span;
        if self.frame.uses(defined) {
            self.error("recursion", span, format!("macro `{name}` uses itself"));
            return None;
        }
        let usage = Some((name.to_string(), span));
        let mut frame = Frame { scopes: vec![Vec::new()], usage, defined: Some(defined), ..Frame::default() };
        for (param, arg) in found.params.iter().zip(args) {
            match (param, arg) {
                (MacroParam::Var(p), ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Var(v), span })) => {
                    let Some(id) = self.find_var(v) else {
                        self.var(v, *span);
                        return None;
                    };
                    frame.scopes.iter_mut().for_each(|s| s.push((p.name.clone(), id)));
                }
                (MacroParam::Map(p), ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Map { name, .. }, .. })) => {
                    let name = self.map_name(name);
                    frame.maps.insert(p.name.clone(), name);
                }
                (MacroParam::Var(p) | MacroParam::Map(p) | MacroParam::Expr(p), arg) => {
                    frame.args.insert(p.name.clone(), Rc::new(arg.clone()));
                }
            }
        }
        let loops = std::mem::take(&mut self.loops);
        let caller = std::mem::take(&mut self.frame);
        frame.caller = Some(Box::new(caller));
        self.frame = frame;
        let result = f(self, &found.body);
        if let Some(caller) = self.frame.caller.take() {
            self.frame = *caller;
        }
        self.loops = loops;
        Some(result)
    }
}

fn fits(params: &[MacroParam], args: &[ast::Arg]) -> bool {
    let fit = |(p, a): (&MacroParam, &ast::Arg)| match (p, a) {
        (MacroParam::Expr(_), _) => true,
        (MacroParam::Var(_), ast::Arg::Expr(e)) => matches!(e.kind, ast::ExprKind::Var(_)),
        (MacroParam::Map(_), ast::Arg::Expr(e)) => matches!(e.kind, ast::ExprKind::Map { key: None, .. }),
        (MacroParam::Var(_) | MacroParam::Map(_), ast::Arg::Type(_)) => false,
    };
    params.len() == args.len() && params.iter().zip(args).all(fit)
}

/// `name($a, @b, c)`
fn form(m: &ast::Macro) -> String {
    let param = |p: &MacroParam| match p {
        MacroParam::Var(i) => format!("${}", i.name),
        MacroParam::Map(i) => format!("@{}", i.name),
        MacroParam::Expr(i) => i.name.clone(),
    };
    format!("`{}({})`", m.name.name, m.params.iter().map(param).collect::<Vec<_>>().join(", "))
}

/// Two macros that no use could tell apart.
pub fn duplicates(macros: &[&ast::Macro], report: &mut Vec<Diagnostic>) {
    let kind = |p: &MacroParam| std::mem::discriminant(p);
    for (i, m) in macros.iter().enumerate() {
        let twin = macros.iter().take(i).find(|o| o.name.name == m.name.name && o.params.iter().map(kind).eq(m.params.iter().map(kind)));
        if let Some(twin) = twin {
            let d = Diagnostic::error("redeclared", m.name.span, format!("there is a macro {} already", form(twin)));
            report.push(d.related(twin.name.span, "here"));
        }
    }
}
