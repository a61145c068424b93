//! What the decisions ask the shell to do, and how that can end.

use std::sync::Arc;

use scheduling::{ClaimWork, Nomination, PodInfo, VolumeWrite};
use serde_json::Value;

use crate::observe::{Name, TemplateKey};

/// One call. Each is idempotent and safe to repeat.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Ask admission, without creating anything, what it makes of a pod.
    DryRun {
        template: TemplateKey,
        manifest: Arc<Value>,
    },
    /// Say on a chaperon that a node is reserved for it.
    Reserve {
        chaperon: Name,
        uid: Arc<str>,
        node: Arc<str>,
        attempt: u64,
        seconds: u64,
    },
    /// Take the reservation back, unless anything changed since `version`.
    Release {
        chaperon: Name,
        uid: Arc<str>,
        version: Arc<str>,
    },
    /// Say on a chaperon why it cannot be scheduled, unless anything changed since `version`.
    Refuse {
        chaperon: Name,
        uid: Arc<str>,
        version: Arc<str>,
        message: String,
        since: Option<String>,
        /// Pods of lower priority could make way.
        preempts: bool,
    },
    /// Bind a pod to a node.
    Bind {
        pod: Name,
        uid: Arc<str>,
        node: Arc<str>,
    },
    /// Bind a volume to a claim of a pod, or say on a claim for which node its volume is to be made, unless the object
    /// has changed since it was seen.
    BindStorage {
        pod: Name,
        uid: Arc<str>,
        write: VolumeWrite,
    },
    /// Give a claim of a pod its devices, and the pod the right to use them, unless the claim is no longer what it was.
    BindClaim {
        pod: Name,
        uid: Arc<str>,
        work: ClaimWork,
    },
    /// Take devices back from a claim that nobody but the pod with this UID may use.
    Deallocate {
        claim: Name,
        uid: Arc<str>,
    },
    /// Say on a pod why it cannot be scheduled and for which node it waits now, unless anything changed since
    /// `version`.
    RefusePod {
        pod: Name,
        uid: Arc<str>,
        version: Arc<str>,
        /// The reason of the condition.
        reason: &'static str,
        message: String,
        since: Option<String>,
        nomination: Nomination,
    },
    /// Say on a pod that it waits for no node any more.
    Unnominate {
        pod: Name,
        uid: Arc<str>,
    },
    /// Say on a pod why it has to go.
    Disrupt(Eviction),
    /// Delete it.
    Evict(Eviction),
    /// Record on it that it was deleted, and for whom.
    TellVictim(Eviction),
    /// Record on a pod what became of it.
    Tell(Box<Story>),
    /// Say on such a record how often that has happened by now.
    TellAgain {
        pod: Name,
        uid: Arc<str>,
        event: Arc<str>,
        count: u32,
    },
    /// Create the ClusterSummary, or change what is there by a merge patch.
    CreateSummary(Value),
    PatchSummary(Value),
}

/// What became of a pod, for an event about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// The event's name, which follows from all else: the same story is not told twice.
    pub event: Arc<str>,
    pub pod: Name,
    pub uid: Arc<str>,
    pub version: Arc<str>,
    /// The scheduler name.
    pub scheduler: String,
    /// The node that it was bound to, or why it was bound to none.
    pub end: Result<Arc<str>, String>,
}

/// A pod that has to make way for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    pub victim: Name,
    pub uid: Arc<str>,
    pub node: Arc<str>,
    /// For whom: the pod, its UID and the name of its scheduler.
    pub preemptor: Name,
    pub preemptor_uid: Arc<str>,
    pub scheduler: String,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Done; with the resourceVersion that resulted, where the answer carries one.
    Done {
        version: Option<Arc<str>>,
    },
    /// The dry run was answered.
    Admitted(Admission),
    /// No answer, or one that asks for patience: it may or may not have been done.
    Unknown,
    /// Refused because the object is another or was changed.
    Conflict,
    NotFound,
    /// Refused for good.
    Denied(String),
}

/// What admission makes of a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// The pod as it would be created.
    Pod(Arc<PodInfo>),
    /// It would be refused.
    Refused(String),
    /// Nobody can say without creating it.
    Undecided,
}
