//! Which add-ons a cluster has, and what their objects are. Pure.

mod custom;

use crate::catalog::Catalog;
use api::provisioning::{AddonName, AddonVersion, CniType, InventoryItem, WorkloadClusterSpec};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub(crate) use custom::Facts;

/// An add-on that the spec asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub name: AddonName,
    /// `auto` or a version.
    pub version: String,
    /// The user's changes to its objects.
    pub values: Map<String, Value>,
}

/// What the spec asks for, in the order in which it is applied.
#[must_use]
pub fn wanted(spec: &WorkloadClusterSpec, catalog: &Catalog, kubernetes: &str) -> Vec<Wanted> {
    let addons = &spec.addons;
    let plain = |name, version: &str| Wanted { name, version: version.to_owned(), values: Map::new() };
    let mut all = Vec::new();
    match addons.cni.kind {
        CniType::Cilium => all.push(plain(AddonName::Cilium, &addons.cni.version)),
        CniType::Calico => all.push(plain(AddonName::Calico, &addons.cni.version)),
        CniType::None => {}
    }
    if addons.cni.gateway_api {
        all.push(plain(AddonName::GatewayApi, "auto"));
    }
    all.push(plain(AddonName::CloudControllerManager, &addons.cloud_controller_manager.version));
    let switched = [
        (AddonName::CinderCsi, &addons.cinder_csi),
        (AddonName::MetricsServer, &addons.metrics_server),
        (AddonName::CertManager, &addons.cert_manager),
        (AddonName::Flux, &addons.flux),
    ];
    for (name, addon) in switched {
        if addon.enabled {
            all.push(Wanted { name, version: addon.version.clone(), values: addon.values.clone() });
        }
    }
    let ingress = &addons.ingress_nginx;
    if ingress.enabled {
        let (version, values) = (ingress.version.clone(), ingress.values.clone());
        all.push(Wanted { name: AddonName::IngressNginx, version, values });
    }
    if addons.harbor.enabled {
        all.push(plain(AddonName::Harbor, "auto"));
    }
    // What this project runs in a target is in the catalogue if the operator wants it installed like this.
    if catalog.addon(AddonName::SchedulingAgent, "auto", kubernetes).is_ok() {
        all.push(plain(AddonName::SchedulingAgent, "auto"));
    }
    all
}

/// The objects of an add-on as they are applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// The version.
    pub version: String,
    /// The objects, in waves: what others need comes first.
    pub objects: Vec<Value>,
}

/// Cuts manifests into objects, fits them to the cluster and orders them.
///
/// # Errors
///
/// Text that is no YAML, or an object without kind or name; the message is for users.
pub(crate) fn content(
    entry: &AddonVersion,
    wanted: &Wanted,
    texts: &[String],
    facts: &Facts<'_>,
) -> Result<Content, String> {
    let mut objects = Vec::new();
    for text in texts {
        let documents: Vec<Value> =
            serde_yaml::from_multiple(text).map_err(|error| format!("a manifest is no YAML: {error}"))?;
        for document in documents {
            flatten(document, &mut objects)?;
        }
    }
    custom::fit(wanted.name, facts, &mut objects);
    for object in &mut objects {
        let item = item(object);
        let change = wanted.values.get(&format!("{}/{}", item.kind, item.name));
        if let Some(change) = change {
            json_patch::merge(object, change);
        }
        object["metadata"]["labels"][api::provisioning::ADDON] = Value::from(wanted.name.as_str());
    }
    objects.sort_by_key(wave);
    Ok(Content { version: entry.version.clone(), objects })
}

fn flatten(document: Value, objects: &mut Vec<Value>) -> Result<(), String> {
    // Nothing between two separators.
    if document.is_null() || document == "" {
        return Ok(());
    }
    if document["kind"] == "List" {
        let items = document["items"].as_array().cloned().unwrap_or_default();
        return items.into_iter().try_for_each(|item| flatten(item, objects));
    }
    if document["kind"].as_str().is_none() || document["metadata"]["name"].as_str().is_none() {
        return Err("an object of a manifest has no kind or no name".to_owned());
    }
    objects.push(document);
    Ok(())
}

/// Definitions, namespaces, what pods need, pods, and then what calls into them.
fn wave(object: &Value) -> u8 {
    match object["kind"].as_str().unwrap_or_default() {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" | "ConfigMap"
        | "Secret" | "StorageClass" | "CSIDriver" | "PriorityClass" => 2,
        "Service" | "Deployment" | "DaemonSet" | "StatefulSet" => 3,
        "Job" => 4,
        _other => 5,
    }
}

/// Which object it is.
pub(crate) fn item(object: &Value) -> InventoryItem {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    InventoryItem {
        api_version: word(&object["apiVersion"]),
        kind: word(&object["kind"]),
        namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
        name: word(&object["metadata"]["name"]),
        uid: object["metadata"]["uid"].as_str().map(str::to_owned),
    }
}

/// The object without its UID: what it is called, not which one it is.
pub(crate) fn place(item: &InventoryItem) -> InventoryItem {
    InventoryItem { uid: None, ..item.clone() }
}

/// Hash of everything that is applied.
pub(crate) fn hash(content: &Content) -> String {
    let mut digest = Sha256::new();
    for object in &content.objects {
        digest.update(object.to_string().as_bytes());
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text has this checksum, in hexadecimal digits.
pub(crate) fn is_sum(text: &str, sum: &str) -> bool {
    let digest: String = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    digest == sum
}

#[cfg(test)]
mod tests;
