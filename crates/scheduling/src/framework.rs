//! The framework: plugins at extension points, and one scheduling cycle over them.

mod cache;
mod cycle;
mod diagnosis;
mod event;
mod part;
mod profiles;
mod schedule;
mod share;
#[cfg(test)]
mod tests;
mod timing;
mod trial;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::devices::ClaimPlan;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::{Node, Snapshot};
use crate::volumes::VolumePlan;
pub use cache::Cache;
pub use cycle::{Framework, FrameworkBuilder, Ranked, Selection};
pub(crate) use diagnosis::histogram;
pub use diagnosis::{Diagnosis, NodeRefusal, Nomination, Refusal};
pub use event::{Event, PodChange};
pub(crate) use part::{Part, Parts};
pub use profiles::{Judge, Profiles};
pub use timing::{Point, Stopwatch};
pub use trial::{Trial, Trials};

/// The highest score a node can get from one plugin, before weights.
pub const MAX_SCORE: i64 = 100;

/// How final a "no" is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// Removing pods from the node may help.
    Unschedulable,
    /// Removing pods cannot help.
    UnschedulableAndUnresolvable,
    /// Something that the pod needs is broken. No node is chosen, whatever other plugins say, and the pod is tried
    /// again after a pause.
    Error,
}

/// A plugin's "no", with at least one reason for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    pub code: Code,
    pub reasons: Vec<Cow<'static, str>>,
}

impl Rejection {
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::Unschedulable, reasons: vec![reason.into()] }
    }

    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { code: Code::UnschedulableAndUnresolvable, reasons: vec![reason.into()] }
    }
}

/// The pod being scheduled, and what it is scheduled onto.
#[derive(Debug, Clone, Copy)]
pub struct Cycle<'a> {
    pub pod: &'a PodInfo,
    pub snapshot: &'a Snapshot,
}

/// What a plugin says before nodes are looked at one by one.
pub enum PreFilter<'a> {
    /// The plugin has no opinion on this pod.
    Skip,
    /// No node can take the pod.
    Reject(Rejection),
    /// Nodes are to be asked one by one.
    Filter(Box<dyn NodeFilter + 'a>),
    /// The same, and only these nodes come into question.
    Only(BTreeSet<String>, Box<dyn NodeFilter + 'a>),
}

/// A plugin's judgement of nodes, prepared for one pod.
pub trait NodeFilter {
    fn filter(&self, node: &Node) -> Result<(), Rejection>;

    /// Whether [`Self::filter`] lets the pod pass. Worth its own answer where giving reasons costs more.
    fn admits(&self, node: &Node) -> bool {
        self.filter(node).is_ok()
    }

    /// True if [`Self::filter`] may answer [`Code::Error`] for some node. Then every node is asked.
    fn may_fail(&self) -> bool {
        false
    }

    /// What if `pod` were also on `node`? Preemption asks so without changing the snapshot. [`Self::filter`] is given
    /// the node with the pod on it; only what the filter counts itself has to change here.
    fn add_pod(&mut self, _pod: &PodInfo, _node: &Node) {}

    /// What if `pod` were not on `node`? Exactly the reverse of [`Self::add_pod`], whichever comes first.
    fn remove_pod(&mut self, _pod: &PodInfo, _node: &Node) {}
}

impl<F: Fn(&Node) -> Result<(), Rejection>> NodeFilter for F {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        self(node)
    }
}

/// A plugin's preference among nodes, prepared for one pod.
pub trait NodeScore {
    /// Any number; [`Self::normalize`] brings it into `0..=MAX_SCORE`.
    fn score(&self, node: &Node) -> i64;

    /// How [`Self::normalize`] works, for those that can say so.
    fn scale(&self) -> Scale {
        Scale::Own
    }

    /// Brings the scores of all feasible nodes, in their order, into `0..=MAX_SCORE`.
    fn normalize(&self, scores: &mut [i64]) {
        if let Scale::Largest { reverse } = self.scale() {
            normalize_by_max(scores, reverse);
        }
    }
}

/// How a plugin's scores come into `0..=MAX_SCORE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// They are in it.
    Identity,
    /// By [`normalize_by_max`].
    Largest { reverse: bool },
    /// As [`NodeScore::normalize`] says, which leaves them alone unless it is implemented.
    Own,
}

/// What a plugin's answers follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// From the pod's [`PodInfo::spec`] and, for a node, from that node with what is placed on it. Then answers are
    /// kept, for all pods with an equal spec, until the node changes. Scores do not look at which nodes are feasible.
    Node,
    /// From anything. Every pod is asked about anew.
    Cluster,
}

/// What a plugin says when no node can take the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostFilter {
    /// Nothing: it does not make room.
    Nothing,
    /// Why no room is made now, in a sentence for the message. The pod waits on for the node that it waits for.
    Wait(String),
    /// Why no room can be made, in a sentence for the message. The pod waits for no node any more.
    Nowhere(String),
    /// Devices of this claim, namespace and name, are to be taken back; and a sentence for the message. Other plugins
    /// are asked as well.
    Deallocate { claim: (Arc<str>, Arc<str>), message: String },
    /// Room can be made in the first of these ways, the best; and a sentence for the message.
    Room { candidates: Vec<Candidate>, message: String },
}

/// A way to make room: a node, and who would have to leave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub node: Arc<str>,
    /// The most important first; at least one.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of them a disruption budget protects.
    pub violations: usize,
}

/// One rule of scheduling. A plugin implements the extension points that it cares about.
///
/// A plugin is pure: all it knows is the pod and the snapshot, and it keeps nothing between cycles.
pub trait Plugin: Send + Sync {
    /// The name by which users configure the plugin and metrics count it.
    fn name(&self) -> &'static str;

    /// What the answers of the plugin's filter and scores follow from.
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    /// May the pod enter the queue at all?
    fn pre_enqueue(&self, _cycle: Cycle<'_>) -> Result<(), Rejection> {
        Ok(())
    }

    /// Is `event` a reason to ask [`Self::pre_enqueue`] again about a pod that it has held back?
    fn may_open(&self, _event: &Event) -> bool {
        false
    }

    /// Work done once per pod, and the filter of single nodes that results from it.
    fn pre_filter<'a>(&'a self, _cycle: Cycle<'a>) -> PreFilter<'a> {
        PreFilter::Skip
    }

    /// Asked in order when no node is feasible, until one makes room. `trials` has the filters of this cycle; none if
    /// a plugin rejected the pod before nodes were looked at.
    fn post_filter<'a>(
        &self,
        _cycle: Cycle<'a>,
        _diagnosis: &Diagnosis,
        _trials: &mut Trials<'_, 'a>,
    ) -> PostFilter {
        PostFilter::Nothing
    }

    /// False if [`Self::pre_score`] would have no preference among any nodes, so that it need not be asked.
    fn prefers(&self, _cycle: Cycle<'_>) -> bool {
        true
    }

    /// Work done once per pod on the feasible nodes, and the scores that result from it. None: no preference.
    fn pre_score<'a>(
        &'a self,
        _cycle: Cycle<'a>,
        _feasible: &'a [&'a Node],
    ) -> Option<Box<dyn NodeScore + 'a>> {
        None
    }

    /// A last word on the chosen node, when the pod is about to be assumed there.
    fn reserve(&self, _cycle: Cycle<'_>, _node: &Node) -> Result<(), Rejection> {
        Ok(())
    }

    /// A last word before the pod is bound to `node`, on which it is assumed.
    fn pre_bind(&self, _cycle: Cycle<'_>, _node: &Node) -> Result<(), Rejection> {
        Ok(())
    }

    /// What must happen to claims and volumes before the pod can be bound to `node`. None: nothing.
    fn volumes(&self, _cycle: Cycle<'_>, _node: &NodeInfo) -> Option<VolumePlan> {
        None
    }

    /// What must happen to resource claims before the pod can be bound to `node`. None: nothing.
    ///
    /// # Errors
    /// When the pod does not fit there.
    fn claims(&self, _cycle: Cycle<'_>, _node: &NodeInfo) -> Result<Option<ClaimPlan>, Rejection> {
        Ok(None)
    }

    /// Is `event` a reason to try the cycle's pod again, which this plugin rejected? The snapshot has seen the event.
    fn hint(&self, event: &Event, cycle: Cycle<'_>) -> bool;
}

/// In which order waiting pods are tried.
pub trait QueueSort: Send + Sync {
    /// Smaller is earlier. `queued_at` is when the pod last entered the queue.
    fn key(&self, pod: &PodInfo, queued_at: u64) -> (i64, u64);
}

/// Scales scores so that the largest becomes [`MAX_SCORE`]; reversed, small ones win.
pub fn normalize_by_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or_default();
    for score in scores {
        *score = match (max, reverse) {
            (0, true) => MAX_SCORE,
            (0, false) => 0,
            (max, true) => MAX_SCORE - *score * MAX_SCORE / max,
            (max, false) => *score * MAX_SCORE / max,
        };
    }
}
