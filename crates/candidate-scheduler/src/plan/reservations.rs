//! Promises: made, kept, renewed, and taken back unless they were allowed.

use std::sync::Arc;

use scheduling::{Judge, Queued};

use crate::observe::Name;
use crate::plan::chaperons::{Stand, Writing};
use crate::plan::templates::Shape;
use crate::plan::{Action, Ended, Key, MARGIN_MS, Model, Outcome, RETRY_MS};

impl Model {
    /// How long a reservation is held, in milliseconds.
    pub(super) fn promise(&self) -> u64 {
        self.settings.reserved_seconds * 1000 + MARGIN_MS
    }

    pub(super) fn set_deadline(&mut self, name: &Name, deadline: Option<u64>) {
        let Some(chaperon) = self.chaperons.get_mut(name) else { return };
        if let Some(old) = chaperon.deadline.take() {
            self.deadlines.remove(&(old, name.clone()));
        }
        chaperon.deadline = deadline;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, name.clone()));
        }
    }

    /// Holds a node for a promise that was made, whether or not it has room.
    pub(super) fn hold(&mut self, name: &Name, node: &Arc<str>) {
        let Some(chaperon) = self.chaperons.get(name) else { return };
        if self.snapshot.place_of(&chaperon.seen.uid) == Some(node) {
            return;
        }
        let raw = chaperon.seen.pod.as_ref().ok();
        if let Some(pod) = chaperon.pod.as_ref().or(raw).cloned() {
            self.place(pod, node);
        }
    }

    /// Holds a node for an elected chaperon without delegate: what is held stays, and a delegate that was lost keeps
    /// its node if it still has room.
    pub(super) fn hold_allowed(&mut self, name: &Name, node: Option<Arc<str>>) {
        let (Some(chaperon), Some(node)) = (self.chaperons.get(name), node) else { return };
        if self.snapshot.place_of(&chaperon.seen.uid).is_some() {
            return;
        }
        let raw = chaperon.seen.pod.as_ref().ok();
        let Some(pod) = chaperon.pod.as_ref().or(raw) else { return };
        if self.fits(pod, &node) {
            self.hold(name, &node);
        }
    }

    /// A delegate that was placed on `node` is gone. Its chaperon, if it wants another, keeps the node for it as
    /// long as it would be chosen again and did not refuse it.
    pub(super) fn lost_delegate(&mut self, name: &Name, node: &Arc<str>, now: u64) {
        let Some(chaperon) = self.chaperons.get_mut(name).filter(|_| self.started) else { return };
        chaperon.delegate_gone_from(node);
        let Some(chaperon) = self.chaperons.get(name) else { return };
        let raw = chaperon.seen.pod.as_ref().ok();
        let pod = chaperon.pod.as_ref().or(raw).filter(|_| !chaperon.seen.refused_by_node).cloned();
        if let (Stand::Allowed(_), Some(pod)) = (self.stand(chaperon), pod)
            && self.fits(&pod, node)
        {
            self.place(pod, node);
        }
        self.settle(name, now);
    }

    /// Counts again what was promised before this process started, before anything else is decided.
    pub(super) fn recall(&mut self, now: u64) {
        let mut names: Vec<_> = self.chaperons.keys().cloned().collect();
        names.sort_unstable();
        for name in &names {
            let Some(chaperon) = self.chaperons.get(name) else { continue };
            let promised = match self.stand(chaperon) {
                Stand::Reserved(node) => Some(node),
                Stand::Allowed(node) => node,
                Stand::Delegated => chaperon.kept_node(),
                Stand::Over | Stand::Bound | Stand::Expired | Stand::Asked => None,
            };
            let (Some(node), Ok(raw)) = (promised, chaperon.seen.pod.clone()) else { continue };
            let (key, manifest) = (chaperon.seen.template.clone(), Arc::clone(&chaperon.seen.manifest));
            self.hold(name, &node);
            if let Shape::Asked = self.shape(name, &key, &raw, &manifest) {
                self.recalling.insert(key);
            }
        }
        for name in &names {
            self.settle(name, now);
        }
    }

    /// A newer ask than the one that the reservation answers: the promise is made again if the node would still be
    /// chosen. Otherwise it is taken back first, and the ask is answered like a new one; a promise never moves, so
    /// that whatever older state the watch still brings speaks of the node that is held.
    pub(super) fn renew(&mut self, name: &Name, node: &Arc<str>, now: u64) {
        let Some(chaperon) = self.chaperons.get(name) else { return };
        let seen = &chaperon.seen;
        if chaperon.writing.is_some()
            || seen.reserved_attempt.is_some_and(|answered| answered >= seen.attempt)
        {
            return;
        }
        let uid = Arc::clone(&seen.uid);
        let Some(pod) = self.snapshot.remove_pod(&uid) else { return };
        let right = self.fits(&pod, node);
        self.place(pod, node);
        if right {
            self.reserve(name, Arc::clone(node), None);
        } else {
            self.release(name, now);
        }
    }

    pub(super) fn reserve(&mut self, name: &Name, node: Arc<str>, mut queued: Option<Queued<Key>>) {
        let seconds = self.settings.reserved_seconds;
        let Some(chaperon) = self.chaperons.get_mut(name) else { return };
        if let Some(queued) = &mut queued {
            self.queue.placed(queued);
        }
        chaperon.writing = Some(Writing::Reserve(queued));
        self.actions.push(Action::Reserve {
            chaperon: name.clone(),
            uid: Arc::clone(&chaperon.seen.uid),
            node,
            attempt: chaperon.seen.attempt,
            seconds,
        });
    }

    pub(super) fn reserve_ended(
        &mut self,
        (name, uid): (&Name, &str),
        (node, attempt): (Arc<str>, u64),
        outcome: Outcome,
        now: u64,
    ) {
        let Some(chaperon) = self.chaperons.get_mut(name).filter(|chaperon| chaperon.is(uid)) else { return };
        if let Outcome::Done { version } = outcome {
            let written = chaperon.writing.take();
            chaperon.written(version.as_ref());
            chaperon.seen.reserved = Some(Arc::clone(&node));
            chaperon.seen.reserved_node = Some(node);
            chaperon.seen.reserved_attempt = Some(attempt);
            chaperon.refused = None;
            let promise = now + self.promise();
            self.set_deadline(name, Some(promise));
            if let Some(Writing::Reserve(Some(queued))) = written {
                self.attempted(&queued, Ended::Scheduled, now);
            }
            return self.settle(name, now);
        }
        match chaperon.writing.take() {
            Some(Writing::Reserve(Some(queued))) => {
                self.unplace(uid, now);
                self.attempted(&queued, Ended::Error, now);
                self.queue.failed(queued, now, Judge::new(&self.profiles, &self.snapshot));
                self.settle(name, now);
            }
            // A renewal; the promise still stands, and it is repeated until the watch says what happened.
            renewal => {
                chaperon.writing = renewal;
                let seconds = self.settings.reserved_seconds;
                let (chaperon, uid) = (name.clone(), Arc::from(uid));
                let again = Action::Reserve { chaperon, uid, node, attempt, seconds };
                self.repeat_later(again, now + RETRY_MS);
            }
        }
    }

    /// Takes back what was promised and not allowed in time.
    pub(super) fn expire(&mut self, now: u64) {
        while let Some((deadline, name)) = self.deadlines.first().cloned() {
            if deadline > now {
                break;
            }
            self.set_deadline(&name, None);
            self.release(&name, now);
        }
    }

    pub(super) fn release(&mut self, name: &Name, now: u64) {
        let Some(chaperon) = self.chaperons.get_mut(name) else { return };
        if chaperon.writing.is_some() {
            return self.set_deadline(name, Some(now + RETRY_MS));
        }
        chaperon.writing = Some(Writing::Release);
        self.counts.expired += 1;
        self.actions.push(Action::Release {
            chaperon: name.clone(),
            uid: Arc::clone(&chaperon.seen.uid),
            version: Arc::clone(&chaperon.seen.version),
        });
    }

    pub(super) fn release_ended(&mut self, name: &Name, uid: &str, outcome: Outcome, now: u64) {
        let Some(chaperon) = self.chaperons.get_mut(name).filter(|chaperon| chaperon.is(uid)) else { return };
        chaperon.writing = None;
        if let Outcome::Done { version } = outcome {
            chaperon.written(version.as_ref());
            chaperon.seen.reserved = None;
            self.unplace(uid, now);
        } else if chaperon.seen.reserved.is_some() && !chaperon.seen.allowed {
            // Something changed since: the watch will say what, and it is tried again if it still has to be.
            self.set_deadline(name, Some(now + RETRY_MS));
        }
        self.settle(name, now);
    }
}
