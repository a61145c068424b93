//! Room that is made for real pods, at the cost of others.
//!
//! Who has to go is told why, then deleted, all at once. The pod that needs the room waits for its node until they have
//! gone, as in upstream's asynchronous preemption; it is not tried before all of them were asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use scheduling::{Candidate, Diagnosis, Event, Judge, Nomination, PodInfo};

use crate::observe::{BudgetSeen, Change, Name};
use crate::plan::{Action, Eviction, Key, Model, Outcome};

/// Room that is being made for a pod.
pub(super) struct Room {
    pod: Name,
    /// UIDs of those that have to go.
    victims: Vec<Arc<str>>,
    /// Those that are not deleted yet.
    open: BTreeSet<Arc<str>>,
    /// A call to ask one of them failed.
    failed: bool,
}

impl Model {
    pub(super) fn see_budgets(&mut self, change: Change<BudgetSeen, Name>) {
        match change {
            Change::All(budgets) => {
                *self.snapshot.budgets_mut() = scheduling::Budgets::default();
                budgets.into_iter().for_each(|budget| self.budget_is(budget));
                self.synced.budgets = true;
            }
            Change::Is(budget) => self.budget_is(budget),
            Change::Gone(name) => self.snapshot.budgets_mut().remove(&name.namespace, &name.name),
        }
    }

    fn budget_is(&mut self, seen: BudgetSeen) {
        match seen.budget {
            Some(budget) => self.snapshot.budgets_mut().set(*budget),
            None => self.snapshot.budgets_mut().remove(&seen.name.namespace, &seen.name.name),
        }
    }

    /// The watch says for which node a pod waits.
    pub(super) fn nomination_is(&mut self, pod: &Arc<PodInfo>, now: u64) {
        let before = self.snapshot.nominator().node_of(&pod.uid).cloned();
        self.snapshot.nominator_mut().update(pod);
        let after = self.snapshot.nominator().node_of(&pod.uid).cloned();
        if before == after {
            return;
        }
        self.memo.clear();
        if let Some(node) = before {
            self.left(pod, &node, now);
        }
    }

    /// The pod is placed elsewhere, or not to be placed any more.
    pub(super) fn needs_no_room(&mut self, uid: &str, now: u64) {
        self.rooms.remove(uid);
        self.snapshot.nominator_mut().end(uid);
        self.wait_for_none(uid, now);
    }

    fn wait_for_none(&mut self, uid: &str, now: u64) {
        if let Some((pod, node)) = self.snapshot.nominator_mut().remove(uid) {
            self.memo.clear();
            self.left(&pod, &node, now);
        }
    }

    /// Whoever left room on a node to a pod that waited for it need not do so any more.
    fn left(&mut self, pod: &PodInfo, node: &Arc<str>, now: u64) {
        self.happened(&Event::PodGone(Arc::new(pod.placed(node))), now);
    }

    /// Begins to make the room that was found for a pod, or gives up.
    pub(super) fn make_room(&mut self, name: &Name, pod: &Arc<PodInfo>, diagnosis: &Diagnosis, now: u64) {
        self.counts.preemptions += u64::from(diagnosis.post_filter.is_some());
        match (&diagnosis.nomination, diagnosis.candidates.first()) {
            (Nomination::Keep, _) => {}
            (Nomination::Clear, _) | (Nomination::Node(_), None) => self.wait_for_none(&pod.uid, now),
            (Nomination::Node(node), Some(best)) => {
                self.evict(name, pod, best);
                let below = self.snapshot.nominator().below(pod.spec.priority, node);
                if self.snapshot.nominator().node_of(&pod.uid) != Some(node) {
                    self.wait_for_none(&pod.uid, now);
                }
                self.snapshot.nominator_mut().nominate(Arc::clone(pod), node);
                self.memo.clear();
                below.iter().for_each(|lower| self.unnominate(lower, now));
            }
        }
    }

    /// A pod of lower priority had better look for another node.
    fn unnominate(&mut self, pod: &PodInfo, now: u64) {
        self.wait_for_none(&pod.uid, now);
        let name = Name::new(&pod.namespace, &pod.name);
        if pod.nominated.is_some() && self.pods.contains_key(&name) {
            self.actions.push(Action::Unnominate { pod: name, uid: Arc::clone(&pod.uid) });
        }
    }

    fn evict(&mut self, name: &Name, pod: &PodInfo, best: &Candidate) {
        self.counts.victims.push(best.victims.len());
        self.counts.violations += u64::try_from(best.violations).unwrap_or_default();
        // Who is being deleted already is on its way.
        let evictions = best.victims.iter().filter(|victim| !victim.terminating).map(|victim| Eviction {
            victim: Name::new(&victim.namespace, &victim.name),
            uid: Arc::clone(&victim.uid),
            node: Arc::clone(&best.node),
            preemptor: name.clone(),
            preemptor_uid: Arc::clone(&pod.uid),
            scheduler: pod.spec.scheduler_name.to_string(),
        });
        let evictions: Vec<_> = evictions.collect();
        if evictions.is_empty() {
            return;
        }
        let room = Room {
            pod: name.clone(),
            victims: best.victims.iter().map(|victim| Arc::clone(&victim.uid)).collect(),
            open: evictions.iter().map(|eviction| Arc::clone(&eviction.uid)).collect(),
            failed: false,
        };
        self.rooms.insert(Arc::clone(&pod.uid), room);
        self.snapshot.nominator_mut().begin(&pod.uid);
        self.actions.extend(evictions.into_iter().map(Action::Disrupt));
    }

    pub(super) fn disrupt_ended(&mut self, eviction: Eviction, outcome: &Outcome, now: u64) {
        match outcome {
            Outcome::Done { .. } => self.actions.push(Action::Evict(eviction)),
            // It is gone, or it may not be told; then it must not be deleted either.
            Outcome::Admitted(_)
            | Outcome::Unknown
            | Outcome::Conflict
            | Outcome::NotFound
            | Outcome::Denied(_) => self.eviction_ended(&eviction, outcome, now),
        }
    }

    pub(super) fn evict_ended(&mut self, eviction: Eviction, outcome: &Outcome, now: u64) {
        self.eviction_ended(&eviction, outcome, now);
        if let Outcome::Done { .. } = outcome {
            self.actions.push(Action::TellVictim(eviction));
        }
    }

    /// One less to ask. Once all were asked the pod is tried again when they have gone; those that went meanwhile
    /// found it held back.
    fn eviction_ended(&mut self, eviction: &Eviction, outcome: &Outcome, now: u64) {
        let Some(room) = self.rooms.get_mut(&eviction.preemptor_uid) else { return };
        // Who is gone already need not be asked.
        room.failed |= !matches!(outcome, Outcome::Done { .. } | Outcome::NotFound);
        room.open.remove(&eviction.uid);
        if !room.open.is_empty() {
            return;
        }
        self.snapshot.nominator_mut().end(&eviction.preemptor_uid);
        let Some(room) = self.rooms.remove(&eviction.preemptor_uid) else { return };
        *self.counts.evictions.entry(if room.failed { "error" } else { "success" }).or_default() += 1;
        if room.victims.iter().all(|victim| self.snapshot.pod(victim).is_none()) {
            let judge = Judge::new(&self.profiles, &self.snapshot);
            self.queue.retry(&Key::Pod(room.pod), now, judge);
        }
    }
}
