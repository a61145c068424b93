//! All custom resource definitions as values, for the charts and for tests.

use crate::provisioning::{AddonInventory, CloudAccount, NodeImage, ReleaseCatalog, WorkloadCluster};
use crate::{ClusterSource, ClusterTarget, Source, Target, TargetScore};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The schema of a list of conditions, keyed by type so that each has one owner.
pub(crate) fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0}
            }
        }
    })
}

/// A definition of what has no derived schema.
fn definition(names: &Value, scope: &str, version: &Value) -> Value {
    let mut version = version.clone();
    version["name"] = json!("v1alpha1");
    version["served"] = json!(true);
    version["storage"] = json!(true);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.multicluster.admiralty.io", names["plural"].as_str().unwrap_or_default())},
        "spec": {
            "group": "multicluster.admiralty.io",
            "names": names,
            "scope": scope,
            "versions": [version],
        }
    })
}

/// Spec and status are those of a pod: any field of any release of Kubernetes passes.
fn pod_chaperon() -> Value {
    let pod_part = |what: &str| json!({"type": "object", "description": what, "x-kubernetes-preserve-unknown-fields": true});
    let annotation = |name: &str, key: &str| json!({"name": name, "type": "string", "jsonPath": format!(".metadata.annotations['{}']", key.replace('.', "\\."))});
    definition(
        &json!({"kind": "PodChaperon", "listKind": "PodChaperonList", "plural": "podchaperons",
            "singular": "podchaperon", "shortNames": ["chap"]}),
        "Namespaced",
        &json!({
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                annotation("reserved", crate::keys::IS_RESERVED),
                annotation("allowed", crate::keys::IS_ALLOWED),
                {"name": "phase", "type": "string", "jsonPath": ".status.phase"},
                annotation("node", crate::keys::RESERVED_NODE),
                {"name": "age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "description": "A delegate to be: the pod spec of a proxy pod of another cluster, and what became of it here.",
                "properties": {
                    "spec": pod_part("A core/v1 PodSpec."),
                    "status": pod_part("A core/v1 PodStatus."),
                }
            }}
        }),
    )
}

fn cluster_summary() -> Value {
    let quantities = |what: &str| {
        json!({
            "type": "object",
            "description": what,
            "additionalProperties": {
                "x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            }
        })
    };
    definition(
        &json!({"kind": "ClusterSummary", "listKind": "ClusterSummaryList", "plural": "clustersummaries",
            "singular": "clustersummary", "shortNames": ["mcsum"]}),
        "Cluster",
        &json!({
            "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "CPU", "type": "string", "jsonPath": ".allocatable.cpu"},
                {"name": "Memory", "type": "string", "jsonPath": ".allocatable.memory"},
                {"name": "Pods", "type": "string", "jsonPath": ".allocatable.pods"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            "schema": {"openAPIV3Schema": {
                "type": "object",
                "description": "What this cluster offers, summed over the nodes that can take pods.",
                "properties": {
                    "capacity": quantities("Resource name to quantity."),
                    "allocatable": quantities("Resource name to quantity, less what the system keeps."),
                    "free": quantities("What of the allocatable nobody has asked for."),
                    "status": {"type": "object"},
                }
            }}
        }),
    )
}

fn derived(definition: &CustomResourceDefinition) -> Value {
    let mut definition = serde_json::to_value(definition).unwrap_or_default();
    drop_empty_defaults(&mut definition);
    definition
}

/// An older object without a name must still be read here, but an API server must not fill in an empty one.
fn drop_empty_defaults(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, value| name != "default" || value != "");
            fields.values_mut().for_each(drop_empty_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_defaults),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Names of clusters are part of names of machines and hosts, and of label values.
fn workload_cluster() -> Value {
    let mut definition = derived(&WorkloadCluster::crd());
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["metadata"] = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
        }
    });
    definition
}

/// The definitions of all kinds: those of scheduling, then scores, then those of provisioning, each in the order of their names.
#[must_use]
pub fn all() -> Vec<Value> {
    vec![
        derived(&ClusterSource::crd()),
        cluster_summary(),
        derived(&ClusterTarget::crd()),
        pod_chaperon(),
        derived(&Source::crd()),
        derived(&Target::crd()),
        derived(&TargetScore::crd()),
        derived(&AddonInventory::crd()),
        derived(&CloudAccount::crd()),
        derived(&NodeImage::crd()),
        derived(&ReleaseCatalog::crd()),
        workload_cluster(),
    ]
}

#[cfg(test)]
mod tests {
    use super::all;

    #[test]
    fn every_kind_has_the_short_name_of_the_contract() {
        let short: Vec<_> = all()
            .iter()
            .map(|crd| crd["spec"]["names"]["shortNames"][0].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            short,
            ["csrc", "mcsum", "ctg", "chap", "src", "tg", "tscore", "ai", "ca", "ni", "rc", "wc"]
        );
    }

    #[test]
    fn every_kind_has_a_status_subresource_and_one_stored_version() {
        for crd in all() {
            let version = &crd["spec"]["versions"][0];
            // Versions, inventories and scores say all that there is to say in their specs.
            let bare = ["ReleaseCatalog", "AddonInventory", "TargetScore"]
                .iter()
                .any(|kind| crd["spec"]["names"]["kind"] == *kind);
            assert_eq!(version["subresources"]["status"].is_object(), !bare, "{crd}");
            assert_eq!((&version["storage"], &version["name"]), (&true.into(), &"v1alpha1".into()));
        }
    }
}
