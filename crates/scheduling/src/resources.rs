//! Amounts of resources: exact lists as manifests carry them, and integer vectors as scheduling compares them.

use std::collections::BTreeMap;

use serde_json::Value;
use thin_vec::ThinVec;

use crate::quantity::{Quantity, QuantityError};
use crate::text::{Text, shared};

/// Exact amounts by resource name.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Adds `more` to `list`, resource by resource.
pub fn add_list(list: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        match list.get_mut(name) {
            Some(sum) => *sum += amount,
            None => {
                list.insert(name.clone(), *amount);
            }
        }
    }
}

/// Takes `less` from `list`; amounts may become negative, resources that `list` does not name are ignored.
pub fn sub_list(list: &mut ResourceList, less: &ResourceList) {
    for (name, amount) in less {
        if let Some(rest) = list.get_mut(name) {
            *rest -= amount;
        }
    }
}

/// Raises negative amounts to zero.
pub fn clamp_list(list: &mut ResourceList) {
    for amount in list.values_mut() {
        *amount = amount.at_least_zero();
    }
}

/// Raises each amount of `list` to that of `other`.
pub(crate) fn max_list(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        match list.get_mut(name) {
            Some(largest) if *largest >= *amount => {}
            Some(largest) => *largest = *amount,
            None => {
                list.insert(name.clone(), *amount);
            }
        }
    }
}

/// Reads a resource list; null and absent are the empty list. The error names the resource.
pub fn parse_list(value: Option<&Value>) -> Result<ResourceList, (String, QuantityError)> {
    let Some(Value::Object(map)) = value else { return Ok(ResourceList::new()) };
    map.iter()
        .map(|(name, amount)| match Quantity::from_json(amount) {
            Ok(quantity) => Ok((name.clone(), quantity)),
            Err(error) => Err((name.clone(), error)),
        })
        .collect()
}

/// A resource, found by its name once rather than on every node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    Cpu,
    Memory,
    EphemeralStorage,
    Scalar(&'a str),
}

impl<'a> Kind<'a> {
    pub(crate) fn of(name: &'a str) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::EphemeralStorage,
            other => Self::Scalar(other),
        }
    }

    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Scalar(name) => name,
        }
    }

    /// An integer amount, as a quantity.
    pub(crate) fn quantity(self, amount: i64) -> Quantity {
        match self {
            Self::Cpu => Quantity::from_milli(amount),
            Self::Memory | Self::EphemeralStorage | Self::Scalar(_) => Quantity::from_units(amount),
        }
    }
}

/// Amounts of what is counted in pieces, by name and in order of the names: few or none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Scalars(ThinVec<(Text, i64)>);

impl Scalars {
    /// The amount of a resource. None if it is not named.
    pub fn get(&self, name: &str) -> Option<i64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, amount)| amount)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names with their amounts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Sets the amount of a resource.
    pub fn insert(&mut self, name: &str, amount: i64) {
        *self.entry(name) = amount;
    }

    fn entry(&mut self, name: &str) -> &mut i64 {
        let place = match self.0.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(place) => place,
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (shared(name), 0));
                place
            }
        };
        &mut self.0[place].1
    }
}

/// Amounts as integers: CPU in thousandths, everything else in whole units (bytes, pieces), each rounded up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages, attachable volumes. A name with amount 0 is kept: it was asked for.
    pub scalars: Scalars,
}

impl Resources {
    /// The integer view of a list; `pods` and names that no scheduler counts are left out.
    pub fn from_list(list: &ResourceList) -> Self {
        let mut resources = Self::default();
        for (name, amount) in list {
            match name.as_str() {
                "cpu" => resources.milli_cpu = amount.milli(),
                "memory" => resources.memory = amount.value(),
                "ephemeral-storage" => resources.ephemeral_storage = amount.value(),
                other if is_scalar(other) => {
                    resources.scalars.insert(other, amount.value());
                }
                _ => {}
            }
        }
        resources
    }

    /// True if nothing at all is named, not even with amount zero in [`Resources::scalars`].
    pub fn is_empty(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }

    /// The amount of one resource by name, 0 if there is none.
    pub fn amount(&self, name: &str) -> i64 {
        self.of(Kind::of(name))
    }

    pub(crate) fn of(&self, kind: Kind<'_>) -> i64 {
        match kind {
            Kind::Cpu => self.milli_cpu,
            Kind::Memory => self.memory,
            Kind::EphemeralStorage => self.ephemeral_storage,
            Kind::Scalar(name) => self.scalars.get(name).unwrap_or_default(),
        }
    }

    /// The resources that there are more than none of.
    pub(crate) fn asks(&self) -> impl Iterator<Item = (Kind<'_>, i64)> {
        let kinds = [Kind::Cpu, Kind::Memory, Kind::EphemeralStorage].map(|kind| (kind, self.of(kind)));
        let scalars = self.scalars.iter().map(|(name, amount)| (Kind::Scalar(name), amount));
        kinds.into_iter().chain(scalars).filter(|(_, amount)| *amount > 0)
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.milli_cpu += more.milli_cpu;
        self.memory += more.memory;
        self.ephemeral_storage += more.ephemeral_storage;
        for (name, amount) in more.scalars.iter() {
            *self.scalars.entry(name) += amount;
        }
    }

    pub(crate) fn sub(&mut self, less: &Self) {
        self.milli_cpu -= less.milli_cpu;
        self.memory -= less.memory;
        self.ephemeral_storage -= less.ephemeral_storage;
        for (name, amount) in less.scalars.iter() {
            *self.scalars.entry(name) -= amount;
        }
    }
}

/// True for resources that are counted in whole pieces: extended, huge pages, attachable volumes, and native ones
/// with a prefix.
pub fn is_scalar(name: &str) -> bool {
    let prefixed_native = name.contains("kubernetes.io/");
    is_extended(name)
        || prefixed_native
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
}

/// True for resources that Kubernetes itself does not know.
pub(crate) fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// True for resources that a pod may ask for as a whole, beside its containers.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(value: &Value) -> ResourceList {
        parse_list(Some(value)).expect("a resource list")
    }

    #[test]
    fn only_countable_names_become_scalars() {
        let resources = Resources::from_list(&list(&json!({
            "cpu": "1500m", "memory": "1Gi", "pods": "110", "example.com/gpu": 2, "hugepages-2Mi": "4Mi", "foo": 1,
        })));
        assert_eq!(resources.milli_cpu, 1500);
        assert_eq!(resources.memory, 1 << 30);
        assert_eq!(
            resources.scalars.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["example.com/gpu", "hugepages-2Mi"]
        );
    }

    #[test]
    fn a_bad_amount_is_named() {
        let error = parse_list(Some(&json!({"cpu": "a lot"}))).expect_err("no quantity");
        assert_eq!(error.0, "cpu");
    }

    #[test]
    fn differences_never_add_resources_and_clamp_at_zero() {
        let mut rest = list(&json!({"cpu": "1", "memory": "1Gi"}));
        sub_list(&mut rest, &list(&json!({"cpu": "2", "example.com/gpu": 1})));
        clamp_list(&mut rest);
        assert_eq!(rest, list(&json!({"cpu": 0, "memory": "1Gi"})));
    }
}
