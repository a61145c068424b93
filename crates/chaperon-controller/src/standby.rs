//! When a replica is ready: it could list and watch all that a leader does, and if it leads, it is in step.

use api::{Pod, PodChaperon};
use kube::api::{ListParams, WatchParams};
use kube::{Api, Client, Resource};
use runtime::Chain;
use runtime::admin::Readiness;
use runtime::queue::jitter;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;
use tracing::warn;

/// What is watched, as `/readyz` names it.
const PODS: &str = "pods";
/// See [`PODS`].
const CHAPERONS: &str = "podchaperons";
/// Pause between two checks.
const PAUSE: Duration = Duration::from_secs(2);

/// What a leader is not yet, as `/readyz` names it.
const IN_STEP: &str = "the cluster's state";

/// A term as leader: not ready until in step. Whoever stands by again need not be.
pub(crate) struct Term(Readiness);

impl Term {
    pub(crate) fn begin(readiness: &Readiness) -> Self {
        readiness.set(IN_STEP, false);
        Self(readiness.clone())
    }

    pub(crate) fn in_step(&self) {
        self.0.set(IN_STEP, true);
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.in_step();
    }
}

/// Nothing was listed yet.
pub(crate) fn begin(readiness: &Readiness) {
    for kind in [PODS, CHAPERONS] {
        readiness.set(kind, false);
    }
}

/// Checks until all can be listed and watched, then waits for ever.
pub(crate) async fn stand_by(client: &Client, readiness: &Readiness) -> Infallible {
    while readiness.missing().iter().any(|kind| *kind != IN_STEP) {
        check(client, readiness).await;
        tokio::time::sleep(jitter(PAUSE)).await;
    }
    std::future::pending().await
}

async fn check(client: &Client, readiness: &Readiness) {
    check_kind::<Pod>(client, readiness, PODS).await;
    check_kind::<PodChaperon>(client, readiness, CHAPERONS).await;
}

async fn check_kind<K>(client: &Client, readiness: &Readiness, kind: &'static str)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    if !readiness.missing().contains(&kind) {
        return;
    }
    match list_and_watch::<K>(client).await {
        Ok(()) => readiness.set(kind, true),
        Err(error) => warn!(kind, error = %Chain(&error), "cannot be in step with the cluster; not ready"),
    }
}

/// The beginning of what a leader does.
async fn list_and_watch<K>(client: &Client) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let list = api.list(&ListParams::default().limit(1)).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let _events = api.watch(&WatchParams::default().timeout(1), &version).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{CHAPERONS, IN_STEP, Term, begin, check};
    use kube::Client;
    use kube::client::Body;
    use runtime::admin::Readiness;
    use serde_json::json;

    /// A cluster that refuses requests with one of these words in their path and query.
    fn refusing(words: &'static [&'static str]) -> Client {
        let answer = move |request: http::Request<Body>| async move {
            let uri = request.uri().to_string();
            let refused = words.iter().all(|word| uri.contains(word));
            let (code, body) = if refused {
                (403, json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"}))
            } else {
                (200, json!({"metadata": {"resourceVersion": "7"}, "items": []}))
            };
            http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[track_caller]
    fn missing(words: &'static [&'static str]) -> Vec<&'static str> {
        let readiness = Readiness::default();
        begin(&readiness);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { check(&refusing(words), &readiness).await });
        readiness.missing()
    }

    #[test]
    fn a_replica_is_ready_when_it_could_list_and_watch_everything() {
        assert!(missing(&["nothing"]).is_empty());
        assert_eq!(missing(&["podchaperons"]), [CHAPERONS]);
        assert_eq!(missing(&["podchaperons", "watch="]), [CHAPERONS], "a right to list alone is too little");
    }

    #[test]
    fn a_leader_is_not_ready_until_it_is_in_step_and_one_that_stepped_down_need_not_be() {
        let readiness = Readiness::default();
        let term = Term::begin(&readiness);
        assert_eq!(readiness.missing(), [IN_STEP]);
        term.in_step();
        assert!(readiness.missing().is_empty());
        let next = Term::begin(&readiness);
        assert_eq!(readiness.missing(), [IN_STEP]);
        drop(next);
        assert!(readiness.missing().is_empty());
    }
}
