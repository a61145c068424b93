use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::framework::{Code, Cycle, Event, NodeFilter, Plugin, PreFilter, Rejection};
use crate::pod::{PodInfo, PodVolume};
use crate::snapshot::Node;
use crate::volumes::{
    Claim, CsiNode, InTreePlugin, InlineDisk, PersistentVolume, StorageEvent, VolumeSource, Volumes,
};

/// Attaches no more volumes to a node than its CSI drivers can.
pub struct NodeVolumeLimits;

/// Volumes by `driver/handle`, with their driver.
type Attached = BTreeMap<String, String>;

/// What went wrong with the volumes of a pod.
enum Problem {
    /// The claim of the pod that is to be scheduled does not exist.
    Missing(String),
    Broken(String),
}

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Missing(reason) => Self::unresolvable(reason),
            Problem::Broken(reason) => Self { code: Code::Error, reasons: vec![reason.into()] },
        }
    }
}

/// Knows as what CSI drivers see the volumes of pods.
struct Drivers<'a> {
    volumes: &'a Volumes,
}

impl Drivers<'_> {
    /// Volumes of a pod on a node of which a CSI driver speaks, or (`moved` is false) none does.
    fn volumes_of(&self, pod: &PodInfo, moved: bool, new: bool) -> Result<Attached, Problem> {
        let mut attached = Attached::new();
        for volume in &pod.spec.volumes {
            let found = match volume {
                PodVolume::Claim { .. } | PodVolume::Ephemeral { .. } => {
                    self.claimed(pod, volume, (moved, new))?
                }
                PodVolume::Disk { volume, disk } => inline(volume, disk, moved)?,
                PodVolume::Csi { .. } => None,
            };
            attached.extend(found.map(|(driver, handle)| (format!("{driver}/{handle}"), driver)));
        }
        Ok(attached)
    }

    fn claimed(
        &self,
        pod: &PodInfo,
        volume: &PodVolume,
        (moved, new): (bool, bool),
    ) -> Result<Option<(String, String)>, Problem> {
        let Some(name) = volume.claim_name(pod) else { return Ok(None) };
        if name.is_empty() {
            return Err(Problem::Broken("PersistentVolumeClaim had no name".to_owned()));
        }
        let Some(claim) = self.volumes.claim(&pod.namespace, &name) else {
            if new {
                let namespace = &pod.namespace;
                return Err(Problem::Missing(format!(
                    "looking up PVC {namespace}/{name}: persistentvolumeclaim \"{name}\" not found"
                )));
            }
            return Ok(None);
        };
        if matches!(volume, PodVolume::Ephemeral { .. }) {
            claim.check_owner(pod).map_err(Problem::Broken)?;
        }
        let volume = self.volumes.volume(&claim.volume).filter(|_| !claim.volume.is_empty());
        let found = match volume {
            Some(volume) => of_volume(volume, moved),
            None => self.of_class(claim, moved),
        };
        Ok(found.filter(|(driver, handle)| !driver.is_empty() && !handle.is_empty()))
    }

    /// True if the volumes of a pod cannot be counted on some node.
    fn fail_on(&self, pod: &PodInfo) -> bool {
        pod.spec.volumes.iter().any(|volume| match volume {
            PodVolume::Claim { claim, .. } => claim.is_empty(),
            PodVolume::Ephemeral { .. } => {
                let claim = volume.claim_name(pod).and_then(|name| self.volumes.claim(&pod.namespace, &name));
                claim.is_some_and(|claim| claim.check_owner(pod).is_err())
            }
            PodVolume::Disk { disk, .. } => {
                disk.migrated().is_some_and(|(plugin, handle)| plugin.counts() && handle.is_err())
            }
            PodVolume::Csi { .. } => false,
        })
    }

    /// The volume that will be made for a claim, under a name that no driver gives.
    fn of_class(&self, claim: &Claim, moved: bool) -> Option<(String, String)> {
        let class = self.volumes.class(&claim.class).filter(|_| !claim.class.is_empty())?;
        let handle = format!("\0{}/{}", claim.namespace, claim.name);
        match InTreePlugin::by_name(&class.provisioner) {
            None => Some((class.provisioner.clone(), handle)),
            Some(plugin) if moved && plugin.counts() => Some((plugin.driver().to_owned(), handle)),
            Some(_) => None,
        }
    }
}

fn of_volume(volume: &PersistentVolume, moved: bool) -> Option<(String, String)> {
    match &volume.source {
        VolumeSource::Csi { driver, handle } => Some((driver.clone(), handle.clone())),
        VolumeSource::InTree { plugin, migrated } if moved && plugin.counts() => {
            let migrated = migrated.as_ref().ok()?;
            Some((plugin.driver().to_owned(), migrated.handle.clone()))
        }
        VolumeSource::InTree { .. } | VolumeSource::Other => None,
    }
}

fn inline(volume: &str, disk: &InlineDisk, moved: bool) -> Result<Option<(String, String)>, Problem> {
    let Some((plugin, handle)) = disk.migrated().filter(|(plugin, _)| moved && plugin.counts()) else {
        return Ok(None);
    };
    match handle {
        Ok(handle) => Ok(Some((plugin.driver().to_owned(), handle.clone()))),
        Err(problem) => {
            Err(Problem::Broken(format!("converting volume({volume}) from inline to csi: {problem}")))
        }
    }
}

/// True if a pod has volumes that can count.
fn counts(pod: &PodInfo) -> bool {
    pod.spec.volumes.iter().any(|volume| match volume {
        PodVolume::Claim { .. } | PodVolume::Ephemeral { .. } => true,
        PodVolume::Disk { disk, .. } => disk.migrated().is_some(),
        PodVolume::Csi { .. } => false,
    })
}

struct Limits<'a> {
    drivers: Drivers<'a>,
    pod: &'a PodInfo,
    /// The volumes of this pod or of one that is placed cannot be counted.
    broken: bool,
}

impl Limits<'_> {
    /// One of the drivers refuses pods where it is not installed, and is not installed here.
    fn missing_driver<'b>(&self, new: &'b Attached, csi_node: Option<&Arc<CsiNode>>) -> Option<&'b String> {
        new.values().find(|name| {
            let driver = self.drivers.volumes.csi_driver(name);
            let strict = driver.is_some_and(|driver| driver.must_be_installed);
            strict && !csi_node.is_some_and(|node| node.drivers.contains_key(*name))
        })
    }

    /// Volumes of pods on a node, and of attachments to it, that are of a driver with a limit.
    fn attached(&self, node: &Node) -> Result<(HashSet<String>, HashMap<String, i64>), Problem> {
        let mut used = HashSet::new();
        let mut counts = HashMap::<String, i64>::new();
        for pod in node.pods().filter(|pod| !pod.spec.volumes.is_empty()) {
            for (volume, driver) in self.drivers.volumes_of(pod, true, false)? {
                if used.insert(volume) {
                    *counts.entry(driver).or_default() += 1;
                }
            }
        }
        let mut attachments = HashSet::new();
        for attachment in self.drivers.volumes.attached(&node.info.name) {
            let volume = attachment.volume.as_deref().and_then(|name| self.drivers.volumes.volume(name));
            let Some(VolumeSource::Csi { handle, .. }) = volume.map(|volume| &volume.source) else {
                continue;
            };
            let volume = format!("{}/{handle}", attachment.attacher);
            let counted = attachment.attacher.is_empty() || used.contains(&volume);
            if !counted && attachments.insert(volume) {
                *counts.entry(attachment.attacher.clone()).or_default() += 1;
            }
        }
        Ok((used, counts))
    }
}

impl NodeFilter for Limits<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        let csi_node = self.drivers.volumes.csi_node(&node.info.name);
        let mut new = self.drivers.volumes_of(self.pod, csi_node.is_some(), true)?;
        if let Some(driver) = self.missing_driver(&new, csi_node) {
            return Err(Rejection::unschedulable(format!(
                "{driver} CSI driver is not installed on the node"
            )));
        }
        let Some(csi_node) =
            csi_node.filter(|node| !new.is_empty() && node.drivers.values().any(Option::is_some))
        else {
            return Ok(());
        };
        let (used, attached) = self.attached(node)?;
        new.retain(|volume, _| !used.contains(volume));
        let mut wanted = HashMap::<&String, i64>::new();
        for driver in new.values() {
            *wanted.entry(driver).or_default() += 1;
        }
        let exceeds = |(driver, count): (&&String, &i64)| {
            let limit = csi_node.drivers.get(*driver).copied().flatten();
            limit.is_some_and(|limit| attached.get(*driver).copied().unwrap_or_default() + count > limit)
        };
        if wanted.iter().any(exceeds) {
            return Err(Rejection::unschedulable("node(s) exceed max volume count"));
        }
        Ok(())
    }

    fn may_fail(&self) -> bool {
        self.broken
    }
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let Cycle { pod, snapshot } = cycle;
        if !counts(pod) {
            return PreFilter::Skip;
        }
        let drivers = Drivers { volumes: snapshot.volumes() };
        let broken = drivers.fail_on(pod) || snapshot.pods().any(|(_, pod)| drivers.fail_on(pod));
        PreFilter::Filter(Box::new(Limits { drivers, pod, broken }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let pod = cycle.pod;
        match event {
            Event::PodGone(gone) => counts(gone),
            Event::Storage(StorageEvent::CsiNode { old, new }) => {
                old.as_ref().is_none_or(|old| takes_more(old, new))
            }
            Event::Storage(StorageEvent::Claim { old: None, new }) => {
                let mut names = pod.spec.volumes.iter().filter_map(|volume| volume.claim_name(pod));
                new.namespace == pod.namespace && names.any(|name| *name == *new.name)
            }
            Event::Storage(StorageEvent::AttachmentGone(gone)) => {
                pod.spec.volumes.iter().any(|volume| is_of(volume, &gone.attacher))
            }
            _ => false,
        }
    }
}

/// A driver can attach more than before. As upstream, one without a limit is taken for one that attaches nothing.
fn takes_more(old: &CsiNode, new: &CsiNode) -> bool {
    let limit =
        |node: &CsiNode, driver: &str| node.drivers.get(driver).copied().flatten().unwrap_or_default();
    new.drivers.keys().any(|driver| limit(new, driver) > limit(old, driver))
}

/// May a volume of a pod be one that this driver attaches?
fn is_of(volume: &PodVolume, attacher: &str) -> bool {
    match volume {
        PodVolume::Claim { .. } => true,
        PodVolume::Disk { disk, .. } => {
            disk.migrated().is_some_and(|(plugin, handle)| handle.is_err() || plugin.driver() == attacher)
        }
        PodVolume::Ephemeral { .. } | PodVolume::Csi { .. } => false,
    }
}
