//! What a scheduler says about one pod, in the form in which answers are compared.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A plugin's no.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Refusal {
    pub plugin: String,
    /// `Unschedulable` or `UnschedulableAndUnresolvable`.
    pub code: String,
    pub reasons: Vec<String>,
}

/// A plugin's no to several nodes, which are sorted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Refused {
    #[serde(flatten)]
    pub refusal: Refusal,
    pub nodes: Vec<String>,
}

/// A node that fits once some pods are gone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Candidate {
    pub node: String,
    /// Sorted by namespace and name.
    pub victims: Vec<String>,
    /// Victims that a PodDisruptionBudget protects.
    pub violations: usize,
}

/// What is done to make room for a pod that fits nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Preemption {
    /// Sorted by node.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    /// Nodes among which there is nothing to choose, sorted.
    #[serde(default)]
    pub best: Vec<String>,
    /// The node that was chosen; empty if none.
    #[serde(default)]
    pub nominated: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Schedulable,
    Unschedulable,
    /// It may not enter the queue.
    Gated,
    /// A plugin cannot judge.
    Error,
    /// No answer: something is wrong with the document or the referee.
    Broken,
}

/// Raw objects that others have written since the answer before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    #[serde(default)]
    pub persistent_volumes: Vec<Value>,
    #[serde(default)]
    pub persistent_volume_claims: Vec<Value>,
}

/// A scheduler's whole answer about one pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    #[serde(default)]
    pub document: String,
    #[serde(default)]
    pub pod: String,
    pub verdict: Verdict,
    /// The text for users if the pod is not schedulable.
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub gate: Option<Refusal>,
    /// A no to all nodes before they were looked at.
    #[serde(default)]
    pub pre_filter: Option<Refusal>,
    /// Plugins that named the only nodes to look at.
    #[serde(default)]
    pub restricting: Vec<String>,
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// Nodes that fit, sorted.
    #[serde(default)]
    pub feasible: Vec<String>,
    /// Weighted sums of scores; empty if fewer than two nodes fit.
    #[serde(default)]
    pub totals: BTreeMap<String, i64>,
    /// The nodes with the highest total, sorted.
    #[serde(default)]
    pub best: Vec<String>,
    /// Plugins whose scores differ between nodes.
    #[serde(default)]
    pub decisive: Vec<String>,
    /// Plugins that had no opinion on the pod.
    #[serde(default)]
    pub skipped: Vec<String>,
    /// Where the pod was assumed, in a sequence.
    #[serde(default)]
    pub node: String,
    /// What is written to claims and volumes before the pod is bound there, sorted.
    #[serde(default)]
    pub writes: Vec<String>,
    /// Upstream's only: what controllers did about the writes, in a live sequence.
    #[serde(default)]
    pub seen: Option<Seen>,
    /// What came of the pod's claims in a live sequence: `bound`, `waiting`, or what went wrong. Empty if they were
    /// bound before.
    #[serde(default)]
    pub binding: String,
    /// No more answers follow about the live sequence.
    #[serde(default)]
    pub last: bool,
    /// Ours only: where the short way that services take disagrees with the long one that names every reason.
    #[serde(skip)]
    pub contradiction: String,
    /// Ours only: the errors of all nodes, of which one is told.
    #[serde(skip)]
    pub errors: Vec<String>,
    /// Ours only: the claim, namespace and name, of which devices are taken back.
    #[serde(skip)]
    pub deallocate: Option<(String, String)>,
    /// Present if room was to be made and the pod fits nowhere.
    #[serde(default)]
    pub preemption: Option<Preemption>,
}

impl Answer {
    /// Sorts what has no order: upstream walks a map when it lists the extended resources that a node lacks.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        let mut groups: BTreeMap<Refusal, Vec<String>> = BTreeMap::new();
        for mut group in self.refused {
            group.refusal.reasons.sort_unstable();
            groups.entry(group.refusal).or_default().extend(group.nodes);
        }
        let sorted = groups.into_iter().map(|(refusal, mut nodes)| {
            nodes.sort_unstable();
            Refused { refusal, nodes }
        });
        self.refused = sorted.collect();
        self
    }

    #[must_use]
    pub fn new(verdict: Verdict) -> Self {
        Self {
            document: String::new(),
            pod: String::new(),
            verdict,
            message: String::new(),
            gate: None,
            pre_filter: None,
            restricting: Vec::new(),
            refused: Vec::new(),
            feasible: Vec::new(),
            totals: BTreeMap::new(),
            best: Vec::new(),
            decisive: Vec::new(),
            skipped: Vec::new(),
            node: String::new(),
            writes: Vec::new(),
            seen: None,
            binding: String::new(),
            last: false,
            contradiction: String::new(),
            errors: Vec::new(),
            deallocate: None,
            preemption: None,
        }
    }
}
