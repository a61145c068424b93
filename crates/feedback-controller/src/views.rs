//! What is kept of proxy pods and PodChaperons: at most some 3 kB each.

use api::failover::Wish;
use api::raw::{confirms_revocation, text_map};
use api::updates::Updates;
use api::{Failover, Pod, PodChaperon, keys};
use runtime::TargetKey;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The field manager of this component, by which the API server tells what it wrote.
const MANAGER: &str = "multicluster-feedback-controller";
/// How many characters an API server adds to a prefix.
const GENERATED: usize = 5;
/// Label of the pods of a StatefulSet: their own name.
const ORDINAL_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// Annotation of kubectl that describes the object it stands on, and so means nothing on another one.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// JSON as text: a tenth of the memory of the parsed value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Compact(Box<str>);

impl Compact {
    pub(crate) fn new(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.0.contains(text)
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// A proxy pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) node: String,
    /// Grace period in seconds with which it is being deleted.
    pub(crate) deleting: Option<i64>,
    /// All, in their order.
    pub(crate) finalizers: Vec<String>,
    pub(crate) elected_target: Option<String>,
    pub(crate) elected_chaperon: Option<String>,
    pub(crate) is_granted: bool,
    /// Those that are mirrored.
    pub(crate) annotations: BTreeMap<String, String>,
    /// Those with which it was submitted.
    pub(crate) submitted: BTreeMap<String, String>,
    /// Of containers, init containers and ephemeral containers.
    pub(crate) containers: [Vec<String>; 3],
    /// The ephemeral containers; empty text for none.
    pub(crate) ephemeral: Compact,
    pub(crate) readiness_gates: Vec<String>,
    /// Whether no end of its containers is an end of the pod.
    pub(crate) is_endless: bool,
    /// What it says about failover.
    pub(crate) wish: Wish,
    /// The epoch of the Lease in which it was elected, if its target stops it by itself when it is cut off, and with
    /// what grace period.
    pub(crate) lease: Option<(u64, Duration)>,
    /// UID of the owner that would replace it.
    pub(crate) controller: Option<String>,
    /// Whether its replacement would have its name.
    pub(crate) is_named: bool,
    pub(crate) status: Compact,
    /// What was changed on it since it was submitted, if anything.
    pub(crate) updates: Option<Box<Updates>>,
    /// Which labels of it keep their keys.
    pub(crate) label_pattern: Option<String>,
}

/// Fields of a spec with a pod's containers, and of a status with their statuses.
pub(crate) const CONTAINERS: [(&str, &str); 3] = [
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
];

impl Proxy {
    /// `None` for a pod that merely names our scheduler.
    pub(crate) fn new(pod: &Pod) -> Option<Self> {
        let finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
        if !pod.is_proxy() && !finalizers.iter().any(|finalizer| is_ours(finalizer)) {
            return None;
        }
        let manifest = api::delegate::manifest(pod).ok();
        let submitted = manifest.as_ref().map(|manifest| text_map(&manifest["metadata"]["annotations"]));
        let names = |list: &str, field: &str| -> Vec<String> {
            let items = pod.spec[list].as_array();
            items.into_iter().flatten().filter_map(|item| Some(item[field].as_str()?.to_owned())).collect()
        };
        Some(Self {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.uid().to_owned(),
            version: pod.resource_version().parse().unwrap_or(0),
            node: pod.node().to_owned(),
            deleting: pod.is_terminating().then(|| pod.metadata.deletion_grace_period_seconds.unwrap_or(0)),
            finalizers,
            elected_target: pod.annotation(keys::ELECTED_TARGET).map(str::to_owned),
            elected_chaperon: pod.annotation(keys::ELECTED_CHAPERON).map(str::to_owned),
            is_granted: pod.annotation(keys::GRANT).is_some(),
            annotations: mirrored_annotations(pod.metadata.annotations.as_ref()),
            submitted: mirrored_annotations(submitted.as_ref()),
            containers: CONTAINERS.map(|(spec, _)| names(spec, "name")),
            ephemeral: ephemeral(&pod.spec),
            readiness_gates: names("readinessGates", "conditionType"),
            is_endless: !matches!(pod.spec["restartPolicy"].as_str(), Some("Never" | "OnFailure")),
            wish: Wish::of(pod),
            lease: lease(pod),
            controller: controller(pod),
            is_named: is_named(pod),
            status: Compact::new(&pod.status),
            updates: manifest.as_ref().and_then(|manifest| updates(pod, manifest)),
            label_pattern: pod.annotation(keys::NO_PREFIX_LABEL_REGEXP).map(str::to_owned),
        })
    }

    /// Whether one of our finalizers holds the pod.
    pub(crate) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| is_ours(finalizer))
    }

    /// Name of its PodChaperon behind a virtual node: that of the elected target, also while the pod has no node
    /// but a grant.
    pub(crate) fn chaperon_behind(&self, virtual_node: &str) -> String {
        api::names::chaperon(&self.name, &self.uid, virtual_node)
    }

    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn updates(pod: &Pod, submitted: &Value) -> Option<Box<Updates>> {
    let updates = Updates::of(pod, submitted, MANAGER);
    (!updates.is_empty()).then(|| Box::new(updates))
}

/// The ephemeral containers of a spec.
fn ephemeral(spec: &Value) -> Compact {
    match spec["ephemeralContainers"].as_array() {
        Some(containers) if !containers.is_empty() => Compact::new(&spec["ephemeralContainers"]),
        Some(_) | None => Compact::default(),
    }
}

/// Our finalizer of proxy pods, or one that an older release used for the same purpose.
pub(crate) fn is_ours(finalizer: &str) -> bool {
    keys::is_ours(finalizer)
        && finalizer != keys::CHAPERON_FINALIZER
        && finalizer != format!("{}follow", keys::PREFIX)
}

/// A StatefulSet gives its pods a prefix for generated names too, and then names them itself.
fn is_named(pod: &Pod) -> bool {
    let prefix = pod.metadata.generate_name.as_deref();
    let suffix = prefix.and_then(|prefix| pod.name().strip_prefix(prefix));
    suffix.is_none_or(|suffix| suffix.len() != GENERATED) || pod.label(ORDINAL_NAME) == Some(pod.name())
}

fn lease(pod: &Pod) -> Option<(u64, Duration)> {
    let number = |key: &str| pod.annotation(key).and_then(|text| text.parse::<u64>().ok());
    Some((number(keys::FENCE_EPOCH)?, Duration::from_secs(number(keys::FENCE_GRACE_SECONDS)?)))
}

fn controller(pod: &Pod) -> Option<String> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.clone()).next()
}

fn mirrored_annotations(annotations: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let all = annotations.into_iter().flatten();
    all.filter(|(key, _)| !keys::is_ours(key) && *key != LAST_APPLIED)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// A PodChaperon in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chaperon {
    pub(crate) target: TargetKey,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) parent_uid: String,
    pub(crate) parent_namespace: String,
    pub(crate) parent_name: String,
    /// The virtual node behind which it stands, as a label value.
    pub(crate) virtual_node: String,
    pub(crate) is_allowed: bool,
    pub(crate) is_terminating: bool,
    /// Its election was taken back, and the target has confirmed that nothing runs nor will.
    pub(crate) is_revoked: bool,
    /// The target has stopped its delegate, since it did not hear of us.
    pub(crate) is_fenced_off: bool,
    /// Made under a policy by which it may run beside its replacement.
    pub(crate) may_run_twice: bool,
    /// Grace period in seconds that we passed down.
    pub(crate) grace: Option<i64>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The ephemeral containers that we passed down; empty text for none.
    pub(crate) ephemeral: Compact,
    /// The record of changes that we passed down.
    pub(crate) updates: Option<String>,
    /// With such a record, the labels with which the delegate was asked for.
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) status: Compact,
}

impl Chaperon {
    pub(crate) fn new(target: &TargetKey, chaperon: &PodChaperon) -> Self {
        let (parent_namespace, parent_name) = chaperon.parent();
        let updates = chaperon.annotation(keys::UPDATES);
        Self {
            target: target.clone(),
            namespace: chaperon.namespace().to_owned(),
            name: chaperon.name().to_owned(),
            uid: chaperon.uid().to_owned(),
            version: chaperon.resource_version().parse().unwrap_or(0),
            parent_uid: chaperon.parent_uid().to_owned(),
            parent_namespace: parent_namespace.to_owned(),
            parent_name: parent_name.to_owned(),
            virtual_node: chaperon.label(keys::VIRTUAL_NODE).unwrap_or_default().to_owned(),
            is_allowed: chaperon.is_allowed(),
            is_terminating: chaperon.is_terminating(),
            is_revoked: chaperon.is_revoked() && confirms_revocation(&chaperon.status),
            is_fenced_off: chaperon.status["reason"] == keys::LEASE_EXPIRED,
            may_run_twice: chaperon.annotation(keys::FAILOVER) == Some(Failover::Move.as_str()),
            grace: chaperon.annotation(keys::DELETION_GRACE_SECONDS).and_then(|seconds| seconds.parse().ok()),
            annotations: mirrored_annotations(chaperon.metadata.annotations.as_ref()),
            ephemeral: ephemeral(&chaperon.spec),
            labels: updates.and(chaperon.metadata.labels.clone()).unwrap_or_default(),
            updates: updates.map(str::to_owned),
            status: Compact::new(&chaperon.status),
        }
    }
}

/// Equal for equal status and annotations.
pub(crate) fn fingerprint(status: &Compact, annotations: &BTreeMap<String, String>) -> u64 {
    fingerprint_of(&(status, annotations))
}

pub(crate) fn fingerprint_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::is_named;
    use api::Pod;
    use serde_json::{Value, json};

    fn pod(metadata: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    #[test]
    fn the_name_of_a_pod_is_free_for_its_replacement_unless_it_was_generated() {
        assert!(is_named(&pod(&json!({"name": "a"}))));
        assert!(!is_named(&pod(&json!({"name": "web-fb548794c-2dn65", "generateName": "web-fb548794c-"}))));
        assert!(is_named(&pod(&json!({"name": "db-1", "generateName": "db-"}))));
        let label = json!({super::ORDINAL_NAME: "db-10000"});
        assert!(is_named(&pod(&json!({"name": "db-10000", "generateName": "db-", "labels": label}))));
    }
}
