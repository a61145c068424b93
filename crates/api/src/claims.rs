//! PersistentVolumeClaims of a source: where their data is, and what is made of them in a target.
//!
//! A claim that has no volume yet may be made in any target. The first target in which a pod that uses it is elected
//! becomes its home, recorded on the claim by follow-controller before the copy is created. From then on its pods run
//! there and nowhere else. A claim that is bound in the source has its data there.

use crate::keys;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Annotation by which older clients name a class.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation by which a scheduler says on which node a volume is to be made.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Stands for every name that is not there.
const ANY: &str = "*";

/// Where the data of a claim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// Nowhere yet: the first target that takes one of its pods gets it.
    Anywhere,
    /// In the cluster with this UID.
    Home(String),
    /// In the source, in the volume of this name; empty while that is being made.
    Source(String),
    /// Every target has a claim of this name of its own: the user says so.
    TargetsOwn,
}

fn annotation<'a>(claim: &'a Value, key: &str) -> Option<&'a str> {
    claim["metadata"]["annotations"].get(key).and_then(Value::as_str)
}

/// Where the data of a raw claim of the source is.
#[must_use]
pub fn whereabouts(claim: &Value) -> Whereabouts {
    let wish = annotation(claim, keys::FOLLOW);
    if wish == Some(keys::NEVER) {
        return Whereabouts::TargetsOwn;
    }
    if let Some(home) = annotation(claim, keys::CLAIM_HOME).filter(|home| !home.is_empty()) {
        return Whereabouts::Home(home.to_owned());
    }
    let volume = claim["spec"]["volumeName"].as_str().unwrap_or_default();
    let is_here = !volume.is_empty() || annotation(claim, SELECTED_NODE).is_some();
    // Allowed: what the source has of it may be left behind.
    if is_here && wish != Some(keys::FOLLOW_ALLOWED) {
        return Whereabouts::Source(volume.to_owned());
    }
    Whereabouts::Anywhere
}

/// Names in the source and those that stand for them in a target: `from=to,…`; `*` names all others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping(BTreeMap<String, String>);

impl Mapping {
    /// As an annotation of a Target says.
    #[must_use]
    pub fn new(annotations: &BTreeMap<String, String>, key: &str) -> Self {
        let text = annotations.get(key).map(String::as_str).unwrap_or_default();
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned())).collect())
    }

    /// The name in the target; `None` for none, which is the default one of a StorageClass.
    #[must_use]
    pub fn map(&self, name: Option<&str>) -> Option<String> {
        let mapped = name.and_then(|name| self.0.get(name)).or_else(|| self.0.get(ANY));
        mapped.cloned().or_else(|| name.map(str::to_owned))
    }
}

/// The class that a raw claim names.
#[must_use]
pub fn class(claim: &Value) -> Option<&str> {
    annotation(claim, BETA_CLASS).or_else(|| claim["spec"]["storageClassName"].as_str())
}

/// The spec with which a claim of the source is made in a target: without what the source has bound or chosen, and
/// with the class of the target. A field that this release does not know passes.
#[must_use]
pub fn spec(claim: &Value, classes: &Mapping) -> Value {
    let mut spec: Map<String, Value> = claim["spec"].as_object().cloned().unwrap_or_default();
    spec.remove("volumeName");
    match classes.map(class(claim)) {
        Some(class) => drop(spec.insert("storageClassName".to_owned(), json!(class))),
        None => drop(spec.remove("storageClassName")),
    }
    Value::Object(spec)
}

/// A claim that follows the pod of a PodChaperon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Following {
    /// UID of the original in the source: the claim of this name in the target must be its copy.
    pub uid: String,
    /// What the copy is made with where there is none yet.
    pub spec: Value,
}

/// Claims that follow, by name: the value of annotation [`keys::CLAIMS`] of a PodChaperon.
pub type Followings = BTreeMap<String, Following>;

/// The claims that follow the pod of a PodChaperon; none where the annotation is absent or unreadable.
#[must_use]
pub fn followings(annotation: Option<&str>) -> Followings {
    annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// The claim as it will be made for a PodChaperon, or for an ephemeral volume of its pod, as a raw object.
#[must_use]
pub fn unborn(namespace: &str, name: &str, spec: &Value, owner: Option<&str>) -> Value {
    let owners = owner.map(|uid| json!([{"kind": "Pod", "uid": uid, "controller": true}]));
    json!({"metadata": {"namespace": namespace, "name": name, "ownerReferences": owners.unwrap_or_else(|| json!([]))},
        "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::{Following, Mapping, Whereabouts, followings, spec, whereabouts};
    use crate::keys;
    use serde_json::{Value, json};

    fn claim(annotations: &Value, spec: &Value) -> Value {
        json!({"metadata": {"name": "data", "annotations": annotations}, "spec": spec})
    }

    #[track_caller]
    fn check(annotations: &Value, spec: &Value, want: &Whereabouts) {
        assert_eq!(whereabouts(&claim(annotations, spec)), *want);
    }

    #[test]
    fn w30_case_072_a_claim_is_where_its_data_is() {
        let bound = json!({"volumeName": "pv-1"});
        check(&json!({}), &json!({}), &Whereabouts::Anywhere);
        check(&json!({}), &bound, &Whereabouts::Source("pv-1".to_owned()));
        check(&json!({super::SELECTED_NODE: "n"}), &json!({}), &Whereabouts::Source(String::new()));
        check(&json!({keys::CLAIM_HOME: "uid"}), &json!({}), &Whereabouts::Home("uid".to_owned()));
        check(&json!({keys::CLAIM_HOME: "uid"}), &bound, &Whereabouts::Home("uid".to_owned()));
    }

    #[test]
    fn the_user_may_say_that_the_data_is_elsewhere_or_nothing_worth() {
        let bound = json!({"volumeName": "pv-1"});
        check(&json!({keys::FOLLOW: "never", keys::CLAIM_HOME: "uid"}), &bound, &Whereabouts::TargetsOwn);
        check(&json!({keys::FOLLOW: "allowed"}), &bound, &Whereabouts::Anywhere);
    }

    #[test]
    fn a_class_is_that_of_the_target() {
        let classes = |text: &str| {
            let annotations = [(keys::STORAGE_CLASSES.to_owned(), text.to_owned())].into();
            Mapping::new(&annotations, keys::STORAGE_CLASSES)
        };
        let made = |text: &str, class: &Value| {
            let spec = spec(
                &claim(&json!({}), &json!({"storageClassName": class, "volumeName": "v", "new": 1})),
                &classes(text),
            );
            assert!(spec.get("volumeName").is_none() && spec["new"] == 1);
            spec["storageClassName"].clone()
        };
        assert_eq!(made("", &json!("gold")), json!("gold"));
        assert_eq!(made("gold=fast, b=c", &json!("gold")), json!("fast"));
        assert_eq!(made("*=slow,gold=fast", &json!("silver")), json!("slow"));
        assert_eq!(made("*=slow", &Value::Null), json!("slow"));
        assert_eq!(made("gold=fast", &Value::Null), Value::Null);
    }

    #[test]
    fn what_follows_is_read_as_it_was_written() {
        let one = Following { uid: "u".to_owned(), spec: json!({"accessModes": ["ReadWriteOnce"]}) };
        let text = serde_json::to_string(
            &[("data".to_owned(), one.clone())].into_iter().collect::<super::Followings>(),
        )
        .unwrap();
        assert_eq!(followings(Some(&text)), [("data".to_owned(), one)].into());
        assert!(followings(Some("nonsense")).is_empty() && followings(None).is_empty());
    }
}
