//! One target: its copies, and whether what is known of them holds.

use crate::controller::Context;
use crate::kinds::{Claims, ConfigMaps, Ingresses, Kind, Marker, Object, Raw, Secrets, Services};
use crate::views::Copied;
use api::{ClusterSummary, keys};
use futures::StreamExt;
use kube::api::{DeleteParams, DynamicObject, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client};
use runtime::{CancellationToken, Chain, Class, Seen, Target, TargetKey, class, watch};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

/// Between two attempts to reach a target that is not in step.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two watches of a target that answers but cannot be watched.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Longest time for the clean-up in a target that was removed.
const FAREWELL: Duration = Duration::from_secs(30);
/// Deletions in flight during the clean-up.
const PARALLEL: usize = 16;

/// The way to a target.
pub(crate) struct Link {
    pub(crate) key: TargetKey,
    pub(crate) cluster_uid: String,
    client: Client,
    in_step: Mutex<BTreeSet<Kind>>,
    silent: AtomicBool,
    suspected: Notify,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(key: &TargetKey, client: Client, cluster_uid: &str) -> Self {
        Self {
            key: key.clone(),
            cluster_uid: cluster_uid.to_owned(),
            client,
            in_step: Mutex::default(),
            silent: AtomicBool::new(false),
            suspected: Notify::new(),
        }
    }

    /// Whether all copies of a kind have been seen, and the target is not known to be silent.
    pub(crate) fn is_in_step(&self, kind: Kind) -> bool {
        !self.silent.load(Ordering::Acquire)
            && self.in_step.lock().unwrap_or_else(PoisonError::into_inner).contains(&kind)
    }

    pub(crate) fn set_in_step(&self, kind: Kind, is: bool) {
        let mut kinds = self.in_step.lock().unwrap_or_else(PoisonError::into_inner);
        if is {
            kinds.insert(kind);
        } else {
            kinds.remove(&kind);
        }
    }

    /// A call got no answer: until the target answers again nothing else waits for it.
    pub(crate) fn suspect(&self) {
        self.silent.store(true, Ordering::Release);
        self.suspected.notify_one();
    }

    /// Objects of one kind in one namespace.
    pub(crate) fn objects(&self, object: &Object) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &object.namespace, &object.kind.resource())
    }

    /// Whether the target answers and says that it is the cluster that it was accepted for.
    async fn answers(&self) -> bool {
        let summary = Api::<ClusterSummary>::all(self.client.clone()).get(keys::SINGLETON).await;
        match summary {
            Ok(summary) => {
                let annotations = summary.metadata.annotations.unwrap_or_default();
                annotations.get(keys::CLUSTER_UID) == Some(&self.cluster_uid)
            }
            Err(error) => {
                debug!(cluster = %self.key, error = %Chain(&error), "target does not answer yet");
                false
            }
        }
    }

    /// Waits until the target answers.
    async fn recover(&self) {
        while !self.answers().await {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Follows the copies in one target until stopped.
pub(crate) async fn follow(context: Arc<Context>, target: Arc<Target>, stop: CancellationToken) {
    let Some((client, cluster_uid)) = target.usable() else { return };
    if target.settings.is_self || cluster_uid == context.own_uid {
        // What pods need is there already.
        return stop.cancelled().await;
    }
    let link = Arc::new(Link::new(&target.key, client.clone(), cluster_uid));
    context.store().set_link(Arc::clone(&link));
    tokio::select! {
        biased;
        () = context.stop.cancelled() => {}
        () = stop.cancelled() => {
            if tokio::time::timeout(FAREWELL, farewell(&context, &target, &link)).await.is_err() {
                let copies = context.store().behind(&target.key).len();
                warn!(cluster = %target.key, copies, "copies may remain in a removed target");
            }
        }
        () = async {
            tokio::join!(
                listen::<ConfigMaps>(&context, &link),
                listen::<Secrets>(&context, &link),
                listen::<Services>(&context, &link),
                listen::<Ingresses>(&context, &link),
                listen::<Claims>(&context, &link),
                recover(&context, &link),
            );
        } => {}
    }
    let objects = context.store().drop_link(&target.key);
    context.add_all(objects);
}

/// Goes on with a target as soon as it answers again.
async fn recover(context: &Context, link: &Link) {
    loop {
        link.suspected.notified().await;
        warn!(cluster = %link.key, "target does not answer; leaving its copies alone");
        link.recover().await;
        link.silent.store(false, Ordering::Release);
        info!(cluster = %link.key, "target answers again");
        let objects = context.store().all();
        context.add_all(objects);
    }
}

async fn listen<M: Marker>(context: &Context, link: &Link) {
    let mut pause = PAUSE;
    loop {
        let client = link.client.clone();
        let api: Api<Raw<M>> = if link.key.namespace.is_empty() {
            Api::all(client)
        } else {
            Api::namespaced(client, &link.key.namespace)
        };
        let ours = format!("{}={}", keys::PARENT_CLUSTER_UID, context.own_uid);
        let config = watcher::Config::default().labels(&ours);
        let mut events = Box::pin(watch(api, config, &link.key.to_string(), &context.rt.metrics));
        while let Some(seen) = events.next().await {
            if matches!(seen, Seen::Failed(_)) {
                break;
            }
            take::<M>(context, link, seen);
            pause = PAUSE;
        }
        link.set_in_step(M::KIND, false);
        drop(events);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        link.recover().await;
    }
}

fn take<M: Marker>(context: &Context, link: &Link, seen: Seen<Raw<M>>) {
    let manager = context.rt.manager();
    let copied = |raw: &Raw<M>| Copied::of(raw, &manager);
    let mut store = context.store();
    let changed: BTreeSet<Object> = match seen {
        Seen::Replaced(all) => {
            info!(cluster = %link.key, kind = M::KIND.as_str(), copies = all.len(), "target is in step");
            let changed = store.replace_copies(&link.key, M::KIND, all.iter().map(copied).collect());
            link.set_in_step(M::KIND, true);
            changed
        }
        Seen::Applied(raw) => {
            let (object, copy) = copied(&raw);
            store.put_copy(&link.key, &object, copy);
            [object].into()
        }
        Seen::Deleted(raw) => {
            let (object, copy) = copied(&raw);
            store.lose_copy(&link.key, &object, &copy.uid);
            [object].into()
        }
        Seen::Failed(_) => BTreeSet::new(),
    };
    let copies = i64::try_from(store.count(&link.key)).unwrap_or(i64::MAX);
    drop(store);
    context.metrics.copies.with_label_values(&[&link.key.to_string()]).set(copies);
    context.add_all(changed);
}

/// When the Target was deleted, its copies go; the client of a moment ago is the last chance.
async fn farewell(context: &Context, target: &Target, link: &Link) {
    loop {
        match context.target_is_gone(target).await {
            Ok(true) => break,
            Ok(false) => return,
            Err(error) => {
                debug!(cluster = %target.key, error = %Chain(&error), "cannot read whether the target is gone");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    let doomed = context.store().behind(&target.key);
    info!(cluster = %target.key, copies = doomed.len(), "target was removed; deleting its copies");
    let deletions = doomed.into_iter().map(|(object, copy)| async move {
        loop {
            let answer = link.objects(&object).delete(&object.name, &with_uid(&copy.uid)).await;
            match answer {
                Ok(_) => return,
                Err(error) if matches!(class(&error), Class::NotFound | Class::Conflict) => return,
                Err(error) => {
                    debug!(%object, error = %Chain(&error), "cannot delete a copy in a removed target");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    });
    futures::stream::iter(deletions).buffer_unordered(PARALLEL).collect::<Vec<()>>().await;
}

/// A delete of this very object.
pub(crate) fn with_uid(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    }
}
