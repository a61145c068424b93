//! The kinds of group `multicluster.admiralty.io`, version `v1alpha1`.

pub mod cluster_summary;
pub mod source;
pub mod target;

pub use cluster_summary::ClusterSummary;
pub use source::{
    ClusterSource, ClusterSourceSpec, ServiceAccountReference, Source, SourceSpec, SourceStatus,
};
pub use target::{
    Capacity, CapacityOf, ClusterKubeconfigSecret, ClusterTarget, ClusterTargetSpec, Failover, Fence,
    KubeconfigSecret, LabelRewriting, Target, TargetSpec, TargetStatus,
};
