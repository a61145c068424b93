//! WorkloadCluster: one declared cluster.

use super::addons::Addons;
use super::control_plane::ControlPlane;
use super::network::Network;
use super::nodes::{NodePool, Nodes};
use super::policies::{Adopt, Conformance, Credentials, Deletion, Patch, TargetPolicy};
use super::status::WorkloadClusterStatus;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A declared cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "provisioning.multicluster-scheduler.io",
    version = "v1alpha1",
    kind = "WorkloadCluster",
    doc = "A declared cluster: it is made, kept as declared, and becomes a Target.",
    plural = "workloadclusters",
    shortname = "wc",
    category = "provisioning",
    namespaced,
    status = "WorkloadClusterStatus",
    derive = "PartialEq",
    printcolumn(name = "Version", type_ = "string", json_path = ".status.resolved.kubernetesVersion"),
    printcolumn(name = "CP", type_ = "string", json_path = ".status.controlPlane.ready"),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.workers.ready"),
    printcolumn(name = "CNI", type_ = "string", json_path = ".spec.addons.cni.type"),
    printcolumn(name = "Target", type_ = "string", json_path = ".status.target.name"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("!has(self.spec.nodePools) || self.spec.nodePools.all(p, size(self.metadata.name) + size(p.name) <= 50)").message("cluster name and pool name together must not exceed 50 characters")
)]
#[x_kube(
    validation = ("!has(oldSelf.network) || has(self.network)", "network cannot be removed"),
    validation = ("self.cloudRef == oldSelf.cloudRef", "the cloud cannot be changed after creation"),
    validation = ("self.kubernetes.version.split('.')[1] == oldSelf.kubernetes.version.split('.')[1] || int(self.kubernetes.version.split('.')[1]) == int(oldSelf.kubernetes.version.split('.')[1]) + 1", "kubernetes.version may only rise by one minor version at a time"),
    validation = ("self.kubernetes.version.split('.')[1] != oldSelf.kubernetes.version.split('.')[1] || self.kubernetes.version.endsWith('x') || oldSelf.kubernetes.version.endsWith('x') || int(self.kubernetes.version.split('.')[2]) >= int(oldSelf.kubernetes.version.split('.')[2])", "kubernetes.version cannot go back"),
    validation = ("!has(oldSelf.adopt) || !has(self.adopt) || self.adopt == oldSelf.adopt", "adopt cannot be changed")
)]
pub struct WorkloadClusterSpec {
    /// The version.
    pub kubernetes: Kubernetes,
    /// The cloud.
    pub cloud_ref: CloudReference,
    /// As plain objects of Cluster API, or as a topology of a ClusterClass.
    #[serde(default)]
    #[x_kube(validation = ("!(oldSelf == 'Topology' && self == 'Plain')", "a topology-managed cluster cannot leave topology mode"))]
    pub rendering: Rendering,
    /// Nothing of the cluster is touched.
    #[serde(default)]
    pub paused: bool,
    /// Addresses and networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The control plane.
    pub control_plane: ControlPlane,
    /// Worker nodes, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub node_pools: Vec<NodePool>,
    /// What all nodes have.
    #[serde(default)]
    pub nodes: Nodes,
    /// Credentials in the cloud.
    #[serde(default)]
    pub credentials: Credentials,
    /// What runs in the cluster from the first day.
    #[serde(default)]
    pub addons: Addons,
    /// Runs of the conformance tests.
    #[serde(default)]
    pub conformance: Conformance,
    /// The Target that the cluster becomes.
    #[serde(default)]
    pub target: TargetPolicy,
    /// The end of the cluster.
    #[serde(default)]
    pub deletion: Deletion,
    /// Names and IDs of a running cluster that is taken over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Adopt>,
    /// Changes to the objects that are made for the cluster, after everything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub patches: Vec<Patch>,
}

/// The version of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubernetes {
    /// `v1.33.4`, or `v1.33.x` for the newest of the catalogue. It may rise by one minor version at a time.
    #[schemars(length(max = 20), regex(pattern = r"^v1\.\d+\.(\d+|x)$"))]
    pub version: String,
    /// Whether a version that the catalogue calls a preview is taken.
    #[serde(default)]
    pub allow_preview: bool,
}

/// The cloud of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudReference {
    /// Name of the CloudAccount, in the namespace of the WorkloadCluster.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Which objects of Cluster API are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Rendering {
    /// One object for each part.
    #[default]
    Plain,
    /// A ClusterClass and a Cluster with a topology.
    Topology,
}
