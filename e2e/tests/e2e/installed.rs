//! The chart in all clusters and the source connected to both targets, once for all tests that need it.

use anyhow::{Result, anyhow};
use e2e::ground::Ground;
use e2e::{install, setup};
use tokio::sync::OnceCell;

static INSTALLED: OnceCell<Result<(), String>> = OnceCell::const_new();

/// Installs everything when the first test needs it; all tests learn when that failed.
pub(crate) async fn installed(ground: &Ground) -> Result<()> {
    let outcome = INSTALLED.get_or_init(async || {
        let outcome = async {
            // What one test publishes about targets moves no pod of another.
            setup::install(ground, &["--set=proxy-scheduler.config.scoreWeights.rehearsal=0"]).await?;
            setup::connect_all(ground).await
        };
        outcome.await.map_err(|error| format!("{error:#}"))
    });
    outcome.await.clone().map_err(|error| anyhow!("the installation that all tests share failed: {error}"))
}

/// Waits until all components are as they were after the installation, for tests that disturbed one.
pub(crate) async fn settled(ground: &Ground) -> Result<()> {
    for cluster in ground.clusters() {
        install::available(cluster, install::RELEASE).await?;
    }
    setup::targets_ready(ground).await
}
