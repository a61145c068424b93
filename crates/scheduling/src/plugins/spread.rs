use std::borrow::Cow;

use crate::config::SpreadArgs;
use crate::framework::{Cycle, Event, MAX_SCORE, NodeFilter, NodeScore, Plugin, PreFilter, Rejection};
use crate::node::NodeInfo;
use crate::plugins::{affinity, taints};
use crate::pod::{PodInfo, Policy, SpreadConstraint};
use crate::snapshot::{Node, Snapshot, Topology};

/// Spreads the pods that a constraint selects over the values of a node label.
#[derive(Default)]
pub struct PodTopologySpread {
    args: SpreadArgs,
}

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The pods on each node that the constraint counts, by slot.
fn counted(constraint: &SpreadConstraint, pod: &PodInfo, snapshot: &Snapshot) -> Vec<i64> {
    let mut column = vec![0; snapshot.slot_count()];
    let selector = constraint.selector.as_ref().filter(|selector| !selector.is_empty());
    let groups = selector.into_iter().flat_map(|selector| snapshot.selected(selector));
    for group in groups.filter(|group| !group.terminating() && *group.namespace() == pod.namespace) {
        for (slot, count) in group.counts().iter() {
            if let Some(sum) = column.get_mut(slot) {
                *sum += i64::from(count);
            }
        }
    }
    column
}

/// Does the constraint look at this node at all?
fn includes(constraint: &SpreadConstraint, pod: &PodInfo, node: &Node) -> bool {
    let affine = constraint.affinity_policy == Policy::Ignore || affinity::wants(&pod.spec, &node.info);
    affine && (constraint.taints_policy == Policy::Ignore || taints::tolerates_all(pod, &node.info))
}

/// True if the constraint looks at every node, whatever that is like.
fn includes_all(constraint: &SpreadConstraint, pod: &PodInfo) -> bool {
    let anywhere = pod.spec.node_selector.is_empty() && pod.spec.node_terms.is_none();
    constraint.taints_policy == Policy::Ignore && (constraint.affinity_policy == Policy::Ignore || anywhere)
}

/// A constraint with the domains of its topology.
struct Divided<'a> {
    constraint: Cow<'a, SpreadConstraint>,
    topology: Cow<'a, Topology>,
}

fn divided<'a>(constraints: Vec<Cow<'a, SpreadConstraint>>, snapshot: &'a Snapshot) -> Vec<Divided<'a>> {
    let divided = |constraint: Cow<'a, SpreadConstraint>| Divided {
        topology: snapshot.topology(&constraint.topology_key),
        constraint,
    };
    constraints.into_iter().map(divided).collect()
}

/// True if the node in this slot exists and carries the keys of all constraints.
fn has_every_key(all: &[Divided<'_>], slot: usize) -> bool {
    all.iter().all(|divided| divided.topology.place(slot).is_some())
}

/// Calls `book` with the slot of each node on which the constraint counts pods, policies considered.
fn each_included(constraint: &SpreadConstraint, cycle: Cycle<'_>, mut book: impl FnMut(usize)) {
    if includes_all(constraint, cycle.pod) {
        return (0..cycle.snapshot.slot_count()).for_each(book);
    }
    for node in cycle.snapshot.nodes().filter(|node| includes(constraint, cycle.pod, node)) {
        book(node.slot());
    }
}

/// The pods counted in each domain of a required constraint.
struct Domains {
    /// By domain; None where no node counts.
    counts: Vec<Option<i64>>,
    known: usize,
    min_domains: i64,
    /// The smallest count, or 0 if there are fewer domains than wanted.
    least: i64,
    /// The domain with the smallest count, and the smallest count of the others.
    lowest: (usize, i64),
    /// 1 if the pod counts itself.
    own: i64,
}

impl Domains {
    fn new(index: usize, all: &[Divided<'_>], cycle: Cycle<'_>) -> Self {
        let Divided { constraint, topology } = &all[index];
        let pods = counted(constraint, cycle.pod, cycle.snapshot);
        let mut counts = vec![None; topology.bound()];
        each_included(constraint, cycle, |slot| {
            if let Some(place) = topology.place(slot).filter(|_| all.len() == 1 || has_every_key(all, slot)) {
                *counts[place].get_or_insert(0) += pods[slot];
            }
        });
        let known = counts.iter().flatten().count();
        let (mut lowest, mut others) = ((usize::MAX, i64::MAX), i64::MAX);
        for (place, count) in counts.iter().enumerate() {
            match *count {
                Some(count) if count < lowest.1 => (lowest, others) = ((place, count), lowest.1),
                Some(count) => others = others.min(count),
                None => {}
            }
        }
        let own = selects(constraint, cycle.pod);
        let min_domains = constraint.min_domains;
        let lowest = (lowest.0, others);
        let mut domains = Self { counts, known, min_domains, least: 0, lowest, own: i64::from(own) };
        domains.least = domains.least_beside(lowest.0, lowest.1);
        domains
    }

    /// The smallest count, if the count of a domain is what it is and the smallest of the others is `others`.
    fn least_beside(&self, place: usize, others: i64) -> i64 {
        let enough = i64::try_from(self.known).is_ok_and(|known| known >= self.min_domains);
        let count = self.counts.get(place).copied().flatten().filter(|_| enough);
        count.map_or(0, |count| count.min(others))
    }

    /// What if the domain had more pods? Only one domain differs from what was counted at a time.
    fn shift(&mut self, place: usize, by: i64) {
        let Some(Some(count)) = self.counts.get_mut(place) else { return };
        *count += by;
        let (lowest, second) = self.lowest;
        let others = if lowest == place {
            second
        } else {
            self.counts.get(lowest).copied().flatten().unwrap_or(i64::MAX)
        };
        self.least = self.least_beside(place, others);
    }
}

struct Required<'a> {
    pod: &'a PodInfo,
    constraints: Vec<Divided<'a>>,
    /// In the same order.
    domains: Vec<Domains>,
}

/// What the required constraints say of a node.
enum Skew {
    Fine,
    MissingLabel,
    TooLarge,
}

impl<'a> Required<'a> {
    fn new(constraints: Vec<Cow<'a, SpreadConstraint>>, cycle: Cycle<'a>) -> Self {
        let constraints = divided(constraints, cycle.snapshot);
        let domains = (0..constraints.len()).map(|index| Domains::new(index, &constraints, cycle)).collect();
        Self { pod: cycle.pod, constraints, domains }
    }

    fn skew(&self, node: &Node) -> Skew {
        for (Divided { constraint, topology }, domains) in self.constraints.iter().zip(&self.domains) {
            let Some(place) = topology.place(node.slot()) else { return Skew::MissingLabel };
            let count = domains.counts.get(place).copied().flatten().unwrap_or_default();
            if count + domains.own - domains.least > constraint.max_skew {
                return Skew::TooLarge;
            }
        }
        Skew::Fine
    }

    /// What if one more pod were on a node, or one less? Whether it is terminating does not matter here, and an empty
    /// selector means every pod: upstream's counts and upstream's what-ifs differ in that.
    fn shift(&mut self, other: &PodInfo, node: &Node, by: i64) {
        if other.namespace != self.pod.namespace || !has_every_key(&self.constraints, node.slot()) {
            return;
        }
        for (Divided { constraint, topology }, domains) in self.constraints.iter().zip(&mut self.domains) {
            let place = topology.place(node.slot());
            let counts = selects(constraint, other) && includes(constraint, self.pod, node);
            if let Some(place) = place.filter(|_| counts) {
                domains.shift(place, by);
            }
        }
    }
}

impl NodeFilter for Required<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        match self.skew(node) {
            Skew::Fine => Ok(()),
            Skew::MissingLabel => Err(Rejection::unresolvable(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            )),
            Skew::TooLarge => {
                Err(Rejection::unschedulable("node(s) didn't match pod topology spread constraints"))
            }
        }
    }

    fn admits(&self, node: &Node) -> bool {
        matches!(self.skew(node), Skew::Fine)
    }

    fn add_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.shift(pod, node, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.shift(pod, node, -1);
    }
}

/// A preferred constraint: the pods that count for each domain, or for each slot, and how much one weighs.
struct Weighed {
    by_host: bool,
    pods: Vec<i64>,
    weight: f64,
}

struct Preferred<'a> {
    constraints: Vec<Divided<'a>>,
    /// In the same order.
    weighed: Vec<Weighed>,
    /// Nodes must have the keys of all constraints to take part.
    all_keys: bool,
    /// Feasible nodes, by their order, that do not take part.
    ignored: Vec<bool>,
}

impl<'a> Preferred<'a> {
    fn new(
        constraints: Vec<Cow<'a, SpreadConstraint>>,
        all_keys: bool,
        cycle: Cycle<'a>,
        feasible: &[&Node],
    ) -> Self {
        let constraints = divided(constraints, cycle.snapshot);
        let mut preferred = Self { constraints, weighed: Vec::new(), all_keys, ignored: Vec::new() };
        preferred.ignored = feasible.iter().map(|node| !preferred.takes_part(node.slot())).collect();
        let candidates = feasible.iter().zip(&preferred.ignored).filter(|(_, ignored)| !**ignored);
        let candidates: Vec<_> = candidates.map(|(node, _)| node.slot()).collect();
        let weigh = |divided| preferred.weigh(divided, cycle, &candidates);
        preferred.weighed = preferred.constraints.iter().map(weigh).collect();
        preferred
    }

    fn takes_part(&self, slot: usize) -> bool {
        !self.all_keys || has_every_key(&self.constraints, slot)
    }

    #[expect(clippy::cast_precision_loss, reason = "no cluster has so many domains")]
    fn weigh(&self, divided: &Divided<'_>, cycle: Cycle<'_>, candidates: &[usize]) -> Weighed {
        let Divided { constraint, topology } = divided;
        let pods = counted(constraint, cycle.pod, cycle.snapshot);
        let weight = |size: usize| ((size + 2) as f64).ln();
        if constraint.topology_key == HOSTNAME {
            return Weighed { by_host: true, pods, weight: weight(candidates.len()) };
        }
        // All nodes without the label share one domain more.
        let place = |slot| topology.place(slot).unwrap_or(topology.bound());
        let mut sums = vec![None; topology.bound() + 1];
        candidates.iter().for_each(|slot| sums[place(*slot)] = Some(0));
        let size = sums.iter().flatten().count();
        each_included(constraint, cycle, |slot| {
            if let Some(sum) = sums[place(slot)].as_mut().filter(|_| self.takes_part(slot)) {
                *sum += pods[slot];
            }
        });
        let pods = sums.into_iter().map(Option::unwrap_or_default).collect();
        Weighed { by_host: false, pods, weight: weight(size) }
    }
}

impl NodeScore for Preferred<'_> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the formula is defined in floating point and rounded to an integer"
    )]
    fn score(&self, node: &Node) -> i64 {
        let slot = node.slot();
        if !self.takes_part(slot) {
            return 0;
        }
        let mut score = 0.0;
        for (Divided { constraint, topology }, weighed) in self.constraints.iter().zip(&self.weighed) {
            let Some(place) = topology.place(slot) else { continue };
            let place = if weighed.by_host { slot } else { place };
            let pods = weighed.pods.get(place).copied().unwrap_or_default();
            score += pods as f64 * weighed.weight + (constraint.max_skew - 1) as f64;
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
        PreFilter::Filter(Box::new(Required::new(constraints, cycle)))
    }

    fn prefers(&self, cycle: Cycle<'_>) -> bool {
        !self.constraints(cycle, false).is_empty()
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
            Event::Namespace | Event::Storage(_) | Event::Devices { .. } | Event::Claims(_) => false,
        }
    }
}
