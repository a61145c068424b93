//! Pods go where the data of their claims is.

use super::desk::{Desk, asking, id, pod, target, wishing};
use crate::machine::{ClaimHome, ClaimSeen, Event, Name, Place, PodSeen, TargetSeen, Width};
use serde_json::{Value, json};
use std::sync::Arc;

fn claim(name: &str, home: ClaimHome) -> ClaimSeen {
    ClaimSeen {
        name: Name { namespace: id("ns"), name: id(name) },
        uid: id(&format!("uid-{name}")),
        home,
        deleting: false,
        raw: Arc::new(Value::Null),
    }
}

fn at(cluster: &str) -> ClaimHome {
    ClaimHome::Cluster(id(cluster), "has its data elsewhere".to_owned())
}

/// A pod that names a claim.
fn user(name: &str, claim: &str) -> PodSeen {
    let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]});
    wishing(pod(name, &volumes), |wish| wish.class = id(name))
}

fn desk(claims: Vec<ClaimSeen>) -> Desk {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.see(Event::ClaimsReplaced(claims));
    desk
}

#[test]
fn w30_a_pod_goes_where_the_data_of_its_claim_is() {
    desk(vec![claim("data", at("cluster-c2"))]).applied(user("a", "data")).check(&["create a c2"]);
}

#[test]
fn w30_case_072_data_of_the_source_stays_there_and_the_pod_says_so() {
    let mut desk = desk(vec![claim("data", at("source"))]);
    desk.applied(user("a", "data")).check(&["explain a: 0/2 virtual nodes are available: \
         1 c1: PersistentVolumeClaim data has its data elsewhere; \
         1 c2: PersistentVolumeClaim data has its data elsewhere."]);
    let here = TargetSeen { cluster_uid: id("source"), is_self: true, ..target("c2") };
    desk.told("a").see(Event::Targets(vec![target("c1"), here])).check(&["create a c2"]);
}

#[test]
fn a_claim_that_nobody_has_or_that_targets_have_keeps_a_pod_from_none() {
    desk(vec![]).applied(user("a", "data")).check(&["create a c1"]);
    desk(vec![claim("data", ClaimHome::TargetsOwn)]).applied(user("a", "data")).check(&["create a c1"]);
}

#[test]
fn before_claims_are_known_only_pods_without_any_are_placed() {
    let mut desk = Desk::new(&["c1", "c2"]);
    desk.applied(user("a", "data")).check(&[]);
    desk.pod("b").check(&["create b c1"]);
    desk.see(Event::ClaimsReplaced(vec![claim("data", at("cluster-c2"))])).check(&["create a c2"]);
}

#[test]
fn w30_pods_that_share_a_claim_are_elected_for_one_target() {
    let mut desk = desk(vec![claim("data", ClaimHome::Anywhere)]);
    for name in ["a", "b"] {
        desk.applied(asking(user(name, "data"), Width::Some(2)));
        for target in ["c1", "c2"] {
            desk.change(name, target, |chaperon| {
                drop(chaperon.claims.insert("data".into(), "uid-data".into()));
            });
            desk.made(name, target);
        }
    }
    desk.said();
    desk.reserves("a", "c1").check(&["bind a c1 @1"]);
    let said = desk.reserves("b", "c2").said().join(" ");
    assert!(!said.contains("bind"), "{said}");
    desk.reserves("b", "c1");
    assert!(desk.said().contains(&"bind b c1 @1".to_owned()));
}

#[test]
fn an_ask_that_names_other_claims_than_there_are_now_is_taken_back() {
    let mut desk = desk(vec![]);
    desk.applied(user("a", "data")).made("a", "c1").check(&["create a c1"]);
    desk.see(Event::ClaimApplied(claim("data", ClaimHome::Anywhere))).check(&["delete a c1", "create a c2"]);
}

#[test]
fn a_claim_that_is_being_deleted_serves_no_new_pod() {
    let going = ClaimSeen { deleting: true, ..claim("data", ClaimHome::Anywhere) };
    let said = desk(vec![going]).applied(user("a", "data")).said().join(" ");
    assert!(said.contains("PersistentVolumeClaim data is being deleted"), "{said}");
}

#[test]
fn a_bound_pod_keeps_its_place_whatever_becomes_of_its_claim() {
    let mut desk = desk(vec![claim("data", ClaimHome::Anywhere)]);
    let bound = PodSeen {
        version: "20".to_owned(),
        place: Place::Bound { node: id("c1"), election: None },
        ..user("a", "data")
    };
    desk.applied(bound).see(Event::ClaimApplied(claim("data", at("cluster-c2")))).check(&[]);
}
