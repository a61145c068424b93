//! What this service counts beside the common families.

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// The families.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    /// Copies by target.
    pub(crate) copies: IntGaugeVec,
    /// Objects that were found not to follow, by target and reason.
    pub(crate) obstacles: IntCounterVec,
}

impl Metrics {
    /// Registers all families.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let copies = IntGaugeVec::new(
            Opts::new(
                "multicluster_follow_controller_copies",
                "Copies of objects of this cluster, by target.",
            ),
            &["cluster"],
        )?;
        let obstacles = IntCounterVec::new(
            Opts::new(
                "multicluster_follow_controller_obstacles_total",
                "Objects that could not follow, by target and reason: foreign or refused.",
            ),
            &["cluster", "reason"],
        )?;
        Ok(Self {
            copies: runtime::metrics::register(registry, &copies)?,
            obstacles: runtime::metrics::register(registry, &obstacles)?,
        })
    }
}
