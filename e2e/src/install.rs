//! Installs the project's chart with helm, as a user does.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::cluster::Cluster;
use crate::ground::Ground;
use crate::helm::helm;
use crate::kubelet::{CONTROL_PLANE, NODE};
use crate::{namespaces, wait};

/// The name of the release, and of its namespace.
pub const RELEASE: &str = "multicluster-scheduler";

/// What a cluster is to others; each has a preset in the chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its pods run in other clusters.
    Source,
    /// It runs pods of other clusters.
    Target,
    /// Both.
    Both,
}

impl Role {
    fn preset(self) -> &'static str {
        match self {
            Self::Source => "values-source.yaml",
            Self::Target => "values-target.yaml",
            Self::Both => "values-all.yaml",
        }
    }
}

/// The project's charts with their dependencies in place.
#[derive(Debug, Clone)]
pub struct Charts {
    folder: PathBuf,
}

impl Charts {
    /// Copies the charts into the run's folder and lets helm put their dependencies in place there.
    ///
    /// # Errors
    /// When a file cannot be copied or helm refuses a chart.
    pub async fn prepare(ground: &Ground) -> Result<Self> {
        Self::prepare_changed(ground, "charts", &[]).await
    }

    /// As [`Charts::prepare`], in a folder of its own, after changes to the copy: for each a file below
    /// `charts/`, the text to find in it, and what stands there instead.
    ///
    /// # Errors
    /// Also when a text is not found.
    pub async fn prepare_changed(
        ground: &Ground,
        name: &str,
        changes: &[(&str, &str, &str)],
    ) -> Result<Self> {
        let base = if namespaces::are_inside() { namespaces::work() } else { std::env::temp_dir() };
        let folder = base.join(format!("{name}-{}", std::process::id()));
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts"), &folder)?;
        for (file, from, to) in changes {
            let path = folder.join(file);
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read charts/{file}"))?;
            if !text.contains(from) {
                bail!("charts/{file} does not contain {from:?}");
            }
            std::fs::write(&path, text.replace(from, to)).with_context(|| format!("cannot change {file}"))?;
        }
        let charts = Self { folder };
        let mut names: Vec<String> = std::fs::read_dir(&charts.folder)
            .context("cannot read the charts")?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| charts.folder.join(name).join("Chart.yaml").is_file() && name != RELEASE)
            .collect();
        names.sort();
        // The umbrella takes the others as they are then.
        names.push(RELEASE.to_owned());
        let cluster = ground.clusters().next().context("a run without clusters")?;
        for name in names {
            let chart = charts.folder.join(name).display().to_string();
            helm(ground, cluster, &["dependency", "update", "--skip-refresh", &chart]).await?;
        }
        Ok(charts)
    }

    /// The folder of the umbrella chart.
    #[must_use]
    pub fn umbrella(&self) -> PathBuf {
        self.folder.join(RELEASE)
    }

    /// Installs or upgrades the chart with these further arguments, and waits until every Deployment of the
    /// release is available.
    ///
    /// # Errors
    /// When helm fails or a Deployment does not get available: with what its pods say.
    pub async fn install(&self, ground: &Ground, cluster: &Cluster, role: Role, more: &[&str]) -> Result<()> {
        self.upgrade(ground, cluster, role, more).await?;
        available(cluster, RELEASE).await
    }

    /// Installs or upgrades the chart with these further arguments, without waiting.
    ///
    /// # Errors
    /// When helm fails.
    pub async fn upgrade(&self, ground: &Ground, cluster: &Cluster, role: Role, more: &[&str]) -> Result<()> {
        let umbrella = self.umbrella();
        let (chart, preset) = (umbrella.display().to_string(), umbrella.join(role.preset()));
        let preset = format!("--values={}", preset.display());
        let selector = format!("--set-json=global.nodeSelector={}", json!({"kubernetes.io/hostname": NODE}));
        let toleration = json!([{"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}]);
        let tolerations = format!("--set-json=global.tolerations={toleration}");
        let mut arguments = vec![
            "upgrade",
            "--install",
            RELEASE,
            &chart,
            "--namespace",
            RELEASE,
            "--create-namespace",
            &preset,
        ];
        // Clusters that the run did not start have nodes that can run containers.
        if ground.is_local() {
            arguments.extend([selector.as_str(), tolerations.as_str()]);
        }
        arguments.extend(more);
        helm(ground, cluster, &arguments).await.map(drop)
    }
}

/// Waits until every Deployment of a namespace is available in its newest form.
///
/// # Errors
/// When one does not get available in time, with its conditions.
pub async fn available(cluster: &Cluster, namespace: &str) -> Result<()> {
    let deployments: Api<Deployment> = cluster.api(namespace);
    let what = format!("all components in {} are available", cluster.name);
    wait::until(wait::SOON, &what, async || {
        let list = deployments.list(&ListParams::default()).await?;
        if list.items.is_empty() {
            bail!("namespace {namespace} has no Deployment");
        }
        for deployment in list.items {
            if !is_available(&deployment) {
                bail!("{}: {}", deployment.metadata.name.unwrap_or_default(), json!(deployment.status));
            }
        }
        Ok(Some(()))
    })
    .await
}

fn is_available(deployment: &Deployment) -> bool {
    let want = deployment.spec.replicas.unwrap_or(1);
    let Some(status) = &deployment.status else { return false };
    let is_current = status.observed_generation >= deployment.metadata.generation;
    is_current
        && status.updated_replicas.unwrap_or(0) == want
        && status.available_replicas.unwrap_or(0) == want
        && status.replicas.unwrap_or(0) == want
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry.context("cannot read a folder of charts")?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    Ok(())
}
