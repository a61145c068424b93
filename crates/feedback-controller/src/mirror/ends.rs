//! What is written on a proxy pod that its delegate has not said.

use super::{DISRUPTION_TARGET, TARGET_REACHABLE};
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
    /// Its target does not answer, and its policy is not to wait.
    TargetUnreachable,
    /// Its target has stopped it, since it did not hear of this source.
    LeaseExpired,
}

impl Cause {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Cause::Deleted => "Deleted",
            Cause::DelegateLost => "DelegateLost",
            Cause::TargetRemoved => "TargetRemoved",
            Cause::NotStarted => "NotStarted",
            Cause::TargetUnreachable => "TargetUnreachable",
            Cause::LeaseExpired => api::keys::LEASE_EXPIRED,
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
            Cause::TargetUnreachable => {
                "The target cluster does not answer, and the failover policy is not to wait for it."
            }
            Cause::LeaseExpired => {
                "The target cluster did not hear of this cluster for so long that it stopped the pod."
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

/// The status patch of a pod whose target has fallen silent, with the reason and the message that say what becomes of
/// it. Nobody knows whether it can be reached, so that Services leave it out until the target answers. `None` when
/// all that is told already, or the pod has ended.
pub(crate) fn unreachable(proxy: &Proxy, (reason, message): (&str, &str), now: &str) -> Option<Value> {
    let old = proxy.status.value();
    if is_terminal(old["phase"].as_str().unwrap_or_default()) {
        return None;
    }
    let mut conditions = Vec::new();
    if pod_condition(&old, "Ready").is_some_and(|condition| condition["status"] == "True") {
        conditions.push(json!({
            "type": "Ready", "status": "False", "reason": "TargetUnreachable",
            "message": "The target cluster does not answer.", "lastTransitionTime": now,
        }));
    }
    let told = pod_condition(&old, TARGET_REACHABLE);
    if told.is_none_or(|told| told["reason"] != reason) {
        let since = told.and_then(|told| told["lastTransitionTime"].as_str()).unwrap_or(now);
        conditions.push(json!({
            "type": TARGET_REACHABLE, "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": since,
        }));
    }
    (!conditions.is_empty()).then(|| json!({"status": {"conditions": conditions}}))
}
