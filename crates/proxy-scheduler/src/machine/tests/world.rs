//! One source and a few targets, as far as the protocol goes, with every call and every event on its way for as
//! long as chance wants.

mod holds;
mod losses;

use super::desk::{fresh, id, ms, node, pod, refusal, summary, target, wishing};
use crate::machine::{
    Action, ChaperonRef, ChaperonSeen, Election, Event, Failure, Grant, Id, Live, Machine, Outcome, Place,
    PodRef, PodSeen, Promise, Scope, Stage, TargetSeen,
};
use losses::unanswered;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Numbers without a pattern, the same for the same seed.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }

    pub(super) fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }
}

/// A proxy pod in the source.
struct Pod {
    version: u64,
    bound: Option<(Id, Election)>,
    grant: Option<Grant>,
}

/// A PodChaperon in a target.
struct Chaperon {
    seen: ChaperonSeen,
    answered: bool,
    /// The attempt that was refused last.
    refused_at: u64,
}

pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) now: Duration,
    targets: Vec<Id>,
    /// How many each target takes.
    room: usize,
    machine: Machine,
    versions: u64,
    pods: BTreeMap<Id, Pod>,
    chaperons: BTreeMap<(Id, Id), Chaperon>,
    calls: Vec<Action>,
    /// Ends of calls on their way back.
    ends: Vec<Event>,
    /// What each watch has yet to tell, in order: the source's, then each target's.
    streams: BTreeMap<Id, VecDeque<Event>>,
}

impl World {
    pub(super) fn new(seed: u64, targets: usize, room: usize) -> Self {
        let targets = (0..targets).map(|number| id(&format!("t{number}"))).collect();
        let mut world = Self {
            chance: Chance::new(seed),
            now: Duration::ZERO,
            targets,
            room,
            machine: Machine::default(),
            versions: 100,
            pods: BTreeMap::new(),
            chaperons: BTreeMap::new(),
            calls: Vec::new(),
            ends: Vec::new(),
            streams: BTreeMap::new(),
        };
        world.restart();
        world
    }

    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// The process dies with all it knows and all that is on its way, and begins anew.
    pub(super) fn restart(&mut self) {
        self.machine = Machine::default();
        self.ends.clear();
        self.streams.clear();
        // What had left already may still arrive.
        let calls = std::mem::take(&mut self.calls);
        for call in calls {
            if self.chance.percent(50) {
                self.arrive(&call);
            }
        }
        self.ends.clear();
        self.streams.clear();
        self.feed(Event::NamespacesReplaced(vec![]));
        self.feed(Event::ScoresReplaced(vec![]));
        let deadline = Some(Duration::from_secs(20));
        let impatient = |name: &Id| TargetSeen { start_deadline: deadline, ..target(name) };
        self.feed(Event::Targets(self.targets.iter().map(impatient).collect()));
        self.feed(Event::NodesReplaced(self.targets.iter().map(|name| node(name, &Value::Null)).collect()));
        let pods = self.pods.keys().map(|uid| self.seen(uid)).collect();
        self.tell(&id("source"), Event::PodsReplaced(pods));
        for name in self.targets.clone() {
            self.relist(&name);
            self.tell(&name, Event::SummarySeen { target: Arc::clone(&name), summary: summary("100") });
        }
    }

    /// The watch of a target lost its history.
    pub(super) fn relist(&mut self, name: &Id) {
        let here = self.chaperons.iter().filter(|((target, _), _)| target == name);
        let chaperons = here.map(|(_, chaperon)| chaperon.seen.clone()).collect();
        self.tell(name, Event::ChaperonsReplaced { target: Arc::clone(name), chaperons });
    }

    fn tell(&mut self, stream: &Id, event: Event) {
        self.streams.entry(Arc::clone(stream)).or_default().push_back(event);
    }

    fn feed(&mut self, event: Event) {
        self.machine.handle(event, self.now);
        let actions = self.machine.settle(self.now);
        self.calls.extend(actions);
    }

    fn seen(&self, uid: &Id) -> PodSeen {
        let mut seen = pod(uid, &Value::Null);
        let Some(pod) = self.pods.get(uid) else { return seen };
        seen.version = pod.version.to_string();
        if let Some((node, election)) = &pod.bound {
            seen.place = Place::Bound { node: Arc::clone(node), election: Some(election.clone()) };
            return seen;
        }
        let grant = pod.grant.clone();
        wishing(seen, |wish| {
            wish.epoch = grant.as_ref().map_or(0, |grant| grant.election.epoch);
            wish.grant = grant;
        })
    }

    pub(super) fn create_pod(&mut self, name: &str) {
        let version = self.version();
        self.pods.insert(id(name), Pod { version, bound: None, grant: None });
        let seen = self.seen(&id(name));
        self.tell(&id("source"), Event::PodApplied(seen));
    }

    pub(super) fn delete_pod(&mut self, name: &str) {
        if self.pods.remove(&id(name)).is_some() {
            self.tell(&id("source"), Event::PodDeleted(id(name)));
        }
    }

    fn changed(&mut self, key: &(Id, Id)) {
        let version = self.version().to_string();
        let Some(chaperon) = self.chaperons.get_mut(key) else { return };
        chaperon.seen.version = version;
        let seen = chaperon.seen.clone();
        self.tell(&key.0, Event::ChaperonApplied { target: Arc::clone(&key.0), chaperon: seen });
    }

    /// A target looks at one of its PodChaperons: reserves, refuses, or breaks a promise.
    pub(super) fn answer(&mut self) {
        let keys: Vec<_> = self.chaperons.keys().cloned().collect();
        let Some(key) = keys.get(self.chance.below(keys.len())).cloned() else { return };
        let taken = self.chaperons.iter().filter(|((target, _), other)| {
            let seen = &other.seen;
            let placed = seen.allowed && !seen.grant || seen.stage == Stage::Placed;
            *target == key.0 && (seen.promise.is_some() || placed)
        });
        let free = taken.count() < self.room;
        if self.chaperons.get(&key).is_some_and(|chaperon| chaperon.seen.grant) {
            return self.go_on(&key, free);
        }
        let lapses = self.chance.percent(10);
        let Some(chaperon) = self.chaperons.get_mut(&key) else { return };
        let seen = &mut chaperon.seen;
        let before = seen.refused.clone();
        let current = seen.promise.is_some_and(|promise| promise.attempt == seen.attempt);
        match (seen.allowed, current, chaperon.answered && seen.promise.is_none()) {
            (true, _, _) => return,
            (false, true, _) if lapses => seen.promise = None,
            (false, true, _) => return,
            (false, false, true) if seen.reserved_attempt == seen.attempt => return,
            (false, false, _) if seen.promise.is_some() || free => {
                seen.promise = Some(Promise { attempt: seen.attempt, lasts: ms(30_000) });
                seen.reserved_attempt = seen.attempt;
            }
            (false, false, true) if chaperon.refused_at == seen.attempt => return,
            (false, false, true) => seen.refused = refusal("full", seen.attempt),
            (false, false, false) => seen.refused = refusal("full", seen.attempt),
        }
        chaperon.answered = true;
        if seen.refused != before {
            chaperon.refused_at = seen.attempt;
        }
        self.changed(&key);
    }

    /// What a target does about a delegate without a reservation: it gets a node, or it goes when it has to.
    fn go_on(&mut self, key: &(Id, Id), free: bool) {
        let Some(chaperon) = self.chaperons.get_mut(key) else { return };
        let seen = &mut chaperon.seen;
        match (seen.stage, seen.revoked) {
            (Stage::Placed | Stage::Revoked, _) => return,
            (Stage::Unknown | Stage::Unplaced, true) => seen.stage = Stage::Revoked,
            (Stage::Unknown | Stage::Unplaced, false) if free => seen.stage = Stage::Placed,
            (Stage::Unknown, false) => seen.stage = Stage::Unplaced,
            (Stage::Unplaced, false) => return,
        }
        self.changed(key);
    }

    /// Something on its way arrives: a call, an answer, an event.
    pub(super) fn deliver(&mut self, faults: usize) -> bool {
        let streams: Vec<Id> = self
            .streams
            .iter()
            .filter(|(_, events)| !events.is_empty())
            .map(|(name, _)| Arc::clone(name))
            .collect();
        let all = self.calls.len() + self.ends.len() + streams.len();
        if all == 0 {
            return false;
        }
        let pick = self.chance.below(all);
        if pick < self.calls.len() {
            let call = self.calls.swap_remove(pick);
            // That is no call, and cannot be lost.
            let faults = if matches!(call, Action::Forgo { .. }) { 0 } else { faults };
            let lost_going = self.chance.percent(faults);
            let lost_coming = self.chance.percent(faults);
            let end = if lost_going { None } else { self.arrive(&call) };
            self.ends.extend(if lost_coming || lost_going { unanswered(&call) } else { end });
        } else if pick < self.calls.len() + self.ends.len() {
            let end = self.ends.swap_remove(pick - self.calls.len());
            self.feed(end);
        } else if let Some(name) = streams.get(pick - self.calls.len() - self.ends.len()) {
            let event = self.streams.get_mut(name).and_then(VecDeque::pop_front);
            if let Some(event) = event {
                self.feed(event);
            }
        }
        true
    }

    pub(super) fn pass(&mut self, millis: u64) {
        self.now += ms(millis);
        self.feed(Event::Tick);
    }

    /// A call takes effect. Returns its answer.
    fn arrive(&mut self, call: &Action) -> Option<Event> {
        let (pod, outcome) = match call {
            Action::Create { target, pod, .. } => (Arc::clone(pod), self.arrive_create(target, pod)),
            Action::Forgo { target, pod } => {
                let waits = |call: &Action| matches!(call, Action::Create { target: there, pod: who, .. } if (there, who) == (target, pod));
                let create = self.calls.iter().position(waits)?;
                self.calls.swap_remove(create);
                (Arc::clone(pod), Outcome::Forgone { target: Arc::clone(target) })
            }
            Action::Renew { chaperon, attempt } => {
                let key = (Arc::clone(&chaperon.target), Arc::clone(&chaperon.parent));
                if let Some(found) =
                    self.chaperons.get_mut(&key).filter(|found| found.seen.uid == chaperon.uid)
                {
                    found.seen.attempt = *attempt;
                    self.changed(&key);
                }
                let result = self.there(chaperon).ok_or(Live::Gone);
                let target = Arc::clone(&chaperon.target);
                (Arc::clone(&chaperon.parent), Outcome::Renewed { target, sent: self.now, result })
            }
            Action::Bind { pod, node, election, .. } => {
                (Arc::clone(&pod.uid), self.arrive_bind(pod, node, election))
            }
            Action::Grant { pod, grant, .. } => {
                (Arc::clone(&pod.uid), self.arrive_grant(pod, grant.as_ref()))
            }
            Action::Revoke { chaperon, on } => {
                (Arc::clone(&chaperon.parent), self.arrive_revoke(chaperon, *on))
            }
            Action::Allow { chaperon, version, grant, .. } => {
                (Arc::clone(&chaperon.parent), self.arrive_allow(chaperon, version, grant.is_some()))
            }
            Action::Delete { chaperon } => (Arc::clone(&chaperon.parent), self.arrive_delete(chaperon)),
            Action::Explain { pod, .. } => {
                (Arc::clone(&pod.uid), Outcome::Explained(self.arrive_explain(pod)))
            }
            Action::Reread { pod } => (Arc::clone(&pod.uid), Outcome::Reread(self.read(pod))),
            Action::Scheduled { .. } => return None,
        };
        Some(Event::Finished { pod, outcome })
    }

    /// The feedback controller removes what has no parent: all that a dead process or a lost delete leaves.
    pub(super) fn sweep(&mut self) {
        let orphans = self.chaperons.iter().filter(|((_, parent), _)| !self.pods.contains_key(parent));
        let orphans: Vec<_> =
            orphans.map(|(key, found)| (key.clone(), Arc::clone(&found.seen.uid))).collect();
        for ((target, parent), uid) in orphans {
            self.chaperons.remove(&(Arc::clone(&target), Arc::clone(&parent)));
            self.tell(&target, Event::ChaperonDeleted { target: Arc::clone(&target), parent, uid });
        }
    }

    fn there(&self, chaperon: &ChaperonRef) -> Option<ChaperonSeen> {
        let found = self.chaperons.get(&(Arc::clone(&chaperon.target), Arc::clone(&chaperon.parent)))?;
        (found.seen.uid == chaperon.uid).then(|| found.seen.clone())
    }

    fn arrive_revoke(&mut self, chaperon: &ChaperonRef, on: bool) -> Outcome {
        let key = (Arc::clone(&chaperon.target), Arc::clone(&chaperon.parent));
        if let Some(found) = self.chaperons.get_mut(&key).filter(|found| found.seen.uid == chaperon.uid) {
            found.seen.revoked = on;
            self.changed(&key);
        }
        let result = self.there(chaperon).ok_or(Live::Gone);
        Outcome::Allowed { target: Arc::clone(&chaperon.target), result }
    }

    fn arrive_allow(&mut self, chaperon: &ChaperonRef, version: &str, grant: bool) -> Outcome {
        let key = (Arc::clone(&chaperon.target), Arc::clone(&chaperon.parent));
        let live = self.there(chaperon);
        let fits = live.as_ref().is_some_and(|live| live.version == version);
        if let Some(found) = self.chaperons.get_mut(&key).filter(|_| fits) {
            found.seen.allowed = true;
            found.seen.grant = grant;
            self.changed(&key);
        }
        let result = match (fits, self.there(chaperon)) {
            (true, Some(seen)) => Ok(seen),
            (false, Some(seen)) => Err(Live::Found(Box::new(seen))),
            (_, None) => Err(Live::Gone),
        };
        Outcome::Allowed { target: Arc::clone(&chaperon.target), result }
    }

    fn arrive_delete(&mut self, chaperon: &ChaperonRef) -> Outcome {
        let (target, parent, uid) = (&chaperon.target, &chaperon.parent, &chaperon.uid);
        if let Some(there) = self.there(chaperon) {
            let safe = !there.allowed || there.stage == Stage::Revoked;
            assert!(safe || !self.pods.contains_key(parent), "{parent} may run in {target}");
            self.chaperons.remove(&(Arc::clone(target), Arc::clone(parent)));
            let (parent, uid) = (Arc::clone(parent), Arc::clone(uid));
            self.tell(target, Event::ChaperonDeleted { target: Arc::clone(target), parent, uid });
        }
        Outcome::Deleted { target: Arc::clone(target), uid: Arc::clone(uid), result: Ok(()) }
    }

    fn arrive_create(&mut self, target: &Id, pod: &Id) -> Outcome {
        let key = (Arc::clone(target), Arc::clone(pod));
        let new = !self.chaperons.contains_key(&key);
        if new {
            let version = self.version().to_string();
            let uid = id(&format!("uid-{version}"));
            let seen = ChaperonSeen { uid, version, ..fresh(pod, target) };
            self.chaperons.insert(key.clone(), Chaperon { seen, answered: false, refused_at: 0 });
            self.changed(&key);
        }
        let result = self.chaperons.get(&key).map(|found| found.seen.clone()).ok_or(failure());
        Outcome::Created { target: Arc::clone(target), sent: new.then_some(self.now), result }
    }

    fn arrive_bind(&mut self, pod: &PodRef, node: &Id, election: &Election) -> Outcome {
        let version = self.version();
        let fits = |found: &&mut Pod| found.version.to_string() == pod.version && found.bound.is_none();
        if let Some(found) = self.pods.get_mut(&pod.uid).filter(fits) {
            found.version = version;
            let other =
                found.grant.as_ref().filter(|grant| grant.election.chaperon_uid != election.chaperon_uid);
            assert!(other.is_none(), "{} is bound although another target is granted", pod.uid);
            found.bound = Some((Arc::clone(node), election.clone()));
            let seen = self.seen(&pod.uid);
            self.tell(&id("source"), Event::PodApplied(seen));
            return Outcome::Bound(Ok(()));
        }
        Outcome::Bound(Err(self.read(pod)))
    }

    fn arrive_grant(&mut self, pod: &PodRef, grant: Option<&Grant>) -> Outcome {
        let version = self.version();
        let fits = |found: &&mut Pod| found.version.to_string() == pod.version && found.bound.is_none();
        if let Some(found) = self.pods.get_mut(&pod.uid).filter(fits) {
            assert!(grant.is_none() || found.grant.is_none(), "{} is granted twice", pod.uid);
            found.version = version;
            found.grant = grant.cloned();
            let seen = self.seen(&pod.uid);
            self.tell(&id("source"), Event::PodApplied(seen.clone()));
            return Outcome::Granted(Ok(Box::new(seen)));
        }
        Outcome::Granted(Err(self.read(pod)))
    }

    fn arrive_explain(&mut self, pod: &PodRef) -> Result<String, Failure> {
        let version = self.version();
        let fits = |found: &&mut Pod| found.version.to_string() == pod.version;
        let found = self.pods.get_mut(&pod.uid).filter(fits).ok_or(failure())?;
        found.version = version;
        let seen = self.seen(&pod.uid);
        self.tell(&id("source"), Event::PodApplied(seen));
        Ok(version.to_string())
    }

    fn read(&self, pod: &PodRef) -> Live<PodSeen> {
        if self.pods.contains_key(&pod.uid) { Live::Found(Box::new(self.seen(&pod.uid))) } else { Live::Gone }
    }
}

fn failure() -> Failure {
    Failure { scope: Scope::Target, message: "no answer".to_owned() }
}
