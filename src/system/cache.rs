//! Files that rbt keeps between runs.
//!
//! A header line has the name of the format, the identity of the contents, the number of bytes that follow, and their digest.
//! The directory is `RBT_CACHE` (if it is empty, there is no cache), or else `/var/cache/rbt` for root, or else `rbt` in
//! `XDG_CACHE_HOME` or `~/.cache`. A file that root reads must be writable by root only.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

use crate::input;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub(in crate::system) struct Kind {
    /// The name of the format, with its version.
    pub form: &'static str,
    /// Names of files begin with it; the identity follows.
    pub prefix: &'static str,
    /// A longer file is none of ours.
    pub most_bytes: u64,
    /// So many files are kept, those that were written last.
    pub most_files: usize,
}

/// Where contents are kept, and their identity.
#[derive(Clone, Debug)]
pub(in crate::system) struct CacheFile {
    kind: Kind,
    folder: PathBuf,
    key: String,
}

impl CacheFile {
    /// In the cache's directory; none where nothing is to be kept. `key` must be good for a file's name.
    pub fn new(kind: Kind, key: String) -> Option<Self> {
        Some(Self { kind, folder: folder()?, key })
    }

    #[cfg(test)]
    pub fn at(kind: Kind, folder: &Path, key: &str) -> Self {
        Self { kind, folder: folder.to_owned(), key: key.to_owned() }
    }

    /// The same for other contents.
    pub fn with_suffix(self, suffix: &str) -> Self {
        Self { key: format!("{}{suffix}", self.key), ..self }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join(format!("{}{}", self.kind.prefix, self.key))
    }

    /// The whole file, and where its contents start, if it is there and undamaged.
    pub fn load(&self) -> Option<(Vec<u8>, usize)> {
        let (mut file, about) = input::open_itself(&self.path()).ok()?;
        if about.len() > self.kind.most_bytes || !input::is_trusted(&about) {
            return None;
        }
        let mut bytes = Vec::with_capacity(about.len() as usize + 1);
        file.read_to_end(&mut bytes).ok()?;
        let start = bytes.iter().position(|b| *b == b'\n')? + 1;
        let (head, contents) = bytes.split_at_checked(start)?;
        (head == self.head(contents).as_bytes()).then_some((bytes, start))
    }

    /// Keeps contents. A failure is not reported, since nothing is lost but time.
    pub fn save(&self, contents: &[u8]) {
        let _ = self.try_save(contents);
    }

    fn try_save(&self, contents: &[u8]) -> std::io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.folder)?;
        let about = fs::metadata(&self.folder)?;
        if !input::is_trusted(&about) {
            return Ok(());
        }
        let new = self.folder.join(format!(".{}{}.{}", self.kind.prefix, self.key, std::process::id()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new).and_then(|mut file: File| {
            file.write_all(self.head(contents).as_bytes())?;
            file.write_all(contents)
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

    fn head(&self, contents: &[u8]) -> String {
        format!("{} {} {} {:016x}\n", self.kind.form, self.key, contents.len(), digest(contents))
    }

    /// Removes the files that were not written for longest.
    fn prune(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with(self.kind.prefix));
        let mut all: Vec<_> = ours.filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path()))).collect();
        let spare = all.len().saturating_sub(self.kind.most_files);
        if spare == 0 {
            return;
        }
        all.sort();
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

/// Detects damage, not forgery: whoever may write the file may write the digest too.
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

    const KIND: Kind = Kind { form: "rbt-test-1", prefix: "test-", most_bytes: 1 << 20, most_files: 8 };

    #[test]
    fn contents_are_kept_and_damaged_ones_are_not_used() {
        let folder = std::env::temp_dir().join(format!("rbt-cache-{}", std::process::id()));
        let file = CacheFile::at(KIND, &folder, "0123-4567");
        let contents = |file: &CacheFile| file.load().map(|(bytes, start)| bytes[start..].to_vec());
        assert!(contents(&file).is_none());
        file.save(b"some\ncontents");
        assert_eq!(contents(&file).as_deref(), Some(b"some\ncontents".as_slice()));
        // of another identity
        fs::copy(file.path(), CacheFile::at(KIND, &folder, "89ab-4567").path()).unwrap();
        assert!(contents(&CacheFile::at(KIND, &folder, "89ab-4567")).is_none());
        let whole = fs::read(file.path()).unwrap();
        for n in 0..whole.len() {
            fs::write(file.path(), &whole[..n]).unwrap();
            assert!(contents(&file).is_none(), "cut at {n}");
            let mut odd = whole.clone();
            odd[n] ^= 0x21;
            fs::write(file.path(), &odd).unwrap();
            assert!(contents(&file).is_none(), "changed at {n}");
        }
        for n in 0..20 {
            CacheFile::at(KIND, &folder, &format!("{n}-0")).save(b"");
        }
        assert!(fs::read_dir(&folder).unwrap().count() <= KIND.most_files + 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
