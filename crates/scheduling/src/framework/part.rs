use std::sync::Arc;

use crate::devices::ClaimPlan;
use crate::framework::{
    Cycle, Diagnosis, Event, NodeFilter, NodeScore, Plugin, PostFilter, PreFilter, Rejection, Scope, Trials,
};
use crate::node::NodeInfo;
use crate::snapshot::Node;
use crate::volumes::VolumePlan;

/// At which extension points a [`Part`] acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each extension point")]
pub(crate) struct Parts {
    pub(crate) pre_enqueue: bool,
    pub(crate) pre_filter: bool,
    pub(crate) filter: bool,
    pub(crate) post_filter: bool,
    pub(crate) score: bool,
    pub(crate) reserve: bool,
    pub(crate) pre_bind: bool,
    /// It answers for the plugin when something happened.
    pub(crate) hints: bool,
}

/// A plugin at some of its extension points, where a profile asks plugins in another order at each, or not at all.
pub(crate) struct Part {
    plugin: Arc<dyn Plugin>,
    acts: Parts,
}

impl Part {
    pub(crate) fn new(plugin: Arc<dyn Plugin>, acts: Parts) -> Self {
        Self { plugin, acts }
    }
}

struct EveryNode;

impl NodeFilter for EveryNode {
    fn filter(&self, _node: &Node) -> Result<(), Rejection> {
        Ok(())
    }
}

impl Plugin for Part {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }

    fn scope(&self) -> Scope {
        self.plugin.scope()
    }

    fn prefers(&self, cycle: Cycle<'_>) -> bool {
        self.acts.score && self.plugin.prefers(cycle)
    }

    fn pre_enqueue(&self, cycle: Cycle<'_>) -> Result<(), Rejection> {
        if self.acts.pre_enqueue { self.plugin.pre_enqueue(cycle) } else { Ok(()) }
    }

    fn may_open(&self, event: &Event) -> bool {
        self.acts.hints && self.plugin.may_open(event)
    }

    fn pre_filter<'a>(&'a self, cycle: Cycle<'a>) -> PreFilter<'a> {
        if !self.acts.pre_filter {
            return PreFilter::Skip;
        }
        match self.plugin.pre_filter(cycle) {
            PreFilter::Filter(_) if !self.acts.filter => PreFilter::Skip,
            PreFilter::Only(nodes, _) if !self.acts.filter => PreFilter::Only(nodes, Box::new(EveryNode)),
            answer => answer,
        }
    }

    fn post_filter<'a>(
        &self,
        cycle: Cycle<'a>,
        diagnosis: &Diagnosis,
        trials: &mut Trials<'_, 'a>,
    ) -> PostFilter {
        if self.acts.post_filter {
            self.plugin.post_filter(cycle, diagnosis, trials)
        } else {
            PostFilter::Nothing
        }
    }

    fn pre_score<'a>(
        &'a self,
        cycle: Cycle<'a>,
        feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        if self.acts.score { self.plugin.pre_score(cycle, feasible) } else { None }
    }

    fn reserve(&self, cycle: Cycle<'_>, node: &Node) -> Result<(), Rejection> {
        if self.acts.reserve { self.plugin.reserve(cycle, node) } else { Ok(()) }
    }

    fn pre_bind(&self, cycle: Cycle<'_>, node: &Node) -> Result<(), Rejection> {
        if self.acts.pre_bind { self.plugin.pre_bind(cycle, node) } else { Ok(()) }
    }

    fn volumes(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Option<VolumePlan> {
        if self.acts.pre_bind { self.plugin.volumes(cycle, node) } else { None }
    }

    fn claims(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<Option<ClaimPlan>, Rejection> {
        if self.acts.pre_bind { self.plugin.claims(cycle, node) } else { Ok(None) }
    }

    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool {
        self.acts.hints && self.plugin.hint(event, cycle)
    }
}
