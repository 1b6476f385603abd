//! Converts DWARF entries to [`Type`]s and members of structs.

#![allow(clippy::wildcard_enum_match_arm)] // matches on one form of an attribute

use std::sync::Arc;

use gimli::{
    DW_AT_bit_offset, DW_AT_bit_size, DW_AT_byte_size, DW_AT_const_value, DW_AT_count, DW_AT_data_bit_offset, DW_AT_data_member_location,
    DW_AT_declaration, DW_AT_encoding, DW_AT_type, DW_AT_upper_bound, DwTag,
};

use super::{BinaryTypes, DEPTH, Die, Entry};
use crate::system::TypeName;
use crate::system::kernel_types::{bit_field, float, raw_bytes};
use crate::types::{Enum, Field, Int, Record, Space, Struct, Type, Variants};

/// Limit for the fields of one struct.
const FIELDS: u32 = 1 << 16;

impl BinaryTypes {
    /// Finds a member, including those of anonymous members and base classes.
    pub fn member(&self, structure: &Struct, name: &str) -> Option<Field> {
        let mut found = None;
        let mut budget = FIELDS;
        self.each_member(self.by_id(structure.id)?, 0, 0, &mut budget, &mut |die, entry, base| {
            if self.name(die, entry) == Some(name.as_bytes()) {
                found = Some(self.field(die, entry, base));
            }
            found.is_none()
        })?;
        found.unwrap_or_else(|| self.variant(structure, name))
    }

    /// Returns the fields of one variant of a Rust enum, by the variant's name.
    fn variant(&self, structure: &Struct, name: &str) -> Option<Field> {
        let mut variants = self.variants(self.by_id(structure.id)?).into_iter();
        let (_, die, entry) = variants.find(|(_, die, entry)| self.name(*die, entry) == Some(name.as_bytes()))?;
        self.field(die, &entry, 0)
    }

    /// The variants of a Rust enum, and the members of these. They share their room, as those of a union do. Other types have none.
    fn variants(&self, of: Die) -> Vec<(Entry, Die, Entry)> {
        let variants = self.below(of, gimli::DW_TAG_variant_part).flat_map(|(part, _)| self.below(part, gimli::DW_TAG_variant));
        let members = |(die, variant): (Die, Entry)| {
            self.below(die, gimli::DW_TAG_member).map(|(die, member)| (variant.clone(), die, member)).collect::<Vec<_>>()
        };
        variants.flat_map(members).collect()
    }

    /// The value of the discriminant that selects a variant; the inner `None` for all other values. `None`: it is not known.
    fn selecting_value(&self, variant: Entry, discriminant: Option<Int>) -> Option<Option<u64>> {
        if variant.attr(gimli::DW_AT_discr_list).is_some() {
            return None;
        }
        let Some(value) = variant.attr(gimli::DW_AT_discr_value) else { return Some(None) };
        let mask = u64::MAX >> (64 - 8 * u32::from(discriminant?.bytes.clamp(1, 8)));
        let value = value.udata_value().or_else(|| value.sdata_value().map(|value| value as u64))?;
        Some(Some(value & mask))
    }

    /// The number that selects the variant of a Rust enum; its debug information has no name for it.
    fn discriminant(&self, of: Die) -> Option<Field> {
        let (part, entry) = self.below(of, gimli::DW_TAG_variant_part).next()?;
        let die = self.referred(part, &entry, gimli::DW_AT_discr)?;
        let entry = self.entry(die)?;
        let (offset, ty) = (self.place(die, &entry)?, self.type_of(die, &entry, 0)?);
        Some(Field { name: "discriminant".into(), offset, bits: None, ty })
    }

    fn below(&self, of: Die, tag: DwTag) -> impl Iterator<Item = (Die, Entry)> {
        self.children(of).into_iter().filter(move |(_, entry)| entry.tag() == tag)
    }

    /// Returns all members; anonymous ones and base classes are flattened. Structs nested deeper than 16 stay [`Type::Struct`].
    pub fn expand(&self, structure: &Struct) -> Option<Record> {
        let mut budget = FIELDS;
        self.record(structure, 0, &mut budget)
    }

    fn record(&self, structure: &Struct, depth: u32, budget: &mut u32) -> Option<Record> {
        let mut fields = Vec::new();
        let of = self.by_id(structure.id)?;
        self.each_member(of, 0, 0, budget, &mut |die, entry, base| {
            fields.extend(self.field(die, entry, base));
            true
        })?;
        let before = fields.len();
        fields.extend(self.discriminant(of));
        let discriminant = (fields.len() > before).then_some(before);
        let mut values = Vec::new();
        let mut known = discriminant.is_some();
        for (variant, die, entry) in self.variants(of) {
            *budget = budget.checked_sub(1)?;
            let selects = self.selecting_value(variant, discriminant.and_then(|index| fields.get(index)?.ty.as_int()));
            match (self.field(die, &entry, 0), selects) {
                (Some(field), Some(value)) => {
                    values.push((fields.len(), value));
                    fields.push(field);
                }
                (field, _) => {
                    fields.extend(field);
                    known = false;
                }
            }
        }
        let variants = discriminant.filter(|_| known).map(|discriminant| Variants { discriminant, values });
        for field in &mut fields {
            field.ty.deepen(&mut |inner| if depth + 1 < DEPTH { self.record(inner, depth + 1, budget) } else { None });
        }
        Some(Record { name: structure.name.clone(), size: structure.size, fields, variants })
    }

    fn by_id(&self, id: u32) -> Option<Die> {
        self.structs.borrow().get(id.checked_sub(self.first_id)? as usize).copied()
    }

    fn id_of(&self, die: Die) -> u32 {
        let mut all = self.structs.borrow_mut();
        *self.ids.borrow_mut().entry(die).or_insert_with(|| {
            all.push(die);
            self.first_id + (all.len() - 1) as u32
        })
    }

    /// The type of an entry by its `DW_AT_type`; `void` if it has none.
    pub(super) fn type_of(&self, die: Die, entry: &Entry, depth: u32) -> Option<Type> {
        if entry.attr(DW_AT_type).is_none() {
            return Some(Type::Void);
        }
        self.ty(self.referred(die, entry, DW_AT_type)?, depth)
    }

    /// Converts an entry to a type. `depth` counts the references so far.
    pub(super) fn ty(&self, die: Die, depth: u32) -> Option<Type> {
        if depth > DEPTH {
            return None;
        }
        let entry = self.entry(die)?;
        match entry.tag() {
            gimli::DW_TAG_base_type => base(&entry),
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                // A pointer is valid even if its target is missing or unusual.
                let to = self.type_of(die, &entry, depth + 1).unwrap_or(Type::Void);
                Some(to.ptr(Space::User))
            }
            gimli::DW_TAG_array_type => self.array(die, &entry, depth),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => Some(self.aggregate(die, entry)),
            gimli::DW_TAG_enumeration_type => self.enumeration(die).map(Type::Enum),
            gimli::DW_TAG_ptr_to_member_type => Some(Type::I64),
            gimli::DW_TAG_subroutine_type | gimli::DW_TAG_unspecified_type => Some(Type::Void),
            tag if is_shapeless(tag) => self.type_of(die, &entry, depth + 1),
            _ => None,
        }
    }

    fn aggregate(&self, die: Die, entry: Entry) -> Type {
        let union = entry.tag() == gimli::DW_TAG_union_type;
        let name = self.name(die, &entry).unwrap_or_default();
        let table = if union { TypeName::Union } else { TypeName::Struct };
        // A declaration refers to the definition elsewhere.
        let elsewhere = if entry.attr(DW_AT_declaration).is_some() { self.definition(table, name) } else { None };
        let (die, entry) = match elsewhere {
            Some(full) => (full, self.entry(full).unwrap_or(entry)),
            None => (die, entry),
        };
        let size = Self::number(&entry, DW_AT_byte_size).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        Type::Struct(Arc::new(Struct { name: String::from_utf8_lossy(name).into_owned(), union, size, id: self.id_of(die) }))
    }

    fn array(&self, die: Die, entry: &Entry, depth: u32) -> Option<Type> {
        let elem = self.type_of(die, entry, depth + 1)?;
        let lengths: Vec<u32> = self
            .children(die)
            .iter()
            .filter(|(_, e)| e.tag() == gimli::DW_TAG_subrange_type)
            .map(|(_, e)| {
                // An array without a bound is a flexible array member.
                let count = Self::number(e, DW_AT_count);
                let count = count.or_else(|| Self::number(e, DW_AT_upper_bound)?.checked_add(1));
                count.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
            })
            .collect();
        let text = elem == Type::int(1) && self.is_char(die, entry);
        Some(lengths.iter().rev().fold(elem, |ty, n| match ty {
            Type::Int(_) if text && *n > 0 && ty == Type::int(1) => Type::Str(*n),
            ty => Type::Array(Box::new(ty), *n),
        }))
    }

    /// Is an array's element type a character, so that the array is text? `signed char` counts unless it has another name, such
    /// as `int8_t`.
    fn is_char(&self, array: Die, entry: &Entry) -> bool {
        let (mut next, mut renamed) = (self.referred(array, entry, DW_AT_type), false);
        for _ in 0..DEPTH {
            let Some((die, entry)) = next.and_then(|die| Some((die, self.entry(die)?))) else { return false };
            if !is_shapeless(entry.tag()) {
                let name = self.name(die, &entry);
                return name == Some(b"char") || (!renamed && name == Some(b"signed char"));
            }
            renamed |= entry.tag() == gimli::DW_TAG_typedef;
            next = self.referred(die, &entry, DW_AT_type);
        }
        false
    }

    pub(super) fn enumeration(&self, die: Die) -> Option<Arc<Enum>> {
        let entry = self.entry(die)?;
        let bytes = Self::number(&entry, DW_AT_byte_size).filter(|n| matches!(n, 1 | 2 | 4 | 8))? as u8;
        let variants: Vec<(String, i64)> = self
            .children(die)
            .iter()
            .filter(|(_, e)| e.tag() == gimli::DW_TAG_enumerator)
            .filter_map(|(d, e)| Some((String::from_utf8_lossy(self.name(*d, e)?).into_owned(), constant(e)?)))
            .collect();
        let signed = match self.type_of(die, &entry, 1).and_then(|t| t.as_int()) {
            Some(int) => int.signed,
            None => variants.iter().any(|(_, v)| *v < 0),
        };
        let name = String::from_utf8_lossy(self.name(die, &entry).unwrap_or_default()).into_owned();
        Some(Arc::new(Enum { name, int: Int { bytes, signed }, variants }))
    }

    // ── Members

    /// Visits named members, with the offset of the struct that contains them, until `visit` returns false.
    fn each_member(
        &self,
        of: Die,
        base: u32,
        depth: u32,
        budget: &mut u32,
        visit: &mut dyn FnMut(Die, &Entry, u32) -> bool,
    ) -> Option<bool> {
        if depth > DEPTH {
            return None;
        }
        for (die, entry) in self.children(of) {
            let inherited = entry.tag() == gimli::DW_TAG_inheritance;
            // Static members of a class are not part of its layout.
            if !(inherited || entry.tag() == gimli::DW_TAG_member) || entry.attr(DW_AT_declaration).is_some() {
                continue;
            }
            *budget = budget.checked_sub(1)?;
            if !inherited && self.name(die, &entry).is_some() {
                if !visit(die, &entry, base) {
                    return Some(false);
                }
                continue;
            }
            let Some(Type::Struct(inner)) = self.type_of(die, &entry, 0) else { continue };
            // Only an object tells where its virtual base classes are.
            let Some(place) = self.place(die, &entry) else { continue };
            let at = base.checked_add(place)?;
            if !self.each_member(self.by_id(inner.id)?, at, depth + 1, budget, visit)? {
                return Some(false);
            }
        }
        Some(true)
    }

    /// See [`place`].
    pub(super) fn place(&self, die: Die, entry: &Entry) -> Option<u32> {
        place(entry, self.unit(die)?.encoding())
    }

    fn field(&self, die: Die, entry: &Entry, base: u32) -> Option<Field> {
        let name = String::from_utf8_lossy(self.name(die, entry)?).into_owned();
        let ty = self.type_of(die, entry, 0)?;
        let Some(width) = Self::number(entry, DW_AT_bit_size).and_then(|n| u32::try_from(n).ok()) else {
            return Some(Field { name, offset: base.checked_add(self.place(die, entry)?)?, bits: None, ty });
        };
        let bit = match Self::number(entry, DW_AT_data_bit_offset) {
            Some(bit) => u32::try_from(bit).ok()?,
            None => {
                // Before DWARF 4, the offset counts from the most significant bit of a storage unit.
                let unit = Self::number(entry, DW_AT_byte_size).and_then(|n| u32::try_from(n).ok()).unwrap_or(ty.size());
                // It is negative if the field extends beyond its unit, in a packed struct.
                let offset = entry.attr(DW_AT_bit_offset)?;
                let from_top = offset.udata_value().and_then(|n| i64::try_from(n).ok()).or_else(|| offset.sdata_value())?;
                let within = (i64::from(unit) * 8).checked_sub(from_top)?.checked_sub(width.into())?;
                u32::try_from((i64::from(self.place(die, entry)?) * 8).checked_add(within)?).ok()?
            }
        };
        bit_field(name, base, bit, width, ty)
    }
}

/// Is it a qualifier or a typedef, which does not change the layout?
pub(super) fn is_shapeless(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type
            | gimli::DW_TAG_immutable_type
            | gimli::DW_TAG_packed_type
    )
}

/// The offset of a member in bytes. The only expression supported is that of DWARF 2, which adds a constant: for virtual base
/// classes, the object is needed.
fn place(entry: &Entry, encoding: gimli::Encoding) -> Option<u32> {
    let Some(at) = entry.attr(DW_AT_data_member_location) else { return Some(0) };
    let bytes = at.udata_value().or_else(|| match at.exprloc_value()?.operations(encoding).next().ok()?? {
        gimli::Operation::PlusConstant { value } => Some(value),
        _ => None,
    })?;
    u32::try_from(bytes).ok()
}

/// The value of `DW_AT_const_value`. A form of fixed size (`DW_FORM_data1`) does not tell the sign: GCC and Clang write negative
/// numbers as `DW_FORM_sdata`, so all others are extended by zeros.
pub(super) fn constant(entry: &Entry) -> Option<i64> {
    let value = entry.attr(DW_AT_const_value)?;
    value.udata_value().map(|v| v as i64).or_else(|| value.sdata_value())
}

fn base(entry: &Entry) -> Option<Type> {
    let size = u32::try_from(BinaryTypes::number(entry, DW_AT_byte_size)?).ok()?;
    let encoding = match entry.attr(DW_AT_encoding)?.value() {
        gimli::AttributeValue::Encoding(e) => e,
        _ => return None,
    };
    let int = |signed| match size {
        1 | 2 | 4 | 8 => Type::Int(Int { bytes: size as u8, signed }),
        other => raw_bytes(other),
    };
    Some(match encoding {
        gimli::DW_ATE_boolean if size == 1 => Type::Bool,
        gimli::DW_ATE_signed | gimli::DW_ATE_signed_char => int(true),
        gimli::DW_ATE_unsigned | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_boolean | gimli::DW_ATE_UTF | gimli::DW_ATE_ASCII => {
            int(false)
        }
        gimli::DW_ATE_float => float(size),
        // in C, laid out as an array of its real and its imaginary part
        gimli::DW_ATE_complex_float => Type::Array(Box::new(float(size / 2)), 2),
        _ => raw_bytes(size),
    })
}

/// Is it the type of a complex number?
pub(super) fn is_complex(entry: &Entry) -> bool {
    let encoding = entry.attr(DW_AT_encoding).map(gimli::Attribute::value);
    matches!(encoding, Some(gimli::AttributeValue::Encoding(gimli::DW_ATE_complex_float)))
}

/// Is it the type of a floating-point number?
pub(super) fn is_float(entry: &Entry) -> bool {
    let encoding = entry.attr(DW_AT_encoding).map(gimli::Attribute::value);
    entry.tag() == gimli::DW_TAG_base_type
        && matches!(
            encoding,
            Some(gimli::AttributeValue::Encoding(gimli::DW_ATE_float | gimli::DW_ATE_complex_float | gimli::DW_ATE_decimal_float))
        )
}
