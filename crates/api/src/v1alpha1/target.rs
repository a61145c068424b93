//! Target and ClusterTarget: a cluster in which pods of this one may run.
#![expect(unreachable_pub, reason = "the derive of validated schemas makes a local copy of each struct")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What happens to labels on their way to a delegate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LabelRewriting {
    /// Keys get the prefix `multicluster.admiralty.io/`, so that selectors in the target do not match them.
    #[default]
    Rewrite,
    /// Labels and selectors stay as they are.
    Keep,
}

/// What becomes of a pod whose target does not answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Failover {
    /// It waits for the target.
    #[default]
    Stay,
    /// After the grace period it ends, so that its controller replaces it. It may go on running in the target: it
    /// runs at least once.
    Move,
    /// It ends when it is sure that it does not run any more: the target has confirmed that it is gone, or is fenced.
    MoveOnce,
}

/// What counts as proof that a pod does not run any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Fence {
    /// The word of the target, or of somebody who has fenced it.
    #[default]
    Confirmed,
    /// Also that a Lease which the source could not renew has run out: the target stops pods with `MoveOnce` by
    /// itself when it does not see it renewed. That is sure as long as API server, chaperon-controller and nodes of the
    /// target work while it is cut off.
    Lease,
}

/// Of which amounts a virtual node's capacity is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CapacityOf {
    /// What nodes offer to pods.
    #[default]
    Total,
    /// What of it no pod has asked for yet, pods of this cluster included.
    Free,
}

/// What a virtual node shows of its cluster's capacity. Where a pod fits is decided in the cluster itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Capacity {
    /// Of which amounts; `Total` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<CapacityOf>,
    /// So many percent of them; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub share: Option<u32>,
    /// Resource to quantity: no more than this.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub at_most: BTreeMap<String, String>,
    /// Resource to quantity: no less than this, for pools that are empty until somebody asks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub up_to: BTreeMap<String, String>,
}

/// The Secret beside a Target that holds a kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeconfigSecret {
    /// Name of the Secret, in the namespace of the Target.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key of the Secret under which the kubeconfig stands; `config` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Context of the kubeconfig; its current context when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// The Secret that holds the kubeconfig of a ClusterTarget.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterKubeconfigSecret {
    /// Namespace of the Secret.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Name of the Secret.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key of the Secret under which the kubeconfig stands; `config` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Context of the kubeconfig; its current context when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

/// A cluster in which pods of this Target's namespace may run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "multicluster.admiralty.io",
    version = "v1alpha1",
    kind = "Target",
    doc = "A cluster in which pods of this namespace may run.",
    plural = "targets",
    shortname = "tg",
    namespaced,
    status = "TargetStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reachable",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Reachable')].status"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.virtualNode"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("has(self.spec)").message("spec: say `self: true` or name a `kubeconfigSecret`")
)]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.self) && self.self) != (has(self.kubeconfigSecret) && has(self.kubeconfigSecret.name) && self.kubeconfigSecret.name != '')"
).message("spec: exactly one of `self: true` and `kubeconfigSecret` must be set"))]
pub struct TargetSpec {
    /// The target is this very cluster.
    #[serde(rename = "self", skip_serializing_if = "Option::is_none")]
    pub self_: Option<bool>,
    /// Where the kubeconfig of the target stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<KubeconfigSecret>,
    /// Node labels whose `key=value` matches this RE2 expression are not shown on the virtual node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = kube::core::Rule::new("[''.matches(self)].size() == 1").message("excludedLabelsRegexp: not a regular expression"))]
    pub excluded_labels_regexp: Option<String>,
    /// Whether labels of delegates get the prefix; `Rewrite` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_rewriting: Option<LabelRewriting>,
    /// How many targets are asked at once for a pod: `1` … `n`, or `all`; `1` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([1-9][0-9]{0,2}|all)$"))]
    pub ask: Option<String>,
    /// Targets with a lower order are filled before those with a higher one; 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: Option<i32>,
    /// Among targets of one order, the share of the pods of one controller that go here, in proportion to the
    /// weights of the others; 0: only what nobody else takes. 1 when absent; where no target has a weight, room
    /// decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: Option<u32>,
    /// How long a delegate may wait here for a node when another target would take its pod, like `90s` or `5m`;
    /// `5m` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"))]
    pub start_deadline: Option<String>,
    /// What becomes of pods here when the cluster does not answer; `Stay` when absent. Pods may say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// How long the cluster may be silent before pods are replaced, like `90s` or `5m`; `5m` when absent. Pods may
    /// say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"))]
    pub failover_grace_period: Option<String>,
    /// What counts as proof that a pod does not run here any more; `Confirmed` when absent. Pods may say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// What the virtual node shows of the cluster's capacity; all of it when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
}

/// A cluster in which pods of every namespace may run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "multicluster.admiralty.io",
    version = "v1alpha1",
    kind = "ClusterTarget",
    doc = "A cluster in which pods of every namespace may run.",
    plural = "clustertargets",
    shortname = "ctg",
    status = "TargetStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status"
    ),
    printcolumn(
        name = "Reachable",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Reachable')].status"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.virtualNode"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("has(self.spec)").message("spec: say `self: true` or name a `kubeconfigSecret`")
)]
#[x_kube(validation = kube::core::Rule::new(
    "(has(self.self) && self.self) != (has(self.kubeconfigSecret) && has(self.kubeconfigSecret.name) && self.kubeconfigSecret.name != '')"
).message("spec: exactly one of `self: true` and `kubeconfigSecret` must be set"))]
pub struct ClusterTargetSpec {
    /// The target is this very cluster.
    #[serde(rename = "self", skip_serializing_if = "Option::is_none")]
    pub self_: Option<bool>,
    /// Where the kubeconfig of the target stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret: Option<ClusterKubeconfigSecret>,
    /// Node labels whose `key=value` matches this RE2 expression are not shown on the virtual node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = kube::core::Rule::new("[''.matches(self)].size() == 1").message("excludedLabelsRegexp: not a regular expression"))]
    pub excluded_labels_regexp: Option<String>,
    /// Whether labels of delegates get the prefix; `Rewrite` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_rewriting: Option<LabelRewriting>,
    /// How many targets are asked at once for a pod: `1` … `n`, or `all`; `1` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([1-9][0-9]{0,2}|all)$"))]
    pub ask: Option<String>,
    /// Targets with a lower order are filled before those with a higher one; 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: Option<i32>,
    /// Among targets of one order, the share of the pods of one controller that go here, in proportion to the
    /// weights of the others; 0: only what nobody else takes. 1 when absent; where no target has a weight, room
    /// decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000))]
    pub weight: Option<u32>,
    /// How long a delegate may wait here for a node when another target would take its pod, like `90s` or `5m`;
    /// `5m` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"))]
    pub start_deadline: Option<String>,
    /// What becomes of pods here when the cluster does not answer; `Stay` when absent. Pods may say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
    /// How long the cluster may be silent before pods are replaced, like `90s` or `5m`; `5m` when absent. Pods may
    /// say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"))]
    pub failover_grace_period: Option<String>,
    /// What counts as proof that a pod does not run here any more; `Confirmed` when absent. Pods may say otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// What the virtual node shows of the cluster's capacity; all of it when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
}

/// What virtual-kubelet found out about a target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetStatus {
    /// `Accepted`, `Reachable` and `Ready`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::crds::conditions_schema")]
    pub conditions: Vec<Condition>,
    /// UID of the target's `kube-system` namespace: the target's identity.
    #[serde(rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Name of the virtual node that stands for the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_node: Option<String>,
}
