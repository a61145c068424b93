//! Decides what is written to Targets and virtual nodes.

use crate::facts::{Facts, Link, Reach, Seen, World};
use crate::node;
use crate::verdicts::{Judgement, judge};
use api::conditions::merge;
use api::v1alpha1::TargetStatus;
use api::{Node, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use runtime::TargetKey;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// One write. Each is idempotent and safe to repeat after a crash.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    PatchTarget {
        key: TargetKey,
        uid: String,
        status: TargetStatus,
    },
    /// Puts our finalizer on a target, before anything can run there.
    HoldTarget {
        key: TargetKey,
        uid: String,
        resource_version: String,
        finalizers: Vec<String>,
    },
    CreateNode {
        key: TargetKey,
    },
    ApplyLabels {
        name: String,
        uid: String,
        labels: BTreeMap<String, String>,
    },
    SetTaints {
        name: String,
        uid: String,
        resource_version: String,
        taints: Vec<Value>,
    },
    /// Everything that we own of the node's status.
    ApplyStatus {
        name: String,
        uid: String,
        status: Status,
    },
    /// Only whether the node is there: its capacity is not known, or was refused.
    PatchConditions {
        name: String,
        uid: String,
        status: Status,
    },
    /// The shell first reads whether the target is really gone, and no proxy pod is bound to the node: pod garbage
    /// collection would call it failed at once.
    DeleteNode {
        name: String,
        uid: String,
        namespace: String,
    },
}

/// A node's status in three forms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Status {
    /// All that is wanted, without times.
    pub(crate) wanted: Value,
    /// What the API server has not refused of it, without times.
    pub(crate) reduced: Value,
    /// The latter with times.
    pub(crate) sent: Value,
}

/// Decides on all targets and nodes. A settled world yields nothing.
pub(crate) fn plan(world: &World) -> Vec<Action> {
    let judgements = judge(&world.targets);
    let mut actions = Vec::new();
    for target in &world.targets {
        let Some(judgement) = judgements.get(&target.key).filter(|_| !target.is_others) else { continue };
        actions.extend(hold_target(target, judgement));
        actions.extend(patch_target(target, judgement, world));
        match world.nodes.get(&target.key.virtual_node()) {
            Some(seen) => actions.extend(keep_node(target, judgement, seen, world)),
            None if judgement.is_accepted() && !target.deleting => {
                actions.push(Action::CreateNode { key: target.key.clone() });
            }
            None => {}
        }
    }
    let wanted: BTreeSet<String> = world.targets.iter().map(|target| target.key.virtual_node()).collect();
    let left_over =
        world.nodes.iter().filter(|(name, _)| !wanted.contains(*name) && !world.others.contains(*name));
    actions.extend(left_over.flat_map(|(_, seen)| end_node(seen, world)));
    actions
}

/// What may run pods one day can be deleted only in an orderly way.
fn hold_target(target: &Facts, judgement: &Judgement) -> Option<Action> {
    let due = judgement.is_accepted() && !target.deleting && !target.is_held;
    due.then(|| {
        let ours = std::iter::once(keys::TARGET_FINALIZER.to_owned());
        Action::HoldTarget {
            key: target.key.clone(),
            uid: target.uid.clone(),
            resource_version: target.resource_version.clone(),
            finalizers: target.finalizers.iter().cloned().chain(ours).collect(),
        }
    })
}

fn patch_target(target: &Facts, judgement: &Judgement, world: &World) -> Option<Action> {
    // After a restart of ours the last word stands until the target was asked.
    let asked = matches!(target.link, Link::Broken { .. }) || target.health.reach != Reach::Unknown;
    if !asked && !target.status.conditions.is_empty() {
        return None;
    }
    // It is accepted with the finalizer, never before.
    if judgement.is_accepted() && !target.is_held && !target.deleting {
        return None;
    }
    let mut status = target.status.clone();
    let verdicts = [judgement.accepted.clone(), judgement.reachable.clone(), judgement.ready.clone()];
    merge(&mut status.conditions, &verdicts, target.generation, &Time(world.now));
    status.cluster_uid.clone_from(&judgement.cluster_uid);
    if judgement.is_accepted() {
        status.virtual_node = Some(target.key.virtual_node());
    }
    (status != target.status).then(|| Action::PatchTarget {
        key: target.key.clone(),
        uid: target.uid.clone(),
        status,
    })
}

fn keep_node(target: &Facts, judgement: &Judgement, seen: &Seen, world: &World) -> Vec<Action> {
    let (name, uid) = (seen.node.name().to_owned(), seen.node.uid().to_owned());
    if seen.node.is_terminating() {
        return Vec::new();
    }
    let mut actions = Vec::new();
    if let Some(labels) = wrong_labels(target, seen) {
        actions.push(Action::ApplyLabels { name: name.clone(), uid: uid.clone(), labels });
    }
    let wanted = node::status(target, judgement, world);
    actions.extend(set_taints(seen, wanted.as_ref()));
    if let Some(wanted) = wanted {
        actions.extend(write_status((name, uid), wanted, seen, world));
    }
    actions
}

/// The labels to apply, if they differ or were never applied by this process. Before the target was seen,
/// what an earlier process found out stays.
fn wrong_labels(target: &Facts, seen: &Seen) -> Option<BTreeMap<String, String>> {
    let wanted = node::labels(target, target.health.summary.as_deref()?);
    let there = wanted.iter().all(|(key, value)| seen.node.label(key) == Some(value));
    (!there || seen.applied.labels.as_ref() != Some(&wanted)).then_some(wanted)
}

/// The node's taints as they are to be: the one that keeps others away, and while it is not ready a second one.
fn set_taints(seen: &Seen, status: Option<&Value>) -> Option<Action> {
    let old = seen.node.spec["taints"].as_array().cloned().unwrap_or_default();
    let mut wanted = vec![node::taint()];
    match status.and_then(|status| node::condition_of(status, "Ready")) {
        Some(ready) if ready["status"] == "True" => {}
        Some(ready) => wanted.push(node::not_ready_taint(ready["reason"].as_str().unwrap_or_default())),
        // While nothing is known, the last word of an earlier process stands.
        None => wanted.extend(old.iter().filter(|taint| taint["key"] == keys::NOT_READY).cloned()),
    }
    let is_ours = |taint: &Value| taint["key"] == keys::NOT_READY || same_taint(taint, &node::taint());
    let fields = ["key", "value", "effect"];
    let same = |one: &Value, other: &Value| fields.iter().all(|field| one[*field] == other[*field]);
    let (ours, others): (Vec<Value>, Vec<Value>) = old.into_iter().partition(is_ours);
    let there =
        ours.len() == wanted.len() && wanted.iter().all(|taint| ours.iter().any(|old| same(old, taint)));
    (!there).then(|| Action::SetTaints {
        name: seen.node.name().to_owned(),
        uid: seen.node.uid().to_owned(),
        resource_version: seen.node.resource_version().to_owned(),
        taints: others.into_iter().chain(wanted).collect(),
    })
}

/// A node has one taint of a key and an effect.
fn same_taint(one: &Value, other: &Value) -> bool {
    one["key"] == other["key"] && one["effect"] == other["effect"]
}

fn write_status((name, uid): (String, String), wanted: Value, seen: &Seen, world: &World) -> Option<Action> {
    let observed = &seen.node.status;
    let refused = seen.applied.refused.as_ref().filter(|refused| refused.status == wanted);
    let reduced = match refused {
        None => wanted.clone(),
        Some(refused) if refused.also_without_huge_pages => node::only_conditions(&wanted),
        Some(_) => node::without_huge_pages(wanted.clone()),
    };
    let conditions_there = reduced["conditions"].as_array().into_iter().flatten().all(|condition| {
        let old = node::condition_of(observed, condition["type"].as_str().unwrap_or_default());
        old.is_some_and(|old| {
            ["status", "reason", "message"].iter().all(|field| old[*field] == condition[*field])
        })
    });
    let ports_there = node::port(&reduced).is_none_or(|port| node::port(observed) == Some(port));
    let there = conditions_there && ports_there && observed["addresses"] == reduced["addresses"];
    let sent = node::with_times(reduced.clone(), observed, world.now);
    let whole = reduced.get("capacity").is_some();
    let stored = capacities(observed);
    let settled = there
        && (!whole || (seen.applied.status.as_ref() == Some(&reduced) && seen.applied.stored == stored));
    if settled {
        return None;
    }
    let status = Status { wanted, reduced, sent };
    Some(if whole {
        Action::ApplyStatus { name, uid, status }
    } else {
        Action::PatchConditions { name, uid, status }
    })
}

/// What the API server stored of the quantities.
pub(crate) fn capacities(status: &Value) -> Value {
    serde_json::json!([status["capacity"], status["allocatable"]])
}

/// The namespace of the target that a node says itself it stands for, empty for a ClusterTarget: only such a node is
/// ours to end.
pub(crate) fn stands_for(node: &Node) -> Option<&str> {
    let namespace = match (node.label(keys::TARGET_NAMESPACE), node.label(keys::TARGET_NAME)) {
        (Some(namespace), Some(_)) => namespace,
        _ => node.label(keys::CLUSTER_TARGET_NAME).map(|_| "")?,
    };
    (node.label(keys::PROVIDER) == Some(keys::PROVIDER_VALUE)).then_some(namespace)
}

/// The node of a target that is gone takes no pods, and goes when it has none.
fn end_node(seen: &Seen, world: &World) -> Vec<Action> {
    let node = &seen.node;
    let Some(namespace) = stands_for(node).filter(|_| !node.is_terminating()) else { return Vec::new() };
    let (name, uid) = (node.name().to_owned(), node.uid().to_owned());
    let mut actions = Vec::new();
    if seen.applied.is_used {
        let wanted = node::removed(&world.address);
        actions.extend(set_taints(seen, Some(&wanted)));
        actions.extend(write_status((name.clone(), uid.clone()), wanted, seen, world));
    }
    actions.push(Action::DeleteNode { name, uid, namespace: namespace.to_owned() });
    actions
}

#[cfg(test)]
mod tests;
