//! How long plugins take, under kube-scheduler's names.

use std::time::{Duration, Instant};

use prometheus::HistogramVec;
use scheduling::{Point, Stopwatch};

use super::upstream::Upstream;

pub(super) struct Timing {
    start: Instant,
    plugin: HistogramVec,
    point: HistogramVec,
    profile: String,
}

impl Timing {
    pub(super) fn new(upstream: &Upstream, profile: &str) -> Self {
        Self {
            start: Instant::now(),
            plugin: upstream.plugin_duration.clone(),
            point: upstream.point_duration.clone(),
            profile: profile.to_owned(),
        }
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
        self.plugin.with_label_values(&labels).observe(seconds(nanoseconds));
    }

    fn point(&self, point: Point, nanoseconds: u64, rejected: bool) {
        let labels = [point.name(), status(rejected), self.profile.as_str()];
        self.point.with_label_values(&labels).observe(seconds(nanoseconds));
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[test]
    fn what_plugins_take_has_the_names_that_dashboards_know() {
        let registry = Registry::new();
        let upstream = Upstream::new(&registry).expect("registered");
        let timing = Timing::new(&upstream, "default-scheduler");
        timing.plugin("NodePorts", Point::Filter, 20_000, true);
        timing.point(Point::Filter, 300_000, false);
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
    }
}
