//! What is done at the cost of others, or of money: evictions for a pod of higher priority, nodes that an autoscaler
//! adds, and the scheduler of targets that places what nobody reserved for.
//!
//! An oracle that sees all targets says when that was in vain: another target had room all the while, or the same
//! pod waits in two targets.

use super::{Due, World};
use crate::cluster::request::Verb;
use crate::cluster::{Change, Object};
use crate::process::Service;
use crate::recorder::Rule;
use crate::wire::{ClusterId, Sent};
use api::keys;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Between two looks of autoscalers and schedulers, in milliseconds.
const LOOK: u64 = 500;
/// How long a pod must have waited before a node is added for it.
const PATIENCE: u64 = 2_000;
/// How many looks a target must have shown room for a pod before it counts as overlooked.
const LOOKS: usize = 6;
/// How long ago a pod may have stopped waiting for which another was evicted.
const RECENT: u64 = 5_000;

/// A delegate without node.
#[derive(Debug, Clone)]
struct Waiting {
    cluster: ClusterId,
    proxy: String,
    priority: i64,
    cpu: u64,
    since: u64,
    /// When it was last known to wait.
    last: u64,
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Excess {
    /// By UID of the delegate.
    waiting: BTreeMap<String, Waiting>,
    /// The most room that any node had, for the last looks, by target.
    room: BTreeMap<ClusterId, VecDeque<u64>>,
    /// Nodes added, by target.
    added: BTreeMap<ClusterId, u64>,
}

fn priority(pod: &Object) -> i64 {
    pod.value["spec"]["priority"].as_i64().unwrap_or(0)
}

fn is_over(pod: &Object) -> bool {
    matches!(pod.phase(), "Succeeded" | "Failed")
}

impl World {
    /// A delegate has changed.
    pub(super) fn weighs(&mut self, id: ClusterId, change: &Change) {
        let (now, pod) = (self.now(), &change.new);
        let proxy = pod.label(keys::PARENT_UID);
        if change.kind != "pods" || self.is_source(id) || proxy.is_empty() {
            return;
        }
        if change.old.is_none() {
            self.is_alone(id, proxy);
        }
        let waits = pod.node().is_empty() && !pod.is_terminating() && !is_over(pod) && !change.deleted;
        let known = self.excess.waiting.get_mut(pod.uid());
        match (known, waits) {
            (Some(known), _) => known.last = now,
            (None, true) => {
                let waiting = Waiting {
                    cluster: id,
                    proxy: proxy.to_owned(),
                    priority: priority(pod),
                    cpu: super::kubelets::cpu(pod),
                    since: now,
                    last: now,
                };
                self.excess.waiting.insert(pod.uid().to_owned(), waiting);
            }
            (None, false) => {}
        }
    }

    /// One pod is created in one target at a time: else two autoscalers make room for it.
    fn is_alone(&mut self, id: ClusterId, proxy: &str) {
        let others = (self.plan.sources..self.clusters.len()).filter(|other| *other != id);
        let lives = |pod: &&Rc<Object>| {
            pod.label(keys::PARENT_UID) == proxy && !pod.is_terminating() && !is_over(pod)
        };
        let twin = others.filter_map(|other| self.clusters.get(other)?.store.all("pods").find(lives)).next();
        let Some(twin) = twin.map(|twin| twin.name().to_owned()) else { return };
        if !self.recorder.is_undone(proxy) {
            let at = self.now();
            let what = format!("a delegate of {proxy} is created in c{id} beside {twin}");
            self.recorder.report(Rule::NothingInExcess, at, what);
        }
    }

    /// The pod that a scheduler is about to evict.
    pub(super) fn victim(&mut self, sent: &Sent) -> Option<Rc<Object>> {
        let service = self.processes.get(sent.process)?.service;
        let request = &sent.request;
        if service != Service::CandidateScheduler || request.verb != Verb::Delete || request.kind != "pods" {
            return None;
        }
        self.store(sent.cluster).get("pods", &request.key.0, &request.key.1).cloned()
    }

    /// It is evicted.
    pub(super) fn evicted(&mut self, id: ClusterId, victim: &Object) {
        let now = self.now();
        self.report.evictions += 1;
        self.recorder.excuse(victim.label(keys::PARENT_UID));
        let serves = |waiting: &&Waiting| {
            waiting.cluster == id && waiting.priority > priority(victim) && waiting.last + RECENT >= now
        };
        let for_whom: Vec<Waiting> = self.excess.waiting.values().filter(serves).cloned().collect();
        if for_whom.is_empty() {
            let what = format!("{} is evicted in c{id} for nobody", victim.name());
            return self.recorder.report(Rule::NothingInExcess, now, what);
        }
        if for_whom.iter().all(|waiting| self.is_overlooked(waiting)) {
            let what = format!("{} is evicted in c{id} although another target has room", victim.name());
            self.recorder.report(Rule::NothingInExcess, now, what);
        }
    }

    /// Whether another target has had room for a pod that is not bound, while nothing was wrong.
    fn is_overlooked(&self, waiting: &Waiting) -> bool {
        let calm = self.is_calm();
        let mut proxy = self.clusters.iter().take(self.plan.sources).enumerate();
        let proxy = proxy.find_map(|(source, cluster)| Some((source, cluster.store.pod(&waiting.proxy)?)));
        let Some((source, proxy)) = proxy.filter(|(_, proxy)| calm && proxy.node().is_empty()) else {
            return false;
        };
        // A group stays together, or where it can be as a whole; and of room for some nobody knows.
        if proxy.is_terminating()
            || proxy.annotation(keys::GROUP).is_some()
            || proxy.annotation(keys::NO_RESERVATION).is_some()
        {
            return false;
        }
        self.excess.room.iter().any(|(id, room)| {
            let registry = self.clusters.get(source).map(|cluster| &cluster.store);
            let known =
                registry.is_some_and(|store| store.get("clustertargets", "", &format!("t{id}")).is_some());
            *id != waiting.cluster
                && known
                && room.len() >= LOOKS
                && room.iter().all(|room| *room >= waiting.cpu)
        })
    }

    /// Autoscalers and schedulers of targets look around.
    pub(super) fn scales(&mut self) {
        let now = self.now();
        for id in self.plan.sources..self.clusters.len() {
            let rooms = self.rooms(id);
            let most = rooms.iter().map(|(_, room)| *room).max().unwrap_or(0);
            let looks = self.excess.room.entry(id).or_default();
            looks.push_back(most);
            if looks.len() > LOOKS {
                looks.pop_front();
            }
            if self.cluster(id).serves() {
                self.schedules(id, rooms);
                self.autoscales(id, most);
            }
        }
        self.excess.waiting.retain(|_, waiting| waiting.last + 60_000 >= now);
        self.after(LOOK, Due::Scales);
    }

    /// What is left on each node that takes pods, reservations counted.
    fn rooms(&self, id: ClusterId) -> Vec<(String, u64)> {
        let Some(cluster) = self.clusters.get(id) else { return Vec::new() };
        let mut used: BTreeMap<&str, u64> = BTreeMap::new();
        for pod in cluster.store.all("pods").filter(|pod| !is_over(pod)) {
            *used.entry(pod.node()).or_default() += super::kubelets::cpu(pod);
        }
        for chaperon in cluster.store.all("podchaperons") {
            let node = chaperon.annotation(keys::RESERVED_NODE).unwrap_or_default();
            *used.entry(node).or_default() += super::kubelets::cpu(chaperon);
        }
        let takes = |node: &&Rc<Object>| {
            let spec = &node.value["spec"];
            spec["unschedulable"] != true && spec["taints"].as_array().is_none_or(Vec::is_empty)
        };
        let nodes = cluster.store.all("nodes").filter(takes);
        let room = |node: &Rc<Object>| {
            let kubelet =
                cluster.kubelets.get(node.name()).filter(|kubelet| kubelet.up && kubelet.connected)?;
            let used = used.get(node.name()).copied().unwrap_or(0);
            Some((node.name().to_owned(), kubelet.cpu.saturating_sub(used)))
        };
        nodes.filter_map(room).collect()
    }

    /// The scheduler that a target has of its own.
    fn schedules(&mut self, id: ClusterId, mut rooms: Vec<(String, u64)>) {
        let stamp = self.stamp();
        let own = |pod: &Rc<Object>| {
            pod.node().is_empty()
                && !pod.is_terminating()
                && pod.value["spec"]["schedulerName"] == "default-scheduler"
        };
        for pod in self.cluster(id).pods().into_iter().filter(own) {
            let wanted = super::kubelets::cpu(&pod);
            if let Some((node, room)) = rooms.iter_mut().find(|(_, room)| *room >= wanted) {
                *room -= wanted;
                let binding = json!({"metadata": {"uid": pod.uid()}, "target": {"name": node}});
                let key = (pod.meta("namespace").to_owned(), pod.name().to_owned());
                let _bound = self.store(id).bind(&key, &binding);
                self.tell(|| format!("c{id} its own scheduler binds {}", pod.name()));
                continue;
            }
            if pod.value["status"]["conditions"].is_null() {
                self.store(id).edit("pods", pod.meta("namespace"), pod.name(), |pod| {
                    pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
                        "reason": "Unschedulable", "message": "no node has room", "lastTransitionTime": stamp}]);
                });
            }
        }
    }

    /// Adds a node for a pod that has waited long enough and that no node has room for.
    fn autoscales(&mut self, id: ClusterId, most: u64) {
        let (now, cpu) = (self.now(), self.plan.cpu);
        let added = self.excess.added.get(&id).copied().unwrap_or(0);
        if added >= self.plan.autoscale {
            return;
        }
        let unschedulable = |pod: &Object| {
            let conditions = pod.value["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|found: &Value| found["reason"] == "Unschedulable")
        };
        let pods = self.cluster(id).pods();
        let due = pods.iter().find_map(|pod| {
            let waiting = self.excess.waiting.get(pod.uid())?;
            let due = pod.node().is_empty() && !pod.is_terminating() && unschedulable(pod);
            let fits = waiting.cpu > most && waiting.cpu <= cpu;
            (due && fits && now >= waiting.since + PATIENCE).then(|| waiting.clone())
        });
        let Some(waiting) = due else { return };
        self.excess.added.insert(id, added + 1);
        self.report.scale_ups += 1;
        self.cluster(id).add_node(&format!("c{id}-auto{added}"), cpu);
        self.tell(|| format!("c{id} gets a node for {}", waiting.proxy));
        if self.is_overlooked(&waiting) {
            let what = format!("c{id} gets a node for {} although another target has room", waiting.proxy);
            self.recorder.report(Rule::NothingInExcess, now, what);
        }
    }
}
