//! Files that rbt keeps between runs.
//!
//! The header line has the name of the format, the identity of the contents, their size, and their digest. The directory is
//! `RBT_CACHE` (if it is empty, there is no cache), or else `/var/cache/rbt` for root, or else `rbt` in `XDG_CACHE_HOME` or
//! `~/.cache`. If rbt runs as root, only root may be able to write the file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::ops::Deref;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use super::binary::file::map_file;
use crate::VERSION;
use crate::input;

/// A file that is still unfinished after this time has lost its writer.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);
/// File systems have times of up to two seconds.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_secs(2);

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Name of the format, with its version.
    pub form: &'static str,
    /// Prefix of file names, before the identity.
    pub prefix: &'static str,
    /// Maximum size of a file.
    pub max_bytes: u64,
    /// Maximum number of files; the ones written last remain.
    pub max_files: usize,
    /// Maximum size of all of them; the one written last always remains.
    pub max_total: u64,
}

/// The mapped contents of a file.
#[derive(Debug)]
pub(crate) struct Contents {
    file: memmap2::Mmap,
    start: usize,
}

impl Contents {
    #[cfg(test)]
    pub fn of(bytes: &[u8]) -> Self {
        // one more, because no bytes cannot be mapped
        let mut file = memmap2::MmapMut::map_anon(bytes.len() + 1).unwrap();
        file[1..].copy_from_slice(bytes);
        Self { file: file.make_read_only().unwrap(), start: 1 }
    }
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.file.get(self.start..).unwrap_or_default()
    }
}

/// A file of the cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheFile {
    kind: Kind,
    folder: PathBuf,
    key: String,
}

impl CacheFile {
    /// A file in the cache directory; `None` if there is no cache. `key` must be valid in a file name.
    pub fn new(kind: Kind, key: String) -> Option<Self> {
        Some(Self { kind, folder: folder()?, key })
    }

    #[cfg(test)]
    pub fn at(kind: Kind, folder: &Path, key: &str) -> Self {
        Self { kind, folder: folder.to_owned(), key: key.to_owned() }
    }

    /// The file for a variant of the contents.
    pub fn with_suffix(self, suffix: &str) -> Self {
        Self { key: format!("{}{suffix}", self.key), ..self }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join(format!("{}{}", self.kind.prefix, self.key))
    }

    /// Reads the file. Returns its bytes and the offset of the contents, or `None` if it is absent or damaged.
    pub fn load(&self) -> Option<(Vec<u8>, usize)> {
        let (mut file, about) = self.open()?;
        let mut bytes = Vec::with_capacity(about.len() as usize + 1);
        file.read_to_end(&mut bytes).ok()?;
        let start = bytes.iter().position(|b| *b == b'\n')? + 1;
        let (head, contents) = bytes.split_at_checked(start)?;
        (head == self.head(contents).as_bytes()).then_some((bytes, start))
    }

    /// Maps the file, which costs less than reading a large one; `None` if it is absent or damaged.
    pub fn map(&self) -> Option<Contents> {
        let (file, about) = self.open()?;
        let file = map_file(&file).ok().filter(|file| file.len() as u64 == about.len())?;
        let start = file.iter().position(|b| *b == b'\n')? + 1;
        let (head, contents) = file.split_at_checked(start)?;
        (head == self.head(contents).as_bytes()).then_some(Contents { file, start })
    }

    fn open(&self) -> Option<(File, Metadata)> {
        let (file, about) = input::open_itself(&self.path()).ok()?;
        (about.len() <= self.kind.max_bytes && input::is_trusted(&about)).then_some((file, about))
    }

    /// Writes the contents. Failures are ignored because they only cost time.
    pub fn save(&self, contents: &[u8]) {
        let _ = self.try_save(contents);
    }

    fn try_save(&self, contents: &[u8]) -> std::io::Result<()> {
        let head = self.head(contents);
        // A longer file would not be read back. A write beyond the limit of the process would end rbt by a signal.
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if (head.len() + contents.len()) as u64 > self.kind.max_bytes.min(limit) {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.folder)?;
        let about = fs::metadata(&self.folder)?;
        if !input::is_trusted(&about) {
            return Ok(());
        }
        let new = self.folder.join(format!(".{}{}.{}", self.kind.prefix, self.key, std::process::id()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new).and_then(|mut file: File| {
            file.write_all(head.as_bytes())?;
            file.write_all(contents)
        });
        // The rename is atomic, so other processes never see a partial file.
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

    /// Removes the oldest files, and those that writers have left behind.
    fn prune(&self) {
        let unfinished = format!(".{}", self.kind.prefix);
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let (name, own) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            let is_unfinished = name.starts_with(&unfinished);
            if !is_unfinished && !name.starts_with(self.kind.prefix) {
                continue;
            }
            let Some((time, bytes)) = entry.metadata().ok().and_then(|about| Some((about.modified().ok()?, about.len()))) else { continue };
            if !is_unfinished {
                all.push((time, own, bytes));
            } else if time.elapsed().is_ok_and(|age| age > ABANDONED_AFTER) {
                let _ = fs::remove_file(own);
            }
        }
        all.sort();
        let (mut files, mut total) = (all.len(), all.iter().map(|(.., bytes)| bytes).sum::<u64>());
        for (_, path, bytes) in all {
            if files <= self.kind.max_files && total <= self.kind.max_total {
                return;
            }
            if path != self.path() && fs::remove_file(path).is_ok() {
                (files, total) = (files - 1, total - bytes);
            }
        }
    }
}

/// Identifies the contents of a file by its inode and the time of its last change, which the kernel alone sets. None if it has
/// just changed, because a further change may get the same time. It is valid in a file name.
pub(crate) fn unchanged(meta: &Metadata, now: SystemTime) -> Option<String> {
    let changed = Duration::new(u64::try_from(meta.ctime()).ok()?, u32::try_from(meta.ctime_nsec()).ok()?);
    let age = now.duration_since(UNIX_EPOCH + changed).ok()?;
    (age > TIMESTAMP_GRANULARITY).then(|| format!("{:x}-{:x}-{:x}-{:x}", meta.dev(), meta.ino(), meta.len(), changed.as_nanos()))
}

/// Identifies this build of rbt.
pub(crate) fn rbt_itself() -> Option<String> {
    let of = fs::metadata("/proc/self/exe").ok()?;
    let times = (of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
    Some(format!("{VERSION} {} {} {} {times:?}", of.dev(), of.ino(), of.size()))
}

fn folder() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name);
    if let Some(given) = var("RBT_CACHE") {
        return Some(PathBuf::from(given)).filter(|p| !p.as_os_str().is_empty());
    }
    if rustix::process::geteuid().is_root() {
        // With sudo, root's environment may be that of the calling user.
        return Some(PathBuf::from("/var/cache/rbt"));
    }
    let absolute = |name: &str| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
    Some(absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?.join("rbt"))
}

/// Detects damage, not forgery: a process that can write the file can also write the digest.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
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

    const KIND: Kind = Kind { form: "rbt-test-1", prefix: "test-", max_bytes: 1 << 20, max_files: 8, max_total: 1 << 20 };

    #[test]
    fn changed_files_are_others() {
        let path = std::env::temp_dir().join(format!("rbt-unchanged-{}", std::process::id()));
        let key = |later: u64| unchanged(&std::fs::metadata(&path).unwrap(), SystemTime::now() + Duration::from_secs(later));
        std::fs::write(&path, "one").unwrap();
        assert_eq!(key(0), None);
        let first = key(10);
        assert!(first.is_some() && first == key(20));
        let times = std::fs::metadata(&path).unwrap().modified().unwrap();
        // two ticks of a clock, so that the time differs
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(&path, "two").unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
        let second = key(10);
        std::fs::remove_file(&path).unwrap();
        assert!(second.is_some() && second != first, "{first:?} {second:?}");
    }

    #[test]
    fn caches_contents_and_ignores_damaged_ones() {
        let folder = std::env::temp_dir().join(format!("rbt-cache-{}", std::process::id()));
        let file = CacheFile::at(KIND, &folder, "0123-4567");
        let contents = |file: &CacheFile| {
            let read = file.load().map(|(bytes, start)| bytes[start..].to_vec());
            assert_eq!(file.map().map(|mapped| mapped.to_vec()), read);
            read
        };
        assert!(contents(&file).is_none());
        file.save(b"some\ncontents");
        assert_eq!(contents(&file).as_deref(), Some(b"some\ncontents".as_slice()));
        // A file with another identity.
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
        assert!(fs::read_dir(&folder).unwrap().count() <= KIND.max_files + 1);
        // all of them together are limited, too, and files that a writer has left behind disappear
        let left_behind = folder.join(".test-0.1");
        fs::write(&left_behind, "").unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(7200);
        fs::File::options().write(true).open(&left_behind).unwrap().set_modified(long_ago).unwrap();
        for n in 0..4 {
            CacheFile::at(KIND, &folder, &format!("large-{n}")).save(&[0; 400 << 10]);
        }
        let total: u64 = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(total <= KIND.max_total && total > 800 << 10 && !left_behind.exists(), "{total}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
