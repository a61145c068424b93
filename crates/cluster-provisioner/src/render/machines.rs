//! Templates of servers.

use super::{CONTROL_PLANE_GROUP, Fault, INFRASTRUCTURE, INFRASTRUCTURE_VERSION, Shop, Template};
use api::provisioning::{AdditionalVolume, RootVolume};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What tells the servers of a pool from those of others.
pub(super) struct Servers<'a> {
    pub(super) pool: Option<&'a str>,
    pub(super) prefix: &'a str,
    pub(super) flavor: &'a str,
    pub(super) root_volume: Option<&'a RootVolume>,
    pub(super) volumes: &'a [AdditionalVolume],
    pub(super) metadata: &'a BTreeMap<String, String>,
}

pub(super) fn template(shop: &Shop<'_>, servers: &Servers<'_>) -> Result<Template, Fault> {
    let group = servers.pool.unwrap_or(CONTROL_PLANE_GROUP);
    let mut spec = json!({
        "flavor": servers.flavor,
        "image": image(shop),
        "identityRef": shop.identity(),
    });
    if let Some(key) = &shop.input.spec.nodes.ssh_key_name {
        spec["sshKeyName"] = json!(key);
    }
    if let Some(id) = shop.input.server_groups.get(group) {
        spec["serverGroup"] = json!({"id": id});
    }
    // A flavor without a disk needs a volume even if the user names none.
    let decided = shop.input.resolved.root_volumes.get(group);
    let volume = servers
        .root_volume
        .cloned()
        .or_else(|| decided.map(|size| RootVolume { size_gib: *size, kind: None }));
    if let Some(volume) = volume {
        spec["rootVolume"] = sized(volume.size_gib, volume.kind.as_ref());
    }
    if !servers.volumes.is_empty() {
        spec["additionalBlockDevices"] = servers.volumes.iter().map(block_device).collect();
    }
    if !servers.metadata.is_empty() {
        let pairs = servers.metadata.iter().map(|(key, value)| json!({"key": key, "value": value}));
        spec["serverMetadata"] = pairs.collect();
    }
    let kind = (INFRASTRUCTURE, INFRASTRUCTURE_VERSION, "OpenStackMachineTemplate");
    shop.template(kind, (servers.prefix, servers.pool), &spec)
}

fn image(shop: &Shop<'_>) -> Value {
    let image = &shop.input.spec.nodes.image;
    if let Some(id) = shop.input.resolved.image_id.as_ref().or(image.id.as_ref()) {
        return json!({"id": id});
    }
    let name = shop.input.resolved.image_name.as_ref().or(image.name.as_ref()).cloned().unwrap_or_default();
    json!({"filter": {"name": name.replace("${KUBERNETES_VERSION}", shop.version())}})
}

/// Volumes are in the zone of their server: across zones they cannot be attached everywhere.
fn sized(size: i32, kind: Option<&String>) -> Value {
    let mut volume = json!({"sizeGiB": size, "availabilityZone": {"from": "Machine"}});
    if let Some(kind) = kind {
        volume["type"] = json!(kind);
    }
    volume
}

fn block_device(volume: &AdditionalVolume) -> Value {
    let mut of = Map::new();
    of.insert("availabilityZone".to_owned(), json!({"from": "Machine"}));
    if let Some(kind) = &volume.kind {
        of.insert("type".to_owned(), json!(kind));
    }
    json!({"name": volume.name, "sizeGiB": volume.size_gib, "storage": {"type": "Volume", "volume": of}})
}
