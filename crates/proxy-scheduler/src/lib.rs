//! The scheduler of the source: asks targets for each proxy pod, elects one, and allows it.
//!
//! Watches: proxy pods (field selector `spec.schedulerName=admiralty-proxy`), the PersistentVolumeClaims that say where
//! they may go, virtual nodes, namespaces, Targets and ClusterTargets with their Secrets, TargetScores, PodGroups; in
//! each usable target the PodChaperons of this source and the
//! ClusterSummary.
//!
//! Writes: in the source bindings, `PodScheduled=False` and grants of proxy pods without a node, events; in targets
//! PodChaperons (creates, renews, allows, revokes, deletes).
//!
//! Promises: a pod is bound, or one target granted, by one compare-and-swap that names the elected PodChaperon; a
//! PodChaperon is allowed only after that, never two for one pod. A grant is taken back only after the target has
//! confirmed that the delegate is gone and never had a node, and before that no other target is elected. What a target does not say, fails or refuses counts against
//! that target alone. Nothing waits for a silent target.
//!
//! Never: removes a finalizer, touches a pod that has a node, creates a PodChaperon that is allowed, or does
//! anything in a target that does not serve the pod's namespace.
//!
//! Everything is decided in [`machine`], which knows no clock and no network; [`observe`] reduces objects to what
//! it looks at, `call` and `apply` carry out what it says.
//!
//! # RBAC
//!
//! In the source, for its ServiceAccount:
//!
//! | group | resources | verbs | reason |
//! |---|---|---|---|
//! | core | pods | get, list, watch | proxy pods; a live read after a lost race or a timeout of a binding |
//! | core | pods/binding | create | the election |
//! | core | pods/status | patch | `PodScheduled` and the grant of a proxy pod without a node |
//! | core | nodes | get, list, watch | virtual nodes |
//! | core | namespaces | get, list, watch | the UID of this cluster; labels for selectors of namespaces |
//! | core | persistentvolumeclaims | list, watch | a pod goes where the data of its claims is |
//! | core | secrets | get, list, watch | kubeconfigs of targets |
//! | core | events | create | `Scheduled`, `FailedScheduling` |
//! | multicluster.admiralty.io | targets, clustertargets | get, list, watch | the registry of targets |
//! | multicluster.admiralty.io | podchaperons | get, list, watch, create, patch, delete | targets with `self: true` |
//! | multicluster.admiralty.io | clustersummaries | get, list, watch | targets with `self: true` |
//! | scheduling.x-k8s.io, scheduling.k8s.io | podgroups | list, watch | how many pods of a group must fit at once |
//! | multicluster-scheduler.io | targetscores | list, watch | what others think of targets |
//! | coordination.k8s.io | leases (own namespace) | get, list, watch, create, update, patch | leader election |
//!
//! In a target, for the identity of the source, in the namespaces that it serves:
//!
//! | group | resources | verbs | reason |
//! |---|---|---|---|
//! | multicluster.admiralty.io | podchaperons | get, list, watch, create, patch, delete | ask, renew, allow, revoke, take back |
//! | multicluster.admiralty.io | clustersummaries | get, list, watch | rank |

mod apply;
pub mod args;
mod call;
pub mod controller;
pub mod error;
pub mod machine;
pub mod metrics;
pub mod observe;
pub mod rank;
mod watches;

/// Name of this component.
pub const COMPONENT: &str = "proxy-scheduler";
