//! Which targets are asked for which pods.

use super::desk::{Desk, asking, id, node, pod, summary, target, wishing};
use crate::machine::{Event, Hold, PodSeen, TargetSeen, Waits, Width};
use serde_json::{Value, json};

fn nodes(desk: &mut Desk, more: &Value) {
    desk.see(Event::NodeApplied(node("c1", more))).said();
}

#[test]
fn the_target_with_most_room_is_asked_alone() {
    Desk::new(&["c1", "c2", "c3"]).pod("a").check(&["create a c1"]);
}

#[test]
fn w01_every_pod_is_asked_about_at_once() {
    let mut desk = Desk::new(&["c1", "c2"]);
    for number in 0..1000 {
        desk.pod(&format!("p{number}"));
    }
    assert_eq!(desk.said().len(), 100 + 95, "what both show to have room for");
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("100000") });
    assert_eq!(desk.said().len(), 1000 - 195);
}

#[test]
fn own_asks_count_as_use_until_the_summary_shows_them() {
    let mut desk = Desk::new(&["c1", "c2"]);
    let said: Vec<String> = (0..20).flat_map(|number| desk.pod(&format!("p{number}")).said()).collect();
    let there = |name: &str| said.iter().filter(|line| line.ends_with(name)).count();
    assert_eq!(
        (there("c1"), there("c2")),
        (12, 8),
        "the room that c1 has more is used first, then both alike"
    );
}

#[test]
fn case_022_no_more_targets_are_asked_than_the_pod_wants() {
    let names: Vec<String> = (0..40).map(|number| format!("t{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut desk = Desk::new(&names);
    for name in names {
        desk.see(Event::SummarySeen { target: id(name), summary: summary("1000") });
    }
    for number in 0..100 {
        desk.applied(asking(pod(&format!("p{number}"), &Value::Null), Width::Some(3)));
    }
    assert_eq!(desk.pass(400).said().len(), 300);
}

#[test]
fn a_target_may_want_to_be_asked_with_others() {
    let mut desk = Desk::new(&["c1", "c2", "c3"]);
    let two = TargetSeen { width: Some(Width::Some(2)), ..target("c1") };
    desk.see(Event::Targets(vec![two, target("c2"), target("c3")]));
    desk.pod("a").check(&["create a c1", "create a c2"]);
}

#[test]
fn case_016_a_namespaced_target_serves_only_its_namespace() {
    let mut desk = Desk::new(&["c1", "c2"]);
    let bar = TargetSeen { namespace: "bar".to_owned(), ..target("c1") };
    desk.see(Event::Targets(vec![bar, target("c2")])).pod("a").check(&["create a c2"]);
}

#[test]
fn case_016_without_a_target_for_the_namespace_nothing_is_asked() {
    let mut desk = Desk::new(&["c1"]);
    desk.see(Event::Targets(vec![TargetSeen { namespace: "bar".to_owned(), ..target("c1") }]));
    desk.pod("a").check(&[
        "explain a: 0/0 virtual nodes are available: no Target or ClusterTarget serves namespace ns.",
    ]);
}

#[test]
fn w46_a_cordoned_virtual_node_is_not_asked() {
    let mut desk = Desk::new(&["c1", "c2"]);
    nodes(&mut desk, &json!({"spec": {"unschedulable": true}}));
    desk.pod("a").check(&["create a c2"]);
}

#[test]
fn w46_a_virtual_node_that_is_not_ready_is_not_asked() {
    let mut desk = Desk::new(&["c1"]);
    nodes(&mut desk, &json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
    desk.pod("a")
        .check(&["explain a: 0/1 virtual nodes are available: 1 c1: the virtual node is not ready."]);
}

#[test]
fn w46_constraints_between_clusters_come_before_any_ask() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(pod("a", &json!({"nodeSelector": {"name": "c2"}}))).check(&["create a c2"]);
}

#[test]
fn w46_a_taint_that_is_not_tolerated_keeps_pods_away() {
    let mut desk = Desk::new(&["c1", "c2"]);
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    nodes(&mut desk, &json!({"spec": {"taints": [taint]}}));
    desk.pod("a").check(&["create a c2"]);
}

#[test]
fn a_preferred_cluster_comes_first() {
    let term = json!({"matchExpressions": [{"key": "name", "operator": "In", "values": ["c2"]}]});
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 100, "preference": term}]}});
    Desk::new(&["c1", "c2"]).applied(pod("a", &json!({"affinity": affinity}))).check(&["create a c2"]);
}

#[test]
fn a_node_that_opens_is_asked_at_once() {
    let mut desk = Desk::new(&["c1"]);
    nodes(&mut desk, &json!({"spec": {"unschedulable": true}}));
    desk.pod("a").said();
    desk.told("a");
    desk.see(Event::NodeApplied(node("c1", &Value::Null))).check(&["create a c1"]);
}

#[test]
fn case_058_a_target_that_shows_no_room_is_asked_all_the_same() {
    let mut desk = Desk::new(&["c1"]);
    let gpu = json!({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]});
    desk.applied(pod("a", &gpu)).check(&["create a c1"]);
}

#[test]
fn case_058_a_target_that_shows_room_comes_before_one_that_does_not() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("0") });
    desk.pod("a").check(&["create a c2"]);
}

#[test]
fn case_010_a_gated_pod_is_not_asked_about_until_its_gates_lift() {
    let mut desk = Desk::new(&["c1"]);
    desk.applied(wishing(pod("a", &Value::Null), |wish| wish.hold = Hold::Gated)).pass(60_000).check(&[]);
    assert_eq!(desk.machine.pending(Waits::Gated), 1);
    desk.applied(PodSeen { version: "2".to_owned(), ..pod("a", &Value::Null) }).check(&["create a c1"]);
    assert_eq!((desk.machine.pending(Waits::Gated), desk.machine.pending(Waits::Asking)), (0, 1));
}

#[test]
fn a_pod_that_needs_what_there_is_not_is_held_with_the_reason() {
    let held = wishing(pod("a", &Value::Null), |wish| wish.hold = Hold::Because("no claims yet".to_owned()));
    let mut desk = Desk::new(&["c1"]);
    desk.applied(held).check(&["explain a: no claims yet"]);
    desk.told("a").pass(600_000).check(&[]);
}

#[test]
fn a_reason_that_stands_there_already_is_not_written_again() {
    let held = wishing(pod("a", &Value::Null), |wish| wish.hold = Hold::Because("no claims yet".to_owned()));
    Desk::new(&["c1"]).applied(PodSeen { shown: Some("no claims yet".to_owned()), ..held }).check(&[]);
}

#[test]
fn case_012_at_the_start_a_target_that_is_not_read_delays_nobody_for_long() {
    let mut desk = Desk::bare();
    desk.see(Event::NamespacesReplaced(vec![]));
    desk.see(Event::ScoresReplaced(vec![]));
    desk.see(Event::Targets(vec![target("c1"), target("c2")]));
    desk.see(Event::NodesReplaced(vec![node("c1", &Value::Null), node("c2", &Value::Null)]));
    desk.see(Event::PodsReplaced(vec![pod("a", &Value::Null)]));
    desk.lists("c2", vec![]).check(&[]);
    desk.pass(1_000).check(&["create a c2"]);
}

#[test]
fn case_012_a_target_that_cannot_be_used_says_why() {
    let mut desk = Desk::new(&["c1"]);
    let broken = TargetSeen { unusable: Some("Secret ns/c1 does not exist".to_owned()), ..target("c1") };
    desk.see(Event::Targets(vec![broken])).pod("a");
    desk.check(&["explain a: 0/1 virtual nodes are available: 1 c1: Secret ns/c1 does not exist."]);
}

#[test]
fn case_014_a_pod_deleted_while_it_waits_takes_its_asks_along() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").said();
    desk.see(Event::PodDeleted(id("a"))).check(&["delete a c1"]);
}

#[test]
fn case_014_an_ask_that_arrives_after_its_pod_is_gone_is_taken_back() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").see(Event::PodDeleted(id("a"))).said();
    desk.made("a", "c1").check(&["delete a c1"]);
}

#[test]
fn case_014_a_pod_that_is_being_deleted_is_not_asked_about() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").said();
    desk.applied(PodSeen { version: "3".to_owned(), terminating: true, ..pod("a", &Value::Null) });
    desk.check(&["delete a c1"]);
}

#[test]
fn case_026_an_ask_that_somebody_deleted_is_made_again_while_the_pod_waits() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").said();
    desk.see(Event::ChaperonDeleted { target: id("c1"), parent: id("a"), uid: id("uid-a-c1") });
    desk.check(&["create a c1"]);
}

#[test]
fn case_047_a_pod_of_the_same_name_is_another_pod() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").see(Event::PodDeleted(id("a"))).said();
    desk.applied(PodSeen { uid: id("b"), ..pod("a", &Value::Null) }).check(&["create b c1"]);
}

#[test]
fn a_crowd_waits_here_rather_than_there_and_says_nothing() {
    let mut desk = Desk::new(&["c1"]);
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("10000000") });
    for number in 0..1500 {
        desk.pod(&format!("p{number}"));
    }
    assert_eq!(desk.said().len(), 1000);
    for number in 0..249 {
        let name = format!("p{number}");
        desk.made(&name, "c1").reserves(&name, "c1");
    }
    assert!(desk.said().iter().all(|line| line.starts_with("bind")));
    desk.made("p249", "c1").reserves("p249", "c1");
    assert_eq!(desk.said().iter().filter(|line| line.starts_with("create")).count(), 250);
}
