use std::collections::BTreeMap;

use crate::config::{ShapePoint, VolumeArgs};
use crate::framework::{Cycle, Event, NodeFilter, NodeScore, Plugin, PreFilter, Rejection};
use crate::node::NodeInfo;
use crate::plugins::resources::{height_at, rounded};
use crate::pod::{PodInfo, PodVolume};
use crate::quantity::Quantity;
use crate::snapshot::Node;
use crate::volumes::{CsiDriver, Found, StorageCapacity, StorageEvent, VolumePlan, Wanted};

/// Finds, for the claims of a pod, volumes that its node can reach, or room to make them.
#[derive(Default)]
pub struct VolumeBinding {
    args: VolumeArgs,
}

impl VolumeBinding {
    pub fn new(args: VolumeArgs) -> Self {
        Self { args }
    }
}

struct Storage<'a> {
    wanted: Wanted<'a>,
    shape: &'a [ShapePoint],
}

/// Requested and available storage of each class, in bytes.
type Classes<'a> = BTreeMap<&'a str, (i64, i64)>;

fn of_bindings<'a>(found: &'a Found<'_>) -> Classes<'a> {
    let mut classes = Classes::new();
    for (volume, claim) in &found.bindings {
        let class = classes.entry(volume.spec_class()).or_default();
        class.0 += claim.request.as_ref().map(Quantity::value).unwrap_or_default();
        class.1 += volume.capacity.value();
    }
    classes
}

fn of_provisions<'a>(found: &'a Found<'_>) -> Classes<'a> {
    let mut classes = Classes::new();
    for (claim, room) in &found.provisions {
        let Some(room) = room else { continue };
        let class = classes.entry(claim.class.as_str()).or_default();
        class.0 += claim.request.as_ref().map(Quantity::value).unwrap_or_default();
        class.1 = room.capacity.as_ref().map(Quantity::value).unwrap_or_default();
    }
    classes
}

impl NodeFilter for Wanted<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        self.find(&node.info).map(drop)
    }

    fn may_fail(&self) -> bool {
        self.is_broken()
    }
}

impl NodeScore for Storage<'_> {
    fn score(&self, node: &Node) -> i64 {
        let Ok(found) = self.wanted.find(&node.info) else { return 0 };
        let classes = if found.bindings.is_empty() { of_provisions(&found) } else { of_bindings(&found) };
        let scores = classes.values().map(|(requested, capacity)| {
            let utilisation = match requested.saturating_mul(100).checked_div(*capacity) {
                Some(utilisation) if requested <= capacity => utilisation,
                _ => 100,
            };
            height_at(self.shape, utilisation)
        });
        match i64::try_from(classes.len()) {
            Ok(0) | Err(_) => 0,
            Ok(count) => rounded(scores.sum(), count),
        }
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        "VolumeBinding"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        match Wanted::of(cycle.pod, cycle.snapshot.volumes()) {
            Err(rejection) => PreFilter::Reject(rejection),
            Ok(None) => PreFilter::Skip,
            Ok(Some(wanted)) => PreFilter::Filter(Box::new(wanted)),
        }
    }

    fn prefers(&self, cycle: Cycle<'_>) -> bool {
        let volumes = &cycle.pod.spec.volumes;
        volumes.iter().any(|volume| volume.claim_name(cycle.pod).is_some())
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let wanted = Wanted::of(cycle.pod, cycle.snapshot.volumes()).ok()??;
        if wanted.is_settled() {
            return None;
        }
        Some(Box::new(Storage { wanted, shape: &self.args.shape }))
    }

    fn volumes(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Option<VolumePlan> {
        VolumePlan::of(cycle.pod, node, cycle.snapshot.volumes())
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let pod = cycle.pod;
        match event {
            Event::Node { change, .. } => change.added || change.labels,
            Event::Storage(event) => storage_hint(event, pod),
            _ => false,
        }
    }
}

fn storage_hint(event: &StorageEvent, pod: &PodInfo) -> bool {
    match event {
        StorageEvent::Claim { new, .. } => {
            let mut names = pod.spec.volumes.iter().filter_map(|volume| volume.claim_name(pod));
            new.namespace == pod.namespace && names.any(|name| *name == *new.name)
        }
        StorageEvent::Volume { .. } => true,
        StorageEvent::Class { old, new } => old.as_ref().is_none_or(|old| old.topologies != new.topologies),
        StorageEvent::CsiNode { old, new } => old.as_ref().is_none_or(|old| old.migrated != new.migrated),
        StorageEvent::CsiDriver { old, new } => {
            old.as_ref().is_some_and(|old| old.storage_capacity && !new.storage_capacity)
                && names_driver(pod, new)
        }
        StorageEvent::Capacity { old, new } => old.as_ref().is_none_or(|old| has_grown(old, new)),
        StorageEvent::AttachmentGone(_) => false,
    }
}

fn names_driver(pod: &PodInfo, named: &CsiDriver) -> bool {
    pod.spec.volumes.iter().any(|volume| match volume {
        PodVolume::Csi { driver } => *driver == named.name,
        PodVolume::Claim { .. } | PodVolume::Ephemeral { .. } | PodVolume::Disk { .. } => false,
    })
}

fn has_grown(old: &StorageCapacity, new: &StorageCapacity) -> bool {
    match (old.limit(), new.limit()) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new > old,
    }
}
