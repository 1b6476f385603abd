//! Cgroups (version 2): where they are mounted, their IDs, and the cgroups of containers.

#![allow(unsafe_code)] // file handles

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::input;
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
    let whole = PathBuf::from(path);
    let found = std::iter::once(whole).filter(|p| p.is_absolute()).chain(relative).find(|p| is_cgroup2(p));
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

const NOT_MOUNTED: &str = "no cgroup2 file system is mounted: mount -t cgroup2 none /sys/fs/cgroup";

/// Is this directory still that of the cgroup with this ID?
pub fn is_there(path: &Path, id: u64) -> bool {
    id_of(path).is_ok_and(|now| now == id)
}

/// The ID in the directory's file handle; on 64-bit machines, the inode number is the same.
fn id_of(path: &Path) -> io::Result<u64> {
    file_handle(path).map_or_else(|| fs::metadata(path).map(|m| m.ino()), Ok)
}

/// Describes the cgroup with this directory.
fn at(path: PathBuf) -> Result<Cgroup, Missing> {
    let path = path.canonicalize().unwrap_or(path);
    let failed = |e: io::Error| Missing { what: format!("cannot find the ID of cgroup {}: {e}", path.display()), help: None };
    let id = id_of(&path).map_err(failed)?;
    let below =
        mount().and_then(|m| path.strip_prefix(m).ok().map(|p| p.components().filter(|c| matches!(c, Component::Normal(_))).count()));
    let level = below.filter(|_| sees_all()).map(|n| n as u32);
    Ok(Cgroup { id, level, path })
}

/// Is this process in the initial cgroup namespace? `PROC_CGROUP_INIT_INO` of include/linux/proc_ns.h.
fn sees_all() -> bool {
    fs::read_link("/proc/self/ns/cgroup").is_ok_and(|ns| ns.as_os_str() == "cgroup:[4026531835]")
}

/// The mount point of the cgroup2 file system.
pub fn mount() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
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

/// Prefixes and suffixes that container managers add to the ID or name of a container in the name of its cgroup: docker,
/// podman, containerd, CRI-O (with and without systemd), systemd-nspawn and LXC.
const FORMS: &[(&str, &str)] = &[
    ("docker-", ".scope"),
    ("libpod-", ".scope"),
    ("libpod-", ""),
    ("cri-containerd-", ".scope"),
    ("nerdctl-", ".scope"),
    ("crio-", ".scope"),
    ("crio-", ""),
    ("machine-", ".scope"),
    ("systemd-nspawn@", ".service"),
    ("lxc.payload.", ""),
    ("", ""),
];
/// Cgroups whose children are named only by the container's ID or name.
const PARENTS: &[&str] = &["docker", "libpod_parent", "lxc", "kubepods", "default", "k8s.io", "moby"];
/// Length of an ID in hexadecimal digits, and the minimum length of an abbreviation.
const ID: usize = 64;
const SHORTEST: usize = 4;
/// Limit for the depth of the search.
const DEPTH: u32 = 32;

/// Finds the cgroup of a container by its name, or by its ID or the beginning of it.
pub fn container(name: &str) -> Result<Cgroup, Missing> {
    let Some(mount) = mount() else {
        return Err(Missing { what: format!("container `{name}` cannot be found"), help: Some(NOT_MOUNTED.into()) });
    };
    let known = ids_of(name, Path::new("/"));
    let mut found = Vec::new();
    for wanted in known.iter().map(String::as_str).chain(known.is_empty().then_some(name)) {
        search(&mount, wanted, DEPTH, &mut found);
    }
    match found.as_slice() {
        [one] => at(one.clone()),
        [] => Err(Missing {
            what: match known.first() {
                Some(id) => format!("container `{name}` ({}) is not running: it has no cgroup", id.get(..12).unwrap_or(id)),
                None => format!("there is no running container `{name}`"),
            },
            help: Some(format!(
                "give its ID (rbt knows the names of docker and podman containers only), or the cgroup itself, a path below {}: \
                 --cgroup PATH; /proc/PID/cgroup tells a process's",
                mount.display()
            )),
        }),
        several => {
            let names: Vec<String> = several.iter().take(3).map(|p| p.display().to_string()).collect();
            Err(Missing {
                what: format!("`{name}` matches {} containers: {}", several.len(), names.join(", ")),
                help: Some("give more digits of the ID, or use --cgroup PATH".into()),
            })
        }
    }
}

/// Finds the directories of that container, only the outermost ones, sorted by name.
fn search(folder: &Path, wanted: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for path in folders_in(folder) {
        let parent = folder.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if path.file_name().and_then(|n| n.to_str()).is_some_and(|n| is_of(n, parent, wanted)) {
            found.push(path);
        } else if depth > 0 {
            search(&path, wanted, depth - 1, found);
        }
    }
}

/// Is a directory with this name and this parent that of the container?
fn is_of(folder: &str, parent: &str, wanted: &str) -> bool {
    // Names of units encode `-` and other characters in hexadecimal: systemd-escape(1).
    let folder = folder.replace("\\x2d", "-");
    FORMS.iter().any(|(before, after)| {
        let Some(inner) = folder.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) else { return false };
        let is_id = |s: &str, n: usize| s.len() >= n && s.bytes().all(|b| b.is_ascii_hexdigit());
        let by_id = inner.len() == ID && is_id(inner, ID) && is_id(wanted, SHORTEST) && inner.starts_with(wanted);
        let plain = before.is_empty() && after.is_empty();
        by_id || (inner == wanted && !wanted.is_empty() && (!plain || PARENTS.contains(&parent)))
    })
}

/// The IDs of containers that docker or podman has under this name, running or not. Different users can have containers with
/// the same name. `root` is the machine's root directory.
fn ids_of(name: &str, root: &Path) -> Vec<String> {
    // docker: a directory for each container, with a description: `…"Name":"/web"…`
    let docker = folders_in(&root.join("var/lib/docker/containers")).into_iter().filter_map(|folder| {
        let text = input::text(&folder.join("config.v2.json"), input::TEXT).ok()?;
        text.contains(&format!("\"Name\":\"/{name}\"")).then(|| folder.file_name()?.to_str().map(str::to_owned))?
    });
    // podman: a list `[{"id":"…","names":["web"],…},…]` for root, and one for each other user.
    let homes = folders_in(&root.join("home")).into_iter().chain([root.join("root")]).map(|home| home.join(".local/share"));
    let stores = [root.join("var/lib"), root.join("run")].into_iter().chain(homes);
    let podman = stores.filter_map(|store| {
        let text = input::text(&store.join("containers/storage/overlay-containers/containers.json"), input::TEXT).ok()?;
        let of_name = |each: &&str| each.split_once("\"names\":[").is_some_and(|(_, n)| n.starts_with(&format!("\"{name}\"")));
        Some(text.split("\"id\":\"").skip(1).find(of_name)?.split('"').next()?.to_owned())
    });
    docker.chain(podman).collect()
}

/// The subdirectories of a directory, sorted by name.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).ok().into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_told_by_their_folders() {
        let id = "0123456789abcdef".repeat(4);
        for (folder, parent, wanted, is) in [
            (format!("docker-{id}.scope"), "system.slice", "0123456789ab", true),
            (format!("docker-{id}.scope"), "system.slice", id.as_str(), true),
            (format!("docker-{id}.scope"), "system.slice", "012", false),
            (format!("docker-{id}.scope"), "system.slice", "1234", false),
            (id.clone(), "docker", "0123", true),
            (id.clone(), "pod77", "0123", true),
            (format!("libpod-{id}"), "x", "0123", true),
            (format!("libpod-conmon-{id}.scope"), "machine.slice", "0123", false),
            (format!("cri-containerd-{id}.scope"), "x", "01234", true),
            ("machine-web\\x2dserver.scope".into(), "machine.slice", "web-server", true),
            ("systemd-nspawn@web.service".into(), "machine.slice", "web", true),
            ("lxc.payload.web".into(), "", "web", true),
            ("web".into(), "lxc", "web", true),
            ("web".into(), "system.slice", "web", false),
            ("init.scope".into(), "", "init", false),
        ] {
            assert_eq!(is_of(&folder, parent, wanted), is, "{folder} in {parent}: {wanted}");
        }
    }

    #[test]
    fn names_lead_to_ids() {
        let root = std::env::temp_dir().join(format!("rbt-containers-{}", std::process::id()));
        let docker = root.join("var/lib/docker/containers/aaaa");
        let podman = root.join("var/lib/containers/storage/overlay-containers");
        let own = root.join("home/ann/.local/share/containers/storage/overlay-containers");
        for folder in [&docker, &podman, &own] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(docker.join("config.v2.json"), r#"{"ID":"aaaa","Name":"/web","Driver":"overlay2"}"#).unwrap();
        fs::write(podman.join("containers.json"), r#"[{"id":"bbbb","names":["db"],"image":"x"},{"id":"cccc","names":["web2","y"]}]"#)
            .unwrap();
        fs::write(own.join("containers.json"), r#"[{"id":"dddd","names":["db"],"image":"x"}]"#).unwrap();
        let ids = ["web", "db", "web2", "we", "y"].map(|n| ids_of(n, &root).join(" "));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(ids, ["aaaa", "bbbb dddd", "cccc", "", ""]);
    }
}
