use std::collections::BTreeSet;
use std::sync::Arc;

use crate::framework::Judge;
use crate::pod::PodInfo;
use crate::queue::flight::Flight;

/// A pod taken out of the queue. Hand it back with `refused` or `failed`, say that it was `placed`, or drop it.
#[derive(Debug, Clone)]
pub struct Queued<K> {
    pub key: K,
    pub pod: Arc<PodInfo>,
    /// How often it was refused before.
    pub refusals: u32,
    /// How often in a row something went wrong.
    pub errors: u32,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// When it could be tried first.
    pub since: u64,
    /// When it was taken out.
    pub taken: u64,
    /// Nothing but time was the reason for this try.
    pub flushed: bool,
    pub(super) flight: Option<Flight>,
}

/// Order among pods: what the profile sorts by, then order of arrival.
pub(super) type Place = (i64, u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// To be tried.
    Active(Place),
    /// Pausing until a time.
    Pausing(u64, Place),
    /// Refused, or held back by a plugin, since a time.
    Waiting(u64),
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) pod: Arc<PodInfo>,
    pub(super) refusals: u32,
    pub(super) errors: u32,
    pub(super) attempts: u32,
    /// When it could be tried first.
    pub(super) since: Option<u64>,
    /// When it entered the queue or was handed back last.
    pub(super) timestamp: u64,
    pub(super) rejected_by: BTreeSet<&'static str>,
    /// Nothing but time was the reason for the next try.
    pub(super) flushed: bool,
    /// The plugin that holds it back.
    pub(super) gate: Option<&'static str>,
    pub(super) state: State,
}

impl Item {
    pub(super) fn new(pod: Arc<PodInfo>, now: u64) -> Self {
        Self {
            pod,
            refusals: 0,
            errors: 0,
            attempts: 0,
            since: None,
            timestamp: now,
            rejected_by: BTreeSet::new(),
            flushed: false,
            gate: None,
            state: State::Waiting(now),
        }
    }

    fn returned<K>(queued: Queued<K>, newest: Option<Arc<PodInfo>>, now: u64) -> Self {
        Self {
            refusals: queued.refusals,
            errors: queued.errors,
            attempts: queued.attempts,
            since: Some(queued.since),
            ..Self::new(newest.unwrap_or(queued.pod), now)
        }
    }

    /// A pod that these plugins rejected.
    pub(super) fn refused<K>(
        queued: Queued<K>,
        newest: Option<Arc<PodInfo>>,
        rejected_by: BTreeSet<&'static str>,
        now: u64,
    ) -> Self {
        let item = Self::returned(queued, newest, now);
        Self { refusals: item.refusals.saturating_add(1), errors: 0, rejected_by, ..item }
    }

    /// A pod for which something went wrong.
    pub(super) fn failed<K>(queued: Queued<K>, newest: Option<Arc<PodInfo>>, now: u64) -> Self {
        let item = Self::returned(queued, newest, now);
        Self { errors: item.errors.saturating_add(1), ..item }
    }

    pub(super) fn queued<K>(self, key: K, now: u64, flight: Flight) -> Queued<K> {
        Queued {
            key,
            taken: now,
            refusals: self.refusals,
            errors: self.errors,
            attempts: self.attempts.saturating_add(1),
            since: self.since.unwrap_or(self.timestamp),
            flushed: self.flushed,
            pod: self.pod,
            flight: Some(flight),
        }
    }

    /// Asks whether a plugin holds the pod back.
    pub(super) fn hold_back(&mut self, judge: Judge<'_>) -> bool {
        self.gate = judge.pre_enqueue(&self.pod).err().map(|refusal| refusal.plugin);
        self.rejected_by.extend(self.gate);
        self.gate.is_some()
    }
}

/// How many pods wait in which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    pub active: usize,
    pub backoff: usize,
    pub refused: usize,
    pub gated: usize,
}
