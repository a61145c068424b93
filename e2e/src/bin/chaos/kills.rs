//! SIGKILL of every component, in random order, again and again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::install::RELEASE;
use e2e::process::{Process, Signal};
use e2e::setup::{SOURCE, targets};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tokio::time::{sleep, timeout};

use crate::faults::Dice;

const OF_SOURCE: [&str; 5] =
    ["webhook", "proxy-scheduler", "feedback-controller", "follow-controller", "virtual-kubelet"];
const OF_TARGET: [&str; 3] = ["candidate-scheduler", "chaperon-controller", "source-controller"];
/// In which each component of each cluster is killed once.
const ROUND: Duration = Duration::from_secs(45);

/// Kills until the end; returns how often each component was killed for certain, by cluster and component.
pub(crate) async fn until(ground: &Ground, end: Instant, seed: u64) -> Result<BTreeMap<String, usize>> {
    let source = ground.cluster(SOURCE)?;
    let mut victims: Vec<(&Cluster, &str)> = OF_SOURCE.iter().map(|component| (source, *component)).collect();
    for target in targets(ground) {
        victims.extend(OF_TARGET.iter().map(|component| (target, *component)));
    }
    let mut pods = BTreeMap::new();
    for (cluster, component) in &victims {
        pods.insert(name(cluster, component), replicas(cluster, component).await?);
    }
    let mut kills: BTreeMap<String, usize> = pods.keys().map(|name| (name.clone(), 0)).collect();
    let mut dice = Dice::new(seed);
    let pause = ROUND / u32::try_from(victims.len()).unwrap_or(1);
    while Instant::now() < end {
        dice.shuffle(&mut victims);
        for (cluster, component) in &victims {
            if Instant::now() >= end {
                break;
            }
            let name = name(cluster, component);
            let replicas = pods.get(&name).map(Vec::as_slice).unwrap_or_default();
            if kill(cluster, component, replicas, &mut dice).await
                && let Some(times) = kills.get_mut(&name)
            {
                *times += 1;
            }
            sleep(pause).await;
        }
    }
    Ok(kills)
}

fn name(cluster: &Cluster, component: &str) -> String {
    format!("{}/{component}", cluster.name)
}

/// The names of a component's pods, which stay while their containers are killed.
async fn replicas(cluster: &Cluster, component: &str) -> Result<Vec<String>> {
    let pods: Api<Pod> = cluster.api(RELEASE);
    let selector = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
    Ok(pods.list(&selector).await?.items.iter().map(ResourceExt::name_any).collect())
}

/// Kills one replica that runs, and sees it end.
async fn kill(cluster: &Cluster, component: &str, replicas: &[String], dice: &mut Dice) -> bool {
    let Ok(local) = cluster.local() else { return false };
    let running: Vec<Process> =
        replicas.iter().filter_map(|pod| local.kubelet.process(RELEASE, pod, component).ok()).collect();
    let Some(victim) = running.get(dice.below(running.len())) else { return false };
    if victim.ended().is_some() || victim.signal(Signal::Kill).await.is_err() {
        return false;
    }
    timeout(Duration::from_secs(5), victim.wait()).await.is_ok_and(|status| status.is_some())
}
