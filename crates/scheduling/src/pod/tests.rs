use serde_json::{Value, json};

use super::*;
use crate::resources::{Kind, Resources};

fn parse(mut spec: Value) -> PodInfo {
    PodInfo::parse(&json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec.take()})).expect("a pod")
}

/// `cpu` in milli, `memory` in bytes.
#[track_caller]
fn check_requests(pod: &Value, milli_cpu: i64, memory: i64) {
    let pod = PodInfo::parse(pod).expect("a pod");
    let requests = pod.spec.requests();
    assert_eq!((requests.milli_cpu, requests.memory), (milli_cpu, memory));
}

fn container(cpu: &str) -> Value {
    json!({"name": cpu, "resources": {"requests": {"cpu": cpu}}})
}

fn sidecar(cpu: &str) -> Value {
    json!({"name": cpu, "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}})
}

#[test]
fn containers_are_summed_before_they_are_rounded() {
    check_requests(&json!({"spec": {"containers": [container("0.1m"), container("0.2m")]}}), 1, 0);
}

#[test]
fn the_largest_init_step_counts_if_it_is_more_than_the_containers() {
    check_requests(
        &json!({"spec": {"initContainers": [container("2")], "containers": [container("1")]}}),
        2000,
        0,
    );
    check_requests(
        &json!({"spec": {"initContainers": [container("1")], "containers": [container("2")]}}),
        2000,
        0,
    );
}

#[test]
fn sidecars_count_beside_containers_and_beside_later_init_steps() {
    let spec = json!({"initContainers": [sidecar("1"), container("3"), sidecar("1")], "containers": [container("1")]});
    check_requests(&json!({"spec": spec}), 4000, 0);
    let spec = json!({"initContainers": [container("3"), sidecar("1")], "containers": [container("1")]});
    check_requests(&json!({"spec": spec}), 3000, 0);
    let spec = json!({"initContainers": [sidecar("1"), sidecar("1")], "containers": [container("1")]});
    check_requests(&json!({"spec": spec}), 3000, 0);
}

#[test]
fn pod_level_requests_replace_and_overhead_is_added() {
    let spec = json!({
        "containers": [container("1")], "overhead": {"cpu": "100m", "memory": "1Mi"},
        "resources": {"requests": {"cpu": "1700m"}},
    });
    check_requests(&json!({"spec": spec}), 1800, 1 << 20);
}

#[test]
fn a_pod_that_shrinks_counts_its_old_size_until_the_kubelet_says_otherwise() {
    let status = |amount: &str| json!({"containerStatuses": [{"name": "1", "resources": {"requests": {"cpu": amount}}}]});
    check_requests(&json!({"spec": {"containers": [container("1")]}, "status": status("3")}), 3000, 0);
    check_requests(&json!({"spec": {"containers": [container("1")]}, "status": status("500m")}), 1000, 0);
    let infeasible = json!({
        "containerStatuses": [{"name": "1", "allocatedResources": {"cpu": "500m"}}],
        "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
    });
    check_requests(&json!({"spec": {"containers": [container("1")]}, "status": infeasible}), 500, 0);
}

#[test]
fn scoring_assumes_a_little_where_nothing_is_asked() {
    let pod =
        parse(json!({"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": {"cpu": 0}}}]}));
    assert_eq!(pod.spec.requests.non_zero, (100, 400 << 20));
    assert_eq!(pod.spec.requests.total, Resources::default());
    let pod = parse(json!({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "1"}}}));
    assert_eq!(pod.spec.requests.non_zero, (1000, 200 << 20));
    let requests = &pod.spec.requests;
    assert_eq!((requests.to_score(Kind::Cpu), requests.to_score(Kind::Memory)), (100, 200 << 20));
}

#[test]
fn pods_of_one_template_are_one_class() {
    let spec = json!({"containers": [container("1")], "nodeSelector": {"a": "b"}});
    let pod = |name: &str| json!({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec});
    let (one, two) =
        (PodInfo::parse(&pod("one")).expect("a pod"), PodInfo::parse(&pod("two")).expect("a pod"));
    assert_eq!(one.spec.class(), two.spec.class());
    assert_eq!(one.spec, two.spec);
    assert_ne!(one.spec.class(), parse(spec).spec.class());
}

#[test]
fn host_ports_of_containers_and_sidecars_count() {
    let port = json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 2}]);
    let pod = parse(json!({
        "containers": [{"name": "a", "ports": port}],
        "initContainers": [
            {"name": "b", "ports": [{"hostPort": 81, "protocol": "UDP", "hostIP": "10.0.0.1"}]},
            {"name": "c", "restartPolicy": "Always", "ports": [{"hostPort": 82}]},
        ],
    }));
    let ports: Vec<_> = pod.spec.host_ports.iter().map(|port| port.port).collect();
    assert_eq!(ports, [82, 80]);
}

#[test]
fn what_is_not_supported_yet_is_said_in_words() {
    let pod = parse(json!({
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "tmp", "emptyDir": {}}],
        "resourceClaims": [{"name": "gpu"}],
    }));
    let refusal = pod.spec.claim_refusal();
    assert_eq!(refusal.as_deref(), Some("resource claims are not supported yet (claim \"gpu\")"));
    let refusals = pod.spec.storage_refusals();
    assert_eq!(refusals, ["PersistentVolumeClaims are not supported yet (volume \"data\")"]);
}

#[test]
fn an_error_names_the_field() {
    let error = |spec: Value| PodInfo::parse(&json!({"spec": spec})).expect_err("a bad pod").to_string();
    assert_eq!(
        error(json!({"containers": [{}, {"resources": {"requests": {"cpu": "1x"}}}]})),
        "spec.containers[1].resources.requests: the amount of \"cpu\" is wrong: quantities must match the regular \
         expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', not \"1x\""
    );
    assert_eq!(error(json!({"priority": "high"})), "spec.priority: must be an integer of at most 64 bits");
    assert_eq!(error(json!({"tolerations": {}})), "spec.tolerations: must be a list");
    assert_eq!(
        error(json!({"nodeSelector": {"a": 1}})),
        "spec.nodeSelector: the value of \"a\" must be a string"
    );
}

#[test]
fn a_toleration_matches_as_kubernetes_says() {
    let tolerates = |toleration: Value| {
        let pod = parse(json!({"tolerations": [toleration]}));
        pod.spec.tolerations.iter().any(|toleration| toleration.tolerates("k", "v", "NoSchedule"))
    };
    assert!(tolerates(json!({"operator": "Exists"})));
    assert!(tolerates(json!({"key": "k", "value": "v"})));
    assert!(tolerates(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"})));
    assert!(!tolerates(json!({"key": "k", "value": "w"})));
    assert!(!tolerates(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})));
    assert!(!tolerates(json!({"key": "k", "operator": "Gt", "value": "1"})));
    assert!(!tolerates(json!({"key": "other", "operator": "Exists"})));
}

#[test]
fn equal_pods_share_their_spec_and_what_nobody_uses_is_forgotten() {
    let pod = |name: &str, cpu: &str| {
        let raw = json!({"metadata": {"name": name}, "spec": {"containers": [container(cpu)]}});
        Arc::new(PodInfo::parse(&raw).expect("a pod"))
    };
    let mut classes = Classes::default();
    let (one, two) = (classes.share(&pod("a", "1")), classes.share(&pod("b", "1")));
    assert!(Arc::ptr_eq(&one.spec, &two.spec));
    assert_eq!(&*two.name, "b");
    assert!(!Arc::ptr_eq(&one.spec, &classes.share(&pod("c", "2")).spec));
    for number in 0..5000 {
        classes.share(&pod("d", &number.to_string()));
    }
    assert!(classes.len() <= 1024, "{}", classes.len());
    assert!(Arc::ptr_eq(&one.spec, &classes.share(&pod("e", "1")).spec));
}

#[test]
fn what_every_pod_takes_is_little() {
    assert!(size_of::<PodInfo>() <= 128, "{}", size_of::<PodInfo>());
    assert!(size_of::<PodSpec>() <= 240, "{}", size_of::<PodSpec>());
}
