//! Names of containers from the Kubernetes API, for nodes where rbt cannot read the files of the kubelet and of the container runtime.
//!
//! rbt uses the API only if it runs in a pod with the token of a service account, and the variable `NODE_NAME` names the node: without
//! that name, it would have to list the pods of the whole cluster. A thread requests the list when a container is looked up whose
//! names are not known. Nothing waits for it, except for `--container` before a run begins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::container::Container;
use crate::diag::plain;
use crate::failure::reason;
use crate::http::{Client, Endpoint, Request};
use crate::input;
use crate::part::Part;
use crate::streams::to_stderr;
use crate::tls::Trust;

/// The directory with the service account's token, and with the authority that signed the server's certificate.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Maximum size of the token in bytes.
const TOKEN: u64 = 64 << 10;
/// How long a list may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The number of pods in a response, its maximum size in bytes, and the maximum number of responses. A node has 110 pods by default.
const PODS: u32 = 250;
const BODY: usize = 16 << 20;
const RESPONSES: usize = 20;
/// The shortest and the longest pause between two lists, in seconds.
const MIN_PAUSE: u64 = 1;
const MAX_PAUSE: u64 = 60;
/// A container that is missing in this number of lists is not one of Kubernetes.
const TRIES: u32 = 6;
/// Maximum number of known and of missing containers.
const MAX_KNOWN: usize = 16_384;

/// How to reach the API.
struct Api {
    host: String,
    port: u16,
    node: String,
    account: PathBuf,
}

/// The thread's results.
#[derive(Default)]
struct Names {
    known: Mutex<Known>,
    wanted: Condvar,
}

#[derive(Default)]
struct Known {
    by_id: BTreeMap<String, Container>,
    /// Containers that were looked up in vain, with the number of lists in which they were missing.
    missing: BTreeMap<String, u32>,
}

type ListFn = fn(&Api) -> Result<Vec<Container>, String>;

/// Asks the API.
static LIST: Part<ListFn> = Part::new(Api::list);

/// Provides the requests to the API.
pub fn provide() {
    LIST.provide(Api::list);
}

/// The thread's results, if a run wants names and there is an API.
static NAMES: OnceLock<Option<&'static Names>> = OnceLock::new();

/// Called at the start of a run that shows names of containers. If there is an API, its list is requested.
pub fn start(warn: bool) {
    NAMES.get_or_init(|| {
        let api = Api::of_pod(&|name| std::env::var(name).ok(), Path::new(ACCOUNT))?;
        let names: &'static Names = Box::leak(Box::default());
        thread::Builder::new().name("rbt-kubernetes".into()).spawn(move || names.keep(&api, warn)).ok()?;
        Some(names)
    });
}

/// The container with this ID, if the API has listed it. Otherwise the list will be requested again.
pub fn container(id: &str) -> Option<Container> {
    let names = NAMES.get().copied().flatten()?;
    let mut known = names.lock();
    let found = known.by_id.get(id).cloned();
    if found.is_none() && known.missing.len() < MAX_KNOWN && !known.missing.contains_key(id) {
        known.missing.insert(id.into(), 0);
        names.wanted.notify_all();
    }
    found
}

/// All containers of this node, as the API lists them now; none without an API.
pub fn containers() -> Vec<Container> {
    let Some(api) = Api::of_pod(&|name| std::env::var(name).ok(), Path::new(ACCOUNT)) else { return Vec::new() };
    let listed = LIST
        .get()
        .map_or_else(|| Err("this program does not ask the API of Kubernetes: run the bundle with rbt-run".into()), |list| list(&api));
    listed.unwrap_or_else(|why| {
        report(&why);
        Vec::new()
    })
}

fn report(why: &str) {
    to_stderr(&format!("warning: cannot get names of containers from the Kubernetes API: {}\n", plain(why)));
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists the containers at once, and again as long as some are missing.
    fn keep(&self, api: &Api, warn: bool) {
        let mut warned = !warn;
        let mut failures = 0;
        loop {
            let pause = match api.list() {
                Ok(list) => {
                    failures = 0;
                    self.lock().add(list)
                }
                Err(why) => {
                    if !std::mem::replace(&mut warned, true) {
                        report(&why);
                    }
                    failures += 1;
                    pause(failures)
                }
            };
            thread::sleep(pause);
            let mut known = self.lock();
            while known.missing.values().all(|tries| *tries >= TRIES) {
                known = self.wanted.wait(known).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Known {
    /// Adds a list. Returns how long to wait for the next one, which a new container may be missing in as well.
    fn add(&mut self, list: Vec<Container>) -> Duration {
        // the names of containers that have ended stay known
        if self.by_id.len() + list.len() > MAX_KNOWN {
            self.by_id.clear();
            self.missing.clear();
        }
        self.by_id.extend(list.into_iter().map(|container| (container.id.clone(), container)));
        let by_id = &self.by_id;
        self.missing.retain(|id, _| !by_id.contains_key(id));
        self.missing.values_mut().for_each(|tries| *tries = (*tries + 1).min(TRIES));
        pause(self.missing.values().copied().min().unwrap_or(0))
    }
}

fn pause(tries: u32) -> Duration {
    Duration::from_secs((MIN_PAUSE << tries.min(TRIES)).min(MAX_PAUSE))
}

/// The name of the node, which the manifest of a pod sets.
pub(super) fn node_name(var: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    var("NODE_NAME").filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)))
}

impl Api {
    /// None: rbt does not run in a pod with a token and the name of the node.
    fn of_pod(var: &dyn Fn(&str) -> Option<String>, account: &Path) -> Option<Self> {
        let node = node_name(var)?;
        let host = var("KUBERNETES_SERVICE_HOST").filter(|host| !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic()))?;
        let port = var("KUBERNETES_SERVICE_PORT")?.parse().ok()?;
        account.join("token").exists().then(|| Self { host, port, node, account: account.to_path_buf() })
    }

    /// The containers of this node. The token and the authority are read each time, because the kubelet replaces them.
    fn list(&self) -> Result<Vec<Container>, String> {
        let until = Instant::now() + TIMEOUT;
        let token =
            input::text(&self.account.join("token"), TOKEN).map_err(|e| format!("{}/token: {}", self.account.display(), reason(&e)))?;
        let token = token.trim();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!("{}/token: it is not a token", self.account.display()));
        }
        let trust = Trust { authorities: Some(self.account.join("ca.crt")), identity: None };
        let server = Endpoint { host: self.host.clone(), port: self.port, tls: Some(trust) };
        let mut client = Client::new(server, BODY).map_err(|failure| failure.message)?;
        let headers = [
            ("Authorization", format!("Bearer {token}")),
            ("Accept", "application/json".into()),
            ("User-Agent", format!("rbt/{}", crate::VERSION)),
        ];
        let headers = headers.map(|(name, value)| (name.to_string(), value));
        let mut found = Vec::new();
        let mut next = String::new();
        for _ in 0..RESPONSES {
            let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}&limit={PODS}{next}", self.node);
            let request = Request { method: "GET", path: &path, headers: &headers, body: &[] };
            let answer = client.request(&request, until.saturating_duration_since(Instant::now()));
            let answer = answer.map_err(|e| format!("{}: {}", client.url(), reason(&e)))?;
            match answer.status {
                200 => {}
                401 => return Err(format!("{} rejects the token (status 401)", client.url())),
                403 => {
                    return Err(format!("{} answers with status 403: the service account needs a role that may list pods", client.url()));
                }
                status => return Err(format!("{} answers with status {status}", client.url())),
            }
            let body = answer.body.map_err(|_| format!("{}: the list of pods is too long, or incomplete", client.url()))?;
            let list: PodList = serde_json::from_slice(&body).map_err(|_| format!("{}: the answer is not a list of pods", client.url()))?;
            found.extend(list.items.iter().flat_map(Pod::containers));
            match list.metadata.next {
                Some(token) if !token.is_empty() => next = format!("&continue={}", escaped(&token)),
                Some(_) | None => break,
            }
        }
        Ok(found)
    }
}

fn escaped(text: &str) -> String {
    let escape = |b: u8| if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) { (b as char).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(escape).collect()
}

/// The parts of a response that matter.
#[derive(Deserialize)]
struct PodList {
    #[serde(default)]
    metadata: ListMetadata,
    items: Vec<Pod>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: PodMetadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Deserialize)]
struct PodMetadata {
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    /// `containerd://ID`; empty before the container starts.
    #[serde(default, rename = "containerID")]
    id: Option<String>,
}

impl Pod {
    fn containers(&self) -> impl Iterator<Item = Container> {
        let PodStatus { container_statuses, init_container_statuses, ephemeral_container_statuses } = &self.status;
        let all = [container_statuses, init_container_statuses, ephemeral_container_statuses].into_iter().flatten().flatten();
        all.filter_map(|status| {
            let id = status.id.as_deref()?.split_once("://")?.1;
            Some(Container {
                id: id.into(),
                name: status.name.clone(),
                pod: self.metadata.name.clone(),
                namespace: self.metadata.namespace.clone(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_pods_are_read() {
        let text = r#"{"kind": "PodList", "metadata": {"continue": "a=b"}, "items": [
            {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []},
             "status": {"containerStatuses": [{"name": "c", "containerID": "containerd://ab", "ready": true}, {"name": "waiting"}],
                        "initContainerStatuses": [{"name": "i", "containerID": "cri-o://cd"}], "ephemeralContainerStatuses": null}},
            {"metadata": {"name": "pending", "namespace": "n"}}]}"#;
        let list: PodList = serde_json::from_str(text).unwrap();
        let found: Vec<String> =
            list.items.iter().flat_map(Pod::containers).map(|c| [c.id, c.namespace, c.pod, c.name].join(" ")).collect();
        assert_eq!(found, ["ab n p c", "cd n p i"]);
        assert_eq!(list.metadata.next.as_deref().map(escaped).as_deref(), Some("a%3Db"));
        assert!(serde_json::from_str::<PodList>(r#"{"kind": "Status"}"#).is_err());
    }

    #[test]
    fn requests_for_missing_containers_end() {
        let container = |id: &str| Container { id: id.into(), ..Container::default() };
        let mut known = Known::default();
        known.missing.insert("a".into(), 0);
        known.missing.insert("b".into(), 0);
        assert_eq!(known.add(vec![container("b")]), Duration::from_secs(2));
        assert_eq!(known.missing.keys().collect::<Vec<_>>(), ["a"]);
        for _ in 0..TRIES {
            known.add(Vec::new());
        }
        assert!(known.missing.values().all(|tries| *tries == TRIES) && known.by_id.contains_key("b"));
        assert_eq!(known.add(Vec::new()), Duration::from_secs(MAX_PAUSE));
    }

    #[test]
    fn the_api_requires_a_token_and_a_node() {
        let folder = std::env::temp_dir().join(format!("rbt-account-{}", std::process::id()));
        let vars = |node: &'static str| {
            move |name: &str| {
                let value = match name {
                    "NODE_NAME" => node,
                    "KUBERNETES_SERVICE_HOST" => "10.0.0.1",
                    "KUBERNETES_SERVICE_PORT" => "443",
                    _ => return None,
                };
                Some(value.to_string())
            }
        };
        assert!(Api::of_pod(&vars("n-1.x"), &folder).is_none());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("token"), "t").unwrap();
        assert!(Api::of_pod(&vars("n-1.x"), &folder).is_some());
        assert!(Api::of_pod(&vars(""), &folder).is_none() && Api::of_pod(&vars("a&b"), &folder).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
