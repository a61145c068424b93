use crate::framework::{Cycle, Event, NodeScore, Plugin, PreFilter, Rejection, Scale, Scope};
use crate::node::{NodeInfo, Taint};
use crate::pod::{PodInfo, Toleration};
use crate::snapshot::Node;

/// Keeps pods off nodes with taints that they do not tolerate, and away from those with taints that merely
/// advise against them.
pub struct TaintToleration;

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    toleration.tolerates(&taint.key, &taint.value, &taint.effect)
}

/// True if the pod tolerates every taint of the node that forbids.
pub(crate) fn tolerates_all(pod: &PodInfo, node: &NodeInfo) -> bool {
    let mut forbidding = node.taints.iter().filter(|taint| taint.forbids());
    forbidding.all(|taint| pod.spec.tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

struct Advice<'a> {
    tolerations: Vec<&'a Toleration>,
}

impl NodeScore for Advice<'_> {
    fn score(&self, node: &Node) -> i64 {
        let ignored = node.info.taints.iter().filter(|taint| {
            let tolerated = self.tolerations.iter().any(|toleration| tolerates(toleration, taint));
            taint.effect == "PreferNoSchedule" && !tolerated
        });
        i64::try_from(ignored.count()).unwrap_or(i64::MAX)
    }

    fn scale(&self) -> Scale {
        Scale::Largest { reverse: true }
    }
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn scope(&self) -> Scope {
        Scope::Node
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        PreFilter::Filter(Box::new(move |node: &Node| {
            if tolerates_all(cycle.pod, &node.info) {
                Ok(())
            } else {
                Err(Rejection::unresolvable("node(s) had untolerated taint(s)"))
            }
        }))
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        let tolerations = cycle
            .pod
            .spec
            .tolerations
            .iter()
            .filter(|toleration| toleration.effect.is_empty() || toleration.effect == "PreferNoSchedule");
        Some(Box::new(Advice { tolerations: tolerations.collect() }))
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        match event {
            Event::Node { old, node, change } => {
                (change.added || change.taints)
                    && tolerates_all(cycle.pod, node)
                    && old.as_ref().is_none_or(|old| !tolerates_all(cycle.pod, old))
            }
            Event::Itself { change, .. } => change.tolerations,
            _ => false,
        }
    }
}
