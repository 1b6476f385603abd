//! The location of an argument at the entry of its function, from the debug information (`DW_AT_location`).
//!
//! A location is valid for a range of instructions, which compilers specify loosely: a location for the whole function is a
//! slot in its frame that the first instructions fill. So this module follows these instructions from the entry, and determines
//! where the contents of the first nonempty location came from. If there is no such place, it gives the reason, because the
//! calling convention does not apply where the compiler was free to choose.

#![allow(clippy::wildcard_enum_match_arm)] // a few of many operations

use gimli::{
    Attribute, AttributeValue, DW_AT_bit_size, DW_AT_byte_size, DW_AT_data_bit_offset, DW_AT_frame_base, DW_AT_location, DW_AT_type,
    Expression, RawLocListEntry,
};

use super::expressions::{Evaluation, Part};
use super::frame::{Frame, Location};
use super::no_location::NoLocation;
use super::types::{constant, is_float};
use super::{BinaryTypes, DEPTH, Die, Entry, Slice};
use crate::system::binary::instructions::follow::Path;
use crate::system::machine::arch::Arch;
use crate::system::machine::arch::instructions::{Base, Byte, Value};
use crate::system::{Abi, Function};
use crate::types::Type;

/// Limit for the bytes of an argument that are tracked one by one.
const BYTES: u32 = 256;

/// The location of an argument at the function's entry: pieces in order, without gaps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgumentLocation {
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
}

/// A piece of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Size in bytes.
    pub size: u32,
    /// Its location.
    pub from: Source,
}

/// A location at the entry. Registers are offsets in `struct pt_regs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// In a register.
    Register {
        /// The register.
        register: u32,
        /// Offset from its lowest byte, in bytes.
        above: u32,
    },
    /// In memory.
    Memory {
        /// The register that contains the base address.
        register: u32,
        /// Offset in bytes.
        offset: i64,
        /// If present, this memory contains an address, and the value is at this offset from it.
        indirect: Option<i64>,
    },
    /// None: padding between the members of a struct.
    Padding,
}

impl ArgumentLocation {
    /// The whole value at one location.
    pub fn one(size: u32, from: Source) -> ArgumentLocation {
        ArgumentLocation { pieces: vec![Piece { size, from }] }
    }

    /// The value in registers, eight bytes in each.
    pub fn registers(size: u32, all: &[u32]) -> ArgumentLocation {
        let each = all.iter().enumerate().map(|(n, register)| Piece {
            size: size.saturating_sub(n as u32 * 8).min(8),
            from: Source::Register { register: *register, above: 0 },
        });
        ArgumentLocation { pieces: each.collect() }
    }

    /// Is the whole value in memory that a register points to?
    pub(super) fn is_reference(&self, arch: &Arch) -> bool {
        let [Piece { from: Source::Memory { register, offset, indirect }, .. }] = *self.pieces.as_slice() else { return false };
        if register == arch.sp { indirect == Some(0) } else { offset == 0 && indirect.is_none() }
    }

    /// Is any piece on the caller's stack?
    fn is_on_stack(&self, arch: &Arch) -> bool {
        self.pieces.iter().any(|p| matches!(p.from, Source::Memory { register, indirect: None, .. } if register == arch.sp))
    }

    /// The location of the n-th byte.
    fn byte(&self, n: u32) -> Option<Source> {
        let mut before = 0;
        for piece in &self.pieces {
            if n < before + piece.size {
                return Some(later(piece.from, n - before));
            }
            before += piece.size;
        }
        None
    }

    /// Do both agree on the locations of all significant bytes?
    pub(super) fn agrees(&self, other: &ArgumentLocation, matters: &[bool]) -> bool {
        match matters {
            [] => self == other,
            some => (0..).zip(some).all(|(n, matters)| !matters || self.byte(n) == other.byte(n)),
        }
    }
}

/// The interpretation of a location at one instruction.
enum LocationAt {
    /// Not known yet.
    Nothing,
    /// The place, and whether the location names a register rather than memory.
    Place(ArgumentLocation, bool),
    Never(NoLocation),
}

/// An argument whose location is sought.
pub(super) struct ArgumentSearch {
    location: Option<Location>,
    size: u32,
    /// Which bytes are not padding. Empty for a large argument.
    pub(super) value_bytes: Vec<bool>,
    /// It is one byte with the value 0 or 1.
    boolean: bool,
    found: Option<Result<ArgumentLocation, NoLocation>>,
    /// The location in the caller's frame, which counts if no other is found.
    in_caller: Option<ArgumentLocation>,
    /// The expression by which it was found in a register.
    expression: Option<Expression<Slice>>,
}

impl BinaryTypes {
    pub(super) fn frame(&self, die: Die, entry: &Entry, function: &Function) -> Option<Frame<'_>> {
        let unit = self.unit(die)?;
        let settled = (!self.is_gcc(die)).then(|| self.prologue_end(die, function.addr).unwrap_or(u64::MAX));
        let registers: &[u32] = match function.abi {
            Abi::SystemV => self.arch.args,
            Abi::Go => self.arch.go_args,
            Abi::GoStack => &[],
        };
        let base = self.location(die, entry.attr(DW_AT_frame_base));
        Some(Frame { arch: self.arch, base, unit, registers, kept_by_caller: function.abi == Abi::Go, prologue_end: settled })
    }

    pub(super) fn start_search(&self, die: Die, entry: &Entry, ty: Option<&Type>) -> ArgumentSearch {
        let (size, boolean) = (ty.map(Type::size), self.attribute_type(die, entry).is_some_and(|ty| self.is_boolean(ty)));
        let float = self.attribute_type(die, entry).and_then(|t| self.bare(t)).is_some_and(|(_, e)| is_float(&e));
        // Compilers write the constant of an unsigned type as a negative number as well.
        let constant = constant(entry).map(|value| ty.and_then(Type::as_int).map_or(value, |int| int.wrap(value as u64) as i64));
        let found = match (size, constant) {
            (None, _) => Some(NoLocation::Type),
            (_, Some(value)) => Some(NoLocation::Constant(value)),
            _ if float => Some(NoLocation::Float),
            (Some(0), None) => Some(NoLocation::Empty),
            _ => None,
        };
        let location = self.location(die, entry.attr(DW_AT_location));
        let size = size.unwrap_or(0);
        let mut matters = vec![false; if size > BYTES { 0 } else { size as usize }];
        if let Some(ty) = self.attribute_type(die, entry) {
            self.mark(ty, 0, 0, &mut matters);
        }
        ArgumentSearch { location, size, value_bytes: matters, boolean, found: found.map(Err), in_caller: None, expression: None }
    }

    /// Is it `bool`, or an enum of it?
    fn is_boolean(&self, ty: Die) -> bool {
        let Some((die, entry)) = self.bare(ty) else { return false };
        match entry.tag() {
            gimli::DW_TAG_enumeration_type => {
                let of = self.referred(die, &entry, DW_AT_type).and_then(|ty| self.ty(ty, 0));
                of == Some(Type::Bool)
            }
            _ => self.ty(die, 0) == Some(Type::Bool),
        }
    }

    /// Marks the bytes of a type that are not padding.
    fn mark(&self, ty: Die, offset: usize, depth: u32, marks: &mut [bool]) {
        let Some((die, entry)) = self.bare(ty).filter(|_| depth <= DEPTH && offset < marks.len()) else { return };
        let size = Self::number(&entry, DW_AT_byte_size).map_or(8, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let all = |marks: &mut [bool], from: usize, size: usize| {
            let end = from.saturating_add(size).min(marks.len());
            marks.get_mut(from..end).unwrap_or_default().fill(true);
        };
        match entry.tag() {
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                let children = self.children(die);
                if children.iter().any(|(_, e)| e.tag() == gimli::DW_TAG_variant_part) {
                    return all(marks, offset, size);
                }
                for (die, member) in &children {
                    let inner = matches!(member.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance).then(|| self.place(*die, member));
                    let (Some(Some(place)), Some(ty)) = (inner, self.referred(*die, member, DW_AT_type)) else { continue };
                    if let Some(bits) = Self::number(member, DW_AT_bit_size) {
                        let from = Self::number(member, DW_AT_data_bit_offset).unwrap_or(0);
                        let bytes = (from % 8 + bits).div_ceil(8).max(1);
                        all(marks, offset.saturating_add(place as usize).saturating_add((from / 8) as usize), bytes as usize);
                    } else {
                        self.mark(ty, offset.saturating_add(place as usize), depth + 1, marks);
                    }
                }
            }
            gimli::DW_TAG_array_type => match self.ty(die, 0) {
                Some(whole) => all(marks, offset, whole.size() as usize),
                None => all(marks, offset, size),
            },
            _ => all(marks, offset, size),
        }
    }

    fn location(&self, die: Die, attribute: Option<&Attribute<Slice>>) -> Option<Location> {
        let value = attribute?.value();
        if let AttributeValue::Exprloc(expression) = value {
            return Some(Location::Whole(expression));
        }
        let (dwarf, unit) = (self.dwarf(die)?, self.unit(die)?);
        let mut list = dwarf.attr_locations(unit, value).ok()??;
        let mut all = Vec::new();
        while let Ok(Some(raw)) = list.next_raw() {
            let (raw, empty) = widened(raw);
            let Ok(converted) = list.convert_raw(raw) else { break };
            all.extend(converted.map(|l| (l.range.begin, if empty { l.range.begin } else { l.range.end }, l.data)));
        }
        Some(Location::Ranges(all))
    }
}

/// Makes an empty range one byte long, because the reader drops empty ranges, and returns whether it was empty.
fn widened(raw: RawLocListEntry<Slice>) -> (RawLocListEntry<Slice>, bool) {
    match raw {
        RawLocListEntry::AddressOrOffsetPair { begin, end, data } if begin == end => {
            (RawLocListEntry::AddressOrOffsetPair { begin, end: end.wrapping_add(1), data }, true)
        }
        RawLocListEntry::OffsetPair { begin, end, data } if begin == end => {
            (RawLocListEntry::OffsetPair { begin, end: end.wrapping_add(1), data }, true)
        }
        RawLocListEntry::StartEnd { begin, end, data } if begin == end => {
            (RawLocListEntry::StartEnd { begin, end: end.wrapping_add(1), data }, true)
        }
        RawLocListEntry::StartxLength { begin, length: 0, data } => (RawLocListEntry::StartxLength { begin, length: 1, data }, true),
        RawLocListEntry::StartLength { begin, length: 0, data } => (RawLocListEntry::StartLength { begin, length: 1, data }, true),
        other => (other, false),
    }
}

/// Finds the locations of a function's remaining arguments.
pub(super) fn find(all: &mut [ArgumentSearch], frame: &Frame, code: &[u8], entry: u64) {
    let mut path = Path::new(frame.arch, code, entry);
    loop {
        for one in all.iter_mut() {
            one.update(&path, frame);
        }
        let open = all.iter().any(|w| w.found.is_none() && w.location.is_some());
        let checked = path.has_branched() || all.iter().all(|w| w.expression.is_none());
        if !open && checked || !path.step() {
            break;
        }
    }
    for one in all.iter_mut().filter(|w| w.found.is_none()) {
        let empty = match &one.location {
            None => true,
            Some(Location::Whole(e)) => e.0.is_empty(),
            Some(Location::Ranges(all)) => all.iter().all(|(_, _, e)| e.0.is_empty()),
        };
        if let Some(place) = one.in_caller.take() {
            one.found = Some(Ok(place));
            continue;
        }
        one.found = Some(Err(match empty {
            true if one.size > 8 => NoLocation::NotRecorded,
            true => NoLocation::OptimizedAway,
            false => NoLocation::Later,
        }));
    }
}

/// The convention assigns registers in order. If arguments are out of order, the function has moved them before its first
/// location is valid, so none of them is known.
pub(super) fn check_register_order(all: &mut [Result<ArgumentLocation, NoLocation>], frame: &Frame) {
    let numbers = |place: &ArgumentLocation| -> Vec<usize> {
        let register = |p: &Piece| match p.from {
            Source::Padding => None,
            Source::Register { register, .. } | Source::Memory { register, .. } => frame.registers.iter().position(|r| *r == register),
        };
        place.pieces.iter().filter_map(register).collect()
    };
    let (mut next, mut ordered) = (0, true);
    for place in all.iter().flatten() {
        let registers = numbers(place);
        ordered &= registers.is_sorted() && registers.first().is_none_or(|n| *n >= next);
        next = registers.last().map_or(next, |n| n + 1);
    }
    if !ordered {
        for place in all.iter_mut().filter(|p| p.as_ref().is_ok_and(|p| !numbers(p).is_empty())) {
            *place = Err(NoLocation::Order);
        }
    }
}

impl ArgumentSearch {
    pub(super) fn location(&self) -> Result<ArgumentLocation, NoLocation> {
        self.found.clone().unwrap_or(Err(NoLocation::OptimizedAway))
    }

    fn update(&mut self, path: &Path, frame: &Frame) {
        let Some(expression) = self.location.as_ref().and_then(|l| l.at(path.at())).copied() else { return };
        match &self.found {
            None => match self.location_at(expression, path, frame) {
                LocationAt::Nothing => {}
                LocationAt::Place(place, _) if frame.kept_by_caller && place.is_on_stack(frame.arch) => self.in_caller = Some(place),
                LocationAt::Place(place, by_register) => {
                    self.expression = Some(expression).filter(|_| by_register);
                    self.found = Some(Ok(place));
                }
                LocationAt::Never(why) => self.found = Some(Err(why)),
            },
            // A register that receives another argument at once was not the location at the entry.
            Some(Ok(place)) if self.expression == Some(expression) && !path.has_branched() => {
                match self.location_at(expression, path, frame) {
                    LocationAt::Place(other, _) if other != *place => self.found = Some(Err(NoLocation::Later)),
                    LocationAt::Place(..) | LocationAt::Nothing | LocationAt::Never(_) => {}
                }
            }
            Some(_) => {}
        }
    }

    fn location_at(&self, expression: Expression<Slice>, path: &Path, frame: &Frame) -> LocationAt {
        if expression.0.is_empty() {
            return LocationAt::Nothing;
        }
        let mut sum = Evaluation::new(path.machine(), path.at(), frame);
        let parts = match sum.parts(expression) {
            Ok(parts) => parts,
            Err(why) => return LocationAt::Never(why),
        };
        if sum.by_sp && frame.prologue_end.is_some_and(|from| path.at() < from) {
            return LocationAt::Nothing;
        }
        if let [(_, Part::Memory(Value::Sum(base, at)))] = *parts.as_slice()
            && path.machine().is_as_entered(base, at, self.size)
            && let Some(from) = frame.source(Byte::Memory(base, at))
        {
            return LocationAt::Place(ArgumentLocation::one(self.size, from), false);
        }
        if self.size > BYTES {
            return LocationAt::Nothing;
        }
        let mut bytes = Vec::new();
        for (size, part) in &parts {
            let left = self.size as usize - bytes.len().min(self.size as usize);
            let size = size.map_or(left, |n| n.min(left));
            match part {
                Part::Memory(at) => bytes.extend(path.machine().load(*at, size)),
                Part::Value(value) => bytes.extend((0..size).map(|n| value.bytes().get(n).copied().unwrap_or(Byte::Unknown))),
                Part::Vector(n) => bytes.extend((0..size).map(|at| path.machine().vector(*n).get(at).copied().unwrap_or(Byte::Unknown))),
                Part::Constant(value) if parts.len() == 1 => return LocationAt::Never(NoLocation::Constant(*value)),
                Part::Constant(_) => return LocationAt::Never(NoLocation::Computed),
                Part::Nothing if parts.len() == 1 => return LocationAt::Nothing,
                Part::Nothing => {
                    let from = bytes.len();
                    if self.value_bytes.get(from..from + size).is_none_or(|some| some.contains(&true)) {
                        return LocationAt::Never(NoLocation::Partly);
                    }
                    bytes.extend(std::iter::repeat_n(Byte::Unknown, size));
                }
            }
        }
        let has = |wanted| bytes.iter().zip(&self.value_bytes).any(|(b, matters)| *matters && *b == wanted);
        let left_by_caller = bytes.iter().zip(&self.value_bytes).any(|(b, matters)| *matters && frame.is_left_by_caller(*b));
        if has(Byte::Unset) || left_by_caller {
            return LocationAt::Nothing;
        }
        if has(Byte::Vector) {
            let only = bytes.iter().zip(&self.value_bytes).all(|(b, matters)| !matters || *b == Byte::Vector);
            return LocationAt::Never(if only { NoLocation::Vector } else { NoLocation::VectorPart });
        }
        // A location shorter than the argument may omit only padding.
        if self.value_bytes.get(bytes.len()..).is_none_or(|rest| rest.contains(&true)) {
            return LocationAt::Never(NoLocation::Partly);
        }
        bytes.resize(self.size as usize, Byte::Unknown);
        match self.joined(&bytes, frame) {
            Some(pieces) => LocationAt::Place(ArgumentLocation { pieces }, parts.iter().all(|(_, p)| matches!(p, Part::Value(_)))),
            None if parts.iter().any(|(_, p)| matches!(p, Part::Value(_))) => LocationAt::Never(NoLocation::Computed),
            None => LocationAt::Never(NoLocation::Later),
        }
    }

    /// Joins consecutive bytes into pieces. `None` if one of them is unknown.
    fn joined(&self, bytes: &[Byte], frame: &Frame) -> Option<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (byte, matters) in bytes.iter().zip(&self.value_bytes) {
            let byte = match *byte {
                Byte::RegisterBit(r) if self.boolean => Byte::Register(r, 0),
                Byte::MemoryBit(base, at) if self.boolean => Byte::Memory(base, at),
                other => other,
            };
            let from = match frame.source(byte) {
                Some(from) => from,
                None if *matters => return None,
                None => Source::Padding,
            };
            match pieces.last_mut() {
                Some(last) if later(last.from, last.size) == from => last.size += 1,
                _ => pieces.push(Piece { size: 1, from }),
            }
        }
        Some(pieces)
    }
}

impl Frame<'_> {
    /// The location of an argument's byte, if an argument can be there.
    fn source(&self, byte: Byte) -> Option<Source> {
        let known = |r: u8| self.arch.by_number.get(usize::from(r)).copied().filter(|at| self.registers.contains(at));
        let base = |r: u8| if r == self.arch.instructions().stack_pointer { Some(self.arch.sp) } else { known(r) };
        match byte {
            Byte::Register(r, n) => Some(Source::Register { register: known(r)?, above: n.into() }),
            Byte::Memory(Base::Register(r), by) => Some(Source::Memory { register: base(r)?, offset: by, indirect: None }),
            Byte::Memory(Base::Pointer(r, by), at) => Some(Source::Memory { register: base(r)?, offset: by, indirect: Some(at) }),
            Byte::Memory(Base::Aligned(_), _) => None,
            Byte::RegisterBit(_) | Byte::MemoryBit(..) | Byte::Vector | Byte::Unset | Byte::Unknown => None,
        }
    }

    /// Is it a register that the function merely saves for its caller?
    fn is_left_by_caller(&self, byte: Byte) -> bool {
        matches!(byte, Byte::Register(..) | Byte::Memory(..)) && self.source(byte).is_none()
    }
}

/// Advances a location by some bytes.
fn later(from: Source, offset: u32) -> Source {
    match from {
        Source::Register { register, above } => Source::Register { register, above: above + offset },
        Source::Memory { register, offset: at, indirect: None } => {
            Source::Memory { register, offset: at.wrapping_add(offset.into()), indirect: None }
        }
        Source::Memory { register, offset: at, indirect: Some(then) } => {
            Source::Memory { register, offset: at, indirect: Some(then.wrapping_add(offset.into())) }
        }
        Source::Padding => Source::Padding,
    }
}
