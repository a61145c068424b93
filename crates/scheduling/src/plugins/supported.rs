use crate::framework::{Cycle, Event, NodeFilter, Plugin, PreFilter, Rejection, Scope};
use crate::resources::Kind;
use crate::snapshot::Node;

/// Refuses pods that need what this release does not know, rather than placing them wrongly.
///
/// That is a resource claim where claims are not known, and for room that is promised to a pod of another cluster; and,
/// on nodes that count none of it themselves, an extended
/// resource that a DeviceClass stands for. A node whose device plugin counts it gives it without any claim.
pub struct Supported;

/// Extended resources of a pod that a DeviceClass stands for, and its name.
struct Devices<'a> {
    asks: Vec<(Kind<'a>, &'a str)>,
}

impl NodeFilter for Devices<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        let missing = self.asks.iter().find(|(kind, _)| node.info.room.of(*kind) == 0);
        let Some((kind, class)) = missing else { return Ok(()) };
        Err(Rejection::unresolvable(format!(
            "node(s) have {} only through dynamic resources (DeviceClass {class:?}), which are not supported yet",
            kind.name()
        )))
    }
}

/// What the pod asks for that may come from devices.
fn devices<'a>(cycle: Cycle<'a>) -> Vec<(Kind<'a>, &'a str)> {
    let classes = cycle.snapshot.devices().classes();
    let asks = cycle.pod.spec.requests().asks().filter(|(kind, _)| matches!(kind, Kind::Scalar(_)));
    asks.filter_map(|(kind, _)| Some((kind, &*classes.backing(kind.name())?.name))).collect()
}

impl Plugin for Supported {
    fn name(&self) -> &'static str {
        "Supported"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let followed = cycle.snapshot.devices().is_followed() && !cycle.pod.promise;
        if let Some(reason) = cycle.pod.spec.claim_refusal().filter(|_| !followed) {
            return PreFilter::Reject(Rejection::unresolvable(reason));
        }
        match devices(cycle) {
            asks if asks.is_empty() => PreFilter::Skip,
            asks => PreFilter::Filter(Box::new(Devices { asks })),
        }
    }

    /// Nothing in the cluster makes a claim supported. Devices may become a node's own.
    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let claims = !cycle.pod.spec.claims.is_empty();
        match event {
            Event::Itself { old, pod, change } => old.spec.claims != pod.spec.claims || change.scaled_down,
            Event::Node { change, .. } => !claims && (change.added || change.allocatable),
            Event::Devices { old: Some(old), .. } => !claims && old.concerns(cycle.pod),
            _ => false,
        }
    }
}
