use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::budget::Budget;
use crate::framework::{Framework, Nomination, PreFilter};
use crate::node::NodeInfo;
use crate::snapshot::Snapshot;

/// A pod that asks for `cpu` whole cores.
struct Make {
    name: &'static str,
    cpu: i64,
    priority: i32,
    minute: Option<u8>,
    labels: Value,
    extra: Value,
    status: Value,
}

fn make(name: &'static str, cpu: i64, priority: i32) -> Make {
    let nothing = || json!({});
    Make { name, cpu, priority, minute: Some(0), labels: nothing(), extra: nothing(), status: nothing() }
}

impl Make {
    fn pod(self) -> PodInfo {
        let requests = json!({"requests": {"cpu": self.cpu}});
        let mut raw = json!({
            "metadata": {"name": self.name, "uid": self.name, "labels": self.labels},
            "spec": {"priority": self.priority, "containers": [{"name": "c", "resources": requests}]},
            "status": self.status,
        });
        for (key, value) in self.extra.as_object().into_iter().flatten() {
            raw["spec"][key] = value.clone();
        }
        if let Some(minute) = self.minute {
            raw["status"]["startTime"] = json!(format!("2026-01-01T00:{minute:02}:00Z"));
        }
        PodInfo::parse(&raw).expect("a pod")
    }
}

/// Nodes of four cores, `n1` to `n3`.
struct World(Snapshot);

fn world() -> World {
    let mut snapshot = Snapshot::default();
    for name in ["n1", "n2", "n3"] {
        let raw = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": 4, "pods": 10}}});
        snapshot.set_node(NodeInfo::parse(&raw).expect("a node"));
    }
    World(snapshot)
}

impl World {
    fn with(mut self, node: &str, pod: Make) -> Self {
        self.0.assume(Arc::new(pod.pod()), &Arc::from(node));
        self
    }

    /// The other nodes are full of what may not be touched.
    fn only(self, node: &str) -> Self {
        let others = [("n1", "f1"), ("n2", "f2"), ("n3", "f3")];
        let others = others.into_iter().filter(|(other, _)| *other != node);
        others.fold(self, |world, (other, name)| world.with(other, make(name, 4, 1_000_000)))
    }

    fn budget(mut self, app: &str, allowed: i64) -> Self {
        let raw = json!({"metadata": {"namespace": "default", "name": app},
            "spec": {"selector": {"matchLabels": {"app": app}}}, "status": {"disruptionsAllowed": allowed}});
        self.0.budgets_mut().set(Budget::parse(&raw).expect("a budget"));
        self
    }

    fn waiting(mut self, node: &str, pod: Make) -> Self {
        self.0.nominator_mut().nominate(Arc::new(pod.pod()), &Arc::from(node));
        self
    }

    fn try_pod(&self, pod: Make) -> Box<Diagnosis> {
        Framework::builder().build().evaluate(&pod.pod(), &self.0).expect_err("it fits nowhere as things are")
    }

    /// The node and the victims, in their order, that `pod` would get.
    #[track_caller]
    fn check(&self, pod: Make, node: &str, victims: &[&str]) {
        let diagnosis = self.try_pod(pod);
        let best = diagnosis.candidates.first().unwrap_or_else(|| panic!("{}", diagnosis.message()));
        let names: Vec<_> = best.victims.iter().map(|victim| &*victim.name).collect();
        assert_eq!((&*best.node, names.as_slice()), (node, victims));
        assert_eq!(diagnosis.nomination, Nomination::Node(Arc::from(node)));
    }

    #[track_caller]
    fn check_not(&self, pod: Make, sentence: &str, nomination: &Nomination) {
        let diagnosis = self.try_pod(pod);
        assert_eq!(diagnosis.post_filter.as_deref(), Some(sentence));
        assert_eq!((diagnosis.candidates.len(), &diagnosis.nomination), (0, nomination));
    }
}

fn app(app: &str) -> Value {
    json!({"app": app})
}

const HELPLESS: &str = "preemption: 0/3 nodes are available: \
    1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.";

#[test]
fn no_more_pods_leave_than_have_to_and_the_important_ones_stay() {
    let world = world().only("n1").with("n1", make("a", 1, 1)).with("n1", make("b", 1, 3));
    let world = world.with("n1", make("c", 1, 2)).with("n1", make("d", 1, 0));
    world.check(make("p", 2, 9), "n1", &["a", "d"]);
}

#[test]
fn among_equals_the_older_stays() {
    let world = world().only("n1").with("n1", Make { minute: Some(7), ..make("young", 2, 1) });
    let world = world.with("n1", Make { minute: Some(5), ..make("old", 2, 1) });
    world.check(make("p", 2, 9), "n1", &["young"]);
}

#[test]
fn who_does_not_run_yet_leaves_before_who_runs() {
    let world = world().only("n1").with("n1", Make { minute: None, ..make("a-new", 2, 1) });
    let world = world.with("n1", Make { minute: Some(59), ..make("b-runs", 2, 1) });
    world.check(make("p", 2, 9), "n1", &["a-new"]);
}

#[test]
fn equal_priority_is_no_reason_to_leave() {
    let world = world().only("n1").with("n1", make("a", 4, 9));
    let diagnosis = world.try_pod(make("p", 1, 9));
    let sentence = "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.";
    assert_eq!(diagnosis.post_filter.as_deref(), Some(sentence));
    assert_eq!(diagnosis.nomination, Nomination::Clear);
}

#[test]
fn a_protected_pod_stays_even_if_a_more_important_one_must_leave() {
    let world = world().only("n1").budget("web", 0);
    let world = world.with("n1", Make { labels: app("web"), ..make("protected", 2, 1) });
    world.with("n1", make("important", 2, 5)).check(make("p", 2, 9), "n1", &["important"]);
}

#[test]
fn victims_are_listed_by_importance_whether_protected_or_not() {
    let world = world().only("n1").budget("web", 0);
    let world = world.with("n1", Make { labels: app("web"), ..make("protected", 2, 1) });
    let world = world.with("n1", make("important", 2, 5));
    world.check(make("p", 4, 9), "n1", &["important", "protected"]);
}

#[test]
fn fewer_broken_budgets_come_before_everything_else() {
    let world = world().only("").budget("web", 0);
    let mut world = world;
    for name in ["f1", "f2", "f3"] {
        world.0.remove_pod(name);
    }
    let world = world.with("n3", make("f", 4, 100)).with("n2", make("many", 4, 8));
    let world = world.with("n1", Make { labels: app("web"), ..make("protected", 4, 0) });
    world.check(make("p", 4, 9), "n2", &["many"]);
}

#[test]
fn the_lowest_of_the_highest_priorities_comes_second() {
    let world = world().with("n3", make("f", 4, 100));
    let world = world.with("n1", make("a", 2, 5)).with("n1", make("b", 2, 0));
    let world = world.with("n2", make("c", 2, 4)).with("n2", make("d", 2, 4));
    world.check(make("p", 4, 9), "n2", &["c", "d"]);
}

#[test]
fn the_smaller_sum_of_priorities_comes_third_and_is_counted_from_the_lowest_there_is() {
    let world = world().with("n3", make("f", 4, 100));
    let world = world.with("n1", make("a", 2, 5)).with("n1", make("b", 2, 3));
    let world = world.with("n2", make("c", 2, 5)).with("n2", make("d", 2, 2));
    world.check(make("p", 4, 9), "n2", &["c", "d"]);
    // Two victims of negative priority are worse than one.
    let world = self::world().with("n3", make("f", 4, 100)).with("n1", make("a", 4, -5));
    let world = world.with("n2", make("c", 2, -5)).with("n2", make("d", 2, -7));
    world.check(make("p", 4, 9), "n1", &["a"]);
}

#[test]
fn the_later_start_of_the_most_important_victims_comes_last() {
    let world = world().with("n3", make("f", 4, 100));
    let world = world.with("n1", Make { minute: Some(10), ..make("a", 2, 5) });
    let world = world.with("n1", Make { minute: Some(1), ..make("b", 2, 3) });
    let world = world.with("n2", Make { minute: Some(9), ..make("c", 2, 5) });
    let world = world.with("n2", Make { minute: Some(50), ..make("d", 2, 3) });
    world.check(make("p", 4, 9), "n1", &["a", "b"]);
}

#[test]
fn a_promise_is_nobodys_to_take() {
    let mut world = world().only("n1").with("n1", make("a", 2, 0));
    let promise = PodInfo { promise: true, ..make("promise", 2, 0).pod() };
    world.0.assume(Arc::new(promise), &Arc::from("n1"));
    world.check(make("p", 2, 9), "n1", &["a"]);
    let sentence = "preemption: 0/3 nodes are available: \
        1 Insufficient cpu, 2 No preemption victims found for incoming pod.";
    world.check_not(make("p", 4, 9), sentence, &Nomination::Clear);
}

#[test]
fn a_promise_asks_nobody_to_go() {
    let world = world().only("n1").with("n1", make("a", 4, 0));
    let promise = PodInfo { promise: true, ..make("p", 4, 9).pod() };
    let diagnosis = Framework::builder().build().evaluate(&promise, &world.0).expect_err("full");
    assert_eq!((diagnosis.post_filter, diagnosis.candidates.len()), (None, 0));
}

#[test]
fn never_means_never() {
    let world = world().only("n1").with("n1", make("a", 4, 0));
    let sentence = "preemption: not eligible due to preemptionPolicy=Never.";
    let never = Make { extra: json!({"preemptionPolicy": "Never"}), ..make("p", 4, 9) };
    world.check_not(never, sentence, &Nomination::Keep);
}

/// A pod that was preempted and has not gone yet.
fn leaving(name: &'static str, priority: i32, reason: &str) -> PodInfo {
    let condition = json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
    let pod = Make { status: json!({"conditions": condition}), ..make(name, 2, priority) }.pod();
    PodInfo { terminating: true, preempted: reason == "PreemptionByScheduler", ..pod }
}

fn nominated(priority: i32, cpu: i64, node: &str) -> Make {
    Make { status: json!({"nominatedNodeName": node}), ..make("p", cpu, priority) }
}

#[test]
fn while_victims_leave_its_node_a_pod_asks_no_others() {
    let mut world = world().only("n1").with("n1", make("a", 2, 0));
    world.0.assume(Arc::new(leaving("b", 0, "PreemptionByScheduler")), &Arc::from("n1"));
    let sentence = "preemption: not eligible due to a terminating pod on the nominated node.";
    world.check_not(nominated(9, 2, "n1"), sentence, &Nomination::Keep);
    // One that leaves for another reason, or for whom the pod did not ask, is none to wait for.
    world.0.assume(Arc::new(leaving("b", 0, "EvictionByEvictionAPI")), &Arc::from("n1"));
    world.check(nominated(9, 2, "n1"), "n1", &["b"]);
    world.0.assume(Arc::new(leaving("b", 9, "PreemptionByScheduler")), &Arc::from("n1"));
    world.check(nominated(9, 2, "n1"), "n1", &["a"]);
}

#[test]
fn on_a_node_that_cannot_be_freed_there_is_nothing_to_wait_for() {
    let mut world = world().only("n1").with("n1", make("a", 4, 0));
    world.0.remove_pod("f2");
    world.0.assume(Arc::new(leaving("b", 0, "PreemptionByScheduler")), &Arc::from("n2"));
    let cordoned = NodeInfo::clone(&world.0.node("n2").expect("a node").info);
    world.0.set_node(NodeInfo { unschedulable: true, ..cordoned });
    world.check(nominated(9, 4, "n2"), "n1", &["a"]);
}

#[test]
fn a_pod_takes_its_nominated_node_without_a_look_at_others() {
    let world = world();
    let framework = Framework::builder().build();
    let selection = framework.evaluate(&nominated(9, 4, "n2").pod(), &world.0).expect("room");
    assert_eq!((&*selection.node, selection.ranked.len()), ("n2", 1));
    let selection = framework.evaluate(&nominated(9, 4, "n9").pod(), &world.0).expect("room");
    assert_eq!(selection.ranked.len(), 3);
}

#[test]
fn room_made_for_another_pod_is_left_to_it() {
    let world = world().only("n1").waiting("n1", make("other", 4, 5));
    let framework = Framework::builder().build();
    assert!(framework.evaluate(&make("p", 1, 5).pod(), &world.0).is_err(), "its equal");
    assert!(framework.evaluate(&make("p", 1, 9).pod(), &world.0).is_ok(), "its better");
    assert!(framework.evaluate(&make("other", 4, 5).pod(), &world.0).is_ok(), "the pod itself");
    assert!(framework.evaluate_node(&make("p", 1, 5).pod(), &world.0, "n1").is_err());
}

#[test]
fn a_pod_that_waits_is_no_victim_and_no_company_yet() {
    let world = world().only("n1").with("n1", make("a", 4, 0));
    let world = world.waiting("n1", Make { labels: app("db"), ..make("other", 2, 5) });
    world.check(make("p", 2, 5), "n1", &["a"]);
    // It would be near the pod that waits, which is not there yet.
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}]}}});
    let framework = Framework::builder().build();
    let empty = self::world().waiting("n1", Make { labels: app("db"), ..make("other", 2, 5) });
    assert!(framework.evaluate(&Make { extra: near, ..make("p", 1, 5) }.pod(), &empty.0).is_err());
}

#[test]
fn a_pod_is_made_way_for_by_those_that_do_not_want_it_near() {
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    let world = world().only("n1").with("n1", make("a", 1, 0));
    let world = world.with("n1", Make { extra: apart, ..make("shy", 1, 5) });
    world.check(Make { labels: app("web"), ..make("p", 1, 9) }, "n1", &["shy"]);
}

#[test]
fn pods_that_leave_do_not_count_when_pods_are_spread() {
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let web = |name, priority| Make { labels: app("web"), ..make(name, 1, priority) };
    let world = world().with("n1", web("a", 0)).with("n1", web("b", 1)).with("n2", web("c", 2));
    let world = world.with("n2", make("d", 3, 9)).with("n3", make("e", 4, 9));
    let diagnosis = world.try_pod(Make { labels: app("web"), extra: spread, ..make("p", 1, 5) });
    let ways = diagnosis.candidates.iter().map(|way| (&*way.node, way.victims.len()));
    assert_eq!(ways.collect::<Vec<_>>(), [("n1", 2), ("n2", 1)]);
    let sentence = "preemption: found a potential placement for pod on node n1, preempting 2 victims";
    assert_eq!(diagnosis.post_filter.as_deref(), Some(sentence));
}

#[test]
fn a_pod_that_no_victim_helps_hears_so_and_waits_for_no_node() {
    let mut world = world().only("n1").with("n1", make("a", 1, 9));
    world.0.remove_pod("f2");
    world.0.remove_pod("f3");
    for name in ["n2", "n3"] {
        let info = NodeInfo::clone(&world.0.node(name).expect("a node").info);
        world.0.set_node(NodeInfo { unschedulable: true, ..info });
    }
    world.check_not(make("p", 4, 9), HELPLESS, &Nomination::Clear);
}

#[test]
fn the_search_stops_when_enough_was_found_and_one_way_breaks_no_budget() {
    let few = PreemptionArgs { min_candidate_percentage: 0, min_candidates: 1 };
    let framework = Framework::builder().without(&["DefaultPreemption"]);
    let framework = framework.with(Box::new(DefaultPreemption { args: few }), 0).build();
    let world = world().budget("web", 0);
    let protected = |name| Make { labels: app("web"), ..make(name, 4, 0) };
    let world = world.with("n1", protected("a")).with("n2", protected("b")).with("n3", make("c", 4, 0));
    for uid in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        let pod = PodInfo { uid: Arc::from(uid), ..make("p", 4, 9).pod() };
        let diagnosis = framework.evaluate(&pod, &world.0).expect_err("full");
        assert_eq!(diagnosis.candidates[0].violations, 0, "{uid}");
        assert!(diagnosis.candidates.len() <= 3);
    }
    let world = self::world().with("n1", make("a", 4, 0)).with("n2", make("b", 4, 0));
    let diagnosis = framework.evaluate(&make("p", 4, 9).pod(), &world.with("n3", make("c", 4, 0)).0);
    assert_eq!(diagnosis.expect_err("full").candidates.len(), 1);
}

/// A filter from outside that refuses every node once and then has forgotten why.
#[derive(Default)]
struct Forgetful(Mutex<HashSet<Arc<str>>>);

impl Plugin for Forgetful {
    fn name(&self) -> &'static str {
        "Forgetful"
    }

    fn pre_filter<'a>(&'a self, _cycle: Cycle<'a>) -> PreFilter<'a> {
        PreFilter::Filter(Box::new(|node: &Node| {
            let first = self.0.lock().expect("no panic before").insert(Arc::clone(&node.info.name));
            if first { Err(Rejection::unschedulable("forgetful")) } else { Ok(()) }
        }))
    }

    fn hint(&self, _event: &Event, _cycle: Cycle<'_>) -> bool {
        false
    }
}

#[test]
fn room_that_costs_nobody_anything_is_a_slip_of_a_filter_and_nobody_goes() {
    let world = world().only("n1").with("n1", make("a", 1, 0));
    let framework = Framework::builder().with(Box::new(Forgetful::default()), 0).build();
    let diagnosis = framework.evaluate(&make("p", 1, 9).pod(), &world.0).expect_err("forgetful");
    let sentence = "preemption: expected at least one victim pod on node \"n1\"";
    assert_eq!(diagnosis.post_filter.as_deref(), Some(sentence));
    assert_eq!((diagnosis.candidates.len(), &diagnosis.nomination), (0, &Nomination::Keep));
}

#[test]
fn how_many_ways_are_wanted_follows_the_arguments() {
    let wanted = |min_candidate_percentage, min_candidates, nodes| {
        PreemptionArgs { min_candidate_percentage, min_candidates }.wanted(nodes)
    };
    assert_eq!(wanted(10, 100, 5000), 500);
    assert_eq!(wanted(10, 100, 500), 100);
    assert_eq!(wanted(10, 100, 30), 30);
    assert_eq!(wanted(0, 1, 30), 1);
    assert_eq!(PreemptionArgs::default().wanted(999), 100);
}
