//! Clusters in unusual roles: two sources of one name, a source that is its own target.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::connect::{Kind, apply, connect, ready};
use e2e::ground::Ground;
use e2e::install::{Charts, Role};
use e2e::nodes::{Shape, create_many};
use e2e::setup::ELECTING;
use e2e::wait::{SOON, throughout, until};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::guest::{becomes, create, fake_pod, gone};
use crate::scene::{Scene, pinned, pinned_by, remove_namespace};

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
    second.create_namespace(&scene.namespace, &ELECTING).await?;
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

/// Its pods become proxy pods, and the delegates beside them are not elected once more.
pub(crate) async fn a_cluster_may_be_its_own_target(ground: &Ground) -> Result<()> {
    let cluster = ground.start_another("both").await?;
    create_many(&cluster.client, "fake", 2, &Shape::default()).await?;
    let charts = Charts::prepare_changed(ground, "both", &[]).await?;
    charts.install(ground, &cluster, Role::Both, &[]).await?;
    let namespace = "own";
    cluster.create_namespace(namespace, &ELECTING).await?;
    apply(&cluster, "Target", Some(namespace), "here", json!({"self": true})).await?;
    let kind = Kind::Namespaced(namespace.to_owned());
    ready(&cluster, "here", &kind).await?;
    create(&cluster, namespace, fake_pod("one")).await?;
    let proxy = becomes(&cluster, namespace, "one", "Ready").await?;
    let node = proxy.spec.and_then(|spec| spec.node_name);
    ensure!(node.as_deref() == Some("admiralty-own-here"), "it is on {node:?}");
    let pods: Api<Pod> = cluster.api(namespace);
    let all = pods.list(&ListParams::default()).await?.items;
    let nodes: Vec<_> = all.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    ensure!(all.len() == 2 && nodes.iter().any(|node| node.starts_with("fake-")), "pods are on {nodes:?}");
    pods.delete("one", &DeleteParams::default()).await?;
    gone(&cluster, namespace, "one").await?;
    until(SOON, "the delegate is gone too", async || {
        Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await?;
    remove_namespace(&cluster, namespace).await?;
    cluster.end().await
}
