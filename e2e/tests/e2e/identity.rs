//! A kubeconfig that leads to another cluster than the one for which its Target was accepted.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::connect::{Kind, connect, invite, ready, token, write_secret};
use e2e::ground::Ground;
use e2e::pki;
use e2e::wait::throughout;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::guest::{becomes, fake_pod, gone};
use crate::scene::{GROUP_VERSION, Scene, pinned_by, remove_namespace};
use crate::targets::says;
use crate::third::join;

pub(crate) async fn a_target_that_leads_to_another_cluster_is_not_used(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "strangers").await?;
    let third = join(&scene).await?;
    let kind = Kind::Namespaced(scene.namespace.clone());
    ready(scene.source, "third", &kind).await?;
    let uid =
        scene.pod(pinned_by(fake_pod("before"), "target-name", "third")?).await?.uid().context("no UID")?;
    becomes(scene.source, &scene.namespace, "before", "Ready").await?;

    let other = ground.cluster("target-1")?;
    invite(scene.source, other, &kind).await?;
    let token = token(other, &scene.namespace, &scene.source.name).await?;
    let leads_elsewhere = pki::kubeconfig(&other.server, &other.authority, &json!({"token": token}));
    write_secret(scene.source, &scene.namespace, "third", &leads_elsewhere).await?;
    for number in 0..5 {
        scene.pod(pinned_by(fake_pod(&format!("meanwhile-{number}")), "target-name", "third")?).await?;
    }
    says(&scene, "third", "Accepted", ("False", "IdentityChanged")).await?;
    throughout(Duration::from_secs(4), "nothing is asked there, and nothing ends", async || {
        let chaperons = other.dynamic(GROUP_VERSION, "PodChaperon", Some(&scene.namespace));
        let asked = chaperons.list(&ListParams::default()).await?.items;
        let pods = scene.pods().list(&ListParams::default()).await?.items;
        let bound = pods.iter().filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        let bound: Vec<&Pod> = bound.collect();
        let stays =
            |pod: &&Pod| pod.uid().as_ref() == Some(&uid) && pod.metadata.deletion_timestamp.is_none();
        Ok(asked.is_empty() && bound.len() == 1 && bound.iter().all(stays))
    })
    .await?;
    // The way back.
    connect(scene.source, third, &kind).await?;
    ready(scene.source, "third", &kind).await?;
    scene.ready(6).await?;
    let delegates = scene.recorder.delegates();
    ensure!(delegates.is_empty(), "delegates ran in the wrong cluster: {delegates:?}");
    scene.pods().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    gone(scene.source, &scene.namespace, "before").await?;
    scene.pods_are(0, "left", |_| true).await?;
    let name = scene.namespace.clone();
    scene.close().await?;
    remove_namespace(third, &name).await
}
