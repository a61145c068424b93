//! Everything that says which devices there are, who asks for them, and who has them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::devices::allocation::{Allocated, Allocation};
use crate::devices::claim::ResourceClaim;
use crate::devices::class::{DeviceClass, DeviceClasses};
use crate::devices::event::DeviceEvent;
use crate::devices::slice::{Device, DeviceTaint, PoolId, ResourceSlice};
use crate::field::{Field, FieldError};

/// ResourceSlices by what is asked of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slices {
    by_name: BTreeMap<Arc<str>, Arc<ResourceSlice>>,
    /// Names of the slices of one node each.
    local: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Names of all others.
    shared: BTreeSet<Arc<str>>,
    by_pool: HashMap<PoolId, BTreeSet<Arc<str>>>,
}

impl Slices {
    fn named<'a>(&'a self, names: &'a BTreeSet<Arc<str>>) -> impl Iterator<Item = &'a ResourceSlice> {
        names.iter().filter_map(|name| self.by_name.get(name).map(|slice| &**slice))
    }

    /// Slices that may reach a node.
    pub(crate) fn of_node(&self, node: &str) -> impl Iterator<Item = &ResourceSlice> {
        let local = self.local.get(node).into_iter().flat_map(|names| self.named(names));
        local.chain(self.named(&self.shared))
    }

    pub(crate) fn of_pool(&self, id: &PoolId) -> impl Iterator<Item = &ResourceSlice> {
        self.by_pool.get(id).into_iter().flat_map(|names| self.named(names))
    }

    fn set(&mut self, slice: Arc<ResourceSlice>) -> Option<Arc<ResourceSlice>> {
        let old = self.remove(&slice.name);
        let name = Arc::clone(&slice.name);
        match &slice.access.node {
            Some(node) => self.local.entry(Arc::clone(node)).or_default().insert(Arc::clone(&name)),
            None => self.shared.insert(Arc::clone(&name)),
        };
        self.by_pool.entry(slice.id.clone()).or_default().insert(Arc::clone(&name));
        self.by_name.insert(name, slice);
        old
    }

    fn remove(&mut self, name: &str) -> Option<Arc<ResourceSlice>> {
        let gone = self.by_name.remove(name)?;
        self.shared.remove(name);
        if let Some(node) = &gone.access.node {
            forget(&mut self.local, node, name);
        }
        forget(&mut self.by_pool, &gone.id, name);
        Some(gone)
    }
}

fn forget<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<Arc<str>>>, key: &K, name: &str) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

/// A DeviceTaintRule: a taint that somebody puts on devices of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTaintRule {
    pub name: Arc<str>,
    /// None: it selects no devices.
    selector: Option<[Option<String>; 3]>,
    taint: DeviceTaint,
}

impl DeviceTaintRule {
    /// Reads a raw DeviceTaintRule.
    ///
    /// # Errors
    /// When a field has the wrong type.
    pub fn parse(rule: &Value) -> Result<Self, FieldError> {
        let root = Field::root(rule);
        let (spec, name) = (root.get("spec"), root.get("metadata").get("name").text()?);
        let selector = spec.get("deviceSelector");
        let text = |key: &str| Ok(selector.get(key).text()?.map(str::to_owned));
        Ok(Self {
            name: Arc::from(name.unwrap_or_default()),
            selector: if selector.present() {
                Some([text("driver")?, text("pool")?, text("device")?])
            } else {
                None
            },
            taint: DeviceTaint::parse(&spec.get("taint"))?,
        })
    }

    fn concerns(&self, pool: &PoolId, device: &str) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        self.selector.as_ref().is_some_and(|[by_driver, by_pool, by_device]| {
            fits(by_driver, &pool.driver) && fits(by_pool, &pool.pool) && fits(by_device, device)
        })
    }
}

/// Devices that are promised to a claim, and are not yet written there.
#[derive(Debug, Clone)]
struct InFlight {
    allocation: Arc<Allocation>,
    /// The version of the claim in which they are written, once they are.
    written: Option<u64>,
}

/// The devices of a cluster, and their claims.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    classes: DeviceClasses,
    slices: Slices,
    rules: BTreeMap<Arc<str>, DeviceTaintRule>,
    claims: HashMap<String, HashMap<String, Arc<ResourceClaim>>>,
    /// By the UID of the claim.
    in_flight: HashMap<Arc<str>, InFlight>,
    allocated: Allocated,
    followed: bool,
    changes: u64,
}

impl Devices {
    /// Claims and slices are known. Until then, pods that need them are refused.
    pub fn follow(&mut self) {
        self.followed = true;
    }

    pub fn is_followed(&self) -> bool {
        self.followed
    }

    /// A number that grows with every change of claims, slices, and taint rules.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn classes(&self) -> &DeviceClasses {
        &self.classes
    }

    pub(crate) fn classes_mut(&mut self) -> &mut DeviceClasses {
        &mut self.classes
    }

    pub(crate) fn class(&self, name: &str) -> Option<&DeviceClass> {
        self.classes.get(name)
    }

    pub(crate) fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Who has which devices, and who is promised some.
    pub fn allocated(&self) -> &Allocated {
        &self.allocated
    }

    pub fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(namespace)?.get(name)
    }

    /// Every claim, in no order.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<ResourceClaim>> {
        self.claims.values().flat_map(HashMap::values)
    }

    pub fn slice_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.slices.by_name.keys()
    }

    pub fn rule_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.rules.keys()
    }

    /// The taints of a device, its own and those that rules put on it.
    pub(crate) fn taints<'a>(
        &'a self,
        pool: &'a PoolId,
        device: &'a Device,
    ) -> impl Iterator<Item = &'a DeviceTaint> {
        let rules = self.rules.values().filter(|rule| rule.concerns(pool, &device.name));
        device.taints.iter().chain(rules.map(|rule| &rule.taint))
    }

    /// Takes in a slice. None if it is as it was.
    pub fn set_slice(&mut self, slice: ResourceSlice) -> Option<DeviceEvent> {
        let version = slice.resource_version.clone();
        let old = self.slices.set(Arc::new(slice));
        self.changes += 1;
        let same = old.as_ref().is_some_and(|old| !version.is_empty() && old.resource_version == version);
        (!same).then_some(DeviceEvent::Slice { added: old.is_none() })
    }

    pub fn remove_slice(&mut self, name: &str) {
        self.changes += 1;
        self.slices.remove(name);
    }

    /// Takes in a rule. None if it is as it was.
    pub fn set_rule(&mut self, rule: DeviceTaintRule) -> Option<DeviceEvent> {
        self.changes += 1;
        let old = self.rules.insert(Arc::clone(&rule.name), rule.clone());
        (old != Some(rule)).then_some(DeviceEvent::Slice { added: false })
    }

    /// None if it was not known.
    pub fn remove_rule(&mut self, name: &str) -> Option<DeviceEvent> {
        self.changes += 1;
        self.rules.remove(name).map(|_| DeviceEvent::Slice { added: false })
    }

    /// Takes in a claim. None if it is as it was.
    pub fn set_claim(&mut self, claim: ResourceClaim) -> Option<DeviceEvent> {
        let new = Arc::new(claim);
        let names = self.claims.entry(new.namespace.to_string()).or_default();
        let old = names.insert(new.name.to_string(), Arc::clone(&new));
        if old.as_ref() == Some(&new) {
            return None;
        }
        self.changes += 1;
        if let Some(allocation) = old.as_ref().and_then(|old| old.allocation.as_ref()) {
            self.allocated.remove(allocation);
        }
        if let Some(allocation) = &new.allocation {
            self.allocated.add(allocation);
        }
        let replaced = old.as_ref().filter(|old| old.uid != new.uid);
        if let Some(replaced) = replaced.map(|old| Arc::clone(&old.uid)) {
            self.release(&replaced);
        }
        let now = new.resource_version.parse().unwrap_or(0);
        let passed = self.in_flight.get(&new.uid).and_then(|flight| flight.written);
        if new.allocation.is_some() || passed.is_some_and(|written: u64| written <= now) {
            self.release(&new.uid);
        }
        Some(DeviceEvent::Claim { old, new: Some(new) })
    }

    /// None if it was not known.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) -> Option<DeviceEvent> {
        let names = self.claims.get_mut(namespace)?;
        let gone = names.remove(name)?;
        if names.is_empty() {
            self.claims.remove(namespace);
        }
        self.changes += 1;
        if let Some(allocation) = &gone.allocation {
            self.allocated.remove(allocation);
        }
        self.release(&gone.uid);
        Some(DeviceEvent::Claim { old: Some(gone), new: None })
    }

    /// Devices are promised to the claim, which nobody has written there yet.
    pub(crate) fn is_promised(&self, claim: &str) -> bool {
        self.in_flight.contains_key(claim)
    }

    /// Promises devices to claims, by UID. False, and nothing is done, if one of them has some already.
    pub fn promise(&mut self, promises: &[(Arc<str>, Arc<Allocation>)]) -> bool {
        if promises.iter().any(|(claim, _)| self.is_promised(claim)) {
            return false;
        }
        for (claim, allocation) in promises {
            self.changes += 1;
            self.allocated.add(allocation);
            let flight = InFlight { allocation: Arc::clone(allocation), written: None };
            self.in_flight.insert(Arc::clone(claim), flight);
        }
        true
    }

    /// Takes back what was promised to a claim.
    pub fn release(&mut self, claim: &str) {
        if let Some(flight) = self.in_flight.remove(claim) {
            self.changes += 1;
            self.allocated.remove(&flight.allocation);
        }
    }

    /// What was promised to a claim is written in this version of it. The promise ends once that version is seen.
    pub fn written(&mut self, claim: &str, resource_version: &str) {
        if let Some(flight) = self.in_flight.get_mut(claim) {
            flight.written = resource_version.parse().ok();
        }
    }
}
