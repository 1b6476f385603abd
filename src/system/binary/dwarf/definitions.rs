//! Types and constants by name. The files of a program may define a name differently: the definition that holds for a probe is that
//! of the unit with the probe's code, and without one there, the name is ambiguous.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{DW_AT_bit_offset, DW_AT_bit_size, DW_AT_byte_size, DW_AT_data_bit_offset, DW_AT_encoding, DW_AT_type};

use super::types::constant;
use super::{BinaryTypes, DEPTH, Die, Entry, kind_of};
use crate::system::TypeName;
use crate::system::binary::elf;
use crate::types::{Enum, Type};

/// Limit for the description of a layout, in bytes.
const LAYOUT: usize = 1 << 20;

/// The definitions of names, by layout.
pub(super) type Known = BTreeMap<(TypeName, Vec<u8>), Rc<Vec<Definition>>>;

/// All definitions of a name with the same layout.
pub(super) struct Definition {
    /// The first one.
    first: Die,
    /// The units that have one: file and unit.
    units: Vec<(u32, u32)>,
}

/// A name whose definitions have different layouts, none of which is that of the probe's own file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AmbiguousType {
    /// A source file with each of them.
    pub files: Vec<String>,
}

impl BinaryTypes {
    /// Looks up a struct (or class), union or enum by tag, or a typedef or base type by name, for the code at this offset in the file.
    pub fn named(&self, offset: u64, kind: TypeName, name: &str) -> Result<Option<Type>, AmbiguousType> {
        let all = self.definitions(kind, name.as_bytes());
        let of_unit = || {
            let unit = self.unit_at(offset)?;
            let mut own = all.iter().filter(|d| d.units.contains(&unit));
            own.next().filter(|_| own.next().is_none())
        };
        let one = match all.as_slice() {
            [] => return Ok(None),
            [one] => one,
            _ => of_unit().ok_or_else(|| AmbiguousType { files: all.iter().map(|d| self.source_file(d.first)).collect() })?,
        };
        Ok(self.ty(one.first, 0))
    }

    /// Finds enums with this variant, and the variant's value: the first enum for each value. If the unit of the code at this offset
    /// has some, others do not count.
    pub fn enumerators(&self, offset: u64, name: &str) -> Vec<(Arc<Enum>, i64)> {
        let all = self.enumerators.get_or_init(|| self.index_enumerators());
        let Some(dies) = all.get(name.as_bytes()) else { return Vec::new() };
        let found = self.values(dies.iter().copied(), name);
        match self.unit_at(offset) {
            Some(unit) if found.len() > 1 => {
                let own = self.values(dies.iter().copied().filter(|d| (d.file, d.unit) == unit), name);
                if own.is_empty() { found } else { own }
            }
            _ => found,
        }
    }

    fn values(&self, dies: impl Iterator<Item = Die>, name: &str) -> Vec<(Arc<Enum>, i64)> {
        let mut found: Vec<(Arc<Enum>, i64)> = Vec::new();
        for die in dies {
            let Some(e) = self.enumeration(die) else { continue };
            let Some((_, value)) = e.variants.iter().find(|(variant, _)| variant == name) else { continue };
            if !found.iter().any(|(_, known)| known == value) {
                found.push((e.clone(), *value));
            }
        }
        found
    }

    fn index_enumerators(&self) -> BTreeMap<&'static [u8], Vec<Die>> {
        let mut all: BTreeMap<&'static [u8], Vec<Die>> = BTreeMap::new();
        for die in &self.index().enumerations {
            for (child, entry) in self.children(*die) {
                if let Some(name) = self.name(child, &entry) {
                    all.entry(name).or_default().push(*die);
                }
            }
        }
        all
    }

    /// The definition of a type that a unit only declares; none if there is none, or if there are different ones.
    pub(super) fn definition(&self, kind: TypeName, name: &[u8]) -> Option<Die> {
        match self.definitions(kind, name).as_slice() {
            [one] => Some(one.first),
            _ => None,
        }
    }

    fn definitions(&self, kind: TypeName, name: &[u8]) -> Rc<Vec<Definition>> {
        if let Some(known) = self.definitions.borrow().get(&(kind, name.to_vec())) {
            return known.clone();
        }
        let mut all: Vec<(String, Definition)> = Vec::new();
        for die in self.table(kind).get(name).into_iter().flatten().copied() {
            let mut layout = String::new();
            self.describe(die, 0, &mut layout);
            let unit = (die.file, die.unit);
            match all.iter_mut().find(|(known, _)| *known == layout) {
                Some((_, same)) => same.units.push(unit),
                None => all.push((layout, Definition { first: die, units: vec![unit] })),
            }
        }
        let all = Rc::new(all.into_iter().map(|(_, definition)| definition).collect::<Vec<_>>());
        self.definitions.borrow_mut().insert((kind, name.to_vec()), all.clone());
        all
    }

    /// Appends everything about a type that affects its values, for comparison. Of a pointer's target, that is the name.
    fn describe(&self, die: Die, depth: u32, to: &mut String) {
        let Some((die, entry)) = self.bare(die).filter(|_| depth <= DEPTH && to.len() < LAYOUT) else { return to.push('?') };
        let _ = write!(to, "{} {:?} {:?}", entry.tag(), self.name(die, &entry), Self::number(&entry, DW_AT_byte_size));
        let target = self.referred(die, &entry, DW_AT_type);
        match entry.tag() {
            gimli::DW_TAG_base_type => {
                let _ = write!(to, " {:?}", entry.attr(DW_AT_encoding).map(gimli::Attribute::value));
            }
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type | gimli::DW_TAG_rvalue_reference_type => {
                let target = target.and_then(|t| self.bare(t)).and_then(|(die, entry)| self.name(die, &entry));
                let _ = write!(to, " {target:?}");
            }
            _ => {
                to.push('{');
                for (child, entry) in self.children(die) {
                    self.describe_part(child, &entry, depth, to);
                }
                to.push('}');
                if let Some(target) = target {
                    self.describe(target, depth + 1, to);
                }
            }
        }
    }

    /// A member, base class, enumerator, or dimension of an array.
    fn describe_part(&self, die: Die, entry: &Entry, depth: u32, to: &mut String) {
        let is_layout = !matches!(entry.tag(), gimli::DW_TAG_subprogram | gimli::DW_TAG_imported_declaration)
            && kind_of(entry.tag()).is_none()
            && entry.attr(gimli::DW_AT_declaration).is_none();
        if !is_layout || depth > DEPTH || to.len() > LAYOUT {
            return;
        }
        let _ = write!(to, "{:?} {:?} {:?}", self.name(die, entry), self.place(die, entry), constant(entry));
        for what in [DW_AT_bit_size, DW_AT_bit_offset, DW_AT_data_bit_offset, gimli::DW_AT_upper_bound, gimli::DW_AT_count] {
            let _ = write!(to, " {:?}", Self::number(entry, what));
        }
        match self.referred(die, entry, DW_AT_type).filter(|_| entry.tag() != gimli::DW_TAG_subrange_type) {
            Some(ty) => self.describe(ty, depth + 1, to),
            // the variants of a Rust enum
            None => self.children(die).iter().for_each(|(child, entry)| self.describe_part(*child, entry, depth + 1, to)),
        }
        to.push(';');
    }

    /// The unit with the code at this offset in the file, if only one has it.
    fn unit_at(&self, offset: u64) -> Option<(u32, u32)> {
        let (_, segments) = self.image.as_ref()?;
        let address = elf::address(segments, offset)?;
        let (start, die) = self.index().functions.range(..=address).next_back()?;
        let others = self.index().same_address.get(start).into_iter().flatten();
        let (dwarf, unit) = (self.dwarf(*die)?, self.unit(*die)?);
        let mut ranges = dwarf.die_ranges(unit, &self.entry(*die)?).ok()?;
        let mut holds = *start == address;
        while let Ok(Some(range)) = ranges.next() {
            holds |= (range.begin..range.end).contains(&address);
        }
        // the linker may fold equal functions of several files
        let alone = others.into_iter().all(|other| (other.file, other.unit) == (die.file, die.unit));
        if !holds {
            return self.nested_function(address).map(|die| (die.file, die.unit));
        }
        alone.then_some((die.file, die.unit))
    }

    /// The source file of an entry's unit.
    fn source_file(&self, die: Die) -> String {
        let root = self.unit(die).and_then(|unit| unit.entry(unit.header.root_offset()).ok());
        let name = root.and_then(|entry| self.name(Die { at: 0, ..die }, &entry)).unwrap_or(b"?");
        String::from_utf8_lossy(name).into_owned()
    }
}
