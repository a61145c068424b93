//! Pods, reduced to what scheduling needs.

mod classes;
mod requests;
mod spec;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use crate::field::{Field, FieldError};
pub use classes::Classes;
pub use spec::{
    AffinityTerm, HostPort, Operator, PodAffinity, PodSpec, Policy, SpreadConstraint, Toleration, Weighted,
};

/// A pod: who it is, where it is, and (shared with all pods that look alike) what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInfo {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub node_name: Option<Arc<str>>,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// Its phase is terminal, so that it takes no room on its node.
    pub finished: bool,
    pub spec: Arc<PodSpec>,
}

impl PodInfo {
    /// Reads a raw pod. `apiVersion` and `kind` may be absent, and so may the UID, which then is
    /// `namespace/name`; the namespace defaults to `default`.
    pub fn parse(pod: &Value) -> Result<Self, FieldError> {
        let root = Field::root(pod);
        let metadata = root.get("metadata");
        let namespace = metadata.get("namespace").text()?.unwrap_or("default");
        let name = metadata.get("name").text()?.unwrap_or_default();
        let uid = match metadata.get("uid").text()? {
            Some(uid) => Arc::from(uid),
            None => Arc::from(format!("{namespace}/{name}")),
        };
        let node_name = root.get("spec").get("nodeName").text()?.filter(|node| !node.is_empty());
        let phase = root.get("status").get("phase").text()?;
        Ok(Self {
            namespace: Arc::from(namespace),
            name: Arc::from(name),
            uid,
            node_name: node_name.map(Arc::from),
            terminating: metadata.get("deletionTimestamp").present(),
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            spec: Arc::new(PodSpec::parse(&root, namespace)?),
        })
    }

    /// The same pod, placed on `node`.
    pub fn placed(&self, node: &Arc<str>) -> Self {
        Self { node_name: Some(Arc::clone(node)), ..self.clone() }
    }
}
