//! What raw objects become.

use super::{Source, coscheduling_group, pod, podchaperon, stage, target, workload_group};
use crate::machine::{
    ClaimHome, GrantKind, GroupKind, Hold, Place, PodSeen, Promise, Refusal, Stage, Width, Wish,
};
use crate::rank::Ranker;
use api::{Pod, PodChaperon, keys};
use runtime::{Connection, Target, TargetKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_group_is_read_from_annotations_or_from_the_label_of_others() {
    let of = |metadata: Value| {
        let mut object =
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": []}});
        merge(&mut object["metadata"], &metadata);
        let source = Source { name: String::new(), uid: "s".to_owned() };
        pod(serde_json::from_value(object).unwrap(), &source)
    };
    let four = json!({keys::GROUP: "g", keys::GROUP_MIN_MEMBER: "4"});
    let seen = of(json!({"annotations": four})).gang.unwrap();
    assert_eq!((&*seen.name, seen.least, seen.together), ("ns/g", Some(4), true));
    let spread = json!({keys::GROUP_MIN_MEMBER: "2", keys::GROUP_PLACEMENT: keys::GROUP_ANY_TARGET});
    let seen = of(json!({"labels": {keys::POD_GROUP: "h"}, "annotations": spread})).gang.unwrap();
    assert_eq!((&*seen.name, seen.least, seen.together), ("ns/h", Some(2), false));
    assert!(of(json!({})).gang.is_none());
    let of_others = of(json!({"labels": {keys::POD_GROUP: "h"}})).gang.unwrap();
    assert_eq!((of_others.least, of_others.kind), (None, GroupKind::Coscheduling));
    let manifest =
        json!({keys::SOURCE_POD_MANIFEST: "spec: {containers: []}", keys::GROUP_MIN_MEMBER: "few"});
    let Place::Unbound(wish) = of(json!({"labels": {keys::POD_GROUP: "h"}, "annotations": manifest})).place
    else {
        panic!("it has a node")
    };
    assert!(matches!(&wish.hold, Hold::Because(why) if why.contains(keys::GROUP_MIN_MEMBER)), "{wish:?}");
}

#[test]
fn a_group_of_kubernetes_itself_is_read_from_the_spec() {
    let object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [], "schedulingGroup": {"podGroupName": "g"}},
    });
    let source = Source { name: String::new(), uid: "s".to_owned() };
    let gang = pod(serde_json::from_value(object).unwrap(), &source).gang.unwrap();
    assert_eq!((&*gang.name, gang.least, gang.kind), ("ns/g", None, GroupKind::Workload));
}

#[test]
fn case_101_a_cordoned_virtual_node_is_no_domain_to_spread_over() {
    let constraint = |more: &Value| {
        let mut constraint = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
        merge(&mut constraint, more);
        json!({"containers": [], "topologySpreadConstraints": [constraint]})
    };
    let web = |name: &str, more: &Value| {
        let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}},
            "spec": constraint(more)});
        pod(serde_json::from_value(object).unwrap(), &Source { name: String::new(), uid: "s".to_owned() })
            .info
    };
    let mut ranker = Ranker::default();
    for name in ["c1", "c2", "c3"] {
        let taint = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        let spec = if name == "c3" { json!({"unschedulable": true, "taints": taint}) } else { json!({}) };
        let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": spec,
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        ranker.set(super::node(&serde_json::from_value(object).unwrap()).unwrap());
    }
    let mut there = BTreeMap::new();
    for number in 0..6 {
        let info = web(&format!("p{number}"), &json!({}));
        let best = ranker.judge(&info).fit.first().map(|(node, _)| Arc::clone(node)).unwrap();
        ranker.place(&info, &best);
        *there.entry(best.to_string()).or_insert(0) += 1;
    }
    assert_eq!(there, BTreeMap::from([("c1".to_owned(), 3), ("c2".to_owned(), 3)]));
    // Who says otherwise waits for it.
    assert!(ranker.judge(&web("q", &json!({"nodeTaintsPolicy": "Ignore"}))).fit.is_empty());
}

#[test]
fn a_pod_group_says_how_many_must_fit() {
    let of = |spec: Value| json!({"metadata": {"name": "g", "namespace": "ns"}, "spec": spec});
    let group = serde_json::from_value(of(json!({"minMember": 3, "scheduleTimeoutSeconds": 5}))).unwrap();
    let seen = coscheduling_group(&group);
    assert_eq!((&*seen.name, seen.least), ("ns/g", Some(3)));
    let group = serde_json::from_value(of(json!({"schedulingPolicy": {"gang": {"minCount": 4}}}))).unwrap();
    assert_eq!(workload_group(&group).least, Some(4));
    let group = serde_json::from_value(of(json!({"schedulingPolicy": {"basic": {}}}))).unwrap();
    assert_eq!(workload_group(&group).least, None);
}

/// Puts `more` into `into`; null takes a field out.
fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (key, value) in more {
                if value.is_null() {
                    fields.remove(key);
                    continue;
                }
                merge(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// A proxy pod as the webhook leaves it, with changes.
fn proxy(more: &Value) -> PodSeen {
    let manifest = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut whole = json!({
        "metadata": {
            "name": "a", "namespace": "shop", "uid": "pod-uid", "resourceVersion": "7",
            "annotations": {keys::SOURCE_POD_MANIFEST: manifest.to_string()},
        },
        "spec": {"schedulerName": keys::PROXY_SCHEDULER, "containers": [{"name": "c", "image": "i"}]},
    });
    merge(&mut whole, more);
    let whole: Pod = serde_json::from_value(whole).unwrap();
    pod(whole, &Source { name: String::new(), uid: "source-uid".to_owned() })
}

fn wish(more: &Value) -> Arc<Wish> {
    match proxy(more).place {
        Place::Unbound(wish) => wish,
        Place::Bound { .. } => panic!("the pod is bound"),
    }
}

#[track_caller]
fn holds(more: &Value, want: &str) {
    assert_eq!(wish(more).hold, Hold::Because(want.to_owned()));
}

#[test]
fn an_ordinary_proxy_pod_is_held_by_nothing() {
    assert_eq!(wish(&json!({})).hold, Hold::No);
}

#[test]
fn case_010_gates_come_before_any_other_reason() {
    assert_eq!(
        wish(&json!({"spec": {"schedulingGates": [{"name": "g"}], "resourceClaims": [{"name": "r"}]}})).hold,
        Hold::Gated
    );
}

#[test]
fn w30_claims_and_ephemeral_volumes_hold_no_pod() {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {}}]);
    assert_eq!(wish(&json!({"spec": {"volumes": volumes}})).hold, Hold::No);
}

#[test]
fn w30_a_claim_tells_where_its_data_is() {
    let source = Source { name: String::new(), uid: "own".to_owned() };
    let seen = |annotations: Value, spec: Value| {
        let raw = json!({"metadata": {"name": "data", "namespace": "ns", "uid": "u", "annotations": annotations}, "spec": spec});
        super::claim(&serde_json::from_value(raw).unwrap(), &source)
    };
    let bound = json!({"volumeName": "pv"});
    assert_eq!(seen(json!({}), json!({})).home, ClaimHome::Anywhere);
    assert!(
        matches!(seen(json!({}), bound.clone()).home, ClaimHome::Cluster(uid, why) if &*uid == "own" && why.contains("pv"))
    );
    let home = json!({keys::CLAIM_HOME: "c2"});
    assert!(matches!(seen(home, bound.clone()).home, ClaimHome::Cluster(uid, _) if &*uid == "c2"));
    assert_eq!(seen(json!({keys::FOLLOW: "never"}), bound).home, ClaimHome::TargetsOwn);
}

#[test]
fn resource_claims_are_not_supported_yet() {
    holds(
        &json!({"spec": {"resourceClaims": [{"name": "gpu"}]}}),
        "resource claims are not supported yet (claim \"gpu\")",
    );
}

#[test]
fn pods_without_reservation_are_placed_directly() {
    let annotations = json!({keys::NO_RESERVATION: ""});
    let wish = wish(&json!({"metadata": {"annotations": annotations}}));
    assert!(wish.is_direct && wish.hold == Hold::No, "{:?}", wish.hold);
}

#[test]
fn a_grant_is_read_with_its_election() {
    let annotations = json!({keys::GRANT: keys::GRANT_PREEMPT, keys::ELECTED_TARGET: "t",
        keys::ELECTED_CHAPERON: "c", keys::ELECTION_EPOCH: "3"});
    let grant = wish(&json!({"metadata": {"annotations": annotations}})).grant.clone().unwrap();
    assert_eq!(
        (grant.kind, grant.election.epoch, &*grant.election.chaperon_uid),
        (GrantKind::Preempt, 3, "c")
    );
}

#[test]
fn how_far_a_delegate_is_stands_in_its_status() {
    let condition = |kind: &str, status: &str, reason: &str| json!({"conditions": [{"type": kind, "status": status, "reason": reason}]});
    assert_eq!(stage(&json!({})), Stage::Unknown);
    assert_eq!(stage(&json!({"phase": "Pending"})), Stage::Unknown);
    assert_eq!(stage(&condition("PodScheduled", "False", "Unschedulable")), Stage::Unplaced);
    assert_eq!(stage(&condition("DelegateCreated", "False", "Forbidden")), Stage::Unplaced);
    assert_eq!(stage(&condition("DelegateCreated", "False", "Revoked")), Stage::Revoked);
    assert_eq!(stage(&condition("PodScheduled", "True", "")), Stage::Placed);
    assert_eq!(stage(&json!({"phase": "Running"})), Stage::Placed);
}

#[test]
fn a_pod_that_never_passed_the_webhook_is_held() {
    let annotations = json!({keys::SOURCE_POD_MANIFEST: null});
    let whole = json!({"metadata": {"annotations": annotations}});
    assert!(matches!(wish(&whole).hold, Hold::Because(_)), "{:?}", wish(&whole).hold);
}

#[test]
fn equal_pods_are_of_one_class_and_namespaces_differ() {
    let one = wish(&json!({}));
    assert_eq!(one.class, wish(&json!({"metadata": {"name": "b", "uid": "other"}})).class);
    assert_ne!(one.class, wish(&json!({"metadata": {"namespace": "bank"}})).class);
}

#[test]
fn a_pod_may_say_how_many_targets_are_asked() {
    let asks = |value: &str| wish(&json!({"metadata": {"annotations": {keys::ASK: value}}})).width;
    assert_eq!(asks("3"), Some(Width::Some(3)));
    assert_eq!(asks("all"), Some(Width::All));
    assert_eq!(asks("0"), None);
}

#[test]
fn a_bound_pod_names_its_election() {
    let annotations = json!({
        keys::ELECTED_TARGET: "t", keys::ELECTED_CHAPERON: "c", keys::ELECTION_EPOCH: "2",
    });
    let seen =
        proxy(&json!({"metadata": {"annotations": annotations}, "spec": {"nodeName": "admiralty-c1"}}));
    let Place::Bound { node, election: Some(election) } = seen.place else { panic!("not elected") };
    assert_eq!(
        (&*node, &*election.target_uid, &*election.chaperon_uid, election.epoch),
        ("admiralty-c1", "t", "c", 2)
    );
}

#[test]
fn what_the_pod_says_already_is_known() {
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"});
    assert_eq!(proxy(&json!({"status": {"conditions": [condition]}})).shown.as_deref(), Some("m"));
    let gated =
        json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "m"});
    assert_eq!(proxy(&json!({"status": {"conditions": [gated]}})).shown, None);
}

fn chaperon(more: &Value) -> PodChaperon {
    let mut whole = json!({
        "metadata": {
            "name": "a-1", "namespace": "shop", "uid": "u", "resourceVersion": "3",
            "labels": {
                keys::PARENT_UID: "pod-uid", keys::TARGET_UID: "cluster", keys::VIRTUAL_NODE: "admiralty-c1",
            },
            "annotations": {keys::ATTEMPT: "2"},
        },
    });
    merge(&mut whole, more);
    serde_json::from_value(whole).unwrap()
}

#[test]
fn w10_a_chaperon_is_known_by_the_pod_that_it_was_made_for() {
    let seen = podchaperon(&chaperon(&json!({})), "admiralty-c1", "cluster").unwrap();
    assert_eq!((&*seen.parent, seen.attempt, seen.promise, seen.refused), ("pod-uid", 2, None, None));
}

#[test]
fn w15_a_chaperon_behind_another_virtual_node_is_none_of_this_target() {
    assert_eq!(podchaperon(&chaperon(&json!({})), "admiralty-c2", "cluster"), None);
}

#[test]
fn w15_a_chaperon_for_another_cluster_is_none_of_this_target() {
    assert_eq!(podchaperon(&chaperon(&json!({})), "admiralty-c1", "restored"), None);
}

#[test]
fn w03_a_promise_names_the_attempt_that_it_answers() {
    let annotations = json!({
        keys::IS_RESERVED: "", keys::RESERVED_ATTEMPT: "2", keys::RESERVED_SECONDS: "20",
    });
    let seen =
        podchaperon(&chaperon(&json!({"metadata": {"annotations": annotations}})), "admiralty-c1", "cluster");
    let want = Promise { attempt: 2, lasts: Duration::from_secs(20) };
    assert_eq!(seen.and_then(|seen| seen.promise), Some(want));
}

#[test]
fn case_010_a_refusal_of_any_reason_is_a_refusal() {
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": "t",
    });
    let seen =
        podchaperon(&chaperon(&json!({"status": {"conditions": [condition]}})), "admiralty-c1", "cluster");
    let want = Refusal { message: "SchedulingGated".to_owned(), preempts: false, stamp: "t".to_owned() };
    assert_eq!(seen.and_then(|seen| seen.refused), Some(want));
}

#[test]
fn a_target_without_client_says_why() {
    let source = Source { name: String::new(), uid: "own".to_owned() };
    let target = target(
        &Target {
            key: TargetKey { namespace: "shop".to_owned(), name: "c1".to_owned() },
            uid: String::new(),
            generation: None,
            created: None,
            settings: runtime::targets::Settings {
                is_self: false,
                excluded_labels_regexp: None,
                capacity: None,
                label_rewriting: api::v1alpha1::LabelRewriting::Rewrite,
                ask: Some("2".to_owned()),
                order: -1,
                weight: Some(3),
                start_deadline: Some("90s".to_owned()),
                failover: api::failover::Policy::default(),
            },
            status: api::TargetStatus::default(),
            deleting: false,
            finalizers: Vec::new(),
            resource_version: String::new(),
            annotations: BTreeMap::new(),
            connection: Connection::Pending,
        },
        &source,
    );
    assert_eq!(target.unusable.as_deref(), Some("its kubeconfig has not been read yet"));
    assert_eq!((&*target.id, target.width), ("admiralty-shop-c1", Some(Width::Some(2))));
    assert_eq!((&*target.name, target.order, target.weight), ("c1", -1, Some(3)));
}
