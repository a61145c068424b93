//! Leadership: one replica acts, the others wait, and one that lost its Lease contends again.

use crate::{Chain, Runtime};
use anyhow::Context;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube_lease_manager::{LeaseCreateMode, LeaseManagerBuilder};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// How often a leader looks whether it still is one.
const LOOK: Duration = Duration::from_secs(2);
/// How long a former leader's work may take to notice that it is over.
const STEP_DOWN: Duration = Duration::from_secs(3);

/// Runs `work` whenever this replica leads, until shutdown. The token given to `work` is cancelled when
/// leadership is lost; `work` is then awaited, and the replica contends again.
///
/// Without `--leader-elect`, `work` runs at once and once.
///
/// # Errors
///
/// The Lease cannot be managed, or `work` fails: the process ends and is restarted.
pub async fn lead<F, Fut>(runtime: &Runtime, work: F) -> anyhow::Result<()>
where
    F: Fn(CancellationToken) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    if !runtime.args.leader_elect {
        runtime.metrics.leader.set(1);
        return work(runtime.shutdown.child_token()).await;
    }
    let seconds = runtime.args.lease_duration_seconds;
    let manager = LeaseManagerBuilder::new(runtime.client.clone(), runtime.manager())
        .with_namespace(runtime.args.pod_namespace.clone())
        .with_identity(runtime.args.pod_name.clone())
        // The lock is a conflict between field managers: replicas must not share one.
        .with_field_manager(format!("{}-{}", runtime.manager(), runtime.args.pod_name))
        .with_duration(seconds)
        .with_grace(seconds / 3)
        .with_create_mode(LeaseCreateMode::AutoCreate)
        .build()
        .await
        .context("cannot set up leader election")?;
    let (mut leading, task) = manager.watch().await;
    loop {
        tokio::select! {
            () = runtime.shutdown.cancelled() => break,
            changed = leading.wait_for(|leads| *leads) => { changed.context("leader election ended")?; }
        }
        // The manager may still believe what the API server no longer says.
        if holder(runtime).await != Holder::Us {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        info!("leads");
        runtime.metrics.leader.set(1);
        let token = runtime.shutdown.child_token();
        let mut running = Box::pin(work(token.clone()));
        tokio::select! {
            result = &mut running => return result,
            changed = leading.wait_for(|leads| !*leads) => { changed.context("leader election ended")?; }
            () = lost(runtime) => (),
            () = runtime.shutdown.cancelled() => (),
        }
        token.cancel();
        runtime.metrics.leader.set(0);
        match tokio::time::timeout(STEP_DOWN, running).await {
            Ok(result) => result?,
            Err(_elapsed) => warn!("work did not stop when leadership ended; dropped"),
        }
        info!("no longer leads");
    }
    // Dropping the receiver ends the manager, which releases the Lease.
    drop(leading);
    match tokio::time::timeout(STEP_DOWN, task).await {
        Ok(Ok(Ok(_manager))) => info!("released the Lease"),
        Ok(Ok(Err(error))) => warn!(%error, "cannot release the Lease"),
        Ok(Err(error)) => warn!(%error, "leader election panicked"),
        Err(_elapsed) => warn!("releasing the Lease took too long"),
    }
    Ok(())
}

/// Whom the API server knows as the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Us,
    Another,
    Unknown,
}

async fn holder(runtime: &Runtime) -> Holder {
    let leases: Api<Lease> = Api::namespaced(runtime.client.clone(), &runtime.args.pod_namespace);
    match leases.get(&runtime.manager()).await {
        Ok(lease) => {
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            if holder.as_deref() == Some(&runtime.args.pod_name) { Holder::Us } else { Holder::Another }
        }
        Err(error) => {
            debug!(error = %Chain(&error), "cannot read the Lease");
            Holder::Unknown
        }
    }
}

/// Ends when another replica holds the Lease, or when nobody could say for as long as it lasts: another may
/// hold it by then, and this replica must not go on writing to clusters that it still reaches.
async fn lost(runtime: &Runtime) {
    let lasts = Duration::from_secs(runtime.args.lease_duration_seconds);
    let mut known = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        match holder(runtime).await {
            Holder::Us => known = Instant::now(),
            Holder::Another => {
                warn!("another replica holds the Lease");
                return;
            }
            Holder::Unknown if known.elapsed() > lasts => {
                warn!("the Lease could not be read for as long as it lasts");
                return;
            }
            Holder::Unknown => {}
        }
    }
}
