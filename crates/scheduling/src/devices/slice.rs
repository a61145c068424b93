//! ResourceSlices: what devices a driver has.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::devices::access::Access;
use crate::devices::selector::Input;
use crate::field::{Field, FieldError};
use crate::quantity::Quantity;

/// Names the devices of one driver that belong together: driver and pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId {
    pub driver: Arc<str>,
    pub pool: Arc<str>,
}

/// Names a device in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    pub pool: PoolId,
    pub device: Arc<str>,
}

impl std::fmt::Display for PoolId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.driver, self.pool)
    }
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.pool, self.device)
    }
}

/// The value of a device's attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Attribute {
    Int(i64),
    Bool(bool),
    Text(String),
    Version(String),
    /// Of a kind that this release does not know.
    Unknown,
}

impl Attribute {
    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        if let Some(number) = field.get("int").integer()? {
            return Ok(Self::Int(number));
        }
        if field.get("bool").present() {
            return Ok(Self::Bool(field.get("bool").flag()?));
        }
        if let Some(text) = field.get("string").text()? {
            return Ok(Self::Text(text.to_owned()));
        }
        let version = field.get("version").text()?;
        Ok(version.map_or(Self::Unknown, |version| Self::Version(version.to_owned())))
    }
}

/// What may be asked of a capacity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestPolicy {
    pub(crate) default: Option<Quantity>,
    /// In ascending order.
    pub(crate) values: Vec<Quantity>,
    pub(crate) range: Option<CapacityRange>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CapacityRange {
    pub(crate) min: Option<Quantity>,
    pub(crate) max: Option<Quantity>,
    pub(crate) step: Option<Quantity>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) value: Quantity,
    pub(crate) policy: Option<RequestPolicy>,
}

impl Capacity {
    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let policy = field.get("requestPolicy");
        let range = policy.get("validRange");
        Ok(Self {
            value: field.get("value").quantity()?.unwrap_or_default(),
            policy: if policy.present() {
                let values = policy.get("validValues").items()?;
                let values = values
                    .iter()
                    .map(|value| Ok(value.quantity()?.unwrap_or_default()))
                    .collect::<Result<_, FieldError>>()?;
                let range = if range.present() {
                    Some(CapacityRange {
                        min: range.get("min").quantity()?,
                        max: range.get("max").quantity()?,
                        step: range.get("step").quantity()?,
                    })
                } else {
                    None
                };
                Some(RequestPolicy { default: policy.get("default").quantity()?, values, range })
            } else {
                None
            },
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceTaint {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) effect: String,
}

impl DeviceTaint {
    pub(crate) fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let text = |key: &str| Ok(field.get(key).text()?.unwrap_or_default().to_owned());
        Ok(Self { key: text("key")?, value: text("value")?, effect: text("effect")? })
    }

    /// Other effects do not keep a device from being given to a pod.
    pub(crate) fn prevents(&self) -> bool {
        matches!(self.effect.as_str(), "NoSchedule" | "NoExecute")
    }
}

/// Counters by name, such as memory that several devices share.
pub(crate) type Counters = BTreeMap<String, Quantity>;

/// A device.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) name: Arc<str>,
    /// By name, qualified or not.
    pub(crate) attributes: BTreeMap<String, Attribute>,
    pub(crate) capacity: BTreeMap<String, Capacity>,
    /// What it takes from the counters of its pool, by counter set.
    pub(crate) consumes: Vec<(String, Counters)>,
    pub(crate) access: Access,
    pub(crate) taints: Vec<DeviceTaint>,
    pub(crate) binds_to_node: bool,
    /// Conditions that must come true before a pod may be bound.
    pub(crate) binding_conditions: Option<Vec<String>>,
    /// Several claims may have it.
    pub(crate) shareable: bool,
    /// It as selectors see it.
    pub(crate) input: OnceLock<Result<Input, String>>,
}

impl Device {
    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let conditions = field.get("bindingConditions");
        Ok(Self {
            name: Arc::from(field.get("name").text()?.unwrap_or_default()),
            attributes: map(&field.get("attributes"), Attribute::parse)?,
            capacity: map(&field.get("capacity"), Capacity::parse)?,
            consumes: consumes(field)?.into_iter().map(|(set, counters, _)| (set, counters)).collect(),
            access: Access::parse(field)?,
            taints: field.get("taints").items()?.iter().map(DeviceTaint::parse).collect::<Result<_, _>>()?,
            binds_to_node: field.get("bindsToNode").flag()?,
            binding_conditions: if conditions.present() { Some(conditions.texts()?) } else { None },
            shareable: field.get("allowMultipleAllocations").flag()?,
            input: OnceLock::new(),
        })
    }
}

fn map<T>(
    field: &Field<'_>,
    parse: impl Fn(&Field<'_>) -> Result<T, FieldError>,
) -> Result<BTreeMap<String, T>, FieldError> {
    field.keys()?.into_iter().map(|key| Ok((key.clone(), parse(&field.get(&key))?))).collect()
}

fn counters(field: &Field<'_>) -> Result<Counters, FieldError> {
    map(&field.get("counters"), |counter| Ok(counter.get("value").quantity()?.unwrap_or_default()))
}

/// Counter set, counters, and whether compatibility groups are named.
fn consumes(device: &Field<'_>) -> Result<Vec<(String, Counters, bool)>, FieldError> {
    let items = device.get("consumesCounters").items()?;
    items
        .iter()
        .map(|item| {
            let set = item.get("counterSet").text()?.unwrap_or_default().to_owned();
            Ok((set, counters(item)?, !item.get("compatibilityGroups").items()?.is_empty()))
        })
        .collect()
}

/// A ResourceSlice.
#[derive(Debug, Clone)]
pub struct ResourceSlice {
    pub name: Arc<str>,
    pub resource_version: String,
    pub id: PoolId,
    pub(crate) generation: i64,
    /// How many slices its pool has in this generation.
    pub(crate) count: i64,
    pub(crate) access: Access,
    /// Each device says for itself where it can be reached.
    pub(crate) per_device: bool,
    pub(crate) devices: Vec<Device>,
    /// Counter sets by name, in the order in which they are written.
    pub(crate) counters: Vec<(String, Counters)>,
    /// It names compatibility groups, which makes its pool incomplete.
    pub(crate) grouped: bool,
}

/// Two versions of one slice.
impl PartialEq for ResourceSlice {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.resource_version == other.resource_version
    }
}

impl ResourceSlice {
    /// Reads a raw ResourceSlice.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn parse(slice: &serde_json::Value) -> Result<Self, FieldError> {
        let root = Field::root(slice);
        let (metadata, spec) = (root.get("metadata"), root.get("spec"));
        let pool = spec.get("pool");
        let text = |field: &Field<'_>| Ok(Arc::from(field.text()?.unwrap_or_default()));
        let devices = spec.get("devices").items()?;
        let mut grouped = false;
        for device in &devices {
            grouped |= consumes(device)?.iter().any(|(_, _, named)| *named);
        }
        let sets = spec.get("sharedCounters").items()?;
        let sets = sets.iter().map(|set| {
            let name = set.get("name").text()?.unwrap_or_default().to_owned();
            Ok((name, counters(set)?))
        });
        Ok(Self {
            name: text(&metadata.get("name"))?,
            resource_version: metadata.get("resourceVersion").text()?.unwrap_or_default().to_owned(),
            id: PoolId { driver: text(&spec.get("driver"))?, pool: text(&pool.get("name"))? },
            generation: pool.get("generation").integer()?.unwrap_or_default(),
            count: pool.get("resourceSliceCount").integer()?.unwrap_or_default(),
            access: Access::parse(&spec)?,
            per_device: spec.get("perDeviceNodeSelection").flag()?,
            devices: devices.iter().map(Device::parse).collect::<Result<_, _>>()?,
            counters: sets.collect::<Result<_, FieldError>>()?,
            grouped,
        })
    }
}
