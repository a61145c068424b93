//! Flags of virtual-kubelet.

use clap::Args;
use std::net::IpAddr;

/// Flags that only virtual-kubelet has.
#[derive(Debug, Clone, Args)]
pub struct KubeletArgs {
    /// Address that virtual nodes show as their own; by default the address of this pod.
    #[arg(long, env = "MULTICLUSTER_NODE_ADDRESS")]
    pub node_address: Option<IpAddr>,
}
