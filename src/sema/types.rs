//! Types: how the uses of a name merge into one type, and the meaning of written types.
//!
//! # Integers
//!
//! - A literal is a number of unlimited size. Operators on literals calculate with such numbers (`fold::binary`). It is an
//!   error if the result does not fit in 64 bits, or exceeds `int64` while the other operand is negative. The type of a literal
//!   is the narrowest signed one that holds it, and `uint64` from 2^63 upward. The complement of a nonnegative literal is
//!   unsigned.
//! - The sign of a nonnegative literal is weak ([`WeakSign`]): it yields to the sign of the other operand, or of the variable, map
//!   or tuple part that holds it. A variable or map that holds nothing else is weak as well. Of two weak types the wider one
//!   applies.
//! - Uses of one name merge: types of the same sign merge to the wider one, and types of different signs to the signed type
//!   that holds both, at most `int64`.
//! - Arithmetic has 64 bits. It is signed if an operand is signed and not weak, if both are weak, and for `-`. Comparisons use
//!   the same type. Division is unsigned if an operand is `uint64`.
//! - `-x` and `~x` of an unsigned `x` have its width; the bits above are zero.
//! - `++` gives an undeclared variable or map 64 bits, which are signed unless another use is not. `--` makes it `int64`. A
//!   declared type stays and wraps around.
//! - A value of an enum has 64 bits, unless it is a member in memory. `++` makes a number of it.
//! - A cast to a pointer extends with zeros; other casts extend with the sign of the operand.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one variant; the others are rejected

use std::sync::Arc;

use super::body::{BodyChecker, error_expr};
use super::fold;
use super::hir::{Expr, ExprKind};
use crate::builtins::Codegen;
use crate::diag::{Diagnostic, Span};
use crate::syntax::ast;
use crate::system::{AmbiguousType, TypeName};
use crate::types::{Agg, Deferred, Enum, Field, Int, MAX_LENGTH, Record, Space, Type};

/// A type gathered from all uses of a variable, a map's value or a map's key.
#[derive(Clone, Debug, PartialEq)]
pub struct InferredType {
    /// [`Type::Void`] while it is unknown.
    pub ty: Type,
    /// The parts whose sign is weak.
    pub weak_sign: WeakSign,
    /// The use that decided the type first.
    pub span: Span,
}

/// Does the sign of a value yield to the other operand's? It does for nonnegative literals, and for variables that have held
/// nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeakSign {
    No,
    Yes,
    /// Of a variable or map that `++` has changed: it yields to other uses of the name, but not to another operand.
    Stepped,
    /// Of each part of a tuple or record.
    Parts(Vec<WeakSign>),
}

impl WeakSign {
    /// The weakness of one part.
    pub fn part(&self, i: usize) -> WeakSign {
        match self {
            WeakSign::Parts(parts) => parts.get(i).cloned().unwrap_or(WeakSign::No),
            WeakSign::No | WeakSign::Yes | WeakSign::Stepped => WeakSign::No,
        }
    }

    /// Of a value that is read from the variable or map.
    pub fn read(self) -> Self {
        if self == WeakSign::Stepped { WeakSign::No } else { self }
    }

    /// Of the target of `++` or `--`.
    pub fn from_step(up: bool) -> Self {
        if up { WeakSign::Stepped } else { WeakSign::No }
    }

    /// Does it yield to other uses of the same name?
    fn yields_to_uses(&self) -> bool {
        matches!(self, WeakSign::Yes | WeakSign::Stepped)
    }

    /// What is weak in both.
    pub fn and(self, other: WeakSign) -> WeakSign {
        match (self, other) {
            (WeakSign::Parts(a), WeakSign::Parts(b)) => WeakSign::Parts(a.into_iter().zip(b).map(|(a, b)| a.and(b)).collect()),
            (a, b) if a == b => a,
            (a, b) if a.yields_to_uses() && b.yields_to_uses() => WeakSign::Stepped,
            (WeakSign::No | WeakSign::Yes | WeakSign::Stepped | WeakSign::Parts(_), _) => WeakSign::No,
        }
    }
}

impl From<bool> for WeakSign {
    fn from(weak: bool) -> Self {
        if weak { WeakSign::Yes } else { WeakSign::No }
    }
}

/// The result of `sizeof`, and the alignment.
#[derive(Clone, Copy)]
pub struct Size {
    pub bytes: u32,
    align: u32,
}

impl Size {
    const WORD: Self = Self { bytes: 8, align: 8 };

    fn of(ty: &Type) -> Self {
        let align = if ty.is_scalar() {
            ty.size().max(1)
        } else if let Type::Str { .. } = ty {
            1
        } else {
            8
        };
        Self { bytes: ty.size(), align }
    }

    /// The size of a value; that of an enum is a word, also within a tuple or a record of the script.
    fn of_value(ty: &Type) -> Self {
        let part = |ty: &Type| match ty {
            Type::Enum(_) | Type::Tuple(_) | Type::Record(_) => Self::of_value(ty),
            _ => Self { bytes: ty.size(), align: ty.align() },
        };
        match ty {
            Type::Enum(_) => Self::WORD,
            Type::Tuple(parts) => Self::combine(parts.iter().map(part)),
            Type::Record(record) if record.name.is_empty() => Self::combine(record.fields.iter().map(|f| part(&f.ty))),
            _ => Self::of(ty),
        }
    }

    fn combine(parts: impl Iterator<Item = Self>) -> Self {
        let all = parts.fold(Self { bytes: 0, align: 1 }, |all, part| Self {
            bytes: all.bytes.next_multiple_of(part.align).saturating_add(part.bytes),
            align: all.align.max(part.align),
        });
        Self { bytes: all.bytes.next_multiple_of(all.align), ..all }
    }
}

impl Default for InferredType {
    fn default() -> Self {
        Self { ty: Type::Void, weak_sign: WeakSign::Yes, span: Span::default() }
    }
}

impl InferredType {
    /// Adds a use. One that does not fit is ignored: it is reported where its value is converted.
    pub fn add(&mut self, ty: &Type, weak: &WeakSign, span: Span) {
        if *ty == Type::Void {
            return;
        }
        if self.ty == Type::Void {
            *self = Self { ty: ty.clone(), weak_sign: weak.clone(), span };
            return;
        }
        if let Some((ty, weak)) = merge_weak(&self.ty, &self.weak_sign, ty, weak) {
            self.ty = ty;
            self.weak_sign = weak;
        }
    }
}

/// The type of a value of the script, which is a word where the type is an enum; in memory an enum has its own width.
pub fn enum_value(ty: Type) -> Type {
    match ty {
        Type::Enum(e) => Type::Enum(Arc::new(Enum { int: Int { bytes: 8, ..e.int }, ..(*e).clone() })),
        ty => ty,
    }
}

/// The type that holds values of both, and the parts of it whose sign is still weak.
pub fn merge_weak(a: &Type, a_weak: &WeakSign, b: &Type, b_weak: &WeakSign) -> Option<(Type, WeakSign)> {
    match (a, b) {
        (Type::Int(x), Type::Int(y)) => {
            let int = match (a_weak.yields_to_uses(), b_weak.yields_to_uses()) {
                (true, false) => yielding(*x, *y),
                (false, true) => yielding(*y, *x),
                (true, true) | (false, false) => merge_ints(*x, *y),
            };
            Some((Type::Int(int), a_weak.clone().and(b_weak.clone())))
        }
        // A null pointer.
        (Type::Int(_), Type::Ptr(..)) if *a_weak == WeakSign::Yes => Some((b.clone(), WeakSign::No)),
        (Type::Ptr(..), Type::Int(_)) if *b_weak == WeakSign::Yes => Some((a.clone(), WeakSign::No)),
        (Type::Tuple(x), Type::Tuple(y)) if x.len() == y.len() => {
            let parts = x.iter().zip(y).enumerate().map(|(i, (x, y))| merge_weak(x, &a_weak.part(i), y, &b_weak.part(i)));
            let (types, weak) = parts.collect::<Option<Vec<_>>>()?.into_iter().unzip();
            Some((Type::Tuple(types), WeakSign::Parts(weak)))
        }
        (Type::Record(x), Type::Record(y)) if x.name.is_empty() && y.name.is_empty() && x.fields.len() == y.fields.len() => {
            let merged = x.fields.iter().enumerate().map(|(i, f)| {
                let j = y.fields.iter().position(|g| g.name == f.name)?;
                let (ty, weak) = merge_weak(&f.ty, &a_weak.part(i), &y.fields.get(j)?.ty, &b_weak.part(j))?;
                Some(((f.name.clone(), ty), weak))
            });
            let (fields, weak) = merged.collect::<Option<Vec<_>>>()?.into_iter().unzip();
            Some((record_of(fields), WeakSign::Parts(weak)))
        }
        _ => Some((merge(a, b)?, WeakSign::No)),
    }
}

/// The merged type of a weak integer and another: the larger width, the other's sign.
fn yielding(weak: Int, other: Int) -> Int {
    Int { bytes: weak.bytes.max(other.bytes), signed: other.signed }
}

/// Are an array's elements pointers, or arrays of pointers? Their targets may be known on one side only.
pub fn has_pointer_elements(elem: &Type) -> bool {
    match elem {
        Type::Array(elem, _) => has_pointer_elements(elem),
        elem => matches!(elem, Type::Ptr(..)),
    }
}

/// The type that holds values of both, if one exists.
pub fn merge(a: &Type, b: &Type) -> Option<Type> {
    match (a, b) {
        (x, y) if x == y => Some(x.clone()),
        (Type::Void, x) | (x, Type::Void) => Some(x.clone()),
        (Type::Enum(x), Type::Enum(y)) if x.name == y.name && x.variants == y.variants => {
            let int = merge_ints(x.int, y.int);
            Some(Type::Enum(Arc::new(Enum { int, ..(**x).clone() })))
        }
        (Type::Int(_) | Type::Bool | Type::Enum(_), Type::Int(_) | Type::Bool | Type::Enum(_)) => {
            Some(Type::Int(merge_ints(a.as_int()?, b.as_int()?)))
        }
        (Type::Str(x), Type::Str(y)) => Some(Type::Str(*x.max(y))),
        (Type::Buf(x), Type::Buf(y)) => Some(Type::Buf(*x.max(y))),
        (Type::Ptr(x, s), Type::Ptr(y, t)) => {
            let space = if s == t || *t == Space::Unknown {
                *s
            } else if *s == Space::Unknown {
                *t
            } else {
                Space::Unknown
            };
            same_target(x, y).then(|| Type::Ptr(x.clone(), space))
        }
        (Type::Array(x, n), Type::Array(y, m)) if n == m && has_pointer_elements(x) => Some(Type::Array(Box::new(merge(x, y)?), *n)),
        (Type::Tuple(x), Type::Tuple(y)) if x.len() == y.len() => {
            x.iter().zip(y).map(|(x, y)| merge(x, y)).collect::<Option<_>>().map(Type::Tuple)
        }
        (Type::Record(x), Type::Record(y)) if x.name.is_empty() && y.name.is_empty() && x.fields.len() == y.fields.len() => {
            let merged = x.fields.iter().map(|f| Some((f.name.clone(), merge(&f.ty, &y.fields.iter().find(|g| g.name == f.name)?.ty)?)));
            merged.collect::<Option<_>>().map(record_of)
        }
        (Type::Agg(x), Type::Agg(y)) if x.function == y.function && x.params == y.params && x.size == y.size => {
            Some(Type::Agg(Arc::new(Agg { signed: x.signed || y.signed, ..(**x).clone() })))
        }
        _ => None,
    }
}

/// Maximum number of values that a tuple may consist of.
const MAX_VALUES: usize = 1024;

/// The number of values in a value of this type.
fn values_in(ty: &Type) -> usize {
    match ty {
        Type::Tuple(parts) => parts.iter().map(values_in).sum(),
        Type::Record(record) if record.name.is_empty() => record.fields.iter().map(|f| values_in(&f.ty)).sum(),
        Type::Array(of, _) => values_in(of),
        Type::Void
        | Type::Bool
        | Type::Int(_)
        | Type::Enum(_)
        | Type::Str(_)
        | Type::Buf(_)
        | Type::Ptr(..)
        | Type::Struct(_)
        | Type::Record(_)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => 1,
    }
}

/// Maximum number of levels of a type: of tuples, arrays and pointers in one another.
const MAX_LEVELS: usize = 100;

/// The number of levels of a type.
fn levels_of(ty: &Type) -> usize {
    match ty {
        Type::Tuple(parts) => 1 + parts.iter().map(levels_of).max().unwrap_or(0),
        Type::Record(record) if record.name.is_empty() => 1 + record.fields.iter().map(|f| levels_of(&f.ty)).max().unwrap_or(0),
        Type::Array(of, _) | Type::Ptr(of, _) => 1 + levels_of(of),
        Type::Void
        | Type::Bool
        | Type::Int(_)
        | Type::Enum(_)
        | Type::Str(_)
        | Type::Buf(_)
        | Type::Struct(_)
        | Type::Record(_)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => 1,
    }
}

/// A record made in the script: its fields in order, naturally aligned.
pub fn record_of(fields: Vec<(String, Type)>) -> Type {
    let (names, types): (Vec<String>, Vec<Type>) = fields.into_iter().unzip();
    let offsets = Type::tuple_offsets(&types);
    let size = Type::Tuple(types.clone()).size();
    let fields = names.into_iter().zip(types).zip(offsets);
    let fields = fields.map(|((name, ty), offset)| Field { name, offset, bits: None, ty }).collect();
    Type::Record(Arc::new(Record { name: String::new(), size, fields, variants: None }))
}

/// Pointers to these types are interchangeable.
pub fn same_target(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Ptr(x, _), Type::Ptr(y, _)) => same_target(x, y),
        (Type::Struct(x), Type::Struct(y)) => x.name == y.name && x.union == y.union && (!x.name.is_empty() || x.id == y.id),
        (x, y) => x == y,
    }
}

/// Same sign: the larger. Mixed: the signed type that holds both, at most 64 bits.
fn merge_ints(a: Int, b: Int) -> Int {
    if a.signed == b.signed {
        return Int { bytes: a.bytes.max(b.bytes), signed: a.signed };
    }
    let (s, u) = if a.signed { (a, b) } else { (b, a) };
    Int { bytes: s.bytes.max(u.bytes * 2).min(8), signed: true }
}

/// The same type with pointers of unknown address space in `space`. Pointers in user memory point to user memory: if the
/// kernel's types do not say so, they count as kernel pointers.
pub fn in_space(ty: Type, space: Space) -> Type {
    match ty {
        Type::Ptr(to, Space::Kernel) if space == Space::User => Type::Ptr(Box::new(in_space(*to, space)), space),
        Type::Ptr(to, Space::Unknown) => Type::Ptr(Box::new(in_space(*to, space)), space),
        Type::Array(elem, n) => Type::Array(Box::new(in_space(*elem, space)), n),
        other => other,
    }
}

/// An error that was reported, so that no other error follows from it.
struct Reported;

/// Names of types that do not depend on a kernel.
const PLAIN: &[(&str, Type)] = &[
    ("void", Type::Void),
    ("bool", Type::Bool),
    ("int8", Type::int(1)),
    ("int16", Type::int(2)),
    ("int32", Type::int(4)),
    ("int64", Type::int(8)),
    ("uint8", Type::uint(1)),
    ("uint16", Type::uint(2)),
    ("uint32", Type::uint(4)),
    ("uint64", Type::uint(8)),
    ("int8_t", Type::int(1)),
    ("int16_t", Type::int(2)),
    ("int32_t", Type::int(4)),
    ("int64_t", Type::int(8)),
    ("uint8_t", Type::uint(1)),
    ("uint16_t", Type::uint(2)),
    ("uint32_t", Type::uint(4)),
    ("uint64_t", Type::uint(8)),
    ("char", Type::int(1)),
    ("short", Type::int(2)),
    ("int", Type::int(4)),
    ("long", Type::int(8)),
    ("string", Type::Str(0)),
    ("buffer", Type::Buf(0)),
];

/// A type of the language by name, which no binary and no kernel redefines.
pub(super) fn own_type(name: &str) -> Option<Type> {
    let plain = PLAIN.iter().find(|(n, _)| *n == name).map(|(_, ty)| ty.clone());
    plain.or_else(|| crate::builtins::find_tag(name).map(|tag| Deferred::plain(tag.name, tag.size)))
}

/// The kind of a type, in a word.
fn base_type(ty: &Type) -> String {
    let word = match ty {
        Type::Void => "void",
        Type::Bool => "bool",
        Type::Int(_) => "int",
        Type::Enum(_) => "enum",
        Type::Str(_) => "string",
        Type::Buf(_) => "buffer",
        Type::Ptr(..) => "pointer",
        Type::Array(..) => "array",
        Type::Struct(s) if s.union => "union",
        Type::Struct(_) => "struct",
        Type::Record(r) if r.name.is_empty() => "record",
        Type::Record(_) | Type::Args => "struct",
        Type::Tuple(_) => "tuple",
        Type::Deferred(t) => &t.tag,
        Type::Agg(agg) => return format!("{}_t", agg.function),
    };
    word.to_owned()
}

/// A type as `typeinfo` writes it.
fn full_type(ty: &Type) -> String {
    match ty {
        Type::Tuple(elems) => format!("({})", elems.iter().map(full_type).collect::<Vec<_>>().join(",")),
        Type::Record(r) if r.name.is_empty() => {
            let fields: Vec<String> = r.fields.iter().map(|f| format!(".{} = {}", f.name, full_type(&f.ty))).collect();
            format!("record {{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

impl BodyChecker<'_> {
    /// Is the nesting and the number of values in a type of the script within limits? Tuples that contain another twice
    /// double with each level.
    pub fn check_nesting(&mut self, ty: &Type, span: Span) -> bool {
        let too_large = if levels_of(ty) > MAX_LEVELS {
            format!("a type of more than {MAX_LEVELS} levels")
        } else if values_in(ty) > MAX_VALUES {
            format!("a tuple of more than {MAX_VALUES} values, including those of its parts")
        } else {
            return true;
        };
        self.report(Diagnostic::error("too-large", span, too_large).help("store its parts in separate maps or variables"));
        false
    }

    /// The meaning of a written type; reports an invalid one. `string` alone is `Str(0)`, `T[]` an array without
    /// elements: the use determines the length.
    pub fn type_expr(&mut self, t: &ast::TypeExpr) -> Option<Type> {
        let mut ty = match &t.base {
            ast::TypeBase::Name(name) => self.type_named(name, t.span)?,
            ast::TypeBase::Struct(name) => self.tagged_type(TypeName::Struct, "struct", name, t.span)?,
            ast::TypeBase::Union(name) => self.tagged_type(TypeName::Union, "union", name, t.span)?,
            ast::TypeBase::Enum(name) => {
                let ty = self.tagged_type(TypeName::Enum, "enum", name, t.span)?;
                if t.suffixes.is_empty() { enum_value(ty) } else { ty }
            }
            ast::TypeBase::Typeof(arg) => self.type_of_arg(arg)?,
            ast::TypeBase::Tuple(elems) => {
                let ty = Type::Tuple(elems.iter().map(|e| self.type_expr(e)).collect::<Option<_>>()?);
                Some(ty).filter(|ty| self.check_nesting(ty, t.span))?
            }
        };
        for suffix in &t.suffixes {
            ty = match suffix {
                ast::TypeSuffix::Pointer => ty.ptr(Space::Unknown),
                ast::TypeSuffix::Array(None) => Type::Array(Box::new(ty), 0),
                ast::TypeSuffix::Array(Some(n)) => {
                    let n = self.type_length(n)?;
                    match ty {
                        Type::Str(0) => Type::Str(n),
                        Type::Buf(0) => Type::Buf(n),
                        // The length of an address: it has room for both kinds.
                        Type::Deferred(t) => Type::Deferred(t),
                        ty => Type::Array(Box::new(ty), n),
                    }
                }
            };
        }
        Some(ty).filter(|ty| self.check_nesting(ty, t.span))
    }

    fn type_length(&mut self, n: &ast::Expr) -> Option<u32> {
        let e = self.value(n);
        let length = fold::constant(&e).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0 && *n <= MAX_LENGTH);
        if length.is_none() && e.ty != Type::Void {
            self.error("bad-type", n.span, format!("a length must be a constant from 1 to {MAX_LENGTH}"));
        }
        length
    }

    /// The size of `sizeof`'s argument.
    pub fn size_of_arg(&mut self, arg: &ast::Arg) -> Option<Size> {
        if let ast::Arg::Expr(e) = arg {
            match &e.kind {
                // elements as written, not as stored
                ast::ExprKind::Tuple(elems) => return self.size_of_all(elems.iter()),
                ast::ExprKind::Record(fields) => return self.size_of_all(fields.iter().map(|(_, e)| e)),
                ast::ExprKind::Bool(_) => return Some(Size::WORD),
                ast::ExprKind::Typeof(inner) => return self.size_of_arg(inner),
                ast::ExprKind::Field { base, .. } if !self.is_own_record(base) => {}
                ast::ExprKind::Index { .. } => {}
                _ => return self.type_of_arg(arg).map(|ty| Size::of_value(&ty)),
            }
            return self.type_of_arg(arg).map(|ty| Size::of(&ty));
        }
        self.type_of_arg(arg).map(|ty| Size::of_value(&ty))
    }

    /// Is it a record that the script made, rather than a struct?
    fn is_own_record(&mut self, e: &ast::Expr) -> bool {
        let ty = self.type_of_arg(&ast::Arg::Expr(e.clone()));
        matches!(ty, Some(Type::Record(record)) if record.name.is_empty())
    }

    fn size_of_all<'e>(&mut self, elems: impl Iterator<Item = &'e ast::Expr>) -> Option<Size> {
        let mut all = Vec::new();
        for e in elems {
            // an element has the size of its value; a bool has one byte
            all.push(match &e.kind {
                ast::ExprKind::Bool(_) => Size { bytes: 1, align: 1 },
                _ => self.size_of_arg(&ast::Arg::Expr(e.clone()))?,
            });
        }
        Some(Size::combine(all.into_iter()))
    }

    /// The type of a `sizeof`, `typeof` or `offsetof` argument: a type's name before an expression.
    pub fn type_of_arg(&mut self, arg: &ast::Arg) -> Option<Type> {
        match arg {
            ast::Arg::Type(t) => self.type_expr(t),
            ast::Arg::Expr(e) => {
                if let ast::ExprKind::Ident(name) = &e.kind {
                    if let Some(arg) = self.substitute(name) {
                        return self.substituted_type(&arg);
                    }
                    // A struct's name without `struct`, unless it is a builtin's (`pid` is both).
                    let builtin = (self.env.tables.row)(name).is_some();
                    let found = match self.find_type(name, e.span).ok()? {
                        None if !builtin => self.named(TypeName::Struct, name, e.span).ok()?,
                        found => found,
                    };
                    if found.is_some() {
                        return found;
                    }
                }
                if let ast::ExprKind::Typeof(inner) = &e.kind {
                    return self.type_of_arg(inner);
                }
                // a map's type, whether or not it can be read as a value; for a map with keys, the type of its keys
                if let ast::ExprKind::Map { name, key } = &e.kind {
                    let name = self.map_name(name);
                    let is_map = key.is_none();
                    if let Some(key) = key.as_deref().map(|k| self.key_value(k, e.span)) {
                        self.use_key(&name, Some(key), e.span);
                    }
                    let keyed = self.maps.get(&name).is_some_and(|found| found.keyed.is_some());
                    let ty = if is_map && keyed { self.maps.key(&name).ty } else { self.maps.value(&name).ty };
                    self.use_map(&name, e.span);
                    return (ty != Type::Void).then_some(ty);
                }
                let e = self.value(e);
                (e.ty != Type::Void).then_some(e.ty)
            }
        }
    }

    /// `typeinfo(e)`: information about a type, as a record of constants.
    pub fn typeinfo(&mut self, arg: &ast::Arg, span: Span) -> Expr {
        // the builtins' own macros may use it
        if self.frame.library.is_none() && !self.require_stable("typeinfo", span) {
            return error_expr(span);
        }
        let Some(ty) = self.type_of_arg(arg) else { return error_expr(span) };
        let parts = [
            ("btf_id", fold::typed(0, Type::U64, span)),
            ("base_type", fold::string(base_type(&ty).as_bytes(), span)),
            ("full_type", fold::string(self.full_type(&ty).as_bytes(), span)),
        ];
        let ty = record_of(parts.iter().map(|(n, e)| (n.to_string(), e.ty.clone())).collect());
        Expr { kind: ExprKind::Tuple(parts.into_iter().map(|(_, e)| e).collect()), ty, span }
    }

    /// An aggregation of unsigned numbers has a separate name if its result shows the sign: `usum_t`.
    fn full_type(&self, ty: &Type) -> String {
        let unsigned = ty.aggregation().filter(|agg| !agg.signed && agg.params.is_empty()).is_some_and(|agg| {
            let Some(Codegen::Aggregate(row)) = (self.env.tables.row)(&agg.function).map(|r| &r.codegen) else { return false };
            (row.merge)(agg, &[]) != (row.merge)(&Agg { signed: true, ..agg.clone() }, &[])
        });
        format!("{}{}", if unsigned { "u" } else { "" }, full_type(ty))
    }

    fn find_type(&mut self, name: &str, span: Span) -> Result<Option<Type>, Reported> {
        match own_type(name) {
            None => self.named(TypeName::Plain, name, span),
            known => Ok(known),
        }
    }

    /// A type by name: the traced binary's own, then the kernel's.
    fn named(&mut self, kind: TypeName, name: &str, span: Span) -> Result<Option<Type>, Reported> {
        let own = self.site.attach.file_location().map(|at| self.env.sys.type_in_binary(at.path, at.offset, kind, name));
        match own.unwrap_or(Ok(None)) {
            Ok(own) => Ok(own.or_else(|| self.env.sys.type_named(kind, name))),
            Err(AmbiguousType { files }) => {
                let message = format!("files of this binary define `{name}` differently: {}", files.join(", "));
                self.report(Diagnostic::error("ambiguous-type", span, message));
                Err(Reported)
            }
        }
    }

    /// The type that a macro's parameter stands for.
    fn substituted_type(&mut self, arg: &ast::Arg) -> Option<Type> {
        self.in_caller(|b| match arg {
            ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Typeof(inner), .. }) => b.type_of_arg(inner),
            arg => b.type_of_arg(arg),
        })
    }

    fn type_named(&mut self, name: &str, span: Span) -> Option<Type> {
        if let Some(arg) = self.substitute(name) {
            return self.substituted_type(&arg);
        }
        let found = match self.find_type(name, span).ok()? {
            None => self.named(TypeName::Struct, name, span).ok()?,
            found => found,
        };
        if found.is_none()
            && let Some(function) = self.aggregate_type(name)
        {
            let d = Diagnostic::error("bad-type", span, format!("only values of maps can be `{name}`"));
            self.report(d.help(format!("assign `@m = {function}(…)`")));
            return None;
        }
        if found.is_none() {
            let d = Diagnostic::error("unknown-type", span, format!("unknown type `{name}`"));
            let d = self.explain_types(d.suggest(name, PLAIN.iter().map(|(n, _)| *n)));
            let d = self.explain_headers(name, d);
            self.report(d);
        }
        found
    }

    /// The aggregation that fills maps of this type: `count_t`, `usum_t`.
    fn aggregate_type(&self, name: &str) -> Option<&'static str> {
        let stem = name.strip_suffix("_t")?;
        let row = |stem: &str| (self.env.tables.row)(stem).filter(|r| matches!(r.codegen, Codegen::Aggregate(_)));
        row(stem).or_else(|| row(stem.strip_prefix('u')?)).map(|r| r.name)
    }

    fn tagged_type(&mut self, kind: TypeName, word: &str, name: &str, span: Span) -> Option<Type> {
        let replacement = self.substitute(name);
        let name = match replacement.as_deref() {
            Some(ast::Arg::Expr(ast::Expr { kind: ast::ExprKind::Ident(other), .. })) => other,
            Some(arg) => return self.substituted_type(arg),
            None => name,
        };
        let found = self.named(kind, name, span).ok()?;
        if found.is_none() {
            let d = self.explain_types(Diagnostic::error("unknown-type", span, format!("unknown type `{word} {name}`")));
            let d = self.explain_headers(name, d);
            self.report(d);
        }
        found
    }

    /// Adds the reason for missing types of the kernel or of the traced binary.
    pub fn explain_types(&self, d: Diagnostic) -> Diagnostic {
        let in_binary = || self.env.sys.types_missing_in_binary(self.site.attach.binary()?);
        match in_binary().or_else(|| self.env.sys.types_missing()) {
            Some(why) => Diagnostic { message: format!("{}: {}", d.message, why.what), help: why.help.or(d.help), ..d },
            None => d,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_merge_by_sign() {
        assert_eq!(merge(&Type::uint(1), &Type::uint(4)), Some(Type::uint(4)));
        assert_eq!(merge(&Type::uint(1), &Type::int(1)), Some(Type::int(2)));
        assert_eq!(merge(&Type::int(2), &Type::uint(1)), Some(Type::int(2)));
        assert_eq!(merge(&Type::U64, &Type::I64), Some(Type::I64));
        assert_eq!(merge(&Type::Str(4), &Type::Str(9)), Some(Type::Str(9)));
        assert_eq!(merge(&Type::Str(4), &Type::I64), None);
    }

    #[test]
    fn literals_yield_their_sign() {
        let mut m = InferredType::default();
        m.add(&Type::int(2), &WeakSign::Yes, Span::default());
        m.add(&Type::uint(1), &WeakSign::No, Span::default());
        assert_eq!(m.ty, Type::uint(2));
        m.add(&Type::int(4), &WeakSign::Yes, Span::default());
        assert_eq!(m.ty, Type::uint(4));
        m.add(&Type::int(1), &WeakSign::No, Span::default());
        assert_eq!(m.ty, Type::I64);
    }

    #[test]
    fn parts_yield_separately() {
        let mut m = InferredType::default();
        let pair = |a, b| Type::Tuple(vec![a, b]);
        m.add(&pair(Type::U64, Type::int(1)), &WeakSign::Parts(vec![WeakSign::No, WeakSign::Yes]), Span::default());
        m.add(&pair(Type::int(1), Type::uint(4)), &WeakSign::Parts(vec![WeakSign::Yes, WeakSign::No]), Span::default());
        assert_eq!(m.ty, pair(Type::U64, Type::uint(4)));
        assert_eq!(m.weak_sign, WeakSign::Parts(vec![WeakSign::No, WeakSign::No]));
    }
}
