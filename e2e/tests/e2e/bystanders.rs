//! Objects that pods merely mention belong to their owners.

use anyhow::{Context as _, Result, ensure};
use e2e::ground::Ground;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::owners::kinds::template;
use crate::scene::Scene;

const COUNT: usize = 50;

pub(crate) async fn case_005_config_maps_carry_no_finalizer_and_go_at_once(ground: &Ground) -> Result<()> {
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
    let after = maps.list(&ListParams::default()).await?.items;
    for (old, new) in before.iter().zip(&after) {
        ensure!(old.resource_version() == new.resource_version(), "{} was written", new.name_any());
    }
    maps.delete("map-0", &DeleteParams::default()).await?;
    let left = maps.get_opt("map-0").await.context("cannot look for the ConfigMap")?;
    ensure!(left.is_none(), "a deleted ConfigMap is still there");
    scene.close().await
}
