//! Reservations: asked for by chaperons, promised for a while, taken back unless they were allowed.

use std::collections::HashSet;
use std::sync::Arc;

use scheduling::{Judge, Nomination, PodInfo, Queued};

use crate::observe::{Change, ChaperonSeen, Name};
use crate::plan::kubelets::Past;
use crate::plan::refusals::WOULD_PREEMPT;
use crate::plan::templates::Shape;
use crate::plan::{Ended, Key, Model};

/// A chaperon, and what is under way for it.
pub(super) struct Chaperon {
    pub(super) seen: ChaperonSeen,
    /// What is scheduled: the pod as admission would make it, once that is known.
    pub(super) pod: Option<Arc<PodInfo>>,
    /// When the reservation ends, while it may.
    pub(super) deadline: Option<u64>,
    pub(super) writing: Option<Writing>,
    /// A refusal is being written; what to say next.
    pub(super) refusing: bool,
    pub(super) next_refusal: Option<String>,
    /// What was said last.
    pub(super) refused: Option<Said>,
    /// Older states than our own last write are not believed.
    pub(super) oldest: u64,
    pub(super) past: Past,
}

/// A refusal that was written: of which ask, in which words, and when.
pub(super) struct Said {
    pub(super) attempt: u64,
    pub(super) message: String,
    pub(super) at: u64,
}

pub(super) enum Writing {
    Reserve(Option<Queued<Key>>),
    Release,
}

impl Chaperon {
    fn new(seen: ChaperonSeen) -> Self {
        Self {
            seen,
            pod: None,
            deadline: None,
            writing: None,
            refusing: false,
            next_refusal: None,
            refused: None,
            oldest: 0,
            past: Past::default(),
        }
    }

    pub(super) fn uid(&self) -> &Arc<str> {
        &self.seen.uid
    }

    #[cfg(test)]
    pub(super) fn is_refused(&self) -> bool {
        self.refused.as_ref().is_some_and(|said| said.attempt == self.seen.attempt)
    }

    /// Still the object that a call was about?
    pub(super) fn is(&self, uid: &str) -> bool {
        *self.seen.uid == *uid
    }

    pub(super) fn written(&mut self, version: Option<&Arc<str>>) {
        let Some(version) = version else { return };
        self.seen.version = Arc::clone(version);
        self.oldest = version.parse().unwrap_or_default();
    }
}

/// What a chaperon is owed.
pub(super) enum Stand {
    /// Nothing (any more).
    Over,
    /// Its delegate is bound and counts itself.
    Bound,
    /// Its delegate is about to be placed; what is held stays held.
    Delegated,
    /// Elected: held on this node without end.
    Allowed(Option<Arc<str>>),
    /// Promised on this node for a while.
    Reserved(Arc<str>),
    /// Its last ask was answered, and the answer has expired.
    Expired,
    /// It wants an answer.
    Asked,
}

impl Model {
    pub(super) fn see_chaperons(&mut self, change: Change<ChaperonSeen, Name>, now: u64) {
        match change {
            Change::All(chaperons) => {
                let names: HashSet<_> = chaperons.iter().map(|chaperon| chaperon.name.clone()).collect();
                let mut gone: Vec<_> =
                    self.chaperons.keys().filter(|name| !names.contains(*name)).cloned().collect();
                gone.sort_unstable();
                for name in gone {
                    self.chaperon_gone(&name, now);
                }
                for chaperon in chaperons {
                    self.chaperon_is(chaperon, now);
                }
                self.synced.chaperons = true;
            }
            Change::Is(chaperon) => self.chaperon_is(chaperon, now),
            Change::Gone(name) => self.chaperon_gone(&name, now),
        }
    }

    fn chaperon_is(&mut self, mut seen: ChaperonSeen, now: u64) {
        let name = seen.name.clone();
        self.share(&mut seen);
        match self.chaperons.get_mut(&name) {
            Some(known) if known.is(&seen.uid) => {
                if seen.version_number != 0 && seen.version_number < known.oldest {
                    return;
                }
                if known.seen.template != seen.template || known.seen.pod != seen.pod {
                    known.pod = None;
                }
                known.seen = seen;
                known.learn_of_refusal();
            }
            Some(_) => {
                self.chaperon_gone(&name, now);
                self.chaperons.insert(name.clone(), Chaperon::new(seen));
            }
            None => {
                self.chaperons.insert(name.clone(), Chaperon::new(seen));
            }
        }
        self.settle(&name, now);
    }

    fn chaperon_gone(&mut self, name: &Name, now: u64) {
        let Some(chaperon) = self.chaperons.remove(name) else { return };
        self.stop_waiting(name, &chaperon.seen.template);
        self.queue.remove(&Key::Chaperon(name.clone()));
        self.forget_quota(name, chaperon.uid());
        if let Some(deadline) = chaperon.deadline {
            self.deadlines.remove(&(deadline, name.clone()));
        }
        self.unplace(&chaperon.seen.uid, now);
    }

    pub(super) fn stand(&self, chaperon: &Chaperon) -> Stand {
        let seen = &chaperon.seen;
        let delegate = self.delegates.get(&seen.uid).and_then(|name| self.pods.get(name));
        if seen.over {
            return Stand::Over;
        }
        if let Some(delegate) = delegate {
            return if delegate.placed() { Stand::Bound } else { Stand::Delegated };
        }
        if seen.allowed {
            return Stand::Allowed(chaperon.kept_node());
        }
        match (&seen.reserved, seen.reserved_attempt) {
            (Some(node), _) => Stand::Reserved(Arc::clone(node)),
            (None, Some(answered)) if answered >= seen.attempt => Stand::Expired,
            (None, _) => Stand::Asked,
        }
    }

    /// Brings what is held and queued for a chaperon in line with what it is owed.
    pub(super) fn settle(&mut self, name: &Name, now: u64) {
        let Some(chaperon) = self.chaperons.get(name).filter(|_| self.started) else { return };
        let (uid, stand) = (Arc::clone(&chaperon.seen.uid), self.stand(chaperon));
        if !matches!(stand, Stand::Asked) {
            self.queue.remove(&Key::Chaperon(name.clone()));
            self.stop_waiting_for_quota(name);
        }
        if !matches!(stand, Stand::Reserved(_)) {
            self.set_deadline(name, None);
        }
        match stand {
            Stand::Over | Stand::Bound | Stand::Expired => {
                if let Some(chaperon) = self.chaperons.get(name) {
                    let key = chaperon.seen.template.clone();
                    self.stop_waiting(name, &key);
                }
                if !matches!(stand, Stand::Expired) {
                    self.rest(name);
                }
                self.unplace(&uid, now);
            }
            Stand::Delegated => {}
            Stand::Allowed(None) if self.was_refused_by_node(name) => self.unplace(&uid, now),
            Stand::Allowed(node) => self.hold_allowed(name, node),
            Stand::Reserved(node) => {
                self.hold(name, &node);
                let promise = now + self.promise();
                if self.chaperons.get(name).is_some_and(|chaperon| chaperon.deadline.is_none()) {
                    self.set_deadline(name, Some(promise));
                }
                self.renew(name, &node, now);
            }
            Stand::Asked => {
                // Nothing is promised, unless that is just being written.
                let chaperon = self.chaperons.get(name);
                if !chaperon.is_some_and(|chaperon| matches!(chaperon.writing, Some(Writing::Reserve(_)))) {
                    self.unplace(&uid, now);
                }
                self.ask(name, now);
            }
        }
        self.settle_quota(name, now);
    }

    /// Keeps little of a chaperon whose delegate is bound, or that has ended: most are.
    fn rest(&mut self, name: &Name) {
        let Some(chaperon) = self.chaperons.get_mut(name) else { return };
        chaperon.has_delegate();
        chaperon.seen.manifest = Arc::clone(&self.no_manifest);
        let pods = [chaperon.seen.pod.as_mut().ok(), chaperon.pod.as_mut()];
        for pod in pods.into_iter().flatten() {
            *pod = self.classes.share(pod);
        }
    }

    /// Sees to it that a chaperon gets an answer.
    fn ask(&mut self, name: &Name, now: u64) {
        let Some(chaperon) = self.chaperons.get(name) else { return };
        // Without a manifest, what is known is older than its own delegate: the watch will bring more.
        if chaperon.writing.is_some() || chaperon.seen.manifest.is_null() {
            return;
        }
        let (key, manifest) = (chaperon.seen.template.clone(), Arc::clone(&chaperon.seen.manifest));
        let raw = match &chaperon.seen.pod {
            Ok(raw) => Arc::clone(raw),
            Err(problem) => {
                let message = format!("the spec cannot be read: {problem}");
                return self.refuse(name, &message, now);
            }
        };
        // A new number is a reason to look again at once.
        let asked_again = chaperon.refused.as_ref().is_some_and(|said| said.attempt < chaperon.seen.attempt);
        if self.quotas.keeps(name) && !asked_again {
            return;
        }
        let queued = Key::Chaperon(name.clone());
        if self.queue.contains(&queued) && chaperon.pod.is_some() {
            if asked_again {
                self.queue.retry(&queued, now, Judge::new(&self.profiles, &self.snapshot));
            }
            return;
        }
        match self.shape(name, &key, &raw, &manifest) {
            Shape::Known(pod) => {
                if let Some(chaperon) = self.chaperons.get_mut(name) {
                    chaperon.pod = Some(Arc::clone(&pod));
                }
                self.queue.add(queued, pod, now, Judge::new(&self.profiles, &self.snapshot));
            }
            Shape::Refused(message) => {
                self.queue.remove(&queued);
                self.refuse(name, &message, now);
            }
            Shape::Asked => {}
        }
    }

    /// Admission has answered for a chaperon's template.
    pub(super) fn shape_changed(&mut self, name: &Name, now: u64) {
        let Some(chaperon) = self.chaperons.get(name) else { return };
        let held = self.snapshot.place_of(&chaperon.seen.uid).cloned();
        let (Some(node), Ok(raw)) = (held, chaperon.seen.pod.clone()) else {
            return self.settle(name, now);
        };
        let (key, manifest) = (chaperon.seen.template.clone(), Arc::clone(&chaperon.seen.manifest));
        if let Shape::Known(pod) = self.shape(name, &key, &raw, &manifest) {
            if let Some(chaperon) = self.chaperons.get_mut(name) {
                chaperon.pod = Some(Arc::clone(&pod));
            }
            self.place(pod, &node);
        } else {
            self.stop_waiting(name, &key);
        }
    }

    /// One scheduling cycle for a chaperon, with what admission says now.
    pub(super) fn schedule_chaperon(&mut self, name: &Name, queued: Queued<Key>, now: u64) {
        if !self.chaperons.get(name).is_some_and(|chaperon| matches!(self.stand(chaperon), Stand::Asked)) {
            return;
        }
        let Some(pod) = self.current_shape(name, now) else { return };
        if let Some(message) = self.quota_objection(name, &pod.spec.request_list()) {
            self.counts.refused += 1;
            self.attempted(&queued, Ended::Unschedulable, now);
            return self.refuse(name, &message, now);
        }
        match self.evaluate_as_if(name, &pod) {
            Ok(node) => {
                self.counts.placed += 1;
                self.place(pod, &node);
                self.promise_quota(name);
                self.reserve(name, node, Some(queued));
            }
            Err(diagnosis) => {
                self.counts.refused += 1;
                self.attempted(&queued, Ended::Unschedulable, now);
                let judge = Judge::new(&self.profiles, &self.snapshot);
                self.queue.refused(queued, diagnosis.plugins.clone(), now, judge);
                let preempts = matches!(diagnosis.nomination, Nomination::Node(_));
                let more = if preempts { WOULD_PREEMPT } else { "" };
                self.refuse(name, &format!("{}{more}", diagnosis.message()), now);
            }
        }
    }

    /// The pod of a chaperon as admission would make it. None if that must be asked again, or is refused.
    fn current_shape(&mut self, name: &Name, now: u64) -> Option<Arc<PodInfo>> {
        let chaperon = self.chaperons.get(name)?;
        let raw = Arc::clone(chaperon.seen.pod.as_ref().ok()?);
        let (key, manifest) = (chaperon.seen.template.clone(), Arc::clone(&chaperon.seen.manifest));
        match self.shape(name, &key, &raw, &manifest) {
            Shape::Known(pod) => Some(pod),
            Shape::Refused(message) => {
                self.refuse(name, &message, now);
                None
            }
            Shape::Asked => None,
        }
    }

    /// The chaperon that controls a pod: it has the pod's name.
    pub(super) fn owner_of(&self, pod: &Name, uid: &str) -> bool {
        self.chaperons.get(pod).is_some_and(|chaperon| chaperon.is(uid))
    }
}
