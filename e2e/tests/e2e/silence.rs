//! Targets and components that do not answer: they delay nobody else, and nothing is lost or doubled.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::connect::has_condition;
use e2e::ground::Ground;
use e2e::keys;
use e2e::process::Signal;
use e2e::setup::{SOURCE, virtual_node};
use e2e::wait::{SOON, throughout, until};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::guest::{fake_pod, gone, is, with};
use crate::installed::settled;
use crate::owners::completes;
use crate::owners::kinds::OWNERS;
use crate::placement::deployment;
use crate::recorder::Life;
use crate::restarts::processes;
use crate::scene::{GROUP_VERSION, LONG, Scene, condition, merge, pinned};

/// Pods before and after one target falls silent.
const FIRST: usize = 40;
const ALL: usize = 60;
/// Bindings that may have been under way at the moment of silence.
const UNDER_WAY: usize = 4;

/// Starts a burst, lets a target fall silent half-way, and shows that all pods that are not bound to it run
/// on the other; then that all others run once it speaks again.
async fn burst(
    ground: &Ground,
    namespace: &str,
    silence: impl AsyncFn(&Cluster) -> Result<()>,
    speak: impl AsyncFn(&Cluster) -> Result<()>,
) -> Result<()> {
    let scene = Scene::open(ground, namespace).await?;
    settled(ground).await?;
    let silent = ground.cluster("target-2")?;
    let node = virtual_node(ground, "target-2").await?;
    deployment(&scene, FIRST).await?;
    until(LONG, "half of the pods are bound", async || {
        let bound = nodes(&scene).await?.len();
        Ok((bound >= FIRST / 2).then_some(()))
    })
    .await?;
    silence(silent).await?;
    let outcome = others_run(&scene, &node).await;
    speak(silent).await?;
    outcome?;
    scene.ready(ALL).await?;
    let delegates = scene.recorder.delegates();
    ensure!(delegates.len() == ALL, "{} delegates for {ALL} pods", delegates.len());
    settled(ground).await?;
    scene.close().await
}

async fn others_run(scene: &Scene<'_>, silent: &str) -> Result<()> {
    let there = nodes(scene).await?.iter().filter(|node| *node == silent).count();
    let more = json!({"spec": {"replicas": ALL}});
    merge(scene.source, Some(&scene.namespace), ("apps/v1", "Deployment"), "web", more).await?;
    until(SOON, "all pods that are not bound to the silent target are Ready", async || {
        let pods = scene.pods().list(&ListParams::default()).await?.items;
        ensure!(pods.len() == ALL, "there are {} pods", pods.len());
        let bound = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let (stuck, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| bound(pod) == silent);
        let waiting: Vec<String> =
            others.iter().filter(|pod| !is(pod, "Ready")).map(crate::scene::brief).collect();
        ensure!(waiting.is_empty(), "{} wait, such as {:?}", waiting.len(), waiting.first());
        Ok(Some(stuck.len()))
    })
    .await
    .and_then(|stuck| {
        ensure!(stuck <= there + UNDER_WAY, "{stuck} pods were bound to the silent target, {there} before");
        Ok(())
    })
}

/// The nodes of all bound pods.
async fn nodes(scene: &Scene<'_>) -> Result<Vec<String>> {
    let pods = scene.pods().list(&ListParams::default()).await?.items;
    Ok(pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect())
}

pub(crate) async fn a_frozen_target_delays_only_pods_that_are_bound_to_it(ground: &Ground) -> Result<()> {
    burst(ground, "frozen", async |target| target.freeze().await, async |target| target.thaw().await).await
}

pub(crate) async fn a_frozen_candidate_scheduler_delays_only_pods_that_are_bound_to_its_target(
    ground: &Ground,
) -> Result<()> {
    let send = async |target: &Cluster, signal| {
        for process in processes(target, "candidate-scheduler").await? {
            process.signal(signal).await?;
        }
        anyhow::Ok(())
    };
    burst(
        ground,
        "frozen-scheduler",
        async |target| send(target, Signal::Stop).await,
        async |target| send(target, Signal::Cont).await,
    )
    .await
}

/// Cuts target-2 off, lets `during` look at it, and heals it.
async fn while_cut(ground: &Ground, during: impl AsyncFnOnce(&Cluster) -> Result<()>) -> Result<()> {
    let target = ground.cluster("target-2")?;
    target.cut().await?;
    let outcome = during(target).await;
    target.heal().await?;
    outcome?;
    settled(ground).await
}

pub(crate) async fn w13_a_cut_target_is_shown_and_nothing_of_it_is_deleted(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "cut").await?;
    settled(ground).await?;
    deployment(&scene, 8).await?;
    let before = uids(&scene.ready(8).await?);
    let delegates = scene.recorder.lives();
    while_cut(ground, async |target| {
        shown(ground, false).await?;
        throughout(Duration::from_secs(5), "no pod and no delegate is deleted", async || {
            let pods = scene.pods().list(&ListParams::default()).await?.items;
            let deleted = pods.iter().any(|pod| pod.metadata.deletion_timestamp.is_some());
            let lives = scene.recorder.lives();
            let lost = lives.iter().any(|(uid, life)| delegates.contains_key(uid) && life.ended.is_some());
            Ok(uids(&pods) == before && !deleted && !lost)
        })
        .await?;
        // Others go on: new pods run in the other target.
        let replicas = json!({"spec": {"replicas": 12}});
        merge(scene.source, Some(&scene.namespace), ("apps/v1", "Deployment"), "web", replicas).await?;
        until(LONG, "new pods run in the target that is in reach", async || {
            let lives = scene.recorder.delegates();
            let new = lives.iter().filter(|life| life.cluster != target.name && life.runs()).count();
            let old = delegates.values().filter(|life| life.is_delegate() && life.cluster != target.name);
            Ok((new == old.count() + 4).then_some(()))
        })
        .await
    })
    .await?;
    shown(ground, true).await?;
    let after = uids(&scene.ready(12).await?);
    ensure!(before.iter().all(|uid| after.contains(uid)), "a pod was replaced");
    scene.close().await
}

fn uids(pods: &[Pod]) -> Vec<String> {
    let mut uids: Vec<String> = pods.iter().filter_map(Pod::uid).collect();
    uids.sort();
    uids
}

/// Waits until target-2's conditions and virtual node tell whether it is in reach.
async fn shown(ground: &Ground, reachable: bool) -> Result<()> {
    let source = ground.cluster(SOURCE)?;
    let targets = source.dynamic(GROUP_VERSION, "ClusterTarget", None);
    let nodes: Api<Node> = Api::all(source.client.clone());
    let name = virtual_node(ground, "target-2").await?;
    until(LONG, "Target and virtual node tell whether the target is in reach", async || {
        let target = targets.get("target-2").await?;
        let status = target.data.get("status").cloned().unwrap_or_default();
        let node = json!(nodes.get(&name).await?.status);
        let said = condition(&status, "Reachable").context("no condition Reachable")?;
        let ready = condition(&node, "Ready").context("no condition Ready")?;
        let is_shown = if reachable {
            said["status"] == "True" && ready["status"] == "True"
        } else {
            said["status"] == "False" && said["reason"] == "Unreachable" && ready["status"] != "True"
        };
        if is_shown && has_condition(&target, "Accepted", "True") {
            return Ok(Some(()));
        }
        bail!("Target: {status}; node: {ready}")
    })
    .await
}

pub(crate) async fn a_delegate_lost_while_the_source_is_away_is_made_again(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "lost").await?;
    settled(ground).await?;
    let proxy = scene.pod(pinned(fake_pod("lasting"), "target-2")?).await?;
    let uid = proxy.uid().context("a pod without UID")?;
    let (first, delegate) = scene.delegate(&uid, &[]).await?;
    let job =
        OWNERS.iter().find(|owner| owner.name == "job-that-waits-for-the-end").context("no such owner")?;
    let template =
        pinned((job.manifest)(&json!({keys::RUNS_FOR: "1h"}))["spec"]["template"].take(), "target-2")?;
    let object = with((job.manifest)(&json!({})), "/spec/template", template)?;
    scene.create(job.group_version, job.kind, object).await?;
    scene.ready(2).await?;
    while_cut(ground, async |_| {
        shown(ground, false).await?;
        let lost = scene.recorder.delegates().into_iter().filter(Life::runs);
        for life in lost.collect::<Vec<_>>() {
            scene.beside(&life)?.delete(&life.name, &DeleteParams::default()).await?;
        }
        // At once and without the source, under the same chaperon, but only what is to run for ever.
        let (_, again) = scene.delegate(&uid, std::slice::from_ref(&first)).await?;
        ensure!(again.name == delegate.name, "it is called {} and was {}", again.name, delegate.name);
        Ok(())
    })
    .await?;
    let lasting = crate::guest::becomes(scene.source, &scene.namespace, "lasting", "Ready").await?;
    ensure!(lasting.uid().as_deref() == Some(&uid), "the proxy pod was replaced");
    completes(&scene, job).await?;
    crate::owners::check_exclusive(&scene, job).or_else(|_| scene.recorder.check_parents())?;
    scene.close().await
}

pub(crate) async fn case_013_a_pod_deleted_while_its_target_is_away_goes_when_it_is_back(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "case-013").await?;
    settled(ground).await?;
    scene.pod(pinned(fake_pod("doomed"), "target-2")?).await?;
    scene.pod(pinned(fake_pod("other"), "target-1")?).await?;
    scene.ready(2).await?;
    while_cut(ground, async |_| {
        shown(ground, false).await?;
        scene.pods().delete("other", &DeleteParams::default()).await?;
        gone(scene.source, &scene.namespace, "other").await?;
        scene.pods().delete("doomed", &DeleteParams::default()).await?;
        throughout(Duration::from_secs(5), "the pod stays while nobody knows what became of it", async || {
            Ok(scene.pods().get_opt("doomed").await?.is_some())
        })
        .await
    })
    .await?;
    gone(scene.source, &scene.namespace, "doomed").await?;
    let left: Vec<Value> = scene.chaperons().await?.into_iter().map(|(_, one)| one.data).collect();
    ensure!(left.is_empty(), "chaperons are left: {left:?}");
    scene.close().await
}
