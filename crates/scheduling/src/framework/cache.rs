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
    /// The class of the pod before, if that was the first of its class; its columns are used again.
    last: Option<(u64, Class)>,
    uses: u64,
}

/// So many classes are kept, those used last.
const CLASSES: usize = 128;
/// So many classes that were seen once are remembered.
const SEEN: usize = 4096;

impl Cache {
    /// The class of a pod, with what is known of it.
    pub(super) fn class(&mut self, spec: &Arc<PodSpec>) -> &mut Class {
        self.uses += 1;
        let key = spec.class();
        if !self.classes.contains_key(&key) {
            if self.seen.insert(key) {
                if self.seen.len() > SEEN {
                    self.seen = HashSet::from([key]);
                }
                return self.first(key, spec);
            }
            self.make_room();
            if let Some((key, class)) = self.last.take_if(|(last, _)| *last == key) {
                self.classes.insert(key, class);
            }
        }
        let class = self.classes.entry(key).or_insert_with(|| Class::new(spec));
        if !Arc::ptr_eq(&class.spec, spec) && class.spec != *spec {
            *class = Class::new(spec);
        }
        class.used = self.uses;
        class
    }

    /// A new class, which is forgotten when the next one comes.
    fn first(&mut self, key: u64, spec: &Arc<PodSpec>) -> &mut Class {
        let (known, class) = self.last.get_or_insert_with(|| (key, Class::new(spec)));
        *known = key;
        class.begin(spec);
        class
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

/// So many slots are looked at together when the best of all is looked for.
const BLOCK: usize = 128;

/// What is known of the nodes for the pods of one class.
#[derive(Debug)]
pub(super) struct Class {
    spec: Arc<PodSpec>,
    used: u64,
    seen: Option<Moment>,
    /// By slot: the sum of the weighted scores that are final, [`REFUSED`] where no filter needs to be asked.
    pub(super) fixed: Vec<i64>,
    /// The largest of each block of [`Self::fixed`], and whether it must be looked for again.
    tops: Vec<(i64, bool)>,
    /// How many slots are not refused.
    feasible: usize,
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
        let (fixed, tops, raw) = (Vec::new(), Vec::new(), Vec::new());
        Self { spec: Arc::clone(spec), used: 0, seen: None, fixed, tops, feasible: 0, raw }
    }

    /// Forgets everything, and begins with another class.
    fn begin(&mut self, spec: &Arc<PodSpec>) {
        self.spec = Arc::clone(spec);
        self.seen = None;
        self.clear();
    }

    fn clear(&mut self) {
        self.fixed.clear();
        self.tops.clear();
        self.feasible = 0;
        self.raw.iter_mut().for_each(|raw| raw.scores.clear());
    }

    /// Asks about every node that changed since this was last done.
    pub(super) fn refresh(&mut self, judges: &Judges<'_>, snapshot: &Snapshot) {
        let seen = self.seen.replace(snapshot.moment());
        let changed = seen.as_ref().and_then(|moment| snapshot.changed_since(moment));
        if changed.is_none() {
            self.clear();
        }
        self.make_place(judges, snapshot);
        match changed {
            Some(changed) => changed.for_each(|slot| self.judge(slot, judges, snapshot)),
            None => (0..self.fixed.len()).for_each(|slot| self.judge(slot, judges, snapshot)),
        }
    }

    /// What is known of these nodes alone.
    pub(super) fn of(spec: &Arc<PodSpec>, judges: &Judges<'_>, snapshot: &Snapshot, nodes: &[&Node]) -> Self {
        let mut class = Self::new(spec);
        class.make_place(judges, snapshot);
        nodes.iter().for_each(|node| class.judge(node.slot(), judges, snapshot));
        class
    }

    fn make_place(&mut self, judges: &Judges<'_>, snapshot: &Snapshot) {
        let slots = snapshot.slot_count();
        self.raw.resize_with(judges.scorers.len(), Raw::default);
        self.fixed.resize(slots, REFUSED);
        self.tops.resize(slots.div_ceil(BLOCK), (REFUSED, false));
    }

    /// The first slot with the largest sum, and that sum; whether another is feasible besides. None if none is.
    pub(super) fn best(&mut self) -> Option<(usize, i64, bool)> {
        for (block, (top, stale)) in self.fixed.chunks(BLOCK).zip(&mut self.tops) {
            if std::mem::take(stale) {
                *top = block.iter().copied().max().unwrap_or(REFUSED);
            }
        }
        let max = self.tops.iter().map(|(top, _)| *top).max().filter(|max| *max != REFUSED)?;
        let block = self.tops.iter().position(|(top, _)| *top == max)? * BLOCK;
        let within = self.fixed.get(block..)?.iter().position(|score| *score == max)?;
        Some((block + within, max, self.feasible > 1))
    }

    /// The slots of the nodes that no filter of single nodes refuses.
    pub(super) fn feasible(&self) -> impl Iterator<Item = usize> {
        self.fixed.iter().enumerate().filter(|(_, score)| **score != REFUSED).map(|(slot, _)| slot)
    }

    fn judge(&mut self, slot: usize, judges: &Judges<'_>, snapshot: &Snapshot) {
        let node = snapshot.node_at(slot).filter(|node| judges.admits(node));
        let Some(node) = node else {
            self.set(slot, REFUSED);
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
        self.set(slot, fixed);
    }

    fn set(&mut self, slot: usize, fixed: i64) {
        let Some(place) = self.fixed.get_mut(slot) else { return };
        let old = std::mem::replace(place, fixed);
        self.feasible = self.feasible + usize::from(fixed != REFUSED) - usize::from(old != REFUSED);
        if let Some((top, stale)) = self.tops.get_mut(slot / BLOCK) {
            // What was the largest may be so no more.
            *stale |= old == *top && fixed < old;
            *top = fixed.max(*top);
        }
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
