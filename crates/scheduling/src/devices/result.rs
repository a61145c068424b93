//! An allocation as it is written into a claim's status.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::devices::access::NodeSelector;
use crate::devices::allocation::{Allocation, Given};
use crate::devices::allocator::{Chosen, Data, Failed, Search};
use crate::devices::claim::{DriverConfig, ResourceClaim};
use crate::devices::slice::DeviceId;
use crate::field::Field;

/// What the search found for the claim at this position.
pub(super) fn allocation(search: &Search<'_>, claim: usize) -> Result<Allocation, Failed> {
    let (chosen, claims) = (&search.chosen[claim], search.claims);
    let claim_of = claims[claim];
    let mut results = Vec::new();
    let mut given = Vec::new();
    for (number, one) in chosen.iter().enumerate() {
        let (raw, record) = result(search, claim_of, one, number);
        results.push(raw);
        given.push(record);
    }
    let mut devices = Map::new();
    if !results.is_empty() {
        devices.insert("results".to_owned(), Value::Array(results));
    }
    let config = config(search, claim);
    if !config.is_empty() {
        devices.insert("config".to_owned(), Value::Array(config));
    }
    let mut raw = json!({"devices": devices});
    let nodes = nodes(search, claim_of, chosen)?;
    if let Some(nodes) = &nodes {
        raw["nodeSelector"] = nodes.clone();
    }
    let selector = json!({"selector": nodes});
    let nodes = NodeSelector::parse(&Field::root(&selector).get("selector"));
    let nodes = nodes.map_err(|error| Failed::Everywhere(error.to_string()))?;
    Ok(Allocation { given, nodes, raw })
}

fn result(search: &Search<'_>, claim: &ResourceClaim, chosen: &Chosen<'_>, number: usize) -> (Value, Given) {
    let id = DeviceId { pool: chosen.slice.id.clone(), device: Arc::clone(&chosen.device.name) };
    let data = search.data.get(&chosen.key);
    let request = data.map(Data::name).unwrap_or_default();
    let admin = data.is_some_and(|data| data.ask.admin);
    let mut raw = json!({
        "request": request, "driver": &*id.pool.driver, "pool": &*id.pool.pool, "device": &*id.device,
    });
    if admin {
        raw["adminAccess"] = json!(true);
    }
    let tolerations: Vec<_> = data.into_iter().flat_map(|data| &data.ask.tolerations).collect();
    if !tolerations.is_empty() {
        raw["tolerations"] = tolerations.into_iter().map(|toleration| toleration.raw.clone()).collect();
    }
    let consumed = chosen.share.clone().unwrap_or_default();
    if chosen.share.is_some() {
        raw["shareID"] = json!(share_id(claim, &id, number));
    }
    if !consumed.is_empty() {
        let amounts: BTreeMap<_, _> =
            consumed.iter().map(|(name, amount)| (name, amount.to_string())).collect();
        raw["consumedCapacity"] = json!(amounts);
    }
    let waits = chosen.device.binding_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty());
    let shared = chosen.share.is_some();
    (raw, Given { request, device: id, admin, shared, consumed, waits, skips: false })
}

/// A UUID for a part of a device. The same for the same choice, and another for every other one: a claim has another
/// version whenever it is given devices anew.
fn share_id(claim: &ResourceClaim, device: &DeviceId, number: usize) -> String {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, &claim.uid, &claim.resource_version, device, number).hash(&mut hasher);
        hasher.finish()
    };
    let bits = (u128::from(half(0)) << 64) | u128::from(half(1));
    // Version 8 (made by an application), variant 1.
    let bits = bits & !(0xf << 76) | (8 << 76);
    let bits = bits & !(0b11 << 62) | (0b10 << 62);
    let text = format!("{bits:032x}");
    let part = |from, to| text.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

fn entry(source: &str, config: &DriverConfig, requests: &[String]) -> Value {
    let mut raw = config.raw.clone();
    if let Some(fields) = raw.as_object_mut() {
        fields.insert("source".to_owned(), json!(source));
        fields.remove("requests");
        if !requests.is_empty() {
            fields.insert("requests".to_owned(), json!(requests));
        }
    }
    raw
}

/// Configuration of the classes and of the claim, each for the requests that it concerns; for all, it names none.
fn config(search: &Search<'_>, claim: usize) -> Vec<Value> {
    let of = &search.claims[claim];
    // Of each request: its name, and where it was satisfied by an alternative, that one's.
    let mut names: Vec<(&str, String)> = Vec::new();
    let mut classes: Vec<(&str, Vec<String>)> = Vec::new();
    for (number, request) in of.requests.iter().enumerate() {
        let alternative = search.taken.get(&(claim, number)).copied().unwrap_or_default();
        let Some(data) = search.data.get(&(claim, number, alternative)) else { continue };
        names.push((&request.name, data.name()));
        match classes.iter_mut().find(|(class, _)| *class == &*data.class.name) {
            Some((_, requests)) => requests.push(data.name()),
            None => classes.push((&data.class.name, vec![data.name()])),
        }
    }
    let mut entries = Vec::new();
    for (name, requests) in &classes {
        let of_class = search.data.values().find(|data| *data.class.name == **name);
        for config in of_class.into_iter().flat_map(|data| data.class.config.iter()) {
            entries.push(entry("FromClass", config, for_all(requests, &names)));
        }
    }
    for config in &of.config {
        let concerned = config.requests.is_empty()
            || names
                .iter()
                .any(|(name, full)| config.requests.iter().any(|request| request == name || request == full));
        if concerned {
            entries.push(entry("FromClaim", config, for_all(&config.requests, &names)));
        }
    }
    entries
}

/// Nothing where every request is named.
fn for_all<'a>(requests: &'a [String], names: &[(&str, String)]) -> &'a [String] {
    let named =
        |(name, full): &(&str, String)| requests.iter().any(|request| request == name || request == full);
    if names.iter().all(named) { &[] } else { requests }
}

/// The nodes that reach every device. None: all.
fn nodes(search: &Search<'_>, claim: &ResourceClaim, chosen: &[Chosen<'_>]) -> Result<Option<Value>, Failed> {
    let mut fields: Vec<Value> = Vec::new();
    let mut expressions: Vec<Value> = Vec::new();
    for one in chosen {
        let access = if one.slice.per_device { &one.device.access } else { &one.slice.access };
        if access.node.is_some() || one.device.binds_to_node {
            let name = &search.node.name;
            return Ok(Some(json!({"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [&**name]},
            ]}]})));
        }
        let Some(selector) = &access.selector else { continue };
        let terms = selector.raw["nodeSelectorTerms"].as_array().map_or(&[][..], Vec::as_slice);
        match terms {
            [] => {}
            [term] => {
                add(&term["matchFields"], &mut fields);
                add(&term["matchExpressions"], &mut expressions);
            }
            more => {
                return Err(Failed::Everywhere(format!(
                    "create NodeSelector for claim {}: unsupported ResourceSlice.NodeSelector with {} terms",
                    claim.name,
                    more.len()
                )));
            }
        }
    }
    if fields.is_empty() && expressions.is_empty() {
        return Ok(None);
    }
    let mut term = Map::new();
    for (name, requirements) in [("matchFields", fields), ("matchExpressions", expressions)] {
        if !requirements.is_empty() {
            term.insert(name.to_owned(), Value::Array(requirements));
        }
    }
    Ok(Some(json!({"nodeSelectorTerms": [term]})))
}

/// Adds requirements that are not there already.
fn add(from: &Value, to: &mut Vec<Value>) {
    let values = |requirement: &Value| {
        let values = requirement["values"].as_array().map_or(&[][..], Vec::as_slice);
        values.iter().filter_map(Value::as_str).map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    for requirement in from.as_array().into_iter().flatten() {
        let known = to.iter().any(|other| {
            other["key"] == requirement["key"]
                && other["operator"] == requirement["operator"]
                && values(other) == values(requirement)
        });
        if !known {
            to.push(requirement.clone());
        }
    }
}
