//! Whether a delegate that may run once only may run: what the Leases of sources say, on a clock of our own.
//!
//! A source renews a Lease by a higher counter. Nobody compares wall clocks: what counts is how long ago *this process
//! saw* the counter change. A process that has just begun to look does not know that, so it gives a counter that it
//! finds less time, and leaves a mark that it did: the next one that finds the same counter with the mark gives it
//! none.

use api::fence::Timing;
use api::{PodChaperon, fence, keys};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::time::Duration;

/// Whose Lease: UID of the source's cluster, and its virtual node for this cluster as a label value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    source: String,
    node: String,
}

impl Holder {
    fn of(label: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Some(Self { source: label(keys::PARENT_CLUSTER_UID)?, node: label(keys::VIRTUAL_NODE)? })
    }
}

/// What a PodChaperon needs to run: whose Lease, and in which epoch. `None` for one that needs none.
#[must_use]
pub fn need(chaperon: &PodChaperon) -> Option<(Holder, u64)> {
    let epoch = fence::epoch(chaperon.annotation(keys::FENCE_EPOCH))?;
    Some((Holder::of(|key| chaperon.label(key).map(str::to_owned))?, epoch))
}

/// What the Lease says about a delegate of some epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fence {
    /// It may run.
    #[default]
    Open,
    /// One that runs goes on; none is created: it is not known whether the Lease still holds.
    Unsure,
    /// The Lease has run out: what runs is stopped, and its source acts on that later.
    Expired,
    /// The source has gone on to another epoch: it may have replaced what this one was for.
    Past,
}

/// What is to be written on a Lease, as long as its counter stands where it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// Somebody found this counter without knowing for how long it had been so.
    Doubt,
    /// The epoch is over.
    Expired,
}

/// A note, and the Lease that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// What the Lease was when that was decided.
    pub state: State,
    /// What to write.
    pub note: Note,
}

/// What a Lease says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// The epoch.
    pub epoch: u64,
    /// The counter.
    pub counter: u64,
}

#[derive(Debug)]
struct Known {
    namespace: String,
    name: String,
    state: State,
    timing: Timing,
    /// Until when it holds unless it is renewed.
    until: Duration,
    /// Whether the counter was seen to change.
    is_sure: bool,
    /// Whether the Lease shows that somebody was in doubt about this very counter.
    is_marked: bool,
    /// The last epoch that is over.
    expired: Option<u64>,
}

/// All Leases that sources hold here. Times are those of a monotonic clock.
#[derive(Debug, Default)]
pub struct Fences {
    began: Duration,
    known: BTreeMap<Holder, Known>,
}

impl Fences {
    /// Begins to look.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { began: now, known: BTreeMap::new() }
    }

    /// Takes in a Lease: one that was listed may be of any age, one that appears later was made just now.
    pub fn see(&mut self, lease: &Lease, listed: bool, now: Duration) {
        let Some(holder) = Holder::of(|key| lease.labels().get(key).cloned()) else { return };
        let note = |key: &str| lease.annotations().get(key).map(String::as_str);
        let state = State { epoch: fence::lease_epoch(lease), counter: fence::lease_counter(lease) };
        let timing = Timing::of(lease);
        let is_marked = note(keys::FENCE_DOUBT) == Some(&mark(state));
        let expired = fence::epoch(note(keys::FENCE_EXPIRED));
        let first = !self.known.contains_key(&holder);
        let known = self.known.entry(holder).or_insert_with(|| Known {
            namespace: lease.namespace().unwrap_or_default(),
            name: lease.name_any(),
            state,
            timing,
            until: now,
            is_sure: !listed,
            is_marked,
            expired,
        });
        known.expired = known.expired.max(expired);
        known.is_marked = is_marked;
        known.timing = timing;
        if first {
            known.until = match (listed, is_marked) {
                (false, _) => now + timing.expiry(),
                (true, false) => now + timing.doubt(),
                (true, true) => now,
            };
        } else if state != known.state {
            known.state = state;
            known.is_sure = true;
            known.until = now + timing.expiry();
        }
    }

    /// What is to be written now.
    #[must_use]
    pub fn due(&self, now: Duration) -> Vec<Order> {
        let orders = self.known.values().filter_map(|known| {
            let over = known.expired.is_some_and(|expired| expired >= known.state.epoch);
            let note = if over {
                return None;
            } else if now >= known.until {
                Note::Expired
            } else if !known.is_sure && !known.is_marked {
                Note::Doubt
            } else {
                return None;
            };
            let (namespace, name) = (known.namespace.clone(), known.name.clone());
            Some(Order { namespace, name, state: known.state, note })
        });
        orders.collect()
    }

    /// What the Lease of a holder says about a delegate of an epoch.
    #[must_use]
    pub fn verdict(&self, (holder, epoch): &(Holder, u64), now: Duration) -> Fence {
        let Some(known) = self.known.get(holder) else {
            // Nobody may have renewed it since long before we began to look.
            let over = now >= self.began + Timing::default().doubt();
            return if over { Fence::Expired } else { Fence::Unsure };
        };
        if known.state.epoch > *epoch {
            Fence::Past
        } else if known.expired.is_some_and(|expired| expired >= *epoch) {
            Fence::Expired
        } else if known.state.epoch < *epoch || !known.is_sure || now >= known.until {
            Fence::Unsure
        } else {
            Fence::Open
        }
    }

    /// Whether any Lease is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

/// What a doubt about one counter is written as.
#[must_use]
pub fn mark(state: State) -> String {
    format!("{}/{}", state.epoch, state.counter)
}

#[cfg(test)]
mod tests {
    use super::{Fence, Fences, Note, mark, need};
    use api::fence::Timing;
    use api::{PodChaperon, keys};
    use k8s_openapi::api::coordination::v1::Lease;
    use serde_json::{Value, json};
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(epoch: u64, counter: u64, notes: &Value) -> Lease {
        let mut annotations = json!({keys::FENCE_COUNTER: counter.to_string()});
        annotations.as_object_mut().unwrap().extend(notes.as_object().cloned().unwrap_or_default());
        serde_json::from_value(json!({
            "metadata": {"name": "multicluster-fence-s", "namespace": "ns", "annotations": annotations,
                "labels": {keys::PARENT_CLUSTER_UID: "s", keys::VIRTUAL_NODE: "n"}},
            "spec": {"leaseTransitions": epoch}}))
        .unwrap()
    }

    fn chaperon(epoch: u64) -> PodChaperon {
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "ns",
            "labels": {keys::PARENT_CLUSTER_UID: "s", keys::VIRTUAL_NODE: "n"},
            "annotations": {keys::FENCE_EPOCH: epoch.to_string()}}}))
        .unwrap()
    }

    /// One that has looked on since the beginning of time.
    fn renewed(at: Duration) -> Fences {
        let mut fences = Fences::new(Duration::ZERO);
        fences.see(&lease(1, 1, &json!({})), false, Duration::ZERO);
        fences.see(&lease(1, 2, &json!({})), false, at);
        fences
    }

    #[track_caller]
    fn check(fences: &Fences, epoch: u64, now: Duration, want: Fence) {
        assert_eq!(fences.verdict(&need(&chaperon(epoch)).unwrap(), now), want);
    }

    fn notes(fences: &Fences, now: Duration) -> Vec<Note> {
        fences.due(now).into_iter().map(|order| order.note).collect()
    }

    #[test]
    fn only_a_pod_chaperon_with_an_epoch_needs_a_lease() {
        let mut free = chaperon(1);
        free.metadata.annotations = None;
        assert_eq!(need(&free), None);
    }

    #[test]
    fn a_delegate_runs_as_long_as_the_counter_is_seen_to_change() {
        let expiry = Timing::default().expiry();
        let fences = renewed(SECOND * 100);
        check(&fences, 1, SECOND * 100 + expiry - SECOND, Fence::Open);
        assert!(notes(&fences, SECOND * 100 + expiry - SECOND).is_empty());
        check(&fences, 1, SECOND * 100 + expiry, Fence::Unsure);
        assert_eq!(notes(&fences, SECOND * 100 + expiry), [Note::Expired]);
    }

    #[test]
    fn what_is_written_first_counts_and_no_later_renewal_takes_it_back() {
        let mut fences = renewed(Duration::ZERO);
        let late = Timing::default().expiry() + SECOND;
        fences.see(&lease(1, 2, &json!({keys::FENCE_EXPIRED: "1"})), false, late);
        check(&fences, 1, late, Fence::Expired);
        fences.see(&lease(1, 3, &json!({keys::FENCE_EXPIRED: "1"})), false, late + SECOND);
        check(&fences, 1, late + SECOND, Fence::Expired);
        // Not even when somebody takes the note away.
        fences.see(&lease(1, 4, &json!({})), false, late + SECOND * 2);
        check(&fences, 1, late + SECOND * 2, Fence::Expired);
        assert!(notes(&fences, late + SECOND * 1000).is_empty());
        fences.see(&lease(2, 5, &json!({keys::FENCE_EXPIRED: "1"})), false, late + SECOND * 3);
        check(&fences, 1, late + SECOND * 3, Fence::Past);
        check(&fences, 2, late + SECOND * 3, Fence::Open);
    }

    #[test]
    fn a_source_that_went_on_to_another_epoch_may_have_replaced_what_runs() {
        let mut fences = renewed(Duration::ZERO);
        fences.see(&lease(2, 3, &json!({})), false, SECOND);
        check(&fences, 1, SECOND, Fence::Past);
        check(&fences, 2, SECOND, Fence::Open);
        check(&fences, 3, SECOND, Fence::Unsure);
    }

    #[test]
    fn a_new_leader_gives_a_counter_less_time_and_says_so() {
        let timing = Timing::default();
        let mut fences = Fences::new(SECOND * 10);
        fences.see(&lease(1, 7, &json!({})), true, SECOND * 10);
        check(&fences, 1, SECOND * 11, Fence::Unsure);
        assert_eq!(notes(&fences, SECOND * 11), [Note::Doubt]);
        fences.see(&lease(1, 7, &json!({keys::FENCE_DOUBT: "1/7"})), false, SECOND * 12);
        assert!(notes(&fences, SECOND * 12).is_empty(), "once is enough");
        assert_eq!(notes(&fences, SECOND * 10 + timing.doubt()), [Note::Expired]);
        fences.see(&lease(1, 8, &json!({keys::FENCE_DOUBT: "1/7"})), false, SECOND * 13);
        check(&fences, 1, SECOND * 13, Fence::Open);
        assert!(notes(&fences, SECOND * 12 + timing.expiry()).is_empty());
    }

    #[test]
    fn a_second_new_leader_that_finds_the_same_counter_gives_it_no_time_at_all() {
        let mut fences = Fences::new(SECOND);
        let marked = lease(1, 7, &json!({keys::FENCE_DOUBT: mark(super::State { epoch: 1, counter: 7 })}));
        fences.see(&marked, true, SECOND);
        assert_eq!(notes(&fences, SECOND), [Note::Expired]);
        // The mark of an earlier counter says nothing about this one.
        let mut fences = Fences::new(SECOND);
        fences.see(&lease(1, 8, &json!({keys::FENCE_DOUBT: "1/7"})), true, SECOND);
        assert_eq!(notes(&fences, SECOND), [Note::Doubt]);
    }

    #[test]
    fn a_lease_that_nobody_made_lets_nothing_begin_and_soon_nothing_run() {
        let fences = Fences::new(SECOND);
        check(&fences, 0, SECOND, Fence::Unsure);
        check(&fences, 0, SECOND + Timing::default().doubt(), Fence::Expired);
    }

    #[test]
    fn two_changes_of_leaders_and_a_renewal_fit_into_what_the_source_waits() {
        let timing = Timing::default();
        // Seen just before the first leader was gone, found by the second, found marked by the third.
        let longest = timing.expiry() + timing.doubt() + timing.takeover();
        assert!(longest <= timing.duration, "{longest:?}");
        assert!(timing.takeover() >= SECOND * 40, "a Lease of 15 s has to run out twice");
    }
}
