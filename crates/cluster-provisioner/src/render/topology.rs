//! A cluster as a topology: one ClusterClass whose templates hold what plain objects would, and a Cluster of it.
//!
//! This is how the last release of the older scripts made clusters; such clusters cannot leave it.

use super::workers::{bound, checks, rollout};
use super::{
    BOOTSTRAP, CONTROL_PLANE, CORE, CORE_VERSION, Fault, INFRASTRUCTURE, INFRASTRUCTURE_VERSION, Parts, Shop,
    Template, control_plane, infrastructure, merge, workers,
};
use api::provisioning::{HealthCheck, NodePool};
use serde_json::{Value, json};

pub(super) fn objects(shop: &Shop<'_>, parts: &Parts) -> Result<Vec<Value>, Fault> {
    let of = (INFRASTRUCTURE, INFRASTRUCTURE_VERSION, "OpenStackClusterTemplate");
    let cloud = shop.template(of, (&shop.names.infrastructure_cluster, None), &parts.cloud["spec"])?;
    let plane = shop.template(
        (CONTROL_PLANE, CORE_VERSION, "KubeadmControlPlaneTemplate"),
        (&shop.names.control_plane, None),
        &json!({"kubeadmConfigSpec": parts.control_plane.kubeadm, "rollout": control_plane::rollout(shop),
            "remediation": control_plane::remediation()}),
    )?;
    let mut objects =
        vec![cloud.object.clone(), parts.control_plane.machine.object.clone(), plane.object.clone()];
    for pool in &parts.pools {
        objects.push(pool.machine.object.clone());
        objects.push(pool.bootstrap.object.clone());
    }
    let mut class = shop.object((CORE, CORE_VERSION, "ClusterClass"), &shop.names.cluster);
    merge(
        &mut class,
        &shop.patched("ClusterClass", None, json!({"spec": class_spec(shop, parts, (&cloud, &plane))}))?,
    );
    objects.push(class);
    let mut cluster = shop.object((CORE, CORE_VERSION, "Cluster"), &shop.names.cluster);
    let mut spec = infrastructure::network(shop);
    spec["topology"] = topology(shop);
    merge(&mut cluster, &shop.patched("Cluster", None, json!({"spec": spec}))?);
    objects.push(cluster);
    Ok(objects)
}

fn template(group: &str, version: &str, kind: &str, of: &Template) -> Value {
    json!({"templateRef": {"apiVersion": format!("{group}/{version}"), "kind": kind, "name": of.name}})
}

fn machines(of: &Template) -> Value {
    template(INFRASTRUCTURE, INFRASTRUCTURE_VERSION, "OpenStackMachineTemplate", of)
}

fn class_spec(shop: &Shop<'_>, parts: &Parts, (cloud, plane): (&Template, &Template)) -> Value {
    let mut control_plane = template(CONTROL_PLANE, CORE_VERSION, "KubeadmControlPlaneTemplate", plane);
    control_plane["machineInfrastructure"] = machines(&parts.control_plane.machine);
    control_plane["naming"] = json!({"template": shop.names.control_plane});
    let classes = parts.pools.iter().map(|pool| {
        let name = shop.names.pools.get(&pool.name).cloned().unwrap_or_default();
        json!({
            "class": pool.name,
            "bootstrap": template(BOOTSTRAP, CORE_VERSION, "KubeadmConfigTemplate", &pool.bootstrap),
            "infrastructure": machines(&pool.machine),
            "naming": {"template": name},
        })
    });
    let mut spec = json!({
        "infrastructure": template(INFRASTRUCTURE, INFRASTRUCTURE_VERSION, "OpenStackClusterTemplate", cloud),
        "controlPlane": control_plane,
    });
    spec["infrastructure"]["naming"] = json!({"template": shop.names.infrastructure_cluster});
    if !parts.pools.is_empty() {
        spec["workers"] = json!({"machineDeployments": classes.collect::<Vec<Value>>()});
    }
    spec
}

fn health(check: &HealthCheck) -> Value {
    if check.enabled {
        json!({"enabled": true, "checks": checks(check), "remediation": {"triggerIf": bound(check)}})
    } else {
        json!({"enabled": false})
    }
}

fn topology(shop: &Shop<'_>) -> Value {
    let spec = shop.input.spec;
    let mut plane = json!({
        "replicas": spec.control_plane.replicas,
        "healthCheck": health(&spec.control_plane.health_check),
        "deletion": {"nodeDrainTimeoutSeconds": 300},
    });
    if let Some(labels) = workers::synced(&spec.control_plane.labels) {
        plane["metadata"] = json!({"labels": labels});
    }
    let mut topology = json!({
        "classRef": {"name": shop.names.cluster},
        "version": shop.version(),
        "controlPlane": plane,
    });
    if !spec.node_pools.is_empty() {
        let pools: Vec<Value> = spec.node_pools.iter().map(pool).collect();
        topology["workers"] = json!({"machineDeployments": pools});
    }
    topology
}

fn pool(pool: &NodePool) -> Value {
    let mut of = json!({
        "class": pool.name,
        "name": pool.name,
        "rollout": rollout(),
        "healthCheck": health(&pool.health_check),
        "deletion": {"nodeDrainTimeoutSeconds": 300},
    });
    if let Some(replicas) = pool.replicas {
        of["replicas"] = json!(replicas);
    }
    if let Some(zone) = &pool.zone {
        of["failureDomain"] = json!(zone);
    }
    let mut metadata = json!({});
    if let Some(labels) = workers::synced(&pool.labels) {
        metadata["labels"] = labels;
    }
    if let Some(bounds) = workers::bounds(pool) {
        metadata["annotations"] = bounds;
    }
    if metadata != json!({}) {
        of["metadata"] = metadata;
    }
    of
}
