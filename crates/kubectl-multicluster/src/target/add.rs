//! A new target, step by step; what is there already is brought to the same state.

use super::{MANAGER, kubeconfig, token, until};
use crate::access::{self, Cluster};
use crate::args::{Access, Add};
use crate::expiry::expiry;
use crate::fleet::{self, Member};
use crate::output::Steps;
use anyhow::{Context as _, Result, bail};
use api::conditions::Kind;
use api::v1alpha1::{ClusterSource, ClusterTarget, Source, Target};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Resource};
use serde_json::{Value, json};

/// Where the objects are made.
struct Names<'a> {
    /// Namespace of the ServiceAccount in the target and of the Secret in the source.
    namespace: &'a str,
    add: &'a Add,
}

pub(super) async fn run(access: &Access, add: &Add) -> Result<()> {
    let steps = Steps::default();
    let source = access::source(access).await?;
    let target = access::cluster(access, Some(&add.target_context)).await?;
    if source.uid("this cluster").await? == target.uid("the target").await? {
        bail!("--target-context {}: it leads to this very cluster", add.target_context);
    }
    let own = source.config.default_namespace.clone();
    let names = Names { namespace: if add.namespaced { &own } else { &add.system_namespace }, add };
    invite(&target, &names, &steps).await?;
    let account = &add.source_name;
    let token = token(&target, names.namespace, account, add.duration).await?;
    let text = kubeconfig::build(&target.config, add.server.as_deref(), &token)?;
    let holds = expiry(&text).map_or_else(String::new, |end| format!(", which holds until {end}"));
    steps.done(&format!("made a token of ServiceAccount {}/{account}{holds}", names.namespace));
    store(&source, &names, &text, &steps).await?;
    follow(&source, &names, &steps).await
}

/// Creates or corrects an object of which we own what we name.
async fn apply<K>(cluster: &Cluster, namespace: Option<&str>, name: &str, mut object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let kind = ApiResource::erase::<K>(&());
    let what = format!("{} {name}", kind.kind);
    object["apiVersion"] = Value::from(kind.api_version.as_str());
    object["kind"] = Value::from(kind.kind.as_str());
    object["metadata"] = json!({"name": name});
    let client = cluster.client.clone();
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    };
    let outcome = api.patch(name, &PatchParams::apply(MANAGER), &Patch::Apply(object)).await;
    outcome.with_context(|| format!("cannot apply {what}")).map(drop)
}

/// The target's part: the namespace, the ClusterSource or Source, and the identity that comes of it.
async fn invite(target: &Cluster, names: &Names<'_>, steps: &Steps) -> Result<()> {
    let (namespace, account) = (names.namespace, names.add.source_name.as_str());
    if Api::<Namespace>::all(target.client.clone()).get_opt(namespace).await?.is_none() {
        bail!(
            "namespace {namespace} does not exist in the target; create it, or install multicluster-scheduler there"
        );
    }
    if names.add.namespaced {
        let spec = json!({"spec": {"serviceAccountName": account}});
        apply::<Source>(target, Some(namespace), account, spec).await?;
        steps.done(&format!("applied Source {namespace}/{account} in the target"));
    } else {
        let spec = json!({"spec": {"serviceAccount": {"name": account, "namespace": namespace}}});
        apply::<ClusterSource>(target, None, account, spec).await?;
        steps.done(&format!("applied ClusterSource {account} in the target"));
    }
    steps.doing("waiting for source-controller in the target");
    until(names.add.timeout, "the identity in the target", || has_identity(target, names)).await?;
    steps.done("the target made the identity and its rights");
    Ok(())
}

async fn has_identity(target: &Cluster, names: &Names<'_>) -> Result<Result<(), String>> {
    let (namespace, account) = (names.namespace, names.add.source_name.as_str());
    let client = target.client.clone();
    let status = if names.add.namespaced {
        Api::<Source>::namespaced(client, namespace).get_status(account).await?.status
    } else {
        Api::<ClusterSource>::all(client).get_status(account).await?.status
    };
    let conditions = status.unwrap_or_default().conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == Kind::Ready.as_str());
    match ready {
        Some(ready) if ready.status == "True" => (),
        Some(ready) => return Ok(Err(format!("{}: {}", ready.reason, ready.message))),
        None => {
            return Ok(Err("source-controller has not looked at it; does it run in the target?".to_owned()));
        }
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(target.client.clone(), namespace);
    let there = accounts.get_opt(account).await?.is_some();
    Ok(there.then_some(()).ok_or_else(|| format!("ServiceAccount {namespace}/{account} does not exist")))
}

/// The source's part: the Secret and the ClusterTarget or Target.
async fn store(source: &Cluster, names: &Names<'_>, kubeconfig: &str, steps: &Steps) -> Result<()> {
    let (namespace, name) = (names.namespace, names.add.name.as_str());
    apply::<Secret>(source, Some(namespace), name, json!({"stringData": {"config": kubeconfig}})).await?;
    steps.done(&format!("applied Secret {namespace}/{name}"));
    if names.add.namespaced {
        let spec = json!({"spec": {"kubeconfigSecret": {"name": name}}});
        apply::<Target>(source, Some(namespace), name, spec).await?;
        steps.done(&format!("applied Target {namespace}/{name}"));
    } else {
        let spec = json!({"spec": {"kubeconfigSecret": {"name": name, "namespace": namespace}}});
        apply::<ClusterTarget>(source, None, name, spec).await?;
        steps.done(&format!("applied ClusterTarget {name}"));
    }
    Ok(())
}

/// Waits until the components use the target, and its virtual node is Ready.
async fn follow(source: &Cluster, names: &Names<'_>, steps: &Steps) -> Result<()> {
    steps.doing("waiting for virtual-kubelet");
    let key = if names.add.namespaced {
        format!("{}/{}", names.namespace, names.add.name)
    } else {
        names.add.name.clone()
    };
    let member = until(names.add.timeout, "a usable target", || usable(source, &key)).await?;
    steps.done(&format!("target {key} is Ready"));
    let node = member.node();
    until(names.add.timeout, "a Ready virtual node", || node_is_ready(source, &node)).await?;
    steps.done(&format!("virtual node {node} is Ready"));
    Ok(())
}

async fn usable(source: &Cluster, key: &str) -> Result<Result<Member, String>> {
    let member = fleet::member(source, key).await?;
    if member.condition(Kind::Ready) == "True" {
        return Ok(Ok(member));
    }
    let trouble = member.trouble().map(|(reason, message)| format!("{reason}: {message}"));
    Ok(Err(trouble.unwrap_or_else(|| "virtual-kubelet has not looked at it; does it run here?".to_owned())))
}

async fn node_is_ready(source: &Cluster, node: &str) -> Result<Result<(), String>> {
    let found = Api::<Node>::all(source.client.clone()).get_opt(node).await?;
    let Some(found) = found else { return Ok(Err(format!("node {node} does not exist"))) };
    let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    Ok(match ready {
        Some(ready) if ready.status == "True" => Ok(()),
        Some(ready) => Err(ready.message.unwrap_or_default()),
        None => Err(format!("node {node} has no condition Ready")),
    })
}
