//! ReleaseCatalog: which versions exist and what they are made from.

use super::schema;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Versions of Kubernetes and of add-ons, and what they are made from. All catalogues of a cluster are read as one;
/// of two entries for the same version that of the catalogue whose name comes first counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "provisioning.multicluster-scheduler.io",
    version = "v1alpha1",
    kind = "ReleaseCatalog",
    doc = "Versions of Kubernetes and of add-ons, and what they are made from.",
    plural = "releasecatalogs",
    shortname = "rc",
    category = "provisioning",
    derive = "PartialEq",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ReleaseCatalogSpec {
    /// Versions of Kubernetes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub kubernetes: Vec<Release>,
    /// Versions of add-ons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "version"]))]
    pub addons: Vec<AddonVersion>,
}

/// A version of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The version, as `v1.33.4`.
    #[schemars(length(max = 20), regex(pattern = r"^v1\.\d+\.\d+$"))]
    pub version: String,
    /// Whether it may be used.
    #[serde(default)]
    pub support: Support,
    /// The image of its nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<NodeImageSource>,
}

/// Whether a version may be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Support {
    /// By clusters that allow previews.
    Preview,
    /// By all.
    #[default]
    Supported,
    /// By clusters that have it already.
    End,
}

/// The image of a version's nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeImageSource {
    /// Name in the cloud.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// Where it is fetched from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// Checksum of what the URL gives, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
}

/// A version of an add-on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddonVersion {
    /// Which add-on.
    pub name: AddonName,
    /// The version, as `v1.15.1`.
    #[schemars(length(max = 64), regex(pattern = r"^v?\d+\.\d+\.\d+([-+][0-9A-Za-z.-]+)?$"))]
    pub version: String,
    /// The lowest minor version of Kubernetes that it is for, as `1.28`; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^1\.\d+$"))]
    pub from_kubernetes: Option<String>,
    /// The highest minor version of Kubernetes that it is for; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^1\.\d+$"))]
    pub to_kubernetes: Option<String>,
    /// Its objects.
    #[schemars(length(max = 32))]
    pub manifests: Vec<Manifest>,
}

/// Name of an add-on, as in the status.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum AddonName {
    /// Cilium.
    #[default]
    Cilium,
    /// Calico.
    Calico,
    /// The definitions of the Gateway API.
    GatewayApi,
    /// The cloud controller manager.
    CloudControllerManager,
    /// Volumes from Cinder.
    CinderCsi,
    /// Usage of nodes and pods.
    MetricsServer,
    /// Certificates.
    CertManager,
    /// GitOps.
    Flux,
    /// The ingress controller.
    IngressNginx,
    /// A registry.
    Harbor,
    /// What this project runs in a target cluster.
    SchedulingAgent,
}

impl AddonName {
    /// All of them, in the order in which they are applied.
    pub const ALL: [Self; 11] = [
        Self::Cilium,
        Self::Calico,
        Self::GatewayApi,
        Self::CloudControllerManager,
        Self::CinderCsi,
        Self::MetricsServer,
        Self::CertManager,
        Self::Flux,
        Self::IngressNginx,
        Self::Harbor,
        Self::SchedulingAgent,
    ];

    /// The word for it in objects.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cilium => "cilium",
            Self::Calico => "calico",
            Self::GatewayApi => "gateway-api",
            Self::CloudControllerManager => "cloud-controller-manager",
            Self::CinderCsi => "cinder-csi",
            Self::MetricsServer => "metrics-server",
            Self::CertManager => "cert-manager",
            Self::Flux => "flux",
            Self::IngressNginx => "ingress-nginx",
            Self::Harbor => "harbor",
            Self::SchedulingAgent => "scheduling-agent",
        }
    }
}

/// Objects, as YAML documents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.url) != has(self.configMap)", "message": "give either url or configMap"},
    {"rule": "!has(self.url) || has(self.sha256)", "message": "a url needs its sha256"},
]))]
pub struct Manifest {
    /// Where they are fetched from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// Checksum of what the URL or the ConfigMap gives, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// A key of a ConfigMap in the provisioner's own namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map: Option<schema::SecretKey>,
}
