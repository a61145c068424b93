//! What of a delegate's status and annotations its proxy pod does not show yet.

use crate::views::{CONTAINERS, Proxy};
use api::raw::{is_terminal, pod_condition};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that belong to the cluster in which an object is, and those that are mirrored item by item.
const NOT_COPIED: &[&str] = &[
    "qosClass",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nominatedNodeName",
    "observedGeneration",
    "resize",
    "conditions",
    "containerStatuses",
    "initContainerStatuses",
    "ephemeralContainerStatuses",
];

/// Lists that a strategic merge would merge by key instead of replacing.
const MERGED_LISTS: &[&str] = &["podIPs", "hostIPs"];

/// Conditions that a kubelet owns: one that the delegate does not have, the proxy has not either.
const OF_KUBELET: &[&str] = &[
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodReadyToStartContainers",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
];

/// A delegate as it is mirrored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delegate<'a> {
    pub(crate) status: &'a Value,
    pub(crate) annotations: &'a BTreeMap<String, String>,
    /// Keys of annotations that it had before: those that it has lost are taken off the proxy.
    pub(crate) had: &'a BTreeSet<String>,
}

/// A difference between a delegate and its proxy pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// Strategic merge patch of the pod's status subresource, with annotations, without UID.
    pub(crate) patch: Value,
    /// Whether somebody waits for it: started, ready, ended or about to be disrupted.
    pub(crate) is_urgent: bool,
}

/// The difference; `None` when there is none to write. `now` is the transition time of a condition that is
/// worked out here.
pub(crate) fn mirror(proxy: &Proxy, delegate: Delegate<'_>, now: &str) -> Option<Change> {
    let old = without_nulls(proxy.status.value());
    let new = without_nulls(delegate.status.clone());
    let phase = new["phase"].as_str().unwrap_or_default();
    let old_phase = old["phase"].as_str().unwrap_or_default();
    let annotations = annotations(&proxy.annotations, delegate);
    let mut status = Map::new();
    if !phase.is_empty() && (phase == old_phase || !is_terminal(old_phase)) {
        status = fields(&old, &new);
        let conditions = conditions(proxy, &old, &new, now);
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), Value::Array(conditions));
        }
        status.extend(containers(proxy, &old, &new));
    }
    if status.is_empty() && annotations.is_empty() {
        return None;
    }
    let is_urgent = is_urgent(&old, &new, &status);
    let mut patch = json!({});
    if !status.is_empty() {
        patch["status"] = Value::Object(status);
    }
    if !annotations.is_empty() {
        patch["metadata"] = json!({"annotations": annotations});
    }
    Some(Change { patch, is_urgent })
}

fn is_urgent(old: &Value, new: &Value, status: &Map<String, Value>) -> bool {
    let became = |kind: &str| {
        let is = |status: &Value| {
            pod_condition(status, kind).is_some_and(|condition| condition["status"] == "True")
        };
        is(new) && !is(old)
    };
    let phase = status.get("phase").and_then(Value::as_str).unwrap_or_default();
    phase == "Running" || is_terminal(phase) || became("Ready") || became("DisruptionTarget")
}

/// Fields of the status that are copied as they are.
fn fields(old: &Value, new: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let (old, new) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
    let mut patch = Map::new();
    for (key, value) in new {
        if NOT_COPIED.contains(&key.as_str()) || old.get(key) == Some(value) {
            continue;
        }
        let mut value = value.clone();
        if let (true, Value::Array(items)) = (MERGED_LISTS.contains(&key.as_str()), &mut value) {
            items.insert(0, json!({"$patch": "replace"}));
        }
        patch.insert(key.clone(), value);
    }
    for key in old.keys() {
        if !NOT_COPIED.contains(&key.as_str()) && !new.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

/// Conditions to change, for a merge by type. Those that the source owns stay as they are.
fn conditions(proxy: &Proxy, old: &Value, new: &Value, now: &str) -> Vec<Value> {
    let of_source =
        |kind: &str| kind == "PodScheduled" || proxy.readiness_gates.iter().any(|gate| gate == kind);
    let mut patch = Vec::new();
    for condition in new["conditions"].as_array().into_iter().flatten() {
        let Some(kind) = condition["type"].as_str().filter(|kind| !of_source(kind)) else { continue };
        let mut condition = condition.clone();
        if let Some(fields) = condition.as_object_mut() {
            // It counts generations of another object.
            fields.remove("observedGeneration");
        }
        let before = pod_condition(old, kind);
        if kind == "Ready" && !proxy.readiness_gates.is_empty() {
            condition = gated(proxy, old, new, now);
        }
        let mut same = before.cloned().unwrap_or_default();
        if let Some(fields) = same.as_object_mut() {
            fields.remove("observedGeneration");
        }
        if same == condition {
            continue;
        }
        for key in before.and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key) {
            if condition.get(key).is_none() {
                condition[key] = Value::Null;
            }
        }
        patch.push(condition);
    }
    for kind in OF_KUBELET {
        if pod_condition(old, kind).is_some() && pod_condition(new, kind).is_none() && !of_source(kind) {
            patch.push(json!({"$patch": "delete", "type": kind}));
        }
    }
    patch
}

/// Readiness of a pod whose gates are evaluated in the source: its containers are ready in the target, and
/// every gate is open here.
fn gated(proxy: &Proxy, old: &Value, new: &Value, now: &str) -> Value {
    let is_true =
        |status: &Value, kind: &str| pod_condition(status, kind).is_some_and(|c| c["status"] == "True");
    let closed = proxy.readiness_gates.iter().find(|gate| !is_true(old, gate));
    let mut ready = json!({"type": "Ready", "status": "True"});
    if !is_true(new, "ContainersReady") {
        ready["status"] = json!("False");
        ready["reason"] = json!("ContainersNotReady");
    } else if let Some(gate) = closed {
        ready["status"] = json!("False");
        ready["reason"] = json!("ReadinessGatesNotReady");
        ready["message"] =
            json!(format!("corresponding condition of pod readiness gate \"{gate}\" is not True"));
    }
    let before = pod_condition(old, "Ready").filter(|before| before["status"] == ready["status"]);
    let since = before.and_then(|before| before["lastTransitionTime"].as_str()).unwrap_or(now);
    ready["lastTransitionTime"] = json!(since);
    ready
}

/// Statuses of the containers that the proxy has too; the target may have injected more.
fn containers(proxy: &Proxy, old: &Value, new: &Value) -> Map<String, Value> {
    let mut patch = Map::new();
    for ((_, field), names) in CONTAINERS.into_iter().zip(&proxy.containers) {
        let known = |status: &&Value| names.iter().any(|name| status["name"] == name.as_str());
        let statuses: Vec<Value> =
            new[field].as_array().into_iter().flatten().filter(known).cloned().collect();
        let before: &[Value] = old[field].as_array().map_or(&[], Vec::as_slice);
        if statuses != before {
            let value = if statuses.is_empty() { Value::Null } else { Value::Array(statuses) };
            patch.insert(field.to_owned(), value);
        }
    }
    patch
}

fn annotations(old: &BTreeMap<String, String>, delegate: Delegate<'_>) -> Map<String, Value> {
    let new = delegate.annotations;
    let mut patch = Map::new();
    for (key, value) in new {
        if old.get(key) != Some(value) {
            patch.insert(key.clone(), json!(value));
        }
    }
    for key in delegate.had {
        if !new.contains_key(key) && old.contains_key(key) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    patch
}

/// Absent and null mean the same.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(k, v)| (k, without_nulls(v)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Why a pod ends without an end of its delegate's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The proxy was deleted, and the delegate left no record.
    Deleted,
    /// The delegate and its PodChaperon are gone in the target.
    DelegateLost,
    /// The Target through which it ran was deleted.
    TargetRemoved,
}

impl Cause {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Cause::Deleted => "Deleted",
            Cause::DelegateLost => "DelegateLost",
            Cause::TargetRemoved => "TargetRemoved",
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Cause::Deleted => "The pod was deleted, and its delegate is gone without a recorded end.",
            Cause::DelegateLost => "The delegate is gone in the target cluster without a recorded end.",
            Cause::TargetRemoved => "The Target through which the pod ran was deleted.",
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
            "type": "DisruptionTarget", "status": "True", "reason": cause.reason(),
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

/// What is left of a status patch that the API server refused: the phase, and conditions.
pub(crate) fn essential(patch: &Value) -> Value {
    let status = patch["status"].as_object();
    let kept: Map<String, Value> = status
        .into_iter()
        .flatten()
        .filter(|(key, _)| ["phase", "reason", "message", "conditions"].contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    json!({"status": kept})
}

#[cfg(test)]
mod tests;
