use crate::framework::{Cycle, Event, Plugin, PreFilter, Rejection, Scope};
use crate::snapshot::Node;

/// Keeps pods apart that want the same port of a node.
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let ports = &cycle.pod.spec.host_ports;
        if ports.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Filter(Box::new(move |node: &Node| {
            if node.port_conflict(ports) {
                Err(Rejection::unschedulable("node(s) didn't have free ports for the requested pod ports"))
            } else {
                Ok(())
            }
        }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        match event {
            Event::PodGone(gone) => {
                let freed = &gone.spec.host_ports;
                cycle.pod.spec.host_ports.iter().any(|port| freed.iter().any(|other| port.conflicts(other)))
            }
            Event::Node { change, .. } => change.added,
            _ => false,
        }
    }
}
