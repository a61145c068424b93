//! What became of pods, for their events and for metrics.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use api::keys;
use scheduling::Queued;

use crate::observe::Name;
use crate::plan::{Action, Key, Model, Outcome, Story};

/// How long a count that nobody has read is left as it is. Upstream writes the last one when the series has ended, as
/// much later.
pub(super) const SERIES_MS: u64 = 6 * 60 * 1000;
/// Longest part of a pod's name in that of an event.
const STEM: usize = 230;

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
    /// Pods whose binding is under way.
    pub binding: usize,
    /// Events that pods which are being tried have to be asked about, by kind.
    pub events: BTreeMap<&'static str, usize>,
    /// How often each plugin was asked at which extension point, by scheduler name, since the last time.
    pub evaluations: BTreeMap<(&'static str, &'static str, String), u64>,
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
            binding: self.pods.values().filter(|pod| pod.is_binding()).count(),
            events: self.queue.events(),
            evaluations: self
                .profiles
                .evaluations()
                .map(|(profile, (plugin, point, count))| ((plugin, point.name(), profile.to_owned()), count))
                .collect(),
        }
    }

    pub(super) fn attempted(&mut self, queued: &Queued<Key>, ended: Ended, now: u64) {
        self.attempts.push(Attempt {
            profile: queued.pod.spec.scheduler_name.to_string(),
            ended,
            attempts: queued.attempts,
            took_ms: now.saturating_sub(queued.taken),
            waited_ms: now.saturating_sub(queued.since),
        });
    }

    /// Records what became of a pod, unless it is a delegate: the story of those is told in the source. Returns the name
    /// of the record.
    pub(super) fn tell(
        &mut self,
        name: &Name,
        scheduler: &str,
        end: Result<Arc<str>, String>,
    ) -> Option<Arc<str>> {
        let pod = self.pods.get(name).filter(|_| scheduler != keys::CANDIDATE_SCHEDULER)?;
        let (uid, version) = (Arc::clone(pod.uid()), pod.version());
        let event = event(name, &(&uid, &version, scheduler, &end));
        let (pod, scheduler) = (name.clone(), scheduler.to_owned());
        let story = Story { event: Arc::clone(&event), pod, uid, version, scheduler, end };
        self.actions.push(Action::Tell(Box::new(story)));
        Some(event)
    }

    /// Records why a pod was not placed. In the same words as before it is counted up.
    pub(super) fn tell_failure(&mut self, name: &Name, scheduler: &str, message: &str, now: u64) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        if let Some(told) = pod.told.as_mut().filter(|told| told.message == message) {
            told.count = told.count.saturating_add(1);
            let due = if told.count == 2 { now } else { told.written + SERIES_MS };
            self.series.insert((due, name.clone()));
            return;
        }
        let event = self.tell(name, scheduler, Err(message.to_owned()));
        if let (Some(event), Some(pod)) = (event, self.pods.get_mut(name)) {
            pod.told = Some(Told { message: message.to_owned(), event, count: 1, said: 1, written: now });
        }
    }

    /// Says how often failures were repeated, where that is due.
    pub(super) fn count_up(&mut self, now: u64) {
        while let Some((due, name)) = self.series.first().cloned() {
            if due > now {
                break;
            }
            self.series.pop_first();
            let Some(pod) = self.pods.get_mut(&name) else { continue };
            let uid = Arc::clone(pod.uid());
            let Some(told) = pod.told.as_mut().filter(|told| told.count > told.said) else { continue };
            (told.said, told.written) = (told.count, now);
            let (event, count) = (Arc::clone(&told.event), told.count);
            self.actions.push(Action::TellAgain { pod: name, uid, event, count });
        }
    }

    /// A record could not be written, or is not there any more: the next failure makes a new one.
    pub(super) fn telling_ended(&mut self, name: &Name, event: &str, outcome: &Outcome) {
        if matches!(outcome, Outcome::Done { .. } | Outcome::Conflict) {
            return;
        }
        let pod = self.pods.get_mut(name);
        if let Some(pod) = pod.filter(|pod| pod.told.as_ref().is_some_and(|told| *told.event == *event)) {
            pod.told = None;
        }
    }
}

/// The failure that an event tells of.
#[derive(Debug)]
pub(super) struct Told {
    message: String,
    /// The event's name.
    event: Arc<str>,
    /// How often it happened, how often the event says that it did, and when that was written last.
    count: u32,
    said: u32,
    written: u64,
}

/// The name of an event with this content about a pod.
fn event(pod: &Name, content: &impl Hash) -> Arc<str> {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    let stem: String = pod.name.chars().take(STEM).collect();
    Arc::from(format!("{}.{:016x}", stem.trim_end_matches(['-', '.']), hasher.finish()))
}
