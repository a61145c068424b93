//! cluster-provisioner makes the clusters that WorkloadClusters declare, keeps them as declared, makes Targets of
//! them, and takes them down in an order that ends.
//!
//! It runs in the management cluster, which is usually the source. It watches WorkloadClusters, CloudAccounts and
//! ReleaseCatalogs, and of Cluster API's objects and of Targets those with label
//! `provisioning.multicluster-scheduler.io/cluster-uid`. Each round looks at everything live and decides anew, so that
//! it does not matter after which write a process died.
//!
//! It writes the objects of Cluster API by server-side apply and only when one of its own fields is not as it should
//! be; the Secret with the credentials for Cluster API, a copy of the CloudAccount's; in a cluster that is Ready the
//! namespace and the Source or ClusterSource, and here the Secret with a token of one day, renewed at half of it, and
//! the Target. The status has one condition for each stage.
//!
//! What replaces nodes goes one group after another: control plane, then pool by pool. Templates are named after a
//! hash of their content; `status.plan` says what will be replaced before it is.
//!
//! A deletion has five steps: `Drain` cordons the virtual node and evicts its pods, `Unregister` removes Target and
//! Secret, `CleanUp` removes Services of type LoadBalancer and treats volumes as `deletion.volumes` says,
//! `Infrastructure` deletes the Cluster and waits until Cluster API is done, `Credentials` goes last. The annotation
//! `provisioning.multicluster-scheduler.io/abandon: STEP` skips one, which the status remembers.
//!
//! It never touches an object that another WorkloadCluster, or nobody, has marked: identity is the UID in the label,
//! not the name. It never deletes a Target because its cluster is silent, and touches nothing of a paused cluster but
//! the `paused` of its Cluster.
//!
//! Add-ons are applied in the workload cluster from the manifests that a catalogue names, in waves, with an
//! AddonInventory here that is written before an object is: what was switched off is removed, what was changed is put
//! back. Objects whose removal takes more with it wait for a word.
//!
//! In OpenStack it makes, besides what Cluster API does, two restricted application credentials for each cluster, one
//! for Cluster API and one for the controllers inside, renewed before they end and deleted last; and a server group
//! for each pool. Their names hold the UID of the WorkloadCluster, and nothing of another name is touched. A cloud that
//! does not answer has deleted nothing.
//!
//! Not served yet: NodeImages, checks of quotas and conformance runs are declared and not acted upon; manifests are
//! taken from ConfigMaps and not fetched from URLs; a pod network is not exchanged for another while nodes run.
//!
//! # Permissions
//!
//! | group | resources | verbs | why |
//! |---|---|---|---|
//! | provisioning.multicluster-scheduler.io | workloadclusters | get, list, watch, patch | what is declared; the finalizer |
//! | provisioning.multicluster-scheduler.io | workloadclusters/status | patch | how far a cluster is |
//! | provisioning.multicluster-scheduler.io | cloudaccounts, releasecatalogs | get, list, watch | clouds and versions |
//! | provisioning.multicluster-scheduler.io | addoninventories | list, create, patch, delete | what was applied of add-ons |
//! | cluster.x-k8s.io | clusters, clusterclasses, machinedeployments, machinehealthchecks | get, list, watch, create, patch, delete | the cluster |
//! | controlplane.cluster.x-k8s.io | kubeadmcontrolplanes, kubeadmcontrolplanetemplates | get, list, watch, create, patch, delete | its control plane |
//! | bootstrap.cluster.x-k8s.io | kubeadmconfigtemplates | get, list, watch, create, patch, delete | how its workers join |
//! | infrastructure.cluster.x-k8s.io | openstackclusters, openstackclustertemplates, openstackmachinetemplates | get, list, watch, create, patch, delete | its networks and machines |
//! | infrastructure.cluster.x-k8s.io | openstackmachines | list | what the cloud says of a machine |
//! | core | secrets | get, create, patch, delete | credentials and kubeconfigs |
//! | multicluster.admiralty.io | targets, clustertargets | get, list, watch, create, patch, delete | the Target |
//! | core | nodes | get, patch | the virtual node is cordoned before a deletion |
//! | core | pods | list | what runs on it |
//! | core | pods/eviction | create | and moves away |
//!
//! In its own namespace: `get` on configmaps (manifests); `create` on leases, and `get`, `list`, `watch`, `update`, `patch` on the Lease
//! `multicluster-cluster-provisioner`. In a workload cluster it is the administrator that Cluster API's kubeconfig
//! names.

pub mod addons;
mod apply;
pub mod catalog;
pub mod cli;
mod clients;
mod controller;
mod error;
pub mod import;
mod metrics;
mod observe;
mod openstack;
pub mod plan;
pub mod render;

pub use controller::{Args, serve};
