//! Flags of feedback-controller.

use clap::Args;

/// Flags that only feedback-controller has.
#[derive(Debug, Clone, Args)]
pub struct FeedbackArgs {
    /// Name of this cluster, for logs; the identity that counts is the cluster's UID.
    #[arg(long, env = "MULTICLUSTER_CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
}
