//! Flags.

use clap::Args as ClapArgs;

/// Flags of the candidate scheduler.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// How long a reservation is promised to a source, in seconds. It is held for ten seconds more.
    #[arg(long, env = "MULTICLUSTER_RESERVED_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3600))]
    pub reserved_seconds: u64,
}
