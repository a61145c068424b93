//! A third target that only some tests use, each by a Target of its own namespace.

use anyhow::{Result, anyhow};
use e2e::cluster::Cluster;
use e2e::connect::{Kind, connect};
use e2e::ground::Ground;
use e2e::install::{Charts, Role};
use e2e::nodes::{Shape, create_many};
use tokio::sync::OnceCell;

use crate::scene::Scene;

static THIRD: OnceCell<Result<Cluster, String>> = OnceCell::const_new();

/// The third target, started and installed when the first test needs it.
pub(crate) async fn third(ground: &Ground) -> Result<&'static Cluster> {
    let outcome = THIRD.get_or_init(async || {
        let started = async {
            let cluster = ground.start_another("third").await?;
            create_many(&cluster.client, "fake", 2, &Shape::default()).await?;
            let charts = Charts::prepare_changed(ground, "third", &[]).await?;
            charts.install(ground, &cluster, Role::Target, &[]).await?;
            anyhow::Ok(cluster)
        };
        started.await.map_err(|error| format!("{error:#}"))
    });
    outcome.await.as_ref().map_err(|error| anyhow!("the third target did not come up: {error}"))
}

/// Connects the namespace of a scene with the third target by a Source and a Target.
pub(crate) async fn join(scene: &Scene<'_>) -> Result<&'static Cluster> {
    let third = third(scene.ground).await?;
    connect(scene.source, third, &Kind::Namespaced(scene.namespace.clone())).await?;
    Ok(third)
}
