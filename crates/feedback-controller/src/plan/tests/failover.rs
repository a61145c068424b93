use super::{chaperon, check, deleted_proxy, obey, orphan, proxy, running, words};
use crate::failover::{HOLD, LeaseEnd, Outage, Successor};
use crate::plan::{Observed, Remote, plan};
use crate::views::{Chaperon, Proxy};
use api::failover::Policy;
use api::{Failover, Fence, keys};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// An outage that has lasted longer than the grace period of a minute.
fn outage(failover: Failover) -> Outage {
    Outage {
        policy: Policy { failover, grace: SECOND * 60, ..Policy::default() },
        lasts: SECOND * 61,
        is_sure: true,
        elsewhere: true,
        is_fenced: false,
        lease: None,
    }
}

fn owned(change: impl FnOnce(&mut Proxy)) -> Option<Arc<Proxy>> {
    let mut proxy = Proxy { controller: Some("owner".to_owned()), ..proxy("Running") };
    change(&mut proxy);
    Some(Arc::new(proxy))
}

/// A pod of a ReplicaSet behind a silent target.
fn silent(outage: Outage) -> Observed {
    Observed { proxy: owned(|_| ()), delegate: Remote::Silent, outage, ..running() }
}

fn reason(seen: &Observed) -> String {
    let told = plan(seen).actions.iter().fold(seen.clone(), obey);
    let status = told.proxy.unwrap().status.value();
    let all = status["conditions"].as_array().unwrap();
    let found = all.iter().find(|condition| condition["type"] == "TargetReachable").unwrap();
    found["reason"].as_str().unwrap().to_owned()
}

const MOVES: &[&str] =
    &["Failed TargetUnreachable", "tell TargetUnreachable and what may be left", "delete proxy"];
const LEAVES: &[&str] =
    &["Failed TargetUnreachable", "tell TargetUnreachable and what may be left", "release", "delete proxy"];

#[test]
fn w13_case_048_a_pod_that_stays_waits_for_its_target_for_ever() {
    let seen = silent(Outage { lasts: SECOND * 100_000, ..outage(Failover::Stay) });
    check(seen.clone(), &["patch"]);
    assert_eq!(reason(&seen), "Stays");
    assert_eq!(plan(&seen).again, None);
}

#[test]
fn case_033_a_pod_that_moves_ends_after_the_grace_period_and_not_before() {
    check(silent(outage(Failover::Move)), MOVES);
    let early = silent(Outage { lasts: SECOND * 20, ..outage(Failover::Move) });
    check(early.clone(), &["patch"]);
    assert_eq!((reason(&early).as_str(), plan(&early).again), ("GracePeriod", Some(SECOND * 40)));
}

#[test]
fn w12_case_033_after_an_outage_of_ours_nothing_moves_on_the_word_of_an_old_condition() {
    let seen = silent(Outage { is_sure: false, lasts: SECOND * 1800, ..outage(Failover::Move) });
    check(seen.clone(), &["patch"]);
    assert!(plan(&seen).again.is_some());
}

#[test]
fn w12_case_048_nothing_moves_when_no_other_target_answers() {
    let seen = silent(Outage { elsewhere: false, ..outage(Failover::Move) });
    check(seen.clone(), &["patch"]);
    assert_eq!(reason(&seen), "NowhereElse");
}

#[test]
fn a_pod_whose_replacement_has_its_name_leaves_at_once() {
    check(Observed { proxy: owned(|proxy| proxy.is_named = true), ..silent(outage(Failover::Move)) }, LEAVES);
}

#[test]
fn w05_a_pod_that_moves_once_waits_until_its_target_is_fenced() {
    let seen = silent(Outage { lasts: SECOND * 100_000, ..outage(Failover::MoveOnce) });
    check(seen.clone(), &["patch", "explain NotConfirmed"]);
    assert_eq!(reason(&seen), "NotConfirmed");
    check(silent(Outage { is_fenced: true, ..outage(Failover::MoveOnce) }), LEAVES);
}

#[test]
fn a_pod_that_stays_waits_even_when_its_target_is_fenced() {
    check(silent(Outage { is_fenced: true, ..outage(Failover::Stay) }), &["patch"]);
}

#[test]
fn a_fence_needs_neither_grace_nor_another_target() {
    let fenced =
        Outage { is_fenced: true, lasts: SECOND, is_sure: false, elsewhere: false, ..outage(Failover::Move) };
    check(silent(fenced), LEAVES);
}

#[test]
fn a_pod_without_controller_is_never_replaced_and_says_so() {
    for failover in [Failover::Move, Failover::MoveOnce] {
        let bare = owned(|proxy| proxy.controller = None);
        let seen = Observed { proxy: bare, ..silent(Outage { is_fenced: true, ..outage(failover) }) };
        check(seen.clone(), &["patch", "explain NoController"]);
        assert_eq!(reason(&seen), "NoController");
    }
}

#[test]
fn case_019_a_pod_that_has_finished_neither_moves_nor_says_anything() {
    for phase in ["Succeeded", "Failed"] {
        let finished = Some(Arc::new(Proxy { controller: Some("owner".to_owned()), ..proxy(phase) }));
        check(Observed { proxy: finished, ..silent(outage(Failover::Move)) }, &[]);
    }
}

#[test]
fn w08_a_deleted_pod_is_freed_when_its_target_is_fenced() {
    let fenced = Outage { is_fenced: true, ..outage(Failover::Stay) };
    let seen = Observed { proxy: deleted_proxy(), ..silent(fenced) };
    check(seen, &["Failed Deleted", "tell Deleted and what may be left", "release"]);
}

#[test]
fn w08_a_deleted_pod_behind_a_silent_target_is_held_unless_its_policy_says_not_to_wait() {
    for failover in [Failover::Stay, Failover::MoveOnce] {
        check(Observed { proxy: owned(|proxy| proxy.deleting = Some(0)), ..silent(outage(failover)) }, &[]);
    }
    let deleted = |is_named| {
        let proxy = owned(|proxy| (proxy.deleting, proxy.is_named) = (Some(0), is_named));
        Observed { proxy, ..silent(outage(Failover::Move)) }
    };
    let failed = &["Failed TargetUnreachable", "tell TargetUnreachable and what may be left"];
    check(deleted(false), failed);
    check(deleted(true), &[failed[0], failed[1], "release"]);
}

/// A pod that was replaced, and whose target is back.
fn returned(successor: Successor, returned: Duration) -> Observed {
    let moved =
        plan(&silent(outage(Failover::Move))).actions.iter().fold(silent(outage(Failover::Move)), obey);
    let delegate = Chaperon { may_run_twice: true, ..chaperon("t1", "c", "Running") };
    Observed { delegate: Remote::Present(Arc::new(delegate)), successor, returned, ..moved }
}

#[test]
fn case_048_what_a_replaced_pod_left_goes_when_its_replacement_is_ready() {
    check(returned(Successor::Ready, SECOND), &["delete c"]);
    check(returned(Successor::Nobody, SECOND), &["delete c"]);
    let waits = plan(&returned(Successor::Waits, SECOND));
    assert_eq!((words(&waits.actions), waits.again.is_some()), (Vec::new(), true));
    check(returned(Successor::Waits, HOLD), &["delete c"]);
}

#[test]
fn an_end_that_was_decided_is_carried_out_when_the_target_is_back_before() {
    let seen = silent(outage(Failover::Move));
    let patched = plan(&seen).actions.iter().take(1).fold(seen, obey);
    let delegate = Remote::Present(Arc::new(chaperon("t1", "c", "Running")));
    check(Observed { delegate, ..patched }, &["delete proxy"]);
}

#[test]
fn what_a_pod_of_a_stateful_set_left_goes_when_the_pod_of_its_name_is_ready() {
    let moving = |successor, age| {
        let others = vec![Arc::new(Chaperon { may_run_twice: true, ..chaperon("t1", "c", "Running") })];
        Observed { others, successor, age, ..orphan(true) }
    };
    check(moving(Successor::Ready, SECOND * 60), &["delete c"]);
    check(moving(Successor::Waits, HOLD), &["delete c"]);
    check(moving(Successor::Nobody, SECOND * 60), &["sweep c"]);
    let waits = plan(&moving(Successor::Waits, SECOND * 60));
    assert_eq!((words(&waits.actions), waits.again.is_some()), (Vec::new(), true));
    // What may not run twice goes at once.
    check(Observed { successor: Successor::Waits, ..orphan(true) }, &["sweep c"]);
}

fn leased(lease: Option<LeaseEnd>, fence: Fence) -> Outage {
    let policy = Policy { failover: Failover::MoveOnce, fence, grace: SECOND * 60 };
    Outage { policy, lease, ..outage(Failover::MoveOnce) }
}

#[test]
fn a_pod_with_a_lease_moves_when_that_has_run_out_and_not_before() {
    let seen = silent(leased(Some(LeaseEnd::Runs), Fence::Lease));
    check(seen.clone(), &["patch"]);
    assert_eq!(reason(&seen), "LeaseRuns");
    assert!(plan(&seen).again.is_some());
    check(silent(leased(Some(LeaseEnd::IsOver), Fence::Lease)), MOVES);
}

#[test]
fn a_pod_that_was_elected_without_lease_is_not_moved_by_one() {
    assert_eq!(reason(&silent(leased(None, Fence::Lease))), "NotConfirmed");
    let changed_since = silent(leased(Some(LeaseEnd::IsOver), Fence::Confirmed));
    assert_eq!(reason(&changed_since), "NotConfirmed");
}

#[test]
fn a_pod_that_its_target_stopped_for_want_of_a_lease_is_replaced_when_the_target_is_back() {
    let fenced_off = Chaperon { is_fenced_off: true, ..chaperon("t1", "c", "Failed") };
    let seen =
        Observed { delegate: Remote::Present(Arc::new(fenced_off)), proxy: owned(|_| ()), ..running() };
    let ended = format!("Failed {}", keys::LEASE_EXPIRED);
    let told = format!("tell {}", keys::LEASE_EXPIRED);
    check(seen, &[&ended, &told, "delete proxy"]);
}
