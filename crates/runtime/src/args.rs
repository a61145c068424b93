//! Flags that all services have.

use clap::{Args, ValueEnum};
use std::net::SocketAddr;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line, for clusters.
    Json,
    /// Compact text, for people.
    Text,
}

/// Flags that all services have.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "MULTICLUSTER_ADMIN_ADDRESS", default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,
    /// Format of log lines.
    #[arg(long, env = "MULTICLUSTER_LOG_FORMAT", value_enum, default_value = "json")]
    pub log_format: LogFormat,
    /// Which log lines are written, as a tracing filter.
    #[arg(long, env = "MULTICLUSTER_LOG_FILTER", default_value = "info")]
    pub log_filter: String,
    /// Act only while this replica holds the component's Lease.
    #[arg(long, env = "MULTICLUSTER_LEADER_ELECT")]
    pub leader_elect: bool,
    /// How long the Lease of a silent leader lasts, in seconds.
    #[arg(long, env = "MULTICLUSTER_LEASE_DURATION_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=3600))]
    pub lease_duration_seconds: u64,
    /// Namespace that this process runs in.
    #[arg(long, env = "POD_NAMESPACE", default_value = "multicluster-scheduler")]
    pub pod_namespace: String,
    /// Name of the pod that this process runs in: its identity among replicas.
    #[arg(long, env = "POD_NAME", default_value = "local")]
    pub pod_name: String,
    /// Address of the pod that this process runs in.
    #[arg(long, env = "POD_IP", default_value = "127.0.0.1")]
    pub pod_ip: String,
}
