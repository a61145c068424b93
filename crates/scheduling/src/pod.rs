//! Pods, reduced to what scheduling needs.

mod classes;
mod requests;
mod spec;
#[cfg(test)]
mod tests;
mod volumes;

use std::sync::Arc;

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::text::shared_name;
pub use classes::Classes;
pub use spec::{
    AffinityTerm, ClaimSource, HostPort, Operator, PodAffinity, PodClaim, PodSpec, Policy, SpreadConstraint,
    Toleration, Weighted,
};
pub(crate) use spec::{node_terms, preferred_nodes};
pub use volumes::PodVolume;

/// A pod: who it is, where it is, and (shared with all pods that look alike) what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodInfo {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub node_name: Option<Arc<str>>,
    /// The node on which room was made for it, from its status.
    pub nominated: Option<Arc<str>>,
    /// When its kubelet first saw it, in nanoseconds since 1970. None if it has not.
    pub started: Option<i64>,
    /// It has a deletion timestamp.
    pub terminating: bool,
    /// It is terminating because a scheduler made room for another pod.
    pub preempted: bool,
    /// Its phase is terminal, so that it takes no room on its node.
    pub finished: bool,
    /// The claims that were made from its templates.
    pub generated: Option<Arc<[Generated]>>,
    /// It is room that was promised, and no pod yet: it makes way for no other pod, and no pod makes way for it.
    pub promise: bool,
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
        let status = root.get("status");
        let phase = status.get("phase").text()?;
        let nominated = status.get("nominatedNodeName").text()?.filter(|node| !node.is_empty());
        let terminating = metadata.get("deletionTimestamp").present();
        Ok(Self {
            namespace: shared_name(namespace),
            name: Arc::from(name),
            uid,
            node_name: node_name.map(shared_name),
            nominated: nominated.map(shared_name),
            started: status.get("startTime").time()?,
            terminating,
            preempted: terminating && makes_way(&status)?,
            finished: matches!(phase, Some("Succeeded" | "Failed")),
            generated: generated(&status)?,
            promise: false,
            spec: Arc::new(PodSpec::parse(&root, namespace)?),
        })
    }

    /// The claim that was made for the pod from the template that its spec names so. None: not yet; an empty one: none
    /// is made.
    pub(crate) fn generated_claim(&self, name: &str) -> Option<&Option<String>> {
        let known = self.generated.as_ref()?.iter().find(|(known, _)| known == name)?;
        Some(&known.1)
    }

    /// The same pod, placed on `node`.
    pub fn placed(&self, node: &Arc<str>) -> Self {
        Self { node_name: Some(Arc::clone(node)), ..self.clone() }
    }
}

/// A claim that was made from a template: the name under which the pod's spec has it, and the claim's. None where none
/// is made.
pub type Generated = (String, Option<String>);

fn generated(status: &Field<'_>) -> Result<Option<Arc<[Generated]>>, FieldError> {
    let mut claims = Vec::new();
    for claim in status.get("resourceClaimStatuses").items()? {
        let text = |key: &str| Ok(claim.get(key).text()?.map(str::to_owned));
        claims.push((text("name")?.unwrap_or_default(), text("resourceClaimName")?));
    }
    Ok((!claims.is_empty()).then(|| Arc::from(claims)))
}

/// True if the first condition of that type says that a scheduler preempted the pod.
fn makes_way(status: &Field<'_>) -> Result<bool, FieldError> {
    for condition in status.get("conditions").items()? {
        if condition.get("type").text()? == Some("DisruptionTarget") {
            return Ok(condition.get("status").text()? == Some("True")
                && condition.get("reason").text()? == Some("PreemptionByScheduler"));
        }
    }
    Ok(false)
}
