//! Processes in the file system of proc(5).
//!
//! `/proc` may be that of another PID namespace, such as after `unshare --pid --fork`: its numbers are then not those that the
//! kernel gives rbt, and would lead to other processes. rbt then mounts one of its own namespace, which nobody else sees.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where nothing can be found.
const NO_PATH: &str = "/dev/null";

/// The file system with the numbers of rbt's own PID namespace.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| if is_of_others(Path::new("/proc")) { mount_own().unwrap_or_else(|| NO_PATH.into()) } else { "/proc".into() })
}

/// Is a mounted proc(5) that of another PID namespace, so that rbt has another number there, or none?
fn is_of_others(proc: &Path) -> bool {
    match std::fs::read_link(proc.join("self")) {
        Ok(number) => number.to_str() != Some(&std::process::id().to_string()),
        Err(_) => proc.join("version").exists(),
    }
}

fn mount_own() -> Option<PathBuf> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(&context).ok()?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    // open to the end of rbt
    (!is_of_others(&path)).then(|| {
        let _ = mount.into_raw_fd();
        path
    })
}

/// The device and inode of rbt's PID namespace, or `None` if it is the initial one.
///
/// # Errors
///
/// The namespace is unknown because /proc is not mounted.
pub fn pid_namespace() -> io::Result<Option<(u64, u64)>> {
    /// `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
    const INITIAL: u64 = 0xEFFF_FFFC;
    let ns = std::fs::metadata("/proc/self/ns/pid")?;
    Ok((ns.ino() != INITIAL).then(|| (ns.dev(), ns.ino())))
}

/// The directory of a process, or of a thread.
pub fn of(pid: u32) -> PathBuf {
    root().join(pid.to_string())
}

/// A file there.
pub fn file(pid: u32, name: &str) -> PathBuf {
    of(pid).join(name)
}

/// All processes.
pub fn all() -> impl Iterator<Item = u32> {
    std::fs::read_dir(root()).into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The file that a process has mapped at these addresses; opening it needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
pub fn mapped(pid: u32, start: u64, end: u64) -> PathBuf {
    file(pid, &format!("map_files/{start:x}-{end:x}"))
}

/// A path as a process sees it, whatever its root is.
pub fn path_in_root(pid: u32, path: &Path) -> PathBuf {
    let mut full = file(pid, "root");
    full.extend(path.components().filter(|c| *c != std::path::Component::RootDir));
    full
}

/// Splits a path through `/proc/PID/root` into this root and the path within it.
pub fn through_root(path: &Path) -> Option<(PathBuf, PathBuf)> {
    [Path::new("/proc"), root()].into_iter().find_map(|proc| {
        let mut parts = path.strip_prefix(proc).ok()?.components();
        let pid = parts.next()?.as_os_str();
        let is_root = parts.next()?.as_os_str() == "root" && pid.to_str()?.parse::<u32>().is_ok();
        is_root.then(|| (proc.join(pid).join("root"), Path::new("/").join(parts.as_path())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_through_roots() {
        let split = |path: &str| through_root(Path::new(path)).map(|(root, path)| (root.display().to_string(), path.display().to_string()));
        assert_eq!(split("/proc/7/root/usr/bin/x"), Some(("/proc/7/root".into(), "/usr/bin/x".into())));
        assert_eq!(split("/proc/7/root"), Some(("/proc/7/root".into(), "/".into())));
        for other in ["/proc/self/root/x", "/proc/7/exe", "/usr/7/root/x", "/proc", "x"] {
            assert_eq!(split(other), None, "{other}");
        }
        assert_eq!(path_in_root(7, Path::new("/usr/x")), Path::new("/proc/7/root/usr/x"));
    }

    #[test]
    fn another_file_system_is_known() {
        assert!(!is_of_others(Path::new("/proc")));
        assert!(!is_of_others(Path::new("/usr")));
        let other = std::env::temp_dir().join(format!("rbt-proc-{}", std::process::id()));
        std::fs::create_dir_all(&other).unwrap();
        std::fs::write(other.join("version"), "").unwrap();
        assert!(is_of_others(&other));
        std::os::unix::fs::symlink("2147483647", other.join("self")).unwrap();
        assert!(is_of_others(&other));
        std::fs::remove_dir_all(&other).unwrap();
    }
}
