//! Credentials, adoption, patches, conformance, the Target and the end of a cluster.

use super::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The credentials of a cluster in its cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.lifetimeDays) || self.lifetimeDays == 0 || !has(self.rotateBeforeDays) || self.rotateBeforeDays < self.lifetimeDays", "message": "rotateBeforeDays must be below lifetimeDays"},
]))]
pub struct Credentials {
    /// Whether the cluster gets its own or uses the CloudAccount's.
    pub mode: CredentialsMode,
    /// Whether controllers inside the cluster have another one than those that make its machines.
    pub separate_workload: bool,
    /// Days that a credential is valid; 0: for ever.
    #[schemars(range(min = 0, max = 3650))]
    pub lifetime_days: i32,
    /// Days before the end at which a new one is made.
    #[schemars(range(min = 1, max = 365))]
    pub rotate_before_days: i32,
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            mode: CredentialsMode::PerCluster,
            separate_workload: true,
            lifetime_days: 90,
            rotate_before_days: 14,
        }
    }
}

/// Whose credentials a cluster uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CredentialsMode {
    /// Its own, made for it and deleted with it.
    #[default]
    PerCluster,
    /// The CloudAccount's.
    Shared,
}

/// Runs of the conformance tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Conformance {
    /// When.
    pub run: ConformanceRun,
    /// Which tests.
    pub mode: ConformanceMode,
    /// Minutes after which a run has failed.
    #[schemars(range(min = 5, max = 480))]
    pub timeout_minutes: i32,
}

impl Default for Conformance {
    fn default() -> Self {
        Self { run: ConformanceRun::Never, mode: ConformanceMode::Quick, timeout_minutes: 150 }
    }
}

/// When conformance tests run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConformanceRun {
    /// Never.
    #[default]
    Never,
    /// Once the cluster is there.
    AfterCreate,
    /// After each change of its version.
    AfterUpgrade,
    /// After each change.
    AfterChange,
}

/// Which conformance tests run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConformanceMode {
    /// One test.
    #[default]
    Quick,
    /// All that a certificate needs.
    Certified,
    /// Those about storage.
    Storage,
    /// Those about CSI.
    #[serde(rename = "CSI")]
    Csi,
}

/// Names and IDs of a running cluster that is taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Adopt {
    /// Names of its objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<AdoptNames>,
    /// Pool to the name of its MachineDeployment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::metadata")]
    pub node_pools: BTreeMap<String, String>,
    /// Its server groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_groups: Option<AdoptServerGroups>,
}

/// Names of the objects of a cluster that is taken over; those that the provisioner would choose when absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdoptNames {
    /// The Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub cluster: Option<String>,
    /// The OpenStackCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub infrastructure_cluster: Option<String>,
    /// The KubeadmControlPlane.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub control_plane: Option<String>,
    /// The Secret with the cloud's credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret: Option<String>,
}

/// IDs of server groups of a cluster that is taken over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdoptServerGroups {
    /// That of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub control_plane: Option<String>,
    /// That of all pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub workers: Option<String>,
}

/// A change to the objects that are made for a cluster, after everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    /// Which objects.
    pub target: PatchTarget,
    /// What changes, as RFC 6902 says it.
    #[schemars(length(max = 64))]
    pub json_patch: Vec<PatchOperation>,
}

/// Which objects a patch changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchTarget {
    /// Their kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The pool that they belong to; those of the control plane and of the whole cluster when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 24))]
    pub node_pool: Option<String>,
}

/// One operation of a patch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PatchOperation {
    /// `add`, `replace`, `remove` or `test`.
    #[schemars(extend("enum" = ["add", "replace", "remove", "test"]))]
    pub op: String,
    /// Where.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/spec/|^/metadata/(labels|annotations)/"))]
    pub path: String,
    /// What.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::any")]
    pub value: Option<Value>,
}

/// The Target that a cluster becomes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetPolicy {
    /// Whether it becomes one.
    pub register: TargetRegister,
    /// A Target for its namespace, or a ClusterTarget for all.
    pub scope: TargetScope,
    /// With which identity pods are run there.
    pub access: TargetAccess,
    /// Conditions of the WorkloadCluster that must be True besides `Ready`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 63)))]
    pub ready_gates: Vec<String>,
    /// Node labels that its virtual node does not show.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub excluded_labels_regexp: Option<String>,
    /// Seconds that pods have to move away before the cluster is deleted.
    #[schemars(range(min = 0, max = 86400))]
    pub drain_timeout_seconds: i32,
}

impl Default for TargetPolicy {
    fn default() -> Self {
        Self {
            register: TargetRegister::Auto,
            scope: TargetScope::Namespaced,
            access: TargetAccess::ServiceAccount,
            ready_gates: Vec::new(),
            excluded_labels_regexp: None,
            drain_timeout_seconds: 900,
        }
    }
}

/// Whether a cluster becomes a Target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TargetRegister {
    /// As soon as it is Ready.
    #[default]
    Auto,
    /// No.
    Disabled,
}

/// Whose pods may run in a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TargetScope {
    /// Those of the WorkloadCluster's namespace.
    #[default]
    Namespaced,
    /// Those of all namespaces.
    Cluster,
}

/// With which identity pods are run in a cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TargetAccess {
    /// With a ServiceAccount of its own and short-lived tokens.
    #[default]
    ServiceAccount,
    /// With the administrator's certificate.
    Admin,
}

/// The end of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Deletion {
    /// Refuses the deletion.
    pub protected: bool,
    /// What happens to volumes that claims of the cluster hold.
    pub volumes: VolumePolicy,
}

/// What happens to volumes of a cluster that is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumePolicy {
    /// They go with their claims.
    Delete,
    /// They stay in the cloud.
    Retain,
    /// The cluster stays until somebody has removed the claims.
    #[default]
    Block,
}
