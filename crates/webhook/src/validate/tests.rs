//! One rule per test: what may become of our kinds and of what we wrote on pods.

use super::validate;
use crate::mac::Key;
use crate::mutate::{Setting, mutate};
use crate::review::{Review, Verdict};
use api::keys;
use serde_json::{Value, json};

fn judge(resource: &Value, object: &Value, old: Option<&Value>, user: &str) -> Verdict {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let text = json!({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "operation": operation,
        "namespace": "shop", "resource": resource, "userInfo": {"username": user}, "object": object, "oldObject": old}})
    .to_string();
    let review: Review<'_> = serde_json::from_str(&text).unwrap();
    validate(&review.request, &Setting { key: &Key::new(&[1; 32]), own_namespace: "own", now: 0 })
}

fn ours(plural: &str) -> Value {
    json!({"group": "multicluster.admiralty.io", "version": "v1alpha1", "resource": plural})
}

#[track_caller]
fn accepted(plural: &str, spec: &Value) {
    assert_eq!(judge(&ours(plural), &json!({"spec": spec}), None, "jane"), Verdict::unchanged());
}

#[track_caller]
fn refused(plural: &str, spec: &Value, because: &str) {
    said(&judge(&ours(plural), &json!({"spec": spec}), None, "jane"), 422, because);
}

#[track_caller]
fn said(verdict: &Verdict, want: u16, because: &str) {
    match verdict {
        Verdict::Denied { code, message } => {
            assert!(*code == want && message.contains(because), "{code}: {message}");
        }
        Verdict::Allowed { .. } => panic!("admitted"),
    }
}

#[test]
fn a_target_is_this_cluster_or_names_a_kubeconfig() {
    accepted("targets", &json!({"self": true}));
    accepted("targets", &json!({"kubeconfigSecret": {"name": "c2", "key": "config", "context": "c2"}}));
    accepted("clustertargets", &json!({"kubeconfigSecret": {"namespace": "ns", "name": "c2"}}));
    for plural in ["targets", "clustertargets"] {
        let both = json!({"self": true, "kubeconfigSecret": {"namespace": "ns", "name": "c2"}});
        for spec in [json!({}), json!({"self": false}), both] {
            refused(plural, &spec, "exactly one of");
        }
    }
}

#[test]
fn an_expression_that_does_not_compile_is_refused_with_its_field() {
    refused(
        "targets",
        &json!({"self": true, "excludedLabelsRegexp": "a("}),
        "spec.excludedLabelsRegexp: \"a(\"",
    );
    refused(
        "clustertargets",
        &json!({"self": true, "excludedLabelsRegexp": "["}),
        "spec.excludedLabelsRegexp",
    );
    accepted("targets", &json!({"self": true, "excludedLabelsRegexp": "^gpu|=x$"}));
}

#[test]
fn a_secret_reference_must_be_able_to_exist() {
    let secret = |secret: Value| json!({"kubeconfigSecret": secret});
    refused("targets", &secret(json!({"name": ""})), "spec.kubeconfigSecret.name");
    refused("targets", &secret(json!({"name": "No"})), "spec.kubeconfigSecret.name");
    refused("targets", &secret(json!({"name": "a", "key": "a/b"})), "spec.kubeconfigSecret.key");
    refused("targets", &secret(json!({"name": "a", "key": ""})), "spec.kubeconfigSecret.key");
    refused("targets", &secret(json!({"name": "a", "context": "c "})), "spec.kubeconfigSecret.context");
    refused("clustertargets", &secret(json!({"name": "a"})), "spec.kubeconfigSecret.namespace");
}

#[test]
fn a_number_of_targets_to_ask_must_be_one() {
    refused("targets", &json!({"self": true, "ask": "none"}), "spec.ask");
    refused("targets", &json!({"self": true, "order": 2000}), "spec.order: 2000");
    refused("clustertargets", &json!({"self": true, "weight": 1001}), "spec.weight: 1001");
    refused("targets", &json!({"self": true, "startDeadline": "soon"}), "spec.startDeadline: \"soon\"");
    accepted("targets", &json!({"self": true, "ask": "all"}));
}

#[test]
fn a_field_of_a_wrong_type_is_refused() {
    refused("targets", &json!({"self": "yes"}), "spec: ");
    refused("targets", &json!({"self": true, "labelRewriting": "Some"}), "Some");
}

#[test]
fn a_source_names_an_identity() {
    accepted("sources", &json!({"serviceAccountName": "c1"}));
    accepted("sources", &json!({"userName": "system:serviceaccount:a:b"}));
    accepted("clustersources", &json!({"serviceAccount": {"name": "c1", "namespace": "ns"}}));
    refused("sources", &json!({}), "`serviceAccountName`");
    refused("sources", &json!({"userName": " "}), "`userName`");
    refused("sources", &json!({"serviceAccountName": "Bad_Name"}), "spec.serviceAccountName");
    refused("clustersources", &json!({}), "`serviceAccount`");
    refused("clustersources", &json!({"serviceAccount": {"name": "c1"}}), "spec.serviceAccount.namespace");
}

#[test]
fn an_object_that_was_invalid_before_can_be_released_and_labelled() {
    let old = json!({"metadata": {"finalizers": ["x"]}, "spec": {}});
    let labelled = json!({"metadata": {"labels": {"a": "b"}}, "spec": {}});
    assert_eq!(judge(&ours("targets"), &labelled, Some(&old), "jane"), Verdict::unchanged());
    let released =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"self": false}});
    assert_eq!(judge(&ours("targets"), &released, Some(&old), "jane"), Verdict::unchanged());
    said(
        &judge(&ours("targets"), &json!({"spec": {"self": false}}), Some(&old), "jane"),
        422,
        "exactly one of",
    );
}

// Pods.

fn pods() -> Value {
    json!({"version": "v1", "resource": "pods"})
}

fn proxy() -> Value {
    let mut annotations = json!({"note": "1"});
    for key in super::RECORDS {
        annotations[key] = "1".into();
    }
    json!({"metadata": {"annotations": annotations, "labels": {keys::HAS_FINALIZER: "true"},
        "finalizers": [keys::DELEGATE_FINALIZER]}, "spec": {"schedulerName": keys::PROXY_SCHEDULER}})
}

#[test]
fn w29_a_record_on_a_proxy_pod_is_changed_by_nobody_else() {
    for key in super::RECORDS {
        let mut changed = proxy();
        changed["metadata"]["annotations"][key] = "2".into();
        said(&judge(&pods(), &changed, Some(&proxy()), "jane"), 403, key);
        changed["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
        said(&judge(&pods(), &changed, Some(&proxy()), "jane"), 403, key);
        let us = "system:serviceaccount:own:multicluster-proxy-scheduler";
        assert_eq!(judge(&pods(), &changed, Some(&proxy()), us), Verdict::unchanged());
        said(&judge(&pods(), &changed, Some(&proxy()), "system:serviceaccount:owner:a"), 403, key);
    }
}

#[test]
fn w29_the_label_by_which_proxy_pods_are_found_stays_with_the_finalizer() {
    let mut changed = proxy();
    changed["metadata"]["labels"] = json!({});
    said(&judge(&pods(), &changed, Some(&proxy()), "jane"), 403, keys::HAS_FINALIZER);
    changed["metadata"]["finalizers"] = json!([]);
    assert_eq!(judge(&pods(), &changed, Some(&proxy()), "jane"), Verdict::unchanged());
}

#[test]
fn anything_else_on_a_proxy_pod_may_change() {
    let mut changed = proxy();
    changed["metadata"]["annotations"]["note"] = "2".into();
    assert_eq!(judge(&pods(), &changed, Some(&proxy()), "jane"), Verdict::unchanged());
}

#[test]
fn w29_a_pod_that_was_not_elected_cannot_pretend_to_be_a_proxy_pod() {
    let manifest = json!({"metadata": {"annotations": {keys::SOURCE_POD_MANIFEST: "{}"}}, "spec": {}});
    said(&judge(&pods(), &manifest, None, "jane"), 403, keys::SOURCE_POD_MANIFEST);
    let scheduler = json!({"metadata": {}, "spec": {"schedulerName": keys::PROXY_SCHEDULER}});
    said(&judge(&pods(), &scheduler, None, "jane"), 403, "spec.schedulerName");
    let node = json!({"metadata": {}, "spec": {"nodeName": "admiralty-c2"}});
    said(&judge(&pods(), &node, None, "jane"), 403, "spec.nodeName");
    let elected = json!({"metadata": {"annotations": {keys::ELECTED_TARGET: "x"}}, "spec": {}});
    said(&judge(&pods(), &elected, None, "jane"), 403, keys::ELECTED_TARGET);
}

#[test]
fn an_ordinary_pod_and_a_proxy_pod_of_ours_are_admitted() {
    let pod = json!({"metadata": {"annotations": {keys::ELECT: ""}}, "spec": {"containers": []}});
    assert_eq!(judge(&pods(), &pod, None, "jane"), Verdict::unchanged());
    let text = json!({"apiVersion": "v", "request": {"uid": "u", "operation": "CREATE", "namespace": "shop",
        "userInfo": {"username": "jane"}, "object": pod}})
    .to_string();
    let review: Review<'_> = serde_json::from_str(&text).unwrap();
    let setting = Setting { key: &Key::new(&[1; 32]), own_namespace: "own", now: 0 };
    let Verdict::Allowed { patch, .. } = mutate(&review.request, &setting) else { panic!("refused") };
    let mut proxy = pod;
    let patch: json_patch::Patch = serde_json::from_value(patch.into()).unwrap();
    json_patch::patch(&mut proxy, &patch).unwrap();
    assert_eq!(judge(&pods(), &proxy, None, "jane"), Verdict::unchanged());
    said(&judge(&pods(), &proxy, None, "joe"), 403, keys::SOURCE_POD_MANIFEST);
}

#[test]
fn a_failover_policy_is_one_that_there_is() {
    let spec = json!({"self": true, "failover": "Move", "failoverGracePeriod": "90s", "fence": "Confirmed"});
    for plural in ["targets", "clustertargets"] {
        accepted(plural, &spec);
        refused(plural, &json!({"self": true, "failover": "Sometimes"}), "unknown variant");
        refused(plural, &json!({"self": true, "failoverGracePeriod": "soon"}), "spec.failoverGracePeriod");
    }
}

#[test]
fn the_failover_policy_of_a_pod_may_change_but_not_into_nonsense() {
    let pod = |policy: &str| json!({"metadata": {"annotations": {keys::FAILOVER: policy}}});
    let pods = json!({"group": "", "version": "v1", "resource": "pods"});
    let judge = |new: &str| judge(&pods, &pod(new), Some(&pod("Stay")), "jane");
    assert_eq!(judge("MoveOnce"), Verdict::unchanged());
    said(&judge("Never"), 422, "must be Stay, Move or MoveOnce");
}
