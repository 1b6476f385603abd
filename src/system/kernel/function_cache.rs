//! The file that caches a list of traceable functions between runs: see `system/cache.rs`. Its identity is that of the kernel
//! (its build ID, and its modules). It has the lines of [`Functions`].

use std::fs;

use crate::system::cache::{CacheFile, Kind, digest};
use crate::system::kernel::functions::Functions;

/// A kernel's list has 2 to 12 MB.
const KIND: Kind = Kind { form: "rbt-functions-1", prefix: "functions-", most_bytes: 64 << 20, most_files: 8 };

/// Where a list is kept, and what it is of.
#[derive(Clone, Debug)]
pub struct Index(CacheFile);

impl Index {
    /// For this kernel as it is now; none where nothing is to be kept.
    pub fn here() -> Option<Self> {
        CacheFile::new(KIND, key()).map(Self)
    }

    /// Of the symbol table's functions, which stand in where the kernel's own list cannot be read.
    pub fn of_symbols(self) -> Self {
        Self(self.0.with_suffix("-symbols"))
    }

    /// The list, if it is there and whole.
    pub fn load(&self) -> Option<Functions> {
        let (bytes, start) = self.0.load()?;
        Some(Functions::from_index(String::from_utf8(bytes).ok()?, start))
    }

    /// Keeps a list; what fails is not told, since nothing is lost but time.
    pub fn save(&self, list: &Functions) {
        self.0.save(list.lines().as_bytes());
    }
}

/// The kernel's build, and its modules as they are loaded now.
fn key() -> String {
    let build = kernel_build_id().unwrap_or_else(|| {
        let version = fs::read("/proc/version").unwrap_or_default();
        format!("{:016x}", digest(&version))
    });
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    // name and size; the rest of a line changes while a module is used
    let mut names: Vec<String> = modules.lines().map(|l| l.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    names.sort_unstable();
    format!("{build}-{:016x}", digest(names.join("\n").as_bytes()))
}

/// Of the kernel's image.
pub(in crate::system) fn kernel_build_id() -> Option<String> {
    build_id(&fs::read("/sys/kernel/notes").ok()?)
}

/// The descriptor of the note "GNU" of type 3 among ELF notes, in hexadecimal.
pub(in crate::system) fn build_id(notes: &[u8]) -> Option<String> {
    let word = |at: usize| Some(u32::from_ne_bytes(notes.get(at..)?.first_chunk().copied()?) as usize);
    let mut at = 0;
    loop {
        let (name, size, ty) = (word(at)?, word(at + 4)?, word(at + 8)?);
        let from = at + 12 + name.checked_next_multiple_of(4)?;
        if ty == 3 && notes.get(at + 12..at + 16) == Some(b"GNU\0") {
            return Some(notes.get(from..from.checked_add(size)?)?.iter().map(|b| format!("{b:02x}")).collect());
        }
        at = from.checked_add(size.checked_next_multiple_of(4)?)?;
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
        assert!(index.of_symbols().load().is_none());
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
