//! Targets that are being deleted: they go when nothing of them is left.

use super::{Evidence, Key, Store};
use crate::plan::Remote;
use crate::views::Proxy;
use runtime::Target;
use std::sync::Arc;

impl Store {
    /// Targets that are being deleted and wait for us.
    pub(crate) fn departing(&self) -> Vec<Arc<Target>> {
        let all = self.targets.iter().flatten().map(|(_, target)| target);
        all.filter(|target| target.deleting && target.is_held()).cloned().collect()
    }

    /// Proxy pods that run through a target, or may, and hold our finalizer.
    pub(crate) fn held_by(&self, target: &Target) -> Vec<Arc<Proxy>> {
        let node = target.virtual_node();
        let bound = self.by_node.get(&node).into_iter().flatten().filter_map(|key| self.pods.get(key));
        let uid = target.status.cluster_uid.as_ref();
        let granted = self.pods.values().filter(|pod| {
            pod.node.is_empty() && pod.is_granted && uid.is_some() && pod.elected_target.as_ref() == uid
        });
        bound.chain(granted).filter(|pod| pod.is_held()).cloned().collect()
    }

    /// What is left of the delegate of a pod whose Target is being deleted. Until that is known the pod waits: its
    /// successor must not run beside it.
    pub(super) fn departing_delegate(
        &self,
        key: &Key,
        proxy: &Proxy,
        evidence: Evidence,
        target: &Target,
    ) -> Remote {
        let link = self.links.get(&target.key);
        let uid = target.status.cluster_uid.as_ref();
        let link = link.filter(|link| link.is_in_step() && Some(&link.cluster_uid) == uid);
        let Some(link) = link else {
            return if target.is_given_up() { Remote::TargetGone } else { Remote::Unknown };
        };
        match self.elected(key, proxy, &link.key) {
            Some(chaperon) if proxy.deleting.is_some() => Remote::Present(Arc::clone(chaperon)),
            Some(_) => Remote::Unknown,
            None if evidence.delegate_absent => Remote::TargetGone,
            None => Remote::Missing,
        }
    }
}
