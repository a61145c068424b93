use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::pod::PodInfo;
use crate::selector::{LabelSelector, Labels};
use crate::snapshot::counts::Counts;
use crate::snapshot::postings::Postings;
use crate::snapshot::slab::Slab;

/// Pods that no selector tells apart, counted by node.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    likeness: Likeness,
    pods: u32,
    counts: Counts,
}

impl Group {
    pub(crate) fn namespace(&self) -> &Arc<str> {
        &self.likeness.0.namespace
    }

    pub(crate) fn labels(&self) -> &Labels {
        &self.likeness.0.spec.labels
    }

    pub(crate) fn terminating(&self) -> bool {
        self.likeness.0.terminating
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// One pod that stands for all that look like it.
#[derive(Debug, Clone)]
struct Likeness(Arc<PodInfo>);

impl PartialEq for Likeness {
    fn eq(&self, other: &Self) -> bool {
        let (one, two) = (&self.0, &other.0);
        let same_labels = Arc::ptr_eq(&one.spec, &two.spec) || one.spec.labels == two.spec.labels;
        one.terminating == two.terminating && one.namespace == two.namespace && same_labels
    }
}

impl Eq for Likeness {}

impl Hash for Likeness {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.namespace.hash(state);
        self.0.terminating.hash(state);
        self.0.spec.labels.hash(state);
    }
}

/// Every placed pod, by its likeness.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    groups: Slab<Group>,
    ids: HashMap<Likeness, u32>,
    by_label: Postings,
}

impl Groups {
    pub(super) fn add(&mut self, pod: &Arc<PodInfo>, slot: usize) {
        let likeness = Likeness(Arc::clone(pod));
        let id = match self.ids.get(&likeness) {
            Some(id) => *id,
            None => {
                let id = self.groups.insert(Group {
                    likeness: likeness.clone(),
                    pods: 0,
                    counts: Counts::default(),
                });
                for (key, value) in &pod.spec.labels {
                    self.by_label.add(key, value, id);
                }
                self.ids.insert(likeness, id);
                id
            }
        };
        if let Some(group) = self.groups.get_mut(id) {
            group.pods += 1;
            group.counts.add(slot);
        }
    }

    pub(super) fn remove(&mut self, pod: &Arc<PodInfo>, slot: usize) {
        let likeness = Likeness(Arc::clone(pod));
        let Some(&id) = self.ids.get(&likeness) else { return };
        let Some(group) = self.groups.get_mut(id) else { return };
        group.counts.remove(slot);
        group.pods -= 1;
        if group.pods == 0 {
            self.groups.remove(id);
            self.ids.remove(&likeness);
            for (key, value) in &pod.spec.labels {
                self.by_label.remove(key, value, id);
            }
        }
    }

    /// Groups among which are all whose labels the selector matches.
    pub(super) fn candidates(&self, selector: &LabelSelector) -> impl Iterator<Item = &Group> {
        let anchor = selector.anchor();
        let all = anchor.is_none().then(|| self.groups.iter());
        let posted = anchor.map(|(key, values)| {
            let ids = values.iter().flat_map(|value| self.by_label.get(key, value));
            ids.filter_map(|id| self.groups.get(*id))
        });
        all.into_iter().flatten().chain(posted.into_iter().flatten())
    }
}
