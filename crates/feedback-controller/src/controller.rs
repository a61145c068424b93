//! Watches, the queue and what happens to one pod.

use crate::apply::{Done, apply};
use crate::departures;
use crate::link;
use crate::plan::{Action, plan};
use crate::removed::{Known, Shared};
use crate::store::{Evidence, Key, Store};
use crate::strays;
use crate::sweep::Budget;
use api::v1alpha1::{ClusterTarget, Target as NamespacedTarget};
use api::{Pod, keys};
use futures::StreamExt;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use runtime::queue::{Next, Queue, jitter};
use runtime::{CancellationToken, Chain, Class, Runtime, Target, Targets, class, cluster_uid, watch};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{debug, info, trace, warn};

/// Pods worked on at once.
const CONCURRENCY: usize = 512;
/// Live reads after which a pod is looked at again later.
const ROUNDS: usize = 4;
/// Between two looks at everything.
const RESYNC: Duration = Duration::from_mins(10);

/// What all tasks share.
pub(crate) struct Context {
    pub(crate) rt: Runtime,
    pub(crate) own_uid: String,
    pub(crate) queue: Queue<Key>,
    pub(crate) stop: CancellationToken,
    pub(crate) budget: Budget,
    pub(crate) targets: Shared<Known>,
    store: Mutex<Store>,
}

impl Context {
    /// Never held across an await.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads live whether a Target was deleted; one of the same name made anew is another one.
    pub(crate) async fn target_is_gone(&self, target: &Target) -> Result<bool, kube::Error> {
        let found = if target.key.namespace.is_empty() {
            let api = Api::<ClusterTarget>::all(self.rt.client.clone());
            api.get_metadata_opt(&target.key.name).await?.and_then(|object| object.uid())
        } else {
            let api = Api::<NamespacedTarget>::namespaced(self.rt.client.clone(), &target.key.namespace);
            api.get_metadata_opt(&target.key.name).await?.and_then(|object| object.uid())
        };
        Ok(found.as_deref() != Some(&target.uid))
    }
}

/// Runs while this replica leads.
///
/// # Errors
///
/// Never.
pub async fn run(rt: Runtime, targets: Targets, stop: CancellationToken) -> anyhow::Result<()> {
    let Some(own_uid) = cluster_uid(&rt.client, &stop).await else { return Ok(()) };
    info!(uid = %own_uid, "identity of the own cluster");
    let context = Arc::new(Context {
        queue: Queue::new("feedback", &rt.metrics, CONCURRENCY),
        budget: Budget::default(),
        targets: Shared::default(),
        store: Mutex::default(),
        stop: stop.child_token(),
        own_uid,
        rt,
    });
    let follow = |target, token| link::follow(Arc::clone(&context), target, token);
    let work = |key| work(Arc::clone(&context), key);
    tokio::join!(
        registry(&context, targets.clone()),
        pods(&context),
        strays::free(&context),
        departures::see_off(&context),
        resync(&context),
        targets.drive(context.stop.clone(), follow),
        context.queue.run(context.stop.clone(), work),
    );
    Ok(())
}

async fn registry(context: &Context, mut targets: Targets) {
    let mut map = targets.synced().await;
    loop {
        let (keys, silent) = {
            let mut store = context.store();
            (store.set_targets(&map), store.silent_links())
        };
        silent.iter().for_each(|link| link.suspect());
        for key in &keys {
            context.queue.add(key);
        }
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            changed = targets.changed() => map = changed,
        }
    }
}

async fn pods(context: &Context) {
    let config = watcher::Config::default().fields(&format!("spec.schedulerName={}", keys::PROXY_SCHEDULER));
    let api = Api::<Pod>::all(context.rt.client.clone());
    let mut events = Box::pin(watch(api, config, "local", &context.rt.metrics));
    loop {
        let seen = tokio::select! { () = context.stop.cancelled() => return, seen = events.next() => seen };
        let Some(seen) = seen else { return };
        let keys = context.store().take_pods(seen);
        for key in &keys {
            context.queue.add(key);
        }
    }
}

/// Looks at everything again now and then, should an event ever have been lost.
async fn resync(context: &Context) {
    loop {
        tokio::select! {
            () = context.stop.cancelled() => return,
            () = tokio::time::sleep(jitter(RESYNC, &RESYNC)) => {}
        }
        let keys = context.store().all();
        for key in &keys {
            context.queue.add(key);
        }
    }
}

async fn work(context: Arc<Context>, key: Key) -> Next {
    let mut evidence = Evidence::default();
    for _ in 0..ROUNDS {
        let now = context.rt.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Some(seen) = context.store().observe(&key, evidence, now) else { return Next::Done };
        let plan = plan(&seen);
        let mut learned = false;
        let mut again = plan.again;
        for action in &plan.actions {
            debug!(pod = %key, action = name(action), "acts");
            trace!(pod = %key, ?action, "acts");
            match apply(&context, &key, &seen, action).await {
                Ok(Done::Wrote) => {
                    context.rt.metrics.actions.with_label_values(&["feedback", name(action)]).inc();
                }
                Ok(Done::Learned(update)) => {
                    evidence = update(evidence);
                    learned = true;
                }
                Ok(Done::Held(pause)) => again = Some(again.map_or(pause, |earlier| earlier.min(pause))),
                Err(error) => {
                    let class = error.class();
                    if context.queue.failures(&key) == 0
                        && !matches!(class, Class::Conflict | Class::NotFound)
                    {
                        warn!(pod = %key, error = %Chain(&error), "cannot act; trying again");
                    } else {
                        debug!(pod = %key, error = %Chain(&error), "cannot act; trying again");
                    }
                    return Next::Retry(class);
                }
            }
        }
        if plan.actions.is_empty() && again.is_none() {
            context.store().set_settled(&key);
        }
        if !learned {
            return again.map_or(Next::Done, Next::After);
        }
    }
    Next::Retry(Class::Conflict)
}

/// The metric label of an action.
fn name(action: &Action) -> &'static str {
    match action {
        Action::LookUpDelegate => "look_up_delegate",
        Action::LookUpTarget => "look_up_target",
        Action::LookUpParent => "look_up_parent",
        Action::PatchStatus(_) => "patch_status",
        Action::Tell(_, _) => "event",
        Action::Explain(_) => "explain",
        Action::Release => "release",
        Action::DeleteProxy => "delete_proxy",
        Action::PassGrace(_, _) => "pass_grace",
        Action::PassEphemeral(_, _) => "pass_ephemeral",
        Action::PassUpdates(_, _) => "pass_updates",
        Action::DeleteChaperon(_) => "delete_chaperon",
        Action::SweepChaperon(_) => "sweep_chaperon",
    }
}

/// Whether an error says that the object is gone or another one now.
pub(crate) fn is_over(error: &kube::Error) -> bool {
    matches!(class(error), Class::NotFound | Class::Conflict)
}
