use std::collections::BTreeSet;

use crate::framework::{Cycle, Event, Plugin, PreFilter, Rejection};
use crate::labels::Labels;
use crate::pod::PodInfo;
use crate::snapshot::{Node, Snapshot};
use crate::volumes::{BETA_REGION, BETA_ZONE, BindingMode, REGION, StorageEvent, ZONE, ZONE_LABELS};

/// Keeps pods in the zones and regions in which their volumes are, as the labels of the volumes say.
pub struct VolumeZone;

/// A label of a volume, and the values that its node may have.
type Zone = (&'static str, BTreeSet<String>);

fn zones(pod: &PodInfo, snapshot: &Snapshot) -> Result<Vec<Zone>, String> {
    let volumes = snapshot.volumes();
    let mut zones = Vec::new();
    for name in pod.spec.claims() {
        if name.is_empty() {
            return Err("PersistentVolumeClaim had no name".to_owned());
        }
        let claim = volumes.claim(&pod.namespace, name);
        let claim = claim.ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))?;
        if !claim.volume.is_empty() {
            let volume = volumes.volume(&claim.volume);
            let volume = volume.ok_or_else(|| format!("persistentvolume \"{}\" not found", claim.volume))?;
            zones.extend(volume.zones());
            continue;
        }
        if claim.class.is_empty() {
            return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
        }
        let name = &claim.class;
        let class = volumes.class(name);
        let class = class.ok_or_else(|| format!("storageclass.storage.k8s.io \"{name}\" not found"))?;
        match class.binding_mode {
            // The volume will be where the pod is.
            Some(BindingMode::WaitForFirstConsumer) => {}
            Some(BindingMode::Immediate) => return Err("PersistentVolume had no name".to_owned()),
            None => return Err(format!("VolumeBindingMode not set for StorageClass \"{name}\"")),
        }
    }
    Ok(zones)
}

fn is_in((key, values): &Zone, labels: &Labels) -> bool {
    let newer = match *key {
        BETA_ZONE => ZONE,
        BETA_REGION => REGION,
        other => other,
    };
    labels.get(key).or_else(|| labels.get(newer)).is_some_and(|value| values.contains(value))
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        "VolumeZone"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let zones = match zones(cycle.pod, cycle.snapshot) {
            Err(reason) => return PreFilter::Reject(Rejection::unresolvable(reason)),
            Ok(zones) if zones.is_empty() => return PreFilter::Skip,
            Ok(zones) => zones,
        };
        PreFilter::Filter(Box::new(move |node: &Node| {
            let labels = &node.info.labels;
            let somewhere = ZONE_LABELS.iter().any(|key| labels.contains_key(key));
            if !somewhere || zones.iter().all(|zone| is_in(zone, labels)) {
                return Ok(());
            }
            Err(Rejection::unresolvable("node(s) had no available volume zone"))
        }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let pod = cycle.pod;
        match event {
            Event::Node { change, .. } => change.added || change.labels,
            Event::Storage(StorageEvent::Class { old: None, new }) => {
                new.binding_mode == Some(BindingMode::WaitForFirstConsumer)
            }
            Event::Storage(StorageEvent::Claim { new, .. }) => {
                new.namespace == pod.namespace && pod.spec.claims().any(|name| *name == *new.name)
            }
            Event::Storage(StorageEvent::Volume { old, new }) => {
                old.as_ref().is_none_or(|old| old.zones() != new.zones())
            }
            _ => false,
        }
    }
}
