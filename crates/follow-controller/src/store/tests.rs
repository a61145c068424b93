use super::{Evidence, Setting, Store};
use crate::kinds::{Kind, Object};
use crate::link::Link;
use crate::plan::{Likeness, Observed, Original};
use crate::rules::Rules;
use crate::rules::tests::args;
use crate::shape::{Content, Way, metadata};
use crate::views::{Copied, Known, Source};
use api::v1alpha1::{LabelRewriting, TargetStatus};
use api::{Pod, keys};
use kube::core::ObjectMeta;
use runtime::targets::{Settings, TargetMap};
use runtime::{Connection, Seen, Target, TargetKey};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn key(name: &str) -> TargetKey {
    TargetKey { namespace: String::new(), name: name.to_owned() }
}

fn target(name: &str, uid: &str, is_self: bool) -> Arc<Target> {
    Arc::new(Target {
        key: key(name),
        uid: format!("uid-{name}"),
        generation: None,
        created: None,
        settings: Settings {
            is_self,
            excluded_labels_regexp: None,
            capacity: None,
            label_rewriting: LabelRewriting::Rewrite,
            ask: None,
            order: 0,
            weight: None,
            start_deadline: None,
            failover: api::failover::Policy::default(),
        },
        status: TargetStatus { cluster_uid: Some(uid.to_owned()), ..TargetStatus::default() },
        deleting: false,
        finalizers: Vec::new(),
        resource_version: String::new(),
        annotations: BTreeMap::new(),
        connection: Connection::Pending,
    })
}

/// A source with targets `a` and `b`, and itself as a third.
fn store() -> Store {
    let mut store = Store::new("own", Duration::from_secs(10));
    let targets = [target("a", "ca", false), target("b", "cb", false), target("self", "own", true)];
    let map: TargetMap = targets.into_iter().map(|target| (target.key.clone(), target)).collect();
    store.set_targets(&map);
    store
}

fn map(name: &str) -> Object {
    Object { kind: Kind::ConfigMap, namespace: "ns".into(), name: name.into() }
}

fn pod(uid: &str, change: &Value) -> Pod {
    let mut pod = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid,
            "annotations": {keys::SOURCE_POD_MANIFEST: "{}"}},
        "spec": {"schedulerName": keys::PROXY_SCHEDULER, "nodeName": "admiralty-a",
            "volumes": [{"name": "v", "configMap": {"name": "m"}}]},
        "status": {"phase": "Pending"}});
    merge(&mut pod, change);
    serde_json::from_value(pod).unwrap()
}

fn merge(into: &mut Value, change: &Value) {
    match (into.as_object_mut(), change.as_object()) {
        (Some(fields), Some(changes)) => {
            for (key, value) in changes {
                merge(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        _ => *into = change.clone(),
    }
}

fn look(store: &mut Store, object: &Object) -> Option<Observed> {
    let rules = Rules::new(&args()).unwrap();
    store.observe(object, &Evidence::default(), Setting { rules: &rules, cluster_name: "" })
}

/// Targets in which an object is used.
fn used(store: &mut Store, object: &Object) -> Vec<String> {
    let seen = look(store, object);
    let places = seen.into_iter().flat_map(|seen| seen.places).filter(|place| place.used);
    places.map(|place| place.target.name).collect()
}

fn source(version: u64) -> Source {
    let meta = ObjectMeta {
        uid: Some("u".to_owned()),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    };
    Source::new(&meta)
}

#[test]
fn w35_a_pod_uses_what_it_names_from_its_election_to_its_end() {
    let mut store = store();
    let apply = |store: &mut Store, change: Value| store.take_pods(Seen::Applied(pod("p", &change)));
    assert!(apply(&mut store, json!({"spec": {"nodeName": ""}})).is_empty(), "nobody elected it");
    assert!(apply(&mut store, json!({})).contains(&map("m")));
    assert_eq!(used(&mut store, &map("m")), ["a"]);
    assert!(
        apply(&mut store, json!({"status": {"phase": "Running"}})).is_empty(),
        "w41: nothing has changed"
    );
    assert!(apply(&mut store, json!({"status": {"phase": "Succeeded"}})).contains(&map("m")));
    assert!(used(&mut store, &map("m")).is_empty());
}

#[test]
fn w35_what_a_granted_pod_names_is_used_before_it_is_bound() {
    let mut store = store();
    let granted = json!({"metadata": {"annotations": {keys::GRANT: "scale-up", keys::ELECTED_TARGET: "cb"}},
        "spec": {"nodeName": ""}});
    store.take_pods(Seen::Applied(pod("p", &granted)));
    assert_eq!(used(&mut store, &map("m")), ["b"]);
}

#[test]
fn nothing_is_copied_into_the_source_itself() {
    let mut store = store();
    store.take_pods(Seen::Applied(pod("p", &json!({"spec": {"nodeName": "admiralty-self"}}))));
    assert!(look(&mut store, &map("m")).is_none());
}

#[test]
fn w41_only_the_first_and_the_last_user_are_news() {
    let mut store = store();
    assert_eq!(store.take_pods(Seen::Applied(pod("p", &json!({})))).len(), 1);
    assert!(store.take_pods(Seen::Applied(pod("q", &json!({})))).is_empty());
    assert!(store.take_pods(Seen::Deleted(pod("p", &json!({})))).is_empty());
    assert_eq!(used(&mut store, &map("m")), ["a"]);
    assert_eq!(store.take_pods(Seen::Deleted(pod("q", &json!({})))).len(), 1);
}

#[test]
fn case_110_pods_behind_a_target_that_is_seen_later_count_from_then_on() {
    let mut store = Store::new("own", Duration::from_secs(10));
    store.take_pods(Seen::Replaced(vec![pod("p", &json!({}))]));
    assert!(look(&mut store, &map("m")).is_none());
    let late: TargetMap = [(key("a"), target("a", "ca", false))].into();
    assert!(store.set_targets(&late).contains(&map("m")));
    assert_eq!(used(&mut store, &map("m")), ["a"]);
}

#[test]
fn w41_objects_that_nobody_names_are_not_kept() {
    let mut store = store();
    assert!(!store.put_source(&map("other"), source(1)));
    store.take_pods(Seen::Applied(pod("p", &json!({}))));
    assert!(store.put_source(&map("m"), source(1)));
    assert!(matches!(look(&mut store, &map("m")).unwrap().original, Original::Present(_)));
    store.take_pods(Seen::Deleted(pod("p", &json!({}))));
    store.forget(&map("m"));
    assert!(store.all().is_empty());
}

/// A copy in target `a` of an original of version 5 whose content is known.
fn copied(change: fn(&mut Value)) -> Store {
    let mut store = store();
    store.take_pods(Seen::Replaced(vec![pod("p", &json!({}))]));
    let whole = json!({"data": {"k": "v"}});
    let body = whole.as_object().unwrap();
    store.put_source(&map("m"), source(5));
    store.set_known(
        &map("m"),
        Known { version: 5, content: Content::of_copy(Kind::ConfigMap, &ObjectMeta::default(), body) },
    );
    let service = tower::service_fn(|_request: http::Request<kube::client::Body>| async move {
        Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = runtime.enter();
    store.set_link(Arc::new(Link::new(&key("a"), kube::Client::new(service, "default"), "ca")));
    let way = Way { cluster_name: "", own_uid: "own", target_uid: "ca", virtual_node: "admiralty-a" };
    let (labels, annotations) = metadata(&map("m"), "u", way, (&BTreeMap::new(), &BTreeMap::new()));
    let mut copy = json!({"metadata": {"uid": "copy", "resourceVersion": "3", "labels": labels,
        "annotations": annotations}, "data": {"k": "v"}});
    change(&mut copy);
    let meta: ObjectMeta = serde_json::from_value(copy["metadata"].clone()).unwrap();
    store.put_copy(
        &key("a"),
        &map("m"),
        Copied::new(Kind::ConfigMap, &meta, copy.as_object().unwrap(), "us"),
    );
    store
}

#[track_caller]
fn check_likeness(change: fn(&mut Value), want: Likeness) {
    let mut store = copied(change);
    let seen = look(&mut store, &map("m")).unwrap();
    assert_eq!(seen.places.iter().find_map(|place| place.copy), Some(want));
}

#[test]
fn copies_are_compared_with_what_they_are_to_be() {
    check_likeness(|_| (), Likeness::Same);
    check_likeness(|copy| copy["metadata"]["labels"]["of-others"] = json!("1"), Likeness::Same);
    check_likeness(|copy| copy["data"]["k"] = json!("other"), Likeness::Differs);
    check_likeness(|copy| copy["metadata"]["labels"][keys::PARENT_UID] = json!("gone"), Likeness::Differs);
    check_likeness(|copy| copy["type"] = json!("Opaque"), Likeness::Frozen);
    check_likeness(|copy| copy["immutable"] = json!(true), Likeness::Frozen);
    check_likeness(
        |copy| copy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        Likeness::Terminating,
    );
}

#[test]
fn a_newer_original_is_read_before_copies_are_compared_but_our_own_mark_is_no_news() {
    let mut store = copied(|_| ());
    store.renew(&map("m"), 5, source(6));
    let likeness = |store: &mut Store| {
        look(store, &map("m")).unwrap().places.iter().find_map(|place| place.copy).unwrap()
    };
    assert_eq!(likeness(&mut store), Likeness::Same);
    store.put_source(&map("m"), source(7));
    assert_eq!(likeness(&mut store), Likeness::Unknown);
}

#[test]
fn case_047_a_late_event_does_not_undo_what_is_known() {
    let mut store = copied(|_| ());
    assert!(!store.put_source(&map("m"), source(4)));
    assert!(!store.lose_source(&map("m"), Some("another")), "one of the same name is another one");
    store.lose_copy(&key("a"), &map("m"), "another");
    assert!(store.copy(&key("a"), &map("m")).is_some());
}

fn service(annotations: &Value) -> (Object, Source) {
    let meta = json!({"name": "web", "namespace": "ns", "uid": "s", "resourceVersion": "1", "annotations": annotations});
    let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
    let whole = json!({"spec": {"selector": {"app": "web"}, "clusterIP": "10.0.0.1"}});
    let object = Object { kind: Kind::Service, namespace: "ns".into(), name: "web".into() };
    (object, Source::whole(Kind::Service, &meta, whole.as_object().unwrap(), ("us", true)))
}

fn labelled(uid: &str) -> Seen<Pod> {
    Seen::Applied(pod(uid, &json!({"metadata": {"labels": {"app": "web"}}, "spec": {"volumes": []}})))
}

#[test]
fn w36_a_service_is_used_where_the_pods_run_that_it_selects() {
    let (object, source) = service(&json!({}));
    let mut store = store();
    store.take_pods(labelled("p"));
    assert!(store.put_leader(&object, &source).contains(&object), "the Service is seen after its pod");
    assert_eq!(used(&mut store, &object), ["a"]);
    store.put_leader(&object, &source);
    assert!(store.take_pods(labelled("q")).is_empty());
    assert!(store.drop_leader(&object).contains(&object));
    assert!(used(&mut store, &object).is_empty());
}

#[test]
fn a_copy_that_another_source_made_here_is_no_original() {
    let (object, source) = service(&json!({keys::IS_DELEGATE: ""}));
    let mut store = store();
    store.take_pods(labelled("p"));
    assert!(store.put_leader(&object, &source).is_empty());
    assert!(!store.put_source(&object, source));
}

#[test]
fn an_ingress_and_its_certificates_are_where_the_pods_of_its_services_run() {
    let ingress = Object { kind: Kind::Ingress, namespace: "ns".into(), name: "web".into() };
    let spec = json!({"spec": {"tls": [{"secretName": "cert"}],
        "rules": [{"host": "a"}, {"http": {"paths": [{"backend": {"service": {"name": "web"}}}]}}]}});
    let entrance =
        Source::whole(Kind::Ingress, &ObjectMeta::default(), spec.as_object().unwrap(), ("us", true));
    let cert = Object { kind: Kind::Secret, namespace: "ns".into(), name: "cert".into() };
    let (object, source) = service(&json!({}));
    let mut store = store();
    store.put_leader(&ingress, &entrance);
    store.put_leader(&object, &source);
    assert!(used(&mut store, &ingress).is_empty());
    let changed = store.take_pods(labelled("p"));
    assert!([&ingress, &cert, &object].into_iter().all(|one| changed.contains(one)), "{changed:?}");
    assert_eq!(used(&mut store, &ingress), ["a"]);
    assert_eq!(used(&mut store, &cert), ["a"]);
    let gone = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"volumes": []}});
    assert!(store.take_pods(Seen::Deleted(pod("p", &gone))).contains(&ingress));
    assert!(used(&mut store, &cert).is_empty());
}

#[test]
fn what_every_cluster_has_is_used_by_nobody() {
    let mut store = store();
    let volumes = json!([{"projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}}]);
    let changed = store.take_pods(Seen::Applied(pod("p", &json!({"spec": {"volumes": volumes}}))));
    assert!(changed.is_empty(), "{changed:?}");
}
