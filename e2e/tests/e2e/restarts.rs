//! Components that are killed or frozen in the middle of a burst: every pod runs, and none twice.

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::install::RELEASE;
use e2e::process::{Process, Signal};
use e2e::setup::{SOURCE, targets};
use e2e::wait::until;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::installed::settled;
use crate::placement::deployment;
use crate::scene::{LONG, Scene, component_pods, merge};

const PODS: usize = 40;

/// The processes of all replicas of a component that run now.
pub(crate) async fn processes(cluster: &Cluster, component: &str) -> Result<Vec<Process>> {
    let kubelet = &cluster.local()?.kubelet;
    let pods = component_pods(cluster, component).await?;
    // A replica that has just been killed is between two processes.
    let running: Vec<Process> =
        pods.iter().filter_map(|pod| kubelet.process(RELEASE, &pod.name_any(), component).ok()).collect();
    ensure!(!running.is_empty(), "no {component} runs in {}", cluster.name);
    Ok(running)
}

pub(crate) async fn a_component_killed_amid_a_burst_loses_and_doubles_nothing(ground: &Ground) -> Result<()> {
    for component in ["proxy-scheduler", "candidate-scheduler", "chaperon-controller", "feedback-controller"]
    {
        killed(ground, component).await.with_context(|| component.to_owned())?;
    }
    Ok(())
}

async fn killed(ground: &Ground, component: &str) -> Result<()> {
    let scene = Scene::open(ground, &format!("killed-{component}")).await?;
    settled(ground).await?;
    deployment(&scene, PODS).await?;
    until(LONG, "some delegates run", async || {
        Ok((scene.recorder.delegates().len() >= PODS / 4).then_some(()))
    })
    .await?;
    let in_source = ["proxy-scheduler", "feedback-controller"].contains(&component);
    let source = ground.cluster(SOURCE)?;
    let clusters: Vec<&Cluster> = if in_source { vec![source] } else { targets(ground).collect() };
    for cluster in clusters {
        for process in processes(cluster, component).await? {
            process.signal(Signal::Kill).await?;
        }
    }
    let pods = scene.ready(PODS).await?;
    ensure!(pods.len() == PODS, "{} pods", pods.len());
    let delegates = scene.recorder.delegates();
    ensure!(delegates.len() == PODS, "{} delegates for {PODS} pods", delegates.len());
    settled(ground).await?;
    scene.close().await
}

pub(crate) async fn case_095_a_frozen_leader_is_replaced_and_does_no_harm_when_it_wakes(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "frozen-leader").await?;
    settled(ground).await?;
    let leases: Api<Lease> = scene.source.api(RELEASE);
    let component = "proxy-scheduler";
    let holder = async || -> Result<String> {
        let lease = leases.get(&format!("multicluster-{component}")).await?;
        lease.spec.and_then(|spec| spec.holder_identity).context("nobody leads")
    };
    deployment(&scene, PODS / 4).await?;
    scene.ready(PODS / 4).await?;
    let first = holder().await?;
    let pods = component_pods(scene.source, component).await?;
    let leader = pods.iter().find(|pod| first.contains(&pod.name_any())).context("the leader has no pod")?;
    let process = scene.source.local()?.kubelet.process(RELEASE, &leader.name_any(), component)?;
    process.signal(Signal::Stop).await?;
    let outcome = async {
        let more = json!({"spec": {"replicas": PODS}});
        merge(scene.source, Some(&scene.namespace), ("apps/v1", "Deployment"), "web", more).await?;
        scene.ready(PODS).await?;
        ensure!(holder().await? != first, "nobody else leads");
        anyhow::Ok(())
    };
    let outcome = outcome.await;
    process.signal(Signal::Cont).await?;
    outcome?;
    settled(ground).await?;
    scene.ready(PODS).await?;
    let delegates = scene.recorder.delegates();
    ensure!(delegates.len() == PODS, "{} delegates for {PODS} pods", delegates.len());
    scene.close().await
}
