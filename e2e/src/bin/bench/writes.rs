//! Counts writes of API servers by their own metrics.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use e2e::cluster::Cluster;

/// What is counted: verb, resource with its subresource, and how it is shown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) class: Class,
    pub(crate) resource: String,
    pub(crate) verb: String,
}

/// How a write is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It counts.
    Counted,
    /// It changed nothing.
    DryRun,
    /// Heartbeats and questions about rights: shown apart.
    Apart,
}

/// The counters of one API server at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    at: Instant,
    by: BTreeMap<Key, f64>,
}

impl Counters {
    pub(crate) async fn read(cluster: &Cluster) -> Result<Self> {
        Ok(Self { at: Instant::now(), by: parse(&cluster.metrics().await?) })
    }

    /// Writes a second since an earlier moment.
    pub(crate) fn rates_since(&self, earlier: &Self) -> BTreeMap<Key, f64> {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        self.since(earlier).into_iter().map(|(key, count)| (key, count / seconds)).collect()
    }

    /// Writes since an earlier moment, less what would have happened anyhow at these rates.
    pub(crate) fn beyond(&self, earlier: &Self, idle: &BTreeMap<Key, f64>) -> BTreeMap<Key, f64> {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        let mut writes = self.since(earlier);
        for (key, count) in &mut writes {
            *count = (*count - idle.get(key).copied().unwrap_or_default() * seconds).max(0.0);
        }
        writes.retain(|_, count| *count >= 0.5);
        writes
    }

    fn since(&self, earlier: &Self) -> BTreeMap<Key, f64> {
        let before = |key: &Key| earlier.by.get(key).copied().unwrap_or_default();
        self.by.iter().map(|(key, count)| (key.clone(), count - before(key))).collect()
    }
}

fn parse(metrics: &str) -> BTreeMap<Key, f64> {
    let mut by = BTreeMap::new();
    for line in metrics.lines() {
        let Some((labels, value)) =
            line.strip_prefix("apiserver_request_total{").and_then(|line| line.split_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            labels
                .split(',')
                .find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
        };
        let verb = label("verb").unwrap_or_default();
        if !matches!(verb, "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION") {
            continue;
        }
        let resource = match (label("resource").unwrap_or_default(), label("subresource").unwrap_or_default())
        {
            (resource, "") => resource.to_owned(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        };
        let class = if label("dry_run").is_some_and(|mode| !mode.is_empty()) {
            Class::DryRun
        } else if is_apart(&resource) {
            Class::Apart
        } else {
            Class::Counted
        };
        let key = Key { class, resource, verb: verb.to_owned() };
        *by.entry(key).or_insert(0.0) += value.trim().parse::<f64>().unwrap_or_default();
    }
    by
}

fn is_apart(resource: &str) -> bool {
    matches!(resource, "leases" | "nodes/status" | "serviceaccounts/token") || resource.ends_with("reviews")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_told_from_reads_and_from_what_is_shown_apart() {
        let metrics = r#"
apiserver_request_total{code="201",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST"} 5
apiserver_request_total{code="409",dry_run="",group="",resource="pods",scope="resource",subresource="",verb="POST"} 2
apiserver_request_total{code="201",dry_run="All",group="",resource="pods",scope="resource",subresource="",verb="POST"} 3
apiserver_request_total{code="200",dry_run="",group="",resource="pods",scope="resource",subresource="status",verb="PATCH"} 4
apiserver_request_total{code="200",dry_run="",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 9
apiserver_request_total{code="200",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST"} 7
"#;
        let key = |class, resource: &str, verb: &str| Key {
            class,
            resource: resource.to_owned(),
            verb: verb.to_owned(),
        };
        let want = BTreeMap::from([
            (key(Class::Counted, "pods", "POST"), 7.0),
            (key(Class::DryRun, "pods", "POST"), 3.0),
            (key(Class::Counted, "pods/status", "PATCH"), 4.0),
            (key(Class::Apart, "leases", "PUT"), 9.0),
        ]);
        assert_eq!(parse(metrics), want);
    }
}
