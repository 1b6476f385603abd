//! Split DWARF (`-gsplit-dwarf`): a binary has a skeleton of each unit. The rest is in a `.dwo` file that the skeleton names,
//! or in the package beside the binary (`BINARY.dwp`), which has an index by unit ID. Both GNU's extension of DWARF 4 and DWARF
//! 5 are supported.

use std::collections::BTreeMap;
use std::path::Path;

use gimli::{Dwarf, DwarfFileType, DwarfPackage, Range, RunTimeEndian, SectionId, Unit};
use object::Object;

use super::sections::{parse, section, signature, units};
use super::{File, Slice};
use crate::system::{Missing, binary::debug_files};

/// A unit of which only the skeleton exists.
pub struct MissingUnit {
    /// Index of the skeleton among the binary's units.
    unit: usize,
    /// Addresses of its code.
    pub code: Vec<Range>,
    pub why: Missing,
}

/// The skeleton of a unit.
struct Skeleton {
    /// Index among the binary's units.
    unit: usize,
    id: u64,
    name: String,
    compiled_in: String,
}

/// Loads the files of split units, and returns the absent ones. `main` has the skeletons, `path` is the binary, `file`
/// the file with the skeletons, `dirs` are those of `--debuginfo`.
pub fn load(main: &mut File, path: &Path, file: &Path, dirs: &[String]) -> (Vec<File>, Vec<MissingUnit>) {
    let mut split = Vec::new();
    let skeletons: Vec<Skeleton> = main.units.iter().enumerate().filter_map(|(n, unit)| skeleton(&main.dwarf, n, unit)).collect();
    if skeletons.is_empty() {
        return (split, Vec::new());
    }
    let packaged = package(main, path, file, dirs);
    let left = match &packaged {
        Some(package) => in_package(main, package, skeletons, &mut split),
        None => skeletons,
    };
    let missing = in_files(main, left, path, dirs, &mut split);
    let absent: Vec<MissingUnit> = missing.into_iter().map(|(unit, why)| MissingUnit { unit, code: code(main, unit), why }).collect();
    // A split unit replaces its skeleton.
    for (n, unit) in main.units.iter_mut().enumerate() {
        if unit.dwo_id.is_some() && !absent.iter().any(|a| a.unit == n) {
            unit.line_program = None;
        }
    }
    (split, absent)
}

fn skeleton(dwarf: &Dwarf<Slice>, number: usize, unit: &Unit<Slice>) -> Option<Skeleton> {
    let text = |value| Some(String::from_utf8_lossy(dwarf.attr_string(unit, value).ok()?.slice()).into_owned());
    let name = unit.dwo_name().ok()?.and_then(text)?;
    let compiled_in = unit.comp_dir.map(|d| String::from_utf8_lossy(d.slice()).into_owned()).unwrap_or_default();
    Some(Skeleton { unit: number, id: unit.dwo_id?.0, name, compiled_in })
}

fn code(main: &File, unit: usize) -> Vec<Range> {
    let mut all = Vec::new();
    if let Some(mut ranges) = main.units.get(unit).and_then(|unit| main.dwarf.unit_ranges(unit).ok()) {
        while let Ok(Some(range)) = ranges.next() {
            all.push(range);
        }
    }
    all
}

/// The package of a binary, if it exists.
fn package(main: &File, path: &Path, file: &Path, dirs: &[String]) -> Option<DwarfPackage<Slice>> {
    let places = [path, file].into_iter().flat_map(|of| debug_files::packages(of, dirs));
    places.into_iter().find_map(|place| {
        let object = parse(&place).ok()?;
        let package = DwarfPackage::load(|id| split_section(&object, id), empty(&object)).ok()?;
        // The package of another binary contains none of these units.
        let known = main.units.iter().filter_map(|u| u.dwo_id).any(|id| package.cu_index.find(id.0).is_some());
        known.then_some(package)
    })
}

fn split_section(object: &object::File<'static>, id: SectionId) -> gimli::Result<Slice> {
    Ok(id.dwo_name().map_or_else(|| empty(object), |name| section(object, name)))
}

fn empty(object: &object::File<'_>) -> Slice {
    Slice::new(&[], if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big })
}

/// Takes units from a package, and returns the skeletons of those that it does not contain.
fn in_package(main: &File, package: &DwarfPackage<Slice>, skeletons: Vec<Skeleton>, to: &mut Vec<File>) -> Vec<Skeleton> {
    let mut left = Vec::new();
    for skeleton in skeletons {
        let found = package.find_cu(gimli::DwoId(skeleton.id), &main.dwarf).ok().flatten();
        match found.and_then(|dwarf| completed(main, dwarf, std::slice::from_ref(&skeleton))) {
            Some(file) => to.push(file),
            None => left.push(skeleton),
        }
    }
    for n in 1..=package.tu_index.unit_count() {
        let Ok(dwarf) = package.tu_sections(n, &main.dwarf) else { continue };
        to.extend(units(&dwarf).ok().map(|units| File { dwarf, units }));
    }
    left
}

/// Takes units from their `.dwo` files, and returns the skeletons of those that are missing, with the reason.
fn in_files(main: &File, skeletons: Vec<Skeleton>, path: &Path, dirs: &[String], to: &mut Vec<File>) -> Vec<(usize, Missing)> {
    let mut by_name: BTreeMap<(String, String), Vec<Skeleton>> = BTreeMap::new();
    for skeleton in skeletons {
        by_name.entry((skeleton.compiled_in.clone(), skeleton.name.clone())).or_default().push(skeleton);
    }
    let mut missing = Vec::new();
    for ((compiled_in, name), skeletons) in by_name {
        let mut seen = None;
        let found = debug_files::split(path, dirs, Path::new(&compiled_in), Path::new(&name)).into_iter().find_map(|place| {
            let object = parse(&place).ok()?;
            seen = Some(place);
            let mut dwarf = Dwarf::load(|id| split_section(&object, id)).ok()?;
            dwarf.make_dwo(&main.dwarf);
            completed(main, dwarf, &skeletons)
        });
        match found {
            Some(file) => to.push(file),
            None => missing.extend(skeletons.into_iter().map(|s| (s.unit, absent(path, &compiled_in, &name, seen.as_deref())))),
        }
    }
    missing
}

fn absent(path: &Path, compiled_in: &str, name: &str, seen: Option<&Path>) -> Missing {
    let (file, why) = match seen {
        Some(seen) => (seen.to_owned(), "is of another build, or damaged"),
        None => (Path::new(compiled_in).join(name), "is not there"),
    };
    Missing {
        what: format!("{} keeps its debug information in {}, which {why}", path.display(), file.display()),
        help: Some("put its .dwo files back, or a package of them (.dwp) beside it, or name their directory with --debuginfo".into()),
    }
}

/// Completes a file of split units with the data that only the skeletons have. `None` if it contains none of these units.
fn completed(main: &File, mut dwarf: Dwarf<Slice>, skeletons: &[Skeleton]) -> Option<File> {
    dwarf.file_type = DwarfFileType::Dwo;
    // The names of source files.
    dwarf.debug_line_str = main.dwarf.debug_line_str;
    let mut found = 0;
    let mut kept = units(&dwarf).ok()?;
    kept.retain_mut(|unit| {
        let wanted = unit.dwo_id.and_then(|id| skeletons.iter().find(|s| s.id == id.0)).and_then(|s| main.units.get(s.unit));
        if let Some(skeleton) = wanted {
            unit.copy_relocated_attributes(skeleton);
            unit.line_program.clone_from(&skeleton.line_program);
            unit.comp_dir = skeleton.comp_dir;
            found += 1;
        }
        wanted.is_some() || signature(unit).is_some()
    });
    (found == skeletons.len()).then_some(File { dwarf, units: kept })
}
