//! What follows for a target from what is known of one ask: who waits for it, who is held there, how much it
//! is used.

use super::model::{Failure, Id};
use super::pod::{Answer, Ask, AskCall, Load};
use super::target::{Barrier, CLOSED, Errand, HEDGE, Target};
use super::{Machine, Timer};
use std::sync::Arc;
use std::time::Duration;

impl Machine {
    /// Brings the target's books in line with an ask that has changed.
    pub(super) fn track(&mut self, uid: &Id, id: &Id, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let wish = pod.wish().filter(|_| !pod.gone && !pod.seen.terminating).cloned();
        let Some(ask) = pod.asks.get_mut(id) else { return };
        let Some(target) = self.targets.get_mut(id) else {
            if ask.is_over() {
                pod.asks.remove(id);
            }
            return;
        };
        let answer = ask.answer();

        let waits = answer == Answer::Waiting && ask.given_up.is_none() && wish.is_some();
        if keep_vigil(ask, target, uid, waits.then_some(now)) {
            self.timers.insert((now + HEDGE, Timer::Listen(Arc::clone(id))));
        }
        self.reopened |= target.take_relief();
        if answer != Answer::Waiting {
            ask.given_up = None;
        }

        let holds = matches!(answer, Answer::Waiting | Answer::Refused | Answer::Lapsed);
        let class = wish.as_ref().filter(|_| holds).map(|wish| Arc::clone(&wish.class));
        if ask.held != class {
            if let Some(class) = &ask.held {
                self.reopened |= target.release(class);
            }
            if let Some(class) = &class {
                target.hold(class);
            }
            ask.held = class;
        }

        // What a pod takes where it is bound is shown by the summary before long.
        match (answer, ask.load, &wish) {
            (Answer::Waiting, Load::No, Some(wish)) => {
                target.load(uid, &wish.info.spec.request_list());
                ask.load = Load::Open;
            }
            (Answer::Reserved, Load::Open, Some(_)) => {
                target.answered(uid, now);
                ask.load = Load::Answered;
            }
            (
                Answer::None | Answer::Refused | Answer::Lapsed | Answer::Granted,
                Load::Open | Load::Answered,
                _,
            )
            | (_, Load::Open, None) => {
                target.unload(uid);
                ask.load = Load::No;
            }
            (Answer::Waiting | Answer::Reserved, _, _) | (_, Load::No, _) => (),
        }
        // Until the watch has shown the end of it, what it shows may be from before.
        if ask.is_over() && ask.retry_at.is_none() && ask.gone.is_none() {
            pod.asks.remove(id);
        }
        self.share_in(uid);
    }

    /// The target has spoken: a refusal closes it for the whole class, a reservation opens it again.
    pub(super) fn heard(&mut self, uid: &Id, id: &Id, now: Duration) {
        self.greet(id, now);
        let Some(target) = self.targets.get_mut(id) else { return };
        let Some(pod) = self.pods.get(uid) else { return };
        let (Some(wish), Some(ask)) = (pod.wish(), pod.asks.get(id)) else { return };
        let refused = ask.chaperon.as_ref().and_then(|chaperon| chaperon.refused.clone());
        match (ask.answer(), refused) {
            (Answer::Refused, Some(reason)) => {
                target.close(&wish.class, reason, now);
                self.timers.insert((now + CLOSED, Timer::Reopen));
            }
            (Answer::Reserved, _) => self.reopened |= target.open(&wish.class),
            (Answer::None | Answer::Waiting | Answer::Lapsed | Answer::Refused | Answer::Granted, _) => (),
        }
    }

    /// The target has given a sign of life: what failed there is due again.
    pub(super) fn greet(&mut self, id: &Id, now: Duration) {
        let Some(target) = self.targets.get_mut(id) else { return };
        self.reopened |= target.sign(now);
        for uid in std::mem::take(&mut target.debts) {
            if let Some(ask) = self.pods.get_mut(&uid).and_then(|pod| pod.asks.get_mut(id)) {
                ask.retry_at = None;
            }
            self.touch(&uid);
        }
    }

    /// A call on a PodChaperon failed that is worth another try.
    pub(super) fn owe(&mut self, uid: &Id, id: &Id, now: Duration) {
        let Some(ask) = self.pods.get_mut(uid).and_then(|pod| pod.asks.get_mut(id)) else { return };
        let at = ask.failed(now);
        self.arm(at, Timer::Pod(Arc::clone(uid)));
        if let Some(target) = self.targets.get_mut(id) {
            target.debts.insert(Arc::clone(uid));
        }
    }

    /// A call in a target failed; nobody tries the like of it before its time.
    pub(super) fn raise_barrier(&mut self, uid: &Id, id: &Id, failure: Failure, now: Duration) {
        let Some(wish) = self.pods.get(uid).and_then(|pod| pod.wish().cloned()) else { return };
        let Some(pod) = self.pods.get(uid) else { return };
        let Some(target) = self.targets.get_mut(id) else { return };
        let barrier = Barrier::new(failure.scope, &pod.seen.name.namespace, &wish.class);
        let until = target.fail(barrier, failure.message, now);
        self.arm(until, Timer::Reopen);
    }
}

/// Notes with the target what an ask waits for from `now` on, if it does. Says whether listening begins.
fn keep_vigil(ask: &mut Ask, target: &mut Target, uid: &Id, now: Option<Duration>) -> bool {
    let errand = match ask.call {
        Some(AskCall::Create | AskCall::Renew) => Errand::Call,
        Some(AskCall::Forgo | AskCall::Allow | AskCall::Delete) | None => Errand::Answer,
    };
    if ask.waits.map(|(errand, _)| errand) == now.map(|_| errand) {
        return false;
    }
    let after = now.map(|now| (errand, now));
    if let Some(after) = after {
        target.wait_for(after, uid);
    }
    if let Some(before) = std::mem::replace(&mut ask.waits, after) {
        target.stop_waiting(before, uid);
    }
    let Some((_, now)) = after else { return false };
    let begins = target.listens_at.is_none();
    if begins {
        target.listens_at = Some(now + HEDGE);
    }
    begins
}
