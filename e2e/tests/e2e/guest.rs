//! Pods that run `e2e-guest`, and questions to them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::cluster::Cluster;
use e2e::kubelet::{CONTROL_PLANE, NODE};
use e2e::wait::{SOON, until};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A pod for the node `harness` that runs the guest with these arguments.
pub(crate) fn pod(name: &str, arguments: &[&str]) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            "tolerations": [{"key": CONTROL_PLANE, "operator": "Exists"}],
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "guest",
                "image": "multicluster-e2e-guest:test",
                "args": arguments,
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1},
            }],
        },
    })
}

/// A pod for fake nodes.
pub(crate) fn fake_pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "nowhere.example/any:1"}],
        },
    })
}

/// Sets one field of an object by its JSON pointer; the parent must exist.
pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Result<Value> {
    let (parent, key) = pointer.rsplit_once('/').context("not a JSON pointer")?;
    let map = object.pointer_mut(parent).and_then(Value::as_object_mut).context("the parent is no object")?;
    map.insert(key.replace("~1", "/"), value);
    Ok(object)
}

/// Creates a pod.
pub(crate) async fn create(cluster: &Cluster, namespace: &str, pod: Value) -> Result<Pod> {
    let pod: Pod = serde_json::from_value(pod).context("not a pod")?;
    let pods: Api<Pod> = cluster.api(namespace);
    pods.create(&PostParams::default(), &pod).await.context("cannot create the pod")
}

/// Waits until a pod has a condition with status `True`.
pub(crate) async fn becomes(cluster: &Cluster, namespace: &str, name: &str, condition: &str) -> Result<Pod> {
    let pods: Api<Pod> = cluster.api(namespace);
    until(SOON, &format!("pod {namespace}/{name} is {condition}"), async || {
        let pod = pods.get(name).await?;
        if is(&pod, condition) {
            return Ok(Some(pod));
        }
        anyhow::bail!("status: {}", json!(pod.status))
    })
    .await
}

/// Waits until a pod is in a phase.
pub(crate) async fn in_phase(cluster: &Cluster, namespace: &str, name: &str, phase: &str) -> Result<Pod> {
    let pods: Api<Pod> = cluster.api(namespace);
    until(SOON, &format!("pod {namespace}/{name} is {phase}"), async || {
        let pod = pods.get(name).await?;
        let now = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if now == Some(phase) {
            return Ok(Some(pod));
        }
        anyhow::bail!("status: {}", json!(pod.status))
    })
    .await
}

/// Waits until a pod is gone.
pub(crate) async fn gone(cluster: &Cluster, namespace: &str, name: &str) -> Result<()> {
    let pods: Api<Pod> = cluster.api(namespace);
    until(SOON, &format!("pod {namespace}/{name} is gone"), async || {
        Ok(pods.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

/// Whether a pod has a condition with status `True`.
pub(crate) fn is(pod: &Pod, condition: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|has| has.type_ == condition && has.status == "True")
}

/// Asks a running guest, and returns the body of its answer.
pub(crate) async fn ask(pod: &Pod, path: &str) -> Result<String> {
    let answer = tokio::time::timeout(Duration::from_secs(5), exchange(pod, path)).await;
    answer.context("the guest does not answer")?
}

async fn exchange(pod: &Pod, path: &str) -> Result<String> {
    let address =
        pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("the pod has no address")?;
    let mut stream =
        tokio::net::TcpStream::connect((address.as_str(), 8080)).await.context("cannot connect")?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("cannot ask")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.context("cannot read the answer")?;
    let (_, body) = answer.split_once("\r\n\r\n").context("not an HTTP answer")?;
    Ok(body.to_owned())
}
