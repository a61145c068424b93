//! Claims of pods: a pod goes where the data of its claims is, or where it can be made.

use super::Machine;
use super::decide::reference;
use super::model::{Action, ChaperonSeen, ClaimHome, ClaimSeen, Id, Name};
use super::pod::{AskCall, PodState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What is known of claims, and which pods name them.
#[derive(Debug, Default)]
pub(super) struct Claims {
    listed: bool,
    seen: BTreeMap<Name, ClaimSeen>,
    users: BTreeMap<Name, BTreeSet<Id>>,
}

/// The claims that a pod names.
fn named(pod: &PodState) -> impl Iterator<Item = Name> + '_ {
    let namespace = &pod.seen.name.namespace;
    pod.seen.info.spec.claims().map(|claim| Name { namespace: Arc::clone(namespace), name: Arc::from(claim) })
}

impl Claims {
    pub(super) fn use_by(&mut self, uid: &Id, pod: &PodState) {
        for name in named(pod) {
            self.users.entry(name).or_default().insert(Arc::clone(uid));
        }
    }

    pub(super) fn forget_user(&mut self, uid: &Id, pod: &PodState) {
        for name in named(pod) {
            let Some(users) = self.users.get_mut(&name) else { continue };
            users.remove(uid);
            if users.is_empty() {
                self.users.remove(&name);
            }
        }
    }
}

impl Machine {
    pub(super) fn claims_replaced(&mut self, all: Vec<ClaimSeen>) {
        let first = !std::mem::replace(&mut self.claims.listed, true);
        let old = std::mem::take(&mut self.claims.seen);
        let mut changed: BTreeSet<Name> = old.keys().cloned().collect();
        for claim in all {
            if old.get(&claim.name) == Some(&claim) {
                changed.remove(&claim.name);
            } else {
                changed.insert(claim.name.clone());
            }
            self.claims.seen.insert(claim.name.clone(), claim);
        }
        let users = if first { self.claims.users.keys().cloned().collect() } else { changed };
        for name in users {
            self.touch_users(&name);
        }
    }

    pub(super) fn claim_applied(&mut self, claim: ClaimSeen) {
        let name = claim.name.clone();
        let old = self.claims.seen.insert(name.clone(), claim);
        if old.as_ref() != self.claims.seen.get(&name) {
            self.touch_users(&name);
        }
    }

    pub(super) fn claim_deleted(&mut self, name: &Name) {
        if self.claims.seen.remove(name).is_some() {
            self.touch_users(name);
        }
    }

    fn touch_users(&mut self, name: &Name) {
        for uid in self.claims.users.get(name).cloned().unwrap_or_default() {
            self.touch(&uid);
        }
    }

    /// Whether all is known about the claims of a pod that says where it may go.
    pub(super) fn knows_claims(&self, uid: &Id) -> bool {
        self.claims.listed || self.pods.get(uid).is_none_or(|pod| named(pod).next().is_none())
    }

    /// Why the claims of a pod keep it from a target.
    pub(super) fn claims_refuse(&self, uid: &Id, id: &Id) -> Option<String> {
        let (pod, target) = (self.pods.get(uid)?, self.targets.get(id)?);
        for name in named(pod) {
            let Some(claim) = self.claims.seen.get(&name) else { continue };
            if claim.deleting {
                return Some(format!("PersistentVolumeClaim {} is being deleted", name.name));
            }
            match &claim.home {
                ClaimHome::TargetsOwn => {}
                ClaimHome::Cluster(cluster, why) if *cluster != target.seen.cluster_uid => {
                    return Some(format!("PersistentVolumeClaim {} {why}", name.name));
                }
                ClaimHome::Cluster(..) => {}
                ClaimHome::Anywhere => {
                    if let Some(other) = self.about_to_be(&name, uid).filter(|other| *other != id) {
                        return Some(format!("PersistentVolumeClaim {} is made behind {other}", name.name));
                    }
                }
            }
        }
        None
    }

    /// Where another pod is, or is about to be, whose claim this is as well: its home is written down in a moment.
    fn about_to_be(&self, name: &Name, uid: &Id) -> Option<&Id> {
        let users = self.claims.users.get(name)?;
        users.iter().filter(|user| *user != uid).find_map(|user| self.pods.get(user)?.counts_on())
    }

    /// The claims of a pod that follow it into a target.
    pub(super) fn followings(&self, uid: &Id, id: &Id) -> Vec<ClaimSeen> {
        let (Some(pod), Some(target)) = (self.pods.get(uid), self.targets.get(id)) else { return Vec::new() };
        if target.seen.is_self {
            return Vec::new();
        }
        let follows = |claim: &&ClaimSeen| claim.home != ClaimHome::TargetsOwn;
        named(pod).filter_map(|name| self.claims.seen.get(&name)).filter(follows).cloned().collect()
    }

    /// Takes back asks that name other claims than follow the pod now.
    pub(super) fn withdraw_stale(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let is_stale = |id: &Id, chaperon: &ChaperonSeen| {
            let wanted: BTreeMap<String, String> = self
                .followings(uid, id)
                .into_iter()
                .map(|claim| (claim.name.name.to_string(), claim.uid.to_string()))
                .collect();
            chaperon.claims != wanted && !chaperon.allowed && !chaperon.terminating
        };
        let stale: Vec<(Id, ChaperonSeen)> = pod
            .asks
            .iter()
            .filter(|(_, ask)| ask.call.is_none() && ask.retry_at.is_none_or(|at| at <= now))
            .filter_map(|(id, ask)| Some((Arc::clone(id), ask.chaperon.clone()?)))
            .filter(|(id, chaperon)| is_stale(id, chaperon))
            .collect();
        let class = pod.wish().map(|wish| Arc::clone(&wish.class));
        for (id, chaperon) in stale {
            // What was refused was another question.
            if let (Some(target), Some(class)) = (self.targets.get_mut(&id), &class) {
                target.open(class);
            }
            if let Some(ask) = self.pods.get_mut(uid).and_then(|pod| pod.asks.get_mut(&id)) {
                ask.call = Some(AskCall::Delete);
            }
            self.actions.push(Action::Delete { chaperon: reference(&id, uid, &chaperon) });
            self.track(uid, &id, now);
        }
    }
}
