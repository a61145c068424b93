//! virtual-kubelet: one virtual node for each target cluster, the truth about the target, and the kubelet API of
//! the proxy pods on it.
//!
//! Watches Targets, ClusterTargets, the Secrets that they name and virtual nodes in the source cluster; asks
//! each target for its ClusterSummary every few seconds.
//!
//! Writes the status and the finalizer of Targets and ClusterTargets, virtual Nodes with their status and Leases, requests for its
//! serving certificate, and nothing in a target. It ends pods on virtual nodes that are no proxy pods once they
//! are deleted, as nobody else would.
//!
//! Serves logs, exec, attach, port-forward and usage of proxy pods over TLS, to callers that may use the node as
//! a kubelet would demand it, by relaying them to the delegates.
//!
//! Promises:
//! - A target that does not answer, or whose watches show nothing new, is `Reachable=False` and its node NotReady
//!   and tainted; it stays accepted, and nothing of it is deleted. The condition's transition time is the outage's
//!   beginning, whoever restarts meanwhile.
//! - A target is accepted with a finalizer on its Target: what runs there ends before the object goes.
//! - Labels, annotations, taints and the cordon that users put on a virtual node stay.
//! - A node is deleted only after live reads showed that its Target is gone and no proxy pod is bound to it.
//! - What a node is to look like follows from the target alone, never from what the node looks like now.
//! - Nobody reaches a container whom the source cluster would not let into one on a node of its own.

mod apply;
mod args;
mod controller;
mod facts;
mod heartbeat;
mod kubelet;
mod node;
mod plan;
mod probe;
mod progress;
mod strangers;
mod verdicts;

pub use args::KubeletArgs;

use anyhow::Context;
use kubelet::{Metrics, Parts, Streams, Surface};
use runtime::{CancellationToken, Runtime, Targets, client, lease};

/// Runs nodes and conditions while this replica leads, without a kubelet API.
///
/// # Errors
///
/// Never.
pub async fn lead(
    rt: Runtime,
    targets: Targets,
    address: String,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    controller::run(rt, targets, controller::Place { address, surface: None }, stop).await
}

/// Runs until shutdown.
///
/// # Errors
///
/// Leader election cannot be set up.
pub async fn serve(rt: Runtime, args: KubeletArgs) -> anyhow::Result<()> {
    rt.readiness.set("targets", false);
    // Streams outlive a leadership, but not the process.
    let streams = Streams::new(rt.shutdown.clone());
    let rt = streams.beside(&rt);
    let mut targets = Targets::start(&rt);
    let address = match args.node_address {
        Some(address) => address.to_string(),
        None => rt.args.pod_ip.clone(),
    };
    let config = kube::Config::infer().await.context("cannot find out the cluster's authority")?;
    let parts = Parts {
        args,
        streams,
        local: client::local_streaming(&rt.metrics).await.context("cannot make a client for streams")?,
        metrics: Metrics::new(&rt.metrics.registry).context("cannot register metrics")?,
        authorities: config.root_cert.unwrap_or_default(),
    };
    targets.synced().await;
    rt.readiness.set("targets", true);
    lease::lead(&rt, |stop| {
        let surface = Surface::start(&rt, &parts, targets.clone(), &address, &stop);
        let (rt, targets, address) = (rt.clone(), targets.clone(), address.clone());
        async move {
            let place = controller::Place { address, surface: Some(surface?) };
            controller::run(rt, targets, place, stop).await
        }
    })
    .await
}
