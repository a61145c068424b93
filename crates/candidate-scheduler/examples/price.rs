//! A scheduler with a plugin of its own, in one file: pods go to cheap nodes, and to none that costs more than they may.
//!
//! Nodes say what they cost in the label `example.com/price`, pods what they may cost at most in the label
//! `example.com/max-price`, both in cents an hour. A node without the label costs nothing.
//!
//! ```sh
//! KUBECONFIG=admin.kubeconfig cargo run -p candidate-scheduler --example price -- --profile thrifty --chaperons off
//! ```

use std::process::ExitCode;

use scheduling::{
    Cycle, Event, Labels, Node, NodeFilter, NodeScore, Plugin, PreFilter, Rejection, Scale, Scope,
};

const PRICE: &str = "example.com/price";
const MAX_PRICE: &str = "example.com/max-price";

/// Cents an hour; none where the label is missing or no number.
fn cents(labels: &Labels, key: &str) -> Option<i64> {
    labels.get(key)?.parse().ok()
}

struct Price;

/// What one pod may cost.
struct AtMost(i64);

impl NodeFilter for AtMost {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        if cents(&node.info.labels, PRICE).unwrap_or_default() <= self.0 {
            return Ok(());
        }
        // Nothing that other pods do makes the node cheaper: no room is made on it for this pod.
        Err(Rejection::unresolvable("node(s) cost more than the pod may"))
    }
}

/// The higher the price, the lower the score.
struct Cheapest;

impl NodeScore for Cheapest {
    fn score(&self, node: &Node) -> i64 {
        cents(&node.info.labels, PRICE).unwrap_or_default()
    }

    fn scale(&self) -> Scale {
        Scale::Largest { reverse: true }
    }
}

impl Plugin for Price {
    fn name(&self) -> &'static str {
        "Price"
    }

    /// Filter and score follow from the pod's specification and one node alone, so that answers can be kept.
    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        match cents(&cycle.pod.spec.labels, MAX_PRICE) {
            Some(most) => PreFilter::Filter(Box::new(AtMost(most))),
            None => PreFilter::Skip,
        }
    }

    fn pre_score<'a>(
        &'a self,
        _cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        Some(Box::new(Cheapest))
    }

    /// A pod that was too dear everywhere is tried again when a node appears or is labelled anew, or the pod itself is.
    fn hint(&self, event: &Event, _cycle: Cycle<'_>) -> bool {
        match event {
            Event::Node { change, .. } => change.added || change.labels,
            Event::Itself { change, .. } => change.labels,
            _ => false,
        }
    }
}

/// The plugin acts for the pods of every profile; its scores count twice.
fn plugins(_scheduler_name: &str) -> Vec<(Box<dyn Plugin>, i64)> {
    vec![(Box::new(Price), 2)]
}

fn main() -> ExitCode {
    runtime::run("candidate-scheduler", "Places pods where they are cheap", |runtime, args| {
        candidate_scheduler::serve_with(runtime, args, plugins)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use scheduling::{Cache, Framework, NodeChange, NodeInfo, PodInfo, Snapshot};
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, labels: &Value) -> NodeInfo {
        let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}});
        let raw = json!({"metadata": {"name": name, "labels": labels}, "status": status});
        NodeInfo::parse(&raw).expect("a node")
    }

    fn pod(labels: &Value) -> PodInfo {
        PodInfo::parse(&json!({"metadata": {"name": "p", "labels": labels}, "spec": {}})).expect("a pod")
    }

    fn framework() -> Framework {
        let mut framework = Framework::builder().build();
        plugins("any").into_iter().for_each(|(plugin, weight)| framework.push(plugin, weight));
        framework
    }

    /// A dear node that was known first, and a cheap one.
    fn cluster() -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.set_node(node("dear", &json!({PRICE: "90"})));
        snapshot.set_node(node("cheap", &json!({PRICE: "10"})));
        snapshot
    }

    /// The way that keeps answers, and the one that says everything.
    #[track_caller]
    fn check(snapshot: &Snapshot, pod: &PodInfo, want: Result<&str, &str>) {
        let (framework, mut cache) = (framework(), Cache::default());
        for _ in 0..3 {
            let best = framework.schedule(&mut cache, pod, snapshot);
            let best = best.map(|best| best.node.to_string()).map_err(|diagnosis| diagnosis.message());
            assert_eq!(best.as_deref().map_err(String::as_str), want);
        }
        let selection = framework.evaluate(pod, snapshot);
        assert_eq!(selection.ok().map(|selection| selection.node.to_string()).as_deref(), want.ok());
    }

    #[test]
    fn a_pod_goes_where_it_is_cheap() {
        check(&cluster(), &pod(&json!({})), Ok("cheap"));
    }

    #[test]
    fn a_pod_goes_nowhere_that_costs_more_than_it_may() {
        let mut snapshot = cluster();
        check(&snapshot, &pod(&json!({MAX_PRICE: "50"})), Ok("cheap"));
        let message = "0/2 nodes are available: 2 node(s) cost more than the pod may. preemption: 0/2 nodes are \
            available: 2 Preemption is not helpful for scheduling.";
        check(&snapshot, &pod(&json!({MAX_PRICE: "5"})), Err(message));
        snapshot.set_node(node("free", &json!({})));
        check(&snapshot, &pod(&json!({MAX_PRICE: "5"})), Ok("free"));
    }

    #[test]
    fn only_what_may_make_a_node_cheaper_is_a_reason_to_try_again() {
        let (snapshot, pod) = (cluster(), pod(&json!({MAX_PRICE: "5"})));
        let info = std::sync::Arc::new(node("cheap", &json!({PRICE: "4"})));
        let changed = |change| Event::Node { old: None, node: std::sync::Arc::clone(&info), change };
        let hint = |event: &Event| {
            let cycle = Cycle { pod: &pod, snapshot: &snapshot };
            framework().hint(event, cycle, &BTreeSet::from(["Price"]))
        };
        assert!(hint(&changed(NodeChange { labels: true, ..NodeChange::default() })));
        assert!(!hint(&changed(NodeChange { taints: true, ..NodeChange::default() })));
        assert!(!hint(&Event::Namespace));
    }
}
