//! How long a change of a delegate's status takes to be seen on its proxy pod, with nothing else to do.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::setup::{self, SOURCE};
use e2e::wait::until;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::burst::{NAMESPACE, PATIENCE, start};
use crate::recorder::percentile;
use crate::report::round;

const ROUNDS: usize = 200;
const PAUSE: Duration = Duration::from_millis(300);
const CONDITION: &str = "bench.example/round";
/// The 99th of 100 changes is seen so soon.
const BAR: Duration = Duration::from_millis(100);

/// Returns the text with the last line, and whether the bar holds.
pub(crate) async fn run() -> Result<(String, bool)> {
    let ground = start(1, 1).await?;
    setup::install(&ground, &[]).await?;
    setup::connect_all(&ground).await?;
    let source = ground.cluster(SOURCE)?;
    let target = setup::targets(&ground).next().context("no target")?;
    setup::electing_namespace(&ground, NAMESPACE).await?;
    let proxies: Api<Pod> = source.api(NAMESPACE);
    let pod = json!({"metadata": {"name": "one"}, "spec": {"containers": [{"name": "main", "image": "nowhere.example/any:1"}]}});
    proxies.create(&kube::api::PostParams::default(), &serde_json::from_value(pod)?).await?;
    let delegates: Api<Pod> = target.api(NAMESPACE);
    let delegate = until(PATIENCE, "the delegate is Ready", async || {
        let all = delegates.list(&ListParams::default()).await?.items;
        Ok(all.into_iter().find(|pod| has(pod, "Ready", None)).map(|pod| pod.name_any()))
    })
    .await?;
    let mut seen = Vec::new();
    for number in 0..ROUNDS {
        sleep(PAUSE).await;
        seen.push(change(&delegates, &proxies, &delegate, &number.to_string()).await?);
    }
    seen.sort();
    let (p50, p99) = (percentile(&seen, 0.5), percentile(&seen, 0.99));
    let line = json!({"work": "status", "changes": ROUNDS, "p50_s": round(p50.as_secs_f64()), "p99_s": round(p99.as_secs_f64())});
    Ok((
        format!("{ROUNDS} changes seen on the proxy pod: p50 {p50:.1?}, p99 {p99:.1?}\n\n{line}\n"),
        p99 < BAR,
    ))
}

/// Changes the delegate's status; returns how long the proxy pod's watch took to show it.
async fn change(delegates: &Api<Pod>, proxies: &Api<Pod>, delegate: &str, message: &str) -> Result<Duration> {
    let from = proxies.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut events = std::pin::pin!(proxies.watch(&WatchParams::default(), &from).await?);
    let condition = json!({"type": CONDITION, "status": "True", "message": message});
    let patch = json!({"status": {"conditions": [condition]}});
    let start = Instant::now();
    delegates.patch_status(delegate, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let shown = async {
        while let Some(event) = events.next().await {
            if let WatchEvent::Modified(pod) = event?
                && has(&pod, CONDITION, Some(message))
            {
                return Ok(start.elapsed());
            }
        }
        anyhow::bail!("the watch ended")
    };
    timeout(Duration::from_secs(30), shown).await.context("a change is not shown")?
}

fn has(pod: &Pod, kind: &str, message: Option<&str>) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|is| {
        is.type_ == kind
            && is.status == "True"
            && message.is_none_or(|text| is.message.as_deref() == Some(text))
    })
}
