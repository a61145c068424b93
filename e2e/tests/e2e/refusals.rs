//! A kubelet that refuses a delegate before any of its containers has started.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use e2e::ground::Ground;
use e2e::keys;
use e2e::nodes::{self, Shape};
use e2e::setup::targets;
use e2e::wait::until;
use serde_json::{Value, json};

use crate::guest::with;
use crate::owners::kinds::Owner;
use crate::owners::{completes, never_failed};
use crate::placement::Pool;
use crate::scene::{LONG, Scene, cordon, remove_node};

/// Starts an owner whose pods like best a node that refuses them, and takes that node away once it has.
/// Nothing of it may show in the source.
pub(crate) async fn meet(scene: &Scene<'_>, owner: &Owner) -> Result<()> {
    let node = format!("refuser-{}", scene.namespace);
    let taint = json!({"key": "refuser", "value": "yes", "effect": "NoSchedule"});
    let shape = Shape { taints: vec![taint], labels: BTreeMap::new(), ..Shape::default() };
    for target in targets(scene.ground) {
        nodes::create(&target.client, &node, &shape).await?;
        nodes::ready(&target.client, &node).await?;
    }
    let annotations = json!({keys::REFUSED_BY: node, keys::RUNS_FOR: "1h"});
    let mut object = (owner.manifest)(&annotations);
    let spec = if owner.kind == "Pod" { "/spec" } else { "/spec/template/spec" };
    if let Some(Value::Object(spec)) = object.pointer_mut(spec) {
        let term = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        spec.insert("tolerations".into(), json!([{"key": "refuser", "operator": "Exists"}]));
        spec.insert(
            "affinity".into(),
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [term]}}]}}),
        );
    }
    scene.create(owner.group_version, owner.kind, object).await?;
    until(LONG, "the node has refused a delegate", async || {
        let lives = scene.recorder.delegates();
        let refused = lives.iter().any(|life| life.node == node && life.was("Failed"));
        if refused { Ok(Some(())) } else { bail!("{lives:?}") }
    })
    .await?;
    for target in targets(scene.ground) {
        cordon(target, &node, true).await?;
    }
    let ready = scene.ready(owner.pods).await?;
    never_failed(scene)?;
    ensure!(ready.len() == owner.pods, "other pods than at first");
    let started: Vec<_> =
        scene.recorder.delegates().into_iter().filter(|life| life.started.is_some()).collect();
    ensure!(started.len() == owner.pods, "{} delegates ran: {started:?}", started.len());
    if owner.is_job() {
        let status = completes(scene, owner).await?;
        ensure!(status.get("failed").is_none(), "a refusal counts as a failure: {status}");
    }
    for target in targets(scene.ground) {
        remove_node(target, &node).await?;
    }
    Ok(())
}

/// Nothing but the kubelet's answer tells that the node is no good for the pod.
pub(crate) async fn w33_a_delegate_that_one_kubelet_refuses_runs_on_another_node(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "refused").await?;
    let pool = Pool::make(&scene, "target-1").await?;
    let pods = ["a", "b"];
    for name in pods {
        let stubborn = json!({keys::REFUSED_BY: "refused-0"});
        scene.pod(with(pool.pod(name)?, "/metadata/annotations", stubborn)?).await?;
    }
    scene.ready(pods.len()).await?;
    let used = pool.used(&scene);
    ensure!(used == ["refused-1", "refused-1"], "they run on {used:?}");
    never_failed(&scene)?;
    scene.close().await?;
    pool.end().await
}
