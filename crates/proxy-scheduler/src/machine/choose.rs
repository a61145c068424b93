//! Which target is asked next.

use super::Machine;
use super::model::{Id, Preference, Width};
use super::pod::PodState;
use super::target::{PROBES, Target};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// A target that may be asked, best first in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Choice {
    pub(super) silent: bool,
    /// Place in the pod's own order and in that of the targets: the lowest is filled first.
    pub(super) order: (usize, i32),
    full: bool,
    /// How far its share is used up; the least comes first. 0 where no target has a weight.
    used: u64,
    score: Reverse<i64>,
    pub(super) id: Id,
}

/// A hundredth of a target's room weighs as much as one point of a preference.
const POINT: i64 = 10_000;

impl Choice {
    /// Adds points of a preference.
    pub(super) fn prefer(&mut self, points: i64) {
        self.score.0 += points * POINT;
    }
}

impl Machine {
    /// Whether a pod may be bound to a target now: what is known of it holds, and the constraints allow it.
    pub(super) fn is_electable(&self, uid: &Id, id: &Id) -> bool {
        self.targets.get(id).is_some_and(Target::is_fresh) && self.admits(uid, id)
    }

    /// Whether a target that was asked may be asked again now.
    pub(super) fn is_renewable(&self, uid: &Id, id: &Id, doubted: bool, now: Duration) -> bool {
        let Some(target) = self.targets.get(id) else { return false };
        // Of what was never seen there, silence is what is to be found out about.
        let open = if doubted { target.fault(now).is_none() } else { target.is_callable(now) };
        open && self.admits(uid, id)
    }

    fn admits(&self, uid: &Id, id: &Id) -> bool {
        let (Some(pod), Some(target)) = (self.pods.get(uid), self.targets.get(id)) else { return false };
        let Some(wish) = pod.wish() else { return false };
        target.serves(&pod.seen.name.namespace)
            && self.gang_target(uid).is_none_or(|only| only == *id)
            && self.claims_refuse(uid, id).is_none()
            && self.ranker.admits(&wish.info, id)
    }

    /// Whether a target may be asked now that is not asked yet.
    pub(super) fn may_ask(&self, uid: &Id, choice: &Choice, now: Duration) -> bool {
        self.stands_open(uid, choice, now) && !self.is_queued(uid, choice, now) && !self.is_crowded(choice)
    }

    fn is_crowded(&self, choice: &Choice) -> bool {
        self.targets.get(&choice.id).is_some_and(Target::is_crowded)
    }

    /// Whether a target would be asked, if only fewer waited there.
    pub(super) fn waits_for_crowd(&self, uid: &Id, now: Duration) -> bool {
        let crowded = |choice: &Choice| self.is_crowded(choice) && self.stands_open(uid, choice, now);
        self.ranked(uid, now).iter().any(crowded)
    }

    /// Whether enough of the pod's like wait at the target already, so that it is not asked for more.
    pub(super) fn is_queued(&self, uid: &Id, choice: &Choice, now: Duration) -> bool {
        let (Some(pod), Some(target)) = (self.pods.get(uid), self.targets.get(&choice.id)) else {
            return false;
        };
        let Some(wish) = pod.wish() else { return false };
        (choice.full || choice.silent)
            && target.held(&wish.class) >= PROBES
            && self.stands_open(uid, choice, now)
    }

    /// Whether nothing is known that speaks against asking a target.
    fn stands_open(&self, uid: &Id, choice: &Choice, now: Duration) -> bool {
        let (Some(pod), Some(target)) = (self.pods.get(uid), self.targets.get(&choice.id)) else {
            return false;
        };
        let Some(wish) = pod.wish() else { return false };
        let asked = pod.asks.get(&choice.id).is_some_and(|ask| !ask.is_over());
        !asked
            && target.fault(now).is_none()
            && target.closed(&wish.class, now).is_none()
            && target.may_try(&pod.seen.name.namespace, &wish.class, now)
    }

    /// The targets that the pod's constraints and its group allow, best first.
    pub(super) fn ranked(&self, uid: &Id, now: Duration) -> Vec<Choice> {
        let mut choices = self.ranked_alone(uid, now);
        if let Some(only) = self.gang_target(uid) {
            choices.retain(|choice| choice.id == only);
        }
        choices
    }

    /// The targets that the pod's constraints allow, best first. Room is a preference: only a target knows.
    pub(super) fn ranked_alone(&self, uid: &Id, now: Duration) -> Vec<Choice> {
        let Some(pod) = self.pods.get(uid) else { return Vec::new() };
        let Some(wish) = pod.wish() else { return Vec::new() };
        let scores: BTreeMap<Id, i64> = self.ranker.judge(&wish.info).fit.into_iter().collect();
        let mut choices = Vec::with_capacity(scores.len());
        let request = wish.info.spec.request_list();
        for (id, score) in scores {
            let Some(target) = self.targets.get(&id) else { continue };
            if !target.serves(&pod.seen.name.namespace) || self.claims_refuse(uid, &id).is_some() {
                continue;
            }
            let preference = &wish.preference;
            let place = preference.order.iter().position(|name| **name == *target.seen.name);
            let order = (place.unwrap_or(preference.order.len()), target.seen.order);
            let (fits, share) = target.room(&request);
            let score = Reverse(score * POINT + share);
            choices.push(Choice { silent: target.is_shunned(now), order, full: !fits, used: 0, score, id });
        }
        self.weigh(pod, &wish.preference, &mut choices);
        self.score_in(&wish.preference.scores, &mut choices, now);
        choices.sort();
        choices
    }

    /// Sees how far the share of each target is used up, if any of them has a weight.
    fn weigh(&self, pod: &PodState, preference: &Preference, choices: &mut [Choice]) {
        let weight = |choice: &Choice| {
            let target = &self.targets.get(&choice.id)?.seen;
            preference.weights.get(&*target.name).copied().or(target.weight)
        };
        if !choices.iter().any(|choice| weight(choice).is_some()) {
            return;
        }
        for choice in choices {
            let with_this = u64::from(self.shares.of(pod.seen.group, &choice.id)) + 1;
            let parts = with_this.saturating_mul(1_000_000);
            // A target without a share takes only what nobody else does.
            choice.used = parts.checked_div(u64::from(weight(choice).unwrap_or(1))).unwrap_or(u64::MAX);
        }
    }

    /// The pod's wish, else that of the best target which has one, else one at a time.
    pub(super) fn width(&self, uid: &Id, now: Duration) -> Width {
        let own = self.pods.get(uid).and_then(|pod| pod.wish()).and_then(|wish| wish.width);
        let theirs = || {
            let ranked = self.ranked(uid, now);
            ranked.iter().find_map(|choice| self.targets.get(&choice.id).and_then(|target| target.seen.width))
        };
        let any = self.targets.values().any(|target| target.seen.width.is_some());
        own.or_else(|| if any { theirs() } else { None }).unwrap_or(Width::Some(1))
    }
}
