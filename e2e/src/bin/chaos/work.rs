//! The workloads: what is made, what is expected of it in the end, and what is left when it is deleted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::keys::RUNS_FOR;
use e2e::setup::{SOURCE, targets};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::NAMESPACE;
use crate::faults::Dice;
use crate::tally::Tally;

/// Pods of the Deployment that is counted, and how many more may run for a moment.
pub(crate) const REPLICAS: usize = 8;
pub(crate) const SURGE: usize = 0;
/// The Deployment whose pods stay where they are, and are deleted one by one.
pub(crate) const STAYS: &str = "churn";
const ORDINALS: usize = 3;
/// Pods of each Job.
const INDEXES: usize = 4;
const CHAPERONS: &str = "multicluster.admiralty.io/v1alpha1";
/// Between two Jobs and two bare pods.
const PAUSE: Duration = Duration::from_secs(6);
const CALL: Duration = Duration::from_secs(10);

/// What is made in the source.
pub(crate) struct Work<'a> {
    source: &'a Cluster,
    targets: Vec<&'a Cluster>,
    unfenced: bool,
    made: AtomicUsize,
}

impl<'a> Work<'a> {
    pub(crate) fn new(ground: &'a Ground, unfenced: bool) -> Result<Self> {
        let source = ground.cluster(SOURCE)?;
        Ok(Self { source, targets: targets(ground).collect(), unfenced, made: AtomicUsize::new(0) })
    }

    fn pods(&self) -> Api<Pod> {
        self.source.api(NAMESPACE)
    }

    /// Creates an object; one that is there already is no error. An API server may be down.
    async fn create(&self, group_version: &str, kind: &str, mut object: Value) -> Result<()> {
        let fields = object.as_object_mut().context("not an object")?;
        fields.insert("apiVersion".into(), json!(group_version));
        fields.insert("kind".into(), json!(kind));
        let object: DynamicObject = serde_json::from_value(object).context("not an object")?;
        let api = self.source.dynamic(group_version, kind, Some(NAMESPACE));
        match timeout(CALL, api.create(&PostParams::default(), &object)).await.context("no answer")? {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(drop).with_context(|| format!("cannot create {kind}")),
        }
    }

    /// The annotations of pods that move: with proof, or without any.
    fn policy(&self, fence: &str) -> Value {
        let (failover, grace) = if self.unfenced { ("Move", "1s") } else { ("MoveOnce", "5m") };
        json!({
            "multicluster.admiralty.io/failover": failover,
            "multicluster.admiralty.io/failover-grace-period": grace,
            "multicluster.admiralty.io/fence": if self.unfenced { "Confirmed" } else { fence },
        })
    }

    pub(crate) async fn begin(&self) -> Result<()> {
        let template = |app: &str, annotations: Value| json!({"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": container("Always")});
        let spread = |app: &str, mut annotations: Value| {
            let spread = json!([{"maxSkew": 1, "topologyKey": "multicluster.admiralty.io/cluster-target-name",
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": app}}}]);
            annotations["multicluster.admiralty.io/proxy-pod-scheduling-constraints"] =
                json!(json!({"topologySpreadConstraints": spread}).to_string());
            template(app, annotations)
        };
        let selector = |app: &str| json!({"matchLabels": {"app": app}});
        self.create(
            "apps/v1",
            "Deployment",
            json!({"metadata": {"name": "web"}, "spec": {"replicas": REPLICAS,
            "selector": selector("web"), "template": spread("web", self.policy("Lease"))}}),
        )
        .await?;
        self.create(
            "apps/v1",
            "StatefulSet",
            json!({"metadata": {"name": "db"}, "spec": {"replicas": ORDINALS,
            "selector": selector("db"), "podManagementPolicy": "Parallel", "serviceName": "db",
            "template": spread("db", self.policy("Confirmed"))}}),
        )
        .await?;
        // Its pods are deleted now and then; by default they stay.
        self.create(
            "apps/v1",
            "Deployment",
            json!({"metadata": {"name": STAYS}, "spec": {"replicas": REPLICAS,
            "selector": selector(STAYS), "template": template(STAYS, json!({}))}}),
        )
        .await
    }

    /// Makes Jobs and bare pods, and deletes pods, until the end.
    pub(crate) async fn churn(&self, end: Instant, seed: u64) {
        let mut dice = Dice::new(seed ^ 0x5eed);
        while Instant::now() < end {
            sleep(PAUSE).await;
            let number = self.made.load(Ordering::Relaxed);
            let policy = if number.is_multiple_of(2) { "Never" } else { "OnFailure" };
            let made = async {
                self.create("batch/v1", "Job", job(number, policy)).await?;
                self.create("v1", "Pod", bare(number, policy)).await
            };
            // The number is taken when both are there: an API server may have been down.
            if made.await.is_ok() {
                self.made.fetch_add(1, Ordering::Relaxed);
            }
            drop(timeout(CALL, self.delete_one(&mut dice)).await);
        }
    }

    async fn delete_one(&self, dice: &mut Dice) -> Result<()> {
        let all = self.pods().list(&ListParams::default().labels("app=churn")).await?.items;
        let Some(victim) = all.get(dice.below(all.len())) else { return Ok(()) };
        self.pods().delete(&victim.name_any(), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until everything is as its owner wants it.
    pub(crate) async fn settled(&self, patience: Duration) -> Result<()> {
        until(patience, "all workloads are as they should be", async || {
            for (kind, name, want) in [
                ("Deployment", "web", REPLICAS),
                ("Deployment", STAYS, REPLICAS),
                ("StatefulSet", "db", ORDINALS),
            ] {
                let object = self.source.dynamic("apps/v1", kind, Some(NAMESPACE)).get(name).await?;
                let ready =
                    object.data.pointer("/status/readyReplicas").and_then(Value::as_u64).unwrap_or_default();
                ensure!(usize::try_from(ready) == Ok(want), "{ready} of {want} pods of {name} are ready");
            }
            let open = self.open().await?;
            ensure!(open.is_empty(), "not done: {open:?}");
            let waiting: Vec<String> =
                self.pods().list(&ListParams::default()).await?.items.iter().filter_map(waits).collect();
            ensure!(waiting.is_empty(), "not as they should be: {waiting:?}");
            Ok(Some(()))
        })
        .await
    }

    /// Jobs that are not complete, and bare pods that have not ended or are not there.
    async fn open(&self) -> Result<BTreeSet<String>> {
        let jobs =
            self.source.dynamic("batch/v1", "Job", Some(NAMESPACE)).list(&ListParams::default()).await?.items;
        let complete = |job: &DynamicObject| e2e::connect::has_condition(job, "Complete", "True");
        let done: BTreeSet<String> =
            jobs.iter().filter(|job| complete(job)).map(ResourceExt::name_any).collect();
        let pods = self.pods().list(&ListParams::default().labels("bare=true")).await?.items;
        let ended = pods.iter().filter(|pod| explained(pod)).map(ResourceExt::name_any);
        let done: BTreeSet<String> = done.into_iter().chain(ended).collect();
        let made = self.made.load(Ordering::Relaxed);
        let all = (0..made).flat_map(|number| [format!("job-{number}"), format!("bare-{number}")]);
        Ok(all.filter(|name| !done.contains(name)).collect())
    }

    /// What is lost or stuck in the end.
    pub(crate) async fn judge(&self, tally: &mut Tally) -> Result<()> {
        for name in self.open().await? {
            tally.lost += 1;
            tally.finding(format!("{name} did not come to its end"));
        }
        for pod in self.pods().list(&ListParams::default()).await?.items.iter().filter_map(waits) {
            tally.stuck += 1;
            tally.finding(format!("stuck: {pod}"));
        }
        Ok(())
    }

    /// Deletes everything, and counts what does not go.
    pub(crate) async fn end(&self, tally: &mut Tally) -> Result<()> {
        for (group_version, kind) in
            [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job"), ("v1", "Pod")]
        {
            let api = self.source.dynamic(group_version, kind, Some(NAMESPACE));
            let params = DeleteParams::background();
            api.delete_collection(&params, &ListParams::default())
                .await
                .with_context(|| format!("cannot delete {kind}"))?;
        }
        let gone = until(Duration::from_secs(180), "everything is gone", async || {
            let left = self.left().await?;
            if left.is_empty() {
                return Ok(Some(()));
            }
            bail!("{left:?}")
        });
        if gone.await.is_err() {
            for name in self.left().await? {
                tally.stuck += 1;
                tally.finding(format!("left: {name}"));
            }
        }
        Ok(())
    }

    async fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for cluster in self.targets.iter().chain([&self.source]) {
            let pods: Api<Pod> = cluster.api(NAMESPACE);
            for pod in pods.list(&ListParams::default()).await?.items {
                left.push(format!("{}/pod {}", cluster.name, pod.name_any()));
            }
        }
        for cluster in &self.targets {
            let api = cluster.dynamic(CHAPERONS, "PodChaperon", Some(NAMESPACE));
            let all = api.list(&ListParams::default()).await?.items;
            left.extend(
                all.iter().map(|chaperon| format!("{}/PodChaperon {}", cluster.name, chaperon.name_any())),
            );
        }
        Ok(left)
    }
}

fn container(restart: &str) -> Value {
    json!({"restartPolicy": restart, "terminationGracePeriodSeconds": 2, "containers": [{"name": "main",
        "image": "nowhere.example/any:1", "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}}}]})
}

fn job(number: usize, restart: &str) -> Value {
    let template = json!({"metadata": {"annotations": {RUNS_FOR: "4s"}}, "spec": container(restart)});
    json!({"metadata": {"name": format!("job-{number}")}, "spec": {"completions": INDEXES, "parallelism": INDEXES,
        "completionMode": "Indexed", "backoffLimit": 50, "podReplacementPolicy": "Failed", "template": template}})
}

fn bare(number: usize, restart: &str) -> Value {
    json!({"metadata": {"name": format!("bare-{number}"), "labels": {"bare": "true"},
        "annotations": {RUNS_FOR: "5s"}}, "spec": container(restart)})
}

/// A bare pod that did its work, or says why it did not.
fn explained(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    match status.phase.as_deref() {
        Some("Succeeded") => true,
        Some("Failed") => status.reason.is_some(),
        _ => false,
    }
}

/// A pod that neither runs nor has ended.
fn waits(pod: &Pod) -> Option<String> {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.unwrap_or_default();
    let ready = status.conditions.iter().flatten().any(|is| is.type_ == "Ready" && is.status == "True");
    let deleted = pod.metadata.deletion_timestamp.is_some();
    let fine = !deleted && (ready || matches!(phase.as_str(), "Succeeded" | "Failed"));
    (!fine).then(|| format!("{} {phase}{}", pod.name_any(), if deleted { ", being deleted" } else { "" }))
}
