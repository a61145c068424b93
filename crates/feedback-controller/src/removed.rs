//! Whether a pod's Target was removed, by a live read that all pods of removed Targets share.

use crate::apply::{Done, Error, failed};
use crate::controller::Context;
use crate::store::Evidence;
use crate::views::Proxy;
use api::v1alpha1::{ClusterTarget, Target};
use api::{TargetStatus, names};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::debug;

/// A read that many share: nobody gets one that was begun before it was asked for.
#[derive(Debug)]
pub(crate) struct Shared<T>(Mutex<Option<(Instant, Option<Arc<T>>)>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Shared<T> {
    /// Reads, or takes what somebody else has begun to read since `asked`; `None` when that one failed.
    async fn get<E>(
        &self,
        asked: Instant,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<Arc<T>>, E> {
        let mut last = self.0.lock().await;
        if let Some((begun, value)) = last.as_ref().filter(|(begun, _)| *begun > asked) {
            debug!(age = ?begun.elapsed(), "shares a list of Targets");
            return Ok(value.clone());
        }
        let begun = Instant::now();
        let found = read.await;
        let (value, answer) = match found {
            Ok(value) => {
                let value = Some(Arc::new(value));
                (value.clone(), Ok(value))
            }
            Err(error) => (None, Err(error)),
        };
        *last = Some((begun, value));
        answer
    }
}

/// What all Targets stand for.
#[derive(Debug, Default)]
pub(crate) struct Known {
    nodes: HashSet<String>,
    /// UIDs of the clusters that they lead to.
    clusters: HashSet<String>,
}

impl Known {
    fn add(&mut self, node: String, status: Option<TargetStatus>) {
        self.nodes.insert(node);
        self.clusters.extend(status.and_then(|status| status.cluster_uid));
    }

    /// Whether a Target has the pod's node or, as long as the pod is bound nowhere, leads to the cluster that was
    /// elected for it: a Target has told its cluster before anything is elected there, and keeps it for life.
    fn has(&self, node: &str, elected: Option<&str>) -> bool {
        match elected {
            Some(cluster) if node.is_empty() => self.clusters.contains(cluster),
            _ => self.nodes.contains(node),
        }
    }
}

/// Reads live whether a pod has a Target. Node names may be hashes, so Targets are listed; this happens only for
/// pods of a Target that was deleted, or when the watch of Targets is behind.
pub(crate) async fn look_up_target(context: &Context, proxy: &Proxy) -> Result<Done, Error> {
    let known = context.targets.get(Instant::now(), targets(context)).await;
    let known = known.map_err(failed("list Targets for", proxy.full_name()))?;
    let Some(known) = known else { return Err(Error::NoList { object: proxy.full_name() }) };
    if known.has(&proxy.node, proxy.elected_target.as_deref()) {
        // The watch of Targets is behind.
        return Err(Error::Stale { object: proxy.full_name() });
    }
    Ok(Done::Learned(|evidence| Evidence { target_gone: true, ..evidence }))
}

async fn targets(context: &Context) -> Result<Known, kube::Error> {
    let params = ListParams::default();
    let client = || context.rt.client.clone();
    let mut known = Known::default();
    for target in Api::<ClusterTarget>::all(client()).list(&params).await? {
        known.add(names::virtual_node("", &target.name_any()), target.status);
    }
    for target in Api::<Target>::all(client()).list(&params).await? {
        let namespace = target.namespace().unwrap_or_default();
        known.add(names::virtual_node(&namespace, &target.name_any()), target.status);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::{Known, Shared};
    use api::TargetStatus;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

    #[test]
    fn w18_a_pod_that_is_bound_nowhere_has_the_target_of_the_cluster_elected_for_it() {
        let status =
            |uid: &str| Some(TargetStatus { cluster_uid: Some(uid.to_owned()), ..TargetStatus::default() });
        let mut known = Known::default();
        known.add("admiralty-t1".to_owned(), status("c1"));
        known.add("admiralty-t2".to_owned(), None);
        assert!(known.has("", Some("c1")) && !known.has("", Some("c2")));
        assert!(known.has("admiralty-t2", Some("c2")) && !known.has("admiralty-t3", Some("c1")));
    }

    #[tokio::test]
    async fn w19_all_pods_of_a_removed_target_share_one_list() {
        let (shared, reads) = (Shared::default(), AtomicUsize::new(0));
        let read = || async {
            tokio::task::yield_now().await;
            Ok::<usize, ()>(reads.fetch_add(1, Ordering::Relaxed))
        };
        let asked = Instant::now();
        let all = futures::future::join_all((0..100).map(|_| shared.get(asked, read()))).await;
        assert!(all.iter().all(|got| got.as_ref().unwrap().as_deref() == Some(&0)));
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn w18_a_list_from_before_says_nothing_about_now() {
        let shared = Shared::default();
        shared.get(Instant::now(), async { Ok::<usize, ()>(1) }).await.unwrap();
        let got = shared.get(Instant::now(), async { Ok::<usize, ()>(2) }).await.unwrap();
        assert_eq!(got.as_deref(), Some(&2));
    }

    #[tokio::test]
    async fn w18_a_list_that_failed_fails_for_all() {
        let shared = Shared::<usize>::default();
        let asked = Instant::now();
        assert_eq!(shared.get(asked, async { Err(()) }).await, Err(()));
        assert_eq!(shared.get(asked, async { Err(()) }).await, Ok(None));
    }
}
