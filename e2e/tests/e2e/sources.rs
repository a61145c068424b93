//! What a target cluster makes of Sources and ClusterSources.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::Cluster;
use e2e::connect::{apply, has_condition};
use e2e::ground::Ground;
use e2e::wait::{throughout, until};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::installed::installed;
use crate::scene::{GROUP_VERSION, LONG, merge, remove_namespace};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Waits until a binding is there, for this role and exactly these subjects, and returns its version.
async fn bound(
    cluster: &Cluster,
    namespace: Option<&str>,
    name: &str,
    (role, subjects): (&str, &Value),
) -> Result<String> {
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let bindings = cluster.dynamic(RBAC, kind, namespace);
    until(LONG, &format!("{kind} {name} binds {role}"), async || {
        let binding = bindings.get(name).await?;
        let (found, of) = (&binding.data["subjects"], &binding.data["roleRef"]);
        ensure!(of["kind"] == "ClusterRole" && of["name"] == role && found == subjects, "{of} {found}");
        Ok(binding.resource_version())
    })
    .await
}

async fn unbound(cluster: &Cluster, namespace: Option<&str>, name: &str) -> Result<()> {
    let kind = if namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    let bindings = cluster.dynamic(RBAC, kind, namespace);
    until(LONG, &format!("{kind} {name} is gone"), async || {
        Ok(bindings.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}

async fn is_ready(cluster: &Cluster, kind: &str, namespace: Option<&str>, name: &str) -> Result<()> {
    let api = cluster.dynamic(GROUP_VERSION, kind, namespace);
    until(LONG, &format!("{kind} {name} is Ready"), async || {
        let object = api.get(name).await?;
        if has_condition(&object, "Ready", "True") {
            return Ok(Some(()));
        }
        bail!("{}", object.data)
    })
    .await
}

const SOURCE_ROLE: &str = "multicluster-scheduler-source";
const SUMMARY_ROLE: &str = "multicluster-scheduler-cluster-summary-viewer";

fn account(name: &str, namespace: &str) -> Value {
    json!([{"kind": "ServiceAccount", "name": name, "namespace": namespace}])
}

pub(crate) async fn w24_a_cluster_source_gets_its_account_and_its_bindings(ground: &Ground) -> Result<()> {
    installed(ground).await?;
    let (target, namespace) = (ground.cluster("target-2")?, "identities");
    target.create_namespace(namespace, &[]).await?;
    let spec = json!({"serviceAccount": {"name": "far-away", "namespace": namespace}});
    apply(target, "ClusterSource", None, "guests", spec).await?;
    let accounts: Api<ServiceAccount> = target.api(namespace);
    until(LONG, "the account is there", async || Ok(accounts.get_opt("far-away").await?)).await?;
    let subjects = account("far-away", namespace);
    let names = ["admiralty-cluster-source-guests", "admiralty-cluster-source-guests-cluster-summary-viewer"];
    for (name, role) in names.into_iter().zip([SOURCE_ROLE, SUMMARY_ROLE]) {
        bound(target, None, name, (role, &subjects)).await?;
    }
    is_ready(target, "ClusterSource", None, "guests").await?;
    // What somebody changes by hand is set back.
    let nobody = json!({"subjects": null});
    merge(target, None, (RBAC, "ClusterRoleBinding"), names[0], nobody).await?;
    bound(target, None, names[0], (SOURCE_ROLE, &subjects)).await?;
    let sources = target.dynamic(GROUP_VERSION, "ClusterSource", None);
    sources.delete("guests", &DeleteParams::default()).await?;
    for name in names {
        unbound(target, None, name).await?;
    }
    remove_namespace(target, namespace).await
}

pub(crate) async fn w25_a_sources_bindings_are_written_once_and_go_with_it(ground: &Ground) -> Result<()> {
    installed(ground).await?;
    let (target, namespace) = (ground.cluster("target-2")?, "tenants");
    target.create_namespace(namespace, &[]).await?;
    let spec = json!({"serviceAccountName": "tenant", "userName": "somebody"});
    apply(target, "Source", Some(namespace), "near", spec).await?;
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"});
    let mut subjects = account("tenant", namespace);
    subjects.as_array_mut().context("no list")?.push(user);
    let summary = "admiralty-source-tenants-near-cluster-summary-viewer";
    let looks = async || -> Result<(String, String)> {
        let own = bound(target, Some(namespace), "admiralty-source-near", (SOURCE_ROLE, &subjects)).await?;
        Ok((own, bound(target, None, summary, (SUMMARY_ROLE, &subjects)).await?))
    };
    let first = looks().await?;
    is_ready(target, "Source", Some(namespace), "near").await?;
    throughout(Duration::from_secs(6), "nobody writes the bindings again", async || {
        Ok(looks().await? == first)
    })
    .await?;
    let sources = target.dynamic(GROUP_VERSION, "Source", Some(namespace));
    sources.delete("near", &DeleteParams::default()).await?;
    unbound(target, Some(namespace), "admiralty-source-near").await?;
    unbound(target, None, summary).await?;
    // The same when the whole namespace goes.
    apply(target, "Source", Some(namespace), "near", json!({"serviceAccountName": "tenant"})).await?;
    bound(target, None, summary, (SUMMARY_ROLE, &account("tenant", namespace))).await?;
    remove_namespace(target, namespace).await?;
    unbound(target, None, summary).await
}
