//! Which devices a claim was given.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::devices::access::NodeSelector;
use crate::devices::slice::{DeviceId, PoolId};
use crate::field::{Field, FieldError};
use crate::quantity::Quantity;

/// One device of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The request, or `request/alternative`, that it satisfies.
    pub request: String,
    pub device: DeviceId,
    /// It stays others', too.
    pub(crate) admin: bool,
    /// It is a part of a device that others may have parts of.
    pub(crate) shared: bool,
    /// How much of the device's capacity it takes.
    pub(crate) consumed: BTreeMap<String, Quantity>,
    /// A pod must wait for conditions before it may be bound.
    pub(crate) waits: bool,
    /// Its node must know how to skip operations.
    pub(crate) skips: bool,
}

/// What a claim was given: `status.allocation`.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    pub given: Vec<Given>,
    /// None: all nodes can reach the devices.
    pub(crate) nodes: Option<Arc<NodeSelector>>,
    /// As it is written.
    pub raw: Value,
}

impl Allocation {
    pub(crate) fn parse(field: &Field<'_>) -> Result<Option<Self>, FieldError> {
        let Some(raw) = field.raw() else { return Ok(None) };
        let results = field.get("devices").get("results").items()?;
        let given = results.iter().map(Given::parse).collect::<Result<_, _>>()?;
        let nodes = NodeSelector::parse(&field.get("nodeSelector"))?;
        Ok(Some(Self { given, nodes, raw: raw.clone() }))
    }
}

impl Given {
    fn parse(field: &Field<'_>) -> Result<Self, FieldError> {
        let text = |key: &str| field.get(key).text().map(Option::unwrap_or_default);
        let pool = PoolId { driver: Arc::from(text("driver")?), pool: Arc::from(text("pool")?) };
        let consumed = field.get("consumedCapacity");
        let mut amounts = BTreeMap::new();
        for name in consumed.keys()? {
            amounts.insert(name.clone(), consumed.get(&name).quantity()?.unwrap_or_default());
        }
        Ok(Self {
            request: text("request")?.to_owned(),
            device: DeviceId { pool, device: Arc::from(text("device")?) },
            admin: field.get("adminAccess").flag()?,
            shared: field.get("shareID").present(),
            consumed: amounts,
            waits: !field.get("bindingConditions").items()?.is_empty(),
            skips: !field.get("skipNodeOperations").items()?.is_empty(),
        })
    }
}

/// How much of a device's capacity is taken, by name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Parts of a device that are given.
#[derive(Debug, Clone, Default, PartialEq)]
struct Shares {
    count: usize,
    /// How many of them take capacity.
    taking: usize,
    taken: Amounts,
}

/// The devices that claims of the cluster have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocated {
    /// How many claims have the whole device: one, unless somebody wrote more.
    whole: HashMap<DeviceId, usize>,
    shares: HashMap<DeviceId, Shares>,
}

impl Allocated {
    pub(crate) fn add(&mut self, allocation: &Allocation) {
        for given in allocation.given.iter().filter(|given| !given.admin) {
            if !given.shared {
                *self.whole.entry(given.device.clone()).or_default() += 1;
                continue;
            }
            let shares = self.shares.entry(given.device.clone()).or_default();
            shares.count += 1;
            if given.consumed.is_empty() {
                continue;
            }
            shares.taking += 1;
            for (name, amount) in &given.consumed {
                *shares.taken.entry(name.clone()).or_default() += amount;
            }
        }
    }

    pub(crate) fn remove(&mut self, allocation: &Allocation) {
        for given in allocation.given.iter().filter(|given| !given.admin) {
            if !given.shared {
                self.remove_whole(&given.device);
                continue;
            }
            let Some(shares) = self.shares.get_mut(&given.device) else { continue };
            shares.count -= 1;
            shares.taking -= usize::from(!given.consumed.is_empty());
            for (name, amount) in &given.consumed {
                if let Some(taken) = shares.taken.get_mut(name) {
                    *taken -= amount;
                }
            }
            if shares.taking == 0 {
                shares.taken.clear();
            }
            if shares.count == 0 {
                self.shares.remove(&given.device);
            }
        }
    }

    fn remove_whole(&mut self, device: &DeviceId) {
        let Some(count) = self.whole.get_mut(device) else { return };
        *count -= 1;
        if *count == 0 {
            self.whole.remove(device);
        }
    }

    /// Somebody has the device as a whole.
    pub(crate) fn has_whole(&self, device: &DeviceId) -> bool {
        self.whole.contains_key(device)
    }

    /// Somebody has the device or a part of it.
    pub(crate) fn has(&self, device: &DeviceId) -> bool {
        self.has_whole(device) || self.has_shares(device)
    }

    pub(crate) fn has_shares(&self, device: &DeviceId) -> bool {
        self.shares.contains_key(device)
    }

    /// What is taken of the device's capacity.
    pub(crate) fn taken(&self, device: &DeviceId) -> Option<&Amounts> {
        self.shares.get(device).filter(|shares| shares.taking > 0).map(|shares| &shares.taken)
    }

    /// How many devices somebody has, wholly or in part.
    pub fn len(&self) -> usize {
        self.whole.len() + self.shares.len()
    }

    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.shares.is_empty()
    }
}
