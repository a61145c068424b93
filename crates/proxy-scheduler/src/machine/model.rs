//! What the machine is told and what it answers.

use api::{Pod, PodChaperon, keys};
use scheduling::{Labels, NodeInfo, PodInfo, ResourceList};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A UID, or the name of a virtual node, which is what a target is called here.
pub type Id = Arc<str>;

/// Namespace and name of a pod or PodChaperon.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// How many targets are asked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// So many, and the first that reserves wins.
    Some(usize),
    /// All of them, and the best that reserves wins.
    All,
}

impl Width {
    /// Reads `1` … `n` or `all`; anything else is no wish.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "all" => Some(Width::All),
            number => number.parse().ok().filter(|&count: &usize| count > 0).map(Width::Some),
        }
    }
}

/// What the user said about where the pod goes first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preference {
    /// Names of targets, the first to be filled first; all others come after them.
    pub order: Vec<String>,
    /// Weights of targets by name, over those of the targets themselves.
    pub weights: BTreeMap<String, u32>,
    /// How much scores of targets count, by name, over what is set for all pods.
    pub scores: BTreeMap<String, u32>,
}

/// What somebody has published about a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScoreSeen {
    /// Name of the TargetScore.
    pub object: Id,
    /// Namespace of the Target; empty for a ClusterTarget.
    pub namespace: String,
    /// Name of the Target or ClusterTarget.
    pub target: Id,
    /// In which respect.
    pub score: Id,
    /// 0 (worst) … 100 (best).
    pub value: u8,
    /// When it was found out, in milliseconds: of two about the same the later one counts.
    pub observed: i64,
    /// How much longer it counts from when it is handed over.
    pub left: Duration,
}

/// The group with which a pod is placed, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Namespace and name.
    pub name: Id,
    /// So many of its pods must fit at once; `None` where its PodGroup says it.
    pub least: Option<usize>,
    /// Of which kind that PodGroup is.
    pub kind: GroupKind,
    /// All of them in one target.
    pub together: bool,
}

/// Who defines PodGroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupKind {
    /// `scheduling.x-k8s.io`.
    Coscheduling,
    /// Kubernetes itself, `scheduling.k8s.io`.
    Workload,
}

/// A PodGroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSeen {
    /// Namespace and name.
    pub name: Id,
    /// So many of its pods must fit at once; `None`: they are placed one by one.
    pub least: Option<usize>,
}

/// The record of an election, as it stands on the proxy pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// Cluster UID of the elected target.
    pub target_uid: Id,
    /// UID of the elected PodChaperon.
    pub chaperon_uid: Id,
    /// Number of the election.
    pub epoch: u64,
    /// Of the Lease on which it rests that the delegate stops when its target is cut off.
    pub lease: Option<Lease>,
}

/// The Lease of a delegate that the target stops by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The epoch in which the target was asked.
    pub epoch: u64,
    /// With how many seconds the delegate is stopped.
    pub grace: u64,
}

/// Why one target may go beyond what it has free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantKind {
    /// Pods of lower priority can make way.
    Preempt,
    /// More nodes may come.
    ScaleUp,
    /// The pod's own scheduler places it; nobody reserves.
    NoReservation,
}

impl GrantKind {
    /// The value of the annotation.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            GrantKind::Preempt => keys::GRANT_PREEMPT,
            GrantKind::ScaleUp => keys::GRANT_SCALE_UP,
            GrantKind::NoReservation => keys::GRANT_NO_RESERVATION,
        }
    }

    /// Reads the annotation; what another release wrote is a grant all the same.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            keys::GRANT_PREEMPT => GrantKind::Preempt,
            keys::GRANT_NO_RESERVATION => GrantKind::NoReservation,
            _ => GrantKind::ScaleUp,
        }
    }
}

/// The record of a grant, as it stands on the proxy pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub kind: GrantKind,
    pub election: Election,
}

/// How far the delegate of an allowed PodChaperon is, by its status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// The status does not say.
    #[default]
    Unknown,
    /// It has no node, or does not exist.
    Unplaced,
    Placed,
    /// The target confirms that it is gone without ever having had a node, and that none comes any more.
    Revoked,
}

/// What a PodChaperon is made from.
#[derive(Debug)]
pub struct Seed {
    /// The proxy pod as it was when last seen unbound.
    pub pod: Pod,
    /// The PodChaperon for a target that rewrites labels, but for what names the target.
    pub template: PodChaperon,
}

/// Why a pod is not to be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// Nothing holds it.
    No,
    /// It carries scheduling gates; the API server says so by itself.
    Gated,
    /// It needs what there is not; the sentence is for the user.
    Because(String),
}

/// What an unbound pod wants.
#[derive(Debug, Clone)]
pub struct Wish {
    /// What the cluster-level constraints are judged by, and what it requests.
    pub info: Arc<PodInfo>,
    /// Hash of the delegate's spec: equal pods get equal answers.
    pub class: Id,
    /// The user's wish, if any.
    pub width: Option<Width>,
    pub preference: Preference,
    /// Whether it must wait.
    pub hold: Hold,
    /// Highest epoch on the pod; the next election is higher.
    pub epoch: u64,
    /// The target that is granted, if one is.
    pub grant: Option<Grant>,
    /// Nobody reserves for it: its own scheduler places it in the target.
    pub is_direct: bool,
    /// For the creation of PodChaperons.
    pub seed: Arc<Seed>,
}

/// Whether a pod has a node.
#[derive(Debug, Clone)]
pub enum Place {
    Unbound(Arc<Wish>),
    /// Without an election it was not bound by us.
    Bound {
        node: Id,
        election: Option<Election>,
    },
}

/// A proxy pod, as seen.
#[derive(Debug, Clone)]
pub struct PodSeen {
    pub uid: Id,
    pub name: Name,
    pub version: String,
    pub terminating: bool,
    /// Its phase is an end.
    pub finished: bool,
    pub place: Place,
    /// What it counts for on its virtual node, when the constraints of other pods are judged.
    pub info: Arc<PodInfo>,
    /// Equal for the pods of one controller, and for those of one namespace that have none.
    pub group: u64,
    /// It is placed with others, or not at all.
    pub gang: Option<Arc<Group>>,
    /// It has a controller, which makes another one when it ends.
    pub owned: bool,
    /// How long its delegate may be without a node, if it says so.
    pub start_deadline: Option<Duration>,
    /// The message of its condition PodScheduled=False, if it has one of ours.
    pub shown: Option<String>,
}

/// Where the data of a claim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimHome {
    /// Nowhere yet: where the first of its pods goes.
    Anywhere,
    /// In the cluster with this UID; the words tell why no other will do.
    Cluster(Id, String),
    /// Each target has one of its own.
    TargetsOwn,
}

/// A PersistentVolumeClaim of the source, as seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimSeen {
    pub name: Name,
    pub uid: Id,
    pub home: ClaimHome,
    pub deleting: bool,
    /// What its copies are made from.
    pub raw: Arc<Value>,
}

/// A target's word that a node is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// The ask that it answers.
    pub attempt: u64,
    /// How long it holds.
    pub lasts: Duration,
}

/// A target's word that it cannot take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its reasons, for the user.
    pub message: String,
    /// Pods of lower priority could make way.
    pub preempts: bool,
    /// Another for each attempt that is answered so, whatever the words.
    pub stamp: String,
}

/// A PodChaperon, as seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChaperonSeen {
    /// UID of the proxy pod.
    pub parent: Id,
    pub name: Name,
    pub uid: Id,
    pub version: String,
    /// Number of the last ask.
    pub attempt: u64,
    pub promise: Option<Promise>,
    /// The attempt that the last promise answered, also when it is no more; 0 for none.
    pub reserved_attempt: u64,
    /// Stale beside a promise for the current attempt.
    pub refused: Option<Refusal>,
    pub allowed: bool,
    /// Allowed without a reservation.
    pub grant: bool,
    /// We want the election back.
    pub revoked: bool,
    pub stage: Stage,
    pub terminating: bool,
    pub finalizers: Vec<String>,
    pub lease: Option<Lease>,
    /// UIDs of the claims that follow its pod, by name.
    pub claims: BTreeMap<String, String>,
}

/// A target, as the registry has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSeen {
    /// Its virtual node.
    pub id: Id,
    /// Name of the Target or ClusterTarget.
    pub name: Id,
    /// The only namespace that it serves; empty for all.
    pub namespace: String,
    /// UID of the cluster; empty while unknown.
    pub cluster_uid: Id,
    /// It is the source itself.
    pub is_self: bool,
    pub width: Option<Width>,
    /// Those with a lower one are filled first.
    pub order: i32,
    /// Its share among those of one order, if anybody has said.
    pub weight: Option<u32>,
    /// How long a delegate may be without a node there, if anybody has said.
    pub start_deadline: Option<Duration>,
    /// Why nothing can be done there; `None` for a target that is accepted and has a client.
    pub unusable: Option<String>,
}

/// What a target offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Labels that its nodes agree on.
    pub labels: BTreeMap<String, String>,
    pub allocatable: ResourceList,
    pub free: ResourceList,
}

/// What a failed call says about what else would fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// This pod and its like.
    Class,
    /// Every pod of the namespace.
    Namespace,
    /// Everything there.
    Target,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub scope: Scope,
    /// For the user.
    pub message: String,
}

/// The answer of a live read.
#[derive(Debug, Clone)]
pub enum Live<T> {
    Found(Box<T>),
    Gone,
    /// No answer: neither of the others.
    Unknown(String),
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    PodsReplaced(Vec<PodSeen>),
    PodApplied(PodSeen),
    /// By UID.
    PodDeleted(Id),
    NodesReplaced(Vec<NodeInfo>),
    NodeApplied(NodeInfo),
    NodeDeleted(Id),
    /// All namespaces with their labels.
    NamespacesReplaced(Vec<(String, Labels)>),
    NamespaceApplied(String, Labels),
    NamespaceDeleted(String),
    /// All claims.
    ClaimsReplaced(Vec<ClaimSeen>),
    ClaimApplied(ClaimSeen),
    ClaimDeleted(Name),
    /// All scores that are published.
    ScoresReplaced(Vec<ScoreSeen>),
    ScoreApplied(ScoreSeen),
    /// By name of the object.
    ScoreDeleted(Id),
    /// All PodGroups of one kind.
    GroupsReplaced(GroupKind, Vec<GroupSeen>),
    GroupApplied(GroupKind, GroupSeen),
    GroupDeleted(GroupKind, Id),
    /// All targets as they are now.
    Targets(Vec<TargetSeen>),
    ChaperonsReplaced {
        target: Id,
        chaperons: Vec<ChaperonSeen>,
    },
    ChaperonApplied {
        target: Id,
        chaperon: ChaperonSeen,
    },
    ChaperonDeleted {
        target: Id,
        parent: Id,
        uid: Id,
    },
    /// `None`: there is none.
    SummarySeen {
        target: Id,
        summary: Option<Summary>,
    },
    /// The target's watch of PodChaperons fails at the moment, with the reason.
    WatchFailed {
        target: Id,
        reason: String,
    },
    /// Nobody watches the target any more; who does next begins with a list.
    WatchEnded {
        target: Id,
    },
    /// A call that an action asked for has ended.
    Finished {
        pod: Id,
        outcome: Outcome,
    },
    /// The time of [`super::Machine::next_wakeup`] has come.
    Tick,
}

/// How a call ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// `sent`: not later than the request left us; `None` if an earlier one had arrived already.
    Created {
        target: Id,
        sent: Option<Duration>,
        result: Result<ChaperonSeen, Failure>,
    },
    /// The create never left.
    Forgone {
        target: Id,
    },
    /// On failure with what a live read found.
    Renewed {
        target: Id,
        sent: Duration,
        result: Result<ChaperonSeen, Live<ChaperonSeen>>,
    },
    /// On failure with what a live read found.
    Allowed {
        target: Id,
        result: Result<ChaperonSeen, Live<ChaperonSeen>>,
    },
    Deleted {
        target: Id,
        uid: Id,
        result: Result<(), Failure>,
    },
    /// On failure with what a live read found.
    Bound(Result<(), Live<PodSeen>>),
    /// A grant was written or taken back; on failure with what a live read found.
    Granted(Result<Box<PodSeen>, Live<PodSeen>>),
    Reread(Live<PodSeen>),
    /// The new version.
    Explained(Result<String, Failure>),
}

/// Which pod, at which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    pub uid: Id,
    pub name: Name,
    pub version: String,
}

/// Which PodChaperon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChaperonRef {
    pub target: Id,
    /// UID of the proxy pod.
    pub parent: Id,
    pub name: Name,
    pub uid: Id,
}

/// One write (or read), safe to repeat. All but `Forgo` and `Scheduled` are answered by [`Event::Finished`].
#[derive(Debug, Clone)]
pub enum Action {
    /// Asks a target, for a pod that these claims follow.
    Create { target: Id, pod: Id, seed: Arc<Seed>, claims: Vec<ClaimSeen> },
    /// Takes back a `Create` that has not left yet; its end is answered, and this is not.
    Forgo { target: Id, pod: Id },
    /// Asks again, since the promise lapsed or nobody knows when it was given.
    Renew { chaperon: ChaperonRef, attempt: u64 },
    /// Elects. `after`: since the pod was first seen to want a node.
    Bind { pod: PodRef, node: Id, election: Election, after: Duration },
    /// Writes on the proxy pod which target is granted, or that none is any more.
    Grant { pod: PodRef, target: Id, grant: Option<Grant> },
    /// Lets the target run the delegate, on its reserved node or, granted, wherever it gets one.
    Allow {
        chaperon: ChaperonRef,
        version: String,
        finalizers: Vec<String>,
        epoch: u64,
        grant: Option<GrantKind>,
    },
    /// Wants the election back, or not any more. Answered like `Allow`.
    Revoke { chaperon: ChaperonRef, on: bool },
    /// Takes back an ask.
    Delete { chaperon: ChaperonRef },
    /// Tells the user why the pod waits: condition and event. `first`: it had said nothing before.
    Explain { pod: PodRef, message: String, first: bool },
    /// Reads the pod live, since nobody knows how the last call ended.
    Reread { pod: PodRef },
    /// Tells the user where the pod went.
    Scheduled { pod: PodRef, node: Id },
}
