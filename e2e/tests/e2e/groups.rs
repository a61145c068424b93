//! Groups of pods that are placed together or not at all.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::guest::{fake_pod, with};
use crate::placement::{Pool, unschedulable};
use crate::scene::{LONG, Scene, create, key, merge};

/// A member of a group that takes more than half of a node of the pool: two fit into each target.
fn member(pool: &Pool<'_>, name: &str, group: (&str, &str, &str)) -> Result<Value> {
    let mut pod =
        with(pool.pod(name)?, "/spec/containers/0/resources", json!({"requests": {"cpu": "1200m"}}))?;
    let (group, least, placement) = group;
    for (name, value) in [("group", group), ("group-min-member", least), ("group-placement", placement)] {
        pod["metadata"]["annotations"][key(name).as_str()] = json!(value);
    }
    Ok(pod)
}

/// Virtual nodes of the pods whose names begin so.
fn nodes(pods: &[Pod], stem: &str) -> BTreeSet<String> {
    let mine = pods.iter().filter(|pod| pod.name_any().starts_with(stem));
    mine.filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect()
}

pub(crate) async fn groups_that_fit_alone_are_placed_whole_and_one_that_does_not_takes_nothing(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "groups").await?;
    let (one, two) = (Pool::make(&scene, "target-1").await?, Pool::make(&scene, "target-2").await?);
    for name in ["wide-0", "wide-1", "wide-2"] {
        scene.pod(member(&one, name, ("wide", "3", "OneTarget"))?).await?;
    }
    for name in ["wide-0", "wide-1", "wide-2"] {
        unschedulable(&scene, name, &["group wide waits until 3 of its pods fit at once"]).await?;
    }
    // Interleaved, so that each could take half of a target.
    for name in ["left-0", "right-0", "left-1", "right-1"] {
        let group = name.split('-').next().unwrap_or_default();
        scene.pod(member(&one, name, (group, "2", "OneTarget"))?).await?;
    }
    let bound = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let pods =
        scene.pods_are(7, "placed, or wide", |pod| bound(pod) != pod.name_any().starts_with("wide")).await?;
    let (left, right) = (nodes(&pods, "left"), nodes(&pods, "right"));
    ensure!(left.len() == 1 && right.len() == 1 && left != right, "they are on {left:?} and {right:?}");
    scene.pods().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    scene.pods_are(0, "gone", |_| false).await?;
    for name in ["spread-0", "spread-1", "spread-2"] {
        scene.pod(member(&one, name, ("spread", "3", "AnyTarget"))?).await?;
    }
    let pods = scene.ready(3).await?;
    ensure!(nodes(&pods, "spread").len() == 2, "they are on {:?}", nodes(&pods, "spread"));
    scene.close().await?;
    one.end().await?;
    two.end().await
}

/// The kind of the coscheduling plugin, as far as anybody here reads it. It stays: other tests have no PodGroups.
async fn pod_group_kind(source: &Cluster) -> Result<()> {
    let names = json!({"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"minMember": {"type": "integer"}}}}});
    let version =
        json!({"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let spec =
        json!({"group": "scheduling.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]});
    let annotations = json!({"api-approved.kubernetes.io": "unapproved, for tests"});
    let metadata = json!({"name": "podgroups.scheduling.x-k8s.io", "annotations": annotations});
    let definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    create(source, None, definition, json!({"metadata": metadata, "spec": spec})).await.map(drop)
}

pub(crate) async fn w47_a_group_is_placed_as_its_pod_group_says(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "pod-groups").await?;
    pod_group_kind(scene.source).await?;
    for name in ["a", "b", "c"] {
        let mut pod = fake_pod(name);
        pod["metadata"]["labels"] = json!({"scheduling.x-k8s.io/pod-group": "three"});
        scene.pod(pod).await?;
    }
    for name in ["a", "b", "c"] {
        unschedulable(&scene, name, &["group three waits for its PodGroup"]).await?;
    }
    let group = json!({"metadata": {"name": "three"}, "spec": {"minMember": 4}});
    until(LONG, "the new kind is served", async || {
        let made = scene.create("scheduling.x-k8s.io/v1alpha1", "PodGroup", group.clone()).await;
        Ok(made.is_ok().then_some(()))
    })
    .await?;
    for name in ["a", "b", "c"] {
        unschedulable(&scene, name, &["group three has 3 of the 4 pods that it needs"]).await?;
    }
    let less = json!({"spec": {"minMember": 3}});
    let kind = ("scheduling.x-k8s.io/v1alpha1", "PodGroup");
    merge(scene.source, Some(&scene.namespace), kind, "three", less).await?;
    let pods = scene.ready(3).await?;
    let nodes = nodes(&pods, "");
    ensure!(nodes.len() == 1, "they are on {nodes:?}");
    scene.close().await
}
