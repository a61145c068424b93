use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::labels::Labels;
use crate::pod::PodInfo;
use crate::selector::LabelSelector;
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
    hasher: DefaultHashBuilder,
    ids: HashTable<u32>,
    by_label: Postings,
}

impl Groups {
    fn find(&self, likeness: &Likeness) -> Option<u32> {
        let is = |id: &u32| self.groups.get(*id).is_some_and(|group| group.likeness == *likeness);
        self.ids.find(self.hasher.hash_one(likeness), is).copied()
    }

    pub(super) fn add(&mut self, pod: &Arc<PodInfo>, slot: usize) {
        let likeness = Likeness(Arc::clone(pod));
        let id = match self.find(&likeness) {
            Some(id) => id,
            None => self.insert(&likeness),
        };
        if let Some(group) = self.groups.get_mut(id) {
            group.pods += 1;
            group.counts.add(slot);
        }
    }

    fn insert(&mut self, likeness: &Likeness) -> u32 {
        let hash = self.hasher.hash_one(likeness);
        let group = Group { likeness: likeness.clone(), pods: 0, counts: Counts::default() };
        let id = self.groups.insert(group);
        for (key, value) in &likeness.0.spec.labels {
            self.by_label.add(key, value, id);
        }
        let (groups, hasher) = (&self.groups, &self.hasher);
        let hash_of = |id: &u32| groups.get(*id).map_or(0, |group| hasher.hash_one(&group.likeness));
        self.ids.insert_unique(hash, id, hash_of);
        id
    }

    pub(super) fn remove(&mut self, pod: &Arc<PodInfo>, slot: usize) {
        let likeness = Likeness(Arc::clone(pod));
        let Some(id) = self.find(&likeness) else { return };
        let Some(group) = self.groups.get_mut(id) else { return };
        group.counts.remove(slot);
        group.pods -= 1;
        if group.pods == 0 {
            if let Ok(place) = self.ids.find_entry(self.hasher.hash_one(&likeness), |known| *known == id) {
                place.remove();
            }
            self.groups.remove(id);
            for (key, value) in &pod.spec.labels {
                self.by_label.remove(key, value, id);
            }
        }
    }

    /// Groups among which are all whose labels the selector matches, each once.
    pub(super) fn candidates(&self, selector: &LabelSelector) -> impl Iterator<Item = &Group> {
        let anchor = selector.anchor();
        let all = anchor.is_none().then(|| self.groups.iter());
        let posted = anchor.map(|(key, values)| {
            values.iter().flat_map(move |value| {
                let groups = self.by_label.get(key, value).iter().filter_map(|id| self.groups.get(*id));
                groups.filter(move |group| group.labels().get(key) == Some(value.as_str()))
            })
        });
        all.into_iter().flatten().chain(posted.into_iter().flatten())
    }
}
