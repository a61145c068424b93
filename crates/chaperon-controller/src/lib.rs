//! chaperon-controller runs, in a target cluster, the delegates of the PodChaperons that a source elected.
//!
//! It watches PodChaperons in all namespaces and the pods with label `multicluster.admiralty.io/parent-uid`.
//! Of an allowed PodChaperon it creates the delegate: a pod of the same name, labels, annotations and spec. The
//! first one begins on the node that was reserved, if that was seen to be promised not long ago and nothing is left
//! for a scheduler to prepare; the candidate scheduler binds all others.
//! It writes the delegate's status and annotations to the PodChaperon, or why there is no delegate, creates a
//! lost one of restart policy `Always` again, and lets a deleted PodChaperon go only when its delegate's
//! containers have stopped.
//!
//! A delegate is not created before the ConfigMaps, Secrets and PersistentVolumeClaims are there that its spec names,
//! a claim of the source as the copy of that very claim; `DelegateCreated=False`,
//! reason `WaitsForReferences`, says which are awaited. What it can do without, optional references and pull
//! secrets, is waited for at most one second. Copies that sources make are watched by their metadata, what the
//! target has by itself is read by its metadata when it is named.
//!
//! What was changed on the proxy pod after it was submitted (annotation `updates` of the PodChaperon) is changed on the
//! delegate: annotations, labels, images, the deadline, tolerations, resources in place. What the API server refuses
//! stands in condition `DelegateUpdated`. A key that was written in the source stays as it is there; any other
//! annotation of the delegate flows back.
//!
//! All decisions are in [`plan`]; [`delegate`] and [`status`] hold what they rest on.
//!
//! It never runs finished work again: a recorded end is final. It never touches a pod that no PodChaperon
//! controls, never changes a spec unless the source did, and takes no silence of a node for an end.
//!
//! A delegate with `fence: Lease` runs only as long as its source is seen to renew a Lease here: one that is not
//! renewed is noted as over, and what runs of that epoch is stopped, with its own grace period, for ever.
//!
//! A replica is ready when it could list and watch pods and PodChaperons, and, if it leads, is in step with them.
//!
//! # Permissions
//!
//! In every namespace of the target:
//!
//! | group | resources | verbs | why |
//! |---|---|---|---|
//! | multicluster.admiralty.io | podchaperons | list, watch | the elected delegates to be |
//! | multicluster.admiralty.io | podchaperons | get | read live before a lost delegate is created again |
//! | multicluster.admiralty.io | podchaperons | patch | annotations of the delegate; the finalizer |
//! | multicluster.admiralty.io | podchaperons/finalizers | update | a delegate's owner reference blocks the deletion of its PodChaperon |
//! | multicluster.admiralty.io | podchaperons/status | patch | the delegate's status, or why there is none |
//! | core | pods | list, watch | the delegates |
//! | core | pods | get | read live before a delegate counts as lost, and when its name is taken |
//! | core | pods | create | delegates |
//! | core | pods | patch | the finalizer; what was changed on the proxy pod |
//! | core | pods/resize | patch | resources that were changed on the proxy pod in place |
//! | core | pods | delete | delegates of deleted PodChaperons and those that a kubelet refused |
//! | core | configmaps, secrets, persistentvolumeclaims | get, list, watch | whether what delegates name is there; metadata alone is asked for |
//! | coordination.k8s.io | leases | list, watch, patch | whether sources with `fence: Lease` are there, and that one is not |
//!
//! In its own namespace: `create` on leases, and `get`, `list`, `watch`, `update`, `patch` on the Lease
//! `multicluster-chaperon-controller`.

mod apply;
mod cache;
mod controller;
pub mod delegate;
mod error;
pub mod fence;
mod fences;
pub mod metrics;
mod mirror;
mod patches;
pub mod plan;
mod standby;
pub mod status;
mod stock;

pub use controller::{Args, lead, serve};
