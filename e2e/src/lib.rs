//! The test ground: whole Kubernetes clusters on one machine, with the project installed as users install it.
//!
//! A run moves into Linux namespaces of its own ([`namespaces`]), so that it ends as a whole and cannot
//! collide with another one. Inside, [`network`] lays one network namespace per cluster and one per pod,
//! [`cluster`] starts a real control plane per cluster from the binaries of [`binaries`], and [`kubelet`]
//! plays the kubelet of the one node `harness`: it runs the containers of the chart's pods as local
//! processes, with the arguments, volumes, probes and ServiceAccount tokens that the chart gave them. All
//! other nodes are fake ones, played by kwok with the stages in `stages.yaml`.
//!
//! [`ground::Ground`] holds all of it together.
#![expect(clippy::print_stderr, reason = "the harness is a command-line program and reports its progress")]

pub mod binaries;
pub mod cluster;
pub mod connect;
pub mod controlplane;
pub mod dump;
pub mod ground;
pub mod helm;
pub mod images;
pub mod install;
pub mod kubelet;
pub mod namespaces;
pub mod network;
pub mod nodes;
pub mod pki;
pub mod process;
pub mod program;
pub mod provider;
pub mod relay;
pub mod setup;
pub mod streams;
pub mod tools;
pub mod usage;
pub mod wait;

/// Annotations that steer the fake kubelets and tell test objects apart.
pub mod keys {
    /// On a pod: how long a Job's pod runs before it completes, as `5s` or `2m`.
    pub const RUNS_FOR: &str = "e2e.multicluster-scheduler.io/runs-for";
    /// On a pod: the exit code with which a Job's pod completes; `0` when absent.
    pub const EXIT_CODE: &str = "e2e.multicluster-scheduler.io/exit-code";
    /// On a pod: how long its containers need to stop, as `5s`; its whole grace period when absent.
    pub const STOPS_AFTER: &str = "e2e.multicluster-scheduler.io/stops-after";
    /// On a pod: the name of the fake node that refuses to start it, or `*` for every fake node.
    pub const REFUSED_BY: &str = "e2e.multicluster-scheduler.io/refused-by";
    /// On a fake node: the port of its kubelet, where it is not kwok's.
    pub const KUBELET_PORT: &str = "e2e.multicluster-scheduler.io/kubelet-port";
    /// On a fake node: how much CPU each container on it uses, as a quantity.
    pub const USAGE_CPU: &str = "e2e.multicluster-scheduler.io/usage-cpu";
    /// On a node: kwok plays its kubelet.
    pub const FAKE_NODE: &str = "kwok.x-k8s.io/node";
}
