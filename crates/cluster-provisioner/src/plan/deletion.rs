//! The end of a cluster, step by step. Each step waits until the one before is through, has its reason, and may be
//! skipped by somebody who takes the consequences.

use super::registration::secret_name;
use super::{Action, Doomed, Draft, Observed, Plan, RESYNC, SOON, Stop, key, owner};
use crate::render::Names;
use api::Remote;
use api::provisioning::conditions::Stage;
use api::provisioning::{DeletionStatus, VolumePolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

/// Seconds after which a workload cluster that does not answer is deleted without a last look into it.
const SILENCE_SECONDS: i64 = 300;

/// What a step has to say.
enum Step {
    /// Nothing is left to do in it.
    Through,
    /// Calls, and what is awaited.
    Waits(Vec<Action>, Vec<String>),
    /// A person must decide.
    Blocked(Stop),
}

type Look = fn(&Observed, i64) -> Step;

/// The steps, in order.
const STEPS: [(&str, Look); 5] = [
    ("Drain", drain),
    ("Unregister", unregister),
    ("CleanUp", clean_up),
    ("Infrastructure", infrastructure),
    ("Credentials", credentials),
];

pub(super) fn plan(seen: &Observed) -> Plan {
    let mut draft = Draft::new(seen);
    if !seen.cluster.held {
        return Plan { actions: Vec::new(), status: draft.status, recheck: RESYNC };
    }
    if seen.cluster.spec.deletion.protected {
        let message = "deletion.protected is true; set it to false if the cluster is to go";
        draft.say(Stage::DeletionBlocked, Some(true), "Protected", message);
        return draft.end(RESYNC);
    }
    let mut deletion = draft.status.deletion.clone().unwrap_or_default();
    for (name, look) in STEPS {
        if deletion.abandoned.iter().any(|step| step == name) {
            continue;
        }
        let is_new = deletion.step != name;
        let since = if is_new { seen.now } else { deletion.since.as_ref().map_or(seen.now, |since| since.0) };
        let seconds = seen.now.duration_since(since).as_secs();
        let (actions, blockers, stop) = match look(seen, seconds) {
            Step::Through => continue,
            Step::Waits(actions, blockers) => (actions, blockers, None),
            Step::Blocked(stop) => (Vec::new(), Vec::new(), Some(stop)),
        };
        if seen.cluster.abandon.as_deref() == Some(name) {
            deletion.abandoned.push(name.to_owned());
            continue;
        }
        let abandoned = deletion.abandoned;
        draft.status.deletion =
            Some(DeletionStatus { step: name.to_owned(), since: Some(Time(since)), blockers, abandoned });
        match stop {
            Some(stop) => draft.say(stop.stage, Some(true), stop.reason, &stop.message),
            None => draft.status.conditions.retain(|one| one.type_ != Stage::DeletionBlocked.as_str()),
        }
        draft.say(Stage::Ready, Some(false), "Deleting", &format!("step {name}"));
        return Plan { actions, status: draft.status, recheck: SOON };
    }
    Plan { actions: vec![Action::Release], status: draft.status, recheck: SOON }
}

fn node(seen: &Observed) -> Option<String> {
    seen.registration.target.as_ref()?["status"]["virtualNode"].as_str().map(str::to_owned)
}

/// Pods move to other clusters, as from any node that is drained.
fn drain(seen: &Observed, seconds: i64) -> Step {
    let Some(node) = node(seen) else { return Step::Through };
    if !seen.registration.cordoned {
        return Step::Waits(vec![Action::Cordon(node)], vec![]);
    }
    let pods = &seen.registration.pods;
    let longest = i64::from(seen.cluster.spec.target.drain_timeout_seconds);
    if pods.is_empty() || seconds >= longest {
        return Step::Through;
    }
    let evict = pods.iter().cloned().map(Action::Evict).collect();
    Step::Waits(evict, pods.iter().map(|pod| format!("Pod {pod}")).collect())
}

/// The Target goes, with what it needs.
fn unregister(seen: &Observed, _: i64) -> Step {
    let own = |object: &&Value| owner(object) == Some(seen.cluster.uid.as_str());
    let target = seen.registration.target.as_ref().filter(own);
    if let Some(target) = target {
        let (kind, name) = key(target);
        return Step::Waits(doom(target).into_iter().collect(), vec![format!("{kind} {name}")]);
    }
    match seen.registration.secret.as_ref().filter(own) {
        Some(secret) => Step::Waits(
            doom(secret).into_iter().collect(),
            vec![format!("Secret {}", secret_name(&seen.cluster.name))],
        ),
        None => Step::Through,
    }
}

/// What the workload cluster made in the cloud must go before its nodes do: nobody else knows it.
fn clean_up(seen: &Observed, seconds: i64) -> Step {
    let workload = match &seen.workload {
        Remote::Absent => return Step::Through,
        Remote::Unknown if seconds >= SILENCE_SECONDS => return Step::Through,
        Remote::Unknown => return Step::Waits(vec![], vec!["the API server does not answer".to_owned()]),
        Remote::Present(workload) => workload,
    };
    // Once the Cluster is on its way out, what its controllers have not removed they never will.
    let names = Names::of(&seen.cluster.name, &seen.cluster.spec);
    let Some(cluster) = seen.objects.get(&("Cluster".to_owned(), names.cluster)) else {
        return Step::Through;
    };
    if !cluster["metadata"]["deletionTimestamp"].is_null() {
        return Step::Through;
    }
    let mut actions: Vec<Action> = workload.balancers.iter().cloned().map(Action::DeleteBalancer).collect();
    let mut blockers: Vec<String> =
        workload.balancers.iter().map(|name| format!("Service {name} of type LoadBalancer")).collect();
    match seen.cluster.spec.deletion.volumes {
        VolumePolicy::Block if !workload.claims.is_empty() => {
            let message = format!(
                "claims hold volumes: {}; delete them, or set deletion.volumes to Delete or Retain",
                workload.claims.join(", ")
            );
            return Step::Blocked(Stop::new(Stage::DeletionBlocked, "VolumesExist", message));
        }
        VolumePolicy::Block => {}
        VolumePolicy::Delete => {
            actions.extend(workload.claims.iter().cloned().map(Action::DeleteClaim));
            blockers.extend(workload.claims.iter().map(|name| format!("PersistentVolumeClaim {name}")));
            blockers.extend(workload.volumes.iter().map(|name| format!("PersistentVolume {name}")));
        }
        VolumePolicy::Retain => {
            actions.extend(workload.volumes.iter().cloned().map(Action::RetainVolume));
        }
    }
    if actions.is_empty() && blockers.is_empty() { Step::Through } else { Step::Waits(actions, blockers) }
}

fn doom(object: &Value) -> Option<Action> {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let word = |value: &Value| value.as_str().map(str::to_owned);
    Some(Action::Delete(Box::new(Doomed {
        api_version: word(&object["apiVersion"])?,
        kind: word(&object["kind"])?,
        namespace: word(&object["metadata"]["namespace"]),
        name: word(&object["metadata"]["name"])?,
        uid: word(&object["metadata"]["uid"])?,
    })))
}

/// Cluster API takes the cluster apart in its own order; what it leaves was made by us.
fn infrastructure(seen: &Observed, _: i64) -> Step {
    let adopted = seen.cluster.spec.adopt.is_some();
    let ours = |object: &Value| owner(object) == Some(seen.cluster.uid.as_str());
    let names = Names::of(&seen.cluster.name, &seen.cluster.spec);
    let cluster = seen.objects.get(&("Cluster".to_owned(), names.cluster.clone()));
    // One that was taken over and never written to has no label of ours, and is nobody's to delete.
    if let Some(cluster) = cluster.filter(|cluster| ours(cluster)) {
        return Step::Waits(doom(cluster).into_iter().collect(), vec![format!("Cluster {}", names.cluster)]);
    }
    let left: Vec<&Value> = seen.objects.values().filter(|object| ours(object)).collect();
    if left.is_empty() || (adopted && cluster.is_some()) {
        return Step::Through;
    }
    let blockers =
        left.iter().map(|object| key(object)).map(|(kind, name)| format!("{kind} {name}")).collect();
    Step::Waits(left.into_iter().filter_map(doom).collect(), blockers)
}

/// Needed until the last thing in the cloud is gone, and so the last to go.
fn credentials(seen: &Observed, _: i64) -> Step {
    match super::cloud::leftovers(seen) {
        Ok((actions, names)) if actions.is_empty() && names.is_empty() => {}
        Ok((actions, names)) => return Step::Waits(actions, names),
        Err(problem) => return Step::Waits(Vec::new(), vec![problem]),
    }
    if let Some(secret) =
        seen.workload_secret.as_ref().filter(|secret| owner(secret) == Some(seen.cluster.uid.as_str()))
    {
        return Step::Waits(
            doom(secret).into_iter().collect(),
            vec!["the Secret with the workload's credentials".to_owned()],
        );
    }
    if !seen.inventories.is_empty() {
        let blockers = seen.inventories.iter().map(|one| format!("AddonInventory {}", key(one).1)).collect();
        return Step::Waits(seen.inventories.iter().filter_map(doom).collect(), blockers);
    }
    match seen.identity.as_ref().filter(|secret| owner(secret) == Some(seen.cluster.uid.as_str())) {
        Some(secret) => Step::Waits(
            doom(secret).into_iter().collect(),
            vec!["the Secret with the credentials".to_owned()],
        ),
        None => Step::Through,
    }
}
