//! The cluster as one scheduler sees it: nodes, what is placed on them, and what is promised.
//!
//! Beside the nodes the snapshot keeps, from change to change, what plugins would otherwise count anew for every
//! pod: pods by their labels, the affinity terms of pods, domains of topologies, images. All of it follows from the
//! nodes and pods alone.

mod change;
mod counts;
mod groups;
mod images;
mod log;
mod node;
mod owners;
mod places;
mod postings;
mod sizes;
mod slab;
mod terms;
#[cfg(test)]
mod tests;
mod topology;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::budget::Budgets;
use crate::devices::{DeviceClass, Devices};
use crate::labels::Labels;
use crate::node::NodeInfo;
use crate::nominator::Nominator;
use crate::pod::{PodInfo, PodSpec};
use crate::selector::LabelSelector;
use crate::volumes::Volumes;
pub use change::NodeChange;
pub(crate) use counts::Counts;
pub(crate) use groups::Group;
use groups::Groups;
pub(crate) use images::Images;
use log::Log;
pub(crate) use log::Moment;
pub use node::Node;
pub use owners::{Owner, OwnerKind, Owners};
use places::Places;
use sizes::Sizes;
use terms::Terms;
pub(crate) use terms::{Attitude, StandingTerm};
pub(crate) use topology::Topology;

/// Nodes with their pods. One owner changes it; a pod is known by its UID and is in one place at most.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// In order of appearance; gaps are filled by later nodes.
    slots: Vec<Option<Node>>,
    gaps: BTreeSet<usize>,
    /// How many nodes exist.
    count: usize,
    by_name: HashMap<Arc<str>, usize>,
    /// The slot of each pod.
    by_uid: Places,
    namespaces: HashMap<String, Labels>,
    groups: Groups,
    terms: Terms,
    topologies: HashMap<Arc<str>, Topology>,
    images: Images,
    sizes: Sizes,
    log: Log,
    /// Whom Services and controllers select.
    pub owners: Owners,
    nominator: Nominator,
    budgets: Budgets,
    volumes: Volumes,
    devices: Devices,
}

/// More topologies than this are not kept; what needs one of the others counts it anew.
const TOPOLOGIES: usize = 16;

/// Topologies that default spread constraints name.
const ALWAYS: [&str; 2] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"];

impl Snapshot {
    /// Adds a node or replaces what is known about it; pods that were placed on it before it appeared count.
    pub fn set_node(&mut self, mut info: NodeInfo) -> NodeChange {
        self.sizes.share(&mut info.capacity);
        self.sizes.share(&mut info.allocatable);
        let slot = self.slot(&info.name);
        let Some(Some(node)) = self.slots.get_mut(slot) else { return NodeChange::default() };
        if node.exists && *node.info == info {
            return NodeChange::default();
        }
        let change = if node.exists {
            NodeChange::between(&node.info, &info)
        } else {
            self.count += 1;
            NodeChange { added: true, ..NodeChange::default() }
        };
        let old = std::mem::replace(&mut node.info, Arc::new(info));
        node.exists = true;
        self.images.set(slot, &old.images, &node.info.images);
        for topology in self.topologies.values_mut() {
            topology.set(slot, node.info.labels.text(topology.key()));
        }
        self.log.note(slot);
        change
    }

    /// Removes a node. Its pods stay known until they are removed themselves.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&slot) = self.by_name.get(name) else { return };
        let Some(Some(node)) = self.slots.get_mut(slot) else { return };
        if node.exists {
            node.exists = false;
            self.count -= 1;
            let unknown = NodeInfo::unknown(Arc::clone(&node.info.name));
            let gone = std::mem::replace(&mut node.info, Arc::new(unknown));
            self.images.set(slot, &gone.images, &BTreeMap::new());
            self.topologies.values_mut().for_each(|topology| topology.set(slot, None));
            self.log.note(slot);
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
        self.keep_topologies(&pod.spec);
        let slot = self.slot(node);
        if let Some(Some(place)) = self.slots.get_mut(slot) {
            self.by_uid.add(&pod.uid, slot);
            self.groups.add(&pod, slot);
            self.terms.add(&pod, slot);
            self.log.note(slot);
            place.put(pod);
        }
    }

    /// Takes a pod or reservation away. None if it had no place.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let slot = self.slot_of(uid)?;
        let pod = self.slots.get_mut(slot)?.as_mut()?.take(uid)?;
        self.by_uid.remove(uid, slot);
        self.groups.remove(&pod, slot);
        self.terms.remove(&pod, slot);
        self.log.note(slot);
        self.free_slot(slot);
        Some(pod)
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.node_at(*self.by_name.get(name)?)
    }

    /// The node in a slot, if there is one that exists.
    pub(crate) fn node_at(&self, slot: usize) -> Option<&Node> {
        self.slots.get(slot)?.as_ref().filter(|node| node.exists)
    }

    /// How many slots there are, used or not.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The nodes that exist, in order of appearance.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.slots.iter().flatten().filter(|node| node.exists)
    }

    /// How many nodes exist.
    pub fn node_count(&self) -> usize {
        self.count
    }

    /// Where a pod or reservation is placed.
    pub fn place_of(&self, uid: &str) -> Option<&Arc<str>> {
        let slot = self.slot_of(uid)?;
        self.slots.get(slot)?.as_ref().map(|node| &node.info.name)
    }

    /// A pod or reservation that has a place.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        let slot = self.slot_of(uid)?;
        self.slots.get(slot)?.as_ref()?.pod(uid)
    }

    fn slot_of(&self, uid: &str) -> Option<usize> {
        let is_there = |slot: usize| self.slots.get(slot).and_then(Option::as_ref)?.pod(uid);
        self.by_uid.find(uid, |slot| is_there(slot).is_some())
    }

    /// Every pod and reservation that has a place, existing node or not, with its node.
    pub fn pods(&self) -> impl Iterator<Item = (&Node, &Arc<PodInfo>)> {
        self.slots.iter().flatten().flat_map(|node| node.pods().map(move |pod| (node, pod)))
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

    /// The placed pods whose labels a selector matches, in groups that look alike.
    pub(crate) fn selected<'a>(&'a self, selector: &'a LabelSelector) -> impl Iterator<Item = &'a Group> {
        self.groups.candidates(selector).filter(|group| selector.matches(group.labels()))
    }

    /// Affinity terms of placed pods, among them all that are about a pod with these labels.
    pub(crate) fn terms_about<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = &'a StandingTerm> {
        self.terms.candidates(labels)
    }

    /// The domains of a node label.
    pub(crate) fn topology(&self, key: &str) -> Cow<'_, Topology> {
        match self.topologies.get(key) {
            Some(topology) => Cow::Borrowed(topology),
            None => Cow::Owned(self.fresh_topology(key)),
        }
    }

    fn fresh_topology(&self, key: &str) -> Topology {
        let mut topology = Topology::new(key);
        for node in self.nodes() {
            topology.set(node.slot(), node.info.labels.text(key));
        }
        topology
    }

    /// From now on keeps the topologies that a spec names.
    fn keep_topologies(&mut self, spec: &PodSpec) {
        let terms = [&spec.affinity, &spec.anti_affinity].into_iter().flat_map(|affinity| {
            affinity.required.iter().chain(affinity.preferred.iter().map(|preferred| &preferred.term))
        });
        let spread = spec.spread.iter().map(|constraint| constraint.topology_key.as_str());
        let keys = ALWAYS.into_iter().chain(terms.map(|term| term.topology_key.as_str())).chain(spread);
        for key in keys {
            if self.topologies.len() < TOPOLOGIES && !self.topologies.contains_key(key) {
                let topology = self.fresh_topology(key);
                self.topologies.insert(Arc::clone(topology.key()), topology);
            }
        }
    }

    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    /// This moment, for [`Self::changed_since`].
    pub(crate) fn moment(&self) -> Moment {
        self.log.now()
    }

    /// The slots of nodes that changed, or whose pods did, some perhaps more than once. None if that is not known
    /// any more, or was never.
    pub(crate) fn changed_since(&self, then: &Moment) -> Option<impl Iterator<Item = usize>> {
        self.log.since(then)
    }

    /// Claims, volumes, and what CSI drivers say.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub fn volumes_mut(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// Devices that drivers have, and their claims.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// For all but DeviceClasses, which have their own ways in.
    pub fn devices_mut(&mut self) -> &mut Devices {
        &mut self.devices
    }

    /// Adds or replaces a DeviceClass. Returns what was known of it before.
    pub fn set_device_class(&mut self, class: DeviceClass) -> Option<DeviceClass> {
        let old = self.devices.classes_mut().set(class);
        self.every_node_changed();
        old
    }

    pub fn remove_device_class(&mut self, name: &str) -> Option<DeviceClass> {
        let old = self.devices.classes_mut().remove(name)?;
        self.every_node_changed();
        Some(old)
    }

    /// What is known of single nodes holds no more.
    fn every_node_changed(&mut self) {
        for slot in 0..self.slots.len() {
            self.log.note(slot);
        }
    }

    /// The slot of a node, made on first mention.
    fn slot(&mut self, name: &Arc<str>) -> usize {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.gaps.pop_first().unwrap_or(self.slots.len());
        let node = Node::new(Arc::new(NodeInfo::unknown(Arc::clone(name))), slot);
        match self.slots.get_mut(slot) {
            Some(gap) => *gap = Some(node),
            None => self.slots.push(Some(node)),
        }
        self.by_name.insert(Arc::clone(name), slot);
        slot
    }

    fn free_slot(&mut self, slot: usize) {
        let Some(place) = self.slots.get_mut(slot) else { return };
        if let Some(node) = place.take_if(|node| node.is_unused()) {
            self.by_name.remove(&node.info.name);
            self.gaps.insert(slot);
        }
    }
}
