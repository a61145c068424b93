//! The wire, reviewed instead of guessed: what we write is compared with `testdata`, byte for byte.
//!
//! `UPDATE_GOLDEN=1 cargo test -p api --test wire` accepts the present output.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use api::delegate::{Destination, Origin, chaperon};
use api::v1alpha1::LabelRewriting;
use api::{ClusterSource, ClusterSummary, ClusterTarget, Pod, PodChaperon, Source, Target, keys};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

#[track_caller]
fn check<T: Serialize + DeserializeOwned>(name: &str, object: &T) {
    let text = format!("{}\n", serde_json::to_string_pretty(object).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden(name), &text).unwrap();
    }
    let kept = std::fs::read_to_string(golden(name)).unwrap();
    assert_eq!(text, kept, "{name} has changed on the wire");
    let read: T = serde_json::from_str(&kept).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::from_str::<Value>(&kept).unwrap());
}

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

fn proxy() -> Pod {
    let manifest = json!({
        "metadata": {"name": "web-0", "labels": {"app": "web", "example.com/tier": "front"},
            "annotations": {"note": "kept", keys::ELECT: ""}},
        "spec": {
            "containers": [{"name": "web", "image": "nginx", "futureField": {"x": 1},
                "volumeMounts": [{"name": "kube-api-access-x", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}],
            "volumes": [{"name": "kube-api-access-x", "projected": {"sources": []}}],
            "nodeSelector": {"disk": "fast"}, "serviceAccountName": "web", "priority": 0,
        },
    });
    read(json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "3f1b5f0c-0000-4000-8000-000000000001",
            "labels": {"app": "web", keys::HAS_FINALIZER: "true"},
            "annotations": {keys::SOURCE_POD_MANIFEST: manifest.to_string()},
            "finalizers": [keys::DELEGATE_FINALIZER]},
        "spec": {"schedulerName": keys::PROXY_SCHEDULER, "terminationGracePeriodSeconds": 0,
            "nodeSelector": {keys::PROVIDER: keys::PROVIDER_VALUE}},
    }))
}

fn asked(labels: LabelRewriting) -> PodChaperon {
    let origin = Origin { cluster_name: "", cluster_uid: "source-cluster-uid" };
    let destination =
        Destination { cluster_uid: "target-cluster-uid", virtual_node: "admiralty-shop-c2", labels };
    chaperon(&proxy(), origin, destination).unwrap()
}

#[test]
fn a_proxy_pod() {
    check("proxy-pod.json", &proxy());
}

#[test]
fn a_chaperon_as_it_is_asked() {
    check("pod-chaperon-asked.json", &asked(LabelRewriting::Rewrite));
}

#[test]
fn a_chaperon_of_a_target_that_keeps_labels() {
    check("pod-chaperon-keep-labels.json", &asked(LabelRewriting::Keep));
}

#[test]
fn targets() {
    check(
        "target.json",
        &read::<Target>(json!({
            "metadata": {"name": "c2", "namespace": "shop"},
            "spec": {"kubeconfigSecret": {"name": "c2", "key": "config", "context": "c2"},
                "excludedLabelsRegexp": "^secret=", "labelRewriting": "Keep", "ask": "all"},
            "status": {"clusterUID": "target-cluster-uid", "virtualNode": "admiralty-shop-c2", "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ok", "message": "", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })),
    );
    check(
        "cluster-target.json",
        &read::<ClusterTarget>(json!({"metadata": {"name": "c2"},
            "spec": {"kubeconfigSecret": {"namespace": "system", "name": "c2"}}})),
    );
    check(
        "cluster-target-self.json",
        &read::<ClusterTarget>(json!({"metadata": {"name": "here"}, "spec": {"self": true}})),
    );
}

#[test]
fn sources() {
    check(
        "source.json",
        &read::<Source>(json!({"metadata": {"name": "c1", "namespace": "shop"},
            "spec": {"serviceAccountName": "c1", "userName": "c1@example.com"}})),
    );
    check(
        "cluster-source.json",
        &read::<ClusterSource>(json!({"metadata": {"name": "c1"},
            "spec": {"serviceAccount": {"name": "c1", "namespace": "system"}}})),
    );
}

#[test]
fn a_summary() {
    check(
        "cluster-summary.json",
        &read::<ClusterSummary>(json!({
            "metadata": {"name": keys::SINGLETON, "labels": {"topology.kubernetes.io/region": "eu"},
                "annotations": {keys::CLUSTER_UID: "target-cluster-uid", keys::PROTOCOL: keys::PROTOCOL_VERSION}},
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "free": {"cpu": "7500m", "memory": "32Gi", "pods": "109"},
        })),
    );
}

#[test]
fn a_summary_of_an_older_writer_is_read() {
    let summary: ClusterSummary =
        read(json!({"metadata": {"name": keys::SINGLETON}, "capacity": {"cpu": "1"}}));
    assert!(summary.free.is_empty() && summary.allocatable.is_empty());
}

#[test]
fn case_083_names_at_their_limits_are_legal_and_differ() {
    use api::names;
    let (namespace, target) = ("n".repeat(63), "t".repeat(253));
    let node = names::virtual_node(&namespace, &target);
    let other = names::virtual_node(&namespace, &format!("{}u", "t".repeat(252)));
    assert!(node.len() <= 253 && node != other, "{node}");
    let pods = ["p".repeat(253), format!("{}q", "p".repeat(252)), format!("{}-x", "g".repeat(58))];
    let mut seen = std::collections::BTreeSet::new();
    for (number, pod) in pods.iter().enumerate() {
        for node in [&node, &other] {
            let name = names::chaperon(pod, &format!("11111111-1111-1111-1111-{number:012}"), node);
            assert!(name.len() <= 63, "{name}");
            assert!(seen.insert(name.clone()), "{name} twice");
        }
    }
    for long in [&target, &namespace, &node] {
        assert!(names::label_value(long).len() <= 63);
    }
    let finalizer = names::legacy_finalizer(&namespace, &target);
    assert!(finalizer.split('/').nth(1).is_some_and(|name| name.len() <= 63), "{finalizer}");
}

#[test]
fn case_050_finalizers_are_named_for_what_outlives_every_process() {
    use api::keys;
    let all = [keys::DELEGATE_FINALIZER, keys::CHAPERON_FINALIZER, keys::FOLLOW, keys::TARGET_FINALIZER];
    let names: Vec<&str> = all.iter().filter_map(|finalizer| finalizer.strip_prefix(keys::PREFIX)).collect();
    assert_eq!(names, ["delegate", "chaperon", "follow", "target"]);
}

#[test]
fn case_052_an_uninstall_leaves_the_definitions_of_our_kinds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/crds/templates");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("kind: CustomResourceDefinition") {
            count += 1;
            assert!(text.contains("helm.sh/resource-policy: keep"), "{}", path.display());
        }
    }
    assert_eq!(count, api::crds::all().len());
}
