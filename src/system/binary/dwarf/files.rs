//! Which files hold a binary's debug information.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, EndianSlice, RunTimeEndian, SectionId};
use object::{Object, ObjectSection};

use super::Slice;
use crate::system::{Missing, binary::debug_files, binary::elf};

/// Where distributions put what debug files share.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The DWARF of a binary, from the file itself or from its separate debug file (`dirs`: see [`debug_files::find`]).
pub fn load(path: &Path, dirs: &[String]) -> Result<Dwarf<Slice>, Missing> {
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
    let unreadable = |e: gimli::Error| Missing { what: format!("{}: {}", file.display(), e.to_string().to_lowercase()), help: None };
    let mut dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(section(&object, id))).map_err(unreadable)?;
    if let Some(shared) = shared(&file, &object) {
        dwarf.load_sup(|id| Ok::<_, gimli::Error>(section(&shared, id))).map_err(unreadable)?;
    }
    Ok(dwarf)
}

fn parse(path: &Path) -> Result<object::File<'static>, Missing> {
    let map: &'static [u8] = Box::leak(Box::new(elf::map(path)?));
    object::File::parse(map).map_err(|_| elf::not_elf(path))
}

fn has_types(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info").is_some_and(|s| s.size() > 0 && s.file_range().is_some())
}

/// The file into which `dwz` moved what several debug files have in common.
fn shared(path: &Path, file: &object::File<'_>) -> Option<object::File<'static>> {
    let (name, id) = file.gnu_debugaltlink().ok().flatten()?;
    let named = PathBuf::from(String::from_utf8_lossy(name).into_owned());
    let real = std::fs::canonicalize(path).ok()?;
    let named = if named.is_absolute() { named } else { real.parent()?.join(named) };
    std::iter::once(named).chain(debug_files::by_id(id).map(|p| Path::new(DEBUG_ROOT).join(p))).find_map(|p| parse(&p).ok())
}

/// A section's bytes, inflated where they are compressed; none for one that is missing or damaged.
fn section(file: &object::File<'static>, id: SectionId) -> Slice {
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let data = file.section_by_name(id.name()).and_then(|s| s.uncompressed_data().ok());
    let bytes: &'static [u8] = match data {
        Some(Cow::Borrowed(bytes)) => bytes,
        Some(Cow::Owned(bytes)) => Box::leak(bytes.into_boxed_slice()),
        None => &[],
    };
    EndianSlice::new(bytes, endian)
}
