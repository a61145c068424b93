use std::collections::HashMap;

use crate::framework::{Cycle, Event, MAX_SCORE, NodeFilter, NodeScore, Plugin, PreFilter, Rejection};
use crate::plugins::{affinity, taints};
use crate::pod::{PodInfo, Policy, SpreadConstraint};
use crate::snapshot::{Node, Snapshot};

/// Spreads the pods that a constraint selects over the values of a node label.
pub struct PodTopologySpread;

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

fn has_every_key(constraints: &[&SpreadConstraint], node: &Node) -> bool {
    constraints.iter().all(|constraint| node.info.labels.contains_key(&constraint.topology_key))
}

/// A required constraint and the pods counted in each of its domains.
struct Domains<'a> {
    constraint: &'a SpreadConstraint,
    counts: HashMap<&'a str, i64>,
    /// The smallest count, or 0 if there are fewer domains than wanted.
    least: i64,
    /// 1 if the pod counts itself.
    own: i64,
}

struct Required<'a>(Vec<Domains<'a>>);

impl<'a> Required<'a> {
    fn new(constraints: &[&'a SpreadConstraint], pod: &PodInfo, snapshot: &'a Snapshot) -> Self {
        let counting: Vec<_> = snapshot.nodes().filter(|node| has_every_key(constraints, node)).collect();
        let domains = constraints.iter().map(|constraint| {
            let mut counts = HashMap::new();
            for node in counting.iter().filter(|node| includes(constraint, pod, node)) {
                if let Some(value) = node.info.labels.get(&constraint.topology_key) {
                    *counts.entry(value.as_str()).or_default() += matching(constraint, pod, node);
                }
            }
            let enough = i64::try_from(counts.len()).is_ok_and(|count| count >= constraint.min_domains);
            let least = counts.values().copied().min().filter(|_| enough).unwrap_or_default();
            let own = constraint.selector.as_ref().is_some_and(|selector| selector.matches(&pod.spec.labels));
            Domains { constraint, counts, least, own: i64::from(own) }
        });
        Self(domains.collect())
    }
}

impl NodeFilter for Required<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        for domains in &self.0 {
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
}

/// A preferred constraint: the pods in each domain that a feasible node is in, and how much one weighs.
struct Weighed<'a> {
    constraint: &'a SpreadConstraint,
    counts: HashMap<&'a str, i64>,
    weight: f64,
}

struct Preferred<'a> {
    pod: &'a PodInfo,
    constraints: Vec<Weighed<'a>>,
    /// Feasible nodes, by their order, that lack a key.
    ignored: Vec<bool>,
    keys: Vec<&'a SpreadConstraint>,
}

impl<'a> Preferred<'a> {
    fn new(keys: Vec<&'a SpreadConstraint>, cycle: Cycle<'a>, feasible: &[&'a Node]) -> Self {
        let ignored: Vec<_> = feasible.iter().map(|node| !has_every_key(&keys, node)).collect();
        let candidates: Vec<_> =
            feasible.iter().zip(&ignored).filter(|(_, ignored)| !**ignored).map(|(node, _)| *node).collect();
        let constraints =
            keys.iter().map(|constraint| Weighed::new(constraint, &keys, cycle, &candidates)).collect();
        Self { pod: cycle.pod, constraints, ignored, keys }
    }
}

impl<'a> Weighed<'a> {
    #[expect(clippy::cast_precision_loss, reason = "no cluster has so many domains")]
    fn new(
        constraint: &'a SpreadConstraint,
        keys: &[&SpreadConstraint],
        cycle: Cycle<'a>,
        candidates: &[&'a Node],
    ) -> Self {
        let by_host = constraint.topology_key == HOSTNAME;
        let mut counts = HashMap::new();
        for node in candidates.iter().filter(|_| !by_host) {
            if let Some(value) = node.info.labels.get(&constraint.topology_key) {
                counts.entry(value.as_str()).or_insert(0);
            }
        }
        for node in cycle.snapshot.nodes().filter(|node| !by_host && has_every_key(keys, node)) {
            let value = node.info.labels.get(&constraint.topology_key);
            let domain = value.and_then(|value| counts.get_mut(value.as_str()));
            if let (Some(domain), true) = (domain, includes(constraint, cycle.pod, node)) {
                *domain += matching(constraint, cycle.pod, node);
            }
        }
        let size = if by_host { candidates.len() } else { counts.len() };
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
        if !has_every_key(&self.keys, node) {
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

fn constraints(pod: &PodInfo, required: bool) -> Vec<&SpreadConstraint> {
    pod.spec.spread.iter().filter(|constraint| constraint.required == required).collect()
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let constraints = constraints(cycle.pod, true);
        if constraints.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Filter(Box::new(Required::new(&constraints, cycle.pod, cycle.snapshot)))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let constraints = constraints(cycle.pod, false);
        if constraints.is_empty() {
            return None;
        }
        Some(Box::new(Preferred::new(constraints, cycle, feasible)))
    }

    fn hint(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        match event {
            Event::PodPlaced(other) | Event::PodGone(other) => {
                other.namespace == pod.namespace
                    && constraints(pod, true).iter().any(|constraint| {
                        constraint
                            .selector
                            .as_ref()
                            .is_some_and(|selector| selector.matches(&other.spec.labels))
                    })
            }
            Event::Node { change, .. } => change.added || change.labels || change.taints,
            Event::NodeGone => true,
            Event::Namespace => false,
        }
    }
}
