//! What is known of targets and virtual nodes, without networks or clocks.

use crate::kubelet::State;
use api::conditions::Reason;
use api::v1alpha1::{Capacity, TargetStatus};
use api::{ClusterSummary, Node, keys};
use k8s_openapi::jiff::Timestamp;
use runtime::TargetKey;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Failed probes in a row after which a target counts as unreachable.
const PATIENCE: u32 = 3;
/// Answers in a row after which an unreachable target counts as reachable again.
const TRUST: u32 = 2;

/// What a target says about itself in its ClusterSummary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) cluster_uid: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) capacity: BTreeMap<String, String>,
    pub(crate) allocatable: BTreeMap<String, String>,
    pub(crate) free: BTreeMap<String, String>,
    /// Those that all nodes declare.
    pub(crate) features: BTreeSet<String>,
}

impl From<ClusterSummary> for Summary {
    fn from(summary: ClusterSummary) -> Self {
        let annotation =
            |key: &str| summary.metadata.annotations.as_ref()?.get(key).filter(|v| !v.is_empty()).cloned();
        let features = annotation(keys::DECLARED_FEATURES).unwrap_or_default();
        Self {
            cluster_uid: annotation(keys::CLUSTER_UID),
            protocol: annotation(keys::PROTOCOL),
            labels: summary.metadata.labels.unwrap_or_default(),
            capacity: summary.capacity,
            allocatable: summary.allocatable,
            free: summary.free,
            features: features.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect(),
        }
    }
}

/// What one probe of a target brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The ClusterSummary.
    Answered(Summary),
    /// An answer, but there is no ClusterSummary.
    NoSummary,
    /// The target refuses our identity or lacks a right of ours.
    Refused(String),
    /// No answer, or one that asks for patience.
    Silent(String),
    /// An answer, but what changes there is not seen.
    Stalled(String),
}

/// Whether a target answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Not known since this process started or the credentials changed.
    #[default]
    Unknown,
    Yes,
    No {
        reason: Reason,
        message: String,
    },
}

/// The result of all probes of a target so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) reach: Reach,
    /// The last one seen.
    pub(crate) summary: Option<Arc<Summary>>,
    /// Whether the target answered last that it has no ClusterSummary.
    pub(crate) no_summary: bool,
    /// Version of the target's API server.
    pub(crate) version: Option<String>,
    pub(crate) failures: u32,
    /// In a row, since it was unreachable.
    pub(crate) successes: u32,
}

impl Health {
    /// A single failure says nothing: only several in a row make a target unreachable. Nor does a single success
    /// of one that was unreachable, or it would be in and out of reach by turns.
    pub(crate) fn after(&self, outcome: Outcome) -> Health {
        let mut next = self.clone();
        let failure = match outcome {
            Outcome::Answered(summary) => {
                if next.summary.as_deref() != Some(&summary) {
                    next.summary = Some(Arc::new(summary));
                }
                next.no_summary = false;
                None
            }
            Outcome::NoSummary => {
                next.no_summary = true;
                None
            }
            Outcome::Refused(message) => Some((Reason::Forbidden, message)),
            Outcome::Silent(message) => Some((Reason::Unreachable, message)),
            Outcome::Stalled(message) => Some((Reason::WatchStalled, message)),
        };
        match failure {
            None => {
                next.failures = 0;
                next.successes = next.successes.saturating_add(1).min(TRUST);
                if !matches!(next.reach, Reach::No { .. }) || next.successes >= TRUST {
                    next.reach = Reach::Yes;
                }
            }
            Some((reason, message)) => {
                next.failures = next.failures.saturating_add(1).min(PATIENCE);
                next.successes = 0;
                // The first message stays, or the status would change with every wording of the same trouble.
                let known = matches!(&next.reach, Reach::No { reason: old, .. } if *old == reason);
                if next.failures >= PATIENCE && !known {
                    next.reach = Reach::No { reason, message };
                }
            }
        }
        next
    }
}

/// Whether there is a client for a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    Pending,
    Broken { reason: Reason, message: String },
}

/// One Target or ClusterTarget and what is known of its cluster.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) key: TargetKey,
    pub(crate) uid: String,
    pub(crate) generation: Option<i64>,
    pub(crate) created: Option<Timestamp>,
    pub(crate) link: Link,
    pub(crate) excluded: Option<String>,
    /// What is shown of its capacity.
    pub(crate) capacity: Capacity,
    pub(crate) resource_version: String,
    /// All of the object, in their order.
    pub(crate) finalizers: Vec<String>,
    /// Whether our finalizer is among them.
    pub(crate) is_held: bool,
    pub(crate) deleting: bool,
    pub(crate) is_fenced: bool,
    /// Another replica asks it and writes of it.
    pub(crate) is_others: bool,
    /// As last written by this component.
    pub(crate) status: TargetStatus,
    pub(crate) health: Health,
}

/// What was last written to a virtual node, and what the API server made of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Applied {
    pub(crate) labels: Option<BTreeMap<String, String>>,
    /// Without times.
    pub(crate) status: Option<Value>,
    /// Capacity and allocatable as stored: quantities come back in another spelling than they were sent.
    pub(crate) stored: Value,
    /// The API server refused this status, so that a smaller one is sent until it changes.
    pub(crate) refused: Option<Refused>,
    /// Its target is gone, but pods are bound to it.
    pub(crate) is_used: bool,
}

/// How much of a status was refused.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refused {
    /// The whole status that was refused, without times.
    pub(crate) status: Value,
    /// Whether it was refused without huge pages as well.
    pub(crate) also_without_huge_pages: bool,
}

/// A virtual node as it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) node: Node,
    pub(crate) applied: Applied,
}

/// Everything that is decided on.
#[derive(Debug, Clone, Default)]
pub(crate) struct World {
    pub(crate) targets: Vec<Facts>,
    /// Every node with the label of virtual nodes, by name.
    pub(crate) nodes: BTreeMap<String, Seen>,
    /// Nodes, as they are or would be called, that other replicas look after.
    pub(crate) others: BTreeSet<String>,
    pub(crate) address: String,
    /// Of the kubelet API, by node.
    pub(crate) ports: BTreeMap<String, u16>,
    /// What is to be said of its certificate; `None` where there is no kubelet API.
    pub(crate) serving: Option<State>,
    pub(crate) now: Timestamp,
}
