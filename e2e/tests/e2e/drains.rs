//! Drains with plain kubectl: of a virtual node in the source, and of a node in a target.

use anyhow::{Context as _, Result, ensure};
use e2e::connect::{Kind, ready};
use e2e::ground::Ground;
use e2e::helm::kubectl;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Pod;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;

use crate::guest::{fake_pod, with};
use crate::placement::{Pool, deployment};
use crate::scene::{LONG, Scene, remove_namespace};
use crate::third::join;

pub(crate) async fn a_drained_virtual_node_gives_its_pods_to_others(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "drained").await?;
    let third = join(&scene).await?;
    ready(scene.source, "third", &Kind::Namespaced(scene.namespace.clone())).await?;
    deployment(&scene, 12).await?;
    let node = "admiralty-drained-third";
    let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    let before = scene.ready(12).await?;
    ensure!(before.iter().any(on_node), "no pod was on the node");
    let budget = json!({"metadata": {"name": "web"},
        "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": "web"}}}});
    scene.create("policy/v1", "PodDisruptionBudget", budget).await?;
    let drain = ["drain", node, "--ignore-daemonsets", "--timeout=100s"];
    kubectl(ground, scene.source, &drain).await.context("the node is not drained")?;
    let after = scene.ready(12).await?;
    ensure!(!after.iter().any(on_node), "pods are on a drained node");
    ensure!(scene.chaperons().await?.len() == 12, "chaperons in the other targets");
    let name = scene.namespace.clone();
    scene.close().await?;
    remove_namespace(third, &name).await
}

pub(crate) async fn pods_of_a_drained_node_of_a_target_run_on_its_other_nodes(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "drained-node").await?;
    let pool = Pool::make(&scene, "target-1").await?;
    let quarter = json!({"requests": {"cpu": "500m"}});
    for number in 0..3 {
        let pod = pool.pod(&format!("one-{number}"))?;
        scene.pod(with(pod, "/spec/containers/0/resources", quarter.clone())?).await?;
    }
    let before = scene.ready(3).await?;
    let node = pool.used(&scene).into_iter().next().context("no node")?;
    kubectl(ground, pool.cluster, &["drain", &node, "--ignore-daemonsets", "--timeout=100s"]).await?;
    until(LONG, "all delegates run on the other node", async || {
        let used = pool.used(&scene);
        ensure!(used.len() == 3 && !used.contains(&node), "they run on {used:?}");
        Ok(Some(()))
    })
    .await?;
    let after = scene.ready(3).await?;
    let uids = |pods: &[Pod]| {
        pods.iter().filter_map(kube::ResourceExt::uid).collect::<std::collections::BTreeSet<_>>()
    };
    ensure!(uids(&before) == uids(&after), "proxy pods were replaced");
    crate::owners::never_failed(&scene)?;
    // A pod that nobody chose for the pool is not hit.
    scene.pod(fake_pod("other")).await?;
    scene.ready(4).await?;
    scene.close().await?;
    pool.end().await
}

/// Evicts a pod of the source by the API that drains use.
/// Evicts at once or not at all: by itself the client would try again until the budget allows it.
async fn evict(scene: &Scene<'_>, name: &str) -> Result<kube::Result<()>> {
    let kubeconfig = Kubeconfig::read_from(&scene.source.kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, &scene.namespace);
    Ok(pods.evict(name, &kube::api::EvictParams::default()).await.map(drop))
}

pub(crate) async fn an_evicted_pod_counts_in_its_budget_and_waits_for_its_delegate(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "evicted").await?;
    deployment(&scene, 2).await?;
    let grace = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}});
    crate::scene::merge(scene.source, Some(&scene.namespace), ("apps/v1", "Deployment"), "web", grace)
        .await?;
    until(LONG, "all pods have the longer grace period", async || {
        let pods = scene.ready(2).await?;
        let graces: Vec<_> =
            pods.iter().map(|pod| pod.metadata.annotations.clone().unwrap_or_default()).collect();
        let all = graces.iter().all(|all| {
            let manifest = all.get(&crate::scene::key("sourcepod-manifest")).cloned().unwrap_or_default();
            manifest.contains("\"terminationGracePeriodSeconds\":5")
                || manifest.contains("terminationGracePeriodSeconds: 5")
        });
        Ok(all.then_some(()))
    })
    .await?;
    let budget = json!({"metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    scene.create("policy/v1", "PodDisruptionBudget", budget).await?;
    let pods = scene.ready(2).await?;
    let [first, second] = [0, 1].map(|at| pods.get(at).cloned().unwrap_or_default());
    let (uid, name) =
        (kube::ResourceExt::uid(&first).context("no UID")?, kube::ResourceExt::name_any(&first));
    let (_, life) = scene.delegate(&uid, &[]).await?;
    until(LONG, "the budget lets one go", async || Ok(evict(&scene, &name).await?.ok())).await?;
    // As long as one is missing, the other one stays.
    let refusal = evict(&scene, &kube::ResourceExt::name_any(&second)).await?;
    ensure!(matches!(&refusal, Err(kube::Error::Api(status)) if status.code == 429), "{refusal:?}");
    let beside = scene.beside(&life)?;
    until(LONG, "the evicted pod is gone", async || {
        // In this order: what runs when it is looked at second ran when the proxy pod was already gone.
        let is_gone = scene.pods().get_opt(&name).await?.is_none();
        let left = beside.get_opt(&life.name).await?;
        let runs = left.and_then(|pod| pod.status?.phase).is_some_and(|phase| phase == "Running");
        ensure!(!is_gone || !runs, "the delegate outlived its proxy pod");
        Ok(is_gone.then_some(()))
    })
    .await?;
    let grace =
        scene.recorder.lives().into_values().find(|other| other.name == life.name).and_then(|one| one.grace);
    ensure!(grace == Some(5), "the delegate's grace period was {grace:?}");
    scene.ready(2).await?;
    scene.close().await
}
