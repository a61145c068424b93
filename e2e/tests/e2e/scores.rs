//! What others publish about targets.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::ground::Ground;
use e2e::wait::until;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cli::{Person, row};
use crate::grants::{annotated, places};
use crate::guest::fake_pod;
use crate::scene::{LONG, Scene, refused, try_create};

const SCORES: &str = "multicluster-scheduler.io/v1alpha1";
/// The chart of these tests says that nobody but who asks for it looks at it.
const SCORE: &str = "rehearsal";

fn score(target: &str, value: i32, max_age: &str) -> Value {
    json!({
        "targetRef": {"kind": "ClusterTarget", "name": target}, "score": SCORE, "value": value,
        "observedAt": Timestamp::now().to_string(), "maxAge": max_age,
    })
}

/// Publishes as a controller does: by server-side apply, again and again.
async fn publish(scene: &Scene<'_>, target: &str, value: i32, max_age: &str) -> Result<()> {
    let api = scene.source.dynamic(SCORES, "TargetScore", None);
    let name = format!("{SCORE}-{target}");
    let object = json!({"apiVersion": SCORES, "kind": "TargetScore", "metadata": {"name": name},
        "spec": score(target, value, max_age)});
    let parameters = PatchParams::apply("rehearsal").force();
    api.patch(&name, &parameters, &Patch::Apply(object)).await.context("cannot publish a score")?;
    Ok(())
}

async fn pods(scene: &Scene<'_>, stem: &str, weight: &str) -> Result<()> {
    for number in 0..4 {
        let weights = format!("{SCORE}={weight}");
        scene.pod(annotated(fake_pod(&format!("{stem}-{number}")), &[("score-weight", &weights)])).await?;
    }
    Ok(())
}

/// Waits until the command line shows these scores of a target.
async fn shown(person: &Person, target: &str, want: &Value) -> Result<()> {
    until(LONG, &format!("status shows {want} for {target}"), async || {
        let status = person.json(&["status"]).await?;
        let scores = &row(&status, target)?["scores"];
        ensure!(scores == want, "it shows {scores}");
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn w47_case_103_what_is_published_about_targets_decides_where_pods_go(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "scores").await?;
    let person = Person::new(&scene.namespace, &[scene.source])?;
    publish(&scene, "target-1", 0, "10m").await?;
    publish(&scene, "target-2", 100, "10m").await?;
    let want = |value: i32, expired: bool| json!([{"score": SCORE, "value": value, "expired": expired}]);
    shown(&person, "target-2", &want(100, false)).await?;
    pods(&scene, "first", "100").await?;
    scene.ready(4).await?;
    ensure!(
        places(&scene) == BTreeMap::from([("target-2".to_owned(), 4)]),
        "they run in {:?}",
        places(&scene)
    );
    let why = person.run(&["explain", "first-0"]).await?;
    let said = "scores of targets now (the pod weighs them rehearsal=100): target-1 has rehearsal 0; \
                target-2 has rehearsal 100";
    ensure!(why.contains(said), "{why}");
    // Published anew, it decides anew; who runs stays.
    publish(&scene, "target-1", 100, "10m").await?;
    publish(&scene, "target-2", 0, "1s").await?;
    shown(&person, "target-2", &want(0, true)).await?;
    publish(&scene, "target-2", 0, "10m").await?;
    shown(&person, "target-2", &want(0, false)).await?;
    pods(&scene, "second", "100").await?;
    scene.ready(8).await?;
    let both = BTreeMap::from([("target-1".to_owned(), 4), ("target-2".to_owned(), 4)]);
    ensure!(places(&scene) == both, "they run in {:?}", places(&scene));
    let scores = scene.source.dynamic(SCORES, "TargetScore", None);
    for target in ["target-1", "target-2"] {
        scores.delete(&format!("{SCORE}-{target}"), &DeleteParams::default()).await?;
    }
    scene.close().await
}

pub(crate) async fn a_score_that_nobody_could_weigh_is_refused_with_its_reason(
    ground: &Ground,
) -> Result<()> {
    let scene = Scene::open(ground, "bad-scores").await?;
    let good = score("any", 50, "90s");
    let cases: [(&str, Value, Option<&str>); 9] = [
        ("/value", json!(100), None),
        ("/value", json!(101), Some("spec.value")),
        ("/value", json!(-1), Some("spec.value")),
        ("/score", json!("Cost"), Some("spec.score")),
        ("/maxAge", json!("0s"), Some("write a duration from 1s to 168h")),
        ("/maxAge", json!("200h"), Some("write a duration from 1s to 168h")),
        ("/observedAt", json!("today"), Some("spec.observedAt")),
        (
            "/targetRef",
            json!({"kind": "Target", "name": "any"}),
            Some("give a `namespace` for kind `Target`"),
        ),
        (
            "/targetRef",
            json!({"kind": "ClusterTarget", "name": "any", "namespace": "one"}),
            Some("none for `ClusterTarget`"),
        ),
    ];
    for (field, value, wrong) in cases {
        let shown = format!("{field} {value}");
        let spec = crate::guest::with(good.clone(), field, value)?;
        let object = json!({"metadata": {"name": "tried"}, "spec": spec});
        let outcome = try_create(scene.source, None, (SCORES, "TargetScore"), object).await;
        match wrong {
            None => drop(outcome.with_context(|| format!("{shown} was refused"))?),
            Some(words) => refused(outcome, &[words]).context(shown)?,
        }
    }
    scene.close().await
}
