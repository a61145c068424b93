//! Every label, annotation, finalizer and fixed name, grouped by who writes it.

/// The prefix of all keys of the placement contract.
pub const PREFIX: &str = "multicluster.admiralty.io/";

/// Joins the prefix and a key, at compile time.
macro_rules! key {
    ($name:literal) => {
        concat!("multicluster.admiralty.io/", $name)
    };
}

// Users.

/// Label of a namespace: its value [`ENABLED`] lets pods of the namespace elect.
pub const NAMESPACE: &str = "multicluster-scheduler";
/// The value of [`NAMESPACE`] that counts.
pub const ENABLED: &str = "enabled";
/// Annotation of a pod (present: elected; [`NEVER`]: opted out) and label of a namespace ([`ALL`]: every pod).
pub const ELECT: &str = key!("elect");
/// Value of the namespace label [`ELECT`]: every pod of the namespace is elected.
pub const ALL: &str = "all";
/// Value of the pod annotation [`ELECT`]: this pod is not elected.
pub const NEVER: &str = "never";
/// Annotation of a pod: no reservation, the pod's own scheduler places the delegate.
pub const NO_RESERVATION: &str = key!("no-reservation");
/// Annotation of a pod: YAML of the constraints that apply to virtual nodes, besides those for real nodes.
pub const PROXY_POD_SCHEDULING_CONSTRAINTS: &str = key!("proxy-pod-scheduling-constraints");
/// Annotation of a pod: its own constraints apply to virtual nodes instead of real ones.
pub const USE_CONSTRAINTS_FROM_SPEC: &str = key!("use-constraints-from-spec-for-proxy-pod-scheduling");
/// Annotation of a pod or Service: labels whose `key=value` matches this expression are not rewritten.
pub const NO_PREFIX_LABEL_REGEXP: &str = key!("no-prefix-label-regexp");
/// Annotation of a pod: whose tokens its delegate gets. Absent: none but the one that the target gives every pod;
/// [`IDENTITY_TARGET`]: projected tokens too, those of the account of the target that stands for its own.
pub const IDENTITY: &str = key!("identity");
/// Value of [`IDENTITY`].
pub const IDENTITY_TARGET: &str = "Target";
/// Annotation of a pod: how many targets are asked at once (`1` … `n`, or `all`).
pub const ASK: &str = key!("ask");
/// Annotation of a pod: `name,name,…`, the targets that are filled first, in this order.
pub const TARGET_ORDER: &str = key!("target-order");
/// Annotation of a pod: `name=int,…`, the shares of targets in the pods of one controller.
pub const TARGET_WEIGHT: &str = key!("target-weight");
/// Annotation of a pod: `score=int,…`, how much each score of targets counts for it.
pub const SCORE_WEIGHT: &str = key!("score-weight");
/// Annotation of a pod: name of the group, within its namespace, with which it is placed or not at all.
pub const GROUP: &str = key!("group");
/// Annotation of a pod: how many pods of its group must fit at once.
pub const GROUP_MIN_MEMBER: &str = key!("group-min-member");
/// Annotation of a pod: [`GROUP_ONE_TARGET`], the default, or [`GROUP_ANY_TARGET`].
pub const GROUP_PLACEMENT: &str = key!("group-placement");
/// Value of [`GROUP_PLACEMENT`]: all pods of the group run in one target.
pub const GROUP_ONE_TARGET: &str = "OneTarget";
/// Value of [`GROUP_PLACEMENT`]: they may be spread over targets.
pub const GROUP_ANY_TARGET: &str = "AnyTarget";
/// Label of a pod, as other schedulers of groups read it: name of its group, where the annotation is absent.
pub const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";
/// Annotation of a pod: how long its delegate may wait for a node when another target would take the pod.
pub const START_DEADLINE: &str = key!("start-deadline");
/// Annotation of a pod: what becomes of it when its target does not answer, a [`crate::Failover`]. Annotation of a
/// PodChaperon: the policy that was in force when it was made, written by proxy-scheduler.
pub const FAILOVER: &str = key!("failover");
/// Annotation of a pod, and of a PodChaperon as [`FAILOVER`]: what counts as proof that a pod does not run any
/// more, a [`crate::Fence`].
pub const FENCE: &str = key!("fence");
/// Annotation of a pod: how long its target may be silent before it is replaced.
pub const FAILOVER_GRACE_PERIOD: &str = key!("failover-grace-period");
/// Annotation of a Target or ClusterTarget, of a PodChaperon and of a proxy pod: the epoch of the Lease in which a pod
/// with [`crate::Fence::Lease`] was elected, or in which the next one is. On a Target it only grows, and
/// feedback-controller alone writes it.
pub const FENCE_EPOCH: &str = key!("fence-epoch");
/// Annotation of a PodChaperon and of a proxy pod with [`FENCE_EPOCH`]: the grace period in seconds with which the
/// target stops the delegate when that Lease runs out.
pub const FENCE_GRACE_SECONDS: &str = key!("fence-grace-seconds");
/// Reason in the status of a PodChaperon: its delegate was stopped because the Lease of its source ran out.
pub const LEASE_EXPIRED: &str = "LeaseExpired";
/// Annotation of the Lease of a source in a target: raised by each renewal.
pub const FENCE_COUNTER: &str = key!("fence-counter");
/// Annotation of the same Lease, written by chaperon-controller: the last epoch that it let run out.
pub const FENCE_EXPIRED: &str = key!("fence-expired");
/// Annotation of the same Lease, written by chaperon-controller: the epoch and counter that a process found without
/// knowing for how long they had been there, as `1/2`.
pub const FENCE_DOUBT: &str = key!("fence-doubt");
/// Annotation of a Target or ClusterTarget, its value the cluster's UID: somebody vouches that the machines of this
/// cluster are off. Ignored with another value.
pub const FENCED: &str = key!("fenced");
/// Annotation of a Target or ClusterTarget that is being deleted, its value the cluster's UID: it goes although
/// nobody knows what is left in the cluster. Ignored with another value.
pub const FORCE_REMOVAL: &str = key!("force-removal");

// Webhook.

/// Annotation of a proxy pod: YAML of the pod as the user submitted it.
pub const SOURCE_POD_MANIFEST: &str = key!("sourcepod-manifest");
/// Annotation of a proxy pod: proof that the webhook wrote [`SOURCE_POD_MANIFEST`] for this very request.
pub const SOURCE_POD_MANIFEST_MAC: &str = key!("sourcepod-manifest-mac");
/// Label of objects that carry one of our finalizers in a source, value `true`.
pub const HAS_FINALIZER: &str = key!("has-finalizer");
/// Finalizer of a proxy pod; added by webhook, removed by feedback-controller alone.
pub const DELEGATE_FINALIZER: &str = key!("delegate");

// proxy-scheduler.

/// Label of a PodChaperon, its delegate and copies: UID of the object in the source.
pub const PARENT_UID: &str = key!("parent-uid");
/// Label of the same: the source's cluster name, by default its cluster UID; never empty.
pub const PARENT_CLUSTER_NAME: &str = key!("parent-cluster-name");
/// Label of the same: the source's cluster UID.
pub const PARENT_CLUSTER_UID: &str = key!("parent-cluster-uid");
/// Label of the same: the target's cluster UID.
pub const TARGET_UID: &str = key!("target-uid");
/// Label of the same: the virtual node, as [`crate::names::label_value`].
pub const VIRTUAL_NODE: &str = key!("virtual-node");
/// Annotation of the same: name of the object in the source.
pub const PARENT_NAME: &str = key!("parent-name");
/// Annotation of the same: namespace of the object in the source.
pub const PARENT_NAMESPACE: &str = key!("parent-namespace");
/// Annotation of a PodChaperon: hash of the delegate's spec, the class of equal pods.
pub const SPEC_HASH: &str = key!("spec-hash");
/// Annotation of a PodChaperon: number of the ask; an answer to a lower one is stale.
pub const ATTEMPT: &str = key!("attempt");
/// Annotation of a PodChaperon: elected; present means allowed, whatever the value.
pub const IS_ALLOWED: &str = key!("is-allowed");
/// Annotation of a bound proxy pod: the elected target's cluster UID.
pub const ELECTED_TARGET: &str = key!("elected-target");
/// Annotation of a bound proxy pod: the elected PodChaperon's UID.
pub const ELECTED_CHAPERON: &str = key!("elected-chaperon");
/// Annotation of a bound proxy pod and of an allowed PodChaperon: number of the election.
pub const ELECTION_EPOCH: &str = key!("election-epoch");
/// Annotation of a proxy pod or PodChaperon: the delegate may be created without a reservation, as a real pending
/// pod; [`GRANT_PREEMPT`], [`GRANT_SCALE_UP`] or [`GRANT_NO_RESERVATION`]. One target at a time has it.
pub const GRANT: &str = key!("grant");
/// Value of [`GRANT`]: pods of lower priority can make way.
pub const GRANT_PREEMPT: &str = "preempt";
/// Value of [`GRANT`]: more nodes may come.
pub const GRANT_SCALE_UP: &str = "scale-up";
/// Value of [`GRANT`]: the pod's own scheduler places the delegate.
pub const GRANT_NO_RESERVATION: &str = "no-reservation";
/// Annotation of a PodChaperon: the delegate must go if it has no node, and none is created any more.
pub const REVOKED: &str = key!("revoked");

// candidate-scheduler.

/// Annotation of a PodChaperon: a node is reserved; present means reserved, whatever the value.
pub const IS_RESERVED: &str = key!("is-reserved");
/// Annotation of a PodChaperon: name of the reserved node.
pub const RESERVED_NODE: &str = key!("reserved-node");
/// Annotation of a PodChaperon: length of the promise in seconds.
pub const RESERVED_SECONDS: &str = key!("reserved-seconds");
/// Annotation of a PodChaperon: the [`ATTEMPT`] that this reservation answers.
pub const RESERVED_ATTEMPT: &str = key!("reserved-attempt");
/// Annotation of the ClusterSummary: UID of the `kube-system` namespace.
pub const CLUSTER_UID: &str = key!("cluster-uid");
/// Annotation of the ClusterSummary: the features that all nodes declare, separated by commas.
pub const DECLARED_FEATURES: &str = key!("declared-features");
/// Annotation of the ClusterSummary: the namespace of our release in that cluster.
pub const RELEASE_NAMESPACE: &str = key!("release-namespace");
/// Annotation of the ClusterSummary: version of this protocol, [`PROTOCOL_VERSION`].
pub const PROTOCOL: &str = key!("protocol");
/// The protocol that this release speaks.
pub const PROTOCOL_VERSION: &str = "1";

/// Reason of the condition `PodScheduled=False` of a PodChaperon for which pods of lower priority could make way.
pub const PREEMPTION_HELPS: &str = "PreemptionHelps";

// chaperon-controller and feedback-controller.

/// Type of the condition of a PodChaperon that says why there is no delegate.
pub const DELEGATE_CREATED: &str = "DelegateCreated";
/// Reason of [`DELEGATE_CREATED`]: the election was taken back, and there will be no delegate.
pub const DELEGATE_REVOKED: &str = "Revoked";

/// Finalizer of a delegate pod (added at its creation) and of an allowed PodChaperon (added with
/// [`IS_ALLOWED`]); removed by chaperon-controller alone.
pub const CHAPERON_FINALIZER: &str = key!("chaperon");
/// Annotation of a terminating PodChaperon's predecessor: older releases' mark of a lost delegate.
pub const POD_MISSING_SINCE: &str = key!("pod-missing-since");
/// Annotation of a PodChaperon, written by feedback-controller before it deletes it: the grace period in
/// seconds with which the proxy pod was deleted.
pub const DELETION_GRACE_SECONDS: &str = key!("deletion-grace-seconds");

/// Annotation of a PodChaperon, written by feedback-controller: [`crate::updates::Updates`], what was changed on the
/// proxy pod since it was submitted. Annotation of its delegate, written by chaperon-controller: the record that it
/// carries out.
pub const UPDATES: &str = key!("updates");
/// Type of the condition of a PodChaperon that says why its delegate is not changed as its proxy pod was.
pub const DELEGATE_UPDATED: &str = "DelegateUpdated";

// follow-controller.

/// Finalizer of an object that has a copy in a target, and annotation by which users say whether it may have
/// one: [`NEVER`], or [`FOLLOW_ALLOWED`] where objects of its kind only follow when asked to.
pub const FOLLOW: &str = key!("follow");
/// Annotation of a copied Service or Ingress, in the target: it is no original there. The value is empty.
pub const IS_DELEGATE: &str = key!("is-delegate");
/// Annotation of a followed Service or Ingress and of its copies: [`HAS_FINALIZER`]'s value `true`.
pub const GLOBAL: &str = key!("global");
/// Annotation of a followed Service: what the user selects, as `key=value,key=value`.
pub const ORIGINAL_SELECTOR: &str = key!("original-selector");
/// Annotation of a Target or ClusterTarget: `from=to,…`, classes of Ingresses in the source and there.
pub const INGRESS_CLASSES: &str = key!("ingress-classes");
/// Annotation of a Target or ClusterTarget: `from=to,…`, hosts of Ingresses, or their ends behind a dot, in the
/// source and there.
pub const INGRESS_HOSTS: &str = key!("ingress-hosts");
/// Annotation of a followed Ingress: the addresses in its status that are those of its copies, as JSON.
pub const INGRESS_ADDRESSES: &str = key!("ingress-addresses");
/// Annotation of a Target or ClusterTarget: `from=to,…`, StorageClasses in the source and there; `*` names all others.
pub const STORAGE_CLASSES: &str = key!("storage-classes");
/// Annotation of a Target or ClusterTarget: `from=to,…`, ServiceAccounts in the source and there; `*` names all others.
pub const SERVICE_ACCOUNTS: &str = key!("service-accounts");
/// Annotation of a PersistentVolumeClaim of the source: UID of the cluster that has its data.
pub const CLAIM_HOME: &str = key!("claim-home");
/// Annotation of a PodChaperon, written by proxy-scheduler at creation: [`crate::claims::Followings`], the claims of the
/// source that follow its pod.
pub const CLAIMS: &str = key!("claims");
/// Value of the annotation [`FOLLOW`]: this object may be copied.
pub const FOLLOW_ALLOWED: &str = "allowed";
/// Reason of [`DELEGATE_CREATED`]: objects that the pod names are not there yet.
pub const WAITS_FOR_REFERENCES: &str = "WaitsForReferences";

// source-controller.

/// Label of the bindings of a Source or ClusterSource: its UID.
pub const SOURCE_UID: &str = key!("source-uid");
/// Annotation of the same: the Source's namespace; absent for a ClusterSource.
pub const SOURCE_NAMESPACE: &str = key!("source-namespace");
/// Annotation of the same: the name of the Source or ClusterSource.
pub const SOURCE_NAME: &str = key!("source-name");

// virtual-kubelet.

/// Label, taint, node selector and toleration of virtual nodes, value [`PROVIDER_VALUE`].
pub const PROVIDER: &str = "virtual-kubelet.io/provider";
/// The value of [`PROVIDER`].
pub const PROVIDER_VALUE: &str = "admiralty";
/// Taint of a virtual node that takes no pods, [`PROVIDER`]'s companion; its value is the reason of the node's Ready
/// condition.
pub const NOT_READY: &str = key!("not-ready");
/// Finalizer of an accepted Target or ClusterTarget: added by virtual-kubelet before the target is accepted, removed
/// by feedback-controller alone, when nothing of it is left in the cluster or it is given up.
pub const TARGET_FINALIZER: &str = key!("target");
/// Label of the virtual node of a Target: its namespace.
pub const TARGET_NAMESPACE: &str = key!("target-namespace");
/// Label of the virtual node of a Target: its name.
pub const TARGET_NAME: &str = key!("target-name");
/// Label of the virtual node of a ClusterTarget: its name.
pub const CLUSTER_TARGET_NAME: &str = key!("cluster-target-name");

/// Scheduler name of proxy pods.
pub const PROXY_SCHEDULER: &str = "admiralty-proxy";
/// Scheduler name of delegates.
pub const CANDIDATE_SCHEDULER: &str = "admiralty-candidate";
/// Name of the only ClusterSummary of a cluster.
pub const SINGLETON: &str = "singleton";

/// Whether a key belongs to the contract: such annotations are never mirrored between clusters.
#[must_use]
pub fn is_ours(key: &str) -> bool {
    key.starts_with(PREFIX)
}
