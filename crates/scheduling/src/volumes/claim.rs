use std::sync::Arc;

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::pod::PodInfo;
use crate::quantity::Quantity;
use crate::selector::LabelSelector;
use crate::volumes::cache::Versioned;

pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A PersistentVolumeClaim, reduced to what scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: String,
    pub resource_version: String,
    /// Name of its StorageClass; empty if it has none.
    pub class: String,
    /// Name of the PersistentVolume that it is bound to, or is to be bound to; empty if none.
    pub volume: String,
    /// Binding is complete: annotation `pv.kubernetes.io/bind-completed`.
    pub bind_completed: bool,
    /// The node for which storage is being provisioned: annotation `volume.kubernetes.io/selected-node`.
    pub selected_node: Option<Arc<str>>,
    /// Its volume is lost.
    pub lost: bool,
    pub deleting: bool,
    /// How much storage it asks for; None if it does not say.
    pub request: Option<Quantity>,
    pub access_modes: Vec<String>,
    /// Which volumes may be bound; None if it does not say.
    pub selector: Option<LabelSelector>,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
    /// Name of its VolumeAttributesClass; empty if none.
    pub attributes_class: String,
    /// UID of the object that controls it.
    pub controller: Option<String>,
    pub labels: Labels,
}

impl Versioned for Claim {
    fn key(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Claim {
    /// Reads a raw PersistentVolumeClaim. The namespace defaults to `default`.
    pub fn parse(claim: &Value) -> Result<Self, FieldError> {
        let root = Field::root(claim);
        let (metadata, spec, status) = (root.get("metadata"), root.get("spec"), root.get("status"));
        let text = |field: Field<'_>| field.text().map(|text| text.unwrap_or_default().to_owned());
        let mut annotations = metadata.get("annotations").text_map()?;
        let mut controller = None;
        for owner in metadata.get("ownerReferences").items()? {
            if controller.is_none() && owner.get("controller").flag()? {
                controller = Some(text(owner.get("uid"))?);
            }
        }
        Ok(Self {
            namespace: Arc::from(metadata.get("namespace").text()?.unwrap_or("default")),
            name: Arc::from(metadata.get("name").text()?.unwrap_or_default()),
            uid: text(metadata.get("uid"))?,
            resource_version: text(metadata.get("resourceVersion"))?,
            class: match annotations.remove(BETA_CLASS) {
                Some(class) => class,
                None => text(spec.get("storageClassName"))?,
            },
            volume: text(spec.get("volumeName"))?,
            bind_completed: annotations.contains_key(BIND_COMPLETED),
            selected_node: annotations.remove(SELECTED_NODE).map(Arc::from),
            lost: status.get("phase").text()? == Some("Lost"),
            deleting: metadata.get("deletionTimestamp").present(),
            request: spec.get("resources").get("requests").resource_list()?.remove("storage"),
            access_modes: spec.get("accessModes").texts()?,
            selector: LabelSelector::parse(&spec.get("selector"))?,
            volume_mode: spec.get("volumeMode").text()?.unwrap_or("Filesystem").to_owned(),
            attributes_class: text(spec.get("volumeAttributesClassName"))?,
            controller,
            labels: metadata.get("labels").labels()?,
        })
    }

    /// How much storage it asks for, nothing if it does not say.
    pub fn size(&self) -> Quantity {
        self.request.unwrap_or_default()
    }

    pub fn is_bound(&self) -> bool {
        !self.volume.is_empty() && self.bind_completed
    }

    /// Only one pod may use it at a time.
    pub(crate) fn for_one_pod(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }

    /// A claim that stands behind an ephemeral volume must belong to that pod; otherwise says what is wrong.
    pub(crate) fn check_owner(&self, pod: &PodInfo) -> Result<(), String> {
        if self.namespace == pod.namespace && self.controller.as_deref() == Some(&*pod.uid) {
            return Ok(());
        }
        let (claim, pod_key) =
            (format!("{}/{}", self.namespace, self.name), format!("{}/{}", pod.namespace, pod.name));
        Err(format!("PVC {claim} was not created for pod {pod_key} (pod is not owner)"))
    }
}
