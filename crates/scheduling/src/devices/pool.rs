//! Which devices a node can reach, by pool.

use std::collections::{BTreeMap, BTreeSet};

use crate::devices::slice::{Counters, Device, PoolId, ResourceSlice};
use crate::devices::store::Slices;
use crate::node::NodeInfo;

/// The devices of one pool that a node can reach.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    pub(crate) id: &'a PoolId,
    /// Some of its slices are missing, so that nothing is given from it.
    pub(crate) incomplete: bool,
    /// Its slices contradict one another, so that nothing is given from it.
    pub(crate) invalid: bool,
    /// Slices with devices for the node, by name.
    pub(crate) slices: Vec<&'a ResourceSlice>,
    /// Slices with devices for other nodes only, which may take from the same counters.
    pub(crate) elsewhere: Vec<&'a ResourceSlice>,
    pub(crate) counters: BTreeMap<&'a str, &'a Counters>,
}

impl<'a> Pool<'a> {
    fn broken(id: &'a PoolId, incomplete: bool) -> Self {
        Self {
            id,
            incomplete,
            invalid: !incomplete,
            slices: Vec::new(),
            elsewhere: Vec::new(),
            counters: BTreeMap::new(),
        }
    }

    /// From slices that reach the node, and those of the same generation that do not.
    fn build(id: &'a PoolId, near: Vec<&'a ResourceSlice>, far: Vec<&'a ResourceSlice>) -> Self {
        let has_counters = |slice: &&ResourceSlice| !slice.counters.is_empty();
        let (mut counting, mut slices): (Vec<_>, Vec<_>) = near.into_iter().partition(has_counters);
        let (far_counting, elsewhere): (Vec<_>, Vec<_>) = far.into_iter().partition(has_counters);
        counting.extend(far_counting);
        slices.sort_by(|a, b| a.name.cmp(&b.name));
        let Some(counters) = counter_sets(&counting) else { return Self::broken(id, false) };
        let pool = Self { id, incomplete: false, invalid: false, slices, elsewhere, counters };
        if pool.is_valid() { pool } else { Self::broken(id, false) }
    }

    fn is_valid(&self) -> bool {
        let mut names = BTreeSet::new();
        let mut devices = self.slices.iter().flat_map(|slice| &slice.devices);
        devices.all(|device| names.insert(&device.name))
            && self.slices.iter().chain(&self.elsewhere).flat_map(|slice| &slice.devices).all(|device| {
                device.consumes.iter().all(|(set, counters)| {
                    let known = self.counters.get(set.as_str());
                    known.is_some_and(|known| counters.keys().all(|name| known.contains_key(name)))
                })
            })
    }

    /// Devices for which a pod would have to wait come last.
    fn has_binding_conditions(&self) -> bool {
        let mut devices = self.slices.iter().flat_map(|slice| &slice.devices);
        devices.any(|device| device.binding_conditions.is_some())
    }

    pub(crate) fn device(&self, slice: usize, device: usize) -> Option<(&'a ResourceSlice, &'a Device)> {
        let slice = self.slices.get(slice)?;
        Some((slice, slice.devices.get(device)?))
    }
}

/// None if two sets have the same name.
fn counter_sets<'a>(slices: &[&'a ResourceSlice]) -> Option<BTreeMap<&'a str, &'a Counters>> {
    let mut sets = BTreeMap::new();
    for (name, counters) in slices.iter().flat_map(|slice| &slice.counters) {
        if sets.insert(name.as_str(), counters).is_some() {
            return None;
        }
    }
    Some(sets)
}

fn reaches(slice: &ResourceSlice, node: &NodeInfo) -> bool {
    if slice.access.is_unknown() {
        slice.per_device && slice.devices.iter().any(|device| device.access.reaches(node))
    } else {
        slice.access.reaches(node)
    }
}

/// The pools that a node can reach, in the order in which devices are tried.
pub(crate) fn gather<'a>(slices: &'a Slices, node: &NodeInfo) -> Vec<Pool<'a>> {
    let mut near: BTreeMap<&PoolId, Vec<&ResourceSlice>> = BTreeMap::new();
    for slice in slices.of_node(&node.name).filter(|slice| !slice.grouped && reaches(slice, node)) {
        let known = near.entry(&slice.id).or_default();
        let generation = known.first().map_or(slice.generation, |first| first.generation);
        if slice.generation > generation {
            known.clear();
        }
        if slice.generation >= generation {
            known.push(slice);
        }
    }
    let mut pools: Vec<_> = near.into_iter().filter_map(|(id, near)| complete(slices, id, near)).collect();
    pools.sort_by_key(Pool::has_binding_conditions);
    pools
}

/// None if there is a newer generation that does not reach the node any more.
fn complete<'a>(slices: &'a Slices, id: &'a PoolId, near: Vec<&'a ResourceSlice>) -> Option<Pool<'a>> {
    let first = near.first()?;
    let is_count = |count: usize| i64::try_from(count) == Ok(first.count);
    if is_count(near.len()) {
        return Some(Pool::build(id, near, Vec::new()));
    }
    if slices.of_pool(id).any(|slice| slice.generation > first.generation) {
        return None;
    }
    let same = |slice: &&ResourceSlice| slice.generation == first.generation && !slice.grouped;
    let all: Vec<_> = slices.of_pool(id).filter(same).collect();
    if !is_count(all.len()) {
        return Some(Pool::broken(id, true));
    }
    let far = all.into_iter().filter(|slice| near.iter().all(|near| near.name != slice.name)).collect();
    Some(Pool::build(id, near, far))
}
