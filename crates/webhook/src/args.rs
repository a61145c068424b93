//! Flags of the webhook.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The shortest life of a certificate that leaves time to replace it.
const SHORTEST_SECONDS: u64 = 20;

/// Flags of the webhook, besides those that all services have.
#[derive(Debug, Clone, Args)]
pub struct WebhookArgs {
    /// Address on which reviews are served over TLS.
    #[arg(long, env = "MULTICLUSTER_LISTEN", default_value = "0.0.0.0:9443")]
    pub listen: SocketAddr,
    /// Name of the Service in front of this process: the certificate is made for it.
    #[arg(long, env = "MULTICLUSTER_SERVICE_NAME", default_value = "multicluster-webhook")]
    pub service_name: String,
    /// Name of the mutating and of the validating webhook configuration that get the CA bundle.
    #[arg(long, env = "MULTICLUSTER_CONFIGURATION_NAME", default_value = "multicluster-webhook")]
    pub configuration_name: String,
    /// Name of the Secret with certificates and keys; created if absent.
    #[arg(long, env = "MULTICLUSTER_SECRET_NAME", default_value = "multicluster-webhook")]
    pub secret_name: String,
    /// Directory with tls.crt and tls.key that somebody else renews; no CA is made and no bundle published.
    #[arg(long, env = "MULTICLUSTER_CERTIFICATE_DIR")]
    pub certificate_dir: Option<PathBuf>,
    /// How long a certificate authority lasts, in seconds; replaced when a third is left.
    #[arg(long, env = "MULTICLUSTER_AUTHORITY_LIFETIME_SECONDS", default_value_t = 157_680_000,
          value_parser = clap::value_parser!(u64).range(SHORTEST_SECONDS..=3_153_600_000))]
    pub authority_lifetime_seconds: u64,
    /// How long a serving certificate lasts, in seconds; replaced when a third is left.
    #[arg(long, env = "MULTICLUSTER_CERTIFICATE_LIFETIME_SECONDS", default_value_t = 7_776_000,
          value_parser = clap::value_parser!(u64).range(SHORTEST_SECONDS..=3_153_600_000))]
    pub certificate_lifetime_seconds: u64,
}
