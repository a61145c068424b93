//! The state machine of placement: what was seen goes in, what is to be done comes out.
//!
//! No clock, no network, no randomness: the same events at the same times give the same actions. The election
//! is safe whatever the machine believes, since it is one compare-and-swap on the proxy pod; all that is known
//! here serves to elect soon and well.

mod ask;
mod choose;
mod claims;
mod decide;
mod explain;
mod gang;
mod grant;
mod intake;
mod model;
mod outcome;
mod pod;
mod score;
mod share;
mod target;
#[cfg(test)]
mod tests;

use crate::rank::Ranker;
pub use model::{
    Action, ChaperonRef, ChaperonSeen, ClaimHome, ClaimSeen, Election, Event, Failure, Grant, GrantKind,
    Group, GroupKind, GroupSeen, Hold, Id, Lease, Live, Name, Outcome, Place, PodRef, PodSeen, Preference,
    Promise, Refusal, Scope, ScoreSeen, Seed, Stage, Summary, TargetSeen, Width, Wish,
};
pub use pod::Waits;
use pod::{DOUBT, PodState};
pub use score::Standing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use target::Target;

/// How long the first decisions wait for targets that have not been read, so that what an earlier process
/// asked for is known.
const OPENING: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// Decisions begin.
    Open,
    /// What failed in a target may be tried again.
    Reopen,
    /// A pod waits for this time.
    Pod(Id),
    /// Silence of a target is judged.
    Listen(Id),
    /// The time of a group has come.
    Gang(Id),
    /// A score is too old from now on.
    Score,
}

/// All proxy pods, all targets, and what is under way between them.
#[derive(Default)]
pub struct Machine {
    ranker: Ranker,
    nodes_listed: bool,
    namespaces_listed: bool,
    pods_listed: bool,
    targets_listed: bool,
    /// From then on targets that have not been read hold nothing up.
    opens_at: Option<Duration>,
    pods: BTreeMap<Id, PodState>,
    arrivals: u64,
    /// How many of them look at other pods, or at the nodes of other pods.
    picky: usize,
    targets: BTreeMap<Id, Target>,
    shares: share::Shares,
    scores: score::Scores,
    gangs: gang::Gangs,
    claims: claims::Claims,
    /// PodChaperons of pods that have not been seen, by pod and target.
    strangers: BTreeMap<Id, BTreeMap<Id, ChaperonSeen>>,
    /// Pods to decide about, in order of arrival.
    dirty: BTreeSet<(u64, Id)>,
    /// Pods that would ask further targets if there were any.
    hungry: BTreeSet<(u64, Id)>,
    /// Something has changed for the hungry.
    reopened: bool,
    timers: BTreeSet<(Duration, Timer)>,
    counts: BTreeMap<Waits, i64>,
    actions: Vec<Action>,
}

impl Machine {
    /// Takes in one event. What follows from it comes out of [`Self::settle`], best called after a batch.
    pub fn handle(&mut self, event: Event, now: Duration) {
        match event {
            Event::PodsReplaced(pods) => self.pods_replaced(pods, now),
            Event::PodApplied(pod) => self.pod_applied(pod, now),
            Event::PodDeleted(uid) => self.pod_deleted(&uid),
            Event::NodesReplaced(nodes) => {
                self.ranker.retain(&nodes);
                for node in nodes {
                    self.ranker.set(node);
                }
                self.nodes_listed = true;
                self.touch_all();
            }
            Event::NodeApplied(node) => {
                if self.ranker.set(node) {
                    self.touch_all();
                }
            }
            Event::NodeDeleted(name) => {
                self.ranker.remove(&name);
                self.touch_all();
            }
            Event::NamespacesReplaced(namespaces) => {
                for (name, labels) in namespaces {
                    self.ranker.set_namespace(&name, labels);
                }
                self.namespaces_listed = true;
                self.touch_all();
            }
            Event::NamespaceApplied(name, labels) => {
                self.ranker.set_namespace(&name, labels);
                self.reopened = true;
            }
            Event::NamespaceDeleted(name) => self.ranker.remove_namespace(&name),
            Event::ClaimsReplaced(claims) => self.claims_replaced(claims),
            Event::ClaimApplied(claim) => self.claim_applied(claim),
            Event::ClaimDeleted(name) => self.claim_deleted(&name),
            Event::ScoresReplaced(scores) => self.scores_replaced(scores, now),
            Event::ScoreApplied(score) => self.score_applied(score, now),
            Event::ScoreDeleted(object) => self.score_deleted(&object),
            Event::GroupsReplaced(kind, groups) => self.groups_replaced(kind, groups, now),
            Event::GroupApplied(kind, group) => self.group_applied(kind, group, now),
            Event::GroupDeleted(kind, name) => self.group_deleted(kind, &name, now),
            Event::Targets(targets) => self.targets_replaced(targets),
            Event::ChaperonsReplaced { target, chaperons } => {
                self.chaperons_replaced(&target, chaperons, now);
            }
            Event::ChaperonApplied { target, chaperon } => self.chaperon_applied(&target, chaperon, now),
            Event::ChaperonDeleted { target, parent, uid } => {
                self.chaperon_deleted(&target, &parent, &uid, now);
            }
            Event::SummarySeen { target, summary } => self.summary_seen(&target, summary, now),
            Event::WatchFailed { target, reason } => self.watch_failed(&target, reason, now),
            Event::WatchEnded { target } => self.watch_ended(&target),
            Event::Finished { pod, outcome } => self.finished(&pod, outcome, now),
            Event::Tick => (),
        }
    }

    /// Decides about everything that events and time have touched.
    pub fn settle(&mut self, now: Duration) -> Vec<Action> {
        self.ring(now);
        loop {
            while let Some((_, uid)) = self.dirty.pop_first() {
                self.decide(&uid, now);
            }
            if !std::mem::take(&mut self.reopened) {
                break;
            }
            self.offer(now);
        }
        std::mem::take(&mut self.actions)
    }

    /// Lets the hungry ask, in order of arrival. Where one of a class found nobody, the next of it finds nobody.
    fn offer(&mut self, now: Duration) {
        let mut barren = BTreeSet::new();
        for (_, uid) in self.hungry.clone() {
            let Some(pod) = self.pods.get(&uid) else { continue };
            let class = pod.wish().filter(|_| pod.asks.is_empty()).map(|wish| Arc::clone(&wish.class));
            if class.as_ref().is_some_and(|class| barren.contains(class)) {
                continue;
            }
            self.decide(&uid, now);
            let still = self.pods.get(&uid).is_some_and(|pod| pod.asks.is_empty());
            barren.extend(class.filter(|_| still));
        }
    }

    /// When [`Event::Tick`] is due.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// How many pods wait, by why.
    #[must_use]
    pub fn pending(&self, waits: Waits) -> i64 {
        self.counts.get(&waits).copied().unwrap_or_default()
    }

    fn arm(&mut self, at: Duration, timer: Timer) {
        self.timers.insert((at, timer));
    }

    /// Lets every timer go off whose time has come.
    fn ring(&mut self, now: Duration) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((at, timer)) = self.timers.pop_first() else { return };
            match timer {
                Timer::Open => self.touch_all(),
                Timer::Pod(uid) => self.touch(&uid),
                Timer::Reopen => self.reopened = true,
                Timer::Gang(name) => self.gang_time(&name, now),
                // Whoever ranks next sees it; metrics are shown anew.
                Timer::Score => (),
                Timer::Listen(id) => self.listen(&id, (now, now.saturating_sub(at))),
            }
        }
    }

    /// The pod is to be decided about.
    fn touch(&mut self, uid: &Id) {
        if let Some(pod) = self.pods.get(uid) {
            self.dirty.insert((pod.number, Arc::clone(uid)));
        }
    }

    /// Every pod that has no node yet is to be decided about, and every bound one whose ask is not settled.
    fn touch_all(&mut self) {
        let unsettled =
            |pod: &&PodState| pod.wish().is_some() || pod.asks.values().any(pod::Ask::is_unsettled);
        let pods = self.pods.values().filter(unsettled);
        self.dirty.extend(pods.map(|pod| (pod.number, Arc::clone(&pod.seen.uid))));
    }

    /// Gives up asks of a target that is silent.
    fn listen(&mut self, id: &Id, (now, late): (Duration, Duration)) {
        let Some(target) = self.targets.get_mut(id) else { return };
        target.age(now, false);
        let given_up = target.listen(now, late);
        self.reopened |= target.take_relief();
        if let Some(at) = target.shunned_until(now) {
            self.timers.insert((at, Timer::Reopen));
        }
        if let Some(at) = target.listens_at {
            self.timers.insert((at, Timer::Listen(Arc::clone(id))));
        }
        for uid in given_up {
            if let Some(pod) = self.pods.get_mut(&uid) {
                let ask = pod.asks.entry(Arc::clone(id)).or_default();
                ask.waits = None;
                ask.given_up = Some(now);
                if !ask.echoed {
                    self.timers.insert((now + DOUBT, Timer::Pod(Arc::clone(&uid))));
                }
            }
            self.touch(&uid);
        }
    }

    /// Whether decisions may begin: pods, nodes, namespaces and targets are known, and what targets hold and what is
    /// published about them, or time is up.
    fn is_open(&mut self, now: Duration) -> bool {
        let listed = self.nodes_listed && self.namespaces_listed && self.pods_listed && self.targets_listed;
        if !listed {
            return false;
        }
        let opens_at = *self.opens_at.get_or_insert(now + OPENING);
        if now >= opens_at {
            return true;
        }
        let read = |target: &Target| target.seen.unusable.is_some() || target.synced;
        if self.scores.listed && self.targets.values().all(read) {
            self.opens_at = Some(now);
            return true;
        }
        self.arm(opens_at, Timer::Open);
        false
    }

    fn count(&mut self, uid: &Id, waits: Option<Waits>) {
        let Some(pod) = self.pods.get_mut(uid) else { return };
        let before = std::mem::replace(&mut pod.waits, waits);
        if before == waits {
            return;
        }
        if let Some(before) = before {
            *self.counts.entry(before).or_default() -= 1;
        }
        if let Some(after) = waits {
            *self.counts.entry(after).or_default() += 1;
        }
    }
}
