//! Pods that wait: to be tried, to be tried again after a pause, or for something to change.

mod backoff;
mod flight;
mod item;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::framework::{Event, Judge, PodChange};
use crate::pod::PodInfo;
pub use backoff::Backoff;
use flight::Flights;
use item::{Item, Place, State};
pub use item::{Lengths, Queued};

/// A pod that no event has moved is tried again after this many milliseconds.
const LEFTOVER_MS: u64 = 5 * 60 * 1000;

/// Why a pod enters a part of the queue, besides the events of the cluster.
mod cause {
    pub(super) const ADDED: &str = "UnscheduledPodAdd";
    pub(super) const FAILED: &str = "ScheduleAttemptFailure";
    pub(super) const PAUSED_ENOUGH: &str = "BackoffComplete";
    pub(super) const TRIED_EARLY: &str = "PopFromBackoffQ";
    pub(super) const FORCED: &str = "ForceActivate";
    pub(super) const WAITED_LONG: &str = "UnschedulableTimeout";
}

/// The queue. Times are milliseconds since any fixed origin and never go back.
#[derive(Debug)]
pub struct Queue<K> {
    backoff: Backoff,
    items: HashMap<K, Item>,
    active: BTreeMap<Place, K>,
    /// By end of the pause, then like active ones.
    pausing: BTreeMap<(u64, Place), K>,
    pausing_on_error: BTreeMap<(u64, Place), K>,
    /// Refused or held back, by the time since when.
    waiting: BTreeSet<(u64, K)>,
    gated: usize,
    flights: Flights<K>,
    /// Makes places unique, in order of arrival.
    ticket: u64,
    /// How many pods entered which part, and why.
    incoming: BTreeMap<(&'static str, &'static str), u64>,
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            items: HashMap::new(),
            active: BTreeMap::new(),
            pausing: BTreeMap::new(),
            pausing_on_error: BTreeMap::new(),
            waiting: BTreeSet::new(),
            gated: 0,
            flights: Flights::default(),
            ticket: 0,
            incoming: BTreeMap::new(),
        }
    }

    /// Adds a pod, or says that it changed. A change moves a refused pod if a plugin that rejected it cares, or if it
    /// is one that no pod of a cluster can make; any other change leaves the pod where it is.
    pub fn add(&mut self, key: K, pod: Arc<PodInfo>, now: u64, judge: Judge<'_>) {
        if self.flights.changed(&key, &pod) {
            return;
        }
        let Some(item) = self.items.get(&key) else {
            let item = Item::new(pod, now);
            self.enter(key, item, (now, cause::ADDED), judge);
            return;
        };
        let change = PodChange::between(&item.pod, &pod);
        if change.is_empty() && item.pod.spec == pod.spec {
            if let Some(item) = self.items.get_mut(&key) {
                item.pod = pod;
            }
            return;
        }
        let old = Arc::clone(&item.pod);
        let waits = matches!(item.state, State::Waiting(_));
        let Some(mut item) = self.take(&key) else { return };
        item.pod = Arc::clone(&pod);
        let event = Event::Itself { old, pod, change };
        if waits && (change.other || self.cares(&item, &event, judge)) {
            self.requeue(key, item, (now, event.label()), judge);
        } else {
            self.put_back(key, item, judge);
        }
    }

    /// The next pod to try. When none is due, one that merely pauses after a refusal is tried early.
    pub fn pop(&mut self, now: u64, judge: Judge<'_>) -> Option<Queued<K>> {
        self.tick(now, judge);
        let key = match self.active.values().next() {
            Some(key) => key.clone(),
            None => {
                let key = self.pausing.values().next()?.clone();
                self.count("active", cause::TRIED_EARLY);
                key
            }
        };
        let item = self.take(&key)?;
        let flight = self.flights.start(&key, &item.pod);
        Some(item.queued(key, now, flight))
    }

    /// Hands back a pod that fits nowhere; it waits for an event that the plugins which rejected it care about. One
    /// that came while the pod was being tried counts.
    pub fn refused(
        &mut self,
        queued: Queued<K>,
        rejected_by: BTreeSet<&'static str>,
        now: u64,
        judge: Judge<'_>,
    ) {
        let key = queued.key.clone();
        // What happened since it was placed is not known.
        let unknown = queued.flight.is_none();
        let (newest, events) = self.flights.end(&queued);
        let item = Item::refused(queued, newest, rejected_by, now);
        if unknown || events.iter().any(|event| self.cares(&item, event, judge)) {
            self.requeue(key, item, (now, cause::FAILED), judge);
        } else {
            self.wait(key, item, now, cause::FAILED);
        }
    }

    /// Hands back a pod for which something went wrong; it is tried again after a pause.
    pub fn failed(&mut self, queued: Queued<K>, now: u64, judge: Judge<'_>) {
        let key = queued.key.clone();
        let (newest, _) = self.flights.end(&queued);
        let item = Item::failed(queued, newest, now);
        self.requeue(key, item, (now, cause::FAILED), judge);
    }

    /// Says that a pod was placed: what happens from now on is no reason to try it again. A pod that is dropped
    /// instead is forgotten likewise.
    pub fn placed(&mut self, queued: &mut Queued<K>) {
        self.flights.end(queued);
        queued.flight = None;
    }

    /// Moves the refused pods for which `event` is a reason to try again. Returns how many. The snapshot has seen it.
    pub fn event(&mut self, event: &Event, now: u64, judge: Judge<'_>) -> usize {
        let moved: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, key)| self.items.get(key).is_some_and(|item| self.cares(item, event, judge)))
            .map(|(_, key)| key.clone())
            .collect();
        for key in &moved {
            if let Some(item) = self.take(key) {
                self.requeue(key.clone(), item, (now, event.label()), judge);
            }
        }
        self.flights.record(event);
        moved.len()
    }

    /// Tries a waiting pod again at once, whatever it waits for. False if it is not here, or held back.
    pub fn retry(&mut self, key: &K, now: u64, judge: Judge<'_>) -> bool {
        match self.items.get(key).map(|item| item.state) {
            None => false,
            Some(State::Active(_)) => true,
            Some(State::Pausing(..)) => {
                if let Some(item) = self.take(key) {
                    self.activate(key.clone(), item, cause::FORCED, judge);
                }
                true
            }
            Some(State::Waiting(_)) => {
                let Some(item) = self.take(key) else { return false };
                self.enter(key.clone(), item, (now, cause::FORCED), judge)
            }
        }
    }

    /// Forgets a pod.
    pub fn remove(&mut self, key: &K) -> bool {
        self.flights.forget(key);
        self.take(key).is_some()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.items.contains_key(key)
    }

    /// Moves pods whose pause is over, and pods that no event has moved for five minutes.
    pub fn tick(&mut self, now: u64, judge: Judge<'_>) {
        for pausing in [&self.pausing, &self.pausing_on_error].map(|pausing| due(pausing, now)) {
            for key in pausing {
                if let Some(item) = self.take(&key) {
                    self.activate(key, item, cause::PAUSED_ENOUGH, judge);
                }
            }
        }
        let mut leftover =
            self.waiting.iter().take_while(|(since, _)| since.saturating_add(LEFTOVER_MS) <= now);
        let leftover: Vec<_> = leftover.by_ref().map(|(_, key)| key.clone()).collect();
        for key in leftover {
            if let Some(mut item) = self.take(&key) {
                item.flushed = true;
                self.requeue(key, item, (now, cause::WAITED_LONG), judge);
            }
        }
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next_wakeup(&self) -> Option<u64> {
        let pausing = self.pausing.keys().next().map(|(end, _)| *end);
        let failed = self.pausing_on_error.keys().next().map(|(end, _)| *end);
        let leftover = self.waiting.first().map(|(since, _)| since.saturating_add(LEFTOVER_MS));
        [pausing, failed, leftover].into_iter().flatten().min()
    }

    pub fn lengths(&self) -> Lengths {
        Lengths {
            active: self.active.len(),
            backoff: self.pausing.len() + self.pausing_on_error.len(),
            refused: self.waiting.len() - self.gated,
            gated: self.gated,
        }
    }

    /// How many pods entered each part (`active`, `backoff`, `unschedulable`) for which reason, since the last call.
    pub fn incoming(&mut self) -> BTreeMap<(&'static str, &'static str), u64> {
        std::mem::take(&mut self.incoming)
    }

    /// How many events pods that are being tried have to be asked about, by the name of the event.
    pub fn events(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for event in self.flights.events() {
            *counts.entry(event.label()).or_default() += 1;
        }
        counts
    }

    /// How many pods here each plugin has rejected, by scheduler name.
    pub fn rejections(&self) -> BTreeMap<(&'static str, &str), usize> {
        let mut rejections = BTreeMap::new();
        for item in self.items.values() {
            for plugin in &item.rejected_by {
                *rejections.entry((*plugin, item.pod.spec.scheduler_name.as_str())).or_default() += 1;
            }
        }
        rejections
    }

    /// Is `event` a reason to try a refused pod again, or to ask whether one that is held back still is?
    fn cares(&self, item: &Item, event: &Event, judge: Judge<'_>) -> bool {
        let opens = item.gate.is_none_or(|gate| judge.may_open(event, &item.pod, gate));
        opens && judge.hint(event, &item.pod, &item.rejected_by)
    }

    /// Another try, after what is left of the pause.
    fn requeue(&mut self, key: K, mut item: Item, (now, cause): (u64, &'static str), judge: Judge<'_>) {
        let end = self.backoff.end(&item);
        if end <= now {
            self.enter(key, item, (now, cause), judge);
        } else if item.hold_back(judge) {
            self.wait(key, item, now, cause);
        } else {
            self.count("backoff", cause);
            self.pause(key, item, end, judge);
        }
    }

    /// To be tried, unless a plugin holds it back. True if it is to be tried.
    fn enter(&mut self, key: K, mut item: Item, (now, cause): (u64, &'static str), judge: Judge<'_>) -> bool {
        if item.hold_back(judge) {
            self.wait(key, item, now, cause);
            return false;
        }
        self.activate(key, item, cause, judge);
        true
    }

    fn activate(&mut self, key: K, item: Item, cause: &'static str, judge: Judge<'_>) {
        self.count("active", cause);
        self.make_active(key, item, judge);
    }

    fn make_active(&mut self, key: K, mut item: Item, judge: Judge<'_>) {
        let place = self.place(&item, judge);
        item.state = State::Active(place);
        self.active.insert(place, key.clone());
        self.items.insert(key, item);
    }

    fn pause(&mut self, key: K, mut item: Item, end: u64, judge: Judge<'_>) {
        let place = self.place(&item, judge);
        item.state = State::Pausing(end, place);
        let pausing = if item.errors > 0 { &mut self.pausing_on_error } else { &mut self.pausing };
        pausing.insert((end, place), key.clone());
        self.items.insert(key, item);
    }

    fn wait(&mut self, key: K, mut item: Item, now: u64, cause: &'static str) {
        self.count("unschedulable", cause);
        self.gated += usize::from(item.gate.is_some());
        item.state = State::Waiting(now);
        self.waiting.insert((now, key.clone()));
        self.items.insert(key, item);
    }

    /// Where it was, though what it is may have changed.
    fn put_back(&mut self, key: K, item: Item, judge: Judge<'_>) {
        match item.state {
            State::Active(_) => self.make_active(key, item, judge),
            State::Pausing(end, _) => self.pause(key, item, end, judge),
            State::Waiting(since) => {
                self.gated += usize::from(item.gate.is_some());
                self.waiting.insert((since, key.clone()));
                self.items.insert(key, item);
            }
        }
    }

    fn take(&mut self, key: &K) -> Option<Item> {
        let item = self.items.remove(key)?;
        match item.state {
            State::Active(place) => drop(self.active.remove(&place)),
            State::Pausing(end, place) => {
                self.pausing.remove(&(end, place));
                self.pausing_on_error.remove(&(end, place));
            }
            State::Waiting(since) => {
                self.gated -= usize::from(item.gate.is_some());
                self.waiting.remove(&(since, key.clone()));
            }
        }
        Some(item)
    }

    fn place(&mut self, item: &Item, judge: Judge<'_>) -> Place {
        self.ticket += 1;
        let (first, second) = judge.sort_key(&item.pod, item.timestamp);
        (first, second, self.ticket)
    }

    fn count(&mut self, part: &'static str, cause: &'static str) {
        *self.incoming.entry((part, cause)).or_default() += 1;
    }
}

/// The pods whose pause is over.
fn due<K: Clone>(pausing: &BTreeMap<(u64, Place), K>, now: u64) -> Vec<K> {
    pausing.iter().take_while(|((end, _), _)| *end <= now).map(|(_, key)| key.clone()).collect()
}
