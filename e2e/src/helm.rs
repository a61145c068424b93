//! Helm and kubectl, as a user calls them.

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::ground::Ground;
use crate::{namespaces, tools};

/// Runs helm against a cluster with these arguments and returns what it printed.
///
/// # Errors
/// When helm fails, with what it said.
pub async fn helm(ground: &Ground, cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    run(ground, cluster, "helm", arguments).await.with_context(|| format!("helm in {}", cluster.name))
}

/// Runs kubectl against a cluster with these arguments and returns what it printed.
///
/// # Errors
/// When kubectl fails, with what it said.
pub async fn kubectl(ground: &Ground, cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    run(ground, cluster, "kubectl", arguments).await.with_context(|| format!("kubectl in {}", cluster.name))
}

async fn run(ground: &Ground, cluster: &Cluster, program: &str, arguments: &[&str]) -> Result<String> {
    tools::output(command(ground, cluster, program, arguments)?).await
}

/// A command of helm or kubectl against a cluster, not started yet.
///
/// # Errors
/// When there can be no home for it.
pub fn command(ground: &Ground, cluster: &Cluster, program: &str, arguments: &[&str]) -> Result<Command> {
    let home = home()?;
    let mut command = Command::new(ground.binaries.path(program));
    command
        .arg(format!("--kubeconfig={}", cluster.kubeconfig.display()))
        .args(arguments)
        .env_clear()
        .env("HOME", &home)
        .env("HELM_CACHE_HOME", home.join("helm-cache"))
        .env("HELM_CONFIG_HOME", home.join("helm-config"))
        .env("HELM_DATA_HOME", home.join("helm-data"))
        .kill_on_drop(true);
    Ok(command)
}

fn home() -> Result<std::path::PathBuf> {
    let base = if namespaces::are_inside() { namespaces::work() } else { std::env::temp_dir() };
    let home = base.join("home");
    std::fs::create_dir_all(&home).context("cannot make a home for helm")?;
    Ok(home)
}
