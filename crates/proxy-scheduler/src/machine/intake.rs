//! What watches saw, taken into the machine's state.

use super::model::{ChaperonSeen, Id, Place, PodSeen, Summary, TargetSeen};
use super::pod::{PodState, is_older};
use super::target::Target;
use super::{Machine, Timer};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

impl Machine {
    pub(super) fn pods_replaced(&mut self, pods: Vec<PodSeen>, now: Duration) {
        let listed: BTreeSet<Id> = pods.iter().map(|pod| Arc::clone(&pod.uid)).collect();
        let gone: Vec<Id> = self.pods.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
        for uid in gone {
            self.pod_deleted(&uid);
        }
        for pod in pods {
            self.pod_applied(pod, now);
        }
        self.pods_listed = true;
        self.touch_all();
    }

    pub(super) fn pod_applied(&mut self, seen: PodSeen, now: Duration) {
        let uid = Arc::clone(&seen.uid);
        let seen = PodSeen { info: self.ranker.share(&seen.info), ..seen };
        let weighs = matches!(&seen.place, Place::Unbound(wish) if !wish.preference.weights.is_empty());
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.absorb(seen, now);
        } else {
            self.arrivals += 1;
            self.picky += usize::from(seen.info.spec.is_picky());
            let pod = PodState::new(seen, self.arrivals, now);
            self.claims.use_by(&uid, &pod);
            self.pods.insert(Arc::clone(&uid), pod);
            for (target, chaperon) in self.strangers.remove(&uid).unwrap_or_default() {
                self.chaperon_applied(&target, chaperon, now);
            }
        }
        if weighs {
            self.want_shares();
        }
        self.count_in(&uid);
        self.touch(&uid);
    }

    /// Counts a pod where it is, for the constraints of others.
    pub(super) fn count_in(&mut self, uid: &Id) {
        self.share_in(uid);
        let Some(pod) = self.pods.get(uid) else { return };
        let changed = match pod.counts_on() {
            Some(node) => self.ranker.place(&pod.seen.info, node),
            None => self.ranker.unplace(uid),
        };
        // Others may be let in now, or may want to be elsewhere.
        self.reopened |= changed && self.picky > 0;
    }

    pub(super) fn pod_deleted(&mut self, uid: &Id) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.gone = true;
        }
        self.count_in(uid);
        self.touch(uid);
    }

    /// What is no longer among the targets keeps its PodChaperons; we only forget them.
    pub(super) fn targets_replaced(&mut self, targets: Vec<TargetSeen>) {
        let listed: BTreeSet<Id> = targets.iter().map(|target| Arc::clone(&target.id)).collect();
        let gone: Vec<Id> = self.targets.keys().filter(|id| !listed.contains(*id)).cloned().collect();
        for id in gone {
            self.targets.remove(&id);
            let asked: Vec<Id> = self
                .pods
                .iter_mut()
                .filter_map(|(uid, pod)| pod.asks.remove(&id).map(|_| Arc::clone(uid)))
                .collect();
            for uid in asked {
                self.share_in(&uid);
            }
            self.strangers.retain(|_, asks| asks.remove(&id).is_none() || !asks.is_empty());
        }
        if targets.iter().any(|target| target.weight.is_some()) {
            self.want_shares();
        }
        let mut changed = !self.targets_listed;
        for seen in targets {
            changed |= self.targets.get(&seen.id).is_none_or(|target| target.seen != seen);
            match self.targets.get_mut(&seen.id) {
                Some(target) => target.seen = seen,
                None => {
                    self.targets.insert(Arc::clone(&seen.id), Target::new(seen));
                }
            }
        }
        self.targets_listed = true;
        if changed {
            self.touch_all();
        }
    }

    pub(super) fn chaperons_replaced(&mut self, id: &Id, chaperons: Vec<ChaperonSeen>, now: Duration) {
        let Some(target) = self.targets.get_mut(id) else { return };
        target.watch_works();
        let first = !std::mem::replace(&mut target.synced, true);
        self.forget_chaperons(id, &chaperons, now);
        for chaperon in chaperons {
            let pod = self.pods.get_mut(&chaperon.parent);
            if let Some(ask) = pod.and_then(|pod| pod.asks.get_mut(id)) {
                ask.listed(&chaperon);
            }
            self.chaperon_applied(id, chaperon, now);
        }
        self.greet(id, now);
        if first {
            // Pods may have waited for this target, to ask it or to know what was asked of it.
            self.touch_all();
        }
        self.reopened = true;
    }

    /// Takes for gone what is known of a target but not in its list, unless it is newer than the list.
    fn forget_chaperons(&mut self, id: &Id, list: &[ChaperonSeen], now: Duration) {
        let listed: BTreeSet<&Id> = list.iter().map(|chaperon| &chaperon.uid).collect();
        let newer = |version: &str| list.iter().all(|chaperon| is_older(&chaperon.version, version));
        let mut gone = Vec::new();
        for (uid, pod) in &self.pods {
            let Some(ask) = pod.asks.get(id) else { continue };
            let known = ask.chaperon.as_ref().map(|chaperon| &chaperon.uid);
            if let Some(uid_gone) = ask.gone.as_ref().filter(|gone| known.is_none() && !listed.contains(gone))
            {
                gone.push((Arc::clone(uid), Arc::clone(uid_gone)));
            }
            let Some(chaperon) = &ask.chaperon else { continue };
            if !listed.contains(&chaperon.uid) && (ask.echoed || !newer(&chaperon.version)) {
                gone.push((Arc::clone(uid), Arc::clone(&chaperon.uid)));
            }
        }
        for (parent, uid) in gone {
            self.chaperon_deleted(id, &parent, &uid, now);
        }
        self.strangers.retain(|_, asks| {
            if asks.get(id).is_some_and(|chaperon| !listed.contains(&chaperon.uid)) {
                asks.remove(id);
            }
            !asks.is_empty()
        });
    }

    pub(super) fn chaperon_applied(&mut self, id: &Id, chaperon: ChaperonSeen, now: Duration) {
        if !self.targets.contains_key(id) {
            return;
        }
        let parent = Arc::clone(&chaperon.parent);
        let Some(pod) = self.pods.get_mut(&parent) else {
            self.strangers.entry(parent).or_default().insert(Arc::clone(id), chaperon);
            return;
        };
        let ask = pod.asks.entry(Arc::clone(id)).or_default();
        let uid = Arc::clone(&chaperon.uid);
        let spoken = ask.absorb(chaperon);
        ask.echoed |= ask.chaperon.as_ref().is_some_and(|known| known.uid == uid);
        if let Some(target) = self.targets.get_mut(id) {
            self.reopened |= target.reached(now);
        }
        if spoken {
            self.heard(&parent, id, now);
        }
        self.track(&parent, id, now);
        self.touch(&parent);
    }

    pub(super) fn chaperon_deleted(&mut self, id: &Id, parent: &Id, uid: &Id, now: Duration) {
        if let Some(asks) = self.strangers.get_mut(parent) {
            asks.remove(id);
            if asks.is_empty() {
                self.strangers.remove(parent);
            }
        }
        let Some(ask) = self.pods.get_mut(parent).and_then(|pod| pod.asks.get_mut(id)) else { return };
        if ask.chaperon.as_ref().is_some_and(|chaperon| chaperon.uid == *uid) {
            ask.chaperon = None;
        }
        // A call under way may still report what is gone by now; nothing else can.
        ask.gone = ask.call.map(|_| Arc::clone(uid));
        self.track(parent, id, now);
        self.touch(parent);
    }

    /// What is known of the target holds no longer than it is watched.
    pub(super) fn watch_ended(&mut self, id: &Id) {
        if let Some(target) = self.targets.get_mut(id) {
            target.synced = false;
        }
    }

    /// What does not fit today may fit now.
    pub(super) fn summary_seen(&mut self, id: &Id, summary: Option<Summary>, now: Duration) {
        let Some(target) = self.targets.get_mut(id) else { return };
        target.age(now, true);
        if target.summary != summary {
            target.summary = summary;
            target.open_all();
            self.reopened = true;
            self.wake_gangs(now);
        }
        self.greet(id, now);
    }

    /// Whoever waits for an answer asks others after the hedge time, as with any silence.
    pub(super) fn watch_failed(&mut self, id: &Id, reason: String, now: Duration) {
        if let Some(target) = self.targets.get_mut(id) {
            let until = target.watch_failed(reason, now);
            self.arm(until, Timer::Reopen);
        }
    }
}
