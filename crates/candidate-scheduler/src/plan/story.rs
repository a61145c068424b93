//! What became of pods, for their events and for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::keys;
use scheduling::Queued;

use crate::observe::Name;
use crate::plan::{Action, Key, Model, Story};

/// How a try ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Scheduled,
    Unschedulable,
    Error,
}

/// One try to place a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The scheduler name.
    pub profile: String,
    pub ended: Ended,
    /// How often it was tried, this time included.
    pub attempts: u32,
    /// Since it was taken from the queue, and since it could be tried first, in milliseconds.
    pub took_ms: u64,
    pub waited_ms: u64,
}

/// What waits, for metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waiting {
    /// How many entered which part of the queue for which reason, since the last time.
    pub incoming: BTreeMap<(&'static str, &'static str), u64>,
    /// How many each plugin has rejected, by plugin and scheduler name.
    pub rejections: BTreeMap<(&'static str, String), usize>,
    pub nodes: usize,
    pub pods: usize,
}

impl Model {
    /// Tries that ended since the last call.
    pub fn attempts(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.attempts)
    }

    pub fn waiting(&mut self) -> Waiting {
        let rejections = self.queue.rejections().into_iter();
        Waiting {
            rejections: rejections
                .map(|((plugin, profile), count)| ((plugin, profile.to_owned()), count))
                .collect(),
            incoming: self.queue.incoming(),
            nodes: self.snapshot.node_count(),
            pods: self.snapshot.pods().count(),
        }
    }

    pub(super) fn attempted(&mut self, queued: &Queued<Key>, ended: Ended, now: u64) {
        self.attempts.push(Attempt {
            profile: queued.pod.spec.scheduler_name.clone(),
            ended,
            attempts: queued.attempts,
            took_ms: now.saturating_sub(queued.taken),
            waited_ms: now.saturating_sub(queued.since),
        });
    }

    /// Records what became of a pod, unless it is a delegate: the story of those is told in the source.
    pub(super) fn tell(&mut self, name: &Name, scheduler: &str, end: Result<Arc<str>, String>) {
        let Some(pod) = self.pods.get(name).filter(|_| scheduler != keys::CANDIDATE_SCHEDULER) else {
            return;
        };
        self.actions.push(Action::Tell(Box::new(Story {
            pod: name.clone(),
            uid: Arc::clone(pod.uid()),
            version: pod.version(),
            scheduler: scheduler.to_owned(),
            end,
        })));
    }
}
