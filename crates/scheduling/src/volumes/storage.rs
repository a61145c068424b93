use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::quantity::Quantity;
use crate::selector::LabelSelector;

const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

fn name(root: &Field<'_>) -> Result<String, FieldError> {
    Ok(root.get("metadata").get("name").text()?.unwrap_or_default().to_owned())
}

/// When claims of a class are bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingMode {
    Immediate,
    /// When a pod that uses the claim is scheduled.
    WaitForFirstConsumer,
}

/// A StorageClass, reduced to what scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    pub name: String,
    pub provisioner: String,
    /// None if it does not say, which the API server does not let happen.
    pub binding_mode: Option<BindingMode>,
    /// Where volumes can be provisioned: one of the terms must hold, in which each key has one of the values.
    /// Empty: everywhere.
    pub topologies: Vec<Vec<(String, BTreeSet<String>)>>,
    /// Claims that name no class get it.
    pub is_default: bool,
}

impl StorageClass {
    /// Reads a raw StorageClass.
    pub fn parse(class: &Value) -> Result<Self, FieldError> {
        let root = Field::root(class);
        let mode = root.get("volumeBindingMode");
        let binding_mode = match mode.text()? {
            None => None,
            Some("Immediate") => Some(BindingMode::Immediate),
            Some("WaitForFirstConsumer") => Some(BindingMode::WaitForFirstConsumer),
            Some(_) => return Err(mode.error("must be Immediate or WaitForFirstConsumer")),
        };
        let terms = root.get("allowedTopologies").items()?;
        Ok(Self {
            name: name(&root)?,
            provisioner: root.get("provisioner").text()?.unwrap_or_default().to_owned(),
            binding_mode,
            topologies: terms.iter().map(topology).collect::<Result<_, _>>()?,
            is_default: root
                .get("metadata")
                .get("annotations")
                .text_map()?
                .get(IS_DEFAULT)
                .is_some_and(|is| is == "true"),
        })
    }

    /// True if volumes are made on demand.
    pub fn provisions(&self) -> bool {
        !matches!(self.provisioner.as_str(), "" | "kubernetes.io/no-provisioner")
    }

    /// True if volumes can be made for a node with these labels.
    pub(super) fn reaches(&self, labels: &Labels) -> bool {
        let holds = |term: &Vec<(String, BTreeSet<String>)>| {
            let each = |(key, values): &(String, BTreeSet<String>)| {
                labels.get(key).is_some_and(|value| values.contains(value))
            };
            !term.is_empty() && term.iter().all(each)
        };
        self.topologies.is_empty() || self.topologies.iter().any(holds)
    }
}

fn topology(term: &Field<'_>) -> Result<Vec<(String, BTreeSet<String>)>, FieldError> {
    let requirement = |field: &Field<'_>| {
        let key = field.get("key").text()?.unwrap_or_default().to_owned();
        Ok((key, field.get("values").texts()?.into_iter().collect()))
    };
    term.get("matchLabelExpressions").items()?.iter().map(requirement).collect()
}

/// A CSINode, reduced to what scheduling needs. It is called as its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiNode {
    pub name: String,
    /// CSI drivers on the node, and how many volumes each can attach; None for any number.
    pub drivers: BTreeMap<String, Option<i64>>,
    /// Annotation `storage.alpha.kubernetes.io/migrated-plugins`, word by word.
    pub migrated: BTreeSet<String>,
}

impl CsiNode {
    /// Reads a raw CSINode.
    pub fn parse(node: &Value) -> Result<Self, FieldError> {
        let root = Field::root(node);
        let mut drivers = BTreeMap::new();
        for driver in root.get("spec").get("drivers").items()? {
            let limit = driver.get("allocatable").get("count").integer()?;
            drivers.insert(driver.get("name").text()?.unwrap_or_default().to_owned(), limit);
        }
        let annotations = root.get("metadata").get("annotations");
        let migrated = annotations.text_map()?.remove("storage.alpha.kubernetes.io/migrated-plugins");
        let words = migrated.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty());
        Ok(Self { name: name(&root)?, drivers, migrated: words.map(str::to_owned).collect() })
    }
}

/// A CSIDriver, reduced to what scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiDriver {
    pub name: String,
    /// It publishes how much storage is left, and wants that to be heeded.
    pub storage_capacity: bool,
    /// Pods must not go to nodes on which the driver is not there.
    pub must_be_installed: bool,
}

impl CsiDriver {
    /// Reads a raw CSIDriver.
    pub fn parse(driver: &Value) -> Result<Self, FieldError> {
        let root = Field::root(driver);
        let spec = root.get("spec");
        Ok(Self {
            name: name(&root)?,
            storage_capacity: spec.get("storageCapacity").flag()?,
            must_be_installed: spec.get("preventPodSchedulingIfMissing").flag()?,
        })
    }
}

/// A CSIStorageCapacity, reduced to what scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageCapacity {
    pub namespace: String,
    pub name: String,
    pub class: String,
    pub capacity: Option<Quantity>,
    pub maximum_volume_size: Option<Quantity>,
    /// From which nodes the storage can be reached; None: from none.
    pub topology: Option<LabelSelector>,
}

impl StorageCapacity {
    /// Reads a raw CSIStorageCapacity. The namespace defaults to `default`.
    pub fn parse(capacity: &Value) -> Result<Self, FieldError> {
        let root = Field::root(capacity);
        let mut amounts = [None, None];
        for (amount, key) in amounts.iter_mut().zip(["capacity", "maximumVolumeSize"]) {
            let quantity = capacity.get(key).filter(|value| !value.is_null()).map(Quantity::from_json);
            *amount = quantity.transpose().map_err(|error| root.get(key).error(error.to_string()))?;
        }
        let [capacity, maximum_volume_size] = amounts;
        Ok(Self {
            namespace: root.get("metadata").get("namespace").text()?.unwrap_or("default").to_owned(),
            name: name(&root)?,
            class: root.get("storageClassName").text()?.unwrap_or_default().to_owned(),
            capacity,
            maximum_volume_size,
            topology: LabelSelector::parse(&root.get("nodeTopology"))?,
        })
    }

    /// The largest volume that can be made, in bytes; None if that is not known.
    pub fn limit(&self) -> Option<i64> {
        self.maximum_volume_size.or(self.capacity).as_ref().map(Quantity::value)
    }

    pub(super) fn reaches(&self, labels: &Labels) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.matches(labels))
    }
}

/// A VolumeAttachment, reduced to what scheduling needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    pub name: String,
    pub node: String,
    /// The CSI driver that attaches.
    pub attacher: String,
    /// Name of the PersistentVolume; None if it is a volume that a pod names itself.
    pub volume: Option<String>,
}

impl VolumeAttachment {
    /// Reads a raw VolumeAttachment.
    pub fn parse(attachment: &Value) -> Result<Self, FieldError> {
        let root = Field::root(attachment);
        let spec = root.get("spec");
        Ok(Self {
            name: name(&root)?,
            node: spec.get("nodeName").text()?.unwrap_or_default().to_owned(),
            attacher: spec.get("attacher").text()?.unwrap_or_default().to_owned(),
            volume: spec.get("source").get("persistentVolumeName").text()?.map(str::to_owned),
        })
    }
}
