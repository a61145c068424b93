//! source-controller sets up, in a target cluster, what the Sources and ClusterSources in it name: the
//! identity of a source cluster and the rights that it needs here.
//!
//! It watches Sources, ClusterSources, ServiceAccounts, and the RoleBindings and ClusterRoleBindings with
//! label `multicluster.admiralty.io/source-uid`. It creates the ServiceAccount that is named and absent; one
//! binding to the role of sources, in the Source's namespace or, for a ClusterSource, in all; one to the role
//! that reads the ClusterSummary. Changes by hand are undone. The status says `Ready`, or why not.
//!
//! Kubernetes collects what has an owner. It cannot collect the cluster-scoped binding of a namespaced
//! Source: that one is found by its label and deleted once the API server confirms that the Source is gone.
//!
//! It never takes over an object of the same name that is not its own, never changes a ServiceAccount, and
//! puts no finalizer anywhere.
//!
//! # Permissions
//!
//! | group | resources | verbs | why |
//! |---|---|---|---|
//! | multicluster.admiralty.io | sources, clustersources | list, watch | what is to be set up |
//! | multicluster.admiralty.io | sources, clustersources | get | read live before a binding is deleted |
//! | multicluster.admiralty.io | sources/status, clustersources/status | patch | condition `Ready` |
//! | multicluster.admiralty.io | sources/finalizers, clustersources/finalizers | update | the owner references of what is created block the owner's deletion |
//! | core | serviceaccounts | list, watch, create | the identity |
//! | rbac.authorization.k8s.io | rolebindings, clusterrolebindings | list, watch, create, patch, delete | the rights, kept as they should be |
//! | rbac.authorization.k8s.io | rolebindings, clusterrolebindings | get | whose a binding is whose name is taken |
//! | rbac.authorization.k8s.io | clusterroles, of the two names in the flags | bind | it holds none of their rules itself |
//!
//! In its own namespace: `create` on leases, and `get`, `list`, `watch`, `update`, `patch` on the Lease
//! `multicluster-source-controller`.

mod apply;
mod cache;
mod controller;
pub mod desired;
mod error;
pub mod plan;

pub use controller::{Args, serve};
