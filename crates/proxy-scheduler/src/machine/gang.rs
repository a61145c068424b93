//! Groups: pods that are placed together or not at all.
//!
//! Targets are asked for all pods of a group, and nobody is bound before enough of them are reserved at once. One group
//! has its turn at a time: two that both fit alone never hold half of the room each. A group that does not fit gives
//! everything back and rests, longer each time and each group for its own time, so that groups of other sources get
//! their chance as well.

use super::model::{Group, GroupKind, GroupSeen, Id, Place};
use super::pod::{Answer, AskCall, PodState, Waits};
use super::{Machine, Timer};
use api::keys;
use runtime::queue::jitter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a group holds what it has been promised while no further pod of it is promised a place.
const TURN: Duration = Duration::from_secs(10);
/// How long at most, however it gets on: others wait. Promises that run out in the meantime are renewed.
const TURN_LAST: Duration = Duration::from_secs(120);
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
    /// So many of them must fit at once; `None` while nobody says.
    least: Option<usize>,
    together: bool,
    /// Enough of it are placed, or are being placed: whoever is left follows as any pod does.
    goes: bool,
    /// The one target for all of them.
    target: Option<Id>,
    /// Targets that could not take them since the last rest.
    tried: BTreeSet<Id>,
    /// Members for whom nobody is left to ask in this turn.
    barren: BTreeSet<Id>,
    /// Until when what it holds must be complete, or at least have become more.
    until: Option<Duration>,
    /// Since when it has had its turn.
    began: Duration,
    /// Most that it has been promised in its turn.
    most: usize,
    rests: Option<Duration>,
    failures: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Gangs {
    all: BTreeMap<Id, Gang>,
    /// PodGroups: how many must fit at once, `None` for pods that are placed one by one.
    objects: BTreeMap<(GroupKind, Id), Option<usize>>,
    /// Whose turn it is.
    turn: Option<Id>,
}

impl Gangs {
    /// How many of a pod's group must fit at once, if anybody says, and whether in one target.
    fn terms(&self, group: &Group) -> (Option<usize>, bool) {
        if group.least.is_some() {
            return (group.least, group.together);
        }
        match self.objects.get(&(group.kind, Arc::clone(&group.name))) {
            None => (None, group.together),
            Some(Some(least)) => (Some(*least), group.together),
            Some(None) => (Some(1), false),
        }
    }
}

impl Machine {
    /// Counts a pod among its group, or not any more.
    pub(super) fn muster(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let Some(group) = pod.seen.gang.clone() else { return };
        // One that has finished was placed.
        let lives = !pod.gone && !pod.seen.terminating && (!pod.seen.finished || pod.wish().is_none());
        let (least, together) = self.gangs.terms(&group);
        let gang = self.gangs.all.entry(Arc::clone(&group.name)).or_default();
        (gang.least, gang.together) = (least, together);
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
        if least.is_none_or(|least| count < least) {
            self.end_turn(&group.name);
        }
        if least == Some(count) || !lives {
            self.touch_gang(&group.name);
        }
        self.judge_gang(&group.name, now);
    }

    pub(super) fn groups_replaced(&mut self, kind: GroupKind, groups: Vec<GroupSeen>, now: Duration) {
        let listed: BTreeSet<&Id> = groups.iter().map(|group| &group.name).collect();
        let known = self.gangs.objects.keys().filter(|(of, name)| *of == kind && !listed.contains(name));
        for (_, name) in known.cloned().collect::<Vec<_>>() {
            self.group_deleted(kind, &name, now);
        }
        for group in groups {
            self.group_applied(kind, group, now);
        }
    }

    pub(super) fn group_applied(&mut self, kind: GroupKind, group: GroupSeen, now: Duration) {
        let name = Arc::clone(&group.name);
        if self.gangs.objects.insert((kind, group.name), group.least) != Some(group.least) {
            self.regroup(&name, now);
        }
    }

    pub(super) fn group_deleted(&mut self, kind: GroupKind, name: &Id, now: Duration) {
        if self.gangs.objects.remove(&(kind, Arc::clone(name))).is_some() {
            self.regroup(name, now);
        }
    }

    /// A PodGroup says something else, which counts for pods that do not say it themselves.
    fn regroup(&mut self, name: &Id, now: Duration) {
        let Some(gang) = self.gangs.all.get(name) else { return };
        let member = gang.members.iter().find_map(|uid| self.pods.get(uid)?.seen.gang.clone());
        let Some(terms) = member.map(|group| self.gangs.terms(&group)) else { return };
        let Some(gang) = self.gangs.all.get_mut(name) else { return };
        (gang.least, gang.together) = terms;
        if gang.goes {
            return;
        }
        if gang.least.is_none_or(|least| gang.members.len() < least) {
            self.end_turn(name);
        }
        self.touch_gang(name);
        self.judge_gang(name, now);
    }

    /// The time of a group has come: its turn, or its rest, is over.
    pub(super) fn gang_time(&mut self, name: &Id, now: Duration) {
        let Some(gang) = self.gangs.all.get(name) else { return };
        match gang.until.filter(|until| *until > now && self.gangs.turn.as_ref() == Some(name)) {
            // It has got on since.
            Some(until) => self.arm(until, Timer::Gang(Arc::clone(name))),
            None => self.touch_gang(name),
        }
    }

    /// All pods of a group are to be decided about.
    pub(super) fn touch_gang(&mut self, name: &Id) {
        let members: Vec<Id> =
            self.gangs.all.get(name).into_iter().flat_map(|gang| gang.members.iter().cloned()).collect();
        members.iter().for_each(|uid| self.touch(uid));
    }

    /// The one target of a pod's group, if it is to be one and there is one already.
    pub(super) fn gang_target(&self, uid: &Id) -> Option<Id> {
        let group = self.pods.get(uid)?.seen.gang.as_ref()?;
        let gang = self.gangs.all.get(&group.name).filter(|gang| gang.together)?;
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
        let (least, together) = (gang.least, gang.together);
        let short = group.name.rsplit('/').next().unwrap_or_default().to_owned();
        let Some(least) = least else {
            let key = keys::GROUP_MIN_MEMBER;
            let message = format!("group {short} waits for its PodGroup, or for annotation {key}.");
            self.stand_back(uid, (message, TELL), now);
            return false;
        };
        if count < least {
            let message = format!("group {short} has {count} of the {least} pods that it needs.");
            self.stand_back(uid, (message, TELL), now);
            return false;
        }
        if rests.is_some() {
            let reasons = self.explanation(uid, now);
            let message = format!("group {short} waits until {least} of its pods fit at once: {reasons}");
            self.stand_back(uid, (message, Duration::ZERO), now);
            return false;
        }
        if !self.take_turn(&group.name, now) {
            let message = format!("group {short} waits for its turn: another one is being placed.");
            self.stand_back(uid, (message, TELL), now);
            return false;
        }
        if together && self.gang_target(uid).is_none() && !self.choose_for_gang(uid, &group.name, now) {
            self.fail_gang(&group.name, now);
            return false;
        }
        if let Some(target) = self.gang_target(uid) {
            // What was under way to another target when the group gave it up.
            self.withdraw(uid, Some(&target), now);
        }
        self.renew(uid, now);
        self.mind_promises(uid, now);
        let asked = self.widen_beside_grant(uid, now)
            || self.waits_for_crowd(uid, now)
            || self.is_in_queue(uid, now)
            || self.is_yet_to_be_answered(uid, now);
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

    /// What a pod is promised is to be asked for anew before it has run out.
    fn mind_promises(&mut self, uid: &Id, now: Duration) {
        let Some(pod) = self.pods.get(uid) else { return };
        let ends = pod.asks.values().filter_map(|ask| ask.margin_ends().filter(|end| *end >= now));
        if let Some(end) = ends.min() {
            self.arm(end + Duration::from_millis(1), Timer::Pod(Arc::clone(uid)));
        }
    }

    /// Whether a target that answers others has not answered for the pod: of a large group the last one waits long.
    fn is_yet_to_be_answered(&self, uid: &Id, now: Duration) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        let answers = |id: &Id| self.targets.get(id).is_some_and(|target| !target.is_shunned(now));
        pod.asks.iter().any(|(id, ask)| ask.answer() == Answer::Waiting && answers(id))
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
            (gang.until, gang.began, gang.most) = (Some(until), now, 0);
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
        let least = gang.least.unwrap_or(1);
        let roomy = |id: &Id| {
            self.targets.get(id).is_some_and(|target| target.has_room_for(&info.spec.request_list(), least))
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
        let Some(least) = gang.least else { return };
        let answered = gang.members.iter().filter(|uid| self.is_answered(uid)).count();
        // Judging promises takes longer than counting them.
        let complete = answered >= least
            && gang.members.iter().filter(|uid| self.is_promised(uid, now)).count() >= least;
        if complete {
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
        let hopeful = gang.members.len().saturating_sub(gang.barren.len());
        if answered > gang.most
            && let Some(gang) = self.gangs.all.get_mut(name)
        {
            gang.most = answered;
            gang.until = Some((now + TURN).min(gang.began + TURN_LAST));
        }
        let Some(gang) = self.gangs.all.get(name) else { return };
        if hopeful < least || gang.until.is_some_and(|until| until <= now) {
            self.fail_gang(name, now);
        }
    }

    /// Whether a member is bound, or a target has answered that it has a place.
    fn is_answered(&self, uid: &Id) -> bool {
        let Some(pod) = self.pods.get(uid) else { return false };
        pod.wish().is_none() || pod.asks.values().any(|ask| ask.answer() == Answer::Reserved)
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
