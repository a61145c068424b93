//! Watches, the queue, and what follows a failure. Decides nothing.

use crate::apply::Hands;
use crate::catalog::Catalog;
use crate::clients::{Clients, Sessions, Side};
use crate::error::Error;
use crate::metrics::Metrics;
use crate::observe::{Eyes, Key, Unreadable};
use crate::plan::plan;
use api::provisioning::{OWNER_UID, ReleaseCatalogSpec};
use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Resource};
use runtime::queue::{Next, Queue, jitter};
use runtime::{CancellationToken, Chain, Class, Runtime, Seen};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{debug, info, warn};

/// Clusters worked on at once.
const CONCURRENCY: usize = 16;

/// Flags of this service.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// Declares what is watched of a kind: that it changed, and the spec where it is needed.
macro_rules! watched {
    ($($name:ident { $($field:ident: $type:ty)? }, $kind:literal, $group:literal, $version:literal, $plural:literal, $scope:ty;)*) => {$(
        #[derive(Debug, Clone, Deserialize)]
        struct $name {
            #[serde(default)]
            metadata: ObjectMeta,
            $(#[serde(default)] $field: $type,)?
        }

        impl Resource for $name {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> Cow<'_, str> { $kind.into() }
            fn group((): &()) -> Cow<'_, str> { $group.into() }
            fn version((): &()) -> Cow<'_, str> { $version.into() }
            fn plural((): &()) -> Cow<'_, str> { $plural.into() }
            fn meta(&self) -> &ObjectMeta { &self.metadata }
            fn meta_mut(&mut self) -> &mut ObjectMeta { &mut self.metadata }
        }
    )*};
}

watched! {
    Declared {}, "WorkloadCluster", "provisioning.multicluster-scheduler.io", "v1alpha1", "workloadclusters", kube::core::NamespaceResourceScope;
    CatalogObject { spec: Value }, "ReleaseCatalog", "provisioning.multicluster-scheduler.io", "v1alpha1", "releasecatalogs", kube::core::ClusterResourceScope;
    CloudAccountObject {}, "CloudAccount", "provisioning.multicluster-scheduler.io", "v1alpha1", "cloudaccounts", kube::core::NamespaceResourceScope;
    CapiCluster {}, "Cluster", "cluster.x-k8s.io", "v1beta2", "clusters", kube::core::NamespaceResourceScope;
    CapiDeployment {}, "MachineDeployment", "cluster.x-k8s.io", "v1beta2", "machinedeployments", kube::core::NamespaceResourceScope;
    CapiPlane {}, "KubeadmControlPlane", "controlplane.cluster.x-k8s.io", "v1beta2", "kubeadmcontrolplanes", kube::core::NamespaceResourceScope;
    CapoCluster {}, "OpenStackCluster", "infrastructure.cluster.x-k8s.io", "v1beta1", "openstackclusters", kube::core::NamespaceResourceScope;
    TargetObject {}, "Target", "multicluster.admiralty.io", "v1alpha1", "targets", kube::core::NamespaceResourceScope;
    ClusterTargetObject {}, "ClusterTarget", "multicluster.admiralty.io", "v1alpha1", "clustertargets", kube::core::ClusterResourceScope;
}

/// What all rounds share.
struct Context {
    runtime: Runtime,
    metrics: Metrics,
    clients: Clients,
    sessions: Sessions,
    queue: Queue<Key>,
    /// UID to key: objects of a cluster carry its UID.
    known: Mutex<HashMap<String, Key>>,
    catalogs: Mutex<BTreeMap<String, ReleaseCatalogSpec>>,
    /// What an API server refused last, so that the status can say it.
    refusals: Mutex<HashMap<Key, String>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the service while this replica leads.
///
/// # Errors
///
/// Leadership cannot be managed.
pub async fn serve(runtime: Runtime, _args: Args) -> anyhow::Result<()> {
    let metrics = Metrics::new(&runtime.metrics.registry)?;
    runtime::lease::lead(&runtime, |stop| lead(runtime.clone(), metrics.clone(), stop)).await
}

type Watch<K> = Pin<Box<dyn Stream<Item = Seen<K>> + Send>>;

fn watch<K>(runtime: &Runtime, config: watcher::Config) -> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    Box::pin(runtime::watch(Api::all(runtime.client.clone()), config, "local", &runtime.metrics))
}

async fn lead(runtime: Runtime, metrics: Metrics, stop: CancellationToken) -> anyhow::Result<()> {
    let queue = Queue::new("workload_cluster", &runtime.metrics, CONCURRENCY);
    let context = Arc::new(Context {
        runtime: runtime.clone(),
        metrics,
        clients: Clients::default(),
        sessions: Sessions::default(),
        queue: queue.clone(),
        known: Mutex::default(),
        catalogs: Mutex::default(),
        refusals: Mutex::default(),
    });
    let work = |key: Key| {
        let context = Arc::clone(&context);
        async move { reconcile(&context, &key).await }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = async {
            let mut catalogs = watch::<CatalogObject>(&runtime, watcher::Config::default());
            // Without the catalogues a version that was decided could look unknown.
            while let Some(seen) = catalogs.next().await {
                let first = matches!(seen, Seen::Replaced(_));
                learn(&context, seen);
                if first {
                    break;
                }
            }
            tokio::join!(
                clusters(&context),
                async { while let Some(seen) = catalogs.next().await { learn(&context, seen); all(&context); } },
                accounts(&context),
                parts::<CapiCluster>(&context),
                parts::<CapiDeployment>(&context),
                parts::<CapiPlane>(&context),
                parts::<CapoCluster>(&context),
                parts::<TargetObject>(&context),
                parts::<ClusterTargetObject>(&context),
                queue.run(stop.clone(), work),
            );
        } => {}
    }
    Ok(())
}

fn all(context: &Context) {
    for key in locked(&context.known).values() {
        context.queue.add(key);
    }
}

fn learn(context: &Context, seen: Seen<CatalogObject>) {
    let mut catalogs = locked(&context.catalogs);
    let read = |catalog: &CatalogObject| {
        let name = catalog.metadata.name.clone().unwrap_or_default();
        match serde_json::from_value(catalog.spec.clone()) {
            Ok(spec) => Some((name, spec)),
            Err(error) => {
                warn!(object = name, error = %Chain(&error), "a ReleaseCatalog cannot be read; going on without it");
                None
            }
        }
    };
    match seen {
        Seen::Replaced(all) => *catalogs = all.iter().filter_map(read).collect(),
        Seen::Applied(one) => catalogs.extend(read(&one)),
        Seen::Deleted(one) => {
            catalogs.remove(one.metadata.name.as_deref().unwrap_or_default());
        }
        Seen::Failed(_) => {}
    }
}

fn key_of(metadata: &ObjectMeta) -> Key {
    Key {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

async fn clusters(context: &Context) {
    let mut watch = watch::<Declared>(&context.runtime, watcher::Config::default());
    while let Some(seen) = watch.next().await {
        let see = |one: &Declared| {
            let key = key_of(&one.metadata);
            locked(&context.known).insert(one.metadata.uid.clone().unwrap_or_default(), key.clone());
            context.queue.add(&key);
        };
        match seen {
            Seen::Replaced(all) => {
                locked(&context.known).clear();
                all.iter().for_each(see);
                info!(objects = all.len(), "in step with the cluster");
            }
            Seen::Applied(one) => see(&one),
            Seen::Deleted(one) => {
                let uid = one.metadata.uid.clone().unwrap_or_default();
                locked(&context.known).remove(&uid);
                context.clients.forget(&uid);
                context.metrics.forget(&key_of(&one.metadata));
            }
            Seen::Failed(_) => {}
        }
    }
}

/// A CloudAccount concerns all clusters of its namespace.
async fn accounts(context: &Context) {
    let mut watch = watch::<CloudAccountObject>(&context.runtime, watcher::Config::default());
    while let Some(seen) = watch.next().await {
        let (Seen::Applied(one) | Seen::Deleted(one)) = seen else { continue };
        let namespace = one.metadata.namespace.as_deref();
        debug!(namespace, "a CloudAccount changed");
        for key in locked(&context.known).values().filter(|key| namespace == Some(&key.namespace)) {
            context.queue.add(key);
        }
    }
}

/// An object of a cluster concerns that cluster.
async fn parts<K>(context: &Context)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let ours = watcher::Config::default().labels(OWNER_UID);
    let mut watch = watch::<K>(&context.runtime, ours);
    while let Some(seen) = watch.next().await {
        let (Seen::Applied(one) | Seen::Deleted(one)) = seen else { continue };
        let uid = one.meta().labels.as_ref().and_then(|labels| labels.get(OWNER_UID));
        let known = locked(&context.known);
        if let Some(key) = uid.and_then(|uid| known.get(uid)) {
            context.queue.add(key);
        }
    }
}

async fn reconcile(context: &Context, key: &Key) -> Next {
    let runtime = &context.runtime;
    let here = Side { client: runtime.client.clone(), cluster: "management" };
    let catalog = Catalog::of(locked(&context.catalogs).values().cloned());
    let refusal = locked(&context.refusals).get(key).cloned();
    let eyes = Eyes {
        runtime,
        here: here.clone(),
        clients: &context.clients,
        catalog,
        refusal,
        sessions: &context.sessions,
    };
    let seen = match eyes.look(key).await {
        Ok(Some(Ok(seen))) => seen,
        Ok(Some(Err(Unreadable(problem)))) => {
            warn!(
                namespace = key.namespace,
                object = key.name,
                reason = problem,
                "a WorkloadCluster cannot be read"
            );
            return Next::Retry(Class::Invalid);
        }
        Ok(None) => return Next::Done,
        Err(error) => return failed(context, key, &error),
    };
    let decided = plan(&seen.observed);
    let manager = runtime.manager();
    let cluster = &seen.observed.cluster;
    let hands = Hands {
        here: &here,
        workload: seen.workload.as_ref(),
        cloud: seen.cloud.as_ref(),
        manager: &manager,
        cluster,
        version: &seen.version,
    };
    context.metrics.tell(key, &decided.status);
    // What is going to happen is said before it does.
    if decided.status != cluster.status
        && let Err(error) = hands.tell(&decided.status).await
    {
        return failed(context, key, &error);
    }
    for action in &decided.actions {
        runtime.metrics.actions.with_label_values(&["workload_cluster", action.name()]).inc();
        if let Err(error) = hands.apply(action).await {
            if let Some(answer) = error.refusal()
                && locked(&context.refusals).insert(key.clone(), answer.clone()).as_ref() != Some(&answer)
            {
                context.queue.add(key);
            }
            return failed(context, key, &error);
        }
    }
    if locked(&context.refusals).remove(key).is_some() {
        context.queue.add(key);
    }
    Next::After(jitter(decided.recheck, key))
}

fn failed(context: &Context, key: &Key, error: &Error) -> Next {
    let class = error.class();
    let expected = matches!(class, Class::Conflict | Class::NotFound);
    if expected || context.queue.failures(key) > 0 {
        debug!(namespace = key.namespace, object = key.name, error = %Chain(error), "cannot go on yet");
    } else {
        warn!(namespace = key.namespace, object = key.name, error = %Chain(error), "cannot go on; retrying");
    }
    Next::Retry(class)
}
