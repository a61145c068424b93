//! Two sources that share a target and, by mistake, a name.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::connect::{Kind, connect, ready};
use e2e::ground::Ground;
use e2e::install::{Charts, Role};
use e2e::wait::throughout;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};

use crate::guest::{becomes, create, fake_pod, gone};
use crate::scene::{Scene, pinned, pinned_by};

/// The second source calls itself by the name that the first one has: its cluster UID.
pub(crate) async fn w07_two_sources_of_one_name_leave_each_others_delegates_alone(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "shared").await?;
    let namespaces: Api<Namespace> = Api::all(scene.source.client.clone());
    let name = namespaces.get("kube-system").await?.uid().context("a namespace without UID")?;
    let second = ground.start_another("second").await?;
    let charts = Charts::prepare_changed(ground, "second", &[]).await?;
    let named = format!("--set=clusterName={name}");
    charts.install(ground, &second, Role::Source, &[&named]).await?;
    let target = ground.cluster("target-1")?;
    let labels = [("multicluster-scheduler", "enabled"), ("multicluster.admiralty.io/elect", "all")];
    second.create_namespace(&scene.namespace, &labels).await?;
    let kind = Kind::Namespaced(scene.namespace.clone());
    connect(&second, target, &kind).await?;
    ready(&second, "target-1", &kind).await?;

    scene.pod(pinned(fake_pod("same"), "target-1")?).await?;
    becomes(scene.source, &scene.namespace, "same", "Ready").await?;
    create(&second, &scene.namespace, pinned_by(fake_pod("same"), "target-name", "target-1")?).await?;
    becomes(&second, &scene.namespace, "same", "Ready").await?;
    let pods: Api<Pod> = target.api(&scene.namespace);
    let running = async || -> Result<Vec<String>> {
        let list = pods.list(&ListParams::default()).await?.items;
        Ok(list.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).filter_map(Pod::uid).collect())
    };
    let both = running().await?;
    ensure!(both.len() == 2, "{} delegates run", both.len());
    throughout(Duration::from_secs(8), "both delegates stay", async || Ok(running().await? == both)).await?;
    // The end of one is not the end of the other.
    let own: Api<Pod> = second.api(&scene.namespace);
    own.delete("same", &DeleteParams::default()).await?;
    gone(&second, &scene.namespace, "same").await?;
    throughout(Duration::from_secs(4), "the other one stays", async || Ok(running().await?.len() == 1))
        .await?;
    scene.ready(1).await?;
    second.end().await?;
    scene.close().await
}
