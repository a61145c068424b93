//! virtual-kubelet: one virtual node for each target cluster, the truth about the target, and the kubelet API of
//! the proxy pods on it.
//!
//! Watches Targets, ClusterTargets, the Secrets that they name and virtual nodes in the source cluster; asks
//! each target for its ClusterSummary every few seconds, and watches the Events of pods there.
//!
//! Writes the status and the finalizer of Targets and ClusterTargets, virtual Nodes with their status and Leases, requests for its
//! serving certificate, and nothing in a target. It ends pods on virtual nodes that are no proxy pods once they
//! are deleted, as nobody else would. Events of delegates are shown on their proxy pods.
//!
//! Serves logs, exec, attach, port-forward and usage of proxy pods over TLS, to callers that may use the node as
//! a kubelet would demand it, by relaying them to the delegates.
//!
//! Replicas share the targets: each virtual node is looked after and served by one of them, and moves when that one
//! goes.
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
mod capacity;
mod controller;
mod events;
mod facts;
mod heartbeat;
mod kubelet;
mod node;
mod plan;
mod probe;
mod progress;
mod quantity;
mod strangers;
mod verdicts;

pub use args::KubeletArgs;

use anyhow::Context;
use kubelet::{Metrics, Parts, Streams, Surface};
use runtime::{CancellationToken, Members, Runtime, Targets, client};

/// Runs nodes and conditions of all targets, without a kubelet API.
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
    let place = controller::Place { address, surface: None, events: None };
    controller::run(rt, targets, (place, Members::alone()), stop).await
}

/// Runs until shutdown.
///
/// # Errors
///
/// TLS cannot be set up, or metrics cannot be registered.
pub async fn serve(rt: Runtime, args: KubeletArgs) -> anyhow::Result<()> {
    rt.readiness.set("targets", false);
    // Streams outlive the share that they began in, but not the process.
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
    let events = events::counts(&rt.metrics.registry).context("cannot register metrics")?;
    targets.synced().await;
    rt.readiness.set("targets", true);
    let stop = rt.shutdown.child_token();
    let surface = Surface::start(&rt, &parts, targets.clone(), &address, &stop)?;
    let place = controller::Place { address, surface: Some(surface), events: Some(events) };
    let members = Members::join(&rt);
    controller::run(rt, targets, (place, members), stop).await
}
