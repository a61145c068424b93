//! Pods that carry our finalizer but not our scheduler: another webhook took them after ours.
//!
//! They were never elected and run elsewhere, or not at all. Nobody else would remove the finalizer, so it
//! goes as soon as they are deleted; nothing else of them is ours.

use crate::apply::release;
use crate::controller::Context;
use crate::store::Key;
use crate::views::Proxy;
use api::{Pod, keys};
use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher;
use runtime::{Chain, Class, Seen, watch};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(5);

/// Selects them: usually none.
fn selectors() -> (String, String) {
    (format!("{}=true", keys::HAS_FINALIZER), format!("spec.schedulerName!={}", keys::PROXY_SCHEDULER))
}

/// Those that wait for their finalizer's removal.
#[derive(Debug, Default)]
struct Strays(HashMap<Key, Proxy>);

impl Strays {
    fn take(&mut self, seen: Seen<Pod>) {
        match seen {
            Seen::Replaced(pods) => {
                self.0.clear();
                pods.iter().for_each(|pod| self.put(pod));
            }
            Seen::Applied(pod) => self.put(&pod),
            Seen::Deleted(pod) => {
                self.0.remove(pod.uid());
            }
            Seen::Failed(_) => {}
        }
    }

    fn put(&mut self, pod: &Pod) {
        let held = Proxy::new(pod).filter(|stray| stray.is_held() && stray.deleting.is_some());
        match held {
            Some(stray) => self.0.insert(Arc::from(pod.uid()), stray),
            None => self.0.remove(pod.uid()),
        };
    }
}

/// Frees them while this replica leads.
pub(crate) async fn free(context: &Context) {
    let (labels, fields) = selectors();
    let config = watcher::Config::default().labels(&labels).fields(&fields);
    let pods = Api::<Pod>::all(context.rt.client.clone());
    let mut events = Box::pin(watch(pods, config, "local", &context.rt.metrics));
    let mut strays = Strays::default();
    loop {
        let seen = tokio::select! {
            () = context.stop.cancelled() => return,
            seen = events.next() => seen,
            () = tokio::time::sleep(PAUSE), if !strays.0.is_empty() => Some(Seen::Failed(Class::Conflict)),
        };
        let Some(seen) = seen else { return };
        strays.take(seen);
        let mut freed = Vec::new();
        for (key, stray) in &strays.0 {
            match release(context, key, stray).await {
                Ok(_) => freed.push(Arc::clone(key)),
                Err(error) => {
                    warn!(pod = %stray.full_name(), error = %Chain(&error), "cannot free a pod that has another scheduler; trying again");
                }
            }
        }
        freed.iter().for_each(|key| drop(strays.0.remove(key)));
    }
}

#[cfg(test)]
mod tests {
    use super::{Seen, Strays, selectors};
    use api::{Pod, keys};
    use serde_json::{Value, json};

    fn pod(uid: &str, metadata: &Value) -> Pod {
        let mut object = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid}, "spec": {"schedulerName": "other"}});
        json_patch::merge(&mut object["metadata"], metadata);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_deleted_pod_that_got_another_scheduler_after_us_is_freed() {
        let (held, deleted) = (json!([keys::DELEGATE_FINALIZER]), "2026-01-01T00:00:00Z");
        let mut strays = Strays::default();
        strays.take(Seen::Replaced(vec![
            pod("lives", &json!({"finalizers": held})),
            pod("ends", &json!({"finalizers": held, "deletionTimestamp": deleted})),
            pod("of-others", &json!({"finalizers": ["example.com/mine"], "deletionTimestamp": deleted})),
        ]));
        let waiting = |strays: &Strays| strays.0.keys().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(waiting(&strays), ["ends"]);
        strays.take(Seen::Applied(pod("ends", &json!({"deletionTimestamp": deleted}))));
        assert_eq!(waiting(&strays), Vec::<String>::new());
    }

    #[test]
    fn only_pods_with_our_label_and_another_scheduler_are_asked_for() {
        let (labels, fields) = selectors();
        assert_eq!(labels, "multicluster.admiralty.io/has-finalizer=true");
        assert_eq!(fields, "spec.schedulerName!=admiralty-proxy");
    }
}
