//! Ends what runs through Targets that are being deleted, and lets them go.
//!
//! The only remover of the finalizer of Targets: it goes when the target cluster has confirmed that nothing is left,
//! or when somebody has given the cluster up; then an event lists what may be left there. What is left is swept as
//! orphaned should the cluster ever be a target again.

use crate::controller::Context;
use crate::events::warn_about;
use crate::link::{Link, delete_all};
use crate::views::{Chaperon, Proxy};
use api::v1alpha1::{ClusterTarget, Target as NamespacedTarget};
use api::{keys, names};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::Patch;
use runtime::{Chain, Class, Target, TargetKey, class, patching};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// Between two looks at a target that is being deleted.
const PAUSE: Duration = Duration::from_secs(1);
/// Names that an event lists.
const LISTED: usize = 15;

/// What is seen of a target that is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sight {
    in_step: bool,
    /// PodChaperons behind its node.
    left: usize,
    /// Proxy pods that wait for it.
    held: usize,
    given_up: bool,
}

/// What is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait,
    EndPods,
    /// Says what may be left.
    Tell,
    Release,
}

/// How the departure of one target goes.
#[derive(Debug, Clone, Copy, Default)]
struct Departure {
    was_empty: bool,
    told: bool,
}

impl Departure {
    fn step(&mut self, seen: Sight) -> Step {
        let was_empty =
            std::mem::replace(&mut self.was_empty, seen.in_step && seen.left == 0 && seen.held == 0);
        if seen.in_step {
            return match seen.left {
                0 if was_empty && self.was_empty => Step::Release,
                0 => Step::Wait,
                _ => Step::EndPods,
            };
        }
        if !seen.given_up {
            return Step::Wait;
        }
        if !self.told {
            self.told = true;
            return Step::Tell;
        }
        if seen.held == 0 { Step::Release } else { Step::Wait }
    }
}

/// Goes on while this replica leads.
pub(crate) async fn see_off(context: &Context) {
    let mut known: HashMap<TargetKey, Departure> = HashMap::new();
    loop {
        tokio::select! {
            biased;
            () = context.stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
        let departing = context.store().departing();
        known.retain(|key, _| departing.iter().any(|target| target.key == *key));
        // Each on its own: one that does not answer delays no other.
        let steps = departing.iter().map(|target| {
            let departure = known.get(&target.key).copied().unwrap_or_default();
            async move { (target.key.clone(), advance(context, target, departure).await) }
        });
        known.extend(futures::future::join_all(steps).await);
    }
}

async fn advance(context: &Context, target: &Target, mut departure: Departure) -> Departure {
    let (link, left, held) = {
        let store = context.store();
        let link = store.link(&target.key).filter(|link| link.is_in_step());
        (link, store.behind(&target.key), store.held_by(target))
    };
    let seen =
        Sight { in_step: link.is_some(), left: left.len(), held: held.len(), given_up: target.is_given_up() };
    match (departure.step(seen), link) {
        (Step::Wait, _) | (Step::EndPods, None) => {
            debug!(cluster = %target.key, ?seen, "waits for a deleted target");
        }
        (Step::EndPods, Some(link)) => end_pods(context, &link, &left).await,
        (Step::Tell, _) => tell(context, target, &inventory(&left, &held)).await,
        (Step::Release, _) => release(context, target).await,
    }
    departure
}

async fn end_pods(context: &Context, link: &Link, left: &[Arc<Chaperon>]) {
    info!(cluster = %link.key, podchaperons = left.len(), "a target is being deleted; its pods end");
    delete_all(context, link, left).await;
}

/// PodChaperons that were known last, and those for which there is a proxy pod.
fn inventory(left: &[Arc<Chaperon>], held: &[Arc<Proxy>]) -> BTreeSet<String> {
    let known = left.iter().map(|chaperon| format!("{}/{}", chaperon.namespace, chaperon.name));
    let elected = held.iter().map(|proxy| {
        let name = names::chaperon(&proxy.name, &proxy.uid, &proxy.node);
        format!("{}/{name}", proxy.namespace)
    });
    known.chain(elected).collect()
}

/// What an event can hold of an inventory.
fn sentence(cluster: &str, inventory: &BTreeSet<String>) -> String {
    let listed: Vec<&str> = inventory.iter().take(LISTED).map(String::as_str).collect();
    let more = inventory.len().saturating_sub(listed.len());
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!(
        "Removed without a word from cluster {cluster}. PodChaperons that may be left there: {}: {}{more}. They are \
         deleted when the cluster is a target again.",
        inventory.len(),
        listed.join(", ")
    )
}

async fn tell(context: &Context, target: &Target, inventory: &BTreeSet<String>) {
    let cluster = target.status.cluster_uid.as_deref().unwrap_or_default();
    for chaperon in inventory {
        info!(cluster = %target.key, uid = cluster, chaperon = %chaperon, "may be left in a target that is given up");
    }
    warn_about(context, reference(target), ("RemovedByForce", &sentence(cluster, inventory))).await;
}

fn reference(target: &Target) -> ObjectReference {
    let is_cluster = target.key.namespace.is_empty();
    ObjectReference {
        api_version: Some(format!("{}v1alpha1", keys::PREFIX)),
        kind: Some(if is_cluster { "ClusterTarget" } else { "Target" }.to_owned()),
        namespace: (!is_cluster).then(|| target.key.namespace.clone()),
        name: Some(target.key.name.clone()),
        uid: Some(target.uid.clone()),
        ..ObjectReference::default()
    }
}

/// A patch that takes our finalizer off this very object, if it stands where it was seen.
fn without_finalizer(target: &Target) -> Option<Value> {
    let at = target.finalizers.iter().position(|finalizer| finalizer == keys::TARGET_FINALIZER)?;
    let path = format!("/metadata/finalizers/{at}");
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": target.uid},
        {"op": "test", "path": path, "value": keys::TARGET_FINALIZER},
        {"op": "remove", "path": path},
    ]))
}

async fn release(context: &Context, target: &Target) {
    let Some(operations) = without_finalizer(target) else { return };
    let patch: json_patch::Patch = match serde_json::from_value(operations) {
        Ok(patch) => patch,
        Err(error) => {
            warn!(cluster = %target.key, error = %Chain(&error), "cannot make a patch for a target");
            return;
        }
    };
    let (patch, params) = (Patch::Json::<()>(patch), patching(&context.rt.manager()));
    let client = context.rt.client.clone();
    let result = if target.key.namespace.is_empty() {
        Api::<ClusterTarget>::all(client).patch_metadata(&target.key.name, &params, &patch).await.map(drop)
    } else {
        let api = Api::<NamespacedTarget>::namespaced(client, &target.key.namespace);
        api.patch_metadata(&target.key.name, &params, &patch).await.map(drop)
    };
    match result {
        Ok(()) => info!(cluster = %target.key, "nothing holds a deleted target any more"),
        Err(error) if matches!(class(&error), Class::NotFound | Class::Conflict | Class::Invalid) => {
            debug!(cluster = %target.key, error = %Chain(&error), "lost a race for a deleted target");
        }
        Err(error) => {
            warn!(cluster = %target.key, error = %Chain(&error), "cannot let a deleted target go; trying again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Departure, Sight, Step, inventory, sentence};
    use std::collections::BTreeSet;

    const CLEAN: Sight = Sight { in_step: true, left: 0, held: 0, given_up: false };
    const SILENT: Sight = Sight { in_step: false, left: 2, held: 2, given_up: false };

    fn steps(sights: &[Sight]) -> Vec<Step> {
        let mut departure = Departure::default();
        sights.iter().map(|seen| departure.step(*seen)).collect()
    }

    #[test]
    fn case_043_a_target_goes_when_nothing_was_left_twice() {
        let busy = Sight { left: 1, held: 1, ..CLEAN };
        let waiting = Sight { held: 1, ..CLEAN };
        let want = [Step::EndPods, Step::Wait, Step::Wait, Step::Release];
        assert_eq!(steps(&[busy, waiting, CLEAN, CLEAN]), want);
        assert_eq!(
            steps(&[CLEAN, SILENT, CLEAN, CLEAN]),
            [Step::Wait, Step::Wait, Step::Wait, Step::Release]
        );
    }

    #[test]
    fn case_043_a_silent_target_stays_for_ever_unless_it_is_given_up() {
        assert_eq!(steps(&[SILENT; 100]), [Step::Wait; 100]);
        let given_up = Sight { given_up: true, ..SILENT };
        let empty = Sight { held: 0, ..given_up };
        let want = [Step::Wait, Step::Tell, Step::Wait, Step::Release];
        assert_eq!(steps(&[SILENT, given_up, given_up, empty]), want);
    }

    #[test]
    fn case_043_a_target_that_answers_is_emptied_even_when_it_is_given_up() {
        let busy = Sight { left: 1, held: 1, given_up: true, in_step: true };
        assert_eq!(steps(&[busy, busy]), [Step::EndPods, Step::EndPods]);
    }

    #[test]
    fn case_043_an_event_lists_what_may_be_left() {
        assert_eq!(inventory(&[], &[]), BTreeSet::new());
        let names: BTreeSet<String> = (0..100).map(|number| format!("ns/pod-{number:03}")).collect();
        let text = sentence("uid", &names);
        assert!(text.contains("cluster uid") && text.contains(": 100: ns/pod-000, ns/pod-001"), "{text}");
        assert!(text.contains("and 85 more") && text.len() < 1024, "{text}");
    }
}
