//! Flags of this service.

/// Flags of the proxy scheduler.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Name of this cluster in the labels of what it asks for elsewhere; when empty, its UID.
    #[arg(long, env = "MULTICLUSTER_CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
}
