//! The owner matrix: every kind of owner, and everything that can end a pod of it.
//!
//! For each pair the table says what must come of it. Whatever it is: two delegates never run at once for one
//! proxy pod, nor for one ordinal; finished work never runs again; nothing is left in any cluster.

use anyhow::{Context as _, Result, bail, ensure};
use e2e::keys;
use e2e::wait::until;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::guest::is;
use crate::owners::kinds::{OWNERS, Only, Owner};
use crate::refusals;
use crate::scene::{LONG, Scene, condition};

pub(crate) mod kinds;

/// The name of the owner in its namespace.
pub(crate) const NAME: &str = "work";
/// With what grace period a pod is evicted; its own is 1 s.
const EVICTION_GRACE: u32 = 3;

/// What happens to one pod while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Somebody deletes the proxy pod.
    Deleted,
    /// Somebody evicts the proxy pod and grants its containers [`EVICTION_GRACE`].
    Evicted,
    /// Somebody deletes the delegate in the target.
    DelegateDeleted,
    /// Somebody evicts the delegate in the target, as a drain of its node does.
    DelegateEvicted,
    /// The kubelet to which the delegate is bound refuses it.
    Refused,
}

/// What must come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As many pods as before are Ready, and another one stands for the one that was hit.
    Replaced,
    /// The same proxy pod is Ready again, with another delegate.
    Survives,
    /// The pod is gone and nobody replaces it.
    Gone,
    /// The Job completes with this many successes.
    Completes,
    /// The Job fails, and its work was not started again.
    Fails,
}

const FATES: [(Fate, &str); 5] = [
    (Fate::Deleted, "deleted"),
    (Fate::Evicted, "evicted"),
    (Fate::DelegateDeleted, "delegate_deleted"),
    (Fate::DelegateEvicted, "delegate_evicted"),
    (Fate::Refused, "refused_by_a_kubelet"),
];

/// One test for each pair of owner and fate.
pub(crate) fn cases() -> Vec<Case> {
    let pairs = OWNERS.iter().flat_map(|owner| FATES.iter().map(move |fate| (owner, fate)));
    pairs
        .map(|(owner, (fate, word))| {
            let run: crate::cases::Run = Box::new(move |ground| -> LocalBoxFuture<'_, Result<()>> {
                Box::pin(async move {
                    let namespace = format!("owners-{}-{}", owner.name, word.replace('_', "-"));
                    let scene = Scene::open(ground, &namespace).await?;
                    meet(&scene, owner, *fate).await?;
                    check_exclusive(&scene, owner)?;
                    scene.close().await
                })
            });
            Case {
                name: format!("owners::{}_{word}", owner.name.replace('-', "_")),
                alone: false,
                needs_local: true,
                run,
            }
        })
        .collect()
}

async fn meet(scene: &Scene<'_>, owner: &Owner, fate: Fate) -> Result<()> {
    let end = owner.end(fate);
    if fate == Fate::Refused {
        return refusals::meet(scene, owner).await;
    }
    scene.create(owner.group_version, owner.kind, (owner.manifest)(&json!({keys::RUNS_FOR: "1h"}))).await?;
    let before = scene.ready(owner.pods).await?;
    let victim = before.first().context("no pod")?.clone();
    let uid = victim.uid().context("a pod without UID")?;
    let (hit, _) = scene.delegate(&uid, &[]).await?;
    strike(scene, &victim, fate).await?;
    arrive(scene, owner, (&victim, &hit), end).await?;
    if fate == Fate::Evicted {
        let grace = scene.recorder.lives().get(&hit).and_then(|life| life.grace);
        ensure!(grace == Some(EVICTION_GRACE.into()), "the delegate's grace period was {grace:?}");
    }
    Ok(())
}

async fn strike(scene: &Scene<'_>, victim: &Pod, fate: Fate) -> Result<()> {
    let uid = victim.uid().context("a pod without UID")?;
    let (_, delegate) = scene.delegate(&uid, &[]).await?;
    let (pods, name) = match fate {
        Fate::Deleted | Fate::Evicted => (scene.pods(), victim.name_any()),
        Fate::DelegateDeleted | Fate::DelegateEvicted | Fate::Refused => {
            (scene.beside(&delegate)?, delegate.name)
        }
    };
    let grace = (fate == Fate::Evicted).then_some(EVICTION_GRACE);
    if matches!(fate, Fate::Evicted | Fate::DelegateEvicted) {
        evict(&pods, &name, grace).await?;
    } else {
        pods.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Evicts a pod. The client's own call writes the options where the API server does not look for them.
pub(crate) async fn evict(pods: &Api<Pod>, name: &str, grace: Option<u32>) -> Result<()> {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        "deleteOptions": {"gracePeriodSeconds": grace}});
    let _done: Value = pods.create_subresource("eviction", name, &PostParams::default(), &eviction).await?;
    Ok(())
}

/// Waits for the end that the table says.
async fn arrive(scene: &Scene<'_>, owner: &Owner, (victim, hit): (&Pod, &str), end: End) -> Result<()> {
    let uid = victim.uid().context("a pod without UID")?;
    match end {
        End::Replaced => scene
            .pods_are(owner.pods, "Ready and not the one that was hit", |pod| {
                is(pod, "Ready") && pod.uid().as_deref() != Some(&uid)
            })
            .await
            .map(drop),
        End::Survives => {
            scene.delegate(&uid, &[hit.to_owned()]).await?;
            let pods = scene.ready(owner.pods).await?;
            ensure!(pods.iter().any(|pod| pod.uid().as_deref() == Some(&uid)), "the proxy pod was replaced");
            healed(scene, &victim.name_any()).await?;
            never_failed(scene)
        }
        End::Gone => scene.pods_are(0, "left", |_| true).await.map(drop),
        End::Completes => completes(scene, owner).await.map(drop),
        End::Fails => {
            let status = job_is(scene, "Failed").await?;
            let started = scene.recorder.delegates().iter().filter(|life| life.started.is_some()).count();
            ensure!(started == 1, "{started} delegates ran for a Job that must not be tried again");
            ensure!(status["failed"] == 1, "status of the Job: {status}");
            Ok(())
        }
    }
}

/// Nothing on a proxy pod that runs again tells of the delegate that was lost.
async fn healed(scene: &Scene<'_>, name: &str) -> Result<()> {
    until(LONG, "the proxy pod has no condition of a loss", async || {
        let status = json!(scene.pods().get(name).await?.status);
        for (kind, bad) in
            [("DelegateCreated", "False"), ("DelegateStopped", "False"), ("DisruptionTarget", "True")]
        {
            ensure!(condition(&status, kind).is_none_or(|is| is["status"] != bad), "{status}");
        }
        Ok(Some(()))
    })
    .await
}

/// No proxy pod was ever seen Failed.
pub(crate) fn never_failed(scene: &Scene<'_>) -> Result<()> {
    let lives = scene.recorder.lives().into_values();
    match lives.filter(|life| !life.is_delegate()).find(|life| life.was("Failed")) {
        Some(life) => bail!("a proxy pod was Failed: {life:?}"),
        None => Ok(()),
    }
}

/// Lets the work of a Job end, and waits until it is Complete with all its successes.
pub(crate) async fn completes(scene: &Scene<'_>, owner: &Owner) -> Result<Value> {
    let finished = job_is(scene, "Complete").await?;
    ensure!(finished["succeeded"] == owner.pods, "status of the Job: {finished}");
    ensure!(finished.get("active").is_none_or(|active| *active == 0), "status of the Job: {finished}");
    let done = scene.recorder.delegates().into_iter().filter(|life| life.was("Succeeded")).count();
    ensure!(done == owner.pods, "{done} delegates finished for {} completions", owner.pods);
    Ok(finished)
}

async fn job_is(scene: &Scene<'_>, wanted: &str) -> Result<Value> {
    let jobs: Api<Job> = scene.source.api(&scene.namespace);
    let (end, status) = until(LONG, &format!("the Job in {} is {wanted}", scene.namespace), async || {
        let status = json!(jobs.get(NAME).await?.status);
        let is = |end: &str| condition(&status, end).is_some_and(|is| is["status"] == "True");
        if let Some(end) = ["Complete", "Failed"].into_iter().find(|end| is(end)) {
            return Ok(Some((end, status)));
        }
        // While it is to fail, nothing may finish.
        if wanted == "Complete" {
            finish(scene).await?;
        }
        bail!("status of the Job: {status}")
    })
    .await?;
    ensure!(end == wanted, "the Job is {end}: {status}");
    Ok(status)
}

/// Lets the containers of all running delegates end well.
pub(crate) async fn finish(scene: &Scene<'_>) -> Result<()> {
    for life in scene.recorder.delegates().into_iter().filter(|life| life.runs() && life.grace.is_none()) {
        let now = json!({"metadata": {"annotations": {keys::RUNS_FOR: "1s"}}});
        // It may just have gone.
        drop(scene.beside(&life)?.patch(&life.name, &PatchParams::default(), &Patch::Merge(now)).await);
    }
    Ok(())
}

/// Fails when more ran at once than the owner allows.
pub(crate) fn check_exclusive(scene: &Scene<'_>, owner: &Owner) -> Result<()> {
    scene.recorder.check_parents()?;
    match owner.only {
        Only::Parent => Ok(()),
        Only::Ordinal => scene.recorder.check_ordinals(),
        Only::Owner => scene.recorder.check_single(),
    }
}
