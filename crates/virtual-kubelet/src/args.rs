//! Flags of virtual-kubelet.

use clap::Args;
use std::net::IpAddr;
use std::path::PathBuf;

/// Flags that only virtual-kubelet has.
#[derive(Debug, Clone, Args)]
pub struct KubeletArgs {
    /// Address that virtual nodes show as their own; by default the address of this pod.
    #[arg(long, env = "MULTICLUSTER_NODE_ADDRESS")]
    pub node_address: Option<IpAddr>,
    /// Address on which the kubelet API of virtual nodes is served.
    #[arg(long, env = "MULTICLUSTER_KUBELET_LISTEN", default_value = "0.0.0.0")]
    pub kubelet_listen: IpAddr,
    /// First port of the kubelet API: each virtual node has one of its own.
    #[arg(long, env = "MULTICLUSTER_KUBELET_PORT", default_value_t = 10250)]
    pub kubelet_port: u16,
    /// How many ports there are, and so how many virtual nodes that logs can be read of; 0 serves none.
    #[arg(long, env = "MULTICLUSTER_KUBELET_PORTS", default_value_t = 250)]
    pub kubelet_ports: u16,
    /// File with the authorities whose certificates name callers, in PEM; by default those that the API server
    /// publishes in kube-system/extension-apiserver-authentication.
    #[arg(long, env = "MULTICLUSTER_CLIENT_CA_FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Signer of the serving certificate; empty: a certificate of our own is served.
    #[arg(long, env = "MULTICLUSTER_SERVING_SIGNER", default_value = "kubernetes.io/kubelet-serving")]
    pub serving_signer: String,
    /// Whether requests for the serving certificate are approved here; otherwise somebody else has to.
    #[arg(long, env = "MULTICLUSTER_APPROVE_SERVING", default_value_t = true, action = clap::ArgAction::Set)]
    pub approve_serving: bool,
    /// How long a serving certificate is asked for, in seconds; it is replaced when a third is left.
    #[arg(long, env = "MULTICLUSTER_SERVING_LIFETIME_SECONDS", default_value_t = 7_776_000,
          value_parser = clap::value_parser!(i32).range(600..=315_360_000))]
    pub serving_lifetime_seconds: i32,
}
