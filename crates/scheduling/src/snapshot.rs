//! The cluster as one scheduler sees it: nodes, what is placed on them, and what is promised.

mod owners;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::budget::Budgets;
use crate::node::NodeInfo;
use crate::nominator::Nominator;
use crate::pod::{HostPort, PodInfo};
use crate::quantity::Quantity;
use crate::resources::{ResourceList, Resources, add_list, clamp_list, sub_list};
use crate::selector::Labels;
pub use owners::{Owner, OwnerKind, Owners};

/// A node and what is placed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub info: NodeInfo,
    /// False while only pods speak of it.
    exists: bool,
    pods: BTreeMap<Arc<str>, Arc<PodInfo>>,
    /// Those of its pods that want, or do not want, other pods near.
    particular: BTreeMap<Arc<str>, Arc<PodInfo>>,
    /// What its pods ask for, and the same as exact quantities.
    pub requested: Resources,
    requested_list: ResourceList,
    /// CPU (milli) and memory with defaults for containers that name none, for scoring.
    pub(crate) non_zero: (i64, i64),
    /// Host ports in use, and by how many pods.
    ports: BTreeMap<HostPort, usize>,
}

impl Node {
    fn new(info: NodeInfo, exists: bool) -> Self {
        Self {
            info,
            exists,
            pods: BTreeMap::new(),
            particular: BTreeMap::new(),
            requested: Resources::default(),
            requested_list: ResourceList::new(),
            non_zero: (0, 0),
            ports: BTreeMap::new(),
        }
    }

    /// The pods and reservations placed here.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.pods.values()
    }

    /// Those of [`Self::pods`] that have affinity or anti-affinity to other pods.
    pub(crate) fn particular_pods(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.particular.values()
    }

    pub fn pod_count(&self) -> i64 {
        i64::try_from(self.pods.len()).unwrap_or(i64::MAX)
    }

    /// True if one of `ports` is taken.
    pub(crate) fn port_conflict(&self, ports: &[HostPort]) -> bool {
        self.ports.keys().any(|used| ports.iter().any(|port| port.conflicts(used)))
    }

    /// Allocatable less requested, at least zero; `pods` is the number of further pods.
    pub fn free(&self) -> ResourceList {
        let mut free = self.info.allocatable.clone();
        sub_list(&mut free, &self.requested_list);
        if let Some(pods) = free.get_mut("pods") {
            *pods -= &Quantity::from_units(self.pod_count());
        }
        clamp_list(&mut free);
        free
    }

    pub(crate) fn put(&mut self, pod: Arc<PodInfo>) {
        let requests = &pod.spec.requests;
        self.requested.add(&requests.total);
        add_list(&mut self.requested_list, &requests.list);
        self.non_zero.0 += requests.non_zero.0;
        self.non_zero.1 += requests.non_zero.1;
        for port in &pod.spec.host_ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
        if !pod.spec.affinity.is_empty() || !pod.spec.anti_affinity.is_empty() {
            self.particular.insert(Arc::clone(&pod.uid), Arc::clone(&pod));
        }
        self.pods.insert(Arc::clone(&pod.uid), pod);
    }

    pub(crate) fn take(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(uid)?;
        self.particular.remove(uid);
        let requests = &pod.spec.requests;
        self.requested.sub(&requests.total);
        sub_list(&mut self.requested_list, &requests.list);
        self.non_zero.0 -= requests.non_zero.0;
        self.non_zero.1 -= requests.non_zero.1;
        for port in &pod.spec.host_ports {
            if let Some(users) = self.ports.get_mut(port) {
                *users -= 1;
                if *users == 0 {
                    self.ports.remove(port);
                }
            }
        }
        Some(pod)
    }
}

/// What is new about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeChange {
    pub added: bool,
    pub allocatable: bool,
    pub labels: bool,
    /// Taints, or whether it is cordoned.
    pub taints: bool,
    /// Its Ready condition.
    pub ready: bool,
    /// Features that its kubelet declares.
    pub features: bool,
}

impl NodeChange {
    fn between(old: &NodeInfo, new: &NodeInfo) -> Self {
        Self {
            added: false,
            allocatable: old.allocatable != new.allocatable,
            labels: old.labels != new.labels,
            taints: old.taints != new.taints || old.unschedulable != new.unschedulable,
            ready: old.ready != new.ready,
            features: old.features != new.features,
        }
    }

    /// True if nothing is new that scheduling looks at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Nodes with their pods. One owner changes it; a pod is known by its UID and is in one place at most.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// In order of appearance; gaps are filled by later nodes.
    slots: Vec<Option<Node>>,
    by_name: HashMap<Arc<str>, usize>,
    /// The slot of each pod.
    by_uid: HashMap<Arc<str>, usize>,
    namespaces: HashMap<String, Labels>,
    /// Whom Services and controllers select.
    pub owners: Owners,
    nominator: Nominator,
    budgets: Budgets,
}

impl Snapshot {
    /// Adds a node or replaces what is known about it; pods that were placed on it before it appeared count.
    pub fn set_node(&mut self, info: NodeInfo) -> NodeChange {
        let slot = self.slot(&info.name);
        let Some(Some(node)) = self.slots.get_mut(slot) else { return NodeChange::default() };
        let change = if node.exists {
            NodeChange::between(&node.info, &info)
        } else {
            NodeChange { added: true, ..NodeChange::default() }
        };
        node.info = info;
        node.exists = true;
        change
    }

    /// Removes a node. Its pods stay known until they are removed themselves.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&slot) = self.by_name.get(name) else { return };
        if let Some(Some(node)) = self.slots.get_mut(slot) {
            node.exists = false;
        }
        self.free_slot(slot);
    }

    /// Places a pod on the node that it names, wherever it was before. A finished pod takes no room, and a pod
    /// without a node has no place.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        let node = pod.node_name.clone().filter(|_| !pod.finished);
        match node {
            Some(node) => self.assume(pod, &node),
            None => {
                self.remove_pod(&pod.uid);
            }
        }
    }

    /// Places a pod on `node` before the cluster says so: a reservation, or a binding under way. It waits for no
    /// other node any more.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &Arc<str>) {
        self.remove_pod(&pod.uid);
        self.nominator.remove(&pod.uid);
        let slot = self.slot(node);
        if let Some(Some(place)) = self.slots.get_mut(slot) {
            self.by_uid.insert(Arc::clone(&pod.uid), slot);
            place.put(pod);
        }
    }

    /// Takes a pod or reservation away. None if it had no place.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let slot = self.by_uid.remove(uid)?;
        let pod = self.slots.get_mut(slot)?.as_mut()?.take(uid);
        self.free_slot(slot);
        pod
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        let slot = self.by_name.get(name)?;
        self.slots.get(*slot)?.as_ref().filter(|node| node.exists)
    }

    /// The nodes that exist, in order of appearance.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().flatten().filter(|node| node.exists)
    }

    /// How many nodes exist.
    pub fn node_count(&self) -> usize {
        self.nodes().count()
    }

    /// Where a pod or reservation is placed.
    pub fn place_of(&self, uid: &str) -> Option<&Arc<str>> {
        let slot = self.by_uid.get(uid)?;
        self.slots.get(*slot)?.as_ref().map(|node| &node.info.name)
    }

    /// A pod or reservation that has a place.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        let slot = self.by_uid.get(uid)?;
        self.slots.get(*slot)?.as_ref()?.pods.get(uid)
    }

    /// Every pod and reservation that has a place, existing node or not, with its node.
    pub fn pods(&self) -> impl Iterator<Item = (&Node, &Arc<PodInfo>)> {
        self.slots.iter().flatten().flat_map(|node| node.pods().map(move |pod| (node, pod)))
    }

    /// The pods that wait for a node on which room was made for them.
    pub fn nominator(&self) -> &Nominator {
        &self.nominator
    }

    pub fn nominator_mut(&mut self) -> &mut Nominator {
        &mut self.nominator
    }

    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    pub fn budgets_mut(&mut self) -> &mut Budgets {
        &mut self.budgets
    }

    pub fn set_namespace(&mut self, name: &str, labels: Labels) {
        self.namespaces.insert(name.to_owned(), labels);
    }

    pub fn remove_namespace(&mut self, name: &str) {
        self.namespaces.remove(name);
    }

    /// Labels of a namespace; None if it is unknown.
    pub fn namespace(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    /// The slot of a node, made on first mention.
    fn slot(&mut self, name: &Arc<str>) -> usize {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let node = Node::new(NodeInfo::unknown(Arc::clone(name)), false);
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(gap) => gap,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        if let Some(gap) = self.slots.get_mut(slot) {
            *gap = Some(node);
        }
        self.by_name.insert(Arc::clone(name), slot);
        slot
    }

    fn free_slot(&mut self, slot: usize) {
        let Some(place) = self.slots.get_mut(slot) else { return };
        if let Some(node) = place.take_if(|node| !node.exists && node.pods.is_empty()) {
            self.by_name.remove(&node.info.name);
        }
    }
}
