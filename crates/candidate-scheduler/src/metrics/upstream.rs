//! Metrics with kube-scheduler's names, labels and buckets, for the dashboards and alerts that operators have.

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry,
    exponential_buckets,
};
use runtime::metrics::register;

use super::gauge;
use crate::plan::{Attempt, Ended, Waiting};

#[derive(Debug, Clone)]
pub(super) struct Upstream {
    pub(super) pending: IntGaugeVec,
    incoming: IntCounterVec,
    attempts: IntCounterVec,
    attempt_duration: HistogramVec,
    algorithm_duration: Histogram,
    pod_attempts: Histogram,
    sli_duration: HistogramVec,
    unschedulable: IntGaugeVec,
    cache: IntGaugeVec,
    pub(super) preemptions: IntCounter,
    pub(super) victims: Histogram,
}

/// Attempts by which the time until a pod was placed is told apart; above the last, all are one.
const SLI_ATTEMPTS: u32 = 14;

impl Upstream {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        fn keep<C: Collector + Clone + 'static>(
            registry: &Registry,
            made: prometheus::Result<C>,
        ) -> prometheus::Result<C> {
            register(registry, &made?)
        }
        let from_1_ms = exponential_buckets(0.001, 2.0, 15)?;
        let from_10_ms = exponential_buckets(0.01, 2.0, 20)?;
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            HistogramOpts::new(format!("scheduler_{name}"), help).buckets(buckets.to_vec())
        };
        let named = |name: &str, help: &str| Opts::new(format!("scheduler_{name}"), help);
        let attempt =
            histogram("scheduling_attempt_duration_seconds", "Time of a try, binding included.", &from_1_ms);
        let algorithm =
            histogram("scheduling_algorithm_duration_seconds", "Time to decide about a pod.", &from_1_ms);
        let tries = histogram(
            "pod_scheduling_attempts",
            "Tries until a pod was placed.",
            &[1.0, 2.0, 4.0, 8.0, 16.0],
        );
        let sli = histogram(
            "pod_scheduling_sli_duration_seconds",
            "Time until a pod was placed since it could be tried first, by number of tries.",
            &from_10_ms,
        );
        let victims = histogram(
            "preemption_victims",
            "How many pods had to make room for one.",
            &exponential_buckets(1.0, 2.0, 7)?,
        );
        let pending = named("pending_pods", "Pods that wait, by part of the queue.");
        let incoming = named("queue_incoming_pods_total", "Pods that entered a part of the queue, by cause.");
        let attempts = named("schedule_attempts_total", "Tries to place a pod, by result.");
        let unschedulable = named("unschedulable_pods", "Pods that wait, by plugin that has rejected them.");
        let cache = named("cache_size", "Nodes, pods and pods that are assumed to be placed.");
        Ok(Self {
            pending: keep(registry, IntGaugeVec::new(pending, &["queue"]))?,
            incoming: keep(registry, IntCounterVec::new(incoming, &["queue", "event"]))?,
            attempts: keep(registry, IntCounterVec::new(attempts, &["result", "profile"]))?,
            attempt_duration: keep(registry, HistogramVec::new(attempt, &["result", "profile"]))?,
            algorithm_duration: keep(registry, Histogram::with_opts(algorithm))?,
            pod_attempts: keep(registry, Histogram::with_opts(tries))?,
            sli_duration: keep(registry, HistogramVec::new(sli, &["attempts"]))?,
            unschedulable: keep(registry, IntGaugeVec::new(unschedulable, &["plugin", "profile"]))?,
            cache: keep(registry, IntGaugeVec::new(cache, &["type"]))?,
            preemptions: keep(
                registry,
                IntCounter::new(
                    "scheduler_preemption_attempts_total",
                    "How often it was looked for pods that could make room.",
                ),
            )?,
            victims: keep(registry, Histogram::with_opts(victims))?,
        })
    }

    /// One try, of which the decision took `seconds`.
    pub(super) fn attempted(&self, seconds: f64, attempt: &Attempt) {
        let result = match attempt.ended {
            Ended::Scheduled => "scheduled",
            Ended::Unschedulable => "unschedulable",
            Ended::Error => "error",
        };
        let labels = [result, attempt.profile.as_str()];
        self.attempts.with_label_values(&labels).inc();
        self.algorithm_duration.observe(seconds);
        self.attempt_duration.with_label_values(&labels).observe(seconds + seconds_of(attempt.took_ms));
        if attempt.ended == Ended::Scheduled {
            self.pod_attempts.observe(f64::from(attempt.attempts));
            let attempts = match attempt.attempts {
                attempts if attempts > SLI_ATTEMPTS => format!("{}+", SLI_ATTEMPTS + 1),
                attempts => attempts.to_string(),
            };
            self.sli_duration.with_label_values(&[attempts.as_str()]).observe(seconds_of(attempt.waited_ms));
        }
    }

    pub(super) fn waiting(&self, assumed: usize, waiting: &Waiting) {
        for ((queue, event), count) in &waiting.incoming {
            self.incoming.with_label_values(&[*queue, *event]).inc_by(*count);
        }
        self.unschedulable.reset();
        for ((plugin, profile), count) in &waiting.rejections {
            self.unschedulable.with_label_values(&[*plugin, profile.as_str()]).set(gauge(*count));
        }
        for (kind, size) in [("nodes", waiting.nodes), ("pods", waiting.pods), ("assumed_pods", assumed)] {
            self.cache.with_label_values(&[kind]).set(gauge(size));
        }
    }
}

/// Milliseconds in seconds.
fn seconds_of(milliseconds: u64) -> f64 {
    std::time::Duration::from_millis(milliseconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder, TextEncoder};

    use super::*;

    /// The metrics as they are read.
    fn text(registry: &Registry) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).expect("encoded");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn dashboards_find_the_names_and_labels_that_they_know() {
        let registry = Registry::new();
        let upstream = Upstream::new(&registry).expect("registered");
        let attempt = |ended, attempts| Attempt {
            profile: "default-scheduler".to_owned(),
            ended,
            attempts,
            took_ms: 3,
            waited_ms: 1500,
        };
        upstream.attempted(0.001, &attempt(Ended::Scheduled, 2));
        upstream.attempted(0.001, &attempt(Ended::Scheduled, 40));
        upstream.attempted(0.001, &attempt(Ended::Unschedulable, 1));
        upstream.pending.with_label_values(&["active"]).set(4);
        let waiting = Waiting {
            incoming: [(("active", "NodeAdd"), 5)].into(),
            rejections: [(("NodePorts", "default-scheduler".to_owned()), 6)].into(),
            nodes: 7,
            pods: 8,
            ..Waiting::default()
        };
        upstream.waiting(1, &waiting);
        let text = text(&registry);
        for line in [
            "scheduler_pending_pods{queue=\"active\"} 4",
            "scheduler_queue_incoming_pods_total{event=\"NodeAdd\",queue=\"active\"} 5",
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 2",
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"default-scheduler\",result=\"scheduled\",le=\"0.004\"} 2",
            "scheduler_scheduling_algorithm_duration_seconds_count 3",
            "scheduler_pod_scheduling_attempts_bucket{le=\"2\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"2\",le=\"2.56\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"} 1",
            "scheduler_unschedulable_pods{plugin=\"NodePorts\",profile=\"default-scheduler\"} 6",
            "scheduler_cache_size{type=\"nodes\"} 7",
            "scheduler_preemption_attempts_total 0",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }
}
