use std::collections::BTreeSet;

use crate::framework::{Cycle, Event, NodeScore, Plugin, PreFilter, Rejection, normalize_by_max};
use crate::node::NodeInfo;
use crate::pod::{PodInfo, PodSpec, Weighted};
use crate::selector::NodeTerm;
use crate::snapshot::Node;

/// Honours the node selector and the node affinity of a pod.
pub struct NodeAffinity;

/// True if the node carries what the pod's node selector and required node affinity want.
pub(crate) fn wants(spec: &PodSpec, node: &NodeInfo) -> bool {
    let selected = spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let affine = match &spec.node_terms {
        None => true,
        Some(terms) => terms.iter().any(|term| term.matches(&node.name, &node.labels)),
    };
    selected && affine
}

/// The nodes to which the pod is restricted by name: in every term one set, joined. None if it is not.
fn restriction(spec: &PodSpec) -> Option<BTreeSet<String>> {
    let terms = spec.node_terms.as_ref()?;
    if terms.is_empty() {
        return None;
    }
    terms.iter().try_fold(BTreeSet::new(), |mut all, term| {
        all.extend(term.names()?);
        Some(all)
    })
}

struct Preferences<'a>(&'a [Weighted<NodeTerm>]);

impl NodeScore for Preferences<'_> {
    fn score(&self, node: &Node) -> i64 {
        let matching =
            self.0.iter().filter(|preferred| preferred.term.matches(&node.info.name, &node.info.labels));
        matching.map(|preferred| preferred.weight).sum()
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let spec = &cycle.pod.spec;
        if spec.node_selector.is_empty() && spec.node_terms.is_none() {
            return PreFilter::Skip;
        }
        let filter = Box::new(move |node: &Node| {
            if wants(spec, &node.info) {
                Ok(())
            } else {
                Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"))
            }
        });
        match restriction(spec) {
            None => PreFilter::Filter(filter),
            Some(names) if names.is_empty() => {
                PreFilter::Reject(Rejection::unresolvable("pod affinity terms conflict"))
            }
            Some(names) => PreFilter::Only(names, filter),
        }
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let preferred = &cycle.pod.spec.preferred_nodes;
        if preferred.is_empty() { None } else { Some(Box::new(Preferences(preferred))) }
    }

    fn hint(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        matches!(event, Event::Node { node, change }
            if (change.added || change.labels) && wants(&pod.spec, node))
    }
}
