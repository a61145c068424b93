//! What this service counts beside the common families.

use prometheus::{IntCounterVec, Opts, Registry};

/// The families.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Delegates that replace one that was lost or refused, by cause.
    pub replacements: IntCounterVec,
    /// Creations of delegates that the API server refused, by class.
    pub refusals: IntCounterVec,
}

impl Metrics {
    /// Registers all families.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let replacements = IntCounterVec::new(
            Opts::new(
                "multicluster_chaperon_controller_replacements_total",
                "Delegates given up to be created again, by cause.",
            ),
            &["cause"],
        )?;
        let refusals = IntCounterVec::new(
            Opts::new(
                "multicluster_chaperon_controller_create_refusals_total",
                "Creations of delegates that the API server refused, by class.",
            ),
            &["class"],
        )?;
        Ok(Self {
            replacements: runtime::metrics::register(registry, &replacements)?,
            refusals: runtime::metrics::register(registry, &refusals)?,
        })
    }
}
