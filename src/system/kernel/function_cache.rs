//! The file that caches a list of traceable functions between runs.
//!
//! A header line has the name of the format, the identity of the list (the kernel's build ID and its modules), the number of
//! bytes that follow, and their digest. Then follow the lines of [`Functions`]. The directory is `RBT_CACHE` (if it is empty,
//! there is no cache), or else `/var/cache/rbt` for root, or else `rbt` in `XDG_CACHE_HOME` or `~/.cache`. A file that root
//! reads must be writable by root only.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::input;
use crate::system::kernel::functions::Functions;

const FORM: &str = "rbt-functions-1";
/// No list is as long: what is longer is none of ours.
const MOST_BYTES: u64 = 64 << 20;
/// Kernels and sets of modules whose lists are kept.
const MOST_FILES: usize = 8;

/// Where a list is kept, and what it is of.
#[derive(Clone, Debug)]
pub struct Index {
    folder: PathBuf,
    key: String,
}

impl Index {
    /// For this kernel as it is now; none where nothing is to be kept.
    pub fn here() -> Option<Self> {
        Some(Self { folder: folder()?, key: key() })
    }

    /// Of the symbol table's functions, which stand in where the kernel's own list cannot be read.
    pub fn of_symbols(self) -> Self {
        Self { key: format!("{}-symbols", self.key), ..self }
    }

    #[cfg(test)]
    fn at(folder: &std::path::Path, key: &str) -> Self {
        Self { folder: folder.to_owned(), key: key.to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("functions-{}", self.key))
    }

    /// The list, if it is there and whole.
    pub fn load(&self) -> Option<Functions> {
        let (mut file, about) = input::open_itself(&self.path()).ok()?;
        if about.len() > MOST_BYTES || !input::is_trusted(&about) {
            return None;
        }
        let mut text = String::with_capacity(about.len() as usize + 1);
        file.read_to_string(&mut text).ok()?;
        let start = text.find('\n')? + 1;
        let (head, lines) = text.split_at_checked(start)?;
        if head != self.head(lines) {
            return None;
        }
        Some(Functions::from_index(text, start))
    }

    /// Keeps a list; what fails is not told, since nothing is lost but time.
    pub fn save(&self, list: &Functions) {
        let _ = self.try_save(list.lines());
    }

    fn try_save(&self, lines: &str) -> std::io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.folder)?;
        let about = fs::metadata(&self.folder)?;
        if !input::is_trusted(&about) {
            return Ok(());
        }
        let new = self.folder.join(format!(".functions-{}.{}", self.key, std::process::id()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new).and_then(|mut file: File| {
            file.write_all(self.head(lines).as_bytes())?;
            file.write_all(lines.as_bytes())
        });
        // whole or not at all, also for others who read just now
        match written.and_then(|()| fs::rename(&new, self.path())) {
            Ok(()) => self.prune(),
            Err(e) => {
                let _ = fs::remove_file(&new);
                return Err(e);
            }
        }
        Ok(())
    }

    fn head(&self, lines: &str) -> String {
        format!("{FORM} {} {} {:016x}\n", self.key, lines.len(), digest(lines.as_bytes()))
    }

    /// Drops the lists that were not written for longest.
    fn prune(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with("functions-"));
        let mut all: Vec<_> = ours.filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path()))).collect();
        all.sort();
        let spare = all.len().saturating_sub(MOST_FILES);
        for (_, path) in all.into_iter().take(spare).filter(|(_, p)| *p != self.path()) {
            let _ = fs::remove_file(path);
        }
    }
}

fn folder() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name);
    if let Some(given) = var("RBT_CACHE") {
        return Some(PathBuf::from(given)).filter(|p| !p.as_os_str().is_empty());
    }
    if rustix::process::geteuid().is_root() {
        // root's environment may be the user's who called sudo
        return Some(PathBuf::from("/var/cache/rbt"));
    }
    let absolute = |name: &str| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
    Some(absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?.join("rbt"))
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

/// Tells a damaged file, not a forged one: whoever may write it may write the digest too.
pub(in crate::system) fn digest(bytes: &[u8]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325u64 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        state = (state ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    state ^ state >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_list_is_kept_and_a_damaged_one_is_not_used() {
        let folder = std::env::temp_dir().join(format!("rbt-index-{}", std::process::id()));
        let index = Index::at(&folder, "0123-4567");
        let list = Functions::parse("vfs_read\nfuse_open [fuse]\n", &BTreeSet::new(), "");
        assert!(index.load().is_none());
        index.save(&list);
        let again = index.load().unwrap();
        assert_eq!(again.lines(), list.lines());
        assert_eq!(again.named("fuse_open").map(|f| f.module.to_owned()).collect::<Vec<_>>(), ["fuse"]);
        // of another kernel
        fs::copy(index.path(), Index::at(&folder, "89ab-4567").path()).unwrap();
        assert!(Index::at(&folder, "89ab-4567").load().is_none());
        let whole = fs::read(index.path()).unwrap();
        for n in 0..whole.len() {
            fs::write(index.path(), &whole[..n]).unwrap();
            assert!(index.load().is_none(), "cut at {n}");
            let mut odd = whole.clone();
            odd[n] ^= 0x21;
            fs::write(index.path(), &odd).unwrap();
            assert!(index.load().is_none(), "changed at {n}");
        }
        index.save(&list);
        assert!(index.load().is_some());
        for n in 0..20 {
            Index::at(&folder, &format!("{n}-0")).save(&list);
        }
        assert!(fs::read_dir(&folder).unwrap().count() <= MOST_FILES + 1);
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
