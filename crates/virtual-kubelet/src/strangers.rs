//! Pods on a virtual node that are no proxy pods, mostly of DaemonSets that tolerate everything.
//!
//! No kubelet runs them or confirms their end: they get a condition that says so, and disappear when deleted.

use api::{Pod, keys};
use futures::StreamExt;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher;
use runtime::{CancellationToken, Chain, Class, Runtime, Seen, class, watch};
use serde_json::json;
use tracing::{debug, info};

/// Why such a pod is not Ready.
const REASON: &str = "NotAProxyPod";

/// Follows the pods of one node until stopped.
pub(crate) async fn follow(rt: Runtime, node: String, stop: CancellationToken) {
    let fields = format!("spec.nodeName={node},spec.schedulerName!={}", keys::PROXY_SCHEDULER);
    let config = watcher::Config::default().fields(&fields);
    let mut events = Box::pin(watch(Api::<Pod>::all(rt.client.clone()), config, "local", &rt.metrics));
    loop {
        let seen = tokio::select! { () = stop.cancelled() => return, seen = events.next() => seen };
        match seen {
            Some(Seen::Replaced(pods)) => {
                for pod in &pods {
                    settle(&rt, pod).await;
                }
            }
            Some(Seen::Applied(pod)) => settle(&rt, &pod).await,
            Some(Seen::Deleted(_) | Seen::Failed(_)) => {}
            None => return,
        }
    }
}

async fn settle(rt: &Runtime, pod: &Pod) {
    let pods = Api::<Pod>::namespaced(rt.client.clone(), pod.namespace());
    let result = if pod.is_terminating() {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
            ..DeleteParams::default()
        };
        pods.delete(pod.name(), &params).await.map(|_| "ended")
    } else if api::raw::pod_condition(&pod.status, "Ready").is_none_or(|ready| ready["reason"] != REASON) {
        let message = "a virtual node runs only pods that were elected for multicluster scheduling; \
            keep this pod away by a node affinity against the label virtual-kubelet.io/provider";
        let patch = json!({
            "metadata": {"uid": pod.uid()},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": REASON, "message": message}]},
        });
        let params = PatchParams { field_manager: Some(rt.manager()), ..PatchParams::default() };
        pods.patch_status(pod.name(), &params, &Patch::Strategic(patch)).await.map(|_| "marked")
    } else {
        return;
    };
    match result {
        Ok(action) => {
            info!(
                namespace = pod.namespace(),
                object = pod.name(),
                node = pod.node(),
                action,
                "settled a pod that is no proxy pod"
            );
        }
        Err(error) if matches!(class(&error), Class::NotFound | Class::Conflict) => {}
        Err(error) => {
            debug!(object = %pod.full_name(), error = %Chain(&error), "cannot settle a pod that is no proxy pod");
        }
    }
}
