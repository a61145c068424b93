//! What is to be done about one pod.

use super::choose::Choice;
use super::model::{Action, ChaperonRef, ChaperonSeen, Election, Hold, Id, Place, Stage, Width};
use super::pod::{Answer, Ask, AskCall, DOUBT, PodCall, Waits};
use super::{Machine, Timer};
use std::sync::Arc;
use std::time::Duration;

/// A silence, or a queue before a full target, is mentioned to the user after so long.
const TELL_SILENCE: Duration = Duration::from_secs(10);

impl Machine {
    pub(super) fn decide(&mut self, uid: &Id, now: Duration) {
        self.muster(uid, now);
        let Some(pod) = self.pods.get(uid) else { return };
        let key = (pod.number, Arc::clone(uid));
        if pod.gone {
            // What is allowed may run a delegate; its end is the feedback controller's.
            let allowed = |ask: &Ask| ask.chaperon.as_ref().is_some_and(|chaperon| chaperon.allowed);
            let elected = pod.asks.iter().find(|(_, ask)| allowed(ask)).map(|(id, _)| Arc::clone(id));
            self.hungry.remove(&key);
            self.count(uid, None);
            self.withdraw(uid, elected.as_ref(), now);
            return self.bury(uid, now);
        }
        match &pod.seen.place {
            Place::Bound { node, election } => {
                let (node, election) = (Arc::clone(node), election.clone());
                self.hungry.remove(&key);
                self.count(uid, None);
                if let Some(election) = election {
                    self.fulfil(uid, &node, &election, now);
                }
            }
            Place::Unbound(_) if pod.seen.terminating || pod.seen.finished => {
                self.hungry.remove(&key);
                self.count(uid, None);
                self.withdraw(uid, None, now);
            }
            Place::Unbound(_) => self.place(uid, now),
        }
    }

    /// Forgets a pod that is gone, once no call for it is under way.
    fn bury(&mut self, uid: &Id, now: Duration) {
        let ids: Vec<Id> = self.pods.get(uid).into_iter().flat_map(|pod| pod.asks.keys().cloned()).collect();
        for id in &ids {
            self.track(uid, id, now);
        }
        let Some(pod) = self.pods.get(uid) else { return };
        // A delete that failed is left to the feedback controller, which removes what has no parent.
        let busy = pod.call.is_some() || pod.asks.values().any(|ask| ask.call.is_some());
        if !busy {
            self.picky = self.picky.saturating_sub(usize::from(pod.seen.info.spec.is_picky()));
            if let Some(pod) = self.pods.remove(uid) {
                self.claims.forget_user(uid, &pod);
            }
        }
    }

    /// Takes back every ask but one.
    pub(super) fn withdraw(&mut self, uid: &Id, except: Option<&Id>, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        // Of what is gone nothing is tried twice.
        let gone = pod.gone;
        let mut touched = Vec::new();
        for (id, ask) in pod.asks.iter_mut().filter(|(id, _)| except != Some(*id)) {
            let Some(chaperon) = &ask.chaperon else {
                if ask.call == Some(AskCall::Create) {
                    ask.call = Some(AskCall::Forgo);
                    self.actions.push(Action::Forgo { target: Arc::clone(id), pod: Arc::clone(uid) });
                    touched.push(Arc::clone(id));
                }
                continue;
            };
            let later = ask.retry_at.is_some_and(|at| at > now) && !gone;
            if ask.call.is_some() || chaperon.terminating || later {
                continue;
            }
            ask.call = Some(AskCall::Delete);
            self.actions.push(Action::Delete { chaperon: reference(id, uid, chaperon) });
            touched.push(Arc::clone(id));
        }
        for id in touched {
            self.track(uid, &id, now);
        }
    }

    /// The pod is bound: lets the elected target go ahead, and takes back all other asks.
    fn fulfil(&mut self, uid: &Id, node: &Id, election: &Election, now: Duration) {
        self.withdraw(uid, Some(node), now);
        let Some(pod) = self.pods.get_mut(uid) else { return };
        if pod.seen.terminating || pod.seen.finished {
            return;
        }
        let Some(ask) = pod.asks.get_mut(node) else { return };
        let Some(chaperon) = &ask.chaperon else { return };
        let later = ask.retry_at.is_some_and(|at| at > now);
        if ask.call.is_some() || chaperon.terminating || later {
            return;
        }
        let chaperon_ref = reference(node, uid, chaperon);
        if chaperon.uid != election.chaperon_uid {
            // Another of the same name has taken its place; it was not elected.
            ask.call = Some(AskCall::Delete);
            self.actions.push(Action::Delete { chaperon: chaperon_ref });
        } else if !chaperon.allowed {
            self.actions.push(Action::Allow {
                chaperon: chaperon_ref,
                version: chaperon.version.clone(),
                finalizers: chaperon.finalizers.clone(),
                epoch: election.epoch,
                grant: None,
            });
            ask.call = Some(AskCall::Allow);
        }
        self.track(uid, node, now);
        self.watch_start(uid, node, now);
    }

    /// The pod wants a node.
    fn place(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Some(wish) = pod.wish().cloned() else { return };
        if pod.call.is_some() || pod.retry_at.is_some_and(|at| at > now) {
            return;
        }
        if pod.unclear.is_some() {
            let reference = pod.reference();
            self.call(uid, PodCall::Reread);
            self.actions.push(Action::Reread { pod: reference });
            return;
        }
        match &wish.hold {
            Hold::No => (),
            Hold::Gated => {
                self.count(uid, Some(Waits::Gated));
                return self.withdraw(uid, None, now);
            }
            Hold::Because(reason) => {
                let reason = reason.clone();
                self.count(uid, Some(Waits::Held));
                self.withdraw(uid, None, now);
                return self.tell(uid, reason, now);
            }
        }
        if !self.is_open(now) || !self.knows_claims(uid) {
            return;
        }
        if let Some(grant) = &wish.grant {
            return self.pursue(uid, grant, now);
        }
        self.clear_revoked(uid, now);
        self.withdraw_stale(uid, now);
        if !self.goes_with_gang(uid, now) {
            return;
        }
        if wish.is_direct {
            return self.place_directly(uid, now);
        }
        if self.elect(uid, now) {
            return self.count(uid, Some(Waits::Asking));
        }
        self.renew(uid, now);
        self.widen(uid, now);
    }

    pub(super) fn call(&mut self, uid: &Id, call: PodCall) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.call = Some(call);
        }
    }

    /// Binds the pod if a target has reserved and may be elected.
    fn elect(&mut self, uid: &Id, now: Duration) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let Some(wish) = pod.wish() else { return false };
        let all = self.width(uid, now) == Width::All;
        if all && pod.asks.values().any(|ask| ask.answer() == Answer::Waiting && ask.given_up.is_none()) {
            return false;
        }
        let ready: Vec<&Id> = pod
            .asks
            .iter()
            .filter(|(_, ask)| ask.answer() == Answer::Reserved && ask.call.is_none() && ask.has_margin(now))
            .map(|(id, _)| id)
            .filter(|id| self.is_electable(uid, id))
            .collect();
        let best = match ready.as_slice() {
            [] => return false,
            [only] if pod.asks.len() == 1 => Arc::clone(only),
            several => {
                let ranked = self.ranked(uid, now);
                let place = |id: &Id| ranked.iter().position(|choice| choice.id == *id).unwrap_or(usize::MAX);
                let best = several.iter().min_by_key(|id| place(id));
                let Some(best) = best else { return false };
                if self.may_be_outdone(uid, best, &ranked) {
                    return false;
                }
                Arc::clone(best)
            }
        };
        let chaperon = pod.asks.get(&best).and_then(|ask| ask.chaperon.as_ref());
        let (Some(chaperon), Some(target)) = (chaperon, self.targets.get(&best)) else { return false };
        let election = Election {
            target_uid: Arc::clone(&target.seen.cluster_uid),
            chaperon_uid: Arc::clone(&chaperon.uid),
            epoch: wish.epoch + 1,
            lease: chaperon.lease,
        };
        self.bind(uid, &best, election, now);
        true
    }

    /// Writes the election of a target, at the version of the pod on which it was decided.
    pub(super) fn bind(&mut self, uid: &Id, best: &Id, election: Election, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let (reference, best) = (pod.reference(), Arc::clone(best));
        let after = now.saturating_sub(pod.since);
        self.actions.push(Action::Bind {
            pod: reference,
            node: Arc::clone(&best),
            election: election.clone(),
            after,
        });
        self.call(uid, PodCall::Bind { node: best, election });
        self.count_in(uid);
    }

    /// Whether a target that is to be filled before this one has been asked and may still reserve.
    fn may_be_outdone(&self, uid: &Id, best: &Id, ranked: &[Choice]) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let order = |id: &Id| ranked.iter().find(|choice| choice.id == *id).map(|choice| choice.order);
        let Some(own) = order(best) else { return false };
        let open = |ask: &Ask| ask.answer() == Answer::Waiting && ask.given_up.is_none();
        pod.asks.iter().any(|(id, ask)| open(ask) && order(id).is_some_and(|order| order < own))
    }

    /// Asks again where a promise has lapsed, or where nobody knows since when it counts.
    pub(super) fn renew(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let mut renewed = Vec::new();
        for (id, ask) in &pod.asks {
            let doubted = ask.is_doubted(now);
            let needed = match ask.answer() {
                Answer::Lapsed => true,
                Answer::Reserved => !ask.has_margin(now) || !self.is_electable(uid, id),
                Answer::Waiting => ask.sent.is_none() || doubted,
                Answer::None | Answer::Refused | Answer::Granted => false,
            };
            let later = ask.retry_at.is_some_and(|at| at > now);
            if needed && !later && ask.call.is_none() && self.is_renewable(uid, id, doubted, now) {
                renewed.push(Arc::clone(id));
            }
        }
        for id in renewed {
            let ask = self.pods.get_mut(uid).and_then(|pod| pod.asks.get_mut(&id));
            let Some(ask) = ask else { continue };
            let Some(chaperon) = ask.chaperon.as_ref().map(|chaperon| reference(&id, uid, chaperon)) else {
                continue;
            };
            let attempt = ask.renew();
            if ask.given_up.is_some() {
                ask.given_up = Some(now);
                self.timers.insert((now + DOUBT, Timer::Pod(Arc::clone(uid))));
            }
            self.actions.push(Action::Renew { chaperon, attempt });
            self.track(uid, &id, now);
        }
    }

    /// Asks further targets until as many are asked as should be.
    fn widen(&mut self, uid: &Id, now: Duration) {
        if self.widen_beside_grant(uid, now) || self.waits_for_crowd(uid, now) {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.nowhere_since = None;
            }
            return self.count(uid, Some(Waits::Asking));
        }
        self.count(uid, Some(Waits::Unschedulable));
        self.despair(uid, now);
    }

    /// The same without a word to the user. Says whether anybody is asked.
    pub(super) fn widen_beside_grant(&mut self, uid: &Id, now: Duration) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let (key, width) = ((pod.number, Arc::clone(uid)), self.width(uid, now));
        let counts = |(id, ask): (&Id, &Ask)| match ask.answer() {
            Answer::Waiting => ask.given_up.is_none(),
            Answer::Reserved | Answer::Lapsed => self.is_electable(uid, id),
            Answer::None | Answer::Refused | Answer::Granted => false,
        };
        let open = pod.asks.iter().filter(|ask| counts(*ask)).count();
        let wanted = match width {
            Width::Some(count) => count.saturating_sub(open),
            Width::All => usize::MAX,
        };
        let mut asked = 0;
        if wanted > 0 {
            let choices: Vec<Choice> =
                self.ranked(uid, now).into_iter().filter(|choice| self.may_ask(uid, choice, now)).collect();
            for choice in choices.into_iter().take(wanted) {
                if choice.silent && open + asked > 0 {
                    break;
                }
                self.ask(uid, &choice.id, now);
                asked += 1;
            }
        }
        if asked < wanted {
            self.hungry.insert(key);
        } else {
            self.hungry.remove(&key);
        }
        open + asked > 0
    }

    /// Takes away PodChaperons whose grant was taken back for good.
    fn clear_revoked(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        pod.granted_since = None;
        let mut touched = Vec::new();
        for (id, ask) in &mut pod.asks {
            let later = ask.retry_at.is_some_and(|at| at > now);
            let gone = |chaperon: &ChaperonSeen| chaperon.stage != Stage::Revoked || chaperon.terminating;
            let Some(chaperon) = ask.chaperon.as_ref().filter(|chaperon| !gone(chaperon)) else { continue };
            if ask.call.is_none() && !later {
                self.actions.push(Action::Delete { chaperon: reference(id, uid, chaperon) });
                ask.call = Some(AskCall::Delete);
                touched.push(Arc::clone(id));
            }
        }
        for id in touched {
            self.track(uid, &id, now);
        }
    }

    /// Nobody is asked and nobody is left: tells the user, but not of what may yet end by itself.
    fn despair(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let queued = self.ranked(uid, now).iter().any(|choice| self.is_queued(uid, choice, now));
        let since = pod.asks.values().filter_map(|ask| ask.given_up).max();
        let since = since.max(queued.then_some(pod.since));
        if let Some(tell_at) = since.map(|since| since + TELL_SILENCE).filter(|at| *at > now) {
            return self.arm(tell_at, Timer::Pod(Arc::clone(uid)));
        }
        if !queued && self.consider_grant(uid, now) {
            return;
        }
        let message = self.explanation(uid, now);
        self.tell(uid, message, now);
    }

    pub(super) fn ask(&mut self, uid: &Id, id: &Id, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let Some(wish) = pod.wish().cloned() else { return };
        let ask = pod.asks.entry(Arc::clone(id)).or_default();
        ask.call = Some(AskCall::Create);
        // The UID of an earlier one of the same name stays known: its last events may still come.
        ask.attempt = 0;
        ask.sent = None;
        if let Some(target) = self.targets.get_mut(id) {
            if let Some(at) = target.probed(now) {
                self.timers.insert((at, Timer::Reopen));
            }
            if let Some(at) = target.tried(&pod.seen.name.namespace, &wish.class, now) {
                self.timers.insert((at, Timer::Reopen));
            }
        }
        let claims = self.followings(uid, id);
        self.actions.push(Action::Create {
            target: Arc::clone(id),
            pod: Arc::clone(uid),
            seed: Arc::clone(&wish.seed),
            claims,
        });
        self.track(uid, id, now);
    }
}

pub(super) fn reference(id: &Id, parent: &Id, chaperon: &ChaperonSeen) -> ChaperonRef {
    ChaperonRef {
        target: Arc::clone(id),
        parent: Arc::clone(parent),
        name: chaperon.name.clone(),
        uid: Arc::clone(&chaperon.uid),
    }
}
