//! Clusters, charts and connections, as tests, demo and benchmarks need them all.

use anyhow::{Context as _, Result};
use futures::future::try_join_all;

use crate::cluster::Cluster;
use crate::connect::{self, Kind};
use crate::ground::Ground;
use crate::install::{Charts, RELEASE, Role};

/// The source cluster of a run.
pub const SOURCE: &str = "source";

/// Labels of a namespace whose pods are all elected.
pub const ELECTING: [(&str, &str); 2] =
    [("multicluster-scheduler", "enabled"), ("multicluster.admiralty.io/elect", "all")];

/// Creates a namespace with the same name in all clusters, in the source with every pod elected.
///
/// # Errors
/// When an API server refuses it.
pub async fn electing_namespace(ground: &Ground, name: &str) -> Result<()> {
    for cluster in ground.clusters() {
        cluster.create_namespace(name, if cluster.name == SOURCE { &ELECTING } else { &[] }).await?;
    }
    Ok(())
}

/// The targets of a run: those of its clusters that are called `target-1`, `target-2` and so on.
pub fn targets(ground: &Ground) -> impl Iterator<Item = &Cluster> {
    ground.clusters().filter(|cluster| cluster.name.starts_with("target-"))
}

/// Installs the chart in the source and in every target, each in its role, all at the same time.
///
/// # Errors
/// When a chart cannot be installed or a component does not get available.
pub async fn install(ground: &Ground, more: &[&str]) -> Result<Charts> {
    let charts = Charts::prepare(ground).await?;
    let source = ground.cluster(SOURCE)?;
    let all = std::iter::once(source).chain(targets(ground)).map(|cluster| {
        let role = if cluster.name == SOURCE { Role::Source } else { Role::Target };
        let charts = charts.clone();
        async move {
            let installed = charts.install(ground, cluster, role, more).await;
            installed.with_context(|| format!("cannot install the chart in {}", cluster.name))
        }
    });
    try_join_all(all).await?;
    Ok(charts)
}

/// Connects the source with every target for all namespaces, and waits until all targets are Ready.
///
/// # Errors
/// When a target does not get Ready.
pub async fn connect_all(ground: &Ground) -> Result<()> {
    let source = ground.cluster(SOURCE)?;
    let kind = Kind::ClusterWide(RELEASE.to_owned());
    try_join_all(targets(ground).map(|target| connect::connect(source, target, &kind))).await?;
    targets_ready(ground).await
}

/// Waits until the ClusterTargets of all targets are Ready.
///
/// # Errors
/// When one does not get Ready.
pub async fn targets_ready(ground: &Ground) -> Result<()> {
    let (source, kind) = (ground.cluster(SOURCE)?, Kind::ClusterWide(RELEASE.to_owned()));
    try_join_all(targets(ground).map(|target| connect::ready(source, &target.name, &kind))).await.map(drop)
}

/// The virtual node of a ClusterTarget in the source.
///
/// # Errors
/// When its status does not name one.
pub async fn virtual_node(ground: &Ground, target: &str) -> Result<String> {
    let source = ground.cluster(SOURCE)?;
    let object =
        source.dynamic("multicluster.admiralty.io/v1alpha1", "ClusterTarget", None).get(target).await?;
    let node = object.data.pointer("/status/virtualNode").and_then(|value| value.as_str());
    node.map(ToOwned::to_owned).with_context(|| format!("ClusterTarget {target} names no virtual node"))
}
