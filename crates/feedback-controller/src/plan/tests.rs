use super::{Action, COALESCE, LOSERS, ORPHAN_AGE, Observed, Parent, Plan, Remote, plan};
use crate::failover::{Outage, Successor};
use crate::mirror::Cause;
use crate::views::{Chaperon, Compact, Proxy};
use api::keys;
use api::updates::Updates;
use runtime::TargetKey;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn status(phase: &str) -> Value {
    let ready = if phase == "Running" { "True" } else { "False" };
    json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]})
}

fn chaperon(target: &str, uid: &str, phase: &str) -> Chaperon {
    Chaperon {
        target: TargetKey { namespace: String::new(), name: target.to_owned() },
        namespace: "ns".to_owned(),
        name: "p-1".to_owned(),
        uid: uid.to_owned(),
        version: 1,
        parent_uid: "u".to_owned(),
        parent_namespace: "ns".to_owned(),
        parent_name: "p".to_owned(),
        virtual_node: format!("admiralty-{target}"),
        is_allowed: true,
        is_terminating: false,
        is_revoked: false,
        is_fenced_off: false,
        may_run_twice: false,
        grace: None,
        annotations: BTreeMap::new(),
        ephemeral: Compact::default(),
        updates: None,
        labels: BTreeMap::new(),
        status: Compact::new(&status(phase)),
    }
}

fn proxy(phase: &str) -> Proxy {
    Proxy {
        namespace: "ns".to_owned(),
        name: "p".to_owned(),
        uid: "u".to_owned(),
        version: 1,
        node: "admiralty-t1".to_owned(),
        finalizers: vec![keys::DELEGATE_FINALIZER.to_owned()],
        elected_target: Some("cluster".to_owned()),
        elected_chaperon: Some("c".to_owned()),
        status: Compact::new(&status(phase)),
        ..Proxy::default()
    }
}

/// A bound pod whose status is mirrored, and which nobody deletes.
fn running() -> Observed {
    Observed {
        proxy: Some(Arc::new(proxy("Running"))),
        pods_in_step: true,
        delegate: Remote::Present(Arc::new(chaperon("t1", "c", "Running"))),
        is_confirmed: false,
        others: Vec::new(),
        parent: Parent::NotRead,
        last_status: None,
        had: BTreeSet::new(),
        was_disrupted: false,
        is_told: false,
        is_mirrored: false,
        waited: Duration::MAX,
        age: SECOND * 60,
        outage: Outage::default(),
        successor: Successor::Nobody,
        returned: SECOND * 60,
        labels: api::v1alpha1::LabelRewriting::Rewrite,
        now: "2026-01-01T00:00:00Z".to_owned(),
    }
}

fn with(change: impl FnOnce(&mut Proxy)) -> Option<Arc<Proxy>> {
    let mut proxy = proxy("Running");
    change(&mut proxy);
    Some(Arc::new(proxy))
}

fn deleted_proxy() -> Option<Arc<Proxy>> {
    with(|proxy| proxy.deleting = Some(0))
}

fn orphan(is_allowed: bool) -> Observed {
    let others = vec![Arc::new(Chaperon { is_allowed, ..chaperon("t1", "c", "Running") })];
    Observed { proxy: None, delegate: Remote::NotElected, others, parent: Parent::Gone, ..running() }
}

fn silent() -> Observed {
    Observed { delegate: Remote::Unknown, ..running() }
}

/// What API servers and our shell make of an action. The delegate of a deleted PodChaperon ends at once.
fn obey(mut seen: Observed, action: &Action) -> Observed {
    let mut proxy = seen.proxy.as_deref().cloned();
    match action {
        Action::LookUpDelegate => seen.delegate = Remote::Absent,
        Action::LookUpTarget => seen.delegate = Remote::TargetGone,
        Action::LookUpParent => seen.parent = Parent::Gone,
        Action::PatchStatus(patch) => {
            if let Some(proxy) = &mut proxy {
                let mut status = proxy.status.value();
                for (key, value) in patch["status"].as_object().into_iter().flatten() {
                    status[key] = value.clone();
                }
                proxy.status = Compact::new(&status);
            }
        }
        Action::Release => proxy.iter_mut().for_each(|proxy| proxy.finalizers.clear()),
        Action::DeleteProxy => proxy.iter_mut().for_each(|proxy| proxy.deleting = Some(0)),
        Action::PassGrace(_, seconds) => {
            if let Remote::Present(chaperon) = &seen.delegate {
                let grace = Some(*seconds);
                seen.delegate = Remote::Present(Arc::new(Chaperon { grace, ..chaperon.as_ref().clone() }));
            }
        }
        Action::PassEphemeral(_, containers) => {
            if let Remote::Present(chaperon) = &seen.delegate {
                let ephemeral = Compact::new(containers);
                seen.delegate =
                    Remote::Present(Arc::new(Chaperon { ephemeral, ..chaperon.as_ref().clone() }));
            }
        }
        Action::PassUpdates(_, record) => {
            if let Remote::Present(chaperon) = &seen.delegate {
                let updates = Some(record.clone());
                seen.delegate = Remote::Present(Arc::new(Chaperon { updates, ..chaperon.as_ref().clone() }));
            }
        }
        Action::DeleteChaperon(gone) | Action::SweepChaperon(gone) => {
            if matches!(&seen.delegate, Remote::Present(chaperon) if chaperon.uid == gone.uid) {
                seen.delegate = Remote::Missing;
            }
            seen.others.retain(|other| other.uid != gone.uid);
        }
        Action::Tell(_, _) | Action::Explain(_) => {}
    }
    // Without finalizer and grace the API server lets the pod go.
    let gone = proxy.as_ref().is_some_and(|proxy| proxy.deleting == Some(0) && proxy.finalizers.is_empty());
    seen.proxy = if gone { None } else { proxy.map(Arc::new) };
    if gone && let Remote::Present(chaperon) = &seen.delegate {
        seen.others.push(Arc::clone(chaperon));
        seen.delegate = Remote::NotElected;
    }
    seen
}

fn words(actions: &[Action]) -> Vec<String> {
    let word = |action: &Action| match action {
        Action::PatchStatus(patch) => {
            match (patch["status"]["phase"].as_str(), patch["status"]["reason"].as_str()) {
                (Some(phase), Some(reason)) => format!("{phase} {reason}"),
                (Some(phase), None) => phase.to_owned(),
                (None, _) => "patch".to_owned(),
            }
        }
        Action::Tell(cause, remains) => {
            format!("tell {}{}", cause.reason(), if *remains { " and what may be left" } else { "" })
        }
        Action::Explain(why) => format!("explain {}", why.reason()),
        Action::PassGrace(_, seconds) => format!("grace {seconds}"),
        Action::PassEphemeral(_, containers) => format!("ephemeral {}", containers[0]["name"]),
        Action::PassUpdates(_, record) => format!("updates {record}"),
        Action::DeleteChaperon(chaperon) => format!("delete {}", chaperon.uid),
        Action::SweepChaperon(chaperon) => format!("sweep {}", chaperon.uid),
        Action::LookUpDelegate => "delegate?".to_owned(),
        Action::LookUpTarget => "target?".to_owned(),
        Action::LookUpParent => "parent?".to_owned(),
        Action::Release => "release".to_owned(),
        Action::DeleteProxy => "delete proxy".to_owned(),
    };
    actions.iter().map(word).collect()
}

/// The plan is as wanted; and whatever the process died between, the end is the same, without a write twice.
#[track_caller]
fn check(seen: Observed, want: &[&str]) {
    assert_eq!(words(&plan(&seen).actions), want, "{seen:?}");
    let mut end = seen.clone();
    for _ in 0..9 {
        end = plan(&end).actions.iter().fold(end, obey);
    }
    assert_eq!(plan(&end).actions, [], "does not settle: {end:?}");
    let mut crashed = seen;
    for _ in 0..30 {
        let Some(first) = plan(&crashed).actions.into_iter().next() else { break };
        crashed = obey(crashed, &first);
    }
    assert_eq!((crashed.proxy.is_some(), &crashed.others), (end.proxy.is_some(), &end.others));
    let phase = |seen: &Observed| seen.proxy.as_ref().map(|proxy| proxy.status.value()["phase"].clone());
    assert_eq!(phase(&crashed), phase(&end));
}

#[test]
fn a_mirrored_pod_is_left_alone() {
    check(running(), &[]);
}

#[test]
fn a_delegate_that_ends_ends_its_proxy_and_nothing_else() {
    check(
        Observed { delegate: Remote::Present(Arc::new(chaperon("t1", "c", "Succeeded"))), ..running() },
        &["Succeeded"],
    );
}

#[test]
fn case_028_a_pending_delegate_shows_as_pending() {
    check(
        Observed { delegate: Remote::Present(Arc::new(chaperon("t1", "c", "Pending"))), ..running() },
        &["Pending"],
    );
}

#[test]
fn case_029_an_end_is_mirrored_though_nothing_was_seen_before_it() {
    let pending = with(|pod| pod.status = Compact::new(&json!({"phase": "Pending"})));
    let delegate = Remote::Present(Arc::new(chaperon("t1", "c", "Succeeded")));
    check(Observed { proxy: pending, delegate, ..running() }, &["Succeeded"]);
}

#[test]
fn case_035_what_was_written_once_is_not_written_again() {
    let delegate = Remote::Present(Arc::new(chaperon("t1", "c", "Pending")));
    check(Observed { delegate, is_mirrored: true, ..running() }, &[]);
}

#[test]
fn a_change_nobody_waits_for_is_coalesced() {
    let delegate = Remote::Present(Arc::new(chaperon("t1", "c", "Pending")));
    let waited = Duration::from_millis(50);
    let seen = Observed { delegate, waited, ..running() };
    assert_eq!(plan(&seen), Plan { actions: vec![], again: Some(COALESCE - waited) });
}

#[test]
fn a_first_running_is_never_delayed() {
    let pending = with(|pod| pod.status = Compact::new(&status("Pending")));
    assert_eq!(
        words(&plan(&Observed { proxy: pending, waited: Duration::ZERO, ..running() }).actions),
        ["Running"]
    );
}

#[test]
fn a_pod_that_waits_for_its_scheduler_is_left_to_it() {
    let others = vec![Arc::new(chaperon("t1", "c", ""))];
    let waiting = with(|pod| pod.node = String::new());
    check(Observed { proxy: waiting, delegate: Remote::NotElected, others, ..running() }, &[]);
}

#[test]
fn w14_a_silent_target_changes_nothing() {
    check(silent(), &[]);
    check(Observed { proxy: deleted_proxy(), ..silent() }, &[]);
}

#[test]
fn case_031_a_pod_behind_a_silent_target_is_not_ready_until_it_answers() {
    let silent = Observed { delegate: Remote::Silent, ..running() };
    check(silent.clone(), &["patch"]);
    let marked = plan(&silent).actions.iter().fold(silent, obey);
    assert_eq!(words(&plan(&Observed { delegate: running().delegate, ..marked }).actions), ["patch"]);
}

#[test]
fn w14_a_deleted_pod_behind_a_silent_target_waits() {
    check(Observed { proxy: deleted_proxy(), delegate: Remote::Silent, ..running() }, &[]);
}

#[test]
fn w08_w23_a_pod_bound_nowhere_waits_for_no_target_and_is_released_by_one_write() {
    let proxy = with(|pod| {
        pod.deleting = Some(0);
        pod.node = String::new();
    });
    check(Observed { proxy, delegate: Remote::NotElected, ..running() }, &["release"]);
}

#[test]
fn w06_a_deleted_pod_takes_its_delegate_along() {
    check(Observed { proxy: deleted_proxy(), ..running() }, &["delete c"]);
}

#[test]
fn w11_a_deleted_pod_stays_until_its_delegate_is_gone() {
    let ending = Arc::new(Chaperon { is_terminating: true, ..chaperon("t1", "c", "Running") });
    check(Observed { proxy: deleted_proxy(), delegate: Remote::Present(ending), ..running() }, &[]);
}

#[test]
fn w09_what_is_missing_is_looked_up_before_anything_is_done() {
    check(Observed { delegate: Remote::Missing, ..running() }, &["delegate?"]);
    check(Observed { proxy: deleted_proxy(), delegate: Remote::Missing, ..running() }, &["delegate?"]);
}

#[test]
fn w11_the_delegates_own_end_is_written_before_the_pod_goes() {
    let last_status = Some(status("Succeeded"));
    let seen = Observed { proxy: deleted_proxy(), delegate: Remote::Absent, last_status, ..running() };
    check(seen, &["Succeeded", "release"]);
}

#[test]
fn a_deleted_pod_without_recorded_end_ends_as_failed() {
    check(
        Observed { proxy: deleted_proxy(), delegate: Remote::Absent, ..running() },
        &["Failed Deleted", "release"],
    );
}

#[test]
fn a_finished_pod_keeps_its_end_when_deleted() {
    let proxy = with(|pod| {
        pod.deleting = Some(0);
        pod.status = Compact::new(&status("Succeeded"));
    });
    check(Observed { proxy, delegate: Remote::Absent, ..running() }, &["release"]);
}

#[test]
fn a_finished_pod_stays_when_its_delegate_is_collected() {
    let proxy = with(|pod| pod.status = Compact::new(&status("Failed")));
    check(Observed { proxy, delegate: Remote::Absent, ..running() }, &[]);
}

#[test]
fn a_lost_delegate_ends_its_pod() {
    let want = ["Failed DelegateLost", "tell DelegateLost", "delete proxy"];
    check(Observed { delegate: Remote::Absent, ..running() }, &want);
}

#[test]
fn a_lost_delegate_tells_of_a_disruption_before_the_pod_is_deleted() {
    let actions = plan(&Observed { delegate: Remote::Absent, ..running() }).actions;
    let Some(Action::PatchStatus(patch)) = actions.first() else { panic!("no status first: {actions:?}") };
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|condition| condition["type"] == "DisruptionTarget"));
}

#[test]
fn a_lost_delegate_that_had_finished_finishes_its_pod() {
    check(
        Observed { delegate: Remote::Absent, last_status: Some(status("Succeeded")), ..running() },
        &["Succeeded"],
    );
}

#[test]
fn an_explicit_grace_period_reaches_the_delegate() {
    let proxy = with(|pod| pod.deleting = Some(30));
    assert_eq!(words(&plan(&Observed { proxy, ..running() }).actions), ["grace 30", "delete c"]);
}

#[test]
fn a_pod_that_waits_for_its_kubelet_is_ended_by_us() {
    let proxy = with(|pod| pod.deleting = Some(30));
    let want = ["Failed Deleted", "release", "delete proxy"];
    check(Observed { proxy, delegate: Remote::Absent, ..running() }, &want);
}

#[test]
fn a_pod_released_by_hand_still_takes_its_delegate_along() {
    let proxy = with(|pod| {
        pod.deleting = Some(30);
        pod.finalizers.clear();
    });
    let seen = Observed { proxy, ..running() };
    assert_eq!(words(&plan(&seen).actions), ["grace 30", "delete c"]);
}

#[test]
fn w10_duplicates_lose_once_the_scheduler_had_its_time() {
    let others = vec![Arc::new(chaperon("t2", "d", ""))];
    let early = Observed { others: others.clone(), age: SECOND, ..running() };
    assert_eq!(plan(&early), Plan { actions: vec![], again: Some(LOSERS - SECOND) });
    check(Observed { others, ..running() }, &["delete d"]);
}

#[test]
fn w10_duplicates_do_not_hold_a_deleted_pod() {
    let others = vec![Arc::new(chaperon("t2", "d", ""))];
    let seen = Observed { proxy: deleted_proxy(), delegate: Remote::Absent, others, ..running() };
    check(seen, &["Failed Deleted", "release", "delete d"]);
}

#[test]
fn case_013_candidates_of_a_pod_deleted_early_are_deleted() {
    let proxy = with(|pod| {
        pod.deleting = Some(0);
        pod.node = String::new();
    });
    let others = vec![Arc::new(chaperon("t1", "c", "")), Arc::new(chaperon("t2", "d", ""))];
    check(
        Observed { proxy, delegate: Remote::NotElected, others, ..running() },
        &["release", "delete c", "delete d"],
    );
}

#[test]
fn case_036_a_missing_parent_is_read_before_anything_is_deleted() {
    check(Observed { parent: Parent::NotRead, ..orphan(true) }, &["parent?"]);
    check(Observed { parent: Parent::Alive, ..orphan(true) }, &[]);
}

#[test]
fn case_036_no_orphans_before_all_pods_are_seen() {
    check(Observed { pods_in_step: false, ..orphan(true) }, &[]);
}

#[test]
fn case_036_an_orphan_that_may_run_something_must_be_old() {
    let seen = Observed { age: SECOND, ..orphan(true) };
    assert_eq!(plan(&seen), Plan { actions: vec![], again: Some(ORPHAN_AGE - SECOND) });
    check(orphan(true), &["sweep c"]);
}

#[test]
fn case_014_an_orphan_that_runs_nothing_goes_at_once() {
    check(Observed { age: Duration::ZERO, ..orphan(false) }, &["delete c"]);
}

#[test]
fn w19_pods_of_a_removed_target_are_ended_and_freed() {
    let want = ["Failed TargetRemoved", "tell TargetRemoved and what may be left", "release", "delete proxy"];
    check(Observed { delegate: Remote::TargetGone, ..running() }, &want);
}

#[test]
fn w19_nothing_is_left_of_a_delegate_that_is_confirmed_gone() {
    let want = ["Failed TargetRemoved", "tell TargetRemoved", "release", "delete proxy"];
    check(Observed { delegate: Remote::TargetGone, is_confirmed: true, ..running() }, &want);
}

#[test]
fn w19_work_that_finished_while_its_target_went_is_finished() {
    let last_status = Some(status("Succeeded"));
    let seen = Observed { delegate: Remote::TargetGone, is_confirmed: true, last_status, ..running() };
    check(seen.clone(), &["Succeeded", "tell TargetRemoved", "release"]);
    let endless = Observed { proxy: with(|pod| pod.is_endless = true), ..seen };
    check(endless, &["Failed TargetRemoved", "tell TargetRemoved", "release", "delete proxy"]);
}

#[test]
fn w19_a_finished_pod_of_a_removed_target_is_only_freed() {
    let proxy = with(|pod| pod.status = Compact::new(&status("Succeeded")));
    check(Observed { proxy, delegate: Remote::TargetGone, ..running() }, &["release"]);
}

#[test]
fn w18_the_removal_of_a_target_is_read_live() {
    check(Observed { delegate: Remote::TargetMissing, ..running() }, &["target?"]);
}

#[test]
fn w18_a_deleted_pod_of_a_removed_target_is_freed() {
    let want = ["Failed TargetRemoved", "tell TargetRemoved and what may be left", "release"];
    check(Observed { proxy: deleted_proxy(), delegate: Remote::TargetGone, ..running() }, &want);
}

#[test]
fn causes_have_words_of_their_own() {
    let words = [Cause::Deleted, Cause::DelegateLost, Cause::TargetRemoved].map(Cause::reason);
    assert_eq!(words.iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn w37_a_debug_container_is_passed_down_once() {
    let ephemeral = Compact::new(&serde_json::json!([{"name": "debugger"}]));
    let debugged = with(|proxy| proxy.ephemeral = ephemeral.clone());
    let seen = Observed { proxy: debugged.clone(), is_mirrored: true, ..running() };
    check(seen, &["ephemeral \"debugger\""]);
    let passed = Arc::new(Chaperon { ephemeral, ..chaperon("t1", "c", "Running") });
    let seen =
        Observed { proxy: debugged, delegate: Remote::Present(passed), is_mirrored: true, ..running() };
    check(seen, &[]);
}

#[test]
fn the_chaperon_of_a_granted_pod_has_the_name_of_its_target() {
    let granted = Proxy { node: String::new(), ..proxy("Pending") };
    let bound = Proxy { node: "admiralty-c1".to_owned(), ..proxy("Pending") };
    assert_eq!(granted.chaperon_behind("admiralty-c1"), bound.chaperon_behind("admiralty-c1"));
    assert_ne!(granted.chaperon_behind("admiralty-c1"), granted.chaperon_behind(""));
}

mod failover;

#[test]
fn w37_case_030_what_is_changed_on_a_pod_is_passed_down_once() {
    let changed = |key: &str| {
        with(|proxy| {
            let annotations = [(key.to_owned(), Some("now".to_owned()))].into();
            proxy.annotations = [(key.to_owned(), "now".to_owned())].into();
            proxy.updates = Some(Box::new(Updates { annotations, ..Updates::default() }));
        })
    };
    let seen = Observed { proxy: changed("stop"), ..running() };
    assert_eq!(words(&plan(&seen).actions), [r#"updates {"annotations":{"stop":"now"}}"#]);
    let passed = Arc::new(Chaperon {
        updates: Some(r#"{"annotations":{"stop":"now"}}"#.to_owned()),
        ..chaperon("t1", "c", "Running")
    });
    let settled = Observed { delegate: Remote::Present(passed), ..seen };
    assert!(plan(&settled).actions.is_empty());
    // What was taken back is taken back there as well.
    let taken_back = Observed { proxy: with(|_| ()), ..settled };
    assert_eq!(words(&plan(&taken_back).actions), [r#"updates {"annotations":{"stop":null}}"#]);
}

#[test]
fn w37_labels_are_passed_down_as_the_delegate_has_them() {
    let labels = [("x.io/tier".to_owned(), Some("back".to_owned()))].into();
    let proxy = with(|proxy| proxy.updates = Some(Box::new(Updates { labels, ..Updates::default() })));
    let seen = Observed { proxy, ..running() };
    assert_eq!(
        words(&plan(&seen).actions),
        [r#"updates {"labels":{"multicluster.admiralty.io/tier":"back"}}"#]
    );
    let kept = Observed { labels: api::v1alpha1::LabelRewriting::Keep, ..seen };
    assert_eq!(words(&plan(&kept).actions), [r#"updates {"labels":{"x.io/tier":"back"}}"#]);
}
