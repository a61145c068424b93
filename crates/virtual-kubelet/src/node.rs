//! What a virtual node is to look like.

use crate::capacity;
use crate::facts::{Facts, Link, Reach, Summary, World};
use crate::kubelet::State;
use crate::verdicts::Judgement;
use api::{keys, names};
use k8s_openapi::jiff::Timestamp;
use runtime::TargetKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Labels that say what a node is, where it stands or whom it belongs to: never taken over from a target.
const OWN_PREFIXES: &[&str] = &["node-role.kubernetes.io/", "virtual-kubelet.io/", keys::PREFIX];

/// Conditions of a kubelet that mean nothing here, so that what waits for them does not wait.
const FINE: &[(&str, &str)] = &[
    ("MemoryPressure", "a virtual node has no memory of its own"),
    ("DiskPressure", "a virtual node has no disk of its own"),
    ("PIDPressure", "a virtual node has no processes of its own"),
    ("NetworkUnavailable", "a virtual node has no network of its own"),
];

/// Condition that tells whether API servers can be expected to trust our serving certificate.
const SERVING: &str = "KubeletServing";
/// A feature that a node declares: exec, attach and port-forward come as WebSockets, too.
const WEB_SOCKETS: &str = "ExtendWebSocketsToKubelet";
/// The first minor release of an API server that takes all of them.
const WEB_SOCKETS_SINCE: u32 = 31;

/// Whether an API server of this version takes streams as WebSockets.
fn passes_web_sockets(version: Option<&str>) -> bool {
    let numbers = version.unwrap_or_default().trim_start_matches('v');
    let (major, rest) = numbers.split_once('.').unwrap_or_default();
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    major == "1" && minor.parse::<u32>().is_ok_and(|minor| minor >= WEB_SOCKETS_SINCE)
}

/// The port of the kubelet API that a node's status shows.
pub(crate) fn port(status: &Value) -> Option<u16> {
    u16::try_from(status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64()?).ok()
}

/// The labels that every virtual node of a target has.
pub(crate) fn base_labels(key: &TargetKey) -> BTreeMap<String, String> {
    let mut labels: BTreeMap<String, String> = [
        ("type", "virtual-kubelet"),
        (keys::PROVIDER, keys::PROVIDER_VALUE),
        ("kubernetes.io/role", "cluster"),
        ("alpha.service-controller.kubernetes.io/exclude-balancer", "true"),
        ("node.kubernetes.io/exclude-from-external-load-balancers", "true"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    // As every kubelet does: one topology domain for each virtual node.
    labels.insert("kubernetes.io/hostname".to_owned(), names::label_value(&key.virtual_node()));
    if key.namespace.is_empty() {
        labels.insert(keys::CLUSTER_TARGET_NAME.to_owned(), names::label_value(&key.name));
    } else {
        labels.insert(keys::TARGET_NAMESPACE.to_owned(), names::label_value(&key.namespace));
        labels.insert(keys::TARGET_NAME.to_owned(), names::label_value(&key.name));
    }
    labels
}

/// Base labels and those of the target's nodes, except for the ones that the user excludes or that would say
/// something untrue about a virtual node.
pub(crate) fn labels(target: &Facts, summary: &Summary) -> BTreeMap<String, String> {
    let mut labels = base_labels(&target.key);
    let excluded = target.excluded.as_deref().and_then(|pattern| regex::Regex::new(pattern).ok());
    for (key, value) in &summary.labels {
        let own = OWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let hidden = excluded.as_ref().is_some_and(|pattern| pattern.is_match(&format!("{key}={value}")));
        if !own && !hidden {
            labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    labels
}

/// The taint that keeps away what is no proxy pod.
pub(crate) fn taint() -> Value {
    json!({"key": keys::PROVIDER, "value": keys::PROVIDER_VALUE, "effect": "NoSchedule"})
}

/// The taint of a node that takes no pods.
pub(crate) fn not_ready_taint(reason: &str) -> Value {
    json!({"key": keys::NOT_READY, "value": reason, "effect": "NoSchedule"})
}

/// The node as it is created; the rest follows by server-side apply.
pub(crate) fn new(key: &TargetKey) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": key.virtual_node(), "labels": base_labels(key)},
        "spec": {"taints": [taint()]},
    })
}

/// Status, reason and message of the node's Ready condition; `None` while nothing is known of the target.
fn ready(target: &Facts, judgement: &Judgement) -> Option<(bool, String, String)> {
    if target.deleting || target.is_fenced && judgement.is_accepted() {
        let (reason, message) = (judgement.ready.reason.as_str(), judgement.ready.message.clone());
        return Some((false, format!("Target{reason}"), message));
    }
    if !judgement.is_accepted() {
        let known = judgement.accepted.status.is_some();
        let accepted = &judgement.accepted;
        return known.then(|| (false, accepted.reason.as_str().to_owned(), accepted.message.clone()));
    }
    match (&target.link, &target.health.reach) {
        (Link::Pending, _) | (_, Reach::Unknown) => None,
        (_, Reach::No { message, .. }) => Some((false, "TargetUnreachable".to_owned(), message.clone())),
        (_, Reach::Yes) if target.health.no_summary => {
            Some((false, "NoClusterSummary".to_owned(), judgement.ready.message.clone()))
        }
        (_, Reach::Yes) => {
            Some((true, "TargetReachable".to_owned(), "the target cluster answers".to_owned()))
        }
    }
}

/// The status without times, as far as it is known: no capacity before the target was seen. `None` while
/// nothing is known, so that the last word of an earlier process stands.
pub(crate) fn status(target: &Facts, judgement: &Judgement, world: &World) -> Option<Value> {
    let ready = ready(target, judgement)?;
    let mut status = conditions(ready, &world.address);
    if let (Some(State { status: word, reason, message }), Some(all)) =
        (&world.serving, status["conditions"].as_array_mut())
    {
        all.push(json!({"type": SERVING, "status": word, "reason": reason, "message": message}));
    }
    if let Some(port) = world.ports.get(&target.key.virtual_node()) {
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
    }
    if let Some(summary) = target.health.summary.as_deref() {
        status["capacity"] = json!(capacity::shown(&summary.capacity, &summary.capacity, &target.capacity));
        status["allocatable"] = json!(capacity::shown(&summary.allocatable, &summary.free, &target.capacity));
        let features = features(summary, target, world);
        if !features.is_empty() {
            status["declaredFeatures"] = json!(features);
        }
        status["nodeInfo"] = info(summary, target.health.version.as_deref());
    }
    Some(status)
}

/// What all nodes of a target declare, and what the node itself can.
fn features<'a>(summary: &'a Summary, target: &Facts, world: &World) -> BTreeSet<&'a str> {
    let of_nodes = summary.features.iter().map(String::as_str).filter(|feature| *feature != WEB_SOCKETS);
    // An API server then passes a WebSocket on as it is, and that of the target takes it.
    let serves = world.ports.contains_key(&target.key.virtual_node());
    let passes = serves && passes_web_sockets(target.health.version.as_deref());
    of_nodes.chain(passes.then_some(WEB_SOCKETS)).collect()
}

/// What is left to say of a node whose target is gone.
pub(crate) fn removed(address: &str) -> Value {
    let message = "the Target is gone; the node goes when no pod is bound to it any more";
    conditions((false, "TargetRemoved".to_owned(), message.to_owned()), address)
}

fn conditions((is_ready, reason, message): (bool, String, String), address: &str) -> Value {
    let word = if is_ready { "True" } else { "False" };
    let mut conditions = vec![json!({"type": "Ready", "status": word, "reason": reason, "message": message})];
    for (kind, message) in FINE {
        conditions
            .push(json!({"type": kind, "status": "False", "reason": "VirtualNode", "message": message}));
    }
    json!({"conditions": conditions, "addresses": [{"type": "InternalIP", "address": address}]})
}

fn info(summary: &Summary, version: Option<&str>) -> Value {
    let label =
        |key: &str, default: &str| summary.labels.get(key).map_or_else(|| default.to_owned(), Clone::clone);
    let cluster = summary.cluster_uid.as_deref().unwrap_or_default();
    let own = concat!("multicluster-scheduler://", env!("CARGO_PKG_VERSION"));
    json!({
        "machineID": cluster, "systemUUID": cluster, "bootID": "",
        "kernelVersion": "", "osImage": "multicluster-scheduler virtual node",
        "containerRuntimeVersion": own,
        "kubeletVersion": version.unwrap_or_default(), "kubeProxyVersion": "",
        "operatingSystem": label("kubernetes.io/os", "linux"),
        "architecture": label("kubernetes.io/arch", ""),
    })
}

/// Puts times to the conditions of a status: the last transition of one whose status stays is kept.
pub(crate) fn with_times(mut status: Value, observed: &Value, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        let old = condition_of(observed, condition["type"].as_str().unwrap_or_default());
        let since = old
            .filter(|old| old["status"] == condition["status"])
            .and_then(|old| old["lastTransitionTime"].as_str())
            .unwrap_or(&now)
            .to_owned();
        condition["lastHeartbeatTime"] = json!(now);
        condition["lastTransitionTime"] = json!(since);
    }
    status
}

pub(crate) fn condition_of<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// A status without huge pages: some releases allow one size a node, and refuse the sum over nodes that
/// differ in it.
pub(crate) fn without_huge_pages(mut status: Value) -> Value {
    for list in ["capacity", "allocatable"] {
        if let Some(quantities) = status[list].as_object_mut() {
            quantities.retain(|resource, _| !resource.starts_with("hugepages-"));
        }
    }
    status
}

/// A status with nothing but what says whether the node is there.
pub(crate) fn only_conditions(status: &Value) -> Value {
    let mut reduced = json!({"conditions": status["conditions"], "addresses": status["addresses"]});
    if let Some(endpoints) = status.get("daemonEndpoints") {
        reduced["daemonEndpoints"] = endpoints.clone();
    }
    reduced
}
