//! The watches of targets: one task for each, once the cluster behind it has proved who it is.

use crate::controller::{Message, Sender, send};
use crate::machine::{Event, Id};
use crate::observe::{self, Source};
use api::{ClusterSummary, PodChaperon, keys};
use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::Config;
use runtime::{CancellationToken, Class, Runtime, Seen, Target, Targets, class, watch};
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// Pauses between attempts to learn who a target is.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// What the watches of a target need.
#[derive(Clone)]
pub(crate) struct Watches {
    pub(crate) runtime: Runtime,
    pub(crate) source: Arc<Source>,
    pub(crate) sender: Sender,
}

impl Watches {
    /// Watches every usable target, each in a task of its own.
    pub(crate) async fn drive(self, targets: Targets, token: CancellationToken) {
        targets
            .drive(token, |target, token| {
                let watches = self.clone();
                async move {
                    // The target comes before what is seen there.
                    send(&watches.sender, Message::Targets);
                    token.run_until_cancelled(watches.watch(&target)).await;
                    let target = Id::from(target.virtual_node());
                    send(&watches.sender, Message::Seen(Box::new(Event::WatchEnded { target })));
                }
            })
            .await;
    }

    async fn watch(&self, target: &Target) {
        let Some((client, cluster_uid)) = target.usable() else { return };
        let metrics = &self.runtime.metrics;
        let (id, label) = (Id::from(target.virtual_node()), target.key.to_string());
        self.prove(client, cluster_uid, &id).await;
        let api: Api<PodChaperon> = match target.key.namespace.as_str() {
            "" => Api::all(client.clone()),
            namespace => Api::namespaced(client.clone(), namespace),
        };
        let own = Config::default().labels(&format!("{}={}", keys::PARENT_CLUSTER_UID, self.source.uid));
        let chaperons = watch(api, own, &label, metrics)
            .filter_map(|seen| std::future::ready(chaperon_event(seen, &id, cluster_uid)));
        let summaries = Api::<ClusterSummary>::all(client.clone());
        let summaries = watch(summaries, Config::default(), &label, metrics)
            .filter_map(|seen| std::future::ready(summary_event(seen, &id)));
        let mut events = std::pin::pin!(futures::stream::select(chaperons, summaries));
        while let Some(event) = events.next().await {
            send(&self.sender, Message::Seen(Box::new(event)));
        }
    }

    /// Returns once the cluster behind a client has said that it is the one which the Target was accepted for.
    /// Nothing is asked or elected there before: what a Target's new credentials lead to may be another cluster.
    async fn prove(&self, client: &kube::Client, cluster_uid: &str, id: &Id) {
        let summaries = Api::<ClusterSummary>::all(client.clone());
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = summaries.get(keys::SINGLETON).await;
            let Some(reason) = doubt(answer.as_ref(), cluster_uid) else { return };
            debug!(cluster = %id, reason, "the target is not used");
            let event = Event::WatchFailed { target: Arc::clone(id), reason: reason.to_owned() };
            send(&self.sender, Message::Seen(Box::new(event)));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }
}

/// Why a cluster's answer does not show that it is the one with this UID.
fn doubt(answer: Result<&ClusterSummary, &kube::Error>, cluster_uid: &str) -> Option<&'static str> {
    match answer {
        Ok(summary) => {
            let uid = summary.metadata.annotations.as_ref().and_then(|all| all.get(keys::CLUSTER_UID));
            (uid.map(String::as_str) != Some(cluster_uid))
                .then_some("another cluster answers in the target's place")
        }
        Err(error) => Some(match class(error) {
            Class::Forbidden => "the target forbids to read its ClusterSummary",
            Class::NotFound => "the target has no ClusterSummary",
            Class::Conflict | Class::Invalid | Class::Unreachable | Class::Overloaded | Class::Bug => {
                "the target does not answer"
            }
        }),
    }
}

fn chaperon_event(seen: Seen<PodChaperon>, id: &Id, cluster_uid: &str) -> Option<Event> {
    let target = Arc::clone(id);
    let read = |chaperon: &PodChaperon| observe::podchaperon(chaperon, id, cluster_uid);
    match seen {
        Seen::Replaced(all) => {
            Some(Event::ChaperonsReplaced { target, chaperons: all.iter().filter_map(read).collect() })
        }
        Seen::Applied(chaperon) => Some(Event::ChaperonApplied { target, chaperon: read(&chaperon)? }),
        Seen::Deleted(chaperon) => {
            let gone = read(&chaperon)?;
            Some(Event::ChaperonDeleted { target, parent: gone.parent, uid: gone.uid })
        }
        // An expired history is no trouble: the list comes anew.
        Seen::Failed(Class::Conflict) => None,
        Seen::Failed(Class::Forbidden) => {
            Some(Event::WatchFailed { target, reason: "the target forbids to watch PodChaperons".to_owned() })
        }
        Seen::Failed(_) => {
            Some(Event::WatchFailed { target, reason: "the target does not answer".to_owned() })
        }
    }
}

fn summary_event(seen: Seen<ClusterSummary>, id: &Id) -> Option<Event> {
    let summary = match seen {
        Seen::Replaced(all) => {
            all.into_iter().find(|found| found.metadata.name.as_deref() == Some(keys::SINGLETON))
        }
        Seen::Applied(summary) => Some(summary),
        Seen::Deleted(_) => None,
        Seen::Failed(_) => return None,
    };
    Some(Event::SummarySeen { target: Arc::clone(id), summary: summary.map(observe::summary) })
}

#[cfg(test)]
mod tests {
    use super::doubt;
    use api::{ClusterSummary, keys};
    use serde_json::json;

    fn summary(uid: &str) -> ClusterSummary {
        serde_json::from_value(json!({"metadata": {"annotations": {keys::CLUSTER_UID: uid}}})).unwrap()
    }

    #[test]
    fn only_the_cluster_that_was_accepted_is_used() {
        assert_eq!(doubt(Ok(&summary("a")), "a"), None);
        assert!(doubt(Ok(&summary("b")), "a").is_some_and(|reason| reason.contains("another cluster")));
        assert!(doubt(Ok(&ClusterSummary::default()), "a").is_some());
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_not_used() {
        assert!(doubt(Err(&kube::Error::LinesCodecMaxLineLengthExceeded), "a").is_some());
    }
}
