//! What is known but may no longer be so: failing watches, targets that flap, what vanished unseen.

use super::desk::{Desk, id, pod, target};
use crate::machine::{Event, Live, Outcome, TargetSeen};
use serde_json::Value;

fn watch_fails(desk: &mut Desk) -> &mut Desk {
    desk.see(Event::WatchFailed { target: id("c1"), reason: "the target does not answer".to_owned() })
}

/// One target has reserved for pod `a`, whose binding then lost a race while the watch failed.
fn reserved_and_failing() -> Desk {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").reserves("a", "c1").said();
    watch_fails(&mut desk);
    let mut changed = pod("a", &Value::Null);
    changed.version = "2".to_owned();
    desk.not_bound("a", Live::Found(Box::new(changed))).told("a").said();
    desk
}

#[test]
fn an_ask_that_vanished_unseen_is_found_out_and_made_again() {
    let mut desk = Desk::new(&["c1"]);
    // The list knows nothing that is newer than the ask, so that it may be older than it.
    desk.pod("a").made("a", "c1").lists("c1", vec![]).pass(20_000).told("a").said();
    desk.pass(20_000).check(&["renew a c1 #2"]);
    let (target, sent) = (id("c1"), desk.now);
    desk.ends("a", Outcome::Renewed { target, sent, result: Err(Live::Gone) }).check(&["create a c1"]);
}

#[test]
fn an_ask_of_unknown_fate_is_tried_again_but_seldom() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").pass(20_000).told("a").pass(15_000).said();
    let (target, sent) = (id("c1"), desk.now);
    let result = Err(Live::Unknown("the target does not answer".to_owned()));
    desk.ends("a", Outcome::Renewed { target, sent, result }).pass(20_000).check(&[]);
    desk.pass(10_000).check(&["renew a c1 #3"]);
    desk.renews("a", "c1").pass(25_000).check(&[]);
}

#[test]
fn an_ask_that_the_watch_has_shown_is_never_doubted() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").change("a", "c1", |_| ()).pass(20_000).told("a").said();
    desk.pass(100_000).check(&[]);
}

#[test]
fn a_renewal_that_finds_nothing_asks_anew() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").reserves("a", "c1").said();
    desk.change("a", "c1", |chaperon| chaperon.promise = None);
    let same = pod("a", &Value::Null);
    desk.not_bound("a", Live::Found(Box::new(same))).pass(100).check(&["renew a c1 #2"]);
    let (target, sent) = (id("c1"), desk.now);
    desk.ends("a", Outcome::Renewed { target, sent, result: Err(Live::Gone) }).check(&["create a c1"]);
}

#[test]
fn a_deletion_that_the_watch_showed_first_leaves_nothing_to_remember() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(500).made("a", "c2").reserves("a", "c2").bound("a").said();
    desk.see(Event::ChaperonDeleted { target: id("c1"), parent: id("a"), uid: id("uid-a-c1") });
    desk.ends("a", Outcome::Deleted { target: id("c1"), uid: id("uid-a-c1"), result: Ok(()) });
    let asks = desk.machine.pods.get(&id("a")).map(|pod| pod.asks.keys().cloned().collect::<Vec<_>>());
    assert_eq!(asks, Some(vec![id("c2")]));
}

#[test]
fn a_target_whose_watch_failed_is_not_elected_before_it_proves_itself() {
    let mut desk = reserved_and_failing();
    desk.pass(4_999).check(&[]);
    desk.pass(1).check(&["renew a c1 #2"]);
    desk.renews("a", "c1").reserves("a", "c1").check(&["bind a c1 @1"]);
}

#[test]
fn a_watch_that_works_again_proves_the_target() {
    let mut desk = reserved_and_failing();
    desk.change("a", "c1", |_| ()).check(&["bind a c1 @1"]);
}

#[test]
fn a_call_that_succeeds_proves_the_target() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").said();
    watch_fails(&mut desk).made("a", "c1").pod("b").check(&["create b c1"]);
}

#[test]
fn a_target_that_was_unusable_for_a_moment_is_known_as_before() {
    let mut desk = Desk::new(&["c1"]);
    let broken = TargetSeen { unusable: Some("no client".to_owned()), ..target("c1") };
    desk.see(Event::Targets(vec![broken])).pod("a").told("a").said();
    desk.see(Event::Targets(vec![target("c1")])).check(&["create a c1"]);
}

#[test]
fn a_target_that_nobody_watches_is_not_asked_before_it_is_read_again() {
    let mut desk = Desk::new(&["c1"]);
    desk.see(Event::WatchEnded { target: id("c1") }).pod("a").pass(1_000);
    desk.check(&["explain a: 0/1 virtual nodes are available: 1 c1: the target has not been read yet."]);
    desk.told("a").lists("c1", vec![]).check(&["create a c1"]);
}
