//! What pods want of nodes and of other pods.

use serde_json::{Map, Value, json};

use super::node::{EFFECTS, UNSCHEDULABLE, name};
use super::{APPS, HOSTNAME, NAMESPACES, REGION, Theme, ZONE};
use crate::random::Random;

const KEYS: [&str; 5] = [ZONE, HOSTNAME, ZONE, REGION, "rack"];

pub(super) fn tolerations(random: &mut Random) -> Value {
    let count = random.pick(&[1, 1, 2, 3]);
    let list: Vec<_> = (0..count).map(|_| toleration(random)).collect();
    json!(list)
}

fn toleration(random: &mut Random) -> Value {
    let mut toleration = json!({});
    let everything = random.chance(12);
    if everything || random.chance(50) {
        toleration["operator"] = json!("Exists");
    } else {
        if random.chance(50) {
            toleration["operator"] = json!("Equal");
        }
        toleration["value"] = json!(random.pick(&["v1", "v2", ""]));
    }
    if !everything {
        toleration["key"] = json!(random.pick(&["k1", "k2", "k3", UNSCHEDULABLE]));
    }
    if random.chance(60) {
        toleration["effect"] = json!(random.pick(&EFFECTS));
    }
    toleration
}

/// One expression of a node selector term.
fn expression(random: &mut Random, theme: &Theme) -> Value {
    let key = random.pick(&["disk", "pool", "num", "rack", ZONE, HOSTNAME]);
    let operator = random.pick(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);
    match operator {
        "Gt" | "Lt" => {
            json!({"key": "num", "operator": operator, "values": [random.pick(&["0", "2", "4", "7", "12"])]})
        }
        "In" | "NotIn" => {
            let values = match key {
                "disk" => vec!["ssd".to_owned()],
                "pool" => random.sample(&["x", "y", "z"].map(str::to_owned), 2),
                "num" => random.sample(&["3", "5", "007", "many"].map(str::to_owned), 2),
                "rack" => vec![random.name("rack", 6), "rack0".to_owned()],
                ZONE => (0..2).map(|_| random.name("z", theme.zones)).collect(),
                _ => (0..3).map(|_| name(random.below(theme.nodes))).collect(),
            };
            json!({"key": key, "operator": operator, "values": values})
        }
        _ => json!({"key": key, "operator": operator}),
    }
}

fn node_term(random: &mut Random, theme: &Theme) -> Value {
    if random.chance(3) {
        return json!({});
    }
    let mut term = json!({});
    let fields = random.chance(12);
    if fields {
        let operator = random.pick(&["In", "In", "NotIn"]);
        let node = name(random.below(theme.nodes + 2));
        term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": [node]}]);
    }
    if !fields || random.chance(40) {
        let count = random.between(1, 2);
        let list: Vec<_> = (0..count).map(|_| expression(random, theme)).collect();
        term["matchExpressions"] = json!(list);
    }
    term
}

pub(super) fn node_affinity(random: &mut Random, theme: &Theme) -> Value {
    let mut affinity = json!({});
    if random.chance(8) {
        // As DaemonSets pin their pods.
        let node = name(random.below(theme.nodes + 1));
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        ]});
    } else if random.chance(60) {
        let count = random.pick(&[1, 1, 2]);
        let terms: Vec<_> = (0..count).map(|_| node_term(random, theme)).collect();
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": terms});
    }
    if random.chance(60) {
        let count = random.between(1, 3);
        let terms: Vec<_> = (0..count)
            .map(|_| json!({"weight": random.between(1, 100), "preference": node_term(random, theme)}))
            .collect();
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
    }
    affinity
}

pub(super) fn selector(random: &mut Random) -> Value {
    let app = random.pick(&APPS);
    match random.below(20) {
        0..10 => json!({"matchLabels": {"app": app}}),
        10..13 => {
            let operator = random.pick(&["In", "NotIn"]);
            json!({"matchExpressions": [{"key": "app", "operator": operator, "values": random.sample(&APPS, 2)}]})
        }
        13..16 => {
            let (key, operator) = (random.pick(&["ver", "tier"]), random.pick(&["Exists", "DoesNotExist"]));
            json!({"matchExpressions": [{"key": key, "operator": operator}]})
        }
        16..18 => json!({}),
        _ => json!({
            "matchLabels": {"app": app},
            "matchExpressions": [{"key": "ver", "operator": "In", "values": ["1", "3"]}],
        }),
    }
}

/// Adds `key operator [value]` to a selector, as the API server does for `matchLabelKeys`.
fn merge(selector: &mut Value, key: &str, operator: &str, value: &str) {
    let expression = json!({"key": key, "operator": operator, "values": [value]});
    match selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        Some(list) => list.push(expression),
        None => selector["matchExpressions"] = json!([expression]),
    }
}

fn term(random: &mut Random, labels: &Map<String, Value>) -> Value {
    let mut selector = selector(random);
    let mut term = json!({"topologyKey": random.pick(&KEYS)});
    if let Some(version) = labels.get("ver").and_then(Value::as_str) {
        if random.chance(12) {
            merge(&mut selector, "ver", "In", version);
            term["matchLabelKeys"] = json!(["ver"]);
        } else if random.chance(8) {
            merge(&mut selector, "ver", "NotIn", version);
            term["mismatchLabelKeys"] = json!(["ver"]);
        }
    }
    if !random.chance(3) {
        term["labelSelector"] = selector;
    } else {
        term = json!({"topologyKey": term["topologyKey"]});
    }
    match random.below(10) {
        0 | 1 => term["namespaces"] = json!(random.sample(&NAMESPACES, 2)),
        2 => term["namespaceSelector"] = json!({}),
        3 => term["namespaceSelector"] = json!({"matchLabels": {"env": "prod"}}),
        4 if random.chance(40) => {
            term["namespaces"] = json!(["dev"]);
            term["namespaceSelector"] = json!({"matchLabels": {"env": "prod"}});
        }
        _ => {}
    }
    term
}

pub(super) fn pod_affinity(random: &mut Random, labels: &Map<String, Value>) -> Value {
    let mut affinity = json!({});
    if random.chance(50) {
        let count = random.pick(&[1, 1, 2]);
        let terms: Vec<_> = (0..count).map(|_| term(random, labels)).collect();
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
    }
    if random.chance(60) {
        let count = random.between(1, 2);
        let terms: Vec<_> = (0..count)
            .map(|_| json!({"weight": random.between(1, 100), "podAffinityTerm": term(random, labels)}))
            .collect();
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
    }
    affinity
}

/// Spread constraints, no two of them for the same key and the same strictness.
pub(super) fn spread(random: &mut Random, labels: &Map<String, Value>) -> Value {
    let mut constraints: Vec<Value> = Vec::new();
    for _ in 0..random.pick(&[1, 1, 2, 3]) {
        let constraint = constraint(random, labels);
        let twin = |other: &Value| {
            ["topologyKey", "whenUnsatisfiable"].iter().all(|key| other[*key] == constraint[*key])
        };
        if !constraints.iter().any(twin) {
            constraints.push(constraint);
        }
    }
    json!(constraints)
}

fn constraint(random: &mut Random, labels: &Map<String, Value>) -> Value {
    let strict = random.chance(50);
    let mut constraint = json!({
        "maxSkew": random.pick(&[1, 1, 2, 5]),
        "topologyKey": random.pick(&KEYS),
        "whenUnsatisfiable": if strict { "DoNotSchedule" } else { "ScheduleAnyway" },
    });
    if random.chance(97) {
        constraint["labelSelector"] = selector(random);
    }
    if strict && random.chance(25) {
        constraint["minDomains"] = json!(random.between(1, 5));
    }
    if random.chance(30) {
        constraint["nodeAffinityPolicy"] = json!(random.pick(&["Honor", "Ignore"]));
    }
    if random.chance(30) {
        constraint["nodeTaintsPolicy"] = json!(random.pick(&["Honor", "Ignore"]));
    }
    if labels.contains_key("ver") && constraint.get("labelSelector").is_some() && random.chance(20) {
        constraint["matchLabelKeys"] = json!(["ver"]);
    }
    constraint
}
