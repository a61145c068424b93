use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::framework::Framework;
use crate::quantity::Quantity;

fn node(name: &str, cpu: i64) -> NodeInfo {
    let status = json!({"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "5"}});
    NodeInfo::parse(&json!({"metadata": {"name": name}, "status": status})).expect("a node")
}

fn pod(name: &str, milli: i64, port: i64) -> Arc<PodInfo> {
    let requests = json!({"cpu": format!("{milli}m")});
    let container = json!({"name": "a", "resources": {"requests": requests}, "ports": [{"hostPort": port}]});
    let raw = json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}});
    Arc::new(PodInfo::parse(&raw).expect("a pod"))
}

fn at(name: &str) -> Arc<str> {
    Arc::from(name)
}

#[test]
fn a_pod_may_come_before_its_node_and_stay_after_it() {
    let mut snapshot = Snapshot::default();
    snapshot.assume(pod("p", 500, 0), &at("n1"));
    assert_eq!(snapshot.node_count(), 0);
    assert!(snapshot.set_node(node("n1", 1)).added);
    assert_eq!(snapshot.node("n1").expect("a node").requested.milli_cpu, 500);
    snapshot.remove_node("n1");
    assert!(snapshot.node("n1").is_none());
    assert!(snapshot.set_node(node("n1", 1)).added);
    assert_eq!(snapshot.node("n1").expect("a node").requested.milli_cpu, 500);
}

#[test]
fn a_pod_is_in_one_place() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("n1", 1));
    snapshot.set_node(node("n2", 1));
    snapshot.assume(pod("p", 500, 80), &at("n1"));
    snapshot.add_pod(Arc::new(pod("p", 700, 80).placed(&at("n2"))));
    assert_eq!(snapshot.node("n1").expect("a node").requested.milli_cpu, 0);
    assert_eq!(snapshot.node("n2").expect("a node").requested.milli_cpu, 700);
    assert_eq!(snapshot.place_of("p"), Some(&at("n2")));
}

#[test]
fn a_finished_pod_takes_no_room() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("n1", 1));
    snapshot.assume(pod("p", 500, 0), &at("n1"));
    let finished = PodInfo { finished: true, ..pod("p", 500, 0).placed(&at("n1")) };
    snapshot.add_pod(Arc::new(finished));
    assert_eq!(snapshot.node("n1").expect("a node").pod_count(), 0);
}

#[test]
fn what_is_new_about_a_node_is_named() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("n1", 1));
    assert!(snapshot.set_node(node("n1", 1)).is_empty());
    assert!(snapshot.set_node(node("n1", 2)).allocatable);
    assert!(snapshot.set_node(NodeInfo { unschedulable: true, ..node("n1", 2) }).taints);
}

#[test]
fn free_is_what_pods_leave_and_never_negative() {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("n1", 1));
    snapshot.assume(pod("p", 250, 0), &at("n1"));
    let free = snapshot.node("n1").expect("a node").free();
    assert_eq!(free.get("cpu").map(ToString::to_string).as_deref(), Some("750m"));
    assert_eq!(free.get("pods").map(ToString::to_string).as_deref(), Some("4"));
    snapshot.assume(pod("q", 2000, 0), &at("n1"));
    assert!(snapshot.node("n1").expect("a node").free().get("cpu").is_some_and(Quantity::is_zero));
}

#[derive(Debug, Clone)]
enum Step {
    Schedule { pod: usize, milli: i64, port: i64 },
    Remove { pod: usize },
    Resize { node: usize, cpu: i64 },
    Drop { node: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..30, 0i64..2500, 0i64..4).prop_map(|(pod, milli, port)| Step::Schedule { pod, milli, port }),
        2 => (0usize..30).prop_map(|pod| Step::Remove { pod }),
        1 => (0usize..4, 1i64..4).prop_map(|(node, cpu)| Step::Resize { node, cpu }),
        1 => (0usize..4).prop_map(|node| Step::Drop { node }),
    ]
}

/// What the snapshot would be if it were made anew from what is placed in it.
fn rebuilt(snapshot: &Snapshot) -> Vec<Node> {
    let mut fresh = Snapshot::default();
    for node in snapshot.nodes() {
        fresh.set_node(NodeInfo::clone(&node.info));
    }
    for (node, pod) in snapshot.pods() {
        fresh.assume(Arc::clone(pod), &node.info.name);
    }
    fresh.nodes().cloned().collect()
}

proptest! {
    #[test]
    fn no_node_is_ever_filled_beyond_what_it_has(steps in prop::collection::vec(step(), 1..150)) {
        let framework = Framework::builder().build();
        let mut snapshot = Snapshot::default();
        let mut shrunk = std::collections::HashSet::new();
        for step in steps {
            match step {
                Step::Schedule { pod: number, milli, port } => {
                    let pod = pod(&format!("p{number}"), milli, port);
                    snapshot.remove_pod(&pod.uid);
                    if let Ok(selection) = framework.evaluate(&pod, &snapshot) {
                        snapshot.assume(pod, &selection.node);
                    }
                }
                Step::Remove { pod } => { snapshot.remove_pod(&format!("p{pod}")); }
                Step::Resize { node: number, cpu } => {
                    let name = format!("n{number}");
                    let requested = snapshot.node(&name).map_or(0, |node| node.requested.milli_cpu);
                    // A node that shrinks under its pods, or comes back with them, may be over; no pod is added then.
                    if requested > cpu * 1000 || snapshot.node(&name).is_none() { shrunk.insert(name.clone()); }
                    snapshot.set_node(node(&name, cpu));
                }
                Step::Drop { node } => snapshot.remove_node(&format!("n{node}")),
            }
            for node in snapshot.nodes().filter(|node| !shrunk.contains(&*node.info.name)) {
                prop_assert!(node.requested.milli_cpu <= node.info.room.milli_cpu, "{:?}", node);
                prop_assert!(node.pod_count() <= node.info.max_pods);
            }
            for node in snapshot.nodes() {
                let ports: Vec<_> = node.pods().flat_map(|pod| &pod.spec.host_ports).collect();
                for (index, port) in ports.iter().enumerate() {
                    prop_assert!(!ports[..index].iter().any(|other| other.conflicts(port)));
                }
            }
        }
        for node in rebuilt(&snapshot) {
            let kept = snapshot.node(&node.info.name).expect("the same node");
            prop_assert_eq!(&kept.requested.milli_cpu, &node.requested.milli_cpu);
            prop_assert_eq!(kept.non_zero, node.non_zero);
            prop_assert_eq!(&kept.ports, &node.ports);
            prop_assert_eq!(kept.free(), node.free());
        }
    }
}
