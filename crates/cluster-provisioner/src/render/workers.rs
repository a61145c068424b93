//! Worker nodes, and when nodes are replaced.

use super::machines::{self, Servers};
use super::{
    BOOTSTRAP, CLUSTER_NAME, CORE, CORE_VERSION, Fault, INFRASTRUCTURE, Pool, Shop, files, merge, reference,
};
use api::provisioning::{HealthCheck, NodePool, Taint};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Labels with one of these are kept in step by Cluster API without replacing a node; others are the kubelet's.
const SYNCED: &[&str] =
    &["node.cluster.x-k8s.io", "node-restriction.kubernetes.io", "node-role.kubernetes.io"];

fn is_synced(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| {
        SYNCED.iter().any(|known| domain == *known || domain.ends_with(&format!(".{known}")))
    })
}

/// Labels that Cluster API keeps in step.
pub(super) fn synced(labels: &BTreeMap<String, String>) -> Option<Value> {
    let own: Map<String, Value> =
        labels.iter().filter(|(key, _)| is_synced(key)).map(|(k, v)| (k.clone(), json!(v))).collect();
    (!own.is_empty()).then_some(Value::Object(own))
}

/// How a node registers itself.
pub(super) fn registration(labels: &BTreeMap<String, String>, taints: Option<&[Taint]>) -> Value {
    let mut arguments = vec![
        json!({"name": "cloud-provider", "value": "external"}),
        // With it a machine is known before any controller of the cloud runs.
        json!({"name": "provider-id", "value": "openstack:///{{ instance_id }}"}),
    ];
    let own: Vec<String> = labels
        .iter()
        .filter(|(key, _)| !is_synced(key))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !own.is_empty() {
        arguments.push(json!({"name": "node-labels", "value": own.join(",")}));
    }
    let mut registration = json!({"name": "{{ local_hostname }}", "kubeletExtraArgs": arguments});
    if let Some(taints) = taints {
        registration["taints"] = json!(taints);
    }
    registration
}

pub(super) fn parts(shop: &Shop<'_>) -> Result<Vec<Pool>, Fault> {
    shop.input.spec.node_pools.iter().map(|pool| part(shop, pool)).collect()
}

fn part(shop: &Shop<'_>, pool: &NodePool) -> Result<Pool, Fault> {
    let prefix = shop.names.pools.get(&pool.name).cloned().unwrap_or_default();
    let servers = Servers {
        pool: Some(&pool.name),
        prefix: &prefix,
        flavor: &pool.flavor,
        root_volume: pool.root_volume.as_ref(),
        volumes: &pool.additional_volumes,
        metadata: &pool.metadata,
    };
    let machine = machines::template(shop, &servers)?;
    let taints = (!pool.taints.is_empty()).then_some(pool.taints.as_slice());
    let mut spec = json!({"joinConfiguration": {"nodeRegistration": registration(&pool.labels, taints)}});
    files::all_nodes(shop).put(&mut spec);
    let kind = (BOOTSTRAP, CORE_VERSION, "KubeadmConfigTemplate");
    let bootstrap = shop.template(kind, (&prefix, Some(&pool.name)), &spec)?;
    Ok(Pool { name: pool.name.clone(), machine, bootstrap })
}

/// Annotations that an autoscaler reads. The number of nodes is then its own.
pub(super) fn bounds(pool: &NodePool) -> Option<Value> {
    let autoscale = pool.autoscale.as_ref()?;
    Some(json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": autoscale.min.to_string(),
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": autoscale.max.to_string(),
    }))
}

pub(super) fn rollout() -> Value {
    json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}})
}

pub(super) fn deployment(shop: &Shop<'_>, pool: &NodePool, made: &Pool) -> Result<Value, Fault> {
    let name = shop.names.pools.get(&pool.name).cloned().unwrap_or_default();
    let mut object = shop.object((CORE, CORE_VERSION, "MachineDeployment"), &name);
    let mut template = json!({
        "clusterName": shop.names.cluster,
        "version": shop.version(),
        "bootstrap": {"configRef": reference(BOOTSTRAP, "KubeadmConfigTemplate", &made.bootstrap.name)},
        "infrastructureRef": reference(INFRASTRUCTURE, "OpenStackMachineTemplate", &made.machine.name),
        "deletion": {"nodeDrainTimeoutSeconds": 300},
    });
    if let Some(zone) = &pool.zone {
        template["failureDomain"] = json!(zone);
    }
    let labels = json!({CLUSTER_NAME: shop.names.cluster, "cluster.x-k8s.io/deployment-name": name});
    let mut body = json!({"spec": {
        "clusterName": shop.names.cluster,
        "selector": {"matchLabels": labels},
        "rollout": rollout(),
        "template": {"metadata": {"labels": labels}, "spec": template},
    }});
    if let Some(own) = synced(&pool.labels) {
        merge(&mut body["spec"]["template"]["metadata"]["labels"], &own);
    }
    if let Some(replicas) = pool.replicas {
        body["spec"]["replicas"] = json!(replicas);
    }
    if let Some(bounds) = bounds(pool) {
        body["metadata"] = json!({"annotations": bounds});
    }
    merge(&mut object, &shop.patched("MachineDeployment", Some(&pool.name), body)?);
    Ok(object)
}

/// What is checked, for objects that repeat it.
pub(super) fn checks(check: &HealthCheck) -> Value {
    json!({
        "nodeStartupTimeoutSeconds": check.startup_seconds,
        "unhealthyNodeConditions": [
            {"type": "Ready", "status": "Unknown", "timeoutSeconds": check.unhealthy_seconds},
            {"type": "Ready", "status": "False", "timeoutSeconds": check.unhealthy_seconds},
        ],
    })
}

pub(super) fn bound(check: &HealthCheck) -> Value {
    // A number and a share are different types to the API server.
    match check.max_unhealthy.parse::<u32>() {
        Ok(number) => json!({"unhealthyLessThanOrEqualTo": number}),
        Err(_) => json!({"unhealthyLessThanOrEqualTo": check.max_unhealthy}),
    }
}

pub(super) fn health_checks(shop: &Shop<'_>) -> Result<Vec<Value>, Fault> {
    let spec = shop.input.spec;
    let mut objects = Vec::new();
    if spec.control_plane.health_check.enabled {
        let selector = json!({"cluster.x-k8s.io/control-plane-name": shop.names.control_plane});
        let name = &shop.names.control_plane;
        objects.push(health_check(shop, (name, None), &spec.control_plane.health_check, selector)?);
    }
    for pool in spec.node_pools.iter().filter(|pool| pool.health_check.enabled) {
        let name = shop.names.pools.get(&pool.name).cloned().unwrap_or_default();
        let selector = json!({"cluster.x-k8s.io/deployment-name": name});
        objects.push(health_check(shop, (&name, Some(&pool.name)), &pool.health_check, selector)?);
    }
    Ok(objects)
}

fn health_check(
    shop: &Shop<'_>,
    (name, pool): (&str, Option<&str>),
    check: &HealthCheck,
    selector: Value,
) -> Result<Value, Fault> {
    let mut object = shop.object((CORE, CORE_VERSION, "MachineHealthCheck"), name);
    let mut labels = selector;
    labels[CLUSTER_NAME] = json!(shop.names.cluster);
    let body = json!({"spec": {
        "clusterName": shop.names.cluster,
        "selector": {"matchLabels": labels},
        "checks": checks(check),
        "remediation": {"triggerIf": bound(check)},
    }});
    merge(&mut object, &shop.patched("MachineHealthCheck", pool, body)?);
    Ok(object)
}
