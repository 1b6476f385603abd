//! The sections of a file with debug information, and the units in them.

use std::borrow::Cow;
use std::path::Path;

use gimli::{Dwarf, EndianSlice, RunTimeEndian, Unit, UnitOffset, UnitType};
use object::{Object, ObjectSection};

use super::Slice;
use crate::system::{Missing, binary::elf};

/// The units of a file. Type units come last, in whichever section they are.
pub(super) fn units(dwarf: &Dwarf<Slice>) -> gimli::Result<Vec<Unit<Slice>>> {
    let mut all = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        all.push(dwarf.unit(header)?);
    }
    // A damaged section of types does not affect other sections.
    let mut types = dwarf.type_units();
    while let Ok(Some(header)) = types.next() {
        all.extend(dwarf.unit(header));
    }
    for unit in &mut all {
        // A type unit refers to the source files of the unit that it was split from.
        if signature(unit).is_some() {
            unit.line_program = None;
        }
    }
    Ok(all)
}

/// The signature of a type unit, and the offset of its type.
pub(super) fn signature(unit: &Unit<Slice>) -> Option<(u64, UnitOffset)> {
    match unit.header.type_() {
        UnitType::Type { type_signature, type_offset } | UnitType::SplitType { type_signature, type_offset } => {
            Some((type_signature.0, type_offset))
        }
        UnitType::Compilation | UnitType::Partial | UnitType::Skeleton(_) | UnitType::SplitCompilation(_) => None,
    }
}

pub(super) fn parse(path: &Path) -> Result<object::File<'static>, Missing> {
    let map: &'static [u8] = Box::leak(Box::new(elf::map(path)?));
    object::File::parse(map).map_err(|_| elf::not_elf(path))
}

/// The bytes of a section, inflated if compressed; empty if it is missing or damaged. Several sections of one name, such as
/// those of split type units, are concatenated.
pub(super) fn section(file: &object::File<'static>, name: &str) -> Slice {
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let named = file.sections().filter(|s| s.name().is_ok_and(|n| n == name));
    let mut all: Vec<Cow<'static, [u8]>> = named.filter_map(|s| s.uncompressed_data().ok()).collect();
    let data = if all.len() > 1 { Cow::Owned(all.concat()) } else { all.pop().unwrap_or_default() };
    let bytes: &'static [u8] = match data {
        Cow::Borrowed(bytes) => bytes,
        Cow::Owned(bytes) => Box::leak(bytes.into_boxed_slice()),
    };
    EndianSlice::new(bytes, endian)
}
