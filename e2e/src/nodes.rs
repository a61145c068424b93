//! Fake nodes, whose kubelets kwok plays.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::keys::FAKE_NODE;
use crate::wait;

/// What a fake node offers.
#[derive(Debug, Clone)]
pub struct Shape {
    /// CPUs, as a quantity.
    pub cpu: String,
    /// Memory, as a quantity.
    pub memory: String,
    /// How many pods it holds.
    pub pods: u32,
    /// Labels besides its host name.
    pub labels: BTreeMap<String, String>,
    /// Taints, as in a node's spec.
    pub taints: Vec<Value>,
    /// Annotations besides the one that makes it a fake node.
    pub annotations: BTreeMap<String, String>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            cpu: "8".into(),
            memory: "32Gi".into(),
            pods: 110,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            annotations: BTreeMap::new(),
        }
    }
}

impl Shape {
    /// A node object of this shape.
    #[must_use]
    pub fn node(&self, name: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert("kubernetes.io/hostname".into(), name.into());
        labels.insert("kubernetes.io/os".into(), "linux".into());
        labels.insert("kubernetes.io/arch".into(), "amd64".into());
        let mut annotations = self.annotations.clone();
        annotations.insert(FAKE_NODE.into(), "fake".into());
        let resources = json!({"cpu": self.cpu, "memory": self.memory, "pods": self.pods.to_string(),
            "ephemeral-storage": "100Gi"});
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"taints": self.taints},
            "status": {"capacity": resources, "allocatable": resources},
        })
    }
}

/// Creates one fake node.
///
/// # Errors
/// When the API server refuses it.
pub async fn create(client: &Client, name: &str, shape: &Shape) -> Result<()> {
    let node: Node = serde_json::from_value(shape.node(name)).context("not a node")?;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .create(&PostParams::default(), &node)
        .await
        .with_context(|| format!("cannot create node {name}"))?;
    Ok(())
}

/// Creates `count` fake nodes `<prefix>-0`, `<prefix>-1` and so on, and waits until they are Ready.
///
/// # Errors
/// When the API server refuses one or a node does not get Ready.
pub async fn create_many(client: &Client, prefix: &str, count: usize, shape: &Shape) -> Result<()> {
    for number in 0..count {
        create(client, &format!("{prefix}-{number}"), shape).await?;
    }
    for number in 0..count {
        ready(client, &format!("{prefix}-{number}")).await?;
    }
    Ok(())
}

/// Waits until a node is Ready and has lost the taint that new nodes have.
///
/// # Errors
/// When it does not get Ready soon.
pub async fn ready(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    wait::until(wait::SOON, &format!("node {name} is Ready"), async || {
        let node = nodes.get(name).await?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let is_new = taints.iter().any(|taint| taint.key == "node.kubernetes.io/not-ready");
        let is_ready = conditions.iter().any(|is| is.type_ == "Ready" && is.status == "True");
        Ok((is_ready && !is_new).then_some(()))
    })
    .await
}
