//! Real pods: delegates go to the node that was reserved for them, others where they fit.

use std::collections::HashSet;
use std::sync::Arc;

use api::keys;
use scheduling::{Event, Judge, Nomination, PodChange, PodInfo, Queued, VolumePlan};

use crate::observe::{Change, Name, PodSeen, Refusal};
use crate::plan::story::Told;
use crate::plan::{Action, Ended, Key, Model, Outcome};

/// Why a pod was not placed: the reason of its condition, and the words.
struct Failure {
    reason: &'static str,
    message: String,
}

impl Failure {
    fn unschedulable(message: String) -> Self {
        Self { reason: "Unschedulable", message }
    }
}

/// A pod that is not finished.
pub(super) struct Pod {
    uid: Arc<str>,
    version: Arc<str>,
    chaperon: Option<Arc<str>>,
    bound: bool,
    /// The binding under way: the pod counts on its node already.
    binding: Option<Queued<Key>>,
    refusal: Option<Refusal>,
    refusing: bool,
    /// What to say once that is said.
    next_refusal: Option<(Failure, Nomination)>,
    /// The failure that an event tells of already.
    pub(super) told: Option<Told>,
}

impl Pod {
    /// Still the object that a call was about?
    pub(super) fn is(&self, uid: &str) -> bool {
        *self.uid == *uid
    }

    pub(super) fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    /// The resourceVersion that was seen or written last.
    pub(super) fn version(&self) -> Arc<str> {
        Arc::clone(&self.version)
    }

    /// Takes back the binding under way.
    pub(super) fn taken_back(&mut self) -> Option<Queued<Key>> {
        self.binding.take()
    }

    /// Its binding is under way.
    pub(super) fn is_binding(&self) -> bool {
        self.binding.is_some()
    }

    /// The scheduler name of a pod whose binding is under way.
    pub(super) fn scheduler(&self) -> &str {
        self.binding.as_ref().map_or("", |queued| &queued.pod.spec.scheduler_name)
    }

    /// It is bound, or about to be.
    pub(super) fn placed(&self) -> bool {
        self.bound || self.binding.is_some()
    }
}

impl Model {
    pub(super) fn see_pods(&mut self, change: Change<PodSeen, Name>, now: u64) {
        match change {
            Change::All(pods) => {
                let names: HashSet<_> = pods.iter().map(|pod| pod.name.clone()).collect();
                let mut gone: Vec<_> =
                    self.pods.keys().filter(|name| !names.contains(*name)).cloned().collect();
                gone.sort_unstable();
                for name in gone {
                    self.pod_gone(&name, now);
                }
                for pod in pods {
                    self.pod_is(&pod, now);
                }
                self.synced.pods = true;
            }
            Change::Is(pod) => self.pod_is(&pod, now),
            Change::Gone(name) => self.pod_gone(&name, now),
        }
    }

    fn pod_is(&mut self, seen: &PodSeen, now: u64) {
        let name = seen.name.clone();
        if self.pods.get(&name).is_some_and(|known| known.uid != seen.uid) {
            self.pod_gone(&name, now);
        }
        // What is neither placed nor ours to place is somebody else's.
        let Some(info) = seen.info.as_ref().filter(|info| seen.bound() || self.places(info)) else { return };
        if info.finished {
            return self.pod_gone(&name, now);
        }
        let known = self.pods.entry(name.clone()).or_insert_with(|| Pod {
            uid: Arc::clone(&seen.uid),
            version: Arc::clone(&seen.version),
            chaperon: seen.chaperon.clone(),
            bound: false,
            binding: None,
            refusal: None,
            refusing: false,
            next_refusal: None,
            told: None,
        });
        known.version = Arc::clone(&seen.version);
        known.refusal = seen.refusal.clone();
        let first_sight = !known.bound;
        known.bound |= seen.bound();
        if let Some(chaperon) = &seen.chaperon {
            self.delegates.insert(Arc::clone(chaperon), name.clone());
        }
        if seen.bound() {
            self.pod_is_bound(&name, info, first_sight, now);
        } else {
            self.pod_is_pending(&name, seen, Arc::clone(info), now);
        }
        self.settle_owner(&name, now);
    }

    /// Is it ours to place?
    fn places(&self, pod: &PodInfo) -> bool {
        self.profiles.has(&pod.spec.scheduler_name)
    }

    fn pod_is_bound(&mut self, name: &Name, info: &Arc<PodInfo>, first_sight: bool, now: u64) {
        self.queue.remove(&Key::Pod(name.clone()));
        self.forget_storage(name);
        self.give_up_claims(&info.uid, now);
        let old = self.snapshot.pod(&info.uid).cloned();
        if old.as_ref().is_some_and(|old| **old == **info) {
            return;
        }
        let info = self.classes.share(info);
        self.snapshot.add_pod(Arc::clone(&info));
        self.memo.clear();
        self.publication.touch();
        let event = match old {
            Some(old) if !first_sight => {
                let change = PodChange::between(&old, &info);
                Event::PodChanged { old, pod: info, change }
            }
            Some(_) | None => Event::PodPlaced(info),
        };
        self.happened(&event, now);
    }

    fn pod_is_pending(&mut self, name: &Name, seen: &PodSeen, info: Arc<PodInfo>, now: u64) {
        let placed = self.pods.get(name).is_some_and(Pod::placed);
        if seen.terminating {
            self.queue.remove(&Key::Pod(name.clone()));
            self.needs_no_room(&seen.uid, now);
        } else if !placed {
            self.nomination_is(&info, now);
            let judge = Judge::new(&self.profiles, &self.snapshot);
            self.queue.add(Key::Pod(name.clone()), info, now, judge);
        }
    }

    fn pod_gone(&mut self, name: &Name, now: u64) {
        let Some(pod) = self.pods.remove(name) else { return };
        self.forget_storage(name);
        self.give_up_claims(&pod.uid, now);
        self.queue.remove(&Key::Pod(name.clone()));
        self.needs_no_room(&pod.uid, now);
        if let Some(chaperon) = &pod.chaperon
            && self.delegates.get(chaperon) == Some(name)
        {
            self.delegates.remove(chaperon);
        }
        let node = self.snapshot.place_of(&pod.uid).cloned();
        self.unplace(&pod.uid, now);
        let chaperon = pod.chaperon.filter(|chaperon| self.owner_of(name, chaperon));
        match (chaperon, node) {
            (Some(_), Some(node)) => self.lost_delegate(name, &node, now),
            (Some(_), None) => self.settle(name, now),
            (None, _) => {}
        }
    }

    /// The chaperon of a delegate learns of its state.
    fn settle_owner(&mut self, name: &Name, now: u64) {
        let chaperon = self.pods.get(name).and_then(|pod| pod.chaperon.clone());
        if chaperon.is_some_and(|chaperon| self.owner_of(name, &chaperon)) {
            self.settle(name, now);
        }
    }

    /// One scheduling cycle for a pod.
    pub(super) fn schedule_pod(&mut self, name: &Name, queued: Queued<Key>, now: u64) {
        let Some(pod) = self.pods.get(name) else { return };
        let info = Arc::clone(&queued.pod);
        let chaperon = pod.chaperon.clone();
        // The reservation makes way for what it was made for.
        let reserved = chaperon.as_ref().and_then(|uid| self.snapshot.place_of(uid).cloned());
        let held = chaperon.as_ref().and_then(|uid| self.snapshot.remove_pod(uid));
        self.memo.clear();
        let avoided = self.avoided(name, chaperon.as_ref());
        let kept = reserved.filter(|node| !avoided.contains(node) && self.fits(&info, node));
        let chosen = match kept {
            Some(node) => Ok(node),
            None => self.choose(&info, &avoided),
        };
        match chosen {
            Ok(node) => {
                let claims = match self.claim_plan(&info, &node) {
                    Ok(claims) => claims,
                    Err(problem) => return self.pod_failed(name, queued, problem, now),
                };
                self.counts.placed += 1;
                let plan = self.storage_plan(&info, &node);
                if let Some(claims) = claims
                    && !self.grant_claims(name, &info, &node, claims)
                {
                    let problem = "a claim is in the process of being allocated".to_owned();
                    return self.pod_failed(name, queued, problem, now);
                }
                self.place(info, &node);
                if let Some(plan) = plan {
                    self.bind_storage(name, plan, queued, now);
                } else {
                    self.under_way(name, queued);
                    self.bind_under_way(name, node);
                }
            }
            Err(diagnosis) if diagnosis.error.is_some() => {
                if diagnosis.failed == Some("VolumeBinding") {
                    *self.counts.storage_errors.entry("predicate").or_default() += 1;
                }
                self.pod_failed(name, queued, diagnosis.message(), now);
            }
            Err(diagnosis) => {
                self.counts.refused += 1;
                self.attempted(&queued, Ended::Unschedulable, now);
                let judge = Judge::new(&self.profiles, &self.snapshot);
                self.queue.refused(queued, diagnosis.plugins.clone(), now, judge);
                let message = diagnosis.message();
                self.tell_failure(name, &info.spec.scheduler_name, &message, now);
                self.refuse_pod(name, Failure::unschedulable(message), changed(&info, &diagnosis.nomination));
                if let Some((namespace, claim)) = &diagnosis.deallocate {
                    let (claim, uid) = (Name::new(namespace, claim), Arc::clone(&info.uid));
                    self.actions.push(Action::Deallocate { claim, uid });
                }
                self.make_room(name, &info, &diagnosis, now);
            }
        }
        if let Some(held) = held {
            self.publication.touch();
            self.happened(&Event::PodGone(held), now);
        }
    }

    /// What must happen to claims and volumes before the pod is bound.
    fn storage_plan(&self, pod: &PodInfo, node: &str) -> Option<VolumePlan> {
        self.profiles.of(pod).volumes(pod, &self.snapshot, self.snapshot.node(node)?)
    }

    /// From now on the pod is placed, unless it fails.
    pub(super) fn under_way(&mut self, name: &Name, mut queued: Queued<Key>) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        self.queue.placed(&mut queued);
        pod.binding = Some(queued);
    }

    /// Binds a pod that [`Self::under_way`] was said of.
    pub(super) fn bind_under_way(&mut self, name: &Name, node: Arc<str>) {
        let Some(uid) = self.pods.get(name).map(|pod| Arc::clone(&pod.uid)) else { return };
        // Its claims come first.
        if self.write_claim(&uid) {
            return;
        }
        let Some(pod) = self.pods.get(name) else { return };
        self.actions.push(Action::Bind { pod: name.clone(), uid: Arc::clone(&pod.uid), node });
    }

    /// Something went wrong with a pod; it is tried again after a pause.
    pub(super) fn pod_failed(&mut self, name: &Name, queued: Queued<Key>, message: String, now: u64) {
        let scheduler = queued.pod.spec.scheduler_name.clone();
        self.attempted(&queued, Ended::Error, now);
        self.queue.failed(queued, now, Judge::new(&self.profiles, &self.snapshot));
        self.tell_failure(name, &scheduler, &message, now);
        self.refuse_pod(name, Failure { reason: "SchedulerError", message }, Nomination::Keep);
        self.settle_owner(name, now);
    }

    pub(super) fn bind_ended(&mut self, (name, uid): (&Name, &str), node: &str, outcome: &Outcome, now: u64) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| *pod.uid == *uid) else { return };
        if let Outcome::Done { .. } = outcome {
            // A binding is final: whatever older state the watch still brings.
            pod.bound = true;
            self.was_bound(name, node, now);
            return self.settle_owner(name, now);
        }
        let here = self.snapshot.place_of(uid).is_some_and(|place| **place == *node);
        if pod.bound || matches!(outcome, Outcome::Conflict) {
            // Bound already, perhaps by a call of ours that was not answered, or not this pod any more: the watch
            // will say which, and until then the room is taken.
            if pod.bound && here {
                self.was_bound(name, node, now);
            }
            return;
        }
        let queued = pod.binding.take();
        if here {
            self.unplace(uid, now);
        }
        if let Some(queued) = queued {
            self.attempted(&queued, Ended::Error, now);
            self.tell_error(name, &queued.pod, outcome, now);
            self.queue.failed(queued, now, Judge::new(&self.profiles, &self.snapshot));
        }
        self.settle_owner(name, now);
    }

    /// Our binding was carried out.
    fn was_bound(&mut self, name: &Name, node: &str, now: u64) {
        let Some(queued) = self.pods.get_mut(name).and_then(|pod| pod.binding.take()) else { return };
        self.attempted(&queued, Ended::Scheduled, now);
        self.counts.placed_after_flush += u64::from(queued.flushed);
        self.tell(name, &queued.pod.spec.scheduler_name, Ok(Arc::from(node)));
    }

    /// Says why a pod could not be bound.
    fn tell_error(&mut self, name: &Name, info: &PodInfo, outcome: &Outcome, now: u64) {
        let Outcome::Denied(answer) = outcome else { return };
        let scheduler = &info.spec.scheduler_name;
        if scheduler != keys::CANDIDATE_SCHEDULER {
            let message = format!("running Bind plugin \"DefaultBinder\": {answer}");
            self.tell_failure(name, scheduler, &message, now);
            self.refuse_pod(name, Failure { reason: "SchedulerError", message }, Nomination::Keep);
        }
    }

    /// Says why a pod cannot be scheduled and for which node it waits, unless that stands on it already.
    fn refuse_pod(&mut self, name: &Name, failure: Failure, nomination: Nomination) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        if pod.refusing {
            pod.next_refusal = Some((failure, nomination));
            return;
        }
        let Failure { reason, message } = failure;
        let said = pod.refusal.as_ref().is_some_and(|refusal| refusal.message == message);
        if said && nomination == Nomination::Keep {
            return;
        }
        let since = pod.refusal.as_ref().and_then(|refusal| refusal.since.clone());
        pod.refusing = true;
        pod.refusal = Some(Refusal { message: message.clone(), since: since.clone() });
        self.actions.push(Action::RefusePod {
            pod: name.clone(),
            uid: Arc::clone(&pod.uid),
            version: Arc::clone(&pod.version),
            reason,
            message,
            since,
            nomination,
        });
    }

    pub(super) fn pod_refusal_ended(&mut self, name: &Name, uid: &str, outcome: &Outcome) {
        let Some(pod) = self.pods.get_mut(name).filter(|pod| *pod.uid == *uid) else { return };
        pod.refusing = false;
        match outcome {
            Outcome::Done { version } => pod.version = version.clone().unwrap_or_else(|| pod.version()),
            Outcome::Admitted(_)
            | Outcome::Unknown
            | Outcome::Conflict
            | Outcome::NotFound
            | Outcome::Denied(_) => pod.refusal = None,
        }
        if let Some((failure, nomination)) = pod.next_refusal.take().filter(|_| !pod.placed()) {
            self.refuse_pod(name, failure, nomination);
        }
    }
}

/// What has to be written about the node that a pod waits for, given what stands on the pod.
fn changed(pod: &PodInfo, nomination: &Nomination) -> Nomination {
    let stands = match nomination {
        Nomination::Keep => true,
        Nomination::Clear => pod.nominated.is_none(),
        Nomination::Node(node) => pod.nominated.as_ref() == Some(node),
    };
    if stands { Nomination::Keep } else { nomination.clone() }
}
