use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::node::name;
use super::placement::{node_affinity, pod_affinity, spread, tolerations};
use super::volume::{Claims, of_pod};
use super::{APPS, IMAGES, NAMESPACES, Theme};
use crate::random::Random;

/// What pods may refer to.
pub(super) struct Make<'a> {
    pub(super) theme: &'a Theme,
    pub(super) claims: Option<&'a Claims>,
    /// Scheduler names; absent where there is one profile only.
    pub(super) profiles: Option<Vec<&'static str>>,
    /// Pods have controllers.
    pub(super) owners: bool,
}

impl Make<'_> {
    /// A pod that runs, ends, or is nominated.
    pub(super) fn placed(&self, random: &mut Random, index: usize) -> Value {
        let theme = self.theme;
        let mut pod = self.pod(random, &format!("e{index}"));
        if let Some(spec) = pod["spec"].as_object_mut() {
            spec.remove("topologySpreadConstraints");
        }
        if theme.parts.nominated && random.chance(3) {
            pod["status"] = json!({"phase": "Pending", "nominatedNodeName": name(random.below(theme.nodes))});
            return pod;
        }
        pod["spec"]["nodeName"] = json!(name(random.below(theme.nodes)));
        // No two start at once: which of two equals has to go is chance in upstream.
        let (day, hour, second) = (1 + index / 1440, index % 24, index / 24 % 60);
        let minute = random.below(60);
        let start = format!("2026-01-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
        pod["status"] = json!({"phase": "Running", "startTime": start});
        if random.chance(4) {
            pod["status"]["phase"] = json!(random.pick(&["Succeeded", "Failed"]));
        }
        if random.chance(4) {
            pod["metadata"]["deletionTimestamp"] = json!("2026-02-01T00:00:00Z");
            if theme.parts.preemption && random.chance(50) {
                pod["status"]["conditions"] = json!([{
                    "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                }]);
            }
        }
        if random.chance(5) {
            resize(random, &mut pod);
        }
        pod
    }

    /// A pod that waits for a node.
    pub(super) fn pending(&self, random: &mut Random, index: usize) -> Value {
        let theme = self.theme;
        let mut pod = self.pod(random, &format!("p{index}"));
        if random.chance(3) {
            let gates = random.pick(&[json!([{"name": "g1"}]), json!([{"name": "g1"}, {"name": "g2"}])]);
            pod["spec"]["schedulingGates"] = gates;
        }
        if random.chance(1) {
            pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
        }
        if random.chance(1) && !theme.sequence {
            pod["spec"]["nodeName"] = json!(name(random.below(theme.nodes + 1)));
        }
        if theme.parts.nominated && random.chance(4) {
            pod["status"] = json!({"nominatedNodeName": name(random.below(theme.nodes + 1))});
        }
        if theme.parts.preemption && random.chance(8) {
            pod["spec"]["preemptionPolicy"] = json!(random.pick(&["Never", "PreemptLowerPriority"]));
        }
        if let Some(profiles) = &self.profiles {
            pod["spec"]["schedulerName"] = json!(random.pick(profiles));
        }
        pod
    }

    fn pod(&self, random: &mut Random, pod_name: &str) -> Value {
        let theme = self.theme;
        let labels = labels(random);
        let namespace = random.pick(&NAMESPACES);
        let mut spec = spec(random);
        let mut affinity = json!({});
        if random.chance(25) {
            affinity["nodeAffinity"] = node_affinity(random, theme);
        }
        if random.chance(theme.sociable) && random.chance(50) {
            affinity["podAffinity"] = pod_affinity(random, &labels);
        }
        if random.chance(theme.sociable) && random.chance(60) {
            affinity["podAntiAffinity"] = pod_affinity(random, &labels);
        }
        if affinity != json!({}) {
            spec["affinity"] = affinity;
        }
        if random.chance(theme.sociable) {
            spec["topologySpreadConstraints"] = spread(random, &labels);
        }
        if let Some(claims) = self.claims.filter(|_| random.chance(if theme.live { 75 } else { 30 })) {
            let volumes = of_pod(random, claims, namespace);
            if !volumes.is_empty() {
                spec["volumes"] = json!(volumes);
            }
        }
        let mut metadata = json!({"name": pod_name, "namespace": namespace, "labels": labels});
        if let Some(app) = labels.get("app").filter(|_| self.owners && random.chance(70)) {
            let (kind, version) = random.pick(&[
                ("ReplicaSet", "apps/v1"),
                ("StatefulSet", "apps/v1"),
                ("ReplicationController", "v1"),
                ("Job", "batch/v1"),
            ]);
            metadata["ownerReferences"] = json!([{"apiVersion": version, "kind": kind, "name": app, "uid": "owner", "controller": true}]);
        }
        json!({"metadata": metadata, "spec": spec})
    }
}

/// What a pod asks for apart from company and storage.
fn spec(random: &mut Random) -> Value {
    let mut spec = json!({});
    let count = random.pick(&[1, 1, 1, 2, 3]);
    let containers: Vec<_> = (0..count).map(|index| container(random, "c", index)).collect();
    spec["containers"] = json!(containers);
    if random.chance(20) {
        let count = random.between(1, 3);
        let mut init: Vec<_> = (0..count).map(|index| container(random, "i", index)).collect();
        for container in &mut init {
            if random.chance(50) {
                container["restartPolicy"] = json!("Always");
            }
        }
        spec["initContainers"] = json!(init);
    }
    resources(random, &mut spec);
    if random.chance(35) {
        spec["tolerations"] = tolerations(random);
    }
    if random.chance(12) {
        let (key, value) = random.pick(&[("pool", "x"), ("pool", "y"), ("disk", "ssd"), ("num", "3")]);
        spec["nodeSelector"] = json!({key: value});
    }
    if random.chance(50) {
        spec["priority"] = json!(random.pick(&[-5, 0, 10, 100, 1000]));
    }
    features(random, &mut spec);
    spec
}

fn labels(random: &mut Random) -> Map<String, Value> {
    let mut labels = Map::new();
    if random.chance(95) {
        labels.insert("app".to_owned(), json!(random.pick(&APPS)));
    }
    if random.chance(50) {
        labels.insert("ver".to_owned(), json!(random.pick(&["1", "2", "3"])));
    }
    if random.chance(20) {
        labels.insert("tier".to_owned(), json!(random.pick(&["a", "b"])));
    }
    labels
}

fn container(random: &mut Random, prefix: &str, index: usize) -> Value {
    let mut container = json!({"name": format!("{prefix}{index}"), "image": random.pick(&IMAGES)});
    let requests = requests(random);
    if requests != json!({}) {
        container["resources"] = json!({"requests": requests});
    }
    if random.chance(8) {
        let mut port = json!({"containerPort": 80, "protocol": random.pick(&["TCP", "UDP", "SCTP"])});
        if random.chance(85) {
            port["hostPort"] = json!(random.pick(&[80, 443]));
        }
        if random.chance(40) {
            port["hostIP"] = json!(random.pick(&["127.0.0.1", "10.0.0.1", "0.0.0.0"]));
        }
        container["ports"] = json!([port]);
    }
    container
}

fn requests(random: &mut Random) -> Value {
    let mut requests = json!({});
    if random.chance(80) {
        let cpu = random.pick(&["50m", "100m", "250m", "500m", "1", "1500m", "2", "0.1", "333m", "0", "1u"]);
        requests["cpu"] = json!(cpu);
    }
    if random.chance(80) {
        let memory = random.pick(&["64Mi", "128Mi", "500Mi", "1Gi", "2Gi", "1500M", "123456789", "0", "1e8"]);
        requests["memory"] = json!(memory);
    }
    if random.chance(10) {
        requests["ephemeral-storage"] = json!(random.pick(&["1Gi", "10Gi", "500M"]));
    }
    if random.chance(6) {
        requests["example.com/gpu"] = json!(random.pick(&["0", "1", "2", "5"]));
    }
    if random.chance(4) {
        requests["hugepages-2Mi"] = json!(random.pick(&["4Mi", "6Mi"]));
    }
    requests
}

/// What a pod asks for as a whole.
fn resources(random: &mut Random, spec: &mut Value) {
    if random.chance(10) {
        spec["overhead"] = json!({"cpu": "50m", "memory": random.pick(&["32Mi", "1Mi"])});
    }
    if random.chance(10) {
        let mut requests = json!({});
        if random.chance(80) {
            requests["cpu"] = json!(random.pick(&["500m", "2", "4"]));
        }
        if random.chance(60) {
            requests["memory"] = json!(random.pick(&["1Gi", "3Gi"]));
        }
        spec["resources"] = json!({"requests": requests});
    }
}

/// Things that only some kubelets can do.
fn features(random: &mut Random, spec: &mut Value) {
    if random.chance(2) {
        spec["hostNetwork"] = json!(true);
        if random.chance(70) {
            spec["hostUsers"] = json!(random.chance(30));
        }
    }
    if random.chance(2) {
        spec["containers"][0]["restartPolicy"] = json!("Never");
        spec["containers"][0]["restartPolicyRules"] = json!([{
            "action": random.pick(&["RestartAllContainers", "Restart"]),
            "exitCodes": {"operator": "In", "values": [42]},
        }]);
    }
    if random.chance(5) {
        spec["volumes"] = json!([{"name": "image", "image": {"reference": random.pick(&IMAGES)}}]);
    } else if random.chance(5) {
        spec["volumes"] = json!([{"name": "scratch", "emptyDir": {}}]);
    }
}

/// A resize of the first container that the kubelet has not carried out, or finds impossible.
fn resize(random: &mut Random, pod: &mut Value) {
    let allocated = json!({"cpu": random.pick(&["1", "3"]), "memory": random.pick(&["1Gi", "3Gi"])});
    let actual = json!({"cpu": random.pick(&["500m", "2"]), "memory": random.pick(&["512Mi", "2Gi"])});
    pod["status"]["containerStatuses"] = json!([{
        "name": "c0", "ready": true, "restartCount": 0, "image": "img-a:1", "imageID": "",
        "allocatedResources": allocated,
        "resources": {"requests": actual},
    }]);
    if random.chance(60) {
        pod["status"]["conditions"] = json!([{
            "type": "PodResizePending",
            "status": "True",
            "reason": random.pick(&["Infeasible", "Deferred"]),
        }]);
    }
}

/// Takes host ports away that another pod of the node has already. No kubelet runs two such pods, and upstream forgets
/// both when one goes.
pub(super) fn part_ports(pods: &mut [Value]) {
    let mut taken = HashSet::new();
    for pod in pods {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        for list in ["containers", "initContainers"] {
            let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let Some(port) = container.pointer_mut("/ports/0").and_then(Value::as_object_mut) else {
                    continue;
                };
                let key = (node.clone(), port.get("hostPort").cloned(), port.get("protocol").cloned());
                if !taken.insert(key) {
                    port.remove("hostPort");
                }
            }
        }
    }
}
