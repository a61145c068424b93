//! Metrics that all services have.

use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector,
};

/// From a cache hit of the API server to the deadline of a call.
const CALL_SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Families that mean the same in every service.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// The registry behind `/metrics`.
    pub registry: Registry,
    /// Whether this replica leads.
    pub leader: IntGauge,
    /// Writes by kind of action.
    pub actions: IntCounterVec,
    /// Failures by controller and class.
    pub failures: IntCounterVec,
    /// Whether a watch is in step, by kind and cluster.
    pub cache_synced: IntGaugeVec,
    /// Whether a remote cluster answers, by target.
    pub remote_up: IntGaugeVec,
    /// Duration of API calls by cluster, verb and code.
    pub api_requests: HistogramVec,
}

impl Metrics {
    /// Registers all common families.
    ///
    /// # Errors
    ///
    /// A family is registered already.
    pub fn new(component: &str) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let build = IntGaugeVec::new(
            Opts::new("multicluster_build_info", "What is running; always 1."),
            &["component", "version"],
        )?;
        register(&registry, &build)?.with_label_values(&[component, env!("CARGO_PKG_VERSION")]).set(1);
        let leader = IntGauge::new("multicluster_leader", "Whether this replica acts as the leader.")?;
        let actions = IntCounterVec::new(
            Opts::new("multicluster_actions_total", "Writes by kind of action."),
            &["controller", "action"],
        )?;
        let failures = IntCounterVec::new(
            Opts::new("multicluster_reconcile_failures_total", "Failures by class."),
            &["controller", "class"],
        )?;
        let cache_synced = IntGaugeVec::new(
            Opts::new("multicluster_cache_synced", "Whether a watch is in step."),
            &["kind", "cluster"],
        )?;
        let remote_up =
            IntGaugeVec::new(Opts::new("multicluster_remote_up", "Whether a target answers."), &["cluster"])?;
        let api_requests = HistogramVec::new(
            HistogramOpts::new(
                "multicluster_api_request_duration_seconds",
                "Time to the answer of an API call.",
            )
            .buckets(CALL_SECONDS.to_vec()),
            &["cluster", "verb", "code"],
        )?;
        Ok(Self {
            leader: register(&registry, &leader)?,
            actions: register(&registry, &actions)?,
            failures: register(&registry, &failures)?,
            cache_synced: register(&registry, &cache_synced)?,
            remote_up: register(&registry, &remote_up)?,
            api_requests: register(&registry, &api_requests)?,
            registry,
        })
    }
}

/// Registers a family and hands it back.
///
/// # Errors
///
/// A family of that name is registered already.
pub fn register<C: Collector + Clone + 'static>(registry: &Registry, family: &C) -> prometheus::Result<C> {
    registry.register(Box::new(family.clone()))?;
    Ok(family.clone())
}
