//! Drains with plain kubectl: of a virtual node in the source, and of a node in a target.

use anyhow::{Context as _, Result, ensure};
use e2e::connect::{Kind, ready};
use e2e::ground::Ground;
use e2e::helm::kubectl;
use e2e::wait::until;
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
    let on_node = |pod: &k8s_openapi::api::core::v1::Pod| {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
    };
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
    let uids = |pods: &[k8s_openapi::api::core::v1::Pod]| {
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
