mod bindings;
mod store;

use serde_json::{Value, json};

use super::*;
use crate::framework::Framework;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::snapshot::Snapshot;

pub(crate) fn claim(name: &str, class: &str, mut more: Value) -> Value {
    let mut claim = json!({
        "metadata": {"namespace": "default", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "5Gi"}},
        },
    });
    merge(&mut claim, more.take());
    claim
}

pub(crate) fn volume(name: &str, class: &str, mut more: Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "capacity": {"storage": "5Gi"},
        },
        "status": {"phase": "Available"},
    });
    merge(&mut volume, more.take());
    volume
}

pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub(crate) fn class(name: &str, provisioner: &str, mode: &str) -> StorageClass {
    let class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    StorageClass::parse(&class).expect("a class")
}

/// Nodes `n1` (zone a) and `n2` (zone b); classes `waits`, `local` (makes no volumes) and `now`.
pub(crate) fn cluster() -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        let labels = json!({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone});
        let status = json!({"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}});
        let node = json!({"metadata": {"name": name, "labels": labels}, "status": status});
        snapshot.set_node(NodeInfo::parse(&node).expect("a node"));
    }
    let volumes = snapshot.volumes_mut();
    volumes.set_class(class("waits", "a.csi", "WaitForFirstConsumer"));
    volumes.set_class(class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"));
    volumes.set_class(class("now", "a.csi", "Immediate"));
    snapshot
}

pub(crate) fn set_claim(snapshot: &mut Snapshot, value: &Value) -> Option<StorageEvent> {
    snapshot.volumes_mut().set_claim(Claim::parse(value).expect("a claim"))
}

pub(crate) fn set_volume(snapshot: &mut Snapshot, value: &Value) -> Option<StorageEvent> {
    snapshot.volumes_mut().set_volume(PersistentVolume::parse(value).expect("a volume"))
}

/// A pod that uses claims.
pub(crate) fn user(name: &str, claims: &[&str]) -> PodInfo {
    let volumes: Vec<_> = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    PodInfo::parse(&json!({"metadata": {"name": name, "uid": name}, "spec": {"volumes": volumes}}))
        .expect("a pod")
}

/// What a bound claim looks like.
pub(crate) fn bound_to(volume: &str) -> Value {
    json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
    })
}

/// A volume that only the node `name` can reach.
pub(crate) fn on_node(name: &str) -> Value {
    let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [name]});
    json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
}

fn node<'a>(snapshot: &'a Snapshot, name: &str) -> &'a crate::snapshot::Node {
    snapshot.node(name).expect("a node")
}

/// What `pod` needs on `name`.
fn plan(snapshot: &Snapshot, pod: &PodInfo, name: &str) -> VolumePlan {
    let framework = Framework::builder().build();
    framework.volumes(pod, snapshot, node(snapshot, name)).expect("something to bind")
}
