//! Configurations with several profiles.

use serde_json::{Value, json};

use super::{REGION, ZONE};
use crate::random::Random;

/// Names that pods may give their scheduler; the first is the default one.
pub(super) const PROFILES: [&str; 3] = ["default-scheduler", "packing", "other"];

/// A configuration for all of [`PROFILES`]. Defaults of the versioned API apply where it says nothing.
pub(super) fn configuration(random: &mut Random) -> Value {
    let profiles: Vec<_> = PROFILES.iter().map(|name| profile(random, name)).collect();
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    })
}

fn profile(random: &mut Random, name: &str) -> Value {
    // Every node that could be emptied is looked at, in clusters of all sizes.
    let preemption = json!({"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 100});
    let preemption = arguments("DefaultPreemption", preemption);
    let mut profile = json!({"schedulerName": name, "pluginConfig": [preemption]});
    if name == "default-scheduler" {
        return profile;
    }
    let mut arguments: Vec<_> = [fit, balanced, spread, company, node_affinity]
        .into_iter()
        .filter_map(|arguments| if random.chance(60) { Some(arguments(random)) } else { None })
        .collect();
    arguments.push(preemption);
    profile["pluginConfig"] = json!(arguments);
    if name == "other" {
        profile["plugins"] = plugins(random);
    }
    profile
}

/// Other weights, and fewer plugins.
fn plugins(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"score": {
            "disabled": [{"name": "ImageLocality"}, {"name": "NodeResourcesFit"}],
            "enabled": [{"name": "NodeResourcesFit", "weight": 5}],
        }}),
        1 => json!({"multiPoint": {"enabled": [{"name": "PodTopologySpread", "weight": 7}]}}),
        2 => {
            json!({"filter": {"disabled": [{"name": "NodePorts"}]}, "preFilter": {"disabled": [{"name": "NodePorts"}]}})
        }
        _ => json!({"score": {
            "disabled": [{"name": "*"}],
            "enabled": [{"name": "ImageLocality", "weight": 2}, {"name": "InterPodAffinity"}],
        }}),
    }
}

fn arguments(plugin: &str, arguments: Value) -> Value {
    let mut args = arguments;
    args["apiVersion"] = json!("kubescheduler.config.k8s.io/v1");
    args["kind"] = json!(format!("{plugin}Args"));
    json!({"name": plugin, "args": args})
}

fn fit(random: &mut Random) -> Value {
    let resources = match random.below(3) {
        0 => json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]),
        1 => json!([{"name": "cpu", "weight": 3}, {"name": "example.com/gpu", "weight": 10}]),
        _ => json!([{"name": "memory", "weight": 2}, {"name": "ephemeral-storage", "weight": 1}]),
    };
    let strategy = match random.below(3) {
        0 => json!({"type": "MostAllocated", "resources": resources}),
        1 => json!({"type": "LeastAllocated", "resources": resources}),
        _ => json!({
            "type": "RequestedToCapacityRatio",
            "resources": resources,
            "requestedToCapacityRatio": {"shape": [
                {"utilization": 0, "score": random.pick(&[0, 10])},
                {"utilization": 30, "score": 4},
                {"utilization": 100, "score": random.pick(&[0, 10])},
            ]},
        }),
    };
    let mut fit = json!({"scoringStrategy": strategy});
    if random.chance(30) {
        fit["ignoredResources"] = json!(["example.com/gpu"]);
    } else if random.chance(30) {
        fit["ignoredResourceGroups"] = json!(["example.com"]);
    }
    arguments("NodeResourcesFit", fit)
}

fn balanced(random: &mut Random) -> Value {
    let resources = random.pick(&[
        json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}, {"name": "ephemeral-storage", "weight": 1}]),
        json!([{"name": "cpu", "weight": 1}]),
        json!([{"name": "memory", "weight": 1}, {"name": "example.com/gpu", "weight": 1}]),
    ]);
    arguments("NodeResourcesBalancedAllocation", json!({"resources": resources}))
}

fn spread(random: &mut Random) -> Value {
    let list = random.pick(&[
        json!([]),
        json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}]),
        json!([
            {"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": REGION, "whenUnsatisfiable": "ScheduleAnyway"},
        ]),
    ]);
    arguments("PodTopologySpread", json!({"defaultConstraints": list, "defaultingType": "List"}))
}

fn company(random: &mut Random) -> Value {
    let weight = random.pick(&[0, 1, 50, 100]);
    let ignored = random.chance(40);
    let args = json!({"hardPodAffinityWeight": weight, "ignorePreferredTermsOfExistingPods": ignored});
    arguments("InterPodAffinity", args)
}

fn node_affinity(random: &mut Random) -> Value {
    let mut added = json!({});
    if random.chance(60) {
        added["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["hdd"]}]},
        ]});
    }
    if random.chance(60) || added == json!({}) {
        added["preferredDuringSchedulingIgnoredDuringExecution"] = json!([
            {"weight": 7, "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]}},
        ]);
    }
    arguments("NodeAffinity", json!({"addedAffinity": added}))
}
