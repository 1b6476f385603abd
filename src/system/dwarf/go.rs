//! Where a Go function's arguments are at its entry: `src/cmd/compile/abi-internal.md`, "Function call argument and result
//! passing". An argument goes in registers as a whole, a register for each simple part of it, or else on the stack.

use gimli::{DW_AT_byte_size, DW_AT_type, DW_AT_variable_parameter};

use super::calls::is_float;
use super::{Argument, ArgumentPlace, BinaryTypes, DEPTH, Die};
use crate::system::Abi;
use crate::types::Type;

/// Registers for integers, and for floating point.
const REGISTERS: (u32, u32) = (9, 15);
/// Simple parts of one argument that are counted before it is given up.
const PARTS: usize = 32;

/// What a simple part is: an integer of so many bytes, or floating point.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Integer(u64),
    Float,
}

impl BinaryTypes {
    /// The arguments of the function at this address, in order, without its results.
    pub(super) fn go_arguments(&self, function: Die, abi: Abi) -> Vec<Argument> {
        let (mut integers, mut floats, mut stack) = (0u32, 0u32, 0u32);
        let mut all = Vec::new();
        for (die, entry) in self.children(function) {
            let result = entry.attr(DW_AT_variable_parameter).is_some_and(|a| a.value() == gimli::AttributeValue::Flag(true));
            if entry.tag() != gimli::DW_TAG_formal_parameter || result {
                continue;
            }
            let of = self.attribute_type(die, &entry);
            let ty = of.and_then(|t| self.ty(t, 0)).unwrap_or(Type::U64);
            let mut parts = Vec::new();
            let simple = of.and_then(|t| self.go_parts(t, 0, &mut parts)).is_some();
            let count = |part: fn(&Part) -> bool| parts.iter().filter(|p| part(p)).count() as u32;
            let (ints, reals) = (count(|p| matches!(p, Part::Integer(_))), count(|p| *p == Part::Float));
            let fits = simple && abi == Abi::Go && integers + ints <= REGISTERS.0 && floats + reals <= REGISTERS.1;
            let place = if fits {
                let first = integers;
                (integers, floats) = (integers + ints, floats + reals);
                // registers are as memory is only where each part is as wide as one
                let whole = parts.len() == 1 || parts.iter().all(|p| *p == Part::Integer(8));
                (whole && reals == 0 && ints > 0).then_some(ArgumentPlace::Registers { first, count: ints })
            } else {
                stack = stack.next_multiple_of(ty.align().clamp(1, 8));
                let at = stack;
                stack = stack.saturating_add(ty.size());
                Some(ArgumentPlace::Stack(at)).filter(|_| !parts.contains(&Part::Float) || simple && ints > 0)
            };
            let name = self.origin_name(die, &entry, 0).map(|n| String::from_utf8_lossy(n).into_owned());
            all.push(Argument { name: name.unwrap_or_else(|| format!("arg{}", all.len())), ty, place });
        }
        all
    }

    /// The simple parts of a type, in order; none where it cannot go in registers, whatever these are.
    fn go_parts(&self, of: Die, depth: u32, parts: &mut Vec<Part>) -> Option<()> {
        if depth > DEPTH || parts.len() > PARTS {
            return None;
        }
        let (die, entry) = self.bare(of)?;
        match entry.tag() {
            gimli::DW_TAG_structure_type => {
                for (_, member) in self.children(die).iter().filter(|(_, m)| m.tag() == gimli::DW_TAG_member) {
                    self.go_parts(self.referred(die, member, DW_AT_type)?, depth + 1, parts)?;
                }
            }
            gimli::DW_TAG_array_type => {
                let element = self.referred(die, &entry, DW_AT_type)?;
                let whole = self.ty(die, 0)?.size();
                match whole.checked_div(self.ty(element, 0)?.size().max(1))? {
                    0 => {}
                    1 => self.go_parts(element, depth + 1, parts)?,
                    _ => return None,
                }
            }
            _ if is_float(&entry) => {
                // a complex number is two
                let size = Self::number(&entry, DW_AT_byte_size).unwrap_or(8);
                let encoding = entry.attr(gimli::DW_AT_encoding).map(gimli::Attribute::value);
                let complex = encoding == Some(gimli::AttributeValue::Encoding(gimli::DW_ATE_complex_float));
                parts.extend(std::iter::repeat_n(Part::Float, if complex || size > 8 { 2 } else { 1 }));
            }
            _ => parts.push(Part::Integer(Self::number(&entry, DW_AT_byte_size).unwrap_or(8))),
        }
        Some(())
    }
}
