//! Refusals and failures: whom they count against, and when they are over.

use super::desk::{Desk, id, pod, summary};
use crate::machine::{Event, GrantKind, Outcome, PodSeen, Scope, Waits};
use serde_json::Value;

/// Pod `a` was refused by `c1`, alone.
fn refused() -> Desk {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").made("a", "c1").refuses("a", "c1", "0/3 nodes are available: 3 Insufficient cpu.");
    desk.check(&[
        "create a c1",
        "explain a: 0/1 virtual nodes are available: 1 c1: 0/3 nodes are available: 3 Insufficient cpu.",
    ]);
    desk.told("a");
    desk
}

#[test]
fn a_refusal_leads_to_the_next_target() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").refuses("a", "c1", "full").check(&["create a c1", "create a c2"]);
}

#[test]
fn case_010_a_gated_candidate_leads_to_the_next_target_at_once() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").pass(100).said();
    desk.refuses("a", "c1", "SchedulingGated").check(&["create a c2"]);
}

#[test]
fn a_refusal_closes_the_target_for_the_whole_class() {
    refused().pod("b").check(&[
        "explain b: 0/1 virtual nodes are available: 1 c1: 0/3 nodes are available: 3 Insufficient cpu.",
    ]);
}

#[test]
fn a_refusal_closes_nothing_for_another_class() {
    let other = super::desk::wishing(pod("b", &Value::Null), |wish| wish.class = id("ns/other"));
    refused().applied(other).check(&["create b c1"]);
}

#[test]
fn a_changed_summary_opens_the_target_again() {
    let mut desk = refused();
    desk.pod("b").said();
    desk.told("b");
    desk.see(Event::SummarySeen { target: id("c1"), summary: summary("50") }).check(&["create b c1"]);
}

#[test]
fn a_reservation_of_one_opens_the_target_for_its_class() {
    let mut desk = refused();
    desk.pod("b").said();
    desk.told("b");
    desk.reserves("a", "c1").check(&["bind a c1 @1", "create b c1"]);
}

#[test]
fn a_refused_chaperon_stays_and_wins_when_it_is_reserved() {
    let mut desk = refused();
    desk.pass(900).check(&[]);
    desk.reserves("a", "c1").check(&["bind a c1 @1"]);
}

#[test]
fn the_first_of_all_who_refused_to_reserve_wins() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a")
        .made("a", "c1")
        .refuses("a", "c1", "full")
        .made("a", "c2")
        .refuses("a", "c2", "full")
        .said();
    desk.told("a");
    assert_eq!(desk.machine.pending(Waits::Unschedulable), 1);
    desk.reserves("a", "c2").check(&["bind a c2 @1"]);
    desk.bound("a").check(&["scheduled a c2", "delete a c1", "allow a c2 @1"]);
    assert_eq!(desk.machine.pending(Waits::Unschedulable), 0);
}

#[test]
fn a_new_reason_is_written_after_a_while_and_the_same_never_again() {
    let mut desk = refused();
    desk.refuses("a", "c1", "1 node(s) had taints").pass(1_000).check(&["grant a c1 scale-up @1"]);
    let grant = Some(("c1", GrantKind::ScaleUp, 1));
    desk.granted(pod("a", &Value::Null), grant).check(&["allow a c1 to scale-up"]);
    desk.allowed("a", "c1", |chaperon| chaperon.allowed = true).said();
    desk.allowed("a", "c1", |chaperon| chaperon.grant = true).pass(8_000).check(&[]);
    desk.pass(1_000)
        .check(&["explain a: 0/1 virtual nodes are available: 1 c1: may add nodes: 1 node(s) had taints."]);
    desk.told("a");
    desk.pass(600_000).check(&[]);
}

#[test]
fn a_reason_that_could_not_be_written_is_written_later() {
    let mut desk = Desk::new(&[]);
    desk.pod("a").said();
    let failure = crate::machine::Failure { scope: Scope::Target, message: "busy".to_owned() };
    desk.ends("a", Outcome::Explained(Err(failure))).check(&[]);
    assert_eq!(desk.pass(1_000).said().len(), 1);
}

#[test]
fn case_017_a_failure_counts_against_that_target_alone() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").fails("a", "c1", Scope::Namespace, "namespaces \"ns\" not found");
    desk.check(&["create a c1", "create a c2"]);
    desk.pod("b").check(&["create b c2"]);
}

#[test]
fn case_017_every_reason_is_kept() {
    let mut desk = Desk::new(&["c1", "c2", "c3"]);
    desk.pod("a").fails("a", "c1", Scope::Namespace, "namespaces \"ns\" not found");
    desk.fails("a", "c2", Scope::Namespace, "forbidden").fails("a", "c3", Scope::Target, "no answer").check(
        &[
            "create a c1",
            "create a c2",
            "create a c3",
            "explain a: 0/3 virtual nodes are available: 1 c1: namespaces \"ns\" not found; 1 c2: forbidden; \
         1 c3: no answer.",
        ],
    );
}

#[test]
fn case_017_what_failed_is_tried_again_by_one_pod_and_opens_for_all_when_it_succeeds() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").fails("a", "c1", Scope::Namespace, "forbidden").told("a").said();
    desk.pod("b").told("b").said();
    desk.pass(999).check(&[]);
    desk.pass(1).check(&["create a c1"]);
    desk.made("a", "c1").check(&["create b c1"]);
}

#[test]
fn case_017_each_failure_waits_longer() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").fails("a", "c1", Scope::Target, "no answer").said();
    desk.told("a");
    desk.pass(1_000).check(&["create a c1"]);
    desk.fails("a", "c1", Scope::Target, "no answer").pass(1_999).check(&[]);
    desk.pass(2_001).check(&["create a c1"]);
}

#[test]
fn a_pod_that_is_invalid_there_closes_nothing_for_others() {
    let mut desk = Desk::new(&["c1"]);
    desk.pod("a").fails("a", "c1", Scope::Class, "spec.foo: invalid").said();
    let other = super::desk::wishing(pod("b", &Value::Null), |wish| wish.class = id("ns/other"));
    desk.applied(other).check(&["create b c1"]);
}

#[test]
fn a_text_from_before_a_restart_is_known() {
    let text = "0/0 virtual nodes are available: no Target or ClusterTarget serves namespace ns.";
    Desk::new(&[]).applied(PodSeen { shown: Some(text.to_owned()), ..pod("a", &Value::Null) }).check(&[]);
}
