use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::text::Text;

/// The domains into which one node label divides the nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Topology {
    key: Arc<str>,
    /// The domain of each slot, [`NOWHERE`] if the node lacks the label or does not exist.
    places: Vec<u32>,
    hasher: DefaultHashBuilder,
    /// Numbers of domains by their values.
    ids: HashTable<u32>,
    domains: Vec<Domain>,
    free: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Domain {
    value: Text,
    nodes: u32,
}

/// Stands for no domain.
const NOWHERE: u32 = u32::MAX;

impl Topology {
    pub(super) fn new(key: &str) -> Self {
        Self { key: Arc::from(key), ..Self::default() }
    }

    pub(crate) fn key(&self) -> &Arc<str> {
        &self.key
    }

    /// The domain of a node. None if it has none.
    pub(crate) fn place(&self, slot: usize) -> Option<usize> {
        self.places.get(slot).filter(|place| **place != NOWHERE).map(|place| *place as usize)
    }

    /// More than the largest number of a domain.
    pub(crate) fn bound(&self) -> usize {
        self.domains.len()
    }

    /// Puts a node into the domain of its value.
    pub(super) fn set(&mut self, slot: usize, value: Option<&Text>) {
        if let Some(old) = self.place(slot) {
            if self.domains.get(old).map(|domain| &domain.value) == value {
                return;
            }
            self.leave(old);
        }
        if self.places.len() <= slot {
            self.places.resize(slot + 1, NOWHERE);
        }
        let place = value.map_or(NOWHERE, |value| self.enter(value));
        self.places[slot] = place;
    }

    fn leave(&mut self, place: usize) {
        let Some(domain) = self.domains.get_mut(place) else { return };
        domain.nodes -= 1;
        if domain.nodes > 0 {
            return;
        }
        let hash = self.hasher.hash_one(domain.value.as_str());
        if let Ok(id) = self.ids.find_entry(hash, |id| *id as usize == place) {
            id.remove();
        }
        self.free.extend(u32::try_from(place));
    }

    fn enter(&mut self, value: &Text) -> u32 {
        let hash = self.hasher.hash_one(value.as_str());
        let domains = &self.domains;
        let is = |id: &u32| domains.get(*id as usize).is_some_and(|domain| domain.value == *value);
        if let Some(&place) = self.ids.find(hash, is) {
            self.domains[place as usize].nodes += 1;
            return place;
        }
        let domain = Domain { value: value.clone(), nodes: 1 };
        let place = match self.free.pop() {
            Some(place) => place,
            None => u32::try_from(self.domains.len()).unwrap_or(NOWHERE),
        };
        match self.domains.get_mut(place as usize) {
            Some(gap) => *gap = domain,
            None => self.domains.push(domain),
        }
        let (domains, hasher) = (&self.domains, &self.hasher);
        let hash_of =
            |id: &u32| domains.get(*id as usize).map_or(0, |domain| hasher.hash_one(domain.value.as_str()));
        self.ids.insert_unique(hash, place, hash_of);
        place
    }
}
