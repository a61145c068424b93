use std::collections::BTreeSet;

use crate::config::NodeAffinityArgs;
use crate::framework::{Cycle, Event, NodeScore, Plugin, PreFilter, Rejection, Scale, Scope};
use crate::node::NodeInfo;
use crate::pod::{PodSpec, Weighted};
use crate::selector::NodeTerm;
use crate::snapshot::Node;

/// Honours the node selector and the node affinity of a pod, and an affinity that the profile adds for every pod.
#[derive(Default)]
pub struct NodeAffinity {
    args: NodeAffinityArgs,
}

impl NodeAffinity {
    pub fn new(args: NodeAffinityArgs) -> Self {
        Self { args }
    }

    /// True if the node carries what the profile wants of every node.
    fn allows(&self, node: &NodeInfo) -> bool {
        let terms = self.args.required.as_ref();
        terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
    }
}

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

struct Preferences<'a> {
    own: &'a [Weighted<NodeTerm>],
    added: &'a [Weighted<NodeTerm>],
}

impl NodeScore for Preferences<'_> {
    fn score(&self, node: &Node) -> i64 {
        let preferred = self.own.iter().chain(self.added);
        let matching =
            preferred.filter(|preferred| preferred.term.matches(&node.info.name, &node.info.labels));
        matching.map(|preferred| preferred.weight).sum()
    }

    fn scale(&self) -> Scale {
        Scale::Largest { reverse: false }
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        let spec = &cycle.pod.spec;
        if spec.node_selector.is_empty() && spec.node_terms.is_none() && self.args.required.is_none() {
            return PreFilter::Skip;
        }
        let filter = Box::new(move |node: &Node| {
            if !self.allows(&node.info) {
                Err(Rejection::unresolvable("node(s) didn't match scheduler-enforced node affinity"))
            } else if !wants(spec, &node.info) {
                Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"))
            } else {
                Ok(())
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
        let (own, added) = (&cycle.pod.spec.preferred_nodes, &self.args.preferred);
        if own.is_empty() && added.is_empty() { None } else { Some(Box::new(Preferences { own, added })) }
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        let spec = &cycle.pod.spec;
        match event {
            Event::Node { old, node, change } if change.added || change.labels => {
                self.allows(node)
                    && wants(spec, node)
                    && old.as_ref().is_none_or(|old| !self.allows(old) || !wants(spec, old))
            }
            _ => false,
        }
    }
}
