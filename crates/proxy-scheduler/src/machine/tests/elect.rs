//! From a reservation to a delegate that may run.

use super::desk::{Desk, asking, fresh, id, ms, pod, refusal};
use crate::machine::{Election, Event, Live, Outcome, Place, PodSeen, Promise, Waits, Width};
use serde_json::Value;

fn bound_to(name: &str, target: &str) -> PodSeen {
    let election = Election {
        target_uid: id(&format!("cluster-{target}")),
        chaperon_uid: id(&format!("uid-{name}-{target}")),
        epoch: 1,
        lease: None,
    };
    let place = Place::Bound { node: id(target), election: Some(election) };
    PodSeen { version: "9".to_owned(), place, ..pod(name, &Value::Null) }
}

/// Pod `a` is asked about in `c1`, which has reserved, and is about to be bound.
fn electing() -> Desk {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").reserves("a", "c1").check(&["create a c1", "bind a c1 @1"]);
    desk
}

#[test]
fn a_reservation_is_elected_and_then_allowed() {
    electing().bound("a").check(&["scheduled a c1", "allow a c1 @1"]);
}

#[test]
fn nothing_is_allowed_before_the_binding_succeeded() {
    electing().reserves("a", "c1").pass(3_000).check(&[]);
}

#[test]
fn w05_an_election_that_lost_its_race_to_another_target_allows_nothing_here() {
    electing()
        .not_bound("a", Live::Found(Box::new(bound_to("a", "c2"))))
        .pass(60_000)
        .check(&["delete a c1"]);
}

#[test]
fn w05_a_binding_whose_end_is_unknown_is_read_before_anything_else() {
    let mut desk = electing();
    desk.not_bound("a", Live::Unknown("no answer".to_owned())).pass(50).check(&[]);
    desk.pass(100).check(&["reread a"]);
    desk.ends("a", Outcome::Reread(Live::Found(Box::new(bound_to("a", "c1"))))).check(&["allow a c1 @1"]);
}

#[test]
fn a_pod_that_changed_meanwhile_is_elected_again_at_its_new_version() {
    let live = PodSeen { version: "7".to_owned(), ..pod("a", &Value::Null) };
    electing().not_bound("a", Live::Found(Box::new(live))).check(&["bind a c1 @1"]);
}

#[test]
fn a_binding_that_is_refused_waits_longer_each_time() {
    let live = || Live::Found(Box::new(pod("a", &Value::Null)));
    let mut desk = electing();
    desk.not_bound("a", live()).check(&[]);
    desk.pass(100).check(&["bind a c1 @1"]);
    desk.not_bound("a", live()).pass(100).check(&[]);
    desk.pass(100).check(&["bind a c1 @1"]);
}

#[test]
fn case_014_a_pod_deleted_while_it_is_bound_leaves_nothing_behind() {
    electing().not_bound("a", Live::Gone).check(&["delete a c1"]);
}

#[test]
fn case_023_losers_are_released_as_soon_as_one_is_elected() {
    let mut desk = Desk::new(&["c1", "c2", "c3"]);
    desk.applied(asking(pod("a", &Value::Null), Width::Some(3)));
    desk.check(&["create a c1", "create a c2", "create a c3"]);
    desk.made("a", "c1").made("a", "c2").made("a", "c3").reserves("a", "c2").check(&["bind a c2 @1"]);
    desk.reserves("a", "c1").reserves("a", "c3").check(&[]);
    desk.bound("a").check(&["scheduled a c2", "delete a c1", "delete a c3", "allow a c2 @1"]);
}

#[test]
fn case_023_an_ask_that_arrives_after_the_election_is_taken_back() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(asking(pod("a", &Value::Null), Width::Some(2))).check(&["create a c1", "create a c2"]);
    desk.made("a", "c1").reserves("a", "c1").bound("a");
    desk.check(&["bind a c1 @1", "scheduled a c1", "forgo a c2", "allow a c1 @1"]);
    desk.made("a", "c2").check(&["delete a c2"]);
}

#[test]
fn all_targets_are_asked_and_the_best_answer_wins() {
    let mut desk = Desk::new(&["c1", "c2", "c3"]);
    desk.applied(asking(pod("a", &Value::Null), Width::All));
    desk.check(&["create a c1", "create a c2", "create a c3"]);
    desk.made("a", "c1").made("a", "c2").made("a", "c3");
    desk.reserves("a", "c3").reserves("a", "c2").check(&[]);
    desk.refuses("a", "c1", "full").check(&["bind a c2 @1"]);
}

#[test]
fn a_permission_that_meets_a_change_is_repeated_on_what_is_there_now() {
    let mut desk = electing();
    desk.bound("a").said();
    let live = desk.chaperon("a", "c1");
    desk.ends("a", Outcome::Allowed { target: id("c1"), result: Err(Live::Found(Box::new(live))) })
        .check(&[]);
    desk.pass(100).check(&["allow a c1 @1"]);
}

#[test]
fn a_permission_whose_end_is_unknown_is_repeated_until_it_is_known() {
    let mut desk = electing();
    desk.bound("a").said();
    let unknown =
        || Outcome::Allowed { target: id("c1"), result: Err(Live::Unknown("no answer".to_owned())) };
    desk.ends("a", unknown()).pass(100).check(&["allow a c1 @1"]);
    desk.ends("a", unknown()).change("a", "c1", |chaperon| chaperon.allowed = true).pass(60_000).check(&[]);
}

#[test]
fn an_elected_chaperon_that_is_gone_is_never_made_again() {
    let mut desk = electing();
    desk.bound("a").said();
    desk.ends("a", Outcome::Allowed { target: id("c1"), result: Err(Live::Gone) }).pass(60_000).check(&[]);
}

#[test]
fn after_a_restart_what_was_elected_is_allowed() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(bound_to("a", "c1")).check(&[]);
    desk.change("a", "c1", |_| ()).check(&["allow a c1 @1"]);
}

#[test]
fn after_a_restart_losers_are_taken_back() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(bound_to("a", "c1")).change("a", "c2", |_| ()).check(&["delete a c2"]);
}

#[test]
fn a_bound_pod_that_is_being_deleted_is_not_allowed_any_more() {
    let mut desk = Desk::new(&["c1"]);
    desk.applied(PodSeen { terminating: true, ..bound_to("a", "c1") }).change("a", "c1", |_| ()).check(&[]);
}

#[test]
fn a_pod_that_somebody_else_bound_is_left_alone() {
    let mut desk = Desk::new(&["c1"]);
    let place = Place::Bound { node: id("c1"), election: None };
    desk.applied(PodSeen { place, ..pod("a", &Value::Null) }).change("a", "c1", |_| ()).check(&[]);
}

#[test]
fn a_promise_of_an_earlier_process_is_renewed_before_it_is_elected() {
    let mut desk = Desk::bare();
    let reserved = {
        let mut chaperon = fresh("a", "c1");
        chaperon.promise = Some(Promise { attempt: 1, lasts: ms(30_000) });
        chaperon
    };
    desk.see(Event::Targets(vec![super::desk::target("c1")]));
    desk.see(Event::NamespacesReplaced(vec![]));
    desk.see(Event::ScoresReplaced(vec![]));
    desk.see(Event::NodesReplaced(vec![super::desk::node("c1", &Value::Null)]));
    desk.lists("c1", vec![reserved]).see(Event::PodsReplaced(vec![pod("a", &Value::Null)]));
    desk.check(&["renew a c1 #2"]);
    desk.renews("a", "c1").check(&[]);
    desk.reserves("a", "c1").check(&["bind a c1 @1"]);
}

#[test]
fn w04_a_promise_without_margin_is_renewed_and_counts_from_when_it_was_asked() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").pass(26_000).told("a").said();
    desk.reserves("a", "c1").check(&["renew a c1 #2"]);
    desk.renews("a", "c1").pass(24_000).said();
    desk.reserves("a", "c1").check(&["bind a c1 @1"]);
}

#[test]
fn w04_an_answer_to_an_earlier_attempt_is_no_answer() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").pass(26_000).told("a").reserves("a", "c1").said();
    desk.renews("a", "c1").check(&[]);
    desk.change("a", "c1", |chaperon| chaperon.promise = Some(Promise { attempt: 1, lasts: ms(30_000) }))
        .check(&[]);
}

#[test]
fn a_promise_that_lapsed_before_the_election_is_asked_for_again() {
    let mut desk = electing();
    let conflict = || Live::Found(Box::new(pod("a", &Value::Null)));
    desk.not_bound("a", conflict()).change("a", "c1", |chaperon| chaperon.promise = None).pass(100);
    desk.check(&["renew a c1 #2"]);
}

#[test]
fn a_renewal_that_failed_is_repeated_with_a_higher_number() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").pass(26_000).told("a").reserves("a", "c1").said();
    let result = Err(Live::Unknown("no answer".to_owned()));
    desk.ends("a", Outcome::Renewed { target: id("c1"), sent: ms(0), result }).pass(100);
    desk.check(&["renew a c1 #3"]);
}

#[test]
fn w03_a_reservation_of_the_current_attempt_wins_over_a_stale_refusal() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").refuses("a", "c1", "full").said();
    desk.told("a");
    desk.reserves("a", "c1").check(&["bind a c1 @1"]);
}

#[test]
fn w04_a_stale_refusal_does_not_undo_an_election() {
    let mut desk = electing();
    desk.change("a", "c1", |chaperon| chaperon.refused = refusal("once", 1)).check(&[]);
    desk.bound("a").check(&["scheduled a c1", "allow a c1 @1"]);
}

#[test]
fn an_epoch_is_higher_than_any_before() {
    let mut desk = Desk::new(&["c1"]);
    desk.applied(super::desk::wishing(pod("a", &Value::Null), |wish| wish.epoch = 4));
    desk.made("a", "c1").reserves("a", "c1").check(&["create a c1", "bind a c1 @5"]);
}

#[test]
fn an_event_from_before_the_binding_does_not_unbind() {
    let mut desk = electing();
    desk.bound("a").said();
    desk.applied(PodSeen { version: "2".to_owned(), ..pod("a", &Value::Null) }).pass(60_000).check(&[]);
}

#[test]
fn w03_a_promise_that_came_and_lapsed_unseen_is_asked_for_again() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").refuses("a", "c1", "full").told("a").said();
    desk.change("a", "c1", |chaperon| chaperon.reserved_attempt = 1).check(&["renew a c1 #2"]);
}

#[test]
fn w03_a_refusal_of_an_earlier_attempt_is_no_answer_to_the_next() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a")
        .made("a", "c1")
        .refuses("a", "c1", "full")
        .made("a", "c2")
        .refuses("a", "c2", "full")
        .told("a");
    desk.said();
    desk.change("a", "c1", |chaperon| chaperon.reserved_attempt = 1).check(&["renew a c1 #2"]);
    desk.renews("a", "c1").change("a", "c1", |_| ()).check(&[]);
    assert_eq!(desk.machine.pending(Waits::Asking), 1, "the refusal is that of the first attempt");
    desk.refuses("a", "c1", "full again");
    assert_eq!(desk.machine.pending(Waits::Unschedulable), 1);
}

#[test]
fn case_023_an_ask_that_has_not_left_when_another_is_elected_never_leaves() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(500).check(&["create a c1", "create a c2"]);
    desk.reserves("a", "c1").bound("a");
    desk.check(&["bind a c1 @1", "scheduled a c1", "forgo a c2", "allow a c1 @1"]);
    desk.ends("a", Outcome::Forgone { target: id("c2") }).check(&[]);
    let asks = desk.machine.pods.get(&id("a")).map(|pod| pod.asks.keys().cloned().collect::<Vec<_>>());
    assert_eq!(asks, Some(vec![id("c1")]));
}
