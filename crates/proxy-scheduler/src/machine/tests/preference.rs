//! Which targets are filled first.

use super::desk::{Desk, asking, id, ms, pod, summary, target, wishing};
use crate::machine::{Event, PodSeen, Preference, TargetSeen, Width};
use serde_json::Value;
use std::collections::BTreeMap;

fn ordered(name: &str, order: i32) -> TargetSeen {
    TargetSeen { order, ..target(name) }
}

fn weighted(name: &str, weight: u32) -> TargetSeen {
    TargetSeen { weight: Some(weight), ..target(name) }
}

fn preferring(pod: PodSeen, order: &[&str], weights: &[(&str, u32)]) -> PodSeen {
    let order = order.iter().map(|name| (*name).to_owned()).collect();
    let weights = weights.iter().map(|(name, weight)| ((*name).to_owned(), *weight)).collect();
    wishing(pod, |wish| wish.preference = Preference { order, weights, ..Preference::default() })
}

/// Where so many pods are asked for, each answered before the next comes.
fn asked(desk: &mut Desk, count: usize, pod_of: impl Fn(String) -> PodSeen) -> BTreeMap<String, usize> {
    let mut there = BTreeMap::new();
    desk.said();
    for number in 0..count {
        let name = format!("p{number}");
        desk.applied(pod_of(name.clone()));
        let said = desk.said();
        let target = said[0].rsplit(' ').next().unwrap().to_owned();
        assert_eq!(said, [format!("create {name} {target}")]);
        desk.made(&name, &target).reserves(&name, &target).bound(&name).said();
        *there.entry(target).or_default() += 1;
    }
    there
}

#[test]
fn case_103_the_first_target_is_filled_and_the_rest_overflows_to_the_next() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![ordered("c1", 1), ordered("c2", 0)]));
    desk.see(Event::SummarySeen { target: id("c2"), summary: summary("3") });
    let there = asked(&mut desk, 3, |name| pod(&name, &Value::Null));
    assert_eq!(there, BTreeMap::from([("c2".to_owned(), 3)]));
    // Only the target knows whether it is full.
    desk.pod("a").check(&["create a c2"]);
    desk.made("a", "c2").refuses("a", "c2", "full").check(&["create a c1"]);
    desk.pod("b").check(&["create b c1"]);
}

#[test]
fn the_order_of_a_pod_goes_before_that_of_the_targets() {
    let mut desk = Desk::new(&["c1", "c2", "c3"]);
    desk.see(Event::Targets(vec![ordered("c1", 0), ordered("c2", 1), ordered("c3", 2)]));
    desk.applied(preferring(pod("a", &Value::Null), &["c3", "absent"], &[])).check(&["create a c3"]);
    desk.made("a", "c3").refuses("a", "c3", "full").check(&["create a c1"]);
}

#[test]
fn a_silent_first_target_delays_nobody_for_long() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![ordered("c1", 1), ordered("c2", 0)]));
    desk.pod("a").made("a", "c2").check(&["create a c2"]);
    desk.pass(600).check(&["create a c1"]);
    desk.made("a", "c1").reserves("a", "c1").check(&["bind a c1 @1"]);
}

#[test]
fn who_is_asked_beside_the_first_waits_for_its_answer() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![ordered("c1", 1), ordered("c2", 0)]));
    desk.applied(asking(pod("a", &Value::Null), Width::Some(2))).check(&["create a c2", "create a c1"]);
    desk.made("a", "c1").made("a", "c2").reserves("a", "c1").check(&[]);
    desk.now += ms(100);
    desk.reserves("a", "c2").check(&["bind a c2 @1"]);
}

#[test]
fn weights_share_the_pods_of_one_controller() {
    let mut desk = Desk::new(&["c1", "c2", "c3"]);
    desk.see(Event::Targets(vec![weighted("c1", 1), weighted("c2", 3), weighted("c3", 0)]));
    let there = asked(&mut desk, 40, |name| pod(&name, &Value::Null));
    assert_eq!(there, BTreeMap::from([("c1".to_owned(), 10), ("c2".to_owned(), 30)]));
}

#[test]
fn shares_hold_while_nobody_has_answered_yet() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![weighted("c1", 1), weighted("c2", 3)]));
    for number in 0..40 {
        desk.pod(&format!("p{number}"));
    }
    let said = desk.said();
    assert_eq!(said.iter().filter(|line| line.ends_with("c2")).count(), 30);
    // Another controller begins anew.
    let other = PodSeen { group: 7, ..pod("o", &Value::Null) };
    desk.applied(other).check(&["create o c2"]);
}

#[test]
fn weights_of_a_pod_go_before_those_of_the_targets() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![weighted("c1", 1), weighted("c2", 9)]));
    let there =
        asked(&mut desk, 10, |name| preferring(pod(&name, &Value::Null), &[], &[("c1", 4), ("c2", 1)]));
    assert_eq!(there, BTreeMap::from([("c1".to_owned(), 8), ("c2".to_owned(), 2)]));
}

#[test]
fn what_has_no_share_takes_what_nobody_else_does() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![weighted("c1", 0), weighted("c2", 1)]));
    desk.pod("a").made("a", "c2").refuses("a", "c2", "full").check(&["create a c2", "create a c1"]);
}

#[test]
fn pods_that_are_gone_give_their_share_back() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![weighted("c1", 1), weighted("c2", 1)]));
    let there = asked(&mut desk, 4, |name| pod(&name, &Value::Null));
    assert_eq!(there, BTreeMap::from([("c1".to_owned(), 2), ("c2".to_owned(), 2)]));
    desk.see(Event::PodDeleted(id("p0"))).see(Event::PodDeleted(id("p2"))).said();
    desk.pod("q0").check(&["create q0 c1"]);
    desk.pod("q1").check(&["create q1 c1"]);
}
