//! The files that contain the debug information of a binary.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, EndianSlice, RunTimeEndian, Unit, UnitOffset, UnitType};
use object::{Object, ObjectSection};

use super::split::{self, Absent};
use super::{File, Slice};
use crate::system::{Missing, binary::debug_files, binary::elf};

/// Where distributions put the parts that debug files share.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The files with a binary's debug information.
pub struct Files {
    /// The binary's own file, the file that `dwz` made (which may be empty), then those of split units.
    pub all: Vec<File>,
    /// Split units that were not found.
    pub absent: Vec<Absent>,
}

/// Loads the DWARF of a binary from the file itself or from its separate debug file (`dirs`: see [`debug_files::find`]), and
/// its split units.
pub fn load(path: &Path, dirs: &[String]) -> Result<Files, Missing> {
    let none = || Missing {
        what: format!("{} has no debug information (DWARF)", path.display()),
        help: Some("build it with -g, or install its debug symbols (Debian: the -dbgsym package)".into()),
    };
    let own = parse(path)?;
    let (file, object) = if has_types(&own) {
        (path.to_owned(), own)
    } else {
        let found = debug_files::find(path, &elf::map(path)?, dirs, has_types).ok_or_else(none)?;
        let object = parse(&found.path)?;
        (found.path, object)
    };
    let unreadable = |e: gimli::Error| Missing {
        what: format!("the debug information of {} cannot be read: {}", path.display(), e.to_string().to_lowercase()),
        help: Some("build it again with -g, or install its debug symbols again".into()),
    };
    let mut dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(section(&object, id.name()))).map_err(unreadable)?;
    if let Some(shared) = shared(&file, &object) {
        dwarf.load_sup(|id| Ok::<_, gimli::Error>(section(&shared, id.name()))).map_err(unreadable)?;
    }
    let shared = File { dwarf: Dwarf::default(), units: dwarf.sup().and_then(|shared| units(shared).ok()).unwrap_or_default() };
    let own = units(&dwarf).map_err(unreadable)?;
    let mut files = Files { all: vec![File { dwarf, units: own }, shared], absent: Vec::new() };
    split::load(&mut files, path, &file, dirs);
    Ok(files)
}

/// The units of a file. Type units come last, in whichever section they are.
pub fn units(dwarf: &Dwarf<Slice>) -> gimli::Result<Vec<Unit<Slice>>> {
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
pub fn signature(unit: &Unit<Slice>) -> Option<(u64, UnitOffset)> {
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

fn has_types(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info").is_some_and(|s| s.size() > 0 && s.file_range().is_some())
}

/// Loads the file that `dwz` made of the common parts of several debug files.
fn shared(path: &Path, file: &object::File<'_>) -> Option<object::File<'static>> {
    let (name, id) = file.gnu_debugaltlink().ok().flatten()?;
    let named = PathBuf::from(String::from_utf8_lossy(name).into_owned());
    let real = std::fs::canonicalize(path).ok()?;
    let named = if named.is_absolute() { named } else { real.parent()?.join(named) };
    std::iter::once(named).chain(debug_files::by_id(id).map(|p| Path::new(DEBUG_ROOT).join(p))).find_map(|p| parse(&p).ok())
}

/// The bytes of a section, inflated if compressed; empty if it is missing or damaged. Several sections of one name, such as
/// those of split type units, are concatenated.
pub(super) fn section(file: &object::File<'static>, name: &str) -> Slice {
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let named = file.sections().filter(|s| s.name().is_ok_and(|n| n == name));
    let mut all: Vec<Cow<'static, [u8]>> = named.filter_map(|s| s.uncompressed_data().ok()).collect();
    let whole = if all.len() > 1 { Cow::Owned(all.concat()) } else { all.pop().unwrap_or_default() };
    let bytes: &'static [u8] = match whole {
        Cow::Borrowed(bytes) => bytes,
        Cow::Owned(bytes) => Box::leak(bytes.into_boxed_slice()),
    };
    EndianSlice::new(bytes, endian)
}
