//! Usage as a kubelet shows it, from usage as a metrics API shows it. Pure.
//!
//! A metrics API tells a rate over a window, a kubelet a counter since the container started. The counter here
//! grows by the rate times the time between two samples, so that the rate between two looks at it is the rate
//! that the target told.

use crate::quantity;
use api::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One container.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Usage {
    pub(crate) container: String,
    pub(crate) started: Option<Timestamp>,
    /// Billionths of a CPU.
    pub(crate) nano_cores: u64,
    /// Billionths of a second of a CPU, since it was first seen.
    pub(crate) nano_seconds: u64,
    pub(crate) memory_bytes: u64,
}

/// One proxy pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) at: Timestamp,
    pub(crate) containers: Vec<Usage>,
}

/// Counters of containers, by the UID of their proxy pod and their name and start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counters(BTreeMap<(String, String, Option<Timestamp>), (Timestamp, u64)>);

impl Counters {
    fn count(
        &mut self,
        key: (String, String, Option<Timestamp>),
        at: Timestamp,
        nano_cores: u64,
        window: u64,
    ) -> u64 {
        let (last, total) = self.0.get(&key).copied().unwrap_or((at, u64::MAX));
        let millis = |time: Timestamp| u64::try_from(time.as_millisecond()).unwrap_or_default();
        let grown = |millis: u64| {
            let product = u128::from(nano_cores) * u128::from(millis) / 1000;
            u64::try_from(product).unwrap_or(u64::MAX)
        };
        let total = match total {
            u64::MAX => grown(window * 1000),
            total => total.saturating_add(grown(millis(at).saturating_sub(millis(last)))),
        };
        self.0.insert(key, (at.max(last), total));
        total
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// A quantity in billionths; `None` when it is none.
fn billionths(value: &Value) -> Option<u128> {
    match value {
        Value::String(text) => quantity::billionths(text),
        Value::Number(number) => quantity::billionths(&number.to_string()),
        _ => None,
    }
}

fn small(value: Option<u128>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or_default()
}

/// Seconds of a duration such as `15s`, `1m0s` or `14.9s`.
fn seconds(value: &Value) -> u64 {
    let span: Option<k8s_openapi::jiff::SignedDuration> = value.as_str().and_then(|text| text.parse().ok());
    span.and_then(|span| u64::try_from(span.as_secs()).ok()).unwrap_or_default()
}

/// The usage of a node's proxy pods out of a PodMetricsList of its target. Counters of others are forgotten.
pub(crate) fn samples(pods: &[Pod], list: &Value, counters: &mut Counters) -> Vec<Sample> {
    let of = |item: &Value| item["metadata"]["labels"][api::keys::PARENT_UID].as_str().map(str::to_owned);
    let measured: BTreeMap<String, &Value> =
        list["items"].as_array().into_iter().flatten().filter_map(|item| Some((of(item)?, item))).collect();
    let found: Vec<Sample> = pods
        .iter()
        .filter(|pod| pod.is_proxy())
        .filter_map(|pod| sample(pod, measured.get(pod.uid())?, counters))
        .collect();
    counters.0.retain(|(uid, _, _), _| found.iter().any(|sample| sample.uid == *uid));
    found
}

fn sample(pod: &Pod, item: &Value, counters: &mut Counters) -> Option<Sample> {
    let at = time(&item["timestamp"])?;
    let window = seconds(&item["window"]);
    let started = |container: &str| {
        let statuses = pod.status["containerStatuses"].as_array()?;
        let status = statuses.iter().find(|status| status["name"] == container)?;
        time(&status["state"]["running"]["startedAt"])
    };
    let containers = item["containers"].as_array()?.iter().filter_map(|container| {
        let name = container["name"].as_str()?.to_owned();
        let nano_cores = small(billionths(&container["usage"]["cpu"]));
        let memory_bytes =
            small(billionths(&container["usage"]["memory"]).map(|value| value / 1_000_000_000));
        let started = started(&name);
        let key = (pod.uid().to_owned(), name.clone(), started);
        let nano_seconds = counters.count(key, at, nano_cores, window);
        Some(Usage { container: name, started, nano_cores, nano_seconds, memory_bytes })
    });
    Some(Sample {
        namespace: pod.namespace().to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        started: time(&pod.status["startTime"]),
        at,
        containers: containers.collect(),
    })
}

fn sum(samples: &[Sample], of: impl Fn(&Usage) -> u64) -> u64 {
    samples.iter().flat_map(|sample| &sample.containers).map(of).fold(0, u64::saturating_add)
}

/// The body of `/stats/summary`.
pub(crate) fn summary(node: &str, samples: &[Sample]) -> Value {
    let usage = |at: Timestamp, (nano_cores, nano_seconds, bytes): (u64, u64, u64)| {
        (
            json!({"time": at, "usageNanoCores": nano_cores, "usageCoreNanoSeconds": nano_seconds}),
            json!({"time": at, "usageBytes": bytes, "workingSetBytes": bytes}),
        )
    };
    let of = |samples: &[Sample]| {
        let numbers = (
            sum(samples, |usage| usage.nano_cores),
            sum(samples, |usage| usage.nano_seconds),
            sum(samples, |usage| usage.memory_bytes),
        );
        usage(samples.iter().map(|sample| sample.at).max().unwrap_or_default(), numbers)
    };
    let pods: Vec<Value> = samples
        .iter()
        .map(|sample| {
            let containers = sample.containers.iter().map(|one| {
                let (cpu, memory) = usage(sample.at, (one.nano_cores, one.nano_seconds, one.memory_bytes));
                json!({"name": one.container, "startTime": one.started, "cpu": cpu, "memory": memory})
            });
            let (cpu, memory) = of(std::slice::from_ref(sample));
            json!({
                "podRef": {"name": sample.name, "namespace": sample.namespace, "uid": sample.uid},
                "startTime": sample.started, "containers": containers.collect::<Vec<_>>(), "cpu": cpu,
                "memory": memory,
            })
        })
        .collect();
    let mut body = json!({"node": {"nodeName": node}, "pods": pods});
    if !samples.is_empty() {
        let (cpu, memory) = of(samples);
        body["node"]["cpu"] = cpu;
        body["node"]["memory"] = memory;
    }
    body
}

/// One line of the text format.
struct Line<'a> {
    labels: Vec<(&'static str, &'a str)>,
    value: String,
    at: Option<Timestamp>,
}

fn family(text: &mut String, (name, kind, help): (&str, &str, &str), lines: &[Line<'_>]) {
    if lines.is_empty() {
        return;
    }
    // Writing into a String cannot fail.
    let _written = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for line in lines {
        let labels: Vec<String> =
            line.labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let at = line.at.map(|at| format!(" {}", at.as_millisecond())).unwrap_or_default();
        let _written = writeln!(text, "{name}{labels} {}{at}", line.value);
    }
}

/// Seconds out of billionths.
fn decimal(billionths: u64) -> String {
    format!("{}.{:09}", billionths / 1_000_000_000, billionths % 1_000_000_000)
}

fn of_containers<'a>(
    samples: &'a [Sample],
    value: impl Fn(&Usage) -> Option<String> + 'a,
    timed: bool,
) -> Vec<Line<'a>> {
    let each = samples.iter().flat_map(|sample| sample.containers.iter().map(move |one| (sample, one)));
    each.filter_map(|(sample, one)| {
        let labels = vec![
            ("container", one.container.as_str()),
            ("namespace", &sample.namespace),
            ("pod", &sample.name),
        ];
        Some(Line { labels, value: value(one)?, at: timed.then_some(sample.at) })
    })
    .collect()
}

fn of_pods(samples: &[Sample], value: impl Fn(&[Sample]) -> String) -> Vec<Line<'_>> {
    samples
        .iter()
        .map(|sample| Line {
            labels: vec![("namespace", sample.namespace.as_str()), ("pod", &sample.name)],
            value: value(std::slice::from_ref(sample)),
            at: Some(sample.at),
        })
        .collect()
}

/// The body of `/metrics/resource` (`whole`: pods and the node too) or of `/metrics/cadvisor`.
pub(crate) fn text(samples: &[Sample], whole: bool) -> String {
    let cpu = |samples: &[Sample]| decimal(sum(samples, |one| one.nano_seconds));
    let memory = |samples: &[Sample]| sum(samples, |one| one.memory_bytes).to_string();
    let mut text = String::new();
    let counter = (
        "container_cpu_usage_seconds_total",
        "counter",
        "Cumulative cpu time of the container in core-seconds",
    );
    family(&mut text, counter, &of_containers(samples, |one| Some(decimal(one.nano_seconds)), true));
    let gauge =
        ("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes");
    family(&mut text, gauge, &of_containers(samples, |one| Some(one.memory_bytes.to_string()), true));
    let start =
        ("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds");
    let started = |one: &Usage| one.started.map(|at| at.as_second().to_string());
    family(&mut text, start, &of_containers(samples, started, false));
    if !whole {
        return text;
    }
    family(
        &mut text,
        ("pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time of the pod in core-seconds"),
        &of_pods(samples, cpu),
    );
    family(
        &mut text,
        ("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes"),
        &of_pods(samples, memory),
    );
    if let Some(at) = samples.iter().map(|sample| sample.at).max() {
        let line = |value| [Line { labels: Vec::new(), value, at: Some(at) }];
        let cpu_help = (
            "node_cpu_usage_seconds_total",
            "counter",
            "Cumulative cpu time of the node's pods in core-seconds",
        );
        family(&mut text, cpu_help, &line(cpu(samples)));
        let memory_help =
            ("node_memory_working_set_bytes", "gauge", "Current working set of the node's pods in bytes");
        family(&mut text, memory_help, &line(memory(samples)));
    }
    let error = [Line { labels: Vec::new(), value: "0".to_owned(), at: None }];
    family(&mut text, ("resource_scrape_error", "gauge", "1 if container metrics could not be read"), &error);
    text
}

#[cfg(test)]
mod tests;
