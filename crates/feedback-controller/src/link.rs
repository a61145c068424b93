//! One target: its PodChaperons, and whether what is known of them holds.

use crate::controller::Context;
use api::{ClusterSummary, PodChaperon, keys};
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client};
use runtime::{CancellationToken, Chain, Class, Seen, Target, TargetKey, class, watch};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tracing::{debug, info, warn};

/// How long a proof of identity holds.
const PROOF: Duration = Duration::from_secs(2);
/// Between two attempts to reach a target that is not in step.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two watches of a target that answers but cannot be watched.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Longest time for the clean-up in a target that was removed.
const FAREWELL: Duration = Duration::from_secs(10);
/// Deletions in flight during the clean-up.
const PARALLEL: usize = 16;

/// The way to a target.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) key: TargetKey,
    cluster_uid: String,
    in_step: AtomicBool,
    suspected: Notify,
    proved: Mutex<Option<Instant>>,
    client: ClientBox,
}

/// A client has no text form.
struct ClientBox(Client);

impl std::fmt::Debug for ClientBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Why a live read of a target proves nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Doubt {
    #[error("cannot read the identity of target {cluster}")]
    Read { cluster: TargetKey, source: kube::Error },
    #[error("target {cluster} does not say that it is the cluster that it was accepted for")]
    Stranger { cluster: TargetKey },
}

impl Link {
    pub(crate) fn new(key: &TargetKey, client: Client, cluster_uid: &str) -> Self {
        Self {
            key: key.clone(),
            cluster_uid: cluster_uid.to_owned(),
            in_step: AtomicBool::new(false),
            suspected: Notify::new(),
            proved: Mutex::new(None),
            client: ClientBox(client),
        }
    }

    /// Whether all PodChaperons have been seen, and the watch is not known to fail.
    pub(crate) fn is_in_step(&self) -> bool {
        self.in_step.load(Ordering::Acquire)
    }

    pub(crate) fn set_in_step(&self, in_step: bool) {
        self.in_step.store(in_step, Ordering::Release);
    }

    /// A call got no answer: until the target answers again nothing else waits for it.
    pub(crate) fn suspect(&self) {
        if self.is_in_step() {
            self.set_in_step(false);
            self.suspected.notify_one();
        }
    }

    pub(crate) fn chaperons(&self, namespace: &str) -> Api<PodChaperon> {
        Api::namespaced(self.client.0.clone(), namespace)
    }

    /// Asks the target who it is, unless it said so a moment ago. Absence counts only in the right cluster.
    pub(crate) async fn prove(&self) -> Result<(), Doubt> {
        let proved = *self.proved.lock().unwrap_or_else(PoisonError::into_inner);
        if proved.is_some_and(|at| at.elapsed() < PROOF) {
            return Ok(());
        }
        let asked = Instant::now();
        let summary = Api::<ClusterSummary>::all(self.client.0.clone()).get(keys::SINGLETON).await;
        let summary = summary.map_err(|source| Doubt::Read { cluster: self.key.clone(), source })?;
        let uid =
            summary.metadata.annotations.as_ref().and_then(|annotations| annotations.get(keys::CLUSTER_UID));
        if uid != Some(&self.cluster_uid) {
            return Err(Doubt::Stranger { cluster: self.key.clone() });
        }
        *self.proved.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked);
        Ok(())
    }

    fn watch(&self, context: &Context) -> BoxStream<'static, Seen<PodChaperon>> {
        let client = self.client.0.clone();
        let api = if self.key.namespace.is_empty() {
            Api::all(client)
        } else {
            Api::namespaced(client, &self.key.namespace)
        };
        let config = watcher::Config::default().labels(&selector(&context.own_uid));
        watch(api, config, &self.key.to_string(), &context.rt.metrics).boxed()
    }
}

/// Selects what this source made. Names of clusters may be equal, their UIDs are not.
pub(crate) fn selector(own_uid: &str) -> String {
    format!("{}={own_uid}", keys::PARENT_CLUSTER_UID)
}

/// Follows the PodChaperons of one target until stopped.
pub(crate) async fn follow(context: Arc<Context>, target: Arc<Target>, stop: CancellationToken) {
    let Some((client, cluster_uid)) = target.usable() else { return };
    let link = Arc::new(Link::new(&target.key, client.clone(), cluster_uid));
    context.store().set_link(&target.key, Arc::clone(&link));
    tokio::select! {
        () = stop.cancelled() => {}
        () = listen(&context, &link) => {}
    }
    link.set_in_step(false);
    if !context.stop.is_cancelled()
        && tokio::time::timeout(FAREWELL, farewell(&context, &target, &link)).await.is_err()
    {
        warn!(cluster = %target.key, "the clean-up in a removed target took too long; its PodChaperons may remain");
    }
    context.store().drop_link(&target.key);
}

async fn listen(context: &Context, link: &Link) {
    let mut pause = PAUSE;
    loop {
        let mut events = link.watch(context);
        loop {
            let seen = tokio::select! {
                () = link.suspected.notified() => break,
                seen = events.next() => seen,
            };
            match seen {
                Some(Seen::Failed(_)) | None => break,
                Some(seen) => take(context, link, seen),
            }
            pause = PAUSE;
        }
        link.set_in_step(false);
        drop(events);
        // A new list follows as soon as the target answers, not only when the watch would try again.
        let mut first = true;
        while let Err(doubt) = link.prove().await {
            if first {
                warn!(cluster = %link.key, error = %Chain(&doubt), "target is not in step; leaving its pods alone");
            }
            first = false;
            tokio::time::sleep(PAUSE).await;
        }
        if first {
            // It answers but does not let us watch, or not for long.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn take(context: &Context, link: &Link, seen: Seen<PodChaperon>) {
    let mut store = context.store();
    let keys = match seen {
        Seen::Replaced(all) => {
            let keys = store.replace_chaperons(&link.key, &all);
            link.set_in_step(true);
            info!(cluster = %link.key, podchaperons = all.len(), "target is in step");
            keys
        }
        Seen::Applied(one) => vec![store.put_chaperon(&link.key, &one)],
        Seen::Deleted(one) => {
            // Its last state may say how the delegate ended.
            let key = store.put_chaperon(&link.key, &one);
            store.remove_chaperon(&link.key, one.uid());
            vec![key]
        }
        Seen::Failed(_) => Vec::new(),
    };
    drop(store);
    for key in &keys {
        context.queue.add(key);
    }
}

/// When the Target was deleted, what runs through it ends; the client of a moment ago is the last chance.
async fn farewell(context: &Context, target: &Target, link: &Link) {
    match context.target_is_gone(target).await {
        Ok(true) => {}
        Ok(false) => return,
        Err(error) => {
            debug!(cluster = %target.key, error = %Chain(&error), "cannot read whether the target is gone");
            return;
        }
    }
    let chaperons = context.store().behind(&target.key);
    info!(cluster = %target.key, podchaperons = chaperons.len(), "target was removed; deleting its PodChaperons");
    let deletions = chaperons.into_iter().map(|chaperon| {
        let api = link.chaperons(&chaperon.namespace);
        async move {
            let params = with_uid(&chaperon.uid);
            match api.delete(&chaperon.name, &params).await {
                Ok(_) => {}
                Err(error) if matches!(class(&error), Class::NotFound | Class::Conflict) => {}
                Err(error) => {
                    warn!(chaperon = %chaperon.name, error = %Chain(&error), "cannot delete a PodChaperon of a removed target");
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
