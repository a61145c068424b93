//! Watches that never end: they survive expired versions, closed and silent connections and restarts of the
//! API server, and say when they are in trouble.

use crate::errors::{Chain, Class, class};
use crate::metrics::Metrics;
use crate::queue::jitter;
use futures::{Stream, StreamExt};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch_kube};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tracing::{debug, warn};

/// Seconds after which the API server ends a watch and we resume it where it ended.
const WATCH_SECONDS: u32 = 60;

/// The pause after the first failure in a row; each that follows doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The pauses of one watch, which are not those of others.
struct Pauses {
    salt: String,
    failures: u32,
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(self.failures.min(8))).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        Some(jitter(pause, &(&self.salt, self.failures)))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

/// What a watch saw.
#[derive(Debug, Clone)]
pub enum Seen<K> {
    /// The whole list, at the start and whenever the history was lost: what is not in it is gone.
    Replaced(Vec<K>),
    /// An object was added or changed.
    Applied(K),
    /// An object is gone; its last state.
    Deleted(K),
    /// Nothing is seen at the moment. The next event says more.
    Failed(Class),
}

/// Watches for ever. The stream never ends; after a failure it backs off and says `Replaced` or goes on.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    cluster: &str,
    metrics: &Metrics,
) -> impl Stream<Item = Seen<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch_telling(api, config, cluster, metrics, || ())
}

/// The same, and `lists` is called before each list is asked for. What was known then is older than the list, even
/// if its resourceVersion is higher: an etcd that is restored from a backup has objects as they were, with their
/// versions from then.
pub fn watch_telling<K>(
    api: Api<K>,
    config: watcher::Config,
    cluster: &str,
    metrics: &Metrics,
    mut lists: impl FnMut() + Send + 'static,
) -> impl Stream<Item = Seen<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let kind = K::kind(&()).into_owned();
    let synced = metrics.cache_synced.with_label_values(&[kind.as_str(), cluster]);
    synced.set(0);
    let cluster = cluster.to_owned();
    let mut list: Vec<K> = Vec::new();
    let mut failing = false;
    let pauses = Pauses { salt: format!("{cluster}/{kind}"), failures: 0 };
    watch_kube(api, config.timeout(WATCH_SECONDS)).backoff(pauses).filter_map(move |event| {
        let seen = match event {
            Ok(Event::Init) => {
                list = Vec::new();
                lists();
                None
            }
            Ok(Event::InitApply(object)) => {
                list.push(object);
                None
            }
            Ok(Event::InitDone) => {
                synced.set(1);
                Some(Seen::Replaced(std::mem::take(&mut list)))
            }
            Ok(Event::Apply(object)) => Some(Seen::Applied(object)),
            Ok(Event::Delete(object)) => Some(Seen::Deleted(object)),
            Err(error) => {
                let class = watch_class(&error);
                if failing {
                    debug!(cluster, kind, error = %Chain(&error), "watch still fails");
                } else {
                    warn!(cluster, kind, error = %Chain(&error), "watch fails; keeping what is known");
                }
                synced.set(0);
                failing = true;
                Some(Seen::Failed(class))
            }
        };
        if matches!(seen, Some(Seen::Replaced(_) | Seen::Applied(_) | Seen::Deleted(_))) {
            if failing {
                synced.set(1);
            }
            failing = false;
        }
        futures::future::ready(seen)
    })
}

fn watch_class(error: &watcher::Error) -> Class {
    match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => class(source),
        watcher::Error::WatchError(status) if status.code == 410 => Class::Conflict,
        watcher::Error::WatchError(_) => Class::Overloaded,
        watcher::Error::NoResourceVersion => Class::Bug,
    }
}
