use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::framework::{Cycle, Diagnosis, Event, Framework, Point, Refusal, Selection};
use crate::pod::PodInfo;
use crate::snapshot::Snapshot;

/// The frameworks of one scheduler, by the scheduler name of the pods that they place. All sort the queue alike.
pub struct Profiles {
    by_name: BTreeMap<String, Framework>,
    /// Decides about pods of any other name.
    fallback: Framework,
}

impl fmt::Debug for Profiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl From<Framework> for Profiles {
    /// One framework for pods of every name.
    fn from(fallback: Framework) -> Self {
        Self { by_name: BTreeMap::new(), fallback }
    }
}

impl Profiles {
    /// Adds or replaces the framework of one scheduler name.
    pub fn set(&mut self, scheduler_name: impl Into<String>, framework: Framework) {
        self.by_name.insert(scheduler_name.into(), framework);
    }

    /// How often each plugin was asked since the last call, by scheduler name; see [`Framework::evaluations`].
    pub fn evaluations(&self) -> impl Iterator<Item = (&str, (&'static str, Point, u64))> {
        let named = self.by_name.iter().map(|(name, framework)| (name.as_str(), framework));
        named.flat_map(|(name, framework)| framework.evaluations().map(move |count| (name, count)))
    }

    /// Every framework that has a scheduler name, with it.
    pub fn each(&mut self) -> impl Iterator<Item = (&str, &mut Framework)> {
        self.by_name.iter_mut().map(|(name, framework)| (name.as_str(), framework))
    }

    /// The scheduler names that have a framework of their own.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// True if pods of this scheduler name have a framework of their own.
    pub fn has(&self, scheduler_name: &str) -> bool {
        self.by_name.contains_key(scheduler_name)
    }

    /// The framework that places a pod.
    pub fn of(&self, pod: &PodInfo) -> &Framework {
        self.named(&pod.spec.scheduler_name)
    }

    pub fn named(&self, scheduler_name: &str) -> &Framework {
        self.by_name.get(scheduler_name).unwrap_or(&self.fallback)
    }
}

/// The rules and the world that pods are judged by.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    pub profiles: &'a Profiles,
    pub snapshot: &'a Snapshot,
}

impl<'a> Judge<'a> {
    pub fn new(profiles: &'a Profiles, snapshot: &'a Snapshot) -> Self {
        Self { profiles, snapshot }
    }

    /// See [`Framework::evaluate`].
    pub fn evaluate(self, pod: &PodInfo) -> Result<Selection, Box<Diagnosis>> {
        self.profiles.of(pod).evaluate(pod, self.snapshot)
    }

    /// See [`Framework::pre_enqueue`].
    pub fn pre_enqueue(self, pod: &PodInfo) -> Result<(), Refusal> {
        self.profiles.of(pod).pre_enqueue(pod, self.snapshot)
    }

    /// See [`Framework::hint`].
    pub fn hint(self, event: &Event, pod: &PodInfo, rejected_by: &BTreeSet<&'static str>) -> bool {
        self.profiles.of(pod).hint(event, Cycle { pod, snapshot: self.snapshot }, rejected_by)
    }

    /// See [`Framework::may_open`].
    pub fn may_open(self, event: &Event, pod: &PodInfo, gate: &str) -> bool {
        self.profiles.of(pod).may_open(event, gate)
    }

    pub(crate) fn sort_key(self, pod: &PodInfo, queued_at: u64) -> (i64, u64) {
        self.profiles.of(pod).sort_key(pod, queued_at)
    }
}
