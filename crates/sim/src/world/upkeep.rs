//! What Kubernetes does around pods: garbage collection, the collector of pods without node, the node lifecycle
//! with its taint evictions; and the people who register targets.

use super::kubelets::is_over;
use super::{NAMESPACE, OURS, World};
use crate::cluster::{Deletion, Object};
use crate::process::host;
use crate::wire::ClusterId;
use api::keys;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::rc::Rc;

impl World {
    /// Deletes what has lost its owner, and ends pods whose node is gone.
    pub(super) fn collect(&mut self) {
        for id in 0..self.clusters.len() {
            if !self.cluster(id).serves() {
                continue;
            }
            if !self.is_source(id) {
                self.collect_orphans(id);
            }
            self.collect_pods(id);
        }
    }

    fn collect_orphans(&mut self, id: ClusterId) {
        let store = &self.cluster(id).store;
        let owners: BTreeSet<&str> = store.all("podchaperons").map(|object| object.uid()).collect();
        let lost = |pod: &&Rc<Object>| {
            !pod.is_terminating() && pod.controller().is_some_and(|owner| !owners.contains(owner))
        };
        let orphans: Vec<Rc<Object>> = store.all("pods").filter(lost).cloned().collect();
        for pod in orphans {
            let options = Deletion { grace: None, uid: Some(pod.uid().to_owned()), version: None };
            let key = (pod.meta("namespace").to_owned(), pod.name().to_owned());
            let _left = self.store(id).delete("pods", &key, &options);
            self.tell(|| format!("c{id} the collector deletes {}", pod.name()));
        }
    }

    fn collect_pods(&mut self, id: ClusterId) {
        let now = self.now();
        let cluster = self.cluster(id);
        let nodes: BTreeSet<String> = cluster.store.all("nodes").map(|node| node.name().to_owned()).collect();
        let missing = |pod: &Rc<Object>| !pod.node().is_empty() && !nodes.contains(pod.node());
        let stranded: Vec<Rc<Object>> = cluster.pods().into_iter().filter(missing).collect();
        let names: BTreeSet<String> = stranded.iter().map(|pod| pod.uid().to_owned()).collect();
        cluster.stranded.retain(|uid, _| names.contains(uid));
        for pod in stranded {
            let since = *self.cluster(id).stranded.entry(pod.uid().to_owned()).or_insert(now);
            if now >= since + self.plan.pace.stranded {
                self.ends_stranded(id, &pod);
            }
        }
    }

    /// The collector of pods gives a pod its end and deletes it without grace.
    fn ends_stranded(&mut self, id: ClusterId, pod: &Rc<Object>) {
        let stamp = self.stamp();
        self.recorder.excuse(pod.uid());
        self.recorder.excuse(pod.label(keys::PARENT_UID));
        let (namespace, name) = (pod.meta("namespace").to_owned(), pod.name().to_owned());
        if !is_over(pod) {
            self.store(id).edit("pods", &namespace, &name, |pod| {
                pod["status"]["phase"] = json!("Failed");
                let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.retain(|condition| condition["type"] != "DisruptionTarget");
                conditions
                    .push(json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists", "lastTransitionTime": stamp}));
                pod["status"]["conditions"] = json!(conditions);
            });
        }
        let options = Deletion { grace: Some(0), uid: Some(pod.uid().to_owned()), version: None };
        let _left = self.store(id).delete("pods", &(namespace, name.clone()), &options);
        self.tell(|| format!("c{id} the collector ends {name}, whose node is gone"));
    }

    /// Nodes that are silent become unreachable, and pods on them are evicted after a while.
    pub(super) fn watch_nodes(&mut self) {
        let now = self.now();
        for id in self.plan.sources..self.clusters.len() {
            if !self.cluster(id).serves() {
                continue;
            }
            let kubelets = &mut self.cluster(id).kubelets;
            let mut silent = Vec::new();
            for (node, kubelet) in kubelets.iter_mut() {
                if kubelet.up && kubelet.connected {
                    kubelet.seen = now;
                }
                silent.push((node.clone(), now.saturating_sub(kubelet.seen)));
            }
            for (node, silence) in silent {
                self.judges_node(id, &node, silence);
            }
        }
    }

    fn judges_node(&mut self, id: ClusterId, node: &str, silence: u64) {
        let ready = silence < self.plan.pace.silent;
        let Some(object) = self.store(id).get("nodes", "", node).cloned() else { return };
        let was = object.value["status"]["conditions"][0]["status"] == "True";
        if ready != was {
            self.tell(|| format!("c{id} {node} is {}", if ready { "ready" } else { "unreachable" }));
            self.store(id).edit("nodes", "", node, |node| {
                let word = if ready { "True" } else { "Unknown" };
                node["status"]["conditions"] =
                    json!([{"type": "Ready", "status": word, "reason": "NodeStatus"}]);
                let taint = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
                    {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
                node["spec"]["taints"] = if ready { Value::Null } else { taint };
            });
        }
        if silence < self.plan.pace.silent + self.plan.pace.tolerated {
            return;
        }
        self.excuse_node(id, node);
        let pods = self.cluster(id).pods();
        for pod in pods.into_iter().filter(|pod| pod.node() == node && !pod.is_terminating()) {
            let options = Deletion { grace: None, uid: Some(pod.uid().to_owned()), version: None };
            let key = (pod.meta("namespace").to_owned(), pod.name().to_owned());
            let _left = self.store(id).delete("pods", &key, &options);
            self.tell(|| format!("c{id} {} is evicted from unreachable {node}", pod.name()));
        }
    }

    /// Registers a target with a source.
    pub(super) fn add_target(&mut self, source: ClusterId, target: ClusterId) {
        let name = format!("t{target}");
        let key = self.cluster(target).key;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": OURS},
            "data": {"config": STANDARD.encode(kubeconfig(target, key))}});
        // They may be there from before.
        let _made = self.store(source).create("secrets", secret, false);
        let object = json!({"apiVersion": "multicluster.admiralty.io/v1alpha1", "kind": "ClusterTarget",
            "metadata": {"name": name}, "spec": {"kubeconfigSecret": {"namespace": OURS, "name": name}}});
        let _made = self.store(source).create("clustertargets", object, false);
    }

    /// Takes a registration back.
    pub(super) fn remove_target(&mut self, source: ClusterId, target: ClusterId) {
        let key = (String::new(), format!("t{target}"));
        let _left = self.store(source).delete("clustertargets", &key, &Deletion::default());
    }

    /// New credentials for a target: the old ones end, and all sources get the new ones.
    pub(super) fn rekey_target(&mut self, target: ClusterId) {
        self.cluster(target).key += 1;
        let key = self.cluster(target).key;
        let text = STANDARD.encode(kubeconfig(target, key));
        for source in 0..self.plan.sources {
            self.store(source).edit("secrets", OURS, &format!("t{target}"), |secret| {
                secret["data"]["config"] = json!(text);
            });
        }
    }

    /// A namespace that is missing in a target appears.
    pub(super) fn add_namespace(&mut self, id: ClusterId) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let _made = self.store(id).create("namespaces", object, false);
    }
}

fn kubeconfig(target: ClusterId, key: u32) -> String {
    let cluster = json!({"name": "c", "cluster": {"server": format!("https://{}", host(target, key))}});
    let user = json!({"name": "u", "user": {"token": format!("k{key}")}});
    let context = json!({"name": "x", "context": {"cluster": "c", "user": "u"}});
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "x", "clusters": [cluster], "users": [user],
        "contexts": [context]})
    .to_string()
}
