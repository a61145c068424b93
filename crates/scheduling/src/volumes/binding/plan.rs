use std::sync::Arc;

use serde_json::{Value, json};

use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::volumes::binding::{Wanted, terms_on};
use crate::volumes::claim::{Claim, SELECTED_NODE};
use crate::volumes::volume::{BOUND_BY_CONTROLLER, PersistentVolume, reached};
use crate::volumes::{Found, Volumes};

/// A volume and the claim that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    /// As it is once it is bound.
    volume: Arc<PersistentVolume>,
    claim: Arc<Claim>,
    /// It is to be written.
    write: bool,
}

/// A claim and the node for which its volume is made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Provision {
    /// As it is once the node is on it.
    claim: Arc<Claim>,
    /// It is to be written.
    write: bool,
}

/// What must happen to claims and volumes before a pod can be bound to a node.
///
/// 1. [`Volumes::assume`] when the pod is assumed on the node.
/// 2. Carry out [`Self::writes`] in their order, and tell [`Self::written`] after each.
/// 3. Ask [`Volumes::progress`] whenever claims or volumes change, until it is not [`Progress::Waiting`].
/// 4. [`Volumes::forget`] if the pod is not bound after all. What was written stays: whoever schedules the pod next
///    goes on from there, as after a crash between two writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumePlan {
    node: Arc<str>,
    bindings: Vec<Binding>,
    provisions: Vec<Provision>,
}

/// A JSON merge patch, which applies to the object only as it was seen: it carries UID and resource version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeWrite {
    /// Binds a PersistentVolume to a claim.
    Volume { name: Arc<str>, patch: Value },
    /// Says for which node the volume of a PersistentVolumeClaim is to be made.
    Claim { namespace: Arc<str>, name: Arc<str>, patch: Value },
}

/// How far binding has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    Bound,
    Waiting,
    /// The pod must be scheduled again, for this reason.
    Failed(String),
}

impl VolumePlan {
    /// What the pod needs on `node`; None if nothing needs to be done, or nothing can.
    pub(crate) fn of(pod: &PodInfo, node: &NodeInfo, volumes: &Volumes) -> Option<Self> {
        let wanted = Wanted::of(pod, volumes).ok().flatten()?;
        if wanted.is_settled() {
            return None;
        }
        let Found { bindings, provisions } = wanted.find(node).ok()?;
        // What is only assumed may never be written by whoever assumed it.
        let bind = |(volume, claim): (&Arc<PersistentVolume>, Arc<Claim>)| {
            let bound = volume.bound_to(&claim);
            let write = volumes.volume(&volume.name).is_none_or(|seen| **seen != bound);
            Binding { volume: Arc::new(bound), claim, write }
        };
        let provision = |claim: Arc<Claim>| {
            let seen = volumes.claim(&claim.namespace, &claim.name);
            let write = seen.is_none_or(|seen| seen.selected_node.as_ref() != Some(&node.name));
            let selected_node = Some(Arc::clone(&node.name));
            Provision { claim: Arc::new(Claim { selected_node, ..(*claim).clone() }), write }
        };
        Some(Self {
            node: Arc::clone(&node.name),
            bindings: bindings.into_iter().map(bind).collect(),
            provisions: provisions.into_iter().map(|(claim, _)| provision(claim)).collect(),
        })
    }

    /// The node for which it was made.
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// What is still to be written.
    pub fn writes(&self) -> Vec<VolumeWrite> {
        let bindings = self.bindings.iter().filter(|binding| binding.write).map(Binding::to_write);
        let provisions = self.provisions.iter().filter(|provision| provision.write);
        bindings.chain(provisions.map(|provision| provision.to_write(&self.node))).collect()
    }

    /// The first of [`Self::writes`] was carried out, and the object has this resource version now.
    pub fn written(&mut self, resource_version: &str) {
        if let Some(binding) = self.bindings.iter_mut().find(|binding| binding.write) {
            binding.write = false;
            Arc::make_mut(&mut binding.volume).resource_version = resource_version.to_owned();
        } else if let Some(provision) = self.provisions.iter_mut().find(|provision| provision.write) {
            provision.write = false;
            Arc::make_mut(&mut provision.claim).resource_version = resource_version.to_owned();
        }
    }

    /// True if the plan is about this claim.
    pub fn has_claim(&self, namespace: &str, name: &str) -> bool {
        let bindings = self.bindings.iter().map(|binding| &binding.claim);
        bindings
            .chain(self.provisions.iter().map(|provision| &provision.claim))
            .any(|claim| *claim.namespace == *namespace && *claim.name == *name)
    }
}

impl Binding {
    fn to_write(&self) -> VolumeWrite {
        let (volume, claim) = (&self.volume, &self.claim);
        let mut patch = json!({
            "metadata": {"uid": volume.uid, "resourceVersion": volume.resource_version},
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": &*claim.namespace,
                "name": &*claim.name, "uid": claim.uid, "resourceVersion": claim.resource_version,
            }},
        });
        if volume.bound_by_controller {
            patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER: "yes"});
        }
        VolumeWrite::Volume { name: Arc::clone(&volume.name), patch }
    }
}

impl Provision {
    fn to_write(&self, node: &str) -> VolumeWrite {
        let claim = &self.claim;
        let patch = json!({"metadata": {
            "uid": claim.uid, "resourceVersion": claim.resource_version, "annotations": {SELECTED_NODE: node},
        }});
        let (namespace, name) = (Arc::clone(&claim.namespace), Arc::clone(&claim.name));
        VolumeWrite::Claim { namespace, name, patch }
    }
}

/// True if the object that was seen is older than the one that we wrote.
fn is_older(seen: &str, written: &str) -> bool {
    match (seen.parse::<u128>(), written.parse::<u128>()) {
        (Ok(seen), Ok(written)) => seen < written,
        _ => false,
    }
}

impl Volumes {
    /// Counts on a plan: what is to be written is seen as if it were. False, and nothing is done, if claims or
    /// volumes have changed since the plan was made.
    pub fn assume(&mut self, plan: &VolumePlan) -> bool {
        self.changes += 1;
        let bindings = plan.bindings.iter().filter(|binding| binding.write);
        let assumed = bindings.into_iter().all(|binding| self.volumes.assume(Arc::clone(&binding.volume)))
            && plan.provisions.iter().all(|provision| self.claims.assume(Arc::clone(&provision.claim)));
        if !assumed {
            self.forget(plan);
        }
        assumed
    }

    /// No longer counts on what is not yet seen of a plan.
    pub fn forget(&mut self, plan: &VolumePlan) {
        self.changes += 1;
        for binding in &plan.bindings {
            self.volumes.restore(&binding.volume);
        }
        for provision in &plan.provisions {
            self.claims.restore(&provision.claim);
        }
    }

    /// How far binding has come, once everything is written. Looks at what was seen, not at what is assumed.
    pub fn progress(&self, plan: &VolumePlan, node: &NodeInfo) -> Progress {
        let bindings = plan.bindings.iter().map(|binding| self.binding_progress(binding, node));
        let provisions = plan.provisions.iter().map(|provision| self.provision_progress(provision, node));
        let stuck = bindings.chain(provisions).find(|progress| *progress != Progress::Bound);
        stuck.unwrap_or(Progress::Bound)
    }

    fn binding_progress(&self, binding: &Binding, node: &NodeInfo) -> Progress {
        let written = &binding.volume;
        let claim_key = (&*binding.claim.namespace, &*binding.claim.name);
        let Some(volume) = self.volumes.seen("", &written.name) else {
            let problem = format!("persistentvolumes \"{}\" not found", written.name);
            return Progress::Failed(format!("failed to check binding: {problem}"));
        };
        let Some(claim) = self.claims.seen(claim_key.0, claim_key.1) else {
            let problem = format!("persistentvolumeclaims \"{}/{}\" not found", claim_key.0, claim_key.1);
            return Progress::Failed(format!("failed to check binding: {problem}"));
        };
        if is_older(&volume.resource_version, &written.resource_version) {
            return Progress::Waiting;
        }
        if let Err(problem) = self.check_reach(volume, node) {
            return Progress::Failed(problem);
        }
        if volume.claim.as_ref().is_none_or(|claim| claim.uid.is_empty()) {
            return Progress::Failed(format!("ClaimRef got reset for pv \"{}\"", volume.name));
        }
        if claim.is_bound() { Progress::Bound } else { Progress::Waiting }
    }

    fn provision_progress(&self, provision: &Provision, node: &NodeInfo) -> Progress {
        let written = &provision.claim;
        let Some(claim) = self.claims.seen(&written.namespace, &written.name) else {
            let problem =
                format!("persistentvolumeclaims \"{}/{}\" not found", written.namespace, written.name);
            return Progress::Failed(format!("failed to check provisioning pvc: {problem}"));
        };
        if is_older(&claim.resource_version, &written.resource_version) {
            return Progress::Waiting;
        }
        // A provisioner that has failed takes the node away.
        if claim.selected_node.as_ref() != Some(&node.name) {
            return Progress::Failed(format!("provisioning failed for PVC \"{}\"", claim.name));
        }
        if !claim.volume.is_empty() {
            let Some(volume) = self.volumes.seen("", &claim.volume) else { return Progress::Waiting };
            if let Err(problem) = self.check_reach(volume, node) {
                return Progress::Failed(problem);
            }
        }
        if claim.is_bound() { Progress::Bound } else { Progress::Waiting }
    }

    /// The volume must be reached from the node, which may have lost a label meanwhile.
    fn check_reach(&self, volume: &PersistentVolume, node: &NodeInfo) -> Result<(), String> {
        let terms = terms_on(volume, self.csi_node(&node.name))
            .map_err(|problem| format!("failed to translate pv to csi: could not translate pv: {problem}"))?;
        if reached(terms, &node.labels) {
            return Ok(());
        }
        let (volume, node) = (&volume.name, &node.name);
        Err(format!(
            "pv \"{volume}\" node affinity doesn't match node \"{node}\": no matching NodeSelectorTerms"
        ))
    }
}
