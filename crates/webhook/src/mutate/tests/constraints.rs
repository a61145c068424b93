//! Where a proxy pod may go, and annotations of wrong values.

use super::{annotated, constrained, default_tolerations, judge, manifest, patch, pod, proxy, refused};
use crate::review::Verdict;
use api::keys;
use serde_json::json;

#[test]
fn constraints_of_the_annotation_apply_to_virtual_nodes_besides_the_pods_own() {
    let yaml = "nodeSelector: {cloud: x}\ntolerations:\n- {key: eu, operator: Exists}\naffinity: {nodeAffinity: {}}\n\
                topologySpreadConstraints:\n- {maxSkew: 1, topologyKey: r, whenUnsatisfiable: ScheduleAnyway}\n";
    let pod = pod(&annotated(keys::PROXY_POD_SCHEDULING_CONSTRAINTS, yaml), &constrained());
    let proxy = proxy(&pod);
    assert_eq!(
        proxy["spec"]["nodeSelector"],
        json!({"virtual-kubelet.io/provider": "admiralty", "cloud": "x"})
    );
    assert_eq!(proxy["spec"]["tolerations"][4], json!({"key": "eu", "operator": "Exists"}));
    assert_eq!(proxy["spec"]["affinity"], json!({"nodeAffinity": {}}));
    assert_eq!(proxy["spec"]["topologySpreadConstraints"][0]["topologyKey"], "r");
    assert_eq!(manifest(&proxy)["spec"], pod["spec"]);
}

#[test]
fn constraints_from_the_spec_apply_to_virtual_nodes_instead() {
    let proxy = proxy(&pod(&annotated(keys::USE_CONSTRAINTS_FROM_SPEC, ""), &constrained()));
    assert_eq!(proxy["spec"]["nodeSelector"], json!({"virtual-kubelet.io/provider": "admiralty", "a": "b"}));
    assert_eq!(proxy["spec"]["tolerations"][4], json!({"key": "t", "operator": "Exists"}));
    assert_eq!(proxy["spec"]["affinity"], constrained()["affinity"]);
}

#[test]
fn an_outage_is_tolerated_without_limit_whatever_the_user_says() {
    let spec = json!({"tolerations": [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]});
    let proxy = proxy(&pod(&annotated(keys::USE_CONSTRAINTS_FROM_SPEC, ""), &spec));
    let mut want = default_tolerations();
    want.as_array_mut().unwrap().push(json!({"operator": "Exists", "effect": "NoExecute"}));
    assert_eq!(proxy["spec"]["tolerations"], want);
}

#[test]
fn an_unknown_field_in_the_constraints_is_refused_by_its_path() {
    let wrong = |yaml| pod(&annotated(keys::PROXY_POD_SCHEDULING_CONSTRAINTS, yaml), &json!({}));
    refused(
        &wrong("nodeSelectors: {a: b}"),
        "proxy-pod-scheduling-constraints]: field nodeSelectors is unknown",
    );
    refused(
        &wrong("affinity: {nodeAffinity: {wanted: {}}}"),
        "field affinity.nodeAffinity.wanted is unknown",
    );
    refused(
        &wrong("tolerations: [{key: a, operators: Exists}]"),
        "field tolerations[0].operators is unknown",
    );
}

#[test]
fn constraints_of_a_wrong_type_are_refused_with_their_field() {
    let wrong = |yaml| pod(&annotated(keys::PROXY_POD_SCHEDULING_CONSTRAINTS, yaml), &json!({}));
    refused(&wrong("nodeSelector: [a]"), "field nodeSelector:");
    refused(&wrong("- a"), "must be a mapping");
    refused(&wrong("a: {"), "it is not YAML");
}

#[test]
fn empty_constraints_are_none() {
    for yaml in ["", "  ", "{}", "affinity: {}", "tolerations: null"] {
        let spec =
            proxy(&pod(&annotated(keys::PROXY_POD_SCHEDULING_CONSTRAINTS, yaml), &json!({})))["spec"].clone();
        assert_eq!((&spec["tolerations"], spec.get("affinity")), (&default_tolerations(), None), "{yaml}");
    }
}

#[test]
fn a_field_of_the_constraints_that_is_not_used_is_said() {
    let verdict = judge(&pod(&annotated(keys::PROXY_POD_SCHEDULING_CONSTRAINTS, "priority: 1"), &json!({})));
    let Verdict::Allowed { warnings, .. } = verdict else { panic!("refused") };
    assert!(warnings[0].contains("field priority is not used"), "{warnings:?}");
}

#[test]
fn an_annotation_of_a_wrong_value_is_refused_with_its_cure() {
    refused(
        &pod(&annotated(keys::NO_PREFIX_LABEL_REGEXP, "("), &json!({})),
        "no-prefix-label-regexp]: \"(\" is no",
    );
    for ask in ["0", "-1", "", "many", "1000", "1.5"] {
        refused(&pod(&annotated(keys::ASK, ask), &json!({})), "from 1 to 999, or all");
    }
    for ask in ["1", "999", "all"] {
        patch(&pod(&annotated(keys::ASK, ask), &json!({})));
    }
}

#[test]
fn a_group_that_nobody_could_complete_is_refused() {
    for size in ["0", "", "all", "10001", "-1"] {
        refused(
            &pod(&annotated(keys::GROUP_MIN_MEMBER, size), &json!({})),
            "must be a number from 1 to 10000",
        );
    }
    refused(
        &pod(&annotated(keys::GROUP_PLACEMENT, "Anywhere"), &json!({})),
        "must be OneTarget or AnyTarget",
    );
    for (key, value) in [(keys::GROUP_MIN_MEMBER, "4"), (keys::GROUP_PLACEMENT, "AnyTarget")] {
        patch(&pod(&annotated(key, value), &json!({})));
    }
}

#[test]
fn a_preference_that_nobody_could_follow_is_refused_with_its_cure() {
    for (key, value, because) in [
        (keys::TARGET_ORDER, "a,a", "target-order]: \"a\" stands there twice; name each target once"),
        (keys::TARGET_WEIGHT, "a", "target-weight]: \"a\" has no weight; write name=weight"),
        (
            keys::SCORE_WEIGHT,
            "cost=101",
            "score-weight]: \"101\" is no weight; write a whole number from 0 to 100",
        ),
        (keys::START_DEADLINE, "5", "start-deadline]: \"5\" is no duration"),
    ] {
        refused(&pod(&annotated(key, value), &json!({})), because);
    }
    for (key, value) in [
        (keys::TARGET_ORDER, "a,b"),
        (keys::TARGET_WEIGHT, "a=1,b=0"),
        (keys::SCORE_WEIGHT, "cost=5"),
        (keys::START_DEADLINE, "90s"),
    ] {
        patch(&pod(&annotated(key, value), &json!({})));
    }
}
