//! Replicas of virtual-kubelet share the virtual nodes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::install::RELEASE;
use e2e::process::Signal;
use e2e::setup::virtual_node;
use e2e::wait::until;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use crate::scene::{LONG, Scene, component_pods, scale};

const COMPONENT: &str = "virtual-kubelet";
const TARGET: &str = "target-1";
/// How soon another replica serves a node.
const TAKEN_OVER: Duration = Duration::from_secs(15);
/// Long enough for two heartbeats of a node.
const BEATS: Duration = Duration::from_secs(25);

/// The replica whose address a node shows.
async fn server(source: &Cluster, node: &str) -> Result<Pod> {
    let nodes: Api<Node> = Api::all(source.client.clone());
    let status = nodes.get(node).await?.status.context("no status")?;
    let address = status.addresses.into_iter().flatten().next().context("no address")?.address;
    let replicas = component_pods(source, COMPONENT).await?;
    let is_there =
        |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()) == Some(&address);
    replicas.into_iter().find(is_there).with_context(|| format!("no replica has address {address}"))
}

/// Which replicas have written a node or its Lease since then, in order, each time that it was another one.
fn writers(source: &Cluster, node: &str, since: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(source.local()?.folder.join("audit.log"))?;
    let mut writes: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|line| line.contains(node)) {
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        let text =
            |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_write = ["patch", "update", "create", "delete"].contains(&text("/verb").as_str());
        let ours = text("/user/username").ends_with(":multicluster-virtual-kubelet");
        let at = text("/requestReceivedTimestamp");
        if is_write && ours && text("/objectRef/name") == node && at.as_str() > since {
            writes.push((at, text("/user/extra/authentication.kubernetes.io~1pod-name/0")));
        }
    }
    writes.sort();
    let mut in_turn: Vec<String> = writes.into_iter().map(|(_, pod)| pod).collect();
    in_turn.dedup();
    Ok(in_turn)
}

pub(crate) async fn what_a_lost_replica_had_is_served_within_fifteen_seconds_and_never_by_two(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "shares").await?;
    let source = scene.source;
    let before = scale(source, COMPONENT, 3).await?;
    let node = virtual_node(ground, TARGET).await?;
    let serves = async || {
        let answer = source.raw(&format!("/api/v1/nodes/{node}/proxy/healthz")).await?;
        let replica = server(source, &node).await?;
        ensure!(answer == "ok", "{answer}");
        anyhow::Ok(replica.name_any())
    };
    // Three that came have shared anew when nothing changes any more.
    let mut last = (String::new(), Instant::now());
    until(LONG, "the same replica serves the node for a while", async || {
        let now = serves().await?;
        if now != last.0 {
            last = (now, Instant::now());
        }
        Ok((last.1.elapsed() > Duration::from_secs(6)).then_some(()))
    })
    .await?;
    let lost = last.0;
    let since = k8s_openapi::jiff::Timestamp::now().to_string();
    let process = source.local()?.kubelet.process(RELEASE, &lost, COMPONENT)?;
    process.signal(Signal::Stop).await?;
    let start = Instant::now();
    let next = until(LONG, "another replica serves the node", async || {
        let now = tokio::time::timeout(Duration::from_secs(2), serves()).await??;
        if now == lost {
            bail!("{now} still does");
        }
        Ok(Some(now))
    })
    .await;
    let took = start.elapsed();
    if next.is_err() {
        process.signal(Signal::Cont).await?;
    }
    let next = next?;
    ensure!(took <= TAKEN_OVER, "it took {took:?} until {next} served instead of {lost}");
    eprintln!("  another replica served after {took:.1?}");
    process.signal(Signal::Cont).await?;
    tokio::time::sleep(BEATS).await;
    let in_turn = writers(source, &node, &since)?;
    // It may get back what it had, once.
    let expected = [vec![next.clone()], vec![lost.clone(), next.clone()]];
    let back = [vec![next.clone(), lost.clone()], vec![lost.clone(), next.clone(), lost.clone()]];
    ensure!(
        expected.contains(&in_turn) || back.contains(&in_turn),
        "{lost} was frozen and {next} took over, but these wrote in turn: {in_turn:?}"
    );
    scale(source, COMPONENT, before).await?;
    scene.close().await
}
