//! Kubelets and their containers. A container runs on while its API server is down, cut off or restored.

use super::{Cluster, Due, NAMESPACE, World};
use crate::cluster::{Change, Deletion, Object};
use crate::recorder::Subject;
use crate::wire::ClusterId;
use api::keys;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Where a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Running { ends: Option<u64> },
    Stopping { ends: u64 },
    Done { code: i64, started: String, finished: String },
}

/// The container of one pod.
#[derive(Debug, Clone)]
struct Container {
    name: String,
    state: State,
    policy: String,
    cpu: u64,
    code: i64,
    restarts: u64,
    started: String,
    subject: Subject,
}

/// The kubelet of one node.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    containers: BTreeMap<String, Container>,
    pub(super) up: bool,
    pub(super) connected: bool,
    pub(super) refuses: bool,
    pub(super) cpu: u64,
    /// When its node was last seen alive by the cluster.
    pub(super) seen: u64,
}

/// Thousandths of a CPU that a pod asks for.
pub(super) fn cpu(pod: &Object) -> u64 {
    let text = pod.value["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap_or("0m");
    text.trim_end_matches('m').parse().unwrap_or_default()
}

fn number(pod: &Object, key: &str) -> Option<i64> {
    pod.annotation(key)?.parse().ok()
}

impl Cluster {
    /// Adds a node with its kubelet.
    pub(super) fn add_node(&mut self, name: &str, cpu: u64) {
        let resources = json!({"cpu": format!("{cpu}m"), "memory": "64Gi", "pods": "110"});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}, "spec": {}});
        // Its name is free: a node that was taken away left no object.
        let _made = self.store.create("nodes", node, false);
        self.store.edit("nodes", "", name, |node| {
            node["status"] = json!({"capacity": resources, "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]});
        });
        let kubelet = Kubelet { up: true, connected: true, cpu, ..Kubelet::default() };
        self.kubelets.insert(name.to_owned(), kubelet);
    }
}

impl World {
    /// A change that a kubelet wants to know of.
    pub(super) fn notices(&mut self, id: ClusterId, change: &Change) {
        if change.kind != "pods" || self.is_source(id) || change.new.node().is_empty() {
            return;
        }
        let pause = self.rng.u64(5..=60);
        let (node, pod) = (change.new.node().to_owned(), change.new.uid().to_owned());
        self.after(pause, Due::Kubelet(id, node, pod));
    }

    fn works(&mut self, id: ClusterId, node: &str) -> Option<&mut Kubelet> {
        let serves = self.cluster(id).serves();
        let kubelet = self.cluster(id).kubelets.get_mut(node).filter(|kubelet| kubelet.up)?;
        (serves && kubelet.connected).then_some(kubelet)
    }

    /// A kubelet looks at a pod, and does what is to be done about it.
    pub(super) fn kubelet(&mut self, id: ClusterId, node: &str, uid: &str) {
        let now = self.now();
        let there = self.cluster(id).kubelets.get(node).is_some_and(|kubelet| kubelet.up);
        if !there {
            return;
        }
        let Some(kubelet) = self.works(id, node) else {
            let pause = self.rng.u64(800..=1_500);
            return self.after(pause, Due::Kubelet(id, node.to_owned(), uid.to_owned()));
        };
        let container = kubelet.containers.get(uid).cloned();
        let pod = self.store(id).pod(uid).filter(|pod| pod.node() == node).cloned();
        match (pod, container.as_ref().map(|container| &container.state)) {
            (None, Some(State::Running { .. })) => self.stops(id, node, uid, now + 500),
            (None, Some(State::Done { .. })) => {
                self.drops(id, node, uid);
            }
            (None, None) | (_, Some(State::Stopping { .. })) => {}
            (Some(pod), Some(State::Running { .. })) if pod.is_terminating() => {
                let grace = pod.value["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) * 1_000;
                let takes = self.rng.u64(50..=grace.max(100));
                self.stops(id, node, uid, now + takes);
            }
            (Some(pod), _) if pod.is_terminating() => self.confirms(id, node, &pod),
            (Some(pod), None) if !is_over(&pod) => self.admits(id, node, &pod),
            (Some(pod), Some(_)) => self.shows(id, node, &pod),
            (Some(_), None) => {}
        }
    }

    fn drops(&mut self, id: ClusterId, node: &str, uid: &str) {
        if let Some(kubelet) = self.cluster(id).kubelets.get_mut(node) {
            kubelet.containers.remove(uid);
        }
    }

    /// Tells a container to stop by a time.
    fn stops(&mut self, id: ClusterId, node: &str, uid: &str, ends: u64) {
        let kubelet = self.cluster(id).kubelets.get_mut(node);
        let Some(container) = kubelet.and_then(|kubelet| kubelet.containers.get_mut(uid)) else { return };
        container.state = State::Stopping { ends };
        self.at(ends, Due::Container(id, node.to_owned(), uid.to_owned()));
    }

    /// Takes a pod or refuses it.
    fn admits(&mut self, id: ClusterId, node: &str, pod: &Rc<Object>) {
        let wanted = cpu(pod);
        let Some(kubelet) = self.cluster(id).kubelets.get_mut(node) else { return };
        let used: u64 = kubelet.containers.values().filter(|c| c.is_alive()).map(|c| c.cpu).sum();
        let refused = kubelet.refuses || used + wanted > kubelet.cpu;
        let (namespace, name) = (pod.meta("namespace").to_owned(), pod.name().to_owned());
        if refused {
            self.store(id).edit("pods", &namespace, &name, |pod| {
                pod["status"]["phase"] = json!("Failed");
                pod["status"]["reason"] = json!("OutOfcpu");
                pod["status"]["message"] = json!("Pod was rejected: node has no room");
            });
            return self.tell(|| format!("c{id} {node} refuses {name}"));
        }
        let policy = pod.value["spec"]["restartPolicy"].as_str().unwrap_or("Always").to_owned();
        let ends = number(pod, "sim/seconds").filter(|_| policy != "Always");
        let seconds = ends.and_then(|seconds| u64::try_from(seconds).ok());
        let subject = Subject {
            proxy: pod.label(keys::PARENT_UID).to_owned(),
            pod: pod.uid().to_owned(),
            identity: pod.annotation("sim/identity").unwrap_or_default().to_owned(),
            // What its owner wanted, not what the target made of it.
            once: pod.annotation("sim/policy").is_some_and(|policy| policy != "Always"),
        };
        if subject.proxy.is_empty() {
            return;
        }
        let (now, stamp) = (self.now(), self.stamp());
        let ends = seconds.map(|seconds| now + seconds * 1_000);
        let container = Container {
            name: name.clone(),
            state: State::Running { ends },
            policy,
            cpu: wanted,
            code: number(pod, "sim/code").unwrap_or(0),
            restarts: 0,
            started: stamp,
            subject: subject.clone(),
        };
        if let Some(kubelet) = self.cluster(id).kubelets.get_mut(node) {
            kubelet.containers.insert(pod.uid().to_owned(), container);
        }
        self.recorder.starts(&subject, now);
        self.tell(|| format!("c{id} {node} starts {name} {}", subject.pod));
        if let Some(ends) = ends {
            self.at(ends, Due::Container(id, node.to_owned(), pod.uid().to_owned()));
        }
        self.shows(id, node, pod);
    }

    /// A container may have come to its end.
    pub(super) fn container(&mut self, id: ClusterId, node: &str, uid: &str) {
        let (now, stamp) = (self.now(), self.stamp());
        let kubelet = self.cluster(id).kubelets.get_mut(node).filter(|kubelet| kubelet.up);
        let Some(container) = kubelet.and_then(|kubelet| kubelet.containers.get_mut(uid)) else { return };
        let started = container.started.clone();
        let (finished, code) = match container.state {
            State::Running { ends: Some(ends) } if ends <= now => (true, container.code),
            State::Stopping { ends } if ends <= now => (false, 143),
            _ => return,
        };
        let again = finished && container.policy == "OnFailure" && code != 0;
        if again {
            // The next attempt is to succeed.
            container.restarts += 1;
            container.code = 0;
            container.state = State::Running { ends: Some(now + 1_000) };
            self.at(now + 1_000, Due::Container(id, node.to_owned(), uid.to_owned()));
        } else {
            container.state = State::Done { code, started, finished: stamp };
            let name = container.name.clone();
            self.recorder.stops(uid, finished.then_some(code));
            self.tell(|| format!("c{id} {node} {name} ended with {code}"));
        }
        self.after(20, Due::Kubelet(id, node.to_owned(), uid.to_owned()));
    }

    /// Writes what a container does to the status of its pod.
    fn shows(&mut self, id: ClusterId, node: &str, pod: &Rc<Object>) {
        let Some(kubelet) = self.cluster(id).kubelets.get(node) else { return };
        let Some(container) = kubelet.containers.get(pod.uid()).cloned() else { return };
        if is_over(pod) {
            return;
        }
        let stamp = self.stamp();
        let (namespace, name) = (pod.meta("namespace").to_owned(), pod.name().to_owned());
        self.store(id).edit("pods", &namespace, &name, |pod| container.write(&mut pod["status"], &stamp));
    }

    /// The containers of a deleted pod have stopped, or never ran.
    fn confirms(&mut self, id: ClusterId, node: &str, pod: &Rc<Object>) {
        let stamp = self.stamp();
        let container =
            self.cluster(id).kubelets.get(node).and_then(|k| k.containers.get(pod.uid())).cloned();
        let (namespace, name) = (pod.meta("namespace").to_owned(), pod.name().to_owned());
        if !is_over(pod) {
            self.store(id).edit("pods", &namespace, &name, |pod| match &container {
                Some(container) => container.write(&mut pod["status"], &stamp),
                None => pod["status"]["phase"] = json!("Failed"),
            });
        }
        let options = Deletion { grace: Some(0), uid: Some(pod.uid().to_owned()), version: None };
        // A finalizer may hold it; then it is only said that it may go.
        let _left = self.store(id).delete("pods", &(namespace, name), &options);
    }

    /// All containers of a node die with it.
    pub(super) fn node_dies(&mut self, id: ClusterId, node: &str) {
        let Some(kubelet) = self.cluster(id).kubelets.get_mut(node) else { return };
        kubelet.up = false;
        let pods: Vec<String> = kubelet.containers.keys().cloned().collect();
        for pod in &pods {
            self.recorder.stops(pod, None);
        }
        self.excuse_node(id, node);
    }

    /// What runs on a node may end for reasons of the node.
    pub(super) fn excuse_node(&mut self, id: ClusterId, node: &str) {
        let on_node = self.cluster(id).pods().into_iter().filter(|pod| pod.node() == node);
        for pod in on_node.collect::<Vec<_>>() {
            self.recorder.excuse(pod.label(keys::PARENT_UID));
        }
    }

    /// A node that died is there again: its kubelet looks at all pods that it is to run.
    pub(super) fn node_returns(&mut self, id: ClusterId, node: &str) {
        let (now, stamp) = (self.now(), self.stamp());
        let Some(kubelet) = self.cluster(id).kubelets.get_mut(node).filter(|kubelet| !kubelet.up) else {
            return;
        };
        kubelet.up = true;
        let mut started = Vec::new();
        for (uid, container) in &mut kubelet.containers {
            let State::Running { .. } = container.state else {
                if let State::Stopping { .. } = container.state {
                    container.state = State::Done {
                        code: 137,
                        started: container.started.clone(),
                        finished: stamp.clone(),
                    };
                }
                continue;
            };
            if container.policy == "Never" {
                container.state =
                    State::Done { code: 137, started: container.started.clone(), finished: stamp.clone() };
            } else {
                container.restarts += 1;
                let ends = (container.policy != "Always").then_some(now + 2_000);
                container.state = State::Running { ends };
                started.push((uid.clone(), container.subject.clone(), ends));
            }
        }
        for (uid, subject, ends) in started {
            self.restarts(id, node, (&uid, &subject, ends));
        }
        for pod in self.cluster(id).pods() {
            self.after(50, Due::Kubelet(id, node.to_owned(), pod.uid().to_owned()));
        }
    }

    /// A kubelet that finds a pod still wanted starts its container again, and kills the others'.
    fn restarts(&mut self, id: ClusterId, node: &str, (uid, subject, ends): (&str, &Subject, Option<u64>)) {
        let wanted = self.store(id).pod(uid).is_some_and(|pod| !pod.is_terminating() && !is_over(pod));
        let stamp = self.stamp();
        if wanted && self.works(id, node).is_some() {
            let now = self.now();
            self.recorder.starts(subject, now);
            if let Some(ends) = ends {
                self.at(ends, Due::Container(id, node.to_owned(), uid.to_owned()));
            }
            return;
        }
        let kubelet = self.cluster(id).kubelets.get_mut(node);
        if let Some(container) = kubelet.and_then(|kubelet| kubelet.containers.get_mut(uid)) {
            container.state = State::Done { code: 137, started: container.started.clone(), finished: stamp };
        }
    }

    /// Delegates that run in a cluster.
    pub(super) fn delegates(&mut self, id: ClusterId) -> Vec<Rc<Object>> {
        let mine = |pod: &Rc<Object>| !pod.label(keys::PARENT_UID).is_empty();
        self.cluster(id).pods().into_iter().filter(mine).collect()
    }

    /// All kubelets look at all that they have.
    pub(super) fn wake_kubelets(&mut self) {
        for id in self.plan.sources..self.clusters.len() {
            let mut all = Vec::new();
            for (node, kubelet) in &self.cluster(id).kubelets {
                all.extend(kubelet.containers.keys().map(|uid| (node.clone(), uid.clone())));
            }
            for pod in self.cluster(id).pods() {
                all.push((pod.node().to_owned(), pod.uid().to_owned()));
            }
            for (node, uid) in all {
                self.after(100, Due::Kubelet(id, node, uid));
            }
        }
    }
}

/// Whether a pod's phase is an end.
pub(super) fn is_over(pod: &Object) -> bool {
    matches!(pod.phase(), "Succeeded" | "Failed")
}

impl Container {
    fn is_alive(&self) -> bool {
        !matches!(self.state, State::Done { .. })
    }

    fn write(&self, status: &mut Value, stamp: &str) {
        let (phase, ready, state) = match &self.state {
            State::Running { .. } | State::Stopping { .. } => {
                ("Running", "True", json!({"running": {"startedAt": self.started}}))
            }
            State::Done { code, started, finished } => {
                let phase = if *code == 0 { "Succeeded" } else { "Failed" };
                let state =
                    json!({"terminated": {"exitCode": code, "startedAt": started, "finishedAt": finished}});
                (phase, "False", state)
            }
        };
        status["phase"] = json!(phase);
        status["startTime"] = json!(self.started);
        status["podIP"] = json!("10.1.0.1");
        status["containerStatuses"] = json!([{"name": "c", "state": state, "restartCount": self.restarts,
            "ready": ready == "True", "started": ready == "True", "image": "i", "imageID": "i"}]);
        let scheduled = status["conditions"].as_array().into_iter().flatten();
        let kept: Vec<Value> = scheduled
            .filter(|condition| !matches!(condition["type"].as_str(), Some("Ready" | "ContainersReady")))
            .cloned()
            .collect();
        let mut conditions = kept;
        for kind in ["Ready", "ContainersReady"] {
            let before =
                status["conditions"].as_array().into_iter().flatten().find(|before| before["type"] == kind);
            let since = before
                .filter(|before| before["status"] == ready)
                .map(|before| before["lastTransitionTime"].clone());
            let since = since.unwrap_or_else(|| json!(stamp));
            conditions.push(json!({"type": kind, "status": ready, "lastTransitionTime": since}));
        }
        status["conditions"] = json!(conditions);
    }
}

/// A pod as users and their controllers create it.
pub(super) fn pod(name: &str, labels: &Value, annotations: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE,
        "labels": labels, "annotations": annotations}, "spec": spec})
}
