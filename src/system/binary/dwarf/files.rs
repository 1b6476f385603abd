//! The files that contain the debug information of a binary.

use std::path::{Path, PathBuf};

use gimli::Dwarf;
use object::{Object, ObjectSection};

use super::File;
use super::sections::{parse, section, units};
use super::split::{self, MissingUnit};
use crate::system::{Missing, binary::debug_files, binary::elf};

/// Where distributions put the parts that debug files share.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The files with a binary's debug information.
pub struct Files {
    /// The binary's own file, the file that `dwz` made (which may be empty), then those of split units.
    pub all: Vec<File>,
    /// Split units that were not found.
    pub absent: Vec<MissingUnit>,
}

/// Loads the DWARF of a binary from the file itself or from its separate debug file (`dirs`: see [`debug_files::find`]), and
/// its split units.
pub fn load(path: &Path, dirs: &[String]) -> Result<Files, Missing> {
    let none = || Missing {
        what: format!("{} has no debug information (DWARF)", path.display()),
        help: Some("build it with -g, or install its debug symbols (Debian: the -dbgsym package)".into()),
    };
    let main = parse(path)?;
    let (file, object) = if has_types(&main) {
        (path.to_owned(), main)
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
    let main = units(&dwarf).map_err(unreadable)?;
    let mut main = File { dwarf, units: main };
    let (split, absent) = split::load(&mut main, path, &file, dirs);
    let all = [main, shared].into_iter().chain(split).collect();
    Ok(Files { all, absent })
}

fn has_types(file: &object::File<'_>) -> bool {
    file.section_by_name(".debug_info").is_some_and(|s| s.size() > 0 && s.file_range().is_some())
}

/// Loads the file in which `dwz` stored the common parts of several debug files.
fn shared(path: &Path, file: &object::File<'_>) -> Option<object::File<'static>> {
    let (name, id) = file.gnu_debugaltlink().ok().flatten()?;
    let named = PathBuf::from(String::from_utf8_lossy(name).into_owned());
    let real = std::fs::canonicalize(path).ok()?;
    let named = if named.is_absolute() { named } else { real.parent()?.join(named) };
    std::iter::once(named).chain(debug_files::by_id(id).map(|p| Path::new(DEBUG_ROOT).join(p))).find_map(|p| parse(&p).ok())
}
