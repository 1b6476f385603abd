//! Macros: the checker checks each use as if the body were in its place, with a separate frame of names.
//!
//! Variables and maps are passed by reference, and expressions by name: the checker checks them in the frame of the use, each
//! time the body names them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::CheckContext;
use super::body::{BodyChecker, error_expr};
use super::hir::{self, Expr, Stmt, VarId};
use crate::builtins::{Builtin, Codegen};
use crate::diag::{Diagnostic, Span};
use crate::syntax::ast::{self, MacroParam};

/// The visible names: those of the probe, or those of a macro in use.
#[derive(Default)]
pub struct Expansion {
    /// Variables, innermost scope last.
    pub scopes: Vec<BTreeMap<String, VarId>>,
    /// The script's maps by the names that parameters give them.
    maps: BTreeMap<String, String>,
    /// The expressions that parameters stand for.
    args: BTreeMap<String, Rc<ast::Arg>>,
    /// The macro being expanded, and the place of its use; none for the probe itself.
    pub usage: Option<(String, Span)>,
    /// The name in its definition.
    definition: Option<ast::Ident>,
    /// For a builtin's macro: its place in the script, which replaces all places in its body.
    pub library: Option<Span>,
    /// The frame of its use.
    caller: Option<Box<Expansion>>,
    /// The number of the expansion of the script's macro: see [`Span::expansion`].
    expansion: u16,
}

/// The use of a macro takes as much of the stack as this many expressions within each other.
const LEVELS: usize = 3;

impl Expansion {
    /// The frame of a probe.
    pub fn for_probe() -> Self {
        Self { scopes: vec![BTreeMap::new()], ..Self::default() }
    }

    fn uses(&self, of: &ast::Macro) -> bool {
        self.definition.as_ref() == Some(&of.name) || self.caller.as_ref().is_some_and(|c| c.uses(of))
    }

    /// The macro whose use led here, and the place of that use.
    pub fn outermost(&self) -> Option<&(String, Span)> {
        self.caller.as_ref().and_then(|c| c.outermost()).or(self.usage.as_ref())
    }

    /// The number of the innermost expansion of a macro of the script.
    fn expansion(&self) -> u16 {
        let frames = std::iter::successors(Some(self), |frame| frame.caller.as_deref());
        frames.map(|frame| frame.expansion).find(|number| *number != 0).unwrap_or(0)
    }

    /// The script's macros that are in use, from the innermost.
    pub fn own_usages(&self) -> impl Iterator<Item = &(String, Span)> {
        let frames = std::iter::successors(Some(self), |frame| frame.caller.as_deref());
        frames.filter(|frame| frame.library.is_none()).filter_map(|frame| frame.usage.as_ref())
    }
}

impl BodyChecker<'_> {
    /// Does this name refer to a macro? It refers to a row of the same name if the script's own macro does not fit.
    pub fn is_macro(&self, name: &str, args: &[ast::Arg]) -> bool {
        match (self.env.tables.row)(name) {
            Some(Builtin { codegen: Codegen::Source(_), .. }) => {
                self.own_function(name).is_none() || self.own_macros(name).any(|m| fits(&m.params, args))
            }
            Some(_) => self.own_macros(name).any(|m| fits(&m.params, args)),
            None => self.own_macros(name).next().is_some(),
        }
    }

    /// The script's own function of this name; a builtin's macro does not see it.
    pub fn own_function(&self, name: &str) -> Option<usize> {
        self.env.function(name).filter(|_| self.frame.library.is_none())
    }

    /// The script's macros with this name, which a builtin's macro does not see. As in C, the name of a `#define` has another
    /// meaning within its own expansion.
    fn own_macros<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b ast::Macro> {
        let visible = self.frame.library.is_none();
        let of_c = is_c_macro(self.env, name);
        let found = script_definition(self.env, name).iter().copied().filter(move |m| visible && m.name.name == name);
        found.filter(move |m| !(of_c && self.frame.uses(m)))
    }

    /// A place in a builtin's macro is replaced by that of its use.
    pub fn use_site(&self, span: Span) -> Span {
        self.frame.library.filter(|_| span.source == ast::LIBRARY).unwrap_or(span)
    }

    /// The script's name of a map.
    pub fn map_name(&self, name: &str) -> String {
        self.frame.maps.get(name).cloned().unwrap_or_else(|| name.to_string())
    }

    /// The expression for a bare word, if the word is a parameter of the current macro.
    pub fn substitute(&self, name: &str) -> Option<Rc<ast::Arg>> {
        self.frame.args.get(name).cloned()
    }

    /// Runs `f` in the frame in which the current macro was used.
    pub fn in_caller<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let Some(caller) = self.frame.caller.take() else { return f(self) };
        let callee = std::mem::replace(&mut self.frame, *caller);
        let result = f(self);
        let caller = std::mem::replace(&mut self.frame, callee);
        self.frame.caller = Some(Box::new(caller));
        result
    }

    /// Assigns the argument of a macro to the place in the macro's body at which a parameter stands for it.
    pub fn substituted(&self, argument: &mut Expr, parameter: Span) {
        if self.frame.library.is_none() {
            argument.expanded(parameter, self.env.macro_use(Span { expansion: self.frame.expansion, ..parameter }));
        }
    }

    /// A macro's value.
    pub fn macro_value(&mut self, name: &str, args: &[ast::Arg], span: Span) -> Expr {
        let found = self.in_macro(name, args, span, |b, body| (b.block_value(body, span), b.frame.expansion));
        let Some((mut value, expansion)) = found else { return error_expr(span) };
        value.expanded(span, expansion);
        value
    }

    /// A macro used as a statement.
    pub fn macro_effect(&mut self, name: &str, args: &[ast::Arg], span: Span, out: &mut Vec<Stmt>) {
        if let Some((mut stmts, expansion)) = self.in_macro(name, args, span, |b, body| (b.block(body), b.frame.expansion)) {
            hir::expanded(&mut stmts, span, expansion);
            out.append(&mut stmts);
        }
    }

    fn in_macro<T>(&mut self, name: &str, args: &[ast::Arg], span: Span, f: impl FnOnce(&mut Self, &ast::Block) -> T) -> Option<T> {
        if !self.enter(LEVELS, span) {
            return None;
        }
        let expanded = self.expanded(name, args, span, f);
        self.leave(LEVELS);
        expanded
    }

    fn expanded<T>(&mut self, name: &str, args: &[ast::Arg], span: Span, f: impl FnOnce(&mut Self, &ast::Block) -> T) -> Option<T> {
        let env = self.env;
        let row = (env.tables.row)(name).filter(|r| matches!(r.codegen, Codegen::Source(_)));
        let Some(found) = fitting(env, self.frame.library.is_none(), name, args) else {
            let own: Vec<String> = self.own_macros(name).map(form).collect();
            if let Some(row) = row.filter(|_| own.is_empty())
                && !self.arity(row, args.len(), span)
            {
                return None;
            }
            let d = Diagnostic::error("arity", span, format!("no macro `{name}` takes these arguments"));
            let library = env.library.iter().filter(|m| m.name.name == name).map(form);
            let forms: Vec<String> = own.into_iter().chain(library).collect();
            self.report(d.help(format!("there is {}", forms.join(" and "))));
            return None;
        };
        if self.frame.uses(found) {
            self.error("recursion", span, format!("macro `{name}` uses itself"));
            return None;
        }
        let library = (found.name.span.source == ast::LIBRARY).then_some(span);
        if let (Some(_), Some(row)) = (library, row)
            && !self.may_call(row, span)
        {
            return None;
        }
        let expansion = match library {
            None => env.macro_use(Span { expansion: self.frame.expansion(), ..span }),
            Some(_) => 0,
        };
        let mut frame = Expansion {
            scopes: vec![BTreeMap::new()],
            usage: Some((name.to_string(), span)),
            expansion,
            library,
            definition: Some(found.name.clone()),
            ..Expansion::default()
        };
        if self.frame.library.is_none() && is_c_macro(env, name) {
            // C's macros are text: they see the names around their use.
            (frame.scopes, frame.maps) = (self.frame.scopes.clone(), self.frame.maps.clone());
        }
        for (param, arg) in found.params.iter().zip(args) {
            match (param, arg) {
                (MacroParam::Var(p), ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Var(v), span })) => {
                    let Some(id) = self.find_var(v) else {
                        self.var(v, *span);
                        return None;
                    };
                    frame.scopes.iter_mut().for_each(|scope| _ = scope.insert(p.name.clone(), id));
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

/// The best match among macros: the script's before those of builtins, and those with parameters by reference before those
/// with expressions.
fn fitting<'a>(env: &CheckContext<'a>, in_script: bool, name: &str, args: &[ast::Arg]) -> Option<&'a ast::Macro> {
    let by_reference = |m: &&ast::Macro| m.params.iter().filter(|p| !matches!(p, MacroParam::Expr(_))).count();
    let fit = |m: &&ast::Macro| m.name.name == name && fits(&m.params, args);
    let found = script_definition(env, name).iter().copied().filter(|m| in_script && fit(m)).max_by_key(by_reference);
    found.or_else(|| env.library.iter().filter(fit).max_by_key(by_reference))
}

/// The script's definition of a name: `#define` takes precedence over `macro`.
fn script_definition<'w, 'a>(env: &'w CheckContext<'a>, name: &str) -> &'w [&'a ast::Macro] {
    if is_c_macro(env, name) { &env.defines } else { &env.macros }
}

fn is_c_macro(env: &CheckContext, name: &str) -> bool {
    env.defines.iter().any(|m| m.name.name == name)
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

/// Two macros that no use could distinguish.
pub fn duplicates(macros: &[&ast::Macro], report: &mut Vec<Diagnostic>) {
    let kind = |p: &MacroParam| std::mem::discriminant(p);
    for (i, m) in macros.iter().enumerate() {
        let duplicate =
            macros.iter().take(i).find(|o| o.name.name == m.name.name && o.params.iter().map(kind).eq(m.params.iter().map(kind)));
        if let Some(duplicate) = duplicate {
            let d = Diagnostic::error("redeclared", m.name.span, format!("the macro {} exists already", form(duplicate)));
            report.push(d.related(duplicate.name.span, "here").help("rename one of them, or change the number or kind of its arguments"));
        }
    }
}
