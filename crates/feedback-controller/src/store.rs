//! What the watches have shown so far.

use crate::link::Link;
use crate::plan::Parent;
use crate::views::{Chaperon, Compact, Proxy};
use api::{Pod, PodChaperon};
use runtime::targets::TargetMap;
use runtime::{Seen, Target, TargetKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::time::Instant;

mod departing;
mod observe;
mod outage;

use observe::{Reach, reach};

/// Stands in the text of a status with that condition.
const DISRUPTED: &str = "\"DisruptionTarget\"";

/// UID of a proxy pod.
pub(crate) type Key = Arc<str>;

/// What live reads have shown while one pod is worked on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) delegate_absent: bool,
    pub(crate) target_gone: bool,
    pub(crate) parent: Option<Parent>,
}

/// What is remembered of a pod besides its objects.
#[derive(Debug, Default)]
struct Memory {
    /// When the first change came that is not mirrored yet.
    changed: Option<Instant>,
    /// When the pod was first seen elected, or its PodChaperons without it.
    since: Option<Instant>,
    /// UID and last status of the PodChaperon that went last.
    last: Option<(String, Compact)>,
    /// Annotations whose value the delegate has lost or changed.
    had: BTreeSet<String>,
    /// The delegate was about to be disrupted, and is not any more.
    was_disrupted: bool,
    /// Fingerprints of delegate and proxy after the last write.
    mirrored: Option<(u64, u64)>,
    /// Fingerprint of the delegate's annotations that the proxy was told of.
    told: Option<u64>,
}

/// All pods, PodChaperons and targets.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pods: BTreeMap<Key, Arc<Proxy>>,
    pods_in_step: bool,
    by_node: BTreeMap<String, BTreeSet<Key>>,
    /// Pods without node that a target is granted for: they wait for any target's news as well.
    granted: BTreeSet<Key>,
    /// By UID of their controller.
    by_controller: BTreeMap<String, BTreeSet<Key>>,
    /// By UID of their parent.
    chaperons: BTreeMap<Key, Vec<Arc<Chaperon>>>,
    /// By target: UID of the PodChaperon to UID of its parent.
    of_target: BTreeMap<TargetKey, BTreeMap<String, Key>>,
    memory: BTreeMap<Key, Memory>,
    links: BTreeMap<TargetKey, Arc<Link>>,
    /// By virtual node; `None` before the first list.
    targets: Option<BTreeMap<String, Arc<Target>>>,
}

impl Store {
    /// Takes the registry's targets in; returns the pods whose target has changed.
    pub(crate) fn set_targets(&mut self, map: &TargetMap) -> Vec<Key> {
        let new: BTreeMap<String, Arc<Target>> =
            map.values().map(|target| (target.virtual_node(), Arc::clone(target))).collect();
        let old = self.targets.take().unwrap_or_default();
        let state = |target: Option<&Arc<Target>>| {
            target.map(|t| {
                let marks = (t.deleting, t.is_fenced(), t.is_given_up(), t.fence_epoch());
                (t.usable().map(|(_, uid)| uid.to_owned()), reach(t), marks, t.settings.failover)
            })
        };
        let nodes: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let changed = nodes.into_iter().filter(|node| state(old.get(*node)) != state(new.get(*node)));
        let mut keys: Vec<Key> =
            changed.filter_map(|node| self.by_node.get(node)).flatten().cloned().collect();
        keys.extend(self.granted.iter().cloned());
        self.targets = Some(new);
        keys
    }

    /// Whose link should rather find out by itself whether the target answers.
    pub(crate) fn silent_links(&self) -> Vec<Arc<Link>> {
        let silent = self.targets.iter().flatten().filter(|(_, target)| reach(target) == Reach::Silent);
        silent.filter_map(|(_, target)| self.links.get(&target.key)).cloned().collect()
    }

    pub(crate) fn has_target(&self, key: &TargetKey) -> bool {
        self.targets.as_ref().is_some_and(|targets| targets.contains_key(&key.virtual_node()))
    }

    pub(crate) fn set_link(&mut self, key: &TargetKey, link: Arc<Link>) {
        self.links.insert(key.clone(), link);
    }

    pub(crate) fn link(&self, key: &TargetKey) -> Option<Arc<Link>> {
        self.links.get(key).cloned()
    }

    /// The way to the cluster that a pod was elected for, even when its Target is gone already.
    pub(crate) fn link_of(&self, proxy: &Proxy) -> Option<Arc<Link>> {
        let elected = proxy.elected_target.as_deref();
        let mut links = self.links.values();
        let found = links.find(|link| match (elected, proxy.node.as_str()) {
            (None, "") => false,
            (Some(cluster), "") => link.cluster_uid == cluster,
            (cluster, node) => {
                link.key.virtual_node() == node && cluster.is_none_or(|cluster| cluster == link.cluster_uid)
            }
        });
        found.cloned()
    }

    /// Forgets the link; the PodChaperons as well when the target is no more. Returns what may have waited
    /// for them.
    pub(crate) fn drop_link(&mut self, key: &TargetKey) -> Vec<Key> {
        self.links.remove(key);
        if self.has_target(key) {
            let waiting = self.by_node.get(&key.virtual_node());
            return waiting.into_iter().flatten().chain(&self.granted).cloned().collect();
        }
        let keys = self.replace_chaperons(key, &[]);
        self.of_target.remove(key);
        keys
    }

    /// The complete list of pods; returns everything that is to be looked at: all pods and PodChaperons.
    pub(crate) fn replace_pods(&mut self, pods: &[Pod]) -> Vec<Key> {
        let there: BTreeSet<&str> = pods.iter().map(Pod::uid).collect();
        let gone: Vec<Key> = self.pods.keys().filter(|key| !there.contains(key.as_ref())).cloned().collect();
        for key in &gone {
            self.remove_pod(key);
        }
        for pod in pods {
            self.take_pod(pod, true);
        }
        self.pods_in_step = true;
        self.all().into_iter().chain(gone).collect()
    }

    /// Takes in what the watch of pods saw; returns what is to be looked at.
    pub(crate) fn take_pods(&mut self, seen: Seen<Pod>) -> Vec<Key> {
        match seen {
            Seen::Replaced(all) => self.replace_pods(&all),
            Seen::Applied(pod) => vec![self.put_pod(&pod)],
            Seen::Deleted(pod) => {
                let key: Key = Arc::from(pod.uid());
                self.remove_pod(&key);
                vec![key]
            }
            // It goes on where it was. A pod that is not seen meanwhile is read before it is called missing.
            Seen::Failed(_) => Vec::new(),
        }
    }

    /// Everything: all pods and PodChaperons.
    pub(crate) fn all(&self) -> BTreeSet<Key> {
        self.pods.keys().chain(self.chaperons.keys()).cloned().collect()
    }

    pub(crate) fn put_pod(&mut self, pod: &Pod) -> Key {
        self.take_pod(pod, false)
    }

    /// What a list shows is the truth even if something newer is known: a restored etcd has old versions. Should the
    /// list be older than an answer to us, the watch shows that in a moment.
    fn take_pod(&mut self, pod: &Pod, listed: bool) -> Key {
        let key: Key = Arc::from(pod.uid());
        let Some(proxy) = Proxy::new(pod) else {
            self.remove_pod(&key);
            return key;
        };
        if !listed && self.pods.get(&key).is_some_and(|old| old.version > proxy.version) {
            return key;
        }
        if !proxy.node.is_empty() {
            self.by_node.entry(proxy.node.clone()).or_default().insert(Arc::clone(&key));
        }
        if proxy.node.is_empty() && proxy.is_granted {
            self.granted.insert(Arc::clone(&key));
        } else {
            self.granted.remove(&key);
        }
        if let Some(controller) = &proxy.controller {
            self.by_controller.entry(controller.clone()).or_default().insert(Arc::clone(&key));
        }
        self.pods.insert(Arc::clone(&key), Arc::new(proxy));
        key
    }

    /// Takes in the answer to a write. The watch may have shown the pod's end before the answer came.
    pub(crate) fn refresh_pod(&mut self, pod: &Pod) {
        if self.pods.contains_key(pod.uid()) {
            self.put_pod(pod);
        }
    }

    pub(crate) fn remove_pod(&mut self, key: &Key) {
        let Some(proxy) = self.pods.remove(key) else { return };
        self.granted.remove(key);
        take_out(&mut self.by_node, &proxy.node, key);
        take_out(&mut self.by_controller, proxy.controller.as_deref().unwrap_or_default(), key);
        self.memory.remove(key);
    }

    /// The complete list of a target's PodChaperons; returns what is to be looked at.
    pub(crate) fn replace_chaperons(&mut self, target: &TargetKey, chaperons: &[PodChaperon]) -> Vec<Key> {
        let there: BTreeSet<&str> = chaperons.iter().map(PodChaperon::uid).collect();
        let known = self.of_target.get(target).into_iter().flatten();
        let gone: Vec<String> =
            known.filter(|(uid, _)| !there.contains(uid.as_str())).map(|(uid, _)| uid.clone()).collect();
        let mut keys: BTreeSet<Key> =
            gone.iter().filter_map(|uid| self.remove_chaperon(target, uid)).collect();
        keys.extend(chaperons.iter().map(|chaperon| self.take_chaperon(target, chaperon, true)));
        let node = target.virtual_node();
        keys.extend(self.by_node.get(&node).into_iter().flatten().chain(&self.granted).cloned());
        keys.into_iter().collect()
    }

    pub(crate) fn put_chaperon(&mut self, target: &TargetKey, chaperon: &PodChaperon) -> Key {
        self.take_chaperon(target, chaperon, false)
    }

    fn take_chaperon(&mut self, target: &TargetKey, chaperon: &PodChaperon, listed: bool) -> Key {
        let new = Chaperon::new(target, chaperon);
        let key: Key = Arc::from(new.parent_uid.as_str());
        let of_parent = self.chaperons.entry(Arc::clone(&key)).or_default();
        let old = of_parent.iter().position(|old| old.uid == new.uid && old.target == *target);
        let memory = self.memory.entry(Arc::clone(&key)).or_default();
        if let Some(old) = old.and_then(|at| of_parent.get(at)) {
            if !listed && old.version > new.version {
                return key;
            }
            let lost =
                old.annotations.iter().filter(|(key, value)| new.annotations.get(*key) != Some(*value));
            memory.had.extend(lost.map(|(key, _)| key.clone()));
            memory.was_disrupted |= old.status.mentions(DISRUPTED) && !new.status.mentions(DISRUPTED);
            if old.status != new.status || old.annotations != new.annotations {
                memory.changed.get_or_insert_with(Instant::now);
            }
        }
        self.of_target.entry(target.clone()).or_default().insert(new.uid.clone(), Arc::clone(&key));
        let new = Arc::new(new);
        match old.and_then(|at| of_parent.get_mut(at)) {
            Some(slot) => *slot = new,
            None => of_parent.push(new),
        }
        key
    }

    /// Takes in the answer to a write. The watch may have shown the end of the object before the answer came.
    pub(crate) fn refresh_chaperon(&mut self, target: &TargetKey, chaperon: &PodChaperon) {
        if self.of_target.get(target).is_some_and(|known| known.contains_key(chaperon.uid())) {
            self.put_chaperon(target, chaperon);
        }
    }

    pub(crate) fn remove_chaperon(&mut self, target: &TargetKey, uid: &str) -> Option<Key> {
        let key = self.of_target.get_mut(target)?.remove(uid)?;
        let of_parent = self.chaperons.get_mut(&key)?;
        let at = of_parent.iter().position(|old| old.uid == uid && old.target == *target)?;
        let old = of_parent.swap_remove(at);
        if of_parent.is_empty() {
            self.chaperons.remove(&key);
        }
        if self.pods.contains_key(&key) {
            self.memory.entry(Arc::clone(&key)).or_default().last =
                Some((old.uid.clone(), old.status.clone()));
        } else if !self.chaperons.contains_key(&key) {
            self.memory.remove(&key);
        }
        Some(key)
    }

    /// How many PodChaperons are known in a target.
    pub(crate) fn count(&self, target: &TargetKey) -> usize {
        self.of_target.get(target).map_or(0, BTreeMap::len)
    }

    /// Those that stand behind the target's own virtual node.
    pub(crate) fn behind(&self, target: &TargetKey) -> Vec<Arc<Chaperon>> {
        let node = api::names::label_value(&target.virtual_node());
        let known = self.of_target.get(target).into_iter().flatten();
        let all = known.filter_map(|(_, parent)| self.chaperons.get(parent)).flatten();
        all.filter(|chaperon| chaperon.target == *target && chaperon.virtual_node == node).cloned().collect()
    }

    /// Those that a removed Target leaves: what was `first` there, and what came late. When a Target has its
    /// name again, what came later is that one's.
    pub(crate) fn left_behind(&self, target: &TargetKey, first: &BTreeSet<String>) -> Vec<Arc<Chaperon>> {
        let renewed = self.has_target(target);
        let all = self.behind(target).into_iter();
        all.filter(|chaperon| !renewed || first.contains(&chaperon.uid)).collect()
    }
}

fn take_out(index: &mut BTreeMap<String, BTreeSet<Key>>, name: &str, key: &Key) {
    let Some(keys) = index.get_mut(name) else { return };
    keys.remove(key);
    if keys.is_empty() {
        index.remove(name);
    }
}

#[cfg(test)]
mod tests;
