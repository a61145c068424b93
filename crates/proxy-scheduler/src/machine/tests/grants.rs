//! Nowhere fits: who may go beyond what is free, one at a time.

use super::desk::{Desk, id, ms, pod, summary, target, wishing};
use crate::machine::{Election, Event, GrantKind, Outcome, Place, PodSeen, Stage, TargetSeen, Waits};
use serde_json::Value;

fn plain() -> PodSeen {
    pod("a", &Value::Null)
}

/// Pod `a` was refused by all of these, and the user has been told.
fn refused(targets: &[&str]) -> Desk {
    let mut desk = Desk::new(targets);
    desk.pod("a");
    for name in targets {
        desk.made("a", name).refuses("a", name, "full");
    }
    desk.told("a").said();
    desk
}

/// Of two targets `c1` is granted and has created the delegate, which has no node.
fn granted() -> Desk {
    let mut desk = refused(&["c1", "c2"]);
    desk.pass(1_000).check(&["grant a c1 scale-up @1"]);
    desk.granted(plain(), Some(("c1", GrantKind::ScaleUp, 1))).check(&["allow a c1 to scale-up"]);
    desk.allowed("a", "c1", |chaperon| {
        chaperon.allowed = true;
        chaperon.grant = true;
    });
    desk.change("a", "c1", |chaperon| chaperon.stage = Stage::Unplaced).pass(9_000);
    desk.check(&["explain a: 0/2 virtual nodes are available: 1 c1: may add nodes: full; 1 c2: full."]);
    desk.told("a");
    desk
}

fn revoked(desk: &mut Desk) -> &mut Desk {
    desk.allowed("a", "c1", |chaperon| chaperon.revoked = true).check(&[]);
    desk.change("a", "c1", |chaperon| chaperon.stage = Stage::Revoked).check(&["take back a c1"]);
    desk.granted(plain(), None)
}

#[test]
fn what_fits_nowhere_for_a_moment_is_granted_nothing() {
    let mut desk = refused(&["c1", "c2"]);
    desk.pass(900).check(&[]);
    desk.reserves("a", "c2").check(&["bind a c2 @1"]);
}

#[test]
fn case_021_only_one_target_is_granted() {
    let mut desk = granted();
    assert_eq!(desk.machine.pending(Waits::Granted), 1);
    desk.pass(200_000).check(&[]);
}

#[test]
fn case_021_who_can_make_room_comes_before_who_needs_nodes() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.pod("a").made("a", "c1").refuses("a", "c1", "full").made("a", "c2");
    desk.change("a", "c2", |chaperon| {
        chaperon.refused = super::desk::refusal("full", 1);
        chaperon.refused.iter_mut().for_each(|refusal| refusal.preempts = true);
    });
    desk.told("a").said();
    desk.pass(1_000).check(&["grant a c2 preempt @1"]);
}

#[test]
fn the_order_of_targets_comes_before_the_kind_of_the_grant() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::Targets(vec![target("c1"), TargetSeen { order: 1, ..target("c2") }]));
    desk.pod("a").made("a", "c1").refuses("a", "c1", "full").made("a", "c2");
    desk.change("a", "c2", |chaperon| {
        chaperon.refused = super::desk::refusal("full", 1);
        chaperon.refused.iter_mut().for_each(|refusal| refusal.preempts = true);
    });
    desk.told("a").said();
    desk.pass(1_000).check(&["grant a c1 scale-up @1"]);
}

#[test]
fn a_granted_delegate_that_gets_a_node_is_elected() {
    let mut desk = granted();
    desk.change("a", "c1", |chaperon| chaperon.stage = Stage::Placed).check(&["bind a c1 @1"]);
    desk.bound("a").check(&["scheduled a c1", "delete a c2"]);
}

#[test]
fn nothing_is_allowed_before_the_grant_stands_on_the_pod() {
    let mut desk = refused(&["c1", "c2"]);
    desk.pass(1_000).check(&["grant a c1 scale-up @1"]);
    desk.ends("a", Outcome::Granted(Err(crate::machine::Live::Unknown("no answer".to_owned()))));
    desk.check(&[]);
    desk.pass(200).check(&["grant a c1 scale-up @1"]);
}

#[test]
fn a_pod_that_another_target_takes_as_it_is_goes_there_once_the_grant_is_revoked() {
    let mut desk = granted();
    desk.reserves("a", "c2").check(&["revoke a c1"]);
    revoked(&mut desk).check(&["delete a c1", "bind a c2 @2"]);
}

#[test]
fn case_133_a_target_that_gets_no_node_in_time_makes_way_for_the_next() {
    let mut desk = granted();
    desk.pass(290_000).check(&[]);
    desk.pass(1_000).check(&["revoke a c1"]);
    revoked(&mut desk).said();
    desk.pass(1_000);
    desk.granted(plain(), Some(("c2", GrantKind::ScaleUp, 2)));
    assert!(desk.said().contains(&"allow a c2 to scale-up".to_owned()));
}

#[test]
fn nobody_else_is_granted_before_the_revocation_is_confirmed() {
    let mut desk = granted();
    desk.pass(291_000).check(&["revoke a c1"]);
    desk.allowed("a", "c1", |chaperon| chaperon.revoked = true);
    desk.pass(3_600_000).check(&[]);
    // It got its node first: the election stands.
    desk.change("a", "c1", |chaperon| chaperon.stage = Stage::Placed).check(&["bind a c1 @1"]);
    let election =
        Election { target_uid: id("cluster-c1"), chaperon_uid: id("uid-a-c1"), epoch: 1, lease: None };
    desk.bound("a").check(&["scheduled a c1", "delete a c2", "keep a c1"]);
    let place = Place::Bound { node: id("c1"), election: Some(election) };
    desk.applied(PodSeen { place, version: "90".to_owned(), ..plain() }).check(&[]);
}

#[test]
fn a_single_target_keeps_its_grant() {
    let mut desk = refused(&["c1"]);
    desk.pass(1_000).check(&["grant a c1 scale-up @1"]);
    desk.granted(plain(), Some(("c1", GrantKind::ScaleUp, 1))).said();
    desk.allowed("a", "c1", |chaperon| {
        chaperon.allowed = true;
        chaperon.grant = true;
    });
    desk.change("a", "c1", |chaperon| chaperon.stage = Stage::Unplaced).said();
    desk.told("a");
    desk.pass(3_600_000);
    assert!(!desk.said().iter().any(|line| line.starts_with("revoke")));
}

#[test]
fn a_pod_says_how_long_its_delegate_may_be_without_a_node() {
    let mut desk = refused(&["c1", "c2"]);
    let quick = || PodSeen { start_deadline: Some(ms(10_000)), ..plain() };
    desk.pass(1_000).said();
    desk.granted(quick(), Some(("c1", GrantKind::ScaleUp, 1))).said();
    desk.allowed("a", "c1", |chaperon| {
        chaperon.allowed = true;
        chaperon.grant = true;
    });
    desk.pass(9_999);
    desk.told("a").said();
    desk.pass(1).check(&["revoke a c1"]);
}

#[test]
fn a_pod_without_reservations_is_granted_from_the_start() {
    let direct = || wishing(plain(), |wish| wish.is_direct = true);
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(direct()).check(&["create a c1"]);
    desk.made("a", "c1").check(&["grant a c1 no-reservation @1"]);
    desk.granted(direct(), Some(("c1", GrantKind::NoReservation, 1)));
    desk.check(&["allow a c1 to no-reservation"]);
    desk.allowed("a", "c1", |chaperon| {
        chaperon.allowed = true;
        chaperon.grant = true;
        chaperon.stage = Stage::Placed;
    });
    desk.check(&["bind a c1 @1"]);
}

#[test]
fn a_grant_of_an_earlier_process_is_pursued() {
    let mut desk = Desk::bare();
    let grant = crate::machine::Grant {
        kind: GrantKind::Preempt,
        election: Election {
            target_uid: id("cluster-c1"),
            chaperon_uid: id("uid-a-c1"),
            epoch: 4,
            lease: None,
        },
    };
    desk.see(Event::NamespacesReplaced(vec![]));
    desk.see(Event::ScoresReplaced(vec![]));
    desk.see(Event::Targets(vec![target("c1"), target("c2")]));
    desk.see(Event::NodesReplaced(
        ["c1", "c2"].iter().map(|name| super::desk::node(name, &Value::Null)).collect(),
    ));
    desk.see(Event::PodsReplaced(vec![wishing(plain(), |wish| wish.grant = Some(grant))]));
    let mut there = super::desk::fresh("a", "c1");
    there.allowed = true;
    there.grant = true;
    there.stage = Stage::Placed;
    desk.lists("c2", vec![]).check(&[]);
    desk.lists("c1", vec![there]).check(&["bind a c1 @4"]);
}

#[test]
fn a_deleted_pod_takes_its_grant_with_it() {
    let mut desk = granted();
    desk.applied(PodSeen { terminating: true, version: "90".to_owned(), ..plain() });
    desk.check(&["delete a c1", "delete a c2"]);
}

/// Pod `a` is bound to `c1` by a reservation, and its delegate has lost the node.
fn unplaced(owned: bool) -> Desk {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(PodSeen { owned, ..plain() }).made("a", "c1").reserves("a", "c1").bound("a").said();
    desk.allowed("a", "c1", |chaperon| chaperon.allowed = true);
    desk.change("a", "c1", |chaperon| chaperon.stage = Stage::Unplaced).check(&[]);
    desk
}

#[test]
fn a_bound_pod_whose_delegate_gets_no_node_is_revoked_where_another_target_has_room() {
    let mut desk = unplaced(true);
    desk.pass(299_000).check(&[]);
    desk.pass(1_000).check(&["revoke a c1"]);
    desk.allowed("a", "c1", |chaperon| chaperon.revoked = true);
    // Its end is the feedback controller's.
    desk.change("a", "c1", |chaperon| chaperon.stage = Stage::Revoked).pass(600_000).check(&[]);
}

#[test]
fn a_bound_pod_that_nobody_would_make_again_waits() {
    unplaced(false).pass(3_600_000).check(&[]);
}

#[test]
fn a_bound_pod_that_nobody_else_has_room_for_waits() {
    let mut desk = unplaced(true);
    desk.see(Event::SummarySeen { target: id("c2"), summary: summary("0") }).pass(600_000).check(&[]);
    desk.see(Event::SummarySeen { target: id("c2"), summary: summary("50") });
    desk.pass(300_000).check(&["revoke a c1"]);
}

#[test]
fn a_delegate_that_gets_its_node_in_time_is_left_alone() {
    let mut desk = unplaced(true);
    desk.pass(200_000).change("a", "c1", |chaperon| chaperon.stage = Stage::Placed);
    desk.pass(600_000).check(&[]);
}
