//! Many worlds, on all processors.

use crate::plan::Kind;
use crate::recorder::Violation;
use crate::world::Report;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Which worlds.
#[derive(Debug, Clone, Copy)]
pub struct Hunt {
    /// The first seed.
    pub from: u64,
    /// How many.
    pub worlds: u64,
    /// How many at a time.
    pub threads: usize,
    /// Stop at the first violation.
    pub first: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Catch {
    /// Worlds that were run.
    pub worlds: u64,
    /// Seeds and what they broke, in order of seeds.
    pub violations: BTreeMap<u64, Vec<Violation>>,
    /// How often each kind of fault took effect.
    pub faults: BTreeMap<Kind, u64>,
    /// Events, containers started, writes taken.
    pub steps: u64,
    pub starts: u64,
    pub writes: u64,
    /// Pods that made way for others, nodes that were added.
    pub evictions: u64,
    pub scale_ups: u64,
    /// The least steps of a world.
    pub least_steps: Option<u64>,
    /// Worlds that could not be run, with the reason.
    pub failures: Vec<String>,
}

impl Catch {
    fn add(&mut self, seed: u64, report: Report) {
        self.worlds += 1;
        self.steps += report.steps;
        self.starts += report.starts;
        self.writes += report.writes;
        self.evictions += report.evictions;
        self.scale_ups += report.scale_ups;
        self.least_steps = Some(self.least_steps.map_or(report.steps, |least| least.min(report.steps)));
        for (kind, count) in report.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        if !report.violations.is_empty() {
            self.violations.insert(seed, report.violations);
        }
    }
}

/// Runs worlds, each by `world`; `progress` is told how many are done and how many of them broke a rule.
///
/// Libraries count within a process what then decides between equals. A world that is to be the same whenever it
/// is run therefore needs a process of its own, which is up to `world`.
#[must_use]
pub fn hunt(
    hunt: Hunt,
    world: impl Fn(u64) -> anyhow::Result<Report> + Sync,
    progress: impl Fn(u64, usize) + Sync,
) -> Catch {
    let (next, found) = (AtomicU64::new(0), AtomicBool::new(false));
    let catch = Mutex::new(Catch::default());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= hunt.worlds || (hunt.first && found.load(Ordering::Relaxed)) {
                return;
            }
            let seed = hunt.from + index;
            let result = world(seed);
            let mut catch = catch.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match result {
                Ok(report) => {
                    found.fetch_or(!report.violations.is_empty(), Ordering::Relaxed);
                    catch.add(seed, report);
                }
                Err(error) => catch.failures.push(format!("seed {seed}: {error:#}")),
            }
            progress(catch.worlds, catch.violations.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..hunt.threads.max(1) {
            scope.spawn(work);
        }
    });
    catch.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
