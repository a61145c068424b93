//! One of two targets stops answering in the middle of a burst.
//!
//! Every pod that was not bound to it by then must get Ready in the healthy target, in at most twice the time
//! that this target alone needs for as many; the bound ones must get Ready when the frozen one goes on.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::controlplane::Options;
use e2e::ground::Ground;
use e2e::helm::kubectl;
use e2e::install::RELEASE;
use e2e::nodes::{Shape, create_many};
use e2e::process::{Process, Signal};
use e2e::setup::{self, SOURCE};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::burst::{NAMESPACE, PATIENCE, PODS_PER_NODE, begin, clear};
use crate::recorder::{Record, Recorder};
use crate::report::round;

const FROZEN: &str = "target-1";
const HEALTHY: &str = "target-2";

/// What is frozen in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Its API server.
    ApiServer,
    /// All replicas of its candidate-scheduler.
    CandidateScheduler,
}

/// Freezes a target when half of the burst is bound, and returns what it showed as text, and whether it is
/// good.
pub(crate) async fn run(pods: usize, what: What) -> Result<(String, bool)> {
    let clusters = [SOURCE, FROZEN, HEALTHY];
    eprintln!("starting {} control planes", clusters.len());
    let options = Options { unlimited: true, stops_after: Some(Duration::ZERO), ..Options::default() };
    let ground = Ground::start(&clusters, options).await?;
    for target in [FROZEN, HEALTHY] {
        let nodes = pods.div_ceil(PODS_PER_NODE).saturating_add(1);
        create_many(&ground.cluster(target)?.client, "node", nodes, &Shape::default()).await?;
    }
    setup::install(&ground, &[]).await?;
    setup::connect_all(&ground).await?;
    setup::electing_namespace(&ground, NAMESPACE).await?;
    let disturbed = disturbed(&ground, pods, what).await?;
    eprintln!("the healthy target alone");
    let alone = alone(&ground, disturbed.rest).await?;
    ground.check_faults()?;
    let ratio = disturbed.seconds / alone;
    let line = json!({
        "work": match what {
            What::ApiServer => "freeze-api-server",
            What::CandidateScheduler => "freeze-candidate-scheduler",
        },
        "pods": pods,
        "bound_to_frozen": disturbed.bound,
        "for_healthy": disturbed.rest,
        "healthy_s": round(disturbed.seconds),
        "alone_s": round(alone),
        "ratio": round(ratio),
        "frozen_ready_after_thaw_s": round(disturbed.after_thaw),
    });
    Ok((format!("\n{line}\n"), ratio <= 2.0))
}

struct Disturbed {
    /// Pods that were bound to the target when it was frozen.
    bound: usize,
    /// Pods that had still to get Ready, and were not bound to it.
    rest: usize,
    /// From the freeze to the last of them.
    seconds: f64,
    /// From the thaw to the last Ready of all.
    after_thaw: f64,
}

async fn disturbed(ground: &Ground, pods: usize, what: What) -> Result<Disturbed> {
    let (source, target) = (ground.cluster(SOURCE)?, ground.cluster(FROZEN)?);
    let node = setup::virtual_node(ground, FROZEN).await?;
    let victims = victims(target, what).await?;
    let recorder = Recorder::start(source, NAMESPACE);
    begin(source, pods).await?;
    until(PATIENCE, "half of the burst is bound", async || {
        let bound = recorder.records().iter().filter(|(_, record)| record.node.is_some()).count();
        Ok((bound >= pods / 2).then_some(()))
    })
    .await?;
    for victim in &victims {
        victim.signal(Signal::Stop).await?;
    }
    let start = Instant::now();
    let is_bound = |record: &Record| record.node.as_deref() == Some(&node);
    // The API server of the source tells, not the watch, which may lag behind.
    let list: Api<Pod> = source.api(NAMESPACE);
    let at_freeze = list.list(&ListParams::default()).await?.items;
    let on_frozen = |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(&node);
    let bound: Vec<String> = at_freeze.iter().filter(on_frozen).filter_map(Pod::uid).collect();
    let waiting = recorder
        .records()
        .iter()
        .filter(|(uid, record)| record.ready.is_none() && !bound.contains(uid))
        .count();
    let not_seen = pods.saturating_sub(recorder.records().len());
    eprintln!("frozen: {} pods are bound there, {waiting} wait, {not_seen} are still to come", bound.len());
    let outcome = until(PATIENCE, "all other pods are Ready", async || {
        let records = recorder.records();
        let others = records.iter().filter(|(uid, record)| !bound.contains(uid) && !record.gone);
        let ready = others.filter(|(_, record)| record.ready.is_some()).count();
        Ok((ready >= pods.saturating_sub(bound.len())).then(|| start.elapsed()))
    })
    .await;
    let later =
        recorder.records().iter().filter(|(uid, record)| is_bound(record) && !bound.contains(uid)).count();
    for victim in &victims {
        victim.signal(Signal::Cont).await?;
    }
    let thaw = Instant::now();
    let elapsed = outcome?;
    ensure!(
        what == What::CandidateScheduler || later == 0,
        "{later} pods were bound to the frozen target later"
    );
    until(PATIENCE, "the bound pods are Ready too", async || Ok((recorder.ready() >= pods).then_some(())))
        .await?;
    let after_thaw = thaw.elapsed().as_secs_f64();
    clear(source, &recorder).await?;
    let rest = waiting.saturating_add(not_seen);
    Ok(Disturbed { bound: bound.len(), rest, seconds: elapsed.as_secs_f64(), after_thaw })
}

/// The time that the healthy target needs for so many pods when there is no other.
async fn alone(ground: &Ground, pods: usize) -> Result<f64> {
    let source = ground.cluster(SOURCE)?;
    let node = setup::virtual_node(ground, FROZEN).await?;
    kubectl(ground, source, &["cordon", &node]).await?;
    let recorder = Recorder::start(source, NAMESPACE);
    let start = begin(source, pods).await?;
    until(PATIENCE, "all pods are Ready", async || Ok((recorder.ready() >= pods).then_some(()))).await?;
    let seconds = start.elapsed().as_secs_f64();
    clear(source, &recorder).await?;
    Ok(seconds)
}

async fn victims(target: &Cluster, what: What) -> Result<Vec<Process>> {
    if what == What::ApiServer {
        return Ok(vec![target.process("kube-apiserver")?.clone()]);
    }
    let component = "candidate-scheduler";
    let selector = ListParams::default().labels(&format!("app.kubernetes.io/component={component}"));
    let pods: Api<Pod> = target.api(RELEASE);
    let pods = pods.list(&selector).await.context("cannot list the candidate-scheduler's pods")?;
    ensure!(!pods.items.is_empty(), "{} has no {component}", target.name);
    let kubelet = &target.local()?.kubelet;
    pods.iter().map(|pod| kubelet.process(RELEASE, &pod.name_any(), component)).collect()
}
