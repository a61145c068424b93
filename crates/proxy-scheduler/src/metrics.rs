//! Metrics of this service.

use crate::error::Error;
use crate::machine::{Machine, Standing, Waits};
use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGaugeVec, Opts};
use std::time::Duration;

/// From a placement without competition to one that waited for room.
const ATTEMPT_SECONDS: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Metrics of this service.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Ends of placements: `scheduled`, `unschedulable`, `error`.
    attempts: IntCounterVec,
    duration: Histogram,
    pending: IntGaugeVec,
    scores: IntGaugeVec,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    ///
    /// They are registered already.
    pub fn new(registry: &prometheus::Registry) -> Result<Self, Error> {
        Self::make(registry).map_err(|source| Error::Metrics { source: Box::new(source) })
    }

    fn make(registry: &prometheus::Registry) -> prometheus::Result<Self> {
        let attempts = IntCounterVec::new(
            Opts::new("multicluster_proxy_scheduler_attempts_total", "Ends of placements by outcome."),
            &["outcome"],
        )?;
        let duration = Histogram::with_opts(
            HistogramOpts::new(
                "multicluster_proxy_scheduler_attempt_duration_seconds",
                "From a proxy pod that wants a node to its binding.",
            )
            .buckets(ATTEMPT_SECONDS.to_vec()),
        )?;
        let pending = IntGaugeVec::new(
            Opts::new("multicluster_proxy_scheduler_pending_pods", "Proxy pods without a node by reason."),
            &["reason"],
        )?;
        let scores = IntGaugeVec::new(
            Opts::new(
                "multicluster_proxy_scheduler_target_scores",
                "Published TargetScores by whether they count.",
            ),
            &["standing"],
        )?;
        Ok(Self {
            scores: runtime::metrics::register(registry, &scores)?,
            attempts: runtime::metrics::register(registry, &attempts)?,
            duration: runtime::metrics::register(registry, &duration)?,
            pending: runtime::metrics::register(registry, &pending)?,
        })
    }

    pub(crate) fn scheduled(&self, after: Duration) {
        self.attempts.with_label_values(&["scheduled"]).inc();
        self.duration.observe(after.as_secs_f64());
    }

    pub(crate) fn unschedulable(&self) {
        self.attempts.with_label_values(&["unschedulable"]).inc();
    }

    pub(crate) fn failed(&self) {
        self.attempts.with_label_values(&["error"]).inc();
    }

    pub(crate) fn show(&self, machine: &Machine, now: Duration) {
        let standings = machine.score_standings(now);
        for (standing, label) in [
            (Standing::Counts, "counts"),
            (Standing::Replaced, "replaced"),
            (Standing::Expired, "expired"),
            (Standing::NoTarget, "no-target"),
        ] {
            let count = standings.get(&standing).copied().unwrap_or_default();
            self.scores.with_label_values(&[label]).set(count);
        }
        for (reason, label) in [
            (Waits::Gated, "gated"),
            (Waits::Held, "held"),
            (Waits::Asking, "asking"),
            (Waits::Granted, "granted"),
            (Waits::Unschedulable, "unschedulable"),
        ] {
            self.pending.with_label_values(&[label]).set(machine.pending(reason));
        }
    }
}
