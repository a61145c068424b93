use serde_json::json;

use super::*;
use crate::node::NodeInfo;
use crate::snapshot::NodeChange;

fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
    let raw = json!({"metadata": {"name": name}, "spec": {"priority": priority}});
    Arc::new(PodInfo::parse(&raw).expect("a pod"))
}

struct Bench {
    queue: Queue<&'static str>,
    framework: Framework,
}

impl Bench {
    fn new() -> Self {
        Self { queue: Queue::new(Backoff::default()), framework: Framework::builder().build() }
    }

    fn add(&mut self, name: &'static str, priority: i32, now: u64) {
        self.queue.add(name, pod(name, priority), now, &self.framework);
    }

    fn pop(&mut self, now: u64) -> Option<&'static str> {
        self.queue.pop(now, &self.framework).map(|queued| queued.key)
    }

    fn refuse(&mut self, name: &'static str, plugin: &'static str, now: u64) {
        let queued = self.queue.pop(now, &self.framework).expect("a pod");
        assert_eq!(queued.key, name);
        self.queue.refused(queued, BTreeSet::from([plugin]), now);
    }

    fn gone(&mut self, now: u64) -> usize {
        self.queue.event(&Event::PodGone(&pod("gone", 0)), &self.framework, now)
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
fn a_node_with_room_moves_a_pod_that_found_none_and_one_without_does_not() {
    let mut bench = Bench::new();
    let raw = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}});
    bench.queue.add("p", Arc::new(PodInfo::parse(&raw).expect("a pod")), 0, &bench.framework);
    bench.refuse("p", "NodeResourcesFit", 0);
    let node = |cpu: &str| {
        NodeInfo::parse(&json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu}}}))
            .expect("a node")
    };
    let change = NodeChange { added: true, ..NodeChange::default() };
    let small = Event::Node { node: &node("1"), change };
    assert_eq!(bench.queue.event(&small, &bench.framework, 1), 0);
    let large = Event::Node { node: &node("2"), change };
    assert_eq!(bench.queue.event(&large, &bench.framework, 1), 1);
}

#[test]
fn a_pause_doubles_up_to_its_limit_and_is_cut_short_when_nothing_else_is_due() {
    let backoff = Backoff::default();
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 90].map(|failures| backoff.after(failures)),
        [0, 1000, 2000, 4000, 8000, 10_000, 10_000]
    );
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.refuse("a", "NodeResourcesFit", 0);
    assert_eq!(bench.gone(100), 1);
    assert_eq!(bench.queue.next_wakeup(), Some(1000));
    bench.add("b", 0, 100);
    assert_eq!([bench.pop(100), bench.pop(100)], [Some("b"), Some("a")]);
}

#[test]
fn after_an_error_the_pause_is_kept() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    let queued = bench.queue.pop(0, &bench.framework).expect("a pod");
    bench.queue.failed(queued, 0);
    assert_eq!(bench.pop(999), None);
    assert_eq!(bench.queue.next_wakeup(), Some(1000));
    assert_eq!(bench.pop(1000), Some("a"));
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
    let gated = json!({"metadata": {"name": "a"}, "spec": {"schedulingGates": [{"name": "g"}]}});
    bench.queue.add("a", Arc::new(PodInfo::parse(&gated).expect("a pod")), 0, &bench.framework);
    assert_eq!(bench.queue.lengths(), Lengths { gated: 1, ..Lengths::default() });
    assert!(!bench.queue.retry(&"a", 0, &bench.framework));
    assert_eq!(bench.pop(LEFTOVER_MS), None);
    bench.add("a", 0, 1);
    assert_eq!(bench.pop(1), Some("a"));
}

#[test]
fn a_change_of_the_pod_itself_is_a_reason_to_try() {
    let mut bench = Bench::new();
    bench.add("a", 0, 0);
    bench.refuse("a", "NodeAffinity", 0);
    bench.add("a", 0, 1);
    assert_eq!(bench.pop(1), None);
    bench.add("a", 1, 2);
    assert_eq!(bench.pop(2), Some("a"));
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
