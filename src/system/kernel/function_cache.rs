//! The file that caches the list of traceable functions between runs: see `system/cache.rs`. Its identity consists of the
//! kernel's build ID and the loaded modules; its contents are the lines of [`Functions`].

use std::fs;

use crate::system::cache::{CacheFile, Kind, digest};
use crate::system::kernel::functions::Functions;

/// The list of a kernel has 2 to 12 MB.
const KIND: Kind = Kind { form: "rbt-functions-1", prefix: "functions-", max_bytes: 64 << 20, max_files: 8, max_total: 128 << 20 };

/// The cached list of one kernel.
#[derive(Clone, Debug)]
pub struct Index(CacheFile);

impl Index {
    /// The cache for the running kernel; `None` if nothing is cached.
    pub fn here() -> Option<Self> {
        CacheFile::new(KIND, key()).map(Self)
    }

    /// The cache of the list from the symbol table, which rbt uses if it cannot read the kernel's own list.
    pub fn for_symbols(self) -> Self {
        Self(self.0.with_suffix("-symbols"))
    }

    /// Loads the list, if it exists and is valid.
    pub fn load(&self) -> Option<Functions> {
        let (bytes, start) = self.0.load()?;
        Some(Functions::from_index(String::from_utf8(bytes).ok()?, start))
    }

    /// Stores a list. Failures are ignored because they only cost time.
    pub fn save(&self, list: &Functions) {
        self.0.save(list.lines().as_bytes());
    }
}

/// The build ID of the kernel, and a digest of the loaded modules.
pub(in crate::system) fn key() -> String {
    let build = kernel_build_id().unwrap_or_else(|| {
        let version = fs::read("/proc/version").unwrap_or_default();
        format!("{:016x}", digest(&version))
    });
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    // Name and size; the rest of the line changes while a module is in use.
    let mut names: Vec<String> = modules.lines().map(|l| l.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    names.sort_unstable();
    format!("{build}-{:016x}", digest(names.join("\n").as_bytes()))
}

/// The build ID of the running kernel.
pub(in crate::system) fn kernel_build_id() -> Option<String> {
    build_id(&fs::read("/sys/kernel/notes").ok()?)
}

/// Finds the build ID in ELF notes (owner "GNU", type 3), in hexadecimal.
pub(in crate::system) fn build_id(notes: &[u8]) -> Option<String> {
    let word = |offset: usize| Some(u32::from_ne_bytes(notes.get(offset..)?.first_chunk().copied()?) as usize);
    let mut offset = 0;
    loop {
        let (name, size, ty) = (word(offset)?, word(offset + 4)?, word(offset + 8)?);
        let from = offset + 12 + name.checked_next_multiple_of(4)?;
        if ty == 3 && notes.get(offset + 12..offset + 16) == Some(b"GNU\0") {
            return Some(notes.get(from..from.checked_add(size)?)?.iter().map(|b| format!("{b:02x}")).collect());
        }
        offset = from.checked_add(size.checked_next_multiple_of(4)?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_list_is_kept() {
        let folder = std::env::temp_dir().join(format!("rbt-index-{}", std::process::id()));
        let index = Index(CacheFile::at(KIND, &folder, "0123-4567"));
        let list = Functions::parse("vfs_read\nfuse_open [fuse]\n", &BTreeSet::new(), "");
        assert!(index.load().is_none());
        index.save(&list);
        let again = index.load().unwrap();
        assert_eq!(again.lines(), list.lines());
        assert_eq!(again.named("fuse_open").map(|f| f.module.to_owned()).collect::<Vec<_>>(), ["fuse"]);
        assert!(index.for_symbols().load().is_none());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn build_ids() {
        let note = |name: &[u8], ty: u32, body: &[u8]| {
            let mut n = Vec::new();
            for word in [name.len() as u32, body.len() as u32, ty] {
                n.extend(word.to_ne_bytes());
            }
            for part in [name, body] {
                n.extend(part);
                n.resize(n.len().next_multiple_of(4), 0);
            }
            n
        };
        let notes = [note(b"Xen\0", 6, b"linux"), note(b"GNU\0", 3, &[0xab, 0xcd, 1, 2])].concat();
        assert_eq!(build_id(&notes), Some("abcd0102".into()));
        assert_eq!((build_id(&notes[..30]), build_id(&[])), (None, None));
    }
}
