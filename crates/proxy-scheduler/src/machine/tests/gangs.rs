//! Groups of pods that are placed together or not at all.

use super::desk::{Desk, id, pod, summary};
use crate::machine::{Event, Group, GroupKind, GroupSeen, PodSeen};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

fn member(name: &str, group: &str, least: usize, together: bool) -> PodSeen {
    grouped(name, group, Some(least), together)
}

fn grouped(name: &str, group: &str, least: Option<usize>, together: bool) -> PodSeen {
    let kind = GroupKind::Coscheduling;
    let gang = Some(Arc::new(Group { name: id(&format!("ns/{group}")), least, kind, together }));
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

fn object(group: &str, least: Option<usize>) -> Event {
    let name = id(&format!("ns/{group}"));
    Event::GroupApplied(GroupKind::Coscheduling, GroupSeen { name, least })
}

#[test]
fn a_group_that_does_not_say_how_many_must_fit_waits_for_its_pod_group() {
    let mut desk = Desk::new(&["c1"]);
    desk.applied(grouped("a", "g", None, true)).applied(grouped("b", "g", None, true)).check(&[]);
    let other = GroupSeen { name: id("ns/g"), least: Some(2) };
    desk.see(Event::GroupApplied(GroupKind::Workload, other)).check(&[]);
    desk.pass(3_000);
    let said = desk.said();
    assert!(said[0].contains("group g waits for its PodGroup"), "{said:?}");
    desk.told("a").told("b").see(object("g", Some(2)));
    check(&mut desk, &["create a c1", "create b c1"]);
    desk.made("a", "c1").made("b", "c1").reserves("a", "c1").check(&[]);
    desk.reserves("b", "c1");
    check(&mut desk, &["bind a c1 @1", "bind b c1 @1"]);
}

#[test]
fn a_pod_group_that_is_there_first_counts_and_may_ask_for_more_later() {
    let mut desk = Desk::new(&["c1"]);
    let name = id("ns/g");
    let listed = vec![GroupSeen { name: id("ns/g"), least: Some(1) }];
    desk.see(Event::GroupsReplaced(GroupKind::Coscheduling, listed));
    desk.applied(grouped("a", "g", None, true)).check(&["create a c1"]);
    desk.see(object("g", Some(2)));
    check(&mut desk, &["forgo a c1"]);
    desk.ends("a", crate::machine::Outcome::Forgone { target: id("c1") });
    desk.applied(grouped("b", "g", None, true));
    check(&mut desk, &["create a c1", "create b c1"]);
    desk.see(Event::GroupDeleted(GroupKind::Coscheduling, name));
    check(&mut desk, &["forgo a c1", "forgo b c1"]);
}

#[test]
fn the_pods_of_a_group_without_a_least_number_are_placed_one_by_one() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(object("g", None));
    desk.applied(grouped("a", "g", None, true)).made("a", "c1").reserves("a", "c1");
    check(&mut desk, &["bind a c1 @1", "create a c1"]);
    desk.bound("a").said();
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("0") }).said();
    desk.applied(grouped("b", "g", None, true)).check(&["create b c2"]);
}

/// A group of so many pods in one target, which reserves for one of them every 400 ms, and at once for whom it has
/// reserved already; what is said besides.
fn slowly(count: usize) -> Vec<String> {
    let mut desk = Desk::new(&["c1"]);
    for number in 0..count {
        desk.applied(member(&format!("p{number}"), "g", count, true));
    }
    let (mut waiting, mut rest) = (VecDeque::new(), Vec::new());
    for _ in 0..count + 5 {
        for line in desk.said() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "create" => {
                    desk.made(words[1], "c1");
                    waiting.push_back(words[1].to_owned());
                }
                "renew" => {
                    desk.renews(words[1], "c1").reserves(words[1], "c1");
                    rest.push(line.clone());
                }
                _ => rest.push(line.clone()),
            }
        }
        desk.pass(400);
        if let Some(name) = waiting.pop_front() {
            desk.reserves(&name, "c1");
        }
    }
    rest
}

#[test]
fn a_group_that_gets_on_keeps_its_turn_and_renews_what_runs_out() {
    let said = slowly(100);
    let count = |word: &str| said.iter().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("bind"), count("delete"), count("explain")), (100, 0, 0), "{said:?}");
    assert!(count("renew") >= 50, "{said:?}");
}

#[test]
fn a_group_that_gets_on_too_slowly_gives_up_its_turn_in_the_end() {
    let said = slowly(320);
    assert!(!said.iter().any(|line| line.starts_with("bind")), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("delete")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("group g waits until 320 of its pods fit at once")));
}
