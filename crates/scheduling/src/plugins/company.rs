use std::borrow::Cow;

use crate::config::CompanyArgs;
use crate::framework::{Cycle, Event, MAX_SCORE, NodeFilter, NodeScore, Plugin, PreFilter, Rejection};
use crate::labels::Labels;
use crate::node::NodeInfo;
use crate::pod::{AffinityTerm, PodInfo, Weighted};
use crate::snapshot::{Attitude, Counts, Group, Node, Snapshot, StandingTerm, Topology};

/// Keeps pods near the pods that they want, and apart from those that they, or those, do not want.
#[derive(Default)]
pub struct InterPodAffinity {
    args: CompanyArgs,
}

impl InterPodAffinity {
    pub fn new(args: CompanyArgs) -> Self {
        Self { args }
    }

    /// False if what placed pods prefer does not matter to a pod.
    fn heeds_others(&self, pod: &PodInfo) -> bool {
        let (near, far) = (&pod.spec.affinity.preferred, &pod.spec.anti_affinity.preferred);
        !self.args.ignore_preferred_of_existing || !near.is_empty() || !far.is_empty()
    }
}

/// True if the term is about pods with these labels in this namespace, which has labels of its own.
fn is_about(term: &AffinityTerm, labels: &Labels, (name, namespace): (&str, Option<&Labels>)) -> bool {
    let by_label = term.namespace_selector.as_ref().is_some_and(|selector| {
        selector.is_empty() || namespace.is_some_and(|labels| selector.matches(labels))
    });
    let in_namespace = by_label || term.namespaces.iter().any(|known| known.as_str() == name);
    in_namespace && term.selector.as_ref().is_some_and(|selector| selector.matches(labels))
}

/// The namespace of a pod with its labels.
fn home<'a>(namespace: &'a str, snapshot: &'a Snapshot) -> (&'a str, Option<&'a Labels>) {
    (namespace, snapshot.namespace(namespace))
}

fn all_about(terms: &[AffinityTerm], labels: &Labels, home: (&str, Option<&Labels>)) -> bool {
    !terms.is_empty() && terms.iter().all(|term| is_about(term, labels, home))
}

/// True if one of the terms is about a placed pod.
fn any_about(terms: &[AffinityTerm], pod: &PodInfo, snapshot: &Snapshot) -> bool {
    terms.iter().any(|term| is_about(term, &pod.spec.labels, home(&pod.namespace, snapshot)))
}

/// The groups of placed pods that a term is about.
fn groups_of<'a>(term: &'a AffinityTerm, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Group> {
    let groups = term.selector.iter().flat_map(|selector| snapshot.selected(selector));
    groups.filter(|group| is_about(term, group.labels(), home(group.namespace(), snapshot)))
}

/// The terms of placed pods that are about `pod`.
fn terms_about<'a>(pod: &'a PodInfo, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a StandingTerm> {
    let home = home(&pod.namespace, snapshot);
    let terms = snapshot.terms_about(&pod.spec.labels);
    terms.filter(move |standing| is_about(standing.term(), &pod.spec.labels, home))
}

/// Amounts booked on the domains of topologies.
struct Booked<'a> {
    snapshot: &'a Snapshot,
    topologies: Vec<(Cow<'a, Topology>, Vec<i64>)>,
    /// True once anything was booked at all.
    any: bool,
}

impl<'a> Booked<'a> {
    fn new(snapshot: &'a Snapshot, terms: &[AffinityTerm]) -> Self {
        let mut booked = Self { snapshot, topologies: Vec::new(), any: false };
        for term in terms {
            booked.topology(&term.topology_key);
        }
        booked
    }

    /// The number of a topology here.
    fn topology(&mut self, key: &str) -> usize {
        let known = self.topologies.iter().position(|(topology, _)| **topology.key() == *key);
        known.unwrap_or_else(|| {
            let topology = self.snapshot.topology(key);
            let amounts = vec![0; topology.bound()];
            self.topologies.push((topology, amounts));
            self.topologies.len() - 1
        })
    }

    /// Books `weight` for each of the pods counted, on the domain of its node.
    fn book(&mut self, key: &str, counts: &Counts, weight: i64) {
        let index = self.topology(key);
        let (topology, amounts) = &mut self.topologies[index];
        for (slot, count) in counts.iter() {
            if let Some(place) = topology.place(slot) {
                amounts[place] += i64::from(count) * weight;
                self.any = true;
            }
        }
    }

    fn book_one(&mut self, key: &str, node: &Node, weight: i64) {
        let index = self.topology(key);
        let (topology, amounts) = &mut self.topologies[index];
        if let Some(place) = topology.place(node.slot()) {
            amounts[place] += weight;
            self.any = true;
        }
    }

    /// True if something is booked on every domain that the node should be in.
    fn all_near(&self, node: &Node) -> bool {
        let slot = node.slot();
        self.topologies.iter().all(|(topology, amounts)| {
            topology.place(slot).and_then(|place| amounts.get(place)).is_some_and(|amount| *amount > 0)
        })
    }

    /// True if something is booked on a domain that the node is in.
    fn any_near(&self, node: &Node) -> bool {
        self.any && self.amounts(node).any(|amount| amount > 0)
    }

    /// True if the node is in a domain of every topology.
    fn spans(&self, node: &Node) -> bool {
        self.topologies.iter().all(|(topology, _)| topology.place(node.slot()).is_some())
    }

    /// The amounts of all domains that a node is in.
    fn amounts(&self, node: &Node) -> impl Iterator<Item = i64> {
        let slot = node.slot();
        self.topologies.iter().filter_map(move |(topology, amounts)| {
            topology.place(slot).and_then(|place| amounts.get(place)).copied()
        })
    }

    /// True if every amount is zero.
    fn is_zero(&self) -> bool {
        !self.any || self.topologies.iter().all(|(_, amounts)| amounts.iter().all(|amount| *amount == 0))
    }
}

struct Required<'a> {
    pod: &'a PodInfo,
    snapshot: &'a Snapshot,
    /// The pod fulfils its own affinity, so that the first of a group finds a place.
    wants_itself: bool,
    /// Pods that fulfil all of the pod's affinity terms.
    wanted: Booked<'a>,
    /// There are none of those.
    none_wanted: bool,
    /// Pods that the pod does not want near.
    unwanted: Booked<'a>,
    /// Pods that do not want the pod near.
    unwanting: Booked<'a>,
}

/// What required terms say of a node.
enum Company {
    Fine,
    /// What the pod wants is not near.
    Missing,
    /// What the pod does not want is near.
    Unwanted,
    /// Near is what does not want the pod.
    Unwanting,
}

impl<'a> Required<'a> {
    fn new(Cycle { pod, snapshot }: Cycle<'a>) -> Self {
        let own_home = home(&pod.namespace, snapshot);
        let (affinity, anti_affinity) = (&pod.spec.affinity.required, &pod.spec.anti_affinity.required);
        let mut wanted = Booked::new(snapshot, affinity);
        for group in affinity.iter().take(1).flat_map(|term| groups_of(term, snapshot)) {
            if all_about(affinity, group.labels(), home(group.namespace(), snapshot)) {
                affinity.iter().for_each(|term| wanted.book(&term.topology_key, group.counts(), 1));
            }
        }
        let mut unwanted = Booked::new(snapshot, anti_affinity);
        for term in anti_affinity {
            for group in groups_of(term, snapshot) {
                unwanted.book(&term.topology_key, group.counts(), 1);
            }
        }
        let mut unwanting = Booked::new(snapshot, &[]);
        for standing in terms_about(pod, snapshot).filter(|term| term.attitude() == Attitude::Forbids) {
            unwanting.book(&standing.term().topology_key, standing.counts(), 1);
        }
        Self {
            pod,
            snapshot,
            wants_itself: all_about(affinity, &pod.spec.labels, own_home),
            none_wanted: !wanted.any,
            wanted,
            unwanted,
            unwanting,
        }
    }

    fn has_no_say(&self) -> bool {
        let spec = &self.pod.spec;
        !self.unwanting.any && spec.affinity.required.is_empty() && spec.anti_affinity.required.is_empty()
    }

    fn company(&self, node: &Node) -> Company {
        let alone = self.none_wanted && self.wants_itself && self.wanted.spans(node);
        if !alone && !self.wanted.all_near(node) {
            Company::Missing
        } else if self.unwanted.any_near(node) {
            Company::Unwanted
        } else if self.unwanting.any_near(node) {
            Company::Unwanting
        } else {
            Company::Fine
        }
    }

    /// What if `other` were, or were not, on the node?
    fn shift(&mut self, other: &PodInfo, node: &Node, by: i64) {
        let own_home = home(&self.pod.namespace, self.snapshot);
        let other_home = home(&other.namespace, self.snapshot);
        for term in &other.spec.anti_affinity.required {
            if is_about(term, &self.pod.spec.labels, own_home) {
                self.unwanting.book_one(&term.topology_key, node, by);
            }
        }
        let affinity = &self.pod.spec.affinity.required;
        if all_about(affinity, &other.spec.labels, other_home) {
            affinity.iter().for_each(|term| self.wanted.book_one(&term.topology_key, node, by));
            self.none_wanted = self.wanted.is_zero();
        }
        for term in &self.pod.spec.anti_affinity.required {
            if is_about(term, &other.spec.labels, other_home) {
                self.unwanted.book_one(&term.topology_key, node, by);
            }
        }
    }
}

impl NodeFilter for Required<'_> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        match self.company(node) {
            Company::Fine => Ok(()),
            Company::Missing => Err(Rejection::unresolvable("node(s) didn't match pod affinity rules")),
            Company::Unwanted => {
                Err(Rejection::unschedulable("node(s) didn't match pod anti-affinity rules"))
            }
            Company::Unwanting => {
                Err(Rejection::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"))
            }
        }
    }

    fn admits(&self, node: &Node) -> bool {
        matches!(self.company(node), Company::Fine)
    }

    fn add_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.shift(pod, node, 1);
    }

    fn remove_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.shift(pod, node, -1);
    }
}

/// Weights booked on topologies by preferences, the pod's own and those of pods that run already.
struct Preferred<'a>(Booked<'a>);

impl<'a> Preferred<'a> {
    fn new(Cycle { pod, snapshot }: Cycle<'a>, hard_weight: i64) -> Self {
        let mut booked = Booked::new(snapshot, &[]);
        let mut prefer = |terms: &[Weighted<AffinityTerm>], sign: i64| {
            for Weighted { weight, term } in terms {
                for group in groups_of(term, snapshot) {
                    booked.book(&term.topology_key, group.counts(), sign * weight);
                }
            }
        };
        prefer(&pod.spec.affinity.preferred, 1);
        prefer(&pod.spec.anti_affinity.preferred, -1);
        for standing in terms_about(pod, snapshot) {
            let weight = match standing.attitude() {
                Attitude::Requires if hard_weight > 0 => hard_weight,
                Attitude::Prefers { weight } => weight,
                Attitude::Dislikes { weight } => -weight,
                Attitude::Requires | Attitude::Forbids => continue,
            };
            booked.book(&standing.term().topology_key, standing.counts(), weight);
        }
        Self(booked)
    }
}

impl NodeScore for Preferred<'_> {
    fn score(&self, node: &Node) -> i64 {
        self.0.amounts(node).sum()
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
        let required = Required::new(cycle);
        if required.has_no_say() { PreFilter::Skip } else { PreFilter::Filter(Box::new(required)) }
    }

    fn prefers(&self, Cycle { pod, snapshot }: Cycle<'_>) -> bool {
        let (near, far) = (&pod.spec.affinity.preferred, &pod.spec.anti_affinity.preferred);
        let mut standing = terms_about(pod, snapshot);
        let others = |standing: &StandingTerm| standing.attitude() != Attitude::Forbids;
        !near.is_empty() || !far.is_empty() || (self.heeds_others(pod) && standing.any(others))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        if !self.heeds_others(cycle.pod) {
            return None;
        }
        let preferred = Preferred::new(cycle, self.args.hard_weight);
        if preferred.0.any { Some(Box::new(preferred)) } else { None }
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let (pod, snapshot) = (cycle.pod, cycle.snapshot);
        let (wants, shuns) = (&pod.spec.affinity.required, &pod.spec.anti_affinity.required);
        let wanted = |other: &PodInfo| all_about(wants, &other.spec.labels, home(&other.namespace, snapshot));
        let shunned = |other: &PodInfo| any_about(shuns, other, snapshot);
        match event {
            Event::PodPlaced(other) => wanted(other),
            Event::PodChanged { old, pod: new, change } => {
                change.labels && ((!wanted(old) && wanted(new)) || (shunned(old) && !shunned(new)))
            }
            Event::PodGone(other) => {
                let shuns_us = &other.spec.anti_affinity.required;
                shunned(other) || any_about(shuns_us, pod, snapshot)
            }
            Event::Itself { change, .. } => change.labels,
            Event::Node { old: None, node, .. } => {
                !shuns.is_empty() || wants.iter().any(|term| node.labels.contains_key(&term.topology_key))
            }
            Event::Node { old: Some(old), node, change } if change.labels => {
                let has = |node: &NodeInfo, term: &AffinityTerm| node.labels.contains_key(&term.topology_key);
                let moved = |term: &AffinityTerm| {
                    old.labels.get(&term.topology_key) != node.labels.get(&term.topology_key)
                };
                wants.iter().any(|term| moved(term) && has(node, term))
                    || shuns.iter().any(|term| moved(term) && has(old, term))
            }
            // Whom a selector of namespaces means may be another now.
            Event::Namespace => true,
            Event::Node { .. }
            | Event::NodeGone(_)
            | Event::Storage(_)
            | Event::Devices { .. }
            | Event::Claims(_) => false,
        }
    }
}
