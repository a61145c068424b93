//! Resource claims and the devices that drivers have: counted as they are seen, and written before a pod is bound.
//!
//! From the decision on, devices are promised to the claim. The promise ends when the claim is seen with them, or when
//! it is certain that they are not written: a write under way is waited for, even if its pod is gone.

use std::collections::HashSet;
use std::mem::Discriminant;
use std::sync::Arc;

use scheduling::{
    ClaimPlan, ClaimWork, DeviceEvent, DeviceTaintRule, Devices, Event, PodInfo, Queued, ResourceClaim,
    ResourceSlice,
};

use crate::observe::{Change, ClaimsSeen, Name, Read};
use crate::plan::pods::Pod;
use crate::plan::{Action, Key, Model, Outcome};

/// A kind of object that says who has which devices.
trait Followed: Sized {
    fn set(self, devices: &mut Devices) -> Option<DeviceEvent>;
    fn remove(name: &Name, devices: &mut Devices) -> Option<DeviceEvent>;
    fn names(devices: &Devices) -> Vec<Name>;
}

impl Followed for ResourceClaim {
    fn set(self, devices: &mut Devices) -> Option<DeviceEvent> {
        devices.set_claim(self)
    }

    fn remove(name: &Name, devices: &mut Devices) -> Option<DeviceEvent> {
        devices.remove_claim(&name.namespace, &name.name)
    }

    fn names(devices: &Devices) -> Vec<Name> {
        devices.claims().map(|claim| Name::new(&claim.namespace, &claim.name)).collect()
    }
}

impl Followed for ResourceSlice {
    fn set(self, devices: &mut Devices) -> Option<DeviceEvent> {
        devices.set_slice(self)
    }

    fn remove(name: &Name, devices: &mut Devices) -> Option<DeviceEvent> {
        devices.remove_slice(&name.name);
        None
    }

    fn names(devices: &Devices) -> Vec<Name> {
        devices.slice_names().map(|name| Name::new("", name)).collect()
    }
}

impl Followed for DeviceTaintRule {
    fn set(self, devices: &mut Devices) -> Option<DeviceEvent> {
        devices.set_rule(self)
    }

    fn remove(name: &Name, devices: &mut Devices) -> Option<DeviceEvent> {
        devices.remove_rule(&name.name)
    }

    fn names(devices: &Devices) -> Vec<Name> {
        devices.rule_names().map(|name| Name::new("", name)).collect()
    }
}

/// Which kinds were listed.
pub(super) type Listed = HashSet<Discriminant<ClaimsSeen>>;

/// What a pod's claims need, which counts on its node already.
#[derive(Debug)]
pub(super) struct Grant {
    pod: Name,
    node: Arc<str>,
    /// What is left to be written, the next first.
    left: Vec<ClaimWork>,
    /// The next is being written.
    writing: bool,
    /// Nobody waits for it any more.
    given_up: bool,
}

impl Model {
    pub(super) fn see_claims(&mut self, seen: ClaimsSeen, now: u64) {
        let kind = std::mem::discriminant(&seen);
        let listed = match seen {
            ClaimsSeen::Claim(change) => self.see_followed(change, now),
            ClaimsSeen::Slice(change) => self.see_followed(change, now),
            ClaimsSeen::Rule(change) => self.see_followed(change, now),
        };
        if listed {
            self.synced.claims.insert(kind);
        }
        self.memo.clear();
    }

    /// True if it was the whole list.
    fn see_followed<T: Followed>(&mut self, change: Change<Read<T>, Name>, now: u64) -> bool {
        let (objects, is_list) = change.one_by_one(|| T::names(self.snapshot.devices()));
        for object in objects {
            self.followed_is(object, now);
        }
        is_list
    }

    fn followed_is<T: Followed>(&mut self, (name, object): Read<T>, now: u64) {
        let devices = self.snapshot.devices_mut();
        let event = match object {
            Some(object) => object.set(devices),
            None => T::remove(&name, devices),
        };
        if let Some(event) = event {
            self.happened(&Event::Claims(event), now);
        }
    }

    /// What must happen to the pod's claims before it is bound to `node`. The error is a sentence for the user.
    pub(super) fn claim_plan(&self, pod: &PodInfo, node: &str) -> Result<Option<ClaimPlan>, String> {
        let Some(node) = self.snapshot.node(node) else { return Ok(None) };
        let plan = self.profiles.of(pod).claims(pod, &self.snapshot, node);
        plan.map_err(|refusal| format!("running Reserve plugin {:?}: {}", refusal.plugin, refusal.message()))
    }

    /// Promises what the plan says, and remembers that it has to be written before the pod is bound.
    pub(super) fn grant_claims(
        &mut self,
        name: &Name,
        pod: &PodInfo,
        node: &Arc<str>,
        plan: ClaimPlan,
    ) -> bool {
        if self.grants.contains_key(&pod.uid) || !self.snapshot.devices_mut().promise(&plan.promises()) {
            return false;
        }
        let grant = Grant {
            pod: name.clone(),
            node: Arc::clone(node),
            left: plan.work,
            writing: false,
            given_up: false,
        };
        self.grants.insert(Arc::clone(&pod.uid), grant);
        true
    }

    /// Makes the next write for a pod's claims. False if there is none left.
    pub(super) fn write_claim(&mut self, uid: &Arc<str>) -> bool {
        let Some(grant) = self.grants.get_mut(uid).filter(|grant| !grant.given_up) else { return false };
        let Some(work) = grant.left.first().cloned() else {
            self.grants.remove(uid);
            return false;
        };
        grant.writing = true;
        self.actions.push(Action::BindClaim { pod: grant.pod.clone(), uid: Arc::clone(uid), work });
        true
    }

    pub(super) fn claim_written(&mut self, uid: &Arc<str>, work: &ClaimWork, outcome: Outcome, now: u64) {
        let Some(grant) = self.grants.get_mut(uid).filter(|grant| grant.left.first() == Some(work)) else {
            return;
        };
        grant.writing = false;
        let problem = match outcome {
            Outcome::Done { version } => {
                grant.left.remove(0);
                let version = version.unwrap_or_default();
                self.snapshot.devices_mut().written(&work.uid, &version);
                None
            }
            Outcome::Denied(answer) => Some(answer),
            Outcome::NotFound => Some(format!("claim {}/{} is gone", work.namespace, work.name)),
            Outcome::Conflict | Outcome::Unknown | Outcome::Admitted(_) => Some("no answer".to_owned()),
        };
        let (name, node) = (grant.pod.clone(), Arc::clone(&grant.node));
        if grant.given_up {
            return self.release_claims(uid, now);
        }
        let Some(problem) = problem else { return self.bind_under_way(&name, node) };
        self.release_claims(uid, now);
        if let Some(queued) = self.pods.get_mut(&name).filter(|pod| pod.is(uid)).and_then(Pod::taken_back) {
            self.claims_failed(&name, queued, &problem, now);
        }
    }

    /// The pod gets its devices in another attempt, if at all.
    pub(super) fn claims_failed(&mut self, name: &Name, queued: Queued<Key>, problem: &str, now: u64) {
        self.unplace(&queued.pod.uid, now);
        let message = format!("running PreBind plugin \"DynamicResources\": {problem}");
        self.pod_failed(name, queued, message, now);
    }

    /// Nobody waits for the pod's claims any more. What is being written is waited for.
    pub(super) fn give_up_claims(&mut self, uid: &Arc<str>, now: u64) {
        if let Some(grant) = self.grants.get_mut(uid) {
            grant.given_up = true;
            if !grant.writing {
                self.release_claims(uid, now);
            }
        }
    }

    /// Takes back promises that are certain not to be written.
    fn release_claims(&mut self, uid: &Arc<str>, now: u64) {
        let Some(grant) = self.grants.remove(uid) else { return };
        for work in grant.left {
            let claim = self.snapshot.devices().claim(&work.namespace, &work.name).cloned();
            self.snapshot.devices_mut().release(&work.uid);
            if let Some(claim) = claim.filter(|_| work.allocation.is_some()) {
                // Others may have the devices now.
                let event = DeviceEvent::Claim { old: work.allocated(&claim), new: Some(claim) };
                self.happened(&Event::Claims(event), now);
            }
        }
        self.memo.clear();
    }
}
