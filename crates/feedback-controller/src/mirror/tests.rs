use super::{Cause, Change, Delegate, addressed, essential, failed, mirror, unreachable};
use crate::views::{Compact, Proxy};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NOW: &str = "2026-01-01T00:00:00Z";

fn proxy(status: &Value) -> Proxy {
    Proxy {
        containers: [vec!["app".to_owned()], vec![], vec![]],
        status: Compact::new(status),
        ..Proxy::default()
    }
}

fn change(old: &Value, new: &Value) -> Option<Change> {
    let (annotations, had) = (BTreeMap::new(), BTreeSet::new());
    mirror(
        &proxy(old),
        Delegate { status: new, annotations: &annotations, had: &had, was_disrupted: false, is_told: false },
        NOW,
    )
}

/// The status patch from one status to another is as wanted.
#[track_caller]
fn check(old: &Value, new: &Value, want: &Value) {
    let patch = change(old, new).map_or(Value::Null, |change| change.patch["status"].clone());
    assert_eq!(patch, *want);
}

fn running() -> Value {
    json!({"phase": "Running", "podIP": "10.0.0.1"})
}

#[test]
fn equal_statuses_need_no_write() {
    check(&running(), &running(), &Value::Null);
}

#[test]
fn null_and_absent_are_equal() {
    check(&running(), &json!({"phase": "Running", "podIP": "10.0.0.1", "message": null}), &Value::Null);
}

#[test]
fn only_what_differs_is_written() {
    check(&running(), &json!({"phase": "Running", "podIP": "10.0.0.2"}), &json!({"podIP": "10.0.0.2"}));
}

#[test]
fn what_the_delegate_has_lost_is_taken_off() {
    check(&running(), &json!({"phase": "Running"}), &json!({"podIP": null}));
}

#[test]
fn fields_of_the_target_stay_there() {
    let new = json!({
        "phase": "Running", "podIP": "10.0.0.1", "qosClass": "Guaranteed", "nominatedNodeName": "n",
        "observedGeneration": 7, "resourceClaimStatuses": [{"name": "a"}],
    });
    check(&running(), &new, &Value::Null);
}

#[test]
fn fields_of_the_source_stay_here() {
    let mut old = running();
    old["qosClass"] = json!("BestEffort");
    check(&old, &running(), &Value::Null);
}

#[test]
fn a_field_that_nobody_knows_is_carried() {
    let mut new = running();
    new["futureField"] = json!({"x": 1});
    check(&running(), &new, &json!({"futureField": {"x": 1}}));
}

#[test]
fn addresses_are_replaced_and_not_merged() {
    let new = json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]});
    check(&running(), &new, &json!({"podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.1"}]}));
}

#[test]
fn a_terminal_phase_is_final() {
    check(&json!({"phase": "Succeeded"}), &running(), &Value::Null);
    check(&json!({"phase": "Failed"}), &json!({"phase": "Succeeded"}), &Value::Null);
}

#[test]
fn a_delegate_without_phase_says_nothing_but_why() {
    let why =
        json!({"type": "DelegateCreated", "status": "False", "reason": "Forbidden", "message": "quota"});
    let new = json!({"podIP": "10.0.0.1", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}, {"type": "Ready", "status": "True"}, why,
    ]});
    check(&json!({"phase": "Pending"}), &new, &json!({"conditions": [why]}));
    check(&json!({"phase": "Pending", "conditions": [why]}), &new, &Value::Null);
    check(&json!({"phase": "Failed"}), &new, &Value::Null);
}

#[test]
fn w42_a_delegate_that_cannot_be_scheduled_says_why_on_its_proxy() {
    let verdict =
        |kind: &str| json!({"type": kind, "status": "False", "reason": "Unschedulable", "message": "0/1"});
    let new = json!({"phase": "Pending", "conditions": [verdict("PodScheduled")]});
    let old = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]});
    check(&old, &new, &json!({"conditions": [verdict("DelegateScheduled")]}));
    check(&json!({"phase": "Pending", "conditions": [verdict("DelegateScheduled")]}), &new, &Value::Null);
}

#[test]
fn w42_what_kept_a_delegate_from_running_goes_when_it_runs() {
    for kind in ["DelegateCreated", "DelegateStopped", "DelegateScheduled"] {
        let old = json!({"phase": "Pending", "conditions": [{"type": kind, "status": "False"}]});
        let new = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]});
        check(&old, &new, &json!({"conditions": [{"$patch": "delete", "type": kind}]}));
    }
}

#[test]
fn a_disruption_of_a_former_delegate_goes_and_one_of_the_source_stays() {
    let (annotations, had) = (BTreeMap::new(), BTreeSet::new());
    let old = |phase: &str| {
        proxy(&json!({"phase": phase, "conditions": [{"type": "DisruptionTarget", "status": "True"}]}))
    };
    let new = json!({"phase": "Running"});
    let change = |proxy: &Proxy, was_disrupted: bool| {
        let delegate =
            Delegate { status: &new, annotations: &annotations, had: &had, was_disrupted, is_told: false };
        mirror(proxy, delegate, NOW).map(|change| change.patch["status"]["conditions"].clone())
    };
    let gone = json!([{"$patch": "delete", "type": "DisruptionTarget"}]);
    assert_eq!(change(&old("Running"), true), Some(gone));
    assert_eq!(change(&old("Running"), false), None);
    assert_eq!(change(&Proxy { deleting: Some(0), ..old("Running") }, true), None);
    assert_eq!(change(&old("Failed"), true), None);
}

#[test]
fn case_034_a_condition_that_nobody_knows_is_carried() {
    let condition = json!({"type": "NewThing", "status": "True"});
    let new = json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [condition]});
    check(&running(), &new, &json!({"conditions": [condition]}));
}

#[test]
fn case_034_a_condition_changed_by_hand_is_put_back() {
    let conditions =
        |status: &str| json!({"phase": "Running", "conditions": [{"type": "Ready", "status": status}]});
    check(
        &conditions("False"),
        &conditions("True"),
        &json!({"conditions": [{"type": "Ready", "status": "True"}]}),
    );
}

#[test]
fn conditions_of_others_stay() {
    let old = json!({"phase": "Running", "conditions": [{"type": "example.com/mine", "status": "True"}]});
    check(&old, &json!({"phase": "Running"}), &Value::Null);
}

#[test]
fn a_condition_of_a_former_delegate_goes() {
    let old = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    check(
        &old,
        &json!({"phase": "Running"}),
        &json!({"conditions": [{"$patch": "delete", "type": "Ready"}]}),
    );
}

#[test]
fn the_text_of_a_condition_that_has_none_any_more_goes() {
    let old =
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "R"}]});
    let new = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    check(&old, &new, &json!({"conditions": [{"type": "Ready", "status": "True", "reason": null}]}));
}

#[test]
fn whether_a_proxy_is_scheduled_is_decided_in_the_source() {
    let new = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]});
    check(&json!({"phase": "Pending"}), &new, &Value::Null);
}

#[test]
fn a_generation_in_a_condition_is_none_of_the_proxy() {
    let new = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3}]});
    let want = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    check(&json!({"phase": "Running"}), &new, &want);
    let old = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 1}]});
    check(&old, &new, &Value::Null);
}

#[test]
fn injected_containers_are_not_shown() {
    let new = json!({"phase": "Running", "containerStatuses": [{"name": "app", "ready": true}, {"name": "sidecar"}]});
    check(
        &json!({"phase": "Running"}),
        &new,
        &json!({"containerStatuses": [{"name": "app", "ready": true}]}),
    );
}

#[test]
fn containers_without_status_lose_it() {
    let old = json!({"phase": "Running", "containerStatuses": [{"name": "app", "ready": true}]});
    check(&old, &json!({"phase": "Running"}), &json!({"containerStatuses": null}));
}

fn gated(gate: &str) -> Value {
    let conditions = json!([{"type": "example.com/gate", "status": gate}]);
    let mut proxy = proxy(&json!({"phase": "Running", "conditions": conditions}));
    proxy.readiness_gates = vec!["example.com/gate".to_owned()];
    let status = json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"},
        {"type": "example.com/gate", "status": "True"},
    ]});
    let (annotations, had) = (BTreeMap::new(), BTreeSet::new());
    let delegate = Delegate {
        status: &status,
        annotations: &annotations,
        had: &had,
        was_disrupted: false,
        is_told: false,
    };
    mirror(&proxy, delegate, NOW).unwrap().patch["status"]["conditions"][0].clone()
}

#[test]
fn readiness_gates_are_evaluated_in_the_source() {
    assert_eq!(gated("True")["status"], "True");
    assert_eq!(gated("False")["reason"], "ReadinessGatesNotReady");
}

#[test]
fn starts_ends_readiness_and_disruptions_are_urgent() {
    let condition =
        |kind: &str| json!({"phase": "Running", "conditions": [{"type": kind, "status": "True"}]});
    let pending = json!({"phase": "Pending"});
    for new in [running(), json!({"phase": "Failed"})] {
        assert!(change(&pending, &new).unwrap().is_urgent);
    }
    for kind in ["Ready", "DisruptionTarget"] {
        assert!(change(&json!({"phase": "Running"}), &condition(kind)).unwrap().is_urgent);
    }
    assert!(!change(&json!({"phase": "Running"}), &condition("Initialized")).unwrap().is_urgent);
}

fn annotations(old: &[(&str, &str)], new: &[(&str, &str)], had: &[&str]) -> Value {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let proxy = Proxy { annotations: map(old), ..proxy(&running()) };
    let had = had.iter().map(|key| (*key).to_owned()).collect();
    let change = mirror(
        &proxy,
        Delegate {
            status: &running(),
            annotations: &map(new),
            had: &had,
            was_disrupted: false,
            is_told: false,
        },
        NOW,
    );
    change.map_or(Value::Null, |change| change.patch["metadata"]["annotations"].clone())
}

#[test]
fn annotations_of_the_delegate_reach_the_proxy() {
    assert_eq!(annotations(&[("a", "1")], &[("a", "2"), ("b", "3")], &[]), json!({"a": "2", "b": "3"}));
}

#[test]
fn w37_an_annotation_that_the_delegate_never_changed_is_the_proxys_own() {
    let map = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
    let told = |submitted: &str, now: &str, is_told: bool| {
        let proxy = Proxy { annotations: map("mine"), submitted: map(submitted), ..proxy(&running()) };
        let (status, had, annotations) = (running(), BTreeSet::new(), map(now));
        let delegate =
            Delegate { status: &status, annotations: &annotations, had: &had, was_disrupted: false, is_told };
        mirror(&proxy, delegate, NOW).map(|change| change.patch["metadata"]["annotations"].clone())
    };
    assert_eq!(told("1", "1", false), None);
    assert_eq!(told("1", "2", false), Some(json!({"a": "2"})));
    assert_eq!(told("1", "2", true), None, "each value once");
}

#[test]
fn an_annotation_that_the_delegate_changed_back_is_changed_back_on_the_proxy() {
    let map = |value: &str| BTreeMap::from([("a".to_owned(), value.to_owned())]);
    let proxy = Proxy { annotations: map("2"), submitted: map("1"), ..proxy(&running()) };
    let (status, had, annotations) = (running(), BTreeSet::from(["a".to_owned()]), map("1"));
    let delegate = Delegate {
        status: &status,
        annotations: &annotations,
        had: &had,
        was_disrupted: false,
        is_told: false,
    };
    assert_eq!(mirror(&proxy, delegate, NOW).unwrap().patch["metadata"]["annotations"], json!({"a": "1"}));
}

#[test]
fn w37_case_030_annotations_that_only_the_proxy_has_stay() {
    assert_eq!(annotations(&[("mine", "1")], &[], &[]), Value::Null);
}

#[test]
fn annotations_that_the_delegate_has_lost_go() {
    assert_eq!(annotations(&[("a", "1")], &[], &["a"]), json!({"a": null}));
}

#[test]
fn a_failed_pod_is_not_ready() {
    let old = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let patch = failed(&proxy(&old), Cause::Deleted, NOW);
    assert_eq!(patch["status"]["phase"], "Failed");
    assert_eq!(patch["status"]["conditions"][0]["status"], "False");
}

#[test]
fn the_essence_of_a_refused_status_is_phase_and_conditions() {
    let patch = json!({"status": {"phase": "Failed", "podIP": "x", "conditions": [1]}, "metadata": {"a": 1}});
    assert_eq!(essential(&patch), json!({"status": {"phase": "Failed", "conditions": [1]}}));
}

#[test]
fn a_phase_is_written_over_the_state_that_was_seen_and_no_other() {
    let seen = Proxy { uid: "u".to_owned(), version: 7, ..Proxy::default() };
    let versioned = |patch: &Value| addressed(&seen, patch)["metadata"].clone();
    let patch = json!({"status": {"phase": "Running"}, "metadata": {"annotations": {"a": "1"}}});
    assert_eq!(versioned(&patch), json!({"uid": "u", "resourceVersion": "7", "annotations": {"a": "1"}}));
    assert_eq!(versioned(&json!({"status": {"podIP": "10.0.0.1"}})), json!({"uid": "u"}));
}

#[test]
fn case_031_pods_behind_a_silent_target_are_unready_and_say_why() {
    let why = ("Stays", "it waits");
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    let patch = unreachable(&proxy(&ready), why, NOW).unwrap();
    assert_eq!(patch["status"]["conditions"][0]["reason"], "TargetUnreachable");
    assert_eq!(patch["status"]["conditions"][1]["type"], "TargetReachable");
    let patch = unreachable(&proxy(&running()), why, NOW).unwrap();
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1, "it was not called ready");
    let told = json!({"phase": "Pending", "conditions": patch["status"]["conditions"]});
    assert_eq!(unreachable(&proxy(&told), why, NOW), None);
    let other = unreachable(&proxy(&told), ("NowhereElse", "it waits"), "2026-01-01T01:00:00Z").unwrap();
    assert_eq!(other["status"]["conditions"][0]["lastTransitionTime"], NOW, "it is still not reachable");
    let ended = json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "True"}]});
    assert_eq!(unreachable(&proxy(&ended), why, NOW), None);
}

#[test]
fn case_031_what_was_said_of_a_silent_target_goes_when_it_answers() {
    let condition = json!({"type": "TargetReachable", "status": "False", "reason": "Stays"});
    let old = json!({"phase": "Running", "conditions": [condition]});
    let (none, annotations) = (BTreeSet::new(), BTreeMap::new());
    let status = json!({"phase": "Running"});
    let delegate = Delegate {
        status: &status,
        annotations: &annotations,
        had: &none,
        was_disrupted: false,
        is_told: true,
    };
    let patch = mirror(&proxy(&old), delegate, NOW).unwrap().patch;
    assert_eq!(patch["status"]["conditions"], json!([{"$patch": "delete", "type": "TargetReachable"}]));
}
