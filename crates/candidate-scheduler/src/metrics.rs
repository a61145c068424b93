//! What this service counts, besides what all services do.

mod alpha;
mod timing;
mod upstream;

use std::sync::Arc;

use prometheus::{
    Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, exponential_buckets,
};
use runtime::metrics::register;
use scheduling::{Lengths, Stopwatch};

use crate::plan::{Admission, Attempt, Counts, Waiting};
use alpha::Alpha;
use timing::{Timing, Timings};
use upstream::Upstream;

#[derive(Debug, Clone)]
pub struct Metrics {
    attempts: IntCounterVec,
    decision: Histogram,
    pending: IntGaugeVec,
    reservations: IntGauge,
    expired: IntCounterVec,
    dry_runs: IntCounterVec,
    upstream: Upstream,
    alpha: Alpha,
    timings: Timings,
}

impl Metrics {
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str, label: &str| {
            let name = format!("multicluster_candidate_scheduler_{name}");
            register(registry, &IntCounterVec::new(Opts::new(name, help), &[label])?)
        };
        let decision = HistogramOpts::new(
            "multicluster_candidate_scheduler_decision_duration_seconds",
            "Time to decide everything that waited.",
        )
        .buckets(exponential_buckets(0.000_05, 4.0, 10)?);
        let pending = IntGaugeVec::new(
            Opts::new(
                "multicluster_candidate_scheduler_pending",
                "PodChaperons and pods that wait, by queue.",
            ),
            &["queue"],
        )?;
        let reservations = IntGauge::new(
            "multicluster_candidate_scheduler_reservations",
            "PodChaperons for which room is held.",
        )?;
        Ok(Self {
            attempts: counter("attempts_total", "Scheduling cycles by result.", "result")?,
            decision: register(registry, &Histogram::with_opts(decision)?)?,
            pending: register(registry, &pending)?,
            reservations: register(registry, &reservations)?,
            expired: counter("reservations_ended_total", "Reservations taken back, by cause.", "cause")?,
            dry_runs: counter("dry_runs_total", "Dry-run creations by answer.", "answer")?,
            upstream: Upstream::new(registry)?,
            alpha: Alpha::new(registry)?,
            timings: Timings::new(registry)?,
        })
    }

    /// Measures plugins for the pods of one scheduler name.
    pub fn stopwatch(&self, profile: &str) -> Arc<dyn Stopwatch> {
        Arc::new(Timing::new(&self.timings, profile))
    }

    pub fn decided(&self, seconds: f64, counts: &Counts) {
        self.decision.observe(seconds);
        self.attempts.with_label_values(&["placed"]).inc_by(counts.placed);
        self.attempts.with_label_values(&["refused"]).inc_by(counts.refused);
        self.expired.with_label_values(&["expired"]).inc_by(counts.expired);
        self.alpha.decided(counts);
        self.upstream.preemptions.inc_by(counts.preemptions);
        for victims in &counts.victims {
            self.upstream.victims.observe(f64::from(u32::try_from(*victims).unwrap_or(u32::MAX)));
        }
    }

    /// Tries that ended, in decisions that took `seconds` together.
    pub fn attempted(&self, seconds: f64, attempts: &[Attempt]) {
        let count = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
        for attempt in attempts {
            self.upstream.attempted(seconds / f64::from(count.max(1)), attempt);
        }
    }

    pub fn waiting(&self, lengths: Lengths, reservations: usize, waiting: &Waiting) {
        let queues = [
            ("active", lengths.active),
            ("backoff", lengths.backoff),
            ("unschedulable", lengths.refused),
            ("gated", lengths.gated),
        ];
        for (queue, length) in queues {
            self.pending.with_label_values(&[queue]).set(gauge(length));
            self.upstream.pending.with_label_values(&[queue]).set(gauge(length));
            self.alpha.entities.with_label_values(&[queue, "pod"]).set(gauge(length));
        }
        self.reservations.set(gauge(reservations));
        self.upstream.waiting(reservations, waiting);
        self.alpha.waiting(waiting);
    }

    pub fn dry_run(&self, answer: &Admission) {
        let answer = match answer {
            Admission::Pod(_) => "pod",
            Admission::Refused(_) => "refused",
            Admission::Undecided => "undecided",
        };
        self.dry_runs.with_label_values(&[answer]).inc();
    }
}

fn gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
