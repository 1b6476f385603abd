//! The arguments of a function, and their locations at its entry by the C calling convention: the System V ABI for x86-64
//! (section 3.2.3, "Parameter Passing"), AAPCS64 for AArch64 (section 6.8.2).
//!
//! The debug information has the locations ([`super::locations`]). The convention only confirms them where it binds the compiler:
//! for functions of C and C++ that other files call.

use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_artificial, DW_AT_byte_size, DW_AT_calling_convention, DW_AT_external, DW_AT_language,
    DW_AT_producer, DW_AT_specification, DW_AT_type, DW_AT_variable_parameter,
};

use super::locations::{self, ArgumentLocation, Source};
use super::no_location::NoLocation;
use super::types::{is_complex, is_float, is_shapeless};
use super::{BinaryTypes, DEPTH, Die, Entry};
use crate::system::{Function, binary::elf};
use crate::types::Type;

/// Number of registers that pass floating-point arguments.
const FLOAT_REGISTERS: u32 = 8;
/// Limit for the part of a function that is analyzed, in bytes.
const MAX_ANALYZED_BYTES: u64 = 4096;

/// An argument of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The declared name, or `argN`.
    pub name: String,
    /// The type. Pointers are to the memory of the process.
    pub ty: Type,
    /// The declared type, in C syntax.
    pub spelled: String,
    /// Its location, or the reason why it cannot be read.
    pub location: Result<ArgumentLocation, NoLocation>,
}

/// Is this parameter of a Go function one of its results?
pub(super) fn is_go_result(parameter: &Entry) -> bool {
    parameter.attr(DW_AT_variable_parameter).is_some_and(|a| a.value() == AttributeValue::Flag(true))
}

/// How an argument is passed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Class {
    Integers(u32),
    /// In this many floating-point registers, which BPF programs cannot read.
    Float(u32),
    /// In an integer register and a floating-point register: unreadable, but it uses up an integer register.
    Mixed,
    /// On the stack, with this size in bytes.
    Memory(u32),
    Reference,
}

#[derive(Clone, Copy, PartialEq)]
enum Eightbyte {
    Integer,
    Float,
}

impl BinaryTypes {
    /// Returns the arguments of a function, in order, or `None` if the debug information does not have the function.
    pub fn arguments(&self, function: &Function) -> Option<Vec<Argument>> {
        let die = self.function(function)?;
        let entry = self.entry(die)?;
        let mut parameters = self.parameters(die, &entry);
        // Go declares results as parameters.
        parameters.retain(|(_, e)| !is_go_result(e));
        let types: Vec<Option<Type>> = parameters.iter().map(|(d, e)| self.attribute_type(*d, e).and_then(|t| self.ty(t, 0))).collect();
        let frame = self.frame(die, &entry, function)?;
        let mut wanted: Vec<locations::ArgumentSearch> =
            parameters.iter().zip(&types).map(|((d, e), ty)| self.start_search(*d, e, ty.as_ref())).collect();
        locations::find(&mut wanted, &frame, self.code(function), function.addr);
        let mut found: Vec<Result<ArgumentLocation, NoLocation>> = wanted.iter().map(locations::ArgumentSearch::location).collect();
        locations::check_register_order(&mut found, &frame);
        if self.is_bound(die, &entry, function) {
            let disagree = |result| {
                let conventional = self.conventional(result, &parameters, &found).into_iter();
                let differs = |((found, wanted), by_convention): (
                    (&Result<ArgumentLocation, NoLocation>, &locations::ArgumentSearch),
                    Option<ArgumentLocation>,
                )| {
                    matches!((found, by_convention), (Ok(place), Some(other)) if !place.agrees(&other, &wanted.value_bytes))
                };
                found.iter().zip(&wanted).zip(conventional).map(differs).collect::<Vec<bool>>()
            };
            let by_result = self.result(die, &entry).into_iter().map(disagree);
            let fewest = by_result.min_by_key(|all| all.iter().filter(|d| **d).count()).unwrap_or_default();
            for (found, _) in found.iter_mut().zip(fewest).filter(|(_, disagree)| *disagree) {
                *found = Err(NoLocation::Disagrees);
            }
        }
        let named = parameters.iter().zip(types).zip(found).enumerate().map(|(n, (((die, entry), ty), place))| {
            let name = self.origin_name(*die, entry, 0).map(|n| String::from_utf8_lossy(n).into_owned());
            let spelled = self.spelled(self.attribute_type(*die, entry));
            Argument { name: name.unwrap_or_else(|| format!("arg{n}")), ty: ty.unwrap_or(Type::U64), spelled, location: place }
        });
        Some(named.collect())
    }

    /// Is the function declared `noreturn`?
    pub fn never_returns(&self, function: &Function) -> bool {
        self.function(function).is_some_and(|die| self.is_noreturn(die, 0))
    }

    fn is_noreturn(&self, die: Die, depth: u32) -> bool {
        let Some(entry) = self.entry(die).filter(|_| depth <= DEPTH) else { return false };
        entry.attr(gimli::DW_AT_noreturn).is_some() || self.origin(die, &entry).is_some_and(|origin| self.is_noreturn(origin, depth + 1))
    }

    /// Returns the first instructions of a function.
    fn code(&self, function: &Function) -> &'static [u8] {
        let Some((data, segments)) = self.image.as_ref() else { return &[] };
        let size = if function.size == 0 { MAX_ANALYZED_BYTES } else { function.size.min(MAX_ANALYZED_BYTES) };
        let found = elf::offset(segments, function.addr).and_then(|at| usize::try_from(at).ok()).and_then(|at| data.get(at..));
        found.map_or(&[], |rest| rest.get(..size as usize).unwrap_or(rest))
    }

    /// Returns the parameters of a function, including those that only its abstract instance has.
    pub(super) fn parameters(&self, function: Die, entry: &Entry) -> Vec<(Die, Entry)> {
        let of = |die: Die| -> Vec<(Die, Entry)> {
            self.children(die).into_iter().filter(|(_, e)| e.tag() == gimli::DW_TAG_formal_parameter).collect()
        };
        let parameters = of(function);
        let Some(origin) = self.referred(function, entry, DW_AT_abstract_origin) else { return parameters };
        let (mut all, mut used) = (Vec::new(), vec![false; parameters.len()]);
        for (die, entry) in of(origin) {
            match parameters.iter().position(|(d, e)| self.referred(*d, e, DW_AT_abstract_origin) == Some(die)) {
                Some(n) => {
                    all.extend(parameters.get(n).cloned());
                    used[n] = true;
                }
                // Hidden parameters, which only some copies of a constructor or destructor have.
                None if self.name(die, &entry).is_some_and(|name| name.starts_with(b"__")) && entry.attr(DW_AT_artificial).is_some() => {}
                None => all.push((die, entry)),
            }
        }
        all.extend(parameters.into_iter().zip(used).filter(|(_, used)| !used).map(|(p, _)| p));
        all
    }

    /// Must the compiler follow the calling convention? True if other files can call the function and its language has a
    /// convention.
    fn is_bound(&self, die: Die, entry: &Entry, function: &Function) -> bool {
        // A copy that the compiler made for its own use has a different symbol.
        let symbol = self.linkage_name(die, entry, 0).or_else(|| self.origin_name(die, entry, 0));
        let called_otherwise = matches!(
            entry.attr(DW_AT_calling_convention).map(gimli::Attribute::value),
            Some(AttributeValue::CallingConvention(gimli::DW_CC_nocall))
        );
        !called_otherwise && symbol == Some(function.name.as_bytes()) && self.is_external(die, entry, 0) && self.is_of_c(die)
    }

    fn is_external(&self, die: Die, entry: &Entry, depth: u32) -> bool {
        entry.attr(DW_AT_external).is_some()
            || depth < DEPTH && self.origin(die, entry).is_some_and(|o| self.entry(o).is_some_and(|e| self.is_external(o, &e, depth + 1)))
    }

    /// The language of an entry's unit.
    pub(super) fn language(&self, die: Die) -> Option<gimli::DwLang> {
        let unit = self.unit(die)?;
        match unit.entry(unit.header.root_offset()).ok()?.attr(DW_AT_language)?.value() {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }

    /// Does the unit's language use the calling convention of C?
    pub(super) fn is_of_c(&self, die: Die) -> bool {
        let Some(language) = self.language(die) else { return false };
        matches!(
            language,
            gimli::DW_LANG_C
                | gimli::DW_LANG_C89
                | gimli::DW_LANG_C99
                | gimli::DW_LANG_C11
                | gimli::DW_LANG_C17
                | gimli::DW_LANG_C_plus_plus
                | gimli::DW_LANG_C_plus_plus_03
                | gimli::DW_LANG_C_plus_plus_11
                | gimli::DW_LANG_C_plus_plus_14
                | gimli::DW_LANG_C_plus_plus_17
                | gimli::DW_LANG_C_plus_plus_20
                | gimli::DW_LANG_ObjC
                | gimli::DW_LANG_ObjC_plus_plus
        )
    }

    /// Did gcc compile the unit? Its locations are valid at every instruction.
    pub(super) fn is_gcc(&self, die: Die) -> bool {
        let producer = self.unit(die).and_then(|unit| {
            let value = unit.entry(unit.header.root_offset()).ok()?.attr(DW_AT_producer)?.value();
            Some(self.dwarf(die)?.attr_string(unit, value).ok()?.slice().starts_with(b"GNU "))
        });
        producer == Some(true)
    }

    /// Assigns arguments to locations by the calling convention. `None` for an argument that is not in one readable place.
    /// `before` are the registers already used by hidden arguments.
    fn conventional(
        &self,
        before: usize,
        parameters: &[(Die, Entry)],
        found: &[Result<ArgumentLocation, NoLocation>],
    ) -> Vec<Option<ArgumentLocation>> {
        let mut registers = before;
        let (mut floats, mut stack) = (0u32, 0u32);
        let mut all = Vec::new();
        for ((die, entry), found) in parameters.iter().zip(found) {
            let ty = self.attribute_type(*die, entry);
            let size = ty.and_then(|t| self.ty(t, 0)).map_or(0, |t| t.size());
            let class = match (self.class(ty).unwrap_or(Class::Float(1)), found) {
                (class, _) if !self.may_go_by_reference(ty, 0) => class,
                // gcc does not record how it passes objects.
                (_, Ok(place)) if place.is_reference(self.arch) => Class::Reference,
                (class, Ok(_)) => class,
                (_, Err(_)) => return all,
            };
            let align = ty.map_or(8, |ty| self.stack_align(ty, 0));
            let take = |n: u32, registers: &mut usize| {
                if n == 2 && align == 16 && self.arch.convention.aligns_pairs {
                    *registers = registers.next_multiple_of(2);
                }
                let taken = self.arch.args.get(*registers..*registers + n as usize);
                if taken.is_some() {
                    *registers += n as usize;
                } else if self.arch.convention.overflow_is_final {
                    *registers = self.arch.args.len();
                }
                taken
            };
            let push = |bytes: u32, stack: &mut u32| {
                let at = stack.checked_next_multiple_of(align).unwrap_or(u32::MAX);
                *stack = at.saturating_add(bytes.max(1).checked_next_multiple_of(8).unwrap_or(bytes));
                ArgumentLocation::one(
                    size,
                    Source::Memory { register: self.arch.sp, offset: i64::from(self.arch.stack_args) + i64::from(at), indirect: None },
                )
            };
            all.push(match class {
                Class::Integers(n) => Some(match take(n, &mut registers) {
                    Some(taken) => ArgumentLocation::registers(size, taken),
                    None => push(n * 8, &mut stack),
                }),
                Class::Memory(size) => Some(push(size, &mut stack)),
                Class::Float(n) if floats + n <= FLOAT_REGISTERS => {
                    floats += n;
                    None
                }
                Class::Float(n) => Some(push(n * 8, &mut stack)),
                Class::Mixed if floats < FLOAT_REGISTERS && registers < self.arch.args.len() => {
                    floats += 1;
                    registers += 1;
                    None
                }
                // An argument is entirely in registers or entirely on the stack.
                Class::Mixed => Some(push(16, &mut stack)),
                Class::Reference => Some(match take(1, &mut registers).and_then(<[u32]>::first) {
                    Some(register) => ArgumentLocation::one(size, Source::Memory { register: *register, offset: 0, indirect: None }),
                    None => match push(8, &mut stack).pieces.first().map(|p| p.from) {
                        Some(Source::Memory { register, offset: by, .. }) => {
                            ArgumentLocation::one(size, Source::Memory { register, offset: by, indirect: Some(0) })
                        }
                        _ => return all,
                    },
                }),
            });
        }
        all
    }

    /// Returns the registers that the address of a large result may use: it precedes the arguments.
    fn result(&self, function: Die, entry: &Entry) -> Vec<usize> {
        let ty = self.attribute_type(function, entry);
        match self.class(ty) {
            Some(_) if !self.arch.convention.result_comes_first => vec![0],
            Some(Class::Memory(_) | Class::Reference) => vec![1],
            Some(_) if self.may_go_by_reference(ty, 0) => vec![0, 1],
            Some(Class::Integers(_) | Class::Float(_) | Class::Mixed) | None => vec![0],
        }
    }

    /// Is it a C++ object for which the debug information does not say whether it has a nontrivial copy constructor?
    pub(super) fn may_go_by_reference(&self, ty: Option<Die>, depth: u32) -> bool {
        let Some((die, entry)) = ty.and_then(|t| self.bare(t)).filter(|_| depth < DEPTH) else { return false };
        matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type)
            && entry.attr(DW_AT_calling_convention).is_none()
            && self.children(die).iter().any(|(die, e)| match e.tag() {
                gimli::DW_TAG_subprogram | gimli::DW_TAG_inheritance => true,
                gimli::DW_TAG_member => self.may_go_by_reference(self.referred(*die, e, DW_AT_type), depth + 1),
                _ => false,
            })
    }

    /// The linkage name of an entry, or that of its abstract instance.
    pub(super) fn linkage_name(&self, die: Die, entry: &Entry, depth: u32) -> Option<&'static [u8]> {
        if depth > DEPTH {
            return None;
        }
        let attr = entry.attr(gimli::DW_AT_linkage_name).or_else(|| entry.attr(gimli::DW_AT_MIPS_linkage_name));
        match attr {
            Some(name) => Some(self.dwarf(die)?.attr_string(self.unit(die)?, name.value()).ok()?.slice()),
            None => {
                let origin = self.origin(die, entry)?;
                self.linkage_name(origin, &self.entry(origin)?, depth + 1)
            }
        }
    }

    /// The name of an entry, or that of its abstract instance.
    pub(super) fn origin_name(&self, die: Die, entry: &Entry, depth: u32) -> Option<&'static [u8]> {
        if depth > DEPTH {
            return None;
        }
        self.name(die, entry).or_else(|| {
            let origin = self.origin(die, entry)?;
            self.origin_name(origin, &self.entry(origin)?, depth + 1)
        })
    }

    pub(super) fn origin(&self, die: Die, entry: &Entry) -> Option<Die> {
        self.referred(die, entry, DW_AT_abstract_origin).or_else(|| self.referred(die, entry, DW_AT_specification))
    }

    /// The type entry of an entry, or that of its abstract instance.
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

    /// Classifies a type. `None`: `void`, or an unknown type.
    pub(super) fn class(&self, ty: Option<Die>) -> Option<Class> {
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
        // Objects that are not trivially copyable are passed by reference.
        if let Some(gimli::AttributeValue::CallingConvention(gimli::DW_CC_pass_by_reference)) =
            entry.attr(DW_AT_calling_convention).map(gimli::Attribute::value)
        {
            return Some(Class::Reference);
        }
        let size = size?;
        if size > 16 {
            return Some(if self.arch.convention.large_by_reference { Class::Reference } else { Class::Memory(size) });
        }
        let mut eights = [None; 2];
        if self.classify(die, &entry, 0, 0, &mut eights).is_none() {
            return Some(Class::Memory(size));
        }
        Some(match eights {
            [Some(Eightbyte::Integer), Some(Eightbyte::Integer)] => Class::Integers(2),
            [Some(Eightbyte::Integer), None] => Class::Integers(1),
            [Some(Eightbyte::Float), Some(Eightbyte::Float)] => Class::Float(2),
            [Some(Eightbyte::Float), None] => Class::Float(1),
            [None, _] => Class::Float(0), // empty
            _ if self.arch.convention.mixed => Class::Mixed,
            _ => Class::Integers(size.div_ceil(8)),
        })
    }

    /// Is it a floating-point type that fits into SSE registers? The x87 type `long double` does not.
    pub(super) fn is_in_registers(&self, die: Die, entry: &Entry) -> bool {
        self.name(die, entry).is_some_and(|name| !name.windows(11).any(|part| part == b"long double"))
    }

    /// Alignment of an argument of this type on the stack, in bytes: 8 or 16.
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
                    let align = self.referred(die, &member, DW_AT_type).filter(|_| is_one).map_or(8, |ty| self.stack_align(ty, depth + 1));
                    if is_one && declared >= 16 { 16 } else { align }
                };
                self.children(die).into_iter().map(member).max().unwrap_or(8)
            }
            gimli::DW_TAG_array_type => self.referred(die, &entry, DW_AT_type).map_or(8, |ty| self.stack_align(ty, depth + 1)),
            // A complex number is two numbers of half its size.
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

    /// Classifies the two eightbytes of a small struct. `None` if a member is unaligned, so that the struct is passed in
    /// memory.
    fn classify(&self, die: Die, entry: &Entry, at: u32, depth: u32, eights: &mut [Option<Eightbyte>; 2]) -> Option<()> {
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
                        *eights.get_mut(at.checked_add(offset)? as usize / 8)? = Some(Eightbyte::Integer);
                    } else {
                        self.classify(inner, &entry, at.checked_add(offset)?, depth + 1, eights)?;
                    }
                }
                Some(())
            }
            gimli::DW_TAG_array_type => {
                let ty = self.ty(die, 0)?;
                let (inner, elem) = self.bare(self.referred(die, entry, DW_AT_type)?)?;
                let step = self.ty(inner, 0)?.size().max(1);
                for n in 0..(ty.size() / step).min(16) {
                    self.classify(inner, &elem, at.checked_add(n * step)?, depth + 1, eights)?;
                }
                Some(())
            }
            _ => {
                let size = Self::number(entry, DW_AT_byte_size).unwrap_or(8);
                // `()` of Rust
                if size == 0 {
                    return Some(());
                }
                if u64::from(at) % size.min(8) != 0 {
                    return None;
                }
                if is_float(entry) && size > 8 && !self.is_in_registers(die, entry) {
                    return None;
                }
                for here in eights.get_mut(at as usize / 8..)?.iter_mut().take(size.div_ceil(8) as usize) {
                    if is_float(entry) {
                        here.get_or_insert(Eightbyte::Float);
                    } else {
                        *here = Some(Eightbyte::Integer);
                    }
                }
                Some(())
            }
        }
    }
}
