//! Whether a pod's Target was removed, by a live read that all pods of removed Targets share.

use crate::apply::{Done, Error, failed};
use crate::controller::Context;
use crate::store::Evidence;
use crate::views::Proxy;
use api::names;
use api::v1alpha1::{ClusterTarget, Target};
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

/// Nodes of all Targets.
pub(crate) type Nodes = Shared<HashSet<String>>;

/// Reads live whether a Target has the pod's node. Node names may be hashes, so Targets are listed; this
/// happens only for pods of a Target that was deleted.
pub(crate) async fn look_up_target(context: &Context, proxy: &Proxy) -> Result<Done, Error> {
    let nodes = context.nodes.get(Instant::now(), nodes(context)).await;
    let nodes = nodes.map_err(failed("list Targets for", proxy.full_name()))?;
    let Some(nodes) = nodes else { return Err(Error::NoList { object: proxy.full_name() }) };
    if nodes.contains(&proxy.node) {
        // The watch of Targets is behind.
        return Err(Error::Stale { object: proxy.full_name() });
    }
    Ok(Done::Learned(|evidence| Evidence { target_gone: true, ..evidence }))
}

async fn nodes(context: &Context) -> Result<HashSet<String>, kube::Error> {
    let params = ListParams::default();
    let client = || context.rt.client.clone();
    let all = Api::<ClusterTarget>::all(client()).list_metadata(&params).await?;
    let mut nodes: HashSet<String> =
        all.iter().map(|target| names::virtual_node("", &target.name_any())).collect();
    let all = Api::<Target>::all(client()).list_metadata(&params).await?;
    let node =
        |namespace: Option<String>, name: &str| names::virtual_node(&namespace.unwrap_or_default(), name);
    nodes.extend(all.iter().map(|target| node(target.namespace(), &target.name_any())));
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::Shared;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::Instant;

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
