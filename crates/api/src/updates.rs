//! What was changed on a proxy pod after it was submitted, and is to reach its delegate.
//!
//! A key of an annotation or label belongs to the side that wrote it: what somebody writes in the source flows down and
//! stays as it is there, what somebody writes on the delegate flows up. Of the spec flows what the API server lets a pod
//! change: images, the deadline, further tolerations, and resources in place.

use crate::labels::Rewriting;
use crate::raw::{Pod, text_map};
use crate::{keys, managed};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Annotation of kubectl that describes the object it stands on, and so means nothing on another one.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Containers whose images and resources can change.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];
/// Tolerations with such keys are those of proxy pods, not of their users.
const OF_PROXIES: [&str; 5] = [
    keys::PROVIDER,
    keys::NOT_READY,
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// Changes of keys; `None` removes one.
pub type Changes = BTreeMap<String, Option<String>>;

/// The record of changes, as annotation [`keys::UPDATES`] of a PodChaperon carries it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Updates {
    /// Of annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: Changes,
    /// Of labels; on a PodChaperon by the keys that the delegate has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Changes,
    /// A strategic merge patch of the spec.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub spec: Map<String, Value>,
    /// The same of resources, which change in place.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub resources: Map<String, Value>,
}

/// Whether a key is mirrored at all. Binding a pod gives it labels of its node, which is another one for the delegate.
fn is_theirs(key: &str) -> bool {
    !keys::is_ours(key) && key != LAST_APPLIED && !key.starts_with("topology.kubernetes.io/")
}

/// What differs between the keys of now and those that were submitted.
fn changes(
    now: &BTreeMap<String, String>,
    submitted: &BTreeMap<String, String>,
    but: &BTreeSet<String>,
) -> Changes {
    let set = now.iter().filter(|(key, value)| submitted.get(*key) != Some(*value));
    let gone = submitted.keys().filter(|key| !now.contains_key(*key));
    set.map(|(key, value)| (key.clone(), Some(value.clone())))
        .chain(gone.map(|key| (key.clone(), None)))
        .filter(|(key, _)| is_theirs(key) && !but.contains(key))
        .collect()
}

fn named<'a>(spec: &'a Value, list: &str, name: &Value) -> Option<&'a Value> {
    spec[list].as_array()?.iter().find(|container| container["name"] == *name)
}

/// Fields of containers that differ from those submitted, as a strategic merge patch.
fn of_containers(spec: &Value, submitted: &Value, field: &str) -> Map<String, Value> {
    let mut patch = Map::new();
    for list in CONTAINERS {
        let changed: Vec<Value> = spec[list]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|now| named(submitted, list, &now["name"]).is_some_and(|was| was[field] != now[field]))
            .map(|now| json!({"name": now["name"], field: now[field]}))
            .collect();
        if !changed.is_empty() {
            patch.insert(list.to_owned(), Value::Array(changed));
        }
    }
    patch
}

fn tolerations(spec: &Value) -> &[Value] {
    spec["tolerations"].as_array().map_or(&[], Vec::as_slice)
}

/// Tolerations that somebody added to the proxy pod. What it has for virtual nodes is none of the delegate's.
fn added(proxy: &Pod, submitted: &Value) -> Vec<Value> {
    let known = |toleration: &&Value| {
        let key = toleration["key"].as_str().unwrap_or_default();
        OF_PROXIES.contains(&key) || tolerations(&submitted["spec"]).contains(toleration)
    };
    let mut added: Vec<Value> =
        tolerations(&proxy.spec).iter().filter(|toleration| !known(toleration)).cloned().collect();
    // Most pods have nothing left for which the annotation would have to be read.
    if !added.is_empty()
        && let Some(text) = proxy.annotation(keys::PROXY_POD_SCHEDULING_CONSTRAINTS)
    {
        let of_virtual_nodes: Value = serde_yaml::from_str(text).unwrap_or_default();
        added.retain(|toleration| !tolerations(&of_virtual_nodes).contains(toleration));
    }
    added
}

impl Updates {
    /// What of a proxy pod differs from its manifest, but for annotations that `mirror`, the field manager of
    /// feedback-controller, wrote: those are the delegate's. Labels have the keys of the source.
    #[must_use]
    pub fn of(proxy: &Pod, submitted: &Value, mirror: &str) -> Self {
        let (_, mirrored) = managed::owned(&proxy.metadata, mirror);
        let none = BTreeMap::new();
        let (labels, annotations) = (&proxy.metadata.labels, &proxy.metadata.annotations);
        let metadata = &submitted["metadata"];
        let mut spec = of_containers(&proxy.spec, &submitted["spec"], "image");
        let deadline = &proxy.spec["activeDeadlineSeconds"];
        if deadline.is_number() && *deadline != submitted["spec"]["activeDeadlineSeconds"] {
            spec.insert("activeDeadlineSeconds".to_owned(), deadline.clone());
        }
        let added = added(proxy, submitted);
        if !added.is_empty() {
            spec.insert("tolerations".to_owned(), Value::Array(added));
        }
        Self {
            annotations: changes(
                annotations.as_ref().unwrap_or(&none),
                &text_map(&metadata["annotations"]),
                &mirrored,
            ),
            labels: changes(
                labels.as_ref().unwrap_or(&none),
                &text_map(&metadata["labels"]),
                &BTreeSet::new(),
            ),
            spec,
            resources: of_containers(&proxy.spec, &submitted["spec"], "resources"),
        }
    }

    /// Nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The record in an annotation; empty where it is absent or cannot be read.
    #[must_use]
    pub fn read(annotation: Option<&str>) -> Self {
        annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The record as an annotation.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The same with labels as delegates have them.
    #[must_use]
    pub fn rewritten(mut self, rewriting: &Rewriting) -> Self {
        let labels = std::mem::take(&mut self.labels);
        let key =
            |key: &str, value: &Option<String>| rewriting.key(key, value.as_deref().unwrap_or_default());
        self.labels = labels.into_iter().map(|(name, value)| (key(&name, &value), value)).collect();
        self
    }

    /// The record after one that was passed down before: what is not changed any more is as `now` has it, and what
    /// was removed is told only where it is known.
    #[must_use]
    pub fn after(mut self, before: &Self, now: &Pick<'_>) -> Self {
        self.annotations.retain(|key, value| {
            value.is_some() || now.known.contains_key(key) || before.annotations.contains_key(key)
        });
        for key in before.annotations.keys() {
            let value = || now.annotations.get(key).cloned();
            self.annotations.entry(key.clone()).or_insert_with(value);
        }
        for key in before.labels.keys() {
            self.labels.entry(key.clone()).or_insert_with(|| now.labels.get(key).cloned());
        }
        self
    }

    /// What of a delegate's keys is not as recorded.
    #[must_use]
    pub fn lacking(&self, pod: &Pod) -> (Changes, Changes) {
        let lacking = |wanted: &Changes, have: Option<&BTreeMap<String, String>>| {
            let differs = |(key, value): &(&String, &Option<String>)| {
                have.and_then(|have| have.get(*key)) != value.as_ref()
            };
            wanted.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let metadata = &pod.metadata;
        (
            lacking(&self.annotations, metadata.annotations.as_ref()),
            lacking(&self.labels, metadata.labels.as_ref()),
        )
    }

    /// Puts all of it into a delegate that is still to be created.
    pub fn apply(&self, pod: &mut Pod) {
        put(pod.metadata.annotations.get_or_insert_default(), &self.annotations);
        put(pod.metadata.labels.get_or_insert_default(), &self.labels);
        for (field, value) in self.spec.iter().chain(&self.resources) {
            match field.as_str() {
                "tolerations" => {
                    let more = value.as_array().cloned().unwrap_or_default();
                    match pod.spec[field].as_array_mut() {
                        Some(all) => all.extend(more),
                        None => pod.spec[field] = Value::Array(more),
                    }
                }
                "containers" | "initContainers" => merge(&mut pod.spec[field], value),
                _ => pod.spec[field] = value.clone(),
            }
        }
    }
}

/// What is true of keys now.
#[derive(Debug, Clone, Copy)]
pub struct Pick<'a> {
    /// Annotations of the proxy pod.
    pub annotations: &'a BTreeMap<String, String>,
    /// Labels with which the delegate was asked for.
    pub labels: &'a BTreeMap<String, String>,
    /// Annotations of the PodChaperon.
    pub known: &'a BTreeMap<String, String>,
}

fn put(have: &mut BTreeMap<String, String>, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(have.insert(key.clone(), value.clone())),
            None => drop(have.remove(key)),
        }
    }
}

/// Merges containers by their names.
fn merge(containers: &mut Value, changes: &Value) {
    for change in changes.as_array().into_iter().flatten() {
        let mut all = containers.as_array_mut().into_iter().flatten();
        let found = all.find(|container| container["name"] == change["name"]);
        if let (Some(container), Some(fields)) = (found, change.as_object()) {
            for (field, value) in fields {
                container[field] = value.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pick, Updates};
    use crate::labels::Rewriting;
    use crate::{Pod, keys};
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    fn submitted() -> Value {
        json!({"metadata": {"labels": {"app": "web"}, "annotations": {"a": "1", "b": "1"}},
            "spec": {"containers": [{"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}],
                "tolerations": [{"key": "mine", "operator": "Exists"}]}})
    }

    /// The proxy pod of that, changed by a merge patch.
    fn proxy(change: &Value) -> Pod {
        let mut pod = submitted();
        pod["metadata"]["labels"][keys::HAS_FINALIZER] = json!("true");
        pod["metadata"]["annotations"][keys::SOURCE_POD_MANIFEST] = json!("{}");
        pod["spec"]["tolerations"] = json!([{"key": keys::PROVIDER, "value": "admiralty"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]);
        json_patch::merge(&mut pod, change);
        serde_json::from_value(pod).unwrap()
    }

    #[track_caller]
    fn check(change: &Value, want: &Value) {
        let found = Updates::of(&proxy(change), &submitted(), "us");
        assert_eq!(serde_json::to_value(found).unwrap(), *want);
    }

    #[test]
    fn w37_a_pod_that_nobody_changed_has_nothing_to_tell() {
        check(&json!({}), &json!({}));
        assert!(Updates::of(&proxy(&json!({})), &submitted(), "us").is_empty());
    }

    #[test]
    fn w37_case_030_keys_written_in_the_source_flow_down() {
        check(
            &json!({"metadata": {"annotations": {"stop": "now", "b": null}, "labels": {"app": null, "quarantine": "yes"}}}),
            &json!({"annotations": {"b": null, "stop": "now"}, "labels": {"app": null, "quarantine": "yes"}}),
        );
    }

    #[test]
    fn case_030_what_was_mirrored_from_the_delegate_does_not_flow_back() {
        let managed = json!([{"manager": "us", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "subresource": "status", "fieldsV1": {"f:metadata": {"f:annotations": {"f:of-delegate": {}}}}}]);
        check(
            &json!({"metadata": {"annotations": {"of-delegate": "1", "mine": "1"}, "managedFields": managed}}),
            &json!({"annotations": {"mine": "1"}}),
        );
    }

    #[test]
    fn w37_what_a_pod_may_change_of_its_spec_flows_down() {
        let containers = json!([{"name": "c", "image": "x:2", "resources": {"requests": {"cpu": "2"}}}]);
        let tolerations = json!([{"key": keys::PROVIDER, "value": "admiralty"}, {"key": "mine", "operator": "Exists"},
            {"key": "new", "operator": "Exists"}]);
        check(
            &json!({"spec": {"containers": containers, "activeDeadlineSeconds": 60, "tolerations": tolerations}}),
            &json!({"spec": {"containers": [{"name": "c", "image": "x:2"}], "activeDeadlineSeconds": 60,
                    "tolerations": [{"key": "new", "operator": "Exists"}]},
                "resources": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}),
        );
    }

    #[test]
    fn a_record_travels_as_text_with_the_labels_of_delegates() {
        let record =
            Updates::of(&proxy(&json!({"metadata": {"labels": {"x.io/tier": "back"}}})), &submitted(), "us");
        let record = record.rewritten(&Rewriting::default());
        assert_eq!(record.text(), r#"{"labels":{"multicluster.admiralty.io/tier":"back"}}"#);
        assert_eq!(Updates::read(Some(&record.text())), record);
        assert!(Updates::read(Some("nonsense")).is_empty());
    }

    #[test]
    fn what_was_passed_down_once_stays_told() {
        let none = BTreeMap::new();
        let annotations: BTreeMap<String, String> = [("a".to_owned(), "1".to_owned())].into();
        let before = Updates::of(
            &proxy(&json!({"metadata": {"annotations": {"a": "2", "stop": "now"}}})),
            &submitted(),
            "us",
        );
        let pick = Pick { annotations: &annotations, labels: &none, known: &none };
        let now = Updates::of(&proxy(&json!({})), &submitted(), "us").after(&before, &pick);
        let want = [("a".to_owned(), Some("1".to_owned())), ("stop".to_owned(), None)];
        assert_eq!(now.annotations, want.into());
        // What the delegate lost by itself is no news for it.
        let lost =
            Updates::of(&proxy(&json!({"metadata": {"annotations": {"b": null}}})), &submitted(), "us");
        assert!(lost.after(&Updates::default(), &pick).is_empty());
    }

    #[test]
    fn a_delegate_that_is_made_again_is_as_the_source_wants_it() {
        let change = json!({"metadata": {"annotations": {"stop": "now", "b": null}},
            "spec": {"containers": [{"name": "c", "image": "x:2", "resources": {"requests": {"cpu": "2"}}}], "activeDeadlineSeconds": 60}});
        let record = Updates::of(&proxy(&change), &submitted(), "us");
        let mut pod: Pod = serde_json::from_value(submitted()).unwrap();
        assert_eq!(record.lacking(&pod).0.len(), 2);
        record.apply(&mut pod);
        assert_eq!(
            (&pod.spec["containers"][0]["image"], &pod.spec["activeDeadlineSeconds"]),
            (&json!("x:2"), &json!(60))
        );
        assert_eq!(pod.spec["containers"][0]["resources"]["requests"]["cpu"], "2");
        assert!(record.lacking(&pod).0.is_empty(), "{pod:?}");
    }
}
