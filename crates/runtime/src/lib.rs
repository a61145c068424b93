//! The process shell that every service stands in: flags, logs, metrics, probes, leadership, clients with
//! deadlines, watches that never end, and the live registry of targets.
//!
//! It knows no service and, of our kinds, only Target and ClusterTarget.
#![warn(missing_docs, missing_debug_implementations)]

pub mod admin;
pub mod args;
pub mod client;
pub mod clock;
pub mod errors;
pub mod identity;
pub mod kubeconfig;
pub mod lease;
pub mod log;
pub mod members;
pub mod metrics;
pub mod queue;
pub mod run;
pub mod standby;
pub mod targets;
pub mod watch;

pub use client::{Connector, patching};
pub use clock::Clock;
pub use errors::{Chain, Class, class};
pub use identity::cluster_uid;
pub use members::Members;
pub use metrics::Metrics;
pub use run::{Runtime, run};
pub use targets::{Connection, Target, TargetKey, Targets};
pub use tokio_util::sync::CancellationToken;
pub use watch::{Seen, watch, watch_telling};
