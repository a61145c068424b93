//! Pods of a DaemonSet are never elected: each belongs to its node.

use anyhow::{Context as _, Result, ensure};
use e2e::ground::Ground;
use e2e::setup::{SOURCE, virtual_node};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, EvictParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::guest::{fake_pod, is};
use crate::owners::kinds::template;
use crate::scene::{LONG, Scene, condition, key};

/// The fake nodes of the source.
const NODES: [&str; 2] = ["fake-0", "fake-1"];

pub(crate) async fn pods_of_a_daemon_set_stay_and_are_replaced_in_the_source(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "owners-daemon-set").await?;
    let mut pod = template(&json!({}), "Always");
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    let spec = json!({"selector": {"matchLabels": {"app": "work"}}, "template": pod});
    scene.create("apps/v1", "DaemonSet", json!({"metadata": {"name": "work"}, "spec": spec})).await?;
    for deed in ["nothing", "delete", "evict"] {
        let before = on_every_node(&scene, &[]).await?;
        let Some(victim) = before.first() else { continue };
        match deed {
            "delete" => drop(scene.pods().delete(victim, &DeleteParams::default()).await?),
            "evict" => drop(scene.pods().evict(victim, &EvictParams::default()).await?),
            _ => continue,
        }
        on_every_node(&scene, std::slice::from_ref(victim)).await?;
    }
    let chaperons = scene.chaperons().await?;
    ensure!(chaperons.is_empty(), "{} chaperons for pods that are never elected", chaperons.len());
    scene.close().await
}

/// Waits until every node has its pod, none of them with these names, and returns the names.
async fn on_every_node(scene: &Scene<'_>, but: &[String]) -> Result<Vec<String>> {
    until(LONG, "every node of the source has its pod", async || {
        let pods = scene.pods().list(&ListParams::default()).await?.items;
        ensure!(pods.len() == NODES.len(), "there are {} pods", pods.len());
        for pod in &pods {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            ensure!(is(pod, "Ready") && NODES.contains(&node.as_str()), "{} on {node}", pod.name_any());
            ensure!(!pod.finalizers().contains(&key("delegate")), "{} has our finalizer", pod.name_any());
            ensure!(!but.contains(&pod.name_any()), "{} is still there", pod.name_any());
        }
        Ok(Some(pods.iter().map(ResourceExt::name_any).collect()))
    })
    .await
}

pub(crate) async fn case_053_a_pod_that_tolerates_everything_is_marked_and_goes_when_it_is_deleted(
    ground: &Ground,
) -> Result<()> {
    const NAMESPACE: &str = "strangers";
    crate::installed::installed(ground).await?;
    let source = ground.cluster(SOURCE)?;
    source.create_namespace(NAMESPACE, &[]).await?;
    let node = virtual_node(ground, "target-1").await?;
    // As the pods of a DaemonSet are: for one node, whatever its taints.
    let term = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
    let mut pod = fake_pod("stranger");
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pod["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    pod["spec"]["terminationGracePeriodSeconds"] = json!(600);
    crate::guest::create(source, NAMESPACE, pod).await?;
    let pods: Api<Pod> = source.api(NAMESPACE);
    until(LONG, "the pod says why it does not run", async || {
        let status = json!(pods.get("stranger").await?.status);
        let reason = condition(&status, "Ready").map(|ready| ready["reason"].clone());
        Ok((reason == Some(json!("NotAProxyPod"))).then_some(()))
    })
    .await?;
    let logs = source.raw(&format!("/api/v1/namespaces/{NAMESPACE}/pods/stranger/log")).await;
    let error = format!("{:#}", logs.err().context("it has logs")?);
    ensure!(error.contains("404") || error.contains("is no proxy pod"), "{error}");
    pods.delete("stranger", &DeleteParams::default()).await?;
    crate::guest::gone(source, NAMESPACE, "stranger").await?;
    crate::scene::remove_namespace(source, NAMESPACE).await
}
