//! What flows back from a delegate, and how pods end.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::ground::Ground;
use e2e::wait::until;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde_json::json;

use crate::guest::{becomes, fake_pod, gone, is, with};
use crate::placement::{Pool, deployment};
use crate::scene::{GROUP_VERSION, LONG, Scene, condition, create, key, merge, pinned, remove_node};

pub(crate) async fn status_and_annotations_flow_back(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "back").await?;
    let gate = "example.com/served";
    let gated = with(fake_pod("gated"), "/spec/readinessGates", json!([{"conditionType": gate}]))?;
    let uid = scene.pod(gated).await?.uid().context("a pod without UID")?;
    let (_, life) = scene.delegate(&uid, &[]).await?;
    let (pods, beside) = (scene.pods(), scene.beside(&life)?);
    until(LONG, "the status of the delegate is that of the proxy pod", async || {
        let (own, other) =
            (json!(pods.get("gated").await?.status), json!(beside.get(&life.name).await?.status));
        for field in ["phase", "podIP", "hostIP", "startTime", "containerStatuses"] {
            ensure!(own[field] == other[field] && !own[field].is_null(), "{field}: {own}, {other}");
        }
        ensure!(condition(&own, "ContainersReady").is_some_and(|is| is["status"] == "True"), "{own}");
        Ok(Some(()))
    })
    .await?;
    // The gate is one of the source: the delegate is Ready without it, the proxy pod is not.
    let delegate = beside.get(&life.name).await?;
    ensure!(json!(delegate.spec).get("readinessGates").is_none(), "the delegate has the gate");
    ensure!(!is(&pods.get("gated").await?, "Ready"), "the proxy pod is Ready with a closed gate");
    let open = json!({"status": {"conditions": [{"type": gate, "status": "True"}]}});
    pods.patch_status("gated", &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(open))
        .await?;
    becomes(scene.source, &scene.namespace, "gated", "Ready").await?;
    // Annotations of the delegate come along, except those of the contract.
    let noted = json!({"metadata": {"annotations": {"example.com/note": "seen", key("note"): "no"}}});
    let target = ground.cluster(&life.cluster)?;
    merge(target, Some(&scene.namespace), ("v1", "Pod"), &life.name, noted).await?;
    until(LONG, "the annotation is on the proxy pod", async || {
        let notes = pods.get("gated").await?.annotations().clone();
        ensure!(!notes.contains_key(&key("note")), "a key of the contract came back");
        Ok((notes.get("example.com/note").map(String::as_str) == Some("seen")).then_some(()))
    })
    .await?;
    scene.close().await
}

pub(crate) async fn case_014_pods_deleted_right_after_their_creation_leave_nothing(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "case-014").await?;
    let pods = scene.pods();
    try_join_all((0..20_u32).map(async |number| {
        let name = format!("brief-{number}");
        scene.pod(fake_pod(&name)).await?;
        // Some are bound by then, some are asked for; half of them are deleted by force.
        let grace =
            if number % 2 == 0 { DeleteParams::default() } else { DeleteParams::default().grace_period(0) };
        pods.delete(&name, &grace).await?;
        gone(scene.source, &scene.namespace, &name).await
    }))
    .await?;
    until(LONG, "no chaperon and no delegate is left", async || {
        let chaperons = scene.chaperons().await?;
        let left = scene.recorder.delegates().into_iter().filter(|life| !life.gone).count();
        ensure!(chaperons.is_empty() && left == 0, "{} chaperons, {left} delegates", chaperons.len());
        Ok(Some(()))
    })
    .await?;
    scene.close().await
}

pub(crate) async fn case_047_a_pod_made_again_under_its_name_is_another_pod(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "case-047").await?;
    let mut uids = Vec::new();
    for _ in 0..3 {
        let uid = scene.pod(fake_pod("same")).await?.uid().context("a pod without UID")?;
        becomes(scene.source, &scene.namespace, "same", "Ready").await?;
        uids.push(uid);
        scene.pods().delete("same", &DeleteParams::default()).await?;
        gone(scene.source, &scene.namespace, "same").await?;
    }
    scene.recorder.check_single()?;
    let parents: Vec<String> = scene.recorder.delegates().into_iter().map(|life| life.parent).collect();
    ensure!(uids.iter().all(|uid| parents.contains(uid)) && parents.len() == 3, "delegates of {parents:?}");
    scene.close().await
}

pub(crate) async fn a_chaperon_deleted_by_hand_ends_its_pod(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "by-hand").await?;
    deployment(&scene, 3).await?;
    scene.pod(fake_pod("bare")).await?;
    let before: Vec<String> = scene.ready(4).await?.iter().filter_map(Pod::uid).collect();
    for (cluster, chaperon) in scene.chaperons().await? {
        let api = ground.cluster(&cluster)?.dynamic(GROUP_VERSION, "PodChaperon", Some(&scene.namespace));
        api.delete(&chaperon.name_any(), &DeleteParams::default()).await?;
    }
    // They end, and those with an owner are replaced; the other one is not run again behind anybody's back.
    until(LONG, "the pods have ended and are replaced", async || {
        let pods = scene.pods().list(&ListParams::default()).await?.items;
        let (old, new): (Vec<_>, Vec<_>) =
            pods.into_iter().partition(|pod| pod.uid().is_some_and(|uid| before.contains(&uid)));
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let left = old.iter().filter(|pod| phase(pod).as_deref() != Some("Failed")).count();
        ensure!(left == 0, "{left} of the old pods have not ended");
        Ok((new.len() == 3 && new.iter().all(|pod| is(pod, "Ready"))).then_some(()))
    })
    .await?;
    ensure!(scene.chaperons().await?.len() == 3, "chaperons of pods that have ended");
    scene.close().await
}

pub(crate) async fn case_137_pods_of_a_node_that_vanished_are_made_again_elsewhere(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "vanished").await?;
    let pool = Pool::make(&scene, "target-2").await?;
    scene.pod(pool.pod("one")?).await?;
    let before = scene.ready(1).await?.first().and_then(Pod::uid).context("no pod")?;
    let (first, life) = scene.delegate(&before, &[]).await?;
    remove_node(pool.cluster, &life.node).await?;
    // The collector of pods waits 40 s before it believes that a node is gone.
    let (_, again) = scene.delegate(&before, &[first]).await?;
    ensure!(again.node != life.node && again.node.starts_with("vanished-"), "it runs on {}", again.node);
    let after = scene.ready(1).await?.first().and_then(Pod::uid);
    ensure!(after.as_ref() == Some(&before), "the proxy pod was replaced");
    crate::owners::never_failed(&scene)?;
    scene.close().await?;
    pool.end().await
}

/// How many chaperons hold a reservation, or were allowed.
async fn promised(scene: &Scene<'_>) -> Result<usize> {
    let all = scene.chaperons().await?;
    let holds = |chaperon: &DynamicObject| {
        ["is-reserved", "is-allowed"].iter().any(|name| chaperon.annotations().contains_key(&key(name)))
    };
    Ok(all.iter().filter(|(_, chaperon)| holds(chaperon)).count())
}

pub(crate) async fn pods_over_a_quota_wait_with_the_words_of_the_target(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "quota").await?;
    let target = ground.cluster("target-1")?;
    let quota = ("v1", "ResourceQuota");
    let hard = json!({"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}});
    create(target, Some(&scene.namespace), quota, hard).await?;
    until(LONG, "the quota is in force", async || {
        let api = target.dynamic(quota.0, quota.1, Some(&scene.namespace));
        Ok(api.get("two").await?.data.pointer("/status/hard/pods").cloned())
    })
    .await?;
    let names = ["a", "b", "c", "d"];
    try_join_all(names.map(async |name| scene.pod(pinned(fake_pod(name), "target-1")?).await)).await?;
    let mut most = 0;
    until(LONG, "two run and two say why they do not", async || {
        most = most.max(promised(&scene).await?);
        let pods = scene.pods().list(&ListParams::default()).await?.items;
        let (ready, waiting): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| is(pod, "Ready"));
        let said: BTreeMap<String, bool> = waiting
            .iter()
            .map(|pod| (pod.name_any(), json!(pod.status).to_string().contains("quota")))
            .collect();
        if ready.len() == 2 && said.values().all(|is| *is) {
            return Ok(Some(()));
        }
        bail!(
            "{} are Ready, others: {:?}",
            ready.len(),
            waiting.into_iter().map(crate::scene::brief).collect::<Vec<_>>()
        )
    })
    .await?;
    ensure!(most == 2, "{most} pods were promised a place at once, and two are admitted");
    let more = json!({"spec": {"hard": {"pods": "4"}}});
    merge(target, Some(&scene.namespace), quota, "two", more).await?;
    let pods = scene.ready(4).await?;
    for pod in &pods {
        let status = json!(pod.status);
        ensure!(!status.to_string().contains("quota"), "the reason stays: {status}");
    }
    crate::owners::never_failed(&scene)?;
    scene.close().await
}
