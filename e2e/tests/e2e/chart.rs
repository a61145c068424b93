//! The chart, as users install it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::connect;
use e2e::ground::Ground;
use e2e::install::{Charts, RELEASE, Role, available};
use e2e::setup::{SOURCE, electing_namespace};
use e2e::wait::{SOON, until};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::guest::{becomes, create, fake_pod};
use crate::installed::{installed, settled};

pub(crate) async fn components_become_available_and_targets_ready(ground: &Ground) -> Result<()> {
    installed(ground).await?;
    settled(ground).await
}

pub(crate) async fn an_elected_pod_runs_in_a_target(ground: &Ground) -> Result<()> {
    installed(ground).await?;
    let namespace = "elected";
    electing_namespace(ground, namespace).await?;
    let source = ground.cluster(SOURCE)?;
    create(source, namespace, fake_pod("one")).await?;
    let proxy = becomes(source, namespace, "one", "Ready").await?;
    let node = proxy.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    ensure!(node.starts_with("admiralty-target-"), "the pod is bound to {node}");
    let uid = proxy.uid().context("a pod without UID")?;
    let selector = ListParams::default().labels(&format!("multicluster.admiralty.io/parent-uid={uid}"));
    let mut delegates = 0;
    for target in ["target-1", "target-2"] {
        let pods: Api<Pod> = ground.cluster(target)?.api(namespace);
        delegates += pods.list(&selector).await?.items.len();
    }
    ensure!(delegates == 1, "the pod has {delegates} delegates");
    Ok(())
}

/// The same chart is installed thrice in a cluster of its own, each time with one change that must be seen.
pub(crate) async fn a_broken_port_probe_or_rule_of_the_chart_is_noticed(ground: &Ground) -> Result<()> {
    let cluster = ground.start_another("spare").await?;
    let whole = Charts::prepare_changed(ground, "whole", &[]).await?;
    whole.install(ground, &cluster, Role::Target, &[]).await.context("the chart as it is")?;
    let changes = [
        ("port", "common/templates/_workload.tpl", "containerPort: 8080", "containerPort: 8090"),
        ("probe", "common/templates/_workload.tpl", "path: /readyz", "path: /no-such-path"),
        ("rule", "source-controller/templates/rbac.yaml", "[list, watch, create]", "[list, watch]"),
    ];
    for (name, file, from, to) in changes {
        let broken = Charts::prepare_changed(ground, name, &[(file, from, to)]).await?;
        broken.upgrade(ground, &cluster, Role::Target, &["--set-json=global.image={}"]).await?;
        restart(&cluster).await?;
        let outcome = tokio::time::timeout(Duration::from_secs(20), works(&cluster, name)).await;
        ensure!(!matches!(outcome, Ok(Ok(()))), "a broken {name} of the chart was not noticed");
    }
    whole.install(ground, &cluster, Role::Target, &[]).await.context("the chart as it is, again")?;
    works(&cluster, "whole").await?;
    cluster.end().await
}

/// What a target's components must do for a source: be available, and make the identity of a new source.
async fn works(cluster: &Cluster, name: &str) -> Result<()> {
    available(cluster, RELEASE).await?;
    let spec = json!({"serviceAccountName": name});
    connect::apply(cluster, "Source", Some("default"), name, spec).await?;
    let accounts: Api<ServiceAccount> = cluster.api("default");
    until(SOON, "the source has its account", async || Ok(accounts.get_opt(name).await?)).await.map(drop)
}

/// Replaces all pods, so that none lives on what it learned before.
async fn restart(cluster: &Cluster) -> Result<()> {
    let pods: Api<Pod> = cluster.api(RELEASE);
    let before: Vec<String> = pods.list(&ListParams::default()).await?.iter().filter_map(Pod::uid).collect();
    pods.delete_collection(&kube::api::DeleteParams::default(), &ListParams::default()).await?;
    until(SOON, "all pods are new", async || {
        let now = pods.list(&ListParams::default()).await?;
        match now.iter().find(|pod| pod.uid().is_some_and(|uid| before.contains(&uid))) {
            Some(old) => bail!("{} is still there", old.name_any()),
            None => Ok(Some(())),
        }
    })
    .await
}
