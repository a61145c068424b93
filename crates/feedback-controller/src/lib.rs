//! feedback-controller: what becomes of a delegate reaches its proxy pod, and what becomes of the proxy pod
//! reaches its delegate.
//!
//! Watches proxy pods in the source cluster, and in every accepted target the PodChaperons that carry this
//! cluster's UID.
//!
//! Writes the status and annotations of bound proxy pods, takes off their finalizer and that of Targets, renews a
//! Lease in targets of pods with `fence: Lease` and writes its epoch on the Target, ends pods whose delegate is gone, and deletes PodChaperons of pods that are deleted, bound elsewhere or gone.
//!
//! Promises:
//! - A target that does not answer changes nothing: no pod of it is ended, released or declared finished.
//! - Nothing is done about something that is missing before a live read of it in the cluster that the pod was
//!   elected for.
//! - A proxy pod keeps its finalizer until its delegate is gone, and has a terminal phase before it goes.
//! - A terminal phase is final.
//! - Pods of a deleted Target end when their delegates are confirmed gone; a finalizer holds the Target until then,
//!   whoever runs or not when it is deleted. A cluster that never answers again has to be given up by a person:
//!   `multicluster.admiralty.io/force-removal` or `…/fenced` on the Target, its value the cluster's UID. Then the pods
//!   end at once, and events on the Target and on each pod name what may be left; it is swept should the cluster ever
//!   be a target again.
//! - An outage ends no pod by itself. `Stay`, the default, waits. `Move` ends a pod after its grace period, counted
//!   from the outage's beginning in the Target's condition, when this process has found the same by itself and another
//!   target answers. `MoveOnce` ends it when the Target is fenced, or when the target is back and confirms that the
//!   delegate is gone, or, with `fence: Lease`, when a Lease that this component renews in the target could not be
//!   renewed for so long that the target has stopped the delegate: a higher epoch is written on the Target first. A pod
//!   without controller is never ended, and says so in condition `TargetReachable`.
//! - What a moved pod left in a target that is back goes when the replacement is ready, five minutes later at the
//!   latest. As long as it may be there, a deleted proxy pod with our finalizer says so, unless its replacement needs
//!   its name.
//! - A delegate that cannot be created, scheduled or stopped says why in a condition of its proxy pod:
//!   `DelegateCreated`, `DelegateScheduled`, `DelegateStopped`, which go with the reason.
//! - Annotations and labels have an owner key by key: what is written on the proxy pod after it was submitted is passed
//!   down (annotation `updates` of the PodChaperon) and stays; what somebody changes on the delegate is mirrored once.
//!   An annotation that the delegate has from the pod's manifest is the proxy pod's own.
//! - What the API server lets a pod change of its spec is passed down: images, the deadline, further tolerations,
//!   resources in place, ephemeral containers.
//! - PodChaperons of other clusters are never seen.
//!
//! It never creates a PodChaperon or a pod and never writes a PodChaperon's status.

mod apply;
mod args;
mod controller;
mod departures;
mod events;
mod failover;
mod fence;
mod link;
mod mirror;
mod plan;
mod removed;
mod store;
mod strays;
mod sweep;
mod views;

pub use args::FeedbackArgs;
pub use controller::run as lead;

use runtime::{Runtime, Targets, lease};

/// Runs until shutdown.
///
/// # Errors
///
/// Leader election cannot be set up.
pub async fn serve(rt: Runtime, args: FeedbackArgs) -> anyhow::Result<()> {
    tracing::info!(cluster = %args.cluster_name, "serves this source cluster");
    rt.readiness.set("targets", false);
    let mut targets = Targets::start(&rt);
    targets.synced().await;
    rt.readiness.set("targets", true);
    lease::lead(&rt, |stop| controller::run(rt.clone(), targets.clone(), stop)).await
}
