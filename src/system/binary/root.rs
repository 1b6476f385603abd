//! The file system as a process sees it, or as it is below a folder.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use crate::input;
use crate::system::Missing;

/// A file system as a process sees it: `prefix` is empty for our own, or `/proc/PID/root`.
#[derive(Debug, Default)]
pub(in crate::system) struct Root {
    pub(super) prefix: PathBuf,
    pub(super) pid: Option<u32>,
}

impl Root {
    pub(super) fn of(pid: Option<u32>) -> Result<Self, Missing> {
        let Some(id) = pid else { return Ok(Self::default()) };
        if !Path::new(&format!("/proc/{id}")).exists() {
            return Err(missing(format!("process {id} does not exist"), "check the pid: it may have exited"));
        }
        if has_ended(id) {
            return Err(ended(id));
        }
        let prefix = PathBuf::from(format!("/proc/{id}/root"));
        // In the same mount name space with the same root, plain paths say more to the reader.
        let inode = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
        let namespace = |id: &str| fs::read_link(format!("/proc/{id}/ns/mnt")).ok();
        let ours = namespace(&id.to_string()) == namespace("self") && inode(&prefix) == inode(Path::new("/"));
        Ok(Self { prefix: if ours { PathBuf::new() } else { prefix }, pid })
    }

    /// The file at `path` from where we stand, links resolved; none if there is no such regular file. A relative path
    /// starts at our working directory, without regard to the root.
    pub(in crate::system) fn find(&self, path: &Path) -> Option<PathBuf> {
        if path.is_relative() {
            return real(path);
        }
        if self.prefix.as_os_str().is_empty() {
            return match through_root(path) {
                Some((prefix, within)) => Self { prefix, pid: None }.find(&within),
                None => real(path),
            };
        }
        // An absolute link within the root starts at the root again, which the kernel would not do for us.
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
                // The kernel's own limit (path_resolution(7)).
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

    /// The first executable file of this name on our PATH, as a path within the root.
    pub(super) fn command(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
        std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .find(|file| self.find(file).and_then(|found| fs::metadata(found).ok()).is_some_and(|m| m.permissions().mode() & 0o111 != 0))
    }

    /// The contents of a file within the root.
    pub(in crate::system) fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.find(Path::new(path)).and_then(|found| input::read_regular(&found, input::LIST).ok())
    }

    /// Names in a directory within the root, sorted.
    pub(in crate::system) fn list(&self, dir: &str) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(self.outside(dir)).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    /// A path within the root as we write it; links are not followed.
    pub(super) fn outside(&self, path: &str) -> OsString {
        let mut all = self.prefix.clone().into_os_string();
        all.push(path);
        all
    }

    pub(super) fn said(&self) -> String {
        match self.pid {
            Some(pid) => format!(" (as process {pid} sees it)"),
            None if self.prefix.as_os_str().is_empty() => String::new(),
            None => format!(" below {}", self.prefix.display()),
        }
    }
}

/// A file's path without links. A link of the kernel's (`/proc/PID/exe`) says where a file is as its process sees it: where that
/// is another file to us, the path remains.
fn real(path: &Path) -> Option<PathBuf> {
    let inode = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let there = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let real = fs::canonicalize(path).ok().filter(|p| inode(p) == Some((there.dev(), there.ino())));
    real.or_else(|| std::path::absolute(path).ok())
}

/// `/proc/PID/root` and the path within, of a path that leads through it.
fn through_root(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut parts = path.components();
    let prefix: PathBuf = parts.by_ref().take(4).collect();
    let name = |n: usize| prefix.components().nth(n).map(|c| c.as_os_str().to_owned());
    let through = prefix.starts_with("/proc") && name(3)? == "root" && name(2)?.as_bytes().iter().all(u8::is_ascii_digit);
    through.then(|| (prefix, Path::new("/").join(parts.as_path())))
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

/// Has a process nothing left but its number? One that its parent has not taken note of has no root any more.
pub(super) fn has_ended(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/root")).is_err_and(|why| why.kind() == ErrorKind::NotFound)
}

/// What is said of such a process.
pub(super) fn ended(pid: u32) -> Missing {
    missing(format!("process {pid} has ended"), "trace a running process, or start it with -c")
}

/// What is missing, and what helps.
pub(super) fn missing(what: impl Into<String>, help: impl Into<String>) -> Missing {
    Missing { what: what.into(), help: Some(help.into()) }
}
