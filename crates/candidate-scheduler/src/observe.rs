//! What the watches bring, reduced to what decisions need. Whatever is large is dropped here.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use api::claims::{Followings, followings};
use api::{ClusterSummary, keys, raw};
use scheduling::volumes::{
    Claim, CsiDriver, CsiNode, PersistentVolume, StorageCapacity, StorageClass, VolumeAttachment,
};
use scheduling::{
    Budget, DeviceClass, DeviceTaintRule, Labels, NodeInfo, Owner, OwnerKind, PodInfo, ResourceClaim,
    ResourceSlice,
};
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
    /// The resourceVersion.
    pub version: Arc<str>,
    /// None if it cannot be read.
    pub info: Option<Arc<PodInfo>>,
    /// UID of the PodChaperon that controls it.
    pub chaperon: Option<Arc<str>>,
    pub terminating: bool,
    pub refusal: Option<Refusal>,
}

impl PodSeen {
    pub fn read(pod: &api::Pod) -> Self {
        let value = json!({
            "metadata": {
                "name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid(),
                "labels": pod.metadata.labels, "deletionTimestamp": pod.is_terminating().then_some(""),
                "ownerReferences": pod.metadata.owner_references,
            },
            "spec": pod.spec, "status": pod.status,
        });
        let controller = pod.controller().filter(|(kind, ..)| *kind == "PodChaperon");
        Self {
            name: Name::new(pod.namespace(), pod.name()),
            uid: Arc::from(pod.uid()),
            version: Arc::from(pod.resource_version()),
            info: PodInfo::parse(&value).ok().map(|info| Arc::new(without_parent(info))),
            chaperon: controller.map(|(.., uid)| Arc::from(uid)),
            terminating: pod.is_terminating(),
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
        spec.labels.retain(|key, _| key != keys::PARENT_UID);
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
    /// Its last delegate was refused by the kubelet of the node that it was bound to.
    pub refused_by_node: bool,
    /// Its delegate runs.
    pub runs: bool,
    pub refusal: Option<Refusal>,
    pub template: TemplateKey,
    /// The pod that the chaperon controller would create, with the chaperon's UID; or what is wrong with it.
    pub pod: Result<Arc<PodInfo>, String>,
    /// Its manifest, for the dry run.
    pub manifest: Arc<Value>,
    /// Claims of the source that follow its pod.
    pub claims: Arc<Followings>,
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
            refused_by_node: raw::pod_condition(&chaperon.status, keys::DELEGATE_CREATED)
                .is_some_and(|created| created["status"] == "False" && created["reason"] == "RefusedByNode"),
            runs: chaperon.phase() == "Running",
            refusal: refusal(&chaperon.status),
            template: template(chaperon),
            pod: match PodInfo::parse(&pod) {
                Ok(info) => Ok(Arc::new(PodInfo { promise: true, ..without_parent(info) })),
                Err(error) => Err(error.to_string()),
            },
            manifest: Arc::new(manifest),
            claims: Arc::new(followings(chaperon.annotation(keys::CLAIMS))),
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

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq)]
pub struct BudgetSeen {
    pub name: Name,
    /// None if it cannot be read; then it protects nobody.
    pub budget: Option<Box<Budget>>,
}

impl BudgetSeen {
    pub fn read(name: Name, budget: &Value) -> Self {
        Self { name, budget: Budget::parse(budget).ok().map(Box::new) }
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

/// An object by its name, None if it cannot be read: it is as if it did not exist.
pub type Read<T> = (Name, Option<T>);

impl<T> Change<Read<T>, Name> {
    /// The same one object after another, those that are gone first: of a whole list what was known and is not in it.
    /// Says as well whether it was the whole list.
    pub(crate) fn one_by_one(self, known: impl FnOnce() -> Vec<Name>) -> (Vec<Read<T>>, bool) {
        match self {
            Change::All(objects) => {
                let there: HashSet<Name> = objects.iter().map(|(name, _)| name.clone()).collect();
                let gone = known().into_iter().filter(|name| !there.contains(name));
                (gone.map(|name| (name, None)).chain(objects).collect(), true)
            }
            Change::Is(object) => (vec![object], false),
            Change::Gone(name) => (vec![(name, None)], false),
        }
    }
}

/// What a watch saw of the objects that say where storage is. Objects of the whole cluster have an empty namespace.
#[derive(Debug, Clone, PartialEq)]
pub enum StorageSeen {
    Claim(Change<Read<Claim>, Name>),
    Volume(Change<Read<PersistentVolume>, Name>),
    Class(Change<Read<StorageClass>, Name>),
    CsiNode(Change<Read<CsiNode>, Name>),
    CsiDriver(Change<Read<CsiDriver>, Name>),
    Capacity(Change<Read<StorageCapacity>, Name>),
    Attachment(Change<Read<VolumeAttachment>, Name>),
}

impl StorageSeen {
    /// How many kinds there are.
    pub const KINDS: usize = 7;
}

/// What a watch saw of resource claims and of the devices that drivers have.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimsSeen {
    Claim(Change<Read<ResourceClaim>, Name>),
    Slice(Change<Read<ResourceSlice>, Name>),
    Rule(Change<Read<DeviceTaintRule>, Name>),
}

/// Something that the watches saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    Node(Change<NodeSeen, Arc<str>>),
    Pod(Change<PodSeen, Name>),
    Chaperon(Change<ChaperonSeen, Name>),
    Namespace(Change<(Arc<str>, Labels), Arc<str>>),
    Budget(Change<BudgetSeen, Name>),
    /// Claims, volumes, and what CSI drivers say.
    Storage(StorageSeen),
    /// Services or controllers of pods.
    Owners(OwnerKind, Change<Owner, Name>),
    /// Resource claims, and the devices that drivers have.
    Claims(ClaimsSeen),
    /// Which extended resources come from devices.
    Devices(Change<DeviceClass, Arc<str>>),
    Summary(Option<Box<ClusterSummary>>),
    /// What quotas admit, and what is used of it.
    Quota(Change<crate::plan::QuotaSeen, Name>),
    /// What admission answers may be different now, in one namespace or everywhere.
    Admission(Option<Arc<str>>),
}

#[cfg(test)]
mod tests;
