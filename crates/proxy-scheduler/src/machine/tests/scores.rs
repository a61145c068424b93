//! What others publish about targets.

use super::desk::{Desk, id, pod, summary, target, wishing};
use crate::machine::{Event, PodSeen, ScoreSeen, Standing, TargetSeen};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A score of a ClusterTarget that counts for a minute; the later a score in a test, the newer.
fn score(score: &str, target: &str, value: u8) -> ScoreSeen {
    ScoreSeen {
        object: id(&format!("{score}-{target}")),
        namespace: String::new(),
        target: id(target),
        score: id(score),
        value,
        observed: 0,
        left: Duration::from_secs(60),
    }
}

fn publish(desk: &mut Desk, scores: &[(&str, &str, u8)]) {
    for (name, target, value) in scores {
        desk.see(Event::ScoreApplied(score(name, target, *value)));
    }
}

fn weighing(pod: PodSeen, weights: &[(&str, u32)]) -> PodSeen {
    let weights: BTreeMap<String, u32> =
        weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    wishing(pod, |wish| wish.preference.scores = weights)
}

/// Both have the same room.
fn twins() -> Desk {
    let mut desk = Desk::new(&["c1", "c2"]);
    for name in ["c1", "c2"] {
        desk.see(Event::SummarySeen { target: id(name), summary: summary("100") });
    }
    desk.said();
    desk
}

#[test]
fn case_103_a_published_score_decides_between_targets_with_the_same_room() {
    let mut desk = twins();
    publish(&mut desk, &[("cost", "c1", 20), ("cost", "c2", 80)]);
    desk.pod("a").check(&["create a c2"]);
}

#[test]
fn scores_add_up_by_their_weights() {
    let mut desk = twins();
    publish(&mut desk, &[("cost", "c1", 100), ("cost", "c2", 0), ("carbon", "c1", 0), ("carbon", "c2", 60)]);
    desk.pod("a").check(&["create a c1"]);
    desk.machine.weigh_scores(BTreeMap::from([("carbon".to_owned(), 2)]));
    desk.pod("b").check(&["create b c2"]);
}

#[test]
fn a_pod_says_itself_how_much_a_score_counts() {
    let mut desk = twins();
    publish(&mut desk, &[("cost", "c1", 100), ("cost", "c2", 0), ("carbon", "c1", 0), ("carbon", "c2", 60)]);
    desk.applied(weighing(pod("a", &Value::Null), &[("carbon", 5)])).check(&["create a c2"]);
    desk.applied(weighing(pod("b", &Value::Null), &[("carbon", 5), ("cost", 4)])).check(&["create b c1"]);
    desk.applied(weighing(pod("c", &Value::Null), &[("cost", 0)])).check(&["create c c2"]);
}

#[test]
fn a_score_that_is_too_old_says_nothing() {
    let mut desk = twins();
    publish(&mut desk, &[("cost", "c1", 20), ("cost", "c2", 80)]);
    assert_eq!(desk.machine.score_standings(desk.now), BTreeMap::from([(Standing::Counts, 2)]));
    desk.pass(60_000);
    assert_eq!(desk.machine.score_standings(desk.now), BTreeMap::from([(Standing::Expired, 2)]));
    desk.pod("a").check(&["create a c1"]);
    // Published again, it counts again.
    publish(&mut desk, &[("cost", "c2", 80), ("cost", "c1", 20)]);
    desk.pod("b").check(&["create b c2"]);
}

#[test]
fn a_target_of_which_nothing_is_known_stands_in_the_middle() {
    let mut desk = Desk::new(&["c1", "c2", "c3"]);
    for name in ["c1", "c2", "c3"] {
        desk.see(Event::SummarySeen { target: id(name), summary: summary("100") });
    }
    publish(&mut desk, &[("cost", "c1", 20), ("cost", "c3", 80)]);
    desk.pod("a").made("a", "c3").refuses("a", "c3", "full").check(&["create a c3", "create a c2"]);
}

#[test]
fn of_two_about_the_same_the_newer_one_counts() {
    let mut desk = twins();
    publish(&mut desk, &[("cost", "c1", 50)]);
    let other = ScoreSeen { object: id("other"), observed: 5, ..score("cost", "c2", 90) };
    desk.see(Event::ScoreApplied(other));
    publish(&mut desk, &[("cost", "c2", 10)]);
    desk.pod("a").check(&["create a c2"]);
    desk.see(Event::ScoreDeleted(id("other"))).pod("b").check(&["create b c1"]);
}

#[test]
fn a_score_of_a_clustertarget_says_nothing_about_a_target_of_its_name() {
    let mut desk = twins();
    desk.see(Event::Targets(vec![target("c1"), TargetSeen { namespace: "ns".to_owned(), ..target("c2") }]));
    publish(&mut desk, &[("cost", "c2", 90)]);
    assert_eq!(desk.machine.score_standings(desk.now), BTreeMap::from([(Standing::NoTarget, 1)]));
    desk.pod("a").check(&["create a c1"]);
    let own = ScoreSeen { namespace: "ns".to_owned(), ..score("cost", "c2", 90) };
    desk.see(Event::ScoreApplied(own));
    publish(&mut desk, &[("cost", "c1", 10)]);
    desk.pod("b").check(&["create b c2"]);
}

#[test]
fn a_score_never_comes_before_order_or_room() {
    let mut desk = twins();
    desk.see(Event::Targets(vec![target("c1"), TargetSeen { order: 1, ..target("c2") }]));
    publish(&mut desk, &[("cost", "c1", 0), ("cost", "c2", 100)]);
    desk.pod("a").check(&["create a c1"]);
    let mut desk = twins();
    publish(&mut desk, &[("cost", "c1", 0), ("cost", "c2", 100)]);
    desk.see(Event::SummarySeen { target: id("c2"), summary: summary("0") });
    desk.pod("a").check(&["create a c1"]);
}

#[test]
fn the_first_decisions_wait_a_moment_for_what_is_published() {
    let mut desk = Desk::bare();
    desk.see(Event::NamespacesReplaced(vec![])).see(Event::Targets(vec![target("c1")]));
    desk.see(Event::NodesReplaced(vec![super::desk::node("c1", &Value::Null)])).lists("c1", vec![]);
    desk.see(Event::PodsReplaced(vec![pod("a", &Value::Null)])).check(&[]);
    desk.see(Event::ScoresReplaced(vec![])).check(&["create a c1"]);
    // Where nobody serves the kind, not for long.
    let mut desk = Desk::bare();
    desk.see(Event::NamespacesReplaced(vec![])).see(Event::Targets(vec![target("c1")]));
    desk.see(Event::NodesReplaced(vec![super::desk::node("c1", &Value::Null)])).lists("c1", vec![]);
    desk.see(Event::PodsReplaced(vec![pod("a", &Value::Null)])).check(&[]);
    desk.pass(1_000).check(&["create a c1"]);
}
