//! Carries out actions, one API call each.

use crate::facts::Refused;
use crate::node;
use crate::plan::{Action, Status, capacities};
use api::v1alpha1::{ClusterTarget, Target, TargetStatus};
use api::{Node, Pod, keys, names};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use runtime::{Class, Runtime, TargetKey, class};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tracing::{info, warn};

/// What failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {object}")]
pub(crate) struct Error {
    verb: &'static str,
    object: String,
    source: kube::Error,
}

impl Error {
    pub(crate) fn class(&self) -> Class {
        class(&self.source)
    }
}

/// What a write tells about a virtual node.
#[derive(Debug)]
pub(crate) enum Effect {
    None,
    /// The node as it is now.
    Node(Box<Node>),
    /// The same, and the labels that we own.
    Labels(Box<Node>, BTreeMap<String, String>),
    /// The same, and the part of the status that we own.
    Status(Box<Node>, Value),
    Refused(String, Refused),
    /// The node of a target that is gone has pods.
    Used(String),
}

fn failed(verb: &'static str, object: impl std::fmt::Display) -> impl FnOnce(kube::Error) -> Error {
    let object = object.to_string();
    move |source| Error { verb, object, source }
}

/// Carries out one action.
pub(crate) async fn apply(rt: &Runtime, action: &Action) -> Result<Effect, Error> {
    let nodes = Api::<Node>::all(rt.client.clone());
    let ours = PatchParams::apply(&rt.manager()).force();
    let plain = PatchParams { field_manager: Some(rt.manager()), ..PatchParams::default() };
    match action {
        Action::PatchTarget { key, uid, status } => patch_target(rt, key, uid, status).await,
        Action::HoldTarget { key, uid, resource_version, finalizers } => {
            let metadata = json!({"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers});
            hold_target(rt, key, &json!({"metadata": metadata})).await
        }
        Action::CreateNode { key } => create(rt, key).await,
        Action::ApplyLabels { name, uid, labels } => {
            let patch = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid, "labels": labels}});
            let node =
                nodes.patch(name, &ours, &Patch::Apply(patch)).await.map_err(failed("label node", name))?;
            Ok(Effect::Labels(Box::new(node), labels.clone()))
        }
        Action::SetTaints { name, uid, resource_version, taints } => {
            let patch = json!({"metadata": {"uid": uid, "resourceVersion": resource_version}, "spec": {"taints": taints}});
            let node =
                nodes.patch(name, &plain, &Patch::Merge(patch)).await.map_err(failed("taint node", name))?;
            Ok(Effect::Node(Box::new(node)))
        }
        Action::ApplyStatus { name, uid, status } => {
            let patch = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}, "status": status.sent});
            match nodes.patch_status(name, &ours, &Patch::Apply(patch)).await {
                Ok(node) => Ok(Effect::Status(Box::new(node), status.reduced.clone())),
                Err(error) if class(&error) == Class::Invalid => Ok(refused(name, status, &error)),
                Err(error) => Err(failed("write the status of node", name)(error)),
            }
        }
        Action::PatchConditions { name, uid, status } => {
            let patch = json!({"metadata": {"uid": uid}, "status": node::only_conditions(&status.sent)});
            let patched = nodes.patch_status(name, &plain, &Patch::Strategic(patch)).await;
            Ok(Effect::Node(Box::new(patched.map_err(failed("write the conditions of node", name))?)))
        }
        Action::DeleteNode { name, uid, namespace } => delete(rt, name, uid, namespace).await,
    }
}

fn refused(name: &str, status: &Status, error: &kube::Error) -> Effect {
    let also_without_huge_pages = status.reduced != status.wanted || !has_huge_pages(&status.wanted);
    warn!(node = name, error = %runtime::Chain(error), "the API server refuses this status; sending less of it");
    Effect::Refused(name.to_owned(), Refused { status: status.wanted.clone(), also_without_huge_pages })
}

fn has_huge_pages(status: &Value) -> bool {
    status["capacity"]
        .as_object()
        .into_iter()
        .flatten()
        .any(|(resource, _)| resource.starts_with("hugepages-"))
}

/// What the API server stored of a status.
pub(crate) fn stored(node: &Node) -> Value {
    capacities(&node.status)
}

async fn patch_target(
    rt: &Runtime,
    key: &TargetKey,
    uid: &str,
    status: &TargetStatus,
) -> Result<Effect, Error> {
    let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "status": status}));
    let params = PatchParams { field_manager: Some(rt.manager()), ..PatchParams::default() };
    let result = if key.namespace.is_empty() {
        let api = Api::<ClusterTarget>::all(rt.client.clone());
        api.patch_status(&key.name, &params, &patch).await.map(drop)
    } else {
        let api = Api::<Target>::namespaced(rt.client.clone(), &key.namespace);
        api.patch_status(&key.name, &params, &patch).await.map(drop)
    };
    result.map_err(failed("write the status of target", key))?;
    Ok(Effect::None)
}

async fn hold_target(rt: &Runtime, key: &TargetKey, patch: &Value) -> Result<Effect, Error> {
    let params = PatchParams { field_manager: Some(rt.manager()), ..PatchParams::default() };
    let result = if key.namespace.is_empty() {
        let api = Api::<ClusterTarget>::all(rt.client.clone());
        api.patch_metadata(&key.name, &params, &Patch::Merge(patch)).await.map(drop)
    } else {
        let api = Api::<Target>::namespaced(rt.client.clone(), &key.namespace);
        api.patch_metadata(&key.name, &params, &Patch::Merge(patch)).await.map(drop)
    };
    result.map_err(failed("put the finalizer on target", key))?;
    Ok(Effect::None)
}

async fn create(rt: &Runtime, key: &TargetKey) -> Result<Effect, Error> {
    let nodes = Api::<Node>::all(rt.client.clone());
    let name = key.virtual_node();
    let broken =
        |error| Error { verb: "make node", object: name.clone(), source: kube::Error::SerdeError(error) };
    let node: Node = serde_json::from_value(node::new(key)).map_err(broken)?;
    let params = PostParams { field_manager: Some(rt.manager()), ..PostParams::default() };
    match nodes.create(&params, &node).await {
        Ok(node) => {
            info!(node = %name, cluster = %key, "created the virtual node");
            Ok(Effect::Node(Box::new(node)))
        }
        Err(error) if class(&error) == Class::Conflict => adopt(rt, key).await,
        Err(error) => Err(failed("create node", &name)(error)),
    }
}

/// The node is there without the label by which we watch it: somebody took the label off, or it is no
/// virtual node.
async fn adopt(rt: &Runtime, key: &TargetKey) -> Result<Effect, Error> {
    let nodes = Api::<Node>::all(rt.client.clone());
    let name = key.virtual_node();
    let node = nodes.get(&name).await.map_err(failed("read node", &name))?;
    let taints = node.spec["taints"].as_array();
    let tainted = taints.into_iter().flatten().any(|taint| taint["key"] == keys::PROVIDER);
    let labelled = [keys::PROVIDER, keys::TARGET_NAME, keys::CLUSTER_TARGET_NAME]
        .iter()
        .any(|k| node.label(k).is_some());
    if !tainted && !labelled {
        warn!(node = %name, cluster = %key, "a node that is not ours has the name of a virtual node; leaving it alone");
        return Ok(Effect::None);
    }
    let patch = json!({"metadata": {"uid": node.uid(), "labels": node::base_labels(key)}});
    let params = PatchParams { field_manager: Some(rt.manager()), ..PatchParams::default() };
    let node =
        nodes.patch(&name, &params, &Patch::Merge(patch)).await.map_err(failed("label node", &name))?;
    Ok(Effect::Node(Box::new(node)))
}

/// Whether a proxy pod is bound to a node.
async fn is_used(rt: &Runtime, name: &str) -> Result<bool, Error> {
    let fields = format!("spec.nodeName={name},spec.schedulerName={}", keys::PROXY_SCHEDULER);
    let pods = Api::<Pod>::all(rt.client.clone());
    let found = pods.list_metadata(&ListParams::default().fields(&fields).limit(1)).await;
    Ok(!found.map_err(failed("list pods of node", name))?.items.is_empty())
}

/// Reads live whether no target has this node before it deletes it. The label's name may be cut, so the
/// targets of the namespace are listed; this happens once for each removed target.
async fn delete(rt: &Runtime, name: &str, uid: &str, namespace: &str) -> Result<Effect, Error> {
    let params = ListParams::default();
    let wanted = if namespace.is_empty() {
        let targets = Api::<ClusterTarget>::all(rt.client.clone()).list_metadata(&params).await;
        let targets = targets.map_err(failed("list targets for node", name))?;
        targets.iter().any(|target| names::virtual_node("", &target.name_any()) == name)
    } else {
        let targets = Api::<Target>::namespaced(rt.client.clone(), namespace).list_metadata(&params).await;
        let targets = targets.map_err(failed("list targets for node", name))?;
        targets.iter().any(|target| names::virtual_node(namespace, &target.name_any()) == name)
    };
    if wanted {
        return Ok(Effect::None);
    }
    if is_used(rt, name).await? {
        return Ok(Effect::Used(name.to_owned()));
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    let deleted = Api::<Node>::all(rt.client.clone()).delete(name, &params).await;
    match deleted {
        Ok(_) => info!(node = name, "deleted the virtual node of a target that is gone"),
        Err(error) if class(&error) == Class::NotFound => {}
        Err(error) => return Err(failed("delete node", name)(error)),
    }
    Ok(Effect::None)
}
