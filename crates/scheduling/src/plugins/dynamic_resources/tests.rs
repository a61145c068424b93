use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::devices::{ClaimPlan, DeviceClass, DeviceEvent, ResourceClaim, ResourceSlice};
use crate::framework::{Cycle, Event, Framework, PodChange};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::Snapshot;

fn claim(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")}, "spec": {"devices": {
        "requests": [{"name": "r", "exactly": {
            "deviceClassName": class, "allocationMode": "ExactCount", "count": 1}}]}}})
}

/// The claim with the device of a node, and pods that may use it.
fn allocated(name: &str, node: &str, users: &[&str]) -> Value {
    let mut raw = claim(name, "gpus");
    let users: Vec<_> =
        users.iter().map(|uid| json!({"resource": "pods", "name": uid, "uid": uid})).collect();
    raw["status"] = json!({"reservedFor": users, "allocation": {
        "devices": {"results": [{"request": "r", "driver": "d", "pool": node, "device": "g0"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]}]}]},
    }});
    raw
}

fn read(raw: &Value) -> ResourceClaim {
    ResourceClaim::parse(raw).expect("a claim")
}

/// Nodes `n1` and `n2` with one device each, and these claims.
fn world(claims: &[Value]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let class = json!({"metadata": {"name": "gpus"}});
    snapshot.set_device_class(DeviceClass::parse(&class).expect("a class"));
    for node in ["n1", "n2"] {
        let raw = json!({"metadata": {"name": node}, "status": {"allocatable": {"pods": "10", "cpu": "4"}}});
        snapshot.set_node(NodeInfo::parse(&raw).expect("a node"));
        let slice = json!({"metadata": {"name": node}, "spec": {
            "driver": "d", "nodeName": node, "devices": [{"name": "g0"}],
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
        snapshot.devices_mut().set_slice(ResourceSlice::parse(&slice).expect("a slice"));
    }
    snapshot.devices_mut().follow();
    for raw in claims {
        snapshot.devices_mut().set_claim(read(raw));
    }
    snapshot
}

/// A pod with claims: `name` is a claim, `+name` one that was made from a template, `?` one that was not made yet.
fn user(claims: &[&str]) -> PodInfo {
    let mut statuses = Vec::new();
    let claims = claims.iter().enumerate().map(|(index, claim)| {
        let name = format!("c{index}");
        match claim.strip_prefix('+') {
            Some(made) => {
                statuses.push(json!({"name": name, "resourceClaimName": made}));
                json!({"name": name, "resourceClaimTemplateName": "t"})
            }
            None if *claim == "?" => json!({"name": name, "resourceClaimTemplateName": "t"}),
            None => json!({"name": name, "resourceClaimName": claim}),
        }
    });
    let claims: Vec<_> = claims.collect();
    let raw = json!({"metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "spec": {"containers": [{"name": "a"}], "resourceClaims": claims},
        "status": {"resourceClaimStatuses": statuses}});
    PodInfo::parse(&raw).expect("a pod")
}

#[track_caller]
fn waits(claims: &[Value], pod: &PodInfo, reason: &str) {
    let refusal = Framework::builder().build().pre_enqueue(pod, &world(claims)).expect_err("held back");
    assert_eq!((refusal.plugin, refusal.message().as_str()), ("DynamicResources", reason));
}

/// The message up to what preemption says.
#[track_caller]
fn refused(snapshot: &Snapshot, pod: &PodInfo, message: &str) {
    let diagnosis = Framework::builder().without(&["DefaultPreemption"]).build().evaluate(pod, snapshot);
    let said = diagnosis.expect_err("refused").message();
    assert_eq!(said, format!("0/2 nodes are available: {message}"));
}

#[test]
fn a_pod_waits_for_claims_that_are_not_there_or_not_its_own() {
    waits(&[], &user(&["c"]), "could not find ResourceClaim \"default/c\"");
    waits(&[], &user(&["?"]), "pod \"default/p\": ResourceClaim not created yet");
    let mut raw = claim("c", "gpus");
    let stranger = "ResourceClaim default/c was not created for Pod default/p (Pod is not owner)";
    waits(&[raw.clone()], &user(&["+c"]), stranger);
    raw["metadata"]["ownerReferences"] =
        json!([{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": true}]);
    assert!(Framework::builder().build().pre_enqueue(&user(&["+c"]), &world(&[raw.clone()])).is_ok());
    raw["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    waits(&[raw], &user(&["c"]), "resourceclaim \"c\" is being deleted");
}

#[test]
fn a_pod_whose_claims_cannot_be_satisfied_is_refused_in_upstreams_words() {
    let snapshot = world(&[claim("c", "none"), claim("d", "gpus"), claim("e", "gpus"), claim("f", "gpus")]);
    refused(&snapshot, &user(&["c"]), "request r: device class none does not exist.");
    refused(&snapshot, &user(&["d", "e"]), "2 cannot allocate all claims.");
    let twice = "resource claim default/d is named twice by the pod, which is not supported.";
    refused(&snapshot, &user(&["d", "d"]), twice);
    let mut promised = world(&[claim("d", "gpus")]);
    let plan = plan(&promised, &user(&["d"]), "n1");
    assert!(promised.devices_mut().promise(&plan.promises()));
    refused(&promised, &user(&["d"]), "resource claim default/d is in the process of being allocated.");
    let mut unreadable = claim("d", "gpus");
    unreadable["spec"]["devices"]["requests"] = json!([{"name": "r"}]);
    refused(
        &world(&[unreadable]),
        &user(&["d"]),
        "resource claim default/d, request r: unknown request type.",
    );
}

#[test]
fn devices_for_which_a_pod_would_have_to_wait_are_refused() {
    let mut snapshot = world(&[claim("c", "gpus")]);
    for node in ["n1", "n2"] {
        let slice = json!({"metadata": {"name": node}, "spec": {
            "driver": "d", "nodeName": node, "devices": [{"name": "g0", "bindingConditions": ["ready"]}],
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
        snapshot.devices_mut().set_slice(ResourceSlice::parse(&slice).expect("a slice"));
    }
    let waiting = "has binding conditions, and waiting for them is not supported";
    let both = format!("1 device d/n1/g0 {waiting}, 1 device d/n2/g0 {waiting}.");
    refused(&snapshot, &user(&["c"]), &both);
}

fn plan(snapshot: &Snapshot, pod: &PodInfo, node: &str) -> ClaimPlan {
    let node = snapshot.node(node).expect("a node");
    Framework::builder().build().claims(pod, snapshot, node).expect("it fits").expect("something to write")
}

#[test]
fn a_pod_goes_where_its_claims_are_and_says_what_is_to_be_written() {
    let snapshot = world(&[allocated("c", "n2", &["other"]), claim("d", "gpus")]);
    let alone = Framework::builder().build().evaluate(&user(&["c"]), &snapshot).expect("a node");
    assert_eq!(&*alone.node, "n2");
    let work = plan(&snapshot, &user(&["c"]), "n2").work;
    assert!(work.len() == 1 && work[0].allocation.is_none(), "it only has to be said that the pod uses it");
    // The device of n2 is taken, and the claim with it is nowhere else.
    let diagnosis =
        Framework::builder().build().evaluate(&user(&["c", "d"]), &snapshot).expect_err("nowhere");
    let words =
        "0/2 nodes are available: 1 cannot allocate all claims, 1 resourceclaim not available on the node.";
    assert!(diagnosis.message().starts_with(words), "{}", diagnosis.message());
    assert_eq!(diagnosis.deallocate, None, "somebody uses it");
}

#[test]
fn devices_that_nobody_uses_are_taken_back_when_the_pod_cannot_reach_them() {
    let mut snapshot = world(&[allocated("c", "n2", &["uid-p"])]);
    snapshot.remove_node("n2");
    let diagnosis = Framework::builder().build().evaluate(&user(&["c"]), &snapshot).expect_err("nowhere");
    let words = "0/1 nodes are available: 1 resourceclaim not available on the node. \
                 deallocation of ResourceClaim completed";
    assert!(diagnosis.message().starts_with(words), "{}", diagnosis.message());
    assert_eq!(diagnosis.deallocate, Some((Arc::from("default"), Arc::from("c"))));
}

#[test]
fn nodes_with_an_earlier_alternative_are_preferred() {
    let mut raw = claim("c", "gpus");
    let alternative = |name: &str, node: &str| {
        json!({"name": name, "deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": format!("device.driver == '{node}'")}}]})
    };
    raw["spec"]["devices"]["requests"] =
        json!([{"name": "r", "firstAvailable": [alternative("first", "other"), alternative("second", "d")]}]);
    let mut snapshot = world(&[raw]);
    let slice = json!({"metadata": {"name": "other"}, "spec": {
        "driver": "other", "nodeName": "n2", "devices": [{"name": "x"}],
        "pool": {"name": "other", "generation": 1, "resourceSliceCount": 1}}});
    snapshot.devices_mut().set_slice(ResourceSlice::parse(&slice).expect("a slice"));
    let selection = Framework::builder().build().evaluate(&user(&["c"]), &snapshot).expect("a node");
    assert_eq!(&*selection.node, "n2");
    // 8 for the first of two alternatives, 7 for the second: 100 and 87 of 100, with weight 2.
    assert_eq!(selection.ranked[0].score - selection.ranked[1].score, 26);
}

#[test]
fn only_what_may_help_is_a_reason_to_try_again() {
    let pod = user(&["c"]);
    let (free, full) = (claim("c", "gpus"), allocated("other", "n1", &[]));
    let snapshot = world(&[free.clone(), full.clone()]);
    let hint = |event: Event| {
        let cycle = Cycle { pod: &pod, snapshot: &snapshot };
        Framework::builder().build().hint(&event, cycle, &BTreeSet::from(["DynamicResources"]))
    };
    let claims = |old: Option<&Value>, new: Option<&Value>| {
        let shared = |raw: &Value| Arc::new(read(raw));
        Event::Claims(DeviceEvent::Claim { old: old.map(shared), new: new.map(shared) })
    };
    let other = claim("other", "gpus");
    assert!(hint(claims(None, Some(&free))), "its claim appeared");
    assert!(!hint(claims(None, Some(&other))), "another claim appeared");
    assert!(hint(claims(Some(&full), Some(&other))), "devices are free again");
    assert!(hint(claims(Some(&full), None)), "a claim with devices is gone");
    assert!(!hint(claims(Some(&other), None)), "a claim without devices is gone");
    assert!(!hint(claims(Some(&free), Some(&free))), "nothing that counts has changed");
    assert!(hint(Event::Claims(DeviceEvent::Slice { added: true })));
    let class = DeviceClass::parse(&json!({"metadata": {"name": "x"}})).expect("a class");
    assert!(hint(Event::Devices { old: None, new: Some(class.clone()) }));
    assert!(!hint(Event::Devices { old: Some(class), new: None }));
    let itself = |claims| Event::Itself {
        old: Arc::new(pod.clone()),
        pod: Arc::new(pod.clone()),
        change: PodChange { claims, ..PodChange::default() },
    };
    assert!(hint(itself(true)) && !hint(itself(false)));
}

#[test]
fn a_claim_that_is_made_from_a_template_is_news_about_the_pod() {
    let (before, after) = (user(&["?"]), user(&["+c"]));
    let change = PodChange::between(&before, &after);
    assert!(change.claims && !change.other, "{change:?}");
    assert_eq!(before.spec, after.spec, "pods of one template are of one class");
}
