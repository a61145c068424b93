//! What happened while the chaperon-controllers of the targets were down.

use anyhow::{Context as _, Result, bail, ensure};
use e2e::ground::Ground;
use e2e::keys;
use e2e::setup::targets;
use e2e::wait::until;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::json;

use crate::installed::installed;
use crate::owners::kinds::{OWNERS, Owner};
use crate::owners::{check_exclusive, completes, finish};
use crate::recorder::Life;
use crate::scene::{LONG, Scene, scale};

const CONTROLLER: &str = "chaperon-controller";

/// All owners at once: their delegates end or are lost, and are collected, while nobody looks.
pub(crate) async fn work_that_ended_while_the_chaperon_controller_was_down_never_runs_again(
    ground: &Ground,
) -> Result<()> {
    installed(ground).await?;
    let scenes = try_join_all(OWNERS.iter().map(async |owner| {
        let scene = Scene::open(ground, &format!("down-{}", owner.name)).await?;
        let object = (owner.manifest)(&json!({keys::RUNS_FOR: "1h"}));
        scene.create(owner.group_version, owner.kind, object).await?;
        let pods = scene.ready(owner.pods).await?;
        for uid in pods.iter().filter_map(Pod::uid) {
            scene.delegate(&uid, &[]).await?;
        }
        anyhow::Ok((owner, scene, pods))
    }))
    .await?;
    let replicas = scale_all(ground, 0).await?;
    let ended = try_join_all(scenes.iter().map(|(owner, scene, _)| end(owner, scene))).await;
    scale_all(ground, replicas).await?;
    ended?;
    try_join_all(scenes.into_iter().map(async |(owner, scene, pods)| {
        settle(owner, &scene, &pods).await.with_context(|| owner.name.to_owned())?;
        check_exclusive(&scene, owner)?;
        scene.close().await
    }))
    .await
    .map(drop)
}

async fn scale_all(ground: &Ground, replicas: i32) -> Result<i32> {
    let before = try_join_all(targets(ground).map(|target| scale(target, CONTROLLER, replicas))).await?;
    before.into_iter().max().context("no target")
}

/// Lets Jobs' delegates finish and collects them as the collector of finished pods does; deletes the others.
async fn end(owner: &Owner, scene: &Scene<'_>) -> Result<()> {
    let lives = until(LONG, &format!("the work in {} has ended", scene.namespace), async || {
        let lives = scene.recorder.delegates();
        if owner.is_job() {
            finish(scene).await?;
            let done = lives.iter().filter(|life| life.was("Succeeded")).count();
            ensure!(done == owner.pods, "{done} have finished");
        }
        Ok(Some(lives))
    })
    .await?;
    for life in lives {
        let parameters =
            if owner.is_job() { DeleteParams::default().grace_period(0) } else { DeleteParams::default() };
        scene.beside(&life)?.delete(&life.name, &parameters).await?;
    }
    until(LONG, "all that did not finish was stopped", async || {
        let running: Vec<Life> = scene.recorder.delegates().into_iter().filter(Life::runs).collect();
        if running.is_empty() { Ok(Some(())) } else { bail!("{running:?}") }
    })
    .await
}

async fn settle(owner: &Owner, scene: &Scene<'_>, before: &[Pod]) -> Result<()> {
    if owner.is_job() {
        let status = completes(scene, owner).await?;
        ensure!(status.get("failed").is_none(), "finished work counts as failed: {status}");
        let started = scene.recorder.delegates().iter().filter(|life| life.started.is_some()).count();
        ensure!(started == owner.pods, "{started} delegates ran for {} completions", owner.pods);
        return Ok(());
    }
    let after = scene.ready(owner.pods).await?;
    // Delegates of pods that are to run for ever are made again under the same proxy pods.
    for pod in &after {
        ensure!(before.iter().any(|old| old.uid() == pod.uid()), "{} was replaced", pod.name_any());
        let uid = pod.uid().context("a pod without UID")?;
        scene.delegate(&uid, &[]).await?;
    }
    Ok(())
}
