//! What a pod costs: requests to the API servers, counted by the API servers themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::setup::targets;
use e2e::wait::throughout;
use serde_json::Value;

use crate::installed::settled;
use crate::placement::deployment;
use crate::scene::Scene;

const PODS: usize = 50;
/// The most writes that a pod may cost in all clusters together, from its creation to Ready.
const WRITES: f64 = 12.0;
/// Writes of heartbeats and of questions about rights do not belong to pods.
const APART: [&str; 5] =
    ["leases", "nodes/status", "serviceaccounts/token", "tokenreviews", "subjectaccessreviews"];

pub(crate) async fn a_pod_costs_at_most_twelve_writes(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "writes").await?;
    settled(ground).await?;
    let (start, before) = (Instant::now(), count(ground).await?);
    throughout(Duration::from_secs(10), "idle", async || Ok(true)).await?;
    let (idle, quiet) = (start.elapsed(), count(ground).await?);
    let (start, from) = (Instant::now(), count(ground).await?);
    deployment(&scene, PODS).await?;
    scene.ready(PODS).await?;
    let (busy, to) = (start.elapsed(), count(ground).await?);
    let share = busy.as_secs_f64() / idle.as_secs_f64();
    let since = |now: &Writes, then: &Writes, key: &String| {
        now.get(key).copied().unwrap_or_default() - then.get(key).copied().unwrap_or_default()
    };
    let per_pod = |key: &String| {
        let writes = since(&to, &from, key) - since(&quiet, &before, key) * share;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let pods = PODS as f64;
        writes.max(0.0) / pods
    };
    let table: Vec<(String, f64)> = to.keys().map(|key| (key.clone(), per_pod(key))).collect();
    let total: f64 = table.iter().map(|(_, writes)| writes).sum();
    let seen: Vec<String> = table
        .iter()
        .filter(|(_, writes)| *writes >= 0.01)
        .map(|(key, writes)| format!("{key} {writes:.2}"))
        .collect();
    ensure!(total <= WRITES, "a pod cost {total:.2} writes: {}", seen.join(", "));
    // A count of nearly nothing would show that the wrong thing was counted.
    ensure!(total >= 8.0, "only {total:.2} writes a pod: {}", seen.join(", "));
    scene.close().await
}

type Writes = BTreeMap<String, f64>;

async fn count(ground: &Ground) -> Result<Writes> {
    let mut all = Writes::new();
    for cluster in ground.clusters() {
        for line in cluster.metrics().await?.lines() {
            let Some((key, value)) = write(line) else { continue };
            *all.entry(format!("{} {key}", cluster.name)).or_default() += value;
        }
    }
    Ok(all)
}

/// Verb, resource and number of a line of metrics that counts writes of pods and of what belongs to them.
fn write(line: &str) -> Option<(String, f64)> {
    let (labels, value) = line.strip_prefix("apiserver_request_total{")?.split_once("} ")?;
    let label = |name: &str| {
        labels.split(',').find_map(|one| one.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
    };
    let verb = label("verb")?;
    let is_write = matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION");
    let resource = match (label("resource")?, label("subresource").unwrap_or_default()) {
        (resource, "") => resource.to_owned(),
        (resource, subresource) => format!("{resource}/{subresource}"),
    };
    let is_dry = label("dry_run").is_some_and(|mode| !mode.is_empty());
    if !is_write || is_dry || APART.contains(&resource.as_str()) {
        return None;
    }
    Some((format!("{verb} {resource}"), value.trim().parse().ok()?))
}

pub(crate) async fn w02_chaperons_are_watched_and_not_read_for_each_pod(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "reads").await?;
    deployment(&scene, 20).await?;
    scene.ready(20).await?;
    let mut writes = 0;
    for target in targets(ground) {
        let seen = requests(target, "podchaperons", &scene.namespace).context(target.name.clone())?;
        let reads: Vec<&Value> =
            seen.iter().filter(|event| ["get", "list"].iter().any(|verb| event["verb"] == *verb)).collect();
        ensure!(
            reads.len() <= 2,
            "{} reads of chaperons in {}: {:?}",
            reads.len(),
            target.name,
            reads.first()
        );
        writes += seen.iter().filter(|event| event["verb"] == "create").count();
    }
    ensure!(writes >= 20, "the audit log shows only {writes} creations");
    scene.close().await
}

/// What was asked of the API server about objects of a namespace, by others than the tests.
pub(crate) fn requests(cluster: &Cluster, resource: &str, namespace: &str) -> Result<Vec<Value>> {
    let log = cluster.local()?.folder.join("audit.log");
    let text = std::fs::read(&log).with_context(|| format!("cannot read {}", log.display()))?;
    let text = String::from_utf8_lossy(&text);
    let events = text.lines().filter(|line| line.contains(resource)).filter_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        let about =
            event["objectRef"]["resource"] == resource && event["objectRef"]["namespace"] == namespace;
        let user = event["user"]["username"].as_str().unwrap_or_default();
        (about && user.starts_with("system:serviceaccount:")).then_some(event)
    });
    Ok(events.collect())
}
