//! What the protocol was seen to lean on in kube-apiserver.

use super::patch::Form;
use super::{Deletion, Key, Store};
use serde_json::{Value, json};

fn store() -> Store {
    let mut store = Store::new("t");
    store.create("namespaces", json!({"metadata": {"name": "ns"}}), false).unwrap();
    store
}

fn pod(store: &mut Store, finalizers: &[&str]) -> (Key, String) {
    let value = json!({"metadata": {"name": "a", "namespace": "ns", "finalizers": finalizers}, "spec": {}});
    let made = store.create("pods", value, false).unwrap();
    (("ns".to_owned(), "a".to_owned()), made.uid().to_owned())
}

fn binding(uid: &str) -> Value {
    json!({"metadata": {"uid": uid, "annotations": {"x": "1"}}, "target": {"name": "n"}})
}

#[test]
fn a_binding_is_a_compare_and_swap_that_brings_its_annotations() {
    let mut store = store();
    let (key, uid) = pod(&mut store, &[]);
    assert_eq!(store.bind(&key, &binding("other")).unwrap_err().code, 409);
    store.bind(&key, &binding(&uid)).unwrap();
    let bound = store.get("pods", "ns", "a").unwrap();
    assert_eq!((bound.node(), bound.annotation("x")), ("n", Some("1")));
    assert_eq!(store.bind(&key, &binding(&uid)).unwrap_err().code, 409);
}

#[test]
fn a_bound_pod_with_a_grace_period_stays_after_its_last_finalizer() {
    let mut store = store();
    let (key, uid) = pod(&mut store, &["f"]);
    store.bind(&key, &binding(&uid)).unwrap();
    store.delete("pods", &key, &Deletion { grace: Some(30), ..Deletion::default() }).unwrap();
    store.patch("pods", &key, (&json!({"metadata": {"finalizers": null}}), Form::Merge), false).unwrap();
    assert!(store.get("pods", "ns", "a").is_some());
    assert!(
        store.delete("pods", &key, &Deletion { grace: Some(0), ..Deletion::default() }).unwrap().is_none()
    );
}

#[test]
fn the_last_finalizer_of_what_is_deleted_is_its_end() {
    let mut store = store();
    let (key, _) = pod(&mut store, &["f"]);
    assert!(store.delete("pods", &key, &Deletion::default()).unwrap().is_some());
    let more = json!({"metadata": {"finalizers": ["f", "g"]}});
    assert_eq!(store.patch("pods", &key, (&more, Form::Merge), false).unwrap_err().code, 422);
    store.patch("pods", &key, (&json!({"metadata": {"finalizers": null}}), Form::Merge), false).unwrap();
    assert!(store.get("pods", "ns", "a").is_none());
}

#[test]
fn the_status_of_ours_takes_no_metadata_and_the_rest_no_status() {
    let mut store = store();
    let value =
        json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {}, "status": {"phase": "Running"}});
    assert_eq!(store.create("podchaperons", value, false).unwrap().phase(), "");
    let key = ("ns".to_owned(), "c".to_owned());
    let both = json!({"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Running"}});
    let written = store.patch("podchaperons", &key, (&both, Form::Merge), true).unwrap();
    assert_eq!((written.phase(), written.annotation("a")), ("Running", None));
    let written = store
        .patch("podchaperons", &key, (&json!({"status": {"phase": "Failed"}}), Form::Merge), false)
        .unwrap();
    assert_eq!(written.phase(), "Running");
}

#[test]
fn a_write_that_changes_nothing_makes_no_version() {
    let mut store = store();
    let (key, uid) = pod(&mut store, &[]);
    let before = store.version();
    store.patch("pods", &key, (&json!({"metadata": {"uid": uid}}), Form::Merge), false).unwrap();
    assert_eq!(store.version(), before);
}

#[test]
fn a_dry_run_stores_nothing_and_names_what_would_refuse() {
    let mut store = store();
    let new = json!({"metadata": {"generateName": "a-", "namespace": "ns"}, "spec": {}});
    assert_eq!(store.create("pods", new.clone(), true).unwrap().phase(), "Pending");
    assert_eq!(store.all("pods").count(), 0);
    store.quota.insert("ns".to_owned(), 0);
    assert_eq!(store.create("pods", new, true).unwrap_err().code, 403);
}

#[test]
fn a_forgotten_history_cannot_be_resumed_from() {
    let mut store = store();
    let version = store.version();
    pod(&mut store, &[]);
    assert_eq!(store.since(version), Some(1));
    store.compact();
    assert_eq!(store.since(version), None);
    assert_eq!(store.since(store.version()), Some(2));
}
