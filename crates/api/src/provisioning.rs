//! The kinds of group `provisioning.multicluster-scheduler.io`, version `v1alpha1`: declared clusters and what they
//! are made from.
//!
//! | kind | written by | read by |
//! |---|---|---|
//! | [`WorkloadCluster`], [`CloudAccount`], [`NodeImage`], [`ReleaseCatalog`] (spec) | users | cluster-provisioner |
//! | their status | cluster-provisioner | users |
//! | [`AddonInventory`] | cluster-provisioner | cluster-provisioner, users |
#![expect(clippy::duplicated_attributes, reason = "several columns of a table have one type")]
#![expect(unreachable_pub, reason = "the derive of validated schemas makes a local copy of each struct")]

mod account;
mod addons;
mod catalog;
pub mod conditions;
mod control_plane;
mod image;
mod inventory;
mod network;
mod nodes;
mod policies;
mod schema;
mod status;
mod workload_cluster;

pub use account::{CloudAccount, CloudAccountSpec, CloudAccountStatus};
pub use addons::{
    Addon, Addons, CloudControllerManager, Cni, CniMigration, CniType, Harbor, IngressNginx,
    LoadBalancerChoice, Removal, TrafficPolicy,
};
pub use catalog::{
    AddonName, AddonVersion, Manifest, NodeImageSource, Release, ReleaseCatalog, ReleaseCatalogSpec, Support,
};
pub use control_plane::{
    AntiAffinity, ApiAccess, ApiAccessMode, Audit, Certificates, ControlPlane, Etcd, EtcdProfile,
    HealthCheck, LoadBalancerProvider, Oidc, RootVolume, Taint, TaintEffect,
};
pub use image::{NodeImage, NodeImageSpec, NodeImageStatus};
pub use inventory::{AddonInventory, AddonInventorySpec, InventoryItem};
pub use network::{Existing, ExternalNetwork, Network, Reference};
pub use nodes::{AdditionalVolume, Autoscale, ExtraFile, Image, NodePool, Nodes, Proxy, Register, Registry};
pub use policies::{
    Adopt, AdoptNames, AdoptServerGroups, Conformance, ConformanceMode, ConformanceRun, Credentials,
    CredentialsMode, Deletion, Patch, PatchOperation, PatchTarget, TargetAccess, TargetPolicy,
    TargetRegister, TargetScope, VolumePolicy,
};
pub use schema::{Cidr, Ip, SecretKey};
pub use status::{
    AddonStatus, ApplicationCredential, DeletionStatus, Endpoint, GroupStatus, OpenStackStatus, Resolved,
    RolloutPlan, ServerGroupStatus, TargetStatusReference, WorkloadClusterStatus,
};
pub use workload_cluster::{CloudReference, Kubernetes, Rendering, WorkloadCluster, WorkloadClusterSpec};

/// Group and version of the kinds.
pub const GROUP_VERSION: &str = "provisioning.multicluster-scheduler.io/v1alpha1";
/// The finalizer of a WorkloadCluster. cluster-provisioner puts it on and is the only one to take it off, once
/// nothing of the cluster is left.
pub const FINALIZER: &str = "provisioning.multicluster-scheduler.io/cluster";
/// UID of the WorkloadCluster that an object was made for. Written by cluster-provisioner on all that it creates.
pub const OWNER_UID: &str = "provisioning.multicluster-scheduler.io/cluster-uid";
/// Name of the add-on that an object of a workload cluster belongs to. Written by cluster-provisioner.
pub const ADDON: &str = "provisioning.multicluster-scheduler.io/addon";
/// On an object of an add-on: `Ignore` leaves it as it is found. Written by users.
pub const DRIFT: &str = "provisioning.multicluster-scheduler.io/drift";
/// On a WorkloadCluster that is being deleted: the step that is to be skipped. Written by users.
pub const ABANDON: &str = "provisioning.multicluster-scheduler.io/abandon";
