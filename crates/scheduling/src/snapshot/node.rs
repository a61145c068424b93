use std::collections::BTreeMap;
use std::sync::Arc;

use thin_vec::ThinVec;

use crate::node::NodeInfo;
use crate::pod::{HostPort, PodInfo};
use crate::quantity::Quantity;
use crate::resources::{Kind, ResourceList, Resources, clamp_list};
use crate::text::{Text, shared};

/// A node and what is placed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Shared, so that a copy of the node to try things out on costs little.
    pub info: Arc<NodeInfo>,
    /// False while only pods speak of it.
    pub(super) exists: bool,
    /// Its place in the snapshot, and in every column.
    slot: usize,
    /// Sorted by UID.
    pods: Vec<Arc<PodInfo>>,
    /// What its pods ask for.
    pub requested: Resources,
    /// By how much that differs from what they ask for exactly.
    rounded: Sums,
    /// CPU (milli) and memory with defaults for containers that name none, for scoring.
    pub(crate) non_zero: (i64, i64),
    /// Host ports in use, and by how many pods.
    pub(super) ports: BTreeMap<HostPort, usize>,
}

/// Exact sums by resource: a few, in a list without gaps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Sums(ThinVec<(Text, Quantity)>);

impl Sums {
    fn of(&mut self, name: &str) -> &mut Quantity {
        let place = self.0.iter().position(|(known, _)| known.as_str() == name).unwrap_or_else(|| {
            self.0.reserve_exact(1);
            self.0.push((shared(name), Quantity::zero()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }
}

impl Node {
    pub(super) fn new(info: Arc<NodeInfo>, slot: usize) -> Self {
        Self {
            info,
            exists: false,
            slot,
            pods: Vec::new(),
            requested: Resources::default(),
            rounded: Sums::default(),
            non_zero: (0, 0),
            ports: BTreeMap::new(),
        }
    }

    /// The index of the node in columns of the snapshot.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// The pods and reservations placed here.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.pods.iter()
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
        let mut free = (*self.info.allocatable).clone();
        for (name, rest) in &mut free {
            let kind = Kind::of(name);
            *rest -= &kind.quantity(self.requested.of(kind));
            if let Some((_, amount)) = self.rounded.0.iter().find(|(known, _)| known.as_str() == name) {
                *rest -= amount;
            }
        }
        if let Some(pods) = free.get_mut("pods") {
            *pods -= &Quantity::from_units(self.pod_count());
        }
        clamp_list(&mut free);
        free
    }

    pub(super) fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(self.find(uid).ok()?)
    }

    fn find(&self, uid: &str) -> Result<usize, usize> {
        self.pods.binary_search_by(|pod| (*pod.uid).cmp(uid))
    }

    /// A copy to try things out on, which does not know how much is free exactly.
    pub(crate) fn sketch(&self) -> Self {
        Self {
            info: Arc::clone(&self.info),
            exists: self.exists,
            slot: self.slot,
            pods: self.pods.clone(),
            requested: self.requested.clone(),
            rounded: Sums::default(),
            non_zero: self.non_zero,
            ports: self.ports.clone(),
        }
    }

    /// Places a pod here; one of the same UID gives way.
    pub(super) fn put(&mut self, pod: Arc<PodInfo>) {
        self.take(&pod.uid);
        for (name, amount) in pod.spec.requests.rounded() {
            *self.rounded.of(name) += &amount;
        }
        self.draw(pod);
    }

    /// Places a pod on a [`Self::sketch`], where it is not yet.
    pub(crate) fn draw(&mut self, pod: Arc<PodInfo>) {
        let requests = &pod.spec.requests;
        self.requested.add(&requests.total);
        self.non_zero.0 += requests.non_zero.0;
        self.non_zero.1 += requests.non_zero.1;
        for port in &pod.spec.host_ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
        if let Err(place) = self.find(&pod.uid) {
            if self.pods.len() == self.pods.capacity() {
                self.pods.reserve_exact(1 + self.pods.len() / 4);
            }
            self.pods.insert(place, pod);
        }
    }

    pub(super) fn take(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.erase(uid)?;
        for (name, amount) in pod.spec.requests.rounded() {
            *self.rounded.of(name) -= &amount;
        }
        Some(pod)
    }

    /// Takes a pod away from a [`Self::sketch`].
    pub(crate) fn erase(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let pod = self.pods.remove(self.find(uid).ok()?);
        let requests = &pod.spec.requests;
        self.requested.sub(&requests.total);
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

    pub(super) fn is_unused(&self) -> bool {
        !self.exists && self.pods.is_empty()
    }
}
