use scheduling::OwnerKind;

use super::*;

fn chaperon(mut value: Value) -> ChaperonSeen {
    let mut raw = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "17",
            "annotations": {"multicluster.admiralty.io/attempt": "2"},
            "labels": {"multicluster.admiralty.io/parent-uid": "p1", "app": "web"}},
        "spec": {"schedulerName": "admiralty-candidate", "containers": [{"name": "a"}]},
    });
    json_merge(&mut raw, &value.take());
    ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"))
}

fn json_merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn annotated(pairs: &[(&str, &str)]) -> Value {
    let pairs =
        pairs.iter().map(|(key, value)| (format!("multicluster.admiralty.io/{key}"), Value::from(*value)));
    json!({"metadata": {"annotations": Value::Object(pairs.collect())}})
}

#[test]
fn the_handshake_is_read_by_presence() {
    let seen =
        chaperon(annotated(&[("is-reserved", ""), ("reserved-node", "n1"), ("reserved-attempt", "1")]));
    assert_eq!((seen.attempt, seen.reserved_attempt, seen.allowed), (2, Some(1), false));
    assert_eq!(seen.reserved.as_deref(), Some("n1"));
    let expired = chaperon(annotated(&[("reserved-node", "n1"), ("reserved-attempt", "2")]));
    assert_eq!((expired.reserved, expired.reserved_attempt), (None, Some(2)));
    assert!(chaperon(annotated(&[("is-allowed", "")])).allowed);
}

#[test]
fn what_another_scheduler_places_or_what_has_ended_is_over() {
    assert!(!chaperon(json!({})).over);
    assert!(chaperon(json!({"spec": {"schedulerName": "default-scheduler"}})).over);
    assert!(chaperon(json!({"status": {"phase": "Failed"}})).over);
    assert!(chaperon(annotated(&[("grant", "preempt")])).over);
    assert!(chaperon(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).over);
}

#[test]
fn chaperons_of_one_template_share_their_dry_run_and_annotations_tell_templates_apart() {
    let other = json!({"metadata": {"name": "web-2", "uid": "u2",
        "labels": {"multicluster.admiralty.io/parent-uid": "p2"}}});
    assert_eq!(chaperon(json!({})).template, chaperon(other.clone()).template);
    let spec = |seen: ChaperonSeen| seen.pod.expect("a pod").spec.class();
    assert_eq!(spec(chaperon(json!({}))), spec(chaperon(other)));
    let injected = json!({"metadata": {"annotations": {"inject": "yes"}}});
    assert_ne!(chaperon(json!({})).template, chaperon(injected).template);
}

#[test]
fn the_dry_run_pod_is_controlled_by_the_chaperon_so_that_it_is_not_elected_again() {
    let manifest = chaperon(json!({})).manifest;
    assert_eq!(manifest["metadata"]["ownerReferences"][0]["uid"], "u1");
    assert_eq!(manifest["metadata"]["generateName"], "web-");
}

#[test]
fn a_spec_that_cannot_be_read_is_said() {
    let seen = chaperon(json!({"spec": {"priority": "high"}}));
    assert_eq!(seen.pod, Err("spec.priority: must be an integer of at most 64 bits".to_owned()));
}

#[test]
fn a_virtual_node_is_not_used() {
    let node = |labels: Value| {
        NodeSeen::read(
            &serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).expect("a node"),
        )
    };
    assert!(matches!(node(json!({})), NodeSeen::Usable(_)));
    let seen = node(json!({"virtual-kubelet.io/provider": "admiralty"}));
    assert_eq!(seen, NodeSeen::Unusable { name: Arc::from("n"), problem: None });
}

#[test]
fn the_controller_of_a_pod_is_read_with_it() {
    let owners = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": true}]);
    let raw = json!({"metadata": {"name": "p", "ownerReferences": owners}, "spec": {"nodeName": "n1"}});
    let seen = PodSeen::read(&serde_json::from_value(raw).expect("a pod"));
    assert!(seen.bound());
    let controller = seen.info.and_then(|info| info.spec.controller.clone());
    assert_eq!(controller, Some((OwnerKind::ReplicaSet, "web".into())));
}
