//! One rule per test: what admission makes of a pod.

use super::{Setting, mutate};
use crate::mac::Key;
use crate::review::{Review, Verdict};
use api::keys;
use serde_json::{Value, json};

mod any;
mod constraints;
mod forgeries;

const P: &str = "multicluster.admiralty.io/";

/// A review of a pod by a user, in namespace `shop`.
fn review(operation: &str, pod: &Value, user: &str) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": operation, "namespace": "shop", "resource": {"version": "v1", "resource": "pods"},
        "userInfo": {"username": user}, "object": pod, "oldObject": null}})
    .to_string()
}

fn judge_as(operation: &str, pod: &Value, user: &str, now: u64) -> Verdict {
    let text = review(operation, pod, user);
    let review: Review<'_> = serde_json::from_str(&text).unwrap();
    mutate(&review.request, &Setting { key: &Key::new(&[1; 32]), own_namespace: "own", now })
}

fn judge(pod: &Value) -> Verdict {
    judge_as("CREATE", pod, "jane", 1000)
}

#[track_caller]
fn patch(pod: &Value) -> Vec<Value> {
    match judge(pod) {
        Verdict::Allowed { patch, .. } => patch,
        Verdict::Denied { message, .. } => panic!("refused: {message}"),
    }
}

fn apply(pod: &Value, patch: &[Value]) -> Value {
    let mut patched = pod.clone();
    let operations: json_patch::Patch = serde_json::from_value(Value::from(patch.to_vec())).unwrap();
    json_patch::patch(&mut patched, &operations).unwrap();
    patched
}

#[track_caller]
fn proxy(pod: &Value) -> Value {
    apply(pod, &patch(pod))
}

#[track_caller]
fn refused(pod: &Value, because: &str) {
    match judge(pod) {
        Verdict::Denied { message, code } => assert!(code == 403 && message.contains(because), "{message}"),
        Verdict::Allowed { .. } => panic!("admitted"),
    }
}

/// An elected pod with metadata and spec laid over the default.
fn pod(metadata: &Value, spec: &Value) -> Value {
    let mut pod = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"generateName": "web-", "namespace": "shop", "creationTimestamp": null,
            "annotations": {keys::ELECT: ""}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler"},
        "status": {},
    });
    json_patch::merge(&mut pod, &json!({"metadata": metadata, "spec": spec}));
    pod
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"annotations": {key: value}})
}

fn manifest(proxy: &Value) -> Value {
    serde_json::from_str(proxy["metadata"]["annotations"][keys::SOURCE_POD_MANIFEST].as_str().unwrap())
        .unwrap()
}

fn constrained() -> Value {
    json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "t", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]})
}

fn default_tolerations() -> Value {
    json!([
        {"key": "virtual-kubelet.io/provider", "value": "admiralty"},
        {"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    ])
}

// The proxy pod.

#[test]
fn a_proxy_pod_waits_for_a_virtual_node_and_nothing_else() {
    let spec = proxy(&pod(&json!({}), &constrained()))["spec"].clone();
    assert_eq!(
        spec,
        json!({"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"virtual-kubelet.io/provider": "admiralty"},
            "tolerations": default_tolerations(), "schedulerName": "admiralty-proxy", "terminationGracePeriodSeconds": 0})
    );
}

#[test]
fn the_manifest_is_the_pod_as_received() {
    let pod = pod(&json!({}), &constrained());
    assert_eq!(manifest(&proxy(&pod)), pod);
}

#[test]
fn the_manifest_leaves_out_who_wrote_which_field() {
    let managed = json!({"managedFields": [{"manager": "kubectl"}]});
    assert_eq!(manifest(&proxy(&pod(&managed, &json!({})))), pod(&json!({}), &json!({})));
}

#[test]
fn a_pod_without_annotations_labels_and_name_becomes_a_proxy_pod() {
    let bare = json!({"metadata": {}, "spec": {"containers": []}});
    let proxy = proxy(&bare);
    assert_eq!(proxy["metadata"]["labels"], json!({keys::HAS_FINALIZER: "true"}));
    assert_eq!(manifest(&proxy), bare);
}

#[test]
fn one_finalizer_is_added_those_of_older_releases_go_and_others_stay() {
    let finalizers = json!({"finalizers": [format!("{P}default-c2"), "batch.kubernetes.io/job-tracking"]});
    let proxy = proxy(&pod(&finalizers, &json!({})));
    assert_eq!(
        proxy["metadata"]["finalizers"],
        json!(["batch.kubernetes.io/job-tracking", keys::DELEGATE_FINALIZER])
    );
}

#[test]
fn what_makes_a_pod_is_left_as_it_is() {
    let spec = json!({"schedulingGates": [{"name": "g"}], "hostNetwork": true, "runtimeClassName": "kata",
        "overhead": {"cpu": "1"}, "priority": 7, "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{"name": "c", "ports": [{"hostPort": 80}]}]});
    let proxy = proxy(&pod(&json!({}), &spec));
    for (field, value) in spec.as_object().unwrap() {
        assert_eq!(&proxy["spec"][field], value);
    }
}

// Case 1: again.

#[test]
fn case_001_a_second_review_keeps_the_users_constraints_and_changes_nothing() {
    let first = proxy(&pod(&annotated(keys::USE_CONSTRAINTS_FROM_SPEC, ""), &constrained()));
    let second = judge(&first);
    assert_eq!(second, Verdict::unchanged());
    assert_eq!((judge(&first), judge(&apply(&first, &[]))), (second.clone(), second));
}

#[test]
fn case_001_a_later_sidecar_stays_on_the_proxy_pod_and_not_in_the_delegate_and_is_said() {
    let mut proxy = proxy(&pod(&annotated(keys::USE_CONSTRAINTS_FROM_SPEC, ""), &constrained()));
    proxy["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "sidecar"}));
    let Verdict::Allowed { patch, warnings } = judge(&proxy) else { panic!("refused") };
    assert!(patch.is_empty(), "{patch:?}");
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("changed spec.containers later") && warnings[0].len() <= 256,
        "{warnings:?}"
    );
    assert_eq!(manifest(&proxy)["spec"]["containers"].as_array().unwrap().len(), 1);
}

#[test]
fn case_001_a_field_of_ours_that_another_webhook_changed_is_set_back() {
    let proxy = proxy(&pod(&json!({}), &json!({})));
    let mut changed = proxy.clone();
    changed["spec"]["tolerations"].as_array_mut().unwrap().push(json!({"key": "x", "operator": "Exists"}));
    changed["metadata"]["finalizers"] = json!([keys::DELEGATE_FINALIZER, "other"]);
    let mut again = apply(&changed, &patch(&changed));
    assert_eq!(again["metadata"]["finalizers"], json!(["other", keys::DELEGATE_FINALIZER]));
    again["metadata"]["finalizers"] = proxy["metadata"]["finalizers"].clone();
    assert_eq!(again, proxy);
}

// Case 2 and W34: fields that nobody knows.

#[test]
fn case_002_fields_that_nobody_knows_survive_on_the_proxy_pod_and_in_the_manifest() {
    let spec = json!({
        "initContainers": [{"name": "s", "restartPolicy": "Always", "resizePolicy": [{"resourceName": "cpu"}]}],
        "futureField": {"x": 1}, "hostUsers": false, "resourceClaims": [{"name": "gpu"}]});
    let proxy = proxy(&pod(&json!({"futureMeta": 1}), &spec));
    for (field, value) in spec.as_object().unwrap() {
        assert_eq!(&proxy["spec"][field], value);
        assert_eq!(&manifest(&proxy)["spec"][field], value);
    }
    assert_eq!(proxy["metadata"]["futureMeta"], 1);
}

#[test]
fn w34_the_manifest_keeps_the_bytes_of_the_spec() {
    let spec = r#"{"containers":[],"z":1.50,"a":1e3,"n":123456789012345678901234567890,"u":"\u00e9"}"#;
    let text = review("CREATE", &json!("POD"), "jane")
        .replace("\"POD\"", &format!(r#"{{"metadata":{{"name":"a","managedFields":[]}},"spec":{spec}}}"#));
    let review: Review<'_> = serde_json::from_str(&text).unwrap();
    let kept = super::manifest(review.request.object.unwrap()).unwrap();
    assert_eq!(kept, format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#));
}

#[test]
fn w34_a_pod_too_large_for_its_annotations_is_refused_with_the_cure() {
    let env = json!({"containers": [{"name": "c", "env": [{"name": "E", "value": "x".repeat(300_000)}]}]});
    refused(&pod(&json!({}), &env), "into a ConfigMap");
}

// Case 4 and 7, W44: who is not concerned.

#[track_caller]
fn not_elected(metadata: &Value, spec: &Value) {
    assert_eq!(judge(&pod(metadata, spec)), Verdict::unchanged());
}

fn owned(kind: &str) -> Value {
    json!({"ownerReferences": [{"kind": kind, "name": "o", "uid": "u", "controller": true}]})
}

#[test]
fn case_004_pods_on_nodes_of_any_name_are_left_alone() {
    for length in [1, 2, 9, 10, 11, 63, 253, 300] {
        not_elected(&json!({}), &json!({"nodeName": "n".repeat(length)}));
    }
}

#[test]
fn case_007_pods_of_the_release_namespace_are_never_elected() {
    let text = review("CREATE", &pod(&json!({}), &json!({})), "jane");
    let review: Review<'_> = serde_json::from_str(&text).unwrap();
    let setting = Setting { key: &Key::new(&[1; 32]), own_namespace: "shop", now: 0 };
    assert_eq!(mutate(&review.request, &setting), Verdict::unchanged());
}

#[test]
fn w44_a_pod_that_opts_out_is_left_alone() {
    not_elected(&annotated(keys::ELECT, keys::NEVER), &json!({}));
}

#[test]
fn w44_a_pod_of_an_electing_namespace_needs_no_annotation() {
    let bare = pod(&json!({"annotations": null}), &json!({}));
    assert_eq!(proxy(&bare)["spec"]["schedulerName"], keys::PROXY_SCHEDULER);
}

#[test]
fn a_pod_of_a_daemon_set_is_never_elected_and_one_of_a_replica_set_is() {
    not_elected(&owned("DaemonSet"), &json!({}));
    patch(&pod(&owned("ReplicaSet"), &json!({})));
}

#[test]
fn a_mirror_pod_is_never_elected() {
    not_elected(&annotated("kubernetes.io/config.mirror", "hash"), &json!({}));
}

#[test]
fn a_delegate_is_never_elected_again() {
    let mut metadata = owned("PodChaperon");
    metadata["labels"] = json!({keys::PARENT_UID: "u"});
    metadata["annotations"] = json!({keys::ELECTION_EPOCH: "1"});
    not_elected(&metadata, &json!({}));
}

#[test]
fn an_owner_or_a_label_alone_makes_no_delegate() {
    patch(&pod(&owned("PodChaperon"), &json!({})));
    patch(&pod(&json!({"labels": {keys::PARENT_UID: "u"}}), &json!({})));
}

// Case 8: only creation.

#[test]
fn case_008_an_update_of_a_bound_proxy_pod_gets_an_empty_patch() {
    let mut bound = proxy(&pod(&json!({"finalizers": ["batch.kubernetes.io/job-tracking"]}), &json!({})));
    bound["spec"]["nodeName"] = "admiralty-default-c2".into();
    bound["metadata"]["finalizers"] = json!([keys::DELEGATE_FINALIZER]);
    assert_eq!(judge_as("UPDATE", &bound, "jane", 1000), Verdict::unchanged());
}

#[test]
fn case_080_labels_that_become_one_are_told() {
    let labels = json!({"app": "x", "example.com/app": "y", "tier": "z"});
    let Verdict::Allowed { warnings, .. } = judge(&pod(&json!({"labels": labels}), &json!({}))) else {
        panic!("refused")
    };
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("no label example.com/app,"), "{warnings:?}");
}

#[test]
fn case_109_an_expression_that_is_none_is_refused_at_admission() {
    refused(&pod(&annotated(keys::NO_PREFIX_LABEL_REGEXP, "("), &json!({})), "no regular expression");
}
