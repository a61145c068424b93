mod hints;
mod model;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::framework::{Framework, Profiles};
use crate::node::NodeInfo;
use crate::snapshot::{NodeChange, Snapshot};

fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
    with_spec(name, json!({"priority": priority}))
}

fn with_spec(name: &str, mut spec: Value) -> Arc<PodInfo> {
    let raw = json!({"metadata": {"name": name}, "spec": spec.take()});
    Arc::new(PodInfo::parse(&raw).expect("a pod"))
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"resources": {"requests": {"cpu": amount}}}]})
}

struct Bench {
    queue: Queue<&'static str>,
    profiles: Profiles,
    snapshot: Snapshot,
}

impl Bench {
    fn new() -> Self {
        Self {
            queue: Queue::new(Backoff::default()),
            profiles: Profiles::from(Framework::builder().build()),
            snapshot: Snapshot::default(),
        }
    }

    fn add(&mut self, name: &'static str, priority: i32, now: u64) {
        self.add_pod(name, pod(name, priority), now);
    }

    fn add_pod(&mut self, name: &'static str, pod: Arc<PodInfo>, now: u64) {
        self.queue.add(name, pod, now, Judge::new(&self.profiles, &self.snapshot));
    }

    fn take(&mut self, now: u64) -> Option<Queued<&'static str>> {
        self.queue.pop(now, Judge::new(&self.profiles, &self.snapshot))
    }

    fn pop(&mut self, now: u64) -> Option<&'static str> {
        self.take(now).map(|queued| queued.key)
    }

    fn hand_back(&mut self, queued: Queued<&'static str>, plugin: &'static str, now: u64) {
        let judge = Judge::new(&self.profiles, &self.snapshot);
        self.queue.refused(queued, BTreeSet::from([plugin]), now, judge);
    }

    fn refuse(&mut self, name: &'static str, plugin: &'static str, now: u64) {
        let queued = self.take(now).expect("a pod");
        assert_eq!(queued.key, name);
        self.hand_back(queued, plugin, now);
    }

    fn fail(&mut self, name: &'static str, now: u64) {
        let queued = self.take(now).expect("a pod");
        assert_eq!(queued.key, name);
        self.queue.failed(queued, now, Judge::new(&self.profiles, &self.snapshot));
    }

    fn event(&mut self, event: &Event, now: u64) -> usize {
        self.queue.event(event, now, Judge::new(&self.profiles, &self.snapshot))
    }

    fn gone(&mut self, now: u64) -> usize {
        self.event(&Event::PodGone(pod("gone", 0)), now)
    }
}

#[test]
fn higher_priority_goes_first_then_whoever_came_first() {
    let mut bench = Bench::new();
    bench.add("a", 0, 1);
    bench.add("b", 5, 2);
    bench.add("c", 0, 3);
    assert_eq!(
        [bench.pop(4), bench.pop(4), bench.pop(4), bench.pop(4)],
        [Some("b"), Some("a"), Some("c"), None]
    );
}

#[test]
fn a_pod_that_was_tried_stands_behind_those_that_came_before_it_was_handed_back() {
    let mut bench = Bench::new();
    bench.add("old", 0, 0);
    bench.refuse("old", "NodeResourcesFit", 5000);
    bench.add("new", 0, 4000);
    assert_eq!(bench.gone(20_000), 1);
    assert_eq!([bench.pop(20_000), bench.pop(20_000)], [Some("new"), Some("old")]);
}

#[test]
fn only_an_event_that_a_rejecting_plugin_cares_about_moves_a_pod() {
    let mut bench = Bench::new();
    bench.add("full", 0, 0);
    bench.refuse("full", "NodeResourcesFit", 0);
    bench.add("tainted", 0, 0);
    bench.refuse("tainted", "TaintToleration", 0);
    assert_eq!(bench.pop(10), None);
    assert_eq!(bench.gone(10), 1);
    assert_eq!(bench.pop(10), Some("full"));
    assert_eq!(bench.pop(10), None);
}

#[test]
fn an_event_counts_that_comes_while_the_pod_is_being_tried() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.add("b", 0, 0);
    let first = bench.take(0).expect("a pod");
    assert_eq!(bench.gone(1), 0);
    let second = bench.take(1).expect("a pod");
    bench.hand_back(first, "NodeResourcesFit", 2);
    bench.hand_back(second, "NodeResourcesFit", 2);
    assert_eq!(bench.queue.lengths(), Lengths { backoff: 1, refused: 1, ..Lengths::default() });
    assert_eq!(bench.pop(3), Some("a"), "b was taken after the event");
}

#[test]
fn what_happens_after_a_pod_was_placed_or_dropped_is_not_remembered() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.add("b", 0, 0);
    let mut placed = bench.take(0).expect("a pod");
    bench.queue.placed(&mut placed);
    drop(bench.take(0));
    bench.gone(1);
    bench.add("c", 0, 1);
    bench.refuse("c", "NodeResourcesFit", 2);
    assert_eq!(bench.queue.lengths(), Lengths { refused: 1, ..Lengths::default() });
    bench.queue.failed(placed, 3, Judge::new(&bench.profiles, &bench.snapshot));
    assert_eq!(bench.queue.lengths(), Lengths { refused: 1, backoff: 1, ..Lengths::default() });
}

#[test]
fn a_change_of_the_pod_counts_that_comes_while_it_is_being_tried() {
    let mut bench = Bench::new();
    bench.add_pod("a", with_spec("a", json!({})), 0);
    let queued = bench.take(0).expect("a pod");
    let tolerant = with_spec("a", json!({"tolerations": [{"operator": "Exists"}]}));
    bench.add_pod("a", Arc::clone(&tolerant), 1);
    assert!(!bench.queue.contains(&"a"), "it is being tried");
    bench.hand_back(queued, "TaintToleration", 2);
    let queued = bench.take(3).expect("tried again");
    assert_eq!((queued.pod, queued.attempts), (tolerant, 2));
}

#[test]
fn a_pause_ends_on_a_whole_second_and_is_cut_short_when_nothing_else_is_due() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.refuse("a", "NodeResourcesFit", 300);
    assert_eq!(bench.gone(400), 1);
    assert_eq!(bench.queue.next_wakeup(), Some(2000));
    bench.add("b", 0, 500);
    assert_eq!([bench.pop(500), bench.pop(500)], [Some("b"), Some("a")]);
}

#[test]
fn pods_whose_pauses_end_together_are_taken_by_priority() {
    let mut bench = Bench::new();
    for (name, priority) in [("low", 0), ("high", 9)] {
        bench.add(name, priority, 0);
    }
    bench.refuse("high", "NodeResourcesFit", 100);
    bench.refuse("low", "NodeResourcesFit", 0);
    assert_eq!(bench.gone(200), 2);
    assert_eq!(bench.queue.lengths().backoff, 2);
    assert_eq!([bench.pop(300), bench.pop(300)], [Some("high"), Some("low")]);
}

#[test]
fn after_an_error_the_pause_is_kept_and_grows_with_errors_in_a_row() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.fail("a", 0);
    assert_eq!((bench.pop(1999), bench.queue.next_wakeup()), (None, Some(2000)));
    bench.fail("a", 2000);
    assert_eq!(bench.queue.next_wakeup(), Some(5000));
    bench.refuse("a", "NodeResourcesFit", 5000);
    bench.gone(5000);
    assert_eq!(bench.queue.next_wakeup(), Some(7000), "one refusal; the errors are over");
}

#[test]
fn a_pod_that_nothing_moves_is_tried_again_after_five_minutes() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.refuse("a", "TaintToleration", 0);
    assert_eq!(bench.pop(LEFTOVER_MS - 1), None);
    assert_eq!(bench.queue.next_wakeup(), Some(LEFTOVER_MS));
    assert_eq!(bench.pop(LEFTOVER_MS), Some("a"));
}

#[test]
fn a_gated_pod_waits_until_its_gates_are_gone() {
    let mut bench = Bench::new();
    let gates = |names: &[&str]| {
        let gates: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        with_spec("a", json!({"schedulingGates": gates}))
    };
    bench.add_pod("a", gates(&["g", "h"]), 0);
    assert_eq!(bench.queue.lengths(), Lengths { gated: 1, ..Lengths::default() });
    assert!(!bench.queue.retry(&"a", 0, Judge::new(&bench.profiles, &bench.snapshot)));
    bench.gone(1);
    bench.add_pod("a", gates(&["g"]), 1);
    assert_eq!(bench.queue.lengths(), Lengths { gated: 1, ..Lengths::default() });
    assert_eq!(bench.pop(LEFTOVER_MS + 1), None);
    assert_eq!(bench.queue.lengths(), Lengths { gated: 1, ..Lengths::default() });
    bench.add_pod("a", gates(&[]), LEFTOVER_MS + 2);
    assert_eq!(bench.pop(LEFTOVER_MS + 2), Some("a"));
}

#[test]
fn a_change_that_no_pod_of_a_cluster_can_make_is_a_reason_to_try() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.refuse("a", "NodeAffinity", 0);
    bench.add("a", 0, 1);
    assert_eq!(bench.pop(1), None);
    bench.add("a", 1, 2);
    assert_eq!(bench.pop(2), Some("a"));
}

#[test]
fn a_new_priority_reorders_a_pod_that_is_to_be_tried() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.add("b", 0, 1);
    bench.add("b", 5, 2);
    assert_eq!([bench.pop(3), bench.pop(3)], [Some("b"), Some("a")]);
}

#[test]
fn a_removed_pod_never_comes_back() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.add("b", 0, 0);
    assert!(bench.queue.remove(&"a"));
    bench.refuse("b", "NodeResourcesFit", 0);
    assert!(bench.queue.remove(&"b"));
    assert_eq!((bench.gone(1), bench.pop(LEFTOVER_MS)), (0, None));
    assert_eq!(bench.queue.lengths(), Lengths::default());
}

#[test]
fn every_move_is_counted_with_its_cause() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.refuse("a", "NodeResourcesFit", 0);
    bench.gone(1);
    assert_eq!(bench.pop(1), Some("a"));
    let counts: Vec<_> = bench.queue.incoming().into_iter().collect();
    assert_eq!(
        counts,
        [
            (("active", "PopFromBackoffQ"), 1),
            (("active", "UnscheduledPodAdd"), 1),
            (("backoff", "AssignedPodDelete"), 1),
            (("unschedulable", "ScheduleAttemptFailure"), 1),
        ]
    );
    assert!(bench.queue.incoming().is_empty());
}
