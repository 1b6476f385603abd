//! Where a function's arguments are at its entry: the System V ABI for x86-64 (section 3.2.3, "Parameter Passing").

use gimli::{DW_AT_abstract_origin, DW_AT_byte_size, DW_AT_calling_convention, DW_AT_encoding, DW_AT_specification, DW_AT_type};

use super::types::is_shapeless;
use super::{BinaryTypes, DEPTH, Die, Entry};
use crate::system::Abi;
use crate::types::Type;

/// Registers that integers are passed in.
const REGISTERS: u32 = 6;
/// Registers that floating point is passed in.
const FLOAT_REGISTERS: u32 = 8;

/// An argument of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// As declared; `argN` where it has no name.
    pub name: String,
    /// Pointers lead into the process's memory.
    pub ty: Type,
    /// Where it is; none for what a BPF program cannot read (floating point).
    pub place: Option<ArgumentPlace>,
}

/// Where an argument is when the function is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgumentPlace {
    /// In so many integer registers from this one on.
    Registers {
        /// The first, from 0.
        first: u32,
        /// 1 or 2.
        count: u32,
    },
    /// On the stack, so many bytes above the return address's end.
    Stack(u32),
    /// Elsewhere in memory: its address is in this register.
    Reference(u32),
}

/// How an argument travels.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Class {
    Integers(u32),
    /// In so many registers of floating point, which no BPF program reads.
    Float(u32),
    /// One of each kind of register: as unreadable, but it takes an integer register.
    Mixed,
    /// So many bytes on the stack.
    Memory(u32),
    Reference,
}

#[derive(Clone, Copy, PartialEq)]
enum Eight {
    Integer,
    Float,
}

impl BinaryTypes {
    /// The arguments of the function at this address, in order. None: the debug information does not know the function.
    pub fn arguments(&self, address: u64, abi: Abi) -> Option<Vec<Argument>> {
        let function = *self.index.functions.get(&address)?;
        match abi {
            Abi::SystemV => {}
            Abi::Go | Abi::GoStack => return Some(self.go_arguments(function, abi)),
        }
        let entry = self.entry(function)?;
        let mut registers = 0u32;
        // a large result's address comes before the arguments
        if matches!(self.class(self.attribute_type(function, &entry)), Some(Class::Memory(_) | Class::Reference)) {
            registers = 1;
        }
        let (mut floats, mut stack) = (0u32, 0u32);
        let mut all = Vec::new();
        for (die, entry) in self.children(function) {
            if entry.tag() != gimli::DW_TAG_formal_parameter {
                continue;
            }
            let ty = self.attribute_type(die, &entry);
            let class = self.class(ty).unwrap_or(Class::Float(1));
            let align = ty.map_or(8, |ty| self.stack_align(ty, 0));
            let take = |n: u32, registers: &mut u32| {
                let first = *registers;
                (first + n <= REGISTERS).then(|| {
                    *registers += n;
                    ArgumentPlace::Registers { first, count: n }
                })
            };
            let push = |size: u32, stack: &mut u32| {
                let at = stack.checked_next_multiple_of(align).unwrap_or(u32::MAX);
                *stack = at.saturating_add(size.max(1).checked_next_multiple_of(8).unwrap_or(size));
                ArgumentPlace::Stack(at)
            };
            let place = match class {
                Class::Integers(n) => Some(take(n, &mut registers).unwrap_or_else(|| push(n * 8, &mut stack))),
                Class::Memory(size) => Some(push(size, &mut stack)),
                Class::Float(n) if floats + n <= FLOAT_REGISTERS => {
                    floats += n;
                    None
                }
                Class::Float(n) => {
                    let _ = push(n * 8, &mut stack);
                    None
                }
                Class::Mixed if floats < FLOAT_REGISTERS && registers < REGISTERS => {
                    floats += 1;
                    registers += 1;
                    None
                }
                // whole or not at all: then it can be read
                Class::Mixed => Some(push(16, &mut stack)),
                Class::Reference => match take(1, &mut registers) {
                    Some(ArgumentPlace::Registers { first, .. }) => Some(ArgumentPlace::Reference(first)),
                    _ => {
                        let _ = push(8, &mut stack);
                        None
                    }
                },
            };
            let name = self.origin_name(die, &entry, 0).map(|n| String::from_utf8_lossy(n).into_owned());
            let ty = ty.and_then(|t| self.ty(t, 0)).unwrap_or(Type::U64);
            all.push(Argument { name: name.unwrap_or_else(|| format!("arg{}", all.len())), ty, place });
        }
        Some(all)
    }

    /// A name, its own or that of what it is an instance of.
    pub(super) fn origin_name(&self, die: Die, entry: &Entry, depth: u32) -> Option<&'static [u8]> {
        if depth > DEPTH {
            return None;
        }
        self.name(die, entry).or_else(|| {
            let origin = self.origin(die, entry)?;
            self.origin_name(origin, &self.entry(origin)?, depth + 1)
        })
    }

    fn origin(&self, die: Die, entry: &Entry) -> Option<Die> {
        self.referred(die, entry, DW_AT_abstract_origin).or_else(|| self.referred(die, entry, DW_AT_specification))
    }

    /// The entry of the type, its own or that of what it is an instance of.
    pub(super) fn attribute_type(&self, die: Die, entry: &Entry) -> Option<Die> {
        let (mut die, mut entry) = (die, entry.clone());
        for _ in 0..DEPTH {
            if let Some(ty) = self.referred(die, &entry, DW_AT_type) {
                return Some(ty);
            }
            die = self.origin(die, &entry)?;
            entry = self.entry(die)?;
        }
        None
    }

    /// None: `void`, or a type that cannot be told.
    fn class(&self, ty: Option<Die>) -> Option<Class> {
        let (die, entry) = self.bare(ty?)?;
        let size = Self::number(&entry, DW_AT_byte_size).and_then(|n| u32::try_from(n).ok());
        let aggregate = matches!(
            entry.tag(),
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type | gimli::DW_TAG_array_type
        );
        if !aggregate {
            return match (is_float(&entry), size.unwrap_or(8)) {
                (true, size @ 9..) if !self.is_in_registers(die, &entry) => Some(Class::Memory(size)),
                (true, 9..) if is_complex(&entry) => Some(Class::Float(2)),
                (true, _) => Some(Class::Float(1)),
                (false, 0..=8) => Some(Class::Integers(1)),
                (false, _) => Some(Class::Integers(2)),
            };
        }
        // what is not trivially copyable is passed by reference
        if let Some(gimli::AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) =
            entry.attr(DW_AT_calling_convention).map(gimli::Attribute::value)
        {
            return Some(Class::Reference);
        }
        let size = size?;
        if size > 16 {
            return Some(Class::Memory(size));
        }
        let mut eights = [None; 2];
        if self.classify(die, &entry, 0, 0, &mut eights).is_none() {
            return Some(Class::Memory(size));
        }
        Some(match eights {
            [Some(Eight::Integer), Some(Eight::Integer)] => Class::Integers(2),
            [Some(Eight::Integer), None] => Class::Integers(1),
            [Some(Eight::Float), Some(Eight::Float)] => Class::Float(2),
            [Some(Eight::Float), None] => Class::Float(1),
            [None, _] => Class::Float(0), // empty
            _ => Class::Mixed,
        })
    }

    /// Of floating point that is longer than eight bytes: not the x87's, `long double`.
    fn is_in_registers(&self, die: Die, entry: &Entry) -> bool {
        self.name(die, entry).is_some_and(|name| !name.windows(11).any(|part| part == b"long double"))
    }

    /// To a multiple of what is an argument of this type put on the stack, bytes: 8, or 16.
    fn stack_align(&self, ty: Die, depth: u32) -> u32 {
        let Some((die, entry)) = self.bare(ty).filter(|_| depth <= DEPTH) else { return 8 };
        let declared = Self::number(&entry, gimli::DW_AT_alignment).unwrap_or(0);
        if declared >= 16 {
            return 16;
        }
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let member = |(die, member): (Die, Entry)| {
                    let is_one = matches!(member.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
                    let declared = Self::number(&member, gimli::DW_AT_alignment).unwrap_or(0);
                    let own = self.referred(die, &member, DW_AT_type).filter(|_| is_one).map_or(8, |ty| self.stack_align(ty, depth + 1));
                    if is_one && declared >= 16 { 16 } else { own }
                };
                self.children(die).into_iter().map(member).max().unwrap_or(8)
            }
            gimli::DW_TAG_array_type => self.referred(die, &entry, DW_AT_type).map_or(8, |ty| self.stack_align(ty, depth + 1)),
            // complex numbers are two of half the size
            gimli::DW_TAG_base_type => match Self::number(&entry, DW_AT_byte_size) {
                Some(16..) if !is_complex(&entry) => 16,
                Some(32..) => 16,
                _ => 8,
            },
            _ => 8,
        }
    }

    pub(super) fn bare(&self, ty: Die) -> Option<(Die, Entry)> {
        let mut die = ty;
        for _ in 0..DEPTH {
            let entry = self.entry(die)?;
            if !is_shapeless(entry.tag()) {
                return Some((die, entry));
            }
            die = self.referred(die, &entry, DW_AT_type)?;
        }
        None
    }

    /// Which eight bytes hold integers; none where something is not at its natural place, so that all goes by memory.
    fn classify(&self, die: Die, entry: &Entry, at: u32, depth: u32, eights: &mut [Option<Eight>; 2]) -> Option<()> {
        if depth > DEPTH {
            return None;
        }
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                for (member_die, member) in self.children(die) {
                    if !matches!(member.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance)
                        || member.attr(gimli::DW_AT_declaration).is_some()
                    {
                        continue;
                    }
                    let bits = u32::try_from(Self::number(&member, gimli::DW_AT_data_bit_offset).unwrap_or(0)).ok()?;
                    let offset = self.place(member_die, &member)?.checked_add(bits / 8)?;
                    let (inner, entry) = self.bare(self.referred(member_die, &member, DW_AT_type)?)?;
                    let bits = member.attr(gimli::DW_AT_bit_size).is_some();
                    if bits {
                        *eights.get_mut(at.checked_add(offset)? as usize / 8)? = Some(Eight::Integer);
                    } else {
                        self.classify(inner, &entry, at.checked_add(offset)?, depth + 1, eights)?;
                    }
                }
                Some(())
            }
            gimli::DW_TAG_array_type => {
                let whole = self.ty(die, 0)?;
                let (inner, elem) = self.bare(self.referred(die, entry, DW_AT_type)?)?;
                let step = self.ty(inner, 0)?.size().max(1);
                for n in 0..(whole.size() / step).min(16) {
                    self.classify(inner, &elem, at.checked_add(n * step)?, depth + 1, eights)?;
                }
                Some(())
            }
            _ => {
                let size = Self::number(entry, DW_AT_byte_size).unwrap_or(8);
                if size == 0 || u64::from(at) % size.min(8) != 0 {
                    return None;
                }
                if is_float(entry) && size > 8 && !self.is_in_registers(die, entry) {
                    return None;
                }
                for here in eights.get_mut(at as usize / 8..)?.iter_mut().take(size.div_ceil(8) as usize) {
                    if is_float(entry) {
                        here.get_or_insert(Eight::Float);
                    } else {
                        *here = Some(Eight::Integer);
                    }
                }
                Some(())
            }
        }
    }
}

fn is_complex(entry: &Entry) -> bool {
    let encoding = entry.attr(DW_AT_encoding).map(gimli::Attribute::value);
    matches!(encoding, Some(gimli::AttributeValue::Encoding(gimli::DW_ATE_complex_float)))
}

pub(super) fn is_float(entry: &Entry) -> bool {
    let encoding = entry.attr(DW_AT_encoding).map(gimli::Attribute::value);
    entry.tag() == gimli::DW_TAG_base_type
        && matches!(
            encoding,
            Some(gimli::AttributeValue::Encoding(gimli::DW_ATE_float | gimli::DW_ATE_complex_float | gimli::DW_ATE_decimal_float))
        )
}
