use std::collections::BTreeSet;

use crate::framework::{Cycle, Event, NodeFilter, Plugin, PreFilter, Rejection};
use crate::pod::{PodInfo, PodVolume};
use crate::snapshot::Node;
use crate::volumes::{InlineDisk, StorageEvent};

/// Keeps pods apart that want the same disk, or the same claim that is for one pod only.
pub struct VolumeRestrictions;

struct Restrictions<'a> {
    disks: Vec<&'a InlineDisk>,
    /// Claims of the pod that are for one pod only.
    exclusive: BTreeSet<&'a str>,
    /// How often other pods use them.
    users: i64,
}

fn disks(pod: &PodInfo) -> impl Iterator<Item = &InlineDisk> {
    pod.spec.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Disk { disk, .. } if disk.is_exclusive() => Some(disk),
        PodVolume::Disk { .. }
        | PodVolume::Claim { .. }
        | PodVolume::Ephemeral { .. }
        | PodVolume::Csi { .. } => None,
    })
}

fn conflict(wanted: &[&InlineDisk], other: &PodInfo) -> bool {
    disks(other).any(|used| wanted.iter().any(|disk| disk.conflicts(used)))
}

impl Restrictions<'_> {
    /// How often a pod uses the exclusive claims. As upstream, a claim of the same name in another namespace counts:
    /// this is asked only of pods that might be evicted or are expected.
    fn uses(&self, pod: &PodInfo) -> i64 {
        let uses = pod.spec.claims().filter(|claim| self.exclusive.contains(claim)).count();
        i64::try_from(uses).unwrap_or(i64::MAX)
    }
}

impl NodeFilter for Restrictions<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        if !self.disks.is_empty() && node.pods().any(|pod| conflict(&self.disks, pod)) {
            return Err(Rejection::unschedulable("node(s) had no available disk"));
        }
        if self.users > 0 {
            return Err(Rejection::unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            ));
        }
        Ok(())
    }

    fn add_pod(&mut self, pod: &PodInfo, _node: &Node) {
        self.users += self.uses(pod);
    }

    fn remove_pod(&mut self, pod: &PodInfo, _node: &Node) {
        self.users -= self.uses(pod);
    }
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        "VolumeRestrictions"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let Cycle { pod, snapshot } = cycle;
        let mut exclusive = BTreeSet::new();
        for name in pod.spec.claims() {
            let Some(claim) = snapshot.volumes().claim(&pod.namespace, name) else {
                let reason = format!("persistentvolumeclaim \"{name}\" not found");
                return PreFilter::Reject(Rejection::unresolvable(reason));
            };
            if claim.for_one_pod() {
                exclusive.insert(name);
            }
        }
        // One user is enough, and by its rule there is one at most.
        let in_use = |claim: &&&str| {
            let pods = || snapshot.nodes().flat_map(Node::pods);
            pods().any(|other| other.namespace == pod.namespace && uses(other, claim))
        };
        let users = i64::try_from(exclusive.iter().filter(in_use).count()).unwrap_or(i64::MAX);
        let disks: Vec<_> = disks(pod).collect();
        if disks.is_empty() && users == 0 {
            return PreFilter::Skip;
        }
        PreFilter::Filter(Box::new(Restrictions { disks, exclusive, users }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let pod = cycle.pod;
        match event {
            Event::PodGone(gone) => gone.namespace == pod.namespace && made_room(gone, pod),
            Event::Node { change, .. } => change.added,
            Event::Storage(StorageEvent::Claim { old: None, new }) => {
                new.namespace == pod.namespace && uses(pod, &new.name)
            }
            _ => false,
        }
    }
}

fn uses(pod: &PodInfo, claim: &str) -> bool {
    pod.spec.claims().any(|name| name == claim)
}

fn made_room(gone: &PodInfo, pod: &PodInfo) -> bool {
    let wanted: Vec<_> = disks(pod).collect();
    conflict(&wanted, gone) || gone.spec.claims().any(|claim| uses(pod, claim))
}
