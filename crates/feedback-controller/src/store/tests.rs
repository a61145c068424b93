use super::{Evidence, Key, Store};
use crate::failover::Successor;
use crate::link::{Link, selector};
use crate::plan::{Observed, Remote};
use api::conditions::{Kind, Reason, Verdict, merge};
use api::v1alpha1::{LabelRewriting, TargetStatus};
use api::{Pod, PodChaperon, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use runtime::targets::{Settings, TargetMap};
use runtime::{Class, Connection, Seen, Target, TargetKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A client whose every call fails: the store makes none.
fn client() -> Client {
    let refuse =
        |_: http::Request<Body>| async { Err::<http::Response<Body>, _>(std::io::Error::other("no calls")) };
    Client::new(tower::service_fn(refuse), "default")
}

fn key(name: &str) -> TargetKey {
    TargetKey { namespace: String::new(), name: name.to_owned() }
}

fn status(accepted: bool, reachable: Reason) -> TargetStatus {
    let verdict =
        |kind, status, reason| Verdict { kind, status: Some(status), reason, message: String::new() };
    let verdicts = [
        verdict(Kind::Accepted, accepted, Reason::Ok),
        verdict(Kind::Reachable, reachable == Reason::Ok, reachable),
    ];
    let mut conditions = Vec::new();
    merge(&mut conditions, &verdicts, None, &Time(Timestamp::from_second(1).unwrap()));
    TargetStatus { conditions, cluster_uid: Some("cluster".to_owned()), virtual_node: None }
}

fn targets(name: &str, status: TargetStatus) -> TargetMap {
    let target = Target {
        key: key(name),
        uid: "target".to_owned(),
        generation: None,
        created: None,
        settings: Settings {
            is_self: false,
            excluded_labels_regexp: None,
            capacity: None,
            label_rewriting: LabelRewriting::Rewrite,
            ask: None,
            order: 0,
            weight: None,
            start_deadline: None,
            failover: api::failover::Policy::default(),
        },
        status,
        deleting: false,
        finalizers: Vec::new(),
        resource_version: String::new(),
        annotations: BTreeMap::new(),
        connection: Connection::Up { client: client(), fingerprint: String::new() },
    };
    BTreeMap::from([(target.key.clone(), Arc::new(target))])
}

fn pod(name: &str, uid: &str, elected: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": uid, "resourceVersion": "5",
            "finalizers": [keys::DELEGATE_FINALIZER],
            "annotations": {
                keys::SOURCE_POD_MANIFEST: "{}", keys::ELECTED_TARGET: "cluster", keys::ELECTED_CHAPERON: elected,
            },
        },
        "spec": {"schedulerName": keys::PROXY_SCHEDULER, "nodeName": "admiralty-t1"},
        "status": {"phase": "Pending"},
    }))
    .unwrap()
}

fn chaperon(uid: &str, parent: &str, phase: &str) -> PodChaperon {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("p-{uid}"), "namespace": "ns", "uid": uid, "resourceVersion": "7",
            "labels": {keys::PARENT_UID: parent, keys::VIRTUAL_NODE: "admiralty-t1"},
        },
        "status": {"phase": phase},
    }))
    .unwrap()
}

/// A pod `u` that is bound to target `t1`, which is in step and knows its PodChaperon `c`.
fn bound() -> Store {
    let mut store = Store::default();
    store.set_targets(&targets("t1", status(true, Reason::Ok)));
    let link = Link::new(&key("t1"), client(), "cluster");
    link.set_in_step(true);
    store.set_link(&key("t1"), Arc::new(link));
    store.replace_pods(&[pod("p", "u", "c")]);
    store.replace_chaperons(&key("t1"), &[chaperon("c", "u", "Running")]);
    store
}

fn observe(store: &mut Store, uid: &str) -> Option<Observed> {
    store.observe(&Key::from(uid), Evidence::default(), String::new())
}

fn delegate(store: &mut Store) -> Remote {
    observe(store, "u").unwrap().delegate
}

#[tokio::test]
async fn a_bound_pod_has_its_elected_delegate() {
    let seen = observe(&mut bound(), "u").unwrap();
    assert!(matches!(seen.delegate, Remote::Present(chaperon) if chaperon.uid == "c"));
    assert_eq!(seen.others, []);
}

#[test]
fn w07_only_what_carries_our_uid_is_seen() {
    assert_eq!(selector("me"), "multicluster.admiralty.io/parent-cluster-uid=me");
}

#[tokio::test]
async fn w09_a_delegate_that_is_not_seen_is_missing_and_not_absent() {
    let mut store = bound();
    store.remove_chaperon(&key("t1"), "c");
    assert_eq!(delegate(&mut store), Remote::Missing);
    let evidence = Evidence { delegate_absent: true, ..Evidence::default() };
    assert_eq!(store.observe(&Key::from("u"), evidence, String::new()).unwrap().delegate, Remote::Absent);
}

#[tokio::test]
async fn w09_another_object_of_the_same_name_is_not_the_elected_one() {
    let mut store = bound();
    store.replace_chaperons(&key("t1"), &[chaperon("d", "u", "Running")]);
    let seen = observe(&mut store, "u").unwrap();
    assert_eq!(seen.delegate, Remote::Missing);
    assert_eq!(seen.others[0].uid, "d");
}

#[tokio::test]
async fn w13_what_is_known_of_a_silent_target_is_not_mirrored() {
    let mut store = bound();
    assert_eq!(store.set_targets(&targets("t1", status(true, Reason::Unreachable))), [Key::from("u")]);
    assert_eq!(delegate(&mut store), Remote::Silent);
    store.set_targets(&targets("t1", status(true, Reason::Forbidden)));
    assert_eq!(delegate(&mut store), Remote::Unknown);
}

#[tokio::test]
async fn w14_a_target_that_is_not_accepted_is_unknown() {
    let mut store = bound();
    store.set_targets(&targets("t1", status(false, Reason::Ok)));
    assert_eq!(delegate(&mut store), Remote::Unknown);
}

#[tokio::test]
async fn w14_case_025_a_target_that_is_not_in_step_is_unknown() {
    let mut store = bound();
    store.link(&key("t1")).unwrap().suspect();
    assert_eq!(delegate(&mut store), Remote::Unknown);
}

#[tokio::test]
async fn w15_the_elected_one_is_never_a_loser_whoever_shows_it() {
    let mut store = bound();
    store.set_targets(&targets("t2", status(true, Reason::Ok)));
    let link = Link::new(&key("t2"), client(), "cluster");
    link.set_in_step(true);
    store.set_link(&key("t2"), Arc::new(link));
    store.replace_chaperons(&key("t2"), &[chaperon("c", "u", "Running")]);
    assert_eq!(observe(&mut store, "u").unwrap().others, []);
}

#[tokio::test]
async fn w18_the_pods_of_a_removed_target_are_looked_at() {
    let mut store = bound();
    assert_eq!(store.set_targets(&TargetMap::new()), [Key::from("u")]);
    assert_eq!(store.drop_link(&key("t1")), [Key::from("u")]);
    assert_eq!(delegate(&mut store), Remote::TargetMissing);
}

#[tokio::test]
async fn w19_a_pod_of_a_removed_target_waits_for_its_delegate_while_there_is_a_way_to_it() {
    let mut store = bound();
    store.set_targets(&TargetMap::new());
    assert_eq!(delegate(&mut store), Remote::Unknown);
    store.remove_chaperon(&key("t1"), "c");
    assert_eq!(delegate(&mut store), Remote::Missing);
    let evidence = Evidence { delegate_absent: true, ..Evidence::default() };
    let seen = store.observe(&Key::from("u"), evidence, String::new()).unwrap();
    assert_eq!((seen.delegate, seen.is_confirmed), (Remote::TargetMissing, true));
    store.link(&key("t1")).unwrap().suspect();
    assert_eq!(delegate(&mut store), Remote::Unknown);
}

#[tokio::test]
async fn w19_a_deleted_pod_of_a_removed_target_shows_the_end_of_its_delegate() {
    let mut store = bound();
    store.set_targets(&TargetMap::new());
    let mut deleted = pod("p", "u", "c");
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1).unwrap()));
    store.put_pod(&deleted);
    assert!(matches!(delegate(&mut store), Remote::Present(_)));
}

#[tokio::test]
async fn w19_a_target_made_anew_inherits_nothing_from_a_clean_up() {
    let mut store = bound();
    let first = store.behind(&key("t1")).iter().map(|chaperon| chaperon.uid.clone()).collect();
    let mut late = chaperon("d", "v", "Pending");
    late.metadata
        .labels
        .as_mut()
        .unwrap()
        .extend([(keys::VIRTUAL_NODE.to_owned(), "admiralty-t1".to_owned())]);
    store.put_chaperon(&key("t1"), &late);
    let left = |store: &Store| store.left_behind(&key("t1"), &first).len();
    assert_eq!(left(&store), 1);
    store.set_targets(&TargetMap::new());
    assert_eq!(left(&store), 2);
}

#[tokio::test]
async fn the_way_to_one_cluster_says_nothing_about_another() {
    let mut store = bound();
    let other = TargetStatus { cluster_uid: Some("other".to_owned()), ..status(true, Reason::Ok) };
    store.set_targets(&targets("t1", other));
    let mut there = pod("p", "u", "d");
    there.metadata.annotations.as_mut().unwrap().insert(keys::ELECTED_TARGET.to_owned(), "other".to_owned());
    store.put_pod(&there);
    assert_eq!(delegate(&mut store), Remote::Unknown);
}

#[tokio::test]
async fn a_target_made_anew_for_another_cluster_is_not_the_elected_one() {
    let mut store = bound();
    let other = TargetStatus { cluster_uid: Some("other".to_owned()), ..status(true, Reason::Ok) };
    store.set_targets(&targets("t1", other));
    assert_eq!(delegate(&mut store), Remote::Unknown);
    assert_eq!(store.drop_link(&key("t1")), [Key::from("u")]);
    assert_eq!(delegate(&mut store), Remote::TargetGone);
}

#[tokio::test]
async fn case_047_a_successor_of_the_same_name_has_nothing_to_do_with_its_predecessor() {
    let mut store = bound();
    store.replace_pods(&[pod("p", "v", "d")]);
    let old = observe(&mut store, "u").unwrap();
    assert!(old.proxy.is_none() && old.others[0].uid == "c");
    let new = observe(&mut store, "v").unwrap();
    assert_eq!((new.delegate, new.others), (Remote::Missing, vec![]));
}

#[tokio::test]
async fn case_029_the_last_status_outlives_its_podchaperon() {
    let mut store = bound();
    store.put_chaperon(&key("t1"), &chaperon("c", "u", "Succeeded"));
    store.remove_chaperon(&key("t1"), "c");
    assert_eq!(observe(&mut store, "u").unwrap().last_status.unwrap()["phase"], "Succeeded");
}

#[tokio::test]
async fn case_035_a_forced_list_leaves_what_is_mirrored_mirrored() {
    let mut store = bound();
    let Remote::Present(chaperon_seen) = delegate(&mut store) else { panic!("no delegate") };
    store.set_mirrored(&Key::from("u"), &chaperon_seen);
    store.replace_chaperons(&key("t1"), &[chaperon("c", "u", "Running")]);
    assert!(observe(&mut store, "u").unwrap().is_mirrored);
    store.put_chaperon(&key("t1"), &chaperon("c", "u", "Succeeded"));
    assert!(!observe(&mut store, "u").unwrap().is_mirrored);
}

#[tokio::test]
async fn case_037_a_new_list_has_every_pod_looked_at() {
    let mut store = bound();
    assert_eq!(store.replace_pods(&[pod("p", "u", "c")]), [Key::from("u")]);
    assert_eq!(store.replace_chaperons(&key("t1"), &[]), [Key::from("u")]);
}

#[tokio::test]
async fn case_036_a_broken_watch_of_pods_hides_no_orphan() {
    let mut store = bound();
    store.take_pods(Seen::Failed(Class::Unreachable));
    assert_eq!(store.take_pods(Seen::Deleted(pod("p", "u", "c"))), [Key::from("u")]);
    let orphan = observe(&mut store, "u").unwrap();
    assert!(orphan.proxy.is_none() && orphan.pods_in_step);
    store.take_pods(Seen::Failed(Class::Unreachable));
    assert!(observe(&mut store, "u").unwrap().pods_in_step, "its parent is read live in any case");
}

#[tokio::test]
async fn what_a_delegate_has_changed_and_lost_is_remembered_until_it_is_mirrored() {
    let mut store = bound();
    let with = |value: &str, kind: &str| {
        let mut seen = chaperon("c", "u", "Running");
        seen.metadata.annotations = Some(BTreeMap::from([("a".to_owned(), value.to_owned())]));
        seen.status["conditions"] = json!([{"type": kind, "status": "True"}]);
        seen
    };
    store.put_chaperon(&key("t1"), &with("1", "DisruptionTarget"));
    assert!(!observe(&mut store, "u").unwrap().was_disrupted);
    store.put_chaperon(&key("t1"), &with("2", "Ready"));
    let seen = observe(&mut store, "u").unwrap();
    assert_eq!((seen.was_disrupted, seen.had.len()), (true, 1));
    let Remote::Present(now) = seen.delegate else { panic!("no delegate") };
    store.set_mirrored(&Key::from("u"), &now);
    let seen = observe(&mut store, "u").unwrap();
    assert_eq!((seen.was_disrupted, seen.had.len()), (false, 0));
}

#[tokio::test]
async fn w37_the_proxy_is_told_of_each_annotation_once() {
    let mut store = bound();
    let Remote::Present(seen) = delegate(&mut store) else { panic!("no delegate") };
    assert!(!observe(&mut store, "u").unwrap().is_told);
    store.set_mirrored(&Key::from("u"), &seen);
    assert!(observe(&mut store, "u").unwrap().is_told);
    let mut changed = chaperon("c", "u", "Running");
    changed.metadata.annotations = Some(BTreeMap::from([("a".to_owned(), "2".to_owned())]));
    store.put_chaperon(&key("t1"), &changed);
    assert!(!observe(&mut store, "u").unwrap().is_told);
}

#[tokio::test]
async fn the_answer_to_a_write_does_not_raise_the_dead() {
    let mut store = bound();
    store.remove_pod(&Key::from("u"));
    store.remove_chaperon(&key("t1"), "c");
    store.refresh_pod(&pod("p", "u", "c"));
    store.refresh_chaperon(&key("t1"), &chaperon("c", "u", "Running"));
    assert!(observe(&mut store, "u").is_none());
}

#[tokio::test]
async fn a_podchaperon_without_parent_is_left_alone() {
    let mut store = bound();
    store.put_chaperon(&key("t1"), &chaperon("x", "", "Running"));
    assert!(observe(&mut store, "").is_none());
}

#[tokio::test]
async fn a_pod_that_merely_names_our_scheduler_is_left_alone() {
    let mut store = bound();
    let mut stranger = pod("q", "w", "c");
    stranger.metadata.annotations = None;
    stranger.metadata.finalizers = None;
    store.put_pod(&stranger);
    assert!(observe(&mut store, "w").is_none());
}

#[test]
fn a_granted_pod_without_node_is_looked_at_when_a_target_answers_again() {
    let mut granted = pod("p", "u", "c");
    granted.spec["nodeName"] = json!(null);
    granted
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(keys::GRANT.to_owned(), "scale-up".to_owned());
    let mut store = Store::default();
    store.put_pod(&granted);
    let woken = |store: &mut Store| store.replace_chaperons(&key("t"), &[]).iter().any(|key| &**key == "u");
    assert!(woken(&mut store));
    store.remove_pod(&Key::from("u"));
    assert!(!woken(&mut store));
}

/// `t1` with other marks, and `t2`, which is in step.
fn marked(reachable: Reason, change: impl FnOnce(&mut Target)) -> Store {
    let mut store = bound();
    let mut map = targets("t1", status(true, reachable));
    change(Arc::make_mut(map.get_mut(&key("t1")).unwrap()));
    let mut other = status(true, Reason::Ok);
    other.cluster_uid = Some("second".to_owned());
    map.extend(targets("t2", other));
    store.set_targets(&map);
    let link = Link::new(&key("t2"), client(), "second");
    link.set_in_step(true);
    store.set_link(&key("t2"), Arc::new(link));
    store
}

fn annotate(target: &mut Target, key: &str) {
    target.annotations.insert(key.to_owned(), "cluster".to_owned());
}

fn absent() -> Evidence {
    Evidence { delegate_absent: true, ..Evidence::default() }
}

#[tokio::test]
async fn case_043_pods_of_a_target_that_is_deleted_end_when_their_delegates_are_confirmed_gone() {
    let mut store = marked(Reason::Ok, |target| target.deleting = true);
    assert_eq!(delegate(&mut store), Remote::Unknown, "it is being ended");
    store.remove_chaperon(&key("t1"), "c");
    assert_eq!(delegate(&mut store), Remote::Missing);
    let seen = store.observe(&Key::from("u"), absent(), String::new()).unwrap();
    assert_eq!((seen.delegate, seen.is_confirmed), (Remote::TargetGone, true));
}

#[tokio::test]
async fn case_043_pods_of_a_silent_target_that_is_deleted_wait_until_it_is_given_up() {
    let mut store = marked(Reason::Unreachable, |target| target.deleting = true);
    store.link(&key("t1")).unwrap().suspect();
    assert_eq!(delegate(&mut store), Remote::Unknown);
    for word in [keys::FORCE_REMOVAL, keys::FENCED] {
        let mut store = marked(Reason::Unreachable, |target| {
            target.deleting = true;
            annotate(target, word);
        });
        store.link(&key("t1")).unwrap().suspect();
        let seen = observe(&mut store, "u").unwrap();
        assert_eq!((seen.delegate, seen.is_confirmed), (Remote::TargetGone, false));
    }
}

#[tokio::test]
async fn case_043_a_word_for_another_cluster_gives_nothing_up() {
    let mut store = marked(Reason::Unreachable, |target| {
        target.deleting = true;
        target.annotations.insert(keys::FORCE_REMOVAL.to_owned(), "another".to_owned());
    });
    store.link(&key("t1")).unwrap().suspect();
    assert_eq!(delegate(&mut store), Remote::Unknown);
}

#[tokio::test]
async fn case_043_only_held_targets_that_are_deleted_depart_and_only_held_pods_wait() {
    let mut store = marked(Reason::Ok, |target| {
        target.deleting = true;
        target.finalizers = vec![keys::TARGET_FINALIZER.to_owned()];
    });
    let departing = store.departing();
    assert_eq!(departing.iter().map(|target| target.key.clone()).collect::<Vec<_>>(), [key("t1")]);
    assert_eq!(store.held_by(&departing[0]).len(), 1);
    let mut free = pod("p", "u", "c");
    free.metadata.finalizers = None;
    free.metadata.resource_version = Some("6".to_owned());
    store.put_pod(&free);
    assert_eq!(store.held_by(&departing[0]).len(), 0);
}

#[tokio::test]
async fn a_fence_counts_when_the_target_cannot_be_asked_and_for_this_cluster_only() {
    let mut store = marked(Reason::Ok, |target| annotate(target, keys::FENCED));
    assert!(matches!(delegate(&mut store), Remote::Present(_)), "what it says itself is better");
    store.link(&key("t1")).unwrap().suspect();
    let seen = observe(&mut store, "u").unwrap();
    assert_eq!((seen.delegate, seen.outage.is_fenced), (Remote::Silent, true));
    let mut store = marked(Reason::Ok, |target| {
        target.annotations.insert(keys::FENCED.to_owned(), "another".to_owned());
    });
    store.link(&key("t1")).unwrap().suspect();
    assert_eq!(delegate(&mut store), Remote::Unknown);
}

#[tokio::test]
async fn w12_case_033_an_outage_is_counted_from_its_beginning_and_believed_when_it_was_seen_here_too() {
    let mut store = marked(Reason::Unreachable, |target| {
        target.settings.failover.grace = std::time::Duration::from_secs(7);
    });
    let observe = |store: &mut Store| {
        store.observe(&Key::from("u"), Evidence::default(), "1970-01-01T00:10:01Z".to_owned()).unwrap().outage
    };
    let outage = observe(&mut store);
    assert_eq!((outage.lasts.as_secs(), outage.policy.grace.as_secs()), (600, 7));
    assert!(!outage.is_sure, "this process has not seen it");
    assert!(outage.elsewhere);
    store.link(&key("t2")).unwrap().suspect();
    assert!(!observe(&mut store).elsewhere);
}

fn successor(store: &mut Store, uid: &str) -> Successor {
    observe(store, uid).unwrap().successor
}

#[tokio::test]
async fn a_replaced_pod_is_followed_by_the_pods_of_its_controller() {
    let mut store = bound();
    let put = |store: &mut Store, uid: &str, status: Value| {
        let mut pod = pod(uid, uid, "c");
        pod.status = status;
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        store.put_pod(&pod);
    };
    put(&mut store, "u", json!({"phase": "Failed", "reason": "TargetUnreachable"}));
    assert_eq!(successor(&mut store, "u"), Successor::Nobody);
    put(&mut store, "v", json!({"phase": "Pending"}));
    assert_eq!(successor(&mut store, "u"), Successor::Waits);
    put(&mut store, "v", json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
    assert_eq!(successor(&mut store, "u"), Successor::Ready);
    store.remove_pod(&Key::from("v"));
    assert_eq!(successor(&mut store, "u"), Successor::Nobody);
}
