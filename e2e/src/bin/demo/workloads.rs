//! What the demonstration runs, and what must become of it.

use anyhow::{Context as _, Result, bail};
use e2e::ground::Ground;
use e2e::helm::kubectl;
use e2e::keys;
use e2e::setup::{self, SOURCE};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::table::Row;

/// The electing namespace.
pub(crate) const NAMESPACE: &str = "demo";

/// Public workloads of the release's own tests, with the images that stand for their placeholders.
const PUBLIC: [&str; 7] = [
    "guestbook/agnhost-primary-deployment.yaml.in",
    "guestbook/agnhost-primary-service.yaml",
    "guestbook/agnhost-replica-deployment.yaml.in",
    "guestbook/agnhost-replica-service.yaml",
    "guestbook/frontend-deployment.yaml.in",
    "guestbook/frontend-service.yaml",
    "kubectl/busybox-cronjob.yaml.in",
];

/// How many pods that run for ever each workload has, by the beginning of their names.
const LONG_RUNNING: [(&str, usize); 5] =
    [("agnhost-primary-", 1), ("agnhost-replica-", 2), ("frontend-", 3), ("web-", 4), ("queue-", 3)];

/// Creates the electing namespace and applies all workloads with kubectl.
pub(crate) async fn apply(ground: &Ground) -> Result<()> {
    let source = ground.cluster(SOURCE)?;
    setup::electing_namespace(ground, NAMESPACE).await?;
    let folder = e2e::namespaces::work().join("workloads");
    std::fs::create_dir_all(&folder).context("cannot make a folder for workloads")?;
    for path in PUBLIC {
        let text = ground.binaries.manifest(path)?;
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".in");
        std::fs::write(folder.join(name), text).context("cannot write a workload")?;
    }
    for (name, object) in own() {
        let text = serde_yaml::to_string(&object).context("cannot write a workload")?;
        std::fs::write(folder.join(format!("{name}.yaml")), text).context("cannot write a workload")?;
    }
    let folder = folder.display().to_string();
    kubectl(ground, source, &["apply", "--namespace", NAMESPACE, "--filename", &folder]).await.map(drop)
}

fn own() -> Vec<(&'static str, Value)> {
    let pods = |name: &str, policy: &str, annotations: Value| {
        json!({
            "metadata": {"labels": {"app": name}, "annotations": annotations},
            "spec": {"restartPolicy": policy, "containers": [{
                "name": name,
                "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}},
            }]},
        })
    };
    let selector = |name: &str| json!({"matchLabels": {"app": name}});
    vec![
        (
            "web",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"replicas": 4, "selector": selector("web"), "template": pods("web", "Always", json!({}))}}),
        ),
        (
            "queue",
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "queue"},
                "spec": {"replicas": 3, "serviceName": "queue", "selector": selector("queue"),
                    "template": pods("queue", "Always", json!({}))}}),
        ),
        (
            "report",
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "report"},
                "spec": {"completions": 3, "parallelism": 2,
                    "template": pods("report", "Never", json!({keys::RUNS_FOR: "5s"}))}}),
        ),
    ]
}

/// Fails until every long-running workload has its pods, Ready in a target, and no others.
pub(crate) fn all_run(pods: &[Row]) -> Result<()> {
    for (prefix, want) in LONG_RUNNING {
        let of_it = || pods.iter().filter(|pod| pod.name.starts_with(prefix));
        let ready = of_it().filter(|pod| pod.is_ready && !pod.cluster.is_empty() && !pod.is_leaving).count();
        if ready != want || of_it().count() != want {
            bail!("{ready} of {want} pods {prefix}* are Ready in a target, {} are there", of_it().count());
        }
    }
    Ok(())
}

/// Fails until the Job is complete and the CronJob has completed one.
pub(crate) async fn jobs_are_done(ground: &Ground) -> Result<()> {
    let jobs: Api<Job> = ground.cluster(SOURCE)?.api(NAMESPACE);
    let jobs = jobs.list(&ListParams::default()).await.context("cannot list Jobs")?.items;
    for prefix in ["report", "cronjob-test-"] {
        let mut of_it = jobs.iter().filter(|job| job.name_any().starts_with(prefix));
        if !of_it.any(|job| has(job, "Complete")) {
            bail!("no Job {prefix}* is complete");
        }
    }
    match jobs.iter().find(|job| has(job, "Failed")) {
        Some(job) => bail!("Job {} failed", job.name_any()),
        None => Ok(()),
    }
}

fn has(job: &Job, condition: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|is| is.type_ == condition && is.status == "True")
}

/// Checks that a target holds no pod of the namespace any more.
pub(crate) async fn nothing_left(ground: &Ground, target: &str) -> Result<()> {
    let pods: Api<Pod> = ground.cluster(target)?.api(NAMESPACE);
    let left = pods.list(&ListParams::default()).await.context("cannot list what is left")?;
    match left.items.first() {
        Some(pod) => bail!("{target} still has pod {}", pod.metadata.name.as_deref().unwrap_or_default()),
        None => Ok(()),
    }
}
