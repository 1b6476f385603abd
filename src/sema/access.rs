//! Access to memory and parts of values: fields, elements, pointers.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::collections::BTreeSet;
use std::rc::Rc;

use super::body::{BodyChecker, error_expr};
use super::convert::{cast, tuple_element};
use super::fold;
use super::hir::{Expr, ExprKind};
use super::types::in_space;
use crate::builtins::memory::shown_member;
use crate::diag::{Diagnostic, Span, plural};
use crate::probes::{ArgRef, Attach, ContextField, FieldLocation};
use crate::syntax::ast::{self, BinOp};
use crate::system::binary::string_layouts;
use crate::system::{Function, NoLocation};
use crate::types::{Field, Space, Type};

impl BodyChecker<'_> {
    /// `base.name`, through any number of pointers.
    pub fn field(&mut self, base: &ast::Expr, name: &ast::Ident, span: Span) -> Expr {
        let name = &self.member_name(name);
        let base = self.value(base);
        self.member_of(base, name, span)
    }

    fn member_of(&mut self, mut base: Expr, name: &ast::Ident, span: Span) -> Expr {
        while matches!(base.ty, Type::Ptr(..)) {
            base = self.deref_value(base, span);
        }
        let space = self.space_of(&base);
        match &base.ty {
            Type::Void => error_expr(span),
            Type::Args => self.args_field(name, span),
            Type::Struct(_) if self.object(&base, &name.name).is_some() => self.args_field(name, span),
            Type::Struct(s) => match self.env.sys.member(s, &name.name) {
                Some(field) => member(base, field, space, span),
                None if shown_member(&s.name, &name.name).is_some() => {
                    let path = shown_member(&s.name, &name.name).unwrap_or_default();
                    path.iter().fold(base, |e, part| self.member_of(e, &ast::Ident { name: (*part).to_string(), span: name.span }, span))
                }
                None => {
                    let names: Vec<String> =
                        self.env.sys.expand(s).map(|r| r.fields.into_iter().map(|f| f.name).collect()).unwrap_or_default();
                    if s.size == 0 && names.is_empty() && self.site.attach.binary().is_some() {
                        let d = Diagnostic::error("unknown-field", name.span, format!("the fields of {} are unknown", base.ty));
                        self.report(d.help(string_layouts::ONLY_DECLARED));
                        return error_expr(name.span);
                    }
                    self.no_field(&base.ty.to_string(), name, &names)
                }
            },
            Type::Record(r) => match r.fields.iter().find(|f| f.name == name.name) {
                Some(field) => {
                    let at = r.fields.iter().position(|f| f.name == name.name);
                    if let Some(known) = at.and_then(|i| fold::part(&base, i)) {
                        return Expr { span, ..known };
                    }
                    let field = field.clone();
                    member(base, field, space, span)
                }
                None => {
                    let names: Vec<String> = r.fields.iter().map(|f| f.name.clone()).collect();
                    self.no_field(&base.ty.to_string(), name, &names)
                }
            },
            ty => {
                let d = Diagnostic::error("type-mismatch", name.span, format!("{ty} has no fields"));
                let d = if matches!(ty, Type::Int(_)) { d.help("cast it to a pointer: `((struct name *)x).field`") } else { d };
                // the type may be a plain number only because the kernel's types are unknown
                let d = self.explain_types(d);
                self.report(d);
                error_expr(span)
            }
        }
    }

    /// Is `base` the context, and is this a member that the probe kind loads itself?
    fn object(&self, base: &Expr, name: &str) -> Option<&Rc<ContextField>> {
        let ExprKind::Deref(pointer, _) = &base.kind else { return None };
        let ExprKind::Context(ArgRef::Ctx) = pointer.kind else { return None };
        self.context.fields.iter().find(|f| f.location == FieldLocation::Object && f.field.name == name)
    }

    fn no_field(&mut self, owner: &str, name: &ast::Ident, names: &[String]) -> Expr {
        let d = Diagnostic::error("unknown-field", name.span, format!("{owner} has no field `{}`", name.name));
        self.report(d.suggest(&name.name, names.iter().map(String::as_str)));
        error_expr(name.span)
    }

    /// Reports that an argument exists, but cannot be read.
    pub fn unreadable(&mut self, name: &str, span: Span) {
        let d = Diagnostic::error("bad-arg", span, format!("{}'s `{name}` cannot be read", self.site.name));
        self.report(d.help("it is a floating-point number, or its location is not supported"));
    }

    /// Reports why a function's argument cannot be read.
    fn no_location(&mut self, name: &ast::Ident, why: NoLocation) {
        let message = format!("{}'s `{}` cannot be read: {why}", self.site.name, name.name);
        self.report(Diagnostic::error("bad-arg", name.span, message).help(why.help()));
    }

    fn args_field(&mut self, name: &ast::Ident, span: Span) -> Expr {
        let context = self.context;
        match context.fields.iter().find(|f| f.field.name == name.name) {
            Some(field) => {
                if let FieldLocation::Unreadable(why) = field.location {
                    self.no_location(name, why);
                    return error_expr(span);
                }
                let ty = self.context_type(&field.field.ty);
                Expr { kind: ExprKind::Context(ArgRef::Named(field.clone())), ty, span }
            }
            None => {
                if let Some(d) = self.argument_of_namesakes(name) {
                    self.report(d);
                    return error_expr(span);
                }
                let names: Vec<String> = context.fields.iter().map(|f| f.field.name.clone()).collect();
                let site = format!("{}'s args", self.site.name);
                self.no_field(&site, name, &names)
            }
        }
    }

    /// The error for an argument that only other functions with the same name have, such as static functions of other files. It
    /// names these by their addresses.
    fn argument_of_namesakes(&self, name: &ast::Ident) -> Option<Diagnostic> {
        let Attach::Uprobe { path, offset, function, .. } = &self.site.attach else { return None };
        let binary = self.env.sys.binary(path).ok()?;
        let has = |f: &Function| {
            let arguments = self.env.sys.arguments(path, f).ok().flatten().unwrap_or_default();
            arguments.iter().any(|a| a.name == name.name)
        };
        let mut places: Vec<u64> = binary.functions_named(function).filter(|f| f.offset != *offset && has(f)).map(|f| f.addr).collect();
        places.sort_unstable();
        places.dedup();
        let count = binary.functions_named(function).map(|f| f.offset).collect::<BTreeSet<_>>().len();
        let message = format!("not all of the {count} functions named `{function}` have an argument `{}`", name.name);
        let points = places.iter().map(|addr| format!("`{}:{}:{addr:#x}`", self.site.kind.name(), path.display()));
        let help = match places.as_slice() {
            [_] => format!("probe the one that has it by its address: {}", points.collect::<String>()),
            _ => format!("probe those that have it by their addresses, such as {}", points.take(3).collect::<Vec<_>>().join(" and ")),
        };
        (!places.is_empty()).then(|| Diagnostic::error("unknown-field", name.span, message).help(help))
    }

    /// `base.0`
    pub fn tuple_index(&mut self, base: &ast::Expr, index: u32, span: Span) -> Expr {
        let base = self.value(base);
        self.element(base, index as usize, span)
    }

    fn element(&mut self, base: Expr, index: usize, span: Span) -> Expr {
        match &base.ty {
            Type::Void => error_expr(span),
            Type::Tuple(elems) if index < elems.len() => {
                if let Some(known) = fold::part(&base, index) {
                    return Expr { span, ..known };
                }
                let elems = elems.clone();
                Expr { span, ..tuple_element(base, &elems, index) }
            }
            Type::Tuple(elems) => {
                let message = format!("{} has {}, numbered from 0", base.ty, plural(elems.len(), "element", "elements"));
                self.fail("out-of-bounds", span, message)
            }
            Type::Int(_) if fold::is_literal(&base) => {
                let d = Diagnostic::error("type-mismatch", span, "decimals are not allowed here");
                self.report(d.help("use a smaller unit (1500ms); printf prints quotients with decimals: `%.1f`"));
                error_expr(span)
            }
            ty => {
                let message = format!("{ty} is not a tuple");
                self.fail("type-mismatch", span, message)
            }
        }
    }

    /// `base[index]` on an array, a string, a pointer or a tuple.
    pub fn index(&mut self, base: &ast::Expr, index: &ast::Expr, span: Span) -> Expr {
        let (base, index) = (self.value(base), self.value(index));
        let constant = fold::constant(&index);
        if let (Some(text), Some(i)) = (fold::text(&base), constant) {
            let byte = usize::try_from(i).ok().and_then(|i| if i == text.len() { Some(0) } else { text.get(i).copied() });
            return match byte {
                Some(b) => fold::signed(i64::from(b as i8), span),
                None => self.fail("out-of-bounds", index.span, format!("the string has {}", plural(text.len(), "byte", "bytes"))),
            };
        }
        if index.ty == Type::Void || base.ty == Type::Void {
            return error_expr(span);
        }
        if !matches!(index.ty, Type::Int(_) | Type::Enum(_) | Type::Bool) {
            let message = format!("an index must be an integer, but this is {}", index.ty);
            return self.fail("type-mismatch", index.span, message);
        }
        let space = self.space_of(&base);
        let (elem, length) = match &base.ty {
            Type::Array(elem, n) => (in_space((**elem).clone(), space), *n),
            Type::Str(n) => (Type::int(1), *n),
            Type::Ptr(..) => {
                let moved = self.offset_pointer(BinOp::Add, base, index, span);
                return self.deref_value(moved, span);
            }
            Type::Tuple(_) => {
                return match constant.and_then(|i| usize::try_from(i).ok()) {
                    Some(i) => self.element(base, i, span),
                    None => self.fail("not-constant", index.span, "a tuple's index must be a constant"),
                };
            }
            ty => {
                let message = format!("{ty} has no elements");
                return self.fail("type-mismatch", base.span, message);
            }
        };
        // An array declared without length (a flexible member) has no bound to check.
        if let Some(i) = constant.filter(|i| *i < 0 || (length > 0 && *i >= i64::from(length))) {
            return self.fail("out-of-bounds", index.span, format!("{} has no element {i}", base.ty));
        }
        Expr { kind: ExprKind::Index(Box::new(base), Box::new(index)), ty: elem, span }
    }

    /// `*e`
    pub fn deref(&mut self, e: &ast::Expr, span: Span) -> Expr {
        let e = self.value(e);
        match &e.ty {
            // An address without a type: eight bytes.
            Type::Int(_) => {
                let space = self.default_space();
                let pointer = cast(e, &Type::U64.ptr(space));
                self.deref_value(pointer, span)
            }
            _ => self.deref_value(e, span),
        }
    }

    /// The target of a pointer.
    pub fn deref_value(&mut self, e: Expr, span: Span) -> Expr {
        let (to, space) = match &e.ty {
            Type::Ptr(to, space) => ((**to).clone(), *space),
            Type::Void => return error_expr(span),
            Type::Array(elem, _) => {
                let elem = (**elem).clone();
                let first = fold::literal(0, span);
                return Expr { kind: ExprKind::Index(Box::new(e), Box::new(first)), ty: elem, span };
            }
            ty => {
                let message = format!("{ty} is not a pointer");
                return self.fail("type-mismatch", e.span, message);
            }
        };
        if to == Type::Void {
            let message = "a void pointer cannot be dereferenced";
            self.report(Diagnostic::error("type-mismatch", e.span, message).help("cast it to a pointer of the right type first"));
            return error_expr(span);
        }
        let space = if space == Space::Unknown { self.default_space() } else { space };
        let ty = in_space(to, space);
        Expr { kind: ExprKind::Deref(Box::new(e), space), ty, span }
    }

    /// `p + n`, `p - n` in units of the pointer's target type.
    pub fn offset_pointer(&mut self, op: BinOp, pointer: Expr, offset: Expr, span: Span) -> Expr {
        let size = match &pointer.ty {
            Type::Ptr(to, _) => i64::from(to.size().max(1)),
            _ => 1,
        };
        let ty = pointer.ty.clone();
        let scaled = match fold::constant(&offset) {
            Some(n) => fold::typed(n.wrapping_mul(size), Type::I64, offset.span),
            None => {
                let at = offset.span;
                let offset = cast(offset, &Type::I64);
                if size == 1 {
                    offset
                } else {
                    let size = fold::typed(size, Type::I64, at);
                    Expr { kind: ExprKind::Binary(BinOp::Mul, Box::new(offset), Box::new(size)), ty: Type::I64, span: at }
                }
            }
        };
        Expr { kind: ExprKind::Binary(op, Box::new(pointer), Box::new(scaled)), ty, span }
    }

    /// Is it a memory location behind an address, rather than a value?
    pub fn is_place(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Deref(..) => true,
            ExprKind::Field(base, field) => field.bits.is_none() && self.is_place(base),
            ExprKind::Index(base, _) => self.is_place(base),
            _ => false,
        }
    }

    /// The address space of a place.
    pub fn space_of(&self, e: &Expr) -> Space {
        match &e.kind {
            ExprKind::Deref(_, space) => *space,
            ExprKind::Field(base, _) | ExprKind::Index(base, _) | ExprKind::Cast(base, _) => self.space_of(base),
            ExprKind::Var(_) | ExprKind::Map(..) => Space::Unknown,
            ExprKind::Context(_) => self.context.space.unwrap_or(Space::Unknown),
            _ => Space::Unknown,
        }
    }

    /// The address of a place, a variable or a map's element.
    pub fn address_of(&mut self, e: Expr, span: Span) -> Expr {
        let space = match &e.kind {
            ExprKind::Var(_) | ExprKind::Map(..) => Space::Bpf,
            _ if self.is_place(&e) => self.space_of(&e),
            _ => {
                if e.ty == Type::Void {
                    return error_expr(span);
                }
                return self.fail("no-address", span, "only variables, maps and memory locations have an address");
            }
        };
        if let ExprKind::Deref(pointer, _) = e.kind {
            return Expr { span, ..*pointer };
        }
        let ty = e.ty.clone().ptr(space);
        if !self.check_nesting(&ty, span) {
            return error_expr(span);
        }
        Expr { kind: ExprKind::AddrOf(Box::new(e)), ty, span }
    }

    /// `offsetof(T, a.b)`
    pub fn offsetof(&mut self, arg: &ast::Arg, path: &[ast::Ident], span: Span) -> Expr {
        let Some(mut ty) = self.type_of_arg(arg) else { return error_expr(span) };
        let mut offset = 0u32;
        for name in path {
            let name = &self.member_name(name);
            let (found, names) = match &ty {
                Type::Struct(s) => {
                    let found = self.env.sys.member(s, &name.name);
                    let all = if found.is_none() { self.env.sys.expand(s) } else { None };
                    (found, all.map(|r| r.fields.into_iter().map(|f| f.name).collect()).unwrap_or_default())
                }
                Type::Record(r) => {
                    (r.fields.iter().find(|f| f.name == name.name).cloned(), r.fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>())
                }
                _ => (None, Vec::new()),
            };
            let Some(field) = found else { return self.no_field(&ty.to_string(), name, &names) };
            offset = offset.saturating_add(field.offset);
            ty = field.ty;
        }
        fold::unsigned(offset, span)
    }
}

impl BodyChecker<'_> {
    /// A member's name, which may be a macro's parameter.
    fn member_name(&self, name: &ast::Ident) -> ast::Ident {
        match self.substitute(&name.name).as_deref() {
            Some(ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Ident(other), .. })) => {
                ast::Ident { name: other.clone(), span: name.span }
            }
            _ => name.clone(),
        }
    }
}

fn member(base: Expr, field: Field, space: Space, span: Span) -> Expr {
    let ty = in_space(field.ty.clone(), space);
    Expr { kind: ExprKind::Field(Box::new(base), Rc::new(field)), ty, span }
}
