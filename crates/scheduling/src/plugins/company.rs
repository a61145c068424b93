use std::collections::{BTreeSet, HashMap};

use crate::config::CompanyArgs;
use crate::framework::{Cycle, Event, MAX_SCORE, NodeFilter, NodeScore, Plugin, PreFilter, Rejection};
use crate::node::NodeInfo;
use crate::pod::{AffinityTerm, PodInfo, Weighted};
use crate::selector::Labels;
use crate::snapshot::{Node, Snapshot};

/// Keeps pods near the pods that they want, and apart from those that they, or those, do not want.
#[derive(Default)]
pub struct InterPodAffinity {
    args: CompanyArgs,
}

impl InterPodAffinity {
    pub fn new(args: CompanyArgs) -> Self {
        Self { args }
    }
}

/// Pods counted by topology key and value.
type Counts<'a> = HashMap<(&'a str, &'a str), i64>;

/// True if the term is about `pod`, whose namespace has these labels.
fn is_about(term: &AffinityTerm, pod: &PodInfo, namespace: Option<&Labels>) -> bool {
    let by_label = term.namespace_selector.as_ref().is_some_and(|selector| {
        selector.is_empty() || namespace.is_some_and(|labels| selector.matches(labels))
    });
    let in_namespace = by_label || term.namespaces.contains(&*pod.namespace);
    in_namespace && term.selector.as_ref().is_some_and(|selector| selector.matches(&pod.spec.labels))
}

fn all_about(terms: &[AffinityTerm], pod: &PodInfo, namespace: Option<&Labels>) -> bool {
    !terms.is_empty() && terms.iter().all(|term| is_about(term, pod, namespace))
}

fn any_about(terms: &[AffinityTerm], pod: &PodInfo, namespace: Option<&Labels>) -> bool {
    terms.iter().any(|term| is_about(term, pod, namespace))
}

/// Books `weight` on the value that `node` has for the term's topology key.
fn book<'a>(counts: &mut Counts<'a>, term: &'a AffinityTerm, node: &'a Node, weight: i64) {
    if let Some(value) = node.info.labels.get(&term.topology_key) {
        *counts.entry((&term.topology_key, value)).or_default() += weight;
    }
}

fn count(counts: &Counts<'_>, key: &str, node: &Node) -> i64 {
    let value = node.info.labels.get(key);
    value.and_then(|value| counts.get(&(key, value.as_str()))).copied().unwrap_or_default()
}

/// Pods counted by topology key and value, and what a trial changes about that.
#[derive(Default)]
struct Tally<'a> {
    counts: Counts<'a>,
    /// Key, value and difference, which is never zero.
    shifts: Vec<(String, String, i64)>,
}

impl Tally<'_> {
    fn shift(&mut self, key: &str, node: &Node, by: i64) {
        let Some(value) = node.info.labels.get(key) else { return };
        let found = self.shifts.iter_mut().position(|(other, domain, _)| other == key && domain == value);
        let Some(shift) = found.and_then(|index| self.shifts.get_mut(index)) else {
            return self.shifts.push((key.to_owned(), value.clone(), by));
        };
        shift.2 += by;
        self.shifts.retain(|(.., by)| *by != 0);
    }

    fn shifted(&self, key: &str, value: &str) -> i64 {
        let mut shifts = self.shifts.iter();
        shifts.find(|(other, domain, _)| other == key && domain == value).map_or(0, |(.., by)| *by)
    }

    fn count(&self, key: &str, node: &Node) -> i64 {
        let Some(value) = node.info.labels.get(key) else { return 0 };
        self.counts.get(&(key, value.as_str())).copied().unwrap_or_default() + self.shifted(key, value)
    }

    /// True if no pod is counted anywhere.
    fn is_empty(&self) -> bool {
        if self.shifts.is_empty() {
            return self.counts.is_empty();
        }
        self.counts.values().chain(self.shifts.iter().map(|(.., by)| by)).sum::<i64>() == 0
    }

    /// True if one is counted for any of the node's labels.
    fn meets(&self, node: &Node) -> bool {
        let has = |key: &str, value: &str| node.info.labels.get(key).is_some_and(|found| found == value);
        let mut counts = self.counts.iter();
        counts.any(|((key, value), count)| has(key, value) && count + self.shifted(key, value) > 0)
            || self.shifts.iter().any(|(key, value, by)| *by > 0 && has(key, value))
    }
}

struct Required<'a> {
    pod: &'a PodInfo,
    snapshot: &'a Snapshot,
    /// The pod fulfils its own affinity, so that the first of a group finds a place.
    wants_itself: bool,
    /// Pods that fulfil all of the pod's affinity terms.
    wanted: Tally<'a>,
    /// Pods that the pod does not want near.
    unwanted: Tally<'a>,
    /// Pods that do not want the pod near.
    unwanting: Tally<'a>,
}

impl<'a> Required<'a> {
    fn new(pod: &'a PodInfo, snapshot: &'a Snapshot) -> Self {
        let own_namespace = snapshot.namespace(&pod.namespace);
        let (affinity, anti_affinity) = (&pod.spec.affinity.required, &pod.spec.anti_affinity.required);
        let mut required = Self {
            pod,
            snapshot,
            wants_itself: all_about(affinity, pod, own_namespace),
            wanted: Tally::default(),
            unwanted: Tally::default(),
            unwanting: Tally::default(),
        };
        for node in snapshot.nodes() {
            let shunning = node.particular_pods().flat_map(|other| &other.spec.anti_affinity.required);
            for term in shunning.filter(|term| is_about(term, pod, own_namespace)) {
                book(&mut required.unwanting.counts, term, node, 1);
            }
            if !affinity.is_empty() || !anti_affinity.is_empty() {
                required.count(node);
            }
        }
        required
    }

    /// Counts the pods of one node that the pod has required terms about.
    fn count(&mut self, node: &'a Node) {
        let (affinity, anti_affinity) =
            (&self.pod.spec.affinity.required, &self.pod.spec.anti_affinity.required);
        for other in node.pods() {
            let namespace = self.snapshot.namespace(&other.namespace);
            if all_about(affinity, other, namespace) {
                for term in affinity {
                    book(&mut self.wanted.counts, term, node, 1);
                }
            }
            for term in anti_affinity.iter().filter(|term| is_about(term, other, namespace)) {
                book(&mut self.unwanted.counts, term, node, 1);
            }
        }
    }

    /// What if one more pod were on a node, or one less?
    fn shift(&mut self, other: &PodInfo, node: &Node, by: i64) {
        let (own, spec) = (self.snapshot.namespace(&self.pod.namespace), &self.pod.spec);
        let namespace = self.snapshot.namespace(&other.namespace);
        for term in other.spec.anti_affinity.required.iter().filter(|term| is_about(term, self.pod, own)) {
            self.unwanting.shift(&term.topology_key, node, by);
        }
        if all_about(&spec.affinity.required, other, namespace) {
            for term in &spec.affinity.required {
                self.wanted.shift(&term.topology_key, node, by);
            }
        }
        for term in spec.anti_affinity.required.iter().filter(|term| is_about(term, other, namespace)) {
            self.unwanted.shift(&term.topology_key, node, by);
        }
    }

    fn has_no_say(&self) -> bool {
        let spec = &self.pod.spec;
        self.unwanting.is_empty()
            && spec.affinity.required.is_empty()
            && spec.anti_affinity.required.is_empty()
    }

    fn finds_what_it_wants(&self, node: &Node) -> bool {
        let terms = &self.pod.spec.affinity.required;
        if !terms.iter().all(|term| node.info.labels.contains_key(&term.topology_key)) {
            return false;
        }
        let all = terms.iter().all(|term| self.wanted.count(&term.topology_key, node) > 0);
        all || (self.wanted.is_empty() && self.wants_itself)
    }
}

impl NodeFilter for Required<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        if !self.finds_what_it_wants(node) {
            return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
        }
        let mut unwanted = self.pod.spec.anti_affinity.required.iter();
        if unwanted.any(|term| self.unwanted.count(&term.topology_key, node) > 0) {
            return Err(Rejection::unschedulable("node(s) didn't match pod anti-affinity rules"));
        }
        if self.unwanting.meets(node) {
            return Err(Rejection::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"));
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

/// Weights booked on topologies by preferences, the pod's own and those of pods that run already.
struct Preferred<'a> {
    weights: Counts<'a>,
    keys: BTreeSet<&'a str>,
}

impl<'a> Preferred<'a> {
    fn new(pod: &'a PodInfo, snapshot: &'a Snapshot, hard_weight: i64) -> Self {
        let (wants, shuns) = (&pod.spec.affinity.preferred, &pod.spec.anti_affinity.preferred);
        let own_namespace = snapshot.namespace(&pod.namespace);
        let mut weights = Counts::new();
        for node in snapshot.nodes() {
            if !wants.is_empty() || !shuns.is_empty() {
                for other in node.pods() {
                    let namespace = snapshot.namespace(&other.namespace);
                    prefer(&mut weights, wants, (other, namespace), node, 1);
                    prefer(&mut weights, shuns, (other, namespace), node, -1);
                }
            }
            for other in node.particular_pods() {
                let spec = &other.spec;
                let hard = spec.affinity.required.iter().filter(|_| hard_weight > 0);
                for term in hard.filter(|term| is_about(term, pod, own_namespace)) {
                    book(&mut weights, term, node, hard_weight);
                }
                prefer(&mut weights, &spec.affinity.preferred, (pod, own_namespace), node, 1);
                prefer(&mut weights, &spec.anti_affinity.preferred, (pod, own_namespace), node, -1);
            }
        }
        let keys = weights.keys().map(|(key, _)| *key).collect();
        Self { weights, keys }
    }
}

fn prefer<'a>(
    weights: &mut Counts<'a>,
    terms: &'a [Weighted<AffinityTerm>],
    (pod, namespace): (&PodInfo, Option<&Labels>),
    node: &'a Node,
    sign: i64,
) {
    for preferred in terms.iter().filter(|preferred| is_about(&preferred.term, pod, namespace)) {
        book(weights, &preferred.term, node, sign * preferred.weight);
    }
}

impl NodeScore for Preferred<'_> {
    fn score(&self, node: &Node) -> i64 {
        self.keys.iter().map(|key| count(&self.weights, key, node)).sum()
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the formula is defined in floating point, cut off to an integer in 0..=100"
    )]
    fn normalize(&self, scores: &mut [i64]) {
        let min = scores.iter().copied().min().unwrap_or_default();
        let max = scores.iter().copied().max().unwrap_or_default();
        for score in scores {
            *score = match max - min {
                0 => 0,
                range => (MAX_SCORE as f64 * ((*score - min) as f64 / range as f64)) as i64,
            };
        }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let required = Required::new(cycle.pod, cycle.snapshot);
        if required.has_no_say() { PreFilter::Skip } else { PreFilter::Filter(Box::new(required)) }
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let spec = &cycle.pod.spec;
        let prefers = !spec.affinity.preferred.is_empty() || !spec.anti_affinity.preferred.is_empty();
        if self.args.ignore_preferred_of_existing && !prefers {
            return None;
        }
        let preferred = Preferred::new(cycle.pod, cycle.snapshot, self.args.hard_weight);
        if preferred.weights.is_empty() { None } else { Some(Box::new(preferred)) }
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let (pod, snapshot) = (cycle.pod, cycle.snapshot);
        let (wants, shuns) = (&pod.spec.affinity.required, &pod.spec.anti_affinity.required);
        let wanted = |other: &PodInfo| all_about(wants, other, snapshot.namespace(&other.namespace));
        let shunned = |other: &PodInfo| any_about(shuns, other, snapshot.namespace(&other.namespace));
        match event {
            Event::PodPlaced(other) => wanted(other),
            Event::PodChanged { old, pod: new, change } => {
                change.labels && ((!wanted(old) && wanted(new)) || (shunned(old) && !shunned(new)))
            }
            Event::PodGone(other) => {
                let shuns_us = &other.spec.anti_affinity.required;
                shunned(other) || any_about(shuns_us, pod, snapshot.namespace(&pod.namespace))
            }
            Event::Itself { change, .. } => change.labels,
            Event::Node { old: None, node, .. } => {
                !shuns.is_empty() || wants.iter().any(|term| node.labels.contains_key(&term.topology_key))
            }
            Event::Node { old: Some(old), node, change } if change.labels => {
                let value =
                    |node: &NodeInfo, term: &AffinityTerm| node.labels.get(&term.topology_key).cloned();
                let moved = |term: &AffinityTerm| value(old, term) != value(node, term);
                wants.iter().any(|term| moved(term) && value(node, term).is_some())
                    || shuns.iter().any(|term| moved(term) && value(old, term).is_some())
            }
            // Whom a selector of namespaces means may be another now.
            Event::Namespace => true,
            Event::Node { .. } | Event::NodeGone(_) => false,
        }
    }
}
