//! Groups: pods that are placed together or not at all.
//!
//! Targets are asked for all pods of a group, and nobody is bound before enough of them are reserved at once. One group
//! has its turn at a time: two that both fit alone never hold half of the room each. A group that does not fit gives
//! everything back and rests, longer each time and each group for its own time, so that groups of other sources get
//! their chance as well.

use super::model::{Id, Place};
use super::pod::{Answer, AskCall, PodState, Waits};
use super::{Machine, Timer};
use runtime::queue::jitter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a group holds what it has been promised while it waits for the rest; much shorter than a promise.
const TURN: Duration = Duration::from_secs(10);
/// The first rest of a group that does not fit; doubled each time.
const REST_FIRST: Duration = Duration::from_secs(2);
const REST_LAST: Duration = Duration::from_secs(60);
/// A group whose pods are still being created, or that waits for its turn, is not mentioned to the user before.
const TELL: Duration = Duration::from_secs(2);

/// One group, as long as any of its pods is there.
#[derive(Debug, Default)]
struct Gang {
    /// Pods that are neither gone nor being deleted.
    members: BTreeSet<Id>,
    /// So many of them must fit at once.
    least: usize,
    together: bool,
    /// Enough of it are placed, or are being placed: whoever is left follows as any pod does.
    goes: bool,
    /// The one target for all of them.
    target: Option<Id>,
    /// Targets that could not take them since the last rest.
    tried: BTreeSet<Id>,
    /// Members for whom nobody is left to ask in this turn.
    barren: BTreeSet<Id>,
    /// Until when what it holds must be complete.
    until: Option<Duration>,
    rests: Option<Duration>,
    failures: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Gangs {
    all: BTreeMap<Id, Gang>,
    /// Whose turn it is.
    turn: Option<Id>,
}

impl Machine {
    /// Counts a pod among its group, or not any more.
    pub(super) fn muster(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Some(group) = pod.seen.gang.clone() else { return };
        // One that has finished was placed.
        let lives = !pod.gone && !pod.seen.terminating && (!pod.seen.finished || pod.wish().is_none());
        let gang = self.gangs.all.entry(Arc::clone(&group.name)).or_default();
        (gang.least, gang.together) = (group.least, group.together);
        let changed = if lives { gang.members.insert(Arc::clone(uid)) } else { gang.members.remove(uid) };
        if !changed {
            return;
        }
        gang.barren.remove(uid);
        let (count, goes) = (gang.members.len(), gang.goes);
        if count == 0 {
            self.gangs.all.remove(&group.name);
        }
        if goes {
            return;
        }
        if count < group.least {
            self.end_turn(&group.name);
        }
        if count == group.least || !lives {
            self.touch_gang(&group.name);
        }
        self.judge_gang(&group.name, now);
    }

    /// All pods of a group are to be decided about.
    pub(super) fn touch_gang(&mut self, name: &Id) {
        let members: Vec<Id> =
            self.gangs.all.get(name).into_iter().flat_map(|gang| gang.members.iter().cloned()).collect();
        members.iter().for_each(|uid| self.touch(uid));
    }

    /// The one target of a pod's group, if it is to be one and there is one already.
    pub(super) fn gang_target(&self, uid: &Id) -> Option<Id> {
        let group = self.pods.get(uid)?.seen.gang.as_ref().filter(|group| group.together)?;
        let gang = self.gangs.all.get(&group.name)?;
        let bound = gang.members.iter().find_map(|member| match &self.pods.get(member)?.seen.place {
            Place::Bound { node, .. } => Some(Arc::clone(node)),
            Place::Unbound(_) => None,
        });
        bound.or_else(|| gang.target.clone())
    }

    /// Whether a pod may be placed by itself: it has no group, or its group goes. Else sees to the group.
    pub(super) fn goes_with_gang(&mut self, uid: &Id, now: Duration) -> bool {
        let Some(pod) = self.pods.get(uid) else { return true };
        let Some(group) = pod.seen.gang.clone() else { return true };
        self.judge_gang(&group.name, now);
        let Some(gang) = self.gangs.all.get(&group.name) else { return true };
        if gang.goes {
            return true;
        }
        let (count, rests) = (gang.members.len(), gang.rests.filter(|until| *until > now));
        let short = group.name.rsplit('/').next().unwrap_or_default().to_owned();
        if count < group.least {
            let message = format!("group {short} has {count} of the {} pods that it needs.", group.least);
            self.stand_back(uid, (message, TELL), now);
            return false;
        }
        if rests.is_some() {
            let reasons = self.explanation(uid, now);
            let message =
                format!("group {short} waits until {} of its pods fit at once: {reasons}", group.least);
            self.stand_back(uid, (message, Duration::ZERO), now);
            return false;
        }
        if !self.take_turn(&group.name, now) {
            let message = format!("group {short} waits for its turn: another one is being placed.");
            self.stand_back(uid, (message, TELL), now);
            return false;
        }
        if group.together && self.gang_target(uid).is_none() && !self.choose_for_gang(uid, &group.name, now) {
            self.fail_gang(&group.name, now);
            return false;
        }
        if let Some(target) = self.gang_target(uid) {
            // What was under way to another target when the group gave it up.
            self.withdraw(uid, Some(&target), now);
        }
        self.renew(uid, now);
        let asked =
            self.widen_beside_grant(uid, now) || self.waits_for_crowd(uid, now) || self.is_in_queue(uid, now);
        self.count(uid, Some(Waits::Asking));
        if let Some(gang) = self.gangs.all.get_mut(&group.name) {
            if asked {
                gang.barren.remove(uid);
            } else {
                gang.barren.insert(Arc::clone(uid));
            }
        }
        self.judge_gang(&group.name, now);
        // Whoever is let go now is decided about next.
        false
    }

    fn is_in_queue(&self, uid: &Id, now: Duration) -> bool {
        self.ranked(uid, now).iter().any(|choice| self.is_queued(uid, choice, now))
    }

    /// Nobody is asked for the pod; the user is told why once it has waited for some time.
    fn stand_back(&mut self, uid: &Id, (message, patience): (String, Duration), now: Duration) {
        self.count(uid, Some(Waits::Held));
        let Some(pod) = self.pods.get(uid) else { return };
        let (key, due) = ((pod.number, Arc::clone(uid)), pod.since + patience);
        self.hungry.remove(&key);
        self.withdraw(uid, None, now);
        if now < due {
            return self.arm(due, Timer::Pod(Arc::clone(uid)));
        }
        self.tell(uid, message, now);
    }

    /// A target offers something else: whoever rests need not rest for long.
    pub(super) fn wake_gangs(&mut self, now: Duration) {
        let mut woken = Vec::new();
        for (name, gang) in &mut self.gangs.all {
            let soon = now + jitter(REST_FIRST, name);
            if let Some(rests) = gang.rests.as_mut().filter(|until| **until > soon) {
                *rests = soon;
                woken.push((soon, Timer::Gang(Arc::clone(name))));
            }
        }
        self.timers.extend(woken);
    }

    /// Whether it is the group's turn; it is if it is nobody's.
    fn take_turn(&mut self, name: &Id, now: Duration) -> bool {
        if self.gangs.turn.as_ref().is_some_and(|turn| turn != name) {
            return false;
        }
        let begins = self.gangs.turn.replace(Arc::clone(name)).is_none();
        let Some(gang) = self.gangs.all.get_mut(name) else { return false };
        if begins || gang.until.is_none() {
            let until = now + TURN;
            gang.until = Some(until);
            gang.rests = None;
            gang.barren.clear();
            self.arm(until, Timer::Gang(Arc::clone(name)));
        }
        true
    }

    /// Somebody else's turn.
    fn end_turn(&mut self, name: &Id) {
        if self.gangs.turn.as_ref() != Some(name) {
            return;
        }
        self.gangs.turn = None;
        if let Some(gang) = self.gangs.all.get_mut(name) {
            gang.until = None;
        }
        let waiting: Vec<Id> =
            self.gangs.all.iter().filter(|(_, gang)| !gang.goes).map(|(name, _)| Arc::clone(name)).collect();
        waiting.iter().for_each(|name| self.touch_gang(name));
    }

    /// Picks the target for the whole group: one that shows room for all before one that does not.
    fn choose_for_gang(&mut self, uid: &Id, name: &Id, now: Duration) -> bool {
        let Some(gang) = self.gangs.all.get(name) else { return false };
        let asked = self.pods.get(uid).and_then(|pod| pod.wish()).map(|wish| Arc::clone(&wish.info));
        let Some(info) = asked else { return false };
        let usable = |id: &Id| self.targets.get(id).is_some_and(|target| target.fault(now).is_none());
        let roomy = |id: &Id| {
            self.targets
                .get(id)
                .is_some_and(|target| target.has_room_for(info.spec.request_list(), gang.least))
        };
        let choices = self.ranked_alone(uid, now).into_iter();
        let open = choices.filter(|choice| !gang.tried.contains(&choice.id) && usable(&choice.id));
        let best = open
            .enumerate()
            .min_by_key(|(rank, choice)| (choice.silent, choice.order, !roomy(&choice.id), *rank));
        let best = best.map(|(_, choice)| choice.id);
        let Some(gang) = self.gangs.all.get_mut(name) else { return false };
        gang.target.clone_from(&best);
        gang.barren.clear();
        if best.is_some() {
            self.touch_gang(name);
        }
        best.is_some()
    }

    /// Lets the group go once enough of it are promised a place, and gives up when that cannot be any more.
    fn judge_gang(&mut self, name: &Id, now: Duration) {
        let Some(gang) = self.gangs.all.get(name).filter(|gang| !gang.goes) else { return };
        let placed = gang.members.iter().filter(|uid| self.is_promised(uid, now)).count();
        if placed >= gang.least {
            if let Some(gang) = self.gangs.all.get_mut(name) {
                gang.goes = true;
                gang.failures = 0;
            }
            self.end_turn(name);
            return self.touch_gang(name);
        }
        if self.gangs.turn.as_ref() != Some(name) {
            return;
        }
        let hopeful = gang.members.iter().filter(|uid| !gang.barren.contains(*uid)).count();
        if hopeful < gang.least || gang.until.is_some_and(|until| until <= now) {
            self.fail_gang(name, now);
        }
    }

    /// Whether a member is bound, or a target has promised it a place and may be elected.
    fn is_promised(&self, uid: &Id, now: Duration) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let ready = |pod: &PodState| {
            pod.asks.iter().any(|(id, ask)| {
                ask.answer() == Answer::Reserved
                    && ask.call != Some(AskCall::Renew)
                    && ask.has_margin(now)
                    && self.is_electable(uid, id)
            })
        };
        pod.wish().is_none() || ready(pod)
    }

    /// The group does not fit there, or nowhere: it gives back what it holds, and tries the next target or rests.
    fn fail_gang(&mut self, name: &Id, now: Duration) {
        let Some(gang) = self.gangs.all.get_mut(name) else { return };
        gang.barren.clear();
        let given_up = gang.until.is_some_and(|until| until <= now);
        let next = gang.together && !given_up && gang.target.is_some();
        gang.tried.extend(gang.target.take());
        let members: Vec<Id> = gang.members.iter().cloned().collect();
        if !next {
            gang.tried.clear();
            let rest = REST_FIRST.saturating_mul(1 << gang.failures.min(5)).min(REST_LAST);
            gang.failures = gang.failures.saturating_add(1);
            let until = now + jitter(rest, &(name, gang.failures));
            gang.rests = Some(until);
            self.arm(until, Timer::Gang(Arc::clone(name)));
            self.end_turn(name);
        }
        for uid in members {
            if self.pods.get(&uid).is_some_and(|pod| pod.wish().is_some()) {
                self.withdraw(&uid, None, now);
                self.touch(&uid);
            }
        }
    }
}
