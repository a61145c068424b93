//! Scores that others publish about targets, such as what a pod costs there: one more voice beside preferred
//! constraints and free room.
//!
//! Each score is weighed like the score of a plugin: from 0 to 100, times its weight. A score that is too old says
//! nothing, and a target of which a score says nothing stands in the middle of those of which it says something.

use super::choose::Choice;
use super::model::{Id, ScoreSeen};
use super::{Machine, Timer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How much a score counts if nobody says.
const WEIGHT: u32 = 1;

/// A target by namespace (empty for all) and name of its object.
type Place = (String, Id);

/// Whether a published score counts; a label of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It does, where its weight is not 0.
    Counts,
    /// A newer one of the same target does instead.
    Replaced,
    /// It is too old.
    Expired,
    /// There is no such target.
    NoTarget,
}

/// One published score.
#[derive(Debug)]
struct Entry {
    seen: ScoreSeen,
    /// By our own clock.
    until: Duration,
}

/// All published scores.
#[derive(Debug, Default)]
pub(super) struct Scores {
    /// They have been listed.
    pub(super) listed: bool,
    /// How much each counts, by name, unless the pod says otherwise.
    weights: BTreeMap<String, u32>,
    /// By name of the object.
    entries: BTreeMap<Id, Entry>,
    /// By score and target, the objects about them, the newest first.
    index: BTreeMap<Id, BTreeMap<Place, Vec<Id>>>,
}

impl Scores {
    fn set(&mut self, seen: ScoreSeen, now: Duration) {
        self.remove(&Arc::clone(&seen.object));
        let object = Arc::clone(&seen.object);
        let until = now + seen.left;
        let place = (seen.namespace.clone(), Arc::clone(&seen.target));
        let objects = self.index.entry(Arc::clone(&seen.score)).or_default().entry(place).or_default();
        objects.push(Arc::clone(&object));
        self.entries.insert(object, Entry { seen, until });
        let entries = &self.entries;
        let newest = |id: &Id| entries.get(id).map(|entry| std::cmp::Reverse(entry.seen.observed));
        objects.sort_by(|a, b| (newest(a), a).cmp(&(newest(b), b)));
    }

    fn remove(&mut self, object: &Id) {
        let Some(old) = self.entries.remove(object) else { return };
        let Some(targets) = self.index.get_mut(&old.seen.score) else { return };
        let place = (old.seen.namespace, old.seen.target);
        if let Some(objects) = targets.get_mut(&place) {
            objects.retain(|other| other != object);
            if objects.is_empty() {
                targets.remove(&place);
            }
        }
        if targets.is_empty() {
            self.index.remove(&old.seen.score);
        }
    }

    /// What counts of a score for a target: the newest, unless it is too old.
    fn value(&self, objects: &[Id], now: Duration) -> Option<i64> {
        let entry = self.entries.get(objects.first()?)?;
        (entry.until > now).then_some(i64::from(entry.seen.value))
    }
}

impl Machine {
    /// How much each score counts, by name, unless a pod says otherwise; 1 for those that are not named.
    pub fn weigh_scores(&mut self, weights: BTreeMap<String, u32>) {
        self.scores.weights = weights;
    }

    pub(super) fn scores_replaced(&mut self, seen: Vec<ScoreSeen>, now: Duration) {
        self.scores.entries.clear();
        self.scores.index.clear();
        seen.into_iter().for_each(|score| self.score_applied(score, now));
        if !std::mem::replace(&mut self.scores.listed, true) {
            self.touch_all();
        }
    }

    /// Who is asked already stays asked: a score decides where the next pod goes first, and nothing else.
    pub(super) fn score_applied(&mut self, seen: ScoreSeen, now: Duration) {
        self.arm(now + seen.left, Timer::Score);
        self.scores.set(seen, now);
    }

    pub(super) fn score_deleted(&mut self, object: &Id) {
        self.scores.remove(object);
    }

    /// Adds what is published about each target.
    pub(super) fn score_in(&self, weights: &BTreeMap<String, u32>, choices: &mut [Choice], now: Duration) {
        for (score, targets) in &self.scores.index {
            let weight = weights.get(&**score).or_else(|| self.scores.weights.get(&**score));
            let weight = i64::from(weight.copied().unwrap_or(WEIGHT));
            if weight == 0 {
                continue;
            }
            let value = |choice: &Choice| {
                let target = &self.targets.get(&choice.id)?.seen;
                let place = (target.namespace.clone(), Arc::clone(&target.name));
                self.scores.value(targets.get(&place)?, now)
            };
            let values: Vec<Option<i64>> = choices.iter().map(value).collect();
            let known: Vec<i64> = values.iter().flatten().copied().collect();
            let Some(middle) = known.iter().sum::<i64>().checked_div(i64::try_from(known.len()).unwrap_or(1))
            else {
                continue;
            };
            for (choice, value) in choices.iter_mut().zip(values) {
                choice.prefer(value.unwrap_or(middle) * weight);
            }
        }
    }

    /// How many published scores count, and how many do not, by why.
    #[must_use]
    pub fn score_standings(&self, now: Duration) -> BTreeMap<Standing, i64> {
        let mut counts = BTreeMap::new();
        if self.scores.index.is_empty() {
            return counts;
        }
        let places: BTreeSet<(&str, &str)> = self
            .targets
            .values()
            .map(|target| (target.seen.namespace.as_str(), &*target.seen.name))
            .collect();
        for targets in self.scores.index.values() {
            for ((namespace, target), objects) in targets {
                for (rank, object) in objects.iter().enumerate() {
                    let fresh = self.scores.entries.get(object).is_some_and(|entry| entry.until > now);
                    let standing = match (places.contains(&(namespace.as_str(), &**target)), rank, fresh) {
                        (false, ..) => Standing::NoTarget,
                        (true, 0, true) => Standing::Counts,
                        (true, 0, false) => Standing::Expired,
                        (true, ..) => Standing::Replaced,
                    };
                    *counts.entry(standing).or_default() += 1;
                }
            }
        }
        counts
    }
}
