//! `fence: Lease`: a target that is cut off stops what may run once only, and only then the source replaces it.

use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::ground::Ground;
use e2e::setup::virtual_node;
use e2e::wait::until;
use serde_json::json;

use crate::failover::{
    cluster_target, delegates, elsewhere, exactly, live, on, serving, told, uids, workload,
};
use crate::installed::settled;
use crate::recorder::Life;
use crate::scene::{LONG, Scene, key, merge};

/// How many of these ran at the same time at most.
fn most_at_once(lives: &[Life]) -> usize {
    let mut steps: Vec<(Instant, bool)> = Vec::new();
    for life in lives {
        steps.extend(life.started.map(|at| (at, true)));
        steps.extend(life.started.and(life.ended).map(|at| (at, false)));
    }
    // At one moment ends come first.
    steps.sort();
    let (mut running, mut most) = (0_usize, 0_usize);
    for (_, begins) in steps {
        running = if begins { running + 1 } else { running.saturating_sub(1) };
        most = most.max(running);
    }
    most
}

/// Waits until nothing of the scene runs in target-2.
async fn stopped(scene: &Scene<'_>) -> Result<()> {
    let target = scene.ground.cluster("target-2")?;
    until(LONG, "the cut target has stopped what may run once only", async || {
        let runs = delegates(scene, target);
        ensure!(runs == 0, "{runs} delegates run in it");
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn w05_pods_with_a_lease_move_by_themselves_and_never_run_twice(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "leased").await?;
    serving(&scene, "target-2").await?;
    let target = ground.cluster("target-2")?;
    let node = virtual_node(ground, "target-2").await?;
    workload(&scene, "Deployment", "web", (6, "MoveOnce/Lease")).await?;
    let before = exactly(&scene, "web", 6).await?;
    ensure!(on(&before, &node) > 0, "nothing runs in target-2");
    target.cut().await?;
    let during = async {
        told(&scene, "web", &node, "LeaseRuns").await?;
        stopped(&scene).await?;
        // The target comes first, the source long after it.
        ensure!(uids(&live(&scene, "web").await?) == uids(&before), "the source did not wait");
        elsewhere(&scene, "web", 6, &node).await
    };
    let outcome = during.await;
    target.heal().await?;
    let moved = outcome?;
    settled(ground).await?;
    let after = exactly(&scene, "web", 6).await?;
    ensure!(uids(&after) == uids(&moved), "a replacement was replaced");
    let epoch = cluster_target(&scene, "target-2").await?.metadata.annotations.unwrap_or_default();
    ensure!(epoch.get(&key("fence-epoch")).is_some_and(|epoch| epoch != "0"), "annotations: {epoch:?}");
    let most = most_at_once(&scene.recorder.delegates());
    ensure!(most == 6, "{most} of 6 ran at once");
    // The target serves again, in the next epoch.
    serving(&scene, "target-2").await?;
    let more = json!({"spec": {"replicas": 10}});
    merge(scene.source, Some(&scene.namespace), ("apps/v1", "Deployment"), "web", more).await?;
    let all = exactly(&scene, "web", 10).await?;
    ensure!(on(&all, &node) > 0, "nothing new runs in target-2");
    scene.close().await
}

pub(crate) async fn pods_that_a_cut_target_stopped_are_replaced_when_it_is_back_before_they_moved(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "leased-for-a-while").await?;
    serving(&scene, "target-2").await?;
    let target = ground.cluster("target-2")?;
    let node = virtual_node(ground, "target-2").await?;
    workload(&scene, "Deployment", "web", (6, "MoveOnce/Lease")).await?;
    workload(&scene, "StatefulSet", "db", (4, "MoveOnce/Lease")).await?;
    let (web, db) = (exactly(&scene, "web", 6).await?, exactly(&scene, "db", 4).await?);
    ensure!(on(&web, &node) > 0 && on(&db, &node) > 0, "nothing runs in target-2");
    target.cut().await?;
    let outcome = stopped(&scene).await;
    target.heal().await?;
    outcome?;
    settled(ground).await?;
    for (app, before) in [("web", &web), ("db", &db)] {
        let all = exactly(&scene, app, before.len()).await?;
        let kept = before.iter().filter(|pod| on(std::slice::from_ref(*pod), &node) == 0);
        for pod in kept {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            ensure!(uids(&all).contains(&uid), "a pod of {app} that was not cut off was replaced");
        }
    }
    let most = most_at_once(&scene.recorder.delegates());
    ensure!(most == 10, "{most} of 10 ran at once");
    scene.close().await
}
