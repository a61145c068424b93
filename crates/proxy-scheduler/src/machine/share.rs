//! How many pods of one controller each target has, or is being asked for: what weights are measured by.

use super::Machine;
use super::model::Id;
use super::pod::{Answer, PodState};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods by group and target. Empty while nobody has given a weight.
#[derive(Default)]
pub(super) struct Shares {
    wanted: bool,
    counts: BTreeMap<u64, BTreeMap<Id, u32>>,
}

impl Shares {
    fn change(&mut self, group: u64, id: &Id, add: bool) {
        let targets = self.counts.entry(group).or_default();
        let count = targets.entry(Arc::clone(id)).or_default();
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            targets.remove(id);
            if targets.is_empty() {
                self.counts.remove(&group);
            }
        }
    }

    /// What a target has of a group already.
    pub(super) fn of(&self, group: u64, id: &Id) -> u32 {
        self.counts.get(&group).and_then(|targets| targets.get(id)).copied().unwrap_or_default()
    }
}

impl Machine {
    /// Somebody has given a weight: from now on pods are counted.
    pub(super) fn want_shares(&mut self) {
        if std::mem::replace(&mut self.shares.wanted, true) {
            return;
        }
        let uids: Vec<Id> = self.pods.keys().cloned().collect();
        for uid in &uids {
            self.share_in(uid);
        }
    }

    /// Counts a pod where it is, or may soon be.
    pub(super) fn share_in(&mut self, uid: &Id) {
        if !self.shares.wanted {
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let places = places(pod);
        if places == pod.shared {
            return;
        }
        let group = pod.seen.group;
        for id in std::mem::replace(&mut pod.shared, places.clone()) {
            self.shares.change(group, &id, false);
        }
        for id in &places {
            self.shares.change(group, id, true);
        }
    }
}

fn places(pod: &PodState) -> Vec<Id> {
    if let Some(node) = pod.counts_on() {
        return vec![Arc::clone(node)];
    }
    if pod.gone || pod.seen.finished || pod.seen.terminating {
        return Vec::new();
    }
    let open = pod.asks.iter().filter(|(_, ask)| {
        matches!(ask.answer(), Answer::Waiting | Answer::Reserved) && ask.given_up.is_none()
    });
    open.map(|(id, _)| Arc::clone(id)).collect()
}
