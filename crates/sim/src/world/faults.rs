//! What goes wrong, and how it ends.

use super::network::Cut;
use super::{Due, NAMESPACE, World};
use crate::cluster::{Deletion, Object};
use crate::plan::{Fault, Kind};
use crate::wire::{ClusterId, ProcessId};
use api::keys;
use serde_json::json;
use std::rc::Rc;

/// What a fault hits.
#[derive(Clone, Copy)]
struct Aim {
    target: ClusterId,
    source: ClusterId,
    any: ClusterId,
    pick: u64,
}

impl World {
    fn aim(&self, fault: &Fault) -> Aim {
        let pick = fault.pick;
        let sources = self.plan.sources;
        Aim {
            target: sources + self.pick(pick, self.plan.targets),
            source: self.pick(pick / 11, sources),
            any: self.pick(pick / 13, self.clusters.len()),
            pick: pick / 17,
        }
    }

    pub(super) fn counts(&mut self, kind: Kind) {
        *self.report.faults.entry(kind).or_default() += 1;
    }

    /// A fault begins.
    pub(super) fn begins(&mut self, index: usize) {
        let Some(fault) = self.plan.faults.get(index).copied() else { return };
        let aim = self.aim(&fault);
        self.tell(|| format!("fault {:?} begins (target c{}, any c{})", fault.kind, aim.target, aim.any));
        let took = match fault.kind {
            Kind::Crash => self.dooms(aim),
            Kind::LeaderOverlap | Kind::PausedLeader => self.succeeds(fault, aim),
            Kind::Partition => self.cuts_off(index, aim, (true, true)),
            Kind::AnswersLost => self.cuts_off(index, aim, (false, true)),
            Kind::AnswerLost => {
                self.lose += 1;
                true
            }
            Kind::ApiDown | Kind::ApiFrozen | Kind::ApiErrors | Kind::Slow | Kind::StaleWatch => {
                self.hampers(fault.kind, aim.any)
            }
            Kind::WatchCut => {
                self.cuts_watches(aim.any, aim.pick.is_multiple_of(2), aim.pick.is_multiple_of(3));
                true
            }
            Kind::Compaction => self.forgets(aim.any),
            Kind::Full | Kind::Quota | Kind::NamespaceMissing | Kind::Refusals => {
                self.crowds(fault.kind, aim)
            }
            Kind::NodeCrash | Kind::NodeCut | Kind::NodeRemoved => self.hits_node(fault.kind, aim),
            Kind::Eviction => self.evicts(aim),
            Kind::UserDeletes => self.deletes_some(aim, None),
            Kind::ForceDeletes => self.deletes_some(aim, Some(0)),
            Kind::Scale => {
                self.scale(aim.pick);
                true
            }
            Kind::TargetAdded | Kind::ClockSkew => true,
            Kind::TargetRekeyed => {
                self.rekey_target(aim.target);
                true
            }
            Kind::TargetRemoved => {
                // Its pods end; that is what was asked for.
                self.removed.push((aim.source, aim.target));
                self.remove_target(aim.source, aim.target);
                true
            }
            Kind::EtcdRestored => {
                let backup = self.store(aim.target).backup();
                self.cluster(aim.target).backup = Some(backup);
                true
            }
            Kind::Meddling => {
                self.after(0, Due::Meddle(index));
                false
            }
            Kind::EmptyList => self.lies_about_pods(aim.source),
            Kind::Replaced => {
                self.replaces = true;
                false
            }
        };
        if took {
            self.counts(fault.kind);
        }
    }

    /// A fault ends.
    pub(super) fn ends(&mut self, index: usize) {
        let Some(fault) = self.plan.faults.get(index).copied() else { return };
        let aim = self.aim(&fault);
        self.tell(|| format!("fault {:?} ends", fault.kind));
        match fault.kind {
            Kind::Partition | Kind::AnswersLost => self.reconnects(index),
            Kind::ApiDown | Kind::ApiFrozen | Kind::ApiErrors | Kind::Slow | Kind::StaleWatch => {
                self.recovers(aim.any);
            }
            Kind::Full | Kind::Quota | Kind::NamespaceMissing | Kind::Refusals => self.makes_room(aim.target),
            Kind::NodeCrash | Kind::NodeCut | Kind::NodeRemoved => self.mends_node(aim),
            Kind::TargetAdded => {
                self.add_target(0, aim.target);
            }
            Kind::TargetRemoved => self.add_target(aim.source, aim.target),
            Kind::EtcdRestored => self.restores(aim.target),
            Kind::EmptyList => self.tells_the_truth(aim.source),
            Kind::Replaced => self.replaces = false,
            Kind::Crash
            | Kind::LeaderOverlap
            | Kind::PausedLeader
            | Kind::AnswerLost
            | Kind::WatchCut
            | Kind::Compaction
            | Kind::Eviction
            | Kind::UserDeletes
            | Kind::ForceDeletes
            | Kind::Scale
            | Kind::TargetRekeyed
            | Kind::Meddling
            | Kind::ClockSkew => {}
        }
    }

    /// Who watches must list again.
    fn forgets(&mut self, id: ClusterId) -> bool {
        self.store(id).compact();
        self.cuts_watches(id, true, false);
        true
    }

    fn lies_about_pods(&mut self, id: ClusterId) -> bool {
        self.empty = true;
        self.forgets(id)
    }

    /// Whoever was told an empty list lists again.
    fn tells_the_truth(&mut self, id: ClusterId) {
        self.empty = false;
        self.forgets(id);
    }

    /// Nothing is wrong any more.
    pub(super) fn heal(&mut self) {
        self.healed = true;
        self.tell(|| "all faults are over".to_owned());
        self.lose = 0;
        self.replaces = false;
        if self.plan.faults.iter().any(|fault| fault.kind == Kind::EmptyList) {
            (0..self.plan.sources).for_each(|source| self.tells_the_truth(source));
        }
        for index in 0..self.plan.faults.len() {
            self.reconnects(index);
        }
        for id in 0..self.clusters.len() {
            self.recovers(id);
            self.makes_room(id);
            if !self.is_source(id) {
                self.mends_nodes(id);
            }
        }
        self.unscale();
        for id in 0..self.processes.len() {
            self.wakes(id);
            if let Some(process) = self.processes.get_mut(id) {
                process.doomed = None;
            }
        }
        self.wake_kubelets();
    }

    fn alive(&self) -> Vec<ProcessId> {
        let alive = self.processes.iter().enumerate().filter(|(_, process)| !process.dead && !process.paused);
        alive.map(|(id, _)| id).collect()
    }

    fn dooms(&mut self, aim: Aim) -> bool {
        let alive = self.alive();
        let Some(id) = alive.get(self.pick(aim.pick, alive.len())).copied() else { return false };
        let writes = u32::try_from(aim.pick / 3 % 6).unwrap_or_default();
        if let Some(process) = self.processes.get_mut(id) {
            process.doomed = Some((writes, aim.pick.is_multiple_of(2)));
        }
        true
    }

    /// Another replica leads; the former one goes on for a while, or stands still and wakes up later.
    fn succeeds(&mut self, fault: Fault, aim: Aim) -> bool {
        let alive = self.alive();
        let Some(id) = alive.get(self.pick(aim.pick, alive.len())).copied() else { return false };
        let Some(process) = self.processes.get_mut(id) else { return false };
        let (service, home) = (process.service, process.home);
        let now = self.start.elapsed();
        let now = u64::try_from(now.as_millis()).unwrap_or_default();
        if fault.kind == Kind::PausedLeader {
            process.paused = true;
            self.at(now + fault.lasts, Due::Wake(id));
            // It notices that it is no leader some time after it woke.
            self.at(now + fault.lasts + 2_500, Due::Stop(id));
        } else {
            self.at(now + fault.lasts.min(15_000), Due::Stop(id));
        }
        self.after(100, Due::Start(service, home));
        true
    }

    fn cuts_off(&mut self, index: usize, aim: Aim, (requests, answers): (bool, bool)) -> bool {
        let cut = Cut { home: aim.source, cluster: aim.target, requests, answers };
        self.cuts.push((index, cut));
        true
    }

    fn reconnects(&mut self, index: usize) {
        self.cuts.retain(|(of, _)| *of != index);
        for id in 0..self.clusters.len() {
            self.flush(id);
        }
    }

    fn hampers(&mut self, kind: Kind, id: ClusterId) -> bool {
        let cluster = self.cluster(id);
        match kind {
            Kind::ApiDown => {
                cluster.down = true;
                self.cuts_watches(id, true, false);
            }
            Kind::ApiFrozen => cluster.frozen = true,
            Kind::ApiErrors => cluster.errors = true,
            Kind::Slow => cluster.slow = 1_200,
            _ => cluster.lag = 4_000,
        }
        true
    }

    fn recovers(&mut self, id: ClusterId) {
        let cluster = self.cluster(id);
        cluster.down = false;
        cluster.errors = false;
        cluster.slow = 0;
        cluster.lag = 0;
        self.cluster(id).frozen = false;
        for sent in std::mem::take(&mut self.cluster(id).waiting) {
            self.arrives(Box::new(sent));
        }
        self.flush(id);
    }

    fn crowds(&mut self, kind: Kind, aim: Aim) -> bool {
        let id = aim.target;
        match kind {
            Kind::Full => {
                for name in self.cluster(id).kubelets.keys().cloned().collect::<Vec<_>>() {
                    self.store(id)
                        .edit("nodes", "", &name, |node| node["spec"]["unschedulable"] = json!(true));
                }
            }
            Kind::Quota => {
                let limit = self.pick(aim.pick, 5);
                self.store(id).quota.insert(NAMESPACE.to_owned(), limit);
            }
            Kind::NamespaceMissing => {
                // Only one that nobody uses yet can be taken away without its pods.
                let used = self.delegates(id).iter().any(|pod| pod.meta("namespace") == NAMESPACE);
                if used || self.store(id).all("podchaperons").next().is_some() {
                    return false;
                }
                let key = (String::new(), NAMESPACE.to_owned());
                let _left = self.store(id).delete("namespaces", &key, &Deletion::default());
            }
            _ => {
                for kubelet in self.cluster(id).kubelets.values_mut() {
                    kubelet.refuses = true;
                }
            }
        }
        true
    }

    fn makes_room(&mut self, id: ClusterId) {
        if self.is_source(id) {
            return;
        }
        self.add_namespace(id);
        self.store(id).quota.clear();
        let names: Vec<String> = self.cluster(id).kubelets.keys().cloned().collect();
        for name in names {
            self.store(id).edit("nodes", "", &name, |node| node["spec"]["unschedulable"] = json!(null));
            if let Some(kubelet) = self.cluster(id).kubelets.get_mut(&name) {
                kubelet.refuses = false;
            }
        }
    }

    fn node_of(&mut self, aim: Aim) -> Option<String> {
        let count = self.cluster(aim.target).kubelets.len();
        let index = self.pick(aim.pick, count);
        self.cluster(aim.target).kubelets.keys().nth(index).cloned()
    }

    fn hits_node(&mut self, kind: Kind, aim: Aim) -> bool {
        let id = aim.target;
        let Some(name) = self.node_of(aim) else { return false };
        match kind {
            Kind::NodeCrash => self.node_dies(id, &name),
            Kind::NodeCut => {
                if let Some(kubelet) = self.cluster(id).kubelets.get_mut(&name) {
                    kubelet.connected = false;
                }
            }
            _ => {
                self.node_dies(id, &name);
                self.cluster(id).kubelets.remove(&name);
                let key = (String::new(), name.clone());
                let _left = self.store(id).delete("nodes", &key, &Deletion::default());
            }
        }
        true
    }

    fn mends_node(&mut self, aim: Aim) {
        self.mends_nodes(aim.target);
    }

    fn mends_nodes(&mut self, id: ClusterId) {
        let (nodes, cpu) = (self.plan.nodes, self.plan.cpu);
        for index in 0..nodes {
            let name = format!("c{id}-n{index}");
            // A new machine never has the name of an old one.
            let new = format!("{name}-again");
            let kubelets = &self.cluster(id).kubelets;
            if !kubelets.contains_key(&name) && !kubelets.contains_key(&new) {
                self.cluster(id).add_node(&new, cpu);
            }
        }
        for name in self.cluster(id).kubelets.keys().cloned().collect::<Vec<_>>() {
            if let Some(kubelet) = self.cluster(id).kubelets.get_mut(&name) {
                kubelet.connected = true;
            }
            self.node_returns(id, &name);
        }
    }

    /// Somebody deletes delegates, as a drain does.
    fn evicts(&mut self, aim: Aim) -> bool {
        let pods: Vec<Rc<Object>> =
            self.delegates(aim.target).into_iter().filter(|pod| !pod.is_terminating()).collect();
        let count = self.pick(aim.pick, 4) + 1;
        let grace = aim.pick.is_multiple_of(3).then_some(0);
        for pod in pods.iter().take(count) {
            self.recorder.excuse(pod.label(keys::PARENT_UID));
            let options = Deletion { grace, uid: Some(pod.uid().to_owned()), version: None };
            let key = (pod.meta("namespace").to_owned(), pod.name().to_owned());
            let _left = self.store(aim.target).delete("pods", &key, &options);
            self.tell(|| format!("c{} {} is evicted", aim.target, pod.name()));
        }
        !pods.is_empty()
    }

    fn deletes_some(&mut self, aim: Aim, grace: Option<i64>) -> bool {
        let pods: Vec<Rc<Object>> =
            self.cluster(aim.source).pods().into_iter().filter(|pod| !pod.is_terminating()).collect();
        if pods.is_empty() || !self.cluster(aim.source).serves() {
            return false;
        }
        let count = self.pick(aim.pick / 5, 4) + 1;
        for index in 0..count {
            let at = (self.pick(aim.pick, pods.len()) + index * 3) % pods.len();
            if let Some(pod) = pods.get(at) {
                self.user_deletes(aim.source, pod, grace);
            }
        }
        true
    }

    /// Others write to pods and PodChaperons, so that whoever decided on an older state loses the race.
    pub(super) fn meddles(&mut self, index: usize) {
        let Some(fault) = self.plan.faults.get(index).copied() else { return };
        let aim = self.aim(&fault);
        let mut touched = 0;
        for (id, kind) in [(aim.source, "pods"), (aim.target, "podchaperons"), (aim.target, "pods")] {
            if !self.cluster(id).serves() {
                continue;
            }
            let objects: Vec<Rc<Object>> = self.store(id).all(kind).cloned().collect();
            for object in objects.iter().filter(|object| object.name() != "local") {
                let stamp = self.rng.u64(..1_000_000);
                if !stamp.is_multiple_of(4) {
                    continue;
                }
                self.store(id).edit(kind, object.meta("namespace"), object.name(), |object| {
                    object["metadata"]["annotations"]["example.com/touched"] = json!(stamp.to_string());
                });
                touched += 1;
            }
        }
        if touched > 0 {
            self.counts(Kind::Meddling);
        }
        let pause = self.rng.u64(100..1_000);
        if self.now() + pause < fault.at + fault.lasts {
            self.after(pause, Due::Meddle(index));
        }
    }

    /// A target's etcd goes back to what it was some time ago.
    fn restores(&mut self, id: ClusterId) {
        let Some(backup) = self.cluster(id).backup.take() else { return };
        for proxy in self.store(id).differing(&backup, keys::PARENT_UID) {
            self.recorder.undo(&proxy);
        }
        self.tell(|| format!("c{id} is restored"));
        self.store(id).restore(backup);
        self.cuts_watches(id, true, false);
        let cluster = self.cluster(id);
        cluster.pumped = cluster.store.history().len();
        self.wake_kubelets();
    }
}
