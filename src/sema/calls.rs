//! Builtins. A bare name and a call are the same thing.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::cell::RefCell;

use super::args::CheckedArgs;
use super::body::{BodyChecker, error_expr};
use super::fold;
use super::hir::{Call, CallArg, CastOrigin, Expr, ExprKind};
use super::types::enum_value;
use crate::builtins::{self, Builtin, CallInfo, Codegen, FoldFn, Lit, MapAction, REMOVED, Returns};
use crate::diag::{Diagnostic, Span};
use crate::probes::{ArgRef, ContextFeatures};
use crate::settings::Unstable;
use crate::syntax::ast;
use crate::system::{CMacro, machine::constants};
use crate::types::Type;

impl BodyChecker<'_> {
    /// A bare word: a builtin without arguments, or an enum's variant.
    pub fn name(&mut self, name: &str, span: Span) -> Expr {
        if let Some(arg) = self.substitute(name) {
            return match &*arg {
                ast::Arg::Expr(e) => {
                    let mut value = self.in_caller(|b| b.expr(e));
                    self.substituted(&mut value, span);
                    value
                }
                ast::Arg::Type(_) => self.fail("no-value", span, format!("`{name}` is a type here")),
            };
        }
        // the script's own macros take precedence over the library's
        if let Some(f) = self.own_function(name) {
            return self.call_function(f, &[], span);
        }
        if let Some(f) = self.foreign_function(name) {
            return self.call_foreign(f, &[], span);
        }
        if self.is_macro(name, &[]) {
            return self.macro_value(name, &[], span);
        }
        if let Some(row) = (self.env.tables.row)(name) {
            return self.call_row(row, &[], span);
        }
        let place = self.site.attach.file_location();
        let mut enumerators = place.map_or_else(Vec::new, |at| self.env.sys.enumerators_in_binary(at.path, at.offset, name));
        if enumerators.len() > 1 {
            let values: Vec<String> = enumerators.iter().map(|(_, value)| value.to_string()).collect();
            let message = format!("`{name}` has several values in this binary: {}", values.join(", "));
            return self.poisoned(Diagnostic::error("ambiguous-constant", span, message));
        }
        if let Some((e, value)) = enumerators.pop().or_else(|| self.env.sys.enumerator(name)) {
            return fold::typed(value, enum_value(Type::Enum(e)), span);
        }
        if let Some(value) = self.env.sys.c_macro(name).filter(|m| *m != CMacro::Function && *m != CMacro::Name(name.into())) {
            return self.c_constant(name, value, span);
        }
        if let Some(known) = constants::find_on(self.env.sys.arch(), name) {
            return if known.value < 0 { fold::signed(known.value, span) } else { fold::literal(known.value as u64, span) };
        }
        let d = Diagnostic::error("unknown-name", span, format!("`{name}` is unknown"));
        let rows = (self.env.tables.rows)();
        let capitals = name.chars().all(|c| !c.is_ascii_lowercase());
        let constants = constants::of(self.env.sys.arch()).map(|c| c.name).filter(|_| capitals);
        let d = match instead_of(name) {
            Some(instead) => d.help(instead),
            None => self.explain_types(d.suggest(name, rows.iter().map(|r| r.name).chain(constants))),
        };
        let d = self.explain_headers(name, d);
        self.report(d);
        error_expr(span)
    }

    /// `f(a, b)`
    pub fn call(&mut self, name: &str, name_span: Span, args: &[ast::Arg], span: Span) -> Expr {
        if let Some(f) = self.own_function(name) {
            return self.call_function(f, args, span);
        }
        if let Some(f) = self.foreign_function(name) {
            return self.call_foreign(f, args, span);
        }
        if self.is_macro(name, args) {
            return self.macro_value(name, args, span);
        }
        if let Some(row) = (self.env.tables.row)(name) {
            return self.call_row(row, args, span);
        }
        let d = Diagnostic::error("unknown-function", name_span, format!("there is no function `{name}`"));
        let rows = (self.env.tables.rows)();
        let d = match instead_of(name) {
            Some(instead) => d.help(instead),
            None => d.suggest(name, rows.iter().map(|r| r.name)),
        };
        let of_header = self.env.sys.c_macro(name) == Some(CMacro::Function);
        let help = "a macro with parameters works only if the script defines it as an expression";
        let d = if of_header { Diagnostic { help: Some(help.into()), ..d } } else { self.explain_headers(name, d) };
        self.report(d);
        for arg in args {
            if let ast::Arg::Expr(e) = arg {
                // Faults in the arguments are reported too; a bare map may have been meant as a whole.
                if !matches!(e.kind, ast::ExprKind::Map { .. }) {
                    self.expr(e);
                }
            }
        }
        error_expr(span)
    }

    /// The value of a C macro that is not an expression of the language.
    fn c_constant(&mut self, name: &str, value: CMacro, span: Span) -> Expr {
        match value {
            // A literal as if written here: the other operand determines its sign.
            CMacro::Int(n, int) if n >= 0 || !int.signed => fold::literal(n as u64, span),
            CMacro::Int(n, _) => fold::signed(n, span),
            CMacro::Text(text) => self.string(&text, span),
            CMacro::Name(other) if other != name => {
                let e = ast::Expr { kind: ast::ExprKind::Ident(other), span };
                self.expr(&e)
            }
            CMacro::Name(_) | CMacro::Function => self.fail("recursion", span, format!("macro `{name}` uses itself")),
            CMacro::Other(text) => {
                let d = Diagnostic::error("c-preprocessor", span, format!("`{name}` is not usable here: `{text}`"));
                self.report(d.help("write the value, or `#define` it in the script as an expression"));
                error_expr(span)
            }
        }
    }

    /// Adds the headers that may be at fault for an unknown name.
    pub fn explain_headers(&self, name: &str, d: Diagnostic) -> Diagnostic {
        match self.env.sys.why_unknown(name).filter(|_| d.help.is_none()) {
            Some(why) => Diagnostic { help: Some(why), ..d },
            None => d,
        }
    }

    fn call_row(&mut self, row: &'static Builtin, args: &[ast::Arg], span: Span) -> Expr {
        if let Codegen::Aggregate(_) = row.codegen {
            let d = Diagnostic::error("misplaced-aggregation", span, format!("`{}` can only be assigned to a map", row.name));
            self.report(d.help(format!("`@x = {}(…)`", row.name)));
            return error_expr(span);
        }
        if !self.may_call(row, span) {
            return error_expr(span);
        }
        let Some(given) = self.arguments(row, args, span) else { return error_expr(span) };
        let Some((ty, consts)) = self.returned(row, &given, span) else { return error_expr(span) };
        if let (1.., Some(MapAction::Shown), Some(CallArg::Map(_))) = (self.loops, builtins::map_action(row), given.args.first()) {
            let d = Diagnostic::warning("late-print", span, format!("{} prints the map as it is after the loop", row.name));
            self.report(d.help("print the current element instead, whose value is captured by the call"));
        }
        if let Codegen::Known(f, _) = &row.codegen
            && let Some((Some(lit), _)) = self.with_facts(row, &given, span, |facts| Ok(f(facts)))
        {
            return literal(lit, ty, span);
        }
        match &row.codegen {
            Codegen::Fold(f) => self.folded(row, &given, ty, span, *f),
            Codegen::Either(f, _) if self.comptime > 0 => self.folded(row, &given, ty, span, *f),
            Codegen::Context(which) => self.context_value(row, which, ty, span),
            Codegen::Event(_) if self.site.attach.pinned() && !self.check_in_kernel(row, &given, span) => error_expr(span),
            Codegen::Event(_) | Codegen::Code(_) | Codegen::Effect(_) | Codegen::Either(..) | Codegen::Known(..) => {
                let call = Call { row, args: given.args, ty: ty.clone(), consts, span };
                Expr { kind: ExprKind::Call(call), ty, span }
            }
            Codegen::Aggregate(_) | Codegen::Source(_) => error_expr(span),
        }
    }

    /// The constant result of a row.
    fn folded(&mut self, row: &'static Builtin, given: &CheckedArgs, ty: Type, span: Span, f: FoldFn) -> Expr {
        let lit = self.with_facts(row, given, span, f).map(|(lit, _)| lit);
        lit.map_or_else(|| error_expr(span), |lit| literal(lit, ty, span))
    }

    /// Can a program that outlives the run perform it?
    fn check_in_kernel(&mut self, row: &'static Builtin, given: &CheckedArgs, span: Span) -> bool {
        let fault = match builtins::in_kernel(row) {
            None => {
                Some((format!("`{}` cannot be used in a pinned iterator, which outlives rbt", row.name), "it can printf() and use maps"))
            }
            // the kernel's output is not available in the functions that loops become
            Some(_) if self.loops > 0 => {
                Some((format!("`{}` cannot be used within a loop of a pinned iterator", row.name), "print before the loop or after it"))
            }
            Some(how) => return self.with_facts(row, given, span, how.check).is_some(),
        };
        if let Some((message, help)) = fault {
            self.report(Diagnostic::error("unsupported-in-probe", span, message).help(help));
        }
        false
    }

    /// May it be called in this probe, in this place, in this run?
    pub fn may_call(&mut self, row: &'static Builtin, span: Span) -> bool {
        if !self.context.features.contains(row.needs) {
            let can = self.env.tables.kinds_offering(row.needs);
            let kind = self.site.kind.name();
            if self.site.kind.offers().contains(row.needs) {
                let d = Diagnostic::error(
                    "unsupported-in-probe",
                    span,
                    format!("`{}` cannot be used in {} on this kernel", row.name, self.site.name),
                );
                let d = self.called_from(d);
                self.report(d.help(format!("other {kind} probes or a newer kernel support it")));
                return false;
            }
            let d = Diagnostic::error("unsupported-in-probe", span, format!("`{}` cannot be used in {kind} probes", row.name));
            let d = self.called_from(d);
            self.report(if can.is_empty() { d } else { d.help(format!("it can be used in {}", can.join(", "))) });
            return false;
        }
        if row.risky && !self.env.settings.allow_unsafe {
            let d = Diagnostic::error("unsafe", span, format!("`{}` can change the system it observes", row.name));
            self.report(d.help("allow it with --unsafe"));
            return false;
        }
        if !self.require_stable(row.name, span) {
            return false;
        }
        let from_context = matches!(row.codegen, Codegen::Context(_));
        let stops = builtins::ends_probe(row);
        if self.fors > 0 && (from_context || stops) {
            let d = Diagnostic::error("in-loop", span, format!("`{}` cannot be used within a `for` loop", row.name));
            let help = if stops { "set a variable there, and return after the loop" } else { "assign it to a variable before the loop" };
            self.report(d.help(help));
            return false;
        }
        true
    }

    /// Reports the use of an unstable feature, and whether the settings allow it.
    pub fn require_stable(&mut self, feature: &str, span: Span) -> bool {
        let setting = format!("unstable_{feature}");
        let message = format!("`{feature}` is unstable and may change");
        match self.env.settings.unstable(feature) {
            Some(Unstable::Error) => {
                let d = Diagnostic::error("unstable", span, format!("{message}, and is not allowed"));
                self.report(d.help(format!("allow it with `config = {{ {setting} = enable }}`")));
                false
            }
            Some(Unstable::Warn) => {
                let d = Diagnostic::warning("unstable", span, message);
                self.report(d.help(format!("to silence this warning: `config = {{ {setting} = enable }}`")));
                true
            }
            Some(Unstable::Enable) | None => true,
        }
    }

    fn context_value(&mut self, row: &'static Builtin, which: &ArgRef, ty: Type, span: Span) -> Expr {
        let ty = match which {
            ArgRef::Index(n) if *n >= self.context.args => {
                let have = self.context.args;
                let d = Diagnostic::error("bad-arg", span, format!("{} has no `{}`", self.site.name, row.name));
                self.report(d.help(match have {
                    0 => "it has no numbered arguments".to_string(),
                    1 => "it has arg0 only".to_string(),
                    n => format!("it has arg0 to arg{}", n - 1),
                }));
                return error_expr(span);
            }
            ArgRef::Index(n) => match self.context.arg_types.get(*n as usize) {
                Some(Some(ty)) => ty.clone(),
                Some(None) => {
                    self.unreadable(row.name, span);
                    return error_expr(span);
                }
                None => ty,
            },
            ArgRef::Retval => self.context.retval.clone().map_or(ty, |ty| self.context_type(&ty)),
            ArgRef::All(_) => Type::Args,
            ArgRef::Ctx | ArgRef::Func | ArgRef::Named(_) => ty,
        };
        Expr { kind: ExprKind::Context(which.clone()), ty, span }
    }

    /// The type of a call's result; nothing after an error or if the type of an argument is unknown.
    fn returned(&mut self, row: &'static Builtin, given: &CheckedArgs, span: Span) -> Option<(Type, Vec<i64>)> {
        match &row.returns {
            Returns::Always(ty) => Some((ty.clone(), Vec::new())),
            Returns::By(f) => self.with_facts(row, given, span, f),
        }
    }

    /// Calls a function of the row about a call; its answer comes with constants for the row's code. The answer is
    /// ignored while an argument's type is unknown.
    pub fn with_facts<T>(
        &mut self,
        row: &'static Builtin,
        given: &CheckedArgs,
        span: Span,
        ask: impl FnOnce(&CallInfo) -> Result<T, Diagnostic>,
    ) -> Option<(T, Vec<i64>)> {
        if given.unknown {
            return None;
        }
        let env = self.env;
        let facts = CallInfo {
            name: row.name,
            span,
            args: &given.facts,
            settings: env.settings,
            invocation: env.invocation,
            sys: env.sys,
            site: self.site,
            notes: RefCell::default(),
        };
        let answer = ask(&facts);
        let notes = facts.notes.into_inner();
        self.options.extend(notes.options);
        for warning in notes.warnings {
            self.report(warning);
        }
        match answer {
            Ok(answer) => Some((answer, notes.consts)),
            Err(d) => {
                self.report(d);
                None
            }
        }
    }

    /// The aggregation that an assigned expression calls, if it is one, with its arguments.
    pub fn aggregation<'e>(&self, value: &'e ast::Expr) -> Option<(&'static Builtin, &'e [ast::Arg])> {
        let (name, args): (&str, &[ast::Arg]) = match &value.kind {
            ast::ExprKind::Call { name, args } => (&name.name, args),
            ast::ExprKind::Ident(name) => (name, &[]),
            _ => return None,
        };
        if self.is_macro(name, args) || self.own_function(name).is_some() || self.substitute(name).is_some() {
            return None;
        }
        (self.env.tables.row)(name).filter(|row| matches!(row.codegen, Codegen::Aggregate(_))).map(|row| (row, args))
    }

    /// The call of an aggregation, and the value type of its map.
    pub fn aggregate_call(&mut self, row: &'static Builtin, args: &[ast::Arg], span: Span) -> Option<(Call, Type)> {
        let Codegen::Aggregate(aggregate) = &row.codegen else { return None };
        if !self.may_call(row, span) {
            return None;
        }
        let given = self.arguments(row, args, span)?;
        let (agg, consts) = self.with_facts(row, &given, span, aggregate.layout)?;
        let call = Call { row, args: given.args, ty: Type::Void, consts, span };
        Some((call, Type::Agg(std::sync::Arc::new(agg))))
    }
}

/// A constant result of a row, of the type that the row returns.
fn literal(lit: Lit, ty: Type, span: Span) -> Expr {
    match lit {
        Lit::Str(bytes) if matches!(ty, Type::Record(_)) => fold::from_bytes(&bytes, &ty, span),
        // an address of the kernel: a variable can hold it, unlike a literal of that size
        Lit::Int(n) if ty == Type::U64 && n < 0 => {
            Expr { kind: ExprKind::Cast(Box::new(fold::typed(n, ty.clone(), span)), CastOrigin::Implicit), ty, span }
        }
        Lit::Int(n) if ty.is_scalar() => fold::typed(n, ty, span),
        Lit::Int(n) => fold::signed(n, span),
        Lit::Str(s) => {
            let e = fold::string(&s, span);
            let ty = if ty.size() > e.ty.size() { ty } else { e.ty };
            Expr { kind: e.kind, ty, span }
        }
        Lit::Word(w) => fold::string(w.as_bytes(), span),
    }
}

/// The replacement of a removed name.
fn instead_of(name: &str) -> Option<&'static str> {
    REMOVED.iter().find(|(pattern, _)| crate::probes::matches(pattern, name)).map(|(_, instead)| *instead)
}

impl super::Tables {
    /// Names of the probe kinds that offer these.
    fn kinds_offering(&self, features: ContextFeatures) -> Vec<&'static str> {
        (self.kinds)().iter().filter(|k| k.offers().contains(features)).map(|k| k.name()).collect()
    }

    /// Can the value of this aggregation be read as an integer?
    pub fn can_read(&self, function: &str) -> bool {
        (self.row)(function).is_some_and(|row| matches!(row.codegen, Codegen::Aggregate(a) if a.kernel_read.is_some()))
    }

    /// Is the result of this aggregation a quotient of two numbers that are available?
    pub fn is_quotient(&self, function: &str) -> bool {
        (self.row)(function).is_some_and(|row| match row.codegen {
            Codegen::Aggregate(a) => a.kernel_read.is_some_and(|r| r.quotient.is_some()),
            _ => false,
        })
    }
}
