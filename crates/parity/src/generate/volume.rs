//! Claims, volumes and storage classes in all states in which pods meet them.

use serde_json::{Map, Value, json};

use super::node::name;
use super::{HOSTNAME, Theme, ZONE};
use crate::random::Random;

/// The driver that knows its free capacity.
const COUNTING: &str = "counting.csi";
const PLAIN: &str = "plain.csi";

/// A claim and the volume that belongs to it, if there is one.
struct Pair {
    claim: Value,
    volume: Option<Value>,
}

/// What pods may refer to.
pub(super) struct Claims {
    /// Namespace and name; some are missing.
    names: Vec<(String, String)>,
}

impl Claims {
    /// A claim of this namespace; None if it has none.
    pub(super) fn pick(&self, random: &mut Random, namespace: &str) -> Option<String> {
        let own: Vec<_> = self.names.iter().filter(|(home, _)| home == namespace).collect();
        if own.is_empty() { None } else { Some(random.pick(&own).1.clone()) }
    }
}

/// Adds storage to a document.
pub(super) fn add(random: &mut Random, theme: &Theme, document: &mut Map<String, Value>) -> Claims {
    let count = random.between(4, 8 + theme.nodes / 10);
    let mut claims = Claims { names: Vec::new() };
    let (mut claim_list, mut volume_list) = (Vec::new(), Vec::new());
    for index in 0..count {
        let namespace = random.pick(&["default", "default", "prod", "dev"]);
        let pair = pair(random, theme, namespace, index);
        claims.names.push((namespace.to_owned(), format!("c{index}")));
        // Now and then pods speak of a claim that does not exist.
        if random.chance(97) {
            claim_list.push(pair.claim);
        }
        volume_list.extend(pair.volume);
    }
    // Volumes that wait for a claim.
    let free = if theme.live { random.between(4, 12) } else { random.between(0, 3 + theme.nodes / 20) };
    for index in 0..free {
        volume_list.push(free_volume(random, theme, index));
    }
    let nodes = csi_nodes(random, theme);
    let attachments = attachments(random, theme, &volume_list);
    for (key, list) in [
        ("storageClasses", classes(random, theme)),
        ("persistentVolumeClaims", claim_list),
        ("persistentVolumes", volume_list),
        ("csiNodes", nodes),
        ("csiDrivers", drivers(random)),
        ("csiStorageCapacities", capacities(random, theme)),
        ("volumeAttachments", attachments),
    ] {
        document.insert(key.to_owned(), json!(list));
    }
    claims
}

fn classes(random: &mut Random, theme: &Theme) -> Vec<Value> {
    let mut waiting = json!({
        "metadata": {"name": "waiting"}, "provisioner": PLAIN, "volumeBindingMode": "WaitForFirstConsumer",
    });
    if random.chance(30) {
        let zones = [random.name("z", theme.zones), random.name("z", theme.zones)];
        waiting["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]);
    }
    vec![
        waiting,
        json!({"metadata": {"name": "counting"}, "provisioner": COUNTING, "volumeBindingMode": "WaitForFirstConsumer"}),
        json!({
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }),
        json!({"metadata": {"name": "immediate"}, "provisioner": PLAIN, "volumeBindingMode": "Immediate"}),
    ]
}

fn drivers(random: &mut Random) -> Vec<Value> {
    let mut plain = json!({"metadata": {"name": PLAIN}, "spec": {"attachRequired": true}});
    if random.chance(40) {
        plain["spec"]["preventPodSchedulingIfMissing"] = json!(true);
    }
    vec![plain, json!({"metadata": {"name": COUNTING}, "spec": {"storageCapacity": random.chance(85)}})]
}

/// In which states claims are.
const KINDS: &[&str] = &[
    "waiting",
    "waiting",
    "counting",
    "local",
    "local",
    "bound",
    "bound",
    "bound",
    "zone",
    "zone",
    "immediate",
    "prebound",
    "lost",
    "deleted",
    "no class",
];
/// The same where most are to be bound yet.
const UNBOUND: &[&str] = &["waiting", "waiting", "waiting", "counting", "local", "local", "bound", "zone"];

fn size(random: &mut Random) -> &'static str {
    random.pick(&["1Gi", "5Gi", "10Gi", "20Gi", "1500M"])
}

fn pair(random: &mut Random, theme: &Theme, namespace: &str, index: usize) -> Pair {
    let kind = random.pick(if theme.live { UNBOUND } else { KINDS });
    let class = match kind {
        "counting" | "local" | "immediate" => kind,
        "no class" => "missing",
        _ => "waiting",
    };
    let mode = random.pick(&["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]);
    let mut claim = json!({
        "metadata": {"name": format!("c{index}"), "namespace": namespace},
        "spec": {
            "accessModes": [mode],
            "storageClassName": class,
            "volumeMode": if random.chance(8) { "Block" } else { "Filesystem" },
            "resources": {"requests": {"storage": size(random)}},
        },
        "status": {"phase": "Pending"},
    });
    if matches!(kind, "waiting" | "local") && random.chance(12) {
        claim["spec"]["selector"] = json!({"matchLabels": {"kind": "fast"}});
    }
    if kind == "waiting" && random.chance(10) {
        let node = name(random.below(theme.nodes));
        claim["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": node});
    }
    let bound = matches!(kind, "bound" | "zone" | "lost" | "deleted");
    if bound || kind == "prebound" {
        claim["spec"]["volumeName"] = json!(format!("v{index}"));
    }
    if bound {
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        claim["status"]["phase"] = json!(if kind == "lost" { "Lost" } else { "Bound" });
    }
    if kind == "deleted" {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    }
    // Now and then the claim's volume is gone.
    let there = (bound && kind != "lost" && random.chance(96)) || kind == "local";
    let volume = there.then(|| volume(random, theme, kind, &claim, index));
    Pair { claim, volume }
}

fn volume(random: &mut Random, theme: &Theme, kind: &str, claim: &Value, index: usize) -> Value {
    let mut volume = json!({
        "metadata": {"name": format!("v{index}"), "labels": {"kind": random.pick(&["fast", "slow"])}},
        "spec": {
            "capacity": {"storage": capacity(random, index)},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"],
            "storageClassName": claim["spec"]["storageClassName"],
            "volumeMode": claim["spec"]["volumeMode"],
            "csi": {"driver": PLAIN, "volumeHandle": format!("h{}", index - index % 2 * random.below(2))},
        },
        "status": {"phase": "Available"},
    });
    if kind != "local" {
        let metadata = &claim["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or_default();
        volume["spec"]["claimRef"] =
            json!({"namespace": namespace, "name": name, "uid": format!("{namespace}/{name}")});
        volume["status"]["phase"] = json!("Bound");
    }
    match kind {
        "zone" => {
            let zone = random.name("z", theme.zones);
            let value = if random.chance(30) { format!("{zone}__z0") } else { zone };
            let key = random.pick(&[ZONE, "failure-domain.beta.kubernetes.io/zone"]);
            volume["metadata"]["labels"][key] = json!(value);
        }
        "local" => on_nodes(random, theme, &mut volume),
        _ if random.chance(50) => {
            let zone = random.name("z", theme.zones);
            volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]},
            ]}});
        }
        _ => {}
    }
    volume
}

/// No two volumes are of the same size: which of two equal ones a claim gets is chance in upstream.
fn capacity(random: &mut Random, number: usize) -> String {
    format!("{}Mi", random.pick(&[1, 5, 8, 10, 30, 40]) * 1024 + number)
}

/// Makes it a local volume that some nodes have.
fn on_nodes(random: &mut Random, theme: &Theme, volume: &mut Value) {
    if let Some(spec) = volume["spec"].as_object_mut() {
        spec.remove("csi");
    }
    let count = random.pick(&[1, 3, theme.nodes / 4 + 1]);
    let mut nodes: Vec<_> = (0..count).map(|_| name(random.below(theme.nodes))).collect();
    nodes.sort_unstable();
    nodes.dedup();
    volume["spec"]["local"] = json!({"path": "/disk"});
    volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": nodes}]},
    ]}});
}

/// A volume that no claim has, or that is kept for one.
fn free_volume(random: &mut Random, theme: &Theme, index: usize) -> Value {
    let mut volume = json!({
        "metadata": {"name": format!("free{index}"), "labels": {"kind": random.pick(&["fast", "slow"])}},
        "spec": {
            "capacity": {"storage": capacity(random, 500 + index)},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": random.pick(&["local", "local", "waiting"]),
            "volumeMode": "Filesystem",
        },
        "status": {"phase": random.pick(&["Available", "Available", "Available", "Released"])},
    });
    on_nodes(random, theme, &mut volume);
    if random.chance(15) {
        // No two for one claim: which of them it gets would be chance.
        volume["spec"]["claimRef"] = json!({"namespace": "default", "name": format!("c{index}")});
    }
    volume
}

fn csi_nodes(random: &mut Random, theme: &Theme) -> Vec<Value> {
    let mut nodes = Vec::new();
    let limited = random.pick(&[20, 80]);
    for index in 0..theme.nodes {
        if random.chance(15) {
            continue;
        }
        let mut drivers = Vec::new();
        for driver in [PLAIN, COUNTING] {
            if random.chance(15) {
                continue;
            }
            let mut entry = json!({"name": driver, "nodeID": name(index)});
            if random.chance(limited) {
                entry["allocatable"] = json!({"count": random.pick(&[1, 1, 2, 30])});
            }
            drivers.push(entry);
        }
        nodes.push(json!({"metadata": {"name": name(index)}, "spec": {"drivers": drivers}}));
    }
    nodes
}

fn capacities(random: &mut Random, theme: &Theme) -> Vec<Value> {
    let mut list = Vec::new();
    for zone in 0..theme.zones {
        if random.chance(25) {
            continue;
        }
        let mut capacity = json!({
            "metadata": {"name": format!("free-{zone}"), "namespace": "default"},
            "storageClassName": "counting",
            "nodeTopology": {"matchLabels": {ZONE: format!("z{zone}")}},
            "capacity": random.pick(&["1Gi", "8Gi", "50Gi", "100Gi"]),
        });
        if random.chance(20) {
            capacity["maximumVolumeSize"] = json!("6Gi");
        }
        list.push(capacity);
    }
    list
}

fn attachments(random: &mut Random, theme: &Theme, volumes: &[Value]) -> Vec<Value> {
    let mut list = Vec::new();
    for volume in volumes.iter().filter(|volume| volume["spec"]["csi"].is_object()) {
        if random.chance(30) {
            list.push(json!({
                "metadata": {"name": format!("a{}", list.len())},
                "spec": {
                    "attacher": PLAIN,
                    "nodeName": name(random.below(theme.nodes)),
                    "source": {"persistentVolumeName": volume["metadata"]["name"]},
                },
                "status": {"attached": true},
            }));
        }
    }
    list
}

/// Volumes for a pod: claims, or disks that the manifest itself names.
pub(super) fn of_pod(random: &mut Random, claims: &Claims, namespace: &str) -> Vec<Value> {
    let mut volumes = Vec::new();
    if random.chance(6) {
        volumes.push(disk(random));
    }
    if random.chance(3) {
        volumes.push(json!({"name": "made", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "waiting",
            "resources": {"requests": {"storage": "1Gi"}},
        }}}}));
    }
    for index in 0..random.pick(&[0, 1, 1, 1, 2]) {
        if let Some(claim) = claims.pick(random, namespace) {
            let volume = json!({"name": format!("v{index}"), "persistentVolumeClaim": {"claimName": claim}});
            if !volumes.contains(&volume) {
                volumes.push(volume);
            }
        }
    }
    volumes
}

fn disk(random: &mut Random) -> Value {
    let read_only = random.chance(50);
    let id = random.name("disk", 3);
    match random.below(4) {
        0 => json!({"name": "disk", "gcePersistentDisk": {"pdName": id, "readOnly": read_only}}),
        1 => json!({"name": "disk", "awsElasticBlockStore": {"volumeID": id, "readOnly": read_only}}),
        2 => json!({"name": "disk", "iscsi": {
            "targetPortal": "10.0.0.2:3260", "iqn": format!("iqn.2026-01.example:{id}"), "lun": 0, "readOnly": read_only,
        }}),
        _ => json!({"name": "disk", "rbd": {
            "monitors": ["10.0.0.3", "10.0.0.4"], "image": id, "pool": "rbd", "readOnly": read_only,
        }}),
    }
}
