//! One target: its PodChaperons, and whether what is known of them holds.

use crate::controller::Context;
use crate::fence::{self, Renewal};
use crate::views::Chaperon;
use api::{ClusterSummary, PodChaperon, keys};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client};
use runtime::{CancellationToken, Chain, Class, Seen, Target, TargetKey, class, watch};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// The namespace of a release that does not say its own.
const RELEASE: &str = "multicluster-scheduler";
/// How long a proof of identity holds.
const PROOF: Duration = Duration::from_secs(2);
/// Between two attempts to reach a target that is not in step.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two watches of a target that answers but cannot be watched.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Longest time for the clean-up in a target that was removed: for delegates with usual grace periods.
const FAREWELL: Duration = Duration::from_secs(120);
/// How long the clean-up waits for a removed target that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Deletions in flight during the clean-up.
const PARALLEL: usize = 16;

/// The way to a target.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) key: TargetKey,
    pub(crate) cluster_uid: String,
    in_step: AtomicBool,
    suspected: Notify,
    proved: Mutex<Option<Instant>>,
    turned: Mutex<Turned>,
    pub(crate) renewal: Renewal,
    /// Where our release is in that cluster, as its summary says.
    release: Mutex<Option<String>>,
    client: ClientBox,
}

/// When a target last came and went, as this process has seen it.
#[derive(Debug, Default)]
struct Turned {
    returned: Option<Instant>,
    silent: Option<Instant>,
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

impl Doubt {
    /// Whether the target did not answer, as opposed to an answer that does not help.
    fn is_silence(&self) -> bool {
        match self {
            Doubt::Read { source, .. } => matches!(class(source), Class::Unreachable | Class::Overloaded),
            Doubt::Stranger { .. } => false,
        }
    }
}

impl Link {
    pub(crate) fn new(key: &TargetKey, client: Client, cluster_uid: &str) -> Self {
        Self {
            key: key.clone(),
            cluster_uid: cluster_uid.to_owned(),
            in_step: AtomicBool::new(false),
            suspected: Notify::new(),
            proved: Mutex::new(None),
            turned: Mutex::default(),
            renewal: Renewal::new(),
            release: Mutex::default(),
            client: ClientBox(client),
        }
    }

    /// Whether all PodChaperons have been seen, and the watch is not known to fail.
    pub(crate) fn is_in_step(&self) -> bool {
        self.in_step.load(Ordering::Acquire)
    }

    pub(crate) fn set_in_step(&self, in_step: bool) {
        let was = self.in_step.swap(in_step, Ordering::AcqRel);
        if in_step && !was {
            *self.turned() = Turned { returned: Some(Instant::now()), silent: None };
        }
    }

    fn turned(&self) -> MutexGuard<'_, Turned> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The target was asked and did not answer, or did.
    fn note(&self, silent: bool) {
        let mut turned = self.turned();
        turned.silent = if silent { turned.silent.or_else(|| Some(Instant::now())) } else { None };
    }

    /// How long this process has found the target silent.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        let silent = self.turned().silent.filter(|_| !self.is_in_step());
        silent.map(|since| since.elapsed())
    }

    /// How long the target has been in step.
    pub(crate) fn returned_for(&self) -> Duration {
        self.turned().returned.map(|since| since.elapsed()).unwrap_or_default()
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

    /// The Leases of this source: in the namespace of its Source, or in that of our release there.
    pub(crate) async fn leases(&self) -> Result<Api<Lease>, kube::Error> {
        if !self.key.namespace.is_empty() {
            return Ok(Api::namespaced(self.client.0.clone(), &self.key.namespace));
        }
        let known = self.release.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let namespace = match known {
            Some(namespace) => namespace,
            None => {
                let summary = Api::<ClusterSummary>::all(self.client.0.clone()).get(keys::SINGLETON).await?;
                let annotations = summary.metadata.annotations.unwrap_or_default();
                annotations.get(keys::RELEASE_NAMESPACE).cloned().unwrap_or_else(|| RELEASE.to_owned())
            }
        };
        *self.release.lock().unwrap_or_else(PoisonError::into_inner) = Some(namespace.clone());
        Ok(Api::namespaced(self.client.0.clone(), &namespace))
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
    let end = async {
        stop.cancelled().await;
        if !tokio::time::timeout(FAREWELL, farewell(&context, &target, &link)).await.unwrap_or(false) {
            let podchaperons = context.store().behind(&target.key).len();
            warn!(cluster = %target.key, podchaperons, "PodChaperons may remain in a removed target");
        }
    };
    tokio::select! {
        biased;
        () = context.stop.cancelled() => {}
        () = end => {}
        // Goes on while we part, so that what is gone is seen.
        () = listen(&context, &link) => {}
        () = fence::keep(&context, &target, &link) => {}
    }
    link.set_in_step(false);
    let keys = context.store().drop_link(&target.key);
    for key in &keys {
        context.queue.add(key);
    }
}

async fn listen(context: &Context, link: &Link) {
    let mut pause = PAUSE;
    loop {
        let mut events = link.watch(context);
        loop {
            let seen = tokio::select! {
                biased;
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
            link.note(doubt.is_silence());
            if first {
                warn!(cluster = %link.key, error = %Chain(&doubt), "target is not in step; leaving its pods alone");
            }
            first = false;
            tokio::time::sleep(PAUSE).await;
        }
        link.note(false);
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
/// Returns when nothing is left, or with `false` when the target has fallen silent.
async fn farewell(context: &Context, target: &Target, link: &Link) -> bool {
    if !was_removed(context, target).await {
        return true;
    }
    let first: BTreeSet<String> =
        context.store().behind(&target.key).into_iter().map(|chaperon| chaperon.uid.clone()).collect();
    info!(cluster = %target.key, podchaperons = first.len(), "target was removed; deleting its PodChaperons");
    let mut parting = Parting { answered: Instant::now(), empty: false };
    loop {
        let left = context.store().left_behind(&target.key, &first);
        if link.is_in_step() {
            delete_all(context, link, &left).await;
        }
        match parting.look(link.is_in_step(), left.len(), Instant::now()) {
            None => tokio::time::sleep(PAUSE).await,
            Some(is_clean) => return is_clean,
        }
    }
}

/// How the clean-up in a removed target goes.
#[derive(Debug)]
struct Parting {
    answered: Instant,
    empty: bool,
}

impl Parting {
    /// Whether it is over: `true` when nothing was left twice in a row, so that pods had the time to see it
    /// while there was a way to the target; `false` when it has not answered for too long.
    fn look(&mut self, in_step: bool, left: usize, now: Instant) -> Option<bool> {
        let was_empty = std::mem::replace(&mut self.empty, in_step && left == 0);
        if in_step {
            self.answered = now;
        }
        if was_empty && self.empty {
            return Some(true);
        }
        (now.duration_since(self.answered) >= PATIENCE).then_some(false)
    }
}

/// Reads live whether the Target was deleted; not for ever.
async fn was_removed(context: &Context, target: &Target) -> bool {
    let started = Instant::now();
    loop {
        match context.target_is_gone(target).await {
            Ok(gone) => return gone,
            Err(error) => {
                debug!(cluster = %target.key, error = %Chain(&error), "cannot read whether the target is gone");
            }
        }
        if started.elapsed() >= PATIENCE {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub(crate) async fn delete_all(context: &Context, link: &Link, doomed: &[Arc<Chaperon>]) {
    let deletions: Vec<_> = doomed
        .iter()
        .filter(|chaperon| !chaperon.is_terminating)
        .map(|chaperon| {
            let (api, chaperon) = (link.chaperons(&chaperon.namespace), Arc::clone(chaperon));
            async move {
                if !link.is_in_step() {
                    return;
                }
                let answer = api.delete(&chaperon.name, &with_uid(&chaperon.uid)).await;
                match answer {
                    Ok(answer) => {
                        if let Some(terminating) = answer.left() {
                            context.store().refresh_chaperon(&link.key, &terminating);
                        }
                    }
                    Err(error) if matches!(class(&error), Class::NotFound | Class::Conflict) => {}
                    Err(error) => {
                        if class(&error) == Class::Unreachable {
                            link.suspect();
                        }
                        debug!(chaperon = %chaperon.name, error = %Chain(&error), "cannot delete a PodChaperon of a removed target");
                    }
                }
            }
        })
        .collect();
    futures::stream::iter(deletions).buffer_unordered(PARALLEL).collect::<Vec<()>>().await;
}

/// A delete of this very object.
pub(crate) fn with_uid(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{FAREWELL, PATIENCE, PAUSE, Parting};
    use tokio::time::Instant;

    #[test]
    fn w19_a_clean_up_is_over_when_nothing_was_left_twice() {
        let now = Instant::now();
        let mut parting = Parting { answered: now, empty: false };
        assert_eq!(parting.look(true, 0, now), None);
        assert_eq!(parting.look(false, 0, now), None, "out of step, nobody knows");
        assert_eq!(parting.look(true, 0, now), None);
        assert_eq!(parting.look(true, 0, now), Some(true));
    }

    #[test]
    fn w19_a_clean_up_waits_for_slow_delegates_but_not_for_silent_targets() {
        let now = Instant::now();
        let mut slow = Parting { answered: now, empty: false };
        assert_eq!(slow.look(true, 1, now + FAREWELL), None);
        let mut silent = Parting { answered: now, empty: false };
        assert_eq!(silent.look(true, 1, now + PAUSE), None);
        assert_eq!(silent.look(false, 1, now + PATIENCE), None);
        assert_eq!(silent.look(false, 1, now + PAUSE + PATIENCE), Some(false));
    }
}
