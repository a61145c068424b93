use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::quantity::Quantity;
use crate::selector::NodeTerm;
use crate::volumes::cache::Versioned;
use crate::volumes::claim::{BETA_CLASS, Claim};
use crate::volumes::migration::{self, Migrated, Plugin};

pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// The claim that a volume is bound to, or kept for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    /// Empty if the volume is kept for any claim of that name.
    pub uid: String,
}

/// What a volume is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeSource {
    Csi {
        driver: String,
        handle: String,
    },
    /// A kind of disk that Kubernetes once served itself, and as what its CSI driver sees it; otherwise what is
    /// wrong with it.
    InTree {
        plugin: Plugin,
        migrated: Result<Migrated, String>,
    },
    Other,
}

/// A PersistentVolume, reduced to what scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolume {
    pub name: Arc<str>,
    pub resource_version: String,
    pub labels: Labels,
    /// Name of its StorageClass; empty if it has none.
    pub class: String,
    /// The class that its spec names, for scoring.
    spec_class: String,
    pub uid: String,
    pub capacity: Quantity,
    pub access_modes: BTreeSet<String>,
    /// `Filesystem` or `Block`.
    pub volume_mode: String,
    /// Name of its VolumeAttributesClass; empty if none.
    pub attributes_class: String,
    pub deleting: bool,
    /// Its phase is Available.
    pub available: bool,
    pub claim: Option<ClaimRef>,
    /// It was bound by a controller, not by a user: annotation `pv.kubernetes.io/bound-by-controller`.
    pub bound_by_controller: bool,
    /// From which nodes it can be reached: one of the terms must hold. None: from all.
    pub node_terms: Option<Vec<NodeTerm>>,
    pub source: VolumeSource,
}

impl Versioned for PersistentVolume {
    fn key(&self) -> (&str, &str) {
        ("", &self.name)
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// The terms of a volume's node affinity.
pub(super) fn node_terms(spec: &Field<'_>) -> Result<Option<Vec<NodeTerm>>, FieldError> {
    let required = spec.get("nodeAffinity").get("required");
    if !required.present() {
        return Ok(None);
    }
    let terms = required.get("nodeSelectorTerms").items()?;
    terms.iter().map(NodeTerm::parse).collect::<Result<_, _>>().map(Some)
}

/// True if a volume with these terms can be reached from a node with these labels. The node's name is not looked at.
pub(super) fn reached(terms: Option<&[NodeTerm]>, labels: &Labels) -> bool {
    terms.is_none_or(|terms| terms.iter().any(|term| term.matches_labels(labels)))
}

impl PersistentVolume {
    /// Reads a raw PersistentVolume.
    pub fn parse(volume: &Value) -> Result<Self, FieldError> {
        let root = Field::root(volume);
        let (metadata, spec) = (root.get("metadata"), root.get("spec"));
        let text = |field: Field<'_>| field.text().map(|text| text.unwrap_or_default().to_owned());
        let mut annotations = metadata.get("annotations").text_map()?;
        let spec_class = text(spec.get("storageClassName"))?;
        let claim = spec.get("claimRef");
        let claim = if claim.present() {
            let (namespace, name) = (text(claim.get("namespace"))?, text(claim.get("name"))?);
            Some(ClaimRef { namespace, name, uid: text(claim.get("uid"))? })
        } else {
            None
        };
        Ok(Self {
            name: Arc::from(metadata.get("name").text()?.unwrap_or_default()),
            uid: text(metadata.get("uid"))?,
            resource_version: text(metadata.get("resourceVersion"))?,
            labels: metadata.get("labels").labels()?,
            class: annotations.remove(BETA_CLASS).unwrap_or_else(|| spec_class.clone()),
            spec_class,
            capacity: spec.get("capacity").resource_list()?.remove("storage").unwrap_or_default(),
            access_modes: spec.get("accessModes").texts()?.into_iter().collect(),
            volume_mode: spec.get("volumeMode").text()?.unwrap_or("Filesystem").to_owned(),
            attributes_class: text(spec.get("volumeAttributesClassName"))?,
            deleting: metadata.get("deletionTimestamp").present(),
            available: root.get("status").get("phase").text()? == Some("Available"),
            claim,
            bound_by_controller: annotations.contains_key(BOUND_BY_CONTROLLER),
            node_terms: node_terms(&spec)?,
            source: source(volume)?,
        })
    }

    /// True if it is bound to `claim` or kept for it.
    pub(super) fn is_for(&self, claim: &Claim) -> bool {
        self.claim.as_ref().is_some_and(|bound| {
            bound.name == *claim.name
                && bound.namespace == *claim.namespace
                && (bound.uid.is_empty() || bound.uid == claim.uid)
        })
    }

    /// The same volume, bound to `claim` by us.
    pub(super) fn bound_to(&self, claim: &Claim) -> Self {
        let bound = ClaimRef {
            namespace: claim.namespace.to_string(),
            name: claim.name.to_string(),
            uid: claim.uid.clone(),
        };
        let bound_by_controller = self.bound_by_controller || !self.is_for(claim);
        Self { claim: Some(bound), bound_by_controller, ..self.clone() }
    }

    pub(crate) fn spec_class(&self) -> &str {
        &self.spec_class
    }

    /// Zones and regions that its labels name, by label.
    pub(crate) fn zones(&self) -> Vec<(&'static str, BTreeSet<String>)> {
        ZONE_LABELS.into_iter().filter_map(|key| Some((key, zone_set(self.labels.get(key)?)?))).collect()
    }
}

pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub(crate) const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
pub(crate) const ZONE_LABELS: [&str; 4] = [BETA_ZONE, BETA_REGION, ZONE, REGION];

/// What joins the zones of a volume that is in several.
pub(super) const ZONE_SEPARATOR: &str = "__";

/// None if one of the zones is empty: such a label says nothing.
fn zone_set(label: &str) -> Option<BTreeSet<String>> {
    label
        .split(ZONE_SEPARATOR)
        .map(|zone| Some(zone.trim()).filter(|zone| !zone.is_empty()).map(str::to_owned))
        .collect()
}

fn source(volume: &Value) -> Result<VolumeSource, FieldError> {
    let root = Field::root(volume);
    let csi = root.get("spec").get("csi");
    if csi.present() {
        let text = |key: &str| csi.get(key).text().map(|text| text.unwrap_or_default().to_owned());
        return Ok(VolumeSource::Csi { driver: text("driver")?, handle: text("volumeHandle")? });
    }
    match Plugin::of_volume(&root.get("spec")) {
        None => Ok(VolumeSource::Other),
        Some(plugin) => Ok(VolumeSource::InTree { plugin, migrated: migration::migrate(plugin, volume)? }),
    }
}
