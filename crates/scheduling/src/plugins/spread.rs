use std::borrow::Cow;
use std::collections::HashMap;

use crate::config::SpreadArgs;
use crate::framework::{Cycle, Event, MAX_SCORE, NodeFilter, NodeScore, Plugin, PreFilter, Rejection};
use crate::node::NodeInfo;
use crate::plugins::{affinity, taints};
use crate::pod::{PodInfo, Policy, SpreadConstraint};
use crate::snapshot::{Node, Snapshot};

/// Spreads the pods that a constraint selects over the values of a node label.
#[derive(Default)]
pub struct PodTopologySpread {
    args: SpreadArgs,
}

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The pods on a node that the constraint counts.
fn matching(constraint: &SpreadConstraint, pod: &PodInfo, node: &Node) -> i64 {
    let Some(selector) = constraint.selector.as_ref().filter(|selector| !selector.is_empty()) else {
        return 0;
    };
    let counted = node.pods().filter(|other| {
        !other.terminating && other.namespace == pod.namespace && selector.matches(&other.spec.labels)
    });
    i64::try_from(counted.count()).unwrap_or(i64::MAX)
}

/// Does the constraint look at this node at all?
fn includes(constraint: &SpreadConstraint, pod: &PodInfo, node: &Node) -> bool {
    let affine = constraint.affinity_policy == Policy::Ignore || affinity::wants(&pod.spec, &node.info);
    affine && (constraint.taints_policy == Policy::Ignore || taints::tolerates_all(pod, &node.info))
}

fn has_every_key(constraints: &[Cow<'_, SpreadConstraint>], node: &Node) -> bool {
    constraints.iter().all(|constraint| node.info.labels.contains_key(&constraint.topology_key))
}

/// A required constraint and the pods counted in each of its domains.
struct Domains<'a> {
    constraint: Cow<'a, SpreadConstraint>,
    counts: HashMap<&'a str, i64>,
    /// The smallest count, or 0 if there are fewer domains than wanted.
    least: i64,
    /// The domain with the smallest count, and the smallest count of the others.
    lowest: (&'a str, i64),
    /// 1 if the pod counts itself.
    own: i64,
}

impl<'a> Domains<'a> {
    fn new(constraint: Cow<'a, SpreadConstraint>, pod: &PodInfo, counting: &[&'a Node]) -> Self {
        let mut counts = HashMap::new();
        for node in counting.iter().filter(|node| includes(&constraint, pod, node)) {
            if let Some(value) = node.info.labels.get(&constraint.topology_key) {
                *counts.entry(value.as_str()).or_default() += matching(&constraint, pod, node);
            }
        }
        let lowest = counts.iter().min_by_key(|(_, count)| **count).map_or("", |(value, _)| *value);
        let others = counts.iter().filter(|(value, _)| **value != lowest).map(|(_, count)| *count);
        let lowest = (lowest, others.min().unwrap_or(i64::MAX));
        let own = constraint.selector.as_ref().is_some_and(|selector| selector.matches(&pod.spec.labels));
        let mut domains = Self { constraint, counts, least: 0, lowest, own: i64::from(own) };
        domains.least = domains.least_beside(lowest.0, lowest.1);
        domains
    }

    /// The smallest count, if the count of `domain` is what it is and the smallest of the others is `others`.
    fn least_beside(&self, domain: &str, others: i64) -> i64 {
        let enough = i64::try_from(self.counts.len()).is_ok_and(|count| count >= self.constraint.min_domains);
        let count = self.counts.get(domain).copied().filter(|_| enough);
        count.map_or(0, |count| count.min(others))
    }

    /// What if the domain of `node` had more pods? Only one domain differs from what was counted at a time.
    fn shift(&mut self, node: &Node, by: i64) {
        let value = node.info.labels.get(&self.constraint.topology_key);
        let Some(value) = value.filter(|value| self.counts.contains_key(value.as_str())) else { return };
        if let Some(count) = self.counts.get_mut(value.as_str()) {
            *count += by;
        }
        let (lowest, second) = self.lowest;
        let others =
            if lowest == value { second } else { self.counts.get(lowest).copied().unwrap_or(i64::MAX) };
        self.least = self.least_beside(value, others);
    }
}

struct Required<'a> {
    pod: &'a PodInfo,
    domains: Vec<Domains<'a>>,
}

impl<'a> Required<'a> {
    fn new(constraints: Vec<Cow<'a, SpreadConstraint>>, pod: &'a PodInfo, snapshot: &'a Snapshot) -> Self {
        let counting: Vec<_> = snapshot.nodes().filter(|node| has_every_key(&constraints, node)).collect();
        let domains =
            constraints.into_iter().map(|constraint| Domains::new(constraint, pod, &counting)).collect();
        Self { pod, domains }
    }

    /// What if one more pod were on a node, or one less? Whether it is terminating does not matter here, and an empty
    /// selector means every pod: upstream's counts and upstream's what-ifs differ in that.
    fn shift(&mut self, other: &PodInfo, node: &Node, by: i64) {
        let has = |domains: &Domains<'_>| node.info.labels.contains_key(&domains.constraint.topology_key);
        if other.namespace != self.pod.namespace || !self.domains.iter().all(has) {
            return;
        }
        for domains in &mut self.domains {
            let selector = domains.constraint.selector.as_ref();
            let counted = selector.is_some_and(|selector| selector.matches(&other.spec.labels));
            if counted && includes(&domains.constraint, self.pod, node) {
                domains.shift(node, by);
            }
        }
    }
}

impl NodeFilter for Required<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        for domains in &self.domains {
            let Some(value) = node.info.labels.get(&domains.constraint.topology_key) else {
                return Err(Rejection::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                ));
            };
            let count = domains.counts.get(value.as_str()).copied().unwrap_or_default();
            if count + domains.own - domains.least > domains.constraint.max_skew {
                return Err(Rejection::unschedulable("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }
    fn add_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.shift(pod, node, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.shift(pod, node, -1);
    }
}

/// A preferred constraint: the pods in each domain that a feasible node is in, and how much one weighs.
struct Weighed<'a> {
    constraint: Cow<'a, SpreadConstraint>,
    counts: HashMap<&'a str, i64>,
    weight: f64,
}

struct Preferred<'a> {
    pod: &'a PodInfo,
    constraints: Vec<Weighed<'a>>,
    /// Feasible nodes, by their order, that lack a key which all must have.
    ignored: Vec<bool>,
    /// Nodes without all of these do not take part.
    keys: Vec<String>,
}

/// What takes part in counting.
struct Scope<'a, 'b> {
    cycle: Cycle<'a>,
    /// Feasible nodes that are not ignored.
    candidates: &'b [&'a Node],
    keys: &'b [String],
}

fn has_keys(keys: &[String], node: &Node) -> bool {
    keys.iter().all(|key| node.info.labels.contains_key(key))
}

impl<'a> Preferred<'a> {
    fn new(
        constraints: Vec<Cow<'a, SpreadConstraint>>,
        all_keys: bool,
        cycle: Cycle<'a>,
        feasible: &[&'a Node],
    ) -> Self {
        let needed = constraints.iter().filter(|_| all_keys);
        let keys: Vec<_> = needed.map(|constraint| constraint.topology_key.clone()).collect();
        let ignored: Vec<_> = feasible.iter().map(|node| !has_keys(&keys, node)).collect();
        let candidates: Vec<_> =
            feasible.iter().zip(&ignored).filter(|(_, ignored)| !**ignored).map(|(node, _)| *node).collect();
        let scope = Scope { cycle, candidates: &candidates, keys: &keys };
        let constraints =
            constraints.into_iter().map(|constraint| Weighed::new(constraint, &scope)).collect();
        Self { pod: cycle.pod, constraints, ignored, keys }
    }
}

/// The domain of a node; all nodes without the label share one.
fn domain<'a>(constraint: &SpreadConstraint, node: &'a Node) -> &'a str {
    node.info.labels.get(&constraint.topology_key).map_or("", String::as_str)
}

impl<'a> Weighed<'a> {
    #[expect(clippy::cast_precision_loss, reason = "no cluster has so many domains")]
    fn new(constraint: Cow<'a, SpreadConstraint>, scope: &Scope<'a, '_>) -> Self {
        let by_host = constraint.topology_key == HOSTNAME;
        let mut counts = HashMap::new();
        for node in scope.candidates.iter().filter(|_| !by_host) {
            counts.entry(domain(&constraint, node)).or_insert(0);
        }
        let (pod, snapshot) = (scope.cycle.pod, scope.cycle.snapshot);
        for node in snapshot.nodes().filter(|node| !by_host && has_keys(scope.keys, node)) {
            let count = counts.get_mut(domain(&constraint, node));
            if let (Some(count), true) = (count, includes(&constraint, pod, node)) {
                *count += matching(&constraint, pod, node);
            }
        }
        let size = if by_host { scope.candidates.len() } else { counts.len() };
        Self { constraint, counts, weight: ((size + 2) as f64).ln() }
    }
}

impl NodeScore for Preferred<'_> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the formula is defined in floating point and rounded to an integer"
    )]
    fn score(&self, node: &Node) -> i64 {
        if !has_keys(&self.keys, node) {
            return 0;
        }
        let mut score = 0.0;
        for Weighed { constraint, counts, weight } in &self.constraints {
            let Some(value) = node.info.labels.get(&constraint.topology_key) else { continue };
            let count = if constraint.topology_key == HOSTNAME {
                matching(constraint, self.pod, node)
            } else {
                counts.get(value.as_str()).copied().unwrap_or_default()
            };
            score += count as f64 * weight + (constraint.max_skew - 1) as f64;
        }
        score.round() as i64
    }

    fn normalize(&self, scores: &mut [i64]) {
        let counted =
            || scores.iter().zip(&self.ignored).filter(|(_, ignored)| !**ignored).map(|(score, _)| *score);
        let (min, max) = (counted().min().unwrap_or_default(), counted().max().unwrap_or_default());
        for (score, ignored) in scores.iter_mut().zip(&self.ignored) {
            *score = match (ignored, max) {
                (true, _) => 0,
                (false, 0) => MAX_SCORE,
                (false, max) => MAX_SCORE * (max + min - *score) / max,
            };
        }
    }
}

impl PodTopologySpread {
    pub fn new(args: SpreadArgs) -> Self {
        Self { args }
    }

    /// The pod's own constraints of one sort or, if it has none of either sort, the default ones about whom its
    /// Services and its controller select.
    fn constraints<'a>(&self, cycle: Cycle<'a>, required: bool) -> Vec<Cow<'a, SpreadConstraint>> {
        let own = &cycle.pod.spec.spread;
        if !own.is_empty() {
            let sort = own.iter().filter(|constraint| constraint.required == required);
            return sort.map(Cow::Borrowed).collect();
        }
        let defaults: Vec<_> =
            self.args.constraints.iter().filter(|constraint| constraint.required == required).collect();
        if defaults.is_empty() {
            return Vec::new();
        }
        let Some(selector) = cycle.snapshot.owners.selector(&cycle.pod.spec) else { return Vec::new() };
        let with_selector = |constraint: &SpreadConstraint| SpreadConstraint {
            selector: Some(selector.clone()),
            ..constraint.clone()
        };
        defaults.into_iter().map(|constraint| Cow::Owned(with_selector(constraint))).collect()
    }

    fn node_hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let constraints = self.constraints(cycle, true);
        let takes_part = |node: &NodeInfo| {
            constraints.iter().all(|constraint| node.labels.contains_key(&constraint.topology_key))
        };
        match event {
            Event::Node { old: None, node, .. } => takes_part(node),
            Event::NodeGone(node) => takes_part(node),
            Event::Node { old: Some(old), node, change } if change.labels || change.taints => {
                let mut keys = constraints.iter().map(|constraint| &constraint.topology_key);
                let moved = keys.any(|key| old.labels.get(key) != node.labels.get(key));
                takes_part(old) != takes_part(node)
                    || (takes_part(node) && (moved || old.taints != node.taints))
            }
            _ => false,
        }
    }
}

fn selects(constraint: &SpreadConstraint, pod: &PodInfo) -> bool {
    constraint.selector.as_ref().is_some_and(|selector| selector.matches(&pod.spec.labels))
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let constraints = self.constraints(cycle, true);
        if constraints.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Filter(Box::new(Required::new(constraints, cycle.pod, cycle.snapshot)))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let constraints = self.constraints(cycle, false);
        if constraints.is_empty() {
            return None;
        }
        let all_keys = !cycle.pod.spec.spread.is_empty() || !self.args.system;
        Some(Box::new(Preferred::new(constraints, all_keys, cycle, feasible)))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let constraints = || self.constraints(cycle, true);
        let here = |other: &PodInfo| other.namespace == cycle.pod.namespace;
        let changes_side = |old: &PodInfo, new: &PodInfo| {
            constraints().iter().any(|constraint| selects(constraint, old) != selects(constraint, new))
        };
        match event {
            Event::PodPlaced(other) | Event::PodGone(other) => {
                here(other) && constraints().iter().any(|constraint| selects(constraint, other))
            }
            Event::PodChanged { old, pod, change } => change.labels && here(pod) && changes_side(old, pod),
            Event::Itself { old, pod, change } => {
                let honors = |constraint: &SpreadConstraint| constraint.taints_policy == Policy::Honor;
                (change.tolerations && constraints().iter().any(|constraint| honors(constraint)))
                    || (change.labels && changes_side(old, pod))
            }
            Event::Node { .. } | Event::NodeGone(_) => self.node_hint(event, cycle),
            Event::Namespace => false,
        }
    }
}
