//! What filters would say of a node if other pods were on it.

use std::sync::Arc;

use crate::framework::cycle::Prepared;
use crate::framework::{Cycle, Refusal};
use crate::pod::PodInfo;
use crate::snapshot::Node;

/// Tries out changes of nodes, one node at a time, with the filters of one scheduling cycle.
pub struct Trials<'t, 'a> {
    filters: &'t mut Prepared<'a>,
    cycle: Cycle<'a>,
}

impl<'t, 'a> Trials<'t, 'a> {
    pub(super) fn new(filters: &'t mut Prepared<'a>, cycle: Cycle<'a>) -> Self {
        Self { filters, cycle }
    }

    /// Begins with `node` as it is.
    pub fn on(&mut self, node: &Node) -> Trial<'_, 'a> {
        Trial::new(self.filters, self.cycle, node)
    }
}

/// A node as it might be. The filters know of the changes until the trial is dropped.
pub struct Trial<'t, 'a> {
    filters: &'t mut Prepared<'a>,
    node: Node,
    /// Pods that wait for the node and to whom the pod must leave room.
    ahead: Vec<Arc<PodInfo>>,
    /// Pods that were taken away.
    away: Vec<Arc<PodInfo>>,
}

impl<'t, 'a> Trial<'t, 'a> {
    fn new(filters: &'t mut Prepared<'a>, cycle: Cycle<'a>, node: &Node) -> Self {
        let ahead = cycle.snapshot.nominator().ahead_of(cycle.pod, &node.info.name);
        // Who has a place already does not take two.
        let ahead = ahead.filter(|pod| cycle.snapshot.place_of(&pod.uid).is_none()).cloned().collect();
        Self { filters, node: node.sketch(), ahead, away: Vec::new() }
    }

    /// The node with the changes so far.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Takes a pod of the node away.
    pub fn take_away(&mut self, uid: &str) {
        if let Some(pod) = self.node.erase(uid) {
            self.filters.remove_pod(&pod, &self.node);
            self.away.push(pod);
        }
    }

    /// Puts a pod back that was taken away.
    pub fn put_back(&mut self, uid: &str) {
        if let Some(index) = self.away.iter().position(|pod| *pod.uid == *uid) {
            let pod = self.away.swap_remove(index);
            self.node.draw(Arc::clone(&pod));
            self.filters.add_pod(&pod, &self.node);
        }
    }

    /// Does the pod fit now, both with the pods that wait for the node and without them? The latter matters to a pod
    /// that wants one of them near.
    pub fn judge(&mut self) -> Result<(), Refusal> {
        if !self.ahead.is_empty() {
            self.crowded(Prepared::filter)?;
        }
        self.filters.filter(&self.node)
    }

    /// [`Self::judge`] without reasons.
    pub fn admits(&mut self) -> bool {
        (self.ahead.is_empty() || self.crowded(Prepared::admits)) && self.filters.admits(&self.node)
    }

    /// Asks with the pods on the node that wait for it.
    fn crowded<T>(&mut self, ask: impl Fn(&Prepared<'a>, &Node) -> T) -> T {
        for pod in &self.ahead {
            self.node.draw(Arc::clone(pod));
            self.filters.add_pod(pod, &self.node);
        }
        let answer = ask(self.filters, &self.node);
        for pod in &self.ahead {
            self.node.erase(&pod.uid);
            self.filters.remove_pod(pod, &self.node);
        }
        answer
    }
}

impl Drop for Trial<'_, '_> {
    fn drop(&mut self) {
        for pod in &self.away {
            self.filters.add_pod(pod, &self.node);
        }
    }
}

impl<'a> Prepared<'a> {
    /// Does the pod fit the node, and leave room there for those that wait for it with at least its priority?
    pub(super) fn judge(&mut self, cycle: Cycle<'a>, node: &Node) -> Result<(), Refusal> {
        let nominator = cycle.snapshot.nominator();
        if nominator.is_empty() || nominator.ahead_of(cycle.pod, &node.info.name).next().is_none() {
            return self.filter(node);
        }
        Trial::new(self, cycle, node).judge()
    }

    fn admits(&self, node: &Node) -> bool {
        self.filters.iter().all(|(_, filter)| filter.admits(node))
    }

    fn add_pod(&mut self, pod: &PodInfo, node: &Node) {
        for (_, filter) in &mut self.filters {
            filter.add_pod(pod, node);
        }
    }

    fn remove_pod(&mut self, pod: &PodInfo, node: &Node) {
        for (_, filter) in &mut self.filters {
            filter.remove_pod(pod, node);
        }
    }
}
