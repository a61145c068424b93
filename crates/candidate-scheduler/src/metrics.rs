//! What this service counts, besides what all services do.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    exponential_buckets,
};
use runtime::metrics::register;
use scheduling::Lengths;

use crate::plan::{Admission, Counts};

#[derive(Debug, Clone)]
pub struct Metrics {
    attempts: IntCounterVec,
    decision: Histogram,
    pending: IntGaugeVec,
    reservations: IntGauge,
    expired: IntCounterVec,
    dry_runs: IntCounterVec,
    preemptions: IntCounter,
    victims: Histogram,
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
        // These two have upstream's names and buckets.
        let preemptions = IntCounter::new(
            "scheduler_preemption_attempts_total",
            "How often it was looked for pods that could make room.",
        )?;
        let victims =
            HistogramOpts::new("scheduler_preemption_victims", "How many pods had to make room for one.")
                .buckets(exponential_buckets(1.0, 2.0, 7)?);
        Ok(Self {
            attempts: counter("attempts_total", "Scheduling cycles by result.", "result")?,
            decision: register(registry, &Histogram::with_opts(decision)?)?,
            pending: register(registry, &pending)?,
            reservations: register(registry, &reservations)?,
            expired: counter("reservations_ended_total", "Reservations taken back, by cause.", "cause")?,
            dry_runs: counter("dry_runs_total", "Dry-run creations by answer.", "answer")?,
            preemptions: register(registry, &preemptions)?,
            victims: register(registry, &Histogram::with_opts(victims)?)?,
        })
    }

    pub fn decided(&self, seconds: f64, counts: &Counts) {
        self.decision.observe(seconds);
        self.attempts.with_label_values(&["placed"]).inc_by(counts.placed);
        self.attempts.with_label_values(&["refused"]).inc_by(counts.refused);
        self.expired.with_label_values(&["expired"]).inc_by(counts.expired);
        self.preemptions.inc_by(counts.preemptions);
        for victims in &counts.victims {
            self.victims.observe(f64::from(u32::try_from(*victims).unwrap_or(u32::MAX)));
        }
    }

    pub fn waiting(&self, lengths: Lengths, reservations: usize) {
        let queues = [
            ("active", lengths.active),
            ("backoff", lengths.backoff),
            ("unschedulable", lengths.refused),
            ("gated", lengths.gated),
        ];
        for (queue, length) in queues {
            self.pending.with_label_values(&[queue]).set(gauge(length));
        }
        self.reservations.set(gauge(reservations));
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
