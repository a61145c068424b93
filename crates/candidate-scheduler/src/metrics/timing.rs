//! How long plugins take, under kube-scheduler's names.

use std::time::{Duration, Instant};

use prometheus::{HistogramOpts, HistogramVec, Registry, exponential_buckets};
use runtime::metrics::register;
use scheduling::{Point, Stopwatch};

/// The metrics of all profiles.
#[derive(Debug, Clone)]
pub(super) struct Timings {
    plugin: HistogramVec,
    point: HistogramVec,
    hint: HistogramVec,
}

impl Timings {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let plugin = HistogramOpts::new(
            "scheduler_plugin_execution_duration_seconds",
            "Time of a plugin at an extension point in one try, for all nodes together; one try in ten counts.",
        )
        .buckets(exponential_buckets(0.000_01, 1.5, 20)?);
        let point = HistogramOpts::new(
            "scheduler_framework_extension_point_duration_seconds",
            "Time of all plugins at an extension point in one try; one try in ten counts.",
        )
        .buckets(exponential_buckets(0.000_1, 2.0, 12)?);
        let hint = HistogramOpts::new(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Time of a plugin to say whether an event is a reason to try a pod again.",
        )
        .buckets(exponential_buckets(0.000_01, 1.5, 20)?);
        Ok(Self {
            hint: register(registry, &HistogramVec::new(hint, &["plugin", "event", "hint"])?)?,
            plugin: register(
                registry,
                &HistogramVec::new(plugin, &["plugin", "extension_point", "status"])?,
            )?,
            point: register(registry, &HistogramVec::new(point, &["extension_point", "status", "profile"])?)?,
        })
    }
}

/// The clock and the metrics of one profile.
pub(super) struct Timing {
    start: Instant,
    timings: Timings,
    profile: String,
}

impl Timing {
    pub(super) fn new(timings: &Timings, profile: &str) -> Self {
        Self { start: Instant::now(), timings: timings.clone(), profile: profile.to_owned() }
    }
}

/// What upstream calls it.
fn status(rejected: bool) -> &'static str {
    if rejected { "Unschedulable" } else { "Success" }
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

impl Stopwatch for Timing {
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn plugin(&self, plugin: &'static str, point: Point, nanoseconds: u64, rejected: bool) {
        let labels = [plugin, point.name(), status(rejected)];
        self.timings.plugin.with_label_values(&labels).observe(seconds(nanoseconds));
    }

    fn hint(&self, plugin: &'static str, event: &'static str, nanoseconds: u64, again: bool) {
        let labels = [plugin, event, if again { "Queue" } else { "QueueSkip" }];
        self.timings.hint.with_label_values(&labels).observe(seconds(nanoseconds));
    }

    fn point(&self, point: Point, nanoseconds: u64, rejected: bool) {
        let labels = [point.name(), status(rejected), self.profile.as_str()];
        self.timings.point.with_label_values(&labels).observe(seconds(nanoseconds));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_plugins_take_has_the_names_that_dashboards_know() {
        let registry = Registry::new();
        let timings = Timings::new(&registry).expect("registered");
        let timing = Timing::new(&timings, "default-scheduler");
        timing.plugin("NodePorts", Point::Filter, 20_000, true);
        timing.point(Point::Filter, 300_000, false);
        timing.hint("NodePorts", "NodeAdd", 2_000, true);
        let families = registry.gather();
        let labels = |name: &str| {
            let family = families.iter().find(|family| family.name() == name).expect("the family");
            let metric = family.get_metric().first().expect("a metric");
            assert_eq!(metric.get_histogram().get_sample_count(), 1);
            metric.get_label().iter().map(|label| label.value().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            labels("scheduler_plugin_execution_duration_seconds"),
            ["Filter", "NodePorts", "Unschedulable"]
        );
        assert_eq!(
            labels("scheduler_framework_extension_point_duration_seconds"),
            ["Filter", "default-scheduler", "Success"]
        );
        assert_eq!(
            labels("scheduler_queueing_hint_execution_duration_seconds"),
            ["NodeAdd", "Queue", "NodePorts"]
        );
    }
}
