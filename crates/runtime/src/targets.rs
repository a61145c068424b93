//! The live registry of targets: Targets, ClusterTargets and their kubeconfig Secrets, followed at run time.
//!
//! A target that cannot be used is a state with a reason, never a hole: services see it like any other and
//! leave alone what they know of it.

mod drive;
mod registry;

use crate::Runtime;
use api::conditions::{Kind, Reason, is_true};
use api::failover::Policy;
use api::v1alpha1::{Capacity, LabelRewriting, TargetStatus};
use api::{fence, keys};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch as channel;

/// Identity of a Target (with namespace) or ClusterTarget (without).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetKey {
    /// Namespace of a Target; empty for a ClusterTarget.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl TargetKey {
    /// Name of the virtual node that stands for the target.
    #[must_use]
    pub fn virtual_node(&self) -> String {
        api::names::virtual_node(&self.namespace, &self.name)
    }

    /// Whether pods of a namespace may go there.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace == namespace
    }
}

impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return f.write_str(&self.name);
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What the spec of a Target and of a ClusterTarget have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The target is the local cluster.
    pub is_self: bool,
    /// Node labels that match are not shown on the virtual node.
    pub excluded_labels_regexp: Option<String>,
    /// What happens to labels of delegates.
    pub label_rewriting: LabelRewriting,
    /// How many targets are asked at once: a number, or `all`.
    pub ask: Option<String>,
    /// Those with a lower one are filled first.
    pub order: i32,
    /// Its share among those of one order; `None` where nobody has said.
    pub weight: Option<u32>,
    /// How long a delegate may wait for a node, as a duration.
    pub start_deadline: Option<String>,
    /// What becomes of pods when the target does not answer, unless they say otherwise.
    pub failover: Policy,
    /// What the virtual node shows of the cluster's capacity.
    pub capacity: Option<Capacity>,
}

/// Whether there is a client, and if not, why.
#[derive(Clone)]
pub enum Connection {
    /// A client; the fingerprint changes with the credentials.
    Up {
        /// Client of the target.
        client: Client,
        /// Equal for equal credentials.
        fingerprint: String,
    },
    /// No client can be made from what the user gave.
    Broken {
        /// The word for the condition.
        reason: Reason,
        /// What the user can do about it.
        message: String,
    },
    /// The Secret has not been read yet.
    Pending,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Connection::Up { .. } => f.write_str("Up"),
            Connection::Broken { reason, message } => write!(f, "Broken({}: {message})", reason.as_str()),
            Connection::Pending => f.write_str("Pending"),
        }
    }
}

/// A target as it is now.
#[derive(Debug, Clone)]
pub struct Target {
    /// Which object it is.
    pub key: TargetKey,
    /// UID of the object.
    pub uid: String,
    /// Generation of the object, for conditions.
    pub generation: Option<i64>,
    /// When the object was made; of two for one cluster the older counts.
    pub created: Option<Timestamp>,
    /// What the user asked for.
    pub settings: Settings,
    /// What virtual-kubelet found out.
    pub status: TargetStatus,
    /// Whether the object is being deleted.
    pub deleting: bool,
    /// All finalizers of the object, in their order.
    pub finalizers: Vec<String>,
    /// Version of the object, for writes that depend on it.
    pub resource_version: String,
    /// The whole object's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The client, or why there is none.
    pub connection: Connection,
}

impl Target {
    /// Name of the virtual node that stands for the target.
    #[must_use]
    pub fn virtual_node(&self) -> String {
        self.key.virtual_node()
    }

    /// Client and cluster UID of a target that is accepted. `None` means that nothing may be done there
    /// now; it does not mean that nothing is there.
    #[must_use]
    pub fn usable(&self) -> Option<(&Client, &str)> {
        match (&self.connection, &self.status.cluster_uid) {
            (Connection::Up { client, .. }, Some(uid))
                if is_true(&self.status.conditions, Kind::Accepted) =>
            {
                Some((client, uid))
            }
            _ => None,
        }
    }

    /// Whether our finalizer holds the object.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == keys::TARGET_FINALIZER)
    }

    /// Whether somebody vouches that the machines of this very cluster are off.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.names_cluster(keys::FENCED)
    }

    /// Whether the object is to go although nobody knows what is left in the cluster.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.deleting && (self.is_fenced() || self.names_cluster(keys::FORCE_REMOVAL))
    }

    /// In which epoch of its Lease pods are elected now.
    #[must_use]
    pub fn fence_epoch(&self) -> u64 {
        fence::epoch(self.annotations.get(keys::FENCE_EPOCH).map(String::as_str)).unwrap_or_default()
    }

    /// An annotation counts only for the cluster that it names.
    fn names_cluster(&self, key: &str) -> bool {
        let uid = self.status.cluster_uid.as_ref().filter(|uid| !uid.is_empty());
        uid.is_some() && self.annotations.get(key) == uid
    }

    /// Changes whenever work on the target must start anew.
    fn identity(&self) -> Option<String> {
        let Connection::Up { fingerprint, .. } = &self.connection else { return None };
        let (_, uid) = self.usable()?;
        // What else the settings say matters to no work that goes on.
        let Settings { is_self, excluded_labels_regexp, label_rewriting, .. } = &self.settings;
        Some(format!("{fingerprint}/{uid}/{is_self}/{excluded_labels_regexp:?}/{label_rewriting:?}"))
    }
}

/// All targets by key.
pub type TargetMap = BTreeMap<TargetKey, Arc<Target>>;

/// A view of the registry that follows it.
#[derive(Debug, Clone)]
pub struct Targets(channel::Receiver<Option<Arc<TargetMap>>>);

impl Targets {
    /// Starts to follow targets until shutdown.
    #[must_use]
    pub fn start(runtime: &Runtime) -> Self {
        let (sender, receiver) = channel::channel(None);
        let registry = registry::Registry::new(runtime.clone(), sender);
        let shutdown = runtime.shutdown.clone();
        tokio::spawn(async move {
            tokio::select! { () = registry.follow() => (), () = shutdown.cancelled() => () }
        });
        Self(receiver)
    }

    /// All targets as they are now; empty until the first list.
    #[must_use]
    pub fn current(&self) -> Arc<TargetMap> {
        self.0.borrow().clone().unwrap_or_default()
    }

    /// Waits for the first list.
    pub async fn synced(&mut self) -> Arc<TargetMap> {
        let map = self.0.wait_for(Option::is_some).await.ok().map(|map| map.clone().unwrap_or_default());
        match map {
            Some(map) => map,
            // The sender lives until shutdown; nothing is left to do then.
            None => std::future::pending().await,
        }
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) -> Arc<TargetMap> {
        if self.0.changed().await.is_err() {
            return std::future::pending().await;
        }
        self.0.borrow_and_update().clone().unwrap_or_default()
    }
}
