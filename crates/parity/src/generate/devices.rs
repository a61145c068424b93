//! Devices of several kinds, and claims in all states in which pods meet them.

use serde_json::{Map, Value, json};

use super::node::name;
use super::{NAMESPACES, Theme, ZONE};
use crate::random::Random;

/// Drivers: whole devices of one node, devices that several nodes reach, partitions, and shared devices.
const GPU: &str = "gpu.example";
const NIC: &str = "nic.example";
const PART: &str = "part.example";
const SHARE: &str = "share.example";

const CLASSES: [&str; 6] = ["gpu", "nic", "part", "share", "large", "any"];

/// How often requests name them.
const POPULAR: [&str; 12] =
    ["gpu", "gpu", "gpu", "gpu", "any", "any", "any", "large", "part", "share", "share", "nic"];

/// Selectors that a request may add to its class's.
const SELECTORS: [&str; 16] = [
    "device.attributes['gpu.example'].model == 'a'",
    "device.driver == 'gpu.example' && device.attributes['gpu.example'].model in ['a', 'b']",
    "device.attributes['gpu.example'].?index.orValue(0) > 0",
    "has(device.attributes['gpu.example'].index) && device.attributes['gpu.example'].index < 2",
    "device.capacity['gpu.example'].?memory.orValue(quantity('0')).compareTo(quantity('10Gi')) >= 0",
    "device.attributes['gpu.example'].?version.orValue(semver('0.0.1')).isGreaterThan(semver('1.0.0'))",
    "cel.bind(a, device.attributes['gpu.example'], has(a.model) && a.model.startsWith('b'))",
    "!('example.com' in device.attributes)",
    "device.attributes['example.com'].exists(key, key == 'numa')",
    "size(device.attributes['gpu.example']) >= 3",
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    "device.attributes['nic.example'].?fast.orValue(true)",
    "device.driver.endsWith('.example') ? true : false",
    "device.attributes['gpu.example'].none == 1 || device.driver != ''",
    "isQuantity('1Gi') && semver('v1.2', true).major() == 1",
];

/// Selectors that fail for some devices. Which of several failures is told is chance where many nodes are asked.
const FAILING: [&str; 4] = [
    "device.attributes['example.com'].numa == 1",
    "device.attributes['gpu.example'].index == 0 && device.attributes['gpu.example'].model == 'a'",
    "device.attributes['gpu.example'].?model.orValue('') > 3",
    "device.capacity['nic.example'].bandwidth.isGreaterThan(quantity('1'))",
];

/// A claim that pods may name.
#[derive(Debug, Clone)]
struct Known {
    namespace: String,
    name: String,
    allocated: bool,
}

/// What pods may refer to.
pub(super) struct Devices {
    claims: Vec<Known>,
}

/// Adds devices and claims to a document.
pub(super) fn add(random: &mut Random, theme: &Theme, document: &mut Map<String, Value>) -> Devices {
    let slices = slices(random, theme);
    let mut free: Vec<_> = slices.iter().flat_map(devices_of).collect();
    let mut known = Vec::new();
    let mut claims = Vec::new();
    for index in 0..theme.pending + random.between(2, 10) {
        let namespace = random.pick(&NAMESPACES).to_owned();
        let claim_name = format!("claim{index}");
        let mut claim = claim(random, theme, &namespace, &claim_name);
        let allocated = random.chance(25) && !free.is_empty();
        if allocated {
            let device = free.swap_remove(random.below(free.len()));
            claim["status"] = status(random, theme, &device);
            claim["metadata"]["finalizers"] = json!(["resource.kubernetes.io/delete-protection"]);
        }
        if random.chance(3) {
            claim["metadata"]["deletionTimestamp"] = json!("2026-02-01T00:00:00Z");
        }
        known.push(Known { namespace, name: claim_name, allocated });
        if random.chance(97) {
            claims.push(claim);
        }
    }
    document.insert("resourceSlices".to_owned(), json!(slices));
    document.insert("resourceClaims".to_owned(), json!(claims));
    document.insert("deviceClasses".to_owned(), json!(classes(random)));
    if random.chance(30) {
        document.insert("deviceTaintRules".to_owned(), json!([rule(random)]));
    }
    Devices { claims: known }
}

impl Devices {
    /// Lets a pod name claims. A claim that is made from a template becomes its own.
    pub(super) fn give(&self, random: &mut Random, pod: &mut Value, document: &mut Map<String, Value>) {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let mut own: Vec<_> = self.claims.iter().filter(|known| known.namespace == namespace).collect();
        let (mut wanted, mut statuses) = (Vec::new(), Vec::new());
        for index in 0..random.pick(&[1, 1, 1, 1, 2, 3]) {
            if own.is_empty() {
                break;
            }
            let claim = own.swap_remove(random.below(own.len()));
            if claim.allocated {
                // Which of several claims is given back is chance.
                own.retain(|other| !other.allocated);
            }
            let short = format!("c{index}");
            if random.chance(75) {
                wanted.push(json!({"name": short, "resourceClaimName": claim.name}));
                continue;
            }
            wanted.push(json!({"name": short, "resourceClaimTemplateName": "template"}));
            match random.below(12) {
                0 => {}
                1 => statuses.push(json!({"name": short})),
                _ => {
                    statuses.push(json!({"name": short, "resourceClaimName": claim.name}));
                    if random.chance(90) {
                        own_claim(document, claim, pod);
                    }
                }
            }
        }
        pod["spec"]["resourceClaims"] = json!(wanted);
        if !statuses.is_empty() {
            pod["status"]["resourceClaimStatuses"] = json!(statuses);
        }
    }
}

/// Makes the pod the owner of a claim.
fn own_claim(document: &mut Map<String, Value>, claim: &Known, pod: &Value) {
    let uid = format!("{}/{}", claim.namespace, pod["metadata"]["name"].as_str().unwrap_or_default());
    let owner = json!([{
        "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": uid, "controller": true,
    }]);
    let claims = document.get_mut("resourceClaims").and_then(Value::as_array_mut);
    for raw in claims.into_iter().flatten() {
        let metadata = &mut raw["metadata"];
        if metadata["name"] == *claim.name && metadata["namespace"] == *claim.namespace {
            metadata["ownerReferences"] = owner.clone();
        }
    }
}

fn classes(random: &mut Random) -> Vec<Value> {
    let mut classes = Vec::new();
    for name in CLASSES {
        let selector = match name {
            "large" => {
                "device.capacity['gpu.example'].?memory.orValue(quantity('0')).isGreaterThan(quantity('9Gi'))"
                    .to_owned()
            }
            "any" => String::new(),
            other => format!("device.driver == '{other}.example'"),
        };
        let mut spec = json!({});
        if !selector.is_empty() {
            spec["selectors"] = json!([{"cel": {"expression": selector}}]);
        }
        if random.chance(30) {
            spec["config"] = json!([{"opaque": {"driver": GPU, "parameters": {"of": name}}}]);
        }
        if random.chance(97) {
            classes.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
    }
    classes
}

fn rule(random: &mut Random) -> Value {
    let mut selector = json!({});
    if random.chance(80) {
        selector["driver"] = json!(random.pick(&[GPU, NIC]));
    }
    if random.chance(60) {
        selector["device"] = json!(random.name("d", 4));
    }
    let mut spec = json!({"taint": {
        "key": random.pick(&["sick", "hot"]), "value": "x", "timeAdded": "2026-01-01T00:00:00Z",
        "effect": random.pick(&["NoSchedule", "NoExecute"]),
    }});
    if random.chance(90) {
        spec["deviceSelector"] = selector;
    }
    json!({"metadata": {"name": "rule"}, "spec": spec})
}

/// Slices of every driver. Now and then a pool is incomplete, contradicts itself, or has old slices.
fn slices(random: &mut Random, theme: &Theme) -> Vec<Value> {
    let mut slices = Vec::new();
    let rich = random.pick(&[20, 60, 95]);
    for index in 0..theme.nodes {
        if random.chance(rich) {
            gpus(random, &name(index), &mut slices);
        }
        if random.chance(15) {
            parts(random, &name(index), &mut slices);
        }
        if random.chance(15) {
            slices.push(shares(random, &name(index)));
        }
    }
    for index in 0..random.between(0, 2) {
        slices.push(nics(random, theme, index));
    }
    slices
}

fn slice(name: &str, (driver, pool): (&str, &str), count: usize, devices: Vec<Value>) -> Value {
    let mut raw = json!({"metadata": {"name": name}, "spec": {
        "driver": driver, "pool": {"name": pool, "generation": 3, "resourceSliceCount": count},
    }});
    raw["spec"]["devices"] = Value::Array(devices);
    raw
}

fn taint(random: &mut Random, device: &mut Value) {
    if random.chance(8) {
        device["taints"] = json!([{
            "key": random.pick(&["sick", "hot"]), "value": random.pick(&["x", "y"]),
            "effect": random.pick(&["NoSchedule", "NoExecute", "None"]), "timeAdded": "2026-01-01T00:00:00Z",
        }]);
    }
}

fn gpu(random: &mut Random, name: &str) -> Value {
    let mut attributes = json!({"model": {"string": random.pick(&["a", "b", "c"])}});
    if random.chance(80) {
        attributes["index"] = json!({"int": random.below(3)});
    }
    if random.chance(80) {
        attributes["version"] = json!({"version": random.pick(&["1.0.0", "1.2.3", "2.0.0-rc.1"])});
    }
    if random.chance(60) {
        attributes["example.com/numa"] = json!({"int": random.below(2)});
    }
    if random.chance(30) {
        attributes["gpu.example/healthy"] = json!({"bool": random.chance(70)});
    }
    let memory = random.pick(&["8Gi", "10Gi", "16Gi"]);
    let mut device =
        json!({"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}});
    taint(random, &mut device);
    device
}

/// One or two slices of a node's own pool.
fn gpus(random: &mut Random, node: &str, slices: &mut Vec<Value>) {
    let count = random.pick(&[1, 1, 2]);
    let claimed = if random.chance(2) { count + 1 } else { count };
    for number in 0..count {
        let mut devices = Vec::new();
        for index in 0..random.between(1, 3) {
            let unique = if random.chance(98) { number * 4 } else { 0 };
            devices.push(gpu(random, &format!("d{}", unique + index)));
        }
        // Slices count in the order of their names.
        let order = if random.chance(50) { number } else { 9 - number };
        let mut one = slice(&format!("{node}-gpu-{order}"), (GPU, node), claimed, devices);
        one["spec"]["nodeName"] = json!(node);
        slices.push(one);
    }
    if random.chance(6) {
        let mut old = slice(&format!("{node}-gpu-old"), (GPU, node), 1, vec![gpu(random, "gone")]);
        old["spec"]["nodeName"] = json!(node);
        old["spec"]["pool"]["generation"] = json!(random.pick(&[2, 2, 4]));
        slices.push(old);
    }
}

/// A card in parts that take from the same memory.
fn parts(random: &mut Random, node: &str, slices: &mut Vec<Value>) {
    let pool = format!("{node}-card");
    let mut devices = Vec::new();
    for (name, memory) in [("whole", "40Gi"), ("half-0", "20Gi"), ("half-1", "20Gi"), ("quarter", "10Gi")] {
        let set = if random.chance(99) { "card" } else { "nothing" };
        let mut device = json!({"name": name, "consumesCounters": [
            {"counterSet": set, "counters": {"memory": {"value": memory}}},
        ]});
        taint(random, &mut device);
        devices.push(device);
    }
    let mut counters = slice(&format!("{pool}-counters"), (PART, &pool), 2, Vec::new());
    counters["spec"]["sharedCounters"] =
        json!([{"name": "card", "counters": {"memory": {"value": random.pick(&["40Gi", "30Gi"])}}}]);
    counters["spec"]["nodeName"] = json!(node);
    let mut devices = slice(&format!("{pool}-parts"), (PART, &pool), 2, devices);
    devices["spec"]["nodeName"] = json!(node);
    slices.push(counters);
    slices.push(devices);
}

/// A device of which several claims may have parts.
fn shares(random: &mut Random, node: &str) -> Value {
    let policy = random.pick(&[
        json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}),
        json!({"default": "1Gi", "validRange": {"min": "500Mi", "max": "4Gi"}}),
        json!({"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}),
        Value::Null,
    ]);
    let mut bandwidth = json!({"value": random.pick(&["4Gi", "10Gi"])});
    if !policy.is_null() {
        bandwidth["requestPolicy"] = policy;
    }
    let device =
        json!({"name": "shared", "allowMultipleAllocations": true, "capacity": {"bandwidth": bandwidth}});
    let mut one = slice(&format!("{node}-share"), (SHARE, &format!("{node}-share")), 1, vec![device]);
    one["spec"]["nodeName"] = json!(node);
    one
}

/// Devices that several nodes reach.
fn nics(random: &mut Random, theme: &Theme, index: usize) -> Value {
    let zone = |random: &mut Random| {
        json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": ZONE, "operator": "In", "values": [random.name("z", theme.zones)]},
        ]}]})
    };
    let per_device = random.chance(40);
    let mut devices = Vec::new();
    for number in 0..random.between(1, 4) {
        let mut device = json!({"name": format!("d{number}"), "attributes": {
            "fast": {"bool": random.chance(50)}, "example.com/numa": {"int": random.below(2)},
        }});
        if per_device {
            match random.below(3) {
                0 => device["allNodes"] = json!(true),
                1 => device["nodeName"] = json!(name(random.below(theme.nodes))),
                _ => device["nodeSelector"] = zone(random),
            }
        }
        if random.chance(20) {
            device["bindsToNode"] = json!(true);
        }
        taint(random, &mut device);
        devices.push(device);
    }
    let pool = format!("pool{index}");
    let mut one = slice(&pool, (NIC, &pool), 1, devices);
    if per_device {
        one["spec"]["perDeviceNodeSelection"] = json!(true);
    } else if random.chance(50) {
        one["spec"]["allNodes"] = json!(true);
    } else {
        one["spec"]["nodeSelector"] = zone(random);
    }
    one
}

/// Driver, pool, device, and node of the devices of a slice that are given as a whole.
fn devices_of(slice: &Value) -> Vec<[String; 4]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &slice["spec"];
    let devices = spec["devices"].as_array().map_or(&[][..], Vec::as_slice);
    devices
        .iter()
        .filter(|device| device["allowMultipleAllocations"].is_null())
        .map(|device| {
            [
                text(&spec["driver"]),
                text(&spec["pool"]["name"]),
                text(&device["name"]),
                text(&spec["nodeName"]),
            ]
        })
        .collect()
}

fn status(random: &mut Random, theme: &Theme, [driver, pool, device, node]: &[String; 4]) -> Value {
    let mut allocation = json!({"devices": {"results": [
        {"request": "r0", "driver": driver, "pool": pool, "device": device},
    ]}});
    if !node.is_empty() || random.chance(50) {
        let node = if node.is_empty() { name(random.below(theme.nodes)) } else { node.clone() };
        allocation["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]},
        ]}]});
    }
    let mut status = json!({"allocation": allocation});
    if random.chance(60) {
        let user = |name: &str| json!({"resource": "pods", "name": name, "uid": format!("somewhere/{name}")});
        status["reservedFor"] = match random.below(2) {
            0 => json!([user("one")]),
            _ => json!([user("one"), user("two")]),
        };
    }
    status
}

fn claim(random: &mut Random, theme: &Theme, namespace: &str, claim_name: &str) -> Value {
    let mut requests = Vec::new();
    for index in 0..random.pick(&[1, 1, 1, 1, 2, 3]) {
        let request_name = format!("r{index}");
        requests.push(match random.below(3) {
            0 => {
                let alternatives: Vec<_> =
                    (0..random.between(1, 3)).map(|number| alternative(random, theme, number)).collect();
                json!({"name": request_name, "firstAvailable": alternatives})
            }
            _ => {
                let mut exactly = ask(random, theme);
                if random.chance(4) {
                    exactly["adminAccess"] = json!(true);
                }
                json!({"name": request_name, "exactly": exactly})
            }
        });
    }
    let mut devices = json!({});
    // Which of several nodes is told of is chance where many are asked.
    if random.chance(20) && theme.nodes < 100 {
        let mut constraint = json!({});
        let attribute = random.pick(&["gpu.example/model", "example.com/numa", "nic.example/fast"]);
        constraint[random.pick(&["matchAttribute", "matchAttribute", "distinctAttribute"])] =
            json!(attribute);
        if random.chance(30) {
            constraint["requests"] = json!(["r0"]);
        }
        devices["constraints"] = json!([constraint]);
    }
    if random.chance(20) {
        let mut config = json!({"opaque": {"driver": GPU, "parameters": {"claim": claim_name}}});
        if random.chance(50) {
            config["requests"] = json!([random.pick(&["r0", "r0/s1"])]);
        }
        devices["config"] = json!([config]);
    }
    devices["requests"] = json!(requests);
    json!({"metadata": {"name": claim_name, "namespace": namespace}, "spec": {"devices": devices}})
}

fn alternative(random: &mut Random, theme: &Theme, number: usize) -> Value {
    let mut ask = ask(random, theme);
    ask["name"] = json!(format!("s{number}"));
    ask
}

fn ask(random: &mut Random, theme: &Theme) -> Value {
    let class = if random.chance(1) { "ghost" } else { random.pick(&POPULAR) };
    let mut ask = json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": random.pick(&[1, 1, 1, 1, 2, 3])});
    if random.chance(5) {
        ask["allocationMode"] = json!("All");
        ask.as_object_mut().map(|fields| fields.remove("count"));
    }
    if random.chance(35) {
        ask["selectors"] = json!([{"cel": {"expression": random.pick(&SELECTORS)}}]);
    } else if random.chance(3) && theme.nodes < 100 {
        ask["selectors"] = json!([{"cel": {"expression": random.pick(&FAILING)}}]);
    }
    if random.chance(15) {
        ask["tolerations"] = random.pick(&[
            json!([{"operator": "Exists"}]),
            json!([{"key": "sick", "operator": "Equal", "value": "x"}]),
            json!([{"key": "hot", "operator": "Exists", "effect": "NoSchedule"}]),
        ]);
    }
    if class == "share" && random.chance(60) {
        ask["capacity"] =
            json!({"requests": {"bandwidth": random.pick(&["500Mi", "1Gi", "1500Mi", "3Gi", "5Gi"])}});
    }
    ask
}
