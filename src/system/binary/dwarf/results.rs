//! Functions whose result is not in the register of `retval`: floating-point numbers and vectors have registers of their own, which
//! no BPF program reads, Go returns many results on the stack, and an empty value is nowhere.

use gimli::DW_AT_type;

use super::calling_convention::{Class, is_go_result};
use super::no_location::NoLocation;
use super::types::{is_complex, is_float};
use super::{BinaryTypes, DEPTH, Die, Entry};
use crate::system::{Abi, Function};

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

impl BinaryTypes {
    /// Why the register with results does not have that of a function; `None` if it does, or if that is not known.
    pub fn unreadable_result(&self, function: &Function) -> Option<NoLocation> {
        let die = self.function(function)?;
        let entry = self.entry(die)?;
        if function.abi != Abi::SystemV {
            return self.unreadable_go_result(die, &entry);
        }
        let ty = self.attribute_type(die, &entry)?;
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
        let divided = two_kinds && size <= 16 && of_type.tag() != gimli::DW_TAG_union_type && !self.is_of_c(die);
        let class = self.class(Some(ty));
        let in_vector = special || homogeneous || divided || matches!(class, Some(Class::Float(1..) | Class::Mixed));
        match class {
            // An object that is not trivially copyable is in memory.
            _ if in_vector && self.may_go_by_reference(Some(ty), 0) => Some(NoLocation::Unstated),
            _ if in_vector => Some(NoLocation::Vector),
            Some(Class::Float(_)) if parts.is_empty() => Some(NoLocation::Empty),
            // The System V ABI returns the address in the register of `retval`.
            Some(Class::Memory(_) | Class::Reference) => (!self.arch.convention.result_comes_first).then_some(NoLocation::Memory),
            Some(Class::Integers(_) | Class::Float(_) | Class::Mixed) | None => None,
        }
    }

    /// Go declares results as parameters. `retval` is the first word of the first that is not empty. Each result is entirely in
    /// registers or entirely on the stack (<https://go.dev/s/regabi>, "Function call argument and result passing").
    fn unreadable_go_result(&self, die: Die, entry: &Entry) -> Option<NoLocation> {
        let results = self.parameters(die, entry).into_iter().filter(|(_, e)| is_go_result(e));
        let mut types = results.map(|(die, entry)| self.attribute_type(die, &entry)).peekable();
        types.peek()?;
        for ty in types {
            let parts = self.parts(ty?);
            let integers = parts.iter().filter(|p| **p == Part::Integer).count();
            let Some(first) = parts.first() else { continue };
            return match first {
                _ if integers > self.arch.go_args.len() || parts.len() - integers > GO_FLOATS || self.has_go_array(ty?, 0) => {
                    Some(NoLocation::Memory)
                }
                Part::Integer => None,
                Part::Float | Part::Extended | Part::Vector => Some(NoLocation::Float),
            };
        }
        Some(NoLocation::Empty)
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
