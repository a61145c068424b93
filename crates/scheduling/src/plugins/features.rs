use crate::framework::{Cycle, Event, Plugin, PreFilter, Rejection, Scope};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::Node;

/// Keeps pods off nodes whose kubelet does not declare what they need.
pub struct NodeDeclaredFeatures;

/// The kubelet of a virtual node is not the one that will run the pod.
fn declares_all(pod: &PodInfo, node: &NodeInfo) -> bool {
    node.is_virtual() || pod.spec.features.iter().all(|feature| node.features.contains(*feature))
}

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        if cycle.pod.spec.features.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Filter(Box::new(move |node: &Node| {
            if declares_all(cycle.pod, &node.info) {
                Ok(())
            } else {
                Err(Rejection::unresolvable("node(s) didn't match Pod's required features"))
            }
        }))
    }

    fn hint(&self, event: &Event, _cycle: Cycle<'_>) -> bool {
        match event {
            Event::Node { change, .. } => change.added || change.features,
            Event::Itself { old, pod, .. } => old.spec.features != pod.spec.features,
            _ => false,
        }
    }
}
