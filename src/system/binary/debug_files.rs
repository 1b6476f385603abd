//! Finds the debug information that was stripped from a binary: by build ID or by the name in `.gnu_debuglink`, in the places
//! where debuggers look (GDB manual, "Separate Debug Files"), and the symbols that the binary itself keeps in `.gnu_debugdata`.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use crate::system::binary::file::map;
use crate::system::machine::procfs;

/// The directories that debuggers search by default, in the syntax of `--debuginfo`.
const DEFAULT_DIRECTORIES: [&str; 3] = ["", ".debug", "/usr/lib/debug"];

/// A mapped file.
pub(in crate::system) struct Mapped {
    pub(in crate::system) path: PathBuf,
    pub(in crate::system) data: memmap2::Mmap,
}

/// Finds the first separate file of a binary for which `has` is true. `path` is the name of the binary and determines the
/// directories to search; `data` are its contents. `dirs` are those of `--debuginfo`, which come before the usual ones: an
/// absolute one contains `.build-id` and a copy of the system's directory tree, a relative one is below the directory of the
/// binary. With a `+` before a directory, the checksum of the file must be the one in the binary.
pub(in crate::system) fn find(path: &Path, data: &[u8], dirs: &[String], has: impl Fn(&object::File<'_>) -> bool) -> Option<Mapped> {
    let file = object::File::parse(data).ok()?;
    let id = file.build_id().ok().flatten();
    let link = file.gnu_debuglink().ok().flatten().map(|(name, sum)| (String::from_utf8_lossy(name).into_owned(), sum));
    let usable = |place: PathBuf, sum: Option<u32>| {
        let data = map(&place).ok()?;
        let other = object::File::parse(&*data).ok()?;
        let same = match (id, other.build_id().ok().flatten()) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        let wanted = same && sum.is_none_or(|sum| sum == checksum(&data)) && has(&other);
        wanted.then_some(Mapped { path: place, data })
    };
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (root, folder) = within_root(&real);
    let all = dirs.iter().map(|dir| (dir.as_str(), true)).chain(DEFAULT_DIRECTORIES.map(|dir| (dir, false)));
    for (dir, requested) in all {
        let (dir, checked) = dir.strip_prefix('+').map_or((dir, false), |dir| (dir, true));
        let absolute = dir.starts_with('/');
        // For a process in a container, search the container's file system first, then this one.
        let bases: Vec<PathBuf> = match (absolute, &root) {
            (true, Some(root)) => vec![root.join(dir.trim_start_matches('/')), PathBuf::from(dir)],
            (true, None) => vec![PathBuf::from(dir)],
            (false, _) => real.parent().map(|folder| folder.join(dir)).into_iter().collect(),
        };
        for base in bases {
            if absolute && let Some(found) = id.and_then(|id| usable(base.join(by_id(id)?), None)) {
                return Some(found);
            }
            // Without a link, try the conventional name, but only in directories that the user named.
            let unlinked = || Some((format!("{}.debug", real.file_name().filter(|_| requested)?.to_str()?), None));
            let named = link.as_ref().map(|(name, sum)| (name.clone(), Some(*sum)));
            let Some((name, sum)) = named.or_else(unlinked) else { continue };
            let mut places = vec![base.join(&name)];
            if absolute {
                places.insert(0, base.join(&folder).join(&name));
            }
            let sum = sum.filter(|_| checked);
            if let Some(found) = places.into_iter().filter(|p| *p != real).find_map(|p| usable(p, sum)) {
                return Some(found);
            }
        }
    }
    None
}

/// Paths at which the package of a binary's split debug information (`-gsplit-dwarf`) may be, in the order of debuggers.
pub(in crate::system) fn packages(path: &Path, dirs: &[String]) -> Vec<PathBuf> {
    let package = |of: &Path| {
        let mut name = of.file_name().unwrap_or_default().to_owned();
        name.push(".dwp");
        name
    };
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (_, folder) = within_root(&real);
    let mut all = vec![path.with_file_name(package(path)), real.with_file_name(package(&real))];
    for base in bases(&real, dirs.iter().map(String::as_str).chain(DEFAULT_DIRECTORIES)) {
        all.extend([base.join(&folder).join(package(&real)), base.join(package(&real))]);
    }
    all
}

/// Paths at which a split debug file that a binary names may be: where the compiler left it, beside the binary, and in the
/// directories of `--debuginfo`.
pub(in crate::system) fn split(path: &Path, dirs: &[String], compiled_in: &Path, name: &Path) -> Vec<PathBuf> {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let written = compiled_in.join(name);
    let (root, _) = within_root(&real);
    let inside = root.map(|root| root.join(written.strip_prefix("/").unwrap_or(&written)));
    let mut all: Vec<PathBuf> = inside.into_iter().chain([written.clone()]).collect();
    let alone = name.file_name().map(Path::new).unwrap_or(name);
    for base in bases(&real, std::iter::once("").chain(dirs.iter().map(String::as_str))) {
        let below = written.strip_prefix("/").unwrap_or(&written);
        all.extend([below, name, alone].into_iter().filter(|n| n.is_relative()).map(|n| base.join(n)));
    }
    all
}

/// The directories of `--debuginfo` for one binary: relative ones are below its own directory.
fn bases<'a>(real: &Path, dirs: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
    let (root, _) = within_root(real);
    let folder = real.parent().unwrap_or(Path::new(""));
    let mut all = Vec::new();
    for dir in dirs {
        let dir = dir.strip_prefix('+').unwrap_or(dir);
        match dir.strip_prefix('/') {
            Some(below) => all.extend(root.iter().map(|root| root.join(below)).chain([PathBuf::from(dir)])),
            None => all.push(folder.join(dir)),
        }
    }
    all
}

/// Path of a separate file by build ID, relative to a directory of debug information.
pub(in crate::system) fn by_id(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first()?;
    let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    Some(PathBuf::from(format!(".build-id/{first:02x}/{rest}.debug")))
}

/// Splits a path that goes through `/proc/PID/root` into this root and the directory within it, without the leading slash.
fn within_root(path: &Path) -> (Option<PathBuf>, PathBuf) {
    let folder = |of: &Path| of.strip_prefix("/").unwrap_or(of).parent().map(Path::to_owned).unwrap_or_default();
    match procfs::through_root(path) {
        Some((root, inside)) => (Some(root), folder(&inside)),
        None => (None, folder(path)),
    }
}

/// Limit for the inflated size of `.gnu_debugdata`, in bytes.
const MAX_INFLATED_SIZE: u64 = 256 << 20;

/// The xz-compressed ELF file in a stripped binary ("MiniDebugInfo"), which has the symbols for readable stacks. `None` if the
/// section is absent or damaged.
pub(in crate::system) fn embedded(data: &[u8]) -> Option<Vec<u8>> {
    let file = object::File::parse(data).ok()?;
    let packed = match file.section_by_name(".gnu_debugdata")?.uncompressed_data().ok()? {
        Cow::Borrowed(bytes) => bytes.to_vec(),
        Cow::Owned(bytes) => bytes,
    };
    let mut inflated = Vec::new();
    xz2::read::XzDecoder::new(packed.as_slice()).take(MAX_INFLATED_SIZE).read_to_end(&mut inflated).ok()?;
    Some(inflated)
}

/// The CRC-32 of `.gnu_debuglink`: polynomial 0x04c11db7, bits reversed.
fn checksum(data: &[u8]) -> u32 {
    let table: Vec<u32> = (0..256u32).map(|n| (0..8).fold(n, |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 })).collect();
    !data.iter().fold(!0u32, |sum, byte| table.get(((sum ^ u32::from(*byte)) & 0xff) as usize).copied().unwrap_or(0) ^ (sum >> 8))
}

/// Where the debug information of a binary is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugInformation {
    /// In the binary itself.
    Within,
    /// In this file, or at least symbols.
    Separate(PathBuf),
    /// There is none.
    Missing,
}

/// Finds the debug information of a binary. `name` is its name, `at` a path under which it can be opened. None if it cannot be
/// read, or is not an ELF file.
pub fn debug_information(name: &Path, at: &Path, dirs: &[String]) -> Option<DebugInformation> {
    let data = map(at).ok()?;
    let has = |f: &object::File<'_>| f.section_by_name(".debug_info").is_some_and(|s| s.file_range().is_some_and(|(_, size)| size > 0));
    let object = object::File::parse(&*data).ok()?;
    if has(&object) {
        return Some(DebugInformation::Within);
    }
    let found = find(name, &data, dirs, |f| has(f) || f.symbols().next().is_some());
    Some(found.map_or(DebugInformation::Missing, |found| DebugInformation::Separate(found.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn roots() {
        let root = |path: &str| within_root(Path::new(path));
        assert_eq!(root("/proc/7/root/usr/bin/x"), (Some("/proc/7/root".into()), "usr/bin".into()));
        assert_eq!(root("/usr/bin/x"), (None, "usr/bin".into()));
        assert_eq!(root("/proc/7/exe"), (None, "proc/7".into()));
    }
}
