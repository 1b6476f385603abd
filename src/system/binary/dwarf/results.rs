//! What the register of `retval` has of a function's result. It has nothing of some: floating-point numbers and vectors have
//! registers of their own, which no BPF program reads, Go returns many results on the stack, and an empty value is nowhere. Of a
//! small integer, it has only the low bits.

use gimli::DW_AT_type;
use std::collections::BTreeSet;

use super::calling_convention::{Class, is_go_result};
use super::no_location::NoLocation;
use super::types::{is_complex, is_float};
use super::{BinaryTypes, DEPTH, Die, Entry};
use crate::system::{Abi, Function};
use crate::types::{Int, Type};

/// AAPCS64 returns an aggregate of up to this many equal floating-point numbers or vectors in registers.
const HOMOGENEOUS: usize = 4;
/// Limit for the parts of a value that are looked at.
const PARTS: usize = 32;
/// Number of registers in which Go returns floating-point numbers.
const GO_FLOATS: usize = 15;

/// A part of a value that is not an aggregate.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Integer,
    Float,
    /// A `long double` of the x87 unit.
    Extended,
    Vector,
}

/// The number at the start of a value. That of a Rust enum is usually its discriminant, which precedes the variants.
fn first_number(ty: &Type) -> Option<Int> {
    if let Type::Array(element, _) = ty {
        return first_number(element);
    }
    let Type::Record(record) = ty else { return ty.as_int() };
    let mut at_start = record.fields.iter().filter(|field| field.offset == 0 && field.bits.is_none() && field.ty.size() > 0);
    at_start.find_map(|field| first_number(&field.ty))
}

impl BinaryTypes {
    /// See [`crate::system::TargetInfo::retval`].
    pub fn retval(&self, function: &Function) -> Result<Option<Int>, NoLocation> {
        let Some(die) = self.function(function) else { return Ok(None) };
        let Some(entry) = self.entry(die) else { return Ok(None) };
        let (ty, unreadable) = match function.abi {
            Abi::SystemV => {
                let Some(ty) = self.attribute_type(die, &entry) else {
                    // An assembler describes functions without types.
                    let unknown = self.mentions_type(die, &entry)
                        || self.language(die).is_none_or(|language| language == gimli::DW_LANG_Mips_Assembler);
                    return if unknown { Ok(None) } else { Err(NoLocation::Void) };
                };
                (Some(ty), self.unreadable_result(die, ty))
            }
            Abi::Go | Abi::GoStack => self.go_result(die, &entry),
        };
        match unreadable {
            Some(why) => Err(why),
            None => Ok(ty.and_then(|ty| self.result_int(ty, self.is_of_c(die))).filter(|int| int.bytes < 8)),
        }
    }

    /// See [`crate::system::TargetInfo::result_type`].
    pub fn result_type(&self, function: &Function) -> Option<Type> {
        let die = self.function(function)?;
        let entry = self.entry(die)?;
        let ty = match function.abi {
            Abi::SystemV => self.attribute_type(die, &entry),
            Abi::Go | Abi::GoStack => self.go_result(die, &entry).0,
        };
        self.ty(ty?, 0)
    }

    /// The integer in the low bits of the register with results of a type: the result, or its first number. C packs the members of a
    /// small struct into a register, and only what is above them may be anything; other languages return two numbers in two registers.
    fn result_int(&self, ty: Die, of_c: bool) -> Option<Int> {
        let mut of_type = self.ty(ty, 0)?;
        if let Some(int) = of_type.as_int() {
            return Some(int);
        }
        let size = of_type.size();
        if of_c {
            let in_register = matches!(self.class(Some(ty)), Some(Class::Integers(1))) && !self.may_go_by_reference(Some(ty), 0);
            return u8::try_from(size)
                .ok()
                .filter(|bytes| in_register && matches!(bytes, 1 | 2 | 4))
                .map(|bytes| Int { bytes, signed: false });
        }
        let is_union = matches!(&of_type, Type::Struct(of) if of.union);
        if is_union || size > 8 && (size > 16 || self.parts(ty).len() != 2) {
            return None;
        }
        of_type.deepen(&mut |inner| self.expand(inner));
        first_number(&of_type)
    }

    /// Does a function's entry have a type, even if it is damaged?
    fn mentions_type(&self, die: Die, entry: &Entry) -> bool {
        let (mut die, mut entry) = (die, entry.clone());
        for _ in 0..DEPTH {
            if entry.attr(DW_AT_type).is_some() {
                return true;
            }
            let Some((next, found)) = self.origin(die, &entry).and_then(|origin| Some((origin, self.entry(origin)?))) else { return false };
            (die, entry) = (next, found);
        }
        true
    }

    /// Why the register with results does not have one of this type; `None` if it does, or if that is not known.
    fn unreadable_result(&self, function: Die, ty: Die) -> Option<NoLocation> {
        let parts = self.parts(ty);
        let (_, of_type) = self.bare(ty)?;
        if is_float(&of_type) {
            return Some(NoLocation::Float);
        }
        let size = self.ty(ty, 0)?.size();
        let special = parts.iter().any(|p| matches!(p, Part::Vector | Part::Extended)) && (size <= 16 || parts.len() == 1);
        let homogeneous = !self.arch.convention.mixed && parts.len() <= HOMOGENEOUS && !parts.is_empty() && !parts.contains(&Part::Integer);
        // Other languages, such as Rust, return each of the two numbers in a register of its kind, although both fit into one.
        let two_kinds = parts.len() == 2 && parts.contains(&Part::Float) && parts.contains(&Part::Integer);
        let divided = two_kinds && size <= 16 && of_type.tag() != gimli::DW_TAG_union_type && !self.is_of_c(function);
        let class = self.class(Some(ty));
        let in_part = divided || matches!(class, Some(Class::Mixed));
        let in_vector = special || homogeneous || in_part || matches!(class, Some(Class::Float(1..)));
        let in_doubt = || (9..=16).contains(&size) && self.language(function) == Some(gimli::DW_LANG_Rust) && !self.is_scalar_pair(ty);
        match class {
            _ if in_doubt() => Some(NoLocation::MemoryOrRegisters),
            // An object that is not trivially copyable is in memory.
            _ if in_vector && self.may_go_by_reference(Some(ty), 0) => Some(NoLocation::Unstated),
            _ if in_part => Some(NoLocation::VectorPart),
            _ if in_vector => Some(NoLocation::Vector),
            Some(Class::Float(_)) if parts.is_empty() => Some(NoLocation::Empty),
            // The System V ABI returns the address in the register of `retval`.
            Some(Class::Memory(_) | Class::Reference) => (!self.arch.convention.result_comes_first).then_some(NoLocation::Memory),
            Some(Class::Integers(_) | Class::Float(_) | Class::Mixed) | None => None,
        }
    }

    /// Does Rust return this value in two registers or one? It does if all variants have the same one or two numbers; otherwise the
    /// version of the compiler decides (`Abi::ScalarPair` of rustc's layouts).
    fn is_scalar_pair(&self, ty: Die) -> bool {
        let mut scalars = BTreeSet::new();
        self.add_scalars(ty, 0, 0, &mut scalars) && scalars.len() <= 2
    }

    /// Adds the offsets and sizes of the numbers of a value. Returns false if it has others than numbers, or too many.
    fn add_scalars(&self, ty: Die, offset: u64, depth: u32, all: &mut BTreeSet<(u64, u32)>) -> bool {
        let Some((die, entry)) = self.bare(ty).filter(|_| depth <= DEPTH && all.len() < PARTS) else { return false };
        let size = |ty| self.ty(ty, 0).map_or(0, |ty| ty.size());
        let mut member = |(die, entry): &(Die, Entry)| {
            let at = Self::number(entry, gimli::DW_AT_data_member_location).unwrap_or(0);
            self.referred(*die, entry, DW_AT_type).is_some_and(|ty| self.add_scalars(ty, offset.saturating_add(at), depth + 1, all))
        };
        match entry.tag() {
            _ if size(ty) == 0 => true,
            gimli::DW_TAG_structure_type => self.children(die).iter().all(|child| match child.1.tag() {
                gimli::DW_TAG_member => member(child),
                gimli::DW_TAG_variant_part => self.children(child.0).iter().all(|part| match part.1.tag() {
                    gimli::DW_TAG_member => member(part),
                    gimli::DW_TAG_variant => self.children(part.0).iter().filter(|(_, e)| e.tag() == gimli::DW_TAG_member).all(&mut member),
                    _ => true,
                }),
                _ => true,
            }),
            gimli::DW_TAG_array_type | gimli::DW_TAG_union_type => false,
            _ => {
                all.insert((offset, size(ty)));
                true
            }
        }
    }

    /// Go declares results as parameters. `retval` is the first word of the first that is not empty. Each result is entirely in
    /// registers or entirely on the stack (<https://go.dev/s/regabi>, "Function call argument and result passing").
    fn go_result(&self, die: Die, entry: &Entry) -> (Option<Die>, Option<NoLocation>) {
        let results = self.parameters(die, entry).into_iter().filter(|(_, e)| is_go_result(e));
        let mut types = results.map(|(die, entry)| self.attribute_type(die, &entry)).peekable();
        if types.peek().is_none() {
            return (None, Some(NoLocation::Void));
        }
        for ty in types {
            let Some(ty) = ty else { return (None, None) };
            let parts = self.parts(ty);
            let integers = parts.iter().filter(|p| **p == Part::Integer).count();
            let Some(first) = parts.first() else { continue };
            let unreadable = match first {
                _ if integers > self.arch.go_args.len() || parts.len() - integers > GO_FLOATS || self.has_go_array(ty, 0) => {
                    Some(NoLocation::Memory)
                }
                Part::Integer => None,
                Part::Float | Part::Extended | Part::Vector => Some(NoLocation::Float),
            };
            return (Some(ty), unreadable);
        }
        (None, Some(NoLocation::Empty))
    }

    /// Does the value contain an array of several elements? No register holds one.
    fn has_go_array(&self, ty: Die, depth: u32) -> bool {
        let Some((die, entry)) = self.bare(ty).filter(|_| depth <= DEPTH) else { return false };
        let within = |(die, entry): (Die, &Entry)| self.referred(die, entry, DW_AT_type).is_some_and(|ty| self.has_go_array(ty, depth + 1));
        match entry.tag() {
            gimli::DW_TAG_array_type => {
                let size = |ty| self.ty(ty, 0).map_or(0, |ty| ty.size());
                let element = self.referred(die, &entry, DW_AT_type).map_or(0, size);
                size(die) > element || within((die, &entry))
            }
            gimli::DW_TAG_structure_type => self.children(die).iter().any(|(die, entry)| within((*die, entry))),
            _ => false,
        }
    }

    /// The first parts of a value.
    fn parts(&self, ty: Die) -> Vec<Part> {
        let mut all = Vec::new();
        self.add_parts(ty, 0, &mut all);
        all
    }

    fn add_parts(&self, ty: Die, depth: u32, all: &mut Vec<Part>) {
        let Some((die, entry)) = self.bare(ty).filter(|_| depth <= DEPTH && all.len() < PARTS) else { return };
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                for (member, entry) in self.children(die) {
                    // An enum of Rust begins with the number of its variant.
                    if entry.tag() == gimli::DW_TAG_variant_part {
                        all.push(Part::Integer);
                    }
                    if matches!(entry.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance)
                        && entry.attr(gimli::DW_AT_declaration).is_none()
                        && let Some(ty) = self.referred(member, &entry, DW_AT_type)
                    {
                        self.add_parts(ty, depth + 1, all);
                    }
                }
            }
            gimli::DW_TAG_array_type if entry.attr(gimli::DW_AT_GNU_vector).is_some() => all.push(Part::Vector),
            gimli::DW_TAG_array_type => {
                let Some(element) = self.referred(die, &entry, DW_AT_type) else { return };
                let size = |ty| self.ty(ty, 0).map_or(0, |ty| ty.size());
                for _ in 0..(size(die) / size(element).max(1)).min(PARTS as u32) {
                    self.add_parts(element, depth + 1, all);
                }
            }
            // `()` of Rust
            _ if Self::number(&entry, gimli::DW_AT_byte_size) == Some(0) => {}
            _ if !is_float(&entry) => all.push(Part::Integer),
            _ if self.arch.convention.mixed && !self.is_in_registers(die, &entry) => all.push(Part::Extended),
            _ => all.resize(all.len() + if is_complex(&entry) { 2 } else { 1 }, Part::Float),
        }
    }
}
