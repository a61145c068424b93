//! The calls that make room on a node.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};
use runtime::patching;
use scheduling::Nomination;
use serde_json::{Map, Value, json};
use tracing::info;

use super::{Context, call, pods, version};
use crate::error::Error;
use crate::observe::Name;
use crate::plan::Eviction;

/// The node that a pod waits for, as its status has it; nothing if that does not change.
pub(super) fn nominated(nomination: &Nomination) -> Map<String, Value> {
    let node = match nomination {
        Nomination::Keep => return Map::new(),
        Nomination::Clear => Value::Null,
        Nomination::Node(node) => json!(**node),
    };
    Map::from_iter([("nominatedNodeName".to_owned(), node)])
}

pub(super) async fn unnominate(context: &Context, name: &Name, uid: &str) -> Result<Option<String>, Error> {
    let patch = json!({"metadata": {"uid": uid}, "status": nominated(&Nomination::Clear)});
    patch_status(context, name, "withdraw the nomination of pod", &patch).await
}

/// Says on a victim why it has to go. Its own controllers read that.
pub(super) async fn disrupt(context: &Context, eviction: &Eviction) -> Result<Option<String>, Error> {
    let patch = disruption(eviction, context.clock.now());
    patch_status(context, &eviction.victim, "tell why it has to go to pod", &patch).await
}

fn disruption(eviction: &Eviction, now: Timestamp) -> Value {
    let message = format!("{}: preempting to accommodate a higher priority pod", eviction.scheduler);
    json!({"metadata": {"uid": &*eviction.uid}, "status": {"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message,
        "lastTransitionTime": format!("{now:.0}"),
    }]}})
}

async fn patch_status(
    context: &Context,
    name: &Name,
    verb: &'static str,
    patch: &Value,
) -> Result<Option<String>, Error> {
    let api = pods(context, &name.namespace);
    // Strategic: the conditions of others stay.
    let patched = api.patch_status(&name.name, &patching(&context.manager), &Patch::Strategic(patch)).await;
    patched.map(|pod| version(&pod)).map_err(call(verb, name))
}

pub(super) async fn delete(context: &Context, eviction: &Eviction) -> Result<Option<String>, Error> {
    let Eviction { victim, uid, node, preemptor, .. } = eviction;
    let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let deleted = pods(context, &victim.namespace).delete(&victim.name, &parameters).await;
    deleted.map_err(call("delete pod", victim))?;
    info!(object = %victim, node = %node, preemptor = %preemptor, "deleted a pod to make room for another");
    Ok(None)
}

/// Records on a victim that it was deleted, and for whom.
pub(super) async fn tell(context: &Context, eviction: &Eviction) -> Result<Option<String>, Error> {
    let event = event(eviction, context.clock.now(), &context.manager);
    let event = serde_json::from_value(event)
        .map_err(|source| Error::Manifest { namespace: eviction.victim.namespace.to_string(), source })?;
    let api: Api<Event> = Api::namespaced(context.client.clone(), &eviction.victim.namespace);
    let post = PostParams { field_manager: Some(context.manager.clone()), dry_run: false };
    let made = api.create(&post, &event).await;
    made.map(|_made| None).map_err(call("write an event about pod", &eviction.victim))
}

fn event(eviction: &Eviction, now: Timestamp, instance: &str) -> Value {
    let Eviction { victim, uid, node, preemptor, preemptor_uid, scheduler } = eviction;
    let pod = |name: &Name, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "namespace": &*name.namespace, "name": &*name.name, "uid": uid});
    let stem: String = victim.name.chars().take(230).collect();
    json!({
        "metadata": {
            "name": format!("{}.{:x}", stem.trim_end_matches(['-', '.']), now.as_nanosecond()),
            "namespace": &*victim.namespace,
        },
        "eventTime": format!("{now:.6}"),
        "type": "Normal",
        "reason": "Preempted",
        "action": "Preempting",
        "note": format!("Preempted by pod {preemptor_uid} on node {node}"),
        "reportingController": scheduler,
        "reportingInstance": instance,
        "regarding": pod(victim, uid),
        "related": pod(preemptor, preemptor_uid),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn eviction() -> Eviction {
        Eviction {
            victim: Name::new("shop", "old"),
            uid: Arc::from("u-old"),
            node: Arc::from("n1"),
            preemptor: Name::new("bank", "urgent"),
            preemptor_uid: Arc::from("u-urgent"),
            scheduler: "admiralty-candidate".to_owned(),
        }
    }

    #[test]
    fn a_victim_reads_why_it_goes_in_upstreams_words() {
        let patch = disruption(&eviction(), Timestamp::UNIX_EPOCH);
        assert_eq!(patch["metadata"], json!({"uid": "u-old"}));
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": "admiralty-candidate: preempting to accommodate a higher priority pod",
            "lastTransitionTime": "1970-01-01T00:00:00Z"});
        assert_eq!(patch["status"]["conditions"], json!([condition]));
    }

    #[test]
    fn the_event_of_a_victim_names_for_whom_it_went() {
        let made = event(&eviction(), Timestamp::UNIX_EPOCH, "me");
        assert_eq!(made["note"], "Preempted by pod u-urgent on node n1");
        assert_eq!((&made["reason"], &made["action"]), (&json!("Preempted"), &json!("Preempting")));
        assert_eq!(made["related"]["name"], "urgent");
        let read: Event = serde_json::from_value(made).expect("an event");
        assert_eq!(read.regarding.and_then(|pod| pod.uid).as_deref(), Some("u-old"));
    }

    #[test]
    fn a_nomination_is_written_withdrawn_or_left_alone() {
        assert_eq!(nominated(&Nomination::Keep), Map::new());
        assert_eq!(Value::from(nominated(&Nomination::Clear)), json!({"nominatedNodeName": null}));
        let node = Nomination::Node(Arc::from("n1"));
        assert_eq!(Value::from(nominated(&node)), json!({"nominatedNodeName": "n1"}));
    }
}
