use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::node::NodeInfo;

fn node(name: &str, cpu: &str) -> NodeInfo {
    let status = json!({"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}});
    NodeInfo::parse(&json!({"metadata": {"name": name}, "status": status})).expect("a node")
}

fn pod(name: &str, mut spec: Value) -> PodInfo {
    PodInfo::parse(&json!({"metadata": {"name": name}, "spec": spec.take()})).expect("a pod")
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": amount}}}]})
}

fn three() -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.set_node(node("n1", "1"));
    snapshot.set_node(node("n2", "2"));
    snapshot.set_node(node("n3", "2"));
    snapshot
}

#[track_caller]
fn check(spec: Value, snapshot: &Snapshot, message: &str, plugins: &[&str]) {
    let framework = Framework::builder().without(&["DefaultPreemption"]).build();
    let diagnosis = framework.evaluate(&pod("p", spec), snapshot).expect_err("it fits nowhere");
    assert_eq!(diagnosis.message(), message);
    assert_eq!(diagnosis.plugins.iter().copied().collect::<Vec<_>>(), plugins);
}

fn named(names: &[&str]) -> Value {
    let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [names[0]]}]}]);
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

#[test]
fn the_message_counts_the_nodes_by_reason() {
    let mut snapshot = three();
    snapshot.set_node(NodeInfo { unschedulable: true, ..node("n1", "1") });
    let message = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.";
    check(cpu("3"), &snapshot, message, &["NodeResourcesFit", "NodeUnschedulable"]);
}

#[test]
fn the_reasons_are_sorted_as_text() {
    let mut snapshot = Snapshot::default();
    for number in 0..12 {
        let cordoned = number < 2;
        snapshot.set_node(NodeInfo { unschedulable: cordoned, ..node(&format!("n{number}"), "1") });
    }
    let message = "0/12 nodes are available: 10 Insufficient cpu, 2 node(s) were unschedulable.";
    check(cpu("3"), &snapshot, message, &["NodeResourcesFit", "NodeUnschedulable"]);
}

#[test]
fn nodes_that_were_not_asked_count_under_the_plugin_that_left_them_out() {
    let mut snapshot = three();
    snapshot.set_node(NodeInfo { unschedulable: true, ..node("n2", "2") });
    let message = "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].";
    check(named(&["n2"]), &snapshot, message, &["NodeAffinity", "NodeUnschedulable"]);
}

#[test]
fn without_nodes_the_message_says_so() {
    check(json!({}), &Snapshot::default(), "no nodes available to schedule pods", &[]);
}

#[test]
fn a_pod_that_is_not_supported_is_refused_as_a_whole() {
    let spec = json!({"resourceClaims": [{"name": "gpu"}]});
    let message = "0/3 nodes are available: resource claims are not supported yet (claim \"gpu\").";
    check(spec, &three(), message, &["Supported"]);
}

#[test]
fn contradicting_restrictions_are_named_together() {
    let spec = named(&["n2"]);
    let pod = PodInfo { node_name: Some(Arc::from("n1")), ..pod("p", spec) };
    let diagnosis = Framework::builder().build().evaluate(&pod, &three()).expect_err("nowhere");
    assert_eq!(
        diagnosis.message(),
        "0/3 nodes are available: node(s) didn't satisfy plugin(s) [NodeAffinity NodeName] simultaneously. \
         preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
}

#[test]
fn the_best_node_wins_and_equals_keep_their_order() {
    let selection = Framework::builder().build().evaluate(&pod("p", cpu("1")), &three()).expect("a node");
    let order: Vec<_> = selection.ranked.iter().map(|ranked| &*ranked.node).collect();
    assert_eq!(order, ["n2", "n3", "n1"]);
    assert_eq!(&*selection.node, "n2");
}

#[test]
fn plugins_can_be_left_out() {
    let framework = Framework::builder().without(&["NodeResourcesFit", "NodePorts"]).build();
    assert!(framework.evaluate(&pod("p", cpu("100")), &three()).is_ok());
    assert!(!framework.plugins().any(|name| name == "NodePorts"));
}

#[test]
fn one_given_node_is_judged_alone() {
    let framework = Framework::builder().build();
    let judge = |spec: Value, node: &str| framework.evaluate_node(&pod("p", spec), &three(), node);
    assert_eq!(judge(cpu("2"), "n2"), Ok(()));
    assert_eq!(judge(cpu("2"), "n1").expect_err("too small").message(), "Insufficient cpu");
    assert_eq!(judge(cpu("2"), "n9").expect_err("absent").message(), "node \"n9\" does not exist");
    assert_eq!(judge(named(&["n2"]), "n1").expect_err("left out").plugin, "NodeAffinity");
}

/// A plugin from outside: likes nodes whose names come late, needs `n3`, makes room on `n2`.
struct Outside {
    strict: bool,
}

struct ByName;

impl NodeScore for ByName {
    fn score(&self, node: &Node) -> i64 {
        i64::from(node.info.name.bytes().last().unwrap_or_default())
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}

impl Plugin for Outside {
    fn name(&self) -> &'static str {
        "Outside"
    }

    fn pre_filter<'a>(&'a self, _cycle: Cycle<'a>) -> PreFilter<'a> {
        if !self.strict {
            return PreFilter::Skip;
        }
        PreFilter::Filter(Box::new(|_: &Node| {
            Err(Rejection { code: Code::Unschedulable, reasons: vec![Cow::Borrowed("strict")] })
        }))
    }

    fn post_filter<'a>(&self, _: Cycle<'a>, diagnosis: &Diagnosis, _: &mut Trials<'_, 'a>) -> PostFilter {
        let helped = diagnosis.refused.iter().find(|node| node.refusal.code == Code::Unschedulable);
        let Some(node) = helped else { return PostFilter::Nowhere("outside: nothing to do.".to_owned()) };
        let (node, victims) = (Arc::clone(&node.node), vec![Arc::new(pod("victim", json!({})))]);
        let candidates = vec![Candidate { node, victims, violations: 0 }];
        PostFilter::Room { candidates, message: "outside: making room".to_owned() }
    }

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a [&'a Node]) -> Option<Box<dyn NodeScore + 'a>> {
        Some(Box::new(ByName))
    }

    fn reserve(&self, _cycle: Cycle<'_>, node: &Node) -> Result<(), Rejection> {
        if &*node.info.name == "n3" { Ok(()) } else { Err(Rejection::unschedulable("not n3")) }
    }

    fn hint(&self, event: &Event, _cycle: Cycle<'_>) -> bool {
        matches!(event, Event::NodeGone(_))
    }
}

#[test]
fn the_short_way_asks_plugins_that_know_nothing_of_it() {
    let build = |strict| Framework::builder().with(Box::new(Outside { strict }), 1000).build();
    let (snapshot, mut cache) = (three(), Cache::default());
    for cores in ["1", "1", "2", "100"] {
        let pod = pod("p", cpu(cores));
        let long = build(false).evaluate(&pod, &snapshot).map(|all| (all.node, all.score)).ok();
        let short = build(false).schedule(&mut cache, &pod, &snapshot).ok();
        assert_eq!(short.map(|best| (best.node, best.score)), long, "{cores}");
    }
    let refused = build(true).schedule(&mut Cache::default(), &pod("p", cpu("1")), &snapshot);
    assert_eq!(refused.expect_err("strict").plugins.iter().copied().collect::<Vec<_>>(), ["Outside"]);
}

/// Says of each node, from what is placed on it alone, how much it likes it, and scales in its own way.
struct Crowds;

struct Crowd;

impl NodeScore for Crowd {
    fn score(&self, node: &Node) -> i64 {
        node.pod_count()
    }

    fn normalize(&self, scores: &mut [i64]) {
        let most = scores.iter().copied().max().unwrap_or_default();
        scores.iter_mut().for_each(|score| *score = MAX_SCORE - (most - *score));
    }
}

impl Plugin for Crowds {
    fn name(&self) -> &'static str {
        "Crowds"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_score<'a>(&'a self, _: Cycle<'a>, _: &'a [&'a Node]) -> Option<Box<dyn NodeScore + 'a>> {
        Some(Box::new(Crowd))
    }

    fn hint(&self, _event: &Event, _cycle: Cycle<'_>) -> bool {
        false
    }
}

#[test]
fn kept_scores_follow_what_is_placed() {
    let framework = Framework::builder().with(Box::new(Crowds), 1000).build();
    let (mut snapshot, mut cache) = (three(), Cache::default());
    for (round, home) in ["n2", "n3", "n3"].into_iter().enumerate() {
        let placed = Arc::new(pod(&format!("placed-{round}"), json!({})));
        snapshot.assume(placed, &Arc::from(home));
        for _ in 0..2 {
            let best = framework.schedule(&mut cache, &pod("p", cpu("1")), &snapshot).expect("a node");
            let all = framework.evaluate(&pod("p", cpu("1")), &snapshot).expect("a node");
            assert_eq!((&*best.node, best.score), (&*all.node, all.score));
            assert_eq!(&*best.node, if round == 0 { "n2" } else { &*all.node });
        }
    }
    assert_eq!(&*framework.schedule(&mut cache, &pod("p", cpu("1")), &snapshot).expect("a node").node, "n3");
}

#[test]
fn another_snapshot_is_not_taken_for_the_one_before() {
    let (framework, mut cache) = (Framework::builder().build(), Cache::default());
    let mut snapshot = three();
    let pod = pod("p", cpu("2"));
    let big = PodInfo { uid: Arc::from("big"), ..pod.clone() };
    let mut copy = snapshot.clone();
    // As many changes in both, but others.
    copy.assume(Arc::new(big.clone()), &Arc::from("n2"));
    snapshot.assume(Arc::new(big.clone()), &Arc::from("n3"));
    for _ in 0..3 {
        for (world, want) in [(&snapshot, "n2"), (&copy, "n3")] {
            let best = framework.schedule(&mut cache, &pod, world).expect("a node");
            assert_eq!(&*best.node, want);
        }
    }
}

#[test]
fn a_plugin_from_outside_takes_part_at_every_point() {
    let build = |strict| {
        let builder = Framework::builder().without(&["DefaultPreemption"]);
        builder.with(Box::new(Outside { strict }), 1000).build()
    };
    let (snapshot, pod) = (three(), pod("p", cpu("1")));
    let selection = build(false).evaluate(&pod, &snapshot).expect("a node");
    assert_eq!(&*selection.node, "n3");
    let node = |name| snapshot.node(name).expect("a node");
    assert_eq!(build(false).reserve(&pod, &snapshot, node("n3")), Ok(()));
    assert!(build(false).reserve(&pod, &snapshot, node("n2")).is_err());
    assert_eq!(build(false).pre_bind(&pod, &snapshot, node("n2")), Ok(()));
    let diagnosis = build(true).evaluate(&pod, &snapshot).expect_err("strict");
    assert_eq!(diagnosis.message(), "0/3 nodes are available: 3 strict. outside: making room");
    assert_eq!(diagnosis.nomination, Nomination::Node(Arc::from("n1")));
    assert_eq!(&*diagnosis.candidates[0].victims[0].name, "victim");
    let cycle = Cycle { pod: &pod, snapshot: &snapshot };
    let gone = Event::NodeGone(Arc::clone(&node("n1").info));
    assert!(build(true).hint(&gone, cycle, &diagnosis.plugins));
    assert!(!build(true).hint(&Event::Namespace, cycle, &diagnosis.plugins));
}

#[test]
fn a_search_for_a_share_of_the_nodes_ends_early_and_goes_on_where_it_ended() {
    let mut snapshot = Snapshot::default();
    for number in 0..400 {
        snapshot.set_node(node(&format!("n{number}"), "1"));
    }
    let found = |framework: &Framework| {
        let selection = framework.evaluate(&pod("p", cpu("1")), &snapshot).expect("a node");
        let first = selection.ranked.first().map(|ranked| ranked.node.to_string()).unwrap_or_default();
        (selection.ranked.len(), first)
    };
    assert_eq!(found(&Framework::builder().build()).0, 400);
    let half = Framework::builder().build().looking_at(Some(50));
    assert_eq!([found(&half), found(&half), found(&half)], [0, 200, 0].map(|n| (200, format!("n{n}"))));
    let few = Framework::builder().build().looking_at(Some(1));
    assert_eq!([found(&few), found(&few)], [0, 100].map(|n| (100, format!("n{n}"))));
}

/// A clock that goes on by one nanosecond whenever it is read, and what it was used for.
#[derive(Default)]
struct Counter {
    now: std::sync::atomic::AtomicU64,
    seen: std::sync::Mutex<Vec<(&'static str, Point, bool)>>,
}

impl Stopwatch for Counter {
    fn now(&self) -> u64 {
        self.now.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    fn plugin(&self, plugin: &'static str, point: Point, nanoseconds: u64, rejected: bool) {
        assert!(nanoseconds > 0, "{plugin} took no time at {point:?}");
        self.seen.lock().expect("not poisoned").push((plugin, point, rejected));
    }

    fn point(&self, point: Point, nanoseconds: u64, rejected: bool) {
        assert!(nanoseconds > 0, "{point:?} took no time");
        self.seen.lock().expect("not poisoned").push(("all", point, rejected));
    }

    fn hint(&self, plugin: &'static str, event: &'static str, nanoseconds: u64, again: bool) {
        assert!(nanoseconds > 0 && event == "NodeAdd", "{plugin} {event}");
        self.seen.lock().expect("not poisoned").push((plugin, Point::PostFilter, again));
    }
}

#[test]
fn answers_to_events_are_measured_plugin_by_plugin() {
    let counter = Arc::new(Counter::default());
    let mut framework = Framework::builder().build();
    framework.measure(Arc::<Counter>::clone(&counter));
    let (pod, snapshot) = (pod("p", cpu("1")), three());
    let node = Arc::new(node("n9", "8"));
    let change = crate::snapshot::NodeChange { added: true, ..Default::default() };
    let event = Event::Node { old: None, node, change };
    let rejected_by = ["NodeAffinity", "NodeResourcesFit"].into();
    assert!(framework.hint(&event, Cycle { pod: &pod, snapshot: &snapshot }, &rejected_by));
    // Whoever comes after a plugin that says yes is not asked.
    let seen = std::mem::take(&mut *counter.seen.lock().expect("not poisoned"));
    assert_eq!(seen, [("NodeAffinity", Point::PostFilter, true)]);
}

#[test]
fn how_often_plugins_are_asked_is_counted_once_a_cycle() {
    let framework = Framework::builder().build();
    let (pod, snapshot, mut cache) = (pod("p", cpu("1")), three(), Cache::default());
    for _ in 0..3 {
        drop(framework.schedule(&mut cache, &pod, &snapshot));
    }
    let count = |counts: &[(&str, Point, u64)], what| {
        counts.iter().find(|(plugin, point, _)| (*plugin, *point) == what).map_or(0, |(.., count)| *count)
    };
    let counts: Vec<_> = framework.evaluations().collect();
    assert_eq!(count(&counts, ("NodeResourcesFit", Point::Filter)), 3);
    assert_eq!(count(&counts, ("NodePorts", Point::PreFilter)), 3);
    assert_eq!(count(&counts, ("NodePorts", Point::Filter)), 0);
    assert_eq!(framework.evaluations().count(), 0);
}

/// What was measured while a pod was scheduled so often.
fn measured(spec: &Value, times: usize) -> Vec<(&'static str, Point, bool)> {
    let counter = Arc::new(Counter::default());
    let mut framework = Framework::builder().build();
    framework.measure(Arc::<Counter>::clone(&counter));
    let (pod, snapshot, mut cache) = (pod("p", spec.clone()), three(), Cache::default());
    for _ in 0..times {
        drop(framework.schedule(&mut cache, &pod, &snapshot));
    }
    std::mem::take(&mut *counter.seen.lock().expect("not poisoned"))
}

#[test]
fn one_cycle_in_ten_is_measured_plugin_by_plugin() {
    let count = |seen: &[(&str, Point, bool)], what| seen.iter().filter(|item| **item == what).count();
    let seen = measured(&cpu("1"), 21);
    // What is kept of the nodes is not asked again: of three measured cycles, only the first asks.
    assert_eq!(count(&seen, ("NodeResourcesFit", Point::PreFilter, false)), 3);
    assert_eq!(count(&seen, ("NodeResourcesFit", Point::Filter, false)), 1);
    assert_eq!(count(&seen, ("NodeResourcesFit", Point::Score, false)), 1);
    assert_eq!(count(&seen, ("all", Point::PreFilter, false)), 3);
    assert_eq!(count(&seen, ("all", Point::PostFilter, false)), 0);
}

#[test]
fn a_measured_refusal_says_who_refused_and_how_long_others_were_asked_for_room() {
    let seen = measured(&cpu("3"), 1);
    assert!(seen.contains(&("NodeResourcesFit", Point::Filter, true)), "{seen:?}");
    assert!(seen.contains(&("all", Point::Filter, true)), "{seen:?}");
    assert!(seen.contains(&("DefaultPreemption", Point::PostFilter, false)), "{seen:?}");
}
