//! follow-controller: what a pod needs of its namespace is where its delegate runs.
//!
//! Watches proxy pods, Services, Ingresses, PersistentVolumeClaims and the metadata of ConfigMaps and Secrets in the source cluster, and in
//! every accepted target the copies that carry this cluster's UID.
//!
//! Writes copies of the ConfigMaps and Secrets that proxy pods name, of the Services that select them, and of the
//! Ingresses that lead to these, into the targets that the pods were elected for or granted to, and a finalizer on each
//! original that has a copy. A Service with copies also selects the delegates instead of the proxy pods, and is global
//! for Cilium (`--services`).
//!
//! Promises:
//! - A copy exists only where a pod that names its original was elected, granted or runs. It goes some seconds after
//!   the last such pod has gone or ended (`--linger-seconds`), and at once when its original is deleted.
//! - A copy has the data, type, immutability, labels and annotations of its original, except for keys by which tools
//!   of the source manage the original. Changes follow; what cannot be changed is made anew. What others add to a
//!   copy stays.
//! - An object of a target that is no copy of the original is never written; an event on the original says that it
//!   is in the way. Pods there use it.
//! - An original carries the finalizer `multicluster.admiralty.io/follow` only while it has a copy.
//! - Each copy is created once, each original gets one patch; in a settled world nothing is written.
//! - A target that does not answer delays nothing elsewhere. An original that is deleted waits for it for one minute,
//!   and only if a copy is known to be there; the copy goes when the target answers again.
//! - Copies of Services have no port of a node, load balancer or address but what their cluster allocates. A selector
//!   that is applied again is rerouted by one write; when no pod elsewhere is selected any more, the Service is as its
//!   user wrote it.
//! - A Service that its user shares with all clusters of a mesh (`io.cilium/global-service` or
//!   `service.cilium.io/global`) is copied, as it is, into every target that serves its namespace.
//! - An Ingress is where pods of a Service run that it leads to, and so are the Secrets of its certificates; classes and
//!   hosts are those that annotations `ingress-classes` and `ingress-hosts` of the Target give it.
//! - Where copies of an Ingress are reached stands in the status of the original, unless a controller of the source gives
//!   it addresses.
//! - A copy whose original is gone is deleted when a live read says so, wherever it came from.
//! - A PersistentVolumeClaim has a copy in one target, its home: the first in which a pod that uses it is elected. The
//!   home is written down on the original (`claim-home`) before the copy is made, and never changed: pods that use the
//!   claim run there. The copy stays when nobody uses it and goes with its original alone, for which the original waits
//!   however long its target is silent; what becomes of the volume is for the target's class to say. A claim whose data is in the source has none, and no copy is an orphan: data is never swept.
//! - Copies in a removed Target are deleted through its last credentials, but for claims.
//! - What older releases have copied is adopted, and their finalizers are taken off.
//!
//! It never follows Secrets that mean something in their own cluster alone (tokens of ServiceAccounts, bootstrap
//! tokens, releases of Helm) or `kube-root-ca.crt`, which every cluster has by itself. Into a Target that is the
//! source itself nothing is copied.
//!
//! Users say with annotation `multicluster.admiralty.io/follow: never` that an object stays where it is, and with
//! `allowed` that it may follow where objects of its kind only follow on request.

mod apply;
pub mod args;
mod controller;
mod error;
mod ingresses;
mod kinds;
mod link;
mod metrics;
mod plan;
mod rules;
mod services;
mod shape;
mod store;
mod views;

pub use args::FollowArgs;

use anyhow::Context as _;
use runtime::{Runtime, Targets, lease};

/// Runs until shutdown.
///
/// # Errors
///
/// A flag cannot be understood, metrics cannot be registered, or leadership cannot be managed.
pub async fn serve(rt: Runtime, args: FollowArgs) -> anyhow::Result<()> {
    rules::Rules::new(&args).context("a flag cannot be understood")?;
    let metrics = metrics::Metrics::new(&rt.metrics.registry).context("cannot register metrics")?;
    tracing::info!(kinds = controller::kinds(), "follows");
    rt.readiness.set("targets", false);
    let mut targets = Targets::start(&rt);
    targets.synced().await;
    rt.readiness.set("targets", true);
    let seat = controller::Seat { rt: rt.clone(), args, metrics, targets };
    lease::lead(&rt, |stop| controller::run(seat.clone(), stop)).await
}
