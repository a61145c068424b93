//! What of a delegate's status and annotations its proxy pod does not show yet.

mod ends;

pub(crate) use ends::{Cause, failed, unreachable};

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

/// Conditions that say why a delegate does not run; they go with the reason. The first three are
/// chaperon-controller's, then comes what `PodScheduled` is in the target, and what is said while it is silent.
const WHY: &[&str] = &[
    api::keys::DELEGATE_CREATED,
    "DelegateStopped",
    api::keys::DELEGATE_UPDATED,
    DELEGATE_SCHEDULED,
    TARGET_REACHABLE,
];
const TARGET_REACHABLE: &str = "TargetReachable";
const DELEGATE_SCHEDULED: &str = "DelegateScheduled";
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// A delegate as it is mirrored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delegate<'a> {
    pub(crate) status: &'a Value,
    pub(crate) annotations: &'a BTreeMap<String, String>,
    /// Keys of annotations that it had with another value: those that it has lost are taken off the proxy.
    pub(crate) had: &'a BTreeSet<String>,
    /// Whether it was about to be disrupted, and is not any more.
    pub(crate) was_disrupted: bool,
    /// Whether the proxy was told of these annotations: what it shows since then is somebody's own will.
    pub(crate) is_told: bool,
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
    let annotations = annotations(proxy, delegate);
    let mut status = Map::new();
    if phase == old_phase || !is_terminal(old_phase) {
        // Without a phase there is no delegate: there is nothing to say but why.
        if !phase.is_empty() {
            status = fields(&old, &new);
            status.extend(containers(proxy, &old, &new));
        }
        let mut conditions = conditions(proxy, &old, &new, now);
        let is_over = delegate.was_disrupted && proxy.deleting.is_none() && !is_terminal(phase);
        let is_disrupted = |status: &Value| pod_condition(status, DISRUPTION_TARGET).is_some();
        if is_over && is_disrupted(&old) && !is_disrupted(&new) {
            conditions.push(json!({"$patch": "delete", "type": DISRUPTION_TARGET}));
        }
        if !conditions.is_empty() {
            status.insert("conditions".to_owned(), Value::Array(conditions));
        }
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
    phase == "Running" || is_terminal(phase) || became("Ready") || became(DISRUPTION_TARGET)
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
    let of_source = |kind: &str| proxy.readiness_gates.iter().any(|gate| gate == kind);
    let shown = shown(new);
    let mut patch = Vec::new();
    for (kind, condition) in &shown {
        let kind = kind.as_str();
        if of_source(kind) {
            continue;
        }
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
    let of_kubelet = if has_phase(new) { OF_KUBELET } else { &[] };
    for kind in of_kubelet.iter().chain(WHY) {
        let is_shown = shown.iter().any(|(shown, _)| shown == kind);
        if pod_condition(old, kind).is_some() && !is_shown && !of_source(kind) {
            patch.push(json!({"$patch": "delete", "type": kind}));
        }
    }
    patch
}

fn has_phase(status: &Value) -> bool {
    !status["phase"].as_str().unwrap_or_default().is_empty()
}

/// Conditions of a delegate as its proxy shows them, by type: the proxy is scheduled, whatever becomes of its
/// delegate.
fn shown(new: &Value) -> Vec<(String, Value)> {
    let mut shown = Vec::new();
    for condition in new["conditions"].as_array().into_iter().flatten() {
        let Some(kind) = condition["type"].as_str() else { continue };
        let mut condition = condition.clone();
        let kind = if kind == "PodScheduled" { DELEGATE_SCHEDULED } else { kind };
        let is_refusal = kind != DELEGATE_SCHEDULED || condition["status"] == "False";
        if kind == TARGET_REACHABLE {
            // That of a target which has targets itself.
            continue;
        }
        // Before there was a delegate, only candidates were refused.
        let is_told = has_phase(new) || WHY.contains(&kind) && kind != DELEGATE_SCHEDULED;
        if is_refusal && is_told {
            condition["type"] = json!(kind);
            shown.push((kind.to_owned(), condition));
        }
    }
    shown
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

/// Annotations to change: those that somebody gave the delegate, each value once. One that it merely has from
/// the pod's manifest is the proxy's own, whatever became of it there.
fn annotations(proxy: &Proxy, delegate: Delegate<'_>) -> Map<String, Value> {
    let (old, new) = (&proxy.annotations, delegate.annotations);
    let mut patch = Map::new();
    if delegate.is_told {
        return patch;
    }
    // What somebody wrote in the source is the source's.
    let is_own =
        |key: &str| proxy.updates.as_ref().is_some_and(|updates| updates.annotations.contains_key(key));
    for (key, value) in new.iter().filter(|(key, _)| !is_own(key)) {
        let is_given = proxy.submitted.get(key) != Some(value) || delegate.had.contains(key);
        if is_given && old.get(key) != Some(value) {
            patch.insert(key.clone(), json!(value));
        }
    }
    for key in delegate.had {
        if !new.contains_key(key) && old.contains_key(key) && !is_own(key) {
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

/// The patch as it is sent: to this very pod, and with a phase only over the state that was seen, so that a
/// late write takes no pod out of its end.
pub(crate) fn addressed(proxy: &Proxy, patch: &Value) -> Value {
    let mut body = patch.clone();
    body["metadata"]["uid"] = json!(proxy.uid);
    if patch["status"]["phase"].is_string() && proxy.version > 0 {
        body["metadata"]["resourceVersion"] = json!(proxy.version.to_string());
    }
    body
}

#[cfg(test)]
mod tests;
