//! Claims get devices where the pod fits, and the pod is bound when they are written: the driver is this test, the
//! controller of claims is the real one.

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::nodes::{Shape, create_many};
use e2e::wait::{SOON, until};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{PODS, bound, condition_of, event, make, remove, take_over, waits, words};
use crate::guest::{create, fake_pod, with};

const DRIVER: &str = "gpu.example.com";

pub(crate) async fn claims_get_their_devices_as_kube_scheduler_gives_them(ground: &Ground) -> Result<()> {
    let cluster = ground.start_another("claims").await?;
    create_many(&cluster.client, "fake", 2, &Shape::default()).await?;
    cluster.create_namespace(PODS, &[]).await?;
    let selector = json!([{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]);
    let config = json!([{"opaque": {"driver": DRIVER, "parameters": {"apiVersion": "a/v1", "kind": "Any"}}}]);
    make(
        &cluster,
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpus"},
            "spec": {"selectors": selector, "config": config}}),
    )
    .await?;
    make(&cluster, slice("fake-0", "small", "g0")).await?;
    make(&cluster, slice("fake-1", "large", "g1")).await?;
    let template = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "small"}, "spec": {"spec": wish("small")}});
    make(&cluster, template).await?;
    let upstream = story(&cluster).await.context("with kube-scheduler")?;
    take_over(ground, &cluster).await?;
    let ours = story(&cluster).await.context("with the candidate scheduler")?;
    ensure!(ours == upstream, "ours: {ours:#}\nupstream: {upstream:#}");
    cluster.end().await
}

/// One device of a node.
fn slice(node: &str, model: &str, device: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-{device}")},
    "spec": {
        "driver": DRIVER, "nodeName": node,
        "pool": {"name": format!("{node}-{device}"), "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": device, "attributes": {"model": {"string": model}}}],
    }})
}

fn wish(model: &str) -> Value {
    let expression = format!("device.attributes['{DRIVER}'].model == '{model}'");
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {
        "deviceClassName": "gpus", "selectors": [{"cel": {"expression": expression}}],
    }}]}})
}

async fn claim(cluster: &Cluster, name: &str, model: &str) -> Result<()> {
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": wish(model)});
    make(cluster, claim).await
}

async fn user(cluster: &Cluster, name: &str, source: Value) -> Result<Pod> {
    let mut claim = source;
    claim["name"] = json!("gpu");
    create(cluster, PODS, with(fake_pod(name), "/spec/resourceClaims", json!([claim]))?).await
}

/// What a claim was given, without times; and which pods may use it.
async fn given(cluster: &Cluster, name: &str) -> Result<Value> {
    let claims: Api<ResourceClaim> = cluster.api(PODS);
    let claim = claims.get(name).await?;
    let mut status = json!(claim.status);
    if let Some(allocation) = status["allocation"].as_object_mut() {
        ensure!(allocation.remove("allocationTimestamp").is_some(), "no time of the allocation");
    }
    let users = status["reservedFor"].as_array().cloned().unwrap_or_default();
    let mut users: Vec<_> = users.into_iter().map(|user| json!([user["resource"], user["name"]])).collect();
    users.sort_by_key(Value::to_string);
    Ok(json!([status["allocation"], users, claim.metadata.finalizers]))
}

/// Everything that claims can mean for pods.
async fn story(cluster: &Cluster) -> Result<Value> {
    // A pod whose claim is not there waits for it.
    user(cluster, "first", json!({"resourceClaimName": "large"})).await?;
    claim(cluster, "large", "large").await?;
    let first = bound(cluster, "first").await?;
    user(cluster, "second", json!({"resourceClaimName": "large"})).await?;
    let second = bound(cluster, "second").await?;
    let shared = given(cluster, "large").await?;
    claim(cluster, "more", "large").await?;
    user(cluster, "third", json!({"resourceClaimName": "more"})).await?;
    let none = waits(cluster, "third", "cannot allocate all claims").await?;
    let event = event(cluster, none.metadata.uid.as_deref().unwrap_or_default()).await?;
    // A device that appears is reason enough to try again.
    make(cluster, slice("fake-0", "large", "late")).await?;
    let third = bound(cluster, "third").await?;
    let late = given(cluster, "more").await?;
    user(cluster, "fourth", json!({"resourceClaimTemplateName": "small"})).await?;
    let fourth = bound(cluster, "fourth").await?;
    let own = generated(cluster, "fourth").await?;
    // When its user is gone, a claim's devices are others'.
    remove(cluster, &["third"]).await?;
    claim(cluster, "next", "large").await?;
    user(cluster, "fifth", json!({"resourceClaimName": "next"})).await?;
    let fifth = bound(cluster, "fifth").await?;
    let said = json!({
        "nodes": [first, second, third, fourth, fifth],
        "claims": [shared, late, own],
        "no device": [condition_of(&none, "PodScheduled"), words(&event)],
    });
    remove(cluster, &["first", "second", "fourth", "fifth"]).await?;
    clear(cluster).await?;
    Ok(said)
}

/// What the claim was given that was made for a pod. Its name, and its pod's, are left out.
async fn generated(cluster: &Cluster, pod: &str) -> Result<Value> {
    let pods: Api<Pod> = cluster.api(PODS);
    let status = pods.get(pod).await?.status.and_then(|status| status.resource_claim_statuses);
    let name =
        status.and_then(|claims| claims.into_iter().next()).and_then(|claim| claim.resource_claim_name);
    given(cluster, &name.context("no claim was made")?).await
}

/// All is as it was before the story.
async fn clear(cluster: &Cluster) -> Result<()> {
    let claims: Api<ResourceClaim> = cluster.api(PODS);
    for name in ["large", "more", "next"] {
        claims
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("cannot delete {name}"))?;
    }
    until(SOON, "all claims are gone", async || {
        let left = claims.list(&kube::api::ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{} are left", left.len());
        Ok(Some(()))
    })
    .await?;
    let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
    slices.delete("fake-0-late", &DeleteParams::default()).await.map(drop).context("cannot delete a slice")
}
