//! Whether a target answers.

use super::super::model::Id;
use super::Target;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Asks that wait, and no sign from the target for so long: others are asked as well.
pub(crate) const HEDGE: Duration = Duration::from_millis(500);
/// So many times what its own calls take may a busy target say nothing: an answer takes it some calls.
const CALLS: u32 = 4;
/// However slow its calls are, no longer than this.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a slow call tells that its target is busy.
const BUSY: Duration = Duration::from_secs(5);
/// A judgement that comes so much too late says that we are slow ourselves, and that more is yet to be heard.
const LATE: Duration = Duration::from_millis(50);
/// So long is listened once more then.
const ONCE_MORE: Duration = Duration::from_millis(250);
/// A silent target's asks are given up in growing steps, so that a short stall costs few further asks.
pub(super) const RAMP_FIRST: usize = 16;
const RAMP_PAUSE: Duration = Duration::from_millis(100);
/// An ask that a target overlooks although it answers others is given up after so long.
const OVERLOOKED: Duration = Duration::from_secs(30);
/// How often a silent target is asked all the same, to learn whether it is back.
const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// So many asks wait at a target at a time. More would only wait there instead of here, and their promises
/// would be short before they are given.
const CROWD: usize = 1000;
/// When so few are left, the next are let through.
const RELIEF: usize = CROWD * 3 / 4;

/// What an ask waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errand {
    /// That the call arrives: any answer of the API server, any event, shows that it does its work.
    Call,
    /// That the candidate scheduler answers: only its own words show that it does its work, and an echo of
    /// ours does not.
    Answer,
}

/// Those who wait for one of two, and when it was last heard.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    /// Who is not given up, longest waiting first.
    waiting: BTreeSet<(Duration, Id)>,
    heard: Duration,
}

/// The slowest call of late.
#[derive(Debug, Default)]
pub(super) struct Pace {
    took: Duration,
    ended: Duration,
}

impl Vigil {
    /// When silence begins, if nothing is heard.
    fn due(&self, patience: Duration) -> Option<Duration> {
        self.waiting.first().map(|(oldest, _)| (*oldest).max(self.heard) + patience)
    }

    /// Takes out those who have waited since before `limit`, and then at most so many more.
    fn give_up(&mut self, limit: Option<Duration>, more: usize) -> Vec<Id> {
        let overlooked =
            self.waiting.iter().take_while(|(since, _)| limit.is_some_and(|limit| *since <= limit));
        let count = overlooked.count() + more;
        let given_up: Vec<_> = self.waiting.iter().take(count).cloned().collect();
        for who in &given_up {
            self.waiting.remove(who);
        }
        given_up.into_iter().map(|(_, pod)| pod).collect()
    }
}

impl Target {
    /// The candidate scheduler has given a sign of life. Says whether the target was silent before.
    pub(crate) fn sign(&mut self, now: Duration) -> bool {
        self.answers.heard = now;
        self.calls.heard = now;
        self.ramp = RAMP_FIRST;
        std::mem::take(&mut self.silent)
    }

    /// The API server has given a sign of life. Says whether the watch failed before.
    pub(crate) fn reached(&mut self, now: Duration) -> bool {
        self.calls.heard = now;
        self.watch_works()
    }

    /// A call succeeded that was sent then.
    pub(crate) fn call_took(&mut self, sent: Duration, now: Duration) {
        let took = now.saturating_sub(sent);
        if took >= self.pace.took || self.pace.ended + BUSY <= now {
            self.pace = Pace { took, ended: now };
        }
    }

    /// How long it may say nothing before that is silence.
    fn patience(&self, now: Duration) -> Duration {
        let busy = self.pace.ended + BUSY > now;
        if busy { (self.pace.took * CALLS).clamp(HEDGE, PATIENCE) } else { HEDGE }
    }

    fn due(&self, now: Duration) -> Option<Duration> {
        let patience = self.patience(now);
        [self.calls.due(patience), self.answers.due(patience)].into_iter().flatten().min()
    }

    fn vigil(&mut self, errand: Errand) -> &mut Vigil {
        match errand {
            Errand::Call => &mut self.calls,
            Errand::Answer => &mut self.answers,
        }
    }

    pub(crate) fn wait_for(&mut self, (errand, since): (Errand, Duration), pod: &Id) {
        self.vigil(errand).waiting.insert((since, Arc::clone(pod)));
    }

    pub(crate) fn stop_waiting(&mut self, (errand, since): (Errand, Duration), pod: &Id) {
        if self.vigil(errand).waiting.remove(&(since, Arc::clone(pod))) {
            self.relieved |= self.waits() == RELIEF;
        }
    }

    fn waits(&self) -> usize {
        self.calls.waiting.len() + self.answers.waiting.len()
    }

    /// Whether so many asks wait there that the next had better wait here.
    pub(crate) fn is_crowded(&self) -> bool {
        self.waits() >= CROWD
    }

    /// Whether others may be asked for since this was last called.
    pub(crate) fn take_relief(&mut self) -> bool {
        std::mem::take(&mut self.relieved)
    }

    /// Judges silence and returns the asks to give up now. When to look again stands in `listens_at`, which was
    /// to be `late` ago.
    pub(crate) fn listen(&mut self, now: Duration, late: Duration) -> Vec<Id> {
        let due = self.due(now);
        let silent = due.is_some_and(|due| due <= now || self.silent);
        if silent && !self.silent && late >= LATE && !std::mem::replace(&mut self.deferred, true) {
            self.listens_at = Some(now + ONCE_MORE);
            return Vec::new();
        }
        self.deferred = false;
        let mut hedged = 0;
        if silent {
            if !self.silent {
                self.silent = true;
                self.probe_at = now + PROBE_PAUSE;
            }
            hedged = self.ramp;
            self.ramp = self.ramp.saturating_mul(2);
        }
        let crowded = self.is_crowded();
        let limit = now.checked_sub(OVERLOOKED);
        let mut given_up = self.answers.give_up(limit, hedged);
        given_up.extend(self.calls.give_up(limit, hedged.saturating_sub(given_up.len())));
        self.relieved |= crowded && !self.is_crowded();
        self.listens_at = self.due(now).map(|due| if silent { now + RAMP_PAUSE } else { due });
        given_up
    }

    /// Whether the target is to be avoided as silent. Now and then it is not, to learn whether it is back.
    pub(crate) fn is_shunned(&self, now: Duration) -> bool {
        self.shunned_until(now).is_some()
    }

    pub(crate) fn shunned_until(&self, now: Duration) -> Option<Duration> {
        Some(self.probe_at).filter(|at| self.silent && now < *at)
    }

    /// The target is asked. While it is silent, says when it may be asked again in passing.
    pub(crate) fn probed(&mut self, now: Duration) -> Option<Duration> {
        if !self.silent {
            return None;
        }
        self.probe_at = now + PROBE_PAUSE;
        Some(self.probe_at)
    }
}
