//! The owners of the matrix, each with what must come of its pods.

use serde_json::{Value, json};

use super::{End, Fate, NAME};

/// What may run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Only {
    /// One delegate for each proxy pod.
    Parent,
    /// One delegate for each of the owner's ordinals.
    Ordinal,
    /// One delegate.
    Owner,
}

/// One kind of owner.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) name: &'static str,
    pub(crate) group_version: &'static str,
    pub(crate) kind: &'static str,
    /// How many pods it has at once and, when it is a Job, how many have to succeed.
    pub(crate) pods: usize,
    pub(crate) only: Only,
    /// The object, with these annotations on its pods.
    pub(crate) manifest: fn(&Value) -> Value,
    ends: [End; 4],
}

impl Owner {
    /// What must come of it; a refusal by a kubelet must change nothing.
    pub(crate) fn end(&self, fate: Fate) -> End {
        let [deleted, evicted, delegate_deleted, delegate_evicted] = self.ends;
        match fate {
            Fate::Deleted => deleted,
            Fate::Evicted => evicted,
            Fate::DelegateDeleted => delegate_deleted,
            Fate::DelegateEvicted => delegate_evicted,
            Fate::Refused => Survives,
        }
    }

    pub(crate) fn is_job(&self) -> bool {
        self.kind == "Job"
    }
}

use End::{Completes, Fails, Gone, Replaced, Survives};

/// Ends of: proxy pod deleted, evicted; delegate deleted, evicted.
pub(crate) const OWNERS: [Owner; 9] = [
    Owner {
        name: "replica-set",
        group_version: "apps/v1",
        kind: "ReplicaSet",
        pods: 2,
        only: Only::Parent,
        manifest: |annotations| {
            json!({"metadata": {"name": NAME}, "spec": {"replicas": 2,
                "selector": {"matchLabels": {"app": NAME}}, "template": template(annotations, "Always")}})
        },
        ends: [Replaced, Replaced, Survives, Survives],
    },
    Owner {
        name: "stateful-set-ordered",
        group_version: "apps/v1",
        kind: "StatefulSet",
        pods: 2,
        only: Only::Ordinal,
        manifest: |annotations| stateful_set(annotations, "OrderedReady"),
        ends: [Replaced, Replaced, Survives, Survives],
    },
    Owner {
        name: "stateful-set-parallel",
        group_version: "apps/v1",
        kind: "StatefulSet",
        pods: 2,
        only: Only::Ordinal,
        manifest: |annotations| stateful_set(annotations, "Parallel"),
        ends: [Replaced, Replaced, Survives, Survives],
    },
    Owner {
        name: "bare-pod",
        group_version: "v1",
        kind: "Pod",
        pods: 1,
        only: Only::Owner,
        manifest: |annotations| {
            let mut pod = template(annotations, "Always");
            pod["metadata"]["name"] = json!(NAME);
            pod
        },
        ends: [Gone, Gone, Survives, Survives],
    },
    Owner {
        name: "job-without-retry",
        group_version: "batch/v1",
        kind: "Job",
        pods: 1,
        only: Only::Owner,
        manifest: |annotations| job(annotations, "Never", json!({"backoffLimit": 0})),
        ends: [Fails, Fails, Fails, Fails],
    },
    Owner {
        name: "job-indexed",
        group_version: "batch/v1",
        kind: "Job",
        pods: 3,
        only: Only::Ordinal,
        manifest: |annotations| {
            let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
                "podReplacementPolicy": "Failed"});
            job(annotations, "Never", spec)
        },
        ends: [Completes, Completes, Completes, Completes],
    },
    Owner {
        name: "job-that-ignores-disruption",
        group_version: "batch/v1",
        kind: "Job",
        pods: 1,
        only: Only::Owner,
        manifest: |annotations| {
            let rule = json!({"action": "Ignore",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
            let spec = json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [rule]}});
            job(annotations, "Never", spec)
        },
        ends: [Fails, Completes, Fails, Completes],
    },
    Owner {
        name: "job-that-waits-for-the-end",
        group_version: "batch/v1",
        kind: "Job",
        pods: 1,
        only: Only::Owner,
        manifest: |annotations| job(annotations, "Never", json!({"podReplacementPolicy": "Failed"})),
        ends: [Completes, Completes, Completes, Completes],
    },
    Owner {
        name: "job-that-replaces-at-once",
        group_version: "batch/v1",
        kind: "Job",
        pods: 1,
        only: Only::Parent,
        manifest: |annotations| {
            job(annotations, "OnFailure", json!({"podReplacementPolicy": "TerminatingOrFailed"}))
        },
        ends: [Completes, Completes, Completes, Completes],
    },
];

/// A pod without a name.
pub(crate) fn template(annotations: &Value, restart_policy: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": NAME}, "annotations": annotations},
        "spec": {
            "restartPolicy": restart_policy,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "nowhere.example/any:1"}],
        },
    })
}

fn stateful_set(annotations: &Value, policy: &str) -> Value {
    json!({"metadata": {"name": NAME}, "spec": {"replicas": 2, "serviceName": NAME, "podManagementPolicy": policy,
        "selector": {"matchLabels": {"app": NAME}}, "template": template(annotations, "Always")}})
}

fn job(annotations: &Value, restart_policy: &str, mut spec: Value) -> Value {
    spec["template"] = template(annotations, restart_policy);
    json!({"metadata": {"name": NAME}, "spec": spec})
}
