//! CloudAccount: one project of an OpenStack cloud.

use super::schema::{self, Cidr, Ip, SecretKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One project of an OpenStack cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "provisioning.multicluster-scheduler.io",
    version = "v1alpha1",
    kind = "CloudAccount",
    doc = "One project of an OpenStack cloud, in which clusters of this namespace are made.",
    plural = "cloudaccounts",
    shortname = "ca",
    category = "provisioning",
    namespaced,
    status = "CloudAccountStatus",
    derive = "PartialEq",
    printcolumn(name = "Cloud", type_ = "string", json_path = ".spec.cloudName"),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.region"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct CloudAccountSpec {
    /// The Secret with a `clouds.yaml`.
    pub clouds_yaml: SecretKey,
    /// The Secret with the certificate of the cloud's authority, if it is not a public one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_certificate: Option<SecretKey>,
    /// The section of the `clouds.yaml`.
    #[serde(default = "openstack")]
    #[schemars(length(min = 1, max = 253))]
    pub cloud_name: String,
    /// The region; that of the section when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub region: Option<String>,
    /// Name servers of clusters that name none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 6))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub dns_nameservers: Vec<Ip>,
    /// From which addresses the management cluster reaches the API servers of clusters that restrict access.
    #[serde(rename = "managementCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub management_cidrs: Vec<Cidr>,
    /// Requests that may be under way at once.
    #[serde(default = "eight")]
    #[schemars(range(min = 1, max = 64))]
    pub concurrency: i32,
}

fn openstack() -> String {
    "openstack".to_owned()
}

fn eight() -> i32 {
    8
}

/// What is known about a CloudAccount.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CloudAccountStatus {
    /// The project.
    #[serde(rename = "projectID", skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// `Ready`: the cloud lets us in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::crds::conditions_schema")]
    pub conditions: Vec<Condition>,
}
