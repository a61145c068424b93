//! Which events are shown, and as what. Pure.

use api::names::short_hash;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use std::collections::HashMap;

/// What is older, in seconds, is no news: after a restart of ours it was shown by an earlier process.
const OLD: i64 = 600;
/// Most delegates whose proxy pods are remembered.
const MOST: usize = 10_000;
/// Bytes of a pod's name that an event's own keeps.
const NAME: usize = 230;

/// Events of one pod: how many at once, and seconds until there is room for one more.
const OF_POD: (u32, i64) = (20, 30);
/// Events of one target that are no warnings, likewise in hundredths of a second.
const NORMAL: (u32, i64) = (100, 20);
/// Warnings of one target.
const WARNINGS: (u32, i64) = (200, 10);

/// The proxy pod of a delegate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What becomes of an event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// It is written, or what changed of it.
    Show(Box<Event>),
    /// There were too many.
    LeaveOut,
}

/// Room for so many at once, and one more after each period, in any unit of time.
#[derive(Debug, Clone)]
struct Bucket {
    room: u32,
    since: i64,
}

impl Bucket {
    fn full((size, _): (u32, i64), now: i64) -> Self {
        Self { room: size, since: now }
    }

    fn takes(&mut self, (size, period): (u32, i64), now: i64) -> bool {
        let passed = (now - self.since).max(0) / period;
        self.room = self.room.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX)).min(size);
        self.since = if self.room == size { now } else { self.since + passed * period };
        let has = self.room > 0;
        self.room = self.room.saturating_sub(1);
        has
    }
}

/// What is known of events until now.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By the UID of a delegate; `None`: somebody else's pod.
    parents: HashMap<String, Option<Parent>>,
    /// How often an event was when it was shown last, by its UID.
    shown: HashMap<String, i32>,
    pods: HashMap<String, Bucket>,
    all: HashMap<bool, Bucket>,
}

impl Memory {
    /// Whether an event is young and not shown as it is now.
    pub(crate) fn is_news(&self, event: &Event, now: Timestamp) -> bool {
        let young = last(event).is_some_and(|at| now.as_second() - at.0.as_second() < OLD);
        young && self.shown.get(uid(event)).is_none_or(|count| *count < times(event))
    }

    /// What is known of a delegate's proxy pod.
    pub(crate) fn parent(&self, delegate: &str) -> Option<&Option<Parent>> {
        self.parents.get(delegate)
    }

    /// Remembers a delegate's proxy pod, and returns it.
    pub(crate) fn learn(&mut self, delegate: String, parent: Option<Parent>) -> Option<Parent> {
        if self.parents.len() >= MOST {
            self.parents.clear();
            self.shown.clear();
            self.pods.clear();
        }
        self.parents.insert(delegate, parent.clone());
        parent
    }
}

fn uid(event: &Event) -> &str {
    event.metadata.uid.as_deref().unwrap_or_default()
}

fn times(event: &Event) -> i32 {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.or(event.count).unwrap_or(1).max(1)
}

fn first(event: &Event) -> Option<Time> {
    event.first_timestamp.clone().or_else(|| event.event_time.as_ref().map(|time| Time(time.0)))
}

fn last(event: &Event) -> Option<Time> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    series.map(|time| Time(time.0)).or_else(|| event.last_timestamp.clone()).or_else(|| first(event))
}

/// Whether an event's pod has a name as delegates have it: others are not even looked up.
pub(crate) fn is_of_delegate(event: &Event) -> bool {
    let name = event.involved_object.name.as_deref().unwrap_or_default();
    let hash = name.rsplit_once('-').map_or("", |(_, hash)| hash);
    hash.len() == 10 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// What becomes of an event of this proxy pod's delegate in a cluster.
pub(crate) fn plan(
    memory: &mut Memory,
    event: &Event,
    parent: &Parent,
    (cluster, now): (&str, Timestamp),
) -> Step {
    let (seconds, hundredths) = (now.as_second(), now.as_millisecond() / 10);
    let warns = event.type_.as_deref() == Some("Warning");
    let pod = memory.pods.entry(parent.uid.clone()).or_insert_with(|| Bucket::full(OF_POD, seconds));
    if !pod.takes(OF_POD, seconds) {
        return Step::LeaveOut;
    }
    let size = if warns { WARNINGS } else { NORMAL };
    let all = memory.all.entry(warns).or_insert_with(|| Bucket::full(size, hundredths));
    if !all.takes(size, hundredths) {
        return Step::LeaveOut;
    }
    memory.shown.insert(uid(event).to_owned(), times(event));
    Step::Show(Box::new(shown(event, parent, cluster)))
}

/// The event as it is shown: of the same component, which is said to be in its cluster.
fn shown(event: &Event, parent: &Parent, cluster: &str) -> Event {
    let source = event.source.clone().unwrap_or_default();
    let component =
        source.component.filter(|name| !name.is_empty()).or_else(|| event.reporting_component.clone());
    let host = source.host.filter(|host| !host.is_empty());
    let host = host.map_or_else(|| cluster.to_owned(), |host| format!("{cluster}/{host}"));
    let kept: String = parent.name.chars().take(NAME).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", kept.trim_end_matches(['-', '.']), short_hash(uid(event)))),
            namespace: Some(parent.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(parent.namespace.clone()),
            name: Some(parent.name.clone()),
            uid: Some(parent.uid.clone()),
            field_path: event.involved_object.field_path.clone(),
            resource_version: None,
        },
        type_: event.type_.clone(),
        reason: event.reason.clone(),
        message: Some(format!("{} (in {cluster})", event.message.as_deref().unwrap_or_default())),
        source: Some(EventSource { component, host: Some(host) }),
        first_timestamp: first(event),
        last_timestamp: last(event),
        count: Some(times(event)),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests;
