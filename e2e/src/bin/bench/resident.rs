//! What our components keep for pods that are just there: memory at rest without any pod and with many, and how long a
//! component needs to be Ready when it is started beside them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::install::{RELEASE, available};
use e2e::process::Signal;
use e2e::setup::{self, SOURCE};
use e2e::wait::until;
use serde_json::json;
use tokio::time::sleep;

use crate::burst::{NAMESPACE, PATIENCE, begin, clear, start};
use crate::recorder::Recorder;
use crate::report::round;

/// Before memory is read.
const QUIET: Duration = Duration::from_secs(60);
/// Bytes of memory a pod may cost a component, of a component without pods, and how soon it is Ready beside them.
const MOST_A_POD: f64 = 3000.0;
const MOST_EMPTY: u64 = 30 * 1_048_576;
const MOST_START: Duration = Duration::from_secs(10);

/// Resident memory of the largest replica of each component, by cluster and component.
type Memory = BTreeMap<String, u64>;

/// Returns the table with the last line, and whether the bars hold.
pub(crate) async fn run(pods: usize, targets: usize) -> Result<(String, bool)> {
    let ground = start(targets, pods).await?;
    setup::install(&ground, &[]).await?;
    setup::connect_all(&ground).await?;
    setup::electing_namespace(&ground, NAMESPACE).await?;
    sleep(QUIET).await;
    let empty = memory(&ground)?;
    let source = ground.cluster(SOURCE)?;
    let recorder = Recorder::start(source, NAMESPACE);
    begin(source, pods).await?;
    let mut told = Instant::now();
    until(PATIENCE, &format!("{pods} pods are Ready"), async || {
        let ready = recorder.ready();
        if told.elapsed() > Duration::from_secs(30) {
            told = Instant::now();
            eprintln!("  {ready} of {pods} Ready");
        }
        Ok((ready >= pods).then_some(()))
    })
    .await?;
    sleep(QUIET).await;
    let full = memory(&ground)?;
    let mut starts = BTreeMap::new();
    for cluster in ground.clusters() {
        starts.extend(cold(cluster).await?);
    }
    clear(source, &recorder).await?;
    ground.check_faults()?;
    report(pods, &empty, &full, &starts)
}

fn memory(ground: &Ground) -> Result<Memory> {
    let mut memory = Memory::new();
    for cluster in ground.clusters() {
        for (key, usage) in cluster.local()?.kubelet.usage() {
            let component = key.rsplit('/').next().unwrap_or_default();
            let most = memory.entry(format!("{} {component}", cluster.name)).or_default();
            *most = usage.resident_bytes.max(*most);
        }
    }
    Ok(memory)
}

/// Kills all replicas of all components of a cluster; returns after how long all are available again.
async fn cold(cluster: &Cluster) -> Result<Option<(String, Duration)>> {
    let kubelet = &cluster.local()?.kubelet;
    let mut victims = Vec::new();
    for (key, _) in kubelet.usage() {
        let mut parts = key.split('/');
        if let (Some(namespace), Some(pod), Some(container)) = (parts.next(), parts.next(), parts.next())
            && namespace == RELEASE
        {
            victims.push(kubelet.process(namespace, pod, container)?);
        }
    }
    if victims.is_empty() {
        return Ok(None);
    }
    for victim in &victims {
        victim.signal(Signal::Kill).await?;
        victim.wait().await;
    }
    let start = Instant::now();
    available(cluster, RELEASE)
        .await
        .with_context(|| format!("{} after its components were killed", cluster.name))?;
    Ok(Some((cluster.name.clone(), start.elapsed())))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of memory and counts of pods are small")]
fn report(
    pods: usize,
    empty: &Memory,
    full: &Memory,
    starts: &BTreeMap<String, Duration>,
) -> Result<(String, bool)> {
    let mut text = String::new();
    writeln!(text, "{:<40} {:>12} {:>12} {:>12}", "component", "empty MiB", "full MiB", "bytes a pod")?;
    let (mut rows, mut good) = (Vec::new(), true);
    for (name, with) in full {
        let without = empty.get(name).copied().unwrap_or_default();
        let each = with.saturating_sub(without) as f64 / pods as f64;
        good &= each <= MOST_A_POD && without <= MOST_EMPTY;
        let mebibytes = |bytes: u64| bytes as f64 / 1_048_576.0;
        writeln!(text, "{name:<40} {:>12.1} {:>12.1} {each:>12.0}", mebibytes(without), mebibytes(*with))?;
        rows.push(json!({"component": name, "empty_bytes": without, "full_bytes": with, "bytes_per_pod": each.round()}));
    }
    for (cluster, took) in starts {
        good &= *took <= MOST_START;
        writeln!(text, "all components of {cluster} are Ready {took:.1?} after they were killed")?;
    }
    let starts: BTreeMap<&String, f64> =
        starts.iter().map(|(name, took)| (name, round(took.as_secs_f64()))).collect();
    writeln!(text, "\n{}", json!({"work": "resident", "pods": pods, "rows": rows, "cold_start_s": starts}))?;
    Ok((text, good))
}
