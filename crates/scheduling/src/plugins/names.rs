use std::collections::BTreeSet;

use crate::framework::{Cycle, Event, Plugin, PreFilter, Rejection, Scope};
use crate::pod::PodInfo;
use crate::snapshot::Node;

/// Keeps a pod that names its node to that node.
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn prefers(&self, _cycle: Cycle<'_>) -> bool {
        false
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let Some(wanted) = &cycle.pod.node_name else { return PreFilter::Skip };
        let filter = move |node: &Node| {
            if node.info.name == *wanted {
                Ok(())
            } else {
                Err(Rejection::unresolvable("node(s) didn't match the requested node name"))
            }
        };
        PreFilter::Only(BTreeSet::from([wanted.to_string()]), Box::new(filter))
    }

    fn hint(&self, event: &Event, _cycle: Cycle<'_>) -> bool {
        matches!(event, Event::Node { change, .. } if change.added)
    }
}

/// Keeps pods off cordoned nodes unless they tolerate it.
pub struct NodeUnschedulable;

fn tolerates_cordon(pod: &PodInfo) -> bool {
    let mut tolerations = pod.spec.tolerations.iter();
    tolerations.any(|toleration| toleration.tolerates("node.kubernetes.io/unschedulable", "", "NoSchedule"))
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        if tolerates_cordon(cycle.pod) {
            return PreFilter::Skip;
        }
        PreFilter::Filter(Box::new(|node: &Node| {
            if node.info.unschedulable {
                Err(Rejection::unresolvable("node(s) were unschedulable"))
            } else {
                Ok(())
            }
        }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        match event {
            Event::Node { old, node, .. } => {
                !node.unschedulable && old.as_ref().is_none_or(|old| old.unschedulable)
            }
            Event::Itself { change, .. } => change.tolerations && tolerates_cordon(cycle.pod),
            _ => false,
        }
    }
}
