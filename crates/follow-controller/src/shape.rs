//! What a copy looks like, and how one is told from its original.

use crate::ingresses::Mapping;
use crate::kinds::{Kind, Object};
use crate::rules::Rules;
use crate::services;
use api::claims::{self, Mapping as Names};
use api::{keys, names};
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

type Pairs = BTreeMap<String, String>;

/// Source and target of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way<'a> {
    /// The source's cluster name; empty means that its UID is the name.
    pub(crate) cluster_name: &'a str,
    pub(crate) own_uid: &'a str,
    pub(crate) target_uid: &'a str,
    pub(crate) virtual_node: &'a str,
}

/// What of an original decides how its copies look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Those that are copied.
    pub(crate) labels: Pairs,
    pub(crate) annotations: Pairs,
    /// Of everything but metadata.
    pub(crate) hash: u64,
    /// The same where delegates keep the labels of their pods.
    hash_kept: u64,
    /// Of an Ingress: its spec, which changes on its way.
    spec: Option<Value>,
    /// `type` of a Secret, whether a Service is headless, else empty: what no patch can change.
    pub(crate) kind: String,
    pub(crate) immutable: bool,
}

/// How originals change on their way into one target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Delegates there keep the labels of their pods.
    pub(crate) keeps_labels: bool,
    pub(crate) mapping: Mapping,
    pub(crate) classes: Names,
}

/// Of which side an object is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Side<'a> {
    /// The source, as a target is to see it.
    Original(&'a View),
    /// A target.
    Copy,
}

/// Everything but metadata and status, as copies have it: fields that nobody knows follow as well.
pub(crate) fn body(
    kind: Kind,
    metadata: &ObjectMeta,
    whole: &Map<String, Value>,
    side: Side<'_>,
) -> Map<String, Value> {
    let is_body = |key: &str| !["apiVersion", "kind", "metadata", "status"].contains(&key);
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Bool(flag) => *flag,
        Value::Number(_) | Value::String(_) | Value::Array(_) => true,
    };
    let all = whole.iter().filter(|(key, value)| is_body(key) && says(value));
    let mut body: Map<String, Value> = all.map(|(key, value)| (key.clone(), value.clone())).collect();
    match (kind, body.get_mut("spec"), side) {
        (Kind::Service, Some(spec), Side::Original(view)) => {
            *spec = services::copied(metadata, spec, view.keeps_labels);
        }
        (Kind::Service, Some(spec), Side::Copy) => *spec = services::as_it_is(spec),
        (Kind::Ingress, Some(spec), Side::Original(view)) => view.mapping.apply(spec),
        (Kind::Claim, Some(spec), Side::Original(view)) => {
            let whole = json!({"metadata": {"annotations": metadata.annotations}, "spec": &*spec});
            *spec = claims::spec(&whole, &view.classes);
        }
        (_, _, _) => {}
    }
    body
}

fn hash(body: &Map<String, Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    json!(body).to_string().hash(&mut hasher);
    hasher.finish()
}

/// The part of a body that can change after its creation. Of a claim nothing does: the API server lets only bound
/// claims grow, and of the two that is the copy.
fn changeable(kind: Kind, body: Map<String, Value>) -> Map<String, Value> {
    if kind == Kind::Claim { Map::new() } else { body }
}

impl Content {
    /// Of an original.
    pub(crate) fn new(kind: Kind, metadata: &ObjectMeta, whole: &Map<String, Value>, rules: &Rules) -> Self {
        let kept = |map: &Option<Pairs>| map.as_ref().map(|map| rules.kept(map)).unwrap_or_default();
        let of = |keeps_labels| {
            let view = View { keeps_labels, ..View::default() };
            hash(&changeable(kind, body(kind, metadata, whole, Side::Original(&view))))
        };
        let mut annotations = kept(&metadata.annotations);
        match kind {
            Kind::Service => annotations.extend(services::annotations(rules.reroutes)),
            Kind::Ingress => annotations.extend(services::marks()),
            Kind::ConfigMap | Kind::Secret | Kind::Claim => {}
        }
        Self {
            labels: kept(&metadata.labels),
            annotations,
            hash: of(false),
            hash_kept: of(true),
            spec: whole.get("spec").filter(|_| kind == Kind::Ingress).cloned(),
            ..Self::fixed(kind, whole)
        }
    }

    /// Of a copy; its labels and annotations are kept elsewhere.
    pub(crate) fn of_copy(kind: Kind, metadata: &ObjectMeta, whole: &Map<String, Value>) -> Self {
        let body = changeable(kind, body(kind, metadata, whole, Side::Copy));
        Self { hash: hash(&body), ..Self::fixed(kind, whole) }
    }

    /// What the hash of a copy in a target is to be.
    pub(crate) fn hash_in(&self, view: &View) -> u64 {
        if let Some(spec) = &self.spec {
            let mut spec = spec.clone();
            view.mapping.apply(&mut spec);
            return hash(&Map::from_iter([("spec".to_owned(), spec)]));
        }
        if view.keeps_labels { self.hash_kept } else { self.hash }
    }

    fn fixed(kind: Kind, whole: &Map<String, Value>) -> Self {
        let of_type = match kind {
            Kind::Service => whole.get("spec").filter(|spec| services::is_headless(spec)).map(|_| "headless"),
            Kind::ConfigMap | Kind::Secret => whole.get("type").and_then(Value::as_str),
            Kind::Ingress | Kind::Claim => None,
        };
        Self {
            kind: of_type.unwrap_or_default().to_owned(),
            immutable: whole.get("immutable") == Some(&Value::Bool(true)),
            ..Self::default()
        }
    }
}

/// All labels and annotations of a copy: those of its original, and whose it is.
pub(crate) fn metadata(
    object: &Object,
    uid: &str,
    way: Way<'_>,
    (labels, annotations): (&Pairs, &Pairs),
) -> (Pairs, Pairs) {
    let cluster_name = if way.cluster_name.is_empty() { way.own_uid } else { way.cluster_name };
    let mut labels = labels.clone();
    labels.extend([
        (keys::PARENT_UID.to_owned(), uid.to_owned()),
        (keys::PARENT_CLUSTER_NAME.to_owned(), names::label_value(cluster_name)),
        (keys::PARENT_CLUSTER_UID.to_owned(), way.own_uid.to_owned()),
        (keys::TARGET_UID.to_owned(), way.target_uid.to_owned()),
        (keys::VIRTUAL_NODE.to_owned(), names::label_value(way.virtual_node)),
    ]);
    let mut annotations = annotations.clone();
    annotations.extend([
        (keys::PARENT_NAME.to_owned(), object.name.to_string()),
        (keys::PARENT_NAMESPACE.to_owned(), object.namespace.to_string()),
    ]);
    (labels, annotations)
}

/// The copy of an original.
pub(crate) fn copy(
    object: &Object,
    (labels, annotations): (Pairs, Pairs),
    body: Map<String, Value>,
) -> Value {
    let mut copy = Value::Object(body);
    copy["apiVersion"] = json!(object.kind.resource().api_version);
    copy["kind"] = json!(object.kind.as_str());
    copy["metadata"] = json!({
        "namespace": &*object.namespace,
        "name": &*object.name,
        "labels": labels,
        "annotations": annotations,
    });
    copy
}

/// Whether labels or annotations are as wanted; those that others added are theirs.
pub(crate) fn agrees(have: &Pairs, owned: &BTreeSet<String>, want: &Pairs) -> bool {
    want.iter().all(|(key, value)| have.get(key) == Some(value))
        && owned.iter().all(|key| want.contains_key(key) || !have.contains_key(key))
}

/// The merge patch that makes the live copy what it is to be, at the version that was read.
pub(crate) fn patch(
    kind: Kind,
    (live, metadata): (&Value, &ObjectMeta),
    wanted: &Value,
    manager: &str,
) -> Value {
    let (labels, annotations) = api::managed::owned(metadata, manager);
    let of = |value: &Value, list: &str| value["metadata"][list].as_object().cloned().unwrap_or_default();
    let pairs = |list: &str, owned: &BTreeSet<String>| {
        let (have, want) = (of(live, list), of(wanted, list));
        let gone = owned.iter().filter(|key| have.contains_key(*key) && !want.contains_key(*key));
        let mut changes: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
        changes.extend(want.into_iter().filter(|(key, value)| have.get(key) != Some(value)));
        changes
    };
    let empty = Map::new();
    let of_copy = |whole: &Value| {
        let body = body(kind, metadata, whole.as_object().unwrap_or(&empty), Side::Copy);
        Value::Object(changeable(kind, body))
    };
    let (before, after) = (of_copy(live), of_copy(wanted));
    let mut patch = difference(&before, &after);
    patch["metadata"] = json!({
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "labels": pairs("labels", &labels),
        "annotations": pairs("annotations", &annotations),
    });
    patch
}

/// The merge patch from one object to another.
fn difference(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return after.clone() };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let mut changes: Map<String, Value> = gone.collect();
    for (key, value) in new {
        match old.get(key) {
            Some(known) if known == value => {}
            Some(known) => drop(changes.insert(key.clone(), difference(known, value))),
            None => drop(changes.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(changes)
}

#[cfg(test)]
mod tests {
    use super::{Content, Side, View, Way, agrees, body, copy, metadata, patch};
    use crate::kinds::{Kind, Object};
    use crate::rules::Rules;
    use crate::rules::tests::args;
    use api::claims::Mapping as Names;
    use api::keys;
    use kube::core::ObjectMeta;
    use serde_json::{Map, Value, json};

    const WAY: Way<'_> =
        Way { cluster_name: "east", own_uid: "src", target_uid: "tgt", virtual_node: "admiralty-c2" };

    fn object() -> Object {
        Object { kind: Kind::Secret, namespace: "ns".into(), name: "s".into() }
    }

    fn original() -> Map<String, Value> {
        let whole = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "immutable": true,
            "data": {"tls.crt": "YQ==", "tls.key": "Yg=="}, "futureField": {"x": 1},
            "metadata": {"name": "s", "uid": "u", "labels": {"team": "a"},
                "annotations": {"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}"}}});
        whole.as_object().unwrap().clone()
    }

    fn made(whole: &Map<String, Value>) -> Value {
        let meta: ObjectMeta = serde_json::from_value(whole["metadata"].clone()).unwrap();
        let content = Content::new(Kind::Secret, &meta, whole, &Rules::new(&args()).unwrap());
        let body = body(Kind::Secret, &meta, whole, Side::Original(&View::default()));
        copy(&object(), metadata(&object(), "u", WAY, (&content.labels, &content.annotations)), body)
    }

    #[test]
    fn w35_a_copy_has_all_of_its_original_and_says_whose_it_is() {
        let made = made(&original());
        assert_eq!(
            made["data"]["tls.crt"].as_str().zip(made["type"].as_str()),
            Some(("YQ==", "kubernetes.io/tls"))
        );
        assert_eq!((&made["immutable"], &made["futureField"]["x"]), (&json!(true), &json!(1)));
        assert_eq!(
            made["metadata"]["labels"],
            json!({"team": "a", keys::PARENT_UID: "u", keys::PARENT_CLUSTER_NAME: "east",
                keys::PARENT_CLUSTER_UID: "src", keys::TARGET_UID: "tgt", keys::VIRTUAL_NODE: "admiralty-c2"})
        );
        assert_eq!(
            made["metadata"]["annotations"],
            json!({"note": "n", keys::PARENT_NAME: "s", keys::PARENT_NAMESPACE: "ns"})
        );
        assert!(made["metadata"].get("ownerReferences").is_none() && made["metadata"].get("uid").is_none());
    }

    #[test]
    fn w35_type_and_immutability_count_when_copies_are_compared() {
        let same = |change: fn(&mut Map<String, Value>)| {
            let mut other = original();
            change(&mut other);
            let hash = |whole| Content::of_copy(Kind::Secret, &ObjectMeta::default(), whole).hash;
            hash(&other) == hash(&original())
        };
        assert!(same(|_| ()));
        assert!(same(|whole| drop(whole.insert("binaryData".into(), json!({})))), "empty says nothing");
        assert!(!same(|whole| drop(whole.insert("type".into(), json!("Opaque")))));
        assert!(!same(|whole| drop(whole.insert("immutable".into(), json!(false)))));
        assert!(!same(|whole| drop(whole.insert("data".into(), json!({"tls.crt": "YQ=="})))));
    }

    #[test]
    fn w30_a_claim_is_made_without_what_the_source_has_bound() {
        let (meta, whole) = {
            let whole = json!({"metadata": {"name": "s", "uid": "u", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": "pv", "storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound"}});
            let whole = whole.as_object().unwrap().clone();
            let meta: ObjectMeta = serde_json::from_value(whole["metadata"].clone()).unwrap();
            (meta, whole)
        };
        let mut annotations = std::collections::BTreeMap::new();
        annotations.insert(keys::STORAGE_CLASSES.to_owned(), "gold=fast".to_owned());
        let view = View { classes: Names::new(&annotations, keys::STORAGE_CLASSES), ..View::default() };
        let made = body(Kind::Claim, &meta, &whole, Side::Original(&view));
        assert_eq!(
            Value::Object(made.clone()),
            json!({"spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})
        );
        let content = |whole: &(ObjectMeta, Map<String, Value>)| {
            Content::new(Kind::Claim, &whole.0, &whole.1, &Rules::new(&args()).unwrap())
        };
        assert!(content(&(meta.clone(), whole.clone())).annotations.is_empty());
        let mut live = made;
        live["spec"]["volumeName"] = json!("pv-of-target");
        live["spec"]["volumeMode"] = json!("Filesystem");
        live["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        let copy =
            |live: &Map<String, Value>| Content::of_copy(Kind::Claim, &ObjectMeta::default(), live).hash;
        assert_eq!(copy(&live), content(&(meta, whole)).hash_in(&view), "it is the target's from then on");
    }

    #[test]
    fn a_patch_removes_what_left_the_original_and_leaves_what_others_added() {
        let mut live = made(&original());
        live["metadata"]["uid"] = json!("copy");
        live["metadata"]["resourceVersion"] = json!("7");
        live["metadata"]["annotations"]["of-others"] = json!("1");
        live["metadata"]["managedFields"] = json!([{"manager": "us", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}, "f:annotations": {"f:note": {}}}}}]);
        let meta: ObjectMeta = serde_json::from_value(live["metadata"].clone()).unwrap();
        let mut changed = original();
        changed["metadata"]["labels"] = json!({});
        changed["metadata"]["annotations"]["note"] = json!("m");
        changed["data"] = json!({"tls.crt": "YQ==", "more": "Yw=="});
        assert_eq!(
            patch(Kind::Secret, (&live, &meta), &made(&changed), "us"),
            json!({"data": {"tls.key": null, "more": "Yw=="}, "metadata": {"uid": "copy", "resourceVersion": "7",
                "labels": {"team": null}, "annotations": {"note": "m"}}})
        );
        let (labels, _) = api::managed::owned(&meta, "us");
        let have = meta.labels.clone().unwrap();
        assert!(agrees(&have, &labels, &have));
        let mut less = have.clone();
        less.remove("team");
        assert!(!agrees(&have, &labels, &less));
        assert!(agrees(&have, &Default::default(), &less), "a key of others may stay");
    }
}
