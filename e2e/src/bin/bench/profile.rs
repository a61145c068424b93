//! Profiles of the API servers while a work runs, for `go tool pprof`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use futures::AsyncReadExt as _;
use futures::future::try_join_all;

/// How many seconds each profile covers.
const SECONDS: usize = 10;

/// Where profiles go, and what they are of.
#[derive(Debug, Clone)]
pub(crate) struct Profiles {
    pub(crate) folder: PathBuf,
}

impl Profiles {
    /// Profiles the processors of these clusters' API servers from now on.
    pub(crate) async fn take(&self, clusters: &[&Cluster]) -> Result<()> {
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))?;
        try_join_all(clusters.iter().map(async |cluster| {
            let file = self.folder.join(format!("{}.pprof", cluster.name));
            profile(cluster, &file).await.with_context(|| format!("a profile of {}", cluster.name))
        }))
        .await
        .map(drop)
    }
}

async fn profile(cluster: &Cluster, file: &Path) -> Result<()> {
    let path = format!("/debug/pprof/profile?seconds={SECONDS}");
    let request = http::Request::get(path).body(Vec::new()).context("not a path")?;
    let mut body = std::pin::pin!(cluster.client.request_stream(request).await?);
    let mut bytes = Vec::new();
    body.read_to_end(&mut bytes).await?;
    std::fs::write(file, bytes).with_context(|| format!("cannot write {}", file.display()))
}
