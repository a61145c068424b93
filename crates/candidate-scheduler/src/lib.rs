//! candidate-scheduler.
