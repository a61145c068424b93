//! Pods that need devices without naming a claim are refused in words, and never placed.

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::nodes::{Shape, create_many};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{PODS, bound, condition_of, event, make, take_over, waits, words};
use crate::guest::{create, fake_pod, with};

const GPU: &str = "example.com/gpu";

pub(crate) async fn pods_that_need_dynamic_resources_are_refused_in_words(ground: &Ground) -> Result<()> {
    let cluster = ground.start_another("devices").await?;
    create_many(&cluster.client, "fake", 2, &Shape::default()).await?;
    cluster.create_namespace(PODS, &[]).await?;
    take_over(ground, &cluster).await?;
    // Without a class the resource is one that no node has.
    create(&cluster, PODS, graphics("early")?).await?;
    refused(&cluster, "early", &format!("2 Insufficient {GPU}")).await?;
    make(
        &cluster,
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpus"},
            "spec": {"extendedResourceName": GPU}}),
    )
    .await?;
    // Whatever else a node refuses for, this is said first.
    let needs = format!("3 node(s) have {GPU} only through dynamic resources (DeviceClass \"gpus\")");
    waits(&cluster, "early", &needs).await.context("the pod that waited before the class was made")?;
    create(&cluster, PODS, graphics("late")?).await?;
    refused(&cluster, "late", &needs).await?;
    let ordinary = create(&cluster, PODS, fake_pod("ordinary")).await;
    ordinary.context("a pod without wishes")?;
    bound(&cluster, "ordinary").await?;
    counts(&cluster, "fake-1", "2").await?;
    for name in ["early", "late"] {
        let node = bound(&cluster, name).await?;
        ensure!(node == "fake-1", "{name} is on {node}, and only fake-1 counts {GPU} itself");
    }
    cluster.end().await
}

fn graphics(name: &str) -> Result<Value> {
    let resources = json!({"requests": {GPU: "1"}, "limits": {GPU: "1"}});
    with(fake_pod(name), "/spec/containers/0/resources", resources)
}

/// Event and condition both say why a pod is not placed.
async fn refused(cluster: &Cluster, name: &str, text: &str) -> Result<()> {
    let pod = waits(cluster, name, text).await?;
    let condition = condition_of(&pod, "PodScheduled");
    ensure!(condition[1] == "Unschedulable", "{condition}");
    ensure!(pod.spec.is_some_and(|spec| spec.node_name.is_none()), "{name} is bound");
    let event = event(cluster, pod.metadata.uid.as_deref().unwrap_or_default()).await?;
    let note = event.note.as_deref().unwrap_or_default();
    ensure!(note.contains(text) && event.type_.as_deref() == Some("Warning"), "{}", words(&event));
    Ok(())
}

/// From now on a node counts the resource itself, as with a device plugin.
async fn counts(cluster: &Cluster, node: &str, amount: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let list = json!({GPU: amount});
    let patch = json!({"status": {"capacity": list, "allocatable": list}});
    let patched = nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).context("cannot patch the node")
}
