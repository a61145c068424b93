//! The control plane of a cluster.

use super::schema::{self, Cidr, SecretKey};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The control plane of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self.replicas % 2 == 1", "an etcd quorum needs an odd number of control plane nodes"),
    validation = ("!(has(self.etcd) && has(self.etcd.unsafeFilesystem) && self.etcd.unsafeFilesystem) || self.replicas >= 3", "etcd.unsafeFilesystem needs at least three control plane nodes"),
    validation = ("!(has(self.audit) && has(self.audit.enabled) && self.audit.enabled) || has(self.audit.policyRef)", "audit needs its policyRef")
)]
pub struct ControlPlane {
    /// Nodes; odd.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 9))]
    pub replicas: i32,
    /// Name of the flavor of the nodes.
    #[schemars(length(min = 1, max = 255))]
    pub flavor: String,
    /// The volume that a node boots from; for flavors without a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<RootVolume>,
    /// Metadata of the servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::metadata")]
    pub metadata: BTreeMap<String, String>,
    /// Whether nodes may share a hypervisor: `Hard` never, `Soft` if need be, `None` does not care.
    #[serde(default)]
    pub anti_affinity: AntiAffinity,
    /// Who may reach the API server.
    #[serde(default)]
    pub api_access: ApiAccess,
    /// Availability zones that nodes spread over; all when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub zones: Vec<String>,
    /// More names and addresses in the API server's certificate.
    #[serde(rename = "certSANs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub cert_sans: Vec<String>,
    /// An OpenID Connect issuer whose tokens the API server takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc: Option<Oidc>,
    /// Certificates of the nodes.
    #[serde(default)]
    pub certificates: Certificates,
    /// When a node is replaced.
    #[serde(default)]
    pub health_check: HealthCheck,
    /// Taints of the nodes; those of kubeadm when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub taints: Option<Vec<Taint>>,
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// Settings of etcd.
    #[serde(default)]
    pub etcd: Etcd,
    /// The API server's audit log.
    #[serde(default)]
    pub audit: Audit,
}

fn one() -> i32 {
    1
}

/// The volume that a node boots from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootVolume {
    /// Size in GiB.
    #[serde(rename = "sizeGiB")]
    #[schemars(range(min = 1, max = 16384))]
    pub size_gib: i32,
    /// Type of the volume; the cloud's default when absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub kind: Option<String>,
}

/// Whether servers may share a hypervisor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AntiAffinity {
    /// Never: a server that finds no hypervisor of its own is not made.
    #[default]
    Hard,
    /// Only if there are too few.
    Soft,
    /// Nobody cares.
    None,
}

/// Who may reach the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.mode) || (self.mode == 'CIDRs') == (has(self.cidrs) && size(self.cidrs) > 0)", "message": "cidrs must be given exactly when mode is CIDRs"},
    {"rule": "!has(self.loadBalancerProvider) || !(self.loadBalancerProvider == 'ovn' && has(self.mode) && self.mode != 'Any')", "message": "the OVN load balancer cannot filter by source range"},
]))]
pub struct ApiAccess {
    /// `Any` address, `InternalOnly` the nodes and the management cluster, or `CIDRs` besides them.
    pub mode: ApiAccessMode,
    /// The ranges of mode `CIDRs`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub cidrs: Vec<Cidr>,
    /// Which load balancer stands in front of the API servers.
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "loadBalancerProvider cannot be changed after creation"}]))]
    pub load_balancer_provider: LoadBalancerProvider,
}

/// Who may reach the API server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApiAccessMode {
    /// Everybody.
    #[default]
    Any,
    /// The cluster's own nodes and the management cluster.
    InternalOnly,
    /// Those, and the ranges that are named.
    #[serde(rename = "CIDRs")]
    Cidrs,
}

/// Which load balancer stands in front of the API servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancerProvider {
    /// The cloud's default.
    #[default]
    Default,
    /// Octavia's amphora.
    #[serde(rename = "amphora")]
    Amphora,
    /// Octavia's OVN.
    #[serde(rename = "ovn")]
    Ovn,
}

/// An OpenID Connect issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Oidc {
    /// URL of the issuer.
    #[serde(rename = "issuerURL")]
    #[schemars(length(max = 2048), regex(pattern = r"^https://"))]
    pub issuer_url: String,
    /// The audience that tokens must have.
    #[serde(rename = "clientID")]
    #[schemars(length(min = 1, max = 253))]
    pub client_id: String,
    /// Claim that is the user's name.
    #[serde(default = "sub")]
    #[schemars(length(max = 253))]
    pub username_claim: String,
    /// What stands in front of users' names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub username_prefix: Option<String>,
    /// Claim that lists the user's groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub groups_claim: Option<String>,
    /// What stands in front of groups' names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub groups_prefix: Option<String>,
    /// The CA of the issuer, if it is not a public one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_secret_ref: Option<SecretKey>,
}

fn sub() -> String {
    "sub".to_owned()
}

/// Certificates of the control plane's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Certificates {
    /// Nodes are replaced so many days before their certificates end.
    #[schemars(range(min = 7, max = 180))]
    pub renew_before_days: i32,
}

impl Default for Certificates {
    fn default() -> Self {
        Self { renew_before_days: 60 }
    }
}

/// When a node is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheck {
    /// Whether nodes are replaced at all.
    pub enabled: bool,
    /// Seconds that a node may be unready.
    #[schemars(range(min = 30, max = 86400))]
    pub unhealthy_seconds: i32,
    /// Seconds that a machine may take to become a node.
    #[schemars(range(min = 60, max = 86400))]
    pub startup_seconds: i32,
    /// Nothing is replaced while more than this number or share of the nodes is unhealthy.
    #[schemars(length(max = 8), regex(pattern = r"^\d+%?$"))]
    pub max_unhealthy: String,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { enabled: true, unhealthy_seconds: 300, startup_seconds: 1200, max_unhealthy: "40%".to_owned() }
    }
}

/// A taint of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Its key.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// What it does to pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// None is placed.
    NoSchedule,
    /// None is placed if there is another node.
    PreferNoSchedule,
    /// None is placed, and those that run are evicted.
    NoExecute,
}

/// Settings of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Etcd {
    /// How patient members are with one another.
    pub profile: EtcdProfile,
    /// Lets the file system lie about what is on the disk: faster, and a crash of a node loses its member.
    pub unsafe_filesystem: bool,
    /// Time of day of the daily maintenance, as `02:30`.
    #[schemars(length(max = 5), regex(pattern = r"^([01]\d|2[0-3]):[0-5]\d$"))]
    pub defrag_schedule: String,
    /// Whether the maintenance keeps a snapshot on the leader's disk.
    pub snapshots: bool,
}

impl Default for Etcd {
    fn default() -> Self {
        Self {
            profile: EtcdProfile::SlowStorage,
            unsafe_filesystem: false,
            defrag_schedule: "02:30".to_owned(),
            snapshots: true,
        }
    }
}

/// How patient members of etcd are with one another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EtcdProfile {
    /// As kubeadm sets it up.
    Default,
    /// For disks that need tens of milliseconds to sync.
    #[default]
    SlowStorage,
}

/// The API server's audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Audit {
    /// Whether there is one.
    pub enabled: bool,
    /// The Secret with the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_ref: Option<SecretKey>,
    /// Days that old files are kept.
    #[schemars(range(min = 1, max = 365))]
    pub max_age_days: i32,
    /// Old files that are kept.
    #[schemars(range(min = 0, max = 100))]
    pub max_backups: i32,
    /// Size in MiB of a file.
    #[serde(rename = "maxSizeMiB")]
    #[schemars(range(min = 1, max = 1024))]
    pub max_size_mib: i32,
}

impl Default for Audit {
    fn default() -> Self {
        Self { enabled: false, policy_ref: None, max_age_days: 7, max_backups: 10, max_size_mib: 100 }
    }
}
