//! Where pods run, under which constraints, and what is said of those that run nowhere.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::ground::Ground;
use e2e::nodes::{self, Shape};
use e2e::wait::{throughout, until};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::guest::{becomes, fake_pod, with};
use crate::recorder::Life;
use crate::scene::{LONG, Scene, condition, key, merge, pinned, remove_node};

/// How soon a pod that waits must run once there is room.
const SECONDS: Duration = Duration::from_secs(20);

pub(crate) async fn pods_spread_over_both_targets(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "spread").await?;
    deployment(&scene, 12).await?;
    scene.ready(12).await?;
    let delegates = scene.recorder.delegates();
    ensure!(delegates.len() == 12, "{} delegates for 12 pods", delegates.len());
    for target in ["target-1", "target-2"] {
        let here = delegates.iter().filter(|life| life.cluster == target).count();
        ensure!(here >= 3, "{here} of 12 pods run in {target}");
    }
    scene.close().await
}

pub(crate) async fn deployment(scene: &Scene<'_>, replicas: usize) -> Result<()> {
    let container = json!({"name": "main", "image": "nowhere.example/any:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}});
    let template = json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
    let spec =
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    scene.create("apps/v1", "Deployment", json!({"metadata": {"name": "web"}, "spec": spec})).await
}

/// Two tainted nodes of one target that only pods of one test tolerate and choose.
pub(crate) struct Pool<'a> {
    pub(crate) cluster: &'a Cluster,
    name: String,
    size: usize,
}

impl<'a> Pool<'a> {
    pub(crate) async fn make(scene: &Scene<'a>, cluster: &str) -> Result<Self> {
        let cluster = scene.ground.cluster(cluster)?;
        let mut pool = Self { cluster, name: scene.namespace.clone(), size: 0 };
        pool.grow().await?;
        pool.grow().await?;
        Ok(pool)
    }

    pub(crate) async fn grow(&mut self) -> Result<()> {
        let shape = Shape {
            cpu: "2".into(),
            labels: BTreeMap::from([("pool".into(), self.name.clone())]),
            taints: vec![json!({"key": "pool", "value": self.name, "effect": "NoSchedule"})],
            ..Shape::default()
        };
        let node = format!("{}-{}", self.name, self.size);
        nodes::create(&self.cluster.client, &node, &shape).await?;
        self.size += 1;
        nodes::ready(&self.cluster.client, &node).await
    }

    /// A pod for the pool.
    pub(crate) fn pod(&self, name: &str) -> Result<Value> {
        let pod = with(fake_pod(name), "/spec/nodeSelector", json!({"pool": self.name}))?;
        with(pod, "/spec/tolerations", json!([{"key": "pool", "value": self.name}]))
    }

    /// The nodes on which delegates run, sorted.
    pub(crate) fn used(&self, scene: &Scene<'_>) -> Vec<String> {
        let running = scene.recorder.delegates().into_iter().filter(Life::runs);
        let mut nodes: Vec<String> = running.map(|life| life.node).collect();
        nodes.sort();
        nodes
    }

    pub(crate) async fn end(self) -> Result<()> {
        for number in 0..self.size {
            remove_node(self.cluster, &format!("{}-{number}", self.name)).await?;
        }
        Ok(())
    }
}

pub(crate) async fn node_selectors_and_taints_of_the_target_are_honoured(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "selectors").await?;
    let pool = Pool::make(&scene, "target-2").await?;
    scene.pod(pool.pod("tolerant")?).await?;
    let choosy = with(fake_pod("intolerant"), "/spec/nodeSelector", json!({"pool": pool.name}))?;
    scene.pod(choosy).await?;
    becomes(scene.source, &scene.namespace, "tolerant", "Ready").await?;
    let used = pool.used(&scene);
    ensure!(used.iter().all(|node| node.starts_with("selectors-")), "it runs on {used:?}");
    unschedulable(&scene, "intolerant", &["admiralty-target-1", "admiralty-target-2", "taint"]).await?;
    let intolerant = scene.pods().get("intolerant").await?;
    ensure!(intolerant.spec.is_some_and(|spec| spec.node_name.is_none()), "it was bound");
    scene.close().await?;
    pool.end().await
}

pub(crate) async fn case_100_pods_that_keep_apart_run_in_different_clusters(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "apart").await?;
    let term =
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    for name in ["a", "b", "c"] {
        let mut pod = with(fake_pod(name), "/spec/affinity", apart.clone())?;
        pod["metadata"]["labels"] = json!({"app": "apart"});
        pod["metadata"]["annotations"] =
            json!({key("use-constraints-from-spec-for-proxy-pod-scheduling"): ""});
        scene.pod(pod).await?;
    }
    let waits = one_waits(&scene, 2, &["anti-affinity"]).await?;
    let pods = scene.pods().list(&ListParams::default()).await?.items;
    let mut nodes: Vec<String> = pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect();
    nodes.sort();
    ensure!(nodes.len() == 2 && nodes.first() != nodes.last(), "they run on {nodes:?}");
    let runs = ["a", "b", "c"].into_iter().find(|name| *name != waits).unwrap_or_default();
    scene.pods().delete(runs, &DeleteParams::default()).await?;
    soon_ready(&scene, &waits).await?;
    scene.close().await
}

pub(crate) async fn w03_pods_with_one_host_port_run_one_on_a_node_and_the_next_when_one_goes(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "host-ports").await?;
    let pool = Pool::make(&scene, "target-1").await?;
    for name in ["a", "b", "c"] {
        let ports = json!([{"containerPort": 8080, "hostPort": 8080}]);
        scene.pod(with(pool.pod(name)?, "/spec/containers/0/ports", ports)?).await?;
    }
    let waits = one_waits(&scene, 2, &["ports"]).await?;
    ensure!(pool.used(&scene) == ["host-ports-0", "host-ports-1"], "they run on {:?}", pool.used(&scene));
    let runs = ["a", "b", "c"].into_iter().find(|name| *name != waits).unwrap_or_default();
    scene.pods().delete(runs, &DeleteParams::default()).await?;
    soon_ready(&scene, &waits).await?;
    scene.close().await?;
    pool.end().await
}

pub(crate) async fn w04_a_pod_that_found_no_room_runs_as_soon_as_a_node_is_added(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "room").await?;
    let mut pool = Pool::make(&scene, "target-1").await?;
    for name in ["a", "b", "c"] {
        let more_than_half = json!({"requests": {"cpu": "1200m"}});
        scene.pod(with(pool.pod(name)?, "/spec/containers/0/resources", more_than_half)?).await?;
    }
    let waits = one_waits(&scene, 2, &["cpu"]).await?;
    ensure!(pool.used(&scene) == ["room-0", "room-1"], "they run on {:?}", pool.used(&scene));
    pool.grow().await?;
    soon_ready(&scene, &waits).await?;
    ensure!(pool.used(&scene) == ["room-0", "room-1", "room-2"], "they run on {:?}", pool.used(&scene));
    scene.close().await?;
    pool.end().await
}

/// Waits until this many pods are Ready and one is told why it is not; returns its name.
async fn one_waits(scene: &Scene<'_>, ready: usize, texts: &[&str]) -> Result<String> {
    let pods = scene.pods();
    let name = until(LONG, "one pod waits and the others are Ready", async || {
        let all = pods.list(&ListParams::default()).await?.items;
        let (yes, no): (Vec<_>, Vec<_>) = all.into_iter().partition(|pod| crate::guest::is(pod, "Ready"));
        let waiting: Vec<String> = no.iter().map(ResourceExt::name_any).collect();
        ensure!(yes.len() == ready, "not Ready: {waiting:?}");
        Ok(waiting.into_iter().next())
    })
    .await?;
    unschedulable(scene, &name, texts).await?;
    Ok(name)
}

/// Waits until a pod's condition PodScheduled says why it has no node, with all of these texts.
pub(crate) async fn unschedulable(scene: &Scene<'_>, name: &str, texts: &[&str]) -> Result<()> {
    until(LONG, &format!("pod {name} says why it waits"), async || {
        let status = json!(scene.pods().get(name).await?.status);
        let scheduled = condition(&status, "PodScheduled").context("no condition PodScheduled")?;
        ensure!(scheduled["status"] == "False" && scheduled["reason"] == "Unschedulable", "{scheduled}");
        let message = scheduled["message"].as_str().unwrap_or_default();
        ensure!(texts.iter().all(|text| message.contains(text)), "it says {message}");
        Ok(Some(()))
    })
    .await
}

async fn soon_ready(scene: &Scene<'_>, name: &str) -> Result<()> {
    until(SECONDS, &format!("pod {name}, which waited, is Ready"), async || {
        let pod = scene.pods().get(name).await?;
        if crate::guest::is(&pod, "Ready") { Ok(Some(())) } else { bail!(crate::scene::brief(&pod)) }
    })
    .await
}

pub(crate) async fn w01_pods_that_fit_nowhere_do_not_delay_others(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "pending").await?;
    for number in 0..30 {
        let choosy =
            with(fake_pod(&format!("nowhere-{number}")), "/spec/nodeSelector", json!({"pool": "none"}))?;
        scene.pod(choosy).await?;
    }
    unschedulable(&scene, "nowhere-0", &["admiralty-target-1", "admiralty-target-2"]).await?;
    scene.event("nowhere-0", "admiralty-target-2").await?;
    scene.pod(fake_pod("somewhere")).await?;
    soon_ready(&scene, "somewhere").await?;
    scene.close().await
}

pub(crate) async fn w10_a_chaperon_has_a_name_that_follows_from_pod_and_target(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "names").await?;
    let long = format!("a-{}", "long-".repeat(20)).trim_end_matches('-').to_owned();
    for name in ["short", &long] {
        let uid = scene.pod(fake_pod(name)).await?.uid().context("a pod without UID")?;
        let proxy = becomes(scene.source, &scene.namespace, name, "Ready").await?;
        let node = proxy.spec.and_then(|spec| spec.node_name).context("no node")?;
        let name = expected_name(name, &uid, &node);
        let chaperons = scene.chaperons().await?;
        let own: Vec<String> = chaperons
            .iter()
            .filter(|(_, chaperon)| chaperon.labels().get(&key("parent-uid")) == Some(&uid))
            .map(|(_, chaperon)| chaperon.name_any())
            .collect();
        ensure!(own == [name.clone()], "the chaperons are {own:?}, not {name}");
        let (_, delegate) = scene.delegate(&uid, &[]).await?;
        ensure!(delegate.name == name, "the delegate is called {}", delegate.name);
    }
    scene.close().await
}

/// The published rule, computed apart from the product's own code.
fn expected_name(pod: &str, uid: &str, virtual_node: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let digest = Sha256::digest(format!("{uid}/{virtual_node}"));
    let hash: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    let cut: String = pod.chars().take(52).collect();
    let cut = if pod.len() > 52 { cut.trim_end_matches(['-', '.']) } else { cut.as_str() };
    format!("{cut}-{hash}")
}

pub(crate) async fn a_pod_with_a_claim_that_nobody_has_waits_and_says_so(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "claims").await?;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    scene.pod(with(fake_pod("claimant"), "/spec/volumes", volumes)?).await?;
    scene.event("claimant", "persistentvolumeclaim \"data\" not found").await?;
    unschedulable(&scene, "claimant", &["persistentvolumeclaim \"data\" not found"]).await?;
    scene.close().await
}

pub(crate) async fn case_010_a_gated_pod_is_placed_once_its_gates_lift(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "gates").await?;
    let gates = json!([{"name": "example.com/later"}]);
    scene.pod(with(fake_pod("gated"), "/spec/schedulingGates", gates)?).await?;
    throughout(Duration::from_secs(3), "nobody is asked for a gated pod", async || {
        Ok(scene.chaperons().await?.is_empty())
    })
    .await?;
    let open = json!({"spec": {"schedulingGates": null}});
    merge(scene.source, Some(&scene.namespace), ("v1", "Pod"), "gated", open).await?;
    soon_ready(&scene, "gated").await?;
    scene.close().await
}

pub(crate) async fn case_017_a_namespace_that_one_target_lacks_keeps_no_pod_from_the_other(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "case-017").await?;
    crate::scene::remove_namespace(ground.cluster("target-2")?, &scene.namespace).await?;
    deployment(&scene, 6).await?;
    scene.ready(6).await?;
    let delegates = scene.recorder.delegates();
    ensure!(delegates.iter().all(|life| life.cluster == "target-1"), "{delegates:?}");
    // The other target is used as soon as it has the namespace.
    ground.cluster("target-2")?.create_namespace(&scene.namespace, &[]).await?;
    scene.pod(pinned(fake_pod("late"), "target-2")?).await?;
    becomes(scene.source, &scene.namespace, "late", "Ready").await?;
    scene.close().await
}
