use serde_json::json;

use super::*;

fn pod(uid: &str, priority: i32, nominated: Option<&str>) -> Arc<PodInfo> {
    let raw = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"priority": priority},
        "status": {"nominatedNodeName": nominated}});
    Arc::new(PodInfo::parse(&raw).expect("a pod"))
}

fn at(node: &str) -> Arc<str> {
    Arc::from(node)
}

fn names(pods: &[Arc<PodInfo>]) -> Vec<&str> {
    pods.iter().map(|pod| &*pod.uid).collect()
}

#[test]
fn a_pod_waits_for_one_node_at_most() {
    let mut nominator = Nominator::default();
    nominator.nominate(pod("a", 1, None), &at("n1"));
    nominator.nominate(pod("a", 1, None), &at("n2"));
    assert_eq!(nominator.node_of("a"), Some(&at("n2")));
    assert!(nominator.waiting("n1").is_empty());
    nominator.remove("a");
    assert!(nominator.is_empty() && nominator.waiting("n2").is_empty());
}

#[test]
fn a_pod_leaves_room_to_others_of_its_priority_or_above_but_not_to_itself() {
    let mut nominator = Nominator::default();
    for (uid, priority) in [("lower", 1), ("equal", 5), ("higher", 9), ("me", 5)] {
        nominator.nominate(pod(uid, priority, None), &at("n1"));
    }
    let me = pod("me", 5, None);
    let ahead: Vec<_> = nominator.ahead_of(&me, "n1").cloned().collect();
    assert_eq!(names(&ahead), ["equal", "higher"]);
    assert_eq!(nominator.ahead_of(&me, "n2").count(), 0);
    assert_eq!(names(&nominator.below(5, "n1")), ["lower"]);
}

#[test]
fn what_the_cluster_does_not_know_yet_is_not_forgotten() {
    let mut nominator = Nominator::default();
    nominator.nominate(pod("a", 1, None), &at("n1"));
    nominator.update(&pod("a", 2, None));
    assert_eq!(nominator.node_of("a"), Some(&at("n1")));
    assert_eq!(nominator.waiting("n1")[0].spec.priority, 2);
}

#[test]
fn the_cluster_has_the_last_word_on_what_it_knows() {
    let mut nominator = Nominator::default();
    nominator.update(&pod("a", 1, Some("n1")));
    assert_eq!(nominator.node_of("a"), Some(&at("n1")));
    nominator.update(&pod("a", 1, Some("n2")));
    assert_eq!(nominator.node_of("a"), Some(&at("n2")));
    nominator.update(&pod("a", 1, None));
    assert!(nominator.is_empty());
}

#[test]
fn a_pod_that_was_never_nominated_waits_for_nothing() {
    let mut nominator = Nominator::default();
    nominator.update(&pod("a", 1, None));
    assert!(nominator.is_empty());
}
