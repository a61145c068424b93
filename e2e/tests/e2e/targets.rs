//! Targets come, go, break and are repaired while everything else runs on.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::connect::{Kind, apply, connect, ready, write_secret};
use e2e::ground::Ground;
use e2e::install::RELEASE;
use e2e::pki;
use e2e::wait::{throughout, until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::guest::{becomes, fake_pod, gone, with};
use crate::scene::{GROUP_VERSION, LONG, Scene, condition, key, merge, pinned, pinned_by, remove_namespace};
use crate::third::{join, third};

/// Waits until a Target of the scene has a condition with this status and reason.
pub(crate) async fn says(
    scene: &Scene<'_>,
    target: &str,
    kind: &str,
    (status, reason): (&str, &str),
) -> Result<Value> {
    let targets = scene.source.dynamic(GROUP_VERSION, "Target", Some(&scene.namespace));
    until(LONG, &format!("Target {target} is {kind}={status}, {reason}"), async || {
        let object = targets.get(target).await?;
        let now = object.data.get("status").cloned().unwrap_or_default();
        let found = condition(&now, kind).context("no such condition")?;
        ensure!(found["status"] == status && found["reason"] == reason, "status: {now}");
        Ok(Some(now))
    })
    .await
}

/// UID and restarts of every pod of the release.
async fn processes(cluster: &Cluster) -> Result<Vec<(String, Value)>> {
    let pods: Api<Pod> = cluster.api(RELEASE);
    let list = pods.list(&ListParams::default()).await?.items;
    let mut all: Vec<(String, Value)> = list
        .iter()
        .map(|pod| {
            (pod.uid().unwrap_or_default(), json!(pod.status)["containerStatuses"][0]["restartCount"].take())
        })
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(all)
}

pub(crate) async fn w17_w14_targets_are_added_broken_and_repaired_without_a_restart(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "added").await?;
    let third = third(ground).await?;
    let before = processes(scene.source).await?;
    third.create_namespace(&scene.namespace, &[]).await?;
    let secret = json!({"kubeconfigSecret": {"name": "third"}});
    apply(scene.source, "Target", Some(&scene.namespace), "third", secret).await?;
    says(&scene, "third", "Accepted", ("False", "SecretNotFound")).await?;
    write_secret(scene.source, &scene.namespace, "third", "no kubeconfig").await?;
    says(&scene, "third", "Accepted", ("False", "KubeconfigInvalid")).await?;
    let kind = Kind::Namespaced(scene.namespace.clone());
    connect(scene.source, third, &kind).await?;
    ready(scene.source, "third", &kind).await?;

    let uid =
        scene.pod(pinned_by(fake_pod("one"), "target-name", "third")?).await?.uid().context("no UID")?;
    becomes(scene.source, &scene.namespace, "one", "Ready").await?;
    // A token that is not valid any more: the target is known and refuses us.
    let expired = pki::kubeconfig(&third.server, &third.authority, &json!({"token": "expired"}));
    write_secret(scene.source, &scene.namespace, "third", &expired).await?;
    says(&scene, "third", "Reachable", ("False", "Forbidden")).await?;
    says(&scene, "third", "Accepted", ("True", "Ok")).await?;
    write_secret(scene.source, &scene.namespace, "third", "no kubeconfig").await?;
    says(&scene, "third", "Reachable", ("False", "KubeconfigInvalid")).await?;
    throughout(Duration::from_secs(4), "pods of a broken target stay as they are", async || {
        let pod = scene.pods().get_opt("one").await?.context("it is gone")?;
        Ok(pod.uid().as_deref() == Some(&uid) && pod.metadata.deletion_timestamp.is_none())
    })
    .await?;
    // New credentials are taken over.
    connect(scene.source, third, &kind).await?;
    ready(scene.source, "third", &kind).await?;
    scene.pod(pinned_by(fake_pod("two"), "target-name", "third")?).await?;
    becomes(scene.source, &scene.namespace, "two", "Ready").await?;
    let pods = scene.ready(2).await?;
    ensure!(pods.iter().any(|pod| pod.uid().as_deref() == Some(&uid)), "the first pod was replaced");
    let after = processes(scene.source).await?;
    ensure!(after == before, "components were restarted: {before:?}, {after:?}");
    scene.pods().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    scene.pods_are(0, "left", |_| true).await?;
    scene.close().await?;
    remove_namespace(third, "added").await
}

pub(crate) async fn w18_w19_with_its_target_go_the_virtual_node_and_the_pods_on_it(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "removed").await?;
    let third = join(&scene).await?;
    ready(scene.source, "third", &Kind::Namespaced(scene.namespace.clone())).await?;
    let slow = with(fake_pod("bound"), "/spec/terminationGracePeriodSeconds", json!(5))?;
    scene.pod(pinned_by(slow, "target-name", "third")?).await?;
    scene.pod(pinned(fake_pod("other"), "target-1")?).await?;
    let node =
        becomes(scene.source, &scene.namespace, "bound", "Ready").await?.spec.and_then(|spec| spec.node_name);
    let node = node.context("no node")?;
    ensure!(node == "admiralty-removed-third", "the node is {node}");
    becomes(scene.source, &scene.namespace, "other", "Ready").await?;
    let targets = scene.source.dynamic(GROUP_VERSION, "Target", Some(&scene.namespace));
    targets.delete("third", &DeleteParams::default()).await?;
    let nodes: Api<Node> = Api::all(scene.source.client.clone());
    until(LONG, "the virtual node is gone", async || Ok(nodes.get_opt(&node).await?.is_none().then_some(())))
        .await?;
    let delegates: Api<Pod> = third.api(&scene.namespace);
    let running = until(LONG, "the pod on it has ended", async || {
        if let Some(pod) = scene.pods().get_opt("bound").await? {
            bail!("{} {:?}", crate::scene::brief(&pod), pod.finalizers())
        }
        let left = delegates.list(&ListParams::default()).await?.items;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        Ok(Some(left.iter().filter(|pod| phase(pod).as_deref() == Some("Running")).count()))
    })
    .await?;
    ensure!(running == 0, "the delegate outlived its proxy pod");
    let other = scene.pods().get("other").await?;
    ensure!(
        other.metadata.deletion_timestamp.is_none() && crate::guest::is(&other, "Ready"),
        "another pod was hit"
    );
    remove_namespace(third, &scene.namespace).await?;
    scene.close().await
}

pub(crate) async fn w15_two_targets_for_one_cluster_are_told_and_the_older_one_goes_on(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "twins").await?;
    scene.pod(pinned(fake_pod("one"), "target-1")?).await?;
    becomes(scene.source, &scene.namespace, "one", "Ready").await?;
    let target = ground.cluster("target-1")?;
    connect(scene.source, target, &Kind::Namespaced(scene.namespace.clone())).await?;
    let status = says(&scene, "target-1", "Accepted", ("False", "SameCluster")).await?;
    let message = condition(&status, "Accepted").map(|is| is["message"].to_string()).unwrap_or_default();
    ensure!(message.contains("ClusterTarget target-1"), "it does not say which: {message}");
    scene.pod(pinned(fake_pod("two"), "target-1")?).await?;
    becomes(scene.source, &scene.namespace, "two", "Ready").await?;
    let pods = scene.ready(2).await?;
    ensure!(pods.len() == 2 && scene.chaperons().await?.len() == 2, "chaperons were deleted");
    scene.close().await
}

pub(crate) async fn w28_a_kubeconfig_that_reaches_for_files_or_commands_is_refused(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "deputies").await?;
    let target = ground.cluster("target-1")?;
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "cat",
        "interactiveMode": "Never"}});
    let file = json!({"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token"});
    let whole = pki::kubeconfig(&target.server, &target.authority, &json!({"token": "any"}));
    let mut insecure: Value = serde_json::from_str(&whole)?;
    let cluster =
        insecure.pointer_mut("/clusters/0/cluster").and_then(Value::as_object_mut).context("no cluster")?;
    cluster.remove("certificate-authority-data");
    cluster.insert("insecure-skip-tls-verify".into(), json!(true));
    for (name, kubeconfig, word) in [
        ("exec", pki::kubeconfig(&target.server, &target.authority, &exec), "exec"),
        ("file", pki::kubeconfig(&target.server, &target.authority, &file), "tokenFile"),
        ("insecure", insecure.to_string(), "insecure-skip-tls-verify"),
    ] {
        write_secret(scene.source, &scene.namespace, name, &kubeconfig).await?;
        let spec = json!({"kubeconfigSecret": {"name": name}});
        apply(scene.source, "Target", Some(&scene.namespace), name, spec).await?;
        let status = says(&scene, name, "Accepted", ("False", "KubeconfigForbidden")).await?;
        ensure!(status.to_string().contains(word), "it does not say {word}: {status}");
    }
    scene.close().await
}

pub(crate) async fn w06_w11_a_proxy_pod_stays_until_its_delegate_has_stopped(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "stays").await?;
    let slow = with(fake_pod("slow"), "/spec/terminationGracePeriodSeconds", json!(5))?;
    let proxy = scene.pod(slow).await?;
    ensure!(proxy.finalizers() == [key("delegate")], "its finalizers are {:?}", proxy.finalizers());
    let uid = proxy.uid().context("a pod without UID")?;
    becomes(scene.source, &scene.namespace, "slow", "Ready").await?;
    let (delegate, life) = scene.delegate(&uid, &[]).await?;
    scene.pods().delete("slow", &DeleteParams::default()).await?;
    let beside = scene.beside(&life)?;
    until(LONG, "the proxy pod is gone", async || {
        // In this order: what runs when it is looked at second ran when the proxy pod was already gone.
        let is_gone = scene.pods().get_opt("slow").await?.is_none();
        let left = beside.get_opt(&life.name).await?;
        let runs = left.and_then(|pod| pod.status?.phase).is_some_and(|phase| phase == "Running");
        if is_gone && runs {
            return Ok(Some(Err(anyhow::anyhow!("the delegate outlived its proxy pod"))));
        }
        Ok(is_gone.then_some(Ok(())))
    })
    .await??;
    let lives = scene.recorder.lives();
    let grace = lives.get(&delegate).and_then(|life| life.grace);
    ensure!(grace == Some(5), "the delegate's grace period was {grace:?}");
    let terminal = lives.get(&uid).is_some_and(|life| life.was("Failed") || life.was("Succeeded"));
    ensure!(terminal, "the proxy pod went without a terminal phase: {:?}", lives.get(&uid));
    scene.close().await
}

pub(crate) async fn case_016_a_target_serves_its_own_namespace_only(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "case-016-own").await?;
    let other = Scene::open(ground, "case-016-other").await?;
    let third = join(&scene).await?;
    third.create_namespace(&other.namespace, &[]).await?;
    ready(scene.source, "third", &Kind::Namespaced(scene.namespace.clone())).await?;
    other.pod(pinned_by(fake_pod("stranger"), "target-name", "third")?).await?;
    scene.pod(pinned_by(fake_pod("own"), "target-name", "third")?).await?;
    becomes(scene.source, &scene.namespace, "own", "Ready").await?;
    throughout(Duration::from_secs(3), "a pod of another namespace is not placed there", async || {
        let node = other.pods().get("stranger").await?.spec.and_then(|spec| spec.node_name);
        let chaperons = third.dynamic(GROUP_VERSION, "PodChaperon", Some(&other.namespace));
        Ok(node.is_none() && chaperons.list(&ListParams::default()).await?.items.is_empty())
    })
    .await?;
    gone_after_delete(&other, "stranger").await?;
    gone_after_delete(&scene, "own").await?;
    for scene in [scene, other] {
        let name = scene.namespace.clone();
        scene.close().await?;
        remove_namespace(third, &name).await?;
    }
    Ok(())
}

async fn gone_after_delete(scene: &Scene<'_>, name: &str) -> Result<()> {
    scene.pods().delete(name, &DeleteParams::default()).await?;
    gone(scene.source, &scene.namespace, name).await
}

pub(crate) async fn a_cordoned_virtual_node_takes_no_pods_and_keeps_those_it_has(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "cordoned").await?;
    join(&scene).await?;
    ready(scene.source, "third", &Kind::Namespaced(scene.namespace.clone())).await?;
    scene.pod(pinned_by(fake_pod("before"), "target-name", "third")?).await?;
    becomes(scene.source, &scene.namespace, "before", "Ready").await?;
    let node = "admiralty-cordoned-third";
    crate::scene::cordon(scene.source, node, true).await?;
    scene.pod(pinned_by(fake_pod("after"), "target-name", "third")?).await?;
    throughout(Duration::from_secs(4), "the node takes no pod", async || {
        Ok(scene.pods().get("after").await?.spec.is_some_and(|spec| spec.node_name.is_none()))
    })
    .await?;
    merge(scene.source, None, ("v1", "Node"), node, json!({"spec": {"unschedulable": null}})).await?;
    becomes(scene.source, &scene.namespace, "after", "Ready").await?;
    scene.ready(2).await?;
    gone_after_delete(&scene, "before").await?;
    gone_after_delete(&scene, "after").await?;
    let name = scene.namespace.clone();
    scene.close().await?;
    remove_namespace(third(ground).await?, &name).await
}
