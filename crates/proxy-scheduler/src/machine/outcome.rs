//! How calls ended.

use super::model::{Action, ChaperonSeen, Failure, Id, Live, Outcome, Place, PodSeen};
use super::pod::PodCall;
use super::{Machine, Timer};
use std::sync::Arc;
use std::time::Duration;

/// The least time between two texts for one pod; only a new text is written at all.
const TELL_AGAIN: Duration = Duration::from_secs(10);
/// After a text that could not be written.
const TELL_RETRY: Duration = Duration::from_secs(1);

impl Machine {
    pub(super) fn finished(&mut self, uid: &Id, outcome: Outcome, now: Duration) {
        self.reached(&outcome, now);
        match outcome {
            Outcome::Created { target, sent, result } => self.created(uid, &target, (sent, result), now),
            Outcome::Forgone { target } => self.forgone(uid, &target, now),
            Outcome::Renewed { target, sent, result } => self.renewed(uid, &target, (sent, result), now),
            Outcome::Allowed { target, result } => self.allowed(uid, &target, result, now),
            Outcome::Deleted { target, uid: chaperon, result } => {
                self.deleted(uid, &target, (chaperon, result), now);
            }
            Outcome::Bound(result) => self.bound(uid, result, now),
            Outcome::Granted(result) => self.granted(uid, result, now),
            Outcome::Reread(live) => {
                self.end_call(uid);
                if matches!(live, Live::Unknown(_)) {
                    self.back_off(uid, now);
                }
                self.reread(uid, live, now);
            }
            Outcome::Explained(result) => self.explained(uid, result, now),
        }
        self.count_in(uid);
        self.touch(uid);
    }

    /// Any answer of an API server shows that it does its work.
    fn reached(&mut self, outcome: &Outcome, now: Duration) {
        let target = match outcome {
            Outcome::Created { target, result: Ok(_), .. }
            | Outcome::Renewed { target, result: Ok(_) | Err(Live::Found(_) | Live::Gone), .. }
            | Outcome::Allowed { target, result: Ok(_) | Err(Live::Found(_) | Live::Gone) }
            | Outcome::Deleted { target, result: Ok(()), .. } => target,
            Outcome::Created { .. }
            | Outcome::Forgone { .. }
            | Outcome::Renewed { .. }
            | Outcome::Allowed { .. }
            | Outcome::Deleted { .. }
            | Outcome::Bound(_)
            | Outcome::Granted(_)
            | Outcome::Reread(_)
            | Outcome::Explained(_) => return,
        };
        let sent = match outcome {
            Outcome::Created { sent, .. } => *sent,
            Outcome::Renewed { sent, result: Ok(_), .. } => Some(*sent),
            // A failure took a live read as well, and others are not timed.
            _ => None,
        };
        if let Some(target) = self.targets.get_mut(target) {
            self.reopened |= target.reached(now);
            if let Some(sent) = sent {
                target.call_took(sent, now);
            }
        }
    }

    fn created(
        &mut self,
        uid: &Id,
        id: &Id,
        (sent, result): (Option<Duration>, Result<ChaperonSeen, Failure>),
        now: Duration,
    ) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let namespace = Arc::clone(&pod.seen.name.namespace);
        let class = pod.wish().map(|wish| Arc::clone(&wish.class));
        if !self.targets.contains_key(id) {
            // The target was taken away meanwhile; what is there is read when it comes back.
            return;
        }
        let ask = pod.asks.entry(Arc::clone(id)).or_default();
        ask.call = None;
        match result {
            Ok(chaperon) => {
                ask.succeeded();
                let attempt = chaperon.attempt;
                let spoken = ask.absorb(chaperon);
                if let Some(sent) = sent {
                    ask.asked(attempt, sent);
                }
                if spoken {
                    self.heard(uid, id, now);
                }
                if let (Some(class), Some(target)) = (class, self.targets.get_mut(id)) {
                    self.reopened |= target.recover(&namespace, &class);
                }
            }
            Err(failure) => self.raise_barrier(uid, id, failure, now),
        }
        self.track(uid, id, now);
    }

    fn forgone(&mut self, uid: &Id, id: &Id, now: Duration) {
        if let Some(ask) = self.pods.get_mut(uid).and_then(|pod| pod.asks.get_mut(id)) {
            ask.call = None;
            self.track(uid, id, now);
        }
    }

    fn renewed(
        &mut self,
        uid: &Id,
        id: &Id,
        (sent, result): (Duration, Result<ChaperonSeen, Live<ChaperonSeen>>),
        now: Duration,
    ) {
        let Some(ask) = self.pods.get_mut(uid).and_then(|pod| pod.asks.get_mut(id)) else { return };
        ask.call = None;
        match result {
            Ok(chaperon) => {
                ask.succeeded();
                let attempt = chaperon.attempt;
                let spoken = ask.absorb(chaperon);
                ask.asked(attempt, sent);
                if spoken {
                    self.heard(uid, id, now);
                }
            }
            Err(Live::Found(chaperon)) => {
                ask.not_renewed();
                let spoken = ask.absorb(*chaperon);
                self.owe(uid, id, now);
                if spoken {
                    self.heard(uid, id, now);
                }
            }
            Err(Live::Gone) => {
                ask.succeeded();
                ask.vanished();
            }
            Err(Live::Unknown(_)) => {
                ask.not_renewed();
                self.owe(uid, id, now);
            }
        }
        self.track(uid, id, now);
    }

    fn allowed(
        &mut self,
        uid: &Id,
        id: &Id,
        result: Result<ChaperonSeen, Live<ChaperonSeen>>,
        now: Duration,
    ) {
        let Some(ask) = self.pods.get_mut(uid).and_then(|pod| pod.asks.get_mut(id)) else { return };
        ask.call = None;
        match result {
            Ok(chaperon) => {
                ask.succeeded();
                ask.absorb(chaperon);
            }
            Err(Live::Found(chaperon)) => {
                // Somebody wrote first; the same again on what is there now.
                ask.absorb(*chaperon);
                self.owe(uid, id, now);
            }
            // It was elected and is gone: the feedback controller ends its pod.
            Err(Live::Gone) => {
                ask.succeeded();
                ask.vanished();
            }
            Err(Live::Unknown(_)) => self.owe(uid, id, now),
        }
        self.track(uid, id, now);
    }

    fn deleted(&mut self, uid: &Id, id: &Id, (chaperon, result): (Id, Result<(), Failure>), now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let gone = pod.gone;
        let Some(ask) = pod.asks.get_mut(id) else { return };
        ask.call = None;
        match result {
            // What a pod that is gone leaves is removed by the feedback controller.
            Err(_) if gone => ask.chaperon = None,
            Ok(()) => {
                ask.succeeded();
                if ask.chaperon.as_ref().is_some_and(|known| known.uid == chaperon) {
                    ask.vanished();
                } else {
                    // The watch has shown the end of it already.
                    ask.gone = None;
                }
            }
            Err(_) => self.owe(uid, id, now),
        }
        self.track(uid, id, now);
    }

    fn bound(&mut self, uid: &Id, result: Result<(), Live<PodSeen>>, now: Duration) {
        let Some(PodCall::Bind { node, election }) = self.end_call(uid) else { return };
        match result {
            Ok(()) => {
                let Some(pod) = self.pods.get_mut(uid) else { return };
                pod.seen.place = Place::Bound { node: Arc::clone(&node), election: Some(election) };
                pod.failures = 0;
                let reference = pod.reference();
                self.actions.push(Action::Scheduled { pod: reference, node });
                self.track_all(uid, now);
            }
            Err(live) => {
                let Some(pod) = self.pods.get_mut(uid) else { return };
                // A lost race is decided again at once; anything else, or losing again and again, waits.
                let lost = matches!(&live, Live::Found(seen) if seen.version != pod.seen.version);
                if lost && pod.failures < 3 {
                    pod.failures += 1;
                } else {
                    self.back_off(uid, now);
                }
                if let (Live::Unknown(_), Some(pod)) = (&live, self.pods.get_mut(uid)) {
                    pod.unclear = Some(node);
                }
                self.reread(uid, live, now);
            }
        }
    }

    fn granted(&mut self, uid: &Id, result: Result<Box<PodSeen>, Live<PodSeen>>, now: Duration) {
        self.end_call(uid);
        match result {
            Ok(seen) => {
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.failures = 0;
                }
                self.reread(uid, Live::Found(seen), now);
            }
            Err(live) => {
                self.back_off(uid, now);
                self.reread(uid, live, now);
            }
        }
    }

    /// What the pod is, after a call whose end was no success.
    fn reread(&mut self, uid: &Id, live: Live<PodSeen>, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        match live {
            Live::Found(seen) if seen.uid == *uid => {
                pod.unclear = None;
                pod.absorb(*seen, now);
                self.track_all(uid, now);
            }
            Live::Found(_) | Live::Gone => pod.gone = true,
            // It is read again until it answers.
            Live::Unknown(_) => (),
        }
    }

    fn back_off(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let at = pod.failed(now);
        self.arm(at, Timer::Pod(Arc::clone(uid)));
    }

    fn explained(&mut self, uid: &Id, result: Result<String, Failure>, now: Duration) {
        let Some(PodCall::Explain(message)) = self.end_call(uid) else { return };
        let Some(pod) = self.pods.get_mut(uid) else { return };
        match result {
            Ok(version) => {
                pod.told = Some(message);
                pod.tell_after = now + TELL_AGAIN;
                pod.seen_version(version);
            }
            // The pod has changed or the API server is busy; what is true then is told then.
            Err(_) => {
                let at = now + TELL_RETRY;
                pod.tell_after = at;
                self.arm(at, Timer::Pod(Arc::clone(uid)));
            }
        }
    }

    fn end_call(&mut self, uid: &Id) -> Option<PodCall> {
        self.pods.get_mut(uid).and_then(|pod| pod.call.take())
    }

    /// The pod's place has changed, and with it what targets hold for it.
    pub(super) fn track_all(&mut self, uid: &Id, now: Duration) {
        let ids: Vec<Id> = self.pods.get(uid).into_iter().flat_map(|pod| pod.asks.keys().cloned()).collect();
        for id in &ids {
            self.track(uid, id, now);
        }
    }
}
