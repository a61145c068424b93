//! What is known about one cluster, and what may be done about it.

use super::addons::Addon;
use super::cloud::{Facts, Purpose};
use crate::catalog::Catalog;
use api::Remote;
use api::provisioning::{CloudAccountSpec, InventoryItem, WorkloadClusterSpec, WorkloadClusterStatus};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// The WorkloadCluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// It is being deleted.
    pub deleting: bool,
    /// It has our finalizer.
    pub held: bool,
    /// The step that somebody lets us skip.
    pub abandon: Option<String>,
    /// Add-ons whose guarded objects may be deleted.
    pub confirmed: Vec<String>,
    /// Its spec.
    pub spec: WorkloadClusterSpec,
    /// Its status.
    pub status: WorkloadClusterStatus,
}

/// What the workload cluster says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workload {
    /// UID of its `kube-system` namespace.
    pub uid: String,
    /// Whether it knows our kinds.
    pub is_target: bool,
    /// Whether the namespace and the Source or ClusterSource for us are there.
    pub invited: bool,
    /// Whether the ServiceAccount is there.
    pub account: bool,
    /// Services of type LoadBalancer, as `namespace/name`; read only when the cluster is deleted.
    pub balancers: Vec<String>,
    /// Claims, as `namespace/name`; read only when the cluster is deleted.
    pub claims: Vec<String>,
    /// PersistentVolumes that go with their claims; read only when the cluster is deleted.
    pub volumes: Vec<String>,
}

/// The Target of the cluster and what depends on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Registration {
    /// The Target or ClusterTarget.
    pub target: Option<Value>,
    /// The Secret with its kubeconfig.
    pub secret: Option<Value>,
    /// Whether the virtual node takes no new pods.
    pub cordoned: bool,
    /// Pods on the virtual node, as `namespace/name`; read only when the cluster is deleted.
    pub pods: Vec<String>,
}

/// All that is known about one cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The time.
    pub now: Timestamp,
    /// The object.
    pub cluster: View,
    /// Its CloudAccount; `None`: there is none.
    pub account: Option<CloudAccountSpec>,
    /// Whether Cluster API and its provider for OpenStack are installed.
    pub cluster_api: bool,
    /// The data of the account's Secrets: `clouds.yaml` and, if the account names one, `cacert`; in base64.
    pub cloud: Option<BTreeMap<String, String>>,
    /// All versions there are.
    pub catalog: Catalog,
    /// Objects of Cluster API of this cluster's name, by kind and name.
    pub objects: BTreeMap<(String, String), Value>,
    /// The Secret with the credentials of Cluster API.
    pub identity: Option<Value>,
    /// The workload cluster; absent while there is no kubeconfig of it.
    pub workload: Remote<Workload>,
    /// Server and authority of the administrator's kubeconfig.
    pub server: Option<(String, String)>,
    /// Its Target.
    pub registration: Registration,
    /// Add-ons that are wanted or were applied, in the order in which they are applied.
    pub addons: Vec<Addon>,
    /// What the cloud says; `None`: it need not be asked. An error is what it refused, in its words.
    pub openstack: Option<Result<Facts, String>>,
    /// The Secret with the credentials of controllers in the workload cluster.
    pub workload_secret: Option<Value>,
    /// Names and UIDs of the inventories; read only when the cluster is deleted.
    pub inventories: Vec<Value>,
    /// What an API server refused in the last round, in its words.
    pub refusal: Option<String>,
}

/// One call. Each may be repeated after a crash.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Puts the finalizer on.
    Hold,
    /// Takes it off.
    Release,
    /// Applies an object of the management cluster.
    Apply(Value),
    /// Deletes an object of the management cluster; the UID must be this one.
    Delete(Box<Doomed>),
    /// Makes the namespace and the Source or ClusterSource in the workload cluster.
    Invite,
    /// Asks the workload cluster for a token and writes the Secret with the target's kubeconfig.
    IssueToken,
    /// Lets no new pod onto the virtual node.
    Cordon(String),
    /// Evicts a pod, `namespace/name`, from the virtual node.
    Evict(String),
    /// Deletes a Service of the workload cluster, `namespace/name`.
    DeleteBalancer(String),
    /// Deletes a claim of the workload cluster, `namespace/name`.
    DeleteClaim(String),
    /// Makes an application credential and writes the Secret that holds it.
    IssueCredential {
        /// What it is for.
        purpose: Purpose,
        /// Its name.
        name: String,
        /// When it ends; never when absent.
        expires: Option<Timestamp>,
    },
    /// Deletes an application credential by its ID.
    DeleteCredential(String),
    /// Makes a server group of this name and policy.
    CreateGroup(String, String),
    /// Deletes a server group by its ID.
    DeleteGroup(String),
    /// Applies an object of an add-on in the workload cluster.
    ApplyInside(Value),
    /// Deletes an object of an add-on in the workload cluster; the UID must be this one.
    DeleteInside(Box<InventoryItem>),
    /// Deletes the inventory of an add-on that is gone.
    DeleteInventory(String),
    /// Lets a volume of the workload cluster outlive its claim.
    RetainVolume(String),
}

/// An object that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; none for a ClusterTarget.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}
