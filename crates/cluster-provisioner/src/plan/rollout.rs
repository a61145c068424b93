//! Which objects of Cluster API are written now.
//!
//! What replaces nodes goes one group after another: the control plane, then pool by pool.

use super::{APPLIED, Action, Draft, Observed, key};
use crate::render::{CONTROL_PLANE_GROUP, Rendered};
use api::provisioning::RolloutPlan;
use api::provisioning::conditions::Stage;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Whether every field of `part` is in `whole` with the same value. Lists are compared as a whole, item by item.
pub(crate) fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        (whole, part) => whole == part,
    }
}

/// The object with a hash of itself.
pub(crate) fn marked(object: &Value) -> Value {
    let digest = Sha256::digest(object.to_string().as_bytes());
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let mut object = object.clone();
    object["metadata"]["annotations"][APPLIED] = json!(hash);
    object
}

/// Pool that an object's nodes belong to.
fn group<'a>(rendered: &'a Rendered, object: &Value) -> Option<&'a str> {
    let (kind, name) = key(object);
    match kind.as_str() {
        "KubeadmControlPlane" => Some(CONTROL_PLANE_GROUP),
        "MachineDeployment" => {
            rendered.names.pools.iter().find(|(_, of)| **of == name).map(|(pool, _)| pool.as_str())
        }
        _other => None,
    }
}

/// The part of an object whose change replaces nodes.
fn replacing(object: &Value) -> Value {
    let spec = &object["spec"];
    match object["kind"].as_str() {
        Some("KubeadmControlPlane") => json!({
            "version": spec["version"],
            "machineTemplate": spec["machineTemplate"]["spec"]["infrastructureRef"],
            "kubeadmConfigSpec": spec["kubeadmConfigSpec"],
        }),
        _pool => json!({
            "version": spec["template"]["spec"]["version"],
            "bootstrap": spec["template"]["spec"]["bootstrap"],
            "infrastructureRef": spec["template"]["spec"]["infrastructureRef"],
        }),
    }
}

fn live<'a>(seen: &'a Observed, object: &Value) -> Option<&'a Value> {
    seen.objects.get(&key(object))
}

fn replaces_nodes(live: &Value, wanted: &Value) -> bool {
    !contains(&replacing(live), &replacing(wanted))
}

/// All nodes of a group are as its object says, and the object's controller has seen it.
fn is_settled(live: &Value) -> bool {
    let number = |value: &Value| value.as_i64();
    let wanted = number(&live["spec"]["replicas"]).unwrap_or(1);
    let status = &live["status"];
    number(&status["observedGeneration"]) >= number(&live["metadata"]["generation"])
        && number(&status["upToDateReplicas"]).unwrap_or(0) >= wanted
        && number(&status["replicas"]).unwrap_or(0) == wanted
}

/// What the next change would replace.
pub(crate) fn preview(seen: &Observed, rendered: &Rendered) -> Option<RolloutPlan> {
    let mut plan = RolloutPlan::default();
    let mut reasons = Vec::new();
    for object in &rendered.objects {
        let (Some(group), Some(live)) = (group(rendered, object), live(seen, object)) else { continue };
        if replaces_nodes(live, object) {
            plan.groups.push(group.to_owned());
            plan.replaced_nodes += live["spec"]["replicas"].as_i64().unwrap_or(1);
            reasons.extend(differences(&replacing(live), &replacing(object), ""));
        }
    }
    reasons.sort();
    reasons.dedup();
    plan.reason = reasons.join(", ");
    (!plan.groups.is_empty()).then_some(plan)
}

/// Paths at which the second value says something else.
fn differences(old: &Value, new: &Value, path: &str) -> Vec<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => new
            .iter()
            .flat_map(|(key, value)| {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differences(old.get(key).unwrap_or(&Value::Null), value, &path)
            })
            .collect(),
        (old, new) if contains(old, new) => Vec::new(),
        _different => vec![path.to_owned()],
    }
}

/// Applies what is not as it should be, in order, and holds back what would replace nodes too early.
pub(super) fn apply(draft: &mut Draft<'_>, rendered: &Rendered) {
    let seen = draft.seen;
    draft.status.plan = preview(seen, rendered);
    // A group that is being rolled out, or is about to be, has those after it wait.
    let mut busy: Option<String> = None;
    for object in &rendered.objects {
        let wanted = marked(object);
        let live = live(seen, object);
        let group = group(rendered, object);
        let rolls = group.is_some() && live.is_some_and(|live| replaces_nodes(live, object));
        if let (Some(live), Some(_), Some(_), true) = (live, group, &busy, rolls) {
            if let Some(held) = without_roll(live, &wanted) {
                draft.actions.push(Action::Apply(held));
            }
            continue;
        }
        if let Some(group) = group
            && busy.is_none()
            && live.is_some_and(|live| rolls || !is_settled(live))
        {
            busy = Some(group.to_owned());
        }
        if live.is_none_or(|live| !contains(live, &wanted)) {
            draft.actions.push(Action::Apply(wanted));
        }
    }
    let missing = rendered
        .objects
        .iter()
        .find(|object| group(rendered, object).is_some() && live(seen, object).is_none());
    match (&draft.status.plan, &busy) {
        (None, None) if missing.is_some() => {
            draft.say(Stage::UpToDate, Some(false), "Pending", "nodes are being made");
        }
        (None, None) => draft.through(Stage::UpToDate, "all nodes are as the spec says"),
        (Some(plan), _) => {
            let message = format!(
                "{} nodes are replaced, in order of {}: {}",
                plan.replaced_nodes,
                plan.groups.join(", "),
                plan.reason
            );
            draft.say(Stage::UpToDate, Some(false), "RollingOut", &message);
        }
        (None, Some(group)) => {
            let message = format!("nodes of {group} are not all there or not all as the spec says");
            draft.say(Stage::UpToDate, Some(false), "RollingOut", &message);
        }
    }
}

/// The object with its nodes as they are, and all else as it should be; `None` if that is so already.
fn without_roll(live: &Value, wanted: &Value) -> Option<Value> {
    let mut held = wanted.clone();
    for field in ["version", "bootstrap", "infrastructureRef"] {
        held["spec"]["template"]["spec"][field] = live["spec"]["template"]["spec"][field].clone();
    }
    if let Some(annotations) = held["metadata"]["annotations"].as_object_mut() {
        annotations.remove(APPLIED);
    }
    let held = marked(&held);
    (!contains(live, &held)).then_some(held)
}
