//! Names of the objects of a cluster that do not change.

use api::provisioning::WorkloadClusterSpec;
use std::collections::BTreeMap;

/// Names of the objects of a cluster that do not change. A cluster that was taken over keeps its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// The Cluster.
    pub cluster: String,
    /// The OpenStackCluster.
    pub infrastructure_cluster: String,
    /// The KubeadmControlPlane.
    pub control_plane: String,
    /// The Secret with the credentials of Cluster API.
    pub secret: String,
    /// MachineDeployments, by pool.
    pub pools: BTreeMap<String, String>,
}

impl Names {
    /// The names of a cluster.
    #[must_use]
    pub fn of(name: &str, spec: &WorkloadClusterSpec) -> Self {
        let adopt = spec.adopt.clone().unwrap_or_default();
        let names = adopt.names.unwrap_or_default();
        let cluster = names.cluster.unwrap_or_else(|| name.to_owned());
        let pools = spec.node_pools.iter().map(|pool| {
            let adopted = adopt.node_pools.get(&pool.name).cloned();
            (pool.name.clone(), adopted.unwrap_or_else(|| format!("{cluster}-{}", pool.name)))
        });
        Self {
            infrastructure_cluster: names.infrastructure_cluster.unwrap_or_else(|| cluster.clone()),
            control_plane: names.control_plane.unwrap_or_else(|| format!("{cluster}-control-plane")),
            secret: names.secret.unwrap_or_else(|| format!("{cluster}-cloud-config")),
            pools: pools.collect(),
            cluster,
        }
    }

    /// The Secret with the administrator's kubeconfig, which Cluster API writes.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        format!("{}-kubeconfig", self.cluster)
    }
}
