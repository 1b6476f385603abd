//! The declared types: structs, unions, enums and typedefs, with their layout.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lex::{Interner, LexPosition, Sym};
use crate::system::{TargetInfo, TypeName};
use crate::types::{Enum, Field, Int, Record, Space, Struct, Type};

/// The first ID of a struct that is declared here: no BTF type has it.
pub const FIRST_ID: u32 = 0xf000_0000;
/// The number of ids reserved for one parse.
pub const MAX_IDS: u32 = 0x0400_0000;
/// Limit for the nesting of structs and pointers.
const DEPTH: u32 = 16;
/// Maximum number of fields in an answer.
const FIELDS: u32 = 1 << 16;

/// A type of C.
#[derive(Clone, Debug, PartialEq)]
pub enum Ty {
    /// `void`
    Void,
    /// `_Bool`
    Bool,
    /// `char`, which is signed; an array of it is text.
    Char,
    /// `signed char` … `unsigned long long`.
    Int(Int),
    /// `float` or `double`, by its size in bytes.
    Float(u8),
    /// A type that rbt copies but does not interpret, such as a 128-bit integer: size and alignment in bytes.
    Raw(u32, u32),
    /// `T *`
    Pointer(Box<Ty>),
    /// `T[n]`; none: a flexible member.
    Array(Box<Ty>, Option<u32>),
    /// `T f(…)`
    Function,
    /// A struct, union or enum of [`Types::tags`].
    Tag(usize),
    /// A type that only the kernel's BTF declares, and its alignment.
    Kernel(Type, u32),
    /// A type with an alignment from an attribute.
    Aligned(Box<Ty>, u32),
}

impl Ty {
    /// The number of pointers, arrays and alignments around the innermost type.
    pub fn levels(&self) -> u32 {
        let mut levels = 0;
        let mut ty = self;
        while let Ty::Pointer(inner) | Ty::Array(inner, _) | Ty::Aligned(inner, _) = ty {
            levels += 1;
            ty = inner;
        }
        levels
    }
}

/// `struct`, `union`, `enum`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TagKind {
    Struct,
    Union,
    Enum,
}

impl TagKind {
    /// The keyword.
    pub fn keyword(self) -> &'static str {
        match self {
            TagKind::Struct => "struct",
            TagKind::Union => "union",
            TagKind::Enum => "enum",
        }
    }

    /// The equivalent kind of [`TargetInfo`].
    pub fn type_name(self) -> TypeName {
        match self {
            TagKind::Struct => TypeName::Struct,
            TagKind::Union => TypeName::Union,
            TagKind::Enum => TypeName::Enum,
        }
    }
}

/// A struct, union or enum.
#[derive(Clone, Debug)]
pub struct Tag {
    /// Its kind.
    pub kind: TagKind,
    /// Its tag; empty if anonymous.
    pub name: String,
    /// Is it defined?
    pub complete: bool,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// The members of a struct or union.
    pub members: Vec<Member>,
    /// The variants of an enum.
    pub variants: Vec<(Sym, i64)>,
    /// The underlying type of an enum.
    pub int: Int,
    /// The place of its first declaration.
    pub pos: LexPosition,
}

/// A member of a struct or union.
#[derive(Clone, Debug)]
pub struct Member {
    /// None: an anonymous struct or union.
    pub name: Option<Sym>,
    /// Offset in bits.
    pub bit: u64,
    /// The width of a bit-field, in bits.
    pub width: Option<u8>,
    /// Its type.
    pub ty: Ty,
}

/// All declarations.
#[derive(Default)]
pub struct Types {
    /// Structs, unions and enums.
    pub tags: Vec<Tag>,
    /// Those with a name, by name.
    pub by_name: BTreeMap<Sym, usize>,
    /// Typedefs.
    pub typedefs: BTreeMap<Sym, Ty>,
    /// Enums' variants: the enum and the value.
    pub variants: BTreeMap<Sym, (usize, i64)>,
}

impl Types {
    /// Size and alignment of a type in bytes. None: it is incomplete.
    pub fn shape(&self, ty: &Ty) -> Option<(u64, u32)> {
        match ty {
            Ty::Void | Ty::Function => None,
            Ty::Bool | Ty::Char => Some((1, 1)),
            Ty::Int(i) => Some((i.bytes.into(), i.bytes.into())),
            Ty::Float(bytes) => Some(((*bytes).into(), (*bytes).into())),
            Ty::Raw(bytes, align) => Some(((*bytes).into(), *align)),
            Ty::Pointer(_) => Some((8, 8)),
            Ty::Array(elem, n) => {
                let (size, align) = self.shape(elem)?;
                Some((size.checked_mul(n.unwrap_or(0).into()).filter(|s| *s < 1 << 31)?, align))
            }
            Ty::Tag(tag) => self.tags.get(*tag).filter(|t| t.complete).map(|t| (t.size.into(), t.align)),
            Ty::Kernel(ty, align) => Some((ty.size().into(), *align)),
            Ty::Aligned(inner, align) => {
                let (size, inner_align) = self.shape(inner)?;
                Some((size, inner_align.max(*align)))
            }
        }
    }

    /// The integer type, if it is one, as bit-fields require.
    pub fn int(&self, ty: &Ty) -> Option<Int> {
        match ty {
            Ty::Bool => Some(Int { bytes: 1, signed: false }),
            Ty::Char => Some(Int { bytes: 1, signed: true }),
            Ty::Int(i) => Some(*i),
            Ty::Tag(tag) => self.tags.get(*tag).filter(|t| t.kind == TagKind::Enum).map(|t| t.int),
            Ty::Kernel(ty, _) => ty.as_int(),
            Ty::Aligned(inner, _) => self.int(inner),
            Ty::Void | Ty::Float(_) | Ty::Raw(..) | Ty::Pointer(_) | Ty::Array(..) | Ty::Function => None,
        }
    }
}

/// Declarations together with the target, for conversion to types of the program.
pub struct View<'a> {
    /// The declarations.
    pub types: &'a Types,
    /// Their names.
    pub names: &'a Interner,
    /// For types that are declared only there.
    pub sys: &'a dyn TargetInfo,
    /// The ID of the first struct.
    pub first: u32,
}

impl View<'_> {
    /// A type in the program's terms.
    pub fn ty(&self, ty: &Ty, depth: u32) -> Type {
        if depth > DEPTH {
            return Type::Void;
        }
        match ty {
            Ty::Void | Ty::Function => Type::Void,
            Ty::Bool => Type::Bool,
            Ty::Char => Type::int(1),
            Ty::Int(i) => Type::Int(*i),
            Ty::Float(bytes) => Type::float((*bytes).into()).unwrap_or(Type::Void),
            Ty::Raw(bytes, _) => Type::Array(Box::new(Type::uint(1)), *bytes),
            Ty::Pointer(to) => self.ty(to, depth + 1).ptr(Space::Unknown),
            Ty::Array(elem, n) => {
                let (text, n) = (matches!(**elem, Ty::Char), n.unwrap_or(0));
                if text && n > 0 { Type::Str(n) } else { Type::Array(Box::new(self.ty(elem, depth + 1)), n) }
            }
            Ty::Tag(tag) => self.tag(*tag),
            Ty::Kernel(ty, _) => ty.clone(),
            Ty::Aligned(inner, _) => self.ty(inner, depth),
        }
    }

    /// A struct, union or enum in the program's terms.
    pub fn tag(&self, index: usize) -> Type {
        let Some(tag) = self.types.tags.get(index) else { return Type::Void };
        if !tag.complete
            && let Some(known) = self.sys.type_named(tag.kind.type_name(), &tag.name)
        {
            return known;
        }
        match tag.kind {
            TagKind::Enum => {
                let variants = tag.variants.iter().map(|(n, v)| (self.names.text(*n).to_owned(), *v)).collect();
                Type::Enum(Arc::new(Enum { name: tag.name.clone(), int: tag.int, variants }))
            }
            TagKind::Struct | TagKind::Union => {
                let id = self.first.saturating_add(index as u32);
                Type::Struct(Arc::new(Struct { name: tag.name.clone(), union: tag.kind == TagKind::Union, size: tag.size, id }))
            }
        }
    }

    /// See [`TargetInfo::member`], for a struct that is declared here.
    pub fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        let name = self.names.known(name)?;
        let mut budget = FIELDS;
        self.find(index(structure, self.first)?, name, 0, 0, &mut budget)
    }

    fn find(&self, tag: usize, name: Sym, base: u64, depth: u32, budget: &mut u32) -> Option<Field> {
        if depth > DEPTH {
            return None;
        }
        for m in &self.types.tags.get(tag)?.members {
            *budget = budget.checked_sub(1)?;
            match (m.name, &m.ty) {
                (Some(n), _) if n == name => return self.field(m, base),
                (None, Ty::Tag(inner)) => {
                    if let Some(found) = self.find(*inner, name, base + m.bit, depth + 1, budget) {
                        return Some(found);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// See [`TargetInfo::expand`], for a struct that is declared here.
    pub fn expand(&self, structure: &Struct) -> Option<Record> {
        let mut budget = FIELDS;
        self.record(structure, 0, &mut budget)
    }

    fn record(&self, structure: &Struct, depth: u32, budget: &mut u32) -> Option<Record> {
        let Some(tag) = index(structure, self.first) else { return self.sys.expand(structure) };
        let mut fields = Vec::new();
        self.gather(tag, 0, depth, budget, &mut fields)?;
        Some(Record { name: structure.name.clone(), size: structure.size, fields, variants: None })
    }

    fn gather(&self, tag: usize, base: u64, depth: u32, budget: &mut u32, into: &mut Vec<Field>) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        for m in &self.types.tags.get(tag)?.members {
            *budget = budget.checked_sub(1)?;
            if let (None, Ty::Tag(inner)) = (m.name, &m.ty) {
                self.gather(*inner, base + m.bit, depth + 1, budget, into)?;
                continue;
            }
            let Some(mut field) = self.field(m, base) else { continue };
            field.ty.deepen(&mut |inner| if depth + 1 < DEPTH { self.record(inner, depth + 1, budget) } else { None });
            into.push(field);
        }
        Some(())
    }

    /// The field as the program reads it: a bit-field is in its declared storage unit or, if packed, in the narrowest
    /// unit from its first byte that holds it.
    fn field(&self, m: &Member, base: u64) -> Option<Field> {
        let (bit, name) = (base + m.bit, m.name.map(|n| self.names.text(n).to_owned()).unwrap_or_default());
        let ty = self.ty(&m.ty, 0);
        let Some(width) = m.width else {
            return Some(Field { name, offset: u32::try_from(bit / 8).ok()?, bits: None, ty });
        };
        let unit = u64::from(ty.size()).saturating_mul(8).max(8);
        let (start, ty) = if bit % unit + u64::from(width) <= unit {
            (bit - bit % unit, ty)
        } else {
            let need = (bit % 8 + u64::from(width)).div_ceil(8).next_power_of_two();
            let signed = ty.as_int().is_some_and(|i| i.signed);
            (bit - bit % 8, Type::Int(Int { bytes: u8::try_from(need).ok().filter(|n| *n <= 8)?, signed }))
        };
        let bits = Some((u8::try_from(bit - start).ok()?, width));
        Some(Field { name, offset: u32::try_from(start / 8).ok()?, bits, ty })
    }
}

/// The index of a struct in the unit whose IDs begin at `first`.
pub fn index(structure: &Struct, first: u32) -> Option<usize> {
    structure.id.checked_sub(first).filter(|n| *n < MAX_IDS).map(|n| n as usize)
}

/// The alignment of a kernel type by the rules of C.
pub fn kernel_align(ty: &Type, sys: &dyn TargetInfo, depth: u32) -> u32 {
    match ty {
        Type::Struct(s) if depth < DEPTH => {
            let fields = sys.expand(s).map(|r| r.fields).unwrap_or_default();
            fields.iter().map(|f| kernel_align(&f.ty, sys, depth + 1)).max().unwrap_or(1)
        }
        Type::Record(r) if depth < DEPTH => r.fields.iter().map(|f| kernel_align(&f.ty, sys, depth + 1)).max().unwrap_or(1),
        Type::Array(elem, _) => kernel_align(elem, sys, depth + 1),
        Type::Void
        | Type::Bool
        | Type::Int(_)
        | Type::Enum(_)
        | Type::Str(_)
        | Type::Buf(_)
        | Type::Ptr(..)
        | Type::Struct(_)
        | Type::Record(_)
        | Type::Tuple(_)
        | Type::Deferred(_)
        | Type::Agg(_)
        | Type::Args => ty.align(),
    }
}
