//! Parts of devices: how much of a capacity is taken, and whether that is left.

use std::collections::BTreeMap;

use crate::devices::allocation::Amounts;
use crate::devices::slice::{Capacity, CapacityRange, Device, RequestPolicy};
use crate::quantity::Quantity;

const UNREPRESENTABLE: &str = "capacity request cannot be represented in the device's range arithmetic";

/// Is so much of the device left? `taken` and `taking` are what others and this search take already.
///
/// # Errors
/// When an amount cannot be computed with; then no device is given at all.
pub(crate) fn is_left(
    device: &Device,
    wanted: &Amounts,
    taken: Option<&Amounts>,
    taking: Option<&Amounts>,
) -> Result<bool, String> {
    if wanted.keys().any(|name| !device.capacity.contains_key(name)) {
        return Ok(false);
    }
    let consumed = consumed(device, wanted)?;
    Ok(device.capacity.iter().all(|(name, capacity)| {
        let amount = consumed.get(name).copied().unwrap_or_default();
        if capacity.policy.as_ref().is_some_and(|policy| violates(&amount, policy)) {
            return false;
        }
        let mut sum = taken.and_then(|taken| taken.get(name)).copied().unwrap_or_default();
        sum += &amount;
        if let Some(taking) = taking.and_then(|taking| taking.get(name)) {
            sum += taking;
        }
        sum <= capacity.value
    }))
}

/// What a request takes of each capacity of the device.
pub(crate) fn consumed(device: &Device, wanted: &Amounts) -> Result<Amounts, String> {
    let mut amounts = BTreeMap::new();
    for (name, capacity) in &device.capacity {
        let amount =
            take(wanted.get(name), capacity).map_err(|problem| format!("capacity {name:?}: {problem}"))?;
        if amount.is_negative() {
            return Err(format!("capacity {name:?}: capacity value is negative"));
        }
        amounts.insert(name.clone(), amount);
    }
    Ok(amounts)
}

fn take(wanted: Option<&Quantity>, capacity: &Capacity) -> Result<Quantity, String> {
    let policy = capacity.policy.as_ref();
    let Some(wanted) = wanted else {
        return Ok(policy.and_then(|policy| policy.default).unwrap_or(capacity.value));
    };
    match policy {
        Some(RequestPolicy { range: Some(range @ CapacityRange { min: Some(min), .. }), .. }) => {
            round_up(wanted, min, range)
        }
        Some(RequestPolicy { values, .. }) => {
            Ok(values.iter().find(|value| wanted <= *value).copied().unwrap_or(*wanted))
        }
        None => Ok(*wanted),
    }
}

/// The next step at or above `wanted`, in thousandths where they do.
fn round_up(wanted: &Quantity, min: &Quantity, range: &CapacityRange) -> Result<Quantity, String> {
    if wanted < min {
        return Ok(*min);
    }
    let Some(step) = &range.step else { return Ok(*wanted) };
    let passes = |what: &str| {
        format!("{UNREPRESENTABLE}: rounding request {wanted} up to the next step passes {what}")
    };
    if in_milli(range) {
        let Some(number) = milli(wanted) else {
            return Err(format!("{UNREPRESENTABLE}: request {wanted} is not a representable milli value"));
        };
        let rounded = next_step(number, min.milli(), step.milli());
        let rounded = rounded.ok_or_else(|| passes("the milli-value range"))?;
        return Ok(Quantity::from_milli(rounded).written_like(step));
    }
    if *wanted > Quantity::from_units(i64::MAX) {
        return Err(format!("{UNREPRESENTABLE}: request {wanted} exceeds MaxInt64"));
    }
    let rounded = next_step(wanted.value(), min.value(), step.value()).ok_or_else(|| passes("MaxInt64"))?;
    Ok(Quantity::from_units(rounded).written_like(step))
}

fn next_step(number: i64, min: i64, step: i64) -> Option<i64> {
    let added = number.checked_sub(min)?;
    let steps = added.checked_div(step)? + i64::from(added.checked_rem(step)? != 0);
    min.checked_add(step.checked_mul(steps)?)
}

/// The amount in thousandths, if it is a whole number of them.
fn milli(amount: &Quantity) -> Option<i64> {
    Some(amount.milli()).filter(|milli| Quantity::from_milli(*milli) == *amount)
}

fn in_milli(range: &CapacityRange) -> bool {
    let mut limits = [&range.min, &range.max, &range.step].into_iter().flatten();
    limits.all(|limit| milli(limit).is_some()) && range.step.as_ref().is_none_or(|step| step.milli() >= 1)
}

/// May so much not be taken at once?
fn violates(amount: &Quantity, policy: &RequestPolicy) -> bool {
    if policy.default.as_ref().is_some_and(|default| default == amount && default.is_written_like(amount)) {
        return false;
    }
    match &policy.range {
        Some(range) => outside(amount, range),
        None => !policy.values.is_empty() && !policy.values.contains(amount),
    }
}

fn outside(amount: &Quantity, range: &CapacityRange) -> bool {
    if range.max.as_ref().is_some_and(|max| amount > max) {
        return true;
    }
    let Some(step) = &range.step else { return false };
    let min = range.min.unwrap_or_default();
    let rest = if in_milli(range) {
        let Some(number) = milli(amount) else { return true };
        number.checked_sub(min.milli()).and_then(|added| added.checked_rem(step.milli()))
    } else {
        amount.value().checked_sub(min.value()).and_then(|added| added.checked_rem(step.value()))
    };
    rest != Some(0)
}
