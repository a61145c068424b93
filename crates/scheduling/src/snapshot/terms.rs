use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::labels::Labels;
use crate::pod::{AffinityTerm, PodInfo, PodSpec, Weighted};
use crate::snapshot::counts::Counts;
use crate::snapshot::postings::Postings;
use crate::snapshot::slab::Slab;

/// What a pod that has a place thinks of the pods that its term is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Attitude {
    Requires,
    Prefers { weight: i64 },
    Forbids,
    Dislikes { weight: i64 },
}

/// A term of pods that have a place, counted by node.
#[derive(Debug, Clone)]
pub(crate) struct StandingTerm {
    key: TermKey,
    pods: u32,
    counts: Counts,
}

impl StandingTerm {
    pub(crate) fn attitude(&self) -> Attitude {
        self.key.attitude()
    }

    pub(crate) fn term(&self) -> &AffinityTerm {
        self.key.term()
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn is_anchored_at(&self, key: &str, value: &str) -> bool {
        self.term().selector.as_ref().is_some_and(|selector| selector.is_anchored_at(key, value))
    }
}

/// A term where it stands in the spec of one of its pods, which is kept for it.
#[derive(Debug, Clone)]
struct TermKey {
    spec: Arc<PodSpec>,
    list: List,
    index: u32,
}

/// The lists of terms that a spec has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum List {
    Requires,
    Prefers,
    Forbids,
    Dislikes,
}

impl TermKey {
    fn of(spec: &Arc<PodSpec>) -> impl Iterator<Item = Self> {
        let (near, far) = (&spec.affinity, &spec.anti_affinity);
        let lists = [
            (List::Requires, near.required.len()),
            (List::Forbids, far.required.len()),
            (List::Prefers, near.preferred.len()),
            (List::Dislikes, far.preferred.len()),
        ];
        let key = |list, index| Self { spec: Arc::clone(spec), list, index };
        lists.into_iter().flat_map(move |(list, count)| (0..).take(count).map(move |index| key(list, index)))
    }

    fn term(&self) -> &AffinityTerm {
        let (near, far) = (&self.spec.affinity, &self.spec.anti_affinity);
        match self.list {
            List::Requires => &near.required[self.index as usize],
            List::Forbids => &far.required[self.index as usize],
            List::Prefers => &near.preferred[self.index as usize].term,
            List::Dislikes => &far.preferred[self.index as usize].term,
        }
    }

    fn attitude(&self) -> Attitude {
        let weight =
            |terms: &[Weighted<AffinityTerm>]| terms.get(self.index as usize).map_or(0, |term| term.weight);
        match self.list {
            List::Requires => Attitude::Requires,
            List::Forbids => Attitude::Forbids,
            List::Prefers => Attitude::Prefers { weight: weight(&self.spec.affinity.preferred) },
            List::Dislikes => Attitude::Dislikes { weight: weight(&self.spec.anti_affinity.preferred) },
        }
    }
}

impl PartialEq for TermKey {
    fn eq(&self, other: &Self) -> bool {
        self.attitude() == other.attitude() && self.term() == other.term()
    }
}

impl Eq for TermKey {}

impl Hash for TermKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.attitude().hash(state);
        self.term().hash(state);
    }
}

/// The terms of all pods that have a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Terms {
    terms: Slab<StandingTerm>,
    hasher: DefaultHashBuilder,
    ids: HashTable<u32>,
    /// By labels one of which a pod must have for the term to be about it.
    by_label: Postings,
    /// Those that no single label rules out.
    unanchored: Vec<u32>,
}

impl Terms {
    fn find(&self, key: &TermKey) -> Option<u32> {
        let is = |id: &u32| self.terms.get(*id).is_some_and(|term| term.key == *key);
        self.ids.find(self.hasher.hash_one(key), is).copied()
    }

    pub(super) fn add(&mut self, pod: &PodInfo, slot: usize) {
        for key in TermKey::of(&pod.spec) {
            let id = match self.find(&key) {
                Some(id) => id,
                None => self.insert(&key),
            };
            if let Some(term) = self.terms.get_mut(id) {
                term.pods += 1;
                term.counts.add(slot);
            }
        }
    }

    fn insert(&mut self, key: &TermKey) -> u32 {
        let id = self.terms.insert(StandingTerm { key: key.clone(), pods: 0, counts: Counts::default() });
        match key.term().selector.as_ref().map(|selector| selector.anchor()) {
            // Without a selector the term is about nobody.
            None => {}
            Some(None) => self.unanchored.push(id),
            Some(Some((label, values))) => {
                values.iter().for_each(|value| self.by_label.add(label, value, id));
            }
        }
        let (terms, hasher) = (&self.terms, &self.hasher);
        let hash_of = |id: &u32| terms.get(*id).map_or(0, |term| hasher.hash_one(&term.key));
        self.ids.insert_unique(hasher.hash_one(key), id, hash_of);
        id
    }

    pub(super) fn remove(&mut self, pod: &PodInfo, slot: usize) {
        for key in TermKey::of(&pod.spec) {
            let Some(id) = self.find(&key) else { continue };
            let Some(term) = self.terms.get_mut(id) else { continue };
            term.counts.remove(slot);
            term.pods -= 1;
            if term.pods == 0 {
                self.forget(&key, id);
            }
        }
    }

    fn forget(&mut self, key: &TermKey, id: u32) {
        if let Ok(place) = self.ids.find_entry(self.hasher.hash_one(key), |known| *known == id) {
            place.remove();
        }
        self.terms.remove(id);
        match key.term().selector.as_ref().map(|selector| selector.anchor()) {
            None => {}
            Some(None) => self.unanchored.retain(|other| *other != id),
            Some(Some((label, values))) => {
                values.iter().for_each(|value| self.by_label.remove(label, value, id));
            }
        }
    }

    /// Terms among which are all that are about a pod with these labels, each once.
    pub(super) fn candidates<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = &'a StandingTerm> {
        let posted = labels.iter().flat_map(|(key, value)| {
            let terms = self.by_label.get(key, value).iter().filter_map(|id| self.terms.get(*id));
            terms.filter(move |term| term.is_anchored_at(key, value))
        });
        posted.chain(self.unanchored.iter().filter_map(|id| self.terms.get(*id)))
    }
}
