//! Public workloads, applied to the source as they are: what each pod needs is where it runs before it does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::keys;
use e2e::setup::targets;
use e2e::wait::{throughout, until};
use futures::future::{LocalBoxFuture, try_join_all};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::data::Storage;
use crate::guest::{fake_pod, is};
use crate::recorder::appearing;
use crate::scene::{LONG, Scene, brief};

/// A workload of the release's own tests.
struct Workload {
    name: &'static str,
    files: &'static [&'static str],
    /// How many pods it has that run for ever, and how many claims.
    pods: usize,
    claims: usize,
    /// Services that lead to its pods.
    services: &'static [&'static str],
}

const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "guestbook",
        files: &[
            "guestbook/agnhost-primary-service.yaml",
            "guestbook/agnhost-primary-deployment.yaml.in",
            "guestbook/agnhost-replica-service.yaml",
            "guestbook/agnhost-replica-deployment.yaml.in",
            "guestbook/frontend-service.yaml",
            "guestbook/frontend-deployment.yaml.in",
        ],
        pods: 6,
        claims: 0,
        services: &["agnhost-primary", "agnhost-replica", "frontend"],
    },
    Workload {
        name: "cassandra",
        files: &[
            "statefulset/cassandra/service.yaml",
            "statefulset/cassandra/pdb.yaml",
            "statefulset/cassandra/statefulset.yaml",
            "statefulset/cassandra/tester.yaml",
        ],
        pods: 6,
        claims: 3,
        services: &["cassandra", "test-server"],
    },
    Workload {
        name: "zookeeper",
        files: &["statefulset/zookeeper/service.yaml", "statefulset/zookeeper/statefulset.yaml"],
        pods: 3,
        claims: 3,
        services: &["zk"],
    },
    Workload {
        name: "etcd",
        files: &[
            "statefulset/etcd/service.yaml",
            "statefulset/etcd/pdb.yaml",
            "statefulset/etcd/statefulset.yaml",
            "statefulset/etcd/tester.yaml",
        ],
        pods: 6,
        claims: 3,
        services: &["etcd"],
    },
    Workload {
        name: "mysql-upgrade",
        files: &[
            "statefulset/mysql-upgrade/configmap.yaml",
            "statefulset/mysql-upgrade/service.yaml",
            "statefulset/mysql-upgrade/statefulset.yaml",
            "statefulset/mysql-upgrade/tester.yaml",
        ],
        pods: 6,
        claims: 3,
        services: &["mysql", "mysql-read", "test-server"],
    },
    Workload {
        name: "cockroachdb",
        files: &["statefulset/cockroachdb/service.yaml", "statefulset/cockroachdb/statefulset.yaml"],
        pods: 3,
        claims: 3,
        services: &["cockroachdb"],
    },
];

/// One test for each of them.
pub(crate) fn cases() -> Vec<Case> {
    let of = |workload: &'static Workload| Case {
        name: format!("workloads::{}_runs_over_two_targets_unchanged", workload.name.replace('-', "_")),
        alone: false,
        needs_local: true,
        run: Box::new(move |ground| -> LocalBoxFuture<'_, Result<()>> {
            Box::pin(conduct(ground, workload))
        }),
    };
    WORKLOADS.iter().map(of).collect()
}

/// The objects of a manifest.
fn read(ground: &Ground, file: &str) -> Result<Vec<Value>> {
    let text = ground.binaries.manifest(file)?;
    let documents = text.split("\n---").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
    documents.map(|text| serde_yaml::from_str(text).with_context(|| format!("{file} is no YAML"))).collect()
}

async fn apply(scene: &Scene<'_>, file: &str) -> Result<()> {
    for object in read(scene.ground, file)? {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        scene.create(&version, &kind, object).await.with_context(|| format!("{kind} of {file}"))?;
    }
    Ok(())
}

/// What was seen of a target, in the order of its own versions.
#[derive(Default)]
struct Book {
    /// When an object came to be, by kind and name.
    births: BTreeMap<(String, String), u64>,
    /// Pods: when they came to be, and what they name.
    pods: BTreeMap<String, (u64, Vec<(String, String)>)>,
}

/// Watches what comes to be in one namespace of a target.
struct Watch {
    book: Arc<Mutex<Book>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Watch {
    async fn start(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let book = Arc::<Mutex<Book>>::default();
        let mut tasks = Vec::new();
        for kind in ["ConfigMap", "Secret", "PersistentVolumeClaim", "ServiceAccount", "Pod"] {
            let seen = Arc::clone(&book);
            let note = move |object: &DynamicObject, version| note(&seen, kind, object, version);
            tasks.push(appearing(cluster.dynamic("v1", kind, Some(namespace)), note).await?);
        }
        Ok(Self { book, tasks })
    }

    /// Fails when a pod came before what it names.
    fn check(&self, cluster: &str) -> Result<usize> {
        let book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        for (pod, (born, names)) in &book.pods {
            for name in names {
                let there = book.births.get(name);
                ensure!(
                    there.is_some_and(|there| there < born),
                    "{name:?} came after pod {pod} in {cluster}"
                );
            }
        }
        Ok(book.pods.len())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Notes an object that came to be, and of a pod what it names.
fn note(book: &Mutex<Book>, kind: &'static str, object: &DynamicObject, version: u64) {
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    if kind == "Pod" {
        let names = named(&object.data["spec"]);
        book.pods.entry(object.name_any()).or_insert((version, names));
    } else {
        book.births.entry((kind.to_owned(), object.name_any())).or_insert(version);
    }
}

/// What a pod names that must be there.
fn named(spec: &Value) -> Vec<(String, String)> {
    let fields = [
        ("ConfigMap", "/configMap/name"),
        ("Secret", "/secret/secretName"),
        ("PersistentVolumeClaim", "/persistentVolumeClaim/claimName"),
    ];
    let mut names = Vec::new();
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        for (kind, path) in fields {
            let name = volume.pointer(path).and_then(Value::as_str);
            names.extend(name.map(|name| (kind.to_owned(), name.to_owned())));
        }
    }
    let account = spec["serviceAccountName"].as_str().unwrap_or("default");
    names.push(("ServiceAccount".to_owned(), account.to_owned()));
    names
}

async fn conduct(ground: &Ground, workload: &Workload) -> Result<()> {
    let scene = Scene::open(ground, &format!("workload-{}", workload.name)).await?;
    let _storage = Storage::start(ground, &scene.namespace).await?;
    let mut watches = Vec::new();
    for target in targets(ground) {
        watches.push((target, Watch::start(target, &scene.namespace).await?));
    }
    for file in workload.files {
        apply(&scene, file).await?;
    }
    let pods = scene.ready(workload.pods).await?;
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for pod in &pods {
        *places.entry(pod.spec.clone().and_then(|spec| spec.node_name).unwrap_or_default()).or_default() += 1;
    }
    let mut delegates = 0;
    for (target, watch) in &watches {
        delegates += watch.check(&target.name)?;
    }
    ensure!(delegates == workload.pods, "{delegates} delegates of {} pods", workload.pods);
    eprintln!("{}: {} pods, behind {places:?}", workload.name, workload.pods);
    let mut claims = 0;
    for target in targets(ground) {
        let api = target.dynamic("v1", "PersistentVolumeClaim", Some(&scene.namespace));
        claims += api.list(&ListParams::default()).await?.items.len();
    }
    ensure!(claims == workload.claims, "{claims} claims in targets");
    for service in workload.services {
        leads_to_pods(&scene, service, &places).await?;
    }
    scene.close().await
}

/// Waits until a Service leads to pods wherever it is, and is somewhere.
async fn leads_to_pods(scene: &Scene<'_>, service: &str, places: &BTreeMap<String, usize>) -> Result<()> {
    until(LONG, &format!("Service {service} leads to pods"), async || {
        let mut copies = 0;
        for target in targets(scene.ground) {
            let services = target.dynamic("v1", "Service", Some(&scene.namespace));
            if services.get_opt(service).await?.is_none() {
                continue;
            }
            copies += 1;
            let slices = target.dynamic("discovery.k8s.io/v1", "EndpointSlice", Some(&scene.namespace));
            let of = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
            let found: usize = slices
                .list(&of)
                .await?
                .items
                .iter()
                .map(|slice| slice.data["endpoints"].as_array().map_or(0, Vec::len))
                .sum();
            ensure!(found > 0, "{service} leads nowhere in {}", target.name);
        }
        ensure!(copies > 0 && copies <= places.len(), "{copies} copies, pods are behind {places:?}");
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn a_cron_job_runs_in_targets_unchanged(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "workload-cron").await?;
    apply(&scene, "kubectl/busybox-cronjob.yaml.in").await?;
    let pods = scene.pods();
    until(LONG, "a pod of the CronJob has succeeded in a target", async || {
        let all = pods.list(&ListParams::default()).await?.items;
        let succeeded =
            |pod: &&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Succeeded");
        if let Some(pod) = all.iter().find(succeeded) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            ensure!(node.contains("target-"), "it ran on {node:?}");
            return Ok(Some(()));
        }
        bail!("{:?}", all.iter().map(brief).collect::<Vec<_>>())
    })
    .await?;
    scene.close().await
}

/// How many steps of the workflow run at once.
const STEPS: usize = 10;

pub(crate) async fn case_106_case_107_a_workflow_of_ten_steps_is_stopped_and_ends(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "workflow").await?;
    // As workflow engines name them.
    let name = |step: usize| {
        format!("{}-{step:04}", "a-workflow-with-a-very-long-name-".repeat(3).trim_matches('-'))
    };
    let step = |number: usize, runs: &str| {
        let mut pod = fake_pod(&name(number));
        pod["metadata"]["labels"] = json!({"workflows.argoproj.io/workflow": "w"});
        pod["metadata"]["annotations"] = json!({keys::RUNS_FOR: runs});
        pod["spec"]["restartPolicy"] = json!("Never");
        pod
    };
    // All but the last end by themselves; that one waits for a word.
    let long = "1h";
    try_join_all(
        (0..STEPS)
            .map(async |number| scene.pod(step(number, if number + 1 == STEPS { long } else { "2s" })).await),
    )
    .await?;
    let pods = scene.pods();
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    until(LONG, "all steps but one have succeeded", async || {
        let all = pods.list(&ListParams::default()).await?.items;
        let ended = all.iter().filter(|pod| phase(pod) == "Succeeded").count();
        ensure!(ended == STEPS - 1, "{ended} have succeeded");
        Ok(all.iter().any(|pod| is(pod, "Ready")).then_some(()))
    })
    .await?;
    // The engine stops it as engines do: by an annotation that the pod itself reads.
    let last = name(STEPS - 1);
    let stop = json!({"metadata": {"annotations": {keys::RUNS_FOR: "1s"}}});
    crate::scene::merge(scene.source, Some(&scene.namespace), ("v1", "Pod"), &last, stop).await?;
    until(LONG, "the last step has heard and ends", async || {
        Ok((phase(&pods.get(&last).await?) == "Succeeded").then_some(()))
    })
    .await?;
    // A step whose pod vanishes ends all the same, with a reason.
    let lost = "lost-step";
    let mut pod = fake_pod(lost);
    pod["spec"]["restartPolicy"] = json!("Never");
    let uid = scene.pod(pod).await?.uid().context("a pod without UID")?;
    let (_, life) = scene.delegate(&uid, &[]).await?;
    let grace = kube::api::DeleteParams::default().grace_period(0);
    scene.beside(&life)?.delete(&life.name, &grace).await?;
    until(Duration::from_secs(60), "the step has ended", async || {
        let pod = pods.get(lost).await?;
        Ok((phase(&pod) == "Failed").then_some(()))
    })
    .await?;
    scene.close().await
}

/// For how many seconds a settled world is watched; more by hand.
const SETTLED: &str = "E2E_SETTLED_SECONDS";

/// What of a namespace is written by us in all clusters, reads aside.
fn written(scene: &Scene<'_>) -> Result<BTreeMap<String, usize>> {
    let mut count = BTreeMap::new();
    for cluster in scene.ground.clusters() {
        for resource in [
            "configmaps",
            "secrets",
            "services",
            "ingresses",
            "persistentvolumeclaims",
            "pods",
            "podchaperons",
        ] {
            for event in crate::budget::requests(cluster, resource, &scene.namespace)? {
                let user = event["user"]["username"].as_str().unwrap_or_default();
                let verb = event["verb"].as_str().unwrap_or_default();
                if user.contains("multicluster") && ["create", "patch", "update", "delete"].contains(&verb) {
                    *count.entry(format!("{verb} {resource} in {} by {user}", cluster.name)).or_default() +=
                        1;
                }
            }
        }
    }
    Ok(count)
}

pub(crate) async fn w40_w41_case_035_a_settled_world_costs_no_write(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "settled").await?;
    let _storage = Storage::start(ground, &scene.namespace).await?;
    for file in [
        "statefulset/mysql-upgrade/configmap.yaml",
        "statefulset/mysql-upgrade/service.yaml",
        "statefulset/mysql-upgrade/statefulset.yaml",
    ] {
        apply(&scene, file).await?;
    }
    let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "mysql-read", "port": {"number": 3306}}}});
    let ingress = json!({"metadata": {"name": "mysql"}, "spec": {"rules": [{"http": {"paths": [path]}}]}});
    scene.create("networking.k8s.io/v1", "Ingress", ingress).await?;
    scene.ready(3).await?;
    // Whatever lingers or is coalesced comes to its end.
    throughout(Duration::from_secs(15), "quiet", async || Ok(true)).await?;
    let before = written(&scene)?;
    ensure!(before.values().sum::<usize>() > 10, "hardly anything was counted: {before:?}");
    let seconds = std::env::var_os(SETTLED).and_then(|text| text.to_str()?.parse().ok()).unwrap_or(20);
    throughout(Duration::from_secs(seconds), "quiet", async || Ok(true)).await?;
    let after = written(&scene)?;
    let new: Vec<_> = after.iter().filter(|(what, count)| before.get(*what) != Some(*count)).collect();
    eprintln!(
        "{} writes of {seconds} settled seconds, after {} before",
        new.len(),
        before.values().sum::<usize>()
    );
    ensure!(new.is_empty(), "{new:?}");
    scene.close().await
}
