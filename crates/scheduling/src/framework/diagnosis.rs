use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::framework::{Code, Rejection};

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
    /// A node on which room can be made, and the UIDs of the pods that must go.
    pub nominated: Option<(String, Vec<String>)>,
}

impl Diagnosis {
    /// The text for users: how many nodes said what, the same words as kube-scheduler's.
    pub fn message(&self) -> String {
        if self.node_count == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let reasons = self.pre_filter.clone().unwrap_or_else(|| self.histogram());
        let reasons = if reasons.is_empty() { reasons } else { format!(" {reasons}.") };
        let post_filter = self.post_filter.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        format!("0/{} nodes are available:{reasons}{post_filter}", self.node_count)
    }

    /// `count reason` of each reason, sorted as text.
    fn histogram(&self) -> String {
        let mut counts: BTreeMap<Cow<'_, str>, usize> = BTreeMap::new();
        for reason in self.refused.iter().flat_map(|node| &node.refusal.reasons) {
            *counts.entry(Cow::Borrowed(reason)).or_default() += 1;
        }
        let absent = self.node_count.saturating_sub(self.refused.len());
        if absent > 0 && !self.restricting.is_empty() {
            let plugins: Vec<_> = self.restricting.iter().copied().collect();
            let reason = format!("node(s) didn't satisfy plugin(s) [{}]", plugins.join(" "));
            *counts.entry(Cow::Owned(reason)).or_default() += absent;
        }
        let mut parts: Vec<_> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        parts.sort();
        parts.join(", ")
    }
}
