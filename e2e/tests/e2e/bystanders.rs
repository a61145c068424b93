//! Objects that pods merely mention belong to their owners.

use anyhow::{Context as _, Result, ensure};
use e2e::ground::Ground;
use e2e::wait::{SOON, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::budget::requests;
use crate::owners::kinds::template;
use crate::scene::{Scene, key};

const COUNT: usize = 50;

pub(crate) async fn case_005_only_what_a_pod_names_is_written_and_once(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "bystanders").await?;
    let maps: Api<ConfigMap> = scene.source.api(&scene.namespace);
    for number in 0..COUNT {
        let map = serde_json::from_value(json!({"metadata": {"name": format!("map-{number}")}}))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    let before = maps.list(&ListParams::default()).await?.items;
    let mut pod = template(&json!({}), "Always");
    pod["metadata"]["name"] = json!("reader");
    pod["spec"]["volumes"] = json!([{"name": "map", "configMap": {"name": "map-0", "optional": true}}]);
    scene.pod(pod).await?;
    scene.ready(1).await?;
    until(SOON, "the ConfigMap that is named is marked", async || {
        Ok((!maps.get("map-0").await?.finalizers().is_empty()).then_some(()))
    })
    .await?;
    let after = maps.list(&ListParams::default()).await?.items;
    let (named, others): (Vec<_>, Vec<_>) = after.into_iter().partition(|map| map.name_any() == "map-0");
    for old in before.iter().filter(|map| map.name_any() != "map-0") {
        let same = |new: &&ConfigMap| new.name_any() == old.name_any();
        let new = others.iter().find(same).context("a ConfigMap is gone")?;
        ensure!(old.resource_version() == new.resource_version(), "{} was written", new.name_any());
    }
    ensure!(named.iter().all(|map| map.finalizers() == [key("follow")]), "{named:?}");
    if ground.is_local() {
        let seen = requests(scene.source, "configmaps", &scene.namespace)?;
        let patches: Vec<_> = seen.iter().filter(|event| event["verb"] == "patch").collect();
        ensure!(patches.len() == 1, "{} writes: {patches:?}", patches.len());
    }
    maps.delete("map-0", &DeleteParams::default()).await?;
    until(SOON, "a deleted ConfigMap is gone", async || {
        Ok(maps.get_opt("map-0").await?.is_none().then_some(()))
    })
    .await?;
    scene.close().await
}
