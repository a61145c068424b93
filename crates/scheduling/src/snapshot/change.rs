use crate::node::NodeInfo;

/// What is new about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeChange {
    pub added: bool,
    pub allocatable: bool,
    pub labels: bool,
    /// Taints, or whether it is cordoned.
    pub taints: bool,
    /// Its Ready condition.
    pub ready: bool,
    /// Features that its kubelet declares.
    pub features: bool,
}

impl NodeChange {
    pub(super) fn between(old: &NodeInfo, new: &NodeInfo) -> Self {
        Self {
            added: false,
            allocatable: old.allocatable != new.allocatable,
            labels: old.labels != new.labels,
            taints: old.taints != new.taints || old.unschedulable != new.unschedulable,
            ready: old.ready != new.ready,
            features: old.features != new.features,
        }
    }

    /// True if nothing is new that scheduling looks at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
