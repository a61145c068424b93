//! Metrics that kube-scheduler calls alpha, under its names.

use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry};
use runtime::metrics::register;

use super::gauge;
use crate::plan::{Counts, Waiting};

#[derive(Debug, Clone)]
pub(super) struct Alpha {
    pub(super) entities: IntGaugeVec,
    incoming: IntCounterVec,
    inflight: IntGaugeVec,
    goroutines: IntGaugeVec,
    after_flush: IntCounter,
    evaluations: IntCounterVec,
    violations: IntCounterVec,
    evictions: IntCounterVec,
    storage_plans: IntCounterVec,
    storage_errors: IntCounterVec,
}

impl Alpha {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let named = |name: &str, help: &str| Opts::new(format!("scheduler_{name}"), help);
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(registry, &IntCounterVec::new(named(name, help), labels)?)
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            register(registry, &IntGaugeVec::new(named(name, help), labels)?)
        };
        let after_flush = IntCounter::new(
            "scheduler_pod_scheduled_after_flush_total",
            "Pods that were placed after no event but time had moved them.",
        )?;
        let entered = "What entered a part of the queue, by cause and type.";
        let under_way = "Events that pods which are being tried have to be asked about.";
        let asked = "How often a plugin was asked about a pod, once a try for all nodes.";
        let violations = "Pods that had to go although a budget protects them.";
        let plans = "Plans for claims and volumes that were counted on, and not any more.";
        let errors = "Claims and volumes that could not be judged, assumed or bound.";
        Ok(Self {
            entities: gauges(
                "queued_entities",
                "What waits, by part of the queue and type.",
                &["queue", "type"],
            )?,
            incoming: counters("queue_incoming_entities_total", entered, &["queue", "event", "type"])?,
            inflight: gauges("inflight_events", under_way, &["event"])?,
            goroutines: gauges("goroutines", "Work under way beside decisions.", &["operation"])?,
            after_flush: register(registry, &after_flush)?,
            evaluations: counters(
                "plugin_evaluation_total",
                asked,
                &["plugin", "extension_point", "profile"],
            )?,
            violations: counters("preemption_pdb_violations_total", violations, &["preemptor"])?,
            evictions: counters(
                "preemption_goroutines_execution_total",
                "How often all pods were asked to go that had to.",
                &["result"],
            )?,
            storage_plans: counters("volume_binder_cache_requests_total", plans, &["operation"])?,
            storage_errors: counters("volume_scheduling_stage_error_total", errors, &["operation"])?,
        })
    }

    pub(super) fn decided(&self, counts: &Counts) {
        self.after_flush.inc_by(counts.placed_after_flush);
        self.violations.with_label_values(&["pod"]).inc_by(counts.violations);
        for (metric, counts) in [
            (&self.evictions, &counts.evictions),
            (&self.storage_plans, &counts.storage_plans),
            (&self.storage_errors, &counts.storage_errors),
        ] {
            for (label, count) in counts {
                metric.with_label_values(&[*label]).inc_by(*count);
            }
        }
    }

    pub(super) fn waiting(&self, waiting: &Waiting) {
        for ((queue, event), count) in &waiting.incoming {
            self.incoming.with_label_values(&[*queue, *event, "pod"]).inc_by(*count);
        }
        self.inflight.reset();
        for (event, count) in &waiting.events {
            self.inflight.with_label_values(&[*event]).set(gauge(*count));
        }
        for ((plugin, point, profile), count) in &waiting.evaluations {
            self.evaluations.with_label_values(&[*plugin, *point, profile.as_str()]).inc_by(*count);
        }
        self.goroutines.with_label_values(&["binding"]).set(gauge(waiting.binding));
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder, TextEncoder};

    use super::*;

    #[test]
    fn what_waits_and_what_went_wrong_with_storage_is_found_under_the_known_names() {
        let registry = Registry::new();
        let alpha = Alpha::new(&registry).expect("registered");
        alpha.entities.with_label_values(&["active", "pod"]).set(4);
        alpha.waiting(&Waiting {
            incoming: [(("active", "NodeAdd"), 5)].into(),
            binding: 9,
            events: [("NodeAdd", 2)].into(),
            evaluations: [(("NodePorts", "Filter", "default-scheduler".to_owned()), 7)].into(),
            ..Waiting::default()
        });
        alpha.decided(&Counts {
            violations: 3,
            evictions: [("success", 2)].into(),
            storage_errors: [("bind", 1), ("predicate", 5)].into(),
            storage_plans: [("add", 6)].into(),
            placed_after_flush: 1,
            ..Counts::default()
        });
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).expect("encoded");
        let text = String::from_utf8(text).expect("text");
        for line in [
            "scheduler_preemption_pdb_violations_total{preemptor=\"pod\"} 3",
            "scheduler_preemption_goroutines_execution_total{result=\"success\"} 2",
            "scheduler_queued_entities{queue=\"active\",type=\"pod\"} 4",
            "scheduler_queue_incoming_entities_total{event=\"NodeAdd\",queue=\"active\",type=\"pod\"} 5",
            "scheduler_inflight_events{event=\"NodeAdd\"} 2",
            "scheduler_plugin_evaluation_total{extension_point=\"Filter\",plugin=\"NodePorts\",profile=\"default-scheduler\"} 7",
            "scheduler_goroutines{operation=\"binding\"} 9",
            "scheduler_pod_scheduled_after_flush_total 1",
            "scheduler_volume_binder_cache_requests_total{operation=\"add\"} 6",
            "scheduler_volume_scheduling_stage_error_total{operation=\"bind\"} 1",
            "scheduler_volume_scheduling_stage_error_total{operation=\"predicate\"} 5",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }
}
