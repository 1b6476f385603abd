//! The files that the dynamic loader maps for a program: its interpreter and its libraries, directly or indirectly linked.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRTAB, DynamicTag, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::system::binary::file::{Segment, map, offset};
use crate::system::binary::root::Root;
use crate::system::binary::{elf, ldcache};

/// The maximum number of files, which no program reaches.
const MAX_FILES: usize = 1024;

/// Returns the files that the loader would map for a 64-bit program, by the directories that files name (`RUNPATH`, `RPATH`),
/// its cache and its standard directories. Files that the program loads later (`dlopen`) are missing.
pub fn needed(program: &Path) -> Vec<PathBuf> {
    let Ok(root) = Root::of(None) else { return Vec::new() };
    let cache = ldcache::libraries(&root);
    let directories = ldcache::directories(&root);
    let find = |name: &str| {
        let cached = cache.iter().find(|(soname, _)| soname == name).map(|(_, path)| path.clone());
        cached.or_else(|| directories.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists()))
    };
    let mut all = BTreeSet::new();
    let mut left = VecDeque::from([program.to_owned()]);
    while let Some(path) = left.pop_front() {
        let DynamicSection { interpreter, libraries, directories } = linked_with(&path).unwrap_or_default();
        let in_directories = |name: &str| directories.iter().map(|dir| dir.join(name)).find(|path| path.exists());
        let found = libraries.iter().filter_map(|name| in_directories(name).or_else(|| find(name))).chain(interpreter);
        for path in found {
            if all.len() < MAX_FILES && all.insert(path.clone()) {
                left.push_back(path);
            }
        }
    }
    all.into_iter().collect()
}

/// The requests of a file to the loader.
#[derive(Debug, Default)]
struct DynamicSection {
    /// The loader itself.
    interpreter: Option<PathBuf>,
    /// Names of libraries.
    libraries: Vec<String>,
    /// The directories to search first.
    directories: Vec<PathBuf>,
}

fn linked_with(path: &Path) -> Option<DynamicSection> {
    let data = map(path).ok()?;
    let data: &[u8] = &data;
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments: Vec<Segment> = elf::segments_of(data)?;
    let text = |at: u64| {
        let bytes = data.get(usize::try_from(at).ok()?..)?;
        let end = bytes.iter().take(4096).position(|b| *b == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    };
    // as in ld.so(8)
    let origin = path.canonicalize().ok()?.parent()?.display().to_string();
    let mut linked = DynamicSection::default();
    for segment in header.program_headers(endian, data).ok()? {
        if let Ok(Some(name)) = segment.interpreter(endian, data) {
            linked.interpreter = std::str::from_utf8(name).ok().map(PathBuf::from);
        }
        let Ok(Some(entries)) = segment.dynamic(endian, data) else { continue };
        let value = |entry: &object::elf::Dyn64<Endianness>| entry.d_val(endian);
        let strings = entries.iter().find(|e| e.tag(endian) == DT_STRTAB).and_then(|e| offset(&segments, value(e)));
        let Some(strings) = strings else { continue };
        let texts = |tags: &[DynamicTag]| -> Vec<String> {
            let wanted = entries.iter().filter(|e| tags.contains(&e.tag(endian)));
            wanted.filter_map(|e| text(strings.checked_add(value(e))?)).collect()
        };
        linked.libraries.extend(texts(&[DT_NEEDED]));
        for list in texts(&[DT_RUNPATH, DT_RPATH]) {
            let named = |dir: &str| PathBuf::from(dir.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
            linked.directories.extend(list.split(':').filter(|dir| !dir.is_empty()).map(named));
        }
    }
    Some(linked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_program() {
        let out = std::process::Command::new("ldd").arg("/bin/bash").output().unwrap();
        let listed = String::from_utf8(out.stdout).unwrap();
        let wanted: BTreeSet<PathBuf> =
            listed.split_whitespace().filter(|w| w.starts_with('/')).map(|w| std::fs::canonicalize(w).unwrap()).collect();
        let found: BTreeSet<PathBuf> = needed(Path::new("/bin/bash")).iter().map(|p| std::fs::canonicalize(p).unwrap()).collect();
        assert_eq!(found, wanted);
        assert!(wanted.len() >= 3, "{wanted:?}");
    }
}
