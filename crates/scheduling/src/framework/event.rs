use std::sync::Arc;

use crate::devices::{DeviceClass, DeviceEvent};
use crate::node::NodeInfo;
use crate::pod::{PodInfo, PodSpec};
use crate::resources::ResourceList;
use crate::snapshot::NodeChange;
use crate::volumes::StorageEvent;

/// Something happened that may make a refused pod schedulable.
#[derive(Debug, Clone)]
pub enum Event {
    /// A node appeared (then there is no old one) or changed.
    Node {
        old: Option<Arc<NodeInfo>>,
        node: Arc<NodeInfo>,
        change: NodeChange,
    },
    NodeGone(Arc<NodeInfo>),
    /// A pod or reservation took its place on a node.
    PodPlaced(Arc<PodInfo>),
    /// A pod that has its place changed.
    PodChanged {
        old: Arc<PodInfo>,
        pod: Arc<PodInfo>,
        change: PodChange,
    },
    /// A pod or reservation left its node.
    PodGone(Arc<PodInfo>),
    /// The pod that waits changed itself. Plugins hear of it only about that pod.
    Itself {
        old: Arc<PodInfo>,
        pod: Arc<PodInfo>,
        change: PodChange,
    },
    /// A namespace appeared, vanished, or has other labels.
    Namespace,
    /// Claims, volumes, or what CSI drivers say.
    Storage(StorageEvent),
    /// A DeviceClass appeared (then there is no old one), changed, or vanished (then there is no new one).
    Devices {
        old: Option<DeviceClass>,
        new: Option<DeviceClass>,
    },
    /// Resource claims, or the devices that drivers have.
    Claims(DeviceEvent),
}

impl Event {
    /// The name by which metrics count it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Node { old: None, .. } => "NodeAdd",
            Self::Node { change, .. } => change.label(),
            Self::NodeGone(_) => "NodeDelete",
            Self::PodPlaced(_) => "AssignedPodAdd",
            Self::PodChanged { change, .. } => change.label(false),
            Self::PodGone(_) => "AssignedPodDelete",
            Self::Itself { change, .. } => change.label(true),
            Self::Namespace => "NamespaceUpdate",
            Self::Storage(event) => event.label(),
            Self::Devices { old: None, .. } => "DeviceClassAdd",
            Self::Devices { new: None, .. } => "DeviceClassDelete",
            Self::Devices { .. } => "DeviceClassUpdate",
            Self::Claims(event) => event.label(),
        }
    }
}

impl NodeChange {
    fn label(self) -> &'static str {
        match self {
            Self { taints: true, .. } => "NodeUpdateNodeTaint",
            Self { allocatable: true, .. } => "NodeUpdateNodeAllocatable",
            Self { labels: true, .. } => "NodeUpdateNodeLabel",
            Self { ready: true, .. } => "NodeUpdateNodeCondition",
            Self { features: true, .. } => "NodeUpdateNodeDeclaredFeature",
            _ => "NodeUpdate",
        }
    }
}

/// What is new about a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PodChange {
    pub labels: bool,
    /// It asks for less of a resource, or no more at all.
    pub scaled_down: bool,
    pub scaled_up: bool,
    /// Its last scheduling gate is gone.
    pub ungated: bool,
    pub tolerations: bool,
    /// Claims were made from its templates.
    pub claims: bool,
    /// Anything else of its spec, but for images.
    pub other: bool,
}

impl PodChange {
    pub fn between(old: &PodInfo, new: &PodInfo) -> Self {
        let (was, is) = (&old.spec, &new.spec);
        let (asked, asks) = (was.request_list(), is.request_list());
        let change = Self {
            labels: was.labels != is.labels,
            scaled_down: less(&asked, &asks),
            scaled_up: less(&asks, &asked),
            ungated: !was.gates.is_empty() && is.gates.is_empty(),
            tolerations: was.tolerations != is.tolerations,
            claims: old.generated != new.generated,
            other: false,
        };
        Self { other: was != is && otherwise_different(was, is), ..change }
    }

    /// True if nothing is new that scheduling looks at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn label(self, itself: bool) -> &'static str {
        match (self, itself) {
            (Self { labels: true, .. }, false) => "AssignedPodUpdatePodLabel",
            (Self { labels: true, .. }, true) => "TargetPodUpdatePodLabel",
            (Self { scaled_down: true, .. }, false) => "AssignedPodUpdatePodScaleDown",
            (Self { scaled_down: true, .. }, true) => "TargetPodUpdatePodScaleDown",
            (Self { scaled_up: true, .. }, false) => "AssignedPodUpdatePodScaleUp",
            (Self { scaled_up: true, .. }, true) => "TargetPodUpdatePodScaleUp",
            (Self { ungated: true, .. }, _) => "TargetPodUpdatePodSchedulingGatesEliminated",
            (Self { tolerations: true, .. }, false) => "AssignedPodUpdatePodToleration",
            (Self { tolerations: true, .. }, true) => "TargetPodUpdatePodToleration",
            (Self { claims: true, .. }, true) => "TargetPodUpdatePodGeneratedResourceClaim",
            (_, false) => "AssignedPodUpdate",
            (_, true) => "TargetPodUpdate",
        }
    }
}

/// True if the specs differ in more than what a pod may change, or has a flag of its own.
fn otherwise_different(was: &PodSpec, is: &PodSpec) -> bool {
    let mut was = was.clone();
    was.labels.clone_from(&is.labels);
    was.tolerations.clone_from(&is.tolerations);
    was.gates.clone_from(&is.gates);
    was.images.clone_from(&is.images);
    was.requests.clone_from(&is.requests);
    was != *is
}

/// True if `new` has less of any resource than `old`, or does not name it any more.
fn less(old: &ResourceList, new: &ResourceList) -> bool {
    old.iter().any(|(name, amount)| new.get(name).is_none_or(|now| now < amount))
}
