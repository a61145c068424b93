//! The candidate scheduler in an ordinary cluster that knows none of our kinds, in place of kube-scheduler.

pub(crate) mod devices;
pub(crate) mod preemption;
pub(crate) mod resource_claims;
pub(crate) mod storage;

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
use crate::scene::condition;

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
    take_over(ground, &cluster).await?;
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

/// Lets the candidate scheduler place pods, and nobody else from now on.
async fn take_over(ground: &Ground, cluster: &Cluster) -> Result<()> {
    install(ground, cluster).await?;
    cluster.process("kube-scheduler")?.signal(Signal::Stop).await
}

/// Installs the chart of the candidate scheduler alone, for pods without a scheduler name.
async fn install(ground: &Ground, cluster: &Cluster) -> Result<()> {
    let charts = Charts::prepare_changed(ground, &cluster.name, &[]).await?;
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
    let said = json!({"condition": condition, "event": words(&event)});
    pods.delete("large", &DeleteParams::default()).await.context("cannot delete the pod")?;
    gone(cluster, PODS, "large").await?;
    Ok(said)
}

/// The event about a pod's placement.
async fn event(cluster: &Cluster, uid: &str) -> Result<Event> {
    event_of(cluster, uid, &["Scheduled", "FailedScheduling"]).await
}

/// The first event about a pod that has one of these reasons.
async fn event_of(cluster: &Cluster, uid: &str, reasons: &[&str]) -> Result<Event> {
    let events: Api<Event> = cluster.api(PODS);
    until(SOON, &format!("there is an event {reasons:?} about the pod"), async || {
        let list = events.list(&ListParams::default()).await?;
        let about = |event: &Event| {
            let regarding = event.regarding.as_ref().and_then(|pod| pod.uid.as_deref());
            regarding == Some(uid) && event.reason.as_deref().is_some_and(|reason| reasons.contains(&reason))
        };
        let time = |event: &Event| event.event_time.as_ref().map(|time| time.0);
        Ok(list.items.into_iter().filter(about).min_by_key(time))
    })
    .await
}

/// What an event says, apart from names and times that differ each time.
fn words(event: &Event) -> Value {
    json!([event.type_, event.reason, event.action, event.note, event.reporting_controller])
}

/// A condition of a pod without its times; null if it has none.
fn condition_of(pod: &Pod, kind: &str) -> Value {
    let status = json!(pod.status);
    match condition(&status, kind) {
        Some(found) => json!([found["status"], found["reason"], found["message"]]),
        None => Value::Null,
    }
}

/// Waits until a pod has a condition `PodScheduled=False` with these words in it.
async fn waits(cluster: &Cluster, name: &str, text: &str) -> Result<Pod> {
    let pods: Api<Pod> = cluster.api(PODS);
    until(SOON, &format!("pod {name} waits for {text:?}"), async || {
        let pod = pods.get(name).await?;
        let condition = condition_of(&pod, "PodScheduled");
        ensure!(condition[2].as_str().is_some_and(|message| message.contains(text)), "{condition}");
        Ok(Some(pod))
    })
    .await
}

/// Deletes pods and waits until they are gone.
async fn remove(cluster: &Cluster, names: &[&str]) -> Result<()> {
    let pods: Api<Pod> = cluster.api(PODS);
    for name in names {
        pods.delete(name, &DeleteParams::default()).await.with_context(|| format!("cannot delete {name}"))?;
    }
    for name in names {
        gone(cluster, PODS, name).await?;
    }
    Ok(())
}

/// Creates an object that has no namespace, or one in [`PODS`].
async fn make(cluster: &Cluster, object: Value) -> Result<()> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let namespaced = matches!(
        kind.as_str(),
        "PersistentVolumeClaim" | "PodDisruptionBudget" | "ResourceClaim" | "ResourceClaimTemplate"
    );
    let api = cluster.dynamic(&version, &kind, namespaced.then_some(PODS));
    let object = serde_json::from_value(object).context("not an object")?;
    let created = api.create(&PostParams::default(), &object).await;
    created.map(drop).with_context(|| format!("cannot create a {kind}"))
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

/// Waits until a pod is bound, and returns to which node.
async fn bound(cluster: &Cluster, name: &str) -> Result<String> {
    let pods: Api<Pod> = cluster.api(PODS);
    until(SOON, &format!("pod {name} is bound"), async || {
        let pod = pods.get(name).await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        ensure!(node.is_some(), "{}", json!(pod.status));
        Ok(node)
    })
    .await
}
