//! Claims that wait for their first consumer get a volume where the pod fits, and the pod is bound when they have it: the
//! volume controller is the real one.

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::nodes::{Shape, create_many};
use e2e::process::Signal;
use e2e::wait::{SOON, until};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use serde_json::{Value, json};

use super::{PODS, bound, condition_of, event, make, remove, take_over, waits, words};
use crate::guest::{create, fake_pod, with};

const SELECTED: &str = "volume.kubernetes.io/selected-node";

pub(crate) async fn storage_is_bound_before_its_pod_as_kube_scheduler_does_it(ground: &Ground) -> Result<()> {
    let cluster = ground.start_another("storage").await?;
    create_many(&cluster.client, "fake", 2, &Shape::default()).await?;
    cluster.create_namespace(PODS, &[]).await?;
    for (name, provisioner, mode) in [
        ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        ("made", "example.com/made", "WaitForFirstConsumer"),
        ("immediate", "example.com/made", "Immediate"),
    ] {
        make(
            &cluster,
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
                "provisioner": provisioner, "volumeBindingMode": mode}),
        )
        .await?;
    }
    let upstream = story(&cluster, "upstream").await.context("with kube-scheduler")?;
    take_over(ground, &cluster).await?;
    let ours = story(&cluster, "ours").await.context("with the candidate scheduler")?;
    ensure!(ours == upstream, "ours: {ours:#}\nupstream: {upstream:#}");
    cluster.end().await
}

/// A volume of a class that only one node can reach.
fn volume(name: &str, class: &str, node: &str) -> Value {
    let here = json!([{"matchExpressions":
        [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/nowhere"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": here}}},
    })
}

async fn claim(cluster: &Cluster, name: &str, class: &str) -> Result<()> {
    let spec = json!({"storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "4Gi"}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": spec});
    make(cluster, claim).await
}

/// Creates a pod that uses one claim.
async fn user(cluster: &Cluster, name: &str, claim: &str) -> Result<Pod> {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
    create(cluster, PODS, with(fake_pod(name), "/spec/volumes", volumes)?).await
}

/// Everything that claims and volumes can mean for pods. Their names begin with `who`.
async fn story(cluster: &Cluster, who: &str) -> Result<Value> {
    let named = |name: &str| format!("{who}-{name}");
    make(cluster, volume(&named("disk"), "local", "fake-1")).await?;
    claim(cluster, &named("kept"), "local").await?;
    let first = waits_for_the_controller(cluster, &named("kept"), &named("disk")).await?;
    claim(cluster, &named("more"), "local").await?;
    user(cluster, "second", &named("more")).await?;
    let none = waits(cluster, "second", "persistent volumes to bind").await?;
    let event = event(cluster, none.metadata.uid.as_deref().unwrap_or_default()).await?;
    // A volume that appears is reason enough to try again.
    make(cluster, volume(&named("late"), "local", "fake-0")).await?;
    let second = bound(cluster, "second").await?;
    let third = provisioned(cluster, who).await?;
    claim(cluster, &named("now"), "immediate").await?;
    user(cluster, "fourth", &named("now")).await?;
    let unbound = waits(cluster, "fourth", "unbound immediate").await?;
    let said = json!({
        "nodes": [first, second, third],
        "no volume": [condition_of(&none, "PodScheduled"), words(&event)],
        "unbound": without_preemption(condition_of(&unbound, "PodScheduled")),
    });
    remove(cluster, &["first", "second", "third", "fourth"]).await?;
    Ok(said)
}

/// A condition up to what preemption said: upstream's answers `not found` instead where its cache lags behind.
fn without_preemption(mut condition: Value) -> Value {
    if let Some(Value::String(message)) = condition.as_array_mut().and_then(|parts| parts.last_mut()) {
        let end = message.find(". ").unwrap_or(message.len());
        message.truncate(end);
    }
    condition
}

/// While the volume controller rests, the volume is promised to the claim and the pod waits.
async fn waits_for_the_controller(cluster: &Cluster, claim: &str, volume: &str) -> Result<String> {
    let volumes: Api<PersistentVolume> = Api::all(cluster.client.clone());
    // Only what the controller has found usable is ever promised.
    until(SOON, "the volume is Available", async || {
        let phase = volumes.get(volume).await?.status.and_then(|status| status.phase);
        Ok((phase.as_deref() == Some("Available")).then_some(()))
    })
    .await?;
    let controllers = cluster.process("kube-controller-manager")?;
    controllers.signal(Signal::Stop).await?;
    user(cluster, "first", claim).await?;
    until(SOON, "the volume is promised to the claim", async || {
        let promised = volumes.get(volume).await?.spec.and_then(|spec| spec.claim_ref);
        Ok(promised.filter(|promised| promised.name.as_deref() == Some(claim)))
    })
    .await?;
    let pods: Api<Pod> = cluster.api(PODS);
    let early = pods.get("first").await?.spec.and_then(|spec| spec.node_name);
    controllers.signal(Signal::Cont).await?;
    ensure!(early.is_none(), "the pod was bound before its claim");
    let node = bound(cluster, "first").await?;
    is_bound(cluster, claim, volume).await?;
    Ok(node)
}

/// By the time that its pod is bound, a claim is.
async fn is_bound(cluster: &Cluster, claim: &str, volume: &str) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = cluster.api(PODS);
    let claim = claims.get(claim).await?;
    let phase = claim.status.and_then(|status| status.phase);
    let name = claim.spec.and_then(|spec| spec.volume_name);
    ensure!(phase.as_deref() == Some("Bound") && name.as_deref() == Some(volume), "{phase:?} to {name:?}");
    Ok(())
}

/// A claim of a class with a provisioner, which this test plays, is told for which node to make its volume.
async fn provisioned(cluster: &Cluster, who: &str) -> Result<String> {
    let (claim_name, volume_name) = (format!("{who}-new"), format!("{who}-made"));
    claim(cluster, &claim_name, "made").await?;
    let resources = json!({"requests": {"cpu": "1"}});
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]);
    let pod = with(fake_pod("third"), "/spec/volumes", volumes)?;
    let pod = with(pod, "/spec/containers/0/resources", resources)?;
    let pod = with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": "fake-0"}))?;
    create(cluster, PODS, pod).await?;
    let claims: Api<PersistentVolumeClaim> = cluster.api(PODS);
    let (node, uid) = until(SOON, "the claim is told its node", async || {
        let claim = claims.get(&claim_name).await?.metadata;
        let node = claim.annotations.and_then(|annotations| annotations.get(SELECTED).cloned());
        Ok(node.zip(claim.uid))
    })
    .await?;
    let pods: Api<Pod> = cluster.api(PODS);
    let early = pods.get("third").await?.spec.and_then(|spec| spec.node_name);
    ensure!(early.is_none(), "the pod was bound before its volume was made");
    let owner = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": PODS,
        "name": claim_name, "uid": uid});
    make(cluster, with(volume(&volume_name, "made", &node), "/spec/claimRef", owner)?).await?;
    let bound = bound(cluster, "third").await?;
    is_bound(cluster, &claim_name, &volume_name).await?;
    ensure!(bound == node, "told {node}, bound to {bound}");
    Ok(bound)
}
