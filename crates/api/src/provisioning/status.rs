//! What became of a WorkloadCluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What became of a WorkloadCluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadClusterStatus {
    /// The generation that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What was open in the spec and has been decided. It stays until the spec says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolved>,
    /// Where the API server is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// The control plane's nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<GroupStatus>,
    /// All worker nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<GroupStatus>,
    /// Worker nodes, by pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_pools: BTreeMap<String, GroupStatus>,
    /// What the next change replaces, written before it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<RolloutPlan>,
    /// What was made in the cloud besides Cluster API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OpenStackStatus>,
    /// What became of each add-on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub addons: BTreeMap<String, AddonStatus>,
    /// The Target that the cluster became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetStatusReference>,
    /// Patches of the spec that are in effect, by kind and pool, so that support can see them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub applied_patches: Vec<String>,
    /// How far the deletion is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DeletionStatus>,
    /// One condition for each stage; `Ready` sums them up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::crds::conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// What was open in the spec and has been decided.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resolved {
    /// The version, without an `x`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// Name of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_name: Option<String>,
    /// ID of the image.
    #[serde(rename = "imageID", skip_serializing_if = "Option::is_none")]
    pub image_id: Option<String>,
    /// ID of the network that leads out.
    #[serde(rename = "externalNetworkID", skip_serializing_if = "Option::is_none")]
    pub external_network_id: Option<String>,
    /// MTU of the nodes' network, in bytes.
    #[serde(rename = "networkMTU", skip_serializing_if = "Option::is_none")]
    pub network_mtu: Option<i32>,
    /// Ranges that may reach the API server.
    #[serde(rename = "apiAllowedCIDRs", skip_serializing_if = "Vec::is_empty")]
    pub api_allowed_cidrs: Vec<String>,
    /// Sizes in GiB of root volumes that flavors without a disk made necessary, by pool; `control-plane` for the
    /// control plane.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub root_volumes: BTreeMap<String, i32>,
}

/// Where an API server is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: i32,
}

/// Nodes of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupStatus {
    /// Nodes that are wanted.
    pub desired: i64,
    /// Nodes that are ready.
    pub ready: i64,
    /// Nodes that are as the spec says now.
    pub up_to_date: i64,
    /// The machine template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// What the next change replaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPlan {
    /// Pools whose nodes are replaced, in order; `control-plane` for the control plane.
    pub groups: Vec<String>,
    /// Nodes that are replaced.
    pub replaced_nodes: i64,
    /// Why.
    pub reason: String,
}

/// What was made in the cloud besides Cluster API. Each thing is found again by its ID, never by its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenStackStatus {
    /// The project.
    #[serde(rename = "projectID", skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// Application credentials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub application_credentials: Vec<ApplicationCredential>,
    /// Server groups, by pool; `control-plane` for the control plane.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub server_groups: BTreeMap<String, ServerGroupStatus>,
}

/// An application credential.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationCredential {
    /// Its ID.
    pub id: String,
    /// `infrastructure` for Cluster API, `workload` for controllers in the cluster.
    pub purpose: String,
    /// When it ends; never when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// A server group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerGroupStatus {
    /// Its ID.
    pub id: String,
    /// Its policy, in the words of the cloud.
    pub policy: String,
    /// It was there before, and stays.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

/// What became of an add-on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AddonStatus {
    /// The version that is there.
    pub version: String,
    /// Objects of it.
    pub objects: i64,
    /// `Applied`, `Applying`, `Failed` or `Removing`.
    pub state: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The Target that a cluster became.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetStatusReference {
    /// `Target` or `ClusterTarget`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The Secret with its kubeconfig.
    pub secret: String,
    /// When the token in it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<Time>,
}

/// How far a deletion is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeletionStatus {
    /// The step that is being done.
    pub step: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// What it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<String>,
    /// Steps that somebody let the provisioner skip.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<String>,
}
