use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::devices::DeviceClass;
use crate::framework::{Cache, Code, Cycle, Event, Framework, Refusal};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::Snapshot;

fn node(name: &str, mut spec: Value, mut labels: Value) -> NodeInfo {
    NodeInfo::parse(&json!({
        "metadata": {"name": name, "labels": labels.take()}, "spec": spec.take(),
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "3"}},
    }))
    .expect("a node")
}

fn pod(name: &str, mut spec: Value) -> PodInfo {
    PodInfo::parse(&json!({"metadata": {"name": name}, "spec": spec.take()})).expect("a pod")
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
    let text = verdict.as_ref().err().map(|refusal| refusal.reasons.join("; ")).unwrap_or_default();
    let got = verdict.map_err(|Refusal { plugin, code, .. }| (plugin, code, text.as_str()));
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
    check(
        requests("2", "2Gi"),
        &snapshot,
        Err(("NodeResourcesFit", U, "Insufficient cpu; Insufficient memory")),
    );
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
fn a_pod_with_a_resource_claim_is_refused_in_words() {
    let spec = json!({"resourceClaims": [{"name": "gpu"}]});
    let reason = "resource claims are not supported yet (claim \"gpu\")";
    check(spec, &one(node("n1", json!({}), json!({})), &[]), Err(("Supported", UU, reason)));
}

const DEVICES: &str = "node(s) have example.com/gpu only through dynamic resources (DeviceClass \"gpus\"), which are not supported yet";

fn device_class(resource: Option<&str>) -> DeviceClass {
    let raw = json!({"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": resource}});
    DeviceClass::parse(&raw).expect("a DeviceClass")
}

fn asking(resource: &str, amount: &str) -> Value {
    json!({"containers": [{"name": "a", "resources": {"requests": {resource: amount}}}]})
}

#[test]
fn what_a_device_class_stands_for_is_refused_in_words_where_the_node_does_not_count_it() {
    let mut snapshot = one(node("n1", json!({}), json!({})), &[]);
    let absent = Err(("NodeResourcesFit", UU, "Insufficient example.com/gpu"));
    check(asking("example.com/gpu", "1"), &snapshot, absent);
    snapshot.set_device_class(device_class(Some("example.com/gpu")));
    check(asking("example.com/gpu", "1"), &snapshot, Err(("Supported", UU, DEVICES)));
    check(asking("example.com/gpu", "0"), &snapshot, Ok(()));
    check(asking("cpu", "1"), &snapshot, Ok(()));
    let other = Err(("NodeResourcesFit", UU, "Insufficient example.com/nic"));
    check(asking("example.com/nic", "1"), &snapshot, other);
    let implicit = "deviceclass.resource.kubernetes.io/gpus";
    let reason = DEVICES.replace("example.com/gpu", implicit);
    check(asking(implicit, "1"), &snapshot, Err(("Supported", UU, &reason)));
    snapshot.remove_device_class("gpus");
    check(asking("example.com/gpu", "1"), &snapshot, absent);
}

#[test]
fn a_node_that_counts_a_resource_gives_it_whatever_class_stands_for_it() {
    let mut info = node("n1", json!({}), json!({}));
    info.room.scalars.insert("example.com/gpu", 1);
    let mut snapshot = one(info, &[]);
    snapshot.set_device_class(device_class(Some("example.com/gpu")));
    check(asking("example.com/gpu", "1"), &snapshot, Ok(()));
    check(
        asking("example.com/gpu", "2"),
        &snapshot,
        Err(("NodeResourcesFit", UU, "Insufficient example.com/gpu")),
    );
}

#[test]
fn what_was_kept_of_nodes_ends_when_a_device_class_comes_or_goes() {
    let mut info = node("n1", json!({}), json!({}));
    info.room.scalars.insert("example.com/gpu", 1);
    let mut snapshot = one(info, &[]);
    snapshot.set_node(NodeInfo { name: Arc::from("n2"), ..node("n2", json!({}), json!({})) });
    let (framework, mut cache) = (Framework::builder().build(), Cache::default());
    let pod = pod("p", asking("example.com/nic", "1"));
    let mut says = |snapshot: &Snapshot| {
        let answer = framework.schedule(&mut cache, &pod, snapshot);
        answer.map_err(|diagnosis| diagnosis.message().contains("dynamic resources")).err()
    };
    assert_eq!([says(&snapshot), says(&snapshot), says(&snapshot)], [Some(false); 3]);
    snapshot.set_device_class(device_class(Some("example.com/nic")));
    assert_eq!(says(&snapshot), Some(true));
    snapshot.set_device_class(device_class(None));
    assert_eq!(says(&snapshot), Some(false));
}

#[test]
fn a_pod_that_devices_would_help_is_tried_again_when_a_class_changes() {
    let snapshot = one(node("n1", json!({}), json!({})), &[]);
    let (with, without) = (device_class(Some("example.com/gpu")), device_class(None));
    let event = |old: Option<&DeviceClass>, new: Option<&DeviceClass>| Event::Devices {
        old: old.cloned(),
        new: new.cloned(),
    };
    let (pod, other) = (pod("p", asking("example.com/gpu", "1")), pod("q", asking("example.com/nic", "1")));
    let hint = |event: &Event, pod: &PodInfo, plugin: &'static str| {
        let cycle = Cycle { pod, snapshot: &snapshot };
        Framework::builder().build().hint(event, cycle, &BTreeSet::from([plugin]))
    };
    assert!(hint(&event(None, Some(&with)), &pod, "NodeResourcesFit"), "then the words are others");
    assert!(!hint(&event(None, Some(&with)), &other, "NodeResourcesFit"));
    assert!(!hint(&event(None, Some(&without)), &pod, "NodeResourcesFit"));
    assert!(hint(&event(Some(&with), Some(&without)), &pod, "Supported"));
    assert!(hint(&event(Some(&with), None), &pod, "Supported"));
    assert!(!hint(&event(Some(&with), None), &other, "Supported"));
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
        selection
            .ranked
            .iter()
            .find(|ranked| &*ranked.node == name)
            .map(|ranked| ranked.score)
            .expect("ranked")
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
    let term = |weight: i64, value: &str| json!({"weight": weight, "preference": {"matchExpressions": [{"key": "z", "operator": "In", "values": [value]}]}});
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(10, "a"), term(30, "b")]}});
    let nodes =
        [(node("n1", json!({}), json!({"z": "a"})), None), (node("n2", json!({}), json!({"z": "b"})), None)];
    check_scores(&["NodeAffinity"], json!({"affinity": affinity}), nodes, [66, 200]);
}

fn labelled(name: &str, labels: Value) -> NodeInfo {
    node(name, json!({}), labels)
}

fn app(name: &str, app: &str, mut spec: Value) -> PodInfo {
    let raw = json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": spec.take()});
    PodInfo::parse(&raw).expect("a pod")
}

/// Which nodes of three (zones a, a, b) can take a pod, and why the others cannot.
#[track_caller]
fn check_near(pod: &PodInfo, placed: &[(&str, PodInfo)], want: [Option<&str>; 3]) {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
        snapshot.set_node(labelled(name, json!({"zone": zone, "kubernetes.io/hostname": name})));
    }
    for (node, pod) in placed {
        snapshot.assume(Arc::new(pod.clone()), &Arc::from(*node));
    }
    let framework = Framework::builder().build();
    let got = ["n1", "n2", "n3"]
        .map(|node| framework.evaluate_node(pod, &snapshot, node).err().map(|refusal| refusal.message()));
    assert_eq!(got.each_ref().map(Option::as_deref), want);
}

fn near(kind: &str, key: &str, app: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

const AFFINITY: Option<&str> = Some("node(s) didn't match pod affinity rules");
const ANTI: Option<&str> = Some("node(s) didn't match pod anti-affinity rules");
const EXISTING: Option<&str> = Some("node(s) didn't satisfy existing pods anti-affinity rules");

#[test]
fn a_pod_goes_where_the_pods_are_that_it_wants() {
    let pod = app("p", "web", near("podAffinity", "zone", "db"));
    check_near(&pod, &[("n1", app("db", "db", json!({})))], [None, None, AFFINITY]);
    check_near(&pod, &[], [AFFINITY, AFFINITY, AFFINITY]);
}

#[test]
fn the_first_of_a_group_that_wants_itself_finds_a_place() {
    let pod = app("p", "web", near("podAffinity", "zone", "web"));
    check_near(&pod, &[], [None, None, None]);
    check_near(&pod, &[("n3", app("q", "web", json!({})))], [AFFINITY, AFFINITY, None]);
}

#[test]
fn a_pod_keeps_away_from_what_it_shuns_and_from_what_shuns_it() {
    let shunning = app("p", "web", near("podAntiAffinity", "kubernetes.io/hostname", "web"));
    check_near(&shunning, &[("n1", app("q", "web", json!({})))], [ANTI, None, None]);
    let shunned = app("p", "web", json!({}));
    let other = app("q", "db", near("podAntiAffinity", "zone", "web"));
    check_near(&shunned, &[("n1", other)], [EXISTING, EXISTING, None]);
}

#[test]
fn terms_are_about_the_own_namespace_unless_they_say_otherwise() {
    let mut elsewhere = app("q", "web", json!({}));
    elsewhere.namespace = Arc::from("elsewhere");
    let mut spec = near("podAntiAffinity", "kubernetes.io/hostname", "web");
    check_near(&app("p", "web", spec.clone()), &[("n1", elsewhere.clone())], [None, None, None]);
    let term = &mut spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0];
    term["namespaceSelector"] = json!({});
    check_near(&app("p", "web", spec), &[("n1", elsewhere)], [ANTI, None, None]);
}

fn spread(max_skew: i64, extra: &[(&str, Value)]) -> Value {
    let mut constraint = json!({
        "maxSkew": max_skew, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    for (key, value) in extra {
        constraint[*key] = value.clone();
    }
    json!({"topologySpreadConstraints": [constraint]})
}

const SKEW: Option<&str> = Some("node(s) didn't match pod topology spread constraints");

#[test]
fn no_zone_gets_ahead_by_more_than_the_skew() {
    let placed = [("n1", app("q", "web", json!({})))];
    check_near(&app("p", "web", spread(1, &[])), &placed, [SKEW, SKEW, None]);
    check_near(&app("p", "web", spread(2, &[])), &placed, [None, None, None]);
    check_near(&app("p", "other", spread(1, &[])), &placed, [None, None, None]);
}

#[test]
fn terminating_pods_do_not_count_in_a_spread() {
    let mut leaving = app("q", "web", json!({}));
    leaving.terminating = true;
    check_near(&app("p", "web", spread(1, &[])), &[("n1", leaving)], [None, None, None]);
}

#[test]
fn with_too_few_domains_the_least_is_none() {
    let placed = [("n1", app("q", "web", json!({}))), ("n3", app("r", "web", json!({})))];
    check_near(&app("p", "web", spread(1, &[("minDomains", json!(3))])), &placed, [SKEW, SKEW, SKEW]);
    check_near(&app("p", "web", spread(1, &[("minDomains", json!(2))])), &placed, [None, None, None]);
}

#[test]
fn nodes_that_the_pod_cannot_use_do_not_count_as_domains() {
    let mut spec = spread(1, &[]);
    spec["nodeSelector"] = json!({"zone": "a"});
    let placed = [("n1", app("q", "web", json!({})))];
    let selector = Some("node(s) didn't match Pod's node affinity/selector");
    check_near(&app("p", "web", spec.clone()), &placed, [None, None, selector]);
    spec["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    check_near(&app("p", "web", spec), &placed, [SKEW, SKEW, selector]);
}

#[test]
fn a_node_without_the_key_takes_no_pod_that_must_be_spread_by_it() {
    let missing = Some("node(s) didn't match pod topology spread constraints (missing required label)");
    let pod = app("p", "web", spread(1, &[("topologyKey", json!("rack"))]));
    check_near(&pod, &[], [missing, missing, missing]);
}

/// Scores of three nodes (zones a, a, b) by one plugin alone.
#[track_caller]
fn check_preference(plugin: &str, pod: &PodInfo, placed: &[(&str, PodInfo)], want: [i64; 3]) {
    let every: Vec<_> = Framework::builder().build().plugins().collect();
    let without: Vec<_> = every.into_iter().filter(|name| *name != plugin).collect();
    let framework = Framework::builder().without(&without).build();
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("n1", "a"), ("n2", "a"), ("n3", "b")] {
        snapshot.set_node(labelled(name, json!({"zone": zone, "kubernetes.io/hostname": name})));
    }
    for (node, pod) in placed {
        snapshot.assume(Arc::new(pod.clone()), &Arc::from(*node));
    }
    let ranked = framework.evaluate(pod, &snapshot).expect("a node").ranked;
    let score = |name: &str| ranked.iter().find(|ranked| &*ranked.node == name).map(|ranked| ranked.score);
    assert_eq!(["n1", "n2", "n3"].map(score), want.map(Some));
}

#[test]
fn a_preferred_spread_likes_the_emptier_zone() {
    let pod = app("p", "web", spread(1, &[("whenUnsatisfiable", json!("ScheduleAnyway"))]));
    let placed = [
        ("n1", app("a", "web", json!({}))),
        ("n1", app("b", "web", json!({}))),
        ("n3", app("c", "web", json!({}))),
    ];
    // Zone a: round(2 ln 4) = 3; zone b: round(ln 4) = 1. Scores 100 (3 + 1 - raw) / 3, twice.
    check_preference("PodTopologySpread", &pod, &placed, [66, 66, 200]);
}

#[test]
fn preferences_for_company_count_both_ways() {
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}});
    let prefer = |kind: &str, weight: i64, term: &Value| {
        let preferred = json!([{"weight": weight, "podAffinityTerm": term}]);
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}})
    };
    let pod = app("p", "web", prefer("podAffinity", 10, &term));
    check_preference("InterPodAffinity", &pod, &[("n1", app("q", "db", json!({})))], [200, 200, 0]);
    let pod = app("p", "web", prefer("podAntiAffinity", 10, &term));
    check_preference("InterPodAffinity", &pod, &[("n1", app("q", "db", json!({})))], [0, 0, 200]);
    let on_host =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}});
    let wanting = app("q", "db", prefer("podAffinity", 5, &on_host));
    check_preference("InterPodAffinity", &app("p", "web", json!({})), &[("n2", wanting)], [0, 200, 0]);
    let requiring = app("q", "db", near("podAffinity", "zone", "web"));
    check_preference("InterPodAffinity", &app("p", "web", json!({})), &[("n3", requiring)], [0, 0, 200]);
}

#[test]
fn a_kubelet_must_declare_what_the_pod_needs() {
    let refused = Err(("NodeDeclaredFeatures", UU, "node(s) didn't match Pod's required features"));
    let spec = json!({"hostNetwork": true, "hostUsers": false});
    check(spec.clone(), &one(plain("n1"), &[]), refused);
    let mut able = plain("n1");
    able.features.insert("UserNamespacesHostNetworkSupport".to_owned());
    check(spec, &one(able, &[]), Ok(()));
    let rules = json!({"containers": [{"restartPolicyRules": [{"action": "RestartAllContainers"}]}]});
    check(rules, &one(plain("n1"), &[]), refused);
    let options = json!({"containers": [{"volumeMounts": [{"bindMountOptions": ["noexec"]}]}]});
    check(options, &one(plain("n1"), &[]), refused);
    check(json!({"hostNetwork": true}), &one(plain("n1"), &[]), Ok(()));
}

#[test]
fn an_image_that_is_there_counts_by_its_size_and_the_share_of_nodes() {
    let with = |name: &str, image: &str, mib: i64| {
        let mut info = plain(name);
        info.images.insert(image.to_owned(), mib * 1024 * 1024);
        info
    };
    let spec = json!({"containers": [{"image": "web"}]});
    // n1: 1046 MiB on half of the nodes are 523; (523 - 23) / (1000 - 23).
    let nodes = [(with("n1", "web:latest", 1046), None), (with("n2", "other:1", 1046), None)];
    check_scores(&["ImageLocality"], spec.clone(), nodes, [51, 0]);
    let nodes = [(with("n1", "web:latest", 40), None), (plain("n2"), None)];
    check_scores(&["ImageLocality"], spec, nodes, [0, 0]);
    let registry = json!({"containers": [{"image": "registry:5000/web"}]});
    let nodes = [(with("n1", "registry:5000/web:latest", 3000), None), (plain("n2"), None)];
    check_scores(&["ImageLocality"], registry, nodes, [100, 0]);
}
