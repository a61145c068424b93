//! metrics-server, as a cluster has it: an API of its own behind a Service, and rights to read nodes.

use anyhow::{Context as _, Result, bail};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::ground::Ground;
use crate::process::{Process, Signal};
use crate::wait;

const NAME: &str = "metrics-server";
const NAMESPACE: &str = "kube-system";
const PORT: u16 = 10_443;
const API_SERVICE: &str = "v1beta1.metrics.k8s.io";

/// Starts metrics-server and waits until the API server serves its API.
///
/// # Errors
/// When it ends, or its API does not get available.
pub async fn serve(ground: &Ground, cluster: &Cluster) -> Result<Process> {
    let server = ground.start_metrics_server(cluster, PORT)?;
    for object in objects(&cluster.local()?.network.api().to_string()) {
        apply(cluster, &object).await?;
    }
    let services = cluster.dynamic("apiregistration.k8s.io/v1", "APIService", None);
    wait::until(wait::SOON, &format!("metrics-server serves {}", cluster.name), async || {
        if server.ended().is_some() {
            bail!("it ended: {}", server.tail());
        }
        let status = services.get(API_SERVICE).await?.data;
        let conditions = status.pointer("/status/conditions").and_then(Value::as_array);
        let available = conditions.into_iter().flatten().find(|condition| condition["type"] == "Available");
        match available {
            Some(condition) if condition["status"] == "True" => Ok(Some(())),
            other => bail!("{other:?}"),
        }
    })
    .await?;
    Ok(server)
}

/// Ends metrics-server and takes its API away.
///
/// # Errors
/// When the API server refuses that.
pub async fn end(cluster: &Cluster, server: &Process) -> Result<()> {
    let services = cluster.dynamic("apiregistration.k8s.io/v1", "APIService", None);
    services.delete(API_SERVICE, &DeleteParams::default()).await.context("cannot take the API away")?;
    server.signal(Signal::Kill).await
}

async fn apply(cluster: &Cluster, object: &Value) -> Result<()> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (version, kind) = (text("/apiVersion").context("no apiVersion")?, text("/kind").context("no kind")?);
    let name = text("/metadata/name").context("no name")?;
    let api = cluster.dynamic(version, kind, text("/metadata/namespace"));
    let whole: DynamicObject = serde_json::from_value(object.clone()).context("not an object")?;
    api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(&whole))
        .await
        .map(drop)
        .with_context(|| format!("cannot apply {kind} {name}"))
}

/// The same as in the project's own manifests, but that its endpoint is a process of this run.
fn objects(address: &str) -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "system:metrics-server"},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
                {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
            ],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:metrics-server"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:metrics-server"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": NAME}],
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API_SERVICE},
            "spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": NAME, "namespace": NAMESPACE},
            },
        }),
    ]
}
