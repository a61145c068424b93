//! Events of delegates, as people see them on proxy pods.

use anyhow::{Context as _, Result, bail, ensure};
use e2e::ground::Ground;
use e2e::helm;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::guest::{becomes, fake_pod};
use crate::scene::{LONG, Scene, create, merge, pinned};

const TARGET: &str = "target-1";

pub(crate) async fn case_038_an_event_of_a_delegate_is_shown_once_on_its_pod(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "told").await?;
    let target = ground.cluster(TARGET)?;
    scene.pod(pinned(fake_pod("pod"), TARGET)?).await?;
    becomes(scene.source, &scene.namespace, "pod", "Ready").await?;
    let uid = scene.pods().get("pod").await?.metadata.uid.context("no UID")?;
    let (_, life) = scene.delegate(&uid, &[]).await?;
    let delegates = scene.beside(&life)?.list(&ListParams::default()).await?.items;
    let delegate = delegates.into_iter().next().context("no delegate")?.metadata;
    let told = |count: i32| {
        json!({
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": scene.namespace,
                "name": delegate.name, "uid": delegate.uid, "fieldPath": "spec.containers{main}"},
            "type": "Warning", "reason": "Failed", "message": "Failed to pull image \"nowhere.example/any:1\"",
            "source": {"component": "kubelet", "host": "fake-0"},
            "firstTimestamp": Timestamp::now(), "lastTimestamp": Timestamp::now(), "count": count,
        })
    };
    let mut first = told(1);
    first["metadata"] = json!({"name": "delegate.1"});
    create(target, Some(&scene.namespace), ("v1", "Event"), first).await?;
    scene.event("pod", "Failed to pull image \"nowhere.example/any:1\" (in target-1)").await?;
    for count in 2..=5 {
        let change = json!({"count": count, "lastTimestamp": Timestamp::now()});
        merge(target, Some(&scene.namespace), ("v1", "Event"), "delegate.1", change).await?;
    }
    let events: Api<Event> = scene.source.api(&scene.namespace);
    until(LONG, "the pod has one event, which happened five times", async || {
        let all = events.list(&ListParams::default().fields("involvedObject.name=pod,reason=Failed")).await?;
        let counts: Vec<Option<i32>> = all.items.iter().map(|event| event.count).collect();
        if counts == [Some(5)] {
            return Ok(Some(()));
        }
        bail!("{counts:?}")
    })
    .await?;
    let arguments = ["-n", scene.namespace.as_str(), "describe", "pod", "pod"];
    let output = helm::command(ground, scene.source, "kubectl", &arguments)?.output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("Failed to pull image")).context("not described")?;
    ensure!(line.contains("kubelet") && line.contains("x5"), "{line}");
    scene.close().await
}

/// What a kubelet says of a pod that began, crashed, was resized and began again.
fn said() -> Value {
    json!({
        "phase": "Running",
        "podIP": "10.9.8.7", "podIPs": [{"ip": "10.9.8.7"}, {"ip": "fd00::7"}],
        "hostIP": "10.1.1.1", "hostIPs": [{"ip": "10.1.1.1"}],
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "main"},
            {"type": "ContainersReady", "status": "False", "reason": "ContainersNotReady"},
            {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room now"},
        ],
        "containerStatuses": [{
            "name": "main", "image": "nowhere.example/any:1", "imageID": "sha256:1", "containerID": "c://2",
            "ready": false, "started": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            "resources": {"requests": {"cpu": "100m"}},
            "allocatedResources": {"cpu": "100m"},
        }],
    })
}

pub(crate) async fn what_a_kubelet_says_of_a_delegate_stands_on_its_pod(ground: &Ground) -> Result<()> {
    let scene = Scene::open(ground, "said").await?;
    let target = ground.cluster(TARGET)?;
    let mut pod = fake_pod("pod");
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    scene.pod(pinned(pod, TARGET)?).await?;
    becomes(scene.source, &scene.namespace, "pod", "Ready").await?;
    let uid = scene.pods().get("pod").await?.metadata.uid.context("no UID")?;
    let (_, life) = scene.delegate(&uid, &[]).await?;
    let delegates = scene.beside(&life)?.list(&ListParams::default()).await?.items;
    let name = delegates.into_iter().next().and_then(|one| one.metadata.name).context("no delegate")?;
    let api = target.dynamic("v1", "Pod", Some(&scene.namespace));
    let patch = kube::api::Patch::Merge(json!({"status": said()}));
    api.patch_status(&name, &kube::api::PatchParams::default(), &patch).await?;
    let wanted = said();
    until(LONG, "the proxy pod says the same", async || {
        let status = json!(scene.pods().get("pod").await?.status);
        for field in ["podIP", "podIPs", "hostIP"] {
            ensure!(status[field] == wanted[field], "{field}: {}", status[field]);
        }
        ensure!(status["qosClass"] == "Burstable", "{}", status["qosClass"]);
        let (has, is) = (&status["containerStatuses"][0], &wanted["containerStatuses"][0]);
        for field in
            ["ready", "started", "restartCount", "imageID", "containerID", "resources", "allocatedResources"]
        {
            ensure!(has[field] == is[field], "{field}: {}", has[field]);
        }
        ensure!(has["state"]["waiting"] == is["state"]["waiting"], "{}", has["state"]);
        let last = &has["lastState"]["terminated"];
        ensure!(last["exitCode"] == 137 && last["reason"] == "OOMKilled", "{last}");
        let resize = crate::scene::condition(&status, "PodResizePending").context("no resize")?;
        ensure!(resize["reason"] == "Deferred" && resize["message"] == "no room now", "{resize}");
        Ok(Some(()))
    })
    .await?;
    // As people see it.
    let kubectl = async |arguments: &[&str]| {
        let mut all = vec!["-n", scene.namespace.as_str()];
        all.extend(arguments);
        let output = helm::command(ground, scene.source, "kubectl", &all)?.output().await?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let line = kubectl(&["get", "pod", "pod", "-o", "wide", "--no-headers"]).await?;
    ensure!(["0/1", "CrashLoopBackOff", "3", "10.9.8.7"].iter().all(|word| line.contains(word)), "{line}");
    let waited = kubectl(&["wait", "--for=condition=Ready=false", "pod/pod", "--timeout=10s"]).await?;
    ensure!(waited.contains("condition met"), "{waited}");
    scene.close().await
}
