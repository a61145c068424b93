use std::sync::Arc;

use serde_json::{Value, json};

use crate::framework::{Code, Framework, Refusal};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::Snapshot;

fn node(name: &str, spec: Value, labels: Value) -> NodeInfo {
    NodeInfo::parse(&json!({
        "metadata": {"name": name, "labels": labels}, "spec": spec,
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3"}},
    }))
    .expect("a node")
}

fn pod(name: &str, spec: Value) -> PodInfo {
    PodInfo::parse(&json!({"metadata": {"name": name}, "spec": spec})).expect("a pod")
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]})
}

fn one(info: NodeInfo, placed: &[PodInfo]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let name = Arc::clone(&info.name);
    snapshot.set_node(info);
    for pod in placed {
        snapshot.assume(Arc::new(pod.clone()), &name);
    }
    snapshot
}

/// What the first plugin that objects says about a pod on node `n1`.
#[track_caller]
fn check(spec: Value, snapshot: &Snapshot, want: Result<(), (&str, Code, &str)>) {
    let verdict = Framework::builder().build().evaluate_node(&pod("p", spec), snapshot, "n1");
    let got = verdict.as_ref().map_err(|Refusal { plugin, code, reasons }| (*plugin, *code, reasons.join("; ")));
    let got = got.as_ref().map(|()| ()).map_err(|(plugin, code, text)| (*plugin, *code, text.as_str()));
    assert_eq!(got, want);
}

const U: Code = Code::Unschedulable;
const UU: Code = Code::UnschedulableAndUnresolvable;

#[test]
fn a_pod_without_wishes_fits_an_empty_node() {
    check(json!({}), &one(node("n1", json!({}), json!({})), &[]), Ok(()));
}

#[test]
fn a_cordoned_node_says_so_before_its_taint_does() {
    let taint = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    let snapshot = one(node("n1", json!({"unschedulable": true, "taints": taint}), json!({})), &[]);
    check(json!({}), &snapshot, Err(("NodeUnschedulable", UU, "node(s) were unschedulable")));
    check(json!({"tolerations": [{"operator": "Exists"}]}), &snapshot, Ok(()));
}

#[test]
fn taints_that_forbid_must_be_tolerated() {
    let taints = |effect: &str| json!({"taints": [{"key": "k", "value": "v", "effect": effect}]});
    let refused = Err(("TaintToleration", UU, "node(s) had untolerated taint(s)"));
    check(json!({}), &one(node("n1", taints("NoSchedule"), json!({})), &[]), refused);
    check(json!({}), &one(node("n1", taints("NoExecute"), json!({})), &[]), refused);
    check(json!({}), &one(node("n1", taints("PreferNoSchedule"), json!({})), &[]), Ok(()));
    let tolerations = json!({"tolerations": [{"key": "k", "value": "v"}]});
    check(tolerations, &one(node("n1", taints("NoSchedule"), json!({})), &[]), Ok(()));
}

#[test]
fn the_node_selector_and_one_affinity_term_must_match() {
    let snapshot = one(node("n1", json!({}), json!({"zone": "a", "disk": "ssd"})), &[]);
    let refused = Err(("NodeAffinity", UU, "node(s) didn't match Pod's node affinity/selector"));
    let terms = |values: &[&str]| {
        let terms: Vec<_> = values
            .iter()
            .map(|value| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}))
            .collect();
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    };
    check(json!({"nodeSelector": {"disk": "ssd"}}), &snapshot, Ok(()));
    check(json!({"nodeSelector": {"disk": "hdd"}}), &snapshot, refused);
    check(json!({"affinity": terms(&["b", "a"])}), &snapshot, Ok(()));
    check(json!({"affinity": terms(&["b"])}), &snapshot, refused);
    check(json!({"affinity": terms(&[])}), &snapshot, refused);
    check(json!({"affinity": terms(&["a"]), "nodeSelector": {"disk": "hdd"}}), &snapshot, refused);
}

#[test]
fn host_ports_conflict_by_address_and_protocol() {
    let ports = |port: Value| json!({"containers": [{"name": "a", "ports": [port]}]});
    let used = pod("used", ports(json!({"hostPort": 80, "hostIP": "10.0.0.1"})));
    let snapshot = one(node("n1", json!({}), json!({})), &[used]);
    let refused = Err(("NodePorts", U, "node(s) didn't have free ports for the requested pod ports"));
    check(ports(json!({"hostPort": 80})), &snapshot, refused);
    check(ports(json!({"hostPort": 80, "hostIP": "10.0.0.1"})), &snapshot, refused);
    check(ports(json!({"hostPort": 80, "hostIP": "10.0.0.2"})), &snapshot, Ok(()));
    check(ports(json!({"hostPort": 80, "protocol": "UDP"})), &snapshot, Ok(()));
    check(ports(json!({"hostPort": 81})), &snapshot, Ok(()));
}

#[test]
fn every_shortage_is_named_and_one_beyond_the_node_is_final() {
    let snapshot = one(node("n1", json!({}), json!({})), &[pod("big", requests("3", "7Gi"))]);
    check(requests("1", "1Gi"), &snapshot, Ok(()));
    check(requests("2", "2Gi"), &snapshot, Err(("NodeResourcesFit", U, "Insufficient cpu; Insufficient memory")));
    check(requests("5", "0"), &snapshot, Err(("NodeResourcesFit", UU, "Insufficient cpu")));
    let gpu = json!({"containers": [{"name": "a", "resources": {"requests": {"example.com/gpu": "1"}}}]});
    check(gpu, &snapshot, Err(("NodeResourcesFit", UU, "Insufficient example.com/gpu")));
}

#[test]
fn a_node_takes_no_more_pods_than_it_says() {
    let placed = [pod("a", json!({})), pod("b", json!({})), pod("c", json!({}))];
    let snapshot = one(node("n1", json!({}), json!({})), &placed);
    check(json!({}), &snapshot, Err(("NodeResourcesFit", U, "Too many pods")));
}

#[test]
fn a_pod_with_a_claim_is_refused_in_words() {
    let spec = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]});
    let reason = "PersistentVolumeClaims are not supported yet (volume \"data\")";
    check(spec, &one(node("n1", json!({}), json!({})), &[]), Err(("Supported", UU, reason)));
}

/// Scores of `n1` and `n2`.
#[track_caller]
fn check_scores(plugins: &[&str], spec: Value, nodes: [(NodeInfo, Option<PodInfo>); 2], want: [i64; 2]) {
    let every: Vec<_> = Framework::builder().build().plugins().collect();
    let without: Vec<_> = every.into_iter().filter(|name| !plugins.contains(name)).collect();
    let framework = Framework::builder().without(&without).build();
    let mut snapshot = Snapshot::default();
    for (info, placed) in nodes {
        let name = Arc::clone(&info.name);
        snapshot.set_node(info);
        if let Some(placed) = placed {
            snapshot.assume(Arc::new(placed), &name);
        }
    }
    let selection = framework.evaluate(&pod("p", spec), &snapshot).expect("a node");
    let score = |name: &str| {
        selection.ranked.iter().find(|ranked| &*ranked.node == name).map(|ranked| ranked.score).expect("ranked")
    };
    assert_eq!([score("n1"), score("n2")], want);
}

fn plain(name: &str) -> NodeInfo {
    node(name, json!({}), json!({}))
}

#[test]
fn least_allocated_is_the_mean_free_share() {
    // n1: cpu (4000-3000)/4000 = 25, memory (8-4)/8 = 50; n2: cpu 75, memory 75.
    let nodes = [(plain("n1"), Some(pod("x", requests("2", "2Gi")))), (plain("n2"), None)];
    check_scores(&["NodeResourcesFit"], requests("1", "2Gi"), nodes, [37, 75]);
}

#[test]
fn balance_is_the_change_that_the_pod_brings() {
    // n1: shares (0.5, 0) become (0.5, 0.5): 50 + (50 + 100 - 75) / 2. n2: (0, 0) become (0, 0.5).
    let nodes = [(plain("n1"), Some(pod("x", requests("2", "0")))), (plain("n2"), None)];
    check_scores(&["NodeResourcesBalancedAllocation"], requests("0", "4Gi"), nodes, [87, 62]);
}

#[test]
fn preferred_nodes_and_soft_taints_are_scaled_and_weighted() {
    let soft = json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]});
    let nodes = [(node("n1", soft, json!({})), None), (plain("n2"), None)];
    check_scores(&["TaintToleration"], json!({}), nodes, [0, 300]);
    let term = |weight: i64, value: &str| {
        json!({"weight": weight, "preference": {"matchExpressions": [{"key": "z", "operator": "In", "values": [value]}]}})
    };
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(10, "a"), term(30, "b")]}});
    let nodes = [(node("n1", json!({}), json!({"z": "a"})), None), (node("n2", json!({}), json!({"z": "b"})), None)];
    check_scores(&["NodeAffinity"], json!({"affinity": affinity}), nodes, [66, 200]);
}
