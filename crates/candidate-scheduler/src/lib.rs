//! The candidate scheduler of a target cluster; or alone, a scheduler of one ordinary cluster.
//!
//! **Watches** nodes, unfinished pods, namespaces, PodDisruptionBudgets, DeviceClasses where the cluster knows them, and
//! whom Services, ReplicationControllers, ReplicaSets and StatefulSets select; PersistentVolumeClaims, PersistentVolumes,
//! StorageClasses, and what CSI drivers say of nodes and storage; if it has profiles besides that of delegates
//! ResourceClaims, ResourceSlices and DeviceTaintRules; in a target PodChaperons, its own ClusterSummary and
//! ResourceQuotas, and of ServiceAccounts, limit ranges and admission webhooks only that they changed.
//!
//! **Writes** on a PodChaperon the reservation (annotations `is-reserved`, `reserved-node`, `reserved-seconds`,
//! `reserved-attempt`) or, while it has no delegate, the condition `PodScheduled=False` with the reason; bindings of
//! pods with its scheduler names that have no node yet, and the same condition on those that fit nowhere, with the node
//! that room is made on (`nominatedNodeName`); on pods of lower priority the condition `DisruptionTarget` before it
//! deletes them to make that room, and an event `Preempted`; of a pod that needs storage the `claimRef`
//! of PersistentVolumes, or on its claims the annotation `selected-node`; on its ResourceClaims the finalizer
//! `delete-protection`, devices, and the pod that may use them; the ClusterSummary `singleton`.
//!
//! **Promises**
//! - A PodChaperon is scheduled as if it were the pod that admission would make of it, which a dry run tells.
//! - A reservation counts like a pod until it is taken back or its delegate is bound. It is taken back only when the
//!   promised time and ten seconds more are over, and never once the PodChaperon was allowed.
//! - What is promised counts in ResourceQuotas until the API server counts the delegate itself.
//! - An answer names the ask that it answers. A higher `attempt` renews a reservation or is a new ask.
//! - A node whose kubelet refused a delegate is the last choice for the next one, until one has run. A restart
//!   forgets which nodes those were, but keeps none of them reserved.
//! - A refusal is written only on the state that it is about, and never once a node is reserved.
//! - After a restart everything that was promised is counted again before anything is decided.
//! - A pod that needs what this release does not know (extended resources that only a DeviceClass stands for; any
//!   resource claim of a delegate) is refused in words, never placed.
//! - A PodChaperon whose claims are not made yet is judged as if they were, with the class that they will have; one of
//!   the same name that is not the copy of the source's claim refuses it.
//! - A pod is bound only when its storage is, and its claims have their devices. What was written for it stays when it
//!   is scheduled again, so that a crash between any two writes costs a try and neither storage nor devices.
//! - No device is given to two claims: from the decision until it is seen in the claim, it is promised.
//! - Real pods make pods of lower priority go as upstream's do, with its budgets, choices and words. A PodChaperon never
//!   does, and nobody takes what was promised to one.
//! - No event `Scheduled` is written for delegates: their PodChaperon tells the story. Pods of other profiles get
//!   `Scheduled` and `FailedScheduling` in upstream's words.
//! - Pods of other scheduler names than its profiles' are left alone. A configuration that cannot be followed to the
//!   letter is refused when the process starts.
//!
//! **Ready** is a replica that could list and watch everything, and, if it leads, has counted what was promised before.

pub mod apply;
pub mod args;
mod controller;
pub mod error;
pub mod metrics;
mod mode;
pub mod observe;
pub mod plan;
mod standby;

use anyhow::Context as _;
use api::keys;
use runtime::Runtime;
use tracing::warn;

pub use args::Args;
pub use controller::lead;
pub use plan::{Extension, Settings};

/// One right that this service needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    pub group: &'static str,
    pub resource: &'static str,
    pub verbs: &'static [&'static str],
    pub reason: &'static str,
}

const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    reason: &'static str,
) -> Right {
    Right { group, resource, verbs, reason }
}

const OURS: &str = "multicluster.admiralty.io";
const STORAGE: &str = "storage.k8s.io";
const DEVICES: &str = "resource.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// What the ServiceAccount may do in the whole cluster. Leases come from the shared rules of leader election.
pub const RIGHTS: &[Right] = &[
    right("", "nodes", &["list", "watch"], "what there is to schedule onto and to summarise"),
    right(
        "",
        "pods",
        &["list", "watch", "create", "delete"],
        "what is placed where; create is only sent with dryRun=All, to learn what admission makes of a delegate; \
         deletes pods that make room for one of higher priority",
    ),
    right("", "pods/binding", &["create"], "binds pods of its profiles' scheduler names"),
    right("", "services", &["list", "watch"], "whose pods are spread by default"),
    right("", "replicationcontrollers", &["list", "watch"], "whose pods are spread by default"),
    right("apps", "replicasets", &["list", "watch"], "whose pods are spread by default"),
    right("apps", "statefulsets", &["list", "watch"], "whose pods are spread by default"),
    right(
        "",
        "pods/status",
        &["patch"],
        "says on a real pod why it fits nowhere and where room is made for it; on those that make room, why they go",
    ),
    right(
        "",
        "persistentvolumeclaims",
        &["list", "watch", "patch"],
        "which storage pods need; says for which node it is to be made",
    ),
    right(
        "",
        "persistentvolumes",
        &["list", "watch", "patch"],
        "which storage there is and from where it can be reached; binds it to the claims of pods",
    ),
    right(STORAGE, "storageclasses", &["list", "watch"], "when and where storage is made"),
    right(STORAGE, "csinodes", &["list", "watch"], "how many volumes a node can attach"),
    right(STORAGE, "csidrivers", &["list", "watch"], "which drivers tell how much storage is left"),
    right(STORAGE, "csistoragecapacities", &["list", "watch"], "how much storage is left, and for whom"),
    right(STORAGE, "volumeattachments", &["list", "watch"], "what is attached to a node"),
    right(
        DEVICES,
        "deviceclasses",
        &["list", "watch"],
        "which extended resources nodes do not count themselves",
    ),
    right(
        DEVICES,
        "resourceclaims",
        &["get", "list", "watch", "patch"],
        "which devices pods of other profiles than delegates' ask for and have; protects those that get some",
    ),
    right(
        DEVICES,
        "resourceclaims/status",
        &["patch"],
        "gives them their devices, and takes back what nobody uses",
    ),
    right(DEVICES, "resourceclaims/binding", &["patch"], "what recent API servers ask of who gives devices"),
    right(DEVICES, "resourceslices", &["list", "watch"], "which devices there are"),
    right(DEVICES, "devicetaintrules", &["list", "watch"], "which devices must not be given"),
    right("policy", "poddisruptionbudgets", &["list", "watch"], "whom to spare when room is made"),
    right(
        "events.k8s.io",
        "events",
        &["create", "patch"],
        "records on a pod that it made room, and for whom; on pods of other profiles what became of them, and how often",
    ),
    right(
        "",
        "namespaces",
        &["get", "list", "watch"],
        "the UID of kube-system; labels for namespace selectors; a dry run is worth nothing once they change",
    ),
    right("", "serviceaccounts", &["list", "watch"], "a dry run is worth nothing once they change"),
    right(
        "",
        "resourcequotas",
        &["list", "watch"],
        "what is promised counts in them; a dry run is worth nothing once they change",
    ),
    right("", "limitranges", &["list", "watch"], "a dry run is worth nothing once they change"),
    right(
        ADMISSION,
        "mutatingwebhookconfigurations",
        &["list", "watch"],
        "a dry run is worth nothing once they change",
    ),
    right(
        ADMISSION,
        "validatingwebhookconfigurations",
        &["list", "watch"],
        "a dry run is worth nothing once they change",
    ),
    right(OURS, "podchaperons", &["list", "watch", "patch"], "what is asked; the reservation"),
    right(OURS, "podchaperons/status", &["patch"], "says why a PodChaperon fits nowhere"),
    right(OURS, "clustersummaries", &["list", "watch", "create", "patch"], "what the cluster offers"),
];

/// Runs the service: stands by until it leads, then schedules.
pub async fn serve(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    Box::pin(serve_with(runtime, args, plan::nothing_more)).await
}

/// The same with plugins of somebody else. What they need to know, they must be made with; `--config` does not name them.
pub async fn serve_with(runtime: Runtime, args: Args, extension: Extension) -> anyhow::Result<()> {
    let config = args.configuration()?;
    for note in &config.notes {
        warn!(reason = %note, "a part of the configuration has no effect");
    }
    let mode = mode::Mode { args: &args, alone: !config.profiles.is_empty() };
    let Some(chaperons) = mode.is_target(&runtime).await else { return Ok(()) };
    let Some(devices) = mode::has_devices(&runtime).await else { return Ok(()) };
    let of_others =
        |profile: &scheduling::config::Profile| profile.scheduler_name != keys::CANDIDATE_SCHEDULER;
    let others = config.profiles.iter().any(of_others);
    let storage = chaperons || others;
    let claims = match devices && others {
        true => {
            let Some(rules) = mode::has_rules(&runtime).await else { return Ok(()) };
            Some(rules)
        }
        false => None,
    };
    let settings = Settings {
        reserved_seconds: args.reserved_seconds,
        config,
        chaperons,
        storage,
        owners: true,
        devices,
        claims,
        extension,
        ..Settings::default()
    };
    let metrics = metrics::Metrics::new(&runtime.metrics.registry).context("cannot register metrics")?;
    let standby = standby::Standby {
        client: &runtime.client,
        readiness: &runtime.readiness,
        chaperons,
        storage,
        devices,
        claims,
    };
    standby.begin();
    let work = |stop| Box::pin(lead(runtime.clone(), settings.clone(), metrics.clone(), stop));
    tokio::select! {
        ended = runtime::lease::lead(&runtime, work) => ended,
        never = Box::pin(standby.stand_by()) => match never {},
    }
}
