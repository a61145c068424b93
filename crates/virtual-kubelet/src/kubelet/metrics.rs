//! Counts of the kubelet API.

use prometheus::{Gauge, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// What the kubelet API counts.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    /// Requests by route and status.
    pub(crate) requests: IntCounterVec,
    /// Logs and upgraded connections that are open.
    streams: IntGaugeVec,
    /// When the serving certificate expires, in Unix seconds.
    pub(crate) expires: Gauge,
    /// Whether the cluster's signer issued it.
    pub(crate) issued: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name = |what: &str| format!("multicluster_virtual_kubelet_{what}");
        let requests = IntCounterVec::new(
            Opts::new(name("requests_total"), "Requests to the kubelet API of virtual nodes."),
            &["route", "code"],
        )?;
        let streams = IntGaugeVec::new(
            Opts::new(name("streams"), "Logs and upgraded connections that are open."),
            &["route"],
        )?;
        let expires = Gauge::new(
            name("certificate_expiry_timestamp_seconds"),
            "When the serving certificate of the kubelet API expires.",
        )?;
        let issued = IntGauge::new(
            name("certificate_issued"),
            "Whether the cluster's signer issued the serving certificate of the kubelet API.",
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(streams.clone()))?;
        registry.register(Box::new(expires.clone()))?;
        registry.register(Box::new(issued.clone()))?;
        Ok(Self { requests, streams, expires, issued })
    }

    /// Counts a stream until the result is dropped.
    pub(crate) fn open(&self, route: &'static str) -> Open {
        let gauge = self.streams.with_label_values(&[route]);
        gauge.inc();
        Open(gauge)
    }
}

/// A stream that is open.
#[derive(Debug)]
pub(crate) struct Open(IntGauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
