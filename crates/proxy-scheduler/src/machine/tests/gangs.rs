//! Groups of pods that are placed together or not at all.

use super::desk::{Desk, id, pod, summary};
use crate::machine::{Event, Group, PodSeen};
use serde_json::Value;
use std::sync::Arc;

fn member(name: &str, group: &str, least: usize, together: bool) -> PodSeen {
    let gang = Some(Arc::new(Group { name: id(&format!("ns/{group}")), least, together }));
    PodSeen { gang, ..pod(name, &Value::Null) }
}

/// A desk before which a group of two has appeared.
fn pair(targets: &[&str], together: bool) -> Desk {
    let mut desk = Desk::new(targets);
    desk.applied(member("a", "g", 2, together)).check(&[]);
    desk.applied(member("b", "g", 2, together));
    desk
}

/// In whatever order.
#[track_caller]
fn check(desk: &mut Desk, want: &[&str]) {
    let mut said = desk.said();
    said.sort();
    assert_eq!(said, want);
}

#[test]
fn nobody_is_asked_before_enough_pods_of_a_group_exist() {
    let mut desk = Desk::new(&["c1"]);
    desk.applied(member("a", "g", 2, true)).check(&[]);
    desk.pass(3_000).check(&["explain a: group g has 1 of the 2 pods that it needs."]);
    desk.told("a").applied(member("b", "g", 2, true));
    check(&mut desk, &["create a c1", "create b c1"]);
}

#[test]
fn nobody_is_bound_before_enough_of_a_group_are_reserved() {
    let mut desk = pair(&["c1"], true);
    check(&mut desk, &["create a c1", "create b c1"]);
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").check(&[]);
    desk.reserves("b", "c1");
    check(&mut desk, &["bind a c1 @1", "bind b c1 @1"]);
}

#[test]
fn whoever_comes_when_the_group_goes_follows_alone_to_the_same_target() {
    let mut desk = pair(&["c1", "c2"], true);
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").reserves("b", "c1");
    desk.bound("a").bound("b").said();
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("0") }).said();
    desk.applied(member("c", "g", 2, true)).check(&["create c c1"]);
}

#[test]
fn a_group_in_one_target_tries_the_next_one_as_a_whole() {
    let mut desk = pair(&["c1", "c2"], true);
    desk.said();
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").check(&[]);
    desk.refuses("b", "c1", "full");
    check(&mut desk, &["create a c2", "create b c2", "delete a c1", "delete b c1"]);
}

#[test]
fn a_group_goes_first_where_all_of_it_seem_to_fit() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("1") });
    desk.see(Event::SummarySeen { target: id("c2"), summary: summary("2") }).said();
    desk.applied(member("a", "g", 2, true)).applied(member("b", "g", 2, true));
    check(&mut desk, &["create a c2", "create b c2"]);
}

#[test]
fn a_group_that_may_be_spread_takes_what_several_targets_have() {
    let mut desk = pair(&["c1", "c2"], false);
    desk.said();
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1");
    desk.refuses("b", "c1", "full").check(&["create b c2"]);
    desk.made("b", "c2").reserves("b", "c2");
    check(&mut desk, &["bind a c1 @1", "bind b c2 @1"]);
}

#[test]
fn a_group_that_does_not_fit_gives_back_what_it_holds_and_rests() {
    let mut desk = pair(&["c1"], true);
    desk.said();
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1");
    let said = desk.refuses("b", "c1", "full").said();
    assert!(said.contains(&"delete a c1".to_owned()) && said.contains(&"delete b c1".to_owned()), "{said:?}");
    assert!(
        said.iter().any(|word| word.contains("group g waits until 2 of its pods fit at once")),
        "{said:?}"
    );
}

#[test]
fn two_groups_that_fit_alone_do_not_hold_half_of_the_room_each() {
    let mut desk = pair(&["c1"], true);
    desk.applied(member("x", "h", 2, true)).applied(member("y", "h", 2, true));
    check(&mut desk, &["create a c1", "create b c1"]);
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").check(&[]);
    desk.reserves("b", "c1");
    check(&mut desk, &["bind a c1 @1", "bind b c1 @1", "create x c1", "create y c1"]);
}

#[test]
fn a_group_whose_target_is_silent_gives_up_its_turn() {
    let mut desk = pair(&["c1"], true);
    desk.applied(member("x", "h", 2, true)).applied(member("y", "h", 2, true)).said();
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").said();
    let said = desk.pass(10_000).said();
    assert!(said.contains(&"delete a c1".to_owned()), "{said:?}");
}

#[test]
fn a_group_that_loses_a_pod_in_its_turn_gives_it_up() {
    let mut desk = pair(&["c1"], true);
    desk.applied(member("x", "h", 2, true)).applied(member("y", "h", 2, true)).said();
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").check(&[]);
    let said = desk.see(Event::PodDeleted(id("b"))).said();
    assert!(said.contains(&"delete a c1".to_owned()), "{said:?}");
    assert!(said.contains(&"create x c1".to_owned()), "{said:?}");
}

#[test]
fn a_place_in_a_target_that_the_group_gave_up_does_not_count() {
    let mut desk = pair(&["c1", "c2"], true);
    desk.said();
    // The refusal is seen before the create is answered.
    desk.made("a", "c1").reserves("a", "c1").refuses("b", "c1", "full");
    check(&mut desk, &["create a c2", "create b c2", "delete a c1"]);
    desk.reserves("b", "c1").made("b", "c1");
    check(&mut desk, &["delete b c1"]);
    desk.made("a", "c2").reserves("a", "c2").check(&[]);
    desk.made("b", "c2").reserves("b", "c2");
    check(&mut desk, &["bind a c2 @1", "bind b c2 @1"]);
}
