//! Leases of virtual nodes, renewed apart from everything else.

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use runtime::members::Fence;
use runtime::{CancellationToken, Chain, Runtime};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tracing::{debug, warn};

/// Namespace of the Leases of nodes.
const NAMESPACE: &str = "kube-node-lease";
/// How long a Lease lasts, in seconds.
const DURATION_SECONDS: i32 = 40;
/// Between two renewals.
const INTERVAL: Duration = Duration::from_secs(10);
/// Between two renewals after one failed.
const RETRY: Duration = Duration::from_secs(2);
/// Renewals in flight.
const PARALLEL: usize = 16;

/// Names and UIDs of the virtual nodes that there are.
pub(crate) type Nodes = BTreeMap<String, String>;

/// Renews the Leases of all nodes until stopped; those of new nodes at once.
pub(crate) async fn beat(rt: Runtime, mut nodes: Receiver<Nodes>, fence: Fence, stop: CancellationToken) {
    let leases = Api::<Lease>::namespaced(rt.client.clone(), NAMESPACE);
    let manager = rt.manager();
    let mut failing = false;
    loop {
        let current = if fence.holds() { nodes.borrow_and_update().clone() } else { Nodes::new() };
        let renewals =
            current.into_iter().map(|node| renew(leases.clone(), manager.clone(), node, rt.clock.now()));
        let results: Vec<bool> = futures::stream::iter(renewals).buffer_unordered(PARALLEL).collect().await;
        let failed = results.iter().filter(|renewed| !**renewed).count();
        if failed > 0 && !failing {
            warn!(failed, "cannot renew the Leases of virtual nodes; trying again");
        }
        failing = failed > 0;
        let pause = if failing { RETRY } else { INTERVAL };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => (),
            changed = nodes.changed() => if changed.is_err() { return },
        }
    }
}

async fn renew(leases: Api<Lease>, manager: String, (name, uid): (String, String), now: Timestamp) -> bool {
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(NAMESPACE.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.clone(),
                uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.clone()),
            lease_duration_seconds: Some(DURATION_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    };
    let params = PatchParams::apply(&manager).force();
    match leases.patch(&name, &params, &Patch::Apply(&lease)).await {
        Ok(_) => true,
        Err(error) => {
            debug!(node = %name, error = %Chain(&error), "cannot renew a Lease");
            false
        }
    }
}
