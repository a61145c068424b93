//! Nodes, reduced to what scheduling needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::quantity::Quantity;
use crate::resources::{ResourceList, Resources};
use crate::text::shared_name;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Taint {
    pub key: String,
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl Taint {
    /// True if the taint keeps pods away that do not tolerate it, rather than being a preference.
    pub fn forbids(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    pub name: Arc<str>,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Its condition Ready is True.
    pub ready: bool,
    pub capacity: Arc<ResourceList>,
    pub allocatable: Arc<ResourceList>,
    /// [`Self::allocatable`] in integers.
    pub room: Resources,
    /// How many pods may run at once.
    pub max_pods: i64,
    /// Features that the kubelet declares.
    pub features: BTreeSet<String>,
    /// Images that are there, by each of their names, with their size in bytes.
    pub images: BTreeMap<String, i64>,
}

impl NodeInfo {
    /// Reads a raw node. Without `status.allocatable` the capacity is allocatable.
    pub fn parse(node: &Value) -> Result<Self, FieldError> {
        let root = Field::root(node);
        let (metadata, spec, status) = (root.get("metadata"), root.get("spec"), root.get("status"));
        let capacity = Arc::new(status.get("capacity").resource_list()?);
        let allocatable = match status.get("allocatable") {
            field if field.present() => Arc::new(field.resource_list()?),
            _ => Arc::clone(&capacity),
        };
        let mut ready = false;
        for condition in status.get("conditions").items()? {
            ready |= condition.get("type").text()? == Some("Ready")
                && condition.get("status").text()? == Some("True");
        }
        Ok(Self {
            name: shared_name(metadata.get("name").text()?.unwrap_or_default()),
            labels: metadata.get("labels").labels()?,
            taints: spec.get("taints").items()?.iter().map(taint).collect::<Result<_, _>>()?,
            unschedulable: spec.get("unschedulable").flag()?,
            ready,
            room: Resources::from_list(&allocatable),
            max_pods: allocatable.get("pods").map(Quantity::value).unwrap_or_default(),
            features: status.get("declaredFeatures").texts()?.into_iter().collect(),
            images: images(&status)?,
            capacity,
            allocatable,
        })
    }

    /// A node of which nothing but the name is known.
    pub(crate) fn unknown(name: Arc<str>) -> Self {
        Self {
            name,
            labels: Labels::new(),
            taints: Vec::new(),
            unschedulable: false,
            ready: false,
            capacity: Arc::default(),
            allocatable: Arc::default(),
            room: Resources::default(),
            max_pods: 0,
            features: BTreeSet::new(),
            images: BTreeMap::new(),
        }
    }

    /// True for a node that stands for a whole cluster.
    pub fn is_virtual(&self) -> bool {
        self.labels.get("virtual-kubelet.io/provider") == Some("admiralty")
    }

    /// True if a taint keeps ordinary pods off because the control plane runs there.
    pub fn is_control_plane(&self) -> bool {
        let roles = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
        self.taints.iter().any(|taint| taint.forbids() && roles.contains(&taint.key.as_str()))
    }
}

fn images(status: &Field<'_>) -> Result<BTreeMap<String, i64>, FieldError> {
    let mut images = BTreeMap::new();
    for image in status.get("images").items()? {
        let size = image.get("sizeBytes").integer()?.unwrap_or_default();
        images.extend(image.get("names").texts()?.into_iter().map(|name| (name, size)));
    }
    Ok(images)
}

fn taint(field: &Field<'_>) -> Result<Taint, FieldError> {
    let text = |key: &str| field.get(key).text().map(|text| text.unwrap_or_default().to_owned());
    Ok(Taint { key: text("key")?, value: text("value")?, effect: text("effect")? })
}
