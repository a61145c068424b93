use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::framework::{NodeFilter, NodeScore, Scale};
use crate::pod::PodSpec;
use crate::snapshot::{Moment, Node, Snapshot};

/// What plugins of [`Scope::Node`](crate::Scope::Node) said of the nodes, kept for classes of equal pods, so that the
/// next pod of a class asks only about the nodes that changed meanwhile.
///
/// Used with one framework, or with several of which the pod's spec chooses one, and with one snapshot at a time; it
/// notices when it meets another snapshot.
#[derive(Debug, Default)]
pub struct Cache {
    classes: HashMap<u64, Class>,
    /// Classes of which one pod was seen. Whoever comes once is not kept.
    seen: HashSet<u64>,
    uses: u64,
}

/// So many classes are kept, those used last.
const CLASSES: usize = 128;
/// So many classes that were seen once are remembered.
const SEEN: usize = 4096;

impl Cache {
    /// The class of a pod, new if it was not kept. `None`: it is not worth keeping yet.
    pub(super) fn class(&mut self, spec: &Arc<PodSpec>) -> Option<&mut Class> {
        self.uses += 1;
        let key = spec.class();
        if !self.classes.contains_key(&key) {
            if self.seen.insert(key) {
                if self.seen.len() > SEEN {
                    self.seen = HashSet::from([key]);
                }
                return None;
            }
            self.make_room();
        }
        let class = self.classes.entry(key).or_insert_with(|| Class::new(spec));
        if !Arc::ptr_eq(&class.spec, spec) && class.spec != *spec {
            *class = Class::new(spec);
        }
        class.used = self.uses;
        Some(class)
    }

    fn make_room(&mut self) {
        while self.classes.len() >= CLASSES {
            let oldest = self.classes.iter().min_by_key(|(_, class)| class.used);
            let Some(key) = oldest.map(|(key, _)| *key) else { return };
            self.classes.remove(&key);
        }
    }
}

/// Stands for a node that a filter refuses, or that does not exist.
pub(super) const REFUSED: i64 = i64::MIN;

/// What is known of the nodes for the pods of one class.
#[derive(Debug)]
pub(super) struct Class {
    spec: Arc<PodSpec>,
    used: u64,
    seen: Option<Moment>,
    /// By slot: the sum of the weighted scores that are final, [`REFUSED`] where no filter needs to be asked.
    pub(super) fixed: Vec<i64>,
    /// Raw scores that are scaled over the feasible nodes.
    pub(super) raw: Vec<Raw>,
}

/// The raw scores that one plugin gave.
#[derive(Debug, Default)]
pub(super) struct Raw {
    /// By slot. Empty while all are zero.
    pub(super) scores: Vec<i64>,
}

/// The plugins of one framework that judge single nodes, prepared for one pod.
pub(super) struct Judges<'a> {
    pub(super) filters: Vec<Box<dyn NodeFilter + 'a>>,
    /// With their weights.
    pub(super) scorers: Vec<(Box<dyn NodeScore + 'a>, i64)>,
}

impl Judges<'_> {
    pub(super) fn admits(&self, node: &Node) -> bool {
        self.filters.iter().all(|filter| filter.admits(node))
    }
}

impl Class {
    pub(super) fn new(spec: &Arc<PodSpec>) -> Self {
        Self { spec: Arc::clone(spec), used: 0, seen: None, fixed: Vec::new(), raw: Vec::new() }
    }

    /// Asks about every node that changed since this was last done.
    pub(super) fn refresh(&mut self, judges: &Judges<'_>, snapshot: &Snapshot) {
        self.raw.resize_with(judges.scorers.len(), Raw::default);
        self.fixed.resize(snapshot.slot_count(), REFUSED);
        let seen = self.seen.replace(snapshot.moment());
        let changed = seen.as_ref().and_then(|moment| snapshot.changed_since(moment));
        match changed {
            Some(changed) => changed.for_each(|slot| self.judge(slot, judges, snapshot)),
            None => (0..self.fixed.len()).for_each(|slot| self.judge(slot, judges, snapshot)),
        }
    }

    /// What is known of these nodes alone.
    pub(super) fn of(spec: &Arc<PodSpec>, judges: &Judges<'_>, snapshot: &Snapshot, nodes: &[&Node]) -> Self {
        let mut class = Self::new(spec);
        class.raw.resize_with(judges.scorers.len(), Raw::default);
        class.fixed.resize(snapshot.slot_count(), REFUSED);
        nodes.iter().for_each(|node| class.judge(node.slot(), judges, snapshot));
        class
    }

    /// The slots of the nodes that no filter of single nodes refuses.
    pub(super) fn feasible(&self) -> impl Iterator<Item = usize> {
        self.fixed.iter().enumerate().filter(|(_, score)| **score != REFUSED).map(|(slot, _)| slot)
    }

    fn judge(&mut self, slot: usize, judges: &Judges<'_>, snapshot: &Snapshot) {
        let node = snapshot.node_at(slot).filter(|node| judges.admits(node));
        let Some(node) = node else {
            self.fixed[slot] = REFUSED;
            self.raw.iter_mut().for_each(|raw| raw.set(slot, 0));
            return;
        };
        let mut fixed = 0;
        for ((scorer, weight), raw) in judges.scorers.iter().zip(&mut self.raw) {
            match scorer.scale() {
                Scale::Identity => fixed += scorer.score(node) * weight,
                Scale::Largest { .. } | Scale::Own => raw.set(slot, scorer.score(node)),
            }
        }
        self.fixed[slot] = fixed;
    }
}

impl Raw {
    fn set(&mut self, slot: usize, score: i64) {
        if score == 0 && self.scores.len() <= slot {
            return;
        }
        if self.scores.len() <= slot {
            self.scores.resize(slot + 1, 0);
        }
        self.scores[slot] = score;
    }

    pub(super) fn get(&self, slot: usize) -> i64 {
        self.scores.get(slot).copied().unwrap_or_default()
    }
}
