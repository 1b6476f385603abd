//! The files that the dynamic loader maps for a program: its interpreter and its libraries, directly or indirectly linked.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, DT_STRTAB, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::system::binary::file::{Segment, map, offset};
use crate::system::binary::root::Root;
use crate::system::binary::{elf, ldcache};

/// A limit that no program reaches.
const MOST: usize = 1024;

/// Returns the files that the loader would map for a 64-bit program, by its cache and its standard directories. Files that
/// cannot be found this way (`RPATH`, `dlopen`) are missing.
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
        let (interpreter, libraries) = linked_with(&path).unwrap_or_default();
        let found = libraries.iter().filter_map(|name| find(name)).chain(interpreter);
        for path in found {
            if all.len() < MOST && all.insert(path.clone()) {
                left.push_back(path);
            }
        }
    }
    all.into_iter().collect()
}

/// The interpreter of a file, and the names of its libraries.
fn linked_with(path: &Path) -> Option<(Option<PathBuf>, Vec<String>)> {
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
    let (mut interpreter, mut names) = (None, Vec::new());
    for segment in header.program_headers(endian, data).ok()? {
        if let Ok(Some(name)) = segment.interpreter(endian, data) {
            interpreter = std::str::from_utf8(name).ok().map(PathBuf::from);
        }
        let Ok(Some(entries)) = segment.dynamic(endian, data) else { continue };
        let value = |entry: &object::elf::Dyn64<Endianness>| entry.d_val(endian);
        let strings = entries.iter().find(|e| e.tag(endian) == DT_STRTAB).and_then(|e| offset(&segments, value(e)));
        let Some(strings) = strings else { continue };
        let wanted = entries.iter().filter(|e| e.tag(endian) == DT_NEEDED);
        names.extend(wanted.filter_map(|e| text(strings.checked_add(value(e))?)));
    }
    Some((interpreter, names))
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
