//! Nowhere fits: one target at a time may go beyond what it has free.
//!
//! There the delegate is created as a real pending pod, which the target's scheduler may place at the cost of others
//! and which an autoscaler sees. The grant is a record on the proxy pod, written at the version that was seen, as a
//! binding is: no other target is elected or granted before the target has confirmed that this one is revoked.

use super::choose::Choice;
use super::model::{Action, ChaperonSeen, Election, Grant, GrantKind, Id, Stage};
use super::pod::{Answer, Ask, AskCall, PodCall, Waits};
use super::{Machine, Timer, decide::reference};
use api::preference::START_DEADLINE;
use scheduling::PodInfo;
use std::sync::Arc;
use std::time::Duration;

/// A pod that fits nowhere waits so long before anything is done at the cost of others: most such moments pass.
const PATIENCE: Duration = Duration::from_secs(1);

impl Machine {
    /// A pod that every target has refused, or that wants no reservations: sees to it that the best of them is
    /// granted. Says whether it is, or soon may be.
    pub(super) fn seek_grant(&mut self, uid: &Id, now: Duration) -> bool {
        let Some((id, kind)) = self.next_grant(uid, now) else { return false };
        let Some(pod) = self.pods.get(uid) else { return false };
        let (Some(wish), Some(target)) = (pod.wish(), self.targets.get(&id)) else { return false };
        let Some(ask) = pod.asks.get(&id).filter(|ask| !ask.is_over()) else {
            self.ask(uid, &id, now);
            return true;
        };
        let later = ask.retry_at.is_some_and(|at| at > now);
        let Some(chaperon) = ask.chaperon.as_ref().filter(|_| ask.call.is_none() && !later) else {
            return true;
        };
        if chaperon.terminating || pod.call.is_some() {
            return true;
        }
        let election = Election {
            target_uid: Arc::clone(&target.seen.cluster_uid),
            chaperon_uid: Arc::clone(&chaperon.uid),
            epoch: wish.epoch + 1,
            lease: chaperon.lease,
        };
        let reference = pod.reference();
        let grant = Grant { kind, election };
        self.actions.push(Action::Grant { pod: reference, target: id, grant: Some(grant.clone()) });
        self.call(uid, PodCall::Grant(Some(grant)));
        true
    }

    /// Who is granted next: in order of preference, and of those alike who can make room at the cost of lower
    /// priorities before who would need more nodes.
    fn next_grant(&self, uid: &Id, now: Duration) -> Option<(Id, GrantKind)> {
        let pod = self.pods.get(uid)?;
        let wish = pod.wish()?;
        let helps = |id: &Id| {
            let own = pod.asks.get(id).and_then(|ask| ask.chaperon.as_ref()?.refused.as_ref());
            own.is_some_and(|refusal| refusal.preempts)
                || self.targets.get(id).is_some_and(|target| target.preempts(&wish.class))
        };
        let mut choices: Vec<Choice> = self.grantable(uid, now);
        let untried = choices.iter().any(|choice| !pod.tried.contains(&choice.id));
        if untried {
            choices.retain(|choice| !pod.tried.contains(&choice.id));
        }
        let best = choices
            .into_iter()
            .enumerate()
            .min_by_key(|(rank, choice)| (choice.order, !wish.is_direct && !helps(&choice.id), *rank));
        let (_, choice) = best?;
        let kind = match (wish.is_direct, helps(&choice.id)) {
            (true, _) => GrantKind::NoReservation,
            (false, true) => GrantKind::Preempt,
            (false, false) => GrantKind::ScaleUp,
        };
        Some((choice.id, kind))
    }

    /// Targets that answer and that the constraints allow, and, unless nobody reserves for the pod at all, that
    /// have refused it or its like.
    fn grantable(&self, uid: &Id, now: Duration) -> Vec<Choice> {
        let Some(pod) = self.pods.get(uid) else { return Vec::new() };
        let Some(wish) = pod.wish() else { return Vec::new() };
        let refused = |id: &Id| {
            wish.is_direct
                || pod
                    .asks
                    .get(id)
                    .is_some_and(|ask| matches!(ask.answer(), Answer::Refused | Answer::Granted))
                || self.targets.get(id).is_some_and(|target| target.closed(&wish.class, now).is_some())
        };
        let able = |id: &Id| {
            self.targets.get(id).is_some_and(|target| {
                target.is_fresh() && target.may_try(&pod.seen.name.namespace, &wish.class, now)
            })
        };
        let mut choices = self.ranked(uid, now);
        choices.retain(|choice| !choice.silent && refused(&choice.id) && able(&choice.id));
        choices
    }

    /// Nobody is left to ask. After a moment somebody is granted. Says whether that has begun.
    pub(super) fn consider_grant(&mut self, uid: &Id, now: Duration) -> bool {
        let Some(pod) = self.pods.get_mut(uid) else { return false };
        let due = *pod.nowhere_since.get_or_insert(now) + PATIENCE;
        if now < due {
            self.arm(due, Timer::Pod(Arc::clone(uid)));
            return false;
        }
        self.seek_grant(uid, now)
    }

    /// A pod without reservations: no target is asked whether it has room.
    pub(super) fn place_directly(&mut self, uid: &Id, now: Duration) {
        if self.seek_grant(uid, now) {
            return self.count(uid, Some(Waits::Asking));
        }
        self.count(uid, Some(Waits::Unschedulable));
        let key = self.pods.get(uid).map(|pod| (pod.number, Arc::clone(uid)));
        self.hungry.extend(key);
        let message = self.explanation(uid, now);
        self.tell(uid, message, now);
    }

    /// A target is granted: binds the pod once its delegate has a node, and takes the grant back where another
    /// target is better.
    pub(super) fn pursue(&mut self, uid: &Id, grant: &Grant, now: Duration) {
        self.count(uid, Some(Waits::Granted));
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.nowhere_since = None;
        let since = *pod.granted_since.get_or_insert(now);
        let granted = pod.asks.iter().find(|(_, ask)| is_granted(ask, grant)).map(|(id, _)| Arc::clone(id));
        // Of what is not seen nothing is known; what is gone for sure is ended by the feedback controller.
        let Some(id) = granted else { return };
        let Some(ask) = pod.asks.get(&id) else { return };
        let Some(chaperon) = ask.chaperon.clone() else { return };
        let later = ask.retry_at.is_some_and(|at| at > now);
        if ask.call.is_some() || chaperon.terminating || later {
            return;
        }
        let reserved = ask.answer() == Answer::Reserved && ask.has_margin(now);
        let fresh = self.targets.get(&id).is_some_and(super::target::Target::is_fresh);
        if chaperon.stage == Stage::Revoked {
            return self.take_back(uid, &id);
        }
        if fresh && (reserved || (chaperon.grant && chaperon.stage == Stage::Placed)) {
            return self.bind(uid, &id, grant.election.clone(), now);
        }
        if chaperon.revoked {
            return;
        }
        if !chaperon.grant {
            return self.allow_granted(uid, &id, (&chaperon, grant), now);
        }
        // Others may get room meanwhile.
        self.renew(uid, now);
        self.widen_beside_grant(uid, now);
        if self.is_better_elsewhere(uid, &id, since, now) {
            return self.revoke(uid, &id, &chaperon, now);
        }
        let message = self.explanation(uid, now);
        self.tell(uid, message, now);
    }

    fn allow_granted(
        &mut self,
        uid: &Id,
        id: &Id,
        (chaperon, grant): (&ChaperonSeen, &Grant),
        now: Duration,
    ) {
        self.actions.push(Action::Allow {
            chaperon: reference(id, uid, chaperon),
            version: chaperon.version.clone(),
            finalizers: chaperon.finalizers.clone(),
            epoch: grant.election.epoch,
            grant: Some(grant.kind),
        });
        self.begin(uid, id, AskCall::Allow, now);
    }

    /// The target has confirmed that nothing runs there nor will: the record goes, then the PodChaperon.
    fn take_back(&mut self, uid: &Id, id: &Id) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.call.is_some() {
            return;
        }
        pod.tried.insert(Arc::clone(id));
        pod.call = Some(PodCall::Grant(None));
        let reference = pod.reference();
        self.actions.push(Action::Grant { pod: reference, target: Arc::clone(id), grant: None });
    }

    /// Whether another target takes the pod as it is, or has not had its turn when the time of this one is up.
    fn is_better_elsewhere(&mut self, uid: &Id, id: &Id, since: Duration, now: Duration) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let reserved = |(other, ask): (&Id, &Ask)| {
            other != id
                && ask.answer() == Answer::Reserved
                && ask.has_margin(now)
                && self.is_electable(uid, other)
        };
        if pod.asks.iter().any(reserved) {
            return true;
        }
        let due = since + self.start_deadline(uid, id);
        if now < due {
            self.arm(due, Timer::Pod(Arc::clone(uid)));
            return false;
        }
        let others = self.grantable(uid, now);
        others.iter().any(|choice| choice.id != *id)
    }

    fn start_deadline(&self, uid: &Id, id: &Id) -> Duration {
        let own = self.pods.get(uid).and_then(|pod| pod.seen.start_deadline);
        let theirs = || self.targets.get(id).and_then(|target| target.seen.start_deadline);
        own.or_else(theirs).unwrap_or(START_DEADLINE)
    }

    fn revoke(&mut self, uid: &Id, id: &Id, chaperon: &ChaperonSeen, now: Duration) {
        self.actions.push(Action::Revoke { chaperon: reference(id, uid, chaperon), on: true });
        self.begin(uid, id, AskCall::Allow, now);
    }

    fn begin(&mut self, uid: &Id, id: &Id, call: AskCall, now: Duration) {
        if let Some(ask) = self.pods.get_mut(uid).and_then(|pod| pod.asks.get_mut(id)) {
            ask.call = Some(call);
        }
        self.track(uid, id, now);
    }

    /// The pod is bound and its delegate allowed: takes the election back when the delegate has had no node for too
    /// long and another target would take the pod. Only an owner makes another pod.
    pub(super) fn watch_start(&mut self, uid: &Id, id: &Id, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let Some(ask) = pod.asks.get(id).filter(|ask| ask.call.is_none()) else { return };
        let Some(chaperon) = ask.chaperon.clone().filter(|chaperon| !chaperon.terminating) else { return };
        if chaperon.stage != Stage::Unplaced {
            pod.granted_since = None;
            if chaperon.revoked && chaperon.stage == Stage::Placed {
                // It got its node first: the election stands.
                self.actions.push(Action::Revoke { chaperon: reference(id, uid, &chaperon), on: false });
                self.begin(uid, id, AskCall::Allow, now);
            }
            return;
        }
        if chaperon.revoked || !pod.seen.owned {
            return;
        }
        let due = *pod.granted_since.get_or_insert(now) + self.start_deadline(uid, id);
        if now < due {
            return self.arm(due, Timer::Pod(Arc::clone(uid)));
        }
        if self.has_room_elsewhere(uid, id, now) {
            self.revoke(uid, id, &chaperon, now);
        } else {
            // Summaries wake nobody who is bound.
            self.arm(now + self.start_deadline(uid, id), Timer::Pod(Arc::clone(uid)));
        }
    }

    /// Whether another target shows room for a bound pod, by all that is known without asking.
    fn has_room_elsewhere(&self, uid: &Id, id: &Id, now: Duration) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let free = PodInfo { node_name: None, ..PodInfo::clone(&pod.seen.info) };
        self.ranker.judge(&free).fit.iter().any(|(other, _)| {
            other != id
                && self.targets.get(other).is_some_and(|target| {
                    target.serves(&pod.seen.name.namespace)
                        && target.is_fresh()
                        && !target.is_shunned(now)
                        && target.summary.is_some()
                        && target.room(&free.spec.request_list()).0
                })
        })
    }
}

/// Whether an ask is the granted one.
pub(super) fn is_granted(ask: &Ask, grant: &Grant) -> bool {
    ask.chaperon.as_ref().is_some_and(|chaperon| chaperon.uid == grant.election.chaperon_uid)
}
