//! Source and ClusterSource: another cluster whose pods may run in this one.
#![expect(unreachable_pub, reason = "the derive of validated schemas makes a local copy of each struct")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ServiceAccount of any namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ServiceAccountReference {
    /// Name of the ServiceAccount.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the ServiceAccount.
    #[schemars(length(min = 1))]
    pub namespace: String,
}

/// The identity of a cluster that may run pods in this namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "multicluster.admiralty.io",
    version = "v1alpha1",
    kind = "Source",
    doc = "Another cluster that may run pods in this namespace.",
    plural = "sources",
    shortname = "src",
    namespaced,
    status = "SourceStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("has(self.spec)").message("spec: name a `userName` or a `serviceAccountName`")
)]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.userName) && self.userName != '') || (has(self.serviceAccountName) && self.serviceAccountName != '')"
).message("spec: name a `userName` or a `serviceAccountName`"))]
pub struct SourceSpec {
    /// Name of a user of this cluster that the source authenticates as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// ServiceAccount of this namespace that the source authenticates as; created if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
}

/// The identity of a cluster that may run pods in every namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "multicluster.admiralty.io",
    version = "v1alpha1",
    kind = "ClusterSource",
    doc = "Another cluster that may run pods in every namespace.",
    plural = "clustersources",
    shortname = "csrc",
    status = "SourceStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("has(self.spec)").message("spec: name a `userName` or a `serviceAccount`")
)]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.userName) && self.userName != '') || (has(self.serviceAccount) && has(self.serviceAccount.name) && self.serviceAccount.name != '')"
).message("spec: name a `userName` or a `serviceAccount`"))]
pub struct ClusterSourceSpec {
    /// Name of a user of this cluster that the source authenticates as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_name: Option<String>,
    /// ServiceAccount that the source authenticates as; created if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountReference>,
}

/// What source-controller made of a Source or ClusterSource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SourceStatus {
    /// `Ready`: the identity and its bindings are in place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::crds::conditions_schema")]
    pub conditions: Vec<Condition>,
}
