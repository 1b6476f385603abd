//! Which files hold a binary's debug information.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, EndianSlice, RunTimeEndian, SectionId};
use object::{Object, ObjectSection};

use super::Slice;
use crate::system::{Missing, elf};

/// Where distributions put separate debug information.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The DWARF of a binary, from the file itself or from its separate debug file.
pub fn load(path: &Path) -> Result<Dwarf<Slice>, Missing> {
    let none = || Missing {
        what: format!("{} has no debug information (DWARF)", path.display()),
        help: Some("build it with -g, or install its debug symbols (Debian: the -dbgsym package)".into()),
    };
    let own = parse(path)?;
    let (file, object) = if has_types(&own) {
        (path.to_owned(), own)
    } else {
        let beside = separate(path, &own);
        let found = beside.into_iter().find_map(|p| Some((p.clone(), parse(&p).ok().filter(has_types)?)));
        found.ok_or_else(none)?
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

/// By build id, then by the name in `.gnu_debuglink`, in the places where debuggers look (GDB manual, "Separate Debug Files").
fn separate(path: &Path, file: &object::File<'_>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Ok(Some(id)) = file.build_id() {
        places.extend(by_id(id));
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if let (Ok(Some((name, _))), Some(dir)) = (file.gnu_debuglink(), real.parent()) {
        let name = String::from_utf8_lossy(name).into_owned();
        let below_root = dir.strip_prefix("/").unwrap_or(dir);
        places.extend([dir.join(&name), dir.join(".debug").join(&name), Path::new(DEBUG_ROOT).join(below_root).join(&name)]);
    }
    places.retain(|p| *p != real);
    places
}

fn by_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    Some(PathBuf::from(format!("{DEBUG_ROOT}/.build-id/{first:02x}/{rest}.debug")))
}

/// The file into which `dwz` moved what several debug files have in common.
fn shared(path: &Path, file: &object::File<'_>) -> Option<object::File<'static>> {
    let (name, id) = file.gnu_debugaltlink().ok().flatten()?;
    let named = PathBuf::from(String::from_utf8_lossy(name).into_owned());
    let real = std::fs::canonicalize(path).ok()?;
    let named = if named.is_absolute() { named } else { real.parent()?.join(named) };
    std::iter::once(named).chain(by_id(id)).find_map(|p| parse(&p).ok())
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
