//! Which cluster this process runs in.

use crate::errors::Chain;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

const PAUSE: Duration = Duration::from_secs(1);

/// UID of a cluster: that of its `kube-system` namespace. It is asked for until it is known; `None` when it was
/// stopped before, or the namespace has no UID.
pub async fn cluster_uid(client: &Client, stop: &CancellationToken) -> Option<String> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let mut failing = false;
    loop {
        match namespaces.get_metadata("kube-system").await {
            Ok(namespace) => return namespace.uid(),
            Err(error) if failing => {
                debug!(error = %Chain(&error), "still cannot read the own cluster's identity");
            }
            Err(error) => {
                warn!(error = %Chain(&error), "cannot read the own cluster's identity; trying again");
            }
        }
        failing = true;
        tokio::select! { () = stop.cancelled() => return None, () = tokio::time::sleep(PAUSE) => () }
    }
}
