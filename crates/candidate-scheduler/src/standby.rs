//! When a replica is ready: it could list and watch all that a leader does, and if it leads, it is in step.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use api::{ClusterSummary, Node, Pod, PodChaperon};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, ResourceQuota, ServiceAccount};
use kube::api::{ListParams, WatchParams};
use kube::{Api, Client, Resource};
use runtime::Chain;
use runtime::admin::Readiness;
use runtime::queue::jitter;
use serde::de::DeserializeOwned;
use tracing::warn;

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

/// A kind that is watched, as `/readyz` names it.
fn name<K: Resource<DynamicType = ()>>() -> &'static str {
    match K::plural(&()) {
        Cow::Borrowed(name) => name,
        Cow::Owned(_) => "objects",
    }
}

/// What a replica is checked with.
pub(crate) struct Standby<'a> {
    pub(crate) client: &'a Client,
    pub(crate) readiness: &'a Readiness,
}

impl Standby<'_> {
    /// Nothing was listed yet.
    pub(crate) fn begin(&self) {
        let nodes = [name::<Node>(), name::<Pod>(), name::<PodChaperon>(), name::<ClusterSummary>()];
        let admission = [
            name::<Namespace>(),
            name::<ServiceAccount>(),
            name::<ResourceQuota>(),
            name::<LimitRange>(),
            name::<MutatingWebhookConfiguration>(),
            name::<ValidatingWebhookConfiguration>(),
        ];
        for kind in nodes.into_iter().chain(admission) {
            self.readiness.set(kind, false);
        }
    }

    /// Checks until all can be listed and watched, then waits for ever.
    pub(crate) async fn stand_by(&self) -> Infallible {
        while self.readiness.missing().iter().any(|kind| *kind != IN_STEP) {
            self.check().await;
            tokio::time::sleep(jitter(PAUSE)).await;
        }
        std::future::pending().await
    }

    async fn check(&self) {
        self.check_kind::<Node>().await;
        self.check_kind::<Pod>().await;
        self.check_kind::<PodChaperon>().await;
        self.check_kind::<ClusterSummary>().await;
        self.check_kind::<Namespace>().await;
        self.check_kind::<ServiceAccount>().await;
        self.check_kind::<ResourceQuota>().await;
        self.check_kind::<LimitRange>().await;
        self.check_kind::<MutatingWebhookConfiguration>().await;
        self.check_kind::<ValidatingWebhookConfiguration>().await;
    }

    async fn check_kind<K>(&self)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let kind = name::<K>();
        if !self.readiness.missing().contains(&kind) {
            return;
        }
        match list_and_watch::<K>(self.client).await {
            Ok(()) => self.readiness.set(kind, true),
            Err(error) => {
                warn!(kind, error = %Chain(&error), "cannot be in step with the cluster; not ready");
            }
        }
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
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A cluster that refuses requests with all of these words in their path and query.
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = refusing(words);
            let standby = Standby { client: &client, readiness: &readiness };
            standby.begin();
            standby.check().await;
        });
        readiness.missing()
    }

    #[test]
    fn a_replica_is_ready_when_it_could_list_and_watch_everything() {
        assert!(missing(&["nothing"]).is_empty());
        assert_eq!(missing(&["podchaperons"]), ["podchaperons"]);
        assert_eq!(missing(&["/nodes", "watch="]), ["nodes"], "a right to list alone is too little");
        assert_eq!(missing(&["/"]).len(), 10, "every watch has a condition of its own");
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
