//! Addresses and networks of a cluster.

use super::schema::{Cidr, Ip};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses and networks of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.podCIDR) || !has(self.serviceCIDR) || !(cidr(self.podCIDR).containsCIDR(self.serviceCIDR) || cidr(self.serviceCIDR).containsCIDR(self.podCIDR))", "message": "pod and service ranges must not overlap"},
    {"rule": "!has(self.podCIDR) || !has(self.nodeCIDR) || !(cidr(self.podCIDR).containsCIDR(self.nodeCIDR) || cidr(self.nodeCIDR).containsCIDR(self.podCIDR))", "message": "pod and node ranges must not overlap"},
    {"rule": "!has(self.serviceCIDR) || !has(self.nodeCIDR) || !(cidr(self.serviceCIDR).containsCIDR(self.nodeCIDR) || cidr(self.nodeCIDR).containsCIDR(self.serviceCIDR))", "message": "service and node ranges must not overlap"},
    {"rule": "has(self.podCIDR) == has(oldSelf.podCIDR) && has(self.serviceCIDR) == has(oldSelf.serviceCIDR) && has(self.nodeCIDR) == has(oldSelf.nodeCIDR)", "message": "address ranges cannot be added or removed after creation"},
    {"rule": "has(self.existing) == has(oldSelf.existing)", "message": "existing cannot be added or removed after creation"},
    {"rule": "!has(self.existing) || !has(self.existing.subnets) || !has(self.nodeCIDR)", "message": "nodeCIDR cannot be combined with existing subnets"},
    {"rule": "!has(self.mtu) || self.mtu == 0 || self.mtu >= 576", "message": "mtu must be 0 (auto) or at least 576"},
]))]
pub struct Network {
    /// Range of the subnet that is made for the nodes; `10.8.0.0/20` when absent.
    #[serde(rename = "nodeCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "isCIDR(self)", "message": "must be a CIDR"}, {"rule": "self == oldSelf", "message": "nodeCIDR cannot be changed after creation"}]))]
    pub node_cidr: Option<Cidr>,
    /// Range of the pods; `192.168.0.0/16` when absent.
    #[serde(rename = "podCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "isCIDR(self)", "message": "must be a CIDR"}, {"rule": "self == oldSelf", "message": "podCIDR cannot be changed after creation"}]))]
    pub pod_cidr: Option<Cidr>,
    /// Range of the Services; `10.96.0.0/12` when absent.
    #[serde(rename = "serviceCIDR", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "isCIDR(self)", "message": "must be a CIDR"}, {"rule": "self == oldSelf", "message": "serviceCIDR cannot be changed after creation"}]))]
    pub service_cidr: Option<Cidr>,
    /// Name servers of the subnet; those of the CloudAccount when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 6))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub dns_nameservers: Option<Vec<Ip>>,
    /// The network that leads out; the only external one of the project when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_network: Option<ExternalNetwork>,
    /// MTU of the network, in bytes; 0: as the cloud says.
    #[schemars(range(min = 0, max = 9216))]
    pub mtu: i32,
    /// Networks that exist already and are used, never changed and never deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "existing cannot be changed after creation"}]))]
    pub existing: Option<Existing>,
}

/// The network that leads out, by ID or by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("maxProperties" = 1))]
pub struct ExternalNetwork {
    /// Its ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub id: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub name: Option<String>,
}

/// Something of the cloud, by ID or by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct Reference {
    /// Its ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36))]
    pub id: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub name: Option<String>,
}

/// Networks that exist already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Existing {
    /// The network of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Reference>,
    /// The router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<Reference>,
    /// Subnets of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2))]
    pub subnets: Option<Vec<Reference>>,
}
