//! Counts and times of reviews.

use prometheus::{Histogram, HistogramOpts, IntCounterVec, Opts, Registry};
use runtime::metrics::register;

/// From an empty review to the time after which the API server gives up.
const REVIEW_SECONDS: &[f64] = &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0, 5.0];

/// The webhook's own families.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Reviews by operation (`create`, `update`, `other`) and verdict (`patched`, `allowed`, `denied`, `malformed`).
    pub reviews: IntCounterVec,
    /// Seconds from the whole request to the whole answer.
    pub duration: Histogram,
}

impl Metrics {
    /// Registers the families.
    ///
    /// # Errors
    ///
    /// A family is registered already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let reviews = IntCounterVec::new(
            Opts::new("multicluster_webhook_reviews_total", "Admission reviews by operation and verdict."),
            &["operation", "verdict"],
        )?;
        let duration = Histogram::with_opts(
            HistogramOpts::new("multicluster_webhook_review_duration_seconds", "Time to answer a review.")
                .buckets(REVIEW_SECONDS.to_vec()),
        )?;
        Ok(Self { reviews: register(registry, &reviews)?, duration: register(registry, &duration)? })
    }
}
