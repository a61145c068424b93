//! Where pods go first, and what is done for those that fit nowhere.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::ground::Ground;
use e2e::wait::until;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::guest::{becomes, fake_pod, with};
use crate::placement::Pool;
use crate::scene::{LONG, Scene, create, key};

/// A pod that takes more than half of a node of the pool.
fn large(pool: &Pool<'_>, name: &str) -> Result<Value> {
    with(pool.pod(name)?, "/spec/containers/0/resources", json!({"requests": {"cpu": "1200m"}}))
}

pub(crate) fn annotated(mut pod: Value, annotations: &[(&str, &str)]) -> Value {
    for (name, value) in annotations {
        pod["metadata"]["annotations"][key(name).as_str()] = json!(value);
    }
    pod
}

/// How many delegates run in each target.
pub(crate) fn places(scene: &Scene<'_>) -> BTreeMap<String, usize> {
    let mut places = BTreeMap::new();
    for life in scene.recorder.delegates().into_iter().filter(crate::recorder::Life::runs) {
        *places.entry(life.cluster).or_default() += 1;
    }
    places
}

pub(crate) async fn case_103_the_first_target_of_a_pod_is_filled_before_the_next(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "overflow").await?;
    for number in 0..6 {
        let pod = annotated(fake_pod(&format!("p{number}")), &[("target-order", "target-2,target-1")]);
        scene.pod(pod).await?;
    }
    scene.ready(6).await?;
    ensure!(
        places(&scene) == BTreeMap::from([("target-2".to_owned(), 6)]),
        "they run in {:?}",
        places(&scene)
    );
    for number in 0..6 {
        let pod = annotated(fake_pod(&format!("w{number}")), &[("target-weight", "target-1=1,target-2=0")]);
        scene.pod(pod).await?;
    }
    scene.ready(12).await?;
    let want = BTreeMap::from([("target-1".to_owned(), 6), ("target-2".to_owned(), 6)]);
    ensure!(places(&scene) == want, "they run in {:?}", places(&scene));
    let refused = scene.pod(annotated(fake_pod("wrong"), &[("target-order", "a,a")])).await;
    let error = format!("{:#}", refused.err().map(|error| format!("{error:#}")).unwrap_or_default());
    ensure!(error.contains("target-order") && error.contains("name each target once"), "{error:?}");
    scene.close().await
}

/// Waits until a pod has no grant, or one for a target whose delegate waits; returns the clusters with delegates
/// of it that are not running.
async fn pending_delegates(scene: &Scene<'_>, name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let uid = scene.pods().get(name).await?.uid().unwrap_or_default();
    for cluster in ["target-1", "target-2"] {
        let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
            scene.ground.cluster(cluster)?.api(&scene.namespace);
        let selector = ListParams::default().labels(&format!("{}={uid}", key("parent-uid")));
        let waiting = pods.list(&selector).await?.items;
        let unbound = |pod: &k8s_openapi::api::core::v1::Pod| {
            pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none())
        };
        found.extend(waiting.iter().filter(|pod| unbound(pod)).map(|_| cluster.to_owned()));
    }
    Ok(found)
}

pub(crate) async fn case_133_a_pod_that_fits_nowhere_waits_in_one_target_and_then_in_the_next(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "scale-up").await?;
    let mut pool = Pool::make(&scene, "target-1").await?;
    scene.pod(large(&pool, "a")?).await?;
    scene.pod(large(&pool, "b")?).await?;
    scene.ready(2).await?;
    let late = annotated(large(&pool, "late")?, &[("target-order", "target-2"), ("start-deadline", "5s")]);
    scene.pod(late).await?;
    let mut seen = Vec::new();
    until(LONG, "both targets have had their turn", async || {
        let there = pending_delegates(&scene, "late").await?;
        ensure!(there.len() <= 1, "pending delegates in {there:?} at once");
        seen.extend(there);
        seen.dedup();
        Ok((seen.len() >= 2).then_some(()))
    })
    .await?;
    ensure!(seen.first().is_some_and(|first| first == "target-2"), "turns: {seen:?}");
    pool.grow().await?;
    becomes(scene.source, &scene.namespace, "late", "Ready").await?;
    ensure!(pending_delegates(&scene, "late").await?.is_empty(), "a second delegate is left");
    scene.close().await?;
    pool.end().await
}

pub(crate) async fn w32_case_021_a_pod_preempts_in_one_cluster_only(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "preempts").await?;
    let (one, two) = (Pool::make(&scene, "target-1").await?, Pool::make(&scene, "target-2").await?);
    let class = ("scheduling.k8s.io/v1", "PriorityClass");
    let high = json!({"metadata": {"name": "preempts-high"}, "value": 2000});
    for cluster in ["source", "target-1", "target-2"] {
        create(ground.cluster(cluster)?, None, class, high.clone()).await?;
    }
    for name in ["a", "b", "c", "d"] {
        scene.pod(large(&one, name)?).await?;
    }
    scene.ready(4).await?;
    let high = with(large(&one, "high")?, "/spec/priorityClassName", json!("preempts-high"))?;
    scene.pod(high).await?;
    becomes(scene.source, &scene.namespace, "high", "Ready").await?;
    let ended = scene.recorder.delegates().into_iter().filter(|life| life.ended.is_some()).count();
    ensure!(ended == 1, "{ended} delegates have ended; one had to make way");
    let high = scene.pods().get("high").await?;
    ensure!(high.annotations().get(&key("grant")).is_some_and(|kind| kind == "preempt"), "no grant");
    scene.close().await?;
    one.end().await?;
    two.end().await
}

pub(crate) async fn a_pod_without_reservation_is_placed_by_its_own_scheduler(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "direct").await?;
    scene.pod(annotated(fake_pod("direct"), &[("no-reservation", "")])).await?;
    becomes(scene.source, &scene.namespace, "direct", "Ready").await?;
    let pod = scene.pods().get("direct").await?;
    ensure!(pod.annotations().get(&key("grant")).is_some_and(|kind| kind == "no-reservation"), "no grant");
    let (_, life) = scene.delegate(&pod.uid().unwrap_or_default(), &[]).await?;
    let delegates = scene.beside(&life)?.list(&ListParams::default()).await?.items;
    let scheduler = delegates.first().and_then(|pod| pod.spec.as_ref()?.scheduler_name.clone());
    ensure!(scheduler.as_deref() == Some("default-scheduler"), "scheduled by {scheduler:?}");
    scene.close().await
}
