//! The burst: all pods at once, by a Deployment or one by one, first in the plain cluster, then in the source.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use e2e::controlplane::Options;
use e2e::ground::Ground;
use e2e::nodes::{Shape, create_many};
use e2e::process::Usage;
use e2e::setup::{self, SOURCE};
use e2e::wait::until;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;

use crate::profile::Profiles;
use crate::recorder::Recorder;
use crate::report::{Half, Report};
use crate::writes::Counters;

pub(crate) const NAMESPACE: &str = "burst";
pub(crate) const PLAIN: &str = "plain";
/// How many create pods at the same time where no controller does.
const CLIENTS: usize = 32;
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);
/// How long the rate of writes at rest is measured.
const REST: Duration = Duration::from_secs(15);
/// Pods for each node, fewer than it could hold.
pub(crate) const PODS_PER_NODE: usize = 100;

/// What is created, how, and what is looked at meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) pods: usize,
    /// Without any controller: by as many clients as [`CLIENTS`] says.
    pub(crate) bare: bool,
    pub(crate) profiles: Option<&'a Profiles>,
}

impl Load<'_> {
    pub(crate) fn deployment(pods: usize) -> Self {
        Self { pods, bare: false, profiles: None }
    }

    /// Creates the Deployment, or the first of the pods, and returns when; all are there then.
    async fn begin(&self, cluster: &Cluster) -> Result<Instant> {
        if !self.bare {
            return begin(cluster, self.pods).await;
        }
        let pods: Api<Pod> = cluster.api(NAMESPACE);
        let start = Instant::now();
        let created = stream::iter(0..self.pods).map(async |number| {
            let pod = json!({"metadata": {"name": format!("burst-{number}")}, "spec": spec()});
            pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
            anyhow::Ok(())
        });
        created.buffer_unordered(CLIENTS).try_collect::<()>().await?;
        Ok(start)
    }

    async fn clear(&self, cluster: &Cluster, recorder: &Recorder) -> Result<()> {
        if !self.bare {
            return clear(cluster, recorder).await;
        }
        let pods: Api<Pod> = cluster.api(NAMESPACE);
        pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        all_gone(recorder).await
    }
}

pub(crate) async fn run(load: Load<'_>, targets: usize) -> Result<Report> {
    let ground = start(targets, load.pods).await?;
    let plain = half(&ground, &[PLAIN], load).await.context("the plain cluster")?;
    eprintln!("plain: {} pods Ready after {:.1?}; installing the chart", plain.ready, plain.duration);
    setup::install(&ground, &[]).await?;
    setup::connect_all(&ground).await?;
    let mut involved = vec![SOURCE];
    involved.extend(setup::targets(&ground).map(|target| target.name.as_str()));
    let ours = half(&ground, &involved, load).await.context("source and targets")?;
    ground.check_faults()?;
    Ok(Report { load: if load.bare { "direct" } else { "burst" }, pods: load.pods, targets, plain, ours })
}

/// A plain cluster, a source and targets, of which each alone could hold all pods; the plain cluster has as many nodes
/// as all targets together.
pub(crate) async fn start(targets: usize, pods: usize) -> Result<Ground> {
    let names: Vec<String> = (1..=targets).map(|number| format!("target-{number}")).collect();
    let mut clusters = vec![PLAIN, SOURCE];
    clusters.extend(names.iter().map(String::as_str));
    eprintln!("starting {} control planes", clusters.len());
    let options = Options { unlimited: true, stops_after: Some(Duration::ZERO), ..Options::default() };
    let ground = Ground::start(&clusters, options).await?;
    let nodes = pods.div_ceil(PODS_PER_NODE).saturating_add(1);
    create_many(&ground.cluster(PLAIN)?.client, "node", nodes.saturating_mul(targets), &Shape::default())
        .await?;
    for target in &names {
        create_many(&ground.cluster(target)?.client, "node", nodes, &Shape::default()).await?;
    }
    Ok(ground)
}

/// Runs the load in the first of these clusters and measures all of them.
pub(crate) async fn half(ground: &Ground, involved: &[&str], load: Load<'_>) -> Result<Half> {
    let pods = load.pods;
    let clusters: Vec<&Cluster> = involved.iter().map(|name| ground.cluster(name)).collect::<Result<_>>()?;
    let (first, others) = clusters.split_first().context("no cluster")?;
    for cluster in &clusters {
        cluster.create_namespace(NAMESPACE, if others.is_empty() { &[] } else { &setup::ELECTING }).await?;
    }
    let idle = Snapshot::take(&clusters).await?;
    tokio::time::sleep(REST).await;
    let before = Snapshot::take(&clusters).await?;

    let recorder = Recorder::start(first, NAMESPACE);
    let delegates: Vec<Recorder> = others.iter().map(|cluster| Recorder::start(cluster, NAMESPACE)).collect();
    let start = load.begin(first).await?;
    let mut told = 0;
    let profiled = async {
        match load.profiles {
            Some(profiles) => profiles.take(&clusters).await,
            None => Ok(()),
        }
    };
    let what = format!("{pods} pods are Ready");
    let waited = until(PATIENCE, &what, async || {
        let ready = recorder.ready();
        if ready >= told + pods.div_ceil(5) {
            told = ready;
            eprintln!("  {ready} of {pods} Ready after {:.1?}", start.elapsed());
        }
        Ok((ready >= pods).then(|| start.elapsed()))
    });
    let (outcome, profiled) = tokio::join!(waited, profiled);
    profiled?;
    let after = Snapshot::take(&clusters).await?;
    if let Err(error) = &outcome {
        eprintln!("{error:#}");
        ground.dump_for_people("multicluster-bench").await;
    }
    let half = Half {
        ready: recorder.ready(),
        duration: outcome.unwrap_or(PATIENCE),
        records: recorder.records(),
        delegates: delegates.iter().flat_map(Recorder::records).collect(),
        writes: after.writes(&before, &idle),
        usage: after.usage(&before),
    };
    load.clear(first, &recorder).await?;
    Ok(half)
}

/// Creates the Deployment, and returns when.
pub(crate) async fn begin(cluster: &Cluster, pods: usize) -> Result<Instant> {
    let deployments: Api<Deployment> = cluster.api(NAMESPACE);
    let start = Instant::now();
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment(pods))?).await?;
    Ok(start)
}

/// Deletes the Deployment and waits until its pods are gone.
pub(crate) async fn clear(cluster: &Cluster, recorder: &Recorder) -> Result<()> {
    let deployments: Api<Deployment> = cluster.api(NAMESPACE);
    deployments.delete("burst", &DeleteParams::default()).await?;
    all_gone(recorder).await
}

async fn all_gone(recorder: &Recorder) -> Result<()> {
    until(PATIENCE, "all pods are gone", async || Ok((recorder.present() == 0).then_some(()))).await
}

fn deployment(pods: usize) -> serde_json::Value {
    json!({
        "metadata": {"name": "burst"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": "burst"}},
            "template": {
                "metadata": {"labels": {"app": "burst"}},
                "spec": spec(),
            },
        },
    })
}

fn spec() -> serde_json::Value {
    json!({"containers": [{
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }]})
}

/// All counters at one moment.
struct Snapshot {
    writes: BTreeMap<String, Counters>,
    usage: BTreeMap<String, Usage>,
}

impl Snapshot {
    async fn take(clusters: &[&Cluster]) -> Result<Self> {
        let (mut writes, mut usage) = (BTreeMap::new(), BTreeMap::new());
        for cluster in clusters {
            writes.insert(cluster.name.clone(), Counters::read(cluster).await?);
            let local = cluster.local()?;
            for process in &local.processes {
                let used = process.usage().unwrap_or_default();
                usage.insert(format!("{} {}", cluster.name, process.name), used);
            }
            for (key, used) in local.kubelet.usage() {
                let component = key.rsplit('/').next().unwrap_or_default();
                let sum: &mut Usage = usage.entry(format!("{} {component}", cluster.name)).or_default();
                sum.cpu_ticks = sum.cpu_ticks.saturating_add(used.cpu_ticks);
                sum.resident_bytes = sum.resident_bytes.saturating_add(used.resident_bytes);
            }
        }
        Ok(Self { writes, usage })
    }

    fn writes(&self, before: &Self, idle: &Self) -> crate::report::Writes {
        let pairs = self.writes.iter().filter_map(|(name, now)| {
            let (before, idle) = (before.writes.get(name)?, idle.writes.get(name)?);
            Some((name.clone(), now.beyond(before, &before.rates_since(idle))))
        });
        pairs.collect()
    }

    /// CPU time since an earlier moment, and memory now, of each process or component.
    fn usage(&self, before: &Self) -> BTreeMap<String, Usage> {
        let used = self.usage.iter().map(|(name, now)| {
            let earlier = before.usage.get(name).copied().unwrap_or_default();
            let cpu_ticks = now.cpu_ticks.saturating_sub(earlier.cpu_ticks);
            (name.clone(), Usage { cpu_ticks, resident_bytes: now.resident_bytes })
        });
        used.collect()
    }
}
