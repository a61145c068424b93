//! AddonInventory: what was applied of an add-on in a cluster.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was applied of an add-on in a cluster. It stays in the management cluster, so that it survives the loss of
/// the workload cluster, and it is written before an object is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "provisioning.multicluster-scheduler.io",
    version = "v1alpha1",
    kind = "AddonInventory",
    doc = "What was applied of an add-on in a cluster. Written by cluster-provisioner.",
    plural = "addoninventories",
    shortname = "ai",
    category = "provisioning",
    namespaced,
    derive = "PartialEq",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Addon", type_ = "string", json_path = ".spec.addon"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct AddonInventorySpec {
    /// Name of the WorkloadCluster.
    pub cluster: String,
    /// Name of the add-on.
    pub addon: String,
    /// Its version.
    pub version: String,
    /// Hash of what was applied.
    pub hash: String,
    /// The objects, in the order in which they were applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub items: Vec<InventoryItem>,
}

/// An object in a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryItem {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; absent for objects without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// UID; absent until the object was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}
