use super::{Counters, billionths, samples, seconds, summary, text};
use api::Pod;
use serde_json::{Value, json};

fn proxy(name: &str, uid: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid,
            "annotations": {"multicluster.admiralty.io/sourcepod-manifest": "{}"}},
        "spec": {"schedulerName": "admiralty-proxy"},
        "status": {"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [
            {"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:01Z"}}}]},
    }))
    .unwrap()
}

fn list(at: &str, uid: &str, cpu: &str, memory: &str) -> Value {
    json!({"items": [{
        "metadata": {"name": "delegate", "labels": {"multicluster.admiralty.io/parent-uid": uid}},
        "timestamp": at, "window": "10s",
        "containers": [{"name": "c", "usage": {"cpu": cpu, "memory": memory}}],
    }]})
}

#[test]
fn quantities_are_read_in_every_spelling() {
    for (text, want) in [
        ("0", Some(0)),
        ("250m", Some(250_000_000)),
        ("12345678n", Some(12_345_678)),
        ("7u", Some(7_000)),
        ("1.5", Some(1_500_000_000)),
        ("1Ki", Some(1_024_000_000_000)),
        ("2k", Some(2_000_000_000_000)),
        ("1Zi", None),
        ("", None),
        ("-1", None),
    ] {
        assert_eq!(billionths(&json!(text)), want, "{text}");
    }
    assert_eq!(billionths(&json!(2)), Some(2_000_000_000));
    assert_eq!((seconds(&json!("15s")), seconds(&json!("1m0s")), seconds(&Value::Null)), (15, 60, 0));
}

#[test]
fn the_rate_between_two_looks_is_the_rate_of_the_target() {
    let mut counters = Counters::default();
    let pods = [proxy("p", "u")];
    let first = samples(&pods, &list("2026-01-01T00:01:00Z", "u", "250m", "64Mi"), &mut counters);
    let again = samples(&pods, &list("2026-01-01T00:01:00Z", "u", "250m", "64Mi"), &mut counters);
    assert_eq!(first, again);
    let second = samples(&pods, &list("2026-01-01T00:01:20Z", "u", "500m", "64Mi"), &mut counters);
    let grown = second[0].containers[0].nano_seconds - first[0].containers[0].nano_seconds;
    assert_eq!(grown, 20 * 500_000_000);
    assert_eq!(first[0].containers[0].memory_bytes, 64 << 20);
}

#[test]
fn pods_that_are_not_measured_or_not_ours_are_left_out() {
    let mut counters = Counters::default();
    let mut stranger = proxy("d", "v");
    stranger.metadata.annotations = None;
    let pods = [proxy("p", "u"), stranger];
    assert!(samples(&pods, &list("2026-01-01T00:01:00Z", "v", "1", "1"), &mut counters).is_empty());
    assert!(samples(&pods, &json!({}), &mut counters).is_empty());
    assert!(samples(&pods, &json!({"items": [null, {"metadata": null}]}), &mut counters).is_empty());
}

#[test]
fn w38_a_metrics_server_finds_what_it_looks_for() {
    let found =
        samples(&[proxy("p", "u")], &list("2026-01-01T00:01:00Z", "u", "2", "1Ki"), &mut Counters::default());
    let resource = text(&found, true);
    for line in [
        "# TYPE container_cpu_usage_seconds_total counter",
        "container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"p\"} 20.000000000 1767225660000",
        "container_memory_working_set_bytes{container=\"c\",namespace=\"ns\",pod=\"p\"} 1024 1767225660000",
        "container_start_time_seconds{container=\"c\",namespace=\"ns\",pod=\"p\"} 1767225601",
        "node_cpu_usage_seconds_total 20.000000000 1767225660000",
        "node_memory_working_set_bytes 1024 1767225660000",
        "pod_cpu_usage_seconds_total{namespace=\"ns\",pod=\"p\"} 20.000000000 1767225660000",
        "resource_scrape_error 0",
    ] {
        assert!(resource.lines().any(|found| found == line), "{line} in {resource}");
    }
    assert!(!text(&found, false).contains("node_"));
    let body = summary("n", &found);
    assert_eq!(body["node"]["nodeName"], "n");
    assert_eq!(body["pods"][0]["podRef"], json!({"name": "p", "namespace": "ns", "uid": "u"}));
    assert_eq!(body["pods"][0]["containers"][0]["cpu"]["usageNanoCores"], 2_000_000_000_u64);
    assert_eq!(body["node"]["memory"]["workingSetBytes"], 1024);
    assert_eq!(summary("n", &[])["pods"], json!([]));
}

#[test]
fn case_134_a_node_counts_the_pods_of_its_own() {
    let pods = [proxy("p", "u"), proxy("q", "w")];
    let mut all = list("2026-01-01T00:01:00Z", "u", "1", "1Ki");
    let other = list("2026-01-01T00:01:00Z", "elsewhere", "4", "4Ki")["items"][0].clone();
    all["items"].as_array_mut().unwrap().push(other);
    let found = samples(&pods, &all, &mut Counters::default());
    assert_eq!(summary("n", &found)["node"]["cpu"]["usageNanoCores"], 1_000_000_000_u64);
}
