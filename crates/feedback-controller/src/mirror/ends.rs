//! What is written on a proxy pod that its delegate has not said.

use super::DISRUPTION_TARGET;
use crate::views::Proxy;
use api::raw::{is_terminal, pod_condition};
use serde_json::{Value, json};

/// Why a pod ends without an end of its delegate's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The proxy was deleted, and the delegate left no record.
    Deleted,
    /// The delegate and its PodChaperon are gone in the target.
    DelegateLost,
    /// The Target through which it ran was deleted.
    TargetRemoved,
    /// The delegate got no node in time, was revoked, and is certain never to run.
    NotStarted,
}

impl Cause {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Cause::Deleted => "Deleted",
            Cause::DelegateLost => "DelegateLost",
            Cause::TargetRemoved => "TargetRemoved",
            Cause::NotStarted => "NotStarted",
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Cause::Deleted => "The pod was deleted, and its delegate is gone without a recorded end.",
            Cause::DelegateLost => "The delegate is gone in the target cluster without a recorded end.",
            Cause::TargetRemoved => "The Target through which the pod ran was deleted.",
            Cause::NotStarted => {
                "The delegate got no node in the target cluster in time; another would take it."
            }
        }
    }
}

/// The status patch that ends a pod as Failed.
pub(crate) fn failed(proxy: &Proxy, cause: Cause, now: &str) -> Value {
    let old = proxy.status.value();
    let mut conditions = Vec::new();
    for kind in ["Ready", "ContainersReady"] {
        if pod_condition(&old, kind).is_some_and(|condition| condition["status"] == "True") {
            conditions.push(
                json!({"type": kind, "status": "False", "reason": "PodFailed", "lastTransitionTime": now}),
            );
        }
    }
    if cause != Cause::Deleted {
        conditions.push(json!({
            "type": DISRUPTION_TARGET, "status": "True", "reason": cause.reason(),
            "message": cause.message(), "lastTransitionTime": now,
        }));
    }
    let mut status = json!({"phase": "Failed", "reason": cause.reason(), "message": cause.message()});
    if !conditions.is_empty() {
        status["conditions"] = Value::Array(conditions);
    }
    json!({"status": status})
}

/// The status patch of a pod whose target has fallen silent: nobody knows whether it can be reached, so that
/// Services leave it out until the target answers. `None` when it is not called ready.
pub(crate) fn not_ready(proxy: &Proxy, now: &str) -> Option<Value> {
    let old = proxy.status.value();
    let ready = pod_condition(&old, "Ready").is_some_and(|condition| condition["status"] == "True");
    let ended = is_terminal(old["phase"].as_str().unwrap_or_default());
    (ready && !ended).then(|| {
        json!({"status": {"conditions": [{
            "type": "Ready", "status": "False", "reason": "TargetUnreachable",
            "message": "The target cluster does not answer.", "lastTransitionTime": now,
        }]}})
    })
}
