//! The types of values, and their layout on both sides of a record.
//!
//! A [`Type`] is closed: every stage matches all of it. All deferred values (symbols, stacks, addresses) are one member,
//! [`Type::Deferred`], whose rows are in the `builtins` table.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The address space of a pointer's target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Space {
    /// The kernel's memory: `bpf_probe_read_kernel`.
    Kernel,
    /// The current process's memory: `bpf_probe_read_user`.
    User,
    /// Memory that the verifier lets the program read directly: the context, a map value, the stack.
    Bpf,
    /// Unknown: neither the probe kind nor the script determines it. Read like kernel memory.
    #[default]
    Unknown,
}

/// An integer's width and sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Int {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Is it signed (two's complement)?
    pub signed: bool,
}

impl Int {
    /// The bits of a number truncated to this width, sign-extended to 64 if it is signed.
    pub fn wrap(self, n: u64) -> u64 {
        let unused = 64 - u32::from(self.bytes.clamp(1, 8)) * 8;
        if self.signed { (((n << unused) as i64) >> unused) as u64 } else { n << unused >> unused }
    }
}

/// An enumeration from the kernel's BTF or from the script.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Enum {
    /// Its tag; empty if anonymous.
    pub name: String,
    /// Width and sign of the underlying integer.
    pub int: Int,
    /// Names and values, in order of declaration.
    pub variants: Vec<(String, i64)>,
}

impl Enum {
    /// The width of its values in C: at most that of an int, if that holds all of them.
    pub fn bytes_in_c(&self) -> u8 {
        let int = i64::from(i32::MIN)..=i64::from(u32::MAX);
        if self.variants.iter().all(|(_, v)| int.contains(v)) { self.int.bytes.min(4) } else { self.int.bytes }
    }
}

/// A struct or union that is known by name, whose members are looked up on demand (`TargetInfo::member`), so that
/// `struct task_struct` need not be read completely.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Struct {
    /// The tag without `struct `; empty if anonymous.
    pub name: String,
    /// True for a union.
    pub union: bool,
    /// Size in bytes.
    pub size: u32,
    /// The ID by which `TargetInfo` finds its members: a BTF type ID of the base kernel, or an ID that `TargetInfo`
    /// assigned to a type of a module or of the script.
    pub id: u32,
}

/// A member of a [`Record`], or one found in a [`Struct`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    /// Its name; empty for an anonymous struct or union.
    pub name: String,
    /// Offset in bytes from the start of the struct that contains it.
    pub offset: u32,
    /// For a bit-field: offset in bits from `offset`'s first bit (little-endian order), and width.
    pub bits: Option<(u8, u8)>,
    /// Its type.
    pub ty: Type,
}

/// A struct with all its members: what is printed, stored, or sent to user space by value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// The struct's tag, or empty for a record created in the script.
    pub name: String,
    /// Size in bytes, including padding.
    pub size: u32,
    /// In order of declaration; those of a union overlap.
    pub fields: Vec<Field>,
    /// The variants among the fields of a Rust enum.
    pub variants: Option<Variants>,
}

/// The fields of which a value has one: the variants of a Rust enum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variants {
    /// The index of the field that selects the variant. It may be part of a variant's own fields, whose other values select that
    /// variant.
    pub discriminant: usize,
    /// The index of each variant's field, and the value that selects it. None: all values that select no other.
    pub values: Vec<(usize, Option<u64>)>,
}

impl Variants {
    /// The index of the field that a value of the discriminant selects, if any.
    pub fn selected(&self, discriminant: u64) -> Option<usize> {
        let of = |wanted: Option<u64>| self.values.iter().find(|(_, value)| *value == wanted).map(|(index, _)| *index);
        of(Some(discriminant)).or_else(|| of(None))
    }
}

/// A value that user space decodes when it is printed: `ksym`, a stack, an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deferred {
    /// The name of its row in `builtins::DECODERS`.
    pub tag: String,
    /// Size of the undecoded form in bytes.
    pub size: u32,
    /// Parameters of the row for each use, such as the mode and the limit of a stack.
    pub params: [u32; 2],
    /// A parameter as text, such as the format of a time, or the mode and the limit of a stack as written; otherwise empty.
    #[serde(default)]
    pub text: String,
}

/// Names and sizes of floating-point types in C.
pub const FLOATS: [(&str, u32); 2] = [("float", 4), ("double", 8)];

impl Deferred {
    /// Is it a floating-point number?
    pub fn is_float(&self) -> bool {
        FLOATS.iter().any(|(name, _)| *name == self.tag)
    }

    /// A value without parameters.
    pub fn plain(tag: &str, size: u32) -> Type {
        Self::with(tag, size, [0, 0], "")
    }

    /// A value with parameters.
    pub fn with(tag: &str, size: u32, params: [u32; 2], text: &str) -> Type {
        Type::Deferred(Arc::new(Self { tag: tag.into(), size, params, text: text.into() }))
    }
}

/// The value of an aggregation's map, per CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Agg {
    /// The builtin that fills it: the row's name.
    pub function: String,
    /// Is the aggregated value signed (false for `count`)?
    pub signed: bool,
    /// Literal parameters: `hist`'s k; `lhist`'s min, max, step.
    pub params: Vec<i64>,
    /// Size in bytes per CPU.
    pub size: u32,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    /// No value.
    Void,
    /// One byte, 0 or 1.
    Bool,
    /// An integer, little-endian.
    Int(Int),
    /// An integer with names.
    Enum(Arc<Enum>),
    /// Bytes up to a NUL within this capacity (in bytes, including the NUL if there is one); the bytes after the NUL
    /// are zero.
    Str(u32),
    /// A `u32` length, then room for this many bytes.
    Buf(u32),
    /// Eight bytes.
    Ptr(Box<Type>, Space),
    /// This many elements, without padding between them.
    Array(Box<Type>, u32),
    /// A struct behind a reference: only its members, address and expanded copy are available.
    Struct(Arc<Struct>),
    /// A struct by value.
    Record(Arc<Record>),
    /// Elements at their natural alignment; gaps are zero. See [`Type::tuple_offsets`].
    Tuple(Vec<Type>),
    /// Decoded in user space.
    Deferred(Arc<Deferred>),
    /// An aggregation, as a map's value.
    Agg(Arc<Agg>),
    /// `args`: the probe's own record, whose fields the probe kind loads.
    Args,
}

/// Maximum length of an array, a string or a buffer.
pub const MAX_LENGTH: u32 = 1 << 20;
/// The maximum size of a type, so that sums of sizes do not overflow. The kernel rejects a map with values of this size.
const MAX_SIZE: u32 = 1 << 30;

impl Type {
    /// Does it contain a value that is decoded late and for which this is true?
    pub fn contains_deferred(&self, is: &dyn Fn(&Deferred) -> bool) -> bool {
        let mut found = false;
        self.each_deferred(&mut |_, value| found |= is(value));
        found
    }

    /// Passes the values within it that are decoded late to `each`, with their types.
    pub fn each_deferred(&self, each: &mut dyn FnMut(&Type, &Deferred)) {
        match self {
            Type::Deferred(value) => each(self, value),
            Type::Array(of, _) => of.each_deferred(each),
            Type::Tuple(elems) => elems.iter().for_each(|ty| ty.each_deferred(each)),
            Type::Record(record) => record.fields.iter().for_each(|field| field.ty.each_deferred(each)),
            Type::Void
            | Type::Bool
            | Type::Int(_)
            | Type::Enum(_)
            | Type::Str(_)
            | Type::Buf(_)
            | Type::Ptr(..)
            | Type::Struct(_)
            | Type::Agg(_)
            | Type::Args => {}
        }
    }

    /// Is it a type that rbt can produce, of at most this many bytes? A type read from a file may be anything.
    pub fn is_valid(&self, max: u32) -> bool {
        let is_int = |int: &Int| [1, 2, 4, 8].contains(&int.bytes);
        match self {
            Type::Void | Type::Bool | Type::Args => true,
            Type::Int(int) => is_int(int),
            Type::Enum(of) => is_int(&of.int),
            Type::Str(size) | Type::Buf(size) => *size <= max,
            Type::Ptr(to, _) => to.is_valid(max),
            Type::Array(elem, n) => elem.is_valid(max) && u64::from(elem.size()) * u64::from(*n) <= max.into(),
            Type::Struct(of) => of.size <= max,
            Type::Record(of) => of.size <= max && of.fields.iter().all(|field| field.offset <= max && field.ty.is_valid(max)),
            Type::Tuple(parts) => {
                let padded = |part: &Type| u64::from(part.size()) + 8;
                parts.iter().all(|part| part.is_valid(max)) && parts.iter().map(padded).sum::<u64>() <= max.into()
            }
            Type::Deferred(of) => of.size <= max,
            Type::Agg(of) => of.size <= max,
        }
    }

    /// The type for values of both types, which may differ only in the lengths of strings and buffers: a script can take these from
    /// its arguments. None: they differ otherwise. In a record, offsets are those of the first type.
    pub fn widened(&self, other: &Type) -> Option<Type> {
        match (self, other) {
            (Type::Str(a), Type::Str(b)) => Some(Type::Str(*a.max(b))),
            (Type::Buf(a), Type::Buf(b)) => Some(Type::Buf(*a.max(b))),
            (Type::Array(a, n), Type::Array(b, m)) if n == m => Some(Type::Array(Box::new(a.widened(b)?), *n)),
            (Type::Tuple(a), Type::Tuple(b)) if a.len() == b.len() => {
                a.iter().zip(b).map(|(a, b)| a.widened(b)).collect::<Option<_>>().map(Type::Tuple)
            }
            (Type::Record(a), Type::Record(b)) if a.name == b.name && a.fields.len() == b.fields.len() => {
                let field = |(a, b): (&Field, &Field)| Some(Field { ty: a.ty.widened(&b.ty)?, ..a.clone() }).filter(|_| a.name == b.name);
                let fields = a.fields.iter().zip(&b.fields).map(field).collect::<Option<_>>()?;
                Some(Type::Record(Arc::new(Record {
                    name: a.name.clone(),
                    size: a.size.max(b.size),
                    fields,
                    variants: a.variants.clone(),
                })))
            }
            (a, b) => (format!("{a:#}") == format!("{b:#}")).then(|| a.clone()),
        }
    }

    /// Removes what no value has: the IDs of structs, and the sizes of structs behind pointers.
    pub fn forget_target(&mut self) {
        self.forget(false);
    }

    fn forget(&mut self, behind_pointer: bool) {
        match self {
            Type::Struct(structure) => {
                let structure = Arc::make_mut(structure);
                structure.id = 0;
                if behind_pointer {
                    structure.size = 0;
                }
            }
            Type::Ptr(to, _) => to.forget(true),
            Type::Array(elem, _) => elem.forget(behind_pointer),
            Type::Record(structure) => Arc::make_mut(structure).fields.iter_mut().for_each(|field| field.ty.forget(behind_pointer)),
            Type::Tuple(parts) => parts.iter_mut().for_each(|part| part.forget(behind_pointer)),
            Type::Void
            | Type::Bool
            | Type::Int(_)
            | Type::Enum(_)
            | Type::Str(_)
            | Type::Buf(_)
            | Type::Deferred(_)
            | Type::Agg(_)
            | Type::Args => {}
        }
    }

    /// Replaces structs, in arrays too, by the records that `expand` returns for them; those for which it returns
    /// `None` stay.
    pub fn deepen(&mut self, expand: &mut dyn FnMut(&Struct) -> Option<Record>) {
        if let Type::Array(elem, _) = self {
            elem.deepen(expand);
        } else if let Type::Struct(inner) = self
            && let Some(record) = expand(inner)
        {
            *self = Type::Record(Arc::new(record));
        }
    }

    /// `int8` … `int64`.
    pub const fn int(bytes: u8) -> Type {
        Type::Int(Int { bytes, signed: true })
    }

    /// `uint8` … `uint64`.
    pub const fn uint(bytes: u8) -> Type {
        Type::Int(Int { bytes, signed: false })
    }

    /// A binary floating-point number of 4 or 8 bytes. BPF programs cannot calculate with it: they copy it, and user
    /// space prints it.
    pub fn float(bytes: u32) -> Option<Type> {
        let (name, size) = FLOATS.into_iter().find(|(_, size)| *size == bytes)?;
        Some(Deferred::plain(name, size))
    }

    /// The type of most builtins.
    pub const U64: Type = Type::uint(8);
    /// The type of signed arithmetic.
    pub const I64: Type = Type::int(8);

    /// A pointer to this.
    pub fn ptr(self, space: Space) -> Type {
        Type::Ptr(Box::new(self), space)
    }

    /// The number of tuples and unnamed records within each other.
    pub fn nesting(&self) -> usize {
        fn deepest<'a>(types: impl Iterator<Item = &'a Type>) -> usize {
            1 + types.map(Type::nesting).max().unwrap_or(0)
        }
        if let Type::Tuple(elems) = self {
            return deepest(elems.iter());
        }
        if let Type::Record(record) = self
            && record.name.is_empty()
        {
            return deepest(record.fields.iter().map(|f| &f.ty));
        }
        0
    }

    /// Size of a value in memory, in a map and in a record, in bytes.
    pub fn size(&self) -> u32 {
        match self {
            Type::Void | Type::Args => 0,
            Type::Bool => 1,
            Type::Int(i) => i.bytes.into(),
            Type::Enum(e) => e.int.bytes.into(),
            Type::Str(cap) => *cap,
            Type::Buf(cap) => 4 + cap,
            Type::Ptr(..) => 8,
            Type::Array(elem, n) => elem.size().saturating_mul(*n).min(MAX_SIZE),
            Type::Struct(s) => s.size,
            Type::Record(r) => r.size,
            Type::Tuple(elems) => Self::tuple_layout(elems).1,
            Type::Deferred(t) => t.size,
            Type::Agg(a) => a.size,
        }
    }

    /// Natural alignment in bytes: 1, 2, 4 or 8.
    pub fn align(&self) -> u32 {
        match self {
            Type::Void | Type::Bool | Type::Str(_) | Type::Args => 1,
            Type::Int(i) => i.bytes.into(),
            Type::Enum(e) => e.int.bytes.into(),
            Type::Buf(_) => 4,
            Type::Ptr(..) | Type::Struct(_) | Type::Record(_) | Type::Agg(_) => 8,
            Type::Array(elem, _) => elem.align(),
            Type::Tuple(elems) => elems.iter().map(Type::align).max().unwrap_or(1),
            Type::Deferred(t) => {
                if t.size >= 8 {
                    8
                } else {
                    t.size.next_power_of_two().max(1)
                }
            }
        }
    }

    /// The offset of each element in a tuple of these types, in bytes.
    pub fn tuple_offsets(elems: &[Type]) -> Vec<u32> {
        Self::tuple_layout(elems).0
    }

    fn tuple_layout(elems: &[Type]) -> (Vec<u32>, u32) {
        let mut offsets = Vec::with_capacity(elems.len());
        let (mut at, mut widest) = (0u32, 1u32);
        for e in elems {
            let align = e.align();
            widest = widest.max(align);
            at = at.next_multiple_of(align);
            offsets.push(at);
            at = at.saturating_add(e.size()).min(MAX_SIZE);
        }
        (offsets, at.next_multiple_of(widest))
    }

    /// Is it stored in a register: an integer, a bool, an enum or a pointer?
    pub fn is_scalar(&self) -> bool {
        self.as_int().is_some()
    }

    /// The aggregation, if this is the type of its map's values.
    pub fn aggregation(&self) -> Option<&Agg> {
        if let Type::Agg(agg) = self { Some(agg) } else { None }
    }

    /// Width and sign of a scalar in a register (a bool is `uint8`, a pointer `uint64`).
    pub fn as_int(&self) -> Option<Int> {
        match self {
            Type::Bool => Some(Int { bytes: 1, signed: false }),
            Type::Int(i) => Some(*i),
            Type::Enum(e) => Some(e.int),
            Type::Ptr(..) => Some(Int { bytes: 8, signed: false }),
            Type::Void
            | Type::Str(_)
            | Type::Buf(_)
            | Type::Array(..)
            | Type::Struct(_)
            | Type::Record(_)
            | Type::Tuple(_)
            | Type::Deferred(_)
            | Type::Agg(_)
            | Type::Args => None,
        }
    }

    /// The number of parts in a key of this type.
    pub fn parts(&self) -> usize {
        if let Type::Tuple(parts) = self { parts.len() } else { 1 }
    }
}

/// The form in scripts: `uint64`, `string[16]`, `struct task_struct *`. `{:#}` also distinguishes types with the same
/// name: `ustack(perf, 2)`.
impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Type::Void => f.write_str("void"),
            Type::Bool => f.write_str("bool"),
            Type::Int(i) => write!(f, "{}int{}", if i.signed { "" } else { "u" }, u32::from(i.bytes) * 8),
            Type::Enum(e) if e.name.is_empty() => f.write_str("enum"),
            Type::Enum(e) => write!(f, "enum {}", e.name),
            // It has no size yet: the use decides.
            Type::Str(0) => f.write_str("string"),
            Type::Buf(0) => f.write_str("buffer"),
            Type::Array(elem, 0) => write!(f, "{elem}[]"),
            Type::Str(cap) => write!(f, "string[{cap}]"),
            Type::Buf(cap) => write!(f, "buffer[{cap}]"),
            Type::Ptr(to, _) => write!(f, "{to} *"),
            Type::Array(elem, n) => write!(f, "{elem}[{n}]"),
            Type::Struct(s) => {
                write!(f, "{} {}", if s.union { "union" } else { "struct" }, if s.name.is_empty() { "(anonymous)" } else { &s.name })
            }
            Type::Record(r) if r.name.is_empty() => {
                let written = |ty: &Type| if f.alternate() { format!("{ty:#}") } else { ty.to_string() };
                let fields: Vec<String> = r.fields.iter().map(|m| format!("{}: {}", m.name, written(&m.ty))).collect();
                write!(f, "{{ {} }}", fields.join(", "))
            }
            Type::Record(r) => write!(f, "struct {}", r.name),
            Type::Tuple(elems) => {
                f.write_str("(")?;
                for (i, e) in elems.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    e.fmt(f)?;
                }
                f.write_str(")")
            }
            Type::Deferred(t) if f.alternate() && !t.text.is_empty() => write!(f, "{}({})", t.tag, t.text),
            Type::Deferred(t) => f.write_str(&t.tag),
            Type::Agg(a) => write!(f, "{}_t", a.function),
            Type::Args => f.write_str("args"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping() {
        assert_eq!(Int { bytes: 1, signed: false }.wrap(300), 44);
        assert_eq!(Int { bytes: 1, signed: true }.wrap(255), u64::MAX);
    }
}
