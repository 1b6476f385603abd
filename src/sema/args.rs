//! Arguments of calls: the types that each parameter accepts, and the form in which it receives them.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use super::body::{BodyChecker, error_expr};
use super::convert::cast;
use super::expr::widen;
use super::fold;
use super::hir::{CallArg, Expr, ExprKind};
use crate::builtins::{Accepts, ArgInfo, Builtin, Codegen, Lit, MapArg, Param, options};
use crate::diag::{Diagnostic, Span, plural};
use crate::settings::{Argument, MAX_ARGUMENT_TEXT};
use crate::syntax::ast::{self, BinOp};
use crate::system::Feature;
use crate::system::binary::string_layouts;
use crate::types::{Space, Type};

/// Checked arguments.
pub struct CheckedArgs {
    /// For the program.
    pub args: Vec<CallArg>,
    /// For the row.
    pub facts: Vec<ArgInfo>,
    /// The type of an argument is unknown (so far), or an error was reported.
    pub unknown: bool,
}

impl BodyChecker<'_> {
    /// Checks a call's arguments against its row's parameters; none if their number is wrong.
    pub fn arguments(&mut self, row: &'static Builtin, args: &[ast::Arg], span: Span) -> Option<CheckedArgs> {
        if !self.arity(row, args.len(), span) {
            return None;
        }
        let mut given = CheckedArgs { args: Vec::new(), facts: Vec::new(), unknown: false };
        let mut map: Option<String> = None;
        for (i, arg) in args.iter().enumerate() {
            let Some(param) = row.params.get(i).or(row.params.last()) else { break };
            let key_follows = i + 1 < args.len() && row.params.get(i + 1).is_some_and(|p| p.accepts == Accepts::Key);
            let arg = self.argument(row, param, arg, key_follows, &mut map);
            let fact = self.fact(&arg, span);
            given.unknown |= match &arg {
                CallArg::Value(e) => e.ty == Type::Void,
                CallArg::Map(_) | CallArg::Element(..) => fact.ty == Type::Void,
                CallArg::Word(_) => false,
                CallArg::Type(ty) => *ty == Type::Void,
            };
            given.args.push(arg);
            given.facts.push(fact);
        }
        if let Some(at) = row.params.iter().position(|p| p.accepts == Accepts::Format) {
            self.check_format(row, at, &given, span);
            self.fractions(at, &mut given, args);
        }
        Some(given)
    }

    /// Does the number of arguments match?
    pub fn arity(&mut self, row: &'static Builtin, n: usize, span: Span) -> bool {
        let min = row.params.iter().filter(|p| !p.optional).count();
        let max = if row.params.last().is_some_and(|p| p.rest) { usize::MAX } else { row.params.len() };
        if (min..=max).contains(&n) {
            return true;
        }
        let wants = match (min, max) {
            (0, 0) => "no arguments".to_string(),
            (a, b) if a == b => count(a),
            (a, usize::MAX) => format!("at least {}", count(a)),
            (0, b) => format!("at most {}", count(b)),
            (a, b) => format!("{a} to {}", count(b)),
        };
        let d = Diagnostic::error("arity", span, format!("{} takes {wants}, {n} given", row.name));
        self.report(d.help(format!("write {}", signature(row))));
        false
    }

    fn argument(&mut self, row: &'static Builtin, param: &Param, arg: &ast::Arg, key_follows: bool, map: &mut Option<String>) -> CallArg {
        let e = match arg {
            ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Ident(name), span }) if self.substitute(name).is_some() => {
                // A macro's parameter: the argument at the macro's use.
                let Some(arg) = self.substitute(name) else { return CallArg::Type(Type::Void) };
                let mut arg = self.in_caller(|b| b.argument(row, param, &arg, key_follows, map));
                if let CallArg::Value(value) | CallArg::Element(_, value) = &mut arg {
                    self.substituted(value, *span);
                }
                return arg;
            }
            ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Typeof(inner), span }) => {
                let ty = self.type_of_arg(inner);
                return self.type_argument(row, param, ty, *span);
            }
            ast::Arg::Expr(e) => e,
            ast::Arg::Type(t) => {
                let ty = self.type_expr(t);
                return self.type_argument(row, param, ty, t.span);
            }
        };
        if let Some(arg) = self.by_reference(row, param, e, key_follows, map) {
            return arg;
        }
        match param.accepts {
            Accepts::Word(words) => self.word(row, param, words, e),
            Accepts::WordOrInt(words) => match &e.kind {
                ast::ExprKind::Ident(name) if words.contains(&name.as_str()) => CallArg::Word(name.clone()),
                ast::ExprKind::Ident(name) if (self.env.tables.row)(name).is_none() => self.word(row, param, words, e),
                _ => self.accept(row, param, Accepts::LitInt, e),
            },
            Accepts::Key => {
                let key = match &e.kind {
                    ast::ExprKind::Tuple(elems) if elems.len() > 1 => self.key_value(elems, e.span),
                    _ => self.key_value(std::slice::from_ref(e), e.span),
                };
                let key = match map {
                    Some(name) => self.use_key(name, Some(key), e.span).unwrap_or_else(|| error_expr(e.span)),
                    None => key,
                };
                CallArg::Value(key)
            }
            accepts => self.accept(row, param, accepts, e),
        }
    }

    fn type_argument(&mut self, row: &Builtin, param: &Param, ty: Option<Type>, span: Span) -> CallArg {
        if param.accepts != Accepts::Any && ty.is_some() {
            let message = format!("the argument `{1}` of {0} must be a value, but this is a type", row.name, param.name);
            self.error("type-mismatch", span, message);
            return CallArg::Type(Type::Void);
        }
        CallArg::Type(ty.unwrap_or(Type::Void))
    }

    /// A map or its element, if the parameter takes one by reference; nothing if it takes a value.
    fn by_reference(
        &mut self,
        row: &'static Builtin,
        param: &Param,
        e: &ast::Expr,
        key_follows: bool,
        map: &mut Option<String>,
    ) -> Option<CallArg> {
        let wants = match param.accepts {
            Accepts::Map => "a map",
            Accepts::KeyedMap => "a map with keys",
            Accepts::Element => "a map's element",
            Accepts::MapOrValue => "",
            _ => return None,
        };
        let ast::ExprKind::Map { name, key } = &e.kind else {
            if wants.is_empty() {
                return None;
            }
            let d = Diagnostic::error("type-mismatch", e.span, format!("{} takes {wants} as its `{}`", row.name, param.name));
            self.report(d.help(format!("write {}", signature(row))));
            return Some(CallArg::Value(error_expr(e.span)));
        };
        let name = &self.map_name(name);
        *map = Some(name.clone());
        let Some(key) = key else { return Some(self.whole_map(row, param, name, e.span, key_follows)) };
        if matches!(param.accepts, Accepts::Map | Accepts::KeyedMap) {
            let d = Diagnostic::error("type-mismatch", e.span, format!("{} takes a whole map as its `{}`", row.name, param.name));
            self.report(d.help(format!("remove the key: `@{name}`")));
            return Some(CallArg::Value(error_expr(e.span)));
        }
        if param.accepts == Accepts::MapOrValue && !self.only_user_space_reads(name) {
            return None;
        }
        let key = self.key_value(key, e.span);
        let key = self.use_key(name, Some(key), e.span).unwrap_or_else(|| error_expr(e.span));
        let id = self.use_map(name, e.span);
        Some(CallArg::Element(id, key))
    }

    /// Is an element of this map printed with the value that it has when user space reads it, rather than at the call?
    fn only_user_space_reads(&self, name: &str) -> bool {
        match self.maps.value(name).ty {
            Type::Agg(agg) => !self.env.tables.can_read(&agg.function) || !self.env.sys.has(Feature::PercpuLookup),
            _ => false,
        }
    }

    fn whole_map(&mut self, row: &'static Builtin, param: &Param, name: &str, span: Span, key_follows: bool) -> CallArg {
        let id = self.use_map(name, span);
        let found = self.maps.get(name).cloned();
        let (keyed, scalar) = found.map_or((None, None), |f| (f.keyed, f.scalar));
        if let (Accepts::KeyedMap, None, Some(place)) = (param.accepts, keyed, scalar) {
            let d = Diagnostic::error("map-key-conflict", span, format!("{} takes a map with keys, but `@{name}` has none", row.name));
            self.report(d.related(place, "used without a key here"));
        }
        if param.accepts == Accepts::Element && !key_follows {
            match keyed {
                Some(place) => {
                    let d =
                        Diagnostic::error("map-key-conflict", span, format!("{} takes one element of `@{name}`: add its key", row.name));
                    self.report(d.related(place, "used with a key here").help("to remove all elements, use `clear`"));
                }
                None => {
                    self.use_key(name, None, span);
                }
            }
        }
        CallArg::Map(id)
    }

    fn word(&mut self, row: &'static Builtin, param: &Param, words: &'static [&'static str], e: &ast::Expr) -> CallArg {
        match &e.kind {
            ast::ExprKind::Ident(name) if words.contains(&name.as_str()) => CallArg::Word(name.clone()),
            ast::ExprKind::Ident(name) => {
                let message = format!("`{name}` is not a {} of {}, which takes {}", param.name, row.name, words.join(", "));
                self.report(Diagnostic::error("invalid-keyword", e.span, message).suggest(name, words.iter().copied()));
                CallArg::Value(error_expr(e.span))
            }
            _ => {
                let message = format!("{} takes one of {} as its `{}`", row.name, words.join(", "), param.name);
                CallArg::Value(self.fail("invalid-keyword", e.span, message))
            }
        }
    }

    fn accept(&mut self, row: &'static Builtin, param: &Param, accepts: Accepts, e: &ast::Expr) -> CallArg {
        let text = matches!(accepts, Accepts::Str | Accepts::LitStr | Accepts::StrOrAddr | Accepts::TextOrAddr | Accepts::Format);
        if let Some(value) = text.then(|| self.late_bound_text(e)).flatten() {
            return self.accept_value(row, param, accepts, value, e.span);
        }
        let value = match (text.then(|| self.param_as_text(e)).flatten(), &e.kind) {
            (Some(s), _) if accepts == Accepts::Format => fold::string(&s, e.span),
            (Some(s), _) => self.string(&s, e.span),
            // A format may have any length: it is never a value.
            (None, ast::ExprKind::Str(s)) if accepts == Accepts::Format => fold::string(s, e.span),
            (None, _) => self.value(e),
        };
        self.accept_value(row, param, accepts, value, e.span)
    }

    /// `$1` as text, if the code does not contain it.
    fn late_bound_text(&mut self, e: &ast::Expr) -> Option<Expr> {
        let ast::ExprKind::Param(n) = e.kind else { return None };
        self.late_bound(&Argument::Text(n), Type::Str(MAX_ARGUMENT_TEXT), e.span)
    }

    /// An argument that has been checked on its own.
    fn accept_value(&mut self, row: &'static Builtin, param: &Param, accepts: Accepts, value: Expr, span: Span) -> CallArg {
        if value.ty == Type::Void {
            return CallArg::Value(value);
        }
        let number = |ty: &Type| matches!(ty, Type::Int(_) | Type::Bool | Type::Enum(_));
        // user space knows it before the run
        let answered = matches!(row.codegen, Codegen::Event(_)) && number(&value.ty) && self.is_argument(&value);
        let (fine, wants) = match accepts {
            Accepts::Int => (number(&value.ty), "an integer"),
            Accepts::LitInt | Accepts::WordOrInt(_) => (answered || fold::constant(&value).is_some(), "a constant integer"),
            Accepts::Str => (matches!(value.ty, Type::Str(_)), "a string"),
            Accepts::LitStr | Accepts::Format => (fold::text(&value).is_some(), "a literal string"),
            Accepts::Literal => {
                (answered || fold::text(&value).is_some() || fold::constant(&value).is_some(), "a constant integer or a literal string")
            }
            // the row explains why it cannot read a string that is only declared
            Accepts::TextOrAddr
                if matches!(&value.ty, Type::Struct(of)
                    if string_layouts::is_only_declared(of) || string_layouts::string_layout(self.env.sys, of).is_some()) =>
            {
                (true, "")
            }
            Accepts::Addr | Accepts::StrOrAddr | Accepts::TextOrAddr => {
                (value.ty.is_scalar() || matches!(value.ty, Type::Str(_) | Type::Array(..) | Type::Buf(_)), "an address")
            }
            Accepts::Any
            | Accepts::Printable
            | Accepts::MapOrValue
            | Accepts::Map
            | Accepts::KeyedMap
            | Accepts::Element
            | Accepts::Key
            | Accepts::Word(_) => (true, ""),
        };
        if !fine {
            let message = format!("{} takes {wants} as its `{}`, but this is {}", row.name, param.name, value.ty);
            if let (Type::Struct(of), Accepts::Addr | Accepts::StrOrAddr | Accepts::TextOrAddr) = (&value.ty, accepts) {
                let help = format!("use a member of it; `rbt -lv 'struct {}'` lists them", of.name);
                self.report(Diagnostic::error("type-mismatch", span, message).help(help));
                return CallArg::Value(error_expr(span));
            }
            if let Accepts::LitInt | Accepts::WordOrInt(_) = accepts {
                let help = "write a number, or a parameter of the script, such as `$1`: the value must be known before the run";
                self.report(Diagnostic::error("type-mismatch", span, message).help(help));
                return CallArg::Value(error_expr(span));
            }
            return CallArg::Value(self.fail("type-mismatch", span, message));
        }
        let value = match accepts {
            Accepts::LitInt | Accepts::WordOrInt(_) | Accepts::Literal => match fold::constant(&value) {
                Some(n) => fold::signed(n, span),
                None => value,
            },
            Accepts::Addr => self.address(value),
            Accepts::Printable | Accepts::MapOrValue => {
                let value = self.by_value(value);
                widen(value)
            }
            _ => value,
        };
        CallArg::Value(value)
    }

    /// Is it an argument of the run that the code does not contain?
    fn is_argument(&self, e: &Expr) -> bool {
        matches!(&e.kind, ExprKind::Call(call) if options::argument(call.row, &call.consts, self.env.invocation).is_some())
    }

    /// A number or pointer as is; a string or array in memory as its address.
    fn address(&mut self, e: Expr) -> Expr {
        match &e.ty {
            Type::Str(_) | Type::Array(..) if self.is_place(&e) => {
                let span = e.span;
                self.address_of(e, span)
            }
            Type::Ptr(to, Space::Unknown) => {
                let ty = Type::Ptr(to.clone(), self.default_space());
                cast(e, &ty)
            }
            _ => e,
        }
    }

    /// Where text is expected, `$1` is always text, and `$1 + n` is the text after its first n bytes.
    fn param_as_text(&mut self, e: &ast::Expr) -> Option<Vec<u8>> {
        match &e.kind {
            ast::ExprKind::Param(n) => {
                if self.param_text(*n).is_none() {
                    self.warn("missing-parameter", e.span, format!("parameter ${n} is missing: it is empty"));
                }
                Some(self.param_text(*n).unwrap_or_default().into_bytes())
            }
            ast::ExprKind::Binary(BinOp::Add, base, skip) if matches!(base.kind, ast::ExprKind::Param(_)) => {
                let skip = self.value(skip);
                let skip = fold::constant(&skip).and_then(|n| usize::try_from(n).ok())?;
                let text = self.param_as_text(base)?;
                if skip >= text.len() {
                    self.warn("missing-parameter", e.span, "the parameter is not that long, so the result is empty");
                }
                Some(text.get(skip..).unwrap_or_default().to_vec())
            }
            _ => None,
        }
    }

    fn fact(&mut self, arg: &CallArg, call: Span) -> ArgInfo {
        match arg {
            CallArg::Value(e) => {
                let lit = match fold::text(e) {
                    Some(s) => Some(Lit::Str(s.to_vec())),
                    None => fold::constant(e).map(Lit::Int),
                };
                let ty = fold::word(e);
                let made_by = match &e.kind {
                    ExprKind::Call(call) => Some((call.row.name, call.word(0))),
                    _ => None,
                };
                ArgInfo { ty, span: e.span, lit, map: None, origin: made_by, has_verifier_type: is_handed(e) }
            }
            CallArg::Map(id) => self.map_fact(*id, call),
            CallArg::Element(id, key) => self.map_fact(*id, key.span),
            CallArg::Word(w) => {
                ArgInfo { ty: Type::Void, span: call, lit: Some(Lit::Word(w.clone())), map: None, origin: None, has_verifier_type: false }
            }
            CallArg::Type(ty) => ArgInfo { ty: ty.clone(), span: call, lit: None, map: None, origin: None, has_verifier_type: false },
        }
    }

    fn map_fact(&mut self, id: usize, span: Span) -> ArgInfo {
        let found = self.maps.by_id(id);
        let key = found.and_then(|f| f.keyed.map(|_| f.key.ty.clone()));
        let ty = found.map_or(Type::Void, |f| f.value.ty.clone());
        ArgInfo { ty, span, lit: None, map: Some(MapArg { id, key }), origin: None, has_verifier_type: false }
    }
}

/// See [`ArgInfo::has_verifier_type`].
fn is_handed(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Context(_) => true,
        ExprKind::Field(base, _) | ExprKind::Deref(base, _) => matches!(e.ty, Type::Struct(_)) && is_handed(base),
        ExprKind::AddrOf(of) => is_handed(of),
        _ => false,
    }
}

/// The form of its call: `str(address[, length])`.
fn signature(row: &Builtin) -> String {
    let mut text = format!("{}(", row.name);
    for (i, p) in row.params.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        let dots = if p.rest { ", …" } else { "" };
        text.push_str(&if p.optional { format!("[{comma}{}{dots}]", p.name) } else { format!("{comma}{}", p.name) });
    }
    text + ")"
}

fn count(n: usize) -> String {
    plural(n, "argument", "arguments")
}
