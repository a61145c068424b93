//! Plays the kubelet of the node `harness`: pods bound to it run as local processes.
//!
//! Each pod gets a network namespace, each container a mount namespace with the program of its image, its
//! volumes and nothing else of the machine but its libraries. What a pod asks for and this kubelet does not
//! know fails the whole run ([`Faults`]): the chart must not seem to work because it was half ignored.

mod container;
mod env;
mod known;
mod launch;
mod pod;
mod probes;
mod status;
mod volumes;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::images::Images;
use crate::network::ClusterNetwork;
use crate::process::Process;
use crate::{nodes, process};

/// The name of the node.
pub const NODE: &str = "harness";
/// The label and taint of the node: it counts as a control-plane node, so nobody takes it for capacity.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

const LEASE_SECONDS: u32 = 40;

/// What pods asked for and the test ground cannot do.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<Vec<String>>>);

impl Faults {
    /// Notes one more, once.
    pub fn add(&self, fault: String) {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }

    /// Takes out those that contain a text, for tests that make a fault on purpose.
    #[must_use]
    pub fn take(&self, text: &str) -> Vec<String> {
        let mut faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.extract_if(.., |fault| fault.contains(text)).collect()
    }

    /// All of them so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What all pods of one kubelet share.
struct Host {
    client: Client,
    network: ClusterNetwork,
    folder: PathBuf,
    images: Images,
    faults: Faults,
    running: Mutex<HashMap<String, Process>>,
}

impl Host {
    fn address(&self) -> Ipv4Addr {
        self.network.api()
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a pod's task knows of its pod.
#[derive(Debug, Clone)]
struct Seen {
    pod: Arc<Pod>,
    /// The object is gone from the API server.
    gone: bool,
}

/// The kubelet of one cluster's node `harness`.
pub struct Kubelet {
    host: Arc<Host>,
}

impl Kubelet {
    /// Registers the node, waits until it is Ready, and runs its pods from then on.
    ///
    /// # Errors
    /// When the node or its Lease cannot be created.
    pub async fn start(
        client: Client,
        network: ClusterNetwork,
        folder: &Path,
        images: Images,
        faults: Faults,
    ) -> Result<Self> {
        let folder = folder.join("kubelet");
        std::fs::create_dir_all(&folder).context("cannot make the kubelet's folder")?;
        let host =
            Arc::new(Host { client, network, folder, images, faults, running: Mutex::new(HashMap::new()) });
        register(&host).await?;
        tokio::spawn(renew(Arc::clone(&host)));
        tokio::spawn(run_pods(Arc::clone(&host)));
        nodes::ready(&host.client, NODE).await?;
        Ok(Self { host })
    }

    /// The process of a pod's container, to freeze, kill or measure it.
    ///
    /// # Errors
    /// When it does not run now.
    pub fn process(&self, namespace: &str, pod: &str, container: &str) -> Result<Process> {
        let key = format!("{namespace}/{pod}/{container}");
        self.host.running().get(&key).cloned().with_context(|| format!("{key} does not run"))
    }

    /// What each running container used so far, by `namespace/pod/container`.
    #[must_use]
    pub fn usage(&self) -> Vec<(String, process::Usage)> {
        let running = self.host.running();
        running.iter().filter_map(|(key, process)| Some((key.clone(), process.usage()?))).collect()
    }

    /// Where the logs of all containers lie: `<namespace>_<pod>_<container>.log` in `logs/` of the cluster.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        logs(&self.host)
    }
}

fn logs(host: &Host) -> PathBuf {
    host.folder.parent().unwrap_or(&host.folder).join("logs")
}

async fn register(host: &Host) -> Result<()> {
    let node: Node = serde_json::from_value(node(host.address())).context("not a node")?;
    let nodes: Api<Node> = Api::all(host.client.clone());
    nodes.create(&PostParams::default(), &node).await.context("cannot register the node harness")?;
    let lease = json!({
        "metadata": {"name": NODE},
        "spec": {"holderIdentity": NODE, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time()},
    });
    let lease: Lease = serde_json::from_value(lease).context("not a lease")?;
    let leases: Api<Lease> = Api::namespaced(host.client.clone(), "kube-node-lease");
    crate::wait::until(crate::wait::SOON, "the node harness has its Lease", async || {
        Ok(Some(leases.create(&PostParams::default(), &lease).await?))
    })
    .await
    .map(drop)
}

fn node(address: Ipv4Addr) -> Value {
    let now = Timestamp::now().to_string();
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": now,
            "lastTransitionTime": now})
    };
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "500", "ephemeral-storage": "100Gi"});
    json!({
        "metadata": {"name": NODE, "labels": {
            CONTROL_PLANE: "",
            "kubernetes.io/hostname": NODE,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }},
        "spec": {"taints": [{"key": CONTROL_PLANE, "effect": "NoSchedule"}]},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "Hostname", "address": NODE},
            ],
            "conditions": [
                condition("Ready", "True", "KubeletReady"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "bootID": "", "machineID": "",
                "systemUUID": "", "osImage": "", "kernelVersion": "harness", "kubeProxyVersion": "",
                "containerRuntimeVersion": "harness", "kubeletVersion": "harness",
            },
        },
    })
}

fn micro_time() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

async fn renew(host: Arc<Host>) {
    let leases: Api<Lease> = Api::namespaced(host.client.clone(), "kube-node-lease");
    loop {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let patch = Patch::Merge(json!({"spec": {"renewTime": micro_time()}}));
        let parameters = PatchParams::default();
        let renewal = leases.patch(NODE, &parameters, &patch);
        // An API server that does not answer is no reason to stop: it may be frozen by a test.
        drop(tokio::time::timeout(Duration::from_secs(10), renewal).await);
    }
}

async fn run_pods(host: Arc<Host>) {
    let pods: Api<Pod> = Api::all(host.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={NODE}"));
    let mut events = std::pin::pin!(watcher(pods, config).default_backoff());
    let mut tasks: HashMap<String, watch::Sender<Seen>> = HashMap::new();
    let mut listed: Vec<String> = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(pod)) => {
                listed.extend(pod.uid());
                saw(&host, &mut tasks, pod);
            }
            Ok(watcher::Event::InitDone) => tasks.retain(|uid, task| {
                let stays = listed.contains(uid);
                if !stays {
                    task.send_modify(|seen| seen.gone = true);
                }
                stays
            }),
            Ok(watcher::Event::Apply(pod)) => saw(&host, &mut tasks, pod),
            Ok(watcher::Event::Delete(pod)) => {
                if let Some(task) = pod.uid().and_then(|uid| tasks.remove(&uid)) {
                    task.send_modify(|seen| seen.gone = true);
                }
            }
            // The watcher goes on by itself; the API server may be frozen by a test.
            Err(_) => {}
        }
    }
}

fn saw(host: &Arc<Host>, tasks: &mut HashMap<String, watch::Sender<Seen>>, pod: Pod) {
    let Some(uid) = pod.uid() else { return };
    let seen = Seen { pod: Arc::new(pod), gone: false };
    match tasks.get(&uid) {
        Some(task) => drop(task.send_replace(seen)),
        None => {
            let (sender, receiver) = watch::channel(seen);
            tokio::spawn(pod::run(Arc::clone(host), receiver));
            tasks.insert(uid, sender);
        }
    }
}
