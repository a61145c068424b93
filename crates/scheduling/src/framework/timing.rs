//! How long plugins take. The framework has no clock: whoever wants to know brings one.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::framework::{NodeFilter, NodeScore, Rejection, Scale};
use crate::pod::PodInfo;
use crate::snapshot::Node;

/// An extension point, as upstream's metrics name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
}

impl Point {
    pub const ALL: [Self; 5] = [Self::PreFilter, Self::Filter, Self::PostFilter, Self::PreScore, Self::Score];

    /// The name by which metrics know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
        }
    }
}

/// Measures the work of plugins in some of all cycles.
pub trait Stopwatch: Send + Sync {
    /// Nanoseconds since any fixed origin.
    fn now(&self) -> u64;

    /// What a plugin took at one point in one cycle, for all nodes together, and whether it rejected anything.
    fn plugin(&self, plugin: &'static str, point: Point, nanoseconds: u64, rejected: bool);

    /// What all plugins of a profile took at one point in one cycle.
    fn point(&self, point: Point, nanoseconds: u64, rejected: bool);

    /// What a plugin took to say whether an event, known by its name, is a reason to try a pod again, and whether it is.
    fn hint(&self, plugin: &'static str, event: &'static str, nanoseconds: u64, again: bool);
}

/// How often a plugin was asked at each of the [`Point`]s since that was last read, once a cycle.
#[derive(Debug, Default)]
pub(super) struct Tally([AtomicU64; Point::ALL.len()]);

impl Tally {
    pub(super) fn count(&self, point: Point) {
        if let Some(count) = self.0.get(point as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those that are not zero; they are, afterwards.
    pub(super) fn take(&self) -> impl Iterator<Item = (Point, u64)> {
        let counts = self.0.iter().map(|count| count.swap(0, Ordering::Relaxed));
        Point::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }
}

/// One cycle in so many is measured, as upstream does.
const EVERY: u64 = 10;

/// A stopwatch, and how many cycles it has seen.
pub(super) struct Watch {
    stopwatch: Arc<dyn Stopwatch>,
    cycles: AtomicU64,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("cycles", &self.cycles).finish_non_exhaustive()
    }
}

impl Watch {
    pub(super) fn new(stopwatch: Arc<dyn Stopwatch>) -> Self {
        Self { stopwatch, cycles: AtomicU64::new(0) }
    }

    /// Measures a plugin's answer to an event.
    pub(super) fn hint(
        &self,
        (plugin, event): (&'static str, &'static str),
        ask: impl FnOnce() -> bool,
    ) -> bool {
        let begin = self.stopwatch.now();
        let again = ask();
        self.stopwatch.hint(plugin, event, self.stopwatch.now().saturating_sub(begin), again);
        again
    }

    /// The measurement of a cycle that begins, if it is one of those that are measured.
    pub(super) fn lap(&self) -> Option<Lap<'_>> {
        let number = self.cycles.fetch_add(1, Ordering::Relaxed);
        number.is_multiple_of(EVERY).then(|| Lap { stopwatch: &*self.stopwatch, sums: Default::default() })
    }
}

/// The measurement of one cycle. What all plugins took together is told at its end.
pub(super) struct Lap<'w> {
    stopwatch: &'w dyn Stopwatch,
    sums: [Cell<Sum>; Point::ALL.len()],
}

/// What was measured so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    nanoseconds: u64,
    rejected: bool,
    happened: bool,
}

impl Lap<'_> {
    /// Measures one plugin's work at one point.
    pub(super) fn time<T>(
        &self,
        (plugin, point): (&'static str, Point),
        rejects: impl Fn(&T) -> bool,
        work: impl FnOnce() -> T,
    ) -> T {
        let begin = self.stopwatch.now();
        let done = work();
        let taken = self.stopwatch.now().saturating_sub(begin);
        self.add(plugin, point, taken, rejects(&done));
        done
    }

    /// Measures the work of a plugin that may have nothing to say. Then it is not counted.
    pub(super) fn time_if<T>(
        &self,
        (plugin, point): (&'static str, Point),
        counts: impl Fn(&T) -> bool,
        work: impl FnOnce() -> T,
    ) -> T {
        let begin = self.stopwatch.now();
        let done = work();
        if counts(&done) {
            self.add(plugin, point, self.stopwatch.now().saturating_sub(begin), false);
        }
        done
    }

    fn add(&self, plugin: &'static str, point: Point, nanoseconds: u64, rejected: bool) {
        self.stopwatch.plugin(plugin, point, nanoseconds, rejected);
        let Some(cell) = self.sums.get(point as usize) else { return };
        let sum = cell.get();
        cell.set(Sum {
            nanoseconds: sum.nanoseconds.saturating_add(nanoseconds),
            rejected: sum.rejected || rejected,
            happened: true,
        });
    }
}

impl Drop for Lap<'_> {
    fn drop(&mut self) {
        for (point, sum) in Point::ALL.into_iter().zip(&self.sums) {
            let sum = sum.get();
            if sum.happened {
                self.stopwatch.point(point, sum.nanoseconds, sum.rejected);
            }
        }
    }
}

/// A filter or score that is measured, node by node.
pub(super) struct Timed<'a, T> {
    inner: T,
    plugin: &'static str,
    point: Point,
    lap: &'a Lap<'a>,
    sum: Cell<Sum>,
}

impl<'a, T> Timed<'a, T> {
    pub(super) fn new(inner: T, (plugin, point): (&'static str, Point), lap: &'a Lap<'a>) -> Self {
        Self { inner, plugin, point, lap, sum: Cell::default() }
    }

    fn time<R>(&self, rejects: impl Fn(&R) -> bool, work: impl FnOnce(&T) -> R) -> R {
        let begin = self.lap.stopwatch.now();
        let done = work(&self.inner);
        let taken = self.lap.stopwatch.now().saturating_sub(begin);
        let sum = self.sum.get();
        self.sum.set(Sum {
            nanoseconds: sum.nanoseconds.saturating_add(taken),
            rejected: sum.rejected || rejects(&done),
            happened: true,
        });
        done
    }
}

impl<T> Drop for Timed<'_, T> {
    fn drop(&mut self) {
        let sum = self.sum.get();
        if sum.happened {
            self.lap.add(self.plugin, self.point, sum.nanoseconds, sum.rejected);
        }
    }
}

impl NodeFilter for Timed<'_, Box<dyn NodeFilter + '_>> {
    fn filter(&self, node: &Node) -> Result<(), Rejection> {
        self.time(Result::is_err, |filter| filter.filter(node))
    }

    fn admits(&self, node: &Node) -> bool {
        self.time(|admitted| !admitted, |filter| filter.admits(node))
    }

    fn may_fail(&self) -> bool {
        self.inner.may_fail()
    }

    fn add_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.inner.add_pod(pod, node);
    }

    fn remove_pod(&mut self, pod: &PodInfo, node: &Node) {
        self.inner.remove_pod(pod, node);
    }
}

impl NodeScore for Timed<'_, Box<dyn NodeScore + '_>> {
    fn score(&self, node: &Node) -> i64 {
        self.time(|_score| false, |scorer| scorer.score(node))
    }

    fn scale(&self) -> Scale {
        self.inner.scale()
    }

    fn normalize(&self, scores: &mut [i64]) {
        self.inner.normalize(scores);
    }
}
