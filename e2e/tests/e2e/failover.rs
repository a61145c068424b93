//! Targets that fall silent for long, are given up or are deleted: pods do what their policy says, and nothing is
//! doubled or left over.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::connect::{Kind, connect, ready};
use e2e::ground::Ground;
use e2e::setup::{SOURCE, virtual_node};
use e2e::wait::{throughout, until};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::guest::{fake_pod, gone, is, with};
use crate::installed::settled;
use crate::scene::{
    GROUP_VERSION, LONG, Scene, condition, key, merge, pinned, pinned_by, remove_namespace, scale,
};
use crate::third::join;

/// How long a target may be silent in these tests.
const GRACE: &str = "5s";

/// A Deployment or StatefulSet with a failover policy like `Move` or `MoveOnce/Lease`, or without.
pub(crate) async fn workload(
    scene: &Scene<'_>,
    kind: &str,
    name: &str,
    (replicas, policy): (usize, &str),
) -> Result<()> {
    let mut annotations = json!({});
    if !policy.is_empty() {
        let (policy, fence) = policy.split_once('/').unwrap_or((policy, "Confirmed"));
        annotations =
            json!({key("failover"): policy, key("failover-grace-period"): GRACE, key("fence"): fence});
    }
    let container = json!({"name": "main", "image": "nowhere.example/any:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}});
    // As many in each target.
    let spread = json!([{"maxSkew": 1, "topologyKey": key("cluster-target-name"), "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": name}}}]);
    annotations[key("proxy-pod-scheduling-constraints")] =
        json!(json!({"topologySpreadConstraints": spread}).to_string());
    let template = json!({"metadata": {"labels": {"app": name}, "annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}});
    let mut spec =
        json!({"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template});
    if kind == "StatefulSet" {
        spec["podManagementPolicy"] = json!("Parallel");
        spec["serviceName"] = json!(name);
    }
    scene.create("apps/v1", kind, json!({"metadata": {"name": name}, "spec": spec})).await
}

/// Waits until the clusters have settled and a pod has run in a target: one that was cut off is Ready some
/// seconds before the proxy scheduler, which avoids whoever is silent, asks it again.
pub(crate) async fn serving(scene: &Scene<'_>, target: &str) -> Result<()> {
    settled(scene.ground).await?;
    let name = "first";
    scene.pod(pinned(fake_pod(name), target)?).await?;
    crate::guest::becomes(scene.source, &scene.namespace, name, "Ready").await?;
    scene.pods().delete(name, &DeleteParams::default()).await?;
    let cluster = scene.ground.cluster(target)?;
    until(LONG, "the first pod is gone", async || {
        let gone = scene.pods().get_opt(name).await?.is_none() && delegates(scene, cluster) == 0;
        Ok(gone.then_some(()))
    })
    .await
}

/// The pods of one application that nobody has deleted and that have not ended.
pub(crate) async fn live(scene: &Scene<'_>, app: &str) -> Result<Vec<Pod>> {
    let all = scene.pods().list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Failed" | "Succeeded"))
    };
    Ok(all.into_iter().filter(|pod| !ended(pod)).collect())
}

pub(crate) fn on(pods: &[Pod], node: &str) -> usize {
    pods.iter()
        .filter(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node))
        .count()
}

pub(crate) fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(Pod::uid).collect()
}

/// Waits until an application has as many live pods, all Ready and none on a node.
pub(crate) async fn elsewhere(scene: &Scene<'_>, app: &str, count: usize, node: &str) -> Result<Vec<Pod>> {
    until(LONG, &format!("{count} pods of {app} are Ready, and none on {node}"), async || {
        let pods = live(scene, app).await?;
        if pods.len() == count && on(&pods, node) == 0 && pods.iter().all(|pod| is(pod, "Ready")) {
            return Ok(Some(pods));
        }
        let briefs: Vec<String> = pods.iter().map(crate::scene::brief).collect();
        bail!("{}: {}", pods.len(), briefs.join("; "))
    })
    .await
}

/// Waits until an application has as many pods, deleted ones included, and all are Ready.
pub(crate) async fn exactly(scene: &Scene<'_>, app: &str, count: usize) -> Result<Vec<Pod>> {
    until(LONG, &format!("{app} has {count} pods, and all are Ready"), async || {
        let pods = scene.pods().list(&ListParams::default().labels(&format!("app={app}"))).await?.items;
        if pods.len() == count && pods.iter().all(|pod| is(pod, "Ready")) {
            return Ok(Some(pods));
        }
        let briefs: Vec<String> = pods.iter().map(crate::scene::brief).collect();
        bail!("{}: {}", pods.len(), briefs.join("; "))
    })
    .await
}

/// How many delegates run in a cluster.
pub(crate) fn delegates(scene: &Scene<'_>, cluster: &Cluster) -> usize {
    scene.recorder.delegates().iter().filter(|life| life.cluster == cluster.name && life.runs()).count()
}

pub(crate) async fn cluster_target(scene: &Scene<'_>, target: &str) -> Result<DynamicObject> {
    Ok(scene.source.dynamic(GROUP_VERSION, "ClusterTarget", None).get(target).await?)
}

async fn cluster_uid(scene: &Scene<'_>, target: &str) -> Result<String> {
    let object = cluster_target(scene, target).await?;
    Ok(object.data["status"]["clusterUID"].as_str().context("no cluster UID")?.to_owned())
}

async fn fence(scene: &Scene<'_>, target: &str, uid: Value) -> Result<()> {
    let change = json!({"metadata": {"annotations": {key("fenced"): uid}}});
    merge(scene.source, None, (GROUP_VERSION, "ClusterTarget"), target, change).await
}

/// Waits until every pod behind a target has a condition that says why it waits.
pub(crate) async fn told(scene: &Scene<'_>, app: &str, node: &str, reason: &str) -> Result<()> {
    until(LONG, &format!("pods of {app} on {node} say {reason}"), async || {
        let pods = live(scene, app).await?;
        let here = pods.iter().filter(|pod| on(std::slice::from_ref(pod), node) == 1);
        for pod in here {
            let status = json!(pod.status);
            let found = condition(&status, "TargetReachable").context("no condition TargetReachable")?;
            ensure!(found["reason"] == reason, "{found}");
        }
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn pods_that_move_are_replaced_when_their_target_is_cut_off(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "moving").await?;
    serving(&scene, "target-2").await?;
    let target = ground.cluster("target-2")?;
    let node = virtual_node(ground, "target-2").await?;
    workload(&scene, "Deployment", "web", (6, "Move")).await?;
    workload(&scene, "StatefulSet", "db", (4, "Move")).await?;
    workload(&scene, "Deployment", "stays", (4, "")).await?;
    let stays = uids(&exactly(&scene, "stays", 4).await?);
    let web = exactly(&scene, "web", 6).await?;
    let db = exactly(&scene, "db", 4).await?;
    let (moved, named) = (on(&web, &node), on(&db, &node));
    ensure!(moved > 0 && named > 0, "nothing runs in target-2: {moved}, {named}");
    target.cut().await?;
    let during = async {
        let new = (elsewhere(&scene, "web", 6, &node).await?, elsewhere(&scene, "db", 4, &node).await?);
        // What may run on is shown by deleted pods, but for those whose names are needed.
        let all = scene.pods().list(&ListParams::default().labels("app=web")).await?.items;
        ensure!(all.len() == 6 + moved, "{} pods of web", all.len());
        told(&scene, "stays", &node, "Stays").await?;
        anyhow::Ok(new)
    };
    let outcome = during.await;
    target.heal().await?;
    let (web, db) = outcome?;
    settled(ground).await?;
    let (after_web, after_db) = (exactly(&scene, "web", 6).await?, exactly(&scene, "db", 4).await?);
    ensure!(uids(&web) == uids(&after_web) && uids(&db) == uids(&after_db), "a replacement was replaced");
    let stayed = exactly(&scene, "stays", 4).await?;
    ensure!(uids(&stayed) == stays, "a pod that was to stay was replaced");
    let left = on(&stayed, &node);
    until(LONG, "only what stayed runs in target-2", async || {
        let runs = delegates(&scene, target);
        ensure!(runs == left, "{runs} delegates, {left} stayed");
        Ok(Some(()))
    })
    .await?;
    scene.close().await
}

pub(crate) async fn w05_pods_that_move_once_wait_for_the_fence_when_an_api_server_is_frozen(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "moving-once").await?;
    serving(&scene, "target-2").await?;
    let target = ground.cluster("target-2")?;
    let node = virtual_node(ground, "target-2").await?;
    let uid = cluster_uid(&scene, "target-2").await?;
    workload(&scene, "Deployment", "web", (6, "MoveOnce")).await?;
    workload(&scene, "StatefulSet", "db", (4, "MoveOnce")).await?;
    let bare = with(fake_pod("bare"), "/metadata/annotations", json!({key("failover"): "Move"}))?;
    scene.pod(pinned(bare, "target-2")?).await?;
    let web = exactly(&scene, "web", 6).await?;
    let db = exactly(&scene, "db", 4).await?;
    crate::guest::becomes(scene.source, &scene.namespace, "bare", "Ready").await?;
    ensure!(on(&web, &node) > 0 && on(&db, &node) > 0, "nothing runs in target-2");
    target.freeze().await?;
    let during = async {
        told(&scene, "web", &node, "NotConfirmed").await?;
        throughout(Duration::from_secs(12), "nothing moves without a fence", async || {
            let same = uids(&live(&scene, "web").await?) == uids(&web)
                && uids(&live(&scene, "db").await?) == uids(&db);
            Ok(same)
        })
        .await?;
        scene.event("bare", "no controller").await?;
        // A word for another cluster is no word.
        fence(&scene, "target-2", json!("another")).await?;
        throughout(Duration::from_secs(3), "a wrong fence moves nothing", async || {
            Ok(uids(&live(&scene, "web").await?) == uids(&web))
        })
        .await?;
        fence(&scene, "target-2", json!(uid)).await?;
        elsewhere(&scene, "web", 6, &node).await?;
        elsewhere(&scene, "db", 4, &node).await
    };
    let outcome = during.await;
    target.thaw().await?;
    let swept = async {
        outcome?;
        // It answers again and is still fenced: what was moved away from it goes.
        until(LONG, "only the bare pod runs in target-2", async || {
            let runs = delegates(&scene, target);
            ensure!(runs == 1, "{runs} delegates");
            Ok(Some(()))
        })
        .await
    };
    let outcome = swept.await;
    fence(&scene, "target-2", Value::Null).await?;
    outcome?;
    settled(ground).await?;
    exactly(&scene, "web", 6).await?;
    exactly(&scene, "db", 4).await?;
    crate::guest::becomes(scene.source, &scene.namespace, "bare", "Ready").await?;
    scene.close().await
}

/// The components of the source, but for the webhook, without which no pod could be created meanwhile.
const OF_SOURCE: [&str; 3] = ["virtual-kubelet", "feedback-controller", "proxy-scheduler"];

pub(crate) async fn w12_an_outage_of_ours_moves_and_restarts_nothing(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "own-outage").await?;
    settled(ground).await?;
    // The nastiest policy: whatever looks silent is replaced at once.
    workload(&scene, "Deployment", "web", (6, "Move")).await?;
    workload(&scene, "StatefulSet", "db", (2, "Move")).await?;
    let before = (uids(&exactly(&scene, "web", 6).await?), uids(&exactly(&scene, "db", 2).await?));
    let lives: BTreeSet<String> = scene.recorder.lives().into_keys().collect();
    let replicas = try_join_all(OF_SOURCE.map(|component| scale(scene.source, component, 0))).await?;
    let nodes: Api<Node> = Api::all(scene.source.client.clone());
    let during = until(LONG, "the virtual nodes are given up by the source", async || {
        let name = virtual_node(ground, "target-1").await?;
        let node = json!(nodes.get(&name).await?.status);
        Ok(condition(&node, "Ready").filter(|ready| ready["status"] == "Unknown").map(drop))
    })
    .await;
    let outcome = match during {
        Ok(()) => {
            throughout(Duration::from_secs(10), "nothing is evicted", async || {
                Ok(uids(&live(&scene, "web").await?) == before.0
                    && uids(&live(&scene, "db").await?) == before.1)
            })
            .await
        }
        Err(error) => Err(error),
    };
    for (component, count) in OF_SOURCE.into_iter().zip(replicas) {
        scale(scene.source, component, count).await?;
    }
    outcome?;
    settled(ground).await?;
    throughout(Duration::from_secs(10), "nothing is replaced on return", async || {
        Ok(uids(&live(&scene, "web").await?) == before.0 && uids(&live(&scene, "db").await?) == before.1)
    })
    .await?;
    exactly(&scene, "web", 6).await?;
    let after: BTreeSet<String> = scene.recorder.lives().into_keys().collect();
    ensure!(after == lives, "delegates were made again");
    scene.close().await
}

/// A Target of the scene's namespace, or nothing when it is gone.
async fn target_object(scene: &Scene<'_>) -> Result<Option<Value>> {
    let targets = scene.source.dynamic(GROUP_VERSION, "Target", Some(&scene.namespace));
    Ok(targets.get_opt("third").await?.map(|object| json!(object)))
}

pub(crate) async fn w19_case_043_a_target_deleted_while_the_feedback_controller_is_down_goes_in_order(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "deleted").await?;
    settled(ground).await?;
    let third = join(&scene).await?;
    ready(scene.source, "third", &Kind::Namespaced(scene.namespace.clone())).await?;
    let slow = with(fake_pod("bound"), "/spec/terminationGracePeriodSeconds", json!(5))?;
    scene.pod(pinned_by(slow, "target-name", "third")?).await?;
    let pod = crate::guest::becomes(scene.source, &scene.namespace, "bound", "Ready").await?;
    let (uid, node) = (pod.uid(), pod.spec.and_then(|spec| spec.node_name).context("no node")?);
    let replicas = scale(scene.source, "feedback-controller", 0).await?;
    let targets = scene.source.dynamic(GROUP_VERSION, "Target", Some(&scene.namespace));
    targets.delete("third", &DeleteParams::default()).await?;
    let nodes: Api<Node> = Api::all(scene.source.client.clone());
    let delegates: Api<Pod> = third.api(&scene.namespace);
    let running = async || {
        let all = delegates.list(&ListParams::default()).await?.items;
        anyhow::Ok(
            all.iter()
                .filter(|pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"))
                .count(),
        )
    };
    let during = async {
        until(LONG, "the virtual node takes no pods", async || {
            let taints = nodes.get(&node).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let said = taints.iter().any(|taint| taint.value.as_deref() == Some("TargetDeleting"));
            Ok(said.then_some(()))
        })
        .await?;
        throughout(Duration::from_secs(10), "Target, node, pod and delegate stay", async || {
            let pod = scene.pods().get_opt("bound").await?;
            let same = pod.is_some_and(|pod| pod.uid() == uid && pod.metadata.deletion_timestamp.is_none());
            let there = target_object(&scene).await?.is_some() && nodes.get_opt(&node).await?.is_some();
            Ok(same && there && running().await? == 1)
        })
        .await
    };
    let outcome = during.await;
    scale(scene.source, "feedback-controller", replicas).await?;
    outcome?;
    until(LONG, "the pod on it has ended", async || {
        // In this order: what runs when it is looked at second ran when the proxy pod was already gone.
        let is_gone = scene.pods().get_opt("bound").await?.is_none();
        ensure!(!is_gone || running().await? == 0, "the delegate outlived its proxy pod");
        Ok(is_gone.then_some(()))
    })
    .await?;
    until(LONG, "Target and node are gone", async || {
        let left = target_object(&scene).await?.is_some() || nodes.get_opt(&node).await?.is_some();
        Ok((!left).then_some(()))
    })
    .await?;
    let name = scene.namespace.clone();
    remove_namespace(third, &name).await?;
    scene.close().await
}

pub(crate) async fn case_043_a_dead_target_goes_by_force_and_is_swept_when_it_is_back(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "given-up").await?;
    settled(ground).await?;
    let third = join(&scene).await?;
    let kind = Kind::Namespaced(scene.namespace.clone());
    ready(scene.source, "third", &kind).await?;
    scene.pod(pinned_by(fake_pod("bound"), "target-name", "third")?).await?;
    let pod = crate::guest::becomes(scene.source, &scene.namespace, "bound", "Ready").await?;
    let node = pod.spec.and_then(|spec| spec.node_name).context("no node")?;
    let nodes: Api<Node> = Api::all(scene.source.client.clone());
    let delegates: Api<Pod> = third.api(&scene.namespace);
    let targets = scene.source.dynamic(GROUP_VERSION, "Target", Some(&scene.namespace));
    third.cut().await?;
    let during = async {
        crate::targets::says(&scene, "third", "Reachable", ("False", "Unreachable")).await?;
        targets.delete("third", &DeleteParams::default()).await?;
        let status = crate::targets::says(&scene, "third", "Ready", ("False", "Deleting")).await?;
        ensure!(status.to_string().contains("force-removal"), "it does not say what to do: {status}");
        throughout(Duration::from_secs(5), "Target, node and pod stay", async || {
            let there = target_object(&scene).await?.is_some() && nodes.get_opt(&node).await?.is_some();
            Ok(there
                && scene
                    .pods()
                    .get_opt("bound")
                    .await?
                    .is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()))
        })
        .await?;
        let uid = status["clusterUID"].as_str().context("no cluster UID")?.to_owned();
        let change = json!({"metadata": {"annotations": {key("force-removal"): uid}}});
        merge(scene.source, Some(&scene.namespace), (GROUP_VERSION, "Target"), "third", change).await?;
        gone(scene.source, &scene.namespace, "bound").await?;
        until(LONG, "Target and node are gone", async || {
            let left = target_object(&scene).await?.is_some() || nodes.get_opt(&node).await?.is_some();
            Ok((!left).then_some(()))
        })
        .await?;
        let events: Api<Event> = scene.source.api(&scene.namespace);
        let said = events.list(&ListParams::default().fields("involvedObject.name=third")).await?.items;
        let listed =
            said.iter().filter_map(|event| event.message.as_deref()).any(|text| text.contains("/bound-"));
        ensure!(listed, "no event lists what may be left: {said:?}");
        anyhow::Ok(())
    };
    let outcome = during.await;
    third.heal().await?;
    outcome?;
    ensure!(!delegates.list(&ListParams::default()).await?.items.is_empty(), "nothing was left");
    connect(scene.source, third, &kind).await?;
    ready(scene.source, "third", &kind).await?;
    until(LONG, "what was left is swept", async || {
        let pods = delegates.list(&ListParams::default()).await?.items;
        ensure!(pods.is_empty(), "{} pods are left", pods.len());
        Ok(Some(()))
    })
    .await?;
    let name = scene.namespace.clone();
    scene.close().await?;
    remove_namespace(third, &name).await
}

/// Waits until no pod of the source is unready that was ready before; not longer than promised.
pub(crate) async fn w13_pods_are_ready_within_five_seconds_of_their_targets_return(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "return").await?;
    settled(ground).await?;
    let target = ground.cluster("target-2")?;
    let source = ground.cluster(SOURCE)?;
    scene.pod(pinned(fake_pod("one"), "target-2")?).await?;
    crate::guest::becomes(source, &scene.namespace, "one", "Ready").await?;
    target.cut().await?;
    let unready = until(LONG, "the pod is not called ready", async || {
        Ok((!is(&scene.pods().get("one").await?, "Ready")).then_some(()))
    })
    .await;
    target.heal().await?;
    unready?;
    let healed = std::time::Instant::now();
    crate::guest::becomes(source, &scene.namespace, "one", "Ready").await?;
    let took = healed.elapsed();
    ensure!(took < Duration::from_secs(10), "it took {took:?}");
    let status = json!(scene.pods().get("one").await?.status);
    ensure!(condition(&status, "TargetReachable").is_none(), "it still says why it waited: {status}");
    settled(ground).await?;
    scene.close().await
}
