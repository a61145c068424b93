//! Watches, the queue, and what follows a failure. Decides nothing.

use crate::apply::{Context, Hands};
use crate::cache::{AnyBinding, Cache, Round, id_of};
use crate::desired::{Roles, SourceKey, of_cluster_source, of_source};
use crate::error::Error;
use crate::plan::{Refusal, plan};
use api::{ClusterSource, Source, keys};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::runtime::watcher;
use kube::{Api, Resource};
use runtime::queue::{Next, Queue, jitter};
use runtime::{CancellationToken, Chain, Class, Runtime, Seen};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Sources worked on at once.
const CONCURRENCY: usize = 16;
/// Plans made in one round; more than any source needs.
const STEPS: usize = 8;
/// Every source is looked at again about this often, in case an event was missed.
const RESYNC: Duration = Duration::from_mins(10);

/// Flags of this service.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// ClusterRole by which a source runs pods here.
    #[arg(long, env = "MULTICLUSTER_SOURCE_CLUSTER_ROLE")]
    pub source_cluster_role: String,
    /// ClusterRole by which a source reads the ClusterSummary.
    #[arg(long, env = "MULTICLUSTER_CLUSTER_SUMMARY_VIEWER_CLUSTER_ROLE")]
    pub cluster_summary_viewer_cluster_role: String,
}

/// Runs the service while this replica leads.
///
/// # Errors
///
/// Leadership cannot be managed.
pub async fn serve(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    let roles = Roles { access: args.source_cluster_role, summary: args.cluster_summary_viewer_cluster_role };
    runtime::lease::lead(&runtime, |stop| lead(runtime.clone(), roles.clone(), stop)).await
}

type Watch<K> = Pin<Box<dyn Stream<Item = Seen<K>> + Send>>;

fn watch<K>(runtime: &Runtime, config: watcher::Config) -> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    Box::pin(runtime::watch(Api::all(runtime.client.clone()), config, "local", &runtime.metrics))
}

struct Watches {
    sources: Watch<Source>,
    cluster_sources: Watch<ClusterSource>,
    accounts: Watch<ServiceAccount>,
    bindings: Watch<RoleBinding>,
    cluster_bindings: Watch<ClusterRoleBinding>,
}

async fn lead(runtime: Runtime, roles: Roles, stop: CancellationToken) -> anyhow::Result<()> {
    let context = Arc::new(Context {
        client: runtime.client.clone(),
        manager: runtime.manager(),
        cache: Cache::new(roles),
        common: runtime.metrics.clone(),
    });
    let queue = Queue::new("source", &runtime.metrics, CONCURRENCY);
    let ours = || watcher::Config::default().labels(keys::SOURCE_UID);
    let mut watches = Watches {
        sources: watch(&runtime, watcher::Config::default()),
        cluster_sources: watch(&runtime, watcher::Config::default()),
        accounts: watch(&runtime, watcher::Config::default()),
        bindings: watch(&runtime, ours()),
        cluster_bindings: watch(&runtime, ours()),
    };
    let work = |key: SourceKey| {
        let (context, queue) = (Arc::clone(&context), queue.clone());
        async move { reconcile(&context, &queue, &key).await }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = async {
            sync(&context, &mut watches).await;
            add_all(&queue, context.cache.keys());
            tokio::join!(
                feed(&context, &queue, &mut watches),
                resync(&context, &queue),
                queue.run(stop.clone(), work),
            );
        } => {}
    }
    Ok(())
}

async fn first<K>(watch: &mut Watch<K>) -> Vec<K> {
    while let Some(seen) = watch.next().await {
        if let Seen::Replaced(all) = seen {
            return all;
        }
    }
    Vec::new()
}

async fn sync(context: &Context, watches: &mut Watches) {
    let (accounts, bindings, cluster_bindings, sources, cluster_sources) = tokio::join!(
        first(&mut watches.accounts),
        first(&mut watches.bindings),
        first(&mut watches.cluster_bindings),
        first(&mut watches.sources),
        first(&mut watches.cluster_sources),
    );
    let cache = &context.cache;
    cache.replace_accounts(accounts.iter().map(|account| id_of(&account.metadata)).collect());
    cache.replace_sources(false, sources.into_iter().map(of_source).collect());
    cache.replace_sources(true, cluster_sources.into_iter().map(of_cluster_source).collect());
    cache.replace_bindings(false, bindings);
    cache.replace_bindings(true, cluster_bindings);
    info!(objects = cache.keys().len(), "in step with the cluster");
}

fn add_all(queue: &Queue<SourceKey>, keys: impl IntoIterator<Item = SourceKey>) {
    for key in keys {
        queue.add(&key);
    }
}

async fn feed(context: &Context, queue: &Queue<SourceKey>, watches: &mut Watches) {
    let cache = &context.cache;
    loop {
        tokio::select! {
            Some(seen) = watches.sources.next() => match seen {
                Seen::Replaced(all) => {
                    add_all(queue, cache.replace_sources(false, all.into_iter().map(of_source).collect()));
                }
                Seen::Applied(source) => add_all(queue, cache.see_source(of_source(source))),
                Seen::Deleted(source) => queue.add(&cache.lose_source(of_source(source).0)),
                Seen::Failed(_) => {}
            },
            Some(seen) = watches.cluster_sources.next() => match seen {
                Seen::Replaced(all) => {
                    add_all(queue, cache.replace_sources(true, all.into_iter().map(of_cluster_source).collect()));
                }
                Seen::Applied(source) => add_all(queue, cache.see_source(of_cluster_source(source))),
                Seen::Deleted(source) => queue.add(&cache.lose_source(of_cluster_source(source).0)),
                Seen::Failed(_) => {}
            },
            Some(seen) = watches.accounts.next() => feed_account(cache, queue, seen),
            Some(seen) = watches.bindings.next() => feed_binding(cache, queue, false, seen),
            Some(seen) = watches.cluster_bindings.next() => feed_binding(cache, queue, true, seen),
            else => return,
        }
    }
}

fn feed_account(cache: &Cache, queue: &Queue<SourceKey>, seen: Seen<ServiceAccount>) {
    match seen {
        Seen::Replaced(all) => {
            let all = all.iter().map(|account| id_of(&account.metadata)).collect();
            add_all(queue, cache.replace_accounts(all));
        }
        Seen::Applied(account) => add_all(queue, cache.see_account(id_of(&account.metadata))),
        Seen::Deleted(account) => add_all(queue, cache.lose_account(&id_of(&account.metadata))),
        Seen::Failed(_) => {}
    }
}

fn feed_binding<B: AnyBinding>(cache: &Cache, queue: &Queue<SourceKey>, cluster: bool, seen: Seen<B>) {
    match seen {
        Seen::Replaced(all) => add_all(queue, cache.replace_bindings(cluster, all)),
        Seen::Applied(binding) => add_all(queue, cache.see_binding(binding)),
        Seen::Deleted(binding) => add_all(queue, cache.lose_binding(binding)),
        Seen::Failed(_) => {}
    }
}

async fn resync(context: &Context, queue: &Queue<SourceKey>) {
    loop {
        tokio::time::sleep(jitter(RESYNC, &RESYNC)).await;
        add_all(queue, context.cache.keys());
    }
}

/// Plans and obeys until nothing is left to do now.
async fn reconcile(context: &Context, queue: &Queue<SourceKey>, key: &SourceKey) -> Next {
    let hands = Hands { context, key };
    let mut round = Round::default();
    for _ in 0..STEPS {
        let seen = context.cache.observe(key, &round);
        let actions = plan(&seen);
        if actions.is_empty() {
            return match round.refusals.first_key_value() {
                None => Next::Done,
                Some((_, Refusal::NameTaken(_))) => Next::Retry(Class::Invalid),
                // A namespace that is missing does not appear in milliseconds, as an object of ours would.
                Some((_, Refusal::Refused(Class::NotFound, _))) => Next::Retry(Class::Invalid),
                Some((_, Refusal::Refused(class, _))) => Next::Retry(*class),
            };
        }
        for action in &actions {
            context.common.actions.with_label_values(&["source", action.name()]).inc();
            if let Err(error) = hands.apply(&seen, action, &mut round).await {
                return failed(queue, key, &error);
            }
        }
    }
    // The cache does not show yet what was written or read; the events that will add the key again.
    debug!(namespace = key.namespace, object = key.name, "not settled in one round");
    Next::Retry(Class::Conflict)
}

fn failed(queue: &Queue<SourceKey>, key: &SourceKey, error: &Error) -> Next {
    let class = error.class();
    let expected = matches!(class, Class::Conflict | Class::NotFound);
    if expected || queue.failures(key) > 0 {
        debug!(namespace = key.namespace, object = key.name, error = %Chain(error), "cannot go on yet");
    } else {
        warn!(namespace = key.namespace, object = key.name, error = %Chain(error), "cannot go on; retrying");
    }
    Next::Retry(class)
}
