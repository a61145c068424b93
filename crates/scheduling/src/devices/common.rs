//! Constraints over the devices of a claim, while they are being chosen.

use crate::devices::claim::{Constraint, Rule};
use crate::devices::slice::{Attribute, Device, PoolId};

/// A constraint, and the devices that were chosen under it.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    constraint: &'a Constraint,
    /// Their values. Where all must be the same, the first counts.
    values: Vec<&'a Attribute>,
}

/// What is chosen: for which request, for which of its alternatives, and which device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice<'a> {
    pub(crate) request: &'a str,
    pub(crate) alternative: Option<&'a str>,
    pub(crate) pool: &'a PoolId,
    pub(crate) device: &'a Device,
}

impl<'a> Held<'a> {
    pub(crate) fn new(constraint: &'a Constraint) -> Self {
        Self { constraint, values: Vec::new() }
    }

    fn concerns(&self, choice: &Choice<'_>) -> bool {
        let requests = &self.constraint.requests;
        requests.is_empty()
            || requests.iter().any(|name| {
                name == choice.request
                    || choice.alternative.is_some_and(|alternative| {
                        name.split_once('/') == Some((choice.request, alternative))
                    })
            })
    }

    /// False if the device must not be chosen besides those that are.
    pub(crate) fn add(&mut self, choice: &Choice<'a>) -> bool {
        if !self.concerns(choice) {
            return true;
        }
        let name = match &self.constraint.rule {
            Rule::Match(name) | Rule::Distinct(name) => name,
            Rule::Unknown => return false,
        };
        let Some(value) = lookup(choice, name) else { return false };
        let fits = match &self.constraint.rule {
            Rule::Match(_) => self.values.first().is_none_or(|first| same(value, first)),
            Rule::Distinct(_) => {
                self.values.is_empty()
                    || *value != Attribute::Unknown && self.values.iter().all(|other| !same(value, other))
            }
            Rule::Unknown => false,
        };
        if fits {
            self.values.push(value);
        }
        fits
    }

    /// Takes back the last choice that was added.
    pub(crate) fn remove(&mut self, choice: &Choice<'_>) {
        if self.concerns(choice) {
            self.values.pop();
        }
    }
}

/// What is not known is like nothing.
fn same(a: &Attribute, b: &Attribute) -> bool {
    *a != Attribute::Unknown && a == b
}

/// A qualified attribute of a device; names without a domain are in the driver's.
fn lookup<'a>(choice: &Choice<'a>, name: &str) -> Option<&'a Attribute> {
    let attributes = &choice.device.attributes;
    attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        (*domain == *choice.pool.driver).then(|| attributes.get(id)).flatten()
    })
}
