//! virtual-kubelet: one virtual node for each target cluster, and the truth about the target.
//!
//! Watches Targets, ClusterTargets, the Secrets that they name and virtual nodes in the source cluster; asks
//! each target for its ClusterSummary every few seconds.
//!
//! Writes the status of Targets and ClusterTargets, virtual Nodes with their status and Leases, and nothing in
//! a target. It ends pods on virtual nodes that are no proxy pods once they are deleted, as nobody else would.
//!
//! Promises:
//! - A target that does not answer is `Reachable=False` and its node NotReady; it stays accepted, and nothing
//!   of it is deleted.
//! - Labels, annotations, taints and the cordon that users put on a virtual node stay.
//! - A node is deleted only after a live read showed that its Target is gone.
//! - What a node is to look like follows from the target alone, never from what the node looks like now.

mod apply;
mod args;
mod controller;
mod facts;
mod heartbeat;
mod node;
mod plan;
mod probe;
mod strangers;
mod verdicts;

pub use args::KubeletArgs;
pub use controller::run as lead;

use runtime::{Runtime, Targets, lease};

/// Runs until shutdown.
///
/// # Errors
///
/// Leader election cannot be set up.
pub async fn serve(rt: Runtime, args: KubeletArgs) -> anyhow::Result<()> {
    rt.readiness.set("targets", false);
    let mut targets = Targets::start(&rt);
    let address = match args.node_address {
        Some(address) => address.to_string(),
        None => rt.args.pod_ip.clone(),
    };
    targets.synced().await;
    rt.readiness.set("targets", true);
    lease::lead(&rt, |stop| controller::run(rt.clone(), targets.clone(), address.clone(), stop)).await
}
