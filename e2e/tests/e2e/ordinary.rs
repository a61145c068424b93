//! The candidate scheduler in an ordinary cluster that knows none of our kinds, in place of kube-scheduler.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::helm::helm;
use e2e::install::{self, Charts};
use e2e::kubelet::{CONTROL_PLANE, NODE};
use e2e::nodes::{Shape, create_many};
use e2e::process::Signal;
use e2e::wait::{SOON, until};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use crate::guest::{create, fake_pod, gone, with};

/// The namespace of the release, and of the pods.
const RELEASE: &str = "second-scheduler";
const PODS: &str = "ordinary";
const REPLICAS: usize = 12;

pub(crate) async fn pods_of_a_cluster_that_is_no_target_are_placed_as_kube_scheduler_would(
    ground: &Ground,
) -> Result<()> {
    let cluster = ground.start_another("ordinary").await?;
    create_many(&cluster.client, "fake", 3, &Shape::default()).await?;
    cluster.create_namespace(PODS, &[]).await?;
    let upstream = failure(&cluster).await.context("what kube-scheduler says")?;
    install(ground, &cluster).await?;
    // From now on nobody else places pods.
    cluster.process("kube-scheduler")?.signal(Signal::Stop).await?;
    let ours = failure(&cluster).await.context("what we say")?;
    ensure!(ours == upstream, "we say {ours}\nupstream {upstream}");
    spread(&cluster).await?;
    let gates = json!([{"name": "example.com/wait"}]);
    create(&cluster, PODS, with(fake_pod("gated"), "/spec/schedulingGates", gates)?).await?;
    let pods: Api<Pod> = cluster.api(PODS);
    let open = json!([{"op": "remove", "path": "/spec/schedulingGates"}]);
    let open = kube::api::Patch::<Value>::Json(serde_json::from_value(open).context("not a patch")?);
    pods.patch("gated", &kube::api::PatchParams::default(), &open).await.context("cannot open the gate")?;
    bound(&cluster, "gated").await?;
    cluster.end().await
}

/// Installs the chart of the candidate scheduler alone, for pods without a scheduler name.
async fn install(ground: &Ground, cluster: &Cluster) -> Result<()> {
    let charts = Charts::prepare_changed(ground, "ordinary", &[]).await?;
    let umbrella = charts.umbrella();
    let chart = umbrella.with_file_name("candidate-scheduler").display().to_string();
    let selector = format!("--set-json=nodeSelector={}", json!({"kubernetes.io/hostname": NODE}));
    let toleration = json!([{"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}]);
    let tolerations = format!("--set-json=tolerations={toleration}");
    let arguments = [
        "upgrade",
        "--install",
        RELEASE,
        &chart,
        "--namespace",
        RELEASE,
        "--create-namespace",
        &selector,
        &tolerations,
        "--set=config.profiles={default-scheduler}",
    ];
    helm(ground, cluster, &arguments).await?;
    install::available(cluster, RELEASE).await
}

/// What is said about a pod that fits nowhere: its condition, and its event without names and times.
async fn failure(cluster: &Cluster) -> Result<Value> {
    let requests = json!({"requests": {"cpu": "64"}});
    let pod =
        create(cluster, PODS, with(fake_pod("large"), "/spec/containers/0/resources", requests)?).await?;
    let uid = pod.metadata.uid.context("a pod without UID")?;
    let pods: Api<Pod> = cluster.api(PODS);
    let condition = until(SOON, "the pod is said to fit nowhere", async || {
        let status = json!(pods.get("large").await?.status);
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition["type"] == "PodScheduled");
        Ok(found.map(|found| json!([found["status"], found["reason"], found["message"]])))
    })
    .await?;
    let event = event(cluster, &uid).await?;
    let said = json!({
        "condition": condition,
        "event": [event.type_, event.reason, event.action, event.note, event.reporting_controller],
    });
    pods.delete("large", &DeleteParams::default()).await.context("cannot delete the pod")?;
    gone(cluster, PODS, "large").await?;
    Ok(said)
}

/// The event about a pod.
async fn event(cluster: &Cluster, uid: &str) -> Result<Event> {
    let events: Api<Event> = cluster.api(PODS);
    until(SOON, "there is an event about the pod", async || {
        let list = events.list(&ListParams::default()).await?;
        let about = |event: &Event| {
            let regarding = event.regarding.as_ref().and_then(|pod| pod.uid.as_deref());
            regarding == Some(uid) && event.reason.as_deref().is_some_and(|reason| reason.contains("chedul"))
        };
        Ok(list.items.into_iter().find(about))
    })
    .await
}

/// A Deployment's pods run, as many on each node, and an event tells where each was assigned.
async fn spread(cluster: &Cluster) -> Result<()> {
    let deployments: Api<Deployment> = cluster.api(PODS);
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": fake_pod("web")["spec"]},
        },
    });
    let deployment = serde_json::from_value(deployment).context("not a Deployment")?;
    deployments.create(&PostParams::default(), &deployment).await.context("cannot create it")?;
    let pods: Api<Pod> = cluster.api(PODS);
    let running = until(SOON, "all pods run", async || {
        let list = pods.list(&ListParams::default().labels("app=web")).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let running = list.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count();
        ensure!(running == REPLICAS, "{running} of {} run", list.len());
        Ok(Some(list))
    })
    .await?;
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for pod in &running {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("a pod without node")?;
        *nodes.entry(node).or_default() += 1;
    }
    ensure!(nodes.values().all(|count| *count == REPLICAS / 3) && nodes.len() == 3, "on {nodes:?}");
    let first = running.first().context("no pod")?;
    let (name, uid) = (first.metadata.name.as_deref(), first.metadata.uid.as_deref());
    let event = event(cluster, uid.unwrap_or_default()).await?;
    let node = first.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let note =
        format!("Successfully assigned {PODS}/{} to {}", name.unwrap_or_default(), node.unwrap_or_default());
    ensure!(event.note.as_deref() == Some(note.as_str()), "the event says {:?}", event.note);
    ensure!(event.reporting_controller.as_deref() == Some("default-scheduler"), "{event:?}");
    Ok(())
}

/// Waits until a pod is bound.
async fn bound(cluster: &Cluster, name: &str) -> Result<()> {
    let pods: Api<Pod> = cluster.api(PODS);
    until(SOON, &format!("pod {name} is bound"), async || {
        let node = pods.get(name).await?.spec.and_then(|spec| spec.node_name);
        Ok(node.map(drop))
    })
    .await
}
