//! Connects clusters as a user does, by the documented way: with objects, a token and a Secret.

use anyhow::{Context as _, Result};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{pki, wait};

const GROUP_VERSION: &str = "multicluster.admiralty.io/v1alpha1";

/// How a source uses a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// For one namespace, by a Source and a Target in it.
    Namespaced(String),
    /// For all namespaces, by a ClusterSource and a ClusterTarget. The ServiceAccount and the Secret lie in
    /// this namespace.
    ClusterWide(String),
}

impl Kind {
    fn namespace(&self) -> &str {
        match self {
            Self::Namespaced(namespace) | Self::ClusterWide(namespace) => namespace,
        }
    }
}

/// Lets `source` use `target`: in the target a (Cluster)Source named after the source cluster, and the
/// namespace; in the source a Secret with a kubeconfig and a (Cluster)Target named after the target cluster.
///
/// # Errors
/// When an API server refuses an object, or the source-controller does not make the ServiceAccount in time.
pub async fn connect(source: &Cluster, target: &Cluster, kind: &Kind) -> Result<()> {
    invite(source, target, kind).await?;
    accept(source, target, kind).await
}

/// The source's part once it was invited: a token, and with it the Secret and the (Cluster)Target.
///
/// # Errors
/// When an API server refuses an object.
pub async fn accept(source: &Cluster, target: &Cluster, kind: &Kind) -> Result<()> {
    let token = token(target, kind.namespace(), &source.name).await?;
    let kubeconfig = pki::kubeconfig(&target.server, &target.authority, &json!({"token": token}));
    target_object(source, &target.name, kind, &kubeconfig).await
}

/// The target's part: its namespace, the (Cluster)Source and, made by source-controller, the ServiceAccount.
///
/// # Errors
/// When the API server refuses an object, or there is no ServiceAccount in time.
pub async fn invite(source: &Cluster, target: &Cluster, kind: &Kind) -> Result<()> {
    let namespace = kind.namespace();
    target.create_namespace(namespace, &[]).await?;
    match kind {
        Kind::Namespaced(_) => {
            let spec = json!({"serviceAccountName": source.name});
            apply(target, "Source", Some(namespace), &source.name, spec).await?;
        }
        Kind::ClusterWide(_) => {
            let spec = json!({"serviceAccount": {"name": source.name, "namespace": namespace}});
            apply(target, "ClusterSource", None, &source.name, spec).await?;
        }
    }
    let accounts: Api<ServiceAccount> = target.api(namespace);
    let what =
        format!("source-controller made ServiceAccount {namespace}/{} in {}", source.name, target.name);
    wait::until(wait::SOON, &what, async || Ok(accounts.get_opt(&source.name).await?)).await.map(drop)
}

/// A token of a ServiceAccount that holds for a day, as `kubectl create token` asks for it.
///
/// # Errors
/// When the API server refuses it.
pub async fn token(cluster: &Cluster, namespace: &str, account: &str) -> Result<String> {
    let request = json!({"spec": {"audiences": [], "expirationSeconds": 86_400}});
    let request: TokenRequest = serde_json::from_value(request).context("not a token request")?;
    let accounts: Api<ServiceAccount> = cluster.api(namespace);
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("cannot create a token of {namespace}/{account} in {}", cluster.name))?;
    answer.status.and_then(|status| status.token).context("a token request was answered without a token")
}

/// The source's part: the Secret with the kubeconfig and the (Cluster)Target, both named `name`.
///
/// # Errors
/// When the API server refuses one.
pub async fn target_object(source: &Cluster, name: &str, kind: &Kind, kubeconfig: &str) -> Result<()> {
    let namespace = kind.namespace();
    source.create_namespace(namespace, &[]).await?;
    write_secret(source, namespace, name, kubeconfig).await?;
    match kind {
        Kind::Namespaced(_) => {
            let spec = json!({"kubeconfigSecret": {"name": name}});
            apply(source, "Target", Some(namespace), name, spec).await
        }
        Kind::ClusterWide(_) => {
            let spec = json!({"kubeconfigSecret": {"name": name, "namespace": namespace}});
            apply(source, "ClusterTarget", None, name, spec).await
        }
    }
}

/// Writes a Secret with a kubeconfig under its key `config`, or replaces what it holds.
///
/// # Errors
/// When the API server refuses it.
pub async fn write_secret(cluster: &Cluster, namespace: &str, name: &str, kubeconfig: &str) -> Result<()> {
    let secrets: Api<Secret> = cluster.api(namespace);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"config": kubeconfig},
    });
    secrets
        .patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(secret))
        .await
        .with_context(|| format!("cannot write Secret {namespace}/{name} in {}", cluster.name))?;
    Ok(())
}

/// Applies one object of the project's own kinds.
///
/// # Errors
/// When the API server refuses it.
pub async fn apply(
    cluster: &Cluster,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
    spec: Value,
) -> Result<()> {
    let api = cluster.dynamic(GROUP_VERSION, kind, namespace);
    let object = json!({"apiVersion": GROUP_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec});
    api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(object))
        .await
        .with_context(|| format!("cannot apply {kind} {name} in {}", cluster.name))?;
    Ok(())
}

/// Waits until a Target or ClusterTarget has condition `Ready`.
///
/// # Errors
/// When it does not get Ready in time: with its conditions.
pub async fn ready(source: &Cluster, target: &str, kind: &Kind) -> Result<()> {
    let api = match kind {
        Kind::Namespaced(namespace) => source.dynamic(GROUP_VERSION, "Target", Some(namespace)),
        Kind::ClusterWide(_) => source.dynamic(GROUP_VERSION, "ClusterTarget", None),
    };
    wait::until(wait::SOON, &format!("target {target} is Ready"), async || {
        let object = api.get(target).await?;
        if has_condition(&object, "Ready", "True") {
            return Ok(Some(()));
        }
        anyhow::bail!("status: {}", object.data.get("status").unwrap_or(&Value::Null))
    })
    .await
}

/// Whether an object's status has a condition of this type and status.
#[must_use]
pub fn has_condition(object: &DynamicObject, kind: &str, status: &str) -> bool {
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition.get("type").and_then(Value::as_str) == Some(kind)
            && condition.get("status").and_then(Value::as_str) == Some(status)
    })
}
