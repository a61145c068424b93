//! What changes on a pod reaches its delegate, and what changes there comes back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::ground::Ground;
use e2e::wait::{throughout, until};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::guest::{becomes, fake_pod, with};
use crate::scene::{LONG, Scene, condition, key, merge, pinned};

/// A running pod and where its delegate is.
async fn running(scene: &Scene<'_>, pod: serde_json::Value) -> Result<(Api<Pod>, String)> {
    let target = scene.ground.cluster("target-1")?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    scene.pod(pinned(pod, "target-1")?).await?;
    becomes(scene.source, &scene.namespace, &name, "Ready").await?;
    let delegates: Api<Pod> = target.api(&scene.namespace);
    let found = delegates.list(&ListParams::default()).await?.items;
    let delegate = found.first().context("no delegate")?.name_any();
    Ok((delegates, delegate))
}

pub(crate) async fn w37_case_030_what_either_side_writes_reaches_the_other(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "both-ways").await?;
    let mut pod = fake_pod("talker");
    pod["metadata"]["labels"] = json!({"app": "talker"});
    pod["metadata"]["annotations"] = json!({"submitted": "1"});
    let (delegates, delegate) = running(&scene, pod).await?;
    let (target, pods) = (ground.cluster("target-1")?, scene.pods());
    let annotate = |name: &str, value: &str| json!({"metadata": {"annotations": {name: value}}});
    let above = merge(scene.source, Some(&scene.namespace), ("v1", "Pod"), "talker", annotate("above", "s"));
    let below = merge(target, Some(&scene.namespace), ("v1", "Pod"), &delegate, annotate("below", "t"));
    let (above, below) = tokio::join!(above, below);
    above?;
    below?;
    until(LONG, "both keys are on both sides", async || {
        for (side, pod) in
            [("source", pods.get("talker").await?), ("target", delegates.get(&delegate).await?)]
        {
            let notes = pod.annotations();
            let has = |name: &str, value: &str| notes.get(name).is_some_and(|found| found == value);
            ensure!(has("above", "s") && has("below", "t") && has("submitted", "1"), "{side}: {notes:?}");
        }
        Ok(Some(()))
    })
    .await?;
    let versions = async || {
        let (own, other) = (pods.get("talker").await?, delegates.get(&delegate).await?);
        anyhow::Ok((own.resource_version(), other.resource_version()))
    };
    let before = versions().await?;
    throughout(Duration::from_secs(5), "no to and fro", async || Ok(versions().await? == before)).await?;
    // What is taken away, and labels.
    let change = json!({"metadata": {"annotations": {"above": null, "submitted": "2"},
        "labels": {"app": null, "quarantined": "yes"}}});
    merge(scene.source, Some(&scene.namespace), ("v1", "Pod"), "talker", change).await?;
    until(LONG, "the delegate has changed", async || {
        let pod = delegates.get(&delegate).await?;
        let (notes, labels) = (pod.annotations(), pod.labels());
        ensure!(
            !notes.contains_key("above") && notes.get("submitted").is_some_and(|is| is == "2"),
            "{notes:?}"
        );
        ensure!(!labels.contains_key(&key("app")) && labels.contains_key(&key("quarantined")), "{labels:?}");
        Ok(Some(()))
    })
    .await?;
    let still = pods.get("talker").await?;
    ensure!(still.annotations().get("below").is_some_and(|is| is == "t"), "{:?}", still.annotations());
    scene.close().await
}

pub(crate) async fn w37_images_deadlines_tolerations_and_resources_reach_the_delegate(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "updated").await?;
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    let pod = with(fake_pod("worker"), "/spec/containers/0/resources", resources)?;
    let (delegates, delegate) = running(&scene, pod).await?;
    let pods = scene.pods();
    // A fake kubelet does not report what containers have; nothing is resized without.
    let reported = json!([{"op": "add", "path": "/status/containerStatuses/0/resources",
        "value": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]);
    let reported = Patch::<()>::Json(serde_json::from_value(reported).context("not a patch")?);
    delegates.patch_status(&delegate, &PatchParams::default(), &reported).await?;
    until(LONG, "the pod says what its containers have", async || {
        let status = json!(pods.get("worker").await?.status);
        Ok(status.pointer("/containerStatuses/0/resources/requests/cpu").map(drop))
    })
    .await?;
    let images = json!({"spec": {"activeDeadlineSeconds": 86400,
        "containers": [{"name": "main", "image": "nowhere.example/any:2"}]}});
    pods.patch("worker", &PatchParams::default(), &Patch::Strategic(images)).await?;
    let mut tolerations = json!(pods.get("worker").await?.spec.and_then(|spec| spec.tolerations));
    tolerations
        .as_array_mut()
        .context("no tolerations")?
        .push(json!({"key": "example.com/later", "operator": "Exists", "effect": "NoExecute"}));
    let tolerated = json!({"spec": {"tolerations": tolerations}});
    pods.patch("worker", &PatchParams::default(), &Patch::Merge(tolerated)).await?;
    let larger =
        json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}});
    pods.patch_subresource("resize", "worker", &PatchParams::default(), &Patch::Strategic(larger)).await?;
    until(LONG, "the delegate has changed", async || {
        let spec = json!(delegates.get(&delegate).await?.spec);
        let container = &spec["containers"][0];
        ensure!(container["image"] == "nowhere.example/any:2", "{container}");
        ensure!(
            container["resources"]["requests"] == json!({"cpu": "200m", "memory": "64Mi"}),
            "{container}"
        );
        ensure!(spec["activeDeadlineSeconds"] == 86400, "{}", spec["activeDeadlineSeconds"]);
        let tolerations = spec["tolerations"].to_string();
        ensure!(tolerations.contains("example.com/later"), "{tolerations}");
        ensure!(!tolerations.contains("virtual-kubelet.io"), "{tolerations}");
        Ok(Some(()))
    })
    .await?;
    let status = json!(pods.get("worker").await?.status);
    ensure!(condition(&status, "DelegateUpdated").is_none(), "{status}");
    scene.close().await
}
