//! Which volumes a pod gets on a node, and what to write so that it gets them.

mod plan;

use std::sync::Arc;

use crate::framework::{Code, Rejection};
use crate::labels::Labels;
use crate::node::NodeInfo;
use crate::pod::{PodInfo, PodVolume};
use crate::quantity::Quantity;
use crate::selector::NodeTerm;
use crate::volumes::volume::reached;
use crate::volumes::{
    BindingMode, Claim, CsiNode, PersistentVolume, StorageCapacity, StorageClass, VolumeSource, Volumes,
};
pub use plan::{Progress, VolumePlan, VolumeWrite};

const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_SPACE: &str = "node(s) did not have enough free storage";
const NO_SUCH_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

/// A claim that is bound when a pod that uses it is scheduled.
struct Unbound<'a> {
    claim: Arc<Claim>,
    size: Quantity,
    /// Volumes that are kept for this claim. One that cannot be reached from a node rules the node out.
    kept: Vec<&'a Arc<PersistentVolume>>,
    /// Other volumes that would do, smallest first.
    candidates: Vec<&'a Arc<PersistentVolume>>,
    class: Option<&'a Arc<StorageClass>>,
    /// Places where there is room for the claim; None if the driver does not tell.
    room: Option<Vec<&'a Arc<StorageCapacity>>>,
}

/// The claims of one pod, sorted out.
pub(crate) struct Wanted<'a> {
    volumes: &'a Volumes,
    bound: Vec<Arc<Claim>>,
    unbound: Vec<Unbound<'a>>,
}

/// What a pod gets on a node, beyond what it has.
#[derive(Debug, Default)]
pub(crate) struct Found<'a> {
    /// Volumes to bind to claims.
    pub(crate) bindings: Vec<(&'a Arc<PersistentVolume>, Arc<Claim>)>,
    /// Claims for which volumes are to be made, and where there is room for them, if that is told.
    pub(crate) provisions: Vec<(Arc<Claim>, Option<&'a Arc<StorageCapacity>>)>,
}

impl<'a> Wanted<'a> {
    /// None if the pod has no claims.
    pub(crate) fn of(pod: &PodInfo, volumes: &'a Volumes) -> Result<Option<Self>, Rejection> {
        let names: Vec<_> = pod.spec.volumes.iter().filter_map(|volume| volume.claim_name(pod)).collect();
        if names.is_empty() {
            return Ok(None);
        }
        check_claims(pod, volumes).map_err(Rejection::unresolvable)?;
        let mut wanted = Self { volumes, bound: Vec::new(), unbound: Vec::new() };
        let mut immediate = false;
        for name in names {
            let Some(claim) = volumes.claims.get(&pod.namespace, &name) else { continue };
            if claim.is_bound() {
                wanted.bound.push(Arc::clone(claim));
            } else if waits(claim, volumes)? && claim.volume.is_empty() {
                wanted.unbound.push(Unbound::of(claim, volumes));
            } else {
                immediate = true;
            }
        }
        if immediate {
            let reason = "pod has unbound immediate PersistentVolumeClaims";
            return Err(Rejection::unresolvable(reason));
        }
        Ok(Some(wanted))
    }

    /// True if every claim has its volume.
    pub(crate) fn is_settled(&self) -> bool {
        self.unbound.is_empty()
    }

    /// True if a volume of the pod cannot be read as its driver would, which matters on nodes where that driver serves
    /// it.
    pub(crate) fn is_broken(&self) -> bool {
        let mut volumes = self.bound.iter().filter_map(|claim| self.volumes.volumes.get("", &claim.volume));
        volumes.any(|volume| matches!(volume.source, VolumeSource::InTree { migrated: Err(_), .. }))
    }

    /// What the pod gets on a node, or why the node is out.
    pub(crate) fn find(&self, node: &NodeInfo) -> Result<Found<'a>, Rejection> {
        let mut reasons = Vec::new();
        let mut missing = false;
        match self.check_bound(node).map_err(failed)? {
            Reach::Reached => {}
            Reach::Unreached => reasons.push(NODE_CONFLICT),
            Reach::Missing => missing = true,
        }
        let found = self.find_unbound(node);
        if let Err(reason) = found {
            reasons.push(reason);
        }
        if missing {
            reasons.push(NO_SUCH_VOLUME);
        }
        match found {
            Ok(found) if reasons.is_empty() => Ok(found),
            _ => Err(Rejection {
                code: Code::UnschedulableAndUnresolvable,
                reasons: reasons.into_iter().map(Into::into).collect(),
            }),
        }
    }

    fn check_bound(&self, node: &NodeInfo) -> Result<Reach, String> {
        let csi_node = self.volumes.csi_node(&node.name);
        for claim in &self.bound {
            let Some(volume) = self.volumes.volumes.get("", &claim.volume) else { return Ok(Reach::Missing) };
            let terms =
                terms_on(volume, csi_node).map_err(|problem| format!("could not translate pv: {problem}"))?;
            if !reached(terms, &node.labels) {
                return Ok(Reach::Unreached);
            }
        }
        Ok(Reach::Reached)
    }

    fn find_unbound(&self, node: &NodeInfo) -> Result<Found<'a>, &'static str> {
        let mut found = Found::default();
        let (mut provision, mut search) = (Vec::new(), Vec::new());
        for unbound in &self.unbound {
            match &unbound.claim.selected_node {
                Some(selected) if *selected != node.name => return Err(NO_VOLUME),
                Some(_) => provision.push(unbound),
                None => search.push(unbound),
            }
        }
        // The smallest first, so that each gets the smallest that is large enough.
        search.sort_by_key(|unbound| unbound.size);
        for unbound in search {
            match unbound.volume_on(&node.labels, &found.bindings) {
                Some(volume) => found.bindings.push((volume, Arc::clone(&unbound.claim))),
                None => provision.push(unbound),
            }
        }
        for unbound in provision {
            let room = unbound.room_on(&node.labels)?;
            found.provisions.push((Arc::clone(&unbound.claim), room));
        }
        Ok(found)
    }
}

/// Where the volumes of bound claims are, seen from a node.
enum Reach {
    Reached,
    Unreached,
    /// One of them does not exist.
    Missing,
}

fn failed(problem: String) -> Rejection {
    Rejection { code: Code::Error, reasons: vec![problem.into()] }
}

/// The node affinity of a volume, in the words of the driver that serves it on a node.
fn terms_on<'a>(
    volume: &'a PersistentVolume,
    csi_node: Option<&Arc<CsiNode>>,
) -> Result<Option<&'a [NodeTerm]>, &'a String> {
    if let VolumeSource::InTree { plugin, migrated } = &volume.source {
        let moved = csi_node.is_some_and(|node| node.migrated.contains(plugin.name()));
        if moved && plugin.counts() {
            return Ok(migrated.as_ref()?.node_terms.as_deref());
        }
    }
    Ok(volume.node_terms.as_deref())
}

/// Are the claims of a pod there, and of use?
fn check_claims(pod: &PodInfo, volumes: &Volumes) -> Result<(), String> {
    for volume in &pod.spec.volumes {
        let Some(name) = volume.claim_name(pod) else { continue };
        let ephemeral = matches!(volume, PodVolume::Ephemeral { .. });
        let Some(claim) = volumes.claims.seen(&pod.namespace, &name) else {
            return Err(if ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                )
            } else {
                format!("persistentvolumeclaim \"{name}\" not found")
            });
        };
        if claim.lost {
            let volume = &claim.volume;
            return Err(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if claim.deleting {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if ephemeral {
            claim.check_owner(pod)?;
        }
    }
    Ok(())
}

/// Is the claim bound only when a pod that uses it is scheduled?
fn waits(claim: &Claim, volumes: &Volumes) -> Result<bool, Rejection> {
    let Some(class) = volumes.class(&claim.class).filter(|_| !claim.class.is_empty()) else {
        return Ok(false);
    };
    match class.binding_mode {
        Some(mode) => Ok(mode == BindingMode::WaitForFirstConsumer),
        None => Err(failed(format!("VolumeBindingMode not set for StorageClass \"{}\"", class.name))),
    }
}

impl<'a> Unbound<'a> {
    fn of(claim: &Arc<Claim>, volumes: &'a Volumes) -> Self {
        let size = claim.size();
        let names = volumes.by_class.get(&claim.class).into_iter().flatten();
        let mut unbound = Self {
            claim: Arc::clone(claim),
            size,
            kept: Vec::new(),
            candidates: Vec::new(),
            class: volumes.class(&claim.class),
            room: None,
        };
        for volume in names.filter_map(|name| volumes.volumes.get("", name)) {
            if volume.deleting || volume.capacity < size || !volume.is_kind_of(claim) {
                continue;
            }
            if volume.is_for(claim) {
                unbound.kept.push(volume);
            } else if volume.claim.is_none() && volume.available && volume.serves(claim) {
                unbound.candidates.push(volume);
            }
        }
        // A stable sort: among equals the first name.
        unbound.candidates.sort_by_key(|volume| volume.capacity);
        unbound.room = unbound.class.and_then(|class| volumes.room(class, claim));
        unbound
    }

    /// The volume that the claim gets on a node, none of those that are taken.
    fn volume_on(
        &self,
        labels: &Labels,
        taken: &[(&'a Arc<PersistentVolume>, Arc<Claim>)],
    ) -> Option<&'a Arc<PersistentVolume>> {
        let free =
            |volume: &&&Arc<PersistentVolume>| taken.iter().all(|(taken, _)| taken.name != volume.name);
        let reached = |volume: &&&Arc<PersistentVolume>| reached(volume.node_terms.as_deref(), labels);
        match self.kept.iter().find(free) {
            Some(kept) => Some(kept).filter(reached).copied(),
            None => self.candidates.iter().filter(free).find(reached).copied(),
        }
    }

    /// Where there is room to make the volume for a node, if that is told; otherwise why it cannot be made.
    fn room_on(&self, labels: &Labels) -> Result<Option<&'a Arc<StorageCapacity>>, &'static str> {
        if !self.class.is_some_and(|class| class.provisions() && class.reaches(labels)) {
            return Err(NO_VOLUME);
        }
        let Some(room) = &self.room else { return Ok(None) };
        let place = room.iter().find(|capacity| capacity.reaches(labels));
        place.copied().map(Some).ok_or(NO_SPACE)
    }
}

impl PersistentVolume {
    /// The kind of storage is what the claim asks for.
    fn is_kind_of(&self, claim: &Claim) -> bool {
        self.volume_mode == claim.volume_mode && self.attributes_class == claim.attributes_class
    }

    fn serves(&self, claim: &Claim) -> bool {
        let selected = claim.selector.as_ref().is_none_or(|selector| selector.matches(&self.labels));
        selected && claim.access_modes.iter().all(|mode| self.access_modes.contains(mode))
    }
}

impl Volumes {
    /// Places where there is room for a claim; None if the driver of its class does not tell.
    fn room(&self, class: &StorageClass, claim: &Claim) -> Option<Vec<&Arc<StorageCapacity>>> {
        let size = claim.request.as_ref()?.value();
        self.csi_driver(&class.provisioner).filter(|driver| driver.storage_capacity)?;
        let fits = |capacity: &&Arc<StorageCapacity>| {
            capacity.class == class.name && capacity.limit().is_some_and(|limit| limit >= size)
        };
        Some(self.capacities().filter(fits).collect())
    }
}
