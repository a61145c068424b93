//! Constraints between pods, with virtual nodes as the nodes.

use super::desk::{Desk, id, node, pod};
use crate::machine::{Event, Place, PodSeen};
use api::keys;
use scheduling::PodInfo;
use serde_json::{Value, json};
use std::sync::Arc;

/// A pod with a label that wants something of other pods.
fn web(name: &str, constraint: &Value) -> PodSeen {
    let mut seen = pod(name, constraint);
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
    for (key, value) in constraint.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let labels = json!({"app": "web"});
    let value =
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "labels": labels}, "spec": spec});
    seen.info = Arc::new(PodInfo::parse(&value).unwrap());
    if let Place::Unbound(wish) = &mut seen.place {
        Arc::make_mut(wish).info = Arc::clone(&seen.info);
    }
    seen
}

fn apart() -> Value {
    let term = json!({"topologyKey": "name", "labelSelector": {"matchLabels": {"app": "web"}}});
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

fn spread() -> Value {
    json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "name", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}]})
}

fn settle(desk: &mut Desk, pod: &str, target: &str) {
    desk.made(pod, target).reserves(pod, target).bound(pod).said();
}

#[test]
fn pods_that_keep_apart_go_to_different_clusters() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(web("a", &apart())).check(&["create a c1"]);
    settle(&mut desk, "a", "c1");
    desk.applied(web("b", &apart())).check(&["create b c2"]);
    settle(&mut desk, "b", "c2");
    desk.applied(web("c", &apart()));
    assert!(desk.said().iter().all(|line| line.starts_with("explain c: 0/2 virtual nodes are available")));
    desk.told("c").see(Event::PodDeleted(id("a")));
    assert!(desk.said().contains(&"create c c1".to_owned()));
}

#[test]
fn what_was_asked_at_once_is_judged_again_when_it_is_elected() {
    let mut desk = Desk::new(&["c1", "c2"]);
    for name in ["a", "b"] {
        desk.applied(web(name, &spread()));
    }
    desk.check(&["create a c1", "create b c1"]);
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").said();
    desk.reserves("b", "c1").check(&["create b c2"]);
    desk.made("b", "c2").reserves("b", "c2").check(&["bind b c2 @1"]);
}

#[test]
fn a_binding_that_failed_counts_no_longer() {
    let mut desk = Desk::new(&["c1"]);
    desk.applied(web("a", &apart()))
        .made("a", "c1")
        .reserves("a", "c1")
        .check(&["create a c1", "bind a c1 @1"]);
    desk.applied(web("b", &apart())).told("b").said();
    desk.not_bound("a", crate::machine::Live::Gone);
    assert!(desk.said().contains(&"create b c1".to_owned()));
}

#[test]
fn selectors_of_namespaces_know_their_labels() {
    let term = json!({"topologyKey": "name", "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchLabels": {"team": "red"}}});
    let near =
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(web("a", &Value::Null)).said();
    settle(&mut desk, "a", "c1");
    let mut other = web("b", &near);
    let labels = [("team", "red")].into_iter().collect();
    let value = json!({"metadata": {"namespace": "other", "name": "b", "uid": "b"},
        "spec": {"containers": [], "affinity": near["affinity"]}});
    other.info = Arc::new(PodInfo::parse(&value).unwrap());
    if let Place::Unbound(wish) = &mut other.place {
        Arc::make_mut(wish).info = Arc::clone(&other.info);
    }
    desk.applied(other);
    assert!(desk.said().iter().all(|line| line.starts_with("explain b")), "namespace ns has no label yet");
    desk.told("b").see(Event::NamespaceApplied("ns".to_owned(), labels)).check(&["create b c1"]);
}

#[test]
fn a_virtual_node_s_pods_are_known_after_a_restart() {
    let mut desk = Desk::bare();
    desk.see(Event::NamespacesReplaced(vec![]));
    desk.see(Event::ScoresReplaced(vec![]));
    desk.see(Event::Targets(vec![super::desk::target("c1")]));
    desk.see(Event::NodesReplaced(vec![node(
        "c1",
        &json!({"metadata": {"name": "c1", "labels": {"name": "c1", keys::PROVIDER: "x"}}}),
    )]));
    desk.lists("c1", vec![]);
    let bound = PodSeen { place: Place::Bound { node: id("c1"), election: None }, ..web("z", &apart()) };
    desk.see(Event::PodsReplaced(vec![web("a", &apart()), bound]));
    assert!(desk.said().iter().all(|line| line.starts_with("explain a")));
}
