//! What runs in a cluster from the first day.

use super::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What runs in a cluster from the first day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.harbor) || !has(self.harbor.enabled) || !self.harbor.enabled || (has(self.flux) && has(self.flux.enabled) && self.flux.enabled)", "message": "harbor needs flux"},
    {"rule": "!has(self.harbor) || !has(self.harbor.enabled) || !(self.harbor.enabled && has(self.harbor.domainName)) || (has(self.certManager) && has(self.certManager.enabled) && self.certManager.enabled && has(self.ingressNginx) && has(self.ingressNginx.enabled) && self.ingressNginx.enabled)", "message": "a public harbor needs cert-manager and ingress-nginx"},
    {"rule": "!has(self.harbor) || !has(self.harbor.enabled) || !(self.harbor.enabled && has(self.harbor.persistence) && self.harbor.persistence) || (has(self.cinderCSI) && has(self.cinderCSI.enabled) && self.cinderCSI.enabled)", "message": "harbor persistence needs the Cinder CSI"},
]))]
pub struct Addons {
    /// What happens to the objects of an add-on that is switched off.
    pub removal: Removal,
    /// The pod network.
    pub cni: Cni,
    /// The cloud controller manager; nodes are unusable without it, so it cannot be switched off.
    pub cloud_controller_manager: CloudControllerManager,
    /// Volumes from Cinder.
    #[serde(rename = "cinderCSI")]
    pub cinder_csi: Addon,
    /// Usage of nodes and pods.
    pub metrics_server: Addon,
    /// The ingress controller.
    pub ingress_nginx: IngressNginx,
    /// Certificates.
    pub cert_manager: Addon,
    /// GitOps.
    pub flux: Addon,
    /// A registry.
    pub harbor: Harbor,
}

impl Default for Addons {
    fn default() -> Self {
        Self {
            removal: Removal::Prune,
            cni: Cni::default(),
            cloud_controller_manager: CloudControllerManager::default(),
            cinder_csi: on(),
            metrics_server: on(),
            ingress_nginx: IngressNginx::default(),
            cert_manager: Addon::default(),
            flux: Addon::default(),
            harbor: Harbor::default(),
        }
    }
}

fn on() -> Addon {
    Addon { enabled: true, ..Addon::default() }
}

fn auto() -> String {
    "auto".to_owned()
}

/// What happens to the objects of an add-on that is switched off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Removal {
    /// They are deleted.
    #[default]
    Prune,
    /// They stay, and nobody looks after them.
    Orphan,
}

/// The pod network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.gatewayAPI) || !self.gatewayAPI || !has(self.type) || self.type == 'Cilium'", "message": "gatewayAPI needs Cilium"},
    {"rule": "!has(self.type) || !has(oldSelf.type) || self.type == oldSelf.type || (has(self.migration) && self.migration != 'Forbid')", "message": "changing the CNI needs migration: Disruptive or Rolling"},
]))]
pub struct Cni {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: CniType,
    /// Its version; `auto`: the catalogue's.
    #[schemars(length(max = 64), regex(pattern = schema::VERSION))]
    pub version: String,
    /// Whether it serves the Gateway API.
    #[serde(rename = "gatewayAPI")]
    pub gateway_api: bool,
    /// Whether `type` may change, and how.
    pub migration: CniMigration,
}

impl Default for Cni {
    fn default() -> Self {
        Self { kind: CniType::Cilium, version: auto(), gateway_api: false, migration: CniMigration::Forbid }
    }
}

/// Which pod network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CniType {
    /// Cilium.
    #[default]
    Cilium,
    /// Calico.
    Calico,
    /// None of the provisioner's; somebody else installs one.
    None,
}

/// How a pod network is exchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CniMigration {
    /// Not at all.
    #[default]
    Forbid,
    /// Old one off, new one on, all nodes replaced; pods are without a network in between.
    Disruptive,
    /// Both side by side while nodes are replaced.
    Rolling,
}

/// The cloud controller manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudControllerManager {
    /// Its version; `auto`: the catalogue's for the version of Kubernetes.
    #[schemars(length(max = 64), regex(pattern = schema::VERSION))]
    pub version: String,
    /// What makes the load balancers of Services.
    pub load_balancer: LoadBalancerChoice,
    /// More lines of its `cloud.conf`, by section and key; they win.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub cloud_conf_overrides: Map<String, Value>,
}

impl Default for CloudControllerManager {
    fn default() -> Self {
        Self { version: auto(), load_balancer: LoadBalancerChoice::Default, cloud_conf_overrides: Map::new() }
    }
}

/// What makes the load balancers of Services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancerChoice {
    /// The cloud's default.
    #[default]
    Default,
    /// Octavia's OVN.
    #[serde(rename = "OVN")]
    Ovn,
    /// OVN if the cloud has it.
    Auto,
}

/// An add-on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Addon {
    /// Whether it is there.
    pub enabled: bool,
    /// Its version; `auto`: the catalogue's.
    #[schemars(length(max = 64), regex(pattern = schema::VERSION))]
    pub version: String,
    /// Changes to its objects: `Kind/name` to what is merged into the object.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub values: Map<String, Value>,
}

impl Default for Addon {
    fn default() -> Self {
        Self { enabled: false, version: auto(), values: Map::new() }
    }
}

/// The ingress controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressNginx {
    /// Whether it is there.
    pub enabled: bool,
    /// Its version; `auto`: the catalogue's.
    #[schemars(length(max = 64), regex(pattern = schema::VERSION))]
    pub version: String,
    /// Changes to its objects: `Kind/name` to what is merged into the object.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::any_object")]
    pub values: Map<String, Value>,
    /// Whether the load balancer says by PROXY protocol where a connection came from.
    pub proxy_protocol: bool,
    /// Whether the load balancer asks the nodes which of them answer.
    pub health_monitor: bool,
    /// Whether a node passes connections on to others.
    pub external_traffic_policy: TrafficPolicy,
}

impl Default for IngressNginx {
    fn default() -> Self {
        Self {
            enabled: true,
            version: auto(),
            values: Map::new(),
            proxy_protocol: true,
            health_monitor: true,
            external_traffic_policy: TrafficPolicy::Local,
        }
    }
}

/// Whether a node passes connections on to others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TrafficPolicy {
    /// Only nodes that run the controller answer.
    #[default]
    Local,
    /// Every node answers.
    Cluster,
}

/// A registry in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Harbor {
    /// Whether it is there.
    pub enabled: bool,
    /// Its public name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub domain_name: Option<String>,
    /// Whom the certificate authority writes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub issuer_email: Option<String>,
    /// Whether its data outlives its pods.
    pub persistence: bool,
    /// Size of the database's volume.
    #[schemars(length(max = 16))]
    pub database_size: String,
    /// Size of the cache's volume.
    #[schemars(length(max = 16))]
    pub redis_size: String,
    /// Size of the scanner's volume.
    #[schemars(length(max = 16))]
    pub trivy_size: String,
}

impl Default for Harbor {
    fn default() -> Self {
        Self {
            enabled: false,
            domain_name: None,
            issuer_email: None,
            persistence: false,
            database_size: "1Gi".to_owned(),
            redis_size: "1Gi".to_owned(),
            trivy_size: "5Gi".to_owned(),
        }
    }
}
