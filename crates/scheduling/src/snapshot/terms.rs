use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::pod::{AffinityTerm, PodInfo, PodSpec};
use crate::selector::Labels;
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
        self.key.attitude
    }

    pub(crate) fn term(&self) -> &AffinityTerm {
        self.key.term()
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// A term where it stands in the spec of one of its pods, which is kept for it.
#[derive(Debug, Clone)]
struct TermKey {
    spec: Arc<PodSpec>,
    attitude: Attitude,
    index: usize,
}

impl TermKey {
    fn of(spec: &Arc<PodSpec>) -> impl Iterator<Item = Self> {
        let key = |attitude, index| Self { spec: Arc::clone(spec), attitude, index };
        let (near, far) = (&spec.affinity, &spec.anti_affinity);
        let requires = (0..near.required.len()).map(move |index| key(Attitude::Requires, index));
        let forbids = (0..far.required.len()).map(move |index| key(Attitude::Forbids, index));
        let prefers = near.preferred.iter().enumerate();
        let prefers = prefers.map(move |(index, term)| key(Attitude::Prefers { weight: term.weight }, index));
        let dislikes = far.preferred.iter().enumerate();
        let dislikes =
            dislikes.map(move |(index, term)| key(Attitude::Dislikes { weight: term.weight }, index));
        requires.chain(forbids).chain(prefers).chain(dislikes)
    }

    fn term(&self) -> &AffinityTerm {
        let (near, far) = (&self.spec.affinity, &self.spec.anti_affinity);
        match self.attitude {
            Attitude::Requires => &near.required[self.index],
            Attitude::Forbids => &far.required[self.index],
            Attitude::Prefers { .. } => &near.preferred[self.index].term,
            Attitude::Dislikes { .. } => &far.preferred[self.index].term,
        }
    }
}

impl PartialEq for TermKey {
    fn eq(&self, other: &Self) -> bool {
        self.attitude == other.attitude && self.term() == other.term()
    }
}

impl Eq for TermKey {}

impl Hash for TermKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.attitude.hash(state);
        self.term().hash(state);
    }
}

/// The terms of all pods that have a place.
#[derive(Debug, Clone, Default)]
pub(super) struct Terms {
    terms: Slab<StandingTerm>,
    ids: HashMap<TermKey, u32>,
    /// By labels one of which a pod must have for the term to be about it.
    by_label: Postings,
    /// Those that no single label rules out.
    unanchored: Vec<u32>,
}

impl Terms {
    pub(super) fn add(&mut self, pod: &PodInfo, slot: usize) {
        for key in TermKey::of(&pod.spec) {
            let id = match self.ids.get(&key) {
                Some(id) => *id,
                None => self.insert(key),
            };
            if let Some(term) = self.terms.get_mut(id) {
                term.pods += 1;
                term.counts.add(slot);
            }
        }
    }

    fn insert(&mut self, key: TermKey) -> u32 {
        let id = self.terms.insert(StandingTerm { key: key.clone(), pods: 0, counts: Counts::default() });
        match key.term().selector.as_ref().map(|selector| selector.anchor()) {
            // Without a selector the term is about nobody.
            None => {}
            Some(None) => self.unanchored.push(id),
            Some(Some((label, values))) => {
                values.iter().for_each(|value| self.by_label.add(label, value, id));
            }
        }
        self.ids.insert(key, id);
        id
    }

    pub(super) fn remove(&mut self, pod: &PodInfo, slot: usize) {
        for key in TermKey::of(&pod.spec) {
            let Some(&id) = self.ids.get(&key) else { continue };
            let Some(term) = self.terms.get_mut(id) else { continue };
            term.counts.remove(slot);
            term.pods -= 1;
            if term.pods == 0 {
                self.forget(&key, id);
            }
        }
    }

    fn forget(&mut self, key: &TermKey, id: u32) {
        self.terms.remove(id);
        self.ids.remove(key);
        match key.term().selector.as_ref().map(|selector| selector.anchor()) {
            None => {}
            Some(None) => self.unanchored.retain(|other| *other != id),
            Some(Some((label, values))) => {
                values.iter().for_each(|value| self.by_label.remove(label, value, id));
            }
        }
    }

    /// Terms among which are all that are about a pod with these labels.
    pub(super) fn candidates<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = &'a StandingTerm> {
        let posted = labels.iter().flat_map(|(key, value)| self.by_label.get(key, value));
        posted.chain(&self.unanchored).filter_map(|id| self.terms.get(*id))
    }
}
