//! Events of delegates, shown on their proxy pods, so that `kubectl describe` says of a pod what its kubelet says.
//!
//! An event is shown once, under a name that follows from its own, and changes there when it happens again. How many
//! are written is bounded for each pod and for each target: what is beyond the bound is left out until it happens
//! again, warnings last.

mod plan;

use api::{Pod, PodChaperon, keys};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use plan::{Memory, Parent, Step, is_of_delegate, plan};
use runtime::{CancellationToken, Chain, Class, Runtime, Seen, TargetKey, class, watch};
use serde_json::json;
use tracing::{debug, warn};

/// One target, as its events are followed.
pub(crate) struct Teller {
    pub(crate) rt: Runtime,
    pub(crate) key: TargetKey,
    /// The target.
    pub(crate) client: Client,
    pub(crate) counts: prometheus::IntCounterVec,
}

/// What events of delegates came to.
///
/// # Errors
///
/// The family is registered already.
pub(crate) fn counts(
    registry: &prometheus::Registry,
) -> Result<prometheus::IntCounterVec, prometheus::Error> {
    let counts = prometheus::IntCounterVec::new(
        prometheus::Opts::new(
            "multicluster_virtual_kubelet_events_total",
            "Events of delegates: shown on proxy pods, or left out as too many.",
        ),
        &["cluster", "outcome"],
    )?;
    registry.register(Box::new(counts.clone()))?;
    Ok(counts)
}

/// Follows the events of a target until stopped.
pub(crate) async fn follow(teller: Teller, stop: CancellationToken) {
    let events = match teller.key.namespace.as_str() {
        "" => Api::<Event>::all(teller.client.clone()),
        namespace => Api::namespaced(teller.client.clone(), namespace),
    };
    let config = watcher::Config::default().fields("involvedObject.kind=Pod");
    let cluster = teller.key.to_string();
    let mut seen = Box::pin(watch(events, config, &cluster, &teller.rt.metrics));
    let mut memory = Memory::default();
    let telling = async {
        while let Some(seen) = seen.next().await {
            let all = match seen {
                Seen::Replaced(all) => all,
                Seen::Applied(event) => vec![event],
                Seen::Deleted(_) | Seen::Failed(_) => continue,
            };
            for event in all.into_iter().filter(is_of_delegate) {
                teller.tell(&mut memory, &event).await;
            }
        }
    };
    stop.run_until_cancelled(Box::pin(telling)).await;
}

impl Teller {
    async fn tell(&self, memory: &mut Memory, event: &Event) {
        let now = self.rt.clock.now();
        if !memory.is_news(event, now) {
            return;
        }
        let delegate = event.involved_object.uid.clone().unwrap_or_default();
        let parent = match memory.parent(&delegate) {
            Some(known) => known.clone(),
            None => match self.parent(event).await {
                Ok(found) => memory.learn(delegate, found),
                Err(error) => {
                    debug!(cluster = %self.key, error = %Chain(&error), "cannot find out whose event this is");
                    return;
                }
            },
        };
        let Some(parent) = parent else { return };
        let outcome = match plan(memory, event, &parent, (&self.key.to_string(), now)) {
            Step::Show(shown) => self.show(*shown).await,
            Step::LeaveOut => "left-out",
        };
        self.counts.with_label_values(&[self.key.to_string().as_str(), outcome]).inc();
    }

    /// The proxy pod of the delegate that an event is about: it must be there and on this target's node.
    async fn parent(&self, event: &Event) -> Result<Option<Parent>, kube::Error> {
        let object = &event.involved_object;
        let (namespace, name) =
            (object.namespace.clone().unwrap_or_default(), object.name.clone().unwrap_or_default());
        let chaperons = Api::<PodChaperon>::namespaced(self.client.clone(), &namespace);
        // A source may list them, and need not be able to get one.
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let Some(chaperon) = chaperons.list_metadata(&named).await?.items.into_iter().next() else {
            return Ok(None);
        };
        let Some(uid) = chaperon.labels().get(keys::PARENT_UID).cloned() else { return Ok(None) };
        let annotation =
            |key: &str, default: String| chaperon.annotations().get(key).cloned().unwrap_or(default);
        let parent = Parent {
            namespace: annotation(keys::PARENT_NAMESPACE, namespace),
            name: annotation(keys::PARENT_NAME, name),
            uid,
        };
        let pods = Api::<Pod>::namespaced(self.rt.client.clone(), &parent.namespace);
        let node = self.key.virtual_node();
        let pod = pods.get_opt(&parent.name).await?;
        Ok(pod.filter(|pod| pod.uid() == parent.uid && pod.node() == node).map(|_ours| parent))
    }

    /// Writes one event, or what changed of it; says what came of it.
    async fn show(&self, event: Event) -> &'static str {
        let events = Api::<Event>::namespaced(self.rt.client.clone(), &event.namespace().unwrap_or_default());
        let params = PostParams { field_manager: Some(self.rt.manager()), ..PostParams::default() };
        let Err(error) = events.create(&params, &event).await else { return "shown" };
        let error = if class(&error) == Class::Conflict {
            let patch = json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
            let params = PatchParams { field_manager: Some(self.rt.manager()), ..PatchParams::default() };
            match events.patch(&event.name_any(), &params, &Patch::Merge(patch)).await {
                Ok(_) => return "shown",
                Err(error) => error,
            }
        } else {
            error
        };
        // The next time that it happens is another try.
        warn!(cluster = %self.key, error = %Chain(&error), "cannot show an event of a delegate");
        "failed"
    }
}
