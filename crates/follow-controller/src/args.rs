//! Flags of follow-controller.

use clap::{Args, ValueEnum};

/// What happens to Services whose pods run elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Services {
    /// Copies select the delegates, and the original is rerouted to them as a global Service of Cilium.
    Global,
    /// Copies select the delegates; the original stays as it is and leads to the addresses of the proxy pods, which
    /// are those of the delegates.
    Copied,
    /// Services do not follow.
    Off,
}

/// Flags that only follow-controller has.
#[derive(Debug, Clone, Args)]
pub struct FollowArgs {
    /// Name of this cluster as a source, seen in its targets; by default its UID.
    #[arg(long, env = "MULTICLUSTER_CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,
    /// Only objects that match one of these may follow: `kind/namespace/name`, kinds as in `configmaps`, `*` for any text. Repeatable; without it all may.
    #[arg(long)]
    pub allow: Vec<String>,
    /// Objects that match one of these never follow, in the same form. Repeatable.
    #[arg(long)]
    pub deny: Vec<String>,
    /// Objects of this kind follow only with annotation `multicluster.admiralty.io/follow: allowed`. Repeatable.
    #[arg(long)]
    pub on_request: Vec<String>,
    /// Labels and annotations whose key matches are not copied, besides those of deployment tools, certificates and DNS. Repeatable.
    #[arg(long)]
    pub strip: Vec<String>,
    /// What happens to Services whose pods run elsewhere: `global` (rerouted and global for Cilium), `copied` (the original stays as it is), `off`.
    #[arg(long, env = "MULTICLUSTER_SERVICES", value_enum, default_value = "global")]
    pub services: Services,
    /// How long a copy that nobody uses any more stays, in seconds.
    #[arg(long, env = "MULTICLUSTER_LINGER_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=86400))]
    pub linger_seconds: u64,
}
