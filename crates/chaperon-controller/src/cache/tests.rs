use super::{Cache, Key, Round};
use crate::plan::{Creation, Delegate};
use api::{Pod, PodChaperon, keys};
use serde_json::json;

fn key() -> Key {
    Key { namespace: "ns".to_owned(), name: "a".to_owned() }
}

fn chaperon(version: &str) -> PodChaperon {
    serde_json::from_value(
        json!({"metadata": {"name": "a", "namespace": "ns", "uid": "c", "resourceVersion": version},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}),
    )
    .unwrap()
}

fn pod(version: &str) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "ns", "uid": "p", "resourceVersion": version,
        "ownerReferences": [{"apiVersion": "v", "kind": "PodChaperon", "name": "a", "uid": "c", "controller": true}]},
        "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}}))
    .unwrap()
}

fn delegate(cache: &Cache) -> Delegate {
    cache.observe(&key(), &Round::default()).delegate
}

#[test]
fn a_late_event_does_not_undo_what_we_wrote() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.learn_chaperon(chaperon("7"));
    assert_eq!(cache.see_chaperon(chaperon("6")), None);
    assert_eq!(cache.observe(&key(), &Round::default()).chaperon.unwrap().resource_version(), "7");
}

#[test]
fn case_026_a_late_answer_does_not_bring_back_what_is_gone() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.see_pod(pod("6"));
    cache.lose_pod(pod("9"));
    cache.learn_pod(pod("8"));
    assert!(matches!(delegate(&cache), Delegate::Gone(Some(_))));
    cache.lose_chaperon(&chaperon("10"));
    cache.learn_chaperon(chaperon("8"));
    assert!(cache.keys().is_empty());
}

#[test]
fn a_pod_that_a_list_does_not_have_is_not_gone_for_sure() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.learn_pod(pod("8"));
    cache.replace_pods(Vec::new());
    assert_eq!(delegate(&cache), Delegate::Unseen);
}

#[test]
fn a_live_read_keeps_the_last_state_that_a_watch_saw() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.learn_no_pod(&key());
    assert_eq!(delegate(&cache), Delegate::Gone(None));
    cache.see_pod(pod("6"));
    cache.lose_pod(pod("7"));
    cache.learn_no_pod(&key());
    assert!(matches!(delegate(&cache), Delegate::Gone(Some(_))));
}

#[test]
fn the_spec_is_dropped_only_while_a_delegate_exists() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    assert!(crate::delegate::has_spec(&cache.observe(&key(), &Round::default()).chaperon.unwrap()));
    cache.see_pod(pod("6"));
    let kept = cache.observe(&key(), &Round::default()).chaperon.unwrap();
    assert_eq!(kept.spec, json!({"restartPolicy": "Never"}));
    assert!(!crate::delegate::runs_for_ever(&kept));
}

#[test]
fn a_chaperon_that_a_list_does_not_have_is_gone() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    assert_eq!(cache.replace_chaperons(Vec::new()), [key()]);
    assert!(cache.keys().is_empty());
}

#[test]
fn a_refusal_by_a_kubelet_pauses_the_creation() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.count_refusal(&key());
    assert!(matches!(cache.observe(&key(), &Round::default()).creation, Creation::After(_)));
    cache.forgive(&key());
    assert_eq!(cache.observe(&key(), &Round::default()).creation, Creation::Free);
}

#[test]
fn refused_keys_wait_for_room_in_their_namespace_once() {
    let cache = Cache::default();
    cache.wait_for_room(&key());
    assert!(cache.waiting("other").is_empty());
    assert_eq!(cache.waiting("ns").len(), 1);
    assert!(cache.waiting("ns").is_empty());
}

#[test]
fn one_pod_that_goes_wakes_a_handful_of_those_that_wait() {
    let cache = Cache::default();
    for number in 0..20 {
        cache.wait_for_room(&Key { namespace: "ns".to_owned(), name: number.to_string() });
    }
    let woken: Vec<usize> = (0..4).map(|_| cache.waiting("ns").len()).collect();
    assert_eq!(woken, [8, 8, 4, 0]);
}

#[test]
fn a_chaperon_that_is_gone_or_has_its_delegate_waits_for_no_room() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.wait_for_room(&key());
    cache.learn_pod(pod("6"));
    assert!(cache.waiting("ns").is_empty(), "created after all");
    cache.lose_pod(pod("7"));
    cache.wait_for_room(&key());
    cache.lose_chaperon(&chaperon("8"));
    assert!(cache.waiting("ns").is_empty(), "gone");
}

#[test]
fn the_answer_that_lets_an_object_go_counts_though_its_version_is_the_old_one() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    let mut held = pod("6");
    held.metadata.finalizers = Some(vec!["f".to_owned()]);
    cache.see_pod(held);
    cache.learn_pod(pod("6"));
    let Delegate::Present(pod) = delegate(&cache) else { panic!("no pod") };
    assert!(pod.metadata.finalizers.is_none());
}

fn reserved(version: &str, node: Option<&str>) -> PodChaperon {
    let mut chaperon = chaperon(version);
    let annotations = chaperon.metadata.annotations.get_or_insert_default();
    if let Some(node) = node {
        annotations.insert(keys::IS_RESERVED.to_owned(), "true".to_owned());
        annotations.insert(keys::RESERVED_NODE.to_owned(), node.to_owned());
        annotations.insert(keys::RESERVED_SECONDS.to_owned(), "30".to_owned());
    }
    chaperon
}

fn promised(cache: &Cache) -> Option<String> {
    cache.observe(&key(), &Round::default()).promised.map(|node| node.to_string())
}

#[test]
fn a_promise_counts_when_it_was_seen_to_be_made() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.see_chaperon(reserved("6", Some("n")));
    cache.see_chaperon(reserved("7", Some("n")));
    assert_eq!(promised(&cache).as_deref(), Some("n"));
    cache.see_chaperon(reserved("8", None));
    assert_eq!(promised(&cache), None, "taken back");
    cache.see_chaperon(reserved("9", Some("m")));
    assert_eq!(promised(&cache).as_deref(), Some("m"));
    cache.break_promise(&key());
    assert_eq!(promised(&cache), None);
}

#[test]
fn a_promise_that_was_made_before_we_looked_is_not_young() {
    let cache = Cache::default();
    cache.replace_chaperons(vec![reserved("5", Some("n"))]);
    cache.see_chaperon(reserved("6", Some("n")));
    assert_eq!(promised(&cache), None);
}

#[test]
fn case_066_a_list_is_the_truth_though_a_restored_etcd_has_lower_versions() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("50"));
    cache.see_pod(pod("60"));
    cache.lose_pod(pod("61"));
    cache.list_chaperons();
    cache.list_pods();
    cache.replace_chaperons(vec![chaperon("5")]);
    cache.replace_pods(vec![pod("6")]);
    let seen = cache.observe(&key(), &Round::default());
    assert_eq!(seen.chaperon.unwrap().resource_version(), "5");
    assert!(matches!(seen.delegate, Delegate::Present(pod) if pod.resource_version() == "6"));
}

#[test]
fn what_was_learned_after_a_list_was_asked_for_is_newer_than_the_list() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("5"));
    cache.list_chaperons();
    cache.list_pods();
    cache.learn_chaperon(chaperon("8"));
    cache.learn_pod(pod("9"));
    cache.replace_chaperons(vec![chaperon("5")]);
    cache.replace_pods(vec![pod("6")]);
    let seen = cache.observe(&key(), &Round::default());
    assert_eq!(seen.chaperon.unwrap().resource_version(), "8");
    assert!(matches!(seen.delegate, Delegate::Present(pod) if pod.resource_version() == "9"));
}

#[test]
fn a_read_shows_what_is_even_if_its_version_is_lower() {
    let cache = Cache::default();
    cache.see_chaperon(chaperon("50"));
    let (before, _) = cache.versions(&key());
    cache.learn_read_chaperon(chaperon("5"), before.as_deref());
    assert_eq!(cache.versions(&key()).0.as_deref(), Some("5"));
    cache.see_chaperon(chaperon("60"));
    cache.learn_read_chaperon(chaperon("6"), Some("5"));
    assert_eq!(cache.versions(&key()).0.as_deref(), Some("60"), "something newer came while it was read");
}
