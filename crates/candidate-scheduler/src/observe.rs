//! What the watches bring, reduced to what decisions need. Whatever is large is dropped here.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use api::{ClusterSummary, keys, raw};
use scheduling::{Labels, NodeInfo, PodInfo};
use serde_json::{Value, json};

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Name {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A node that can take delegates. Virtual nodes are none: what is placed here must run here.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeSeen {
    Usable(Box<NodeInfo>),
    /// A virtual node, or one that cannot be read; it is as if it did not exist.
    Unusable {
        name: Arc<str>,
        problem: Option<String>,
    },
}

impl NodeSeen {
    pub fn read(node: &api::Node) -> Self {
        let value = json!({"metadata": {"name": node.name(), "labels": node.metadata.labels},
        "spec": node.spec, "status": {
            "capacity": node.status.get("capacity"), "allocatable": node.status.get("allocatable"),
            "conditions": node.status.get("conditions"),
        }});
        let unusable = |problem| Self::Unusable { name: Arc::from(node.name()), problem };
        match NodeInfo::parse(&value) {
            Ok(info) if info.is_virtual() => unusable(None),
            Ok(info) => Self::Usable(Box::new(info)),
            Err(error) => unusable(Some(error.to_string())),
        }
    }

    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Usable(info) => &info.name,
            Self::Unusable { name, .. } => name,
        }
    }
}

/// A condition `PodScheduled=False` that stands already.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub message: String,
    /// When it became False.
    pub since: Option<String>,
}

fn refusal(status: &Value) -> Option<Refusal> {
    let condition = raw::pod_condition(status, "PodScheduled")?;
    if condition["status"] != "False" {
        return None;
    }
    Some(Refusal {
        message: condition["message"].as_str().unwrap_or_default().to_owned(),
        since: condition["lastTransitionTime"].as_str().map(str::to_owned),
    })
}

/// A pod that is not finished.
#[derive(Debug, Clone, PartialEq)]
pub struct PodSeen {
    pub name: Name,
    pub uid: Arc<str>,
    /// None if it cannot be read.
    pub info: Option<Arc<PodInfo>>,
    /// UID of the PodChaperon that controls it.
    pub chaperon: Option<Arc<str>>,
    pub terminating: bool,
    /// It is ours to place: of our scheduler name and not bound.
    pub ours: bool,
    pub refusal: Option<Refusal>,
}

impl PodSeen {
    pub fn read(pod: &api::Pod) -> Self {
        let value = json!({
            "metadata": {
                "name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid(),
                "labels": pod.metadata.labels, "deletionTimestamp": pod.is_terminating().then_some(""),
            },
            "spec": pod.spec, "status": pod.status,
        });
        let controller = pod.controller().filter(|(kind, ..)| *kind == "PodChaperon");
        Self {
            name: Name::new(pod.namespace(), pod.name()),
            uid: Arc::from(pod.uid()),
            info: PodInfo::parse(&value).ok().map(|info| Arc::new(without_parent(info))),
            chaperon: controller.map(|(.., uid)| Arc::from(uid)),
            terminating: pod.is_terminating(),
            ours: pod.node().is_empty() && pod.scheduler() == keys::CANDIDATE_SCHEDULER,
            refusal: refusal(&pod.status),
        }
    }

    pub fn bound(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.node_name.is_some())
    }
}

/// Takes out the label that differs in every delegate, so that those of one template are equal.
pub fn without_parent(mut info: PodInfo) -> PodInfo {
    if let Some(spec) = Arc::get_mut(&mut info.spec) {
        spec.labels.remove(keys::PARENT_UID);
    }
    info
}

/// Pods that admission treats alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TemplateKey {
    pub namespace: Arc<str>,
    pub account: Arc<str>,
    /// Hash of spec, labels and annotations, but for what is the pod's alone.
    pub class: Arc<str>,
}

/// Something to schedule that is no pod yet.
#[derive(Debug, Clone, PartialEq)]
pub struct ChaperonSeen {
    pub name: Name,
    pub uid: Arc<str>,
    /// The resourceVersion, and the same as a number (0 if it is none).
    pub version: Arc<str>,
    pub version_number: u64,
    pub attempt: u64,
    /// The reserved node, while it is reserved.
    pub reserved: Option<Arc<str>>,
    /// The node that was reserved last, reserved still or not.
    pub reserved_node: Option<Arc<str>>,
    /// The ask that was answered by a reservation last.
    pub reserved_attempt: Option<u64>,
    pub allowed: bool,
    /// Nothing is to be scheduled, or no more: it is being deleted, it has ended, another scheduler places it, or it
    /// is granted without a reservation.
    pub over: bool,
    pub refusal: Option<Refusal>,
    pub template: TemplateKey,
    /// The pod that the chaperon controller would create, with the chaperon's UID; or what is wrong with it.
    pub pod: Result<Arc<PodInfo>, String>,
    /// Its manifest, for the dry run.
    pub manifest: Arc<Value>,
}

impl ChaperonSeen {
    pub fn read(chaperon: &api::PodChaperon) -> Self {
        let annotation = |key: &str| chaperon.annotation(key).map(Arc::<str>::from);
        let scheduler = chaperon.spec.get("schedulerName").and_then(Value::as_str).unwrap_or_default();
        let version = chaperon.resource_version();
        let reserved_node = annotation(keys::RESERVED_NODE);
        let manifest = manifest(chaperon);
        let pod = json!({
            "metadata": {
                "name": chaperon.name(), "namespace": chaperon.namespace(), "uid": chaperon.uid(),
                "labels": chaperon.metadata.labels,
            },
            "spec": chaperon.spec,
        });
        Self {
            name: Name::new(chaperon.namespace(), chaperon.name()),
            uid: Arc::from(chaperon.uid()),
            version: Arc::from(version),
            version_number: version.parse().unwrap_or_default(),
            attempt: chaperon.attempt(),
            reserved: reserved_node.clone().filter(|_| chaperon.is_reserved()),
            reserved_node,
            reserved_attempt: chaperon
                .annotation(keys::RESERVED_ATTEMPT)
                .map(|_| chaperon.reserved_attempt()),
            allowed: chaperon.is_allowed(),
            over: chaperon.is_terminating()
                || raw::is_terminal(chaperon.phase())
                || scheduler != keys::CANDIDATE_SCHEDULER
                || chaperon.annotation(keys::GRANT).is_some(),
            refusal: refusal(&chaperon.status),
            template: template(chaperon),
            pod: match PodInfo::parse(&pod) {
                Ok(info) => Ok(Arc::new(without_parent(info))),
                Err(error) => Err(error.to_string()),
            },
            manifest: Arc::new(manifest),
        }
    }
}

/// The delegate that the chaperon controller would create, but with a name of its own: another pod may have the
/// chaperon's already.
fn manifest(chaperon: &api::PodChaperon) -> Value {
    let stem: String = chaperon.name().chars().take(200).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{stem}-"),
            "namespace": chaperon.namespace(),
            "labels": chaperon.metadata.labels,
            "annotations": chaperon.metadata.annotations,
            "ownerReferences": [{
                "apiVersion": "multicluster.admiralty.io/v1alpha1", "kind": "PodChaperon",
                "name": chaperon.name(), "uid": chaperon.uid(), "controller": true,
            }],
        },
        "spec": chaperon.spec,
    })
}

fn template(chaperon: &api::PodChaperon) -> TemplateKey {
    let account = chaperon.spec.get("serviceAccountName").and_then(Value::as_str).unwrap_or("default");
    let mut hasher = DefaultHasher::new();
    match chaperon.annotation(keys::SPEC_HASH) {
        Some(hash) => hash.hash(&mut hasher),
        None => chaperon.spec.to_string().hash(&mut hasher),
    }
    for (key, value) in chaperon.metadata.annotations.iter().flatten() {
        if !keys::is_ours(key) {
            (key, value).hash(&mut hasher);
        }
    }
    TemplateKey {
        namespace: Arc::from(chaperon.namespace()),
        account: Arc::from(account),
        class: Arc::from(format!("{:016x}", hasher.finish())),
    }
}

/// The changes of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Change<T, K> {
    /// The whole list; what is not in it is gone.
    All(Vec<T>),
    Is(T),
    Gone(K),
}

/// Something that the watches saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Node(Change<NodeSeen, Arc<str>>),
    Pod(Change<PodSeen, Name>),
    Chaperon(Change<ChaperonSeen, Name>),
    Namespace(Change<(Arc<str>, Labels), Arc<str>>),
    Summary(Option<Box<ClusterSummary>>),
    /// What admission answers may be different now, in one namespace or everywhere.
    Admission(Option<Arc<str>>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chaperon(mut value: Value) -> ChaperonSeen {
        let mut raw = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "17",
                "annotations": {"multicluster.admiralty.io/attempt": "2"},
                "labels": {"multicluster.admiralty.io/parent-uid": "p1", "app": "web"}},
            "spec": {"schedulerName": "admiralty-candidate", "containers": [{"name": "a"}]},
        });
        json_merge(&mut raw, &value.take());
        ChaperonSeen::read(&serde_json::from_value(raw).expect("a chaperon"))
    }

    fn json_merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    json_merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    fn annotated(pairs: &[(&str, &str)]) -> Value {
        let pairs = pairs
            .iter()
            .map(|(key, value)| (format!("multicluster.admiralty.io/{key}"), Value::from(*value)));
        json!({"metadata": {"annotations": Value::Object(pairs.collect())}})
    }

    #[test]
    fn the_handshake_is_read_by_presence() {
        let seen =
            chaperon(annotated(&[("is-reserved", ""), ("reserved-node", "n1"), ("reserved-attempt", "1")]));
        assert_eq!((seen.attempt, seen.reserved_attempt, seen.allowed), (2, Some(1), false));
        assert_eq!(seen.reserved.as_deref(), Some("n1"));
        let expired = chaperon(annotated(&[("reserved-node", "n1"), ("reserved-attempt", "2")]));
        assert_eq!((expired.reserved, expired.reserved_attempt), (None, Some(2)));
        assert!(chaperon(annotated(&[("is-allowed", "")])).allowed);
    }

    #[test]
    fn what_another_scheduler_places_or_what_has_ended_is_over() {
        assert!(!chaperon(json!({})).over);
        assert!(chaperon(json!({"spec": {"schedulerName": "default-scheduler"}})).over);
        assert!(chaperon(json!({"status": {"phase": "Failed"}})).over);
        assert!(chaperon(annotated(&[("grant", "preempt")])).over);
        assert!(chaperon(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).over);
    }

    #[test]
    fn chaperons_of_one_template_share_their_dry_run_and_annotations_tell_templates_apart() {
        let other = json!({"metadata": {"name": "web-2", "uid": "u2",
            "labels": {"multicluster.admiralty.io/parent-uid": "p2"}}});
        assert_eq!(chaperon(json!({})).template, chaperon(other.clone()).template);
        let spec = |seen: ChaperonSeen| seen.pod.expect("a pod").spec.class();
        assert_eq!(spec(chaperon(json!({}))), spec(chaperon(other)));
        let injected = json!({"metadata": {"annotations": {"inject": "yes"}}});
        assert_ne!(chaperon(json!({})).template, chaperon(injected).template);
    }

    #[test]
    fn the_dry_run_pod_is_controlled_by_the_chaperon_so_that_it_is_not_elected_again() {
        let manifest = chaperon(json!({})).manifest;
        assert_eq!(manifest["metadata"]["ownerReferences"][0]["uid"], "u1");
        assert_eq!(manifest["metadata"]["generateName"], "web-");
    }

    #[test]
    fn a_spec_that_cannot_be_read_is_said() {
        let seen = chaperon(json!({"spec": {"priority": "high"}}));
        assert_eq!(seen.pod, Err("spec.priority: must be an integer of at most 64 bits".to_owned()));
    }

    #[test]
    fn a_virtual_node_is_not_used() {
        let node = |labels: Value| {
            NodeSeen::read(
                &serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}}))
                    .expect("a node"),
            )
        };
        assert!(matches!(node(json!({})), NodeSeen::Usable(_)));
        let seen = node(json!({"virtual-kubelet.io/provider": "admiralty"}));
        assert_eq!(seen, NodeSeen::Unusable { name: Arc::from("n"), problem: None });
    }

    #[test]
    fn a_bound_pod_is_not_ours_to_place() {
        let pod = |spec: Value| {
            PodSeen::read(
                &serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod"),
            )
        };
        assert!(pod(json!({"schedulerName": "admiralty-candidate"})).ours);
        let bound = pod(json!({"schedulerName": "admiralty-candidate", "nodeName": "n1"}));
        assert_eq!((bound.ours, bound.bound()), (false, true));
        assert!(!pod(json!({"schedulerName": "default-scheduler"})).ours);
    }
}
