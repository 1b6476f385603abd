//! The file system as seen by a process, or below a directory.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use crate::input;
use crate::system::Missing;
use crate::system::machine::procfs;

/// A file to which a name in a probe refers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryFile {
    /// Its path, with symbolic links resolved.
    pub path: PathBuf,
    /// The path in a probe's name, which may contain links: the one in the script or, for patterns and names without a slash,
    /// the one by which the file was found.
    pub named: PathBuf,
}

impl BinaryFile {
    /// With this path in a probe's name.
    pub fn new(path: PathBuf, named: impl Into<PathBuf>) -> Self {
        Self { path, named: named.into() }
    }
}

impl From<PathBuf> for BinaryFile {
    fn from(path: PathBuf) -> Self {
        Self { named: path.clone(), path }
    }
}

/// The file system as seen by a process: `prefix` is empty for rbt itself, else `/proc/PID/root`.
#[derive(Debug, Default)]
pub(in crate::system) struct Root {
    pub(super) prefix: PathBuf,
    pub(super) pid: Option<u32>,
}

impl Root {
    pub(super) fn of(pid: Option<u32>) -> Result<Self, Missing> {
        let Some(id) = pid else { return Ok(Self::default()) };
        if !procfs::of(id).exists() {
            return Err(missing(format!("process {id} does not exist"), "check the pid: it may have exited"));
        }
        if has_ended(id) {
            return Err(process_ended(id));
        }
        let prefix = procfs::file(id, "root");
        // If the mount namespace and the root are the same, plain paths are easier to read.
        let inode = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
        let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
        let ours = namespace(&procfs::of(id)) == namespace(Path::new("/proc/self")) && inode(&prefix) == inode(Path::new("/"));
        Ok(Self { prefix: if ours { PathBuf::new() } else { prefix }, pid })
    }

    /// Returns the path of a regular file as seen from rbt, with links resolved; `None` if it does not exist. A relative path
    /// starts at rbt's working directory, regardless of the root.
    pub(in crate::system) fn find(&self, path: &Path) -> Option<PathBuf> {
        if path.is_relative() {
            return real(path);
        }
        if self.prefix.as_os_str().is_empty() {
            return match procfs::through_root(path) {
                Some((prefix, within)) => Self { prefix, pid: None }.find(&within),
                None => real(path),
            };
        }
        // An absolute link must start at this root again. The kernel would use rbt's own root.
        let mut todo: Vec<OsString> = components(path).rev().collect();
        let mut at = self.prefix.clone();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            if part == ".." {
                if at != self.prefix {
                    at.pop();
                }
                continue;
            }
            at.push(&part);
            if let Ok(target) = fs::read_link(&at) {
                links += 1;
                // The limit of the kernel (path_resolution(7)).
                if links > 40 {
                    return None;
                }
                at.pop();
                if target.is_absolute() {
                    at.clone_from(&self.prefix);
                }
                todo.extend(components(&target).rev());
            }
        }
        at.is_file().then_some(at)
    }

    /// A file that a name or path within the root refers to. If the root belongs to a process, only the resolved path leads to
    /// it from here.
    pub(super) fn named(&self, path: PathBuf, within: &Path) -> BinaryFile {
        let reachable = self.pid.is_none() || self.prefix.as_os_str().is_empty();
        if reachable { BinaryFile::new(path, within) } else { path.into() }
    }

    /// Returns the first executable file with this name on PATH, as a path within the root.
    pub(super) fn command(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|file| self.find(file).and_then(|found| fs::metadata(found).ok()).is_some_and(|m| m.permissions().mode() & 0o111 != 0))
    }

    /// Reads a file within the root.
    pub(in crate::system) fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.find(Path::new(path)).and_then(|found| input::read_regular(&found, input::LIST).ok())
    }

    /// Lists a directory within the root, sorted.
    pub(in crate::system) fn list(&self, dir: &str) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(self.outside(dir)).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    /// Converts a path within the root to one as seen from rbt; does not follow links.
    pub(super) fn outside(&self, path: &str) -> OsString {
        let mut all = self.prefix.clone().into_os_string();
        all.push(path);
        all
    }

    pub(super) fn describe(&self) -> String {
        match self.pid {
            Some(pid) => format!(" (as process {pid} sees it)"),
            None if self.prefix.as_os_str().is_empty() => String::new(),
            None => format!(" below {}", self.prefix.display()),
        }
    }
}

/// Resolves the links in a file's path. A link of the kernel (`/proc/PID/exe`) shows the path as seen by its process; if this
/// is another file here, the path stays unresolved.
fn real(path: &Path) -> Option<PathBuf> {
    let inode = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let real = fs::canonicalize(path).ok().filter(|p| inode(p) == Some((metadata.dev(), metadata.ino())));
    real.or_else(|| std::path::absolute(path).ok())
}

fn components(path: &Path) -> std::vec::IntoIter<OsString> {
    let parts: Vec<OsString> = path
        .components()
        .filter_map(|c| match c {
            Component::Normal(part) => Some(part.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    parts.into_iter()
}

/// Is the process a zombie, which no longer has a root?
pub(super) fn has_ended(pid: u32) -> bool {
    fs::read_link(procfs::file(pid, "root")).is_err_and(|why| why.kind() == ErrorKind::NotFound)
}

/// The error for a process that has ended.
pub(super) fn process_ended(pid: u32) -> Missing {
    missing(format!("process {pid} has ended"), "trace a running process, or start it with -c")
}

/// Makes an error from the missing thing and the remedy.
pub(super) fn missing(what: impl Into<String>, help: impl Into<String>) -> Missing {
    Missing { what: what.into(), help: Some(help.into()) }
}
