use serde_json::{Value, json};

use super::{HOSTNAME, IMAGES, REGION, Theme, ZONE};
use crate::random::Random;

pub(crate) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
pub(crate) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
pub(crate) const FEATURES: [&str; 3] =
    ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions"];

pub(crate) fn name(index: usize) -> String {
    format!("n{index}")
}

pub(super) fn node(random: &mut Random, theme: &Theme, index: usize) -> Value {
    let allocatable = allocatable(random, theme);
    let mut node = json!({
        "metadata": {"name": name(index), "labels": labels(random, theme, index)},
        "spec": {},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    });
    let taints = taints(random, theme);
    if random.chance(6) {
        node["spec"]["unschedulable"] = json!(true);
    }
    if !taints.is_empty() {
        node["spec"]["taints"] = json!(taints);
    }
    if random.chance(50) {
        let images: Vec<_> = random
            .sample(&IMAGES, 2)
            .into_iter()
            .map(|image| {
                let full = if image.rfind(':') > image.rfind('/') {
                    image.to_owned()
                } else {
                    format!("{image}:latest")
                };
                json!({"names": [full], "sizeBytes": random.between(10_000_000, 2_000_000_000)})
            })
            .collect();
        node["status"]["images"] = json!(images);
    }
    if random.chance(40) {
        let count = random.between(1, 3);
        let mut features = random.sample(&FEATURES, count);
        features.sort_unstable();
        node["status"]["declaredFeatures"] = json!(features);
    }
    node
}

fn labels(random: &mut Random, theme: &Theme, index: usize) -> Value {
    let mut labels = json!({});
    if random.chance(96) {
        labels[HOSTNAME] = json!(name(index));
    }
    if random.chance(92) {
        labels[ZONE] = json!(random.name("z", theme.zones));
    }
    if random.chance(60) {
        labels[REGION] = json!(random.name("r", 2));
    }
    if random.chance(50) {
        labels["rack"] = json!(random.name("rack", 6));
    }
    if random.chance(50) {
        labels["disk"] = json!(random.pick(&["ssd", "hdd"]));
    }
    if random.chance(60) {
        labels["pool"] = json!(random.pick(&["x", "y", "z"]));
    }
    if random.chance(50) {
        labels["num"] = json!(random.pick(&["0", "1", "3", "5", "8", "12", "many", "007"]));
    }
    labels
}

fn allocatable(random: &mut Random, theme: &Theme) -> Value {
    let small = random.chance(theme.small);
    let (cpu, memory, pods) = if small {
        (
            random.pick(&["1", "1500m", "2", "0.5"]),
            random.pick(&["1Gi", "2Gi", "2500000Ki"]),
            random.pick(&["2", "4", "8"]),
        )
    } else {
        (
            random.pick(&["4", "8", "3920m", "16", "7"]),
            random.pick(&["4Gi", "8Gi", "16Gi", "7500000Ki", "32G"]),
            random.pick(&["16", "110", "110", "250"]),
        )
    };
    let mut allocatable = json!({"cpu": cpu, "memory": memory, "pods": pods});
    if random.chance(90) {
        allocatable["ephemeral-storage"] = json!(random.pick(&["50Gi", "5Gi", "100G"]));
    }
    if random.chance(30) {
        allocatable["example.com/gpu"] = json!(random.pick(&["0", "1", "4"]));
    }
    if random.chance(30) {
        allocatable["hugepages-2Mi"] = json!(random.pick(&["8Mi", "4Mi"]));
    }
    allocatable
}

fn taints(random: &mut Random, theme: &Theme) -> Vec<Value> {
    let mut taints = Vec::new();
    if random.chance(theme.tainted) {
        for key in random.pick(&[&["k1"][..], &["k2"], &["k1", "k2"], &["k2", "k1", "k3"]]) {
            let mut taint = json!({"key": key, "effect": random.pick(&EFFECTS)});
            if random.chance(70) {
                taint["value"] = json!(random.pick(&["v1", "v2"]));
            }
            taints.push(taint);
        }
    }
    if random.chance(5) {
        taints.push(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"}));
    }
    taints
}
