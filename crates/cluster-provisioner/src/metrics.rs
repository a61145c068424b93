//! Metrics of this service.

use crate::observe::Key;
use api::provisioning::WorkloadClusterStatus;
use prometheus::{IntGaugeVec, Opts, Registry};

/// Metrics of this service.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    ready: IntGaugeVec,
    target: IntGaugeVec,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| {
            let name = format!("multicluster_cluster_provisioner_{name}");
            runtime::metrics::register(
                registry,
                &IntGaugeVec::new(Opts::new(name, help), &["namespace", "cluster"])?,
            )
        };
        Ok(Self {
            ready: gauge("cluster_ready", "Whether a declared cluster is as declared.")?,
            target: gauge("target_ready", "Whether a declared cluster is a Target that is Ready.")?,
        })
    }

    pub(crate) fn tell(&self, key: &Key, status: &WorkloadClusterStatus) {
        let is = |kind: &str| {
            let found = status.conditions.iter().any(|one| one.type_ == kind && one.status == "True");
            i64::from(found)
        };
        let labels = [key.namespace.as_str(), key.name.as_str()];
        self.ready.with_label_values(&labels).set(is("Ready"));
        self.target.with_label_values(&labels).set(is("TargetReady"));
    }

    pub(crate) fn forget(&self, key: &Key) {
        for gauge in [&self.ready, &self.target] {
            // One that was never told has nothing to forget.
            drop(gauge.remove_label_values(&[&key.namespace, &key.name]));
        }
    }
}
