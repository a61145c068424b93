//! API servers that answer, and say no: objects of their own make real ones do it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::NAMESPACE;

/// How long each of them lasts.
const LASTS: Duration = Duration::from_secs(15);
const NAME: &str = "chaos";

/// What a cluster refuses, and by which objects: group and version, kind, whether it is in the namespace of the
/// workloads, and its fields.
type Objects = Vec<(&'static str, &'static str, bool, Value)>;

/// Every request of a service account, and so of every component of ours, is answered with 429.
fn too_many_requests() -> Objects {
    let level = json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0,
        "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}});
    let accounts = json!([{"kind": "Group", "group": {"name": "system:serviceaccounts"}}]);
    let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
        "clusterScope": true}]);
    let schema = json!({"spec": {"priorityLevelConfiguration": {"name": NAME}, "matchingPrecedence": 2,
        "rules": [{"subjects": accounts, "resourceRules": everything,
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}});
    let group = "flowcontrol.apiserver.k8s.io/v1";
    vec![(group, "PriorityLevelConfiguration", false, level), (group, "FlowSchema", false, schema)]
}

/// Every write of a pod or a PodChaperon is answered with 500: an admission webhook that cannot be called.
fn internal_errors() -> Objects {
    let rules = json!([
        {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods", "pods/*"]},
        {"operations": ["*"], "apiGroups": ["multicluster.admiralty.io"], "apiVersions": ["*"],
            "resources": ["podchaperons", "podchaperons/*"]},
    ]);
    let webhook = json!({"name": "chaos.nowhere.example", "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "timeoutSeconds": 1, "rules": rules,
        "clientConfig": {"url": "https://127.0.0.1:1/"}});
    let group = "admissionregistration.k8s.io/v1";
    vec![(group, "ValidatingWebhookConfiguration", false, json!({"webhooks": [webhook]}))]
}

/// Every new pod is answered with 403.
fn no_quota() -> Objects {
    vec![("v1", "ResourceQuota", true, json!({"spec": {"hard": {"pods": "0"}}}))]
}

/// What an API server may say for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    TooManyRequests,
    InternalErrors,
    NoQuota,
}

impl Refusal {
    fn objects(self) -> Objects {
        match self {
            Self::TooManyRequests => too_many_requests(),
            Self::InternalErrors => internal_errors(),
            Self::NoQuota => no_quota(),
        }
    }

    /// Lets a cluster refuse for a while.
    pub(crate) async fn lasts(self, cluster: &Cluster) -> Result<()> {
        let objects = self.objects();
        for (group_version, kind, namespaced, fields) in &objects {
            let mut object = fields.clone();
            object["apiVersion"] = json!(group_version);
            object["kind"] = json!(kind);
            object["metadata"] = json!({"name": NAME});
            let object: DynamicObject = serde_json::from_value(object).context("not an object")?;
            let api = cluster.dynamic(group_version, kind, namespaced.then_some(NAMESPACE));
            api.create(&PostParams::default(), &object).await.with_context(|| format!("a {kind}"))?;
        }
        sleep(LASTS).await;
        for (group_version, kind, namespaced, _) in objects.iter().rev() {
            let api = cluster.dynamic(group_version, kind, namespaced.then_some(NAMESPACE));
            api.delete(NAME, &DeleteParams::default()).await.with_context(|| format!("a {kind}"))?;
        }
        Ok(())
    }
}
