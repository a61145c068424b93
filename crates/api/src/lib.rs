//! The contract of multicluster-scheduler: kinds, keys, names and the rules that several services share.
//!
//! Nothing here does I/O, reads a clock or logs. Two services that must agree on something find it here.
//!
//! | kind | written by | read by |
//! |---|---|---|
//! | [`Target`], [`ClusterTarget`] (spec) | users | every service of a source cluster |
//! | [`Target`], [`ClusterTarget`] (status) | virtual-kubelet | every service of a source cluster |
//! | [`Source`], [`ClusterSource`] | users (status: source-controller) | source-controller |
//! | [`PodChaperon`] (spec, labels) | proxy-scheduler | candidate-scheduler, chaperon-controller, feedback-controller |
//! | [`PodChaperon`] (status) | candidate-scheduler until a delegate exists, then chaperon-controller | the source |
//! | [`TargetScore`] | any controller that may | proxy-scheduler |
//! | [`ClusterSummary`] | candidate-scheduler | proxy-scheduler, virtual-kubelet |
//!
//! Who writes each annotation, label and finalizer stands beside its constant in [`keys`].
#![warn(missing_docs, missing_debug_implementations)]

pub mod claims;
pub mod conditions;
pub mod crds;
pub mod delegate;
pub mod election;
pub mod explanation;
pub mod failover;
pub mod fence;
pub mod keys;
pub mod labels;
pub mod managed;
pub mod names;
pub mod preference;
pub mod provisioning;
pub mod raw;
pub mod references;
mod remote;
pub mod scores;
pub mod updates;
pub mod v1alpha1;

pub use raw::{Node, Pod, PodChaperon};
pub use remote::Remote;
pub use scores::{TargetScore, TargetScoreSpec};
pub use v1alpha1::{
    ClusterSource, ClusterSourceSpec, ClusterSummary, ClusterTarget, ClusterTargetSpec, Failover, Fence,
    Source, SourceSpec, SourceStatus, Target, TargetSpec, TargetStatus,
};
