//! Pods that are being tried, and what happened meanwhile.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Weak};

use crate::framework::{Event, PodChange};
use crate::pod::PodInfo;
use crate::queue::Queued;

/// Held while a pod is being tried; ends when it is dropped.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    /// The number of the first event after the start.
    start: u64,
    alive: Arc<()>,
}

#[derive(Debug)]
struct Flying {
    alive: Weak<()>,
    /// The pod as it was seen last.
    pod: Arc<PodInfo>,
    /// Changes of the pod itself, as it was and is.
    changes: Vec<(Arc<PodInfo>, Arc<PodInfo>)>,
}

#[derive(Debug)]
pub(super) struct Flights<K> {
    flying: HashMap<K, Flying>,
    /// What happened since the oldest start.
    events: VecDeque<Event>,
    /// The number of the first of [`Self::events`].
    first: u64,
}

impl<K> Default for Flights<K> {
    fn default() -> Self {
        Self { flying: HashMap::new(), events: VecDeque::new(), first: 0 }
    }
}

impl<K: Clone + Eq + Hash> Flights<K> {
    fn next(&self) -> u64 {
        self.first + u64::try_from(self.events.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn start(&mut self, key: &K, pod: &Arc<PodInfo>) -> Flight {
        self.land();
        let flight = Flight { start: self.next(), alive: Arc::new(()) };
        let alive = Arc::downgrade(&flight.alive);
        let flying = Flying { alive, pod: Arc::clone(pod), changes: Vec::new() };
        self.flying.insert(key.clone(), flying);
        flight
    }

    /// Ends a flight: the pod as it was seen last, and what happened since the start.
    pub(super) fn end(&mut self, queued: &Queued<K>) -> (Option<Arc<PodInfo>>, Vec<Event>) {
        let Some(flight) = &queued.flight else { return (None, Vec::new()) };
        let ours = |flying: &Flying| Weak::as_ptr(&flying.alive) == Arc::as_ptr(&flight.alive);
        if !self.flying.get(&queued.key).is_some_and(ours) {
            return (None, Vec::new());
        }
        let Some(flying) = self.flying.remove(&queued.key) else { return (None, Vec::new()) };
        let skip = usize::try_from(flight.start.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let mut events: Vec<_> = self.events.iter().skip(skip).cloned().collect();
        events.extend(flying.changes.into_iter().map(|(old, pod)| {
            let change = PodChange::between(&old, &pod);
            Event::Itself { old, pod, change }
        }));
        self.land();
        (Some(flying.pod), events)
    }

    /// What is remembered for the pods that are being tried.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    /// Notes what happened, for the pods that are being tried.
    pub(super) fn record(&mut self, event: &Event) {
        self.land();
        if !self.flying.is_empty() {
            self.events.push_back(event.clone());
        }
    }

    /// Notes that a pod changed while it is being tried. False if it is not.
    pub(super) fn changed(&mut self, key: &K, pod: &Arc<PodInfo>) -> bool {
        self.land();
        let Some(flying) = self.flying.get_mut(key) else { return false };
        let old = std::mem::replace(&mut flying.pod, Arc::clone(pod));
        flying.changes.push((old, Arc::clone(pod)));
        true
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.flying.remove(key);
        self.land();
    }

    /// Forgets the flights that ended unsaid; without any, nothing needs to be remembered.
    fn land(&mut self) {
        self.flying.retain(|_, flying| flying.alive.strong_count() > 0);
        if self.flying.is_empty() {
            self.first = self.next();
            self.events.clear();
        }
    }
}
