//! ResourceQuotas: what is promised counts before the API server counts it.

use super::*;
use crate::plan::QuotaSeen;

fn quota(used: u32) -> QuotaSeen {
    let object = json!({"spec": {"hard": {"pods": "2"}},
        "status": {"hard": {"pods": "2"}, "used": {"pods": used.to_string()}}});
    QuotaSeen::read(Name::new("shop", "two"), &object)
}

fn used(bench: &mut Bench, used: u32) {
    bench.see(Seen::Quota(Change::Is(quota(used))));
}

/// Room for one chaperon on each of three nodes, and a quota of two pods.
fn bench() -> Bench {
    let mut bench = Bench::with_nodes(&["n1", "n2", "n3"]);
    bench.see(Seen::Quota(Change::All(vec![quota(0)])));
    bench
}

/// The refusal of a chaperon that asks now.
#[track_caller]
fn refused(bench: &mut Bench, name: &str) {
    bench.chaperon(name, &[("attempt", "1")]);
    let wanted = bench.admit();
    let [refusal @ Action::Refuse { message, .. }] = wanted.as_slice() else {
        panic!("not refused: {wanted:?}")
    };
    assert!(message.contains("exceeded quota: two, requested: pods=1, limited: pods=2"), "{message}");
    bench.done(refusal);
}

#[test]
fn no_more_is_promised_than_a_quota_admits() {
    let mut bench = bench();
    bench.reserve("a");
    bench.reserve("b");
    refused(&mut bench, "c");
    assert_eq!(bench.held("c"), None);
}

#[test]
fn what_others_use_counts_as_well() {
    let mut bench = bench();
    used(&mut bench, 1);
    bench.reserve("a");
    refused(&mut bench, "b");
}

#[test]
fn a_promise_that_is_taken_back_gives_its_place_to_who_waits() {
    let mut bench = bench();
    bench.reserve("a");
    bench.reserve("b");
    refused(&mut bench, "c");
    bench.see(Seen::Chaperon(Change::Gone(Name::new("shop", "a"))));
    let wanted = bench.admit();
    assert!(
        matches!(wanted.as_slice(), [Action::Reserve { chaperon, .. }] if *chaperon.name == *"c"),
        "{wanted:?}"
    );
}

#[test]
fn a_quota_with_more_room_lets_in_who_waits() {
    let mut bench = bench();
    used(&mut bench, 2);
    refused(&mut bench, "a");
    // The same again says nothing new.
    used(&mut bench, 2);
    assert_eq!(bench.admit(), []);
    used(&mut bench, 1);
    let wanted = bench.admit();
    assert!(matches!(wanted.as_slice(), [Action::Reserve { .. }]), "{wanted:?}");
}

#[test]
fn a_delegate_is_counted_until_its_quota_counts_it_and_not_twice_for_long() {
    let mut bench = bench();
    let node = bench.reserve("a");
    let mut allowed = reserved_on(&node);
    allowed.push(("is-allowed", "true".to_owned()));
    bench.chaperon("a", &pairs(&allowed));
    bench.pod(pod("a", true, Some(&node)));
    // The watch of the pod was faster than that of the quota.
    bench.reserve("b");
    refused(&mut bench, "c");
    bench.now += 400;
    used(&mut bench, 1);
    assert_eq!(bench.admit(), []);
    bench.see(Seen::Chaperon(Change::Gone(Name::new("shop", "b"))));
    assert_eq!(bench.admit(), []);
    bench.now += 700;
    let wanted = bench.admit();
    assert!(
        matches!(wanted.as_slice(), [Action::Reserve { chaperon, .. }] if *chaperon.name == *"c"),
        "{wanted:?}"
    );
}

#[test]
fn a_quota_that_comes_later_counts_what_was_promised_before() {
    let mut bench = Bench::with_nodes(&["n1", "n2", "n3"]);
    bench.reserve("a");
    bench.reserve("b");
    used(&mut bench, 0);
    refused(&mut bench, "c");
    bench.see(Seen::Quota(Change::Gone(Name::new("shop", "two"))));
    let wanted = bench.admit();
    assert!(matches!(wanted.as_slice(), [Action::Reserve { .. }]), "{wanted:?}");
}

#[test]
fn promises_from_before_a_restart_count() {
    let mut bench = Bench::unsynced();
    bench.see(Seen::Quota(Change::All(vec![quota(1)])));
    bench.see(Seen::Node(Change::All(vec![node("n1", json!({})), node("n2", json!({}))])));
    bench.see(Seen::Pod(Change::All(vec![])));
    bench.see(Seen::Budget(Change::All(vec![])));
    let reserved = reserved_on("n1");
    bench.see(Seen::Chaperon(Change::All(vec![chaperon("a", &pairs(&reserved), 7)])));
    bench.admit();
    refused(&mut bench, "b");
}
