//! Follows Targets, ClusterTargets and the Secrets that they name.

use super::{Connection, Settings, Target, TargetKey, TargetMap};
use crate::Runtime;
use crate::kubeconfig::{self, Fault};
use crate::watch::{Seen, watch};
use api::conditions::Reason;
use api::failover::{self, Policy};
use api::v1alpha1::{ClusterTarget, Target as NamespacedTarget, TargetStatus};
use api::{Failover, Fence, Remote};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{mpsc, watch as channel};
use tokio_util::sync::CancellationToken;

/// Namespace and name of a Secret.
type SecretKey = (String, String);

pub(super) struct Registry {
    runtime: Runtime,
    sender: channel::Sender<Option<Arc<TargetMap>>>,
    objects: [Option<BTreeMap<TargetKey, Object>>; 2],
    secrets: BTreeMap<SecretKey, SecretState>,
    clients: BTreeMap<TargetKey, (String, Result<Client, Fault>)>,
    seen: mpsc::UnboundedSender<(SecretKey, Remote<Secret>)>,
    secret_events: mpsc::UnboundedReceiver<(SecretKey, Remote<Secret>)>,
}

/// A Target or ClusterTarget without what differs between them.
#[derive(Debug, Clone)]
struct Object {
    target: Target,
    secret: Option<(SecretKey, String, Option<String>)>,
}

struct SecretState {
    token: CancellationToken,
    value: Remote<Secret>,
}

impl Registry {
    pub(super) fn new(runtime: Runtime, sender: channel::Sender<Option<Arc<TargetMap>>>) -> Self {
        let (seen, secret_events) = mpsc::unbounded_channel();
        Self {
            runtime,
            sender,
            objects: [None, None],
            secrets: BTreeMap::new(),
            clients: BTreeMap::new(),
            seen,
            secret_events,
        }
    }

    pub(super) async fn follow(mut self) {
        let client = &self.runtime.client;
        let metrics = &self.runtime.metrics;
        let config = watcher::Config::default();
        let mut namespaced =
            Box::pin(watch(Api::<NamespacedTarget>::all(client.clone()), config.clone(), "local", metrics));
        let mut cluster =
            Box::pin(watch(Api::<ClusterTarget>::all(client.clone()), config, "local", metrics));
        loop {
            tokio::select! {
                biased;
                Some(seen) = namespaced.next() => self.take(0, seen, namespaced_object),
                Some(seen) = cluster.next() => self.take(1, seen, cluster_object),
                Some((key, value)) = self.secret_events.recv() => {
                    if let Some(state) = self.secrets.get_mut(&key) {
                        state.value = value;
                    }
                }
            }
            self.follow_secrets();
            self.publish().await;
        }
    }

    fn take<K>(&mut self, slot: usize, seen: Seen<K>, object: impl Fn(K) -> Object) {
        let Some(known) = self.objects.get_mut(slot) else { return };
        match seen {
            Seen::Replaced(all) => {
                *known = Some(all.into_iter().map(object).map(|o| (o.target.key.clone(), o)).collect());
            }
            Seen::Applied(one) => {
                let one = object(one);
                known.get_or_insert_default().insert(one.target.key.clone(), one);
            }
            Seen::Deleted(one) => {
                known.get_or_insert_default().remove(&object(one).target.key);
            }
            Seen::Failed(_) => {}
        }
    }

    /// One watch for each Secret that a target names, none for others.
    fn follow_secrets(&mut self) {
        let wanted: BTreeSet<SecretKey> = self
            .objects
            .iter()
            .flatten()
            .flat_map(BTreeMap::values)
            .filter_map(|o| Some(o.secret.as_ref()?.0.clone()))
            .collect();
        self.secrets.retain(|key, state| {
            let keep = wanted.contains(key);
            if !keep {
                state.token.cancel();
            }
            keep
        });
        for key in wanted {
            if self.secrets.contains_key(&key) {
                continue;
            }
            let token = self.runtime.shutdown.child_token();
            self.secrets.insert(key.clone(), SecretState { token: token.clone(), value: Remote::Unknown });
            tokio::spawn(follow_secret(self.runtime.clone(), key, self.seen.clone(), token));
        }
    }

    async fn publish(&mut self) {
        let [Some(namespaced), Some(cluster)] = self.objects.clone() else { return };
        let mut map = TargetMap::new();
        for (key, object) in namespaced.into_iter().chain(cluster) {
            let connection = self.connect(&object).await;
            map.insert(key, Arc::new(Target { connection, ..object.target }));
        }
        self.clients.retain(|key, _| map.contains_key(key));
        self.sender.send_replace(Some(Arc::new(map)));
    }

    async fn connect(&mut self, object: &Object) -> Connection {
        if object.target.settings.is_self {
            return Connection::Up { client: self.runtime.client.clone(), fingerprint: "self".to_owned() };
        }
        let broken = |fault: Fault| Connection::Broken { reason: fault.reason, message: fault.message };
        let Some((secret, data_key, context)) = &object.secret else {
            let message = "spec: exactly one of `self: true` and `kubeconfigSecret` must be set".to_owned();
            return Connection::Broken { reason: Reason::SpecInvalid, message };
        };
        let value = match self.secrets.get(secret).map(|state| &state.value) {
            None | Some(Remote::Unknown) => return Connection::Pending,
            Some(Remote::Absent) => None,
            Some(Remote::Present(value)) => Some(value),
        };
        let text = match text(value, secret, data_key) {
            Ok(text) => text,
            Err(fault) => {
                return self.last_client(&object.target, value.is_none()).unwrap_or_else(|| broken(fault));
            }
        };
        let fingerprint =
            api::names::short_hash(&format!("{}/{text}", context.as_deref().unwrap_or_default()));
        let key = &object.target.key;
        if self.clients.get(key).is_none_or(|(old, _)| *old != fingerprint) {
            let made = make(&text, context.as_deref(), key, &self.runtime).await;
            self.clients.insert(key.clone(), (fingerprint.clone(), made));
        }
        match self.clients.get(key) {
            Some((_, Ok(client))) => Connection::Up { client: client.clone(), fingerprint },
            Some((_, Err(fault))) => broken(fault.clone()),
            None => Connection::Pending,
        }
    }

    /// A namespace is deleted with all that is in it: the way to a target that is being deleted outlives the Secret
    /// that showed it.
    fn last_client(&self, target: &Target, secret_is_gone: bool) -> Option<Connection> {
        let (fingerprint, made) =
            self.clients.get(&target.key).filter(|_| target.deleting && secret_is_gone)?;
        let client = made.as_ref().ok()?.clone();
        Some(Connection::Up { client, fingerprint: fingerprint.clone() })
    }
}

async fn make(
    text: &str,
    context: Option<&str>,
    key: &TargetKey,
    runtime: &Runtime,
) -> Result<Client, Fault> {
    let config = kubeconfig::config(text, context).await?;
    runtime.connector.connect(config, &key.to_string(), &runtime.metrics).map_err(|error| Fault {
        reason: Reason::KubeconfigInvalid,
        message: format!("the kubeconfig makes no client: {}", crate::Chain(&error)),
    })
}

fn text(value: Option<&Secret>, key: &SecretKey, data_key: &str) -> Result<String, Fault> {
    let (namespace, name) = key;
    let secret = value.ok_or_else(|| Fault {
        reason: Reason::SecretNotFound,
        message: format!(
            "Secret {namespace}/{name} does not exist; create it with the kubeconfig under key {data_key}"
        ),
    })?;
    let bytes = secret.data.as_ref().and_then(|data| data.get(data_key)).ok_or_else(|| Fault {
        reason: Reason::KubeconfigInvalid,
        message: format!("Secret {namespace}/{name} has no key {data_key}; set spec.kubeconfigSecret.key"),
    })?;
    String::from_utf8(bytes.0.clone()).map_err(|_invalid| Fault {
        reason: Reason::KubeconfigInvalid,
        message: format!("Secret {namespace}/{name}, key {data_key}: the value is no text"),
    })
}

async fn follow_secret(
    runtime: Runtime,
    key: SecretKey,
    seen: mpsc::UnboundedSender<(SecretKey, Remote<Secret>)>,
    token: CancellationToken,
) {
    let api = Api::<Secret>::namespaced(runtime.client.clone(), &key.0);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", key.1));
    let mut events = Box::pin(watch(api, config, "local", &runtime.metrics));
    loop {
        let event = tokio::select! { () = token.cancelled() => return, event = events.next() => event };
        let value = match event {
            Some(Seen::Replaced(all)) => all.into_iter().next().map_or(Remote::Absent, Remote::Present),
            Some(Seen::Applied(secret)) => Remote::Present(secret),
            Some(Seen::Deleted(_)) => Remote::Absent,
            Some(Seen::Failed(_)) => continue,
            None => return,
        };
        if seen.send((key.clone(), value)).is_err() {
            return;
        }
    }
}

fn namespaced_object(object: NamespacedTarget) -> Object {
    let namespace = object.namespace().unwrap_or_default();
    let secret = object.spec.kubeconfig_secret.map(|secret| {
        (
            (namespace.clone(), secret.name),
            secret.key.unwrap_or_else(default_key),
            secret.context.filter(|c| !c.is_empty()),
        )
    });
    let settings = Settings {
        is_self: object.spec.self_ == Some(true),
        excluded_labels_regexp: object.spec.excluded_labels_regexp,
        label_rewriting: object.spec.label_rewriting.unwrap_or_default(),
        ask: object.spec.ask,
        order: object.spec.order.unwrap_or_default(),
        weight: object.spec.weight,
        start_deadline: object.spec.start_deadline,
        failover: policy(
            object.spec.failover,
            object.spec.failover_grace_period.as_deref(),
            object.spec.fence,
        ),
        capacity: object.spec.capacity,
    };
    Object { target: target(object.metadata, namespace, settings, object.status.unwrap_or_default()), secret }
}

fn cluster_object(object: ClusterTarget) -> Object {
    let secret = object.spec.kubeconfig_secret.map(|secret| {
        (
            (secret.namespace, secret.name),
            secret.key.unwrap_or_else(default_key),
            secret.context.filter(|c| !c.is_empty()),
        )
    });
    let settings = Settings {
        is_self: object.spec.self_ == Some(true),
        excluded_labels_regexp: object.spec.excluded_labels_regexp,
        label_rewriting: object.spec.label_rewriting.unwrap_or_default(),
        ask: object.spec.ask,
        order: object.spec.order.unwrap_or_default(),
        weight: object.spec.weight,
        start_deadline: object.spec.start_deadline,
        failover: policy(
            object.spec.failover,
            object.spec.failover_grace_period.as_deref(),
            object.spec.fence,
        ),
        capacity: object.spec.capacity,
    };
    Object {
        target: target(object.metadata, String::new(), settings, object.status.unwrap_or_default()),
        secret,
    }
}

/// A grace period that admission let through unseen and that is none counts as not said.
fn policy(failover: Option<Failover>, grace: Option<&str>, fence: Option<Fence>) -> Policy {
    let grace = grace.and_then(|text| failover::parse_grace(text).ok());
    failover::Wish { failover, grace, fence }.over(Policy::default())
}

fn default_key() -> String {
    "config".to_owned()
}

fn target(
    metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    namespace: String,
    settings: Settings,
    status: TargetStatus,
) -> Target {
    Target {
        key: TargetKey { namespace, name: metadata.name.unwrap_or_default() },
        uid: metadata.uid.unwrap_or_default(),
        generation: metadata.generation,
        created: metadata.creation_timestamp.map(|time| time.0),
        settings,
        status,
        deleting: metadata.deletion_timestamp.is_some(),
        finalizers: metadata.finalizers.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default(),
        connection: Connection::Pending,
    }
}
