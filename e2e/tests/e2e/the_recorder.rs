//! The recorder of the other tests is tested too: it must see what they say never happens.

use anyhow::{Context as _, Result, ensure};
use e2e::ground::Ground;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::guest::{becomes, create, fake_pod, with};
use crate::recorder::Recorder;
use crate::scene::{LONG, key, remove_namespace};

pub(crate) async fn the_recorder_sees_two_at_once_and_work_that_runs_again(ground: &Ground) -> Result<()> {
    let namespace = "recorded";
    let (one, other) = (ground.cluster("target-1")?, ground.cluster("target-2")?);
    for cluster in [one, other] {
        cluster.create_namespace(namespace, &[]).await?;
    }
    let recorder = Recorder::start(ground, namespace);
    let labelled = |name: &str, parent: &str, ordinal: &str| {
        let labels = json!({key("parent-uid"): parent, key("pod-name"): ordinal});
        with(fake_pod(name), "/metadata/labels", labels)
    };
    create(one, namespace, labelled("a", "first", "zero")?).await?;
    becomes(one, namespace, "a", "Ready").await?;
    let pods: Api<Pod> = one.api(namespace);
    pods.delete("a", &DeleteParams::default()).await?;
    crate::guest::gone(one, namespace, "a").await?;
    let runs = async |uid: String| {
        until(LONG, "the recorder sees the pod", async || {
            Ok(recorder.lives().get(&uid).is_some_and(crate::recorder::Life::runs).then_some(()))
        })
        .await
    };
    let uid = create(other, namespace, labelled("b", "first", "zero")?).await?.uid().context("no UID")?;
    runs(uid).await?;
    recorder.check_parents().context("one after the other")?;
    recorder.check_ordinals().context("one after the other")?;
    let uid = create(one, namespace, labelled("c", "second", "zero")?).await?.uid().context("no UID")?;
    runs(uid).await?;
    recorder.check_parents().context("two parents")?;
    ensure!(recorder.check_ordinals().is_err(), "two at once for one ordinal were not seen");
    let uid = create(one, namespace, labelled("d", "first", "one")?).await?.uid().context("no UID")?;
    runs(uid).await?;
    ensure!(recorder.check_parents().is_err(), "two at once for one parent were not seen");
    for cluster in [one, other] {
        remove_namespace(cluster, namespace).await?;
    }
    Ok(())
}
