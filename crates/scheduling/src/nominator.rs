//! Pods that wait for a node on which room was made for them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::pod::PodInfo;

/// Which pods wait for which nodes. A pod waits for one node at most.
///
/// Room that was made is not reserved: pods of higher priority may take it. Others find the node as full as if those
/// that wait for it were there, and as empty as it is.
#[derive(Debug, Clone, Default)]
pub struct Nominator {
    by_node: BTreeMap<Arc<str>, Vec<Arc<PodInfo>>>,
    /// The node of each pod, by the pod's UID.
    by_uid: HashMap<Arc<str>, Arc<str>>,
    /// UIDs of pods for which others are being asked to go.
    making: HashSet<Arc<str>>,
}

impl Nominator {
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// The node that a pod waits for.
    pub fn node_of(&self, uid: &str) -> Option<&Arc<str>> {
        self.by_uid.get(uid)
    }

    /// The nodes that pods wait for.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.keys()
    }

    /// The pods that wait for `node`, in order of arrival.
    pub fn waiting(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Those that wait for `node` and to whom `pod` must leave room: their priority reaches its own.
    pub fn ahead_of<'a>(&'a self, pod: &'a PodInfo, node: &str) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let waiting = self.waiting(node).iter();
        waiting.filter(|other| other.spec.priority >= pod.spec.priority && other.uid != pod.uid)
    }

    /// Those that wait for `node` with a lower priority than `priority`: once a pod of that priority waits for it as
    /// well, they had better look elsewhere.
    pub fn below(&self, priority: i32, node: &str) -> Vec<Arc<PodInfo>> {
        let waiting = self.waiting(node).iter();
        waiting.filter(|other| other.spec.priority < priority).cloned().collect()
    }

    /// Lets a pod wait for `node`, and for no other any more.
    pub fn nominate(&mut self, pod: Arc<PodInfo>, node: &Arc<str>) {
        self.remove(&pod.uid);
        self.by_uid.insert(Arc::clone(&pod.uid), Arc::clone(node));
        self.by_node.entry(Arc::clone(node)).or_default().push(pod);
    }

    /// Takes in what the cluster says of a pod that has no node.
    ///
    /// The cluster may not know yet what was decided here: a pod that never was nominated in its eyes keeps the node
    /// that it waits for.
    pub fn update(&mut self, pod: &Arc<PodInfo>) {
        let known = self.by_uid.get(&pod.uid).cloned();
        let silent = known.as_deref().is_some_and(|node| {
            let mut waiting = self.waiting(node).iter();
            waiting.any(|old| old.uid == pod.uid && old.nominated.is_none())
        });
        match pod.nominated.clone().or_else(|| known.filter(|_| silent)) {
            Some(node) => self.nominate(Arc::clone(pod), &node),
            None => drop(self.remove(&pod.uid)),
        }
    }

    /// The pod waits for no node any more. It is returned with the node that it waited for.
    pub fn remove(&mut self, uid: &str) -> Option<(Arc<PodInfo>, Arc<str>)> {
        let node = self.by_uid.remove(uid)?;
        let waiting = self.by_node.get_mut(&node)?;
        let pod = waiting.iter().position(|pod| *pod.uid == *uid).map(|index| waiting.remove(index));
        if waiting.is_empty() {
            self.by_node.remove(&node);
        }
        pod.map(|pod| (pod, node))
    }

    /// Others are being asked to go, so that the pod need not be tried before all of them were.
    pub fn begin(&mut self, uid: &Arc<str>) {
        self.making.insert(Arc::clone(uid));
    }

    /// All were asked that had to be.
    pub fn end(&mut self, uid: &str) {
        self.making.remove(uid);
    }

    /// Are others still being asked to go for this pod?
    pub fn is_making_room(&self, uid: &str) -> bool {
        self.making.contains(uid)
    }
}
