//! A pod of high priority makes room as kube-scheduler makes it for one: the same victims, and the same words.

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::nodes::{Shape, create_many};
use e2e::wait::{SOON, until};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use serde_json::{Value, json};

use super::{PODS, bound, condition_of, event_of, make, remove, take_over, words};
use crate::guest::{becomes, create, fake_pod, with};

/// How long the one that has to go takes: long enough to be seen.
const GRACE: u32 = 3;

pub(crate) async fn a_pod_makes_room_as_kube_scheduler_makes_it(ground: &Ground) -> Result<()> {
    let cluster = ground.start_another("preemption").await?;
    create_many(&cluster.client, "fake", 2, &Shape::default()).await?;
    cluster.create_namespace(PODS, &[]).await?;
    for (name, value) in [("least", 0), ("low", 5), ("high", 1000)] {
        let metadata = json!({"name": name});
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata,
            "value": value});
        make(&cluster, class).await?;
    }
    make(
        &cluster,
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guards"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}}),
    )
    .await?;
    let upstream = Box::pin(story(&cluster)).await.context("with kube-scheduler")?;
    take_over(ground, &cluster).await?;
    let ours = Box::pin(story(&cluster)).await.context("with the candidate scheduler")?;
    ensure!(ours == upstream, "ours: {ours:#}\nupstream: {upstream:#}");
    cluster.end().await
}

/// A pod that takes most of a node.
fn large(name: &str, class: &str) -> Result<Value> {
    let requests = json!({"requests": {"cpu": "6"}});
    let pod = with(fake_pod(name), "/spec/containers/0/resources", requests)?;
    with(pod, "/spec/priorityClassName", json!(class))
}

fn on(pod: Value, node: &str) -> Result<Value> {
    with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": node}))
}

/// Two nodes are full. What is least important is protected by a budget, so that the other one has to go.
async fn story(cluster: &Cluster) -> Result<Value> {
    let guarded = on(large("guarded", "least")?, "fake-0")?;
    create(cluster, PODS, with(guarded, "/metadata/labels", json!({"app": "guarded"}))?).await?;
    let other = on(large("other", "low")?, "fake-1")?;
    let other =
        create(cluster, PODS, with(other, "/spec/terminationGracePeriodSeconds", json!(GRACE))?).await?;
    for name in ["guarded", "other"] {
        becomes(cluster, PODS, name, "Ready").await?;
    }
    guards(cluster).await?;
    let urgent = create(cluster, PODS, large("urgent", "high")?).await?;
    let victim = leaving(cluster, "other").await?;
    let waiting = nominated(cluster).await?;
    let (uid, victims) = (name_of(&urgent), name_of(&other));
    let preempted = event_of(cluster, victims, &["Preempted"]).await?;
    let failed = event_of(cluster, uid, &["FailedScheduling"]).await?;
    let said = json!({
        "victim": condition_of(&victim, "DisruptionTarget"),
        "nominated": waiting,
        "events": [words(&preempted), words(&failed)],
    });
    let node = bound(cluster, "urgent").await?;
    let assigned = event_of(cluster, uid, &["Scheduled"]).await?;
    let pods: Api<Pod> = cluster.api(PODS);
    let spared = pods.get("guarded").await.context("the guarded pod")?;
    ensure!(spared.metadata.deletion_timestamp.is_none(), "the guarded pod goes");
    let cleared = pods.get("urgent").await?.status.and_then(|status| status.nominated_node_name);
    remove(cluster, &["urgent", "guarded"]).await?;
    let said = json!([said, node, words(&assigned), cleared]).to_string();
    serde_json::from_str(&said.replace(uid, "the urgent pod")).context("not JSON")
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Waits until the budget counts its pod.
async fn guards(cluster: &Cluster) -> Result<()> {
    let budgets: Api<PodDisruptionBudget> = cluster.api(PODS);
    until(SOON, "the budget allows no disruption of its one pod", async || {
        let status = budgets.get("guards").await?.status.context("no status")?;
        ensure!(
            status.current_healthy == Some(1) && status.disruptions_allowed == Some(0),
            "{}",
            json!(status)
        );
        Ok(Some(()))
    })
    .await
}

/// Waits until a pod is being deleted.
async fn leaving(cluster: &Cluster, name: &str) -> Result<Pod> {
    let pods: Api<Pod> = cluster.api(PODS);
    until(SOON, &format!("pod {name} goes"), async || {
        Ok(Some(pods.get(name).await?).filter(|pod| pod.metadata.deletion_timestamp.is_some()))
    })
    .await
}

/// Waits until it stands on the urgent pod where room is made for it.
async fn nominated(cluster: &Cluster) -> Result<Option<String>> {
    let pods: Api<Pod> = cluster.api(PODS);
    until(SOON, "the urgent pod is nominated", async || {
        let status = pods.get("urgent").await?.status;
        Ok(status.map(|status| status.nominated_node_name).filter(Option::is_some))
    })
    .await
}
