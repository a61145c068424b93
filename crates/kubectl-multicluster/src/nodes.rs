//! `cordon`, `uncordon` and `drain`: a target through its virtual node.

use crate::access::{self, Cluster};
use crate::args::{Access, Drain};
use crate::fleet;
use crate::output::Steps;
use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use futures::stream;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Evictions asked for at the same time.
const AT_ONCE: usize = 16;
/// Pause between two looks at what is left.
const PAUSE: Duration = Duration::from_secs(1);

/// Sets or lifts the mark that keeps new pods away.
///
/// # Errors
/// When there is no such target, it has no virtual node, or the API server refuses.
pub(crate) async fn cordon(access: &Access, target: &str, on: bool) -> Result<()> {
    let source = access::source(access).await?;
    let node = fleet::member(&source, target).await?.node();
    mark(&source, &node, on).await?;
    Steps::default().done(&format!("node {node} {}", if on { "cordoned" } else { "uncordoned" }));
    Ok(())
}

async fn mark(source: &Cluster, node: &str, on: bool) -> Result<()> {
    let patch = json!({"spec": {"unschedulable": on.then_some(true)}});
    Api::<Node>::all(source.client.clone())
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| format!("cannot mark virtual node {node}"))?;
    Ok(())
}

/// Cordons a target and waits until its last pod is gone.
///
/// # Errors
/// When a pod has no controller and `force` is not set, or the time is over: with the pods that are left.
pub(crate) async fn drain(access: &Access, drain: &Drain) -> Result<()> {
    let source = access::source(access).await?;
    let node = fleet::member(&source, &drain.target).await?.node();
    empty(&source, &node, drain).await
}

/// As [`drain`], for a virtual node that is known.
///
/// # Errors
/// As [`drain`].
pub(crate) async fn empty(source: &Cluster, node: &str, drain: &Drain) -> Result<()> {
    let steps = Steps::default();
    mark(source, node, true).await?;
    steps.done(&format!("node {node} cordoned"));
    let bare = pods(source, node).await?.iter().filter(|pod| is_bare(pod)).map(name).collect::<Vec<_>>();
    if !bare.is_empty() && !drain.force {
        bail!(
            "nothing makes these pods anew: {}; delete them, or evict them with --force (the target stays cordoned)",
            bare.join(", ")
        );
    }
    let end = Instant::now() + drain.timeout;
    let mut refused = Vec::new();
    loop {
        let left = pods(source, node).await?;
        if left.is_empty() {
            steps.done(&format!("node {node} drained"));
            return Ok(());
        }
        if Instant::now() > end {
            let names = left.iter().map(name).collect::<Vec<_>>().join(", ");
            bail!("{} pods are left after {:?}: {names}; {}", left.len(), drain.timeout, refused.join("; "));
        }
        steps.doing(&format!("{} pods are left; {}", left.len(), refused.join("; ")));
        refused = evict(source, &left).await?;
        sleep(PAUSE).await;
    }
}

/// Asks for the eviction of all that are not on their way yet; returns why some have to wait.
async fn evict(source: &Cluster, pods: &[Pod]) -> Result<Vec<String>> {
    let staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let answers = stream::iter(staying)
        .map(|pod| async move {
            let api: Api<Pod> = Api::namespaced(source.client.clone(), &pod.namespace().unwrap_or_default());
            (name(pod), api.evict(&pod.name_any(), &EvictParams::default()).await)
        })
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let mut waiting = Vec::new();
    for (pod, answer) in answers {
        match answer {
            Ok(_) => (),
            Err(kube::Error::Api(status)) if status.code == 404 => (),
            Err(kube::Error::Api(status)) if status.code == 429 => {
                waiting.push(format!("{pod}: {}", status.message));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot evict pod {pod}")),
        }
    }
    Ok(waiting)
}

async fn pods(source: &Cluster, node: &str) -> Result<Vec<Pod>> {
    let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Pod>::all(source.client.clone()).list(&there).await;
    let pods = pods.with_context(|| format!("cannot list the pods of node {node}"))?.items;
    Ok(pods.into_iter().filter(|pod| !has_ended(pod) || pod.metadata.deletion_timestamp.is_some()).collect())
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_bare(pod: &Pod) -> bool {
    pod.owner_references().iter().all(|owner| owner.controller != Some(true))
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
