//! One rule per test: what a delegate keeps, loses and gains.

use super::{Destination, Origin, chaperon, map_account};
use crate::claims::Mapping;
use crate::keys;
use crate::raw::{Pod, PodChaperon};
use crate::v1alpha1::LabelRewriting;
use serde_json::{Value, json};

const ORIGIN: Origin<'_> = Origin { cluster_name: "", cluster_uid: "source-uid" };
const DESTINATION: Destination<'_> = Destination {
    cluster_uid: "target-uid",
    virtual_node: "admiralty-default-c2",
    labels: LabelRewriting::Rewrite,
};

fn proxy(manifest: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {
        "name": "web-0", "namespace": "shop", "uid": "pod-uid",
        "annotations": {keys::SOURCE_POD_MANIFEST: manifest.to_string()},
    }}))
    .unwrap()
}

fn build(metadata: &Value, spec: &Value) -> PodChaperon {
    chaperon(&proxy(&json!({"metadata": metadata, "spec": spec})), ORIGIN, DESTINATION).unwrap()
}

#[track_caller]
fn check(spec: &Value, want: &Value) {
    let mut got = build(&json!({}), spec).spec;
    got.as_object_mut().unwrap().remove("schedulerName");
    assert_eq!(&got, want);
}

#[test]
fn case_002_fields_that_nobody_knows_reach_the_delegate() {
    let spec = json!({
        "initContainers": [{"name": "s", "restartPolicy": "Always", "resizePolicy": [{"resourceName": "cpu"}]}],
        "containers": [{"name": "c"}],
        "futureField": {"x": 1}, "hostUsers": false, "resourceClaims": [{"name": "gpu"}],
    });
    check(&spec, &spec);
}

#[test]
fn w31_case_009_what_admission_filled_in_is_left_to_the_target() {
    check(
        &json!({"priority": 0, "priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority",
        "overhead": {"cpu": "1"}, "nodeName": "n", "enableServiceLinks": true,
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        ]}),
        &json!({"priorityClassName": "high", "enableServiceLinks": true, "tolerations": [
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        ]}),
    );
}

#[test]
fn case_010_gates_that_were_lifted_in_the_source_do_not_gate_the_delegate() {
    check(
        &json!({"schedulingGates": [{"name": "example.com/later"}], "hostname": "a"}),
        &json!({"hostname": "a"}),
    );
}

#[test]
fn readiness_gates_are_judged_in_the_source() {
    check(&json!({"readinessGates": [{"conditionType": "example.com/ready"}]}), &json!({}));
}

#[test]
fn every_mount_of_the_source_token_goes() {
    let mount =
        json!({"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
    let own = json!({"name": "data", "mountPath": "/data"});
    check(
        &json!({
            "serviceAccountName": "app",
            "initContainers": [{"name": "i", "volumeMounts": [mount]}],
            "containers": [{"name": "c", "volumeMounts": [own, mount]}],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "kube-api-access-x", "projected": {}}],
        }),
        &json!({
            "serviceAccountName": "app",
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "c", "volumeMounts": [own]}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }),
    );
}

#[test]
fn a_volume_that_is_mounted_elsewhere_as_well_stays() {
    let spec = json!({
        "containers": [{"name": "c", "volumeMounts": [{"name": "t", "mountPath": "/t"}]},
            {"name": "d", "volumeMounts": [{"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
        "volumes": [{"name": "t", "projected": {}}],
    });
    assert_eq!(build(&json!({}), &spec).spec["volumes"], spec["volumes"]);
}

#[test]
fn the_delegate_belongs_to_the_candidate_scheduler() {
    assert_eq!(
        build(&json!({}), &json!({"schedulerName": "own"})).spec["schedulerName"],
        keys::CANDIDATE_SCHEDULER
    );
}

#[test]
fn without_reservation_the_pod_keeps_its_scheduler() {
    let metadata = json!({"annotations": {keys::NO_RESERVATION: ""}});
    assert_eq!(build(&metadata, &json!({"schedulerName": "own"})).spec["schedulerName"], "own");
}

#[test]
fn constraints_used_for_virtual_nodes_do_not_reach_real_ones() {
    let metadata = json!({"annotations": {keys::USE_CONSTRAINTS_FROM_SPEC: ""}});
    let spec = json!({"nodeSelector": {"a": "b"}, "affinity": {}, "tolerations": [], "topologySpreadConstraints": []});
    let built = build(&metadata, &spec).spec;
    assert_eq!(built, json!({"schedulerName": keys::CANDIDATE_SCHEDULER}));
}

#[test]
fn selectors_of_the_pod_itself_follow_its_labels() {
    let selector = |prefix: &str| {
        json!({"matchLabels": {format!("{prefix}app"): "web"},
            "matchExpressions": [{"key": format!("{prefix}tier"), "operator": "In", "values": ["a"]}]})
    };
    let spec = |prefix: &str| {
        json!({
            "affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "labelSelector": selector(prefix)}],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "h", "labelSelector": selector(prefix)}}],
            }},
            "topologySpreadConstraints": [{"topologyKey": "z", "labelSelector": selector(prefix),
                "matchLabelKeys": [format!("{prefix}pod-template-hash")]}],
        })
    };
    check(&spec(""), &spec(keys::PREFIX));
}

#[test]
fn case_109_a_target_may_keep_all_labels_for_systems_of_its_own() {
    let labels =
        json!({"app": "web", "kueue.x-k8s.io/queue-name": "q", "training.kubeflow.org/replica-index": "0"});
    let manifest = json!({"metadata": {"labels": labels}, "spec": {}});
    let keep = Destination { labels: LabelRewriting::Keep, ..DESTINATION };
    let built = chaperon(&proxy(&manifest), ORIGIN, keep).unwrap();
    for (key, value) in labels.as_object().unwrap() {
        assert_eq!(built.label(key), value.as_str(), "{key}");
    }
}

#[test]
fn case_080_two_keys_with_one_name_stay_two_where_labels_are_kept_and_have_one_winner_elsewhere() {
    let manifest = json!({"metadata": {"labels": {"app": "x", "example.com/app": "y"}}, "spec": {}});
    let keep = Destination { labels: LabelRewriting::Keep, ..DESTINATION };
    let built = chaperon(&proxy(&manifest), ORIGIN, keep).unwrap();
    assert_eq!((built.label("app"), built.label("example.com/app")), (Some("x"), Some("y")));
    let rewritten = chaperon(&proxy(&manifest), ORIGIN, DESTINATION).unwrap();
    assert_eq!(rewritten.label("multicluster.admiralty.io/app"), Some("x"));
}

#[test]
fn a_chaperon_names_its_parent_and_never_an_empty_cluster() {
    let built =
        build(&json!({"labels": {"app": "web"}, "annotations": {"note": "1", keys::ELECT: ""}}), &json!({}));
    assert_eq!(built.parent(), ("shop", "web-0"));
    assert_eq!(built.parent_uid(), "pod-uid");
    assert_eq!(built.label(keys::PARENT_CLUSTER_NAME), Some("source-uid"));
    assert_eq!(built.label(keys::TARGET_UID), Some("target-uid"));
    assert_eq!(built.label("multicluster.admiralty.io/app"), Some("web"));
    assert_eq!((built.annotation("note"), built.annotation(keys::ELECT)), (Some("1"), None));
    assert!(!built.is_allowed() && built.metadata.finalizers.is_none());
}

#[test]
fn replicas_are_of_one_class_and_others_are_not() {
    let class = |metadata: &Value, spec: &Value| {
        build(metadata, spec).annotation(keys::SPEC_HASH).unwrap().to_owned()
    };
    let first =
        class(&json!({"labels": {"statefulset.kubernetes.io/pod-name": "a-0"}}), &json!({"hostname": "a-0"}));
    let second =
        class(&json!({"labels": {"statefulset.kubernetes.io/pod-name": "a-1"}}), &json!({"hostname": "a-1"}));
    assert_eq!(first, second);
    assert_ne!(first, class(&json!({}), &json!({"hostname": "a-0", "hostNetwork": true})));
}

#[test]
fn a_manifest_in_yaml_is_read_as_well() {
    let mut pod = proxy(&json!({}));
    let yaml = "metadata:\n  creationTimestamp: null\nspec:\n  containers:\n  - name: c\nstatus: {}\n";
    pod.metadata.annotations = Some([(keys::SOURCE_POD_MANIFEST.to_owned(), yaml.to_owned())].into());
    assert_eq!(chaperon(&pod, ORIGIN, DESTINATION).unwrap().spec["containers"][0]["name"], "c");
}

#[test]
fn a_broken_manifest_is_an_error_that_names_the_annotation() {
    let error = chaperon(&proxy(&json!([])), ORIGIN, DESTINATION).unwrap_err();
    assert!(error.to_string().contains("sourcepod-manifest"), "{error}");
}

#[test]
fn case_076_tokens_of_other_projected_volumes_go_from_containers_of_every_kind() {
    let mounts =
        || json!([{"name": "vault", "mountPath": "/vault"}, {"name": "mixed", "mountPath": "/mixed"}]);
    let token = json!({"serviceAccountToken": {"path": "token", "audience": "vault"}});
    let spec = json!({
        "initContainers": [{"name": "i", "volumeMounts": mounts()}, {"name": "j", "volumeMounts": mounts()}],
        "containers": [{"name": "c", "volumeMounts": mounts()}],
        "ephemeralContainers": [{"name": "e", "volumeMounts": mounts()}],
        "volumes": [{"name": "vault", "projected": {"sources": [token]}},
            {"name": "mixed", "projected": {"sources": [token, {"configMap": {"name": "m"}}]}}],
    });
    let left = json!([{"name": "mixed", "mountPath": "/mixed"}]);
    check(
        &spec,
        &json!({
            "initContainers": [{"name": "i", "volumeMounts": left}, {"name": "j", "volumeMounts": left}],
            "containers": [{"name": "c", "volumeMounts": left}],
            "ephemeralContainers": [{"name": "e", "volumeMounts": left}],
            "volumes": [{"name": "mixed", "projected": {"sources": [{"configMap": {"name": "m"}}]}}],
        }),
    );
    let kept = build(&json!({"annotations": {keys::IDENTITY: keys::IDENTITY_TARGET}}), &spec);
    assert_eq!(kept.spec["volumes"], spec["volumes"], "the user wants tokens of the target");
}

#[test]
fn case_076_an_account_may_have_another_name_in_a_target() {
    let text = "app=app-of-target,default=guest";
    let accounts =
        Mapping::new(&[(keys::SERVICE_ACCOUNTS.to_owned(), text.to_owned())].into(), keys::SERVICE_ACCOUNTS);
    let mapped = |spec: Value| {
        let mut spec = spec;
        map_account(&mut spec, &accounts);
        spec
    };
    let both = json!({"serviceAccountName": "app", "serviceAccount": "app"});
    assert_eq!(
        mapped(both),
        json!({"serviceAccountName": "app-of-target", "serviceAccount": "app-of-target"})
    );
    assert_eq!(mapped(json!({})), json!({"serviceAccountName": "guest"}));
    assert_eq!(mapped(json!({"serviceAccountName": "other"})), json!({"serviceAccountName": "other"}));
}
