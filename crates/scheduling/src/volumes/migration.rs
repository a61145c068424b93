//! Disks that Kubernetes once served itself, and as what their CSI drivers see them today.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::field::{Field, FieldError};
use crate::labels::Labels;
use crate::selector::NodeTerm;
use crate::volumes::volume::{BETA_REGION, BETA_ZONE, REGION, ZONE, ZONE_LABELS, ZONE_SEPARATOR, node_terms};

/// A kind of disk that Kubernetes once served itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Plugin {
    AwsElasticBlockStore,
    GcePersistentDisk,
    AzureDisk,
    AzureFile,
    Cinder,
    Vsphere,
    Portworx,
}

impl Plugin {
    const ALL: [Self; 7] = [
        Self::AwsElasticBlockStore,
        Self::GcePersistentDisk,
        Self::AzureDisk,
        Self::AzureFile,
        Self::Cinder,
        Self::Vsphere,
        Self::Portworx,
    ];

    /// The field of a volume that names such a disk.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::AwsElasticBlockStore => "awsElasticBlockStore",
            Self::GcePersistentDisk => "gcePersistentDisk",
            Self::AzureDisk => "azureDisk",
            Self::AzureFile => "azureFile",
            Self::Cinder => "cinder",
            Self::Vsphere => "vsphereVolume",
            Self::Portworx => "portworxVolume",
        }
    }

    /// Its name as a provisioner, and in annotations.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AwsElasticBlockStore => "kubernetes.io/aws-ebs",
            Self::GcePersistentDisk => "kubernetes.io/gce-pd",
            Self::AzureDisk => "kubernetes.io/azure-disk",
            Self::AzureFile => "kubernetes.io/azure-file",
            Self::Cinder => "kubernetes.io/cinder",
            Self::Vsphere => "kubernetes.io/vsphere-volume",
            Self::Portworx => "kubernetes.io/portworx-volume",
        }
    }

    /// The CSI driver that serves such disks today.
    pub(crate) fn driver(self) -> &'static str {
        match self {
            Self::AwsElasticBlockStore => "ebs.csi.aws.com",
            Self::GcePersistentDisk => "pd.csi.storage.gke.io",
            Self::AzureDisk => "disk.csi.azure.com",
            Self::AzureFile => "file.csi.azure.com",
            Self::Cinder => "cinder.csi.openstack.org",
            Self::Vsphere => "csi.vsphere.vmware.com",
            Self::Portworx => "pxd.portworx.com",
        }
    }

    /// What its driver calls the zone of a node.
    fn zone_key(self) -> Option<&'static str> {
        match self {
            Self::AwsElasticBlockStore => Some("topology.ebs.csi.aws.com/zone"),
            Self::GcePersistentDisk => Some("topology.gke.io/zone"),
            Self::Cinder => Some("topology.cinder.csi.openstack.org/zone"),
            Self::AzureDisk | Self::AzureFile | Self::Vsphere | Self::Portworx => None,
        }
    }

    /// True if such disks count as volumes of their CSI driver.
    pub(crate) fn counts(self) -> bool {
        match self {
            Self::AwsElasticBlockStore
            | Self::GcePersistentDisk
            | Self::AzureDisk
            | Self::Cinder
            | Self::Portworx => true,
            Self::AzureFile | Self::Vsphere => false,
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    pub(super) fn of_volume(volume: &Field<'_>) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| volume.get(plugin.field()).present())
    }
}

/// A volume as its CSI driver sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    pub handle: String,
    pub node_terms: Option<Vec<NodeTerm>>,
}

/// What the driver calls the disk of a pod's own volume; otherwise what is wrong with it.
pub(super) fn inline_handle(
    plugin: Plugin,
    volume: &Field<'_>,
) -> Result<Result<String, String>, FieldError> {
    handle(plugin, &volume.get(plugin.field()), &Labels::new())
}

/// A PersistentVolume as its CSI driver sees it; otherwise what is wrong with it.
pub(super) fn migrate(plugin: Plugin, volume: &Value) -> Result<Result<Migrated, String>, FieldError> {
    let root = Field::root(volume);
    let labels = root.get("metadata").get("labels").labels()?;
    let handle = match handle(plugin, &root.get("spec").get(plugin.field()), &labels)? {
        Ok(handle) => handle,
        Err(problem) => return Ok(Err(problem)),
    };
    let mut spec = json!({"nodeAffinity": volume.get("spec").and_then(|spec| spec.get("nodeAffinity"))});
    if let Some(key) = plugin.zone_key() {
        translate_zones(&mut spec, &labels, key);
    }
    Ok(Ok(Migrated { handle, node_terms: node_terms(&Field::root(&spec))? }))
}

fn handle(plugin: Plugin, source: &Field<'_>, labels: &Labels) -> Result<Result<String, String>, FieldError> {
    let text = |key: &str| source.get(key).text().map(Option::unwrap_or_default);
    Ok(match plugin {
        Plugin::AwsElasticBlockStore => ebs_handle(text("volumeID")?),
        Plugin::GcePersistentDisk => gce_handle(text("pdName")?, labels),
        Plugin::AzureDisk => match source.get("kind").text()? {
            Some(kind) if !kind.eq_ignore_ascii_case("managed") => {
                Err(format!("kind({kind}) is not supported in csi migration"))
            }
            _ => Ok(text("diskURI")?.to_owned()),
        },
        Plugin::Cinder | Plugin::Portworx => Ok(text("volumeID")?.to_owned()),
        // Neither is counted nor moved, so nobody asks.
        Plugin::AzureFile | Plugin::Vsphere => Ok(String::new()),
    })
}

/// From `vol-1`, `aws://zone/vol-1` or `aws:///vol-1`.
fn ebs_handle(id: &str) -> Result<String, String> {
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let name = rest.split_once('/').map(|(_, path)| path.trim_matches('/')).unwrap_or_default();
    if name.starts_with("vol-") && !name.contains('/') {
        return Ok(name.to_owned());
    }
    Err(format!("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"))
}

fn gce_handle(disk: &str, labels: &Labels) -> Result<String, String> {
    let label = |key: &str| labels.get(key).filter(|zones| !zones.is_empty());
    let zones: Vec<_> = label(BETA_ZONE).or(label(ZONE)).unwrap_or_default().split(ZONE_SEPARATOR).collect();
    let place = match zones.as_slice() {
        [] | [""] => "zones/UNSPECIFIED".to_owned(),
        [zone] => format!("zones/{zone}"),
        several => format!("regions/{}", gce_region(several)?),
    };
    Ok(format!("projects/UNSPECIFIED/{place}/disks/{disk}"))
}

/// The region of zones such as `europe-west1-b`.
fn gce_region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        match zone.split('-').collect::<Vec<_>>().as_slice() {
            [continent, region, _] => regions.insert(format!("{continent}-{region}")),
            _ => {
                return Err(format!(
                    "failed to get region from zones: zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
                ));
            }
        };
    }
    if regions.len() == 1 {
        return Ok(regions.pop_first().unwrap_or_default());
    }
    let regions: Vec<_> = regions.iter().map(|region| format!("{region}:{{}}")).collect();
    Err(format!(
        "failed to get region from zones: multiple or no regions gotten from zones, got: map[{}]",
        regions.join(" ")
    ))
}

/// Puts the driver's name for a zone in the place of Kubernetes' name, in a volume's node affinity.
fn translate_zones(spec: &mut Value, labels: &Labels, key: &str) {
    let (zone, region) = zone_labels(spec, labels);
    if values_of(spec, zone).is_empty() {
        let zones = labels.get(zone).map(|zones| zones.split(ZONE_SEPARATOR)).into_iter().flatten();
        let zones: BTreeSet<_> = zones.map(str::trim).filter(|zone| !zone.is_empty()).collect();
        if !zones.is_empty() {
            require(spec, &json!({"key": key, "operator": "In", "values": zones}));
        }
    } else {
        rename(spec, zone, key);
    }
    if region == BETA_REGION && !values_of(spec, region).is_empty() {
        rename(spec, region, REGION);
    }
}

/// The labels for zone and region that a volume uses.
fn zone_labels(spec: &Value, labels: &Labels) -> (&'static str, &'static str) {
    let [beta_zone, beta_region, zone, region] = ZONE_LABELS;
    let in_terms = |key: &str| {
        expressions(spec)
            .into_iter()
            .any(|expression| expression.get("key").is_some_and(|found| found == key))
    };
    let beta = if in_terms(zone) {
        false
    } else if in_terms(beta_zone) {
        true
    } else {
        !labels.contains_key(zone) && labels.contains_key(beta_zone)
    };
    if beta { (beta_zone, beta_region) } else { (zone, region) }
}

const TERMS: &str = "/nodeAffinity/required/nodeSelectorTerms";

fn expressions(spec: &Value) -> Vec<&Value> {
    let terms = spec.pointer(TERMS).and_then(Value::as_array).into_iter().flatten();
    terms.filter_map(|term| term.get("matchExpressions").and_then(Value::as_array)).flatten().collect()
}

fn values_of(spec: &Value, key: &str) -> Vec<Value> {
    expressions(spec)
        .into_iter()
        .filter(|expression| expression.get("key").is_some_and(|found| found == key))
        .filter_map(|expression| expression.get("values").and_then(Value::as_array))
        .flatten()
        .cloned()
        .collect()
}

fn rename(spec: &mut Value, from: &str, to: &str) {
    let terms = spec.pointer_mut(TERMS).and_then(Value::as_array_mut).into_iter().flatten();
    let lists = terms.filter_map(|term| term.get_mut("matchExpressions").and_then(Value::as_array_mut));
    for expression in lists.flatten() {
        if let Some(key) = expression.get_mut("key").filter(|key| *key == from) {
            *key = json!(to);
        }
    }
}

/// Adds a requirement to every term; if there is no term, it becomes the only one.
fn require(spec: &mut Value, requirement: &Value) {
    let terms = spec.pointer_mut(TERMS).and_then(Value::as_array_mut).filter(|terms| !terms.is_empty());
    let Some(terms) = terms else {
        let terms = json!([{"matchExpressions": [requirement]}]);
        *spec = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}});
        return;
    };
    for term in terms.iter_mut().filter_map(Value::as_object_mut) {
        let list = term.entry("matchExpressions").or_insert_with(|| json!([]));
        if list.is_null() {
            *list = json!([]);
        }
        if let Some(list) = list.as_array_mut() {
            list.push(requirement.clone());
        }
    }
}
