//! Which event moves a pod that a plugin rejected: the table of hints.

use super::*;
use crate::framework::{Cycle, PodChange};
use crate::snapshot::{Owner, OwnerKind};

fn node(mut spec: Value, labels: &Value, cpu: &str) -> Arc<NodeInfo> {
    let raw = json!({
        "metadata": {"name": "n", "labels": labels}, "spec": spec.take(),
        "status": {"allocatable": {"cpu": cpu, "pods": "9"}},
    });
    Arc::new(NodeInfo::parse(&raw).expect("a node"))
}

fn plain() -> Arc<NodeInfo> {
    node(json!({}), &json!({}), "4")
}

fn added(info: &Arc<NodeInfo>) -> Event {
    let change = NodeChange { added: true, ..NodeChange::default() };
    Event::Node { old: None, node: Arc::clone(info), change }
}

fn changed(old: &Arc<NodeInfo>, new: &Arc<NodeInfo>) -> Event {
    let mut snapshot = Snapshot::default();
    snapshot.set_node((**old).clone());
    let change = snapshot.set_node((**new).clone());
    Event::Node { old: Some(Arc::clone(old)), node: Arc::clone(new), change }
}

fn app(name: &str, labels: &Value, mut spec: Value) -> Arc<PodInfo> {
    let raw = json!({"metadata": {"name": name, "labels": labels}, "spec": spec.take()});
    let pod = PodInfo::parse(&raw).expect("a pod");
    Arc::new(pod)
}

fn placed(labels: &Value, spec: Value) -> Arc<PodInfo> {
    Arc::new(app("other", labels, spec).placed(&Arc::from("n")))
}

fn pod_changed(old: &Arc<PodInfo>, new: &Arc<PodInfo>) -> Event {
    let change = PodChange::between(old, new);
    Event::PodChanged { old: Arc::clone(old), pod: Arc::clone(new), change }
}

fn itself(old: &Arc<PodInfo>, new: &Arc<PodInfo>) -> Event {
    let change = PodChange::between(old, new);
    Event::Itself { old: Arc::clone(old), pod: Arc::clone(new), change }
}

/// Whether `event` moves `pod` if `plugin` rejected it.
#[track_caller]
fn check(plugin: &'static str, pod: &Arc<PodInfo>, event: &Event, want: bool) {
    let mut snapshot = Snapshot::default();
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}});
    snapshot.owners.set(Owner::parse(OwnerKind::Service, &service).expect("a service"));
    let cycle = Cycle { pod, snapshot: &snapshot };
    let got = Framework::builder().build().hint(event, cycle, &BTreeSet::from([plugin]));
    assert_eq!(got, want, "{plugin}: {event:?}");
}

fn tainted() -> Arc<NodeInfo> {
    node(json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}), &json!({}), "4")
}

#[test]
fn a_tainted_node_helps_when_it_becomes_one_that_is_tolerated() {
    let pod = with_spec("p", json!({}));
    check("TaintToleration", &pod, &added(&plain()), true);
    check("TaintToleration", &pod, &added(&tainted()), false);
    check("TaintToleration", &pod, &changed(&tainted(), &plain()), true);
    check("TaintToleration", &pod, &changed(&plain(), &tainted()), false);
    let other = node(json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}), &json!({}), "4");
    check("TaintToleration", &pod, &changed(&plain(), &other), false);
    check("TaintToleration", &pod, &changed(&plain(), &node(json!({}), &json!({}), "8")), false);
    let tolerant = with_spec("p", json!({"tolerations": [{"key": "x", "operator": "Exists"}]}));
    check("TaintToleration", &tolerant, &itself(&pod, &tolerant), true);
    check("TaintToleration", &pod, &Event::PodGone(placed(&json!({}), json!({}))), false);
}

#[test]
fn a_cordoned_node_helps_when_it_is_opened() {
    let pod = with_spec("p", json!({}));
    let cordoned = node(json!({"unschedulable": true}), &json!({}), "4");
    check("NodeUnschedulable", &pod, &added(&plain()), true);
    check("NodeUnschedulable", &pod, &added(&cordoned), false);
    check("NodeUnschedulable", &pod, &changed(&cordoned, &plain()), true);
    check("NodeUnschedulable", &pod, &changed(&plain(), &tainted()), false);
    let tolerant = with_spec(
        "p",
        json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}),
    );
    check("NodeUnschedulable", &tolerant, &itself(&pod, &tolerant), true);
    let tolerant_of_others = with_spec("p", json!({"tolerations": [{"key": "x", "operator": "Exists"}]}));
    check("NodeUnschedulable", &tolerant_of_others, &itself(&pod, &tolerant_of_others), false);
}

#[test]
fn a_node_by_name_helps_only_when_it_appears() {
    let pod = with_spec("p", json!({}));
    check("NodeName", &pod, &added(&plain()), true);
    check("NodeName", &pod, &changed(&tainted(), &plain()), false);
}

#[test]
fn a_node_helps_when_its_labels_become_those_that_are_wanted() {
    let pod = with_spec("p", json!({"nodeSelector": {"disk": "ssd"}}));
    let ssd = node(json!({}), &json!({"disk": "ssd"}), "4");
    let more = node(json!({}), &json!({"disk": "ssd", "rack": "1"}), "4");
    check("NodeAffinity", &pod, &added(&ssd), true);
    check("NodeAffinity", &pod, &added(&plain()), false);
    check("NodeAffinity", &pod, &changed(&plain(), &ssd), true);
    check("NodeAffinity", &pod, &changed(&ssd, &more), false);
    check("NodeAffinity", &pod, &changed(&ssd, &plain()), false);
}

#[test]
fn a_port_is_free_again_when_the_pod_that_had_it_is_gone() {
    let port = |number: u32| json!({"containers": [{"ports": [{"hostPort": number}]}]});
    let pod = with_spec("p", port(80));
    check("NodePorts", &pod, &Event::PodGone(placed(&json!({}), port(80))), true);
    check("NodePorts", &pod, &Event::PodGone(placed(&json!({}), port(81))), false);
    check("NodePorts", &pod, &Event::PodGone(placed(&json!({}), json!({}))), false);
    check("NodePorts", &pod, &added(&plain()), true);
    check("NodePorts", &pod, &changed(&tainted(), &plain()), false);
}

#[test]
fn room_comes_from_pods_that_leave_or_shrink_and_from_nodes_that_are_large_enough_and_grow() {
    let pod = with_spec("p", cpu("4"));
    let sized = |cpu| node(json!({}), &json!({}), cpu);
    check("NodeResourcesFit", &pod, &Event::PodGone(placed(&json!({}), json!({}))), true);
    check("NodeResourcesFit", &pod, &Event::PodPlaced(placed(&json!({}), json!({}))), false);
    check("NodeResourcesFit", &pod, &added(&sized("4")), true);
    check("NodeResourcesFit", &pod, &added(&sized("3")), false);
    check("NodeResourcesFit", &pod, &changed(&sized("2"), &sized("3")), false);
    check("NodeResourcesFit", &pod, &changed(&sized("4"), &sized("5")), true);
    check("NodeResourcesFit", &pod, &changed(&sized("5"), &sized("4")), false);
    let with = |cpu: &str| placed(&json!({}), self::cpu(cpu));
    check("NodeResourcesFit", &pod, &pod_changed(&with("2"), &with("1")), true);
    check("NodeResourcesFit", &pod, &pod_changed(&with("1"), &with("2")), false);
    let memory = |amount: &str| {
        placed(&json!({}), json!({"containers": [{"resources": {"requests": {"memory": amount}}}]}))
    };
    check("NodeResourcesFit", &pod, &pod_changed(&memory("2Gi"), &memory("1Gi")), false);
    check("NodeResourcesFit", &with_spec("p", cpu("1")), &itself(&pod, &with_spec("p", cpu("1"))), true);
    check("NodeResourcesFit", &with_spec("p", cpu("5")), &itself(&pod, &with_spec("p", cpu("5"))), false);
}

fn spread(policy: &str) -> Value {
    json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": policy,
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]})
}

#[test]
fn spreading_changes_with_pods_that_are_counted() {
    let web = json!({"app": "web"});
    let db = json!({"app": "db"});
    let pod = app("p", &web, spread("Ignore"));
    let (counted, other) = (placed(&web, json!({})), placed(&db, json!({})));
    check("PodTopologySpread", &pod, &Event::PodPlaced(Arc::clone(&counted)), true);
    check("PodTopologySpread", &pod, &Event::PodGone(Arc::clone(&counted)), true);
    check("PodTopologySpread", &pod, &Event::PodPlaced(Arc::clone(&other)), false);
    check("PodTopologySpread", &pod, &Event::PodGone(Arc::clone(&other)), false);
    check("PodTopologySpread", &pod, &pod_changed(&counted, &other), true);
    check("PodTopologySpread", &pod, &pod_changed(&other, &placed(&json!({"app": "api"}), json!({}))), false);
    let elsewhere = PodInfo { namespace: Arc::from("elsewhere"), ..(*counted).clone() };
    check("PodTopologySpread", &pod, &Event::PodGone(Arc::new(elsewhere)), false);
    check("PodTopologySpread", &pod, &itself(&pod, &app("p", &db, spread("Ignore"))), true);
}

#[test]
fn spreading_changes_with_nodes_that_have_all_keys() {
    let pod = app("p", &json!({"app": "web"}), spread("Ignore"));
    let zone = |zone: &str| node(json!({}), &json!({"zone": zone}), "4");
    check("PodTopologySpread", &pod, &added(&zone("a")), true);
    check("PodTopologySpread", &pod, &added(&plain()), false);
    check("PodTopologySpread", &pod, &Event::NodeGone(zone("a")), true);
    check("PodTopologySpread", &pod, &Event::NodeGone(plain()), false);
    check("PodTopologySpread", &pod, &changed(&zone("a"), &zone("b")), true);
    check("PodTopologySpread", &pod, &changed(&zone("a"), &plain()), true);
    check("PodTopologySpread", &pod, &changed(&plain(), &tainted()), false);
    let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    check("PodTopologySpread", &pod, &changed(&zone("a"), &node(taint, &json!({"zone": "a"}), "4")), true);
    check(
        "PodTopologySpread",
        &pod,
        &changed(&zone("a"), &node(json!({}), &json!({"zone": "a"}), "8")),
        false,
    );
}

#[test]
fn a_new_toleration_changes_spreading_only_where_taints_are_honoured() {
    let web = json!({"app": "web"});
    let tolerant = |policy: &str| {
        let mut spec = spread(policy);
        spec["tolerations"] = json!([{"operator": "Exists"}]);
        app("p", &web, spec)
    };
    let before = |policy| app("p", &web, spread(policy));
    check("PodTopologySpread", &tolerant("Honor"), &itself(&before("Honor"), &tolerant("Honor")), true);
    check("PodTopologySpread", &tolerant("Ignore"), &itself(&before("Ignore"), &tolerant("Ignore")), false);
}

fn near(kind: &str) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}},
    }]}}})
}

#[test]
fn company_comes_with_pods_that_are_wanted() {
    let (web, db) = (json!({"app": "web"}), json!({"app": "db"}));
    let pod = app("p", &json!({}), near("podAffinity"));
    let (wanted, other) = (placed(&web, json!({})), placed(&db, json!({})));
    check("InterPodAffinity", &pod, &Event::PodPlaced(Arc::clone(&wanted)), true);
    check("InterPodAffinity", &pod, &Event::PodPlaced(Arc::clone(&other)), false);
    check("InterPodAffinity", &pod, &Event::PodGone(Arc::clone(&wanted)), false);
    check("InterPodAffinity", &pod, &pod_changed(&other, &wanted), true);
    check("InterPodAffinity", &pod, &pod_changed(&wanted, &other), false);
    check("InterPodAffinity", &pod, &itself(&pod, &app("p", &web, near("podAffinity"))), true);
}

#[test]
fn distance_comes_with_pods_that_leave() {
    let (web, db) = (json!({"app": "web"}), json!({"app": "db"}));
    let pod = app("p", &web, near("podAntiAffinity"));
    let (shunned, other) = (placed(&web, json!({})), placed(&db, json!({})));
    check("InterPodAffinity", &pod, &Event::PodGone(Arc::clone(&shunned)), true);
    check("InterPodAffinity", &pod, &Event::PodGone(Arc::clone(&other)), false);
    check("InterPodAffinity", &pod, &Event::PodPlaced(Arc::clone(&shunned)), false);
    check("InterPodAffinity", &pod, &pod_changed(&shunned, &other), true);
    let shunning = placed(&db, near("podAntiAffinity"));
    let innocent = app("p", &web, json!({}));
    check("InterPodAffinity", &innocent, &Event::PodGone(shunning), true);
}

#[test]
fn company_and_distance_change_with_the_topology_of_nodes() {
    let zone = |zone: &str| node(json!({}), &json!({"zone": zone}), "4");
    let wants = app("p", &json!({}), near("podAffinity"));
    check("InterPodAffinity", &wants, &added(&zone("a")), true);
    check("InterPodAffinity", &wants, &added(&plain()), false);
    check("InterPodAffinity", &wants, &changed(&plain(), &zone("a")), true);
    check("InterPodAffinity", &wants, &changed(&zone("a"), &zone("b")), true);
    check("InterPodAffinity", &wants, &changed(&zone("a"), &plain()), false);
    let shuns = app("p", &json!({}), near("podAntiAffinity"));
    check("InterPodAffinity", &shuns, &added(&plain()), true);
    check("InterPodAffinity", &shuns, &changed(&zone("a"), &plain()), true);
    check("InterPodAffinity", &shuns, &changed(&plain(), &zone("a")), false);
    check("InterPodAffinity", &shuns, &changed(&plain(), &tainted()), false);
}

#[test]
fn features_come_with_nodes_that_declare_others() {
    let declaring = |features: &[&str]| {
        let raw = json!({"metadata": {"name": "n"}, "status": {"declaredFeatures": features}});
        Arc::new(NodeInfo::parse(&raw).expect("a node"))
    };
    let pod = with_spec("p", json!({"hostNetwork": true, "hostUsers": false}));
    check("NodeDeclaredFeatures", &pod, &added(&declaring(&[])), true);
    check("NodeDeclaredFeatures", &pod, &changed(&declaring(&[]), &declaring(&["x"])), true);
    check("NodeDeclaredFeatures", &pod, &changed(&plain(), &tainted()), false);
}

#[test]
fn without_any_rejection_there_were_no_nodes() {
    let (pod, snapshot) = (with_spec("p", json!({})), Snapshot::default());
    let framework = Framework::builder().build();
    let hint =
        |event: &Event| framework.hint(event, Cycle { pod: &pod, snapshot: &snapshot }, &BTreeSet::new());
    assert!(hint(&added(&tainted())));
    assert!(!hint(&Event::PodGone(placed(&json!({}), json!({})))));
}
