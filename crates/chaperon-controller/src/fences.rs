//! Watches the Leases of sources, writes what is to be remembered of them, and wakes what depends on them.

use crate::apply::Context;
use crate::cache::Key;
use crate::fence::{Fence, Fences, Holder, Note, Order, State, mark, need};
use crate::patches::json_patch;
use api::{PodChaperon, keys};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher;
use kube::{Api, Client};
use runtime::queue::Queue;
use runtime::{Chain, Runtime, Seen, patching};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// Between two looks at the time.
const PAUSE: Duration = Duration::from_secs(1);

/// The Leases, as this process has seen them, on its own clock.
pub(crate) struct Watched {
    began: Instant,
    fences: Mutex<Fences>,
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), fences: Mutex::new(Fences::new(Duration::ZERO)) }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn fences(&self) -> MutexGuard<'_, Fences> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the Lease says about a PodChaperon, if it needs one.
    pub(crate) fn verdict(&self, chaperon: Option<&PodChaperon>) -> Fence {
        let Some(needed) = chaperon.and_then(need) else { return Fence::Open };
        self.fences().verdict(&needed, self.now())
    }

    fn see(&self, lease: &Lease, listed: bool) {
        self.fences().see(lease, listed, self.now());
    }

    fn due(&self) -> Vec<Order> {
        self.fences().due(self.now())
    }
}

pub(crate) type Leases = Pin<Box<dyn Stream<Item = Seen<Lease>> + Send>>;

pub(crate) fn watch(runtime: &Runtime) -> Leases {
    let config = watcher::Config::default().labels(keys::PARENT_CLUSTER_UID);
    Box::pin(runtime::watch(Api::all(runtime.client.clone()), config, "local", &runtime.metrics))
}

/// Takes in the first list.
pub(crate) async fn sync(watched: &Watched, leases: &mut Leases) {
    while let Some(seen) = leases.next().await {
        if let Seen::Replaced(all) = seen {
            all.iter().for_each(|lease| watched.see(lease, true));
            return;
        }
    }
}

/// Follows the Leases, and looks at the time.
pub(crate) async fn follow(context: &Context, queue: &Queue<Key>, mut leases: Leases) {
    let mut told = BTreeMap::new();
    let mut ticks = tokio::time::interval(PAUSE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            seen = leases.next() => match seen {
                Some(Seen::Replaced(all)) => all.iter().for_each(|lease| context.fences.see(lease, true)),
                Some(Seen::Applied(lease)) => context.fences.see(&lease, false),
                // One that is gone was not renewed. What was known of it holds.
                Some(Seen::Deleted(_) | Seen::Failed(_)) => {}
                None => return,
            },
            _ = ticks.tick() => {
                for order in context.fences.due() {
                    write(context, &order).await;
                }
            }
        }
        wake(context, queue, &mut told);
    }
}

/// Adds what the Leases say something new about.
fn wake(context: &Context, queue: &Queue<Key>, told: &mut BTreeMap<(Holder, u64), Fence>) {
    let needs = context.cache.needs();
    let (fences, now) = (context.fences.fences(), context.fences.now());
    told.retain(|needed, _| needs.contains_key(needed));
    for (needed, keys) in needs {
        let verdict = fences.verdict(&needed, now);
        if told.insert(needed, verdict) != Some(verdict) {
            keys.iter().for_each(|key| queue.add(key));
        }
    }
}

/// Writes one note, if the Lease has not been renewed since that was decided.
async fn write(context: &Context, order: &Order) {
    let api: Api<Lease> = Api::namespaced(Client::clone(&context.client), &order.namespace);
    let patched = api.patch(&order.name, &patching(&context.manager), &json_patch(note(order))).await;
    match patched {
        Ok(lease) => {
            context.fences.see(&lease, false);
            if order.note == Note::Expired {
                warn!(
                    namespace = order.namespace,
                    lease = order.name,
                    epoch = order.state.epoch,
                    "a source has not renewed its Lease; what runs once for it is stopped"
                );
            } else {
                info!(
                    namespace = order.namespace,
                    lease = order.name,
                    "noted that the age of a Lease is not known"
                );
            }
        }
        Err(error) => {
            debug!(namespace = order.namespace, lease = order.name, error = %Chain(&error), "cannot write on a Lease");
        }
    }
}

fn note(order: &Order) -> Value {
    let State { epoch, counter } = order.state;
    let path = |key: &str| format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"));
    let (key, value) = match order.note {
        Note::Doubt => (keys::FENCE_DOUBT, mark(order.state)),
        Note::Expired => (keys::FENCE_EXPIRED, epoch.to_string()),
    };
    json!([
        {"op": "test", "path": "/spec/leaseTransitions", "value": epoch},
        {"op": "test", "path": path(keys::FENCE_COUNTER), "value": counter.to_string()},
        {"op": "add", "path": path(key), "value": value},
    ])
}
