//! Which virtual nodes a pod may go to by its cluster-level constraints, and which of them it prefers.
//!
//! Whether there is room is not judged here: only the target knows, and it is asked.

use crate::machine::Id;
use scheduling::{Classes, Framework, Labels, NodeInfo, PodInfo, Snapshot};
use std::sync::Arc;

/// What is left out: room is ranked by [`crate::machine`] and judged by targets, ports are a matter of real
/// nodes, claims are those of targets, gates and what is not supported are known before anybody is ranked.
const NOT_BETWEEN_CLUSTERS: [&str; 10] = [
    "SchedulingGates",
    "Supported",
    "NodePorts",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "DefaultPreemption",
];

/// What is said of a virtual node whose target does not answer or is not ready.
const NOT_READY: &str = "the virtual node is not ready";

/// The virtual nodes with the pods on them, and the rules by which pods are kept from them.
pub struct Ranker {
    framework: Framework,
    snapshot: Snapshot,
    classes: Classes,
}

/// What the constraints say about each virtual node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Nodes that come into question, with how much they are preferred.
    pub fit: Vec<(Id, i64)>,
    /// The others, with the reason.
    pub refused: Vec<(Id, String)>,
}

impl Default for Ranker {
    fn default() -> Self {
        Self {
            framework: Framework::builder().without(&NOT_BETWEEN_CLUSTERS).build(),
            snapshot: Snapshot::default(),
            classes: Classes::default(),
        }
    }
}

impl Ranker {
    /// Adds or changes a virtual node. Says whether anything is new that matters.
    pub fn set(&mut self, node: NodeInfo) -> bool {
        !self.snapshot.set_node(node).is_empty()
    }

    /// Forgets a virtual node.
    pub fn remove(&mut self, node: &str) {
        self.snapshot.remove_node(node);
    }

    /// Forgets all that are not among these.
    pub fn retain(&mut self, nodes: &[NodeInfo]) {
        let gone: Vec<Id> = self
            .snapshot
            .nodes()
            .map(|node| Arc::clone(&node.info.name))
            .filter(|name| !nodes.iter().any(|node| node.name == *name))
            .collect();
        for name in gone {
            self.remove(&name);
        }
    }

    /// The same pod with the spec that equal pods share already: what is kept of a pod should be small, and specs
    /// that are one are equal at a glance.
    pub fn share(&mut self, pod: &Arc<PodInfo>) -> Arc<PodInfo> {
        self.classes.share(pod)
    }

    /// Counts a pod on a virtual node, wherever it was before. Says whether that is new.
    pub fn place(&mut self, pod: &Arc<PodInfo>, node: &Id) -> bool {
        let known = self.snapshot.pod(&pod.uid);
        let same = known.is_some_and(|known| known.spec == pod.spec && known.terminating == pod.terminating);
        if same && self.snapshot.place_of(&pod.uid) == Some(node) {
            return false;
        }
        self.snapshot.assume(Arc::clone(pod), node);
        true
    }

    /// Counts a pod nowhere. Says whether that is new.
    pub fn unplace(&mut self, uid: &str) -> bool {
        self.snapshot.remove_pod(uid).is_some()
    }

    /// Learns the labels of a namespace, which selectors of namespaces look at.
    pub fn set_namespace(&mut self, name: &str, labels: Labels) {
        self.snapshot.set_namespace(name, labels);
    }

    /// Forgets a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        self.snapshot.remove_namespace(name);
    }

    /// Judges every virtual node.
    pub fn judge(&self, pod: &PodInfo) -> Verdict {
        let mut verdict = Verdict::default();
        match self.framework.evaluate(pod, &self.snapshot) {
            Ok(selection) => {
                let refused = selection.refused.iter();
                verdict.refused =
                    refused.map(|node| (Arc::clone(&node.node), node.refusal.message())).collect();
                for ranked in selection.ranked {
                    if self.is_ready(&ranked.node) {
                        verdict.fit.push((ranked.node, ranked.score));
                    } else {
                        verdict.refused.push((ranked.node, NOT_READY.to_owned()));
                    }
                }
            }
            Err(diagnosis) => {
                let whole = diagnosis.pre_filter.as_deref();
                for node in self.snapshot.nodes() {
                    let name = &node.info.name;
                    let own = diagnosis.refused.iter().find(|refused| refused.node == *name);
                    let reason = own.map(|refused| refused.refusal.message());
                    let reason = reason.or_else(|| whole.map(str::to_owned)).unwrap_or_default();
                    verdict.refused.push((Arc::clone(name), reason));
                }
            }
        }
        verdict
    }

    /// Whether a pod may go to one virtual node.
    pub fn admits(&self, pod: &PodInfo, node: &str) -> bool {
        self.is_ready(node) && self.framework.evaluate_node(pod, &self.snapshot, node).is_ok()
    }

    fn is_ready(&self, node: &str) -> bool {
        self.snapshot.node(node).is_some_and(|node| node.info.ready)
    }
}
