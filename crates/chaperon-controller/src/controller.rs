//! Watches, the queue, and what follows a failure. Decides nothing.

use crate::apply::{Context, Hands, original};
use crate::cache::{Cache, Key, Round};
use crate::error::Error;
use crate::fences::{self, Watched};
use crate::metrics::Metrics;
use crate::plan::{Observed, plan};
use crate::standby;
use anyhow::Context as _;
use api::references::{Kind, Reference};
use api::{Pod, PodChaperon, keys};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::Api;
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::watcher;
use runtime::queue::{Next, Queue, jitter};
use runtime::standby::Term;
use runtime::{CancellationToken, Chain, Runtime, Seen};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Names worked on at once.
const CONCURRENCY: usize = 256;
/// Plans made in one round; more than any object needs.
const STEPS: usize = 12;
/// Every name is looked at again about this often, in case an event was missed.
const RESYNC: Duration = Duration::from_mins(10);
/// Longest time between two names of one resync.
const SPREAD: Duration = Duration::from_mins(1);

/// The service has no flags of its own.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

/// Runs the service while this replica leads.
///
/// # Errors
///
/// Metrics cannot be registered, or leadership cannot be managed.
pub async fn serve(runtime: Runtime, _args: Args) -> anyhow::Result<()> {
    let metrics = Metrics::new(&runtime.metrics.registry).context("cannot register metrics")?;
    standby::begin(&runtime.readiness);
    tokio::select! {
        ended = runtime::lease::lead(&runtime, |stop| lead(runtime.clone(), metrics.clone(), stop)) => ended,
        never = standby::stand_by(&runtime.client, &runtime.readiness) => match never {},
    }
}

type Watch<K> = Pin<Box<dyn Stream<Item = Seen<K>> + Send>>;

/// Works as the leader until stopped.
///
/// # Errors
///
/// Never.
pub async fn lead(runtime: Runtime, metrics: Metrics, stop: CancellationToken) -> anyhow::Result<()> {
    let term = Term::begin(&runtime.readiness);
    let context = Arc::new(Context {
        client: runtime.client.clone(),
        manager: runtime.manager(),
        cache: Cache::new(runtime.clock),
        fences: Watched::new(),
        common: runtime.metrics.clone(),
        metrics,
    });
    let queue = Queue::new("chaperon", &runtime.metrics, CONCURRENCY);
    let config = watcher::Config::default().labels(keys::PARENT_UID);
    let (of_pods, of_chaperons) = (Arc::clone(&context), Arc::clone(&context));
    let pods: Watch<Pod> = Box::pin(runtime::watch_telling(
        Api::all(runtime.client.clone()),
        config,
        "local",
        &runtime.metrics,
        move || of_pods.cache.list_pods(),
    ));
    let chaperons: Watch<PodChaperon> = Box::pin(runtime::watch_telling(
        Api::all(runtime.client.clone()),
        watcher::Config::default(),
        "local",
        &runtime.metrics,
        move || of_chaperons.cache.list_chaperons(),
    ));
    let mut leases = fences::watch(&runtime);
    let work = |key: Key| {
        let (context, queue) = (Arc::clone(&context), queue.clone());
        async move { reconcile(&context, &queue, &key).await }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = async {
            fences::sync(&context.fences, &mut leases).await;
            let watches = sync(&context, &queue, pods, chaperons).await;
            term.in_step();
            tokio::join!(
                feed(&context, &queue, watches),
                follow_copies::<ConfigMap>(&context, &queue, Kind::ConfigMap),
                follow_copies::<Secret>(&context, &queue, Kind::Secret),
                follow_copies::<PersistentVolumeClaim>(&context, &queue, Kind::Claim),
                fences::follow(&context, &queue, leases),
                resync(&context, &queue),
                queue.run(stop.clone(), work),
            );
        } => {}
    }
    Ok(())
}

/// Fills the cache. Pods are listed before PodChaperons: a delegate that came and went in between has then
/// left its end on a PodChaperon that is listed after.
async fn sync(
    context: &Context,
    queue: &Queue<Key>,
    mut pods: Watch<Pod>,
    mut chaperons: Watch<PodChaperon>,
) -> (Watch<Pod>, Watch<PodChaperon>) {
    while let Some(seen) = pods.next().await {
        if let Seen::Replaced(all) = seen {
            context.cache.replace_pods(all);
            break;
        }
    }
    while let Some(seen) = chaperons.next().await {
        if let Seen::Replaced(all) = seen {
            add_all(queue, context.cache.replace_chaperons(all));
            break;
        }
    }
    info!(objects = context.cache.keys().len(), "in step with the cluster");
    (pods, chaperons)
}

fn add_all(queue: &Queue<Key>, keys: impl IntoIterator<Item = Key>) {
    for key in keys {
        queue.add(&key);
    }
}

async fn feed(context: &Context, queue: &Queue<Key>, watches: (Watch<Pod>, Watch<PodChaperon>)) {
    let (mut pods, mut chaperons) = watches;
    loop {
        tokio::select! {
            biased;
            Some(seen) = pods.next() => feed_pod(context, queue, seen),
            Some(seen) = chaperons.next() => match seen {
                Seen::Replaced(all) => add_all(queue, context.cache.replace_chaperons(all)),
                Seen::Applied(chaperon) => add_all(queue, context.cache.see_chaperon(chaperon)),
                Seen::Deleted(last) => add_all(queue, context.cache.lose_chaperon(&last)),
                Seen::Failed(_) => {}
            },
            else => return,
        }
    }
}

fn feed_pod(context: &Context, queue: &Queue<Key>, seen: Seen<Pod>) {
    match seen {
        Seen::Replaced(all) => add_all(queue, context.cache.replace_pods(all)),
        Seen::Applied(pod) => add_all(queue, context.cache.see_pod(pod)),
        Seen::Deleted(last) => {
            let namespace = last.namespace().to_owned();
            add_all(queue, context.cache.lose_pod(last));
            // A quota may have room now.
            add_all(queue, context.cache.waiting(&namespace));
        }
        Seen::Failed(_) => {}
    }
}

/// Keeps in step with the copies of one kind that sources make. Nothing waits for the first list: what is not
/// known to be there is read.
async fn follow_copies<K>(context: &Context, queue: &Queue<Key>, kind: Kind)
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + 'static,
{
    let config = watcher::Config::default().labels(keys::PARENT_UID);
    let copies = Api::<PartialObjectMeta<K>>::all(context.client.clone());
    let mut events = Box::pin(runtime::watch(copies, config, "local", &context.common));
    let place = |object: &PartialObjectMeta<K>| {
        let metadata = &object.metadata;
        let mut reference = Reference::new(kind, metadata.name.as_deref().unwrap_or_default());
        if kind == Kind::Claim {
            reference.original = original(metadata);
        }
        (metadata.namespace.clone().unwrap_or_default(), reference)
    };
    let stays = |object: &PartialObjectMeta<K>| object.metadata.deletion_timestamp.is_none();
    while let Some(seen) = events.next().await {
        match seen {
            Seen::Replaced(all) => {
                let all: Vec<_> = all.iter().filter(|object| stays(object)).map(place).collect();
                add_all(queue, context.cache.stock(|stock| stock.replace(kind, &all)));
            }
            Seen::Applied(object) if stays(&object) => {
                let (namespace, reference) = place(&object);
                add_all(queue, context.cache.stock(|stock| stock.put(&namespace, &reference)));
            }
            Seen::Applied(object) | Seen::Deleted(object) => {
                let (namespace, reference) = place(&object);
                context.cache.stock(|stock| stock.remove(&namespace, &reference));
            }
            Seen::Failed(_) => {}
        }
    }
}

async fn resync(context: &Context, queue: &Queue<Key>) {
    loop {
        tokio::time::sleep(jitter(RESYNC, &RESYNC)).await;
        for key in context.cache.keys() {
            queue.add_after(&key, jitter(SPREAD / 2, &key));
        }
    }
}

/// Plans and obeys until nothing is left to do now.
async fn reconcile(context: &Context, queue: &Queue<Key>, key: &Key) -> Next {
    let hands = Hands::new(context, key);
    let mut round = Round::default();
    for _ in 0..STEPS {
        let seen = context.cache.observe(key, &round);
        let fence = context.fences.verdict(seen.chaperon.as_deref());
        let seen = Observed { fence, ..seen };
        let plan = plan(&seen);
        context.cache.hold(key, plan.holds);
        if plan.actions.is_empty() {
            return match (round.refused, plan.recheck) {
                // A name that is taken is not free in milliseconds, as after other conflicts.
                (Some((runtime::Class::Conflict, _)), _) => Next::Retry(runtime::Class::Invalid),
                (Some((class, _)), _) => Next::Retry(class),
                (None, Some(pause)) => Next::After(pause),
                (None, None) => Next::Done,
            };
        }
        for action in &plan.actions {
            context.common.actions.with_label_values(&["chaperon", action.name()]).inc();
            if let Err(error) = hands.apply(&seen, action, &mut round).await {
                return failed(queue, key, &error);
            }
        }
    }
    // The cache does not show yet what was written; the events that will add the key again.
    debug!(namespace = key.namespace, chaperon = key.name, "not settled in one round");
    Next::Retry(runtime::Class::Conflict)
}

fn failed(queue: &Queue<Key>, key: &Key, error: &Error) -> Next {
    let class = error.class();
    let expected = matches!(class, runtime::Class::Conflict | runtime::Class::NotFound);
    if expected || queue.failures(key) > 0 {
        debug!(namespace = key.namespace, chaperon = key.name, error = %Chain(error), "cannot go on yet");
    } else {
        warn!(namespace = key.namespace, chaperon = key.name, error = %Chain(error), "cannot go on; retrying");
    }
    Next::Retry(class)
}
