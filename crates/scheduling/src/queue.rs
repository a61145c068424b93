//! Pods that wait: to be tried, to be tried again after a pause, or for something to change.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::framework::{Event, Framework};
use crate::pod::PodInfo;

/// A pod that no event has moved is tried again after this many milliseconds.
const LEFTOVER_MS: u64 = 5 * 60 * 1000;

/// How long a pod pauses after its n-th failure: `initial_ms * 2^(n-1)`, at most `max_ms`.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub initial_ms: u64,
    pub max_ms: u64,
}

impl Backoff {
    fn after(&self, failures: u32) -> u64 {
        let Some(doublings) = failures.checked_sub(1) else { return 0 };
        self.initial_ms.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX)).min(self.max_ms)
    }
}

impl Default for Backoff {
    /// Upstream's: one second, doubled up to ten.
    fn default() -> Self {
        Self { initial_ms: 1000, max_ms: 10_000 }
    }
}

/// A pod taken out of the queue. Hand it back with [`Queue::refused`] or [`Queue::failed`], or drop it.
#[derive(Debug, Clone)]
pub struct Queued<K> {
    pub key: K,
    pub pod: Arc<PodInfo>,
    /// How often it was refused before.
    pub refusals: u32,
    /// How often in a row something went wrong.
    pub errors: u32,
    /// When it first entered the queue.
    pub since: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be tried; its place in the order.
    Active((i64, u64, u64)),
    /// Pausing until a time.
    Backoff(u64, u64),
    /// Pausing after an error: not tried earlier, even when there is nothing else to do.
    ErrorBackoff(u64, u64),
    /// Waiting for an event since a time.
    Refused(u64),
    /// Held back by a plugin until the pod itself changes.
    Gated,
}

#[derive(Debug)]
struct Item {
    pod: Arc<PodInfo>,
    refusals: u32,
    errors: u32,
    since: u64,
    rejected_by: BTreeSet<&'static str>,
    state: State,
}

/// How many pods wait in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    pub active: usize,
    pub backoff: usize,
    pub refused: usize,
    pub gated: usize,
}

/// The queue. Times are milliseconds since any fixed origin and never go back.
#[derive(Debug)]
pub struct Queue<K> {
    backoff: Backoff,
    items: HashMap<K, Item>,
    active: BTreeMap<(i64, u64, u64), K>,
    /// By end of the pause.
    pausing: BTreeMap<(u64, u64), K>,
    pausing_on_error: BTreeMap<(u64, u64), K>,
    refused: BTreeSet<(u64, K)>,
    /// Makes places unique, in order of arrival.
    ticket: u64,
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            items: HashMap::new(),
            active: BTreeMap::new(),
            pausing: BTreeMap::new(),
            pausing_on_error: BTreeMap::new(),
            refused: BTreeSet::new(),
            ticket: 0,
        }
    }

    /// Adds a pod, or says that it changed. A change of what it asks for is a reason to try it at once; any other
    /// change leaves it where it is.
    pub fn add(&mut self, key: K, pod: Arc<PodInfo>, now: u64, framework: &Framework) {
        let old = self.items.get_mut(&key);
        if let Some(item) = old {
            let same = item.pod.spec == pod.spec;
            item.pod = Arc::clone(&pod);
            if same {
                return;
            }
        }
        let before = self.take(&key);
        let gated = framework.pre_enqueue(&pod).is_err();
        let item = Item {
            pod,
            refusals: before.as_ref().map_or(0, |item| item.refusals),
            errors: 0,
            since: before.as_ref().map_or(now, |item| item.since),
            rejected_by: BTreeSet::new(),
            state: State::Gated,
        };
        if gated {
            self.items.insert(key, item);
        } else {
            self.activate(key, item, now, framework);
        }
    }

    /// The next pod to try. When none is due, one that merely pauses after a refusal is tried early.
    pub fn pop(&mut self, now: u64, framework: &Framework) -> Option<Queued<K>> {
        self.tick(now, framework);
        let key = self.active.values().next().or_else(|| self.pausing.values().next())?.clone();
        let item = self.take(&key)?;
        Some(Queued { key, pod: item.pod, refusals: item.refusals, errors: item.errors, since: item.since })
    }

    /// Hands back a pod that fits nowhere; it waits for an event that the plugins which rejected it care about.
    pub fn refused(&mut self, queued: Queued<K>, rejected_by: BTreeSet<&'static str>, now: u64) {
        let Queued { key, pod, refusals, since, .. } = queued;
        self.refused.insert((now, key.clone()));
        let item = Item {
            pod,
            refusals: refusals.saturating_add(1),
            errors: 0,
            since,
            rejected_by,
            state: State::Refused(now),
        };
        self.items.insert(key, item);
    }

    /// Hands back a pod for which something went wrong; it is tried again after a pause.
    pub fn failed(&mut self, queued: Queued<K>, now: u64) {
        let Queued { key, pod, refusals, errors, since } = queued;
        let errors = errors.saturating_add(1);
        let place = (now.saturating_add(self.backoff.after(errors)), self.next_ticket());
        self.pausing_on_error.insert(place, key.clone());
        let state = State::ErrorBackoff(place.0, place.1);
        self.items.insert(key, Item { pod, refusals, errors, since, rejected_by: BTreeSet::new(), state });
    }

    /// Moves the refused pods for which `event` is a reason to try again. Returns how many.
    pub fn event(&mut self, event: &Event<'_>, framework: &Framework, now: u64) -> usize {
        let moved: Vec<_> = self
            .refused
            .iter()
            .filter(|(_, key)| {
                self.items.get(key).is_some_and(|item| framework.hint(event, &item.pod, &item.rejected_by))
            })
            .map(|(_, key)| key.clone())
            .collect();
        for key in &moved {
            self.reconsider(key, now, framework);
        }
        moved.len()
    }

    /// Tries a waiting pod again at once, whatever it waits for. False if it is not here, or gated.
    pub fn retry(&mut self, key: &K, now: u64, framework: &Framework) -> bool {
        match self.items.get(key).map(|item| item.state) {
            None | Some(State::Gated) => false,
            Some(State::Active(_)) => true,
            Some(State::Backoff(..) | State::ErrorBackoff(..) | State::Refused(_)) => {
                if let Some(item) = self.take(key) {
                    self.activate(key.clone(), item, now, framework);
                }
                true
            }
        }
    }

    /// Forgets a pod.
    pub fn remove(&mut self, key: &K) -> bool {
        self.take(key).is_some()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.items.contains_key(key)
    }

    /// Moves pods whose pause is over, and pods that no event has moved for five minutes.
    pub fn tick(&mut self, now: u64, framework: &Framework) {
        let due = |pausing: &BTreeMap<(u64, u64), K>| -> Vec<K> {
            pausing.range(..=(now, u64::MAX)).map(|(_, key)| key.clone()).collect()
        };
        for key in due(&self.pausing).into_iter().chain(due(&self.pausing_on_error)) {
            if let Some(item) = self.take(&key) {
                self.activate(key, item, now, framework);
            }
        }
        let leftover: Vec<_> = self
            .refused
            .iter()
            .take_while(|(since, _)| since.saturating_add(LEFTOVER_MS) <= now)
            .map(|(_, key)| key.clone())
            .collect();
        for key in leftover {
            self.reconsider(&key, now, framework);
        }
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next_wakeup(&self) -> Option<u64> {
        let pausing = self.pausing.keys().next().map(|(end, _)| *end);
        let failed = self.pausing_on_error.keys().next().map(|(end, _)| *end);
        let leftover = self.refused.first().map(|(since, _)| since.saturating_add(LEFTOVER_MS));
        [pausing, failed, leftover].into_iter().flatten().min()
    }

    pub fn lengths(&self) -> Lengths {
        let paused = self.pausing.len() + self.pausing_on_error.len();
        Lengths {
            active: self.active.len(),
            backoff: paused,
            refused: self.refused.len(),
            gated: self.items.len() - self.active.len() - paused - self.refused.len(),
        }
    }

    /// A refused pod gets another try, after what is left of its pause.
    fn reconsider(&mut self, key: &K, now: u64, framework: &Framework) {
        let Some(mut item) = self.take(key) else { return };
        let State::Refused(since) = item.state else { return };
        let end = since.saturating_add(self.backoff.after(item.refusals));
        if end <= now {
            self.activate(key.clone(), item, now, framework);
            return;
        }
        let place = (end, self.next_ticket());
        item.state = State::Backoff(place.0, place.1);
        self.pausing.insert(place, key.clone());
        self.items.insert(key.clone(), item);
    }

    fn activate(&mut self, key: K, mut item: Item, now: u64, framework: &Framework) {
        let (first, second) = framework.sort_key(&item.pod, now);
        let place = (first, second, self.next_ticket());
        item.state = State::Active(place);
        self.active.insert(place, key.clone());
        self.items.insert(key, item);
    }

    fn take(&mut self, key: &K) -> Option<Item> {
        let item = self.items.remove(key)?;
        match item.state {
            State::Active(place) => drop(self.active.remove(&place)),
            State::Backoff(end, ticket) => drop(self.pausing.remove(&(end, ticket))),
            State::ErrorBackoff(end, ticket) => drop(self.pausing_on_error.remove(&(end, ticket))),
            State::Refused(since) => drop(self.refused.remove(&(since, key.clone()))),
            State::Gated => {}
        }
        Some(item)
    }

    fn next_ticket(&mut self) -> u64 {
        self.ticket += 1;
        self.ticket
    }
}
