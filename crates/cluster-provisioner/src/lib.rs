//! cluster-provisioner makes the clusters that WorkloadClusters declare.

pub mod catalog;
pub mod cli;
pub mod import;
pub mod render;
