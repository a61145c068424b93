//! The plugins, named and behaving as upstream's.

mod affinity;
mod company;
mod features;
mod gates;
mod images;
mod names;
mod ports;
mod preemption;
mod resources;
mod sort;
mod spread;
mod supported;
mod taints;
#[cfg(test)]
mod tests;

use crate::framework::Plugin;
pub use affinity::NodeAffinity;
pub use company::InterPodAffinity;
pub use features::NodeDeclaredFeatures;
pub use gates::SchedulingGates;
pub use images::ImageLocality;
pub use names::{NodeName, NodeUnschedulable};
pub use ports::NodePorts;
pub use preemption::{Cost, DefaultPreemption};
pub use resources::{NodeResourcesBalancedAllocation, NodeResourcesFit};
pub use sort::PrioritySort;
pub use spread::PodTopologySpread;
pub use supported::Supported;
pub use taints::TaintToleration;

/// Every plugin with the weight of its scores, in the order in which they are asked.
pub(crate) fn all() -> Vec<(Box<dyn Plugin>, i64)> {
    vec![
        (Box::new(SchedulingGates), 0),
        (Box::new(Supported), 0),
        (Box::new(NodeName), 0),
        (Box::new(NodeUnschedulable), 0),
        (Box::new(TaintToleration), 3),
        (Box::new(NodeAffinity::default()), 2),
        (Box::new(NodePorts), 0),
        (Box::new(NodeResourcesFit::default()), 1),
        (Box::new(PodTopologySpread::default()), 2),
        (Box::new(InterPodAffinity::default()), 2),
        (Box::new(NodeDeclaredFeatures), 0),
        (Box::new(DefaultPreemption::default()), 0),
        (Box::new(NodeResourcesBalancedAllocation::default()), 1),
        (Box::new(ImageLocality), 1),
    ]
}
