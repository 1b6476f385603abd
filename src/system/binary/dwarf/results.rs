//! Functions whose result is not in the register of `retval`: floating-point numbers and vectors have registers of their own, which
//! no BPF program reads.

use gimli::DW_AT_type;

use super::calling_convention::{Class, is_go_result};
use super::no_location::NoLocation;
use super::types::{is_complex, is_float};
use super::{BinaryTypes, DEPTH, Die};
use crate::system::machine::arch::HERE;
use crate::system::{Abi, Function};

/// AAPCS64 returns an aggregate of up to this many equal floating-point numbers or vectors in registers.
const HOMOGENEOUS: usize = 4;
/// Limit for the parts of a value that are looked at.
const PARTS: usize = 16;

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
            // Go declares results as parameters, and `retval` is the first word of the first.
            let (result, entry) = self.parameters(die, &entry).into_iter().find(|(_, e)| is_go_result(e))?;
            let parts = self.parts(self.attribute_type(result, &entry)?);
            return (parts.first() == Some(&Part::Float)).then_some(NoLocation::Float);
        }
        let ty = self.attribute_type(die, &entry)?;
        let parts = self.parts(ty);
        let (_, of_type) = self.bare(ty)?;
        if is_float(&of_type) {
            return Some(NoLocation::Float);
        }
        let size = self.ty(ty, 0)?.size();
        let special = parts.iter().any(|p| matches!(p, Part::Vector | Part::Extended)) && (size <= 16 || parts.len() == 1);
        let homogeneous = !HERE.convention.mixed && parts.len() <= HOMOGENEOUS && !parts.is_empty() && !parts.contains(&Part::Integer);
        if special || homogeneous {
            return Some(NoLocation::Vector);
        }
        match self.class(Some(ty))? {
            // an empty value has no register
            Class::Integers(_) | Class::Float(0) => None,
            Class::Float(_) | Class::Mixed => Some(NoLocation::Vector),
            // The System V ABI returns the address in the register of `retval`.
            Class::Memory(_) | Class::Reference => (!HERE.convention.result_comes_first).then_some(NoLocation::Memory),
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
            _ if !is_float(&entry) => all.push(Part::Integer),
            _ if HERE.convention.mixed && !self.is_in_registers(die, &entry) => all.push(Part::Extended),
            _ => all.resize(all.len() + if is_complex(&entry) { 2 } else { 1 }, Part::Float),
        }
    }
}
