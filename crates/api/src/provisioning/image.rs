//! NodeImage: one image in one cloud.

use super::nodes::Register;
use super::schema;
use super::workload_cluster::CloudReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One image in one cloud, which clusters share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "provisioning.multicluster-scheduler.io",
    version = "v1alpha1",
    kind = "NodeImage",
    doc = "One image in one cloud, which clusters share.",
    plural = "nodeimages",
    shortname = "ni",
    category = "provisioning",
    namespaced,
    status = "NodeImageStatus",
    derive = "PartialEq",
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "ID", type_ = "string", json_path = ".status.id"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = ("has(self.url) == has(self.sha256)", "an image url needs its sha256"),
    validation = ("self.cloudRef == oldSelf.cloudRef && self.name == oldSelf.name", "cloud and name cannot be changed after creation"),
    validation = ("has(self.sha256) == has(oldSelf.sha256) && (!has(self.sha256) || self.sha256 == oldSelf.sha256)", "an image of another checksum is another image")
)]
pub struct NodeImageSpec {
    /// The cloud.
    pub cloud_ref: CloudReference,
    /// Name in the cloud.
    #[schemars(length(min = 1, max = 255))]
    pub name: String,
    /// Where the image is fetched from if the cloud lacks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = r"^https?://"))]
    pub url: Option<String>,
    /// Checksum of what the URL gives, in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: Option<String>,
    /// Whether the image is stored raw.
    #[serde(default = "yes")]
    pub raw: bool,
    /// Properties of the image.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::metadata")]
    pub properties: BTreeMap<String, String>,
    /// Whether an image that the cloud lacks is registered.
    #[serde(default)]
    pub register: Register,
}

fn yes() -> bool {
    true
}

/// What became of a NodeImage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeImageStatus {
    /// ID in the cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The provisioner made it, and deletes it with the object.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// `Ready`: servers can boot it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::crds::conditions_schema")]
    pub conditions: Vec<Condition>,
}
