//! Decides what is written to Targets and virtual nodes.

use crate::facts::{Facts, Link, Reach, Seen, World};
use crate::node;
use crate::verdicts::{Judgement, judge};
use api::conditions::merge;
use api::keys;
use api::v1alpha1::TargetStatus;
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
    CreateNode {
        key: TargetKey,
    },
    ApplyLabels {
        name: String,
        uid: String,
        labels: BTreeMap<String, String>,
    },
    AddTaint {
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
    /// The shell first reads whether the target is really gone.
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
        let Some(judgement) = judgements.get(&target.key) else { continue };
        actions.extend(patch_target(target, judgement, world));
        match world.nodes.get(&target.key.virtual_node()) {
            Some(seen) => actions.extend(keep_node(target, judgement, seen, world)),
            None if judgement.is_accepted() => actions.push(Action::CreateNode { key: target.key.clone() }),
            None => {}
        }
    }
    let wanted: BTreeSet<String> = world.targets.iter().map(|target| target.key.virtual_node()).collect();
    let left_over = world.nodes.iter().filter(|(name, _)| !wanted.contains(*name));
    actions.extend(left_over.filter_map(|(_, seen)| delete_node(seen)));
    actions
}

fn patch_target(target: &Facts, judgement: &Judgement, world: &World) -> Option<Action> {
    // After a restart of ours the last word stands until the target was asked.
    let asked = matches!(target.link, Link::Broken { .. }) || target.health.reach != Reach::Unknown;
    if !asked && !target.status.conditions.is_empty() {
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
    if let Some(taints) = missing_taint(seen) {
        let resource_version = seen.node.resource_version().to_owned();
        actions.push(Action::AddTaint { name: name.clone(), uid: uid.clone(), resource_version, taints });
    }
    if let Some(wanted) = node::status(target, judgement, world) {
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

fn missing_taint(seen: &Seen) -> Option<Vec<Value>> {
    let mut taints = seen.node.spec["taints"].as_array().cloned().unwrap_or_default();
    let ours = node::taint();
    let there = taints.iter().any(|taint| {
        taint["key"] == ours["key"] && taint["value"] == ours["value"] && taint["effect"] == ours["effect"]
    });
    if there {
        return None;
    }
    taints.retain(|taint| taint["key"] != ours["key"] || taint["effect"] != ours["effect"]);
    taints.push(ours);
    Some(taints)
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

/// Only a node that says itself that it stands for a target is ours to delete.
fn delete_node(seen: &Seen) -> Option<Action> {
    let node = &seen.node;
    let namespace = match (node.label(keys::TARGET_NAMESPACE), node.label(keys::TARGET_NAME)) {
        (Some(namespace), Some(_)) => namespace,
        _ => node.label(keys::CLUSTER_TARGET_NAME).map(|_| "")?,
    };
    let ours = node.label(keys::PROVIDER) == Some(keys::PROVIDER_VALUE) && !node.is_terminating();
    ours.then(|| Action::DeleteNode {
        name: node.name().to_owned(),
        uid: node.uid().to_owned(),
        namespace: namespace.to_owned(),
    })
}

#[cfg(test)]
mod tests;
