//! Containers: their cgroups, their IDs in the paths of cgroups, and their names in the files that container runtimes and the kubelet keep
//! on the machine. Names in Kubernetes that no file contains come from its API, if rbt may use it (`kubernetes`).

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cgroup::{self, Cgroup, MAX_KNOWN, NOT_MOUNTED, folders_in, mount, path_of};
use super::{kubernetes, rights};
use crate::input;
use crate::system::Missing;

/// A container. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its ID of 64 hexadecimal digits; empty for a machine of systemd-nspawn or LXC, which has a name only.
    pub id: String,
    /// Its name; in Kubernetes, that within the pod.
    pub name: String,
    /// The name of its pod in Kubernetes.
    pub pod: String,
    /// The namespace of the pod.
    pub namespace: String,
}

/// The root directories that are searched, with their mount namespaces: that of rbt, and that of the machine if rbt itself runs
/// in a container.
const ROOTS: &[(&str, &str)] = &[("/", "/proc/self/ns/mnt"), ("/proc/1/root", "/proc/1/ns/mnt")];

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
/// The forms in which a name stands in place of an ID.
const NAMED_PREFIXES: &[&str] = &["machine-", "systemd-nspawn@", "lxc.payload."];
/// Cgroups whose children are named only by the container's ID or name.
const PARENTS: &[&str] = &["docker", "libpod_parent", "lxc", "kubepods", "default", "k8s.io", "moby"];
/// Length of an ID in hexadecimal digits, and the minimum length of an abbreviation.
const ID: usize = 64;
const MIN_ID_LEN: usize = 4;
/// The length of an ID that people read.
const SHORT_ID: usize = 12;

/// Annotations (of the OCI's config.json) and labels (of docker) with the name of the container, that of the pod, and the
/// namespace: those of containerd, CRI-O and cri-dockerd, and nerdctl.
const NAMES: &[&str] = &["io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name"];
const PODS: &[&str] = &["io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"];
const NAMESPACES: &[&str] = &["io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"];

/// Directories with a directory for each container, whose name is the ID, and the file in it with the annotations.
const BUNDLES: &[(&str, &str)] = &[
    ("run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("run/containerd/io.containerd.runtime.v2.task/default", "config.json"),
    ("run/containers/storage/overlay-containers", "userdata/config.json"),
];

/// Limit for the depth of the search.
const DEPTH: u32 = 32;

impl Container {
    /// Its name, or else the first digits of its ID.
    pub fn shown(&self) -> &str {
        if self.name.is_empty() { self.id.get(..SHORT_ID).unwrap_or(&self.id) } else { &self.name }
    }

    /// Is this its name; in Kubernetes also `POD`, `POD/CONTAINER` or `NAMESPACE/POD/CONTAINER`?
    fn is_named(&self, name: &str) -> bool {
        let long = format!("{}/{}", self.pod, self.name);
        !name.is_empty() && (self.name == name || self.pod == name || long == name || format!("{}/{long}", self.namespace) == name)
    }

    /// Is everything known that a name can be expected for? Files may appear after the container has started.
    pub fn is_complete(&self, path: &str) -> bool {
        !self.name.is_empty() && (!self.pod.is_empty() || !path.contains("kubepods"))
    }
}

/// How long an incomplete answer is used before it is looked up again.
const REFRESH: Duration = Duration::from_secs(1);

/// What a cgroup belongs to.
#[derive(Clone, Debug)]
pub enum Owner {
    /// A container.
    Container(Container),
    /// No container.
    Nobody,
    /// The cgroup was gone before rbt looked it up, or is not visible.
    Unknown,
}

/// The owner of the cgroup with this ID. A container whose names are complete is known after it is gone.
pub fn owner_of_cgroup(id: u64) -> Owner {
    /// The answer, and when to look again; none for a complete one.
    type Known = (Owner, Option<Instant>);
    static KNOWN: Mutex<BTreeMap<u64, Known>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = match known.get(&id) {
        Some((owner, until)) if until.is_none_or(|until| Instant::now() < until) => return owner.clone(),
        Some((owner, _)) => Some(owner.clone()),
        None => None,
    };
    if known.len() > MAX_KNOWN {
        known.clear();
    }
    let (owner, is_final) = match path_of(id) {
        Some(path) => {
            let found = container_of_path(&path);
            let is_final = found.as_ref().is_none_or(|container| container.is_complete(&path));
            (found.map_or(Owner::Nobody, Owner::Container), is_final)
        }
        // without cgroups, there are no containers
        None if mount().is_none() => (Owner::Nobody, false),
        None => (before.unwrap_or(Owner::Unknown), false),
    };
    known.insert(id, (owner.clone(), (!is_final).then(|| Instant::now() + REFRESH)));
    owner
}

/// The container of the cgroup with this ID, if it is known.
pub fn container_of_cgroup(id: u64) -> Option<Container> {
    if let Owner::Container(container) = owner_of_cgroup(id) { Some(container) } else { None }
}

/// If the files of the machine cannot be read, the reason and the remedy.
pub fn hidden_names() -> Option<String> {
    let denied = |(root, _): &(&str, &str)| fs::metadata(root).is_err_and(|why| why.kind() == ErrorKind::PermissionDenied);
    let hidden = ROOTS.iter().any(denied) && !rights::holds("CAP_SYS_PTRACE");
    hidden.then(|| format!("names of containers may be missing; {}", rights::lacking("CAP_SYS_PTRACE")))
}

/// The container of a cgroup or of one above it; the innermost one that a file describes, or else the Kubernetes API.
pub fn container_of_path(path: &str) -> Option<Container> {
    let found = container_of_path_at(path, &roots())?;
    let asked = if found.is_complete(path) { None } else { kubernetes::container(&found.id) };
    Some(asked.unwrap_or(found))
}

fn container_of_path_at(path: &str, roots: &[PathBuf]) -> Option<Container> {
    let folders: Vec<String> = path.split('/').map(unescaped).collect();
    let parent = |i: usize| i.checked_sub(1).and_then(|i| folders.get(i)).map_or("", String::as_str);
    let inside = (0..folders.len()).rev().filter_map(|i| id_or_name(folders.get(i)?, parent(i)));
    let mut innermost = None;
    for inner in inside {
        if !is_id(inner, ID) {
            return Some(Container { name: inner.into(), ..Container::default() });
        }
        if let Some(found) = roots.iter().find_map(|root| container_by_id(inner, root)) {
            return Some(found);
        }
        innermost = innermost.or(Some(inner));
    }
    let id = innermost?.to_owned();
    let pod = folders.iter().rev().find_map(|folder| pod_uid(folder)).and_then(|uid| roots.iter().find_map(|root| pod(&uid, root)));
    let (namespace, pod) = pod.unwrap_or_default();
    Some(Container { id, name: String::new(), pod, namespace })
}

/// Finds the cgroup of a container by its name, or by its ID or the beginning of it.
pub fn find(name: &str) -> Result<Cgroup, Missing> {
    let Some(mount) = cgroup::mount() else {
        return Err(Missing { what: format!("container `{name}` cannot be found"), help: Some(NOT_MOUNTED.into()) });
    };
    let mut known = ids_of(name);
    if known.is_empty() {
        known = kubernetes::containers().into_iter().filter(|container| container.is_named(name)).map(|container| container.id).collect();
    }
    let mut found = Vec::new();
    for requested in known.iter().map(String::as_str).chain(known.is_empty().then_some(name)) {
        search(&mount, requested, DEPTH, &mut found);
    }
    match found.as_slice() {
        [one] => cgroup::at(one.clone()),
        [] => Err(Missing {
            what: match known.first() {
                Some(id) => format!("container `{name}` ({}) is not running: it has no cgroup", id.get(..12).unwrap_or(id)),
                None => format!("there is no running container `{name}`"),
            },
            help: Some(format!(
                "give its ID (rbt knows the names that docker, podman and Kubernetes keep in files, and those of the Kubernetes API if NODE_NAME and a token are there), or the cgroup itself, a path below {}: \
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
fn search(folder: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for path in folders_in(folder) {
        let parent = folder.file_name().and_then(|n| n.to_str()).unwrap_or("");
        if path.file_name().and_then(|n| n.to_str()).is_some_and(|n| is_of(n, parent, name)) {
            found.push(path);
        } else if depth > 0 {
            search(&path, name, depth - 1, found);
        }
    }
}

fn roots() -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let mut seen = Vec::new();
    let mut roots = Vec::new();
    for (root, namespace) in ROOTS {
        let Ok(metadata) = fs::metadata(root) else { continue };
        let place = (metadata.dev(), metadata.ino(), fs::read_link(namespace).ok());
        if !seen.contains(&place) {
            seen.push(place);
            roots.push(PathBuf::from(root));
        }
    }
    roots
}

/// Names of units encode `-` and other characters in hexadecimal: systemd-escape(1).
fn unescaped(folder: &str) -> String {
    folder.replace("\\x2d", "-")
}

fn is_id(text: &str, min_len: usize) -> bool {
    text.len() >= min_len && text.len() <= ID && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The ID of the container with this cgroup, or its name.
fn id_or_name<'a>(folder: &'a str, parent: &str) -> Option<&'a str> {
    FORMS.iter().find_map(|(before, after)| {
        let inner = folder.strip_prefix(before)?.strip_suffix(after)?;
        let named = NAMED_PREFIXES.contains(before) || (before.is_empty() && parent == "lxc");
        (is_id(inner, ID) || (named && !inner.is_empty())).then_some(inner)
    })
}

/// Is a cgroup with this name and this parent that of the container with this ID (or the beginning of it) or name?
fn is_of(folder: &str, parent: &str, name: &str) -> bool {
    let folder = unescaped(folder);
    FORMS.iter().any(|(before, after)| {
        let Some(inner) = folder.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) else { return false };
        let by_id = is_id(inner, ID) && is_id(name, MIN_ID_LEN) && inner.starts_with(name);
        let plain = before.is_empty() && after.is_empty();
        by_id || (inner == name && !name.is_empty() && (!plain || PARENTS.contains(&parent)))
    })
}

/// The container with this ID, as a file below `root` describes it.
fn container_by_id(id: &str, root: &Path) -> Option<Container> {
    let by_kubelet = || kubelet_logs(root).into_iter().find(|container| container.id == id);
    let by_docker = || docker(&root.join("var/lib/docker/containers").join(id));
    let by_podman = || podman(root).into_iter().find(|container| container.id == id);
    by_kubelet().or_else(|| BUNDLES.iter().find_map(|bundle| bundle_of(id, root, bundle))).or_else(by_docker).or_else(by_podman)
}

/// The containers whose logs the kubelet links: `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`. Only the names of the
/// links count, since they lead to the files of another root.
fn kubelet_logs(root: &Path) -> Vec<Container> {
    let entries = fs::read_dir(root.join("var/log/containers")).ok().into_iter().flatten().flatten();
    let of = |name: &str| {
        let (names, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
        let mut parts = names.splitn(3, '_');
        let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
        let known = Container { id: id.into(), name: container.into(), pod: pod.into(), namespace: namespace.into() };
        (id.len() == ID && is_id(id, ID)).then_some(known)
    };
    entries.filter_map(|entry| of(entry.file_name().to_str()?)).collect()
}

/// The annotations of an OCI bundle.
fn bundle_of(id: &str, root: &Path, (folder, file): &(&str, &str)) -> Option<Container> {
    let config = json(&root.join(folder).join(id).join(file))?;
    described(id, config.get("annotations")?).filter(|found| !found.name.is_empty() || !found.pod.is_empty())
}

fn described(id: &str, labels: &Value) -> Option<Container> {
    let labels = labels.as_object()?;
    let text = |names: &[&str]| names.iter().find_map(|name| labels.get(*name)?.as_str()).unwrap_or_default().to_owned();
    Some(Container { id: id.into(), name: text(NAMES), pod: text(PODS), namespace: text(NAMESPACES) })
}

/// docker: a directory for each container, with a description.
fn docker(folder: &Path) -> Option<Container> {
    let id = folder.file_name()?.to_str()?;
    let config = json(&folder.join("config.v2.json"))?;
    let mut found = config.pointer("/Config/Labels").and_then(|labels| described(id, labels)).unwrap_or_default();
    found.id = id.into();
    if found.name.is_empty() {
        found.name = config.get("Name")?.as_str()?.trim_start_matches('/').into();
    }
    Some(found)
}

/// podman: a list for root, and one for each other user.
fn podman(root: &Path) -> Vec<Container> {
    let homes = folders_in(&root.join("home")).into_iter().chain([root.join("root")]).map(|home| home.join(".local/share"));
    let stores = [root.join("var/lib"), root.join("run")].into_iter().chain(homes);
    let lists = stores.filter_map(|store| json(&store.join("containers/storage/overlay-containers/containers.json")));
    let of = |each: &Value| {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        Some(Container { id: text(each.get("id"))?, name: text(each.pointer("/names/0"))?, ..Container::default() })
    };
    lists.flat_map(|list| list.as_array().into_iter().flatten().filter_map(of).collect::<Vec<_>>()).collect()
}

fn json(file: &Path) -> Option<Value> {
    serde_json::from_slice(&input::read(file, input::TEXT).ok()?).ok()
}

/// The UID of the pod with this cgroup: `podUID`, or `kubepods-burstable-podUID.slice` with `_` in place of `-`.
fn pod_uid(folder: &str) -> Option<String> {
    let name = folder.strip_suffix(".slice").unwrap_or(folder);
    let uid =
        name.strip_prefix("pod").or_else(|| name.strip_prefix("kubepods").and_then(|rest| rest.split_once("-pod")).map(|(_, uid)| uid))?;
    let uid = uid.replace('_', "-");
    (uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')).then_some(uid)
}

/// The namespace and the name of a pod: `/var/log/pods/NAMESPACE_NAME_UID`.
fn pod(uid: &str, root: &Path) -> Option<(String, String)> {
    folders_in(&root.join("var/log/pods")).iter().find_map(|folder| {
        let names = folder.file_name()?.to_str()?.strip_suffix(uid)?.strip_suffix('_')?;
        names.split_once('_').map(|(namespace, pod)| (namespace.to_owned(), pod.to_owned()))
    })
}

/// The IDs of the containers with this name, running or not. Different users can have containers with the same name.
fn ids_of(name: &str) -> Vec<String> {
    let mut ids: Vec<String> = roots().iter().flat_map(|root| ids_at(name, root)).collect();
    ids.sort();
    ids.dedup();
    ids
}

fn ids_at(name: &str, root: &Path) -> Vec<String> {
    let dockers = folders_in(&root.join("var/lib/docker/containers"));
    let plain = dockers.iter().filter_map(|folder| docker(folder)).chain(podman(root));
    let kubernetes = kubelet_logs(root).into_iter().chain(BUNDLES.iter().flat_map(|bundle| {
        let folders = folders_in(&root.join(bundle.0));
        folders.iter().filter_map(|folder| bundle_of(folder.file_name()?.to_str()?, root, bundle)).collect::<Vec<_>>()
    }));
    let all: BTreeMap<String, Container> =
        plain.chain(kubernetes).filter(|container| container.is_named(name)).map(|c| (c.id.clone(), c)).collect();
    all.into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const UID: &str = "8d2f4a39-0c4f-4d0e-9b7a-2f6f4ad9c111";

    fn with_root(name: &str, files: &[(&str, &str)], check: impl FnOnce(&Path)) {
        let root = std::env::temp_dir().join(format!("rbt-{name}-{}", std::process::id()));
        for (file, text) in files {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        check(&root);
        fs::remove_dir_all(&root).unwrap();
    }

    fn named(id: &str, names: [&str; 3]) -> Option<Container> {
        let [name, pod, namespace] = names.map(String::from);
        Some(Container { id: id.into(), name, pod, namespace })
    }

    #[test]
    fn containers_are_reported_by_their_folders() {
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
        let (podman, own) =
            ("var/lib/containers/storage/overlay-containers", "home/ann/.local/share/containers/storage/overlay-containers");
        let files = [
            ("var/lib/docker/containers/aaaa/config.v2.json", r#"{"ID":"aaaa","Name":"/web","Driver":"overlay2"}"#),
            (&*format!("{podman}/containers.json"), r#"[{"id":"bbbb","names":["db"],"image":"x"},{"id":"cccc","names":["web2","y"]}]"#),
            (&*format!("{own}/containers.json"), r#"[{"id":"dddd","names":["db"],"image":"x"}]"#),
            (&*format!("var/log/containers/web-7c9_shop_front-{A}.log"), ""),
            (&*format!("var/log/containers/web-7c9_shop_side-car-{B}.log"), ""),
            ("var/log/containers/nonsense.log", ""),
        ];
        with_root("names", &files, |root| {
            for (name, ids) in [
                ("web", "aaaa".to_string()),
                ("db", "bbbb dddd".into()),
                ("web2", "cccc".into()),
                ("we", String::new()),
                ("", String::new()),
                ("front", A.into()),
                ("web-7c9", format!("{A} {B}")),
                ("web-7c9/side-car", B.into()),
                ("shop/web-7c9/front", A.into()),
                ("shop/web-7c9", String::new()),
            ] {
                assert_eq!(ids_at(name, root).join(" "), ids, "{name}");
            }
        });
    }

    #[test]
    fn paths_lead_to_names() {
        let containerd = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{B}/config.json");
        let labels = r#"{"Name":"/k8s_app","Config":{"Labels":{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"p","io.kubernetes.pod.namespace":"n"}}}"#;
        let annotations = r#"{"annotations":{"io.kubernetes.cri.container-name":"db","io.kubernetes.cri.sandbox-name":"pg-0","io.kubernetes.cri.sandbox-namespace":"data"}}"#;
        let c = "c".repeat(64);
        let d = "d".repeat(64);
        let files = [
            (&*format!("var/log/containers/web-7c9_shop_front-{A}.log"), ""),
            (&*containerd, annotations),
            (&*format!("var/lib/docker/containers/{c}/config.v2.json"), labels),
            (&*format!("var/log/pods/kube-system_proxy-x1_{UID}/pause/0.log"), ""),
        ];
        with_root("paths", &files, |root| {
            let of = |path: &str| container_of_path_at(path, &[root.to_path_buf()]);
            let slice = format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
            assert_eq!(of(&format!("{slice}/cri-containerd-{A}.scope")), named(A, ["front", "web-7c9", "shop"]));
            assert_eq!(of(&format!("{slice}/cri-containerd-{A}.scope/init")), named(A, ["front", "web-7c9", "shop"]));
            assert_eq!(of(&format!("/kubepods/burstable/pod{UID}/{B}")), named(B, ["db", "pg-0", "data"]));
            assert_eq!(of(&format!("/docker/{c}")), named(&c, ["app", "p", "n"]));
            // no file has its name, but one has that of the pod
            assert_eq!(of(&format!("{slice}/crio-{d}.scope")), named(&d, ["", "proxy-x1", "kube-system"]));
            assert_eq!(of(&format!("/kubepods/pod{UID}/{d}")), named(&d, ["", "proxy-x1", "kube-system"]));
            // a node in a container: the outer one has a file
            assert_eq!(of(&format!("/docker/{A}/kubelet/{d}")), named(A, ["front", "web-7c9", "shop"]));
            assert_eq!(of("/machine.slice/machine-web\\x2dserver.scope/x"), named("", ["web-server", "", ""]));
            for path in
                ["", "/", "/system.slice/ssh.service", "/kubepods/burstable", &*format!("/x/libpod-conmon-{A}.scope"), "/docker/buildx"]
            {
                assert_eq!(of(path), None, "{path}");
            }
        });
    }
}
