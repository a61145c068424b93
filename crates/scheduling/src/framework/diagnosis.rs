use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::framework::{Candidate, Code, Rejection};

/// A "no" and the plugin that said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub plugin: &'static str,
    pub code: Code,
    pub reasons: Vec<Cow<'static, str>>,
}

impl Refusal {
    pub(crate) fn new(plugin: &'static str, rejection: Rejection) -> Self {
        Self { plugin, code: rejection.code, reasons: rejection.reasons }
    }

    /// The reasons as one text.
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}

/// Why one node cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRefusal {
    pub node: Arc<str>,
    pub refusal: Refusal,
}

/// Why no node can take a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diagnosis {
    /// All nodes of the snapshot.
    pub node_count: usize,
    /// Set if a plugin could not judge: the pod failed, rather than that it was refused.
    pub error: Option<String>,
    /// That plugin.
    pub failed: Option<&'static str>,
    /// Set if the answer was no before single nodes were looked at.
    pub pre_filter: Option<String>,
    /// Nodes that were asked.
    pub refused: Vec<NodeRefusal>,
    /// Plugins that said no; empty if there are no nodes at all.
    pub plugins: BTreeSet<&'static str>,
    /// Plugins that named the only nodes which come into question; the others were not asked.
    pub(crate) restricting: BTreeSet<&'static str>,
    /// What plugins said about making room.
    pub post_filter: Option<String>,
    /// For which node the pod is to wait.
    pub nomination: Nomination,
    /// The claim, namespace and name, of which devices are to be taken back.
    pub deallocate: Option<(Arc<str>, Arc<str>)>,
    /// Every way to make room that was found, the best first.
    pub candidates: Vec<Candidate>,
}

/// What becomes of the node that a pod waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Nomination {
    /// It waits for none any more.
    #[default]
    Clear,
    /// As before.
    Keep,
    /// It waits for this one, once room is made there in the first of [`Diagnosis::candidates`].
    Node(Arc<str>),
}

impl Diagnosis {
    /// The text for users: how many nodes said what, the same words as kube-scheduler's.
    pub fn message(&self) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        if self.node_count == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let reasons = self.pre_filter.clone().unwrap_or_else(|| self.histogram());
        let reasons = if reasons.is_empty() { reasons } else { format!(" {reasons}.") };
        let post_filter = self.post_filter.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        format!("0/{} nodes are available:{reasons}{post_filter}", self.node_count)
    }

    /// How many nodes said what.
    fn histogram(&self) -> String {
        let absent = (!self.restricting.is_empty()).then(|| {
            let plugins: Vec<_> = self.restricting.iter().copied().collect();
            format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "))
        });
        let reasons = self.refused.iter().map(|node| &node.refusal.reasons);
        histogram(self.node_count, reasons, absent)
    }
}

/// `count reason` of each reason, sorted as text. `absent` is the reason of the nodes that are not listed.
pub(crate) fn histogram(
    node_count: usize,
    listed: impl ExactSizeIterator<Item = impl AsRef<[Cow<'static, str>]>>,
    absent: Option<String>,
) -> String {
    let mut counts: BTreeMap<Cow<'static, str>, usize> = BTreeMap::new();
    let unlisted = node_count.saturating_sub(listed.len());
    for reasons in listed {
        for reason in reasons.as_ref() {
            *counts.entry(reason.clone()).or_default() += 1;
        }
    }
    if let Some(reason) = absent.filter(|_| unlisted > 0) {
        *counts.entry(Cow::Owned(reason)).or_default() += unlisted;
    }
    let mut parts: Vec<_> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort();
    parts.join(", ")
}
