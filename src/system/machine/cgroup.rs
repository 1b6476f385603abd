//! Cgroups (version 2): where they are mounted, and their IDs.

#![allow(unsafe_code)] // file handles

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::failure::reason;
use crate::system::Missing;

/// A cgroup of version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its ID, as `bpf_get_current_cgroup_id` returns it.
    pub id: u64,
    /// Its depth; `None` if a namespace hides it.
    pub level: Option<u32>,
    /// Its directory.
    pub path: PathBuf,
}

/// Finds a cgroup by its path below the cgroup2 mount, or by its full path.
pub fn find(path: &str) -> Result<Cgroup, Missing> {
    let mount = mount();
    let relative = mount.as_ref().map(|m| m.join(path.trim_start_matches('/')));
    // A full path counts only if it is in a cgroup2 file system: `/` is the root cgroup, not the root directory.
    let path_buf = PathBuf::from(path);
    let found = std::iter::once(path_buf).filter(|p| p.is_absolute()).chain(relative).find(|p| is_cgroup2(p));
    let Some(found) = found else {
        return Err(Missing {
            what: format!("no cgroup (version 2) at `{path}`"),
            help: Some(match mount {
                Some(m) => format!("give its path relative to {}", m.display()),
                None => NOT_MOUNTED.into(),
            }),
        });
    };
    at(found)
}

pub(super) const NOT_MOUNTED: &str = "no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup";

/// Is this directory still that of the cgroup with this ID?
pub fn is_cgroup_path(path: &Path, id: u64) -> bool {
    id_of(path).is_ok_and(|now| now == id)
}

/// The ID in the directory's file handle; on 64-bit machines, the inode number is the same.
fn id_of(path: &Path) -> io::Result<u64> {
    file_handle(path).map_or_else(|| fs::metadata(path).map(|m| m.ino()), Ok)
}

/// Describes the cgroup with this directory.
pub(super) fn at(path: PathBuf) -> Result<Cgroup, Missing> {
    let path = path.canonicalize().unwrap_or(path);
    let failed = |e: io::Error| Missing { what: format!("cannot find the ID of cgroup {}: {}", path.display(), reason(&e)), help: None };
    let id = id_of(&path).map_err(failed)?;
    let below =
        mount().and_then(|m| path.strip_prefix(m).ok().map(|p| p.components().filter(|c| matches!(c, Component::Normal(_))).count()));
    let level = below.filter(|_| sees_root()).map(|n| n as u32);
    Ok(Cgroup { id, level, path })
}

/// Is this process in the initial cgroup namespace? `PROC_CGROUP_INIT_INO` of include/linux/proc_ns.h.
fn sees_root() -> bool {
    fs::read_link("/proc/self/ns/cgroup").is_ok_and(|ns| ns.as_os_str() == "cgroup:[4026531835]")
}

/// The path of a cgroup below the mount point, by its ID. A cgroup that was found once is known after it is gone.
pub fn path_of(id: u64) -> Option<String> {
    static KNOWN: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = known.get(&id) {
        return Some(path.clone());
    }
    if known.len() > MAX_KNOWN {
        known.clear();
    }
    // IDs are not used again; in a container, rbt's own mount may show only the container's cgroups
    let outer = || mount_in("1").map(|point| Path::new("/proc/1/root").join(point.strip_prefix("/").unwrap_or(&point)));
    for root in [mount(), outer()].into_iter().flatten() {
        known.extend(paths(&root));
        if let Some(path) = known.get(&id) {
            return Some(path.clone());
        }
    }
    None
}

/// The paths of all cgroups by their IDs. The inode number of a directory is the ID.
fn paths(root: &Path) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    found.extend(fs::metadata(root).ok().map(|m| (m.ino(), "/".to_string())));
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            let path = entry.path();
            if let (Ok(m), Ok(below)) = (entry.metadata(), path.strip_prefix(root)) {
                found.insert(m.ino(), format!("/{}", below.display()));
            }
            pending.push(path);
        }
    }
    found
}

/// The mount point of the cgroup2 file system.
pub fn mount() -> Option<PathBuf> {
    mount_in("self")
}

/// The same as this process sees it.
fn mount_in(process: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).ok()?;
    // `id parent major:minor root mount-point options … - type source options`
    let point = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| left.split(' ').nth(4))?
    })?;
    Some(PathBuf::from(point.replace("\\040", " ")))
}

fn is_cgroup2(path: &Path) -> bool {
    const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
    rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == CGROUP2_SUPER_MAGIC)
}

/// The eight bytes of a cgroup's file handle (`name_to_handle_at(2)`).
fn file_handle(path: &Path) -> Option<u64> {
    /// `struct file_handle` with room for a kernfs ID.
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        id: [u8; 8],
    }
    let path = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    let (mut handle, mut mount) = (Handle { bytes: 8, kind: 0, id: [0; 8] }, 0i32);
    // SAFETY: the kernel writes at most the eight bytes that the handle declares.
    let done = unsafe { libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), &raw mut handle, &raw mut mount, 0) };
    (done == 0 && handle.bytes == 8).then(|| u64::from_ne_bytes(handle.id))
}

/// Maximum number of known paths.
pub(super) const MAX_KNOWN: usize = 100_000;

/// The subdirectories of a directory, sorted by name.
pub(super) fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).ok().into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_by_its_inode() {
        let dir = std::env::temp_dir().join(format!("cgroup-find-{}", std::process::id()));
        fs::create_dir_all(dir.join("a/b")).unwrap();
        let id = fs::metadata(dir.join("a/b")).unwrap().ino();
        let found = paths(&dir);
        assert_eq!(found.get(&id).map(String::as_str), Some("/a/b"));
        assert_eq!(found.get(&fs::metadata(&dir).unwrap().ino()).map(String::as_str), Some("/"));
        fs::remove_dir_all(&dir).unwrap();
    }
}
