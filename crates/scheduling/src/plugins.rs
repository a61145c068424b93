//! The plugins, named and behaving as upstream's.

mod affinity;
mod company;
mod dynamic_resources;
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
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
#[cfg(test)]
mod volume_tests;
mod volume_zone;

use crate::config::PluginArgs;
use crate::framework::Plugin;
pub use affinity::NodeAffinity;
pub use company::InterPodAffinity;
pub use dynamic_resources::DynamicResources;
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
pub use volume_binding::VolumeBinding;
pub use volume_limits::NodeVolumeLimits;
pub use volume_restrictions::VolumeRestrictions;
pub use volume_zone::VolumeZone;

/// Every plugin with the default weight of its scores, in the order in which they are asked.
pub(crate) fn all(args: &PluginArgs) -> Vec<(Box<dyn Plugin>, i64)> {
    let balance = NodeResourcesBalancedAllocation::new(args.balance.clone());
    vec![
        (Box::new(SchedulingGates), 0),
        (Box::new(Supported), 0),
        (Box::new(NodeName), 0),
        (Box::new(NodeUnschedulable), 0),
        (Box::new(TaintToleration), 3),
        (Box::new(NodeAffinity::new(args.node_affinity.clone())), 2),
        (Box::new(NodePorts), 0),
        (Box::new(NodeResourcesFit::new(args.fit.clone())), 1),
        (Box::new(VolumeRestrictions), 0),
        (Box::new(NodeVolumeLimits), 0),
        (Box::new(VolumeBinding::new(args.volumes.clone())), 1),
        (Box::new(VolumeZone), 0),
        (Box::new(PodTopologySpread::new(args.spread.clone())), 2),
        (Box::new(InterPodAffinity::new(args.company.clone())), 2),
        (Box::new(DynamicResources), 2),
        (Box::new(NodeDeclaredFeatures), 0),
        (Box::new(DefaultPreemption { args: args.preemption.clone() }), 0),
        (Box::new(balance), 1),
        (Box::new(ImageLocality), 1),
    ]
}

/// One plugin by its name.
pub(crate) fn make(name: &str, args: &PluginArgs) -> Option<Box<dyn Plugin>> {
    all(args).into_iter().map(|(plugin, _)| plugin).find(|plugin| plugin.name() == name)
}
