//! Worker nodes, and what all nodes have.

use super::control_plane::{AntiAffinity, HealthCheck, RootVolume, Taint};
use super::schema::{self, Cidr, SecretKey};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Worker nodes of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.replicas) != has(self.autoscale)", "give either replicas or autoscale"))]
pub struct NodePool {
    /// Its name; nodes' names begin with the cluster's and this one.
    #[schemars(length(max = 24), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: Option<i32>,
    /// Bounds between which an autoscaler sets the number of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscale: Option<Autoscale>,
    /// Name of the flavor of the nodes.
    #[schemars(length(min = 1, max = 255))]
    pub flavor: String,
    /// Availability zone of the nodes; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub zone: Option<String>,
    /// The volume that a node boots from; for flavors without a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_volume: Option<RootVolume>,
    /// More volumes of each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub additional_volumes: Vec<AdditionalVolume>,
    /// Metadata of the servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::metadata")]
    pub metadata: BTreeMap<String, String>,
    /// Whether nodes may share a hypervisor.
    #[serde(default = "soft")]
    pub anti_affinity: AntiAffinity,
    /// Labels of the nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub taints: Vec<Taint>,
    /// When a node is replaced.
    #[serde(default)]
    pub health_check: HealthCheck,
}

fn soft() -> AntiAffinity {
    AntiAffinity::Soft
}

/// Bounds of an autoscaler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.min <= self.max", "min must not exceed max"))]
pub struct Autoscale {
    /// Fewest nodes.
    #[schemars(range(min = 0, max = 1000))]
    pub min: i32,
    /// Most nodes.
    #[schemars(range(min = 1, max = 1000))]
    pub max: i32,
}

/// A volume of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdditionalVolume {
    /// Its name.
    #[schemars(length(max = 40), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Size in GiB.
    #[serde(rename = "sizeGiB")]
    #[schemars(range(min = 1, max = 65536))]
    pub size_gib: i32,
    /// Type of the volume; the cloud's default when absent.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub kind: Option<String>,
}

/// What all nodes have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Nodes {
    /// Name of the cloud's key pair that may log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub ssh_key_name: Option<String>,
    /// Ranges from which port 22 and ICMP are reachable; none when absent.
    #[serde(rename = "sshAccessCIDRs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub ssh_access_cidrs: Vec<Cidr>,
    /// The image that nodes boot.
    pub image: Image,
    /// Mirrors, settings and authorities of registries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["host"]))]
    pub registries: Vec<Registry>,
    /// The proxy through which nodes reach the outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// More files on every node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub extra_files: Vec<ExtraFile>,
    /// Commands before kubeadm, after those of the provisioner.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::commands")]
    pub pre_kubeadm_commands: Vec<String>,
    /// Commands after kubeadm, after those of the provisioner.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::commands")]
    pub post_kubeadm_commands: Vec<String>,
}

/// The image that nodes boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.url) || has(self.sha256)", "message": "an image url needs its sha256"},
    {"rule": "!(has(self.id) && (has(self.url) || has(self.name)))", "message": "image id excludes name and url"},
]))]
pub struct Image {
    /// Name in the cloud, in which `${KUBERNETES_VERSION}` stands for the version; from the catalogue when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// ID in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub id: Option<String>,
    /// Where the image is fetched from if the cloud lacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// Checksum of what the URL gives, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// Whether the image is stored raw, which a Ceph cluster can clone.
    pub raw: bool,
    /// More properties of a registered image.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::metadata")]
    pub properties: BTreeMap<String, String>,
    /// Whether an image that the cloud lacks is registered.
    pub register: Register,
}

impl Default for Image {
    fn default() -> Self {
        Self {
            name: None,
            id: None,
            url: None,
            sha256: None,
            raw: true,
            properties: BTreeMap::new(),
            register: Register::IfMissing,
        }
    }
}

/// Whether an image that the cloud lacks is registered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Register {
    /// Yes.
    #[default]
    IfMissing,
    /// No; the cluster waits for it.
    Never,
}

/// How nodes reach a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!(has(self.configRef) && has(self.mirrors))", "give either configRef or mirrors"))]
pub struct Registry {
    /// Name, and port, of the registry.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// The Secret with containerd's `hosts.toml` for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<SecretKey>,
    /// The Secret with the certificate of its authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<SecretKey>,
    /// URLs that are asked first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), inner(length(max = 2048), regex(pattern = r"^https?://")))]
    pub mirrors: Option<Vec<String>>,
}

/// The proxy through which nodes reach the outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Proxy {
    /// URL for plain requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub http: Option<String>,
    /// URL for TLS requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub https: Option<String>,
    /// Names and ranges that are reached directly, besides the cluster's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), inner(length(max = 253)))]
    pub no_proxy: Vec<String>,
}

/// A file on every node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtraFile {
    /// Its path.
    #[schemars(length(min = 2, max = 4096), regex(pattern = r"^/"))]
    pub path: String,
    /// Its mode, as `0644`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 5), regex(pattern = r"^0?[0-7]{3,4}$"))]
    pub permissions: Option<String>,
    /// Its owner, as `root:root`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub owner: Option<String>,
    /// The Secret with its content.
    pub value_from: SecretKey,
}
