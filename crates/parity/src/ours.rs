//! What this project's scheduling framework says about the pods of a document.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use scheduling::config::Config;
use scheduling::volumes::{
    Claim, CsiDriver, CsiNode, PersistentVolume, StorageCapacity, StorageClass, VolumeAttachment,
};
use scheduling::{
    Budget, Cache, Code, DeviceClass, DeviceTaintRule, Diagnosis, FieldError, Framework, Judge, NodeInfo,
    NodeRefusal, Nomination, Owner, OwnerKind, PodInfo, Profiles, ResourceClaim, ResourceSlice, Selection,
    Snapshot, VolumeWrite,
};
use serde_json::Value;

mod claims;

use claims::Claims;

use crate::answer::{Answer, Candidate, Preemption, Refusal, Refused, Verdict};
use crate::live;

/// The list of a document that has this name; empty if it is absent.
pub(crate) fn list<'a>(document: &'a Value, name: &str) -> &'a [Value] {
    document[name].as_array().map_or(&[], Vec::as_slice)
}

/// Answers for the pending pods of a document, in the order in which the referee answers. What others do in a live
/// sequence is in `upstream`, the referee's answers.
///
/// # Errors
/// When an object of the document cannot be read.
pub(crate) fn answers(document: &Value, upstream: &[Answer]) -> Result<Vec<Answer>> {
    let flag = |name: &str| document[name].as_bool().unwrap_or_default();
    let (sequence, preempt) = (flag("sequence"), flag("preempt"));
    if sequence && flag("live") {
        return live::answers(document, upstream);
    }
    let profiles = profiles(document, preempt)?;
    let mut snapshot = snapshot(document)?;
    let mut pods = read(document, "pending", PodInfo::parse)?;
    if sequence {
        pods.sort_by_key(|pod| Reverse(pod.spec.priority));
    }
    let mut claims = Claims::read(document);
    let mut answers = Vec::with_capacity(pods.len());
    let mut caches = HashMap::new();
    for pod in pods {
        let (mut answer, _) = answer_with(Judge::new(&profiles, &snapshot), &pod, preempt);
        let cache = caches.entry(pod.spec.scheduler_name.to_string()).or_default();
        if answer.verdict == Verdict::Error {
            answer.errors = errors(profiles.of(&pod), &pod, &snapshot);
        }
        answer.contradiction = contradiction(profiles.of(&pod), cache, &pod, &snapshot, &answer);
        answer.pod = format!("{}/{}", pod.namespace, pod.name);
        if sequence && let Some(best) = answer.best.first().filter(|_| answer.verdict == Verdict::Schedulable)
        {
            answer.node.clone_from(best);
            let writes = claims.bind(profiles.of(&pod), &mut snapshot, &pod, best)?;
            assume(&profiles, &mut snapshot, pod, &mut answer)?;
            answer.writes.extend(writes);
            answer.writes.sort_unstable();
        } else if sequence && let Some(claim) = answer.deallocate.take() {
            claims.take_back(&mut snapshot, &claim, &pod)?;
        }
        answers.push(answer.sorted());
    }
    Ok(answers)
}

/// What is told if a node is the first at which a plugin fails, of every node.
fn errors(framework: &Framework, pod: &PodInfo, snapshot: &Snapshot) -> Vec<String> {
    let ask = |node: &str| framework.evaluate_node(pod, snapshot, node).err();
    let refusals = snapshot.nodes().filter_map(|node| ask(&node.info.name));
    let failed = refusals.filter(|no| no.code == Code::Error);
    failed.map(|no| format!("running {:?} filter plugin: {}", no.plugin, no.message())).collect()
}

/// Counts on the pod being where its answer says, and on what its claims need for that being written.
fn assume(profiles: &Profiles, snapshot: &mut Snapshot, pod: PodInfo, answer: &mut Answer) -> Result<()> {
    let node = snapshot.node(&answer.node).context("the chosen node does not exist")?;
    let name = Arc::clone(&node.info.name);
    if let Some(plan) = profiles.of(&pod).volumes(&pod, snapshot, node) {
        answer.writes = plan.writes().iter().map(write).collect();
        answer.writes.sort_unstable();
        ensure!(snapshot.volumes_mut().assume(&plan), "the volumes of {} changed meanwhile", answer.pod);
    }
    snapshot.assume(Arc::new(pod), &name);
    Ok(())
}

/// Volume and claim, or claim and node, of one write.
pub(crate) fn write(write: &VolumeWrite) -> String {
    match write {
        VolumeWrite::Volume { name, patch } => {
            let claim = &patch["spec"]["claimRef"];
            let text = |key: &str| claim[key].as_str().unwrap_or_default();
            format!("volume {name} to {}/{}", text("namespace"), text("name"))
        }
        VolumeWrite::Claim { namespace, name, patch } => {
            let annotations = &patch["metadata"]["annotations"];
            let node = annotations["volume.kubernetes.io/selected-node"].as_str().unwrap_or_default();
            format!("claim {namespace}/{name} for {node}")
        }
    }
}

pub(crate) fn profiles(document: &Value, preempt: bool) -> Result<Profiles> {
    match document.get("config") {
        Some(config) => Ok(Config::parse(config).context("cannot read the configuration")?.frameworks()),
        None => {
            let left_out: &[&str] = if preempt { &[] } else { &["DefaultPreemption"] };
            Ok(Profiles::from(Framework::builder().without(left_out).build()))
        }
    }
}

/// Reads the objects of one of a document's lists.
pub(crate) fn read<T>(
    document: &Value,
    name: &str,
    parse: impl Fn(&Value) -> Result<T, FieldError>,
) -> Result<Vec<T>> {
    let named = |raw: &Value| format!("cannot read {} of {name}", raw["metadata"]["name"]);
    list(document, name).iter().map(|raw| parse(raw).with_context(|| named(raw))).collect()
}

pub(crate) fn snapshot(document: &Value) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    for node in read(document, "nodes", NodeInfo::parse)? {
        snapshot.set_node(node);
    }
    for raw in list(document, "namespaces") {
        let labels = raw["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
        snapshot.set_namespace(raw["metadata"]["name"].as_str().unwrap_or_default(), labels.collect());
    }
    for (name, kind) in [
        ("services", OwnerKind::Service),
        ("replicationControllers", OwnerKind::ReplicationController),
        ("replicaSets", OwnerKind::ReplicaSet),
        ("statefulSets", OwnerKind::StatefulSet),
    ] {
        for owner in read(document, name, |raw| Owner::parse(kind, raw))? {
            snapshot.owners.set(owner);
        }
    }
    storage(document, &mut snapshot)?;
    devices(document, &mut snapshot)?;
    for budget in read(document, "podDisruptionBudgets", Budget::parse)? {
        snapshot.budgets_mut().set(budget);
    }
    for pod in read(document, "pods", PodInfo::parse)? {
        let pod = Arc::new(pod);
        if pod.node_name.is_some() {
            snapshot.add_pod(pod);
        } else {
            snapshot.nominator_mut().update(&pod);
        }
    }
    Ok(snapshot)
}

/// Gives a claim the UID that the referee gives it: a volume that was written for the claim is kept for that UID alone.
fn identify(claim: &mut Claim) {
    if claim.uid.is_empty() {
        claim.uid = format!("{}/{}", claim.namespace, claim.name);
    }
}

fn storage(document: &Value, snapshot: &mut Snapshot) -> Result<()> {
    let volumes = snapshot.volumes_mut();
    for mut claim in read(document, "persistentVolumeClaims", Claim::parse)? {
        identify(&mut claim);
        volumes.set_claim(claim);
    }
    for volume in read(document, "persistentVolumes", PersistentVolume::parse)? {
        volumes.set_volume(volume);
    }
    for class in read(document, "storageClasses", StorageClass::parse)? {
        volumes.set_class(class);
    }
    for node in read(document, "csiNodes", CsiNode::parse)? {
        volumes.set_csi_node(node);
    }
    for driver in read(document, "csiDrivers", CsiDriver::parse)? {
        volumes.set_csi_driver(driver);
    }
    for capacity in read(document, "csiStorageCapacities", StorageCapacity::parse)? {
        volumes.set_capacity(capacity);
    }
    for attachment in read(document, "volumeAttachments", VolumeAttachment::parse)? {
        volumes.set_attachment(attachment);
    }
    Ok(())
}

fn devices(document: &Value, snapshot: &mut Snapshot) -> Result<()> {
    for class in read(document, "deviceClasses", DeviceClass::parse)? {
        snapshot.set_device_class(class);
    }
    let devices = snapshot.devices_mut();
    devices.follow();
    for slice in read(document, "resourceSlices", ResourceSlice::parse)? {
        devices.set_slice(slice);
    }
    for rule in read(document, "deviceTaintRules", DeviceTaintRule::parse)? {
        devices.set_rule(rule);
    }
    for claim in read(document, "resourceClaims", ResourceClaim::parse)? {
        devices.set_claim(claim);
    }
    Ok(())
}

/// The answer, and what becomes of the node that the pod waits for.
pub(crate) fn answer_with(judge: Judge<'_>, pod: &PodInfo, preempt: bool) -> (Answer, Nomination) {
    if let Err(no) = judge.pre_enqueue(pod) {
        let mut answer = Answer::new(Verdict::Gated);
        answer.message = no.message();
        answer.gate = Some(refusal(&no));
        return (answer, Nomination::Keep);
    }
    let answer = match judge.evaluate(pod) {
        Ok(selection) => selected(&selection),
        Err(diagnosis) if diagnosis.error.is_some() => {
            let mut answer = Answer::new(Verdict::Error);
            answer.message = diagnosis.message();
            answer
        }
        Err(diagnosis) => {
            let mut answer = refused(&diagnosis);
            let deallocate = diagnosis.deallocate.as_ref();
            answer.deallocate = deallocate.map(|(home, name)| (home.to_string(), name.to_string()));
            // Without nodes there is nothing to preempt on.
            answer.preemption = (preempt && diagnosis.node_count > 0).then(|| preemption(&diagnosis));
            return (answer, diagnosis.nomination);
        }
    };
    (answer, Nomination::Keep)
}

/// What the short way says, if that is not what the long one said.
pub(crate) fn contradiction(
    framework: &Framework,
    cache: &mut Cache,
    pod: &PodInfo,
    snapshot: &Snapshot,
    answer: &Answer,
) -> String {
    let total = |node: &str| answer.totals.get(node).copied();
    match (framework.schedule(cache, pod, snapshot), answer.verdict) {
        (_, Verdict::Gated) => String::new(),
        (Ok(best), Verdict::Schedulable)
            if answer.best.iter().any(|node| **node == *best.node)
                && total(&best.node).is_none_or(|total| total == best.score) =>
        {
            String::new()
        }
        (Err(no), Verdict::Unschedulable | Verdict::Error) if no.message() == answer.message => String::new(),
        (Ok(best), _) => format!("the short way takes {} with {}", best.node, best.score),
        (Err(no), _) => format!("the short way says {}", no.message()),
    }
}

fn preemption(diagnosis: &Diagnosis) -> Preemption {
    let found = &diagnosis.candidates;
    let mut best: Vec<_> = found
        .iter()
        .filter(|candidate| found.first().is_some_and(|first| first.rank() == candidate.rank()))
        .map(|candidate| candidate.node.to_string())
        .collect();
    best.sort_unstable();
    let mut candidates: Vec<_> = found
        .iter()
        .map(|candidate| {
            let mut victims: Vec<_> =
                candidate.victims.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
            victims.sort_unstable();
            Candidate { node: candidate.node.to_string(), victims, violations: candidate.violations }
        })
        .collect();
    candidates.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    let nominated = match &diagnosis.nomination {
        Nomination::Node(node) => node.to_string(),
        Nomination::Clear | Nomination::Keep => String::new(),
    };
    Preemption { candidates, best, nominated }
}

fn selected(selection: &Selection) -> Answer {
    let mut answer = Answer::new(Verdict::Schedulable);
    answer.refused = group(&selection.refused);
    answer.feasible = selection.ranked.iter().map(|ranked| ranked.node.to_string()).collect();
    answer.feasible.sort_unstable();
    if selection.ranked.len() > 1 {
        answer.totals =
            selection.ranked.iter().map(|ranked| (ranked.node.to_string(), ranked.score)).collect();
    }
    let best = selection.ranked.iter().filter(|ranked| ranked.score == selection.score);
    answer.best = best.map(|ranked| ranked.node.to_string()).collect();
    // The chosen node is one of them, or the comparison fails.
    if !answer.best.iter().any(|node| **node == *selection.node) {
        answer.best = vec![selection.node.to_string()];
    }
    answer.best.sort_unstable();
    answer
}

fn refused(diagnosis: &Diagnosis) -> Answer {
    let mut answer = Answer::new(Verdict::Unschedulable);
    answer.message = diagnosis.message();
    answer.refused = group(&diagnosis.refused);
    if let Some(message) = &diagnosis.pre_filter {
        answer.pre_filter = Some(Refusal {
            plugin: diagnosis.plugins.iter().copied().collect::<Vec<_>>().join(" "),
            code: String::new(),
            reasons: vec![message.clone()],
        });
    }
    answer
}

fn refusal(no: &scheduling::Refusal) -> Refusal {
    let code = match no.code {
        Code::Unschedulable => "Unschedulable",
        Code::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
        Code::Error => "Error",
    };
    Refusal {
        plugin: no.plugin.to_owned(),
        code: code.to_owned(),
        reasons: no.reasons.iter().map(ToString::to_string).collect(),
    }
}

/// Refusals as the referee prints them, not yet grouped.
fn group(refusals: &[NodeRefusal]) -> Vec<Refused> {
    refusals
        .iter()
        .map(|no| Refused { refusal: refusal(&no.refusal), nodes: vec![no.node.to_string()] })
        .collect()
}
